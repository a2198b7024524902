"""Policies say what a site allows and requires. Reads a ``policy.yaml``, applies its site rules to the matrix, and judges
environments."""

"""What a site allows and requires: reads a ``policy.yaml``, applies its site rules to the matrix, and judges environments."""

"""A user's own recipe, ``envbuild.yaml``: read strictly, and written by ``envbuild init``."""

"""Read and write the user's recipe, ``envbuild.yaml``."""

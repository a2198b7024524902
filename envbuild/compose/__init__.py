"""Compose images: write the layers of wheels directly from the locked files, without running an installer in a container."""

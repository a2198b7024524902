"""Writes what people need to start an image: commands for Docker, Podman and Apptainer, and files for Compose and development
containers."""

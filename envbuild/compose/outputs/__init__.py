"""Write a composed image to a folder, to a file, into an engine or to a registry, and pull images from a registry."""

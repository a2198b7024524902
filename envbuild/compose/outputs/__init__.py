"""The outputs of a composed image: a folder, a file, an engine, a registry."""

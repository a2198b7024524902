"""Where a composed image can go: a folder, a file, an engine, a registry."""

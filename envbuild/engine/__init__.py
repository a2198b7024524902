"""Container engines: choose an engine, build and run images, provide base images, and run the private engine."""

"""Container engines: choosing one, building and running images, base images, and the private engine."""

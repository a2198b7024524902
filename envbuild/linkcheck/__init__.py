"""Check that the shared libraries of an image fit together, as the dynamic loader would find them, without running it."""

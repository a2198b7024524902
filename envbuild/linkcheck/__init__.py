"""Check, without running an image, that the shared libraries that the dynamic loader would find in the image fit together."""

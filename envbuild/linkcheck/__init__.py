"""Check, without running an image, that its shared libraries fit together as the dynamic loader would find them."""

"""The stages in their order, and the rules by which a second run skips unchanged stages."""

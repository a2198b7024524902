"""The stages from a request to a tested image, their order, and the rules by which a later run skips unchanged stages."""

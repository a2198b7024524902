"""Composed images: layers that are made from the locked files, without an engine."""

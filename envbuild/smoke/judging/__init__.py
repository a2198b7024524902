"""Turns the measurements of the ranks into checks with a verdict."""

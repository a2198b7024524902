"""TODO owner."""

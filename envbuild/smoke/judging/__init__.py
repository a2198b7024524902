"""From what the ranks measured to checks with a verdict."""

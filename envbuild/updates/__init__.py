"""Updates the matrix, locks and renderings of a checkout as one set. The whole set becomes a git branch, or nothing changes."""

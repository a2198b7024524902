"""Compare the matrix with the package index, and propose rows for new releases."""

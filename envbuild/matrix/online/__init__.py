"""The matrix beside the package index: where they differ, and rows for new releases."""

"""Makes locks from environments (asking a package index), reads and writes them, checks and compares them."""

"""Make locks from environments (with a package index); read, write, check and compare locks."""

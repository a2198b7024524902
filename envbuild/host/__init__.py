"""Reads the machine: driver, GPUs, container toolkit, what is missing for building, and what of the matrix runs here."""

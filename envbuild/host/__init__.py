"""Inspect this machine: driver, GPUs, container toolkit, missing build tools, and which environments run here."""

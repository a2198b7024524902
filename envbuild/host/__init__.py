"""Inspect this machine: its driver, GPUs, container toolkit and missing build tools, and the environments that it can run."""

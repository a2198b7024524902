"""Resolves a request to an environment, or to a refusal that explains itself.

Pure: no clock, network, environment or working directory. The same matrix and request give the same answer, byte for byte.
"""

"""Resolves a request to an environment, or to a refusal that explains itself.

Pure: the package reads no clock, network, environment variable or working directory. The same matrix and request give the same
answer, byte for byte.
"""

"""The catalogue: a static site about environments. It needs no server program, and its pages make no requests. Pure: it makes
files from values."""

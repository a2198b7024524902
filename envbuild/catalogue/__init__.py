"""The catalogue: a static site about environments, which needs no server and makes no request. Pure: values in, files out."""

#!/bin/sh
# The commands pip and pip3: those of the Python that comes first on the path.
exec python -m pip "$@"

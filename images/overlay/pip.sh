#!/bin/sh
# The commands pip and pip3. They use the Python that comes first on PATH.
exec python -m pip "$@"

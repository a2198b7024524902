#!/bin/sh
# Starts JupyterLab on port 8888, in the container's working folder. Users need a token: JUPYTER_TOKEN if it is set, else a new
# token, which is part of the printed address. Arguments are passed on to JupyterLab.
set -eu
if [ -z "${JUPYTER_TOKEN:-}" ]; then
    unset JUPYTER_TOKEN # an empty token would let everybody in
fi
if [ "${MPLBACKEND:-}" = Agg ]; then
    unset MPLBACKEND # the image's default, with which notebooks show no plots
fi
if [ "$(id -u)" = 0 ]; then
    set -- --allow-root "$@"
fi
exec jupyter lab --ip=0.0.0.0 --port=8888 --no-browser "$@"

#!/bin/sh
# JupyterLab on port 8888, in the folder that the container was started in. Who opens it needs the token: JUPYTER_TOKEN where
# it is set, else one made now, which stands in the address that is printed. Further words are options of JupyterLab.
set -eu
if [ -z "${JUPYTER_TOKEN:-}" ]; then
    unset JUPYTER_TOKEN # empty would mean: nobody has to show one
fi
if [ "${MPLBACKEND:-}" = Agg ]; then
    unset MPLBACKEND # the image's own value: without it notebooks show what they draw
fi
if [ "$(id -u)" = 0 ]; then
    set -- --allow-root "$@"
fi
exec jupyter lab --ip=0.0.0.0 --port=8888 --no-browser "$@"

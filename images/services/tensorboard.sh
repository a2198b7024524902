#!/bin/sh
# Starts TensorBoard on port 6006 for the runs below TENSORBOARD_LOGDIR (default: /workspace). TensorBoard has no passwords, so
# publish its port on the loopback address only. Arguments are passed on to TensorBoard.
set -eu
exec tensorboard --logdir "${TENSORBOARD_LOGDIR:-/workspace}" --host 0.0.0.0 --port 6006 "$@"

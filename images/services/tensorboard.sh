#!/bin/sh
# TensorBoard on port 6006, of the runs below TENSORBOARD_LOGDIR (else /workspace). It asks nobody who they are: publish its port
# on the loopback address only. Further words are options of TensorBoard.
set -eu
exec tensorboard --logdir "${TENSORBOARD_LOGDIR:-/workspace}" --host 0.0.0.0 --port 6006 "$@"

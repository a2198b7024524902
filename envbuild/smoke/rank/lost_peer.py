"""Recognises messages which say that another rank has ended. The rank with such a message did not cause the failure."""
from __future__ import absolute_import, division, print_function

import re

_TOLD = re.compile(
    r'closed by peer|reset by peer|broken pipe'                         # Gloo, MPI, sockets of the kernel
    r'|Socket closed'                                                   # gRPC
    r'|remote process exited'                                           # NCCL
    r'|another task died|coordination service has (shut down|stopped)',     # JAX
    re.IGNORECASE)


def told_by(text):
    """Whether an exception or the last output of a rank says that the rank lost another one."""
    return bool(_TOLD.search(text))

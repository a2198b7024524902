"""LOOPBACK: whether processes of this machine can connect to each other."""
from __future__ import absolute_import, division, print_function

import os
import socket

from ..check_record import check

ADDRESS = '127.0.0.1'
LIMIT_S = 5.0           # a connection that works takes less than a millisecond


def loopback(ranks):
    """Check that a connection to the loopback address works, if several ranks will run on this machine."""
    if ranks < 2:
        return []
    problem = _connect()
    if not problem:
        return [check('LOOPBACK', None, 'pass', 'processes of this machine can connect to each other at %s' % ADDRESS)]
    return [check('LOOPBACK', None, 'fail', 'processes of this machine cannot connect to each other at %s: %s' % (ADDRESS, problem), next_step=(
        'Start the loopback interface: ip link set lo up. A container has its own loopback interface, which the container engine starts.'))]


def _connect():
    """Return why a connection from this process to itself fails, or ''."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        server.bind((ADDRESS, 0))
        server.listen(1)
        socket.create_connection(server.getsockname(), LIMIT_S).close()
        return ''
    except (IOError, OSError) as error:         # socket.error is one of them
        return os.strerror(error.errno) if error.errno else '%s' % error
    finally:
        server.close()

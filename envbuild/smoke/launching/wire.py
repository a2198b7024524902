"""Messages between rank 0 and the processes on other machines: JSON, and the bytes of files beside it, over TCP.

The kernel watches the connection: a machine that died or a cable that was cut is noticed in QUIET_S seconds on both sides,
whatever the programs are doing.
"""
from __future__ import absolute_import, division, print_function

import errno
import json
import select
import socket
import struct
import time

QUIET_S = 15
_HEAD = struct.Struct('<4sQ')
_MAGIC = b'ebs1'
_CHUNK = 1 << 20
_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)
_USER_TIMEOUT = 18          # TCP_USER_TIMEOUT of Linux, which Python names from 3.6 on


class Lost(IOError):
    """The other side is gone, cannot be reached, or is none of ours."""


def connect(host, port, until):
    """A link to whoever listens there; tried until then."""
    while True:
        try:
            return Link(socket.create_connection((host, port), 5))
        except (socket.error, OSError) as error:
            if time.time() > until:
                raise Lost('%s:%d cannot be reached: %s' % (host, port, error))
            time.sleep(0.1)


def listen(port):
    """A server on all interfaces."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(('', port))
    server.listen(128)
    return server


class Link(object):
    """One connection."""

    def __init__(self, sock):
        self._sock, self._buffer = sock, bytearray()
        sock.settimeout(QUIET_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 5), (_USER_TIMEOUT, QUIET_S * 1000)):
            sock.setsockopt(socket.IPPROTO_TCP, name, value)
        self.here, self.there = sock.getsockname()[0], sock.getpeername()[0]

    def send(self, value, blobs=()):
        """Send a JSON object and, beside it, some bytes."""
        data = json.dumps(dict(value, blobs=[len(blob) for blob in blobs])).encode('ascii')
        try:
            for part in [_HEAD.pack(_MAGIC, len(data)) + data] + list(blobs):
                view = memoryview(part)
                while len(view):
                    view = view[self._sock.send(view[:_CHUNK]):]
        except (socket.error, OSError) as error:
            raise Lost('nothing can be sent: %s' % error)

    def receive(self, seconds=0.0):
        """[(value, blobs)], all messages that have come whole; waits so long for the first."""
        out = self._whole()
        while True:
            try:
                if not select.select([self._sock], [], [], 0.0 if out else seconds)[0]:
                    return out
                data = self._sock.recv(_CHUNK)
            except (socket.error, select.error, OSError) as error:
                if error.args[0] in _AGAIN:
                    return out
                raise Lost('the connection broke: %s' % (error.args[1] if len(error.args) > 1 else error))
            if not data and out:
                return out                      # what came before the end counts; the end is seen next time
            if not data:
                raise Lost('the connection was closed')
            self._buffer += data
            out += self._whole()

    def wait(self, key, seconds):
        """The next message that has `key`; others are dropped."""
        until = time.time() + seconds
        while time.time() < until:
            for value, blobs in self.receive(max(0.0, min(0.5, until - time.time()))):
                if key in value:
                    return value, blobs
        raise Lost('no answer within %d s' % seconds)

    def _whole(self):
        out = []
        while len(self._buffer) >= _HEAD.size:
            magic, size = _HEAD.unpack(bytes(self._buffer[:_HEAD.size]))
            if magic != _MAGIC:
                raise Lost('it speaks another protocol')
            end = _HEAD.size + size
            if len(self._buffer) < end:
                break
            value, blobs = json.loads(bytes(self._buffer[_HEAD.size:end]).decode('ascii')), []
            if len(self._buffer) < end + sum(value['blobs']):
                break
            for length in value['blobs']:
                blobs.append(bytes(self._buffer[end:end + length]))
                end += length
            del self._buffer[:end]
            out.append((value, blobs))
        return out

    def close(self):
        """End the connection."""
        self._sock.close()

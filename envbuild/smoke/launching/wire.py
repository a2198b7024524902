"""Messages between rank 0 and the processes on other machines: JSON, and the bytes of files beside it, over TCP.

On each side, a thread sends a message every second: the beat. A side that receives nothing for QUIET_S seconds assumes that the
other side is lost: its machine died, a cable was cut, or its process was stopped. TCP does not notice a stopped process. If
data is being sent, TCP notices a dead machine or a cut cable only late. From the beats, each side also computes the difference
between the clocks of the two machines.
"""
from __future__ import absolute_import, division, print_function

import errno
import json
import select
import socket
import struct
import threading

from ..clock import now, pause

QUIET_S = 10                # seconds; after a loss, the whole run ends within 15 s
BEAT_S = 1.0
_HEAD = struct.Struct('<4sQ')
_MAGIC = b'ebs1'
_CHUNK = 1 << 20
_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)
_USER_TIMEOUT = 18          # TCP_USER_TIMEOUT of Linux, which Python names from 3.6 on


class Lost(IOError):
    """The other side is gone, cannot be reached, or is not a process of this test."""


def connect(host, port, until):
    """Connect to the process that listens there; `until` limits both the attempts and the wait for its first message."""
    while True:
        try:
            return Link(socket.create_connection((host, port), 5), max(QUIET_S, until - now()))
        except (socket.error, OSError) as error:
            if now() > until:
                raise Lost('cannot connect to %s:%d: %s' % (host, port, error))
            pause(0.1)


def listen(port):
    """A server on all interfaces."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(('', port))
    server.listen(128)
    return server


def wait_for_any(links, seconds):
    """Wait until one of the links has something to read, for at most `seconds`."""
    if not links:
        pause(seconds)
        return
    try:
        select.select(links, [], [], seconds)
    except (select.error, OSError, ValueError):     # a signal, or a closed connection, which the next read reports
        pause(0.01)


class Link(object):
    """One connection. `ahead` is added to a time of the other machine to get this machine's time; None until it is known."""

    def __init__(self, sock, first_word_s=QUIET_S):
        self._sock, self._buffer, self._sending, self._closed = sock, bytearray(), threading.Lock(), False
        self._heard, self._patience = now(), first_word_s
        self._their_beat, self._shortest, self.ahead = None, None, None
        sock.settimeout(QUIET_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in ((socket.TCP_KEEPIDLE, 4), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3), (_USER_TIMEOUT, QUIET_S * 1000)):
            sock.setsockopt(socket.IPPROTO_TCP, name, value)
        self.here, self.there = sock.getsockname()[0], sock.getpeername()[0]
        thread = threading.Thread(target=self._beat)
        thread.daemon = True
        thread.start()

    def fileno(self):
        """The file descriptor of the connection, for select."""
        return self._sock.fileno()

    def _beat(self):
        """Send a beat once a second, even while this process is busy with something else."""
        while not self._closed:
            their = self._their_beat
            # `beat` and `echo` need the same time. Between two reads of the clock, this process may be paused.
            said = now()
            try:
                self.send({'beat': said, 'echo': their and [their[0], said - their[1]]})
            except Lost:
                return                          # the next read or send reports the reason
            pause(BEAT_S)

    def send(self, value, blobs=()):
        """Send a JSON object and, beside it, some bytes."""
        data = json.dumps(dict(value, blobs=[len(blob) for blob in blobs])).encode('ascii')
        with self._sending:
            try:
                for part in [_HEAD.pack(_MAGIC, len(data)) + data] + list(blobs):
                    view = memoryview(part)
                    while len(view):
                        view = view[self._sock.send(view[:_CHUNK]):]
            except (socket.error, OSError) as error:
                raise Lost('cannot send: %s' % error)

    def receive(self, seconds=0.0):
        """Return [(value, blobs)], all messages that have arrived completely. Wait at most `seconds` for the first one.

        Raises Lost if the other side has sent nothing for too long, or if the connection broke.
        """
        out = self._whole()
        while True:
            try:
                if not select.select([self._sock], [], [], 0.0 if out else seconds)[0]:
                    if not out and now() - self._heard > self._patience:
                        raise Lost('no message for %d s' % self._patience)
                    return out
                data = self._sock.recv(_CHUNK)
            except Lost:
                raise
            except (socket.error, select.error, OSError) as error:
                if error.args[0] in _AGAIN:
                    return out
                raise Lost('the connection broke: %s' % (error.args[1] if len(error.args) > 1 else error))
            if not data and out:
                return out                      # messages before the end count; the next call sees the end
            if not data:
                raise Lost('the other side closed the connection')
            self._buffer += data
            self._heard, self._patience = now(), QUIET_S
            out += self._whole()

    def wait(self, key, seconds):
        """Return the next message that has `key`; messages without it are dropped."""
        until = now() + seconds
        while now() < until:
            for value, blobs in self.receive(max(0.0, min(0.5, until - now()))):
                if key in value:
                    return value, blobs
        raise Lost('no answer within %d s' % seconds)

    def _whole(self):
        out = []
        while len(self._buffer) >= _HEAD.size:
            magic, size = _HEAD.unpack(bytes(self._buffer[:_HEAD.size]))
            if magic != _MAGIC:
                raise Lost('the other side uses a different protocol version')
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
            if 'beat' in value:
                self._hear_beat(value)
            else:
                out.append((value, blobs))
        return out

    def _hear_beat(self, value):
        """Compute the difference between the clocks from a beat of the other side.

        A beat has the time at which it was sent, and an echo: the time in the last beat from this side, and how many seconds
        ago that beat arrived there. The shortest round trip gives the best estimate:
        https://datatracker.ietf.org/doc/html/rfc5905#section-8
        """
        arrived = now()
        self._their_beat = value['beat'], arrived
        if value['echo']:
            sent, held = value['echo']
            took = arrived - sent - held
            if self._shortest is None or took <= self._shortest:
                self._shortest = took
                self.ahead = ((sent + arrived) - (value['beat'] - held + value['beat'])) / 2

    def close(self):
        """End the connection."""
        self._closed = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)       # the thread may be inside send
        except (socket.error, OSError):
            pass
        self._sock.close()

"""A process group over TCP: rendezvous, ring all-reduce, broadcast, gather, barrier.

It averages gradients for frameworks without collectives of their own, and has a barrier in which waiting ranks leave their
devices idle. In an all-reduce, each part of the array is summed once, in ring order, and the sum is then copied, so all ranks
get the same bits. `rendezvous` is `file:PATH` (one machine: rank 0 picks a port and writes it to this file) or
`tcp://HOST:PORT` (rank 0 listens there).
"""
from __future__ import absolute_import, division, print_function

import errno
import json
import os
import select
import socket
import struct

import numpy as np

from .. import files
from ..clock import now, pause

_HEAD = struct.Struct('<Q')
_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)


class PeerLost(IOError):
    """The connection to another rank is lost. This is a consequence of a failure, never its cause."""


def _listen(host, port):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    server.listen(128)
    return server


def _read(sock, size):
    buffer = bytearray(size)
    view, have = memoryview(buffer), 0
    while have < size:
        got = sock.recv_into(view[have:], size - have)
        if not got:
            raise PeerLost('another rank closed the connection')
        have += got
    return buffer


def _receive(sock):
    return _read(sock, _HEAD.unpack(bytes(_read(sock, _HEAD.size)))[0])


def _pack(value):
    return json.dumps(value).encode('ascii')


def _unpack(data):
    return json.loads(bytes(data).decode('ascii'))


def _message(sock, value):
    data = _pack(value)
    sock.sendall(_HEAD.pack(len(data)) + data)


def _connect(host, port, until):
    while True:
        try:
            return socket.create_connection((host, port), 5)
        except (socket.error, OSError):
            if now() > until:
                raise
            pause(0.05)


def _find(rendezvous, until):
    """Return (host, port) at which rank 0 listens; wait for the file of the rendezvous if necessary."""
    if rendezvous.startswith('tcp://'):
        host, port = rendezvous[len('tcp://'):].rsplit(':', 1)
        return host, int(port)
    path = rendezvous[len('file:'):]
    while not os.path.exists(path):
        if now() > until:
            raise PeerLost('rank 0 did not open the rendezvous in time')
        pause(0.02)
    host, port = files.read_json(path)
    return host, port


def _ready(readers, writers):
    """Call select; return ([], []) if a signal interrupts it, as on Python 2.7."""
    try:
        return select.select(readers, writers, [])[:2]
    except select.error as error:
        if error.args[0] != errno.EINTR:
            raise
        return [], []


class Group(object):
    """A ring of `world` processes, of which this one is `rank`. With one process, every operation returns at once."""

    TYPES = ('float32', 'float64', 'int64')     # NumPy types whose collectives are checked if an adapter has none of its own

    def __init__(self, rank, world, rendezvous='', timeout=120.0):
        self.rank, self.world = rank, world
        self._left = self._right = None
        if world > 1:
            until = now() + timeout
            local = rendezvous.startswith('file:')
            mine = _listen('127.0.0.1' if local else '', 0)
            mine.settimeout(timeout)
            table = (self._host if rank == 0 else self._join)(rendezvous, mine.getsockname()[1], until)
            host, port = table[(rank + 1) % world]
            self._right = _connect(host, port, until)
            self._left = mine.accept()[0]
            mine.close()
            for sock in (self._left, self._right):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)

    def _host(self, rendezvous, port, until):
        """As rank 0, collect the addresses at which all ranks listen, and send the table of them to every rank."""
        if rendezvous.startswith('tcp://'):
            host, root_port = _find(rendezvous, until)
            root = _listen('', root_port)
        else:
            host = '127.0.0.1'
            root = _listen(host, 0)
            files.write_json(rendezvous[len('file:'):], [host, root.getsockname()[1]])
        table, callers = {0: [host, port]}, []
        try:
            while len(table) < self.world:
                root.settimeout(max(0.1, until - now()))
                caller, address = root.accept()
                caller.settimeout(max(0.1, until - now()))
                rank, its_port = _unpack(_receive(caller))
                table[rank] = [address[0], its_port]
                callers.append(caller)
        except socket.timeout:
            missing = sorted(set(range(self.world)) - set(table))
            raise PeerLost('ranks %s did not connect to the rendezvous' % missing)
        finally:
            root.close()
        for caller in callers:
            _message(caller, sorted(table.items()))
            caller.close()
        return table

    def _join(self, rendezvous, port, until):
        host, root_port = _find(rendezvous, until)
        root = _connect(host, root_port, until)
        root.settimeout(max(0.1, until - now()))
        _message(root, [self.rank, port])
        table = dict((rank, place) for rank, place in _unpack(_receive(root)))
        root.close()
        return table

    def _exchange(self, data):
        """Send data to the right neighbour and receive from the left one at the same time, so that ranks never block each
        other.

        There is no time limit on purpose: the parent's watchdog notices a hang of all ranks and finds the rank that caused it.
        """
        out = memoryview(_HEAD.pack(len(data)) + data)
        head, body, have = bytearray(_HEAD.size), None, 0
        target = memoryview(head)
        while out or target is not None:
            readable, writable = _ready([self._left] if target is not None else [], [self._right] if len(out) else [])
            try:
                if writable:
                    out = out[self._right.send(out[:1 << 20]):]
                if readable:
                    got = self._left.recv_into(target[have:])
                    if not got:
                        raise PeerLost('the rank before rank %d closed the connection' % self.rank)
                    have += got
            except (socket.error, OSError) as error:
                if isinstance(error, PeerLost):
                    raise
                if error.errno not in _AGAIN:
                    raise PeerLost('rank %d lost the connection to a neighbour: %s' % (self.rank, error))
            if target is not None and have == len(target):
                if body is None:
                    body, have = bytearray(_HEAD.unpack(bytes(head))[0]), 0
                    target = memoryview(body) if body else None
                else:
                    target = None
        return body

    def allreduce(self, array):
        """Return the sum over all ranks, in the array's own type. All ranks get the same bits."""
        if self.world == 1:
            return array.copy()
        flat = np.array(array).reshape(-1)
        cut = [flat.size * i // self.world for i in range(self.world + 1)]

        def part(i):
            return slice(cut[i % self.world], cut[i % self.world + 1])

        for step in range(self.world - 1):
            got = self._exchange(flat[part(self.rank - step)].tobytes())
            flat[part(self.rank - step - 1)] += np.frombuffer(got, dtype=flat.dtype)
        for step in range(self.world - 1):
            got = self._exchange(flat[part(self.rank + 1 - step)].tobytes())
            flat[part(self.rank - step)] = np.frombuffer(got, dtype=flat.dtype)
        return flat.reshape(array.shape)

    def gather(self, value):
        """Return, on every rank, the JSON values of all ranks in order of rank."""
        out = [None] * self.world
        out[self.rank] = value
        carried = [self.rank, value]
        for _ in range(self.world - 1):
            carried = _unpack(self._exchange(_pack(carried)))
            out[carried[0]] = carried[1]
        return out

    def broadcast(self, value, root=0):
        """Return, on every rank, the JSON value of rank `root`."""
        return self.gather(value if self.rank == root else None)[root]

    def broadcast_array(self, array, root=0):
        """Return, on every rank, the array of rank `root`. Every rank must pass an array of the same shape and type."""
        data = array.tobytes() if self.rank == root else b''
        for _ in range(self.world - 1):
            got = self._exchange(data)
            data = data or bytes(got)
        return np.frombuffer(data, dtype=array.dtype).reshape(array.shape).copy()

    def gather_arrays(self, array):
        """Return, on every rank, the arrays of all ranks in order of rank. They must have the same shape and type."""
        out = [None] * self.world
        out[self.rank], data = array.copy(), array.tobytes()
        for step in range(self.world - 1):
            data = bytes(self._exchange(data))
            out[(self.rank - step - 1) % self.world] = np.frombuffer(data, dtype=array.dtype).reshape(array.shape)
        return out

    def collective(self, op, array, root):
        """Run the collective `op`: 'allreduce' (sum), 'broadcast' from `root`, or 'allgather' (a list in order of rank)."""
        if op == 'allreduce':
            return self.allreduce(array)
        if op == 'broadcast':
            return self.broadcast_array(array, root)
        return self.gather_arrays(array)

    def means(self, arrays):
        """Return the mean over ranks of each float32 array, with one exchange for all arrays. Every rank gets the same bits."""
        flat = self.allreduce(np.concatenate([np.asarray(array, 'float32').reshape(-1) for array in arrays]))
        cuts = np.cumsum([np.size(array) for array in arrays])[:-1]
        return [part.reshape(np.shape(array)) for part, array in zip(np.split(flat / np.float32(self.world), cuts), arrays)]

    def barrier(self):
        """Return when every rank has called this."""
        self.allreduce(np.zeros(1, 'int64'))

    def close(self):
        for sock in (self._left, self._right):
            if sock is not None:
                sock.close()
        self._left = self._right = None

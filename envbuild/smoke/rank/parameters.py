"""A parameter server with bounded staleness: workers send the changes of their parameters, and get all parameters back.

A worker that is more than `bound` steps ahead of the slowest worker gets its answer only when the slowest has caught up.
Workers that are released together get the same bits. Changes of n workers are divided by n, so that a learning rate has the
same effect as with averaged gradients.
"""
from __future__ import absolute_import, division, print_function

import socket
import struct
import threading

import numpy as np

_HEAD = struct.Struct('<QQ')        # rank, bytes


def _read(sock, size):
    data, have = bytearray(size), 0
    view = memoryview(data)
    while have < size:
        got = sock.recv_into(view[have:], size - have)
        if not got:
            raise EOFError
        have += got
    return data


class Server(object):
    """The parameters, and the number of steps of each worker. Each connection has a thread of its own."""

    def __init__(self, start, workers, bound):
        self._flat, self._workers, self.bound = np.array(start, 'float32'), workers, bound
        self.clocks = [0] * workers
        self._turn = threading.Condition()
        self._waiting, self._answers = set(), {}
        self._leads = {}
        self._socket = None

    def listen(self, host):
        """Listen for workers; return the port."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind((host, 0))
        self._socket.listen(self._workers)
        return self._socket.getsockname()[1]

    def start(self):
        """Answer every worker, in daemon threads, until it closes its connection."""
        thread = threading.Thread(target=self._serve)
        thread.daemon = True
        thread.start()

    def _serve(self):
        try:
            for _ in range(self._workers):
                connection = self._socket.accept()[0]
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = threading.Thread(target=self._attend, args=(connection,))
                thread.daemon = True
                thread.start()
        finally:
            self._socket.close()

    def _attend(self, connection):
        try:
            while True:
                rank, size = _HEAD.unpack(bytes(_read(connection, _HEAD.size)))
                answer = self.push(rank, np.frombuffer(_read(connection, size), 'float32'))
                connection.sendall(answer.tobytes())
        except (EOFError, socket.error, OSError):
            connection.close()

    def push(self, worker, change):
        """Add a worker's change of one step; return all parameters as soon as the worker may continue."""
        with self._turn:
            self._flat += change / np.float32(self._workers)
            self.clocks[worker] += 1
            self._waiting.add(worker)
            self._release([each for each in sorted(self._waiting) if self.may_go(each)])
            while worker not in self._answers:
                self._turn.wait(3600)       # with a limit, because otherwise Python 2 does not react to signals
            return self._answers.pop(worker)

    def may_go(self, worker):
        """Whether a worker is within the bound and may continue."""
        return self.clocks[worker] - min(self.clocks) <= self.bound

    def _release(self, workers):
        """Give the parameters to these workers. Record how many steps ahead each one was, independently of may_go()."""
        if workers:
            now = self._flat.copy()
            for worker in workers:
                lead = self.clocks[worker] - min(self.clocks)
                self._leads[lead] = self._leads.get(lead, 0) + 1
                self._waiting.discard(worker)
                self._answers[worker] = now
            self._turn.notify_all()

    def ledger(self):
        """Return {'bound', 'largest', 'leads': {steps ahead of the slowest: number of answers}}."""
        with self._turn:
            leads = dict(self._leads)
        return {'bound': self.bound, 'largest': max(leads or [0]), 'leads': dict((str(lead), leads[lead]) for lead in leads)}


class Client(object):
    """One worker's connection."""

    def __init__(self, host, port, rank):
        self._rank = rank
        self._socket = socket.create_connection((host, port), 30)
        self._socket.settimeout(None)       # the watchdog detects a stall
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, change):
        """Send the change of one step; return the parameters from which to continue."""
        data = np.ascontiguousarray(change, 'float32').tobytes()
        self._socket.sendall(_HEAD.pack(self._rank, len(data)) + data)
        return np.frombuffer(bytes(_read(self._socket, len(data))), 'float32')

    def close(self):
        self._socket.close()

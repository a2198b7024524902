"""A server of parameters with bounded staleness: workers send what they changed, and get all parameters back.

A worker that is more than `bound` steps ahead of the slowest waits for its answer. All workers that are released together get the same
bits. The changes of n workers count one n-th each, so that a learning rate means what it means when gradients are averaged.
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
    """The parameters and everybody's step. One thread for each connection."""

    def __init__(self, start, workers, bound):
        self._flat, self._workers, self.bound = np.array(start, 'float32'), workers, bound
        self.clocks = [0] * workers
        self._turn = threading.Condition()
        self._waiting, self._answers = set(), {}
        self._leads = {}
        self._socket = None

    def listen(self, host):
        """The port."""
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
        """Add a worker's change of one step; all parameters, once it may go on."""
        with self._turn:
            self._flat += change / np.float32(self._workers)
            self.clocks[worker] += 1
            self._waiting.add(worker)
            self._release([each for each in sorted(self._waiting) if self.may_go(each)])
            while worker not in self._answers:
                self._turn.wait(3600)       # with a limit, because otherwise Python 2 does not react to signals
            return self._answers.pop(worker)

    def may_go(self, worker):
        """The gate: is it within the bound?"""
        return self.clocks[worker] - min(self.clocks) <= self.bound

    def _release(self, workers):
        """Send the parameters, and record independently of the gate how far ahead each worker was."""
        if workers:
            now = self._flat.copy()
            for worker in workers:
                lead = self.clocks[worker] - min(self.clocks)
                self._leads[lead] = self._leads.get(lead, 0) + 1
                self._waiting.discard(worker)
                self._answers[worker] = now
            self._turn.notify_all()

    def ledger(self):
        """Return {'bound', 'largest', 'leads': {steps ahead: how often}} over all answers."""
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
        """Send the change of one step; the parameters to go on from."""
        data = np.ascontiguousarray(change, 'float32').tobytes()
        self._socket.sendall(_HEAD.pack(self._rank, len(data)) + data)
        return np.frombuffer(bytes(_read(self._socket, len(data))), 'float32')

    def close(self):
        self._socket.close()

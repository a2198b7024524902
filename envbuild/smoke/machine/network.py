"""Measures the network between two machines, or within one: bandwidth in both directions over one and four connections, and
latency.

`probe --listen PORT` waits on one machine for `probe --connect HOST:PORT` on the other. The connecting side measures. Use this
only between machines that trust each other: the listening side opens a port, serves one partner, and ends.
"""
from __future__ import absolute_import, division, print_function

import socket
import struct
import threading

from ..clock import now

GREETING = b'envbuild-smoke-network/1\n'
PIECE = 1 << 20
SECONDS = 1.0
MANY = 4
PINGS = 200
PATIENCE_S, WAIT_S, POLL_S = 30, 600, 0.2
SEND, RECEIVE, PING, END = b'S', b'R', b'P', b'E'


class Unreachable(Exception):
    """The other side cannot be reached, or stopped in the middle; the message says why."""


def _exactly(connection, size):
    data = b''
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise Unreachable('the other machine closed the connection')
        data += piece
    return data


def serve(listener):
    """Serve all connections of one partner until it sends END."""
    over, workers = threading.Event(), []
    heard = now()
    listener.settimeout(POLL_S)
    while not over.is_set():
        try:
            connection, _ = listener.accept()
        except socket.timeout:
            if now() - heard > (PATIENCE_S if workers else WAIT_S) and not any(worker.is_alive() for worker in workers):
                raise Unreachable('the other machine stopped sending' if workers else 'no other machine connected within %d s' % WAIT_S)
            continue
        heard = now()
        worker = threading.Thread(target=_answer, args=(connection, over))
        worker.daemon = True
        worker.start()
        workers.append(worker)


def _answer(connection, over):
    try:
        connection.settimeout(PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _exactly(connection, len(GREETING)) != GREETING:
            return
        what = _exactly(connection, 1)
        if what == PING:
            for _ in range(PINGS):
                connection.sendall(_exactly(connection, 1))
        elif what == SEND:
            _pour(connection, struct.unpack('!d', _exactly(connection, 8))[0])
        elif what == RECEIVE:
            connection.sendall(struct.pack('!Q', _drink(connection)))
        elif what == END:
            over.set()
    except (Unreachable, socket.error):
        pass
    finally:
        connection.close()


def _pour(connection, seconds):
    piece, until = b'\0' * PIECE, now() + seconds
    while now() < until:
        connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)


def _drink(connection):
    room, total = bytearray(PIECE), 0
    while True:
        got = connection.recv_into(room)
        if not got:
            return total
        total += got


def _open(address, what):
    connection = socket.create_connection(address, PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(GREETING + what)
    return connection


def _stream(address, what, got):
    """Append the bytes per second of one connection, or its error, to `got`."""
    try:
        connection = _open(address, what)
        start = now()
        if what == SEND:
            connection.sendall(struct.pack('!d', SECONDS))
            total = _drink(connection)
        else:
            _pour(connection, SECONDS)
            total = struct.unpack('!Q', _exactly(connection, 8))[0]
        got.append(total / (now() - start))
        connection.close()
    except (Unreachable, socket.error) as error:
        got.append(error)


def _streams(address, what, count):
    got = []
    workers = [threading.Thread(target=_stream, args=(address, what, got)) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failed = [each for each in got if isinstance(each, Exception)]
    if failed:
        raise Unreachable('%s' % failed[0])
    return sum(got) / 1e9


def measure(address):
    """Measure everything from the connecting side. In the keys, `there` means to the other side, and `back` means from it."""
    try:
        connection, laps = _open(address, PING), []
        for _ in range(PINGS):
            start = now()
            connection.sendall(b'.')
            _exactly(connection, 1)
            laps.append(now() - start)
        connection.close()
        out = {'latency_us': 1e6 * sorted(laps)[len(laps) // 2] / 2}
        for count, key in ((1, ''), (MANY, '_%d' % MANY)):
            out['there%s_GBps' % key], out['back%s_GBps' % key] = _streams(address, RECEIVE, count), _streams(address, SEND, count)
        _open(address, END).close()
        return out
    except (socket.error, Unreachable) as error:
        raise Unreachable('%s:%d: %s' % (address[0], address[1], error))


def listen(port, host=''):
    """Return a socket that waits for the partner."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OverflowError, socket.error) as error:
        raise Unreachable('port %d: %s' % (port, error))
    listener.listen(16)
    return listener


def loopback():
    """Measure connections within this machine. The figures show the limit of the software, without a network card."""
    listener = listen(0, '127.0.0.1')
    server = threading.Thread(target=serve, args=(listener,))
    server.daemon = True
    server.start()
    try:
        found = measure(listener.getsockname())
        server.join()
        return found
    except Unreachable as error:
        return {'not_measured': '%s' % error}
    finally:
        listener.close()


def words(got):
    """The figures in one line."""
    if 'not_measured' in got:
        return 'not measured: ' + got['not_measured']
    return ('over one connection, %.2f GB/s to the other machine and %.2f GB/s back; %.2f and %.2f GB/s over %d '
            'connections; latency %.0f us') % (
        got['there_GBps'], got['back_GBps'], got['there_%d_GBps' % MANY], got['back_%d_GBps' % MANY], MANY, got['latency_us'])

"""Phase `coll`: all-reduce, broadcast and all-gather give exactly the right answers, and how fast all-reduce is.

Integers small enough that every sum is exact in the type, so every element of every rank is compared with ==.
Bandwidth as nccl-tests defines it: algorithm bandwidth is size over time, bus bandwidth times 2(n-1)/n; GB is 1e9 bytes.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import refnet, stats
from .clock import now

COUNTS = (1, 2, 3, 1000, refnet.PARAMETERS)
OPERATIONS = ('allreduce', 'broadcast', 'allgather')
REPEATS = 7


def _expected(op, table, root):
    if op == 'allreduce':
        return table.sum(axis=0).astype(table.dtype)
    return table[root] if op == 'broadcast' else list(table)


def _first_wrong(got, want):
    """(number of wrong elements, place of the first) of an answer that may be an array or one array per rank."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return int(want.size), 0
    wrong = np.flatnonzero((got != want).reshape(-1))
    return int(wrong.size), int(wrong[0]) if wrong.size else None


def measure(session):
    """{'answers': [...], 'speed': [...]} of this rank."""
    ctx, adapter = session.ctx, session.adapter
    answers = []
    for dtype in adapter.collective_types:
        for count in COUNTS:
            draw = np.random.RandomState(session.plan['seed'] + count)
            table = draw.randint(-1000, 1000, (ctx.world, count)).astype(dtype)
            root = ctx.world - 1
            for op in OPERATIONS:
                session.heart.beat()
                got = adapter.collective(op, table[ctx.rank].copy(), root)
                wrong, first = _first_wrong(got, _expected(op, table, root))
                answers.append({'op': op, 'type': dtype, 'elements': count, 'wrong': wrong, 'first_wrong': first})
    return {'answers': answers, 'speed': [_speed(session, size) for size in session.plan['coll']['bytes']]}


def _speed(session, size):
    """Median time of an all-reduce of `size` bytes of float32, barrier to barrier."""
    array = np.ones(max(1, size // 4), 'float32')
    session.adapter.collective('allreduce', array, 0)
    times = []
    for _ in range(REPEATS):
        session.heart.beat()
        session.ctx.group.barrier()
        start = now()
        session.adapter.collective('allreduce', array, 0)
        session.adapter.drain()
        times.append(now() - start)
    slowest = [max(each) for each in zip(*session.ctx.group.gather(times))]
    return {'bytes': int(array.nbytes), 'time_s': stats.median(slowest)}

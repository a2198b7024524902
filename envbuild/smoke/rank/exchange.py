"""Phase `coll`: checks that all-reduce, broadcast and all-gather give exactly the right results, and measures their speed.

The arrays hold whole numbers that are not too large, so every sum is exact. Therefore every element on every rank is compared
with ==, for some small sizes and for each timed size. Sizes and bandwidths are defined as in nccl-tests
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md): the size of an all-gather is that of all parts together.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from .. import stats
from ..clock import now
from ..networks import nets

COUNTS = (1, 2, 3, 1000, nets.LENET.bytes // 4)
OPERATIONS = ('allreduce', 'broadcast', 'allgather')
EXACT = {'float16': 2048}       # whole numbers up to this one are exact in this type
# Larger sizes (in bytes) are timed in float32 only, because the time per byte is the same in every type. Smaller sizes are
# timed in all types, which is enough to show a type that is treated differently.
LARGEST_OF_OTHERS = 4 << 20
REPEATS, LEAST, SECONDS = 7, 3, 0.25        # most and fewest repeats of a size, and seconds after which no more begin


def measure(session):
    """Return {'answers': the checked results, 'table': the timed ones} of this rank."""
    plan, (_, known) = session.plan['coll'], _offered(session)
    answers = [_answer(session, op, dtype, count) for dtype in known for count in COUNTS for op in OPERATIONS]
    types = known if plan['all_types'] else ('float32',)
    table = [_timed(session, op, dtype, size) for op in OPERATIONS for dtype in types for size in plan['bytes']
             if dtype == 'float32' or size <= LARGEST_OF_OTHERS]
    return {'answers': answers, 'table': table}


def _offered(session):
    """Return (the function for collectives, its types): those of the adapter, else those of the smoke test's own ring."""
    group = session.ctx.group
    return getattr(session.adapter, 'collective', group.collective), getattr(session.adapter, 'collective_types', group.TYPES)


def _answer(session, op, dtype, count):
    ctx = session.ctx
    session.heart.beat()
    limit = EXACT.get(dtype, 1 << 20) // ctx.world          # so large that a smaller type cannot hold the numbers
    table = np.random.RandomState(session.plan['seed'] + count).randint(-limit, limit + 1, (ctx.world, count)).astype(dtype)
    root = ctx.world - 1
    got = _offered(session)[0](op, table[ctx.rank].copy(), root)
    wrong, first = _first_wrong(got, _expected(op, table, root))
    return {'op': op, 'type': dtype, 'elements': count, 'wrong': wrong, 'first_wrong': first}


def _expected(op, table, root):
    if op == 'allreduce':
        return table.sum(axis=0).astype(table.dtype)
    return table[root] if op == 'broadcast' else list(table)


def _first_wrong(got, want):
    """Return (number of wrong elements, index of the first) of a result, which is an array or a list of arrays."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return int(want.size), 0
    wrong = np.flatnonzero((got != want).reshape(-1))
    return int(wrong.size), int(wrong[0]) if wrong.size else None


def _pattern(rank, count, world, dtype):
    """Make whole numbers that differ by index and by rank and have an exact sum.

    They repeat, so that large arrays are made fast.
    """
    period = max(2, EXACT.get(dtype, 2048) // world)
    period -= world % period == 0           # otherwise every element would have the same sum
    return np.resize(((np.arange(period) + rank) % period).astype(dtype), count)


def _timed(session, op, dtype, size):
    """Time one collective. `time_s` is the median of the slowest rank's times; `wrong` counts wrong elements on this rank."""
    ctx, (collective, _) = session.ctx, _offered(session)
    item = np.dtype(dtype).itemsize
    count = max(1, size // item // (ctx.world if op == 'allgather' else 1))
    array, root, times, spent, got = _pattern(ctx.rank, count, ctx.world, dtype), ctx.world - 1, [], 0.0, None
    collective(op, array.copy(), root)
    while len(times) < LEAST or (len(times) < REPEATS and spent < SECONDS):
        session.heart.beat()
        fresh = array.copy()        # some collectives work in place
        ctx.group.barrier()
        start = now()
        got = collective(op, fresh, root)
        session.adapter.drain()
        times.append(max(ctx.group.gather(now() - start)))
        spent += times[-1]
    patterns = [_pattern(rank, count, ctx.world, dtype) for rank in range(ctx.world)]
    want = sum(patterns[1:], patterns[0]) if op == 'allreduce' else patterns[root] if op == 'broadcast' else patterns
    wrong, first = _first_wrong(got, want)
    return {'op': op, 'type': dtype, 'elements': count, 'bytes': count * item * (ctx.world if op == 'allgather' else 1),
            'time_s': stats.median(times), 'wrong': wrong, 'first_wrong': first}

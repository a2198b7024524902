"""Measures the processor and the memory with NumPy.

The processor multiplies matrices, with the threads of NumPy's BLAS. The memory is measured by copying arrays.
"""
from __future__ import absolute_import, division, print_function

import threading

import numpy as np

from ..clock import now

SIZE = 1536
AT_LEAST_S = 0.4
COPY_BYTES = 64 << 20


def measure(cores):
    """Return the GFLOPS of double and single precision, and the GB/s of copies."""
    return {'size': SIZE, 'fp64_gflops': _gemm('float64'), 'fp32_gflops': _gemm('float32'), 'threads': cores, 'memory_GBps': _copies(cores)}


def _gemm(kind):
    left, right = (np.random.RandomState(seed).rand(SIZE, SIZE).astype(kind) for seed in (1, 2))
    out = np.empty_like(left)
    np.dot(left, right, out)
    best, start = None, now()
    while best is None or now() - start < AT_LEAST_S:
        begin = now()
        np.dot(left, right, out)
        took = now() - begin
        best = took if best is None else min(best, took)
    return 2.0 * SIZE ** 3 / best / 1e9


def _copies(threads):
    """Return GB/s of all threads together. Each copies its own array; NumPy releases Python's global lock while it copies."""
    # Ones, not empty arrays: writing the ones makes the pages exist.
    arrays = [(np.ones(COPY_BYTES // 8), np.ones(COPY_BYTES // 8)) for _ in range(threads)]

    def copy(pair):
        until = now() + AT_LEAST_S
        while now() < until:
            np.copyto(pair[1], pair[0])
            done[id(pair)] = done.get(id(pair), 0) + 1

    done = {}
    workers = [threading.Thread(target=copy, args=(pair,)) for pair in arrays]
    start = now()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return 2.0 * COPY_BYTES * sum(done.values()) / (now() - start) / 1e9

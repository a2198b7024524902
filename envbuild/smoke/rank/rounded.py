"""Finds out whether gradients were rounded to half precision, as an exchange does that compresses them.

Such rounding changes a gradient by only 0.2 % (bfloat16) or 0.02 % (float16), which one ReLU that switches may exceed. But it
says for each number where it must lie: if the gradients of single devices are rounded and then averaged exactly, the result is
nearer to the mean of the rounded gradients than to the mean of the exact ones; if the sum or the mean is rounded, at the end or
at each addition, the result is a number of the type. Another gradient meets this at most as often as by chance.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import rounding

TYPES = {'bf16': 'bfloat16', 'fp16': 'float16'}
SURE = 4                # a number decides only if rounding would move it by more than so many times its error
LEAST = 200             # fewer numbers decide nothing: of so many, chance alone never brings 75 % to one side (7 deviations)
NEAR = .5               # a number is near one of the type within this share of the largest distance: by chance, half of them are


def shares(got, singles, error):
    """Return {type: share of the numbers of ``got`` that lie where rounding to the type puts them}.

    ``got`` should be the mean of the rows of ``singles``, the gradients of single devices, and ``error`` bounds the error of each
    number. What was rounded may be each row, the mean, or the sum: the largest share counts. A type is absent if the errors are
    too large to decide.
    """
    mean, n, found = singles.mean(axis=0), len(singles), {}
    for kind, name in TYPES.items():
        bits = rounding.MANTISSA[kind]
        every = [_nearer(got, mean, rounding.cut(singles, bits).mean(axis=0), error)]
        every += [_of_type(got * times, bits, error * times) for times in sorted(set([1, n]))]
        if None not in every:
            found[name] = max(every)
    return found


def _nearer(got, exact, other, error):
    return _share(np.abs(got - other) < np.abs(got - exact), np.abs(other - exact), error)


def _of_type(got, bits, error):
    # Half of the distance between two numbers of the type. A zero is a number of each type, so it says nothing.
    largest = np.where(got == 0, 0.0, np.ldexp(1.0, np.frexp(got)[1] - bits - 2))
    return _share(np.abs(rounding.cut(got, bits) - got) < NEAR * largest, largest, error)


def _share(held, moved, error):
    sure = moved > SURE * error
    return float(held[sure].mean()) if sure.sum() >= LEAST else None

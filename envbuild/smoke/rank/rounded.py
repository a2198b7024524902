"""Finds out whether gradients were rounded to half precision, for example by an exchange that compresses them.

Such rounding changes a gradient by only 0.2 % (bfloat16) or 0.02 % (float16). A single ReLU that switches may change it more,
so the size of the difference shows nothing. But rounding determines where each number of the gradient must lie:

- If the gradients of single devices are rounded and then averaged exactly, the number is nearer to the mean of the rounded
  gradients than to the mean of the exact gradients.
- If the sum or the mean is rounded, at the end or at each addition, the number can be represented in the type.

Without such rounding, a number meets one of these conditions at most as often as by chance.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import rounding

TYPES = {'bf16': 'bfloat16', 'fp16': 'float16'}
SURE = 4                # a number counts only if rounding would move it by more than this many times its error
LEAST = 200             # fewer numbers decide nothing; 75 % of 200 lie on one side by chance only at 7 standard deviations
# A number counts as rounded if its distance from the nearest number of the type is below this share of the largest possible
# distance. By chance, half of all numbers are so near.
NEAR = .5


def shares(got, singles, error):
    """Return {type: share of the numbers of ``got`` that lie where rounding to the type puts them}.

    ``singles`` has one row for each device: the gradient of this device alone. ``got`` should be the mean of the rows.
    ``error`` limits the error of each number. The rounding may have been applied to each row, to the mean or to the sum; the
    largest of these three shares counts. A type is absent if the errors are too large to decide.
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
    # The largest distance that a number can have from the nearest number of the type: half of the gap between two numbers of
    # the type. Zero is a number of every type and shows nothing. So it gets the distance 0, and _share() does not count it.
    largest = np.where(got == 0, 0.0, np.ldexp(1.0, np.frexp(got)[1] - bits - 2))
    return _share(np.abs(rounding.cut(got, bits) - got) < NEAR * largest, largest, error)


def _share(held, moved, error):
    sure = moved > SURE * error
    return float(held[sure].mean()) if sure.sum() >= LEAST else None

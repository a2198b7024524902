"""Finds out whether gradients were rounded to half precision, as an exchange does that compresses them.

Such rounding changes a gradient by only 0.2 % (bfloat16) or 0.02 % (float16), which one ReLU that switches may exceed. But it
says for each number where it must lie: a rounded gradient is nearer to the rounded numbers nearly everywhere, and another
gradient at most as often as by chance.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import rounding

TYPES = {'bf16': 'bfloat16', 'fp16': 'float16'}
SURE = 4                # a number decides only if rounding would move it by more than so many times its error
LEAST = 200             # fewer numbers decide nothing: of so many, chance alone never brings 75 % to one side (7 deviations)


def nearer(got, singles, error):
    """Return {type: share of the numbers of ``got`` that are nearer to rounded gradients than to exact ones}.

    ``got`` should be the mean of the rows of ``singles``, the gradients of single devices, and ``error`` bounds the error of each
    number. What was rounded may be each row, the mean, or both: the largest share counts. A type is absent if the errors are too
    large to decide.
    """
    mean, found = singles.mean(axis=0), {}
    for kind, name in TYPES.items():
        bits = rounding.MANTISSA[kind]
        rows = rounding.cut(singles, bits).mean(axis=0)
        shares = [_share(got, mean, other, error) for other in (rows, rounding.cut(mean, bits), rounding.cut(rows, bits))]
        if None not in shares:
            found[name] = max(shares)
    return found


def _share(got, exact, other, error):
    sure = np.abs(other - exact) > SURE * error
    if sure.sum() < LEAST:
        return None
    return float((np.abs(got - other) < np.abs(got - exact))[sure].mean())

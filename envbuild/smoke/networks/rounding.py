"""Simulates TF32, bfloat16 and float16: rounds the numbers of a float64 network as these types would.

Only the mantissa is rounded. The range of the exponents is not limited, because mixed precision scales the loss so that the
exponents fit.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

MANTISSA = {'tf32': 10, 'bf16': 7, 'fp16': 10}      # bits after the leading one
_OF_FLOAT64 = 52


def cut(array, bits, nearest=True):
    """Round numbers to `bits` bits of mantissa: to the nearest number, or by dropping the other bits."""
    drop = np.uint64(_OF_FLOAT64 - bits)
    one = np.uint64(1)
    words = np.array(array, 'float64', order='C').view('uint64')
    if nearest:
        words += one << (drop - one)
    words &= ~((one << drop) - one)
    return words.view('float64').reshape(np.shape(array))


class Exact(object):
    """Arithmetic without rounding."""

    def read(self, op, array):
        """Round the inputs of a layer of this kind: activations, weights, gradients of its output."""
        return array

    def give(self, op, array):
        """Round the results of a layer of this kind: activations, gradients."""
        return array


class Reduced(Exact):
    """Arithmetic in which layers of the kinds `ops` multiply rounded numbers.

    If `mixed` is true, the results of all layers are rounded too, as with autocast.
    """

    def __init__(self, kind, ops=('conv', 'dense'), nearest=True, mixed=True):
        self._bits, self._ops, self._nearest = MANTISSA[kind], ops, nearest
        self._mixed = mixed and kind != 'tf32'

    def __repr__(self):
        return 'Reduced(%r, %r, %r, %r)' % (self._bits, self._ops, self._nearest, self._mixed)

    def read(self, op, array):
        return cut(array, self._bits, self._nearest) if op in self._ops else array

    def give(self, op, array):
        return cut(array, self._bits) if self._mixed else array


EXACT = Exact()

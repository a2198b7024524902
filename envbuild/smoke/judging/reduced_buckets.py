"""Decides whether arithmetic in reduced precision caused an error in the weights of the bucket network.

As in `reduced`, the measured error is compared with a simulated error. But here each layer is compared separately, because only
one of several buckets may be wrong. Each step is compared separately too. This is possible because the weights after each step
were saved, so the gradient of each step is known. In every step, the error of every layer must resemble simulated rounding.

The limits come from PyTorch's autocast on a CPU (docs/explanation/reference-check.md). There, the cosine was 0.57 to 0.92, and
the measured errors were 0.9 to 1.15 times as large as the simulated errors. The smooth parts differed by 0.02 to 0.45 of the
rest; the difference was largest in the last layer, which is small.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import rounding
from . import reduced

ALIKE, AS_LARGE, SMOOTH_APART = .4, 1.5, .75
SAMPLE = 16             # of a parameter with more than SMALL numbers, every 16th number is compared
SMALL = 1 << 14
# Ways of rounding: (round to the nearest, else drop the other bits; round the outputs of all layers too, else only the factors
# of products).
WAYS = ((True, True), (True, False), (False, True), (False, False))


def explains(wanted, n, copies, kind):
    """Whether the precision `kind` ('tf32', 'bf16', 'fp16') explains `copies`, the weights after each step of n replicas."""
    steps = _steps(wanted, n, copies)
    ways = WAYS if kind != 'tf32' else WAYS[:1] + WAYS[2:3]
    return any(all(step.is_like(rounding.Reduced(kind, ('dense',), *way)) for step in steps) for way in ways)


def _steps(wanted, n, copies):
    """Return a _Step for each step. `copies` has the weights after each step."""
    found, before, speed = [], dict((name, wanted.start[name].astype('float64')) for name in wanted.net.names), {}
    for number, weights in enumerate(copies):
        found.append(_Step(wanted, n, number, before, speed, weights))
        speed = dict((name, _sampled(before[name] - weights[name]) / wanted.plan['lr']) for name in weights)
        before = dict((name, weights[name].astype('float64')) for name in weights)
    return found


def _sampled(array):
    flat = np.asarray(array, 'float64').reshape(-1)
    return flat[::SAMPLE] if flat.size > SMALL else flat


class _Step(object):
    """The gradient that one step applied, and the gradient that it should have applied.

    `speed` is the momentum before the step. It is sampled, and empty in the first step.
    """

    def __init__(self, wanted, n, number, before, speed, weights):
        self._wanted, self._n, self._number, self._before, self._layers = wanted, n, number, before, {}
        right, smoothed, darker = (self._gradient(0, 1, **changes) for changes in (
            {}, {'smoothing': reduced.NUDGE}, {'brightness': 1 - reduced.NUDGE}))
        parts = [self._gradient(replica, n) for replica in range(n - 1)]
        for layer in set(name[:-2] for name in right):
            names = [layer + ending for ending in ('_w', '_b') if layer + ending in right]
            scale = dict((name, 1 / max(np.linalg.norm(right[name]), 1e-300)) for name in names)
            used = dict((name, _sampled(before[name] - weights[name]) / wanted.plan['lr'] - wanted.momentum * speed.get(name, 0.0))
                        for name in names)

            def vector(each, names=names, scale=scale):
                return np.concatenate([each[name] * scale[name] for name in names])

            healthy = vector(right)
            tries = [healthy] + [vector(each) - healthy for each in parts + [smoothed, darker]]
            tries += [vector(dict((name, _sampled(before[name])) for name in names))] + ([vector(speed)] if speed else [])
            self._layers[layer] = vector, healthy, vector(used) - healthy, reduced.directions(tries)

    def is_like(self, numbers):
        """Whether the error of each layer resembles the error that arithmetic with these `numbers` causes."""
        parts = [self._gradient(replica, self._n, numbers=numbers) for replica in range(self._n)]
        rounded = dict((name, sum(each[name] for each in parts) / self._n) for name in parts[0])
        return all(self._is_like(error, vector(rounded) - healthy, smooth) for vector, healthy, error, smooth in self._layers.values())

    @staticmethod
    def _is_like(error, simulated, smooth):
        return (reduced.as_large(error, simulated, AS_LARGE)
                and reduced.likeness(error, simulated, smooth, ALIKE, SMOOTH_APART) is not None)

    def _gradient(self, part, parts, **changes):
        """The sampled gradient of one part of the step's batch."""
        found = self._wanted.gradient(self._before, self._number, part, parts, **changes)
        return dict((name, _sampled(found[name])) for name in found)

"""Decides whether arithmetic in reduced precision caused an error of the weights.

Libraries round other numbers than a simulation does, so the measured and the simulated error are only similar. A small fault
may cause an error of the same size. It must be found even if a reduced precision is allowed. So both errors are divided into
two parts. Some faults change the weights smoothly: gradients that count more or less in some step or on some replica, decay,
smoothed labels, scaled images. The smooth part of an error is the part that such faults could cause as well as rounding. The
rest of the measured error must resemble the rest of the simulated error in direction and size, and the two smooth parts must be
nearly equal.

The limits come from PyTorch's autocast on a CPU (docs/explanation/reference-check.md). There, the cosine between the two rests
was 0.60 to 0.71 in bfloat16 and 0.41 to 0.53 in float16. The smooth parts differed by 0.08 to 0.26 of the rest. The measured
errors of parameters were 0.6 to 3.1 times as large as the simulated errors.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from .fitting import Target
from .simulate import simulate

ALIKE = 0.3             # the smallest cosine between the rests of the two errors
SMOOTH_APART = 0.5      # the greatest distance between the two smooth parts, as a share of the rest
AS_LARGE = 3.5          # the greatest factor between the two errors, in each parameter
NUDGE = 1e-3            # size of each simulated smooth fault, small enough that its effect is linear
DECAY = 1e-4


class Errors(object):
    """The error of one copy of the weights, divided into its smooth part and the rest. `copy` is (replica, its weights)."""

    def __init__(self, case, copy, want):
        self._target, self._want, self._names = Target(case, copy, want), want, case.net.names
        self.replica, self._got = copy
        tries = [self._target.of(switches) - self._target.healthy for switches in _smooth(case)]
        self._smooth = directions(tries)

    def likeness(self, model):
        """Return the cosine between the rest of this error and that of a simulated one; None if they are not similar enough."""
        error, simulated = (self._target.vector(weights) - self._target.healthy for weights in (self._got, model))
        return likeness(error, simulated, self._smooth) if self._as_large(model) else None

    def _as_large(self, model):
        return all(as_large(*[np.asarray(weights[name], 'float64') - self._want[name] for weights in (self._got, model)])
                   for name in self._names)


def as_large(error, simulated, factor=AS_LARGE):
    """Whether two errors of one parameter have about the same size."""
    here, there = (float(np.linalg.norm(each)) for each in (error, simulated))
    return there / factor <= here <= there * factor


def likeness(error, simulated, smooth, alike=ALIKE, smooth_apart=SMOOTH_APART):
    """Return the cosine between the rests of two errors; None if the errors are not similar enough.

    The columns of `smooth` are orthonormal; they span the directions in which smooth faults change the weights.
    """
    apart = smooth.T.dot(error - simulated)
    rest, simulated_rest = (each - smooth.dot(smooth.T.dot(each)) for each in (error, simulated))
    size = float(np.linalg.norm(rest))
    sizes = size * float(np.linalg.norm(simulated_rest))
    if not np.isfinite(sizes) or sizes == 0:
        return None
    cosine = float(rest.dot(simulated_rest)) / sizes
    return cosine if cosine >= alike and float(np.linalg.norm(apart)) <= smooth_apart * size else None


def directions(tries):
    """Return a matrix with orthonormal columns that span the given vectors: the argument `smooth` of `likeness`."""
    return np.linalg.qr(np.stack([each / max(np.linalg.norm(each), 1e-300) for each in tries], axis=1))[0]


def _smooth(case):
    """The switches that simulate small smooth faults: each changes all weights a little, and none much more than the others."""
    steps = [dict(counts=[1 + NUDGE * (step == other) for other in range(case.steps)]) for step in range(case.steps)]
    replicas = [dict(shares=[1 + NUDGE * ((replica == other) - 1.0 / case.replicas) for other in range(case.replicas)])
                for replica in range(case.replicas - 1)]
    return steps + replicas + [dict(decay=DECAY), dict(smoothing=NUDGE), dict(divisor=255.0 * (1 + NUDGE))]

"""Compares what the framework reports about the reference network with NumPy: the loss of each step, and the last outputs.

Right weights do not prove them: a wrong loss changes no step, and frameworks compute outputs without gradients by other code.
The framework's own weights are used, so an error of earlier steps does not count.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import refnet
from .checks import INFERENCE

# Limits relative to the right value. From measured distributions: docs/explanation/reference-check.md. For GPUs and reduced
# precisions, see the limits of the steps in later_steps.
LIMITS, REDUCED = {'cpu': 2e-5, 'cuda': 4e-4}, .08
SAME = .01              # a wrong loss is named if the named one differs from it by at most this share
WRONG = 1e9             # stands for errors that are not finite


def limit_of(kind, reduced):
    """Return the largest allowed error on this kind of device ('cpu' or 'cuda').

    `reduced` says whether the run may use a reduced precision. It may use it only for outputs, and the weights do not show this.
    """
    return REDUCED if reduced else LIMITS[kind]


class Expected(object):
    """What NumPy computes from the weights of the framework after each step; `path` is the file with these weights."""

    def __init__(self, case, path):
        with np.load(path) as stored:
            weights = dict((name, stored[name].astype('float64')) for name in case.net.names)
        self._case, self._steps = case, len(next(iter(weights.values())))
        self._weights = [case.start] + [dict((name, each[number]) for name, each in weights.items()) for number in range(self._steps)]

    def losses(self, after=0):
        """Return the loss of each image, one row for each step, from the weights before the step.

        With `after` = 1, they are from the weights after the step.
        """
        case, rows = self._case, []
        for step in range(self._steps):
            low = step % case.steps * case.batch
            part = slice(low, low + case.batch)
            rows.append(refnet.losses(self._logits(step + after, case.images[part]), case.labels[part]))
        return np.array(rows)

    def answers(self, count):
        """Return the logits of the first `count` images from the last weights."""
        return self._logits(self._steps, self._case.images[:count])

    def _logits(self, step, images):
        weights = dict((name, np.asarray(each, 'float64')) for name, each in self._weights[step].items())
        return refnet.logits(self._case.net, weights, refnet.scaled(images))


def judge(check, expected, losses, answers, limit):
    """Return the check ORACLE, which has not failed after a look at the weights, as it stands after a look at the reports.

    `expected` is an Expected; `losses` has the reported losses of each rank, and `answers` the logits of each rank; for `limit`,
    see `limit_of`. A rank may report the loss of its own part of the batch, or that of the whole batch.
    """
    rows, detail = expected.losses(), dict(check['detail'])
    each = [_apart(reported, rows, rank, len(losses)) for rank, reported in enumerate(losses)]
    outputs = [_distance(logits, expected.answers(len(logits))) for logits in answers]
    detail.update(losses_apart=max(each), outputs_apart=max(outputs))
    if max(each) > limit:
        rank = each.index(max(each))
        words = 'the weights are right, but the losses that rank %d reports %s' % (rank, _named(expected, rows, losses[rank], rank, len(losses)))
        return _failed(check, detail, max(each), limit, 'reported-loss', words, (
            'Training is right, but not the loss that is printed or logged: check how it is averaged, scaled and read.'))
    if max(outputs) > limit:
        words = 'the weights are right, but the outputs that rank %d computes from them without gradients are wrong by %.1e' % (
            outputs.index(max(outputs)), max(outputs))
        return _failed(check, detail, max(outputs), limit, 'outputs', words, INFERENCE)
    return dict(check, detail=detail, message='%s; reported losses and outputs agree to %.1e' % (check['message'], max(each + outputs)))


def _failed(check, detail, value, limit, key, words, next_step):
    detail['hypothesis'] = dict(detail.get('hypothesis') or {}, id=key, sentence=words)
    return dict(check, status='fail', severity='fail', value=value, limit=limit, unit='relative', message=words, detail=detail,
                next_step=next_step)


def _apart(reported, rows, rank, ranks):
    """Return the largest relative error of the losses of one rank, in its best reading: those of its part, or of the batch."""
    return min(_largest(reported, right) for right in _readings(rows, rank, ranks))


def _readings(rows, rank, ranks):
    size = rows.shape[1] // ranks
    return rows[:, rank * size:(rank + 1) * size].mean(axis=1), rows.mean(axis=1)


def _largest(reported, right):
    reported = np.array([np.nan if loss is None else loss for loss in reported], 'float64')
    worst = float(np.abs(reported / right - 1).max())
    return worst if np.isfinite(worst) else WRONG


def _distance(got, right):
    worst = float(np.linalg.norm(got - right) / np.linalg.norm(right))
    return worst if np.isfinite(worst) else WRONG


def _named(expected, rows, reported, rank, ranks):
    """Describe wrong losses: a multiple of the right ones, those of another step, or how far they are wrong."""
    right, _ = _readings(rows, rank, ranks)
    reported = np.array([np.nan if loss is None else loss for loss in reported], 'float64')
    if not np.isfinite(reported).all():
        return 'are not all finite numbers'
    factor = float(np.median(reported / right))
    if np.abs(reported / right / factor - 1).max() < SAME:
        return 'are %.4g times as large as they should be' % factor
    later, _ = _readings(expected.losses(after=1), rank, ranks)
    for words, numbers, other in (
            ('are those of the step before', slice(1, None), right[:-1]),
            ('are computed after the update, not before it', slice(None), later),
            ('are means over all steps so far', slice(None), np.cumsum(right) / np.arange(1, len(right) + 1))):
        if np.abs(reported[numbers] / other - 1).max() < SAME:
            return words
    worst = np.abs(reported / right - 1)
    return 'are wrong by up to %.1e, most in step %d' % (worst.max(), worst.argmax() + 1)

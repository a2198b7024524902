"""BUCKETS: checks the weights of a network that is larger than one exchange bucket.

Frameworks exchange gradients in buckets: one bucket is exchanged while the backward pass still computes the next. A network
that fits into one bucket cannot show errors in the exchange of further buckets. After the first wrong step, a parameter is
wrong only if its own gradient was exchanged wrongly. The wrong parameters share a bucket, and their errors show what happened
to it.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import nets, refnet, rounding
from ..check_record import check
from . import reduced_buckets

LIMIT = 1e-4            # single precision causes errors up to 6e-6, a bucket in half precision 3e-4
REDUCED = .03           # errors of a reduced precision reach 8e-3 (bfloat16), those of a lost or doubled bucket are 0.5 or more
# A fault explains a measured gradient if the gradient that the fault would cause differs from it by less than this share of the
# right gradient.
NEAR = 0.05
# Rounding to half precision causes errors of this size, as a share of the gradient. In a parameter with at least LARGE numbers,
# the correlation of these errors with the gradient, and with the difference between replicas, is below FOLLOWS. The error of a
# single number is at most the share MOST_OF_ONE of the whole error.
LEAST_ROUNDED, MOST_ROUNDED = 1e-4, 1e-2
LARGE, FOLLOWS, MOST_OF_ONE = 256, .5, .5
KNOWN = (
    ('bucket-not-exchanged', 'are not exchanged: each replica uses its own'),
    ('bucket-lost', 'are lost: the replicas receive zeros'),
    ('bucket-late', 'are one step late'),
    ('bucket-summed', 'are summed instead of averaged'),
    ('bucket-averaged-twice', 'are averaged twice'),
    ('bucket-of-replica-0', 'are taken from replica 0 alone'),
    ('bucket-rounded', 'are nearly right, as if they had been rounded to half precision'),
)


class Wanted(object):
    """The weights that must result from training with one size of the global batch.

    Only the last weights are kept. The weights after earlier steps are computed again when they are needed.
    """

    def __init__(self, plan, start, images, labels, momentum):
        self.net, self.start, self.plan, self.momentum = nets.of(plan['net']), start, plan, momentum
        self._images, self._labels = images, labels
        for self.last, _ in self.steps():
            pass

    def steps(self):
        """Yield (weights, gradient) after each step; the arrays are reused for the next step."""
        weights = dict((name, self.start[name].astype('float64')) for name in self.net.names)
        past = dict((name, np.zeros_like(each)) for name, each in weights.items())
        for step in range(self.plan['steps']):
            gradient = self.gradient(weights, step, 0, 1)
            refnet.update(weights, past, gradient, self.plan['lr'], self.momentum)
            yield weights, gradient

    def gradient(self, weights, step, part, parts, numbers=rounding.EXACT, smoothing=0.0, brightness=1.0):
        """The gradient of one of `parts` equal parts of a step's batch; `numbers` is the precision of the computation."""
        size = self.plan['batch'] // parts
        low = step * self.plan['batch'] + part * size
        images = refnet.scaled(self._images[low:low + size]) * brightness
        return refnet.loss_and_gradient(self.net, weights, images, self._labels[low:low + size], numbers, smoothing)[1]


def judge(n, wanted, results, precision):
    """Return the check BUCKETS of one launch.

    `precision` is the reduced precision that ORACLE found on these devices, which affects these weights too; '' if it found
    none.
    """
    measured = [result['phases']['buckets'] for result in results]
    if measured[0]['reason']:
        return [check('BUCKETS', n, 'skip', 'does not apply: ' + measured[0]['reason'])]
    saved = [entry for phase in measured for entry in phase['weights']]
    step, differing = _apart(measured)
    each = _worst([_load(entry['path']) for entry in saved if entry['step'] == wanted.plan['steps']], wanted.last, wanted.start)
    value, size = max(each.values()), 'with %d MB of gradients, ' % (wanted.net.bytes // 10 ** 6)
    detail = {'parameters': each, 'wrong': [], 'step': None, 'hypothesis': None, 'differ_from_step': step, 'bytes': wanted.net.bytes}
    common = dict(value=value, limit=LIMIT, unit='relative', detail=detail)
    if value <= LIMIT and not differing:
        return [check('BUCKETS', n, 'pass', size + 'weights agree with the reference to %.1e' % value, **common)]
    if precision and not differing and value <= REDUCED and _is_rounding(wanted, n, saved, precision):
        return [check('BUCKETS', n, 'warn', size + ('weights agree with the reference only to %.1e; the check ORACLE says '
                                                    'why') % value, severity='warn', **common)]
    detail['step'], detail['wrong'], detail['hypothesis'], words = _blame(wanted, n, saved) or (step, differing, None, 'lead to different weights in the replicas')
    right = [name for name in wanted.net.names if name not in detail['wrong']]
    words = '%sthe gradients of %s %s, from step %d on' % (size, ', '.join(detail['wrong']), words, detail['step'])
    return [check('BUCKETS', n, 'fail', words + ('; the gradients of %s are right' % ', '.join(right) if right else ''), next_step=(
        ('These parameters are exchanged in one bucket. Check what the training code does to it, such as a hook, '
         'compression or a view.')
        if right else 'If the check ORACLE passes, only large exchanges go wrong.'), **common)]


def _is_rounding(wanted, n, saved, precision):
    copies = [_load(entry['path']) for entry in sorted(saved, key=lambda entry: entry['step'])]
    return len(copies) == wanted.plan['steps'] and reduced_buckets.explains(wanted, n, copies, precision)


def _apart(measured):
    """Return (the first step after which the replicas differ, the parameters that differ); (0, []) if no parameter differs."""
    for step in range(len(measured[0]['digests'])):
        copies = sum((phase['digests'][step] for phase in measured), [])
        names = sorted(name for name in copies[0] if any(copy[name] != copies[0][name] for copy in copies))
        if names:
            return step + 1, names
    return 0, []


def _load(path):
    with np.load(path) as stored:
        return dict((name, stored[name]) for name in stored.files)


def _worst(copies, want, start):
    """Return {parameter: its largest error in any copy}, with 1e9 in place of errors that are not finite."""
    found = [refnet.errors(weights, want, start)[1] for weights in copies]
    return dict((name, float(max(each[name] if np.isfinite(each[name]) else 1e9 for each in found))) for name in want)


def _blame(wanted, n, saved):
    """Return (step, wrong parameters, fault, words) of the first wrong step; None if no error exceeds LIMIT."""
    before, past, previous = None, None, None
    for number, (weights, gradient) in enumerate(wanted.steps()):
        copies = [(entry['replica'], _load(entry['path'])) for entry in saved if entry['step'] == number + 1]
        worst = _worst([copy for _, copy in copies], weights, wanted.start)
        wrong = [name for name in wanted.net.names if worst[name] > LIMIT]
        if wrong:
            if before is None:
                before = dict((name, wanted.start[name].astype('float64')) for name in weights)
                past = previous = dict((name, np.zeros_like(each)) for name, each in weights.items())
            fault, words = _named(_Step(wanted, n, number, before, past, gradient, previous), copies, wrong)
            return number + 1, wrong, fault, words
        past = dict((name, gradient[name] + (wanted.momentum * past[name] if past else 0)) for name in weights)
        before, previous = dict((name, each.copy()) for name, each in weights.items()), gradient
    return None


class _Step(object):
    """One wrong step: the weights and momentum before it, its right gradient, and the gradient of the step before."""

    def __init__(self, wanted, n, number, before, past, gradient, previous):
        self._wanted, self._n, self._number = wanted, n, number
        self._before, self._past, self._right, self._previous = before, past, gradient, previous

    def used(self, weights, name):
        """The gradient that led to these weights."""
        wanted = self._wanted
        return (self._before[name] - weights[name]) / wanted.plan['lr'] - wanted.momentum * self._past[name]

    def faults(self, replica, weights, wrong):
        """The faults of KNOWN that explain all wrong parameters of this replica."""
        own, first = (self._wanted.gradient(self._before, self._number, part, self._n) for part in (replica, 0))
        fits = set(fault for fault, _ in KNOWN)
        for name in wrong:
            used, right = self.used(weights, name), self._right[name]
            models = {'bucket-not-exchanged': own[name], 'bucket-lost': 0 * right, 'bucket-late': self._previous[name],
                      'bucket-summed': self._n * right, 'bucket-averaged-twice': right / self._n, 'bucket-of-replica-0': first[name], 'bucket-rounded': right}
            fits -= set(fault for fault in models if not np.linalg.norm(used - models[fault]) < NEAR * np.linalg.norm(right))
            if not _is_like_rounding(used - right, right, [right, first[name] - right, own[name] - right]):
                fits.discard('bucket-rounded')
        return fits


def _is_like_rounding(error, right, patterns):
    """Whether the error of a gradient looks like rounding to half precision.

    It does if its size fits, if it is spread over many numbers, and if it follows none of the `patterns`.
    """
    whole, size = np.linalg.norm(error), np.linalg.norm(right)
    if not LEAST_ROUNDED * size < whole < MOST_ROUNDED * size:
        return False
    follows = max(abs((error * pattern).sum()) / max(whole * np.linalg.norm(pattern), 1e-300) for pattern in patterns)
    return error.size < LARGE or (follows < FOLLOWS and np.abs(error).max() < MOST_OF_ONE * whole)


def _named(step, copies, wrong):
    """Return (fault, words) if one known fault explains every saved replica, else (None, words)."""
    # With several copies here, the replicas differ. With one copy (of replica 0), they agree. Gradients that are not exchanged
    # make replicas differ; gradients of replica 0 alone do not. So only one of these two faults is possible.
    fits = set(fault for fault, _ in KNOWN if fault != ('bucket-of-replica-0' if len(copies) > 1 else 'bucket-not-exchanged'))
    for replica, weights in copies:
        fits &= step.faults(replica, weights, wrong)
    return next(((fault, words) for fault, words in KNOWN if fault in fits), (None, 'are wrong in a way that no '
                                                                                    'known fault explains'))

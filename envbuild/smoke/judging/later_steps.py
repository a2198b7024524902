"""Judges each step of the reference network alone: a fault that comes back every few steps may spare the first four.

In SGD with momentum, change[t] = m change[t-1] - lr g[t]. The weights before and after each step are known, and NumPy computes
the gradient g[t] at the weights before it. So an error of an earlier step does not grow from step to step, and a wrong step is
known by its number. Right after a wrong step, a healthy step may seem wrong too, because change[t-1] is not what the optimizer
holds.

The learning rate falls in the later steps (rank.match.rate_of). Some frameworks multiply by the learning rate before they add a
gradient to the momentum, others afterwards. Both are right. Their steps differ only if the learning rate changes: in the second
way, the momentum's part of a step changes with it. So each step is judged in the way that fits most of the steps.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import refnet
from ..rank.match import rate_of

# A share of the usual change of a parameter in one step. From measured distributions: docs/explanation/reference-check.md
# For KERNEL_ON_GPU, see the same limit in `checks`.
LIMIT, KERNEL_ON_GPU, REDUCED = 5e-5, 2e-4, .08
SAME = .02              # a step is named if this share of its change remains unexplained
NOT_FINITE = 1e9


class Step(object):
    """One step: its number (from 1), the error of each parameter, and how the step may be called."""

    def __init__(self, number, errors, words):
        self.number, self.errors, self.words = number, errors, words

    @property
    def error(self):
        """The largest error of a parameter."""
        return max(self.errors.values())

    def above(self, limits):
        """Return {parameter: error} of the errors above their limits."""
        return dict((name, error) for name, error in self.errors.items() if error > limits[name])


def measure(case, path):
    """Return a Step for each step; `path` is the file with the weights after every step."""
    with np.load(path) as stored:
        weights = dict((name, stored[name].astype('float64')) for name in case.net.names)
    before = dict((name, np.asarray(case.start[name], 'float64')) for name in case.net.names)
    seen, count = [], len(next(iter(weights.values())))
    for number in range(count):
        after = dict((name, each[number]) for name, each in weights.items())
        low = number % case.steps * case.batch
        part = slice(low, low + case.batch)
        with np.errstate(all='ignore'):
            gradient = refnet.loss_and_gradient(case.net, before, refnet.scaled(case.images[part]), case.labels[part])[1]
            seen.append((dict((name, after[name] - before[name]) for name in before), gradient))
        before = after
    rates = [rate_of(number, case.steps, case.lr) for number in range(count)]
    ways = [_judged(case, seen, rates, factors) for factors in (
        [1.0] * count, [1.0] + [rate / last for last, rate in zip(rates, rates[1:])])]
    return min(ways, key=lambda steps: np.median([step.error for step in steps]))


def _judged(case, seen, rates, factors):
    """Return a Step for each (change, gradient) in `seen`; `factors` say how much of the last change the momentum repeats."""
    last, rows = dict((name, 0.0) for name in case.net.names), []
    for (change, gradient), rate, factor in zip(seen, rates, factors):
        with np.errstate(all='ignore'):
            right = dict((name, case.momentum * factor * last[name] - rate * gradient[name]) for name in change)
        rows.append((change, right, dict((name, -rate * gradient[name]) for name in change)))
        last = change
    usual = dict((name, np.median([_norm(right[name]) for _, right, _ in rows if np.isfinite(right[name]).all()])) for name in last)
    return [_step(number + 1, row, usual) for number, row in enumerate(rows)]


def _step(number, row, usual):
    change, right, alone = row
    errors = dict((name, _finite(_norm(change[name] - right[name]) / max(usual[name], 1e-300))) for name in usual)
    return Step(number, errors, _words(*[np.concatenate([each[name].reshape(-1) for name in sorted(each)])
                                         for each in (change, right, alone)]))


def _words(change, right, alone):
    """Say what the step did in place of the right change: nothing, a step without momentum, or a multiple; '' if unknown."""
    if not np.isfinite(change).all() or not np.isfinite(right).all():
        return 'give numbers that are not finite'
    if not change.any():
        return 'do not change the weights'
    size = _norm(change)
    if _norm(change - alone) < SAME * size and _norm(right - alone) > SAME * size:
        return 'have no momentum'
    factor = change.dot(right) / max(right.dot(right), 1e-300)
    if _norm(change - factor * right) < SAME * size and abs(factor - 1) > SAME:
        return 'are %.3g times as large as they should be' % factor
    return ''


def limits_of(net, kind, reduced=False):
    """Return {parameter: its largest allowed error in a step} on this kind of device ('cpu' or 'cuda').

    `reduced` says whether a reduced precision is allowed and in use.
    """
    return net.limits(kind, REDUCED, REDUCED) if reduced else net.limits(kind, LIMIT, KERNEL_ON_GPU)


def judge(check, steps, compared, limits):
    """Return the check ORACLE, which has not failed after the first `compared` steps, as it stands after a look at every step.

    `limits` has the largest allowed error of each parameter (see `limits_of`).
    """
    detail = dict(check['detail'], steps=[step.error for step in steps])
    wrong = [step for step in steps if step.above(limits)]
    if not wrong:
        return dict(check, detail=detail, message='%s; each of %d single steps has an error of at most %.1e' % (
            check['message'], len(steps), max(step.error for step in steps)))
    error, parameter = max((error, name) for step in wrong for name, error in step.above(limits).items())
    first = [step for step in wrong if not any(other.number == step.number - 1 for other in wrong)]     # see above
    words = set(step.words for step in first)
    known = words.pop() if len(words) == 1 else ''
    numbers = ', '.join('%d' % step.number for step in first[:6]) + (', ...' if len(first) > 6 else '')
    message = 'the weights after %d steps are right, but of %d single steps, these are wrong: %s; they %s' % (
        compared, len(steps), numbers, known or 'change parameter %s wrongly, by %.1e of its usual change' % (
            parameter, error))
    hypothesis = dict(detail.get('hypothesis') or {}, id='some-steps', sentence=message)
    return dict(check, status='fail', severity='fail', value=error, limit=limits[parameter], message=message, unit='of a step\'s usual change',
                detail=dict(detail, hypothesis=hypothesis), next_step='Some steps are wrong and others right: look at what is done '
                'every few steps, such as a schedule, a cache, clipping, accumulation, or logging that touches the state. After '
                'step %d, the learning rate falls by a little in each step: look also at what is done when it changes.' % compared)


def joined(first, again):
    """Return one check from ORACLE before the workloads, which has not failed, and ORACLE from the same training after them."""
    if again['status'] == 'fail' or (first['status'], again['status']) == ('pass', 'warn'):
        return dict(again, message='right at the start of the run; at its end: ' + again['message'])
    steps = [error for made in (first, again) for error in made['detail'].get('steps', ())]
    return dict(first, message=first['message'] + '; the same holds at the end of the run', detail=dict(first['detail'], steps=steps))


def _norm(array):
    return float(np.sqrt(np.square(array).sum()))


def _finite(value):
    return float(value) if np.isfinite(value) else NOT_FINITE

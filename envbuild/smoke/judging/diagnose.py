"""Names the fault behind wrong weights: simulates the training with every known fault, and takes the one with the nearest
weights.

It is used only if the weights differ from the reference's. Each known fault is a hypothesis; arithmetic in reduced precision is
one, too.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import fitting, hypotheses, reduced
from .simulate import simulate

# A fault is named only if its simulated weights are at most NAMED_BELOW away, at most the share EXPLAINS of the whole error,
# and at most CLEARER_THAN times as far away as those of the runner-up. Rounding has a larger share, because libraries add in
# another order than the simulation, and so round other numbers.
NAMED_BELOW = 0.02
EXPLAINS = 0.2
CLEARER_THAN = 0.5
ROUNDING_EXPLAINS = 0.7
SIGNS = 5               # an error is compared so many times with the same numbers under random signs
RANDOM_BELOW = 1.2      # it is noise if its largest singular value is at most so many times theirs
EVEN = 30               # if a parameter is so many times as wrong as the median parameter, the error is not called noise
MOST_NOISE = 0.3        # noise is named up to this share of a parameter's movement; larger errors would hide the training
LEAST_SIDE = 16         # smaller matrices of weights cannot show structure
STOOD = 0.1             # distances are relative to a parameter's movement, at least to this share of the healthy one
UNTOUCHED = 1e-6        # a smaller change counts as none; a healthy step changes every parameter by more than 1e-4
NO_UPDATE = 'the parameters never changed: either the optimizer makes no step, or all gradients are zero'


class Hypothesis(object):
    """One fault: its id, its sentence, the distance of its simulation from the weights, its simulated weights by replica."""

    def __init__(self, key, sentence, distance, models):
        self.key, self.sentence, self.distance, self.models = key, sentence, distance, models
        self.is_reduced = key.startswith('reduced-')
        self.is_rounding = self.is_reduced or key.startswith(('gradients-in-', 'weights-in-', 'start-in-'))


class Search(object):
    """The hypotheses that were simulated for wrong weights. `copies` is [(replica, its weights)], `want` the right weights.

    `excess` maps parameters to errors that their arithmetic alone may cause, beyond those of other parameters.
    """

    def __init__(self, case, copies, want, excess):
        self.case, self.copies, self.want, self._excess = case, copies, want, excess
        self._least = dict((name, STOOD * np.linalg.norm(want[name] - case.start[name])) for name in case.net.names)
        self.worst = max(copies, key=lambda copy: max(self.apart(copy[1], want).values()))
        self.error = max(self.apart(self.worst[1], want).values())
        self.found = []

    def apart(self, got, model):
        """Return {parameter: distance of two weights, relative to the larger movement from the start, less the excess that is
        allowed}; at most 9e9.
        """
        found = {}
        for name in self.case.net.names:
            a, b, origin = (np.asarray(w[name], 'float64') for w in (got, model, self.case.start))
            with np.errstate(all='ignore'):
                apart = float(np.linalg.norm(a - b) / max(np.linalg.norm(a - origin), np.linalg.norm(b - origin), self._least[name]))
            found[name] = max(apart - self._excess.get(name, 0), 0.0) if np.isfinite(apart) else 9e9
        return found

    def odd(self):
        """Return (replica, its weights) of the copy with the largest error; None if all copies are equal."""
        first = self.copies[0][1]
        alike = all(np.array_equal(got[name], first[name]) for _, got in self.copies for name in self.case.net.names)
        return None if alike else self.worst

    def ask(self, listed):
        """Simulate each (id, sentence, switches) of a list, and add it to the hypotheses that were found."""
        for key, sentence, switches in listed:
            models = simulate(self.case, **switches)
            distance = max(max(self.apart(got, models[replica]).values()) for replica, got in self.copies)
            hypothesis = Hypothesis(key, sentence, distance, None)
            hypothesis.models = models if hypothesis.is_reduced else None       # those of other hypotheses are not needed later
            self.found.append(hypothesis)

    def nearest(self):
        """Return (the nearest hypothesis, the nearest one with another id)."""
        ranking = sorted(self.found, key=lambda each: each.distance)
        return ranking[0], next((each for each in ranking if each.key != ranking[0].key), ranking[0])

    def clear(self):
        """The nearest hypothesis, if it explains the error clearly better than all others; else None."""
        best, second = self.nearest()
        alone = second is best or best.distance <= CLEARER_THAN * second.distance
        return best if best.distance <= min(NAMED_BELOW, EXPLAINS * self.error) and alone else None

    def rounding(self):
        """The nearest hypothesis, if it is rounding of stored or exchanged numbers and explains enough of the error."""
        best, _ = self.nearest()
        explains = best.is_rounding and not best.is_reduced and best.distance <= ROUNDING_EXPLAINS * self.error
        return best if explains else None

    def reduced(self, possible):
        """The hypothesis of a reduced precision whose simulated error resembles the error of every copy, or None.

        Precisions in `possible` are preferred.
        """
        if self._half_explained():
            return None
        copies = [reduced.Errors(self.case, copy, self.want) for copy in self._different()]
        found = []
        for each in [each for each in self.found if each.is_reduced]:
            likeness = [errors.likeness(each.models[errors.replica]) for errors in copies]
            if None not in likeness:
                found.append((each.key[len('reduced-'):] in possible, min(likeness), each))
        return max(found, key=lambda entry: entry[:2])[2] if found else None

    def _different(self):
        """The copies, without those that equal an earlier one."""
        found = []
        for replica, got in self.copies:
            if not any(all(np.array_equal(got[name], other[name]) for name in got) for _, other in found):
                found.append((replica, got))
        return found

    def like_noise(self):
        """The hypothesis of random noise, if the error has no structure; else None.

        It has none if its largest singular value is about that of the same numbers with random signs.
        """
        got, draw = self.worst[1], np.random.RandomState(1)
        size = float(np.median(list(self.apart(got, self.want).values())))
        if size > MOST_NOISE or self.error > EVEN * size:
            return None
        weights = [np.asarray(got[name], 'float64') - self.want[name] for name in self.case.net.names if name.endswith('_w')]
        matrices = [each.reshape(len(each), -1) for each in weights]
        for matrix in [each for each in matrices if min(each.shape) >= LEAST_SIDE]:
            strengths = [np.linalg.norm(matrix * draw.choice([-1.0, 1.0], matrix.shape), 2) for _ in range(SIGNS)]
            if np.linalg.norm(matrix, 2) > RANDOM_BELOW * np.median(strengths):
                return None
        return Hypothesis('noise', 'gradients or updates have random errors of about %.0e of their size' % size, 0.0, None)

    def _half_explained(self):
        """Whether a fault other than rounding explains more than half of the error."""
        return any(each.distance < CLEARER_THAN * self.error for each in self.found if not each.is_rounding)

    def answer(self, hypothesis):
        best, second = self.nearest()
        return {'id': hypothesis.key if hypothesis else '', 'sentence': hypothesis.sentence if hypothesis else '',
                'distance': hypothesis.distance if hypothesis else best.distance,
                'second': second.key if hypothesis is best else best.key,
                'second_distance': second.distance if hypothesis is best else best.distance}


def name_fault(case, copies, want, suspects=(), possible=(), excess=None):
    """Find the hypothesis that explains all `copies`, [(replica, its weights)]; for `excess`, see `Search`.

    Returns {'id', 'sentence', 'distance', 'second', 'second_distance'}; id and sentence are empty if no hypothesis is near.
    Faults of a single parameter are tried only for those in `suspects`. For the reduced precisions in `possible`, which can be
    in use, every way of rounding is simulated.
    """
    if not all(np.isfinite(got[name]).all() for _, got in copies for name in case.net.names):
        return _certain('not-finite', 'some weights are not finite numbers')
    if all(np.abs(got[name] - case.start[name]).max() < UNTOUCHED for _, got in copies for name in case.net.names):
        return _certain('no-update', NO_UPDATE)
    search = Search(case, copies, want, excess or {})
    search.ask(hypotheses.known(case, suspects))
    clear = search.clear()
    if clear or case.is_large:
        return search.answer(clear)
    target = fitting.Target(case, copies[0], want)
    for listed in _to_ask(search, target):
        search.ask(listed)
        clear = search.clear()
        if clear:
            return search.answer(clear)
    search.ask(hypotheses.rounded(case.replicas))
    for kind in hypotheses.WORDS:
        search.ask(hypotheses.reduced(kind, every_way=kind in possible))
    return search.answer(search.rounding() or search.reduced(possible) or _by_labels(search, target) or search.like_noise())


def _to_ask(search, target):
    """Yield lists of hypotheses.

    A list takes many simulations, so the caller stops as soon as a hypothesis explains the error.
    """
    odd = search.odd()
    if odd is not None:
        yield hypotheses.of_one_replica(odd[0])
    yield fitting.sized(target)
    if odd is not None:
        yield fitting.sized_of_one(fitting.Target(search.case, odd, search.want))


def _by_labels(search, target):
    """The hypothesis that single labels are wrong, if it explains the error; else None."""
    other = fitting.wrong_labels(target)
    if other is None:
        return None
    labels, changed = other
    batches = len(set(place // search.case.batch for place in changed))
    search.ask([('wrong-labels', ('%d of %d labels are wrong, in %d of %d batches; the first is that of image %d, '
                                  'which was trained as class %d instead of %d') % (
        len(changed), len(labels), batches, search.case.steps, changed[0], labels[changed[0]], search.case.labels[changed[0]]),
        dict(labels=labels))])
    return search.clear()


def _certain(key, sentence):
    return {'id': key, 'sentence': sentence, 'distance': 0.0, 'second': '', 'second_distance': 0.0}

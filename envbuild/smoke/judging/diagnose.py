"""From wrong weights to a named fault: train the network under every known hypothesis, name the nearest.

It is only asked when the weights are not the reference's. Arithmetic in reduced precision is a hypothesis like the others.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import fitting, hypotheses
from .simulate import simulate

NAMED_BELOW = 0.02      # what a named fault may leave unexplained at most
EXPLAINS = 0.2          # and as a share of the error that it explains
CLEARER_THAN = 0.5      # and the runner-up must be at least twice as far
ROUNDING_EXPLAINS = 0.7     # what a rounding may leave: libraries add in another order, and so round other numbers
SIMILAR = 3.0           # an error by reduced precision may differ by this factor from the simulated, in each parameter
ALIKE = 0.4             # the least correlation with the error of a simulated rounding
AS_LARGE = 2.5          # and the factor by which its size may differ, in each parameter
SIGNS = 5               # how often the signs of an error are drawn anew
RANDOM_BELOW = 1.2      # times as strong as with random signs: an error with less structure is noise
MOST_NOISE = 0.3        # of a parameter's way: what is more hides what was trained
LEAST_SIDE = 16         # of a matrix of weights that can show structure
STOOD = 0.1             # of its healthy way: a parameter that moved less is compared as if it had moved so far
UNTOUCHED = 1e-6        # a step of the reference moves every parameter by more than 1e-4
NO_UPDATE = 'the parameters never changed: the optimizer step is missing or all gradients are zero'


class Hypothesis(object):
    """One fault: its id, its sentence, how far its simulation is from the weights, and its simulation's own error by parameter.

    `likeness` is the correlation of that error with the one of the worst copy, the median over parameters.
    """

    def __init__(self, key, sentence, distance, errors, likeness):
        self.key, self.sentence, self.distance, self.errors, self.likeness = key, sentence, distance, errors, likeness
        self.is_rounding = key.startswith(('reduced-', 'gradients-in-', 'weights-in-', 'start-in-'))


class Search(object):
    """What was looked at for one set of weights. `want` are the reference's."""

    def __init__(self, case, copies, want):
        self.case, self.copies, self.want = case, copies, want
        self._least = dict((name, STOOD * np.linalg.norm(want[name] - case.start[name])) for name in case.net.names)
        self.worst = max(copies, key=lambda copy: max(self.apart(copy[1], want).values()))
        self.error = max(self.apart(self.worst[1], want).values())
        self.found = []

    def apart(self, got, model):
        """{parameter: distance relative to how far either moved}; a large number if it is none."""
        found = {}
        for name in self.case.net.names:
            a, b, origin = (np.asarray(w[name], 'float64') for w in (got, model, self.case.start))
            with np.errstate(all='ignore'):
                apart = float(np.linalg.norm(a - b) / max(np.linalg.norm(a - origin), np.linalg.norm(b - origin), self._least[name]))
            found[name] = apart if np.isfinite(apart) else 9e9
        return found

    def odd(self):
        """(replica, its weights) of the worst copy; None if all copies are equal."""
        first = self.copies[0][1]
        alike = all(np.array_equal(got[name], first[name]) for _, got in self.copies for name in self.case.net.names)
        return None if alike else self.worst

    def ask(self, listed):
        """Simulate each (id, sentence, switches)."""
        for key, sentence, switches in listed:
            models = simulate(self.case, **switches)
            distance = max(max(self.apart(got, models[replica]).values()) for replica, got in self.copies)
            replica, got = self.worst
            self.found.append(Hypothesis(key, sentence, distance, self.apart(models[replica], self.want), self._likeness(got, models[replica])))

    def _likeness(self, got, model):
        """The median over parameters of the correlation between two errors."""
        found = []
        for name in self.case.net.names:
            a, b = (np.asarray(w[name], 'float64') - self.want[name] for w in (got, model))
            size = np.linalg.norm(a) * np.linalg.norm(b)
            found.append(float((a * b).sum() / size) if np.isfinite(size) and size > 0 else 0.0)
        return float(np.median(found))

    def nearest(self):
        """(the nearest hypothesis, the nearest of another id)."""
        ranking = sorted(self.found, key=lambda each: each.distance)
        return ranking[0], next((each for each in ranking if each.key != ranking[0].key), ranking[0])

    def clear(self):
        """The nearest hypothesis, if it explains the error and no other does."""
        best, second = self.nearest()
        alone = second is best or best.distance <= CLEARER_THAN * second.distance
        return best if best.distance <= min(NAMED_BELOW, EXPLAINS * self.error) and alone else None

    def rounding(self):
        """The nearest hypothesis, if it is a rounding of which the weights hold a good part. Two kinds of rounding are much alike."""
        best, _ = self.nearest()
        return best if best.is_rounding and best.distance <= ROUNDING_EXPLAINS * self.error else None

    def like_reduced(self, possible):
        """A reduced precision that can be in use and gives errors of this size in each parameter, if no fault explains half."""
        if self._half_explained():
            return None
        errors = self.apart(self.worst[1], self.want)
        fitting_ones = [each for each in self.found if each.key in ['reduced-' + kind for kind in possible] and all(
            each.errors[name] / SIMILAR <= errors[name] <= each.errors[name] * SIMILAR for name in errors)]
        return min(fitting_ones, key=lambda each: each.distance) if fitting_ones else None

    def like_rounding(self):
        """The arithmetic in reduced precision of which the error looks most like this one: libraries round other numbers than a simulation."""
        errors = self.apart(self.worst[1], self.want)
        alike = [each for each in self.found if each.key.startswith('reduced-') and each.likeness >= ALIKE and all(
            each.errors[name] / AS_LARGE <= errors[name] <= each.errors[name] * AS_LARGE for name in errors)]
        return max(alike, key=lambda each: each.likeness) if alike and not self._half_explained() else None

    def like_noise(self):
        """Noise, if the error has no structure: with random signs it would be as strong in its strongest direction."""
        got, draw = self.worst[1], np.random.RandomState(1)
        size = float(np.median(list(self.apart(got, self.want).values())))
        if size > MOST_NOISE:
            return None
        weights = [np.asarray(got[name], 'float64') - self.want[name] for name in self.case.net.names if name.endswith('_w')]
        matrices = [each.reshape(len(each), -1) for each in weights]
        for matrix in [each for each in matrices if min(each.shape) >= LEAST_SIDE]:
            strengths = [np.linalg.norm(matrix * draw.choice([-1.0, 1.0], matrix.shape), 2) for _ in range(SIGNS)]
            if np.linalg.norm(matrix, 2) > RANDOM_BELOW * np.median(strengths):
                return None
        return Hypothesis('noise', 'gradients or updates carry random noise of about %.0e of their size' % size, 0.0, {}, 0.0)

    def _half_explained(self):
        """Whether a fault that is no rounding explains half of the error."""
        return any(each.distance < CLEARER_THAN * self.error for each in self.found if not each.is_rounding)

    def answer(self, hypothesis):
        best, second = self.nearest()
        return {'id': hypothesis.key if hypothesis else '', 'sentence': hypothesis.sentence if hypothesis else '',
                'distance': hypothesis.distance if hypothesis else best.distance,
                'second': second.key if hypothesis is best else best.key,
                'second_distance': second.distance if hypothesis is best else best.distance}


def name_fault(case, copies, want, suspects=(), possible=()):
    """The nearest hypothesis for `copies`, [(replica, its weights)]: what fits all of them.

    {'id', 'sentence', 'distance', 'second', 'second_distance'}; id and sentence are empty if none is near. `suspects` are
    parameters. `possible` are the reduced precisions that can be in use: if one is, rounding of unknown kind is accepted if it
    has the size and the spread over parameters that this precision gives.
    """
    if not all(np.isfinite(got[name]).all() for _, got in copies for name in case.net.names):
        return _certain('not-finite', 'weights are not finite numbers')
    if all(np.abs(got[name] - case.start[name]).max() < UNTOUCHED for _, got in copies for name in case.net.names):
        return _certain('no-update', NO_UPDATE)
    search = Search(case, copies, want)
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
    return search.answer(search.rounding() or search.like_rounding() or _by_labels(search, target)
                         or search.like_reduced(possible) or search.like_noise())


def _to_ask(search, target):
    """Lists of hypotheses, one after the other: each takes many simulations, and may be the last that is needed."""
    odd = search.odd()
    if odd is not None:
        yield hypotheses.of_one_replica(odd[0])
    yield fitting.sized(target)
    if odd is not None:
        yield fitting.sized_of_one(fitting.Target(search.case, odd, search.want))


def _by_labels(search, target):
    """The hypothesis of single wrong labels, if some explain the error."""
    other = fitting.wrong_labels(target)
    if other is None:
        return None
    labels, changed = other
    batches = len(set(place // search.case.batch for place in changed))
    search.ask([('wrong-labels', '%d of %d labels are wrong, in %d of %d batches: the first is image %d, trained as class %d, not %d' % (
        len(changed), len(labels), batches, search.case.steps, changed[0], labels[changed[0]], search.case.labels[changed[0]]),
        dict(labels=labels))])
    return search.clear()


def _certain(key, sentence):
    return {'id': key, 'sentence': sentence, 'distance': 0.0, 'second': '', 'second_distance': 0.0}

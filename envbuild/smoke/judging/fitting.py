"""Finds the size of a fault that explains the weights best, such as another learning rate, momentum or decay.

Also finds wrong labels.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import nets, refnet
from .simulate import simulate

UPDATES = 6             # most iterations of a fit; they reach six digits from a start that is wrong by a factor of three
SETTLED = 1e-4          # a fit ends when an iteration changes the size by less than this share of its distance from the start
ROUNDS = 12             # most rounds of the search for wrong labels
PATIENCE = 2            # the search ends if more than this many rounds in a row bring the weights no nearer
LIKELY = 0.4            # a label is changed if the error contains more than this share of the effect of one wrong label
# This share of the features' mean variance is added in every direction: a direction with less variance holds no information.
RIDGE = 1e-3


class Target(object):
    """The weights to explain, as one vector: each parameter's movement, divided by the size of its healthy movement."""

    def __init__(self, case, copy, want):
        self.case, (self.replica, self.got) = case, copy
        self._names = case.net.names
        self._scale = dict((name, 1 / max(np.linalg.norm(want[name] - case.start[name]), 1e-12)) for name in self._names)
        self.goal, self.healthy = self.vector(self.got), self.vector(want)

    def vector(self, weights):
        return np.concatenate([(np.asarray(weights[name], 'float64') - self.case.start[name]).reshape(-1) * self._scale[name]
                               for name in self._names])

    def of(self, switches):
        return self.vector(simulate(self.case, **switches)[self.replica])


def sized(target):
    """Return [(id, sentence, switches)] for learning rate, momentum, decay, dampening, smoothed labels, with the best sizes."""
    found = _sized(target, '', '', lambda **changes: changes)
    smoothing = fit(target, lambda size: dict(smoothing=size), 0.0, 1e-3)
    if smoothing is not None:
        found.append(('label-smoothing', 'labels are smoothed by %.2g: each class gets %.2g of every label' % (
            smoothing, smoothing / nets.CLASSES), dict(smoothing=smoothing)))
    return found


def sized_of_one(target):
    """Return the list of sized() for faults of the target's replica alone, without smoothed labels."""
    return _sized(target, '-rank-%d' % target.replica, 'on replica %d ' % target.replica,
                  lambda **changes: dict(other=(target.replica, changes)))


def _sized(target, ending, where, changed):
    case, found = target.case, []
    projection = target.healthy.dot(target.goal) / target.healthy.dot(target.healthy)
    factor = fit(target, lambda size: changed(lr=np.exp(size)), 0.0 if .8 < projection < 1.25 else np.log(max(projection, 1e-3)), 1e-3)
    if factor is not None:
        factor = float(np.exp(factor))
        found.append(('learning-rate' + ending, '%sthe effective learning rate is %s: %.4g instead of %.4g' % (
            where, _compared(factor), factor * case.lr, case.lr), changed(lr=factor)))
    momentum = fit(target, lambda size: changed(momentum=size), case.momentum, 1e-3)
    if momentum is not None:
        found.append(('momentum' + ending, '%smomentum is %.4g instead of %.4g' % (where, momentum, case.momentum), changed(momentum=momentum)))
    decay = fit(target, lambda size: changed(decay=size), 0.0, 1e-5)
    if decay is not None:
        found.append(('weight-decay' + ending, '%sa weight decay of %.2g is active, but none was set' % (where, decay), changed(decay=decay)))
    dampening = fit(target, lambda size: changed(counts=_dampened(case, size)), 0.0, 1e-3)
    if dampening is not None:
        found.append(('dampening' + ending, '%sa dampening of %.2g is active: after the first step, gradients count %s' % (
            where, dampening, _counted(1 - dampening)), changed(counts=_dampened(case, dampening))))
    return found


def _dampened(case, size):
    """The factor of each step's gradient in an optimizer with dampening; as in PyTorch, the first gradient has the factor 1."""
    return [1.0] + [1 - size] * (case.steps - 1)


def _counted(factor):
    return '%.2g %% %s' % (100 * abs(factor - 1), 'more' if factor > 1 else 'less')


def _compared(factor):
    if 2 / 3. < factor < 1.5:
        return '%.2g %% %s' % (100 * abs(factor - 1), 'higher' if factor > 1 else 'lower')
    return '%.3g times as high' % factor


def fit(target, switches, start, nudge):
    """Return the size of a fault whose simulation comes nearest to the target; None if the search finds no size.

    The search is a secant method for least squares: each iteration takes the slope from the two simulations before it.
    """
    size, model = start + nudge, target.of(switches(start + nudge))
    slope = (model - target.of(switches(start))) / nudge
    for _ in range(UPDATES):
        move = float(slope.dot(target.goal - model) / max(slope.dot(slope), 1e-300))
        if not np.isfinite(move) or abs(size + move - start) > 10:
            return None
        if abs(move) < SETTLED * abs(size - start):
            return size
        after = target.of(switches(size + move))
        if not np.isfinite(after).all():
            return None
        size, slope, model = size + move, (after - model) / (move or 1e-300), after
    return size


def wrong_labels(target):
    """Return (labels that explain the weights better, numbers of the changed labels); None if no change of labels helps.

    A wrong label changes the last layer's gradient by a multiple of the features of its image. The features of an image are the
    inputs of this layer. So they show which image has the wrong label.
    """
    case = target.case
    count = case.steps * case.batch
    labels = np.array(case.labels[:count])
    best, nearest, unlucky = labels.copy(), np.linalg.norm(target.goal - target.healthy), 0
    for _ in range(ROUNDS):
        changes = _likely_labels(target, labels)
        if not changes:
            break
        for place, label in changes:
            labels[place] = label
        apart = np.linalg.norm(target.goal - target.of(dict(labels=labels)))
        if apart < nearest:
            best, nearest, unlucky = labels.copy(), apart, 0
        else:
            unlucky += 1
        if unlucky > PATIENCE:
            break
    changed = np.flatnonzero(best != case.labels[:count])
    return (best, changed) if len(changed) else None


def _likely_labels(target, labels):
    """Return the changes of labels that best explain the error of the last layer, as [(number of an image, its new label)].

    The clearest change comes first. Only the clearer half is returned, but at least one change if there is any.

    Each image with a wrong label adds a term to the error: the features of the image times the error of its label. Different
    images have similar features. So the features are multiplied by the inverse of their covariance, which stresses the
    directions in which the images differ.
    """
    case, last, every = target.case, target.case.net.layers[-1].name, np.arange(len(labels))
    features, weights = _last_features(case, labels)
    features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    left = np.concatenate([np.asarray(target.got[last + '_w'], 'float64') - weights[last + '_w'],
                           (np.asarray(target.got[last + '_b'], 'float64') - weights[last + '_b'])[:, None]], axis=1)
    covariance = features.T.dot(features)
    covariance += RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    told_apart = np.linalg.solve(covariance, features.T)                    # (features, images)
    to_come = np.cumsum(case.momentum ** np.arange(case.steps))[::-1]       # how often momentum applies each step's gradient
    share = np.repeat(case.lr * to_come / case.batch, case.batch)
    toward = left.dot(told_apart)                                           # (classes, images)
    asked = (toward - toward[labels, every]) / (2 * share * (features.T * told_apart).sum(axis=0))
    label = asked.argmax(axis=0)
    likely = [place for place in np.argsort(-asked[label, every]) if asked[label[place], place] > LIKELY]
    return [(int(place), int(label[place])) for place in likely[:max(1, len(likely) // 2)]]


def _last_features(case, labels):
    """Train without faults on these labels; return (the last layer's inputs for each image of each step, the final weights)."""
    p = dict((name, case.start[name].astype('float64')) for name in case.net.names)
    v = dict((name, np.zeros_like(a)) for name, a in p.items())
    features = []
    for step in range(case.steps):
        part = slice(step * case.batch, (step + 1) * case.batch)
        x = refnet.scaled(case.images[part])
        features.append(refnet.forward(case.net, p, x)[1][-1])
        refnet.update(p, v, refnet.loss_and_gradient(case.net, p, x, labels[part])[1], case.lr, case.momentum)
    return np.concatenate(features), p

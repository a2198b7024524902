"""From wrong weights to a named fault: train the reference network under every known hypothesis, name the nearest.

A hypothesis is a set of switches of `simulate`. It is only asked when the arithmetic check has failed.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import refnet

NAMED_BELOW = 0.05      # a fault simulated in float64 lies within 1e-4 of its float32 self; strangers beyond 1e-2
CLEARER_THAN = 0.5      # and the runner-up must be at least twice as far
EXPLAINS = 0.2          # and it must leave at most a fifth of the error unexplained
UNTOUCHED = 1e-6        # a step of the reference moves every parameter by more than 1e-4
NO_UPDATE = 'the parameters never changed: the optimizer step is missing or all gradients are zero'


class Case(object):
    """What was trained: network, start weights, data, steps, global batch, replicas, learning rate, momentum."""

    def __init__(self, net, start, images, labels, steps, batch, replicas, lr, momentum):
        self.net, self.start, self.images, self.labels = net, start, images, labels
        self.steps, self.batch, self.replicas = steps, batch, replicas
        self.lr, self.momentum = lr, momentum
        self._models = {}

    def model(self, key, switches):
        """Weights of every replica under a hypothesis, trained once."""
        if key not in self._models:
            with np.errstate(all='ignore'):
                self._models[key] = simulate(self, **switches)
        return self._models[key]


def _dense_order(net, weights, to_nhwc):
    """The first dense layer's columns re-ordered between C, H, W and H, W, C."""
    out = dict(weights)
    for layer in net.layers:
        if layer.folded:
            name, (c, h, w) = layer.name + '_w', layer.folded
            shape, axes = ((-1, c, h, w), (0, 2, 3, 1)) if to_nhwc else ((-1, h, w, c), (0, 3, 1, 2))
            out[name] = weights[name].reshape(shape).transpose(axes).reshape(weights[name].shape)
    return out


def _flip(weights):
    """Convolution kernels turned by half a turn."""
    return dict((name, a[:, :, ::-1, ::-1].copy() if a.ndim == 4 else a) for name, a in weights.items())


def _combine(gradients, name, how, replica):
    """What replica `replica` gets for one parameter out of all replicas' gradients."""
    n = len(gradients)
    if how == 'own':
        return gradients[replica][name]
    if isinstance(how, tuple):                               # ('without', rank): that rank contributes nothing
        return sum(g[name] for i, g in enumerate(gradients) if i != how[1]) / n
    total = sum(g[name] for g in gradients)
    return {'sum': total, 'mean': total / n, 'twice': total / n / n}[how]


def simulate(case, exchange='mean', shard='own', unexchanged=(), skip=0, nesterov=False, momentum=None, lr=1.0,
             loss_sum=False, divisor=255.0, decay=0.0, flip=False, nhwc=False, late=False):
    """Weights of every replica after the case's steps, in float64, with the given faults."""
    momentum = case.momentum if momentum is None else momentum
    start = dict((name, case.start[name].astype('float64')) for name in case.net.names)
    start = _flip(start) if flip else start
    start = _dense_order(case.net, start, True) if nhwc else start
    alike = exchange not in ('own',) and not unexchanged     # replicas stay equal: simulate one
    keep = 1 if alike else case.replicas
    weights = [dict((k, a.copy()) for k, a in start.items()) for _ in range(keep)]
    speeds = [dict((k, np.zeros_like(a)) for k, a in start.items()) for _ in range(keep)]
    per = case.batch // case.replicas
    waiting = None
    for step in range(case.steps):
        if step < skip:
            continue
        gradients = []
        for r in range(case.replicas):
            low = step * case.batch + (0 if shard == 'same' else r * per)
            x = case.images[low:low + per].astype('float64') / divisor
            _, g = refnet.loss_and_gradient(case.net, weights[r % keep], x, case.labels[low:low + per])
            gradients.append(g)
        used, waiting = (waiting, gradients) if late else (gradients, None)
        if used is None:
            continue
        for r in range(keep):
            for name in case.net.names:
                g = _combine(used, name, 'own' if name in unexchanged else exchange, r)
                g = g * (per if loss_sum else 1.0) + decay * weights[r][name]
                speeds[r][name] = momentum * speeds[r][name] + g
                move = g + momentum * speeds[r][name] if nesterov else speeds[r][name]
                weights[r][name] = weights[r][name] - lr * case.lr * move
    weights = [_dense_order(case.net, w, False) if nhwc else w for w in weights]
    weights = [_flip(w) if flip else w for w in weights]
    return [weights[r % keep] for r in range(case.replicas)]


def hypotheses(replicas, suspects=()):
    """[(id, sentence, switches of simulate)], those that mean something for this number of replicas."""
    single = [
        ('first-update-skipped', 'the first update was skipped', dict(skip=1)),
        ('late-gradients', 'each update uses the gradients of the step before: asynchronous, stale by one step', dict(late=True)),
        ('nesterov', 'Nesterov momentum instead of classical momentum', dict(nesterov=True)),
        ('no-momentum', 'momentum is not applied', dict(momentum=0.0)),
        ('loss-summed', 'the loss is summed over the batch, not averaged', dict(loss_sum=True)),
        ('input-not-scaled', 'the input is not scaled to 0..1', dict(divisor=1.0)),
        ('input-by-256', 'the input is divided by 256, not by 255', dict(divisor=256.0)),
        ('kernels-flipped', 'convolution kernels are flipped: true convolution instead of cross-correlation', dict(flip=True)),
        ('dense-order', 'the dense layer reads its input in H, W, C order, its weights were loaded for C, H, W', dict(nhwc=True)),
        ('weight-decay', 'a weight decay of 5e-4 is active', dict(decay=5e-4)),
    ]
    if replicas == 1:
        return single
    several = [
        ('gradients-summed', 'gradients are summed, not averaged: the learning rate is in effect %d times as high' % replicas,
         dict(exchange='sum')),
        ('averaged-twice', 'gradients are averaged twice: the learning rate is in effect divided by %d' % replicas,
         dict(exchange='twice')),
        ('no-exchange', 'gradients are not exchanged: each replica trains alone on its own shard', dict(exchange='own')),
        ('same-shard', 'only the first shard of every batch counts: all replicas read it, or only the first one\'s gradients are used',
         dict(shard='same')),
    ]
    several += [('silent-rank-%d' % r, 'replica %d contributes no gradient to the mean' % r, dict(exchange=('without', r)))
                for r in range(min(replicas, 8))]
    several += [('not-exchanged-' + name, 'parameter %s is left out of the exchange' % name, dict(unexchanged=(name,)))
                for name in suspects]
    return several + single


def _apart(got, model, start):
    """The largest distance over parameters, relative to how far either moved from the start."""
    worst = 0.0
    for name in start:
        a, b, origin = (np.asarray(w[name], 'float64') for w in (got, model, start))
        moved = max(np.linalg.norm(a - origin), np.linalg.norm(b - origin), 1e-12)
        worst = max(worst, float(np.linalg.norm(a - b) / moved))
    return worst if np.isfinite(worst) else 9e9


def name_fault(case, copies, suspects=()):
    """The nearest hypothesis for `copies`, [(replica, its weights)]: what fits all of them.

    {'id', 'sentence', 'distance', 'second', 'second_distance'}; id and sentence are empty where none is near.
    """
    if not all(np.isfinite(got[name]).all() for _, got in copies for name in case.net.names):
        return _certain('not-finite', 'weights are not finite numbers')
    if all(np.abs(got[name] - case.start[name]).max() < UNTOUCHED for _, got in copies for name in case.net.names):
        return _certain('no-update', NO_UPDATE)

    def distance(key, switches):
        with np.errstate(all='ignore'):
            model = case.model(key, switches)
            return max(_apart(got, model[replica], case.start) for replica, got in copies)

    ranking = [(distance(key, switches), number, key, sentence)
               for number, (key, sentence, switches) in enumerate(hypotheses(case.replicas, suspects))]
    (best, _, key, sentence), (second, _, other, _) = sorted(ranking)[:2]
    clear = best <= NAMED_BELOW and best <= CLEARER_THAN * second and best <= EXPLAINS * distance('healthy', {})
    return {'id': key if clear else '', 'sentence': sentence if clear else '', 'distance': best,
            'second': other, 'second_distance': second}


def _certain(key, sentence):
    return {'id': key, 'sentence': sentence, 'distance': 0.0, 'second': '', 'second_distance': 0.0}

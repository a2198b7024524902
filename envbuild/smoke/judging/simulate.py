"""Computes in float64 the weights that a training run must end with, healthy or with known faults."""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import refnet, rounding

LARGE_BYTES = 4 << 20       # one simulation of a network with more bytes than this takes more than a second


class Case(object):
    """One training to simulate: network, start weights, data, steps, global batch, replicas, learning rate, momentum."""

    def __init__(self, net, start, images, labels, steps, batch, replicas, lr, momentum):
        self.net, self.start, self.images, self.labels = net, start, images, labels
        self.steps, self.batch, self.replicas = steps, batch, replicas
        self.lr, self.momentum = lr, momentum

    @property
    def is_large(self):
        """Whether a simulation takes so long that only few hypotheses can be tried."""
        return self.net.bytes > LARGE_BYTES


class Faults(object):
    """The faults of a simulation. With the default values, the simulated training is healthy.

    exchange    how the gradients of all replicas are combined: 'mean'; 'sum'; 'twice' (the mean, divided by the number of
                replicas again); 'own' (each replica uses only its own); or ('without', replica) (this replica's gradient is
                left out)
    start       'float16' or 'bfloat16': the start weights are rounded to this type
    kept        'float16' or 'bfloat16': the weights are rounded to this type after each step
    stale       (replica, first): this replica contributes the gradient of the step before. In the first step it contributes
                zeros if `first` is 'zero', and its current gradient if `first` is 'fresh'
    cast        (type, way): gradients are exchanged in this type, see `_half_mean`
    shard       'own': each replica reads its own shard of the batch; 'same': every replica reads the first shard
    unexchanged names of parameters whose gradients are not exchanged
    silent      (parameter, replica): this replica contributes no gradient of this parameter to the mean
    frozen      (parameter, replica or None for all): the parameter is never updated
    without     (parameter, replica or None for all): the network does not add this bias
    other       (replica or None for all, {lr, momentum, decay, counts, never}): settings for the updates of this replica;
                parameters whose names end with `never` are not updated
    counts      factors for the gradient, one for each step; 1 is healthy
    shares      factors for the gradient in the mean, one for each replica; 1 is healthy
    labels      labels that replace those of the case
    smoothing   the share of each label that is spread evenly over all classes
    lr          a factor for the learning rate
    momentum    the momentum, in place of the case's
    decay       the weight decay
    nesterov    Nesterov momentum is used
    skip        the number of updates at the start that are left out
    late        each update uses the gradients of the step before
    loss_sum    the loss is summed over the batch of a replica, not averaged
    divisor     the number by which the images are divided; 255 is healthy
    flip        convolution kernels are flipped
    nhwc        the dense layer after the images are flattened reads them in the order H, W, C
    numbers     the precision of the arithmetic, see `rounding`
    """

    def __init__(self, exchange='mean', cast=None, shard='own', unexchanged=(), silent=None, frozen=None, without=None, labels=None,
                 lr=1.0, momentum=None, decay=0.0, nesterov=False, skip=0, late=False, loss_sum=False, divisor=255.0, flip=False,
                 nhwc=False, numbers=rounding.EXACT, start=None, kept=None, stale=None, other=None, counts=None, shares=None,
                 smoothing=0.0):
        self.exchange, self.cast, self.shard, self.unexchanged = exchange, cast, shard, unexchanged
        self.silent, self.frozen, self.without, self.labels = silent, frozen, without, labels
        self.lr, self.momentum, self.decay, self.nesterov = lr, momentum, decay, nesterov
        self.skip, self.late, self.loss_sum, self.divisor = skip, late, loss_sum, divisor
        self.flip, self.nhwc, self.numbers = flip, nhwc, numbers
        self.start, self.kept, self.stale, self.other = start, kept, stale, other
        self.counts, self.shares, self.smoothing = counts, shares, smoothing

    def keeps_replicas_equal(self):
        """Whether all replicas have equal weights in spite of the faults. Then it is enough to simulate the updates of one."""
        alike = all(fault is None or fault[place] is None for fault, place in ((self.frozen, 1), (self.other, 0)))
        return self.exchange != 'own' and not self.unexchanged and alike

    def others(self, replica):
        """The settings in which the updates of this replica differ from those of other replicas."""
        return self.other[1] if self.other is not None and self.other[0] in (None, replica) else {}


def simulate(case, **switches):
    """Return the weights of every replica after the steps of the case, with the faults in `switches`."""
    faults = Faults(**switches)
    start = _turned(case, faults, dict((name, case.start[name].astype('float64')) for name in case.net.names))
    if faults.start:
        start = dict((name, HALVES[faults.start](a)) for name, a in start.items())
    keep = 1 if faults.keeps_replicas_equal() else case.replicas
    weights = [dict((k, a.copy()) for k, a in start.items()) for _ in range(keep)]
    speeds = [dict((k, np.zeros_like(a)) for k, a in start.items()) for _ in range(keep)]
    waiting = before = None
    with np.errstate(all='ignore'):
        for step in range(faults.skip, case.steps):
            gradients = _gradients(case, faults, weights, step)
            if faults.stale:
                gradients, before = _stale(gradients, before, *faults.stale)
            used, waiting = (waiting, gradients) if faults.late else (gradients, None)
            for replica in range(keep if used else 0):
                _update(case, faults, used, step, replica, weights[replica], speeds[replica])
    weights = [_turned(case, faults, each, back=True) for each in weights]
    return [weights[replica % keep] for replica in range(case.replicas)]


def _gradients(case, faults, weights, step):
    """Return the gradient of every replica for its shard of the step's batch."""
    per, out = case.batch // case.replicas, []
    labels = case.labels if faults.labels is None else faults.labels
    for replica in range(case.replicas):
        low = step * case.batch + (0 if faults.shard == 'same' else replica * per)
        x = case.images[low:low + per].astype('float64') / faults.divisor
        p = weights[replica % len(weights)]
        lost = faults.without is not None and faults.without[1] in (None, replica) and faults.without[0]
        if lost:
            p = dict(p, **{lost: np.zeros_like(p[lost])})
        _, g = refnet.loss_and_gradient(case.net, p, x, labels[low:low + per], faults.numbers, faults.smoothing)
        if lost:
            g[lost] = np.zeros_like(g[lost])
        out.append(g)
    return out


def _update(case, faults, gradients, step, replica, weights, speeds):
    own, per = faults.others(replica), case.batch // case.replicas
    counts = own.get('counts', faults.counts)
    count = (per if faults.loss_sum else 1.0) * (counts[step] if counts else 1.0)
    momentum = own.get('momentum', case.momentum if faults.momentum is None else faults.momentum)
    for name in case.net.names:
        if faults.frozen is not None and faults.frozen[0] == name and faults.frozen[1] in (None, replica):
            continue
        if name.endswith(own.get('never', '.')):
            continue
        g = _combined([each[name] for each in gradients], faults, name, replica)
        g = g * count + own.get('decay', faults.decay) * weights[name]
        speeds[name] = momentum * speeds[name] + g
        move = g + momentum * speeds[name] if faults.nesterov else speeds[name]
        weights[name] = weights[name] - own.get('lr', faults.lr) * case.lr * move
        if faults.kept:
            weights[name] = HALVES[faults.kept](weights[name])


def _combined(gradients, faults, name, replica):
    """Combine the gradients of all replicas for one parameter into the gradient that this replica uses."""
    n, how = len(gradients), faults.exchange
    if faults.shares:
        gradients = [share * g for share, g in zip(faults.shares, gradients)]
    if how == 'own' or name in faults.unexchanged:
        return gradients[replica]
    silent = how[1] if isinstance(how, tuple) else faults.silent[1] if faults.silent and faults.silent[0] == name else None
    if silent is not None:
        return sum(g for place, g in enumerate(gradients) if place != silent) / n
    if faults.cast:
        return _half_mean(gradients, *faults.cast)
    total = sum(gradients)
    return {'sum': total, 'mean': total / n, 'twice': total / n / n}[how]


def _half_mean(gradients, kind, way):
    """The mean of gradients in half precision.

    With the ways 'divided' and 'summed', every partial sum is rounded; the numbers are divided before ('divided') or after the
    sum ('summed'). With the other ways, the sum is exact; what is rounded is each number ('each'), the mean ('after'), or both
    ('both').
    """
    n, half = len(gradients), HALVES[kind]
    if way in ('each', 'after', 'both'):
        mean = sum(g if way == 'after' else half(g) for g in gradients) / n
        return mean if way == 'each' else half(mean)
    parts = [half(g / n) if way == 'divided' else half(g) for g in gradients]
    total = parts[0]
    for part in parts[1:]:
        total = half(total + part)
    return total if way == 'divided' else total / n


def _float16(array):
    return array.astype('float16').astype('float64')


def _bfloat16(array):
    return rounding.cut(array, rounding.MANTISSA['bf16'])


HALVES = {'float16': _float16, 'bfloat16': _bfloat16}


def _stale(gradients, before, replica, first):
    """Replace the gradients of one replica by those that it had in the step before (`before`).

    Return (the gradients of all replicas, the current gradients of this replica).
    """
    now = gradients[replica]
    if before is None:
        before = now if first == 'fresh' else dict((name, np.zeros_like(a)) for name, a in now.items())
    return gradients[:replica] + [before] + gradients[replica + 1:], now


def _turned(case, faults, weights, back=False):
    """Convert weights to the layout of a network with flipped kernels or a reordered dense layer; with `back`, from it."""
    if faults.nhwc:
        weights = _dense_order(case.net, weights, not back)
    if faults.flip:
        weights = dict((name, a[:, :, ::-1, ::-1].copy() if a.ndim == 4 else a) for name, a in weights.items())
    return weights


def _dense_order(net, weights, to_nhwc):
    """Reorder the columns of dense layers that read flattened images between C, H, W and H, W, C."""
    out = dict(weights)
    for layer in net.layers:
        if layer.folded:
            name, (c, h, w) = layer.name + '_w', layer.folded
            shape, axes = ((-1, c, h, w), (0, 2, 3, 1)) if to_nhwc else ((-1, h, w, c), (0, 3, 1, 2))
            out[name] = weights[name].reshape(shape).transpose(axes).reshape(weights[name].shape)
    return out

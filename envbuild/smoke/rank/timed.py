"""Measures the gradients that the timed models apply, after all laps. judging.timed judges them.

Equal replicas do not prove an exchange: replicas that get the same images are equal without one. So the timed model takes more
steps from known weights. The gradient that it applies is compared with the mean of the gradients that each device computes alone,
for its own part of the images of the timed step. Batch normalisation does not disturb the comparison, because each device
normalises its own part of the batch in both cases.

One step changes the weights by -lr (m v + g), where v is the unknown momentum after the laps. For two successive steps,
change2 - m change1 = -lr g, where g is the gradient of the second step. So g is known although v is not.

The steps start from two sets of weights in turn. The gradients at the two sets differ, so a step that uses the gradient of an
earlier step is noticed. After training, the second set is that of the trained model. So a fault that needs large activations or
small gradients is noticed as well.

A fault may occur only every few steps. So the model takes IN_A_ROW + 1 steps, and each pair of successive steps gives a
gradient. If the steps of a network take long, the model takes fewer steps, but at least two.

This comparison does not show faults that all models share. So the gradient of a single device is also compared with NumPy's. For
this, images are left out for which a rounding error may change the gradient by much (networks.margins).
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..clock import now
from ..networks import margins, refnet
from . import rounded
from .match import fingerprint

LR = 0.05               # a learning rate so large that rounding of the weights does not hide the step
SAMPLE = 4096           # at most this many numbers of each parameter are compared; digests cover all bits
MOST_IMAGES = 32        # most images for networks with batch normalisation: with more, NumPy needs 300 MB and 2 s for VGG19
NOT_FINITE = 1e9        # stands for NaN and infinity, which JSON cannot hold
IN_A_ROW = 20           # a fault that occurs every 20th step or more often affects at least one of these gradients
LONGEST_S = 12.0        # seconds that these steps may take, approximately, for one model and learning rate
# Each gradient comes from the second step of a pair. So the first gradient is the one at `starts[1]`, the next the one at
# `starts[0]`, and so on.
TURNS = [1, 0] * IN_A_ROW
# A parameter is left out if its gradients differ between devices by less than this share of the usual difference.
TINY = 0.01
# A loss may differ from the right one by this much without being wrong: so much is lost by rounding.
ROUNDED_LOSS = 1e-6
# A parameter with so many compared numbers is large: errors of a reduced precision, which have no preferred direction, hardly
# change how much of its gradient a step contains.
LARGE = 256
LEAST_SHARE = 2e-3          # of the whole gradient: a parameter with a smaller part is not compared alone


def digests(adapter, handle):
    """Return digests of the weights of every replica in this process."""
    return [fingerprint(adapter.weights(handle, copy)) for copy in range(adapter.copies(handle))]


def can_assign(adapter):
    """Whether the adapter can set weights, which all measurements below need."""
    return hasattr(adapter, 'assign')


def clear_images(session, batch, trained=None):
    """Replace the images for which rounding may change the gradient by much, at the weights from which steps start.

    They are replaced by other images of the batch. Return (images, labels, whether no such image is left). Networks with batch
    normalisation are not examined: their errors are larger for other reasons.
    """
    images, labels = (np.asarray(array) for array in batch)
    if session.net.normalised:
        return images, labels, False
    near = np.zeros(len(images), bool)
    for weights in _starts(session, trained):
        start = dict((name, array.astype('float64')) for name, array in weights.items())
        near |= margins.about_to_switch(session.net, start, refnet.scaled(images))
        session.heart.beat()
    if near.all():
        return images, labels, False
    chosen = np.arange(len(images))
    chosen[near] = np.resize(np.flatnonzero(~near), near.sum())
    return images[chosen], labels[chosen], True


def exchange(session, alone, batch, tries, trained=None, clear=False):
    """Measure how far the steps of models differ from the mean gradient of all devices.

    Return some entries for each replica, model and set of weights: see _telling. `trained` has the trained weights. `clear` says
    that rounding changes the gradients of this batch only a little: see clear_images.

    `alone` is a model on one device that exchanges nothing, `batch` the global batch (images, labels), and `tries` the models
    to examine: [(name, handle, a function that gives its batch on the devices, learning rate)]. All processes must call this
    function together.
    """
    look, found = _Look(session, trained), []
    singles, lone = look.singles(alone, batch)
    for words, handle, feed, rate in tries:
        moved, losses = look.gradients(handle, feed, rate, IN_A_ROW)
        for copy, row in enumerate(moved):
            every = [dict(look.compare(got, singles[turn], rate, copy, len(moved), turn), of=words, looks=len(row),
                          clear=clear, trained=look.is_trained(turn), loss=look.of_loss(loss, lone[turn]))
                     for turn, got, loss in zip(TURNS, row, losses)]
            found += _telling(every)
    return [dict(entry, rank=rank) for rank, entries in enumerate(session.ctx.group.gather(found)) for entry in entries]


def single(session, alone, batch, rates, trained=None):
    """Measure how far the steps of a model on one device differ from NumPy's gradient for the same images.

    Return some entries for each process, learning rate and set of weights: see _telling. `clear` says of each whether rounding
    changes the gradient only a little. `trained` has the trained weights. All processes must call this function together.
    Networks with batch normalisation are large, so NumPy computes them in single precision. That is precise enough for the
    limit.
    """
    ctx, net = session.ctx, session.net
    look, place = _Look(session, trained), ctx.rank * (ctx.replicas // ctx.world)
    images, labels, clear = clear_images(session, [ctx.shard(array, place, ctx.replicas) for array in batch], trained)
    dtype = 'float64'
    if net.normalised:
        images, labels, dtype = images[:MOST_IMAGES], labels[:MOST_IMAGES], 'float32'
    truth, right, found = [], [], []
    for weights in look.starts:
        start = dict((name, array.astype(dtype)) for name, array in weights.items())
        loss, gradient = refnet.loss_and_gradient(net, start, refnet.scaled(images, dtype), labels)
        truth, right = truth + [look.flat(gradient)], right + [float(loss)]
        session.heart.beat()
    for rate in rates:
        (row,), losses = look.gradients(alone, lambda: session.adapter.put(alone, images, labels), rate, IN_A_ROW)
        found += _telling([dict(look.beside(got, truth[turn], rate, turn), looks=len(row), loss=_times(loss, right[turn]),
                                clear=clear, trained=look.is_trained(turn)) for turn, got, loss in zip(TURNS, row, losses)])
    return [dict(entry, rank=rank) for rank, entries in enumerate(ctx.group.gather(found)) for entry in entries]


def _starts(session, trained):
    """Return the two sets of weights from which steps start. `trained` takes the place of the second set, if it is finite."""
    first, second = (session.net.initial(session.plan['seed'] + place) for place in (0, 1))
    if _is_usable(trained):
        second = dict((name, np.asarray(trained[name], 'float32')) for name in first)
    return [first, second]


def _is_usable(trained):
    return trained is not None and all(np.isfinite(array).all() for array in trained.values())


class _Look(object):
    """Measures and compares the gradients that models apply. Only some numbers of each parameter are used: see SAMPLE."""

    def __init__(self, session, trained=None):
        self._session, self._adapter, self._ctx = session, session.adapter, session.ctx
        self._momentum = session.plan['momentum']
        self.starts, self._is_trained = _starts(session, trained), _is_usable(trained)
        self._names, at, self._parts = sorted(self.starts[0]), 0, {}
        for name in self._names:
            size = len(self._sampled(self.starts[0][name]))
            self._parts[name], at = slice(at, at + size), at + size
        self._at_starts = [self.flat(start) for start in self.starts]

    def is_trained(self, turn):
        """Whether the weights starts[turn] are those of the trained model."""
        return bool(turn == 1 and self._is_trained)

    def _sampled(self, array):
        flat = np.asarray(array, 'float32').reshape(-1)
        return flat[::-(-flat.size // SAMPLE)]

    def flat(self, weights):
        """Return the sampled numbers of all parameters as one array."""
        return np.concatenate([self._sampled(weights[name]) for name in self._names]).astype('float64')

    def gradients(self, handle, feed, rate, wanted=2):
        """Return for each replica of a model a list of at most `wanted` gradients that it applied in steps from the start weights.

        Also return the losses that the framework reports for these steps. `feed` gives the batch of a step. If more than two
        gradients are wanted, rank 0 decides for all ranks how many steps there is time for.
        """
        adapter, moved, losses, start = self._adapter, [], [], now()
        copies, steps = range(adapter.copies(handle)), 3 if wanted == 2 else 2
        while len(moved) < steps:
            turn = len(moved) % 2
            for copy in copies:
                adapter.assign(handle, copy, self.starts[turn])
            token = adapter.step(handle, feed(), rate)
            adapter.drain()
            losses.append(float(adapter.loss(token)))
            moved.append([self.flat(adapter.weights(handle, copy)) - self._at_starts[turn] for copy in copies])
            self._session.heart.beat()
            if len(moved) == 2 and wanted > 2:
                fitting = int(2 * LONGEST_S / max(now() - start, 1e-9))
                steps = self._ctx.group.broadcast(max(2, min(wanted + 1, fitting)))
        pairs = list(zip(moved, moved[1:]))
        return [[(self._momentum * first[copy] - second[copy]) / rate for first, second in pairs] for copy in copies], losses[1:]

    def singles(self, alone, batch):
        """Return [the gradients at starts[0], the gradients at starts[1]], and the losses in the same order.

        Each entry has one row for each device of all processes: that of this device on its own part of the batch.
        """
        ctx, rows, lone = self._ctx, ([], []), ([], [])
        local = ctx.replicas // ctx.world
        for place in range(ctx.rank * local, (ctx.rank + 1) * local):
            images, labels = (ctx.shard(array, place, ctx.replicas) for array in batch)
            batch_alone = self._adapter.put(alone, images, labels)
            (gradients,), losses = self.gradients(alone, lambda: batch_alone, LR)
            for turn, got, loss in zip(TURNS, gradients, losses):
                rows[turn].append(got)
                lone[turn].append(loss)
        return ([np.concatenate(ctx.group.gather_arrays(np.stack(each))) for each in rows],
                [np.concatenate(ctx.group.gather_arrays(np.array(each))) for each in lone])

    def of_loss(self, reported, singles):
        """Return how many times as large a reported loss is as the mean loss of the devices, each on its own part of the batch.

        A process may report the mean over its own devices or over all devices; the nearer one counts.
        """
        local = len(singles) // self._ctx.world
        own = singles[self._ctx.rank * local:(self._ctx.rank + 1) * local]
        return min((_times(reported, float(np.mean(each))) for each in (own, singles)), key=lambda times: abs(times - 1))

    def compare(self, got, singles, rate, copy, copies, turn):
        """Compare the gradient of a replica with the mean gradient of all devices.

        Distances are divided by the usual distance of a single device's gradient from this mean. The step started from the
        weights starts[turn].
        """
        if not (np.isfinite(singles).all() and np.isfinite(got).all()):
            return {'lr': rate, 'apart': NOT_FINITE, 'rounding': 0.0, 'others': {}, 'parameter': '', 'parameter_apart': NOT_FINITE,
                    'rounded': {}}
        mean, n = singles.mean(axis=0), len(singles)
        spread = np.sqrt(((singles - mean) ** 2).mean(axis=0))
        unit = max(float(np.linalg.norm(spread)), 1e-300)
        rounding = self._rounding(rate, turn)
        apart = dict((name, _finite(np.linalg.norm(got - other) / unit)) for name, other in self._others(singles, mean, n, copy, copies))
        name, worst = self._worst(got - mean, spread, rounding)
        return {'lr': rate, 'apart': apart.pop('mean'), 'rounding': float(np.linalg.norm(rounding) / unit), 'others': apart,
                'parameter': name, 'parameter_apart': worst, 'smooth': _smooth(got - mean, mean, self._at_starts[turn]),
                'rounded': rounded.shares(got, singles, rounding + self._rounding(LR, turn))}

    def beside(self, got, truth, rate, turn):
        """Compare a gradient with the true one.

        `apart` is the distance between the two, as a share of the size of the true one. `holds` is the share of the true one
        that the gradient contains. `parameters` says the same of the worst parameters: see _of_parameters.
        """
        size = max(float(np.linalg.norm(truth)), 1e-300)
        return {'lr': rate, 'apart': _finite(np.linalg.norm(got - truth) / size), 'holds': _finite(got.dot(truth) / size / size),
                'rounding': float(np.linalg.norm(self._rounding(rate, turn)) / size),
                'smooth': _smooth(got - truth, truth, self._at_starts[turn]),
                'parameters': self._of_parameters(got, truth, self._rounding(rate, turn), self._at_starts[turn]),
                'rounded': rounded.shares(got, truth[None], self._rounding(rate, turn))}

    def _of_parameters(self, got, truth, rounding, weights):
        """Compare the gradient of each parameter with the true one; return the worst parameter under each key.

        `apart`: the one that is furthest from the true one. `holds`: of those with at least LARGE compared numbers, the one of
        which the gradient contains a share that is furthest from 1. `smooth`: of those, the one with the largest error that a
        factor and a weight decay explain. A parameter counts only if its part of the true gradient is large enough to be told
        from errors of arithmetic and of rounding. Without such a parameter, a key is left out.
        """
        size, found = float(np.linalg.norm(truth)), []
        for name, part in sorted(self._parts.items()):
            own = float(np.linalg.norm(truth[part]))
            if own > LEAST_SHARE * size and own > 4 * np.linalg.norm(rounding[part]):
                found.append({'parameter': name, 'apart': _finite(np.linalg.norm(got[part] - truth[part]) / own),
                              'holds': _finite(got[part].dot(truth[part]) / own / own), 'numbers': part.stop - part.start,
                              'rounding': float(np.linalg.norm(rounding[part]) / own),
                              'smooth': _smooth(got[part] - truth[part], truth[part], weights[part])})
        large = [each for each in found if each['numbers'] >= LARGE]
        worst = {'apart': max(found, key=lambda each: each['apart'])} if found else {}
        return dict(worst, holds=max(large, key=lambda each: abs(each['holds'] - 1)), smooth=max(large, key=_explained)) if large else worst

    def _rounding(self, rate, turn):
        """How much rounding of the weights can change each number of the gradient at the weights starts[turn].

        A gradient is computed from two successive steps. The first of them started from the other set of weights.
        """
        here, before = np.abs(self._at_starts[turn]), np.abs(self._at_starts[1 - turn])
        return np.finfo('float32').eps * (here + self._momentum * before) / rate

    def _others(self, singles, mean, n, copy, copies):
        """Return [(description of a fault, the gradient that it would cause)], and the healthy one under the name 'mean'."""
        found = [('mean', mean), ('gradients are summed', n * mean), ('gradients are averaged twice', mean / n),
                 ('nothing moves', 0 * mean)]
        local = n // self._ctx.world
        if copies == local:
            found.append(('nothing is exchanged', singles[self._ctx.rank * local + copy]))
        return found + [('every device received the images of device %d' % place, singles[place]) for place in range(n)]

    def _worst(self, difference, spread, rounding):
        """Return (the parameter that is furthest from the mean, its distance), not counting what rounding explains."""
        sizes = dict((name, np.sqrt((spread[part] ** 2).mean())) for name, part in self._parts.items())
        usual, worst = float(np.median(list(sizes.values()))), (0.0, '')
        for name, part in self._parts.items():
            if sizes[name] > TINY * usual:
                beyond = np.linalg.norm(difference[part]) - 2 * np.linalg.norm(rounding[part])
                worst = max(worst, (_finite(beyond / np.linalg.norm(spread[part])), name))
        return worst[1], max(0.0, worst[0])


def _telling(every):
    """Return the entries that show most for each set of weights from which steps start. An entry is returned only once."""
    return [entry for trained in (False, True) for entry in _most_telling([each for each in every if each['trained'] == trained])]


def _most_telling(every):
    """Return the entries that show most; none for an empty list.

    They are the one furthest from the right gradient, the ones furthest in a single parameter, the one that looks most like
    rounding, the one in which a parameter looks most as if it had another learning rate or decay, and the one whose reported
    loss is furthest from the right one.
    """
    if not every:
        return []
    picked = [max(every, key=lambda entry: entry['apart']), max(every, key=lambda entry: entry.get('parameter_apart', 0.0))]
    picked += [max(every, key=lambda entry: _away(entry, 'apart', 0)), max(every, key=lambda entry: _away(entry, 'holds', 1))]
    picked += [max(every, key=lambda entry: max(list(entry['rounded'].values()) or [0.0])),
               max(every, key=lambda entry: _explained(entry.get('parameters', {}).get('smooth'))),
               max(every, key=lambda entry: abs(entry.get('loss', 1) - 1))]
    return [entry for place, entry in enumerate(picked) if not any(entry is other for other in picked[:place])]


def _away(entry, key, right):
    """How far the value of the worst parameter is from the right one."""
    worst = entry.get('parameters', {}).get(key)
    return abs(worst[key] - right) if worst else 0.0


def _explained(entry):
    """Return the part of a parameter's error that a factor and a weight decay explain; 0 without a parameter."""
    return entry['apart'] * (1 - entry['smooth']['left']) if entry and entry['smooth'] else 0.0


def _smooth(difference, gradient, weights):
    """Return the scale and the decay that explain a difference best, as if the step used (1 + scale) gradient + decay weights.

    `left` is the share of the difference that scale and decay do not explain: about 1 for errors of arithmetic. Return None if
    a number is not finite.
    """
    if not np.isfinite(difference).all():
        return None
    tries = np.stack([gradient, weights], axis=1)
    scale, decay = np.linalg.lstsq(tries, difference, rcond=-1)[0]
    left = np.linalg.norm(difference - scale * gradient - decay * weights) / max(np.linalg.norm(difference), 1e-300)
    return {'scale': _finite(scale), 'decay': _finite(decay), 'left': _finite(left)}


def _times(reported, right):
    """Return how many times as large a reported loss is as the right one, less what rounding explains."""
    if not (np.isfinite(reported) and np.isfinite(right)):
        return NOT_FINITE
    beyond = max(abs(reported - right) - ROUNDED_LOSS, 0.0)
    return _finite(1 + np.copysign(beyond, reported - right) / max(abs(right), 1e-300))


def _finite(value):
    """Return a number that JSON can hold; NaN and infinity become NOT_FINITE."""
    return float(value) if np.isfinite(value) else NOT_FINITE

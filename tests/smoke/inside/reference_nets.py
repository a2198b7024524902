"""Any nets.Net in plain NumPy and float64, forward, backward and SGD. The networks of adapters are compared with it.

    python reference_nets.py ADAPTER NET [--replicas 2] [--batch 8] [--device cpu|cuda] [--option NAME=VALUE]

ADAPTER is the name of a recipe or the file of an adapter. Its framework must be importable here; the adapter runs as one
process. Adapters that it imports are found beside it. Every line of the output is one comparison; the exit code is 1 if one is
above its limit. The code is written to be checked by eye and by finite differences (check_nets.py), not for speed.
"""
from __future__ import absolute_import, division, print_function

import argparse
import os
import shutil
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPES = os.path.join(HERE, os.pardir, os.pardir, os.pardir, 'images', 'recipes')


class Reference(object):
    """One network in training. `shards` is the number of replicas; each has the statistics of its own part of the batch."""

    def __init__(self, net, weights, shards=1, constants=(1e-5, 0.9)):
        self.net, self.shards = net, shards
        self.epsilon, self.kept = constants
        self.steps = 0
        self.p = dict((name, weights[name].astype('float64')) for name in net.names)
        self.v = dict((name, np.zeros_like(array)) for name, array in self.p.items())
        # Per replica: mean, variance divided by n, and variance divided by n - 1, as some frameworks compute it.
        self.running = dict((layer.name, np.repeat([[[0.0], [1.0], [1.0]]], shards, axis=0).repeat(layer.shape[0], axis=2))
                            for layer in net.layers if layer.op == 'norm')

    def logits(self, images, unbiased=False, replica=0, debiased=False):
        """Inference. With `replica` None it uses the mean of the running statistics of all replicas.

        `debiased` removes the effect of the initial values from the running statistics.
        """
        running = {}
        for name, each in self.running.items():
            mine = each.mean(axis=0) if replica is None else each[replica]
            if debiased:
                began = self.kept ** self.steps
                mine = (mine - began * np.array([[0.0], [1.0], [1.0]])) / (1 - began)
            running[name] = mine[0], mine[2 if unbiased else 1]
        return self._forward(_scaled(images), running)[0]

    def loss_and_gradient(self, images, labels, replica=0):
        """In training mode, return the mean cross-entropy and its gradient for every parameter, and update the statistics."""
        logits, saved = self._forward(_scaled(images), None, replica)
        shifted = logits - logits.max(axis=1)[:, None]
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]
        dz = np.exp(log_p)
        dz[np.arange(len(labels)), labels] -= 1
        return -log_p[np.arange(len(labels)), labels].mean(), self._backward(dz / len(labels), saved)

    def step(self, images, labels, lr, momentum):
        """Make one update with the mean of the replicas' gradients; return the mean loss."""
        size, losses, total = len(images) // self.shards, [], None
        for replica in range(self.shards):
            part = slice(replica * size, (replica + 1) * size)
            loss, gradient = self.loss_and_gradient(images[part], labels[part], replica)
            losses.append(loss)
            total = gradient if total is None else dict((name, total[name] + gradient[name]) for name in total)
        self.steps += 1
        for name in self.p:
            self.v[name] = momentum * self.v[name] + total[name] / self.shards
            self.p[name] = self.p[name] - lr * self.v[name]
        return float(np.mean(losses))

    def _forward(self, x, running, replica=0):
        values, saved = {'images': x}, {}
        for layer in self.net.layers:
            read = [values[name] for name in layer.of]
            values[layer.name], saved[layer.name] = getattr(self, '_' + layer.op)(layer, running, replica, *read)
        return values[self.net.layers[-1].name], saved

    def _backward(self, dy, saved):
        flows, gradient = {self.net.layers[-1].name: dy}, {}
        for layer in reversed(self.net.layers):
            back, own = getattr(self, '_%s_back' % layer.op)(layer, saved[layer.name], flows.pop(layer.name))
            gradient.update(own)
            for name, flow in zip(layer.of, back):
                flows[name] = flows[name] + flow if name in flows else flow
        return gradient

    # Methods of each layer. Forward: (output, values for backward). Backward: (gradients of inputs, {parameter: gradient}).

    def _conv(self, layer, running, replica, x):
        w = self.p[layer.name + '_w']
        padded = np.pad(x, ((0, 0), (0, 0)) + ((layer.pad, layer.pad),) * 2, mode='constant')
        columns = _patches(padded, layer)
        y = columns.dot(w.reshape(len(w), -1).T) + (self.p[layer.name + '_b'] if layer.bias else 0)
        return y.reshape((len(x),) + layer.shape[1:] + (len(w),)).transpose(0, 3, 1, 2), (padded.shape, columns)

    def _conv_back(self, layer, saved, dy):
        (shape, columns), w, k, s = saved, self.p[layer.name + '_w'], layer.kernel, layer.stride
        rows = dy.transpose(0, 2, 3, 1).reshape(-1, len(w))
        own = {layer.name + '_w': rows.T.dot(columns).reshape(w.shape)}
        if layer.bias:
            own[layer.name + '_b'] = rows.sum(axis=0)
        n, height, width = len(dy), dy.shape[2], dy.shape[3]
        patches = rows.dot(w.reshape(len(w), -1)).reshape((n, height, width) + w.shape[1:]).transpose(0, 3, 4, 5, 1, 2)
        dx = np.zeros(shape)
        for i in range(k):
            for j in range(k):
                dx[:, :, i:i + s * height:s, j:j + s * width:s] += patches[:, :, i, j]
        inside = slice(layer.pad, shape[2] - layer.pad)
        return [dx[:, :, inside, inside]], own

    def _norm(self, layer, running, replica, x):
        if running is not None:
            mean, variance = running[layer.name]
        else:
            mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            count = x.size // x.shape[1]
            seen = np.stack([mean, variance, variance * count / max(1, count - 1)])
            self.running[layer.name][replica] = self.kept * self.running[layer.name][replica] + (1 - self.kept) * seen
        scale = 1 / np.sqrt(variance + self.epsilon)
        unit = (x - _channels(mean)) * _channels(scale)
        return unit * _channels(self.p[layer.name + '_w']) + _channels(self.p[layer.name + '_b']), (unit, scale)

    def _norm_back(self, layer, saved, dy):
        unit, scale = saved
        factor, bias = (dy * unit).sum(axis=(0, 2, 3)), dy.sum(axis=(0, 2, 3))
        count = dy.size // dy.shape[1]
        dx = dy - _channels(bias / count) - unit * _channels(factor / count)
        return [dx * _channels(scale * self.p[layer.name + '_w'])], {layer.name + '_w': factor, layer.name + '_b': bias}

    def _relu(self, layer, running, replica, x):
        return np.maximum(x, 0), x > 0

    def _relu_back(self, layer, positive, dy):
        return [dy * positive], {}

    def _pool(self, layer, running, replica, x):
        blocks = x.reshape(x.shape[0], x.shape[1], x.shape[2] // 2, 2, x.shape[3] // 2, 2).transpose(0, 1, 2, 4, 3, 5)
        blocks = blocks.reshape(blocks.shape[:4] + (4,))
        return blocks.max(axis=-1), blocks.argmax(axis=-1)

    def _pool_back(self, layer, place, dy):
        n, c, rows, cols = dy.shape
        blocks = ((np.arange(4) == place[..., None]) * dy[..., None]).reshape(n, c, rows, cols, 2, 2)
        return [blocks.transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * rows, 2 * cols)], {}

    def _tanh(self, layer, running, replica, x):
        y = np.tanh(x)
        return y, y

    def _tanh_back(self, layer, y, dy):
        return [dy * (1 - y ** 2)], {}

    def _average(self, layer, running, replica, x):
        n, c, rows, cols = x.shape
        return x.reshape(n, c, rows // 2, 2, cols // 2, 2).mean(axis=(3, 5)), x.shape

    def _average_back(self, layer, shape, dy):
        n, c, rows, cols = shape
        dx = np.ones((n, c, rows // 2, 2, cols // 2, 2)) * dy[:, :, :, None, :, None] / 4
        return [dx.reshape(shape)], {}

    def _mean(self, layer, running, replica, x):
        return x.mean(axis=(2, 3)), x.shape

    def _mean_back(self, layer, shape, dy):
        return [np.ones(shape) * dy[:, :, None, None] / (shape[2] * shape[3])], {}

    def _flatten(self, layer, running, replica, x):
        return x.reshape(len(x), -1), x.shape

    def _flatten_back(self, layer, shape, dy):
        return [dy.reshape(shape)], {}

    def _dense(self, layer, running, replica, x):
        return x.dot(self.p[layer.name + '_w'].T) + self.p[layer.name + '_b'], x

    def _dense_back(self, layer, x, dy):
        return [dy.dot(self.p[layer.name + '_w'])], {layer.name + '_w': dy.T.dot(x), layer.name + '_b': dy.sum(axis=0)}

    def _add(self, layer, running, replica, first, second):
        return first + second, None

    def _add_back(self, layer, saved, dy):
        return [dy, dy], {}


def _scaled(images):
    return images.astype('float64') / 255


def _channels(vector):
    return vector[None, :, None, None]


def _patches(padded, layer):
    """Every patch that a convolution reads, one per row: (n * height * width, channels * kernel * kernel)."""
    padded, s, k = np.ascontiguousarray(padded), layer.stride, layer.kernel
    n, c, at = padded.shape[0], padded.shape[1], padded.strides
    view = np.lib.stride_tricks.as_strided(padded, (n,) + layer.shape[1:] + (c, k, k),
                                           (at[0], s * at[2], s * at[3], at[1], at[2], at[3]))
    return view.reshape(-1, c * k * k)


def apart(got, want):
    """The largest difference, divided by the largest expected number."""
    return float(np.abs(np.asarray(got, 'float64') - want).max() / max(1e-30, np.abs(want).max()))


def moved_apart(got, want, start):
    """(the largest error over parameters, its name). Each error is divided by the distance that the parameter had to move.

    Some parameters hardly move, such as a bias before a normalisation, which moves by rounding alone. Their error is divided by
    the mean distance of all parameters.
    """
    way = dict((name, _rms(want[name] - start[name])) for name in want)
    common = _rms(np.concatenate([(want[name] - start[name]).reshape(-1) for name in want]))
    return max((_rms(np.asarray(got[name], 'float64') - want[name]) / max(way[name], common, 1e-30), name) for name in want)


def steady(net, seed):
    """Starting weights with which rounding does not decide.

    In deep networks some of 10^6 numbers are so near to zero that a relu passes them in one precision and not in another, which
    causes errors of 0.01 to 0.1. With these weights, normalisations move their channels far to one side of zero, three of four
    to the positive side.
    """
    weights, draw = net.initial(seed), np.random.RandomState(seed)
    for layer in net.layers:
        if layer.op == 'norm':
            weights[layer.name + '_w'] = draw.uniform(0.5, 1.0, layer.shape[0]).astype('float32')
            weights[layer.name + '_b'] = np.where(np.arange(layer.shape[0]) % 4 == 3, -5, 5).astype('float32')
    return weights


def _rms(array):
    return float(np.sqrt(np.mean(np.square(array))))


class Comparison(object):
    """Compare one adapter and one network: every part of the contract of adapters that a single process can show."""

    LR, MOMENTUM, STEPS = 0.05, 0.9, 2

    def __init__(self, adapter, net, draw, say, limit=3e-4, batch=4):
        self.adapter, self.net, self.say, self.limit, self.batch = adapter, net, say, limit, batch
        self.start = steady(net, 7)
        count = batch * (self.STEPS + 2)
        self.images = draw.randint(0, 256, (count,) + net.shape).astype('uint8')
        self.labels = draw.randint(0, 10, count).astype('int64')
        self.failed = []

    def tell(self, what, error, limit=None, detail=''):
        good = error <= (self.limit if limit is None else limit)        # false for NaN, too
        if not good:
            self.failed.append(what)
        self.say('%-4s  %-44s %.1e  %s' % ('ok' if good else 'FAIL', what, error, detail))

    def run(self, replicas):
        self.alone(replicas, 'mean')
        if len(replicas) > 1:
            self.alone(replicas, 'none')
        return not self.failed

    def alone(self, replicas, sync):
        adapter, label = self.adapter, ' (%d %s)' % (len(replicas), sync)
        handle = self._make(replicas, sync)
        apart_each = sync == 'none' and len(replicas) > 1
        references = [Reference(self.net, self.start, 1 if apart_each else len(replicas))
                      for _ in range(adapter.copies(handle) if apart_each else 1)]
        self.tell('weights as made' + label, self._weights_apart(handle, self.start), 0)
        test = self.images[-self.batch:]
        self.tell('logits of inference' + label, apart(adapter.predict(handle, test), references[0].logits(test)))
        for number in range(self.STEPS):
            self._step(handle, references, number, label)
        self._running(handle, references[0], test, label)
        self._saved(handle, replicas, sync, test, label)
        self._assigned(handle, references, label)

    def _make(self, replicas, sync):
        return self.adapter.make(self.net, dict(self.start), self.LR, self.MOMENTUM, replicas, sync)

    def _step(self, handle, references, number, label):
        adapter, part = self.adapter, slice(number * self.batch, (number + 1) * self.batch)
        images, labels = self.images[part], self.labels[part]
        loss = adapter.loss(adapter.step(handle, adapter.put(handle, images, labels), self.LR))
        adapter.drain()
        size, wanted = len(images) // len(references), []
        for place, reference in enumerate(references):
            mine = slice(place * size, (place + 1) * size)
            wanted.append(reference.step(images[mine], labels[mine], self.LR, self.MOMENTUM))
        self.tell('loss of step %d' % (number + 1) + label, abs(loss - np.mean(wanted)) / np.mean(wanted))
        for copy in range(adapter.copies(handle)):
            reference = references[copy if len(references) > 1 else 0]
            error, name = moved_apart(adapter.weights(handle, copy), reference.p, self.start)
            self.tell('weights after step %d, copy %d' % (number + 1, copy) + label, error, detail=name)

    def _running(self, handle, reference, test, label):
        """Frameworks compute the variance in different ways and keep the statistics of different replicas: each of these
        variants is right.
        """
        got, told = self.adapter.predict(handle, test), 'logits of inference after training' + label
        rules = [(apart(got, reference.logits(test, unbiased, replica, debiased)), 'variance / %s, of %s%s' % (
            'n - 1' if unbiased else 'n', 'all replicas' if replica is None else 'replica %d' % replica,
            ', debiased' if debiased else ''))
            for debiased in (False, True) for unbiased in (False, True) for replica in [0, None, reference.shards - 1]]
        error, rule = min(rules)
        self.tell(told, error, detail=rule if self.net.normalised else '')

    def _saved(self, handle, replicas, sync, test, label):
        adapter, folder = self.adapter, tempfile.mkdtemp(prefix='reference-nets-')
        try:
            adapter.save(handle, folder)
            size = sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(folder) for name in names)
            fresh = self._make(replicas, sync)
            adapter.restore(fresh, folder)
        finally:
            shutil.rmtree(folder)
        self.tell('restored weights in every copy' + label, self._weights_apart(fresh, adapter.weights(handle, 0)), 0,
                  detail='%d bytes for %d of parameters' % (size, self.net.bytes))
        self.tell('restored answers' + label, apart(adapter.predict(fresh, test), adapter.predict(handle, test)), 1e-6)

    def _assigned(self, handle, references, label):
        """Assign other weights to every copy and keep the momentum: one more step shows whether that worked."""
        other = steady(self.net, 8)
        for copy in range(self.adapter.copies(handle)):
            self.adapter.assign(handle, copy, other)
        self.tell('assigned weights' + label, self._weights_apart(handle, other), 0)
        for reference in references:
            reference.p = dict((name, other[name].astype('float64')) for name in other)
        self.start = other
        self._step(handle, references, self.STEPS, label)
        self.start = steady(self.net, 7)

    def _weights_apart(self, handle, want):
        found = [self.adapter.weights(handle, copy) for copy in range(self.adapter.copies(handle))]
        assert all(sorted(each) == sorted(self.net.names) for each in found), 'weights() answers other names than net.names'
        assert all(each[name].shape == shape for each in found for name, shape in self.net.parameters), 'other shapes'
        return max(float(np.abs(np.asarray(each[name], 'float64') - want[name]).max()) for each in found for name in want)


def _guest(adapter):
    """A copy of the guest with the adapter of every recipe. An image contains only the adapters that it needs."""
    folder = os.path.join(tempfile.mkdtemp(prefix='reference-nets-guest-'), 'smoke')
    shutil.copytree(os.path.join(HERE, os.pardir, os.pardir, os.pardir, 'envbuild', 'smoke'), folder,
                    ignore=shutil.ignore_patterns('__pycache__'))
    for recipe in os.listdir(RECIPES):
        if os.path.exists(os.path.join(RECIPES, recipe, 'smoke.py')):
            shutil.copy(os.path.join(RECIPES, recipe, 'smoke.py'), os.path.join(folder, 'adapters', recipe + '.py'))
    name = adapter
    if adapter.endswith('.py'):
        name = os.path.splitext(os.path.basename(adapter))[0]
        name = os.path.basename(os.path.dirname(os.path.abspath(adapter))) if name == 'smoke' else name
        shutil.copy(adapter, os.path.join(folder, 'adapters', name + '.py'))
    return folder, name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('adapter')
    parser.add_argument('net')
    parser.add_argument('--replicas', type=int, default=1)
    parser.add_argument('--batch', type=int, default=4)
    parser.add_argument('--device', default='cpu', choices=('cpu', 'cuda'))
    parser.add_argument('--option', action='append', default=[])
    parser.add_argument('--limit', type=float, default=3e-4)
    arguments = parser.parse_args()
    os.environ['ENVBUILD_SMOKE'], name = _guest(arguments.adapter)
    sys.path.insert(0, HERE)
    import boot  # noqa: F401
    from envbuild_smoke import adapters
    from envbuild_smoke.networks import nets
    from envbuild_smoke.rank.context import Context
    from envbuild_smoke.rank.group import Group
    adapter, net = adapters.load(name)(), nets.of(arguments.net)
    options = dict(pair.split('=', 1) for pair in arguments.option)
    context = Context(0, 1, arguments.device, list(range(arguments.replicas)), arguments.replicas, 1, options, 7, Group(0, 1))
    adapter.setup(context)
    if hasattr(adapter, 'prepare'):
        adapter.prepare(lambda: None)
    versions = adapter.versions()
    print(versions['name'], versions['version'], net.name)
    comparison = Comparison(adapter, net, np.random.RandomState(3), print, arguments.limit, arguments.batch)
    good = comparison.run(list(range(arguments.replicas)))
    sys.stdout.flush()
    shutil.rmtree(os.path.dirname(os.environ['ENVBUILD_SMOKE']))
    os._exit(0 if good else 1)          # as the guest does, because threads of a framework possibly never end


if __name__ == '__main__':
    main()

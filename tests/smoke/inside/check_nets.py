from __future__ import absolute_import, division, print_function

import os
import pickle
import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import synth
from envbuild_smoke.networks import nets, refnet
from reference_nets import Comparison, Reference


def _tiny():
    """A network with one layer of many kinds, each at its smallest: strides, padding, a shortcut, a flattened end."""
    net = nets.Net('tiny', (2, 8, 8), 'none')
    net.conv('c1', 3, 3, pad=1)
    net.norm('n1')
    last = net.relu('r1')
    net.conv('c2', 4, 3, 2, 1, False)
    long_way = net.norm('n2')
    net.conv('short', 4, 1, 2, 0, False, (last,))
    net.add('sum', long_way, net.norm('n3'))
    net.relu('r2')
    net.pool('p')
    net.flatten('flat')
    net.dense('fc', 10)
    return net


def _round():
    """A network with the layers that `_tiny` lacks: tanh, average pooling, and the mean over the image."""
    net = nets.Net('round', (2, 6, 6), 'none')
    net.conv('c', 3, 3)
    net.tanh('t')
    net.average('a')
    net.mean('mean')
    net.dense('fc', 10)
    return net


def _batch(net, count=6):
    draw = np.random.RandomState(5)
    return draw.randint(0, 256, (count,) + net.shape).astype('uint8'), draw.randint(0, 10, count)


class Gradient(unittest.TestCase):
    def test_every_parameter_agrees_with_finite_differences(self):
        for net in (_tiny(), _round()):
            start = dict((name, array.astype('float64')) for name, array in net.initial(7).items())
            _, gradient = Reference(net, start).loss_and_gradient(*_batch(net))
            self.assertEqual(sorted(gradient), sorted(net.names))
            draw = np.random.RandomState(0)
            for name in net.names:
                place = tuple(draw.randint(0, size) for size in start[name].shape)
                numeric = self._difference(net, start, name, place)
                self.assertAlmostEqual(gradient[name][place], numeric, delta=1e-7 + 1e-5 * abs(numeric), msg=name)

    def test_the_guest_computes_the_same_gradient(self):
        for net in (_tiny(), _round(), nets.of('resnet20')):
            start = dict((name, array.astype('float64')) for name, array in net.initial(7).items())
            images, labels = _batch(net)
            loss, want = Reference(net, start).loss_and_gradient(images, labels)
            got_loss, got = refnet.loss_and_gradient(net, start, refnet.scaled(images), labels)
            self.assertAlmostEqual(got_loss, loss, places=9)
            for name in net.names:
                np.testing.assert_allclose(got[name], want[name], rtol=1e-7, atol=1e-12, err_msg=name)

    @staticmethod
    def _difference(net, start, name, place, e=1e-6):
        losses = []
        for sign in (1, -1):
            moved = dict(start)
            moved[name] = start[name].copy()
            moved[name][place] += sign * e
            losses.append(Reference(net, moved).loss_and_gradient(*_batch(net))[0])
        return (losses[0] - losses[1]) / (2 * e)

    def test_the_guest_s_own_numpy_network_agrees(self):
        images, labels = synth.digits(16, 3)
        for net in (nets.LENET, nets.REFERENCE):
            want, losses = refnet.train(net, net.initial(7), images, labels, 2, 8, .05, .9)
            reference = Reference(net, net.initial(7), shards=2)
            for number, loss in enumerate(losses):
                part = slice(8 * number, 8 * number + 8)
                self.assertAlmostEqual(reference.step(images[part], labels[part], .05, .9), loss, places=12)
            for name in want:
                self.assertLess(np.abs(reference.p[name] - want[name]).max(), 1e-12)


class Itself(object):
    """The reference as an adapter; `fault` plants one fault."""

    def __init__(self, fault=None):
        self.fault = fault

    def make(self, net, weights, lr, momentum, replicas, sync):
        constants = {'epsilon': (1e-3, 0.9), 'kept': (1e-5, 0.99)}.get(self.fault, (1e-5, 0.9))
        if self.fault == 'bias':
            weights = dict(weights, fc_b=0 * weights['fc_b'])
        shards = 1 if sync == 'none' else len(replicas)
        models = [Reference(net, weights, shards, constants) for _ in (replicas if sync == 'none' else [0])]
        return {'models': models, 'momentum': momentum}

    def put(self, handle, images, labels):
        if self.fault == 'shards':
            images = images[::-1]
        return images, labels

    def step(self, handle, batch, lr):
        models, (images, labels) = handle['models'], batch
        size = len(images) // len(models)
        momentum = 0.0 if self.fault == 'momentum' else handle['momentum']
        return np.mean([each.step(images[i * size:i * size + size], labels[i * size:i * size + size], lr, momentum)
                        for i, each in enumerate(models)])

    def loss(self, token):
        return float(token) * (2 if self.fault == 'loss' else 1)

    def drain(self):
        pass

    def copies(self, handle):
        return len(handle['models'])

    def weights(self, handle, copy):
        return dict((name, array.astype('float32')) for name, array in handle['models'][copy].p.items())

    def assign(self, handle, copy, weights):
        mine = handle['models'][copy]
        mine.p = dict((name, array.astype('float64')) for name, array in weights.items())
        if self.fault == 'assign':
            mine.v = dict((name, 0 * array) for name, array in mine.v.items())

    def predict(self, handle, images):
        return handle['models'][0].logits(images)

    def save(self, handle, folder):
        with open(os.path.join(folder, 'all'), 'wb') as stream:
            pickle.dump((handle['models'][0].p, handle['models'][0].running), stream)

    def restore(self, handle, folder):
        with open(os.path.join(folder, 'all'), 'rb') as stream:
            saved, running = pickle.load(stream)
        for place, each in enumerate(handle['models']):
            if self.fault != 'one copy' or place == 0:
                each.p = dict(saved)
            if self.fault != 'running':
                each.running = running


class Compared(unittest.TestCase):
    def _failures(self, fault=None):
        lines = []
        comparison = Comparison(Itself(fault), _tiny(), np.random.RandomState(3), lines.append)
        self.assertEqual(comparison.run([0, 1]), not comparison.failed, lines)
        return ' '.join(comparison.failed)

    def test_the_reference_agrees_with_itself(self):
        self.assertEqual(self._failures(), '')

    def test_every_fault_is_seen_where_it_is(self):
        for fault, seen in (('epsilon', 'weights after step 1'), ('kept', 'logits of inference after training'),
                            ('bias', 'weights as made'),
                            ('shards', 'weights after step 1'), ('momentum', 'weights after step 2'),
                            ('loss', 'loss of step 1'), ('assign', 'weights after step 3'), ('running', 'restored answers'),
                            ('one copy', 'restored weights in every copy (2 none)')):
            self.assertIn(seen, self._failures(fault), fault)


if __name__ == '__main__':
    unittest.main()

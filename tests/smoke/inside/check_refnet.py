from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import synth
from envbuild_smoke.networks import nets, refnet

NETS = (nets.LENET, nets.REFERENCE)
STEPS, BATCH, LR, MOMENTUM = 4, 64, .05, .9


def _in_float64(net, seed=7):
    return dict((name, a.astype('float64')) for name, a in net.initial(seed).items())


class Gradient(unittest.TestCase):
    def test_every_parameter_agrees_with_finite_differences(self):
        images, labels = synth.digits(8, 3)
        x = refnet.scaled(images)
        for net in NETS:
            p = _in_float64(net)
            _, gradient = refnet.loss_and_gradient(net, p, x, labels)
            self.assertEqual(sorted(gradient), sorted(net.names))
            draw = np.random.RandomState(0)
            for name in net.names:
                for _ in range(3):
                    place = tuple(draw.randint(0, size) for size in p[name].shape)
                    numeric = self._difference(net, p, name, place, x, labels)
                    self.assertAlmostEqual(gradient[name][place], numeric, delta=1e-7 + 1e-5 * abs(numeric), msg='%s%s' % (name, place))

    @staticmethod
    def _difference(net, p, name, place, x, labels, e=1e-6):
        losses = []
        for sign in (1, -1):
            q = dict(p)
            q[name] = p[name].copy()
            q[name][place] += sign * e
            losses.append(refnet.loss_and_gradient(net, q, x, labels)[0])
        return (losses[0] - losses[1]) / (2 * e)


class Training(unittest.TestCase):
    def setUp(self):
        self.images, self.labels = synth.digits(STEPS * BATCH, 3)

    def train(self, net, steps=STEPS, dtype='float64', momentum=MOMENTUM):
        return refnet.train(net, net.initial(7), self.images, self.labels, steps, BATCH, LR, momentum, dtype)

    def test_single_precision_stays_close(self):
        for net in NETS:
            overall, each = refnet.errors(self.train(net, dtype='float32')[0], self.train(net)[0], net.initial(7))
            self.assertLess(overall, 1e-5)
            self.assertLess(max(each.values()), 1e-5)

    def test_error_is_zero_for_the_reference_and_one_for_no_training(self):
        net = nets.REFERENCE
        want, _ = self.train(net, steps=1)
        self.assertEqual(refnet.errors(want, want, net.initial(7))[0], 0)
        overall, each = refnet.errors(net.initial(7), want, net.initial(7))
        self.assertAlmostEqual(overall, 1)
        for value in each.values():
            self.assertAlmostEqual(value, 1)

    def test_loss_falls_on_one_batch(self):
        same = np.tile(self.images[:64], (6, 1, 1, 1)), np.tile(self.labels[:64], 6)
        for net in NETS:
            _, losses = refnet.train(net, net.initial(7), same[0], same[1], 6, 64, LR, MOMENTUM)
            self.assertLess(losses[-1], losses[0])

    def test_the_same_parameters_and_starting_weights(self):
        self.assertEqual(nets.LENET.parameters, nets.REFERENCE.parameters)
        self.assertEqual(nets.REFERENCE.bytes, 4 * 80202)
        for name, array in nets.LENET.initial(7).items():
            self.assertTrue((array == nets.REFERENCE.initial(7)[name]).all())


class Smooth(unittest.TestCase):
    """In the reference network, tanh starts between its flat part and its linear part, and each step moves each parameter."""

    def test_activations_are_far_from_saturation(self):
        images, _ = synth.digits(BATCH, 3)
        for seed in range(5):
            net = nets.REFERENCE
            _, kept = refnet.forward(net, _in_float64(net, seed), refnet.scaled(images))
            for layer, saved in zip(net.layers, kept):
                if layer.op == 'tanh':
                    self.assertLess((np.abs(saved) > .97).mean(), .01, (seed, layer.name))
                    self.assertGreater(np.abs(saved).std(), .1, (seed, layer.name))

    def test_noise_is_not_amplified(self):
        """No activation switches near zero, so small noise stays small.

        In LeNet, relative noise of 1e-5 in the gradients becomes an error of 1e-3 with some seeds.
        """
        net, draw = nets.REFERENCE, np.random.RandomState(0)
        for seed in range(3):
            images, labels = synth.digits(STEPS * BATCH, seed + 100)
            start = net.initial(seed)
            want, _ = refnet.train(net, start, images, labels, STEPS, BATCH, LR, MOMENTUM)
            p = dict((name, a.astype('float64')) for name, a in start.items())
            v = dict((name, np.zeros_like(a)) for name, a in p.items())
            for step in range(STEPS):
                part = slice(step * BATCH, (step + 1) * BATCH)
                _, g = refnet.loss_and_gradient(net, p, refnet.scaled(images[part]), labels[part])
                g = dict((name, a * (1 + 1e-5 * draw.normal(0, 1, a.shape))) for name, a in g.items())
                refnet.update(p, v, g, LR, MOMENTUM)
            self.assertLess(max(refnet.errors(p, want, start)[1].values()), 3e-5)


if __name__ == '__main__':
    unittest.main()

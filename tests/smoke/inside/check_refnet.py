from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import synth
from envbuild_smoke.networks import refnet


class Gradient(unittest.TestCase):
    def test_every_parameter_agrees_with_finite_differences(self):
        images, labels = synth.digits(8, 3)
        x = refnet.scaled(images)
        p = dict((name, a.astype('float64')) for name, a in refnet.initial(7).items())
        _, gradient = refnet.loss_and_gradient(p, x, labels)
        draw = np.random.RandomState(0)
        for name in refnet.NAMES:
            for _ in range(3):
                place = tuple(draw.randint(0, size) for size in p[name].shape)
                numeric = self._difference(p, name, place, x, labels)
                self.assertAlmostEqual(gradient[name][place], numeric, delta=1e-7 + 1e-5 * abs(numeric), msg='%s%s' % (name, place))

    @staticmethod
    def _difference(p, name, place, x, labels, e=1e-6):
        losses = []
        for sign in (1, -1):
            q = dict(p)
            q[name] = p[name].copy()
            q[name][place] += sign * e
            losses.append(refnet.loss_and_gradient(q, x, labels)[0])
        return (losses[0] - losses[1]) / (2 * e)


class Training(unittest.TestCase):
    def setUp(self):
        self.images, self.labels = synth.digits(256, 3)
        self.start = refnet.initial(7)

    def test_single_precision_stays_within_a_hundredth_of_the_limit(self):
        want, _ = refnet.train(self.start, self.images, self.labels, 4, 64, .05, .9)
        got, _ = refnet.train(self.start, self.images, self.labels, 4, 64, .05, .9, 'float32')
        overall, each = refnet.errors(got, want, self.start)
        self.assertLess(overall, 1e-5)
        self.assertLess(max(each.values()), 1e-5)

    def test_error_is_zero_for_the_reference_and_one_for_no_training(self):
        want, _ = refnet.train(self.start, self.images, self.labels, 1, 64, .05, .9)
        self.assertEqual(refnet.errors(want, want, self.start)[0], 0)
        overall, each = refnet.errors(self.start, want, self.start)
        self.assertAlmostEqual(overall, 1)
        for value in each.values():
            self.assertAlmostEqual(value, 1)

    def test_loss_falls_on_one_batch(self):
        same = np.tile(self.images[:64], (6, 1, 1, 1)), np.tile(self.labels[:64], 6)
        _, losses = refnet.train(self.start, same[0], same[1], 6, 64, .05, .9)
        self.assertLess(losses[-1], losses[0])

    def test_sizes(self):
        self.assertEqual(refnet.PARAMETERS, 80202)
        self.assertEqual(sum(a.size for a in self.start.values()), refnet.PARAMETERS)


if __name__ == '__main__':
    unittest.main()

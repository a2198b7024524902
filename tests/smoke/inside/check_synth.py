from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import shapes, synth
from envbuild_smoke.networks import nets


class Digits(unittest.TestCase):
    def test_the_same_bits_on_every_python_numpy_and_processor(self):
        # A changed generator makes accuracies incomparable: give it a new NAME together with a new digest.
        self.assertEqual(synth.NAME, 'generated-digits/1')
        self.assertEqual(synth.digest(*synth.digits(3000, 1)), DIGITS)

    def test_starting_weights_are_the_same_everywhere(self):
        weights = nets.LENET.initial(7)
        self.assertEqual(synth.digest(*[weights[name] for name in nets.LENET.names]), WEIGHTS)

    def test_classes_are_equally_frequent_and_shuffled(self):
        images, labels = synth.digits(1000, 5)
        self.assertEqual(np.bincount(labels).tolist(), [100] * 10)
        self.assertNotEqual(labels[:10].tolist(), list(range(10)))
        self.assertEqual((images.shape, images.dtype, labels.dtype), ((1000, 1, 28, 28), np.uint8, np.int64))
        self.assertGreater(images.reshape(1000, -1).max(axis=1).min(), 100)

    def test_seeds_differ_and_a_seed_repeats(self):
        self.assertEqual(synth.digest(*synth.digits(50, 5)), synth.digest(*synth.digits(50, 5)))
        self.assertNotEqual(synth.digest(*synth.digits(50, 5)), synth.digest(*synth.digits(50, 6)))

    def test_order_is_a_permutation(self):
        self.assertEqual(sorted(synth.order(100, 3)), list(range(100)))


class Shapes(unittest.TestCase):
    def test_the_same_bits_on_every_python_numpy_and_processor(self):
        # A changed generator makes accuracies incomparable: give it a new NAME together with a new digest.
        self.assertEqual(synth.digest(*shapes.shapes(600, 1)), SHAPES)

    def test_classes_in_equal_number(self):
        pictures, labels = shapes.shapes(50, 3)
        self.assertEqual((pictures.shape, pictures.dtype.name), ((50, 3, 32, 32), 'uint8'))
        self.assertEqual(np.bincount(labels).tolist(), [5] * 10)


DIGITS = 'd20548bc72ed5b79aff4e7146603f7a199b240974560bb2b297e59b686339fb8'
SHAPES = 'cc05ae94892a6f3b92ac80e675a26ab15ac1ac115683a4a8a8938bb0dc6ebe95'
WEIGHTS = '12b01d10c2a704c60f9a04bdd8f95c117a4da014c3f977f5b113e94de6968004'

if __name__ == '__main__':
    unittest.main()

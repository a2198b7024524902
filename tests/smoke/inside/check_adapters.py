from __future__ import absolute_import, division, print_function

import os
import unittest

import boot  # noqa: F401
import numpy as np

from envbuild_smoke import adapters, nets

RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'images', 'recipes')


def _of(recipe):
    """The adapter's class, without its framework."""
    return adapters.load(os.path.join(RECIPES, recipe, 'smoke.py'))


class _OldVariable(object):
    """What the smoke test may ask of a variable of TensorFlow 1.0, which has no `shape`."""

    def __init__(self, shape):
        self._shape, self.initializer = list(shape), self
        self.inputs = (self, object())

    def get_shape(self):
        return self

    def as_list(self):
        return self._shape


class _Session(object):
    def run(self, fetches, feed):
        self.fetches, self.feed = fetches, feed


class OldTensorFlowTest(unittest.TestCase):
    def test_weights_are_assigned_in_the_shapes_of_the_variables(self):
        side, session = object.__new__(_of('tensorflow').sides[0]), _Session()
        weights = nets.LENET.initial(1)
        turned = [(5, 5, 1, 16), (16,), (5, 5, 16, 32), (32,), (512, 128), (128,), (128, 10), (10,)]
        variables = [_OldVariable(shape) for shape in turned]
        side.assign({'net': nets.LENET, 'variables': [variables], 'session': session}, 0, weights)
        self.assertEqual(session.fetches, variables)
        given = [session.feed[variable.inputs[1]] for variable in variables]
        self.assertEqual([array.shape for array in given], turned)
        np.testing.assert_array_equal(given[0], np.transpose(weights[nets.LENET.names[0]], (2, 3, 1, 0)))


if __name__ == '__main__':
    unittest.main()

"""Finds images for which rounding may change the gradient by much, because a ReLU or a maximum is about to switch.

A ReLU switches if its input is near zero, and a maximum if its two largest inputs are nearly equal. One switch can change
LeNet's gradient for 64 images by 2 %. Without such images, the gradients of frameworks and of NumPy differ by about 1e-6.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from .refnet import OPS, in_blocks
from .rounding import EXACT

NEAR = 1e-5             # of the usual size of a layer's numbers; rounding in single precision moves them by about 3e-7 of it
EQUAL = 1e-12           # inputs that are equal, such as those of two black parts of an image, are equal in every arithmetic


def about_to_switch(net, p, x):
    """Return for each of the scaled images in float64 whether a ReLU or a maximum of the network is about to switch."""
    found, given = np.zeros(len(x), bool), {'images': x}
    for layer in net.layers:
        inputs = [given[name] for name in layer.of]
        if layer.op in _DISTANCES:
            near = _DISTANCES[layer.op](inputs[0]) / max(float(inputs[0].std()), 1e-300)
            found |= ((near > EQUAL) & (near < NEAR)).reshape(len(x), -1).any(axis=1)
        given[layer.name] = OPS[layer.op][0](layer, p, *(inputs + [EXACT]))[0]
    return found


def _to_the_second(x):
    """The distance between the two largest numbers of each block."""
    ordered = np.sort(in_blocks(x), axis=-1)
    return ordered[..., -1] - ordered[..., -2]


_DISTANCES = {'relu': np.abs, 'pool': _to_the_second}

"""Converts weights and images to the layout of TensorFlow and Keras: kernels HWIO, dense weights (in, out), images NHWC.

These frameworks flatten images in the order H, W, C. So if a dense layer reads flattened images, the rows of its weights are in
this order, too.
"""
from __future__ import absolute_import, division, print_function

import numpy as np


def to_hwio(weights, net):
    """Return the weights in this layout, as float32 arrays in the order of net.names."""
    return [np.ascontiguousarray(_turned(net, name, np.asarray(weights[name], 'float32'))) for name in net.names]


def _turned(net, name, array):
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    if array.ndim == 2:
        folded = _folded(net, name)
        return array.reshape((-1,) + folded).transpose(2, 3, 1, 0).reshape(array.shape[::-1]) if folded else array.T
    return array


def from_hwio(values, net):
    """Return {parameter: array} in the smoke test's own layout, from arrays in this layout in the order of net.names."""
    weights = {}
    for (name, shape), array in zip(net.parameters, values):
        if len(shape) == 4:
            array = array.transpose(3, 2, 0, 1)
        elif len(shape) == 2:
            folded = _folded(net, name)
            array = array.reshape(folded[1:] + (folded[0], -1)).transpose(3, 2, 0, 1) if folded else array.T
        weights[name] = array.reshape(shape)
    return weights


def shapes_hwio(net):
    """The shapes of to_hwio's arrays."""
    return [shape[2:] + (shape[1], shape[0]) if len(shape) == 4 else shape[::-1] for _, shape in net.parameters]


def _folded(net, name):
    """Return (C, H, W) of the images if a dense layer reads flattened images, else None."""
    return next(layer.folded for layer in net.layers if layer.op == 'dense' and name == layer.name + '_w')


def nhwc(images):
    """uint8 NCHW -> float32 NHWC from 0 to 1."""
    return images.transpose(0, 2, 3, 1).astype('float32') / np.float32(255)


def shape_nhwc(net):
    """(H, W, C) of the network's images."""
    return net.shape[1:] + net.shape[:1]

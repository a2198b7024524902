"""The reference network's weights in the layout of TensorFlow and Keras: kernels HWIO, dense (in, out), flattened as H, W, C."""
from __future__ import absolute_import, division, print_function

import numpy as np

from .refnet import NAMES


def to_hwio(weights):
    """The eight arrays in the order of refnet.NAMES, float32."""
    w = dict((name, np.asarray(weights[name], 'float32')) for name in NAMES)
    w['conv1_w'], w['conv2_w'] = w['conv1_w'].transpose(2, 3, 1, 0), w['conv2_w'].transpose(2, 3, 1, 0)
    w['fc1_w'] = w['fc1_w'].reshape(128, 32, 4, 4).transpose(2, 3, 1, 0).reshape(512, 128)
    w['fc2_w'] = w['fc2_w'].T
    return [np.ascontiguousarray(w[name]) for name in NAMES]


def from_hwio(values):
    """The reverse: canonical {parameter: array}."""
    w = dict(zip(NAMES, values))
    w['conv1_w'], w['conv2_w'] = w['conv1_w'].transpose(3, 2, 0, 1), w['conv2_w'].transpose(3, 2, 0, 1)
    w['fc1_w'] = w['fc1_w'].reshape(4, 4, 32, 128).transpose(3, 2, 0, 1).reshape(128, 512)
    w['fc2_w'] = w['fc2_w'].T
    return w


def nhwc(images):
    """uint8 NCHW -> float32 NHWC from 0 to 1."""
    return images.transpose(0, 2, 3, 1).astype('float32') / np.float32(255)

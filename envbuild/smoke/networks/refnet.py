"""The reference network: LeNet in plain NumPy, forward, backward, and SGD with momentum.

In float64 it says what the weights must be after some steps; every framework is judged against it, for every number of
devices. Layout is canonical: images NCHW, kernels OIHW, dense weights (out, in), flattened in C, H, W order.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from .nets import LENET

SIDE = 28
SHAPES = tuple(LENET.parameters)
NAMES = tuple(name for name, _ in SHAPES)
PARAMETERS = sum(int(np.prod(shape)) for _, shape in SHAPES)
BYTES = 4 * PARAMETERS


def initial(seed):
    """Its starting weights."""
    return LENET.initial(seed)


def scaled(images, dtype='float64'):
    """uint8 images as numbers from 0 to 1."""
    return images.astype(dtype) / np.asarray(255, dtype)


def _columns(x, k):
    """Every k x k patch of x as a row: (n * height * width, channels * k * k)."""
    n, c, rows, cols = x.shape
    out_rows, out_cols = rows - k + 1, cols - k + 1
    step = x.strides
    view = np.lib.stride_tricks.as_strided(x, (n, out_rows, out_cols, c, k, k), (step[0], step[2], step[3]) + step[1:])
    return view.reshape(n * out_rows * out_cols, c * k * k), (n, out_rows, out_cols)


def _convolve(x, w, b):
    columns, place = _columns(x, w.shape[2])
    y = columns.dot(w.reshape(w.shape[0], -1).T) + b
    return y.reshape(place + (w.shape[0],)).transpose(0, 3, 1, 2), columns


def _convolve_back(dy, x_shape, w, columns, want_dx):
    out, channels, k, _ = w.shape
    rows = dy.transpose(0, 2, 3, 1).reshape(-1, out)
    dw, db = rows.T.dot(columns).reshape(w.shape), rows.sum(axis=0)
    if not want_dx:
        return None, dw, db
    n, _, height, width = dy.shape
    patches = rows.dot(w.reshape(out, -1)).reshape(n, height, width, channels, k, k).transpose(0, 3, 4, 5, 1, 2)
    dx = np.zeros(x_shape, dy.dtype)
    for i in range(k):
        for j in range(k):
            dx[:, :, i:i + height, j:j + width] += patches[:, :, i, j]
    return dx, dw, db


def _pool(x):
    """2 x 2 maximum, with the place of each maximum."""
    n, c, rows, cols = x.shape
    blocks = x.reshape(n, c, rows // 2, 2, cols // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, rows // 2, cols // 2, 4)
    return blocks.max(axis=-1), blocks.argmax(axis=-1)


def _pool_back(dy, place, shape):
    n, c, rows, cols = shape
    blocks = (np.arange(4) == place[..., None]) * dy[..., None]
    return blocks.reshape(n, c, rows // 2, cols // 2, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(shape)


def _forward(p, x):
    """Logits, and what the backward pass needs."""
    a1, columns1 = _convolve(x, p['conv1_w'], p['conv1_b'])
    h1, place1 = _pool(np.maximum(a1, 0))
    a2, columns2 = _convolve(np.ascontiguousarray(h1), p['conv2_w'], p['conv2_b'])
    h2, place2 = _pool(np.maximum(a2, 0))
    flat = h2.reshape(len(x), -1)
    a3 = flat.dot(p['fc1_w'].T) + p['fc1_b']
    h3 = np.maximum(a3, 0)
    logits = h3.dot(p['fc2_w'].T) + p['fc2_b']
    return logits, (a1, columns1, h1, place1, a2, columns2, h2, place2, flat, a3, h3)


def logits(p, x):
    """The network's answer for scaled images."""
    return _forward(p, np.ascontiguousarray(x))[0]


def loss_and_gradient(p, x, y):
    """Mean cross-entropy over the batch, and its gradient for every parameter."""
    x = np.ascontiguousarray(x)
    z, (a1, columns1, h1, place1, a2, columns2, h2, place2, flat, a3, h3) = _forward(p, x)
    n = len(x)
    shifted = z - z.max(axis=1)[:, None]
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]
    loss = -log_p[np.arange(n), y].mean()
    dz = np.exp(log_p)
    dz[np.arange(n), y] -= 1
    dz /= n
    g = {'fc2_w': dz.T.dot(h3), 'fc2_b': dz.sum(axis=0)}
    d3 = dz.dot(p['fc2_w']) * (a3 > 0)
    g['fc1_w'], g['fc1_b'] = d3.T.dot(flat), d3.sum(axis=0)
    d2 = _pool_back(d3.dot(p['fc1_w']).reshape(h2.shape), place2, a2.shape) * (a2 > 0)
    dh1, g['conv2_w'], g['conv2_b'] = _convolve_back(d2, h1.shape, p['conv2_w'], columns2, True)
    d1 = _pool_back(dh1, place1, a1.shape) * (a1 > 0)
    _, g['conv1_w'], g['conv1_b'] = _convolve_back(d1, x.shape, p['conv1_w'], columns1, False)
    return loss, g


def update(p, v, g, lr, momentum):
    """One step of SGD with classical momentum, in place."""
    for name in NAMES:
        v[name] *= momentum
        v[name] += g[name]
        p[name] -= lr * v[name]


def train(start, images, labels, steps, batch, lr, momentum, dtype='float64'):
    """Weights and losses after `steps` consecutive batches, without shuffling."""
    p = dict((name, start[name].astype(dtype)) for name in NAMES)
    v = dict((name, np.zeros_like(p[name])) for name in NAMES)
    losses = []
    for i in range(steps):
        part = slice(i * batch, (i + 1) * batch)
        loss, g = loss_and_gradient(p, scaled(images[part], dtype), labels[part])
        update(p, v, g, lr, momentum)
        losses.append(float(loss))
    return p, losses


def _norm(a):
    return float(np.sqrt(np.square(np.asarray(a, 'float64')).sum()))


def errors(got, want, start):
    """(overall, {parameter: error}), each ||got - want|| / ||want - start||: 0 is exact, 1 is as wrong as no training."""
    wrong = dict((name, _norm(np.asarray(got[name], 'float64') - want[name])) for name in NAMES)
    moved = dict((name, _norm(want[name] - np.asarray(start[name], 'float64'))) for name in NAMES)
    each = dict((name, wrong[name] / max(moved[name], 1e-300)) for name in NAMES)
    return _norm(list(wrong.values())) / max(_norm(list(moved.values())), 1e-300), each

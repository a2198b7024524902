"""Trains a network in plain NumPy from its list of layers: forward pass, backward pass, and SGD with momentum.

In float64, it computes the reference weights after some steps. The weights of every framework are compared with these, for
every number of devices. The layout is that of `nets`: images NCHW, kernels OIHW, dense weights (out, in), images flattened in
the order C, H, W. The forward pass is that of training: batch normalisation uses the mean and variance of the batch.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from .nets import EPSILON
from .rounding import EXACT


def scaled(images, dtype='float64'):
    """uint8 images as numbers from 0 to 1."""
    return images.astype(dtype) / np.asarray(255, dtype)


def logits(net, p, x):
    """The network's logits for scaled images."""
    return forward(net, p, x)[0]


def loss_and_gradient(net, p, x, y, numbers=EXACT, smoothing=0.0):
    """Return the mean cross-entropy over the batch, and its gradient for every parameter.

    `numbers` is the arithmetic: EXACT, or a `rounding.Reduced`, which simulates a lower precision. The share `smoothing` of
    each label is spread evenly over all classes.
    """
    z, kept = forward(net, p, x, numbers)
    n, log_p = len(x), _log_probabilities(z)
    loss = -((1 - smoothing) * log_p[np.arange(n), y] + smoothing * log_p.mean(axis=1)).mean()
    dy = np.exp(log_p) - np.asarray(smoothing / z.shape[1], z.dtype)
    dy[np.arange(n), y] -= 1 - smoothing
    dy /= n
    g, first, flows = {}, net.names[0], {net.layers[-1].name: dy}
    for layer, saved in zip(reversed(net.layers), reversed(kept)):
        last = layer.name + '_w' == first       # no earlier layer has parameters
        dy = numbers.give(layer.op, flows.pop(layer.name))
        dy = OPS[layer.op][1](layer, p, dy, saved, g, not last, numbers)
        if last:
            break
        for name in layer.of:
            flows[name] = flows[name] + dy if name in flows else dy
    return loss, g


def losses(z, y):
    """Return the cross-entropy of each image, from the network's logits and the labels."""
    return -_log_probabilities(z)[np.arange(len(z)), y]


def _log_probabilities(z):
    shifted = z - z.max(axis=1)[:, None]
    return shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]


def forward(net, p, x, numbers=EXACT):
    """Return the logits, and for each layer the values that its backward pass needs."""
    kept, given = [], {'images': x}
    for layer in net.layers:
        x, saved = OPS[layer.op][0](layer, p, *([given[name] for name in layer.of] + [numbers]))
        given[layer.name] = x = numbers.give(layer.op, x)
        kept.append(saved)
    return x, kept


def update(p, v, g, lr, momentum):
    """One step of SGD with classical momentum, in place."""
    for name in p:
        v[name] *= momentum
        v[name] += g[name]
        p[name] -= lr * v[name]


def train(net, start, images, labels, steps, batch, lr, momentum, dtype='float64'):
    """Return the weights after `steps` consecutive batches, and the loss of each batch. Images are not shuffled."""
    p = dict((name, start[name].astype(dtype)) for name in net.names)
    v = dict((name, np.zeros_like(p[name])) for name in net.names)
    losses = []
    for i in range(steps):
        part = slice(i * batch, (i + 1) * batch)
        loss, g = loss_and_gradient(net, p, scaled(images[part], dtype), labels[part])
        update(p, v, g, lr, momentum)
        losses.append(float(loss))
    return p, losses


def errors(got, want, start):
    """Return (overall error, {parameter: error}).

    An error is |got - want| / |want - start|: 0 is exact, 1 as bad as no training.
    """
    wrong = dict((name, _norm(np.asarray(got[name], 'float64') - want[name])) for name in want)
    moved = dict((name, _norm(want[name] - np.asarray(start[name], 'float64'))) for name in want)
    each = dict((name, wrong[name] / max(moved[name], 1e-300)) for name in want)
    return _norm(list(wrong.values())) / max(_norm(list(moved.values())), 1e-300), each


def _norm(a):
    return float(np.sqrt(np.square(np.asarray(a, 'float64')).sum()))


# The operations of the layers. A forward function returns (the layer's output, the values that its backward function needs). A
# backward function gets the gradient dy of the output, writes the gradients of the layer's parameters into g, and returns the
# gradient of the layer's input, or None if it is not `wanted`.

def _conv(layer, p, x, numbers):
    w, x = numbers.read('conv', p[layer.name + '_w']), numbers.read('conv', x)
    if layer.pad:
        x = np.pad(x, ((0, 0), (0, 0)) + ((layer.pad, layer.pad),) * 2, mode='constant')
    columns, place = _columns(np.ascontiguousarray(x), layer.kernel, layer.stride)
    y = columns.dot(w.reshape(len(w), -1).T)
    if layer.bias:
        y = y + p[layer.name + '_b']
    return y.reshape(place + (len(w),)).transpose(0, 3, 1, 2), (x.shape, columns)


def _columns(x, k, s):
    """Every k x k patch of x, with stride s, as a row: (n * height * width, channels * k * k)."""
    n, c, rows, cols = x.shape
    out_rows, out_cols = (rows - k) // s + 1, (cols - k) // s + 1
    step = x.strides
    strides = (step[0], s * step[2], s * step[3]) + step[1:]
    view = np.lib.stride_tricks.as_strided(x, (n, out_rows, out_cols, c, k, k), strides)
    return view.reshape(n * out_rows * out_cols, c * k * k), (n, out_rows, out_cols)


def _conv_back(layer, p, dy, saved, g, wanted, numbers):
    shape, columns = saved
    w = numbers.read('conv', p[layer.name + '_w'])
    out, channels, k, _ = w.shape
    rows = dy.transpose(0, 2, 3, 1).reshape(-1, out)
    if layer.bias:
        g[layer.name + '_b'] = rows.sum(axis=0)
    rows = numbers.read('conv', rows)
    g[layer.name + '_w'] = numbers.give('conv', rows.T.dot(columns).reshape(w.shape))
    if not wanted:
        return None
    n, _, height, width = dy.shape
    patches = rows.dot(w.reshape(out, -1)).reshape(n, height, width, channels, k, k).transpose(0, 3, 4, 5, 1, 2)
    dx, s = np.zeros(shape, dy.dtype), layer.stride
    for i in range(k):
        for j in range(k):
            dx[:, :, i:i + s * height:s, j:j + s * width:s] += patches[:, :, i, j]
    return dx[:, :, layer.pad:shape[2] - layer.pad, layer.pad:shape[3] - layer.pad]


def _dense(layer, p, x, numbers):
    x = numbers.read('dense', x)
    return x.dot(numbers.read('dense', p[layer.name + '_w']).T) + p[layer.name + '_b'], x


def _dense_back(layer, p, dy, x, g, wanted, numbers):
    g[layer.name + '_b'] = dy.sum(axis=0)
    dy = numbers.read('dense', dy)
    g[layer.name + '_w'] = numbers.give('dense', dy.T.dot(x))
    return dy.dot(numbers.read('dense', p[layer.name + '_w'])) if wanted else None


def _relu(layer, p, x, numbers):
    return np.maximum(x, 0), x > 0


def _relu_back(layer, p, dy, positive, g, wanted, numbers):
    return dy * positive


def _tanh(layer, p, x, numbers):
    y = np.tanh(x)
    return y, y


def _tanh_back(layer, p, dy, y, g, wanted, numbers):
    return dy * (1 - y * y)


def _channels(array):
    return array[None, :, None, None]


def _batch_norm(layer, p, x, numbers):
    scale = 1 / np.sqrt(x.var(axis=(0, 2, 3)) + np.asarray(EPSILON, x.dtype))
    unit = (x - _channels(x.mean(axis=(0, 2, 3)))) * _channels(scale)
    return unit * _channels(p[layer.name + '_w']) + _channels(p[layer.name + '_b']), (unit, scale)


def _batch_norm_back(layer, p, dy, saved, g, wanted, numbers):
    unit, scale = saved
    factor, bias, count = (dy * unit).sum(axis=(0, 2, 3)), dy.sum(axis=(0, 2, 3)), dy.size // dy.shape[1]
    g[layer.name + '_w'], g[layer.name + '_b'] = factor, bias
    dx = dy - _channels(bias / count) - unit * _channels(factor / count)
    return dx * _channels(scale * p[layer.name + '_w'])


def _add(layer, p, x, y, numbers):
    return x + y, None


def _add_back(layer, p, dy, saved, g, wanted, numbers):
    return dy           # the gradient of both inputs


def _mean(layer, p, x, numbers):
    return x.mean(axis=(2, 3)), x.shape


def _mean_back(layer, p, dy, shape, g, wanted, numbers):
    return (dy / (shape[2] * shape[3]))[:, :, None, None] * np.ones(shape[2:], dy.dtype)


def in_blocks(x):
    """Return each 2 x 2 block as four numbers: (n, c, rows / 2, cols / 2, 4)."""
    n, c, rows, cols = x.shape
    return x.reshape(n, c, rows // 2, 2, cols // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, rows // 2, cols // 2, 4)


def _unblocked(blocks):
    n, c, rows, cols, _ = blocks.shape
    return blocks.reshape(n, c, rows, cols, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, rows * 2, cols * 2)


def _pool(layer, p, x, numbers):
    blocks = in_blocks(x)
    return blocks.max(axis=-1), blocks.argmax(axis=-1)


def _pool_back(layer, p, dy, place, g, wanted, numbers):
    return _unblocked((np.arange(4) == place[..., None]) * dy[..., None])


def _average(layer, p, x, numbers):
    return (x[:, :, ::2, ::2] + x[:, :, ::2, 1::2] + x[:, :, 1::2, ::2] + x[:, :, 1::2, 1::2]) / 4, None


def _average_back(layer, p, dy, saved, g, wanted, numbers):
    return (dy / 4).repeat(2, axis=2).repeat(2, axis=3)


def _flatten(layer, p, x, numbers):
    return x.reshape(len(x), -1), x.shape


def _flatten_back(layer, p, dy, shape, g, wanted, numbers):
    return dy.reshape(shape)


OPS = {
    'conv': (_conv, _conv_back), 'dense': (_dense, _dense_back), 'relu': (_relu, _relu_back), 'tanh': (_tanh, _tanh_back),
    'norm': (_batch_norm, _batch_norm_back), 'add': (_add, _add_back), 'mean': (_mean, _mean_back), 'pool': (_pool, _pool_back),
    'average': (_average, _average_back), 'flatten': (_flatten, _flatten_back),
}

"""Builds a network with TensorFlow or Keras, whose modules are passed in. The adapters of both share this code."""
from __future__ import absolute_import, division, print_function

import os

from . import nets
from .layouts import shape_nhwc, shapes_hwio


AUTOTUNE = 'TF_CUDNN_USE_AUTOTUNE'
_own = []           # the user's value of AUTOTUNE while `exact` has replaced it


def through(net, images, give):
    """Build the network layer by layer and return its output; `give(layer, inputs...)` builds one layer with a framework."""
    values = {'images': images}
    for layer in net.layers:
        values[layer.name] = give(layer, *[values[name] for name in layer.of])
    return values[net.layers[-1].name]


def padding(layer):
    """Return (rows of zeros to add on every side first, the framework's `padding` argument) for a convolution.

    SAME pads all sides equally only if the stride is 1. With a stride of 2 and an even size, SAME pads only below and to the
    right, so the network would differ: https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2
    """
    if layer.pad and layer.stride == 1 and 2 * layer.pad == layer.kernel - 1:
        return 0, 'SAME'
    return layer.pad, 'VALID'


def plain(tf, layer, x, *others):
    """Make a layer without parameters, by calls that TensorFlow 1 and 2 share."""
    if layer.op == 'relu':
        return tf.nn.relu(x)
    if layer.op == 'tanh':
        return tf.tanh(x)
    if layer.op == 'pool':
        return tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], 'VALID')
    if layer.op == 'average':
        return tf.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], 'VALID')
    if layer.op == 'mean':
        return tf.reduce_mean(x, [1, 2])
    if layer.op == 'flatten':
        return tf.reshape(x, [-1, layer.shape[0]])
    return x + others[0]


def padded(tf, layer, x):
    """Return (the images, padded with zeros if needed, the `padding` argument for the convolution itself)."""
    zeros, word = padding(layer)
    return tf.pad(x, [[0, 0], [zeros, zeros], [zeros, zeros], [0, 0]]) if zeros else x, word


def graph_network(tf, net):
    """Build the variables of a network in TensorFlow 1.

    Return (variables in the order of net.names, running means and variances, a function from images and `training` to logits).
    """
    parameters = [tf.Variable(tf.zeros(shape)) for shape in shapes_hwio(net)]
    v, running = dict(zip(net.names, parameters)), {}
    for layer in net.layers:
        if layer.op == 'norm':
            running[layer.name] = [tf.Variable(start(layer.shape[:1]), trainable=False) for start in (tf.zeros, tf.ones)]

    def logits(x, training):
        return through(net, x, lambda layer, *read: _graph_layer(tf, layer, v, running, training, *read))

    return parameters, [variable for layer in net.layers for variable in running.get(layer.name, [])], logits


def _graph_layer(tf, layer, v, running, training, x, *others):
    w, b = v.get(layer.name + '_w'), v.get(layer.name + '_b')
    if layer.op == 'conv':
        x, word = padded(tf, layer, x)
        x = tf.nn.conv2d(x, w, [1, layer.stride, layer.stride, 1], word)
        return tf.nn.bias_add(x, b) if layer.bias else x
    if layer.op == 'dense':
        return tf.matmul(x, w) + b
    if layer.op == 'norm':
        return _normalised(tf, x, w, b, running[layer.name], training)
    return plain(tf, layer, x, *others)


def _normalised(tf, x, w, b, running, training):
    """Apply batch normalisation.

    Up to TensorFlow 1.15, the kernel of fused_batch_norm raises EPSILON to 1.001e-5, as cuDNN does. The errors are below 1e-7.
    """
    if not training:
        return tf.nn.fused_batch_norm(x, w, b, running[0], running[1], nets.EPSILON, is_training=False)[0]
    x, mean, variance = tf.nn.fused_batch_norm(x, w, b, epsilon=nets.EPSILON)
    for kept, seen in zip(running, (mean, variance)):
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign(kept, nets.KEPT * kept + (1 - nets.KEPT) * seen))
    return x


def keras_network(keras, net):
    """Return the network as a Keras model, for any version and backend.

    Its weights are zero at first; its outputs are logits.
    """
    layers, last = keras.layers, {'data_format': 'channels_last'}

    def give(layer, *read):
        x = read[0]
        if layer.op == 'conv':
            zeros, word = padding(layer)
            x = layers.ZeroPadding2D(zeros, **last)(x) if zeros else x
            return layers.Conv2D(layer.shape[0], layer.kernel, strides=layer.stride, padding=word.lower(), use_bias=layer.bias,
                                 kernel_initializer='zeros', name=layer.name, **last)(x)
        if layer.op == 'add':
            return layers.Add()(list(read))
        make = {
            'norm': lambda: layers.BatchNormalization(momentum=nets.KEPT, epsilon=nets.EPSILON, name=layer.name),
            'relu': lambda: layers.Activation('relu'), 'tanh': lambda: layers.Activation('tanh'),
            'pool': lambda: layers.MaxPooling2D(2, **last), 'average': lambda: layers.AveragePooling2D(2, **last),
            'mean': lambda: layers.GlobalAveragePooling2D(**last), 'flatten': layers.Flatten,
            'dense': lambda: layers.Dense(layer.shape[0], kernel_initializer='zeros', name=layer.name),
        }
        return make[layer.op]()(x)

    images = layers.Input(shape_nhwc(net))
    return keras.models.Model(images, through(net, images, give))


def keras_parameters(model, net):
    """Return the model's trained variables in the order of net.names.

    In each layer, Keras lists the running mean and variance after the trained variables.
    """
    counts = dict((layer.name, 1 if layer.op == 'conv' and not layer.bias else 2) for layer in net.layers
                  if layer.op in ('conv', 'norm', 'dense'))
    return [variable for layer in net.layers if layer.name in counts
            for variable in model.get_layer(layer.name).weights[:counts[layer.name]]]


def exact(tf, wanted):
    """Make TensorFlow's kernels deterministic or not, for the adapter method `exact`. This affects only kernels made
    afterwards.

    TensorFlow reads the variable TF_CUDNN_USE_AUTOTUNE whenever it makes a kernel:
    https://github.com/tensorflow/tensorflow/blob/v2.4.0/tensorflow/core/util/use_cudnn.cc
    Since 2.9 there is also a switch for determinism. Only a private module can turn it off again.
    """
    if wanted:
        _own.append(os.environ.get(AUTOTUNE))
        os.environ[AUTOTUNE] = '0'
    else:
        before = _own.pop()
        os.environ.pop(AUTOTUNE)
        os.environ.update({AUTOTUNE: before} if before is not None else {})
    try:
        from tensorflow.python.framework import config
        switch = config.enable_op_determinism if wanted else config.disable_op_determinism
    except (ImportError, AttributeError):
        return
    if tf.executing_eagerly():
        switch()

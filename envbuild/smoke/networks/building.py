"""A network in the words of TensorFlow and of Keras, whose modules are handed in: what the adapters upon them share."""
from __future__ import absolute_import, division, print_function

from . import nets
from .layouts import shape_nhwc


def through(net, images, give):
    """What the network answers; `give(layer, what it reads...)` is one layer in a framework's own words."""
    values = {'images': images}
    for layer in net.layers:
        values[layer.name] = give(layer, *[values[name] for name in layer.of])
    return values[net.layers[-1].name]


def padding(layer):
    """(zeros to add on every side first, the framework's word for the rest) of a convolution.

    SAME adds the same on every side only where the stride is 1. With a stride of 2 and an even size it adds below and to the
    right alone, which is another network: https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2
    """
    if layer.pad and layer.stride == 1 and 2 * layer.pad == layer.kernel - 1:
        return 0, 'SAME'
    return layer.pad, 'VALID'


def plain(tf, layer, x, *others):
    """A layer without parameters, in words that are the same in TensorFlow 1 and 2."""
    if layer.op == 'relu':
        return tf.nn.relu(x)
    if layer.op == 'pool':
        return tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], 'VALID')
    if layer.op == 'mean':
        return tf.reduce_mean(x, [1, 2])
    if layer.op == 'flatten':
        return tf.reshape(x, [-1, layer.shape[0]])
    return x + others[0]


def padded(tf, layer, x):
    """(the images with what zeros a convolution needs first, the word for its own padding)."""
    zeros, word = padding(layer)
    return tf.pad(x, [[0, 0], [zeros, zeros], [zeros, zeros], [0, 0]]) if zeros else x, word


def keras_network(keras, net):
    """The network as a Keras model, of any version and backend, starting from zeros; it answers logits."""
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
            'relu': lambda: layers.Activation('relu'), 'pool': lambda: layers.MaxPooling2D(2, **last),
            'mean': lambda: layers.GlobalAveragePooling2D(**last), 'flatten': layers.Flatten,
            'dense': lambda: layers.Dense(layer.shape[0], kernel_initializer='zeros', name=layer.name),
        }
        return make[layer.op]()(x)

    images = layers.Input(shape_nhwc(net))
    return keras.models.Model(images, through(net, images, give))


def keras_parameters(model, net):
    """Its variables in the order of net.names; a normalisation's running mean and variance come after its own two."""
    counts = dict((layer.name, 1 if layer.op == 'conv' and not layer.bias else 2) for layer in net.layers
                  if layer.op in ('conv', 'norm', 'dense'))
    return [variable for layer in net.layers if layer.name in counts
            for variable in model.get_layer(layer.name).weights[:counts[layer.name]]]

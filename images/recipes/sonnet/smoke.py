"""Sonnet 1 and 2 for the smoke test, driven as the TensorFlow below it: all devices in one process.

1.x: modules of their own on each device; gradients are averaged and applied to every copy.
2.x: Sonnet's Replicator, in which every replica sums the gradients itself.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

from . import tensorflow
from ..layouts import to_hwio


class Adapter(tensorflow.Adapter):
    name = 'sonnet'

    def versions(self):
        import sonnet
        return dict(tensorflow.Adapter.versions(self), name='sonnet', version=_version(sonnet))


def _version(sonnet):
    """Sonnet 1 does not know its own version; its package does."""
    if hasattr(sonnet, '__version__'):
        return sonnet.__version__
    import pkg_resources
    return pkg_resources.get_distribution('dm-sonnet').version


def _flat(tf, x):
    return tf.reshape(x, [-1, 512])


class _Towers(tensorflow.Towers):
    """Sonnet 1."""

    def network(self, values):
        import sonnet
        tf = self.tf

        def filled(place):
            return {'w': tf.constant_initializer(values[place]), 'b': tf.constant_initializer(values[place + 1])}

        layers = [
            sonnet.Conv2D(16, 5, padding=sonnet.VALID, initializers=filled(0)),
            sonnet.Conv2D(32, 5, padding=sonnet.VALID, initializers=filled(2)),
            sonnet.Linear(128, initializers=filled(4)), sonnet.Linear(10, initializers=filled(6))]

        def logits(x):
            for layer in layers[:2]:
                x = tf.nn.max_pool(tf.nn.relu(layer(x)), [1, 2, 2, 1], [1, 2, 2, 1], 'VALID')
            return layers[3](tf.nn.relu(layers[2](_flat(tf, x))))

        logits(tf.zeros([1, 28, 28, 1]))            # modules have variables once they are connected
        return [variable for layer in layers for variable in (layer.w, layer.b)], logits


class _Replicated(tensorflow.Mirrored):
    """Sonnet 2."""

    semantics = {'gradient': 'sum over replicas of the loss divided by the global batch',
                 'exchange': 'Replicator, summed in each replica'}

    def strategy(self, places, exchange):
        import sonnet
        return sonnet.distribute.Replicator(places, cross_device_ops=exchange)

    def model(self, weights, lr, momentum):
        import sonnet
        network = _network(sonnet, self.tf, to_hwio(weights))
        return network, sonnet.optimizers.Momentum(self.tf.Variable(lr, trainable=False), momentum)

    def apply(self, optimizer, gradients, variables, together):
        if together:
            context = self.tf.distribute.get_replica_context()
            gradients = context.all_reduce(self.tf.distribute.ReduceOp.SUM, gradients)
        optimizer.apply(gradients, variables)

    def set_rate(self, optimizer, lr):
        optimizer.learning_rate.assign(lr)


def _network(sonnet, tf, values):
    """A Sonnet 2 module; its class can be made only once Sonnet is there."""

    def filled(place):
        return {'w_init': lambda shape, dtype: tf.constant(values[place], dtype, shape),
                'b_init': lambda shape, dtype: tf.constant(values[place + 1], dtype, shape)}

    class Network(sonnet.Module):
        def __init__(self):
            super(Network, self).__init__()
            self.convolutions = [sonnet.Conv2D(16, 5, padding='VALID', **filled(0)),
                                 sonnet.Conv2D(32, 5, padding='VALID', **filled(2))]
            self.dense = [sonnet.Linear(128, **filled(4)), sonnet.Linear(10, **filled(6))]

        def __call__(self, x, training=False):
            for layer in self.convolutions:
                x = tf.nn.max_pool2d(tf.nn.relu(layer(x)), 2, 2, 'VALID')
            return self.dense[1](tf.nn.relu(self.dense[0](_flat(tf, x))))

        @property
        def trainable_variables(self):
            return [variable for layer in self.convolutions + self.dense for variable in (layer.w, layer.b)]

    network = Network()
    network(tf.zeros([1, 28, 28, 1]))               # makes the variables
    return network


Adapter.sides = (_Towers, _Replicated)

"""Sonnet 1 (on TensorFlow 1) and Sonnet 2 (on TensorFlow 2) for the smoke test: all devices in one process.

1.x: separate modules on each device; gradients are averaged and applied to every copy.
2.x: Sonnet's Replicator, in which every replica sums the gradients itself.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

from ..networks import nets
from ..networks.building import padded, padding, plain, through
from ..networks.layouts import shape_nhwc
from . import tensorflow


class Adapter(tensorflow.Adapter):
    name = 'sonnet'

    def versions(self):
        import sonnet
        return dict(tensorflow.Adapter.versions(self), name='sonnet', version=_version(sonnet))


def _version(sonnet):
    """Return the version of the module, or that of the package: the module of Sonnet 1 has none."""
    if hasattr(sonnet, '__version__'):
        return sonnet.__version__
    import pkg_resources
    return pkg_resources.get_distribution('dm-sonnet').version


class _Towers(tensorflow.Towers):
    """Sonnet 1. Its modules create their variables when they are connected to their inputs."""

    def network(self, net):
        tf, modules = self.tf, _modules_1(net)

        def logits(x, training):
            def give(layer, x, *others):
                if layer.op == 'conv':
                    x = padded(tf, layer, x)[0]
                elif layer.op == 'norm':
                    return modules[layer.name](x, is_training=training, test_local_stats=False)
                return modules[layer.name](x) if layer.name in modules else plain(tf, layer, x, *others)
            return through(net, x, give)

        logits(tf.zeros((1,) + shape_nhwc(net)), False)
        made = [(layer, modules[layer.name]) for layer in net.layers if layer.name in modules]
        parameters = [each for layer, module in made for each in _parameters(layer, module, ('gamma', 'beta'))]
        norms = [module for layer, module in made if layer.op == 'norm']
        return parameters, [each for norm in norms for each in (norm.moving_mean, norm.moving_variance)], logits


def _modules_1(net):
    import sonnet
    make = {
        'conv': lambda layer: sonnet.Conv2D(
            layer.shape[0], layer.kernel, stride=layer.stride, padding=padding(layer)[1], use_bias=layer.bias),
        'norm': lambda layer: sonnet.BatchNorm(offset=True, scale=True, decay_rate=nets.KEPT, eps=nets.EPSILON),
        'dense': lambda layer: sonnet.Linear(layer.shape[0]),
    }
    return dict((layer.name, make[layer.op](layer)) for layer in net.layers if layer.op in make)


def _parameters(layer, module, of_norm):
    """Return a module's variables in the order of net.names."""
    if layer.op == 'norm':
        return [getattr(module, name) for name in of_norm]
    return [module.w, module.b] if layer.bias or layer.op == 'dense' else [module.w]


class _Replicated(tensorflow.Mirrored):
    """Sonnet 2."""

    semantics = {'gradient': 'sum over replicas of the loss divided by the global batch',
                 'exchange': 'Replicator, summed in each replica'}

    def strategy(self, places, exchange):
        import sonnet
        return sonnet.distribute.Replicator(places, cross_device_ops=exchange)

    def model(self, net, lr, momentum):
        import sonnet
        network = _network(sonnet, self.tf, net)
        return network, network.parameters, sonnet.optimizers.Momentum(self.tf.Variable(lr, trainable=False), momentum)

    def apply(self, optimizer, gradients, variables, together):
        if together:
            context = self.tf.distribute.get_replica_context()
            gradients = context.all_reduce(self.tf.distribute.ReduceOp.SUM, gradients)
        optimizer.apply(gradients, variables)

    def set_rate(self, optimizer, lr):
        optimizer.learning_rate.assign(lr)


def _network(sonnet, tf, net):
    """Return a Sonnet 2 module; its class is made here, because its base class exists only after Sonnet is imported.

    The weights are 0 until they are assigned, and not random: with deterministic algorithms, TensorFlow draws random numbers
    only if a seed is set. Sonnet's running averages correct for their start value, so a running variance is 0 before the first
    step. Here it starts at 1, as in other frameworks.
    """
    zeros = sonnet.initializers.Zeros()
    make = {
        'conv': lambda layer: sonnet.Conv2D(layer.shape[0], layer.kernel, stride=layer.stride, with_bias=layer.bias,
                                            padding=lambda size: [layer.pad, layer.pad], w_init=zeros),
        'norm': lambda layer: sonnet.BatchNorm(True, True, decay_rate=nets.KEPT, eps=nets.EPSILON),
        'dense': lambda layer: sonnet.Linear(layer.shape[0], w_init=zeros),
    }

    class Network(sonnet.Module):
        def __init__(self):
            super(Network, self).__init__()
            self.modules = dict((layer.name, make[layer.op](layer)) for layer in net.layers if layer.op in make)

        def __call__(self, x, training=False):
            def give(layer, x, *others):
                module = self.modules.get(layer.name)
                if layer.op == 'norm':
                    return module(x, is_training=training)
                return module(x) if module else plain(tf, layer, x, *others)
            return through(net, x, give)

        @property
        def parameters(self):
            return [each for layer in net.layers if layer.name in self.modules
                    for each in _parameters(layer, self.modules[layer.name], ('scale', 'offset'))]

    network = Network()
    network(tf.zeros((1,) + shape_nhwc(net)))       # makes the variables
    for layer in net.layers:
        if layer.op == 'norm':
            average = network.modules[layer.name].moving_variance.average
            average.assign(tf.ones_like(average))
    return network


Adapter.sides = (_Towers, _Replicated)

"""Theano for the smoke test: on CPUs, the smoke test's own ring averages the gradients of several processes.

Theano itself cannot exchange gradients. Between GPUs the ring would only measure copies through the host, so on GPUs the test
trains on one device, and data parallelism does not apply.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import tempfile

import numpy as np

from ..networks import nets, refnet

FILE = 'network.zip'
# Theano rounds 1e-5 to a float32 that is slightly smaller, and then refuses this value, because it is below 1e-5:
# https://github.com/Theano/Theano/blob/rel-1.0.5/theano/tensor/nnet/bn.py
EPSILON = float(np.nextafter(np.float32(nets.EPSILON), np.float32(1)))


def built_with():
    """Return 'unknown' if Theano supports GPUs, else None.

    libgpuarray loads any CUDA version that it finds, and reports it only on a machine with a driver.
    """
    try:
        import pygpu  # part of libgpuarray, which Theano needs for GPUs
    except ImportError:
        return None
    return 'unknown' if pygpu else None


class Adapter(object):
    name = 'theano'
    style = {'cpu': 'process', 'cuda': 'single'}
    semantics = {'gradient': 'mean', 'exchange': 'the smoke test\'s own ring, between two functions: Theano has none',
                 'corrected': 'filter_flip=False: Theano turns kernels by default, as in mathematics'}

    @staticmethod
    def limits(options):
        return {'devices': {'cuda': 'Theano trains on one device and exchanges no gradients'}}

    def setup(self, ctx):
        self.ctx = ctx
        self.where = 'cuda%d' % ctx.devices[0] if ctx.kind == 'cuda' else 'cpu'
        # Ranks that compile the same graph wait for each other. By default they check every 5 to 10 s, here every 1 to 2 s.
        flags = ['floatX=float32', 'device=' + self.where, 'compile.wait=1', _home(), os.environ.get('THEANO_FLAGS')]
        os.environ['THEANO_FLAGS'] = ','.join(filter(None, flags))
        import theano
        import theano.tensor
        self.theano, self.T = theano, theano.tensor
        self.programs, self.usual = {}, {}

    def prepare(self, beat):
        """Report compilations as progress: in make(), compiling a new network takes most of a minute."""
        tell_of_compilers(self.theano, beat)

    def versions(self):
        return {'name': 'theano', 'version': self.theano.__version__, 'cuda_build': built_with(), 'cudnn': self._cudnn(), 'nccl': None,
                'arch_list': []}

    def _cudnn(self):
        try:
            from theano.gpuarray import dnn
            return '%d.%d.%d' % tuple(dnn.version() // part % 10 for part in (1000, 100, 1)) if self.where != 'cpu' else None
        except (ImportError, RuntimeError):
            return None

    def exact(self, wanted):
        """Let functions that are compiled from now on use deterministic algorithms.

        The forward pass is always deterministic.
        """
        conv = self.theano.config.dnn.conv
        for name in ('algo_bwd_filter', 'algo_bwd_data') if self.where != 'cpu' else ():
            if wanted:
                self.usual[name] = getattr(conv, name)
            setattr(conv, name, 'deterministic' if wanted else self.usual[name])

    def make(self, net, weights, lr, momentum, replicas, sync):
        if net.name not in self.programs:
            self.programs[net.name] = self.program(net)
        program = self.programs[net.name]
        handle = Handle(program, np.float32(momentum), sync == 'mean' and self.ctx.world > 1)
        self.assign(handle, 0, weights)
        return handle

    def program(self, net):
        return Program(self.theano, net, Layers(self.theano, net))

    def put(self, handle, images, labels):
        if handle.shared:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return refnet.scaled(images, 'float32'), np.asarray(labels, 'int64')

    def step(self, handle, batch, lr):
        program = handle.loaded()
        loss = program.backward(*batch)
        if handle.shared:
            self._exchange(program.gradients)
        program.update(np.float32(lr), handle.momentum)
        return loss

    def _exchange(self, gradients):
        """Replace gradients by their mean over all processes, in place."""
        means = self.ctx.group.means([gradient.get_value(borrow=True) for gradient in gradients])
        for gradient, mean in zip(gradients, means):
            gradient.set_value(mean)

    def loss(self, token):
        return float(np.asarray(token))

    def drain(self):
        if self.where != 'cpu':
            self.theano.shared(np.zeros(1, 'float32')).get_value()         # copying waits for the GPU's stream

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        program = handle.loaded()
        return dict((name, program.layers.canonical(name, program.trained[name].get_value())) for name in program.net.names)

    def assign(self, handle, copy, weights):
        program = handle.loaded()
        for name in program.net.names:
            program.trained[name].set_value(program.layers.own(name, np.asarray(weights[name], 'float32')))

    def predict(self, handle, images):
        return handle.loaded().predict(refnet.scaled(images, 'float32'))

    def save(self, handle, folder):
        """Save with Theano's pickler, which stores shared variables as NumPy arrays."""
        from theano.misc import pkl_utils
        with open(os.path.join(folder, FILE), 'wb') as stream:
            pkl_utils.dump(handle.loaded().kept, stream)

    def restore(self, handle, folder):
        from theano.misc import pkl_utils
        with open(os.path.join(folder, FILE), 'rb') as stream:
            stored = pkl_utils.load(stream)
        for variable, value in zip(handle.loaded().kept, stored):
            variable.set_value(value.get_value())

    def evidence(self, handle):
        kinds = set(type(variable).__name__ for variable in handle.program.kept)
        places = [self.where if self.where == 'cpu' or any('Gpu' in kind for kind in kinds) else 'cpu']
        return {'parameters': places, 'compute': places, 'memory_bytes': None}

    def close(self):
        pass


class Handle(object):
    """The values of a program's shared variables. All handles of a network share one program, because compiling takes long."""

    def __init__(self, program, momentum, shared):
        self.program, self.momentum, self.shared = program, momentum, shared
        self.values = [np.array(value) for value in program.start]

    def loaded(self):
        """Return the program with this handle's values loaded. The previous values go back to their handle, without a copy."""
        program = self.program
        if program.holds is not self:
            if program.holds is not None:
                program.holds.values = [variable.get_value(borrow=True, return_internal_type=True) for variable in program.variables]
            for variable, value in zip(program.variables, self.values):
                variable.set_value(value, borrow=True)
            program.holds, self.values = self, None
        return program


class Program(object):
    """The compiled functions of a network, and their shared variables.

    `backward` leaves the gradients in shared variables, from which `update` reads them. In between they can be exchanged.
    """

    def __init__(self, theano, net, layers):
        T = theano.tensor
        self.net, self.layers, self.holds = net, layers, None
        x, y = T.tensor4('x', dtype='float32'), T.lvector('y')
        rate, momentum = T.scalar('lr', dtype='float32'), T.scalar('momentum', dtype='float32')
        logits, moved = layers.outputs(x, True)
        loss = T.nnet.categorical_crossentropy(T.nnet.softmax(logits), y).mean()
        self.trained = layers.trained
        parameters = [self.trained[name] for name in net.names]
        self.gradients = [theano.shared(np.zeros_like(each.get_value()), broadcastable=each.broadcastable) for each in parameters]
        # Theano may know that an axis of a gradient has length 1, but not that the same axis of the parameter has length 1.
        found = [T.patternbroadcast(each, parameter.broadcastable) for each, parameter in zip(T.grad(loss, parameters), parameters)]
        self.backward = theano.function([x, y], loss, updates=list(zip(self.gradients, found)) + moved)
        updates = layers.updates(parameters, self.gradients, rate, momentum)
        self.update = theano.function([rate, momentum], [], updates=updates)
        self.predict = theano.function([x], layers.outputs(x, False)[0])
        self.kept = parameters + layers.running
        self.variables = self.kept + [variable for variable, _ in updates if variable not in parameters]
        self.start = [variable.get_value() for variable in self.variables]


class Layers(object):
    """A network in Theano's own functions. `trained` and `running` (means and variances) map names to shared variables."""

    def __init__(self, theano, net):
        self.theano, self.T, self.net = theano, theano.tensor, net
        self.trained = dict((name, theano.shared(array, name)) for name, array in net.initial(0).items())
        self.normal = {}
        for layer in net.layers:
            if layer.op == 'norm':
                start = np.zeros(layer.shape[0], 'float32'), np.ones(layer.shape[0], 'float32')
                self.normal[layer.name] = [theano.shared(array) for array in start]
        self.running = [variable for layer in net.layers for variable in self.normal.get(layer.name, ())]

    @staticmethod
    def own(name, array):
        """Convert an array from the smoke test's layout to the layout of the shared variable."""
        return array

    @staticmethod
    def canonical(name, array):
        """Convert the array of a shared variable to the smoke test's layout."""
        return array

    def outputs(self, images, training):
        """Return (logits, updates of running means and variances)."""
        values, self.moved, self.training = {'images': images}, [], training
        for layer in self.net.layers:
            values[layer.name] = getattr(self, '_' + layer.op)(layer, *[values[name] for name in layer.of])
        return values[self.net.layers[-1].name], self.moved

    def updates(self, parameters, gradients, rate, momentum):
        """Return the updates of SGD with momentum: [(shared variable, its next value)]."""
        pairs = []
        for parameter, gradient in zip(parameters, gradients):
            velocity = self.theano.shared(np.zeros_like(parameter.get_value()))
            faster = momentum * velocity + gradient
            pairs += [(velocity, faster), (parameter, parameter - rate * faster)]
        return pairs

    def _of(self, layer):
        return self.trained[layer.name + '_w'], self.trained.get(layer.name + '_b')

    def _conv(self, layer, x):
        kernel, bias = self._of(layer)
        y = self.T.nnet.conv2d(x, kernel, border_mode=(layer.pad, layer.pad), subsample=(layer.stride, layer.stride), filter_flip=False)
        return y if bias is None else y + bias.dimshuffle('x', 0, 'x', 'x')

    def _norm(self, layer, x):
        factor, bias = self._of(layer)
        mean, variance = self.normal[layer.name]
        bn = self.T.nnet.bn
        if not self.training:
            own = [each.dimshuffle('x', 0, 'x', 'x') for each in (factor, bias, mean, self.T.sqrt(variance + EPSILON))]
            return bn.batch_normalization(x, *own)
        y, _, _, next_mean, next_variance = bn.batch_normalization_train(
            x, factor, bias, 'spatial', EPSILON, 1 - nets.KEPT, mean, variance)
        self.moved += [(mean, next_mean), (variance, next_variance)]
        return y

    def _relu(self, layer, x):
        return self.T.nnet.relu(x)

    def _tanh(self, layer, x):
        return self.T.tanh(x)

    def _pool(self, layer, x, mode='max'):
        try:
            from theano.tensor.signal.pool import pool_2d
        except ImportError:             # before 0.8
            from theano.tensor.signal.downsample import max_pool_2d as pool_2d
        return pool_2d(x, (2, 2), ignore_border=True, mode=mode)

    def _average(self, layer, x):
        return self._pool(layer, x, 'average_exc_pad')

    def _mean(self, layer, x):
        return x.mean(axis=(2, 3))

    def _flatten(self, layer, x):
        return x.flatten(2)

    def _dense(self, layer, x):
        weights, bias = self._of(layer)
        return self.T.dot(x, weights.T) + bias

    def _add(self, layer, x, y):
        return x + y


def _home():
    """Return the setting that puts compiled code into a temporary folder, or None if the usual folder can be written to."""
    usual = os.path.expanduser('~')
    return None if os.access(usual, os.W_OK) else 'base_compiledir=' + os.path.join(tempfile.gettempdir(), 'theano-%d' % os.getuid())


def tell_of_compilers(theano, beat):
    """From now on, report every C++ file that Theano compiles as progress."""
    compiler = theano.gof.cmodule.GCC_compiler
    real = compiler.compile_str

    def compile_str(*arguments, **options):
        beat()
        return real(*arguments, **options)

    compiler.compile_str = staticmethod(compile_str)

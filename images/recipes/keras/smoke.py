"""Keras on TensorFlow 1 and 2 for the smoke test.

TensorFlow 1: multi_gpu_model divides the batch into slices, runs the same model on each GPU with one slice, and joins the
outputs on the CPU. So there is one set of parameters, and one loss for the whole batch. multi_gpu_model refuses CPUs, so
on CPUs the adapter maps /gpu:N to /cpu:N. Keras before 2.0.9 does not have this function: there the adapter divides and joins
batches in the same way. TensorFlow 2 (from Keras 2.4 on): MirroredStrategy, used as in TensorFlow's own adapter. The contract
is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import os
import sys

import numpy as np

from ..networks.building import exact, keras_network, keras_parameters
from ..networks.layouts import from_hwio, nhwc, shape_nhwc, to_hwio
from . import tensorflow

WEIGHTS = 'model.weights.h5'            # the only extension that Keras 3 accepts


class Adapter(tensorflow.Adapter):
    name = 'keras'

    def setup(self, ctx):
        os.environ['KERAS_BACKEND'] = 'tensorflow'
        import keras
        import tensorflow as tf
        self.keras, self.tf = keras, tf
        alone = tuple(int(part) for part in keras.__version__.split('.')[:2]) < (2, 4)
        self.hand_over(_MultiGpu(tf, keras, ctx) if alone else _Mirrored(tf, ctx, keras))

    def versions(self):
        return dict(tensorflow.Adapter.versions(self), name='keras', version=self.keras.__version__)


class _Mirrored(tensorflow.Mirrored):
    """Keras 2.4 and later, on TensorFlow 2."""

    def __init__(self, tf, ctx, keras):
        tensorflow.Mirrored.__init__(self, tf, ctx)
        self.keras = keras

    def sgd(self, lr, momentum):
        """Make the optimizer by its name, because some releases do not export its class."""
        return self.keras.optimizers.get({'class_name': 'SGD', 'config': {'learning_rate': lr, 'momentum': momentum}})

    def save(self, handle, folder):
        handle['models'][0].save_weights(os.path.join(folder, WEIGHTS))

    def restore(self, handle, folder):
        for model in handle['models']:
            model.load_weights(os.path.join(folder, WEIGHTS))


class Compiled(object):
    """The common part of adapters in which Keras itself compiles and trains the model, on any backend."""

    turns_kernels = False

    def make(self, net, weights, lr, momentum, replicas, sync):
        groups = [replicas] if sync == 'mean' else [[replica] for replica in replicas]
        handle = {'net': net, 'models': [
            self.model(lambda: keras_network(self.keras, net), group, self._compile(lr, momentum)) for group in groups]}
        for copy in range(len(groups)):
            self.assign(handle, copy, weights)
        return handle

    def _compile(self, lr, momentum):
        """Return the function that compiles a model. Its loss takes logits, because probabilities would be clipped at 1e-7. Releases
        differ in the order of the loss's arguments, so they are passed by name.
        """
        def from_logits(labels, logits):
            return self.keras.backend.sparse_categorical_crossentropy(target=labels, output=logits, from_logits=True)

        def compiled(model):
            model.compile(self.keras.optimizers.SGD(lr=lr, momentum=momentum), from_logits)
            return model
        return compiled

    def put(self, handle, images, labels):
        parts = len(handle['models'])
        return [(nhwc(self.ctx.shard(images, number, parts)), self.ctx.shard(labels, number, parts)[:, None])
                for number in range(parts)]

    def step(self, handle, batch, lr):
        for model in handle['models']:
            if model.get('lr') != lr:
                self.keras.backend.set_value(model['run'].optimizer.lr, lr)
                model['lr'] = lr
        if len(handle['models']) == 1:
            return handle['models'][0]['run'].train_on_batch(*batch[0])
        return self.side_by_side([model['run'] for model in handle['models']], batch)

    def loss(self, token):
        return float(token)

    def drain(self):
        pass                            # train_on_batch has returned the loss, so the step is complete

    def copies(self, handle):
        return len(handle['models'])

    def weights(self, handle, copy):
        return from_hwio(self._turned(self.keras.backend.batch_get_value(self._parameters(handle, copy))), handle['net'])

    def assign(self, handle, copy, weights):
        values = self._turned(to_hwio(weights, handle['net']))
        self.keras.backend.batch_set_value(list(zip(self._parameters(handle, copy), values)))

    def _parameters(self, handle, copy):
        return keras_parameters(handle['models'][copy]['network'], handle['net'])

    def _turned(self, arrays):
        """Rotate kernels by 180 degrees if the backend computes the mathematical convolution."""
        return [array[::-1, ::-1] if array.ndim == 4 and self.turns_kernels else array for array in arrays]

    def predict(self, handle, images):
        return handle['models'][0]['network'].predict_on_batch(nhwc(images))

    def save(self, handle, folder):
        handle['models'][0]['network'].save_weights(os.path.join(folder, WEIGHTS))

    def restore(self, handle, folder):
        for model in handle['models']:
            model['network'].load_weights(os.path.join(folder, WEIGHTS))

    def evidence(self, handle):
        return dict(self.places(handle), memory_bytes=None)

    def close(self):
        pass


class _MultiGpu(Compiled):
    """Keras on TensorFlow 1.

    Keras asks TensorFlow for gradients one by one, so an update may overwrite a variable before another gradient has read its
    old value. This race causes errors up to 0.1 compared with the reference network. gate_gradients prevents it: then all
    gradients wait for each other. With multi_gpu_model, all slices share each normalisation layer, so on two devices each step
    updates its running mean twice, in any order: https://github.com/keras-team/keras/blob/2.2.4/keras/utils/multi_gpu_utils.py
    """

    def __init__(self, tf, keras, ctx):
        self.keras, self.ctx, self.tf = keras, ctx, tf
        self.kind = 'gpu' if ctx.kind == 'cuda' else 'cpu'
        own = hasattr(keras.utils, 'multi_gpu_model')
        self.semantics = {
            'gradient': 'mean over the global batch',
            'exchange': ('multi_gpu_model: ' if own else '') + 'one set of parameters, slices of the batch joined',
            'corrected': 'gate_gradients' + ('; /gpu:N of multi_gpu_model means /cpu:N' if own and self.kind == 'cpu' else ''),
        }
        config = tf.ConfigProto(
            device_count={} if self.kind == 'gpu' else {'CPU': len(ctx.devices), 'GPU': 0},
            allow_soft_placement=self.kind == 'gpu',
            intra_op_parallelism_threads=ctx.threads, inter_op_parallelism_threads=max(2, len(ctx.devices)))
        config.gpu_options.allow_growth = True
        keras.backend.set_session(tf.Session(config=config))
        keras.backend.gradients = self._gradients

    def exact(self, wanted):
        exact(self.tf, wanted)

    def _gradients(self, loss, variables):
        return self.tf.gradients(loss, variables, colocate_gradients_with_ops=True, gate_gradients=True)

    def model(self, network, replicas, compiled):
        if len(replicas) == 1:
            with self.tf.device('/%s:%d' % (self.kind, self.ctx.devices[replicas[0]])):
                made = network()
                return {'network': made, 'run': compiled(made)}
        with self.tf.device('/cpu:0'):
            made = network()
        if not hasattr(self.keras.utils, 'multi_gpu_model'):
            return {'network': made, 'run': compiled(self._joined(made, replicas))}
        with self._devices():
            return {'network': made, 'run': compiled(self.keras.utils.multi_gpu_model(made, gpus=len(replicas)))}

    def _joined(self, made, replicas):
        """Return a model like that of multi_gpu_model, built with layers that exist in Keras before 2.0.9."""
        layers, count, parts = self.keras.layers, len(replicas), []
        for number, replica in enumerate(replicas):
            with self.tf.device('/%s:%d' % (self.kind, self.ctx.devices[replica])):
                cut = layers.Lambda(lambda x, number=number: self.tf.split(x, count)[number], made.input_shape[1:])
                # Copy the output to this device, so that its gradient is computed here too.
                here = layers.Lambda(lambda answer: answer * 1.0)
                parts.append(here(made(cut(made.inputs[0]))))
        with self.tf.device('/cpu:0'):
            return self.keras.models.Model(made.inputs, layers.concatenate(parts, axis=0))

    @contextlib.contextmanager
    def _devices(self):
        """On the CPU, while multi_gpu_model builds a model, pretend that there are GPUs and place their operations on CPUs."""
        module = sys.modules[self.keras.utils.multi_gpu_model.__module__]
        if self.kind == 'gpu':
            yield
            return
        real = module._get_available_devices
        module._get_available_devices = lambda: ['/cpu:0'] + ['/gpu:%d' % number for number in self.ctx.devices]
        try:
            with self.tf.device(self._on_cpu):
                yield
        finally:
            module._get_available_devices = real

    def _on_cpu(self, operation):
        """Return the operation's device with CPU in place of GPU. `operation.device` may also be a DeviceSpec or empty."""
        device = operation.device or ''
        text = device.to_string() if hasattr(device, 'to_string') else device
        return self.tf.DeviceSpec.from_string(text.replace('GPU', 'CPU'))

    def side_by_side(self, models, batch):
        """Run one step of each model in one session run; return the mean of their losses."""
        feed, losses, updates = {}, [], []
        for model, (x, y) in zip(models, batch):
            model._make_train_function()
            function = model.train_function
            # The last input, the learning phase, exists only if a layer (such as a normalisation) behaves differently in
            # training.
            feed.update(zip(function.inputs, (x, y, np.ones(len(x), 'float32'), True)))
            losses.append(function.outputs[0])
            updates.append(function.updates_op)
        # get_session also initialises new variables.
        return np.mean(self.keras.backend.get_session().run([losses, updates], feed)[0])

    def places(self, handle):
        """Return the devices on which the convolutions really ran, from TensorFlow's trace of one more run."""
        compute = set()
        for model in handle['models']:
            account = self.tf.RunMetadata()
            images = np.zeros((2 * len(self.ctx.devices),) + shape_nhwc(handle['net']), 'float32')
            self.keras.backend.get_session().run(
                model['run'].outputs, {model['run'].inputs[0]: images}, run_metadata=account,
                options=self.tf.RunOptions(output_partition_graphs=True))
            compute |= set(node.device for graph in account.partition_graphs for node in graph.node if 'Conv2D' in node.op)
        parameters = set(variable.device for model in handle['models'] for variable in model['network'].weights)
        return {'parameters': sorted(filter(None, parameters)) or sorted(compute), 'compute': sorted(compute)}


Adapter.sides = (_MultiGpu, _Mirrored)

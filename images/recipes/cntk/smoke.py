"""CNTK for the smoke test: one process per device, with gradients and learner of CNTK.

CNTK's data_parallel_distributed_learner exchanges the gradients over MPI. If the ranks cannot form an MPI world, the smoke
test's ring averages the gradients before the learner gets them.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import warnings

import numpy as np

from ..launching import mpi
from ..machine import mapped
from ..networks import nets

FILE = 'network.model'


class Adapter(object):
    name = 'cntk'
    style = 'process'

    def setup(self, ctx):
        self.world = mpi.World(ctx) if ctx.world > 1 else None
        self.together = ctx.world > 1 and self.world.joined
        if not self.together:
            # Without this setting, each process would need a daemon of mpirun.
            os.environ['OMPI_MCA_ess_singleton_isolated'] = '1'
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')     # about missing GPUs and image readers
            import cntk
            import cntk.train.distributed
        self.ctx, self.cntk = ctx, cntk
        self.on_gpu = ctx.kind == 'cuda'
        self.device = cntk.gpu(ctx.devices[0]) if self.on_gpu else cntk.cpu()
        if not cntk.try_set_default_device(self.device):
            raise RuntimeError('CNTK does not take the device %s' % self.device)
        self.semantics = {'gradient': 'mean', 'exchange': self._exchange()}
        if self.together:
            self._exchange_once()

    def _exchange_once(self):
        """Train one parameter with the distributed learner.

        CNTK 2.7 divides by zero (SIGFPE) if a process has trained alone before its first step with this learner.
        """
        cntk, one = self.cntk, np.ones((1, 1), 'float32')
        x, wanted = cntk.input_variable(1), cntk.input_variable(1)
        made = cntk.times(x, cntk.parameter(init=0 * one))
        learner = cntk.sgd(made.parameters, cntk.learning_parameter_schedule(.1, 0))
        shared = cntk.train.distributed.data_parallel_distributed_learner(learner)
        cntk.Trainer(made, (cntk.squared_error(made, wanted), None), [shared]).train_minibatch({x: one, wanted: one})

    def _exchange(self):
        if self.together:
            return 'data_parallel_distributed_learner, over MPI'
        why = ': ' + self.world.reason if self.world else ''
        return 'the smoke test\'s own ring, between Function.grad and Learner.update, for want of an MPI world' + why

    def versions(self):
        # CNTK does not report its CUDA version. A build with CUDA has loaded the CUDA runtime by now, even without a GPU.
        cuda = 'unknown' if mapped.paths('libcudart') else None
        return {'name': 'cntk', 'version': self.cntk.__version__, 'cuda_build': cuda, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        return _Model(self, net, weights, lr, momentum, sync == 'mean' and self.ctx.world > 1)

    def put(self, handle, images, labels):
        if handle.shared:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return _scaled(images), np.eye(nets.CLASSES, dtype='float32')[labels]

    def step(self, handle, batch, lr):
        return handle.step(batch[0], batch[1], lr)

    def loss(self, token):
        return token

    def drain(self):
        """Do nothing: a step ends when its loss is known."""

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        return dict((name, _back(handle.net, name, np.array(handle.tensors[name].value))) for name in handle.net.names)

    def assign(self, handle, copy, weights):
        for name in handle.net.names:
            handle.tensors[name].value = _there(handle.net, name, weights[name])

    def predict(self, handle, images):
        graph = handle.graph(1)
        return np.asarray(graph.logits.eval({graph.images: _scaled(images)}))

    def save(self, handle, folder):
        handle.graph(1).logits.save(os.path.join(folder, FILE))

    def restore(self, handle, folder):
        stored = self.cntk.load_model(os.path.join(folder, FILE))
        for tensor in stored.parameters + stored.constants:
            if tensor.name in handle.tensors:
                handle.tensors[tensor.name].value = np.array(tensor.value)

    def evidence(self, handle):
        place = ['gpu %d' % self.ctx.devices[0] if self.on_gpu else 'cpu']
        return {'parameters': place, 'compute': place, 'memory_bytes': None}

    def close(self):
        if self.world:
            self.cntk.train.distributed.Communicator.finalize()
            self.ctx.group.barrier()        # if a member ended early, mpirun would end the others
            self.world.leave()


class _Model(object):
    """The parameters of a network, their learner, and the graphs that use them."""

    def __init__(self, adapter, net, weights, lr, momentum, shared):
        cntk = self.cntk = adapter.cntk
        self.ctx, self.device, self.on_gpu, self.net, self.shared = adapter.ctx, adapter.device, adapter.on_gpu, net, shared
        self.tensors = dict((name, self._tensor(name, _there(net, name, weights[name]))) for name in net.names)
        for layer in net.layers:
            if layer.op == 'norm':
                # With a count of 0, the running average would become that of the first batch. So the count starts at 1; CNTK
                # only checks for 0: https://github.com/microsoft/CNTK/blob/v2.7/Source/ComputationNetworkLib/TrainingNodes.h
                for end, array in (('mean', np.zeros(layer.shape[0])), ('variance', np.ones(layer.shape[0])), ('count', np.ones(()))):
                    name = '%s_%s' % (layer.name, end)
                    self.tensors[name] = self._tensor(name, array)
        # With a minibatch size of 0, CNTK does not scale the rates by the batch size: each update gets one batch's mean
        # gradient.
        rate, inertia = (cntk.learning_parameter_schedule(lr, 0), cntk.momentum_schedule(momentum, 0))
        trained = [self.tensors[name] for name in net.names]
        self.exchanged = shared and adapter.together
        learner = cntk.momentum_sgd(trained, rate, inertia, unit_gain=False, use_mean_gradient=self.exchanged)
        self.learner = cntk.train.distributed.data_parallel_distributed_learner(learner) if self.exchanged else learner
        self.trained, self.graphs = trained, {}

    def _tensor(self, name, array):
        return self.cntk.parameter(init=np.ascontiguousarray(array, 'float32'), name=name)

    def graph(self, count):
        """Return the graph for batches of this size: CNTK's decay of running means depends on the batch size."""
        if count not in self.graphs:
            self.graphs[count] = _Graph(self, count)
        return self.graphs[count]

    def step(self, images, labels, lr):
        graph = self.graph(len(images))
        batch = {graph.images: images, graph.labels: labels}
        self.learner.reset_learning_rate(self.cntk.learning_parameter_schedule(lr, 0))
        if self.exchanged:
            graph.trainer().train_minibatch(batch)
            return float(graph.trainer().previous_minibatch_loss_average)
        gradients, losses = graph.loss.grad(batch, wrt=self.trained, outputs=[graph.loss.output])
        parts = [np.asarray(gradients[tensor]).reshape(tensor.shape) / np.float32(len(images)) for tensor in self.trained]
        if self.shared:
            parts = self.ctx.group.means(parts)
        self.learner.update(dict((tensor, self._on_device(part)) for tensor, part in zip(self.trained, parts)), 1)
        return float(np.mean(losses))

    def _on_device(self, array):
        return self.cntk.NDArrayView.from_dense(np.ascontiguousarray(array, 'float32'), device=self.device)


class _Graph(object):
    """The graph of a network for batches of one size."""

    def __init__(self, model, count):
        self.cntk, self.tensors, self.learner, self.on_gpu = model.cntk, model.tensors, model.learner, model.on_gpu
        self.images, self.labels = (self.cntk.input_variable(shape) for shape in (model.net.shape, nets.CLASSES))
        # CNTK's time constant is a number of images: after so many images, 1/e of the old average is left.
        self.lasting = -count / np.log(nets.KEPT)
        values = {'images': self.images}
        for layer in model.net.layers:
            values[layer.name] = getattr(self, '_' + layer.op)(layer, *[values[name] for name in layer.of])
        self.logits = values[model.net.layers[-1].name]
        self.loss = self.cntk.cross_entropy_with_softmax(self.logits, self.labels)
        self._trainer = None

    def trainer(self):
        if self._trainer is None:
            self._trainer = self.cntk.Trainer(self.logits, (self.loss, None), [self.learner])
        return self._trainer

    def _conv(self, layer, x):
        # CNTK's convolution has only one way of padding, which is symmetric for these sizes. Its kernel must not be larger than
        # the image without the padding, so small images are padded first.
        small = layer.kernel > x.shape[1]
        if small:
            x = self.cntk.pad(x, [(0, 0)] + [(layer.pad, layer.pad)] * 2)
        padded = [False] + [layer.pad > 0 and not small] * 2
        y = self.cntk.convolution(self.tensors[layer.name + '_w'], x, strides=(layer.stride, layer.stride), auto_padding=padded)
        return y + self.tensors[layer.name + '_b'] if layer.bias else y

    def _norm(self, layer, x):
        own = [self.tensors['%s_%s' % (layer.name, end)] for end in ('w', 'b', 'mean', 'variance', 'count')]
        return self.cntk.batch_normalization(x, *own[:4], running_count=own[4], spatial=True, epsilon=nets.EPSILON,
                                             normalization_time_constant=self.lasting, use_cudnn_engine=self.on_gpu)

    def _relu(self, layer, x):
        return self.cntk.relu(x)

    def _tanh(self, layer, x):
        return self.cntk.tanh(x)

    def _pool(self, layer, x):
        return self.cntk.pooling(x, self.cntk.MAX_POOLING, (2, 2), (2, 2))

    def _average(self, layer, x):
        return self.cntk.pooling(x, self.cntk.AVG_POOLING, (2, 2), (2, 2))

    def _mean(self, layer, x):
        return self.cntk.reshape(self.cntk.reduce_mean(x, axis=(1, 2)), layer.shape)

    def _flatten(self, layer, x):
        return self.cntk.reshape(x, layer.shape)

    def _dense(self, layer, x):
        return self.cntk.times(x, self.tensors[layer.name + '_w']) + self.tensors[layer.name + '_b']

    def _add(self, layer, x, y):
        return x + y


def _there(net, name, array):
    """Return an array in CNTK's layout: dense weights are (in, out), biases of convolutions have axes for height and width."""
    array = np.asarray(array, 'float32')
    if array.ndim == 2:
        return np.ascontiguousarray(array.T)
    return array.reshape(-1, 1, 1) if _of_convolution(net, name) else array


def _back(net, name, array):
    if array.ndim == 2:
        return np.ascontiguousarray(array.T)
    return array.reshape(-1) if _of_convolution(net, name) else array


def _of_convolution(net, name):
    return name.endswith('_b') and dict(net.parameters).get(name[:-1] + 'w', ())[2:] != ()


def _scaled(images):
    return images.astype('float32') / np.float32(255)

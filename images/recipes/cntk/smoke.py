"""CNTK for the smoke test: one process per device, CNTK's own gradients and learner, averaged over the smoke test's ring.

CNTK's distributed learners want processes that mpirun started, with which the ranks of the smoke test would not be its own. So
what data_parallel_distributed_learner does with the gradients before the learner sees them is done here.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import os
import warnings

import numpy as np

NAMES = ('conv1_w', 'conv1_b', 'conv2_w', 'conv2_b', 'fc1_w', 'fc1_b', 'fc2_w', 'fc2_b')


class Adapter(object):
    name = 'cntk'
    style = 'process'
    collective_types = ('float32', 'float64', 'int64')

    def setup(self, ctx):
        # Alone, without mpirun's daemon, which would have to be started for each process.
        os.environ.setdefault('OMPI_MCA_ess_singleton_isolated', '1')
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')     # about GPUs and image readers that are not there
            import cntk
        self.ctx, self.cntk = ctx, cntk
        self.on_gpu = ctx.kind == 'cuda'
        self.device = cntk.gpu(ctx.devices[0]) if self.on_gpu else cntk.cpu()
        if not cntk.try_set_default_device(self.device):
            raise RuntimeError('CNTK does not take the device %s' % self.device)
        self.semantics = {
            'gradient': 'mean', 'exchange': 'the smoke test\'s own ring, between Function.grad and Learner.update: '
            'data_parallel_distributed_learner wants mpirun'}

    def versions(self):
        return {'name': 'cntk', 'version': self.cntk.__version__, 'cuda_build': None, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        cntk = self.cntk
        images, labels = cntk.input_variable((1, 28, 28)), cntk.input_variable(10)
        tensors = [cntk.parameter(init=np.ascontiguousarray(_there(name, weights[name]))) for name in NAMES]
        logits = _lenet(cntk, images, tensors)
        loss = cntk.cross_entropy_with_softmax(logits, labels)
        # No schedule of its own: each update gets the mean gradient of one batch.
        rate, inertia = (cntk.learning_parameter_schedule(lr, 0), cntk.momentum_schedule(momentum, 0))
        learner = cntk.momentum_sgd(tensors, rate, inertia, unit_gain=False)
        return {'images': images, 'labels': labels, 'tensors': tensors, 'logits': logits, 'loss': loss, 'learner': learner,
                'shard': sync == 'mean' and self.ctx.world > 1}

    def put(self, handle, images, labels):
        if handle['shard']:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return {handle['images']: _scaled(images), handle['labels']: np.eye(10, dtype='float32')[labels]}

    def step(self, handle, batch, lr):
        tensors = handle['tensors']
        gradients, losses = handle['loss'].grad(batch, wrt=tensors, outputs=[handle['loss'].output])
        count = len(batch[handle['images']])
        flat = np.concatenate([np.asarray(gradients[tensor]).reshape(-1) for tensor in tensors]) / np.float32(count)
        if handle['shard']:
            flat = self.ctx.group.allreduce(flat.astype('float32')) / np.float32(self.ctx.world)
        handle['learner'].reset_learning_rate(self.cntk.learning_parameter_schedule(lr, 0))
        handle['learner'].update(self._cut(flat, tensors), 1)
        return float(np.mean(losses))

    def _cut(self, flat, tensors):
        out, at = {}, 0
        for tensor in tensors:
            size = int(np.prod(tensor.shape))
            part = np.ascontiguousarray(flat[at:at + size].reshape(tensor.shape), 'float32')
            out[tensor] = self.cntk.NDArrayView.from_dense(part, device=self.device)
            at += size
        return out

    def loss(self, token):
        return token

    def drain(self):
        """A step ends when its loss is known."""

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        return dict((name, _back(name, np.array(tensor.value))) for name, tensor in zip(NAMES, handle['tensors']))

    def predict(self, handle, images):
        return np.asarray(handle['logits'].eval({handle['images']: _scaled(images)}))

    def evidence(self, handle):
        place = ['gpu %d' % self.ctx.devices[0] if self.on_gpu else 'cpu']
        return {'parameters': place, 'compute': place, 'memory_bytes': None}

    def collective(self, op, array, root):
        """Those of the smoke test: CNTK has none that Python could call."""
        if op == 'allreduce':
            return self.ctx.group.allreduce(array)
        if op == 'broadcast':
            return self.ctx.group.broadcast_array(array, root)
        return self.ctx.group.gather_arrays(array)

    def close(self):
        pass


def _there(name, array):
    """CNTK's layout: dense weights are (in, out), biases of convolutions have room for height and width."""
    array = np.asarray(array, 'float32')
    if name.startswith('fc') and name.endswith('_w'):
        return array.T
    return array.reshape(-1, 1, 1) if name in ('conv1_b', 'conv2_b') else array


def _back(name, array):
    if name.startswith('fc') and name.endswith('_w'):
        return array.T
    return array.reshape(-1) if name in ('conv1_b', 'conv2_b') else array


def _lenet(cntk, images, tensors):
    """The reference network."""
    conv1_w, conv1_b, conv2_w, conv2_b, fc1_w, fc1_b, fc2_w, fc2_b = tensors
    whole = [False, False, False]
    x = cntk.relu(cntk.convolution(conv1_w, images, auto_padding=whole) + conv1_b)
    x = cntk.pooling(x, cntk.MAX_POOLING, (2, 2), (2, 2))
    x = cntk.relu(cntk.convolution(conv2_w, x, auto_padding=whole) + conv2_b)
    x = cntk.reshape(cntk.pooling(x, cntk.MAX_POOLING, (2, 2), (2, 2)), (512,))
    return cntk.times(cntk.relu(cntk.times(x, fc1_w) + fc1_b), fc2_w) + fc2_b


def _scaled(images):
    return images.astype('float32') / np.float32(255)

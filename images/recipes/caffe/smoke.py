"""Caffe 1.0 for the smoke test: one process per device, one solver each.

Between GPUs gradients are averaged by Caffe's own NCCL. On the CPU Caffe trains on one device only ("Multi-GPU execution not
available"): there the smoke test's TCP ring averages them, in the place where NCCL would (Solver.add_callback). The learning rate
of a solver is fixed when it is made, so a step's own rate scales the gradients, which is the same for SGD with momentum.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import base64
import os
import tempfile

import numpy as np

LAYERS = ('conv1', 'conv2', 'fc1', 'fc2')
SOLVER = '''
base_lr: %(lr).9g momentum: %(momentum).9g lr_policy: "fixed" max_iter: 1000000000 display: 0 snapshot_after_train: false
solver_mode: %(mode)s
net_param {
  name: "smoke"
  layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 28 dim: 28 } } }
  layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 1 } } }
  layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param { num_output: 16 kernel_size: 5 } }
  layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
  layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
  layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2" convolution_param { num_output: 32 kernel_size: 5 } }
  layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
  layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
  layer { name: "fc1" type: "InnerProduct" bottom: "pool2" top: "fc1" inner_product_param { num_output: 128 } }
  layer { name: "relu3" type: "ReLU" bottom: "fc1" top: "fc1" }
  layer { name: "fc2" type: "InnerProduct" bottom: "fc1" top: "fc2" inner_product_param { num_output: 10 } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc2" bottom: "label" top: "loss" }
}
'''


class Adapter(object):
    name = 'caffe'
    style = 'process'
    collective_types = ('float32', 'float64', 'int64')

    def setup(self, ctx):
        os.environ.setdefault('GLOG_minloglevel', '2')      # a line for each layer otherwise; read when the library loads
        import caffe
        self.ctx, self.caffe = ctx, caffe
        self.on_gpu = ctx.kind == 'cuda'
        self.semantics = {'gradient': 'mean', 'exchange': self.claim(ctx)}

    def claim(self, ctx):
        """Take the device; words for how gradients are exchanged."""
        if not self.on_gpu:
            self.caffe.set_mode_cpu()
            return 'the smoke test\'s own ring, from Solver.add_callback: Caffe has no CPU multi-device training'
        self.caffe.set_device(ctx.devices[0])
        self.caffe.set_mode_gpu()
        self.caffe.set_solver_count(ctx.world)
        self.caffe.set_solver_rank(ctx.rank)
        self.caffe.set_multiprocess(ctx.world > 1)
        return 'caffe.NCCL'

    def versions(self):
        return {'name': 'caffe', 'version': self.caffe.__version__, 'cuda_build': None, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        solver = self._solver(lr, momentum)
        handle = {'solver': solver, 'net': solver.net, 'shard': sync == 'mean' and self.ctx.world > 1, 'lr': lr, 'scale': 1.0}
        handle['blobs'] = [(name + end, solver.net.params[name][place]) for name in LAYERS for place, end in enumerate(('_w', '_b'))]
        for name, blob in handle['blobs']:
            blob.data[...] = weights[name]
        self.listen(handle)
        return handle

    def listen(self, handle):
        """Be called when gradients are ready: NCCL first, then the smoke test."""
        solver = handle['solver']
        if handle['shard'] and self.on_gpu:
            handle['nccl'] = self.caffe.NCCL(solver, base64.b64decode(self.ctx.group.broadcast(self._uid())))
            handle['nccl'].bcast()
            solver.add_callback(handle['nccl'])
        solver.add_callback(lambda: None, lambda: self._finish(handle))

    def _solver(self, lr, momentum):
        with tempfile.NamedTemporaryFile(suffix='.prototxt') as stream:
            stream.write((SOLVER % {'lr': lr, 'momentum': momentum, 'mode': 'GPU' if self.on_gpu else 'CPU'}).encode('ascii'))
            stream.flush()
            return self.caffe.SGDSolver(stream.name)

    def _uid(self):
        return base64.b64encode(self.caffe.NCCL.new_uid()).decode('ascii') if self.ctx.rank == 0 else ''

    def _finish(self, handle):
        """Between backward pass and update."""
        gradients = [blob.diff for _, blob in handle['blobs']]
        if handle['shard'] and not self.on_gpu:
            flat = np.concatenate([gradient.reshape(-1) for gradient in gradients])
            flat = self.ctx.group.allreduce(flat) / np.float32(self.ctx.world)
            at = 0
            for gradient in gradients:
                gradient[...] = flat[at:at + gradient.size].reshape(gradient.shape)
                at += gradient.size
        if handle['scale'] != 1.0:
            for gradient in gradients:
                gradient *= np.float32(handle['scale'])

    def put(self, handle, images, labels):
        if handle['shard']:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return _scaled(images), labels.astype('float32')

    def step(self, handle, batch, lr):
        handle['scale'] = lr / handle['lr']
        self._feed(handle['net'], *batch)
        handle['solver'].step(1)
        return float(handle['net'].blobs['loss'].data)

    @staticmethod
    def _feed(net, images, labels):
        for name, array in (('data', images), ('label', labels)):
            if net.blobs[name].data.shape != array.shape:
                net.blobs[name].reshape(*array.shape)
            net.blobs[name].data[...] = array

    def loss(self, token):
        return token

    def drain(self):
        """A step ends when its loss is known."""

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        return dict((name, np.array(blob.data)) for name, blob in handle['blobs'])

    def predict(self, handle, images):
        self._feed(handle['net'], _scaled(images), np.zeros(len(images), 'float32'))
        return np.array(handle['net'].forward(end='fc2')['fc2'])

    def evidence(self, handle):
        place = ['gpu %d' % self.ctx.devices[0] if self.on_gpu else 'cpu']
        return {'parameters': place, 'compute': place, 'memory_bytes': None}

    def collective(self, op, array, root):
        """Those of the smoke test: Caffe has none that Python could call."""
        if op == 'allreduce':
            return self.ctx.group.allreduce(array)
        if op == 'broadcast':
            return self.ctx.group.broadcast_array(array, root)
        return self.ctx.group.gather_arrays(array)

    def close(self):
        pass


def _scaled(images):
    return images.astype('float32') / np.float32(255)

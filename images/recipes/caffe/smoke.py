"""Caffe 1.0 for the smoke test: one process per device, one solver each.

Between GPUs Caffe averages the gradients with NCCL. On the CPU Caffe trains on one device only ("Multi-GPU execution not
available"). So the smoke test's TCP ring averages the gradients, at the same point of a step (Solver.add_callback). The
learning rate of a solver is fixed when it is made. To use another rate in a step, the adapter scales the gradients; for SGD
with momentum this has the same effect.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import base64
import os
import tempfile

import numpy as np

from ..machine import mapped
from ..networks import nets

SOLVER = '''
base_lr: %(lr).9g momentum: %(momentum).9g lr_policy: "fixed" max_iter: 1000000000 display: 0 snapshot_after_train: false
solver_mode: %(mode)s
net_param { %(net)s }
'''
LAYER = 'layer { name: "%s" type: "%s" %s top: "%s" %s }'
# Caffe's name of each layer, and its settings.
TYPES = {
    'conv': ('Convolution', 'convolution_param { num_output: %(out)d kernel_size: %(kernel)d stride: %(stride)d pad: %(pad)d '
                            'bias_term: %(bias)s }'),
    'norm': ('BatchNorm', 'batch_norm_param { eps: %(epsilon).9g moving_average_fraction: %(kept).9g }'),
    'relu': ('ReLU', ''),
    'tanh': ('TanH', ''),
    'pool': ('Pooling', 'pooling_param { pool: MAX kernel_size: 2 stride: 2 }'),
    'average': ('Pooling', 'pooling_param { pool: AVE kernel_size: 2 stride: 2 }'),
    'mean': ('Pooling', 'pooling_param { pool: AVE global_pooling: true }'),
    'flatten': ('Flatten', ''),
    'dense': ('InnerProduct', 'inner_product_param { num_output: %(out)d }'),
    'add': ('Eltwise', 'eltwise_param { operation: SUM }'),
}
SCALED = '_scaled'          # Caffe's batch normalisation has no factor and no bias: a separate layer after it adds them
FILE = 'network.caffemodel'


class Adapter(object):
    name = 'caffe'
    style = 'process'

    def setup(self, ctx):
        os.environ.setdefault('GLOG_minloglevel', '2')      # no log line per layer; the library reads this when it loads
        import caffe
        self.ctx, self.caffe = ctx, caffe
        self.on_gpu = ctx.kind == 'cuda'
        self.semantics = {'gradient': 'mean', 'exchange': self.claim(ctx)}

    def claim(self, ctx):
        """Take the device; return a description of how gradients are exchanged."""
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
        # Caffe does not report its CUDA version. A build with CUDA has loaded the CUDA runtime by now, even without a GPU.
        cuda = 'unknown' if mapped.paths('libcudart') else None
        return {'name': 'caffe', 'version': self.caffe.__version__, 'cuda_build': cuda, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        words = _words(net)
        loss = LAYER % ('loss', 'SoftmaxWithLoss', 'bottom: "%s" bottom: "label"' % _top(net.layers[-1]), 'loss', '')
        settings = {'lr': lr, 'momentum': momentum, 'mode': 'GPU' if self.on_gpu else 'CPU', 'net': words + loss}
        solver = self._read(self.caffe.SGDSolver, SOLVER % settings)
        answer = self._read(self.caffe.Net, words, self.caffe.TEST)
        answer.share_with(solver.net)
        handle = {'solver': solver, 'net': solver.net, 'answer': answer, 'shard': sync == 'mean' and self.ctx.world > 1, 'lr': lr,
                  'scale': 1.0, 'logits': _top(net.layers[-1]), 'blobs': _blobs(net, solver.net)}
        self.assign(handle, 0, weights)
        for layer in net.layers:
            if layer.op == 'norm':
                self.begin(solver.net.params[layer.name])
        self.listen(handle)
        return handle

    @staticmethod
    def begin(blobs):
        """Set running means to 0 and variances to 1.

        Caffe keeps weighted sums and the sum of the weights, whose limit is 1 / (1 - fraction). Starting at this limit makes
        the sums decay like the running averages of other frameworks:
        https://github.com/BVLC/caffe/blob/1.0/src/caffe/layers/batch_norm_layer.cpp
        """
        mean, variance, worth = blobs
        mean.data[...] = 0
        worth.data[...] = variance.data[...] = 1 / (1 - nets.KEPT)

    def listen(self, handle):
        """Register callbacks for the moment when gradients are ready: NCCL first, then the smoke test."""
        solver = handle['solver']
        if handle['shard'] and self.on_gpu:
            handle['nccl'] = self.caffe.NCCL(solver, base64.b64decode(self.ctx.group.broadcast(self._uid())))
            handle['nccl'].bcast()
            solver.add_callback(handle['nccl'])
        solver.add_callback(lambda: None, lambda: self._finish(handle))

    @staticmethod
    def _read(kind, text, *arguments):
        """Write the network to a file, because Caffe reads networks from files only."""
        with tempfile.NamedTemporaryFile(suffix='.prototxt') as stream:
            stream.write(text.encode('ascii'))
            stream.flush()
            return kind(stream.name, *arguments)

    def _uid(self):
        return base64.b64encode(self.caffe.NCCL.new_uid()).decode('ascii') if self.ctx.rank == 0 else ''

    def _finish(self, handle):
        """Exchange the gradients between backward pass and update."""
        gradients = [blob.diff for _, blob in handle['blobs']]
        if handle['shard'] and not self.on_gpu:
            for gradient, mean in zip(gradients, self.ctx.group.means(gradients)):
                gradient[...] = mean
        if handle['scale'] != 1.0:
            for gradient in gradients:
                gradient *= np.float32(handle['scale'])

    def put(self, handle, images, labels):
        if handle['shard']:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return {'images': _scaled(images), 'label': labels.astype('float32')}

    def step(self, handle, batch, lr):
        handle['scale'] = lr / handle['lr']
        self._feed(handle['net'], batch)
        handle['solver'].step(1)
        return float(handle['net'].blobs['loss'].data)

    @staticmethod
    def _feed(net, arrays):
        for name, array in arrays.items():
            if net.blobs[name].data.shape != array.shape:
                net.blobs[name].reshape(*array.shape)
            net.blobs[name].data[...] = array

    def loss(self, token):
        return token

    def drain(self):
        """Do nothing: a step ends when its loss is known."""

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        return dict((name, np.array(blob.data)) for name, blob in handle['blobs'])

    def assign(self, handle, copy, weights):
        for name, blob in handle['blobs']:
            blob.data[...] = weights[name]

    def predict(self, handle, images):
        self._feed(handle['answer'], {'images': _scaled(images), 'label': np.zeros(len(images), 'float32')})
        return np.array(handle['answer'].forward()[handle['logits']])

    def save(self, handle, folder):
        handle['net'].save(os.path.join(folder, FILE))

    def restore(self, handle, folder):
        handle['net'].copy_from(os.path.join(folder, FILE))

    def evidence(self, handle):
        place = ['gpu %d' % self.ctx.devices[0] if self.on_gpu else 'cpu']
        return {'parameters': place, 'compute': place, 'memory_bytes': None}

    def close(self):
        pass


def _words(net):
    """Return the network from images and labels up to the logits, as the text of a prototxt file."""
    dims = ' '.join('dim: %d' % size for size in (1,) + tuple(net.shape))
    lines = [LAYER % ('images', 'Input', '', 'images', 'input_param { shape { %s } }' % dims),
             LAYER % ('label', 'Input', '', 'label', 'input_param { shape { dim: 1 } }')]
    tops = {'images': 'images'}
    for layer in net.layers:
        kind, settings = TYPES[layer.op]
        settings %= {'out': layer.shape[0], 'kernel': layer.kernel or 0, 'stride': layer.stride, 'pad': layer.pad,
                     'bias': 'true' if layer.bias else 'false', 'epsilon': nets.EPSILON, 'kept': nets.KEPT}
        lines.append(LAYER % (layer.name, kind, ' '.join('bottom: "%s"' % tops[name] for name in layer.of), layer.name, settings))
        tops[layer.name] = _top(layer)
        if layer.op == 'norm':
            name = tops[layer.name]
            lines.append(LAYER % (name, 'Scale', 'bottom: "%s"' % layer.name, name, 'scale_param { bias_term: true }'))
    return '\n'.join(lines)


def _top(layer):
    """Return the name of the layer's output."""
    return layer.name + SCALED if layer.op == 'norm' else layer.name


def _blobs(net, built):
    """Return [(parameter, its blob)] in the order of net.names."""
    tops = dict((layer.name, _top(layer)) for layer in net.layers)
    return [(name, built.params[tops[name[:-2]]]['wb'.index(name[-1])]) for name in net.names]


def _scaled(images):
    return images.astype('float32') / np.float32(255)

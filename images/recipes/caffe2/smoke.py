"""Caffe2 for the smoke test, from PyTorch's wheels or (older releases) from its own: all devices in one process.

data_parallel_model adds up the gradients of the N devices. So the forward pass must multiply its loss by 1/N, which it gets
as `loss_scale`. Each handle has separate workspaces, because the names of blobs are global within a workspace.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import itertools
import os
import re
import sys
import warnings

import numpy as np

from ..networks.nets import EPSILON, KEPT

SAVED = 'model.minidb'


class Adapter(object):
    name = 'caffe2'
    style = 'single'
    deterministic = {}          # further arguments of convolutions: see exact()

    def setup(self, ctx):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            from caffe2.proto import caffe2_pb2
            from caffe2.python import brew, core, data_parallel_model, model_helper, workspace
        self.ctx, self.brew, self.core, self.workspace = ctx, brew, core, workspace
        self.model_helper, self.parallel = model_helper, data_parallel_model
        self.on_gpu = ctx.kind == 'cuda'
        self.kind = caffe2_pb2.CUDA if self.on_gpu else caffe2_pb2.CPU
        self.numbers = itertools.count()
        workspace.GlobalInit(['caffe2', '--caffe2_log_level=2'])
        self.semantics = {'gradient': 'sum of losses that are scaled by 1/devices', 'exchange': 'data_parallel_model'}

    def exact(self, wanted):
        self.deterministic = {'deterministic': 1} if wanted else {}

    def versions(self):
        version, cuda = _by_itself() if 'repository' in self.ctx.options else _in_torch()
        return {'name': 'caffe2', 'version': version, 'cuda_build': cuda, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        groups = [replicas] if sync == 'mean' else [[replica] for replica in replicas]
        return [_Group(self, net, weights, lr, momentum, [self.ctx.devices[replica] for replica in group]) for group in groups]

    def put(self, handle, images, labels):
        """Give each group of the handle its part of the batch, in one shard per device."""
        parts, number, out = sum(len(group.devices) for group in handle), 0, []
        for group in handle:
            shards = []
            for _ in group.devices:
                x, y = (self.ctx.shard(array, number, parts) for array in (images, labels))
                shards.append((_scaled(x), y.astype('int32')))
                number += 1
            out.append(shards)
        return out

    def step(self, handle, batch, lr):
        return [group.step(shards, lr) for group, shards in zip(handle, batch)]

    def loss(self, token):
        return float(np.mean(token))

    def drain(self):
        """Do nothing: a step ends when its loss is known."""

    def copies(self, handle):
        return sum(len(group.devices) for group in handle)

    @staticmethod
    def _copy(handle, copy):
        """Return (group, device) of this copy."""
        return [(group, device) for group in handle for device in group.devices][copy]

    def weights(self, handle, copy):
        group, device = self._copy(handle, copy)
        return dict((name, group.fetch(device, blob)) for name, blob in group.blobs)

    def assign(self, handle, copy, weights):
        group, device = self._copy(handle, copy)
        group.assign(device, weights)

    def predict(self, handle, images):
        return handle[0].predict(_scaled(images))

    def save(self, handle, folder):
        handle[0].save(os.path.join(folder, SAVED))

    def restore(self, handle, folder):
        for group in handle:
            group.restore(os.path.join(folder, SAVED))

    def evidence(self, handle):
        places = sorted(set(group.scope(device) for group in handle for device in group.devices))
        return {'parameters': places, 'compute': places, 'memory_bytes': None}

    def close(self):
        self.workspace.ResetWorkspace()


def _in_torch():
    """Return the version and the CUDA version of the PyTorch whose wheel contains Caffe2."""
    import torch
    return torch.__version__, torch.version.cuda


def _by_itself():
    """Return the version in Caffe2's header and the version of the loaded CUDA runtime: Python cannot ask Caffe2 for either."""
    with open(os.path.join(sys.prefix, 'include', 'caffe2', 'core', 'macros.h')) as header:
        numbers = re.findall(r'#define CAFFE2_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)', header.read())
    with open('/proc/self/maps') as maps:
        runtime = re.search(r'libcudart\.so\.(\d+\.\d+)', maps.read())
    return '.'.join(numbers), runtime.group(1) if runtime else None


class _Group(object):
    """Devices that are trained together, in a separate workspace. `blobs` is [(parameter, its blob)]."""

    def __init__(self, adapter, net, weights, lr, momentum, devices):
        self.adapter, self.net, self.devices, self.momentum, self.lr = adapter, net, devices, momentum, lr
        norms = [layer.name for layer in net.layers if layer.op == 'norm']
        self.blobs = [(name, name[:-1] + 's' if name.endswith('_w') and name[:-2] in norms else name) for name in net.names]
        self.running = [name + end for name in norms for end in ('_rm', '_riv')]
        self.name = 'smoke%d' % next(adapter.numbers)
        self._enter()
        model = adapter.model_helper.ModelHelper(name=self.name, arg_scope={'order': 'NCHW'})
        for device in devices:
            self.feed(device, 'data', np.zeros((1,) + net.shape, 'float32'))
            self.feed(device, 'label', np.zeros(1, 'int32'))
        # Each device keeps its own running means. By default, Caffe2 sends those of the first device to all others after
        # every step.
        adapter.parallel.Parallelize(
            model, input_builder_fun=lambda model: None, forward_pass_builder_fun=self._forward,
            param_update_builder_fun=self._update, devices=devices, cpu_device=not adapter.on_gpu,
            optimize_gradient_memory=False, broadcast_computed_params=False)
        adapter.workspace.RunNetOnce(model.param_init_net)
        adapter.workspace.CreateNet(model.net)
        self.training = model.net
        for device in devices:
            self.assign(device, weights)
        self.test = self._test_net()

    def _enter(self):
        self.adapter.workspace.SwitchWorkspace(self.name, True)

    def scope(self, device):
        return '%s_%d' % ('gpu' if self.adapter.on_gpu else 'cpu', device)

    def place(self, device):
        return self.adapter.core.DeviceOption(self.adapter.kind, device if self.adapter.on_gpu else 0)

    def feed(self, device, name, array):
        self.adapter.workspace.FeedBlob('%s/%s' % (self.scope(device), name), array, self.place(device))

    def fetch(self, device, name):
        self._enter()
        return np.array(self.adapter.workspace.FetchBlob('%s/%s' % (self.scope(device), name)))

    def assign(self, device, weights):
        self._enter()
        for name, blob in self.blobs:
            self.feed(device, blob, np.array(weights[name], 'float32'))

    def _logits(self, model, images, test):
        brew, shapes, known = self.adapter.brew, dict(self.net.parameters), {'images': images}
        run = {
            'conv': lambda layer, x: brew.conv(model, x, layer.name, shapes[layer.name + '_w'][1], layer.shape[0], layer.kernel,
                                               stride=layer.stride, pad=layer.pad, **dict(self.adapter.deterministic, **({} if layer.bias else {'no_bias': 1}))),
            # Caffe2 calls the share of the old running mean its momentum.
            'norm': lambda layer, x: brew.spatial_bn(
                model, x, layer.name, layer.shape[0], epsilon=EPSILON, momentum=KEPT, is_test=test),
            'relu': lambda layer, x: brew.relu(model, x, layer.name),
            'tanh': lambda layer, x: model.net.Tanh(x, layer.name),
            'pool': lambda layer, x: brew.max_pool(model, x, layer.name, kernel=2, stride=2),
            'average': lambda layer, x: brew.average_pool(model, x, layer.name, kernel=2, stride=2),
            'mean': lambda layer, x: brew.average_pool(model, x, layer.name, global_pooling=1),
            'flatten': lambda layer, x: x,      # the dense layer flattens its input, also the output of a mean
            'dense': lambda layer, x: brew.fc(model, x, layer.name, *reversed(shapes[layer.name + '_w'])),
            'add': lambda layer, x, y: brew.sum(model, [x, y], layer.name),
        }
        for layer in self.net.layers:
            known[layer.name] = run[layer.op](layer, *[known[name] for name in layer.of])
        return known[self.net.layers[-1].name]

    def _forward(self, model, loss_scale):
        logits = self._logits(model, 'data', False)
        _, loss = model.net.SoftmaxWithLoss([logits, 'label'], ['softmax', 'loss'], scale=loss_scale)
        return [loss]

    def _update(self, model):
        rate = model.param_init_net.ConstantFill([], 'lr', shape=[1], value=self.lr)
        for tensor in model.GetParams():
            # Pass the name without the device's scope: the scope is added again.
            past = model.param_init_net.ConstantFill([tensor], str(tensor).split('/')[-1] + '_momentum', value=0.0)
            gradient = model.param_to_grad[tensor]
            model.net.MomentumSGDUpdate(
                [gradient, past, rate, tensor], [gradient, past, tensor], momentum=self.momentum, nesterov=0)

    def _test_net(self):
        core, device = self.adapter.core, self.devices[0]
        model = self.adapter.model_helper.ModelHelper(name=self.name + '_test', arg_scope={'order': 'NCHW'}, init_params=False)
        self.feed(device, 'unseen', np.zeros((1,) + self.net.shape, 'float32'))
        with core.NameScope(self.scope(device)), core.DeviceScope(self.place(device)):
            self._logits(model, 'unseen', True)
        self.adapter.workspace.CreateNet(model.net)
        return model.net

    def step(self, shards, lr):
        self._enter()
        for device, (images, labels) in zip(self.devices, shards):
            self.feed(device, 'data', images)
            self.feed(device, 'label', labels)
            self.feed(device, 'lr', np.array([lr], 'float32'))
        self.adapter.workspace.RunNet(self.training)
        return sum(float(self.fetch(device, 'loss')) for device in self.devices)

    def predict(self, images):
        self._enter()
        self.feed(self.devices[0], 'unseen', images)
        self.adapter.workspace.RunNet(self.test)
        return self.fetch(self.devices[0], self.net.layers[-1].name)

    def save(self, path):
        prefix = self.scope(self.devices[0]) + '/'
        self._file('Save', [prefix + name for name in self._everything()], [], path, self.devices[0], strip_prefix=prefix)

    def restore(self, path):
        for device in self.devices:
            prefix = self.scope(device) + '/'
            self._file('Load', [], [prefix + name for name in self._everything()], path, device, add_prefix=prefix)

    def _everything(self):
        return [blob for _, blob in self.blobs] + self.running

    def _file(self, what, reads, gives, path, device, **names):
        """Run `what`, an operator that saves or loads blobs, on a file: Caffe2's format is a small one-file database."""
        self._enter()
        self.adapter.workspace.RunOperatorOnce(self.adapter.core.CreateOperator(
            what, reads, gives, db=path, db_type='minidb', absolute_path=1, device_option=self.place(device), **names))


def _scaled(images):
    return images.astype('float32') / np.float32(255)

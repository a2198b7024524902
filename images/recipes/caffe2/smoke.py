"""Caffe2, the part inside PyTorch's wheels or, before, by itself, for the smoke test: all devices in one process, through data_parallel_model.

It adds up the gradients of the devices, so the forward pass must scale its loss by the 1/N that it is given. Each handle has
workspaces of its own, since blobs are global names.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import itertools
import os
import re
import sys
import warnings

import numpy as np

NAMES = ('conv1_w', 'conv1_b', 'conv2_w', 'conv2_b', 'fc1_w', 'fc1_b', 'fc2_w', 'fc2_b')


class Adapter(object):
    name = 'caffe2'
    style = 'single'

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

    def versions(self):
        version, cuda = _by_itself() if 'repository' in self.ctx.options else _in_torch()
        return {'name': 'caffe2', 'version': version, 'cuda_build': cuda, 'cudnn': None, 'nccl': None, 'arch_list': []}

    def make(self, net, weights, lr, momentum, replicas, sync):
        groups = [replicas] if sync == 'mean' else [[replica] for replica in replicas]
        return [_Group(self, weights, lr, momentum, [self.ctx.devices[replica] for replica in group]) for group in groups]

    def put(self, handle, images, labels):
        """For each group of the handle its part of the batch, in one shard per device."""
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
        """A step ends when its loss is known."""

    def copies(self, handle):
        return sum(len(group.devices) for group in handle)

    def weights(self, handle, copy):
        group, device = [(group, device) for group in handle for device in group.devices][copy]
        return dict((name, group.fetch(device, name)) for name in NAMES)

    def predict(self, handle, images):
        return handle[0].predict(_scaled(images))

    def evidence(self, handle):
        places = sorted(set(group.scope(device) for group in handle for device in group.devices))
        return {'parameters': places, 'compute': places, 'memory_bytes': None}

    def close(self):
        self.workspace.ResetWorkspace()


def _in_torch():
    """The version, and the CUDA, of the PyTorch that it is a part of."""
    import torch
    return torch.__version__, torch.version.cuda


def _by_itself():
    """What its header says, and which CUDA runtime it has loaded: it tells neither in Python."""
    with open(os.path.join(sys.prefix, 'include', 'caffe2', 'core', 'macros.h')) as header:
        numbers = re.findall(r'#define CAFFE2_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)', header.read())
    with open('/proc/self/maps') as maps:
        runtime = re.search(r'libcudart\.so\.(\d+\.\d+)', maps.read())
    return '.'.join(numbers), runtime.group(1) if runtime else None


class _Group(object):
    """Devices that are trained together, in a workspace of their own."""

    def __init__(self, adapter, weights, lr, momentum, devices):
        self.adapter, self.devices, self.momentum, self.lr = adapter, devices, momentum, lr
        self.name = 'smoke%d' % next(adapter.numbers)
        self._enter()
        model = adapter.model_helper.ModelHelper(name=self.name, arg_scope={'order': 'NCHW'})
        for device in devices:
            self.feed(device, 'data', np.zeros((1, 1, 28, 28), 'float32'))
            self.feed(device, 'label', np.zeros(1, 'int32'))
        adapter.parallel.Parallelize(
            model, input_builder_fun=lambda model: None, forward_pass_builder_fun=self._forward, param_update_builder_fun=self._update,
            devices=devices, cpu_device=not adapter.on_gpu, optimize_gradient_memory=False)
        adapter.workspace.RunNetOnce(model.param_init_net)
        adapter.workspace.CreateNet(model.net)
        self.net = model.net
        for device in devices:
            for name in NAMES:
                self.feed(device, name, np.asarray(weights[name], 'float32'))
        self.test = self._test_net()

    def _enter(self):
        self.adapter.workspace.SwitchWorkspace(self.name, True)

    def scope(self, device):
        return '%s_%d' % ('gpu' if self.adapter.on_gpu else 'cpu', device)

    def feed(self, device, name, array):
        option = self.adapter.core.DeviceOption(self.adapter.kind, device if self.adapter.on_gpu else 0)
        self.adapter.workspace.FeedBlob('%s/%s' % (self.scope(device), name), array, option)

    def fetch(self, device, name):
        self._enter()
        return np.array(self.adapter.workspace.FetchBlob('%s/%s' % (self.scope(device), name)))

    def _logits(self, model, x):
        brew = self.adapter.brew
        x = brew.relu(model, brew.conv(model, x, 'conv1', 1, 16, 5), 'relu1')
        x = brew.max_pool(model, x, 'pool1', kernel=2, stride=2)
        x = brew.relu(model, brew.conv(model, x, 'conv2', 16, 32, 5), 'relu2')
        x = brew.max_pool(model, x, 'pool2', kernel=2, stride=2)
        x = brew.relu(model, brew.fc(model, x, 'fc1', 512, 128), 'relu3')
        return brew.fc(model, x, 'fc2', 128, 10)

    def _forward(self, model, loss_scale):
        _, loss = model.net.SoftmaxWithLoss([self._logits(model, 'data'), 'label'], ['softmax', 'loss'], scale=loss_scale)
        return [loss]

    def _update(self, model):
        rate = model.param_init_net.ConstantFill([], 'lr', shape=[1], value=self.lr)
        for tensor in model.GetParams():
            # By its bare name: the scope of the device is added again.
            past = model.param_init_net.ConstantFill([tensor], str(tensor).split('/')[-1] + '_momentum', value=0.0)
            gradient = model.param_to_grad[tensor]
            model.net.MomentumSGDUpdate([gradient, past, rate, tensor], [gradient, past, tensor], momentum=self.momentum, nesterov=0)

    def _test_net(self):
        core, device = self.adapter.core, self.devices[0]
        model = self.adapter.model_helper.ModelHelper(name=self.name + '_test', arg_scope={'order': 'NCHW'}, init_params=False)
        self.feed(device, 'unseen', np.zeros((1, 1, 28, 28), 'float32'))
        with core.NameScope(self.scope(device)), core.DeviceScope(core.DeviceOption(self.adapter.kind, device if self.adapter.on_gpu else 0)):
            self._logits(model, 'unseen')
        self.adapter.workspace.CreateNet(model.net)
        return model.net

    def step(self, shards, lr):
        self._enter()
        for device, (images, labels) in zip(self.devices, shards):
            self.feed(device, 'data', images)
            self.feed(device, 'label', labels)
            self.feed(device, 'lr', np.array([lr], 'float32'))
        self.adapter.workspace.RunNet(self.net)
        return sum(float(self.fetch(device, 'loss')) for device in self.devices)

    def predict(self, images):
        self._enter()
        self.feed(self.devices[0], 'unseen', images)
        self.adapter.workspace.RunNet(self.test)
        return self.fetch(self.devices[0], 'fc2')


def _scaled(images):
    return images.astype('float32') / np.float32(255)

"""PyTorch from 0.4 on for the smoke test: one process per device, DistributedDataParallel.

NCCL between GPUs, Gloo between CPU workers. DistributedDataParallel trains CPU modules from 1.1 on (before, it raises
IndexError: https://github.com/pytorch/pytorch/pull/16265), so older ones average one flat buffer of gradients on the CPU.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import socket

import numpy as np


class Adapter(object):
    name = 'pytorch'
    style = 'process'
    collective_types = ('float32', 'float64', 'int64')

    def setup(self, ctx):
        import torch
        self.ctx, self.torch = ctx, torch
        self.version = tuple(int(part) for part in torch.__version__.split('.')[:2])
        self.on_gpu = ctx.kind == 'cuda'
        torch.set_num_threads(ctx.threads)
        torch.set_flush_denormal(True)
        if self.on_gpu:
            torch.cuda.set_device(ctx.devices[0])
            torch.backends.cudnn.benchmark = True
            self._full_precision()
        self.device = torch.device('cuda', ctx.devices[0]) if self.on_gpu else torch.device('cpu')
        self.wraps = self.on_gpu or self.version >= (1, 1)
        self.semantics = {
            'gradient': 'mean', 'backend': 'nccl' if self.on_gpu else 'gloo',
            'exchange': 'DistributedDataParallel' if self.wraps else 'one flat buffer by all_reduce: '
                        'DistributedDataParallel of this release trains no CPU modules',
        }
        if ctx.world > 1:
            self.join()

    def join(self):
        """Meet the other processes; adapters of what stands on PyTorch do it in their own way."""
        self.torch.distributed.init_process_group(
            self.semantics['backend'], init_method='tcp://127.0.0.1:%d' % self._agreed_port(), rank=self.ctx.rank,
            world_size=self.ctx.world)

    def _full_precision(self):
        for owner in (getattr(self.torch.backends.cuda, 'matmul', None), self.torch.backends.cudnn):
            if hasattr(owner, 'allow_tf32'):
                owner.allow_tf32 = False

    def _agreed_port(self):
        port = 0
        if self.ctx.rank == 0:
            probe = socket.socket()
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]
            probe.close()
        return self.ctx.group.broadcast(port)

    def versions(self):
        torch, cuda = self.torch, self.torch.version.cuda
        flags = getattr(torch._C, '_cuda_getArchFlags', None)       # get_arch_list() is empty where there is no GPU
        return {
            'name': 'pytorch', 'version': torch.__version__, 'cuda_build': cuda,
            'cudnn': _cudnn(torch.backends.cudnn.version()) if cuda else None, 'nccl': self._nccl() if cuda else None,
            'arch_list': ((flags() if flags else '') or '').split() if cuda else [],
        }

    def _nccl(self):
        try:
            found = self.torch.cuda.nccl.version()
        except (AttributeError, RuntimeError):
            return None
        if isinstance(found, tuple):
            return '.'.join(str(part) for part in found)
        return '%d.%d.%d' % (found // 1000, found % 1000 // 100, found % 100)

    def make(self, net, weights, lr, momentum, replicas, sync):
        nn = self.torch.nn
        layers = [nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5), nn.Linear(512, 128), nn.Linear(128, 10)]
        model = _lenet(nn, layers)
        model = model.to(self.device)
        tensors = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
        with self.torch.no_grad():
            for tensor, name in zip(tensors, NAMES):
                tensor.copy_(self.torch.from_numpy(np.asarray(weights[name], 'float32')))
        together = sync == 'mean' and self.ctx.world > 1
        handle = {'model': model, 'run': model, 'tensors': tensors, 'shard': together, 'flat': together and not self.wraps}
        if together and self.wraps:
            handle['run'] = nn.parallel.DistributedDataParallel(model, **({'device_ids': [self.ctx.devices[0]]} if self.on_gpu else {}))
        handle['sgd'] = self.torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        return handle

    def put(self, handle, images, labels):
        if handle['shard']:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return self._images(images), self.torch.from_numpy(np.array(labels)).to(self.device)

    def _images(self, images):
        return self.torch.from_numpy(images.astype('float32') / np.float32(255)).to(self.device)

    def step(self, handle, batch, lr):
        for group in handle['sgd'].param_groups:
            group['lr'] = lr
        handle['sgd'].zero_grad()
        loss = self.torch.nn.functional.cross_entropy(handle['run'](batch[0]), batch[1])
        loss.backward()
        if handle['flat']:
            self._average([tensor.grad for tensor in handle['tensors']])
        handle['sgd'].step()
        return loss.detach()

    def _average(self, gradients):
        with self.torch.no_grad():
            flat = self.torch.cat([gradient.contiguous().view(-1) for gradient in gradients])
            self.torch.distributed.all_reduce(flat)
            flat /= self.ctx.world
            at = 0
            for gradient in gradients:
                gradient.copy_(flat[at:at + gradient.numel()].view_as(gradient))
                at += gradient.numel()

    def loss(self, token):
        return float(token.item())

    def drain(self):
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def copies(self, handle):
        return 1

    def weights(self, handle, copy):
        return dict((name, tensor.detach().cpu().numpy()) for name, tensor in zip(NAMES, handle['tensors']))

    def predict(self, handle, images):
        with self.torch.no_grad():
            return handle['model'](self._images(images)).cpu().numpy()

    def evidence(self, handle):
        place = sorted(set(str(tensor.device) for tensor in handle['tensors']))
        return {'parameters': place, 'compute': place,
                'memory_bytes': int(self.torch.cuda.max_memory_allocated()) if self.on_gpu else None}

    def collective(self, op, array, root):
        distributed, tensor = self.torch.distributed, self.torch.from_numpy(array).to(self.device)
        if op == 'allreduce':
            distributed.all_reduce(tensor)
        elif op == 'broadcast':
            distributed.broadcast(tensor, root)
        else:
            parts = [self.torch.zeros_like(tensor) for _ in range(self.ctx.world)]
            distributed.all_gather(parts, tensor)
            return [part.cpu().numpy() for part in parts]
        return tensor.cpu().numpy()

    def close(self):
        if self.ctx.world > 1 and hasattr(self.torch.distributed, 'destroy_process_group'):
            self.torch.distributed.destroy_process_group()


NAMES = ('conv1_w', 'conv1_b', 'conv2_w', 'conv2_b', 'fc1_w', 'fc1_b', 'fc2_w', 'fc2_b')


def _lenet(nn, layers):
    """The reference network. The class is made here because its base exists only once the framework is imported."""
    class LeNet(nn.Module):
        def __init__(self):
            super(LeNet, self).__init__()
            self.conv1, self.conv2, self.fc1, self.fc2 = layers
            self.pool, self.relu = nn.MaxPool2d(2), nn.ReLU()

        def forward(self, x):
            x = self.pool(self.relu(self.conv1(x)))
            x = self.pool(self.relu(self.conv2(x)))
            return self.fc2(self.relu(self.fc1(x.view(x.size(0), -1))))

    return LeNet()


def _cudnn(number):
    """7605 -> 7.6.5, 91002 -> 9.10.2"""
    if number is None:
        return None
    if number >= 90000:
        return '%d.%d.%d' % (number // 10000, number % 10000 // 100, number % 100)
    return '%d.%d.%d' % (number // 1000, number % 1000 // 100, number % 100)

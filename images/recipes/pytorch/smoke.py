"""PyTorch from 0.4 on for the smoke test: one process per device, DistributedDataParallel.

NCCL connects GPUs, Gloo connects CPU workers. DistributedDataParallel trains CPU modules from 1.1 on. Before that it raises
IndexError (https://github.com/pytorch/pytorch/pull/16265), so on CPUs older releases average one flat buffer of gradients.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import collections
import os
import re

import numpy as np

from ..networks.nets import EPSILON, KEPT

SAVED = 'model.pt'


class Adapter(object):
    name = 'pytorch'
    style = 'process'
    collective_types = ('float32', 'float64', 'int64', 'float16')
    shares_gpus = True          # uses Gloo: NCCL refuses two ranks on one GPU
    compile_needs = ('compiler', 'headers', 'setuptools')

    def setup(self, ctx):
        import torch
        self.ctx, self.torch = ctx, torch
        self.version = tuple(int(part) for part in torch.__version__.split('.')[:2])
        self.on_gpu = ctx.kind == 'cuda'
        torch.set_num_threads(ctx.threads)
        torch.set_flush_denormal(True)
        if self.on_gpu:
            torch.cuda.set_device(ctx.devices[0])
            if not ctx.plain:
                torch.backends.cudnn.benchmark = True
                self._full_precision()
        self.device = torch.device('cuda', ctx.devices[0]) if self.on_gpu else torch.device('cpu')
        self.wraps = self.on_gpu or self.version >= (1, 1)
        if not self.on_gpu and self.version < (1, 1):
            self.collective_types = self.collective_types[:3]       # "_th_view is not implemented for type CPUHalfType"
        self.semantics = {
            'gradient': 'mean', 'backend': 'nccl' if self.on_gpu and not ctx.shared else 'gloo',
            'exchange': 'DistributedDataParallel' if self.wraps else 'one flat buffer by all_reduce: '
                        'DistributedDataParallel of this release trains no CPU modules',
        }
        if ctx.world > 1:
            self.join()

    def join(self):
        """Connect to the other processes. Adapters of add-ons to PyTorch override this."""
        self.torch.distributed.init_process_group(
            self.semantics['backend'], init_method='tcp://%s:%d' % self.ctx.meeting_place(), rank=self.ctx.rank,
            world_size=self.ctx.world)

    def exact(self, wanted):
        self.torch.backends.cudnn.deterministic, self.torch.backends.cudnn.benchmark = wanted, self.on_gpu and not wanted

    def _full_precision(self):
        for owner in (getattr(self.torch.backends.cuda, 'matmul', None), self.torch.backends.cudnn):
            if hasattr(owner, 'allow_tf32'):
                owner.allow_tf32 = False

    def versions(self):
        torch, cuda = self.torch, self.torch.version.cuda
        flags = getattr(torch._C, '_cuda_getArchFlags', None)       # get_arch_list() is empty on machines without a GPU
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
        model = network(self.torch.nn, net).to(self.device)
        together = sync == 'mean' and self.ctx.world > 1
        handle = {'model': model, 'run': model, 'tensors': tensors(model, net), 'shard': together,
                  'flat': together and not self.wraps}
        # DistributedDataParallel must send the weights of rank 0 to all ranks.
        self.assign(handle, 0, self.ctx.start(weights) if together and self.wraps else weights)
        if together and self.wraps:
            # Each replica keeps its own running means. By default, those of the first replica are sent to all before every
            # step.
            wrap = self.torch.nn.parallel.DistributedDataParallel
            renamed = 'forward_sync_buffers' in wrap.__init__.__code__.co_varnames      # the new name in 2.13; the old one warns
            options = {'forward_sync_buffers' if renamed else 'broadcast_buffers': False}
            if self.on_gpu:
                options['device_ids'] = [self.ctx.devices[0]]
            handle['run'] = wrap(model, **options)
        handle['sgd'] = self.torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        return handle

    def put(self, handle, images, labels):
        if handle['shard']:
            images = self.ctx.shard(images, self.ctx.rank, self.ctx.world)
            labels = self.ctx.shard(labels, self.ctx.rank, self.ctx.world)
        return self._images(images), self.torch.from_numpy(np.array(labels, 'int64')).to(self.device)

    def _images(self, images):
        return self.torch.from_numpy(images.astype('float32') / np.float32(255)).to(self.device)

    def step(self, handle, batch, lr):
        for group in handle['sgd'].param_groups:
            group['lr'] = lr
        handle['sgd'].zero_grad()
        loss = self.torch.nn.functional.cross_entropy(handle['run'](batch[0]), batch[1])
        loss.backward()
        if handle['flat']:
            self._average([tensor.grad for tensor in handle['tensors'].values()])
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
        # On the CPU numpy() shares the parameter's memory, which the next step changes.
        return dict((name, np.array(tensor.detach().cpu().numpy())) for name, tensor in handle['tensors'].items())

    def assign(self, handle, copy, weights):
        with self.torch.no_grad():
            for name, tensor in handle['tensors'].items():
                tensor.copy_(self.torch.from_numpy(np.array(weights[name], 'float32')))

    def predict(self, handle, images):
        handle['model'].eval()
        with self.torch.no_grad():
            logits = handle['model'](self._images(images)).cpu().numpy()
        handle['model'].train()
        return logits

    def save(self, handle, folder):
        self.torch.save(handle['model'].state_dict(), os.path.join(folder, SAVED))

    def restore(self, handle, folder):
        handle['model'].load_state_dict(self.torch.load(os.path.join(folder, SAVED), map_location=str(self.device)))

    def evidence(self, handle):
        place = sorted(set(str(tensor.device) for tensor in handle['tensors'].values()))
        return {'parameters': place, 'compute': place,
                'memory_bytes': int(self.torch.cuda.max_memory_allocated()) if self.on_gpu else None}

    def collective(self, op, array, root):
        distributed, tensor = self.torch.distributed, self.torch.from_numpy(array).to(self.device)
        if op == 'allreduce':
            distributed.all_reduce(tensor)
        elif op == 'broadcast':
            distributed.broadcast(tensor, root)
        else:
            parts = [self.torch.empty_like(tensor) for _ in range(self.ctx.world)]
            distributed.all_gather(parts, tensor)
            return [part.cpu().numpy() for part in parts]
        return tensor.cpu().numpy()

    def compile_and_run(self):
        """Run torch.compile: Triton on a GPU, else C++.

        On a GPU, C++ is left out: PyTorch 2.11 first tries eleven vector extensions, each in a new process that imports
        PyTorch, which took a minute on an H100's host. Its caches are new in each launch, so no old result is used.
        """
        if not hasattr(self.torch, 'compile'):
            raise NotImplementedError('torch.compile came with PyTorch 2.0')
        for name in ('TORCH_COMPILE_DISABLE', 'TORCHDYNAMO_DISABLE'):
            if os.environ.get(name, '0') not in ('', '0'):
                raise NotImplementedError('%s=%s is set, so torch.compile compiles nothing' % (name, os.environ[name]))
        os.environ['TORCHINDUCTOR_CACHE_DIR'] = os.path.join(self.ctx.folder, 'inductor')
        os.environ['TRITON_CACHE_DIR'] = os.path.join(self.ctx.folder, 'triton')
        os.environ['TORCHINDUCTOR_COMPILE_THREADS'] = '1'       # otherwise a process pool outlives the launch
        try:
            return [self._compiled('cuda' if self.on_gpu else 'cpu')]
        except RuntimeError as error:
            if re.search(r'(not (yet )?supported (on|for|with)|not yet supported).*', str(error)) and 'Python 3' in str(error):
                raise NotImplementedError(str(error).splitlines()[0])
            raise

    def _compiled(self, device):
        numbers = np.linspace(-3, 3, 6 * 35).reshape(6, 35).astype('float32')
        function = self.torch.compile(lambda x: (self.torch.sin(x) * 2 + 1).sum(1), fullgraph=True)
        got = function(self.torch.from_numpy(numbers).to(device)).cpu().numpy()
        apart = float(np.abs(got - (np.sin(numbers.astype('float64')) * 2 + 1).sum(1)).max())
        made = sum(name.endswith('.so') for _, _, names in os.walk(self.ctx.folder) for name in names)
        return {'what': 'torch.compile for %s' % ('a GPU' if device == 'cuda' else 'the CPU'), 'right': apart < 1e-3 and made > 0,
                'detail': '%.1g from NumPy, %d libraries compiled' % (apart, made)}

    def close(self):
        if self.ctx.world > 1 and hasattr(self.torch.distributed, 'destroy_process_group'):
            self.torch.distributed.destroy_process_group()


def network(nn, net):
    """Return the network as a module, in which each layer with parameters has its own name.

    The class is made here because its base exists only once the framework is imported.
    """
    class Network(nn.Module):
        def __init__(self):
            super(Network, self).__init__()
            for layer in net.layers:
                if layer.op in MODULES:
                    self.add_module(layer.name, MODULES[layer.op](nn, layer, shapes))

        def forward(self, images):
            known = {'images': images}
            for layer in net.layers:
                run = getattr(self, layer.name) if layer.op in MODULES else functions[layer.op]
                known[layer.name] = run(*[known[name] for name in layer.of])
                for name in spent[layer.name]:
                    del known[name]
            return known[net.layers[-1].name]

    shapes, spent = dict(net.parameters), spent_after(net)
    functions = {
        'relu': nn.functional.relu, 'tanh': lambda x: x.tanh(), 'pool': lambda x: nn.functional.max_pool2d(x, 2),
        'average': lambda x: nn.functional.avg_pool2d(x, 2), 'mean': lambda x: x.mean(3).mean(2),
        'flatten': lambda x: x.reshape(x.size(0), -1), 'add': lambda x, y: x + y,
    }
    return Network()


def spent_after(net):
    """Return {layer: activations that no later layer reads}: freeing these early saves memory and a few percent of a small step."""
    last = dict((name, layer.name) for layer in net.layers for name in layer.of)
    return dict((layer.name, [name for name in last if last[name] == layer.name]) for layer in net.layers)


# Layers with parameters. PyTorch's `momentum` of a normalisation is the share of the new value in a running mean.
MODULES = {
    'conv': lambda nn, layer, shapes: nn.Conv2d(
        shapes[layer.name + '_w'][1], layer.shape[0], layer.kernel, stride=layer.stride, padding=layer.pad, bias=layer.bias),
    'norm': lambda nn, layer, shapes: nn.BatchNorm2d(layer.shape[0], eps=EPSILON, momentum=1 - KEPT),
    'dense': lambda nn, layer, shapes: nn.Linear(*reversed(shapes[layer.name + '_w'])),
}


def tensors(model, net):
    """Return {parameter: tensor} in the order of the network, which is the same on every rank."""
    kinds = {'_w': 'weight', '_b': 'bias'}
    return collections.OrderedDict((name, getattr(getattr(model, name[:-2]), kinds[name[-2:]])) for name in net.names)


def _cudnn(number):
    """Convert a version number: 7605 -> 7.6.5, 91002 -> 9.10.2."""
    if number is None:
        return None
    if number >= 90000:
        return '%d.%d.%d' % (number // 10000, number % 10000 // 100, number % 100)
    return '%d.%d.%d' % (number // 1000, number % 1000 // 100, number % 100)

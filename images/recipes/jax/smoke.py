"""JAX for the smoke test: all devices in one process, the step compiled for a mesh over which the batch is sharded.

The parameters are replicated and the loss is the mean over the global batch, so that XLA itself inserts the exchange of
gradients. On the CPU several host devices are forced.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.9+, as JAX.
"""
from __future__ import absolute_import, division, print_function

import os

import numpy as np


class Adapter(object):
    name = 'jax'
    style = 'single'
    semantics = {'gradient': 'mean over the global batch', 'exchange': 'jit over a mesh: XLA inserts the all-reduce'}

    def setup(self, ctx):
        self.ctx = ctx
        (self._claim_gpus if ctx.kind == 'cuda' else self._force_host_devices)(len(ctx.devices))
        import jax
        self.jax = jax
        jax.config.update('jax_default_matmul_precision', 'highest')
        found = jax.devices('gpu' if ctx.kind == 'cuda' else 'cpu')
        self.places = [found[number] for number in ctx.devices]
        self.alone = jax.jit(self._step)

    @staticmethod
    def _claim_gpus(count):
        os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')

    @staticmethod
    def _force_host_devices(count):
        os.environ['JAX_PLATFORMS'] = 'cpu'
        flags = os.environ.get('XLA_FLAGS', '')
        os.environ['XLA_FLAGS'] = ('%s --xla_force_host_platform_device_count=%d' % (flags, count)).strip()
        # XLA's pool has a thread per core; with few of them the devices of one all-reduce wait for each other for ever.
        os.environ.setdefault('NPROC', str(4 * count))

    def versions(self):
        cuda, cudnn = self._cuda()
        return {'name': 'jax', 'version': self.jax.__version__, 'cuda_build': cuda, 'cudnn': cudnn, 'nccl': None, 'arch_list': []}

    def _cuda(self):
        """(CUDA, cuDNN) that the plugin was built with; XLA numbers them as the headers do, 12080 and 90800."""
        try:
            from jax._src.lib import cuda_versions
            cuda, cudnn = int(cuda_versions.cuda_runtime_build_version()), int(cuda_versions.cudnn_build_version())
        except (ImportError, AttributeError):
            return None, None
        return '%d.%d' % (cuda // 1000, cuda % 1000 // 10), '%d.%d.%d' % (cudnn // 10000, cudnn % 10000 // 100, cudnn % 100)

    def _logits(self, p, x):
        jax, lax = self.jax, self.jax.lax

        def layer(x, kernel, bias):
            x = jax.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), 'VALID') + bias[None, :, None, None])
            return lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID')

        x = layer(layer(x, p['conv1_w'], p['conv1_b']), p['conv2_w'], p['conv2_b'])
        x = jax.nn.relu(jax.numpy.dot(x.reshape(x.shape[0], -1), p['fc1_w'].T) + p['fc1_b'])
        return jax.numpy.dot(x, p['fc2_w'].T) + p['fc2_b']

    def _step(self, p, v, x, y, lr, momentum):
        jax = self.jax

        def loss_of(p):
            each = jax.nn.log_softmax(self._logits(p, x))
            return -jax.numpy.mean(jax.numpy.take_along_axis(each, y[:, None], axis=1))

        loss, gradient = jax.value_and_grad(loss_of)(p)
        v = dict((name, momentum * v[name] + gradient[name]) for name in p)
        return dict((name, p[name] - lr * v[name]) for name in p), v, loss

    def make(self, net, weights, lr, momentum, replicas, sync):
        places = [self.places[replica] for replica in replicas]
        groups = [places] if sync == 'mean' else [[place] for place in places]
        return [self._model(weights, momentum, group) for group in groups]

    def _model(self, weights, momentum, places):
        """The parameters on each of the places, and how batches are spread over them."""
        sharding = self.jax.sharding
        mesh = sharding.Mesh(np.array(places), ('batch',))
        model = {'momentum': np.float32(momentum), 'everywhere': sharding.NamedSharding(mesh, sharding.PartitionSpec()),
                 'spread': sharding.NamedSharding(mesh, sharding.PartitionSpec('batch'))}
        start = dict((name, np.asarray(value, 'float32')) for name, value in weights.items())
        model['p'] = self.jax.device_put(start, model['everywhere'])
        model['v'] = self.jax.device_put(dict((name, np.zeros_like(value)) for name, value in start.items()), model['everywhere'])
        return model

    def put(self, handle, images, labels):
        out = []
        for number, model in enumerate(handle):
            x, y = (self.ctx.shard(array, number, len(handle)) for array in (images, labels))
            out.append(self.jax.device_put((scaled(x), y.astype('int32')), model['spread']))
        return out

    def step(self, handle, batch, lr):
        losses = []
        for model, (x, y) in zip(handle, batch):
            model['p'], model['v'], loss = self.alone(model['p'], model['v'], x, y, np.float32(lr), model['momentum'])
            losses.append(loss)
        self.last = handle
        return losses

    def loss(self, token):
        return float(np.mean([np.asarray(loss) for loss in token]))

    def drain(self):
        self.jax.block_until_ready([model['p'] for model in self.last])

    def _copies(self, handle):
        return [(model, number) for model in handle for number in range(len(model['p']['fc2_b'].addressable_shards))]

    def copies(self, handle):
        return len(self._copies(handle))

    def weights(self, handle, copy):
        model, number = self._copies(handle)[copy]
        return dict((name, np.asarray(value.addressable_shards[number].data)) for name, value in model['p'].items())

    def predict(self, handle, images):
        images = self.jax.device_put(scaled(images), handle[0]['everywhere'])
        return np.asarray(self.jax.jit(self._logits)(handle[0]['p'], images))

    def evidence(self, handle):
        places = sorted(set(str(place) for model in handle for value in model['p'].values() for place in value.sharding.device_set))
        used = [(place.memory_stats() or {}).get('peak_bytes_in_use') for place in self.places]
        return {'parameters': places, 'compute': places, 'memory_bytes': None if None in used else int(sum(used))}

    def close(self):
        pass


def scaled(images):
    """uint8 -> float32 from 0 to 1."""
    return images.astype('float32') / np.float32(255)

"""JAX for the smoke test: a step is compiled for a mesh of devices; shard_map divides the batch, pmean averages gradients.

On GPUs one process uses all devices of a machine. On the CPU there is one process per device, because devices in one process
share a thread pool, in which an all-reduce can wait for ever. Newer releases of JAX connect CPU processes by Gloo. With older
releases, the smoke test's own ring averages the gradients between the two halves of a step (gradient and update).
The contract is described in envbuild/smoke/adapters/__init__.py; Python 3.8+, as JAX.
"""
from __future__ import absolute_import, division, print_function

import inspect
import os

import numpy as np

from ..networks.nets import EPSILON, KEPT

AXIS = 'devices'
SAVED = 'model.npz'
RUNNING = 'running:'        # prefix of the names of running means and variances in the file


def _compiled_in():
    """Return the module that knows the versions. JAX up to 0.4.28 looks for it only in jaxlib, but its plugin has it."""
    from jax._src.lib import cuda_versions
    if cuda_versions is None:
        from jax_cuda12_plugin import _versions as cuda_versions
    return cuda_versions


def built_with():
    """Return (CUDA, cuDNN) that the plugin was built with. XLA reports header numbers such as 12080 and 90800."""
    try:
        versions = _compiled_in()
        cuda, cudnn = int(versions.cuda_runtime_build_version()), int(versions.cudnn_build_version())
    except (ImportError, AttributeError):
        return None, None
    return '%d.%d' % (cuda // 1000, cuda % 1000 // 10), '%d.%d.%d' % (cudnn // 10000, cudnn % 10000 // 100, cudnn % 100)


class Adapter(object):
    name = 'jax'
    style = {'cpu': 'process', 'cuda': 'single'}
    deterministic = False
    collective_types = ('float32', 'int32', 'float16')          # JAX uses 64 bits only with a setting

    def setup(self, ctx):
        self.ctx, self.compiled, self.last = ctx, {}, []
        (self._claim_gpus if ctx.kind == 'cuda' else self._claim_cpus)(len(ctx.devices))
        import jax
        self.jax = jax
        if not ctx.plain:
            jax.config.update('jax_default_matmul_precision', 'highest')
        self.ring = ctx.world > 1 and not self._join()
        found = jax.local_devices()
        self.places = [found[number] for number in (ctx.devices if ctx.kind == 'cuda' else range(len(ctx.devices)))]
        self.semantics = {
            'gradient': 'mean', 'save': 'NumPy\'s npz: JAX has no format of its own', 'exchange': 'the smoke test\'s own ring: '
            'this release has no collectives between CPU processes' if self.ring else 'pmean under shard_map',
        }

    @staticmethod
    def _claim_gpus(count):
        os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')

    def _claim_cpus(self, count):
        os.environ['JAX_PLATFORMS'] = 'cpu'
        os.environ.setdefault('NPROC', str(self.ctx.threads))
        if count > 1:
            # The smoke test never does this, but a developer can use it to try the code for GPUs on a CPU. XLA's pool has one
            # thread per core; with few cores, the devices of an all-reduce wait for each other until XLA ends the process.
            os.environ['XLA_FLAGS'] = '%s --xla_force_host_platform_device_count=%d' % (os.environ.get('XLA_FLAGS', ''), count)
            os.environ['NPROC'] = str(4 * count)

    def compile_and_run(self):
        """Compile a function with XLA for the first device, and run it."""
        numbers = np.linspace(-3, 3, 35).astype('float32')
        function = self.jax.jit(lambda x: self.jax.numpy.sin(x) * 2 + 1)
        apart = float(np.abs(np.asarray(function(self.jax.device_put(numbers, self.places[0]))) - (np.sin(numbers) * 2 + 1)).max())
        return [{'what': 'jax.jit', 'right': apart < 1e-3, 'detail': '%.1g from NumPy' % apart}]

    def _join(self):
        """Connect to the other processes with JAX; return False if this release of JAX cannot do so."""
        jax = self.jax
        if self.ctx.kind == 'cpu':
            if hasattr(jax.config, 'jax_cpu_collectives_implementation'):
                jax.config.update('jax_cpu_collectives_implementation', 'gloo')
            elif hasattr(jax.config, 'jax_cpu_enable_gloo_collectives'):
                jax.config.update('jax_cpu_enable_gloo_collectives', True)
            else:
                return False
        jax.distributed.initialize('%s:%d' % self.ctx.meeting_place(), self.ctx.world, self.ctx.rank,
                                   **({'local_device_ids': self.ctx.devices} if self.ctx.kind == 'cuda' else {}))
        return True

    def versions(self):
        cuda, cudnn = built_with()
        return {'name': 'jax', 'version': self.jax.__version__, 'cuda_build': cuda, 'cudnn': cudnn, 'nccl': None,
                'arch_list': []}

    def exact(self, wanted):
        self.deterministic = wanted

    def make(self, net, weights, lr, momentum, replicas, sync):
        """Make one model for all devices that train together, in all processes, or else one for each device of this process."""
        places = [self.places[replica] for replica in replicas]
        together = sync == 'mean' and self.ctx.world > 1
        if together and not self.ring:
            groups = [[place for place in self.jax.devices() if place.platform == self.places[0].platform]]
        else:
            groups = [places] if sync == 'mean' else [[place] for place in places]
        models = [_Model(self.jax, net, weights, momentum, group, self._functions(net, group)) for group in groups]
        for model in models:
            model.ring = self._mean_of_processes if together and self.ring else None
        return {'models': models, 'shard': together}

    def _functions(self, net, places):
        """Return the functions that are compiled once for each network and set of devices."""
        key = (net.name, self.deterministic, tuple(place.id for place in places))
        if key not in self.compiled:
            self.compiled[key] = _Functions(self.jax, net, places, _options(self.jax) if self.deterministic else {})
        return self.compiled[key]

    def _mean_of_processes(self, gradient):
        names = sorted(gradient)
        return dict(zip(names, self.ctx.group.means([gradient[name] for name in names])))

    def put(self, handle, images, labels):
        if handle['shard']:
            images, labels = (self.ctx.shard(array, self.ctx.rank, self.ctx.world) for array in (images, labels))
        models, out = handle['models'], []
        for number, model in enumerate(models):
            x, y = (self.ctx.shard(array, number, len(models)) for array in (images, labels))
            out.append((model.spread(scaled(x)), model.spread(y.astype('int32'))))
        return out

    def step(self, handle, batch, lr):
        self.last = handle['models']
        return [model.step(x, y, lr) for model, (x, y) in zip(handle['models'], batch)]

    def loss(self, token):
        return float(np.mean([np.asarray(shard.data) for losses in token for shard in losses.addressable_shards]))

    def drain(self):
        self.jax.block_until_ready([model.p for model in self.last])

    def _copies(self, handle):
        return [(model, number) for model in handle['models'] for number in range(len(model.own))]

    def copies(self, handle):
        return len(self._copies(handle))

    def weights(self, handle, copy):
        model, number = self._copies(handle)[copy]
        return dict((name, np.array(value)) for name, value in model.parameters(number).items())

    def assign(self, handle, copy, weights):
        model, number = self._copies(handle)[copy]
        model.assign(number, weights)

    def predict(self, handle, images):
        model = handle['models'][0]
        images = self.jax.device_put(scaled(images), model.own[0])
        return np.asarray(model.functions.answer(model.parameters(0), model.running(0), images))

    def save(self, handle, folder):
        model = handle['models'][0]
        running = dict((RUNNING + name, np.asarray(value)) for name, value in model.running(0).items())
        np.savez(os.path.join(folder, SAVED), **dict(self.weights(handle, 0), **running))

    def restore(self, handle, folder):
        with np.load(os.path.join(folder, SAVED)) as stored:
            for model in handle['models']:
                model.p = model.everywhere(dict((name, stored[name]) for name in model.p))
                model.r = model.each(dict((name, stored[RUNNING + name]) for name in model.r))

    def evidence(self, handle):
        places = sorted(set(str(place) for model in handle['models'] for place in model.own))
        used = [(place.memory_stats() or {}).get('peak_bytes_in_use') for place in self.places]
        return {'parameters': places, 'compute': places, 'memory_bytes': None if None in used else int(sum(used))}

    def collective(self, op, array, root):
        if self.ring:
            return self.ctx.group.collective(op, array, root)
        key = op, root
        if key not in self.compiled:
            self.compiled[key] = _collective(self.jax, op, root)
        mesh, run = self.compiled[key]
        rows = _placed(self.jax, mesh, AXIS, [array[None]], [self.places[0]])
        answer = np.asarray(run(rows).addressable_shards[0].data)
        return list(answer) if op == 'allgather' else answer

    def close(self):
        if self.ctx.world > 1 and not self.ring:
            self.jax.distributed.shutdown()


class _Model(object):
    """A model: parameters `p` and momentum `v`, equal on all devices of a group, and each device's running averages `r`."""

    ring = None

    def __init__(self, jax, net, weights, momentum, places, functions):
        self.jax, self.functions, self.momentum = jax, functions, np.float32(momentum)
        self.own = [place for place in places if place.process_index == jax.process_index()]
        start = dict((name, np.asarray(weights[name], 'float32')) for name in net.names)
        self.p = self.everywhere(start)
        self.v = self.everywhere(dict((name, np.zeros_like(value)) for name, value in start.items()))
        self.r = self.each(dict((layer.name, np.repeat([[0.0], [1.0]], layer.shape[0], axis=1).astype('float32'))
                                for layer in net.layers if layer.op == 'norm'))

    def everywhere(self, values):
        """Copy the arrays to every device."""
        return dict((name, self._placed(None, [value] * len(self.own))) for name, value in values.items())

    def each(self, values):
        """Put one row of each array on each device."""
        return dict((name, self._placed(AXIS, [value[None]] * len(self.own))) for name, value in values.items())

    def spread(self, array):
        """Spread this process's part of a batch, one shard per device."""
        return self._placed(AXIS, np.split(array, len(self.own)))

    def _placed(self, axis, parts):
        return _placed(self.jax, self.functions.mesh, axis, parts, self.own)

    def step(self, x, y, lr):
        lr, run = np.float32(lr), self.functions
        if self.ring is None:
            self.p, self.v, self.r, loss = run.step(self.p, self.v, self.r, x, y, lr, self.momentum)
            return loss
        gradient, self.r, loss = run.gradient(self.p, self.r, x, y)
        self.p, self.v = run.update(self.p, self.v, self.ring(gradient), lr, self.momentum)
        return loss

    def _of(self, values, number):
        return dict((name, next(shard.data for shard in value.addressable_shards if shard.device == self.own[number]))
                    for name, value in values.items())

    def parameters(self, number):
        return self._of(self.p, number)

    def running(self, number):
        return dict((name, value[0]) for name, value in self._of(self.r, number).items())

    def assign(self, number, weights):
        for name in self.p:
            copies = [self.parameters(other)[name] for other in range(len(self.own))]
            copies[number] = np.asarray(weights[name], 'float32')
            self.p[name] = self._placed(None, copies)


class _Functions(object):
    """The network and its step, compiled for a set of devices."""

    def __init__(self, jax, net, places, options):
        self.jax, self.net = jax, net
        self.mesh = jax.sharding.Mesh(np.array(places), (AXIS,))
        all_of_it, share = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(AXIS)
        self.step = _mapped(jax, self._step, self.mesh, (all_of_it, all_of_it, share, share, share, all_of_it, all_of_it),
                            (all_of_it, all_of_it, share, share), **options)
        self.gradient, self.update = jax.jit(self._gradient, **options), jax.jit(self._update, **options)
        self.answer = jax.jit(lambda p, r, x: self._logits(p, x, lambda layer, x: r[layer.name]))

    def _step(self, p, v, r, x, y, lr, momentum):
        gradient, r, loss = self._gradient(p, r, x, y)
        p, v = self._update(p, v, self.jax.lax.pmean(gradient, AXIS), lr, momentum)
        return p, v, r, loss

    def _gradient(self, p, r, x, y):
        """Return (gradient, running means and variances, mean loss) of one device; the last two have an axis for devices."""
        jax, seen = self.jax, {}

        def moments(layer, x):
            seen[layer.name] = jax.numpy.stack([x.mean((0, 2, 3)), x.var((0, 2, 3))])
            return seen[layer.name]

        def loss_of(p):
            each = jax.nn.log_softmax(self._logits(p, x, moments))
            return -jax.numpy.mean(jax.numpy.take_along_axis(each, y[:, None], axis=1)), dict(seen)

        (loss, now), gradient = jax.value_and_grad(loss_of, has_aux=True)(p)
        return gradient, dict((name, KEPT * r[name] + (1 - KEPT) * now[name]) for name in r), loss[None]

    @staticmethod
    def _update(p, v, gradient, lr, momentum):
        v = dict((name, momentum * v[name] + gradient[name]) for name in p)
        return dict((name, p[name] - lr * v[name]) for name in p), v

    def _logits(self, p, images, moments):
        """Return the logits. A normalisation layer calls `moments` for its mean and variance."""
        jax, lax, known = self.jax, self.jax.lax, {'images': images}

        def conv(layer, x):
            x = lax.conv_general_dilated(x, p[layer.name + '_w'], (layer.stride,) * 2, [(layer.pad,) * 2] * 2)
            return x + p[layer.name + '_b'][:, None, None] if layer.bias else x

        def norm(layer, x):
            mean, variance = moments(layer, x)
            factor = p[layer.name + '_w'] * lax.rsqrt(variance + EPSILON)
            return (x - mean[:, None, None]) * factor[:, None, None] + p[layer.name + '_b'][:, None, None]

        run = {
            'conv': conv, 'norm': norm, 'relu': lambda layer, x: jax.nn.relu(x), 'tanh': lambda layer, x: jax.numpy.tanh(x),
            'pool': lambda layer, x: lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID'),
            'average': lambda layer, x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID') / 4,
            'mean': lambda layer, x: x.mean((2, 3)), 'flatten': lambda layer, x: x.reshape(x.shape[0], -1),
            'dense': lambda layer, x: jax.numpy.dot(x, p[layer.name + '_w'].T) + p[layer.name + '_b'],
            'add': lambda layer, x, y: x + y,
        }
        for layer in self.net.layers:
            known[layer.name] = run[layer.op](layer, *[known[name] for name in layer.of])
        return known[self.net.layers[-1].name]


def _options(jax):
    """Return options for jax.jit that select deterministic operations without timing them.

    Older releases have no such options.
    """
    if 'compiler_options' not in inspect.signature(jax.jit).parameters:  # novm: Python 3, as JAX
        return {}
    return {'compiler_options': {'xla_gpu_deterministic_ops': True, 'xla_gpu_autotune_level': 0}}


def _mapped(jax, function, mesh, reads, gives, **options):
    """Compile the function so that each device calls it with its own shard; devices exchange only what the function requests."""
    if hasattr(jax, 'shard_map'):
        mapped = jax.shard_map(function, mesh=mesh, in_specs=reads, out_specs=gives, check_vma=False)
    else:
        from jax.experimental.shard_map import shard_map
        mapped = shard_map(function, mesh=mesh, in_specs=reads, out_specs=gives, check_rep=False)
    return jax.jit(mapped, **options)


def _placed(jax, mesh, axis, parts, places):
    """Make an array on all devices of the mesh from this process's parts: split along a mesh axis, or copied (None)."""
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*[axis] if axis else []))
    shape = parts[0].shape if axis is None else (parts[0].shape[0] * mesh.size,) + parts[0].shape[1:]
    return jax.make_array_from_single_device_arrays(
        shape, sharding, [jax.device_put(part, place) for part, place in zip(parts, places)])


def _collective(jax, op, root):
    """Return (a mesh of one device per process, an operation on an array with one row from each process)."""
    lax = jax.lax
    mesh = jax.sharding.Mesh(np.array([next(place for place in jax.devices() if place.process_index == rank)
                                       for rank in range(jax.process_count())]), (AXIS,))
    run = {
        'allreduce': lambda row: lax.psum(row[0], AXIS),
        'broadcast': lambda row: lax.all_gather(row[0], AXIS)[root],
        'allgather': lambda row: lax.all_gather(row[0], AXIS),
    }[op]
    spec = jax.sharding.PartitionSpec
    return mesh, _mapped(jax, run, mesh, (spec(AXIS),), spec())


def scaled(images):
    """Convert uint8 to float32 from 0 to 1."""
    return images.astype('float32') / np.float32(255)

"""TensorFlow 1 and 2 for the smoke test: all devices in one process; on the CPU several logical devices.

1.x: one tower per device, each with its own variables; gradients are averaged and applied to every copy. MirroredStrategy is not
used: in 1.x its interface changed with every release (https://github.com/tensorflow/tensorflow/issues/23664).
2.x: MirroredStrategy with a custom training step around a Keras model and optimizer.

In both versions, devices that exchange no gradients have one tower each in the same graph. The executor runs the towers in
parallel.
The contract is described in envbuild/smoke/adapters/__init__.py; Python 2.7 and 3.5+.
"""
from __future__ import absolute_import, division, print_function

import math
import os

from ..networks.building import exact, graph_network, keras_network, keras_parameters
from ..networks.layouts import from_hwio, nhwc, shape_nhwc, to_hwio

CONTRACT = ('make', 'put', 'step', 'loss', 'drain', 'copies', 'weights', 'assign', 'predict', 'save', 'restore', 'evidence',
            'close', 'exact')


class Adapter(object):
    """Passes every call to the class for the installed major version. Add-ons to TensorFlow have their own classes."""

    name = 'tensorflow'
    style = 'single'

    def setup(self, ctx):
        import tensorflow
        self.tf = tensorflow
        self.hand_over(self.sides[0 if int(tensorflow.__version__.split('.')[0]) < 2 else 1](tensorflow, ctx))

    def hand_over(self, side):
        self.semantics = side.semantics
        for method in CONTRACT:
            setattr(self, method, getattr(side, method))

    def versions(self):
        build = self._build_info()
        return {'name': 'tensorflow', 'version': self.tf.__version__,
                'cuda_build': build.get('cuda_version') or self._older_cuda(), 'cudnn': build.get('cudnn_version'),
                'nccl': None, 'arch_list': self._gpu_code(build.get('cuda_compute_capabilities') or [])}

    @staticmethod
    def _gpu_code(listed):
        """Return TensorFlow's list of GPU code, with native code as sm_80 and PTX as compute_80.

        In TensorFlow's list, compute_80 stands for both (https://github.com/tensorflow/tensorflow/blob/v2.11.1/configure.py).
        """
        return sorted(set(listed) | set(name.replace('compute_', 'sm_') for name in listed))

    def compile_and_run(self):
        """Compile and run a function with XLA, by the option jit_compile. Before 2.5, this option has another name."""
        tf = self.tf
        if tuple(int(part) for part in tf.__version__.split('.')[:2]) < (2, 5):
            raise NotImplementedError('jit_compile came with TensorFlow 2.5')
        numbers = [-3.0, -1.5, 0.0, 1.0, 2.5]
        got = tf.function(lambda x: tf.sin(x) * 2 + 1, jit_compile=True)(tf.constant(numbers)).numpy()
        apart = max(abs(value - (math.sin(number) * 2 + 1)) for value, number in zip(got, numbers))
        return [{'what': 'tf.function(jit_compile=True)', 'right': bool(apart < 1e-3), 'detail': '%.1g from the formula' % apart}]

    def _build_info(self):
        """Return build facts (from 2.3 on), or an empty dictionary for a CPU build."""
        try:
            build = dict(self.tf.sysconfig.get_build_info())
        except AttributeError:
            return {}
        return build if build.get('is_cuda_build') else {}

    def _older_cuda(self):
        """Return the CUDA version of releases before 2.3, from a generated module; 'unknown' if that does not name it."""
        if not self.tf.test.is_built_with_cuda():
            return None
        try:
            from tensorflow.python.platform import build_info
        except ImportError:
            return 'unknown'
        return getattr(build_info, 'cuda_version_number', None) or 'unknown'


class Towers(object):
    """TensorFlow 1: one tower for each device.

    gate_gradients makes updates wait for all gradients of a tower. Without it, an update may overwrite a variable before
    another gradient has read the old value. This race causes errors of 0.1 to 0.3 compared with the reference network.
    """

    semantics = {'gradient': 'mean of the towers', 'corrected': 'gate_gradients',
                 'exchange': 'add_n on the first device, applied to each tower\'s own variables'}

    def __init__(self, tf, ctx):
        self.tf, self.ctx = tf, ctx
        kind = 'gpu' if ctx.kind == 'cuda' else 'cpu'
        self.places = ['/%s:%d' % (kind, number) for number in ctx.devices]
        self.config = tf.ConfigProto(
            device_count={} if kind == 'gpu' else {'CPU': len(ctx.devices), 'GPU': 0}, allow_soft_placement=False,
            intra_op_parallelism_threads=ctx.threads, inter_op_parallelism_threads=max(2, len(ctx.devices)))
        self.config.gpu_options.allow_growth = True

    def make(self, net, weights, lr, momentum, replicas, sync):
        tf = self.tf
        handle = {'net': net, 'graph': tf.Graph(), 'places': [self.places[replica] for replica in replicas]}
        with handle['graph'].as_default():
            x, y = tf.placeholder(tf.float32, (None,) + shape_nhwc(net)), tf.placeholder(tf.int64, [None])
            handle.update(x=x, y=y, rate=tf.placeholder(tf.float32, []))
            n, towers = len(handle['places']), []
            for place, tower_x, tower_y in zip(handle['places'], tf.split(x, n), tf.split(y, n)):
                with tf.device(place):
                    towers.append(self._tower(net, tower_x, tower_y))
            gradients = [tower['gradients'] for tower in towers]
            if sync == 'mean' and n > 1:
                with tf.device(handle['places'][0]):
                    mean = [tf.add_n(list(each)) / n for each in zip(*gradients)]
                gradients = [mean] * n
            updates = handle['graph'].get_collection(tf.GraphKeys.UPDATE_OPS)       # of running means and variances
            for place, tower, mine in zip(handle['places'], towers, gradients):
                with tf.device(place):
                    optimizer = tf.train.MomentumOptimizer(handle['rate'], momentum)
                    updates.append(optimizer.apply_gradients(list(zip(mine, tower['variables']))))
            with tf.device(handle['places'][0]):
                handle['loss'] = tf.add_n([tower['loss'] for tower in towers]) / n
                handle['logits'] = towers[0]['logits'](x, False)
            handle['train'] = tf.group(*updates)
            handle['variables'] = [tower['variables'] for tower in towers]
            handle['running'] = [tower['running'] for tower in towers]
            start = tf.global_variables_initializer()
        handle['session'] = tf.Session(graph=handle['graph'], config=self.config)
        handle['session'].run(start)
        for copy in range(n):
            self.assign(handle, copy, weights)
        return handle

    def exact(self, wanted):
        exact(self.tf, wanted)

    def _tower(self, net, x, y):
        tf = self.tf
        variables, running, logits = self.network(net)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits(x, True)))
        gradients = tf.gradients(loss, variables, gate_gradients=True)
        return {'variables': variables, 'running': running, 'logits': logits, 'loss': loss, 'gradients': gradients}

    def network(self, net):
        """Return (variables in the order of net.names, running averages, a function from images and `training` to logits)."""
        return graph_network(self.tf, net)

    def put(self, handle, images, labels):
        return {handle['x']: nhwc(images), handle['y']: labels}

    def step(self, handle, batch, lr):
        feed = dict(batch)
        feed[handle['rate']] = lr
        return handle['session'].run([handle['train'], handle['loss']], feed)[1]

    def loss(self, token):
        return float(token)

    def drain(self):
        pass                            # Session.run has waited for the step

    def copies(self, handle):
        return len(handle['variables'])

    def weights(self, handle, copy):
        return from_hwio(handle['session'].run(handle['variables'][copy]), handle['net'])

    def assign(self, handle, copy, weights):
        pairs = list(zip(handle['variables'][copy], to_hwio(weights, handle['net'])))
        values = dict((variable.initializer.inputs[1], value.reshape(variable.get_shape().as_list())) for variable, value in pairs)
        handle['session'].run([variable.initializer for variable, _ in pairs], values)

    def predict(self, handle, images):
        return handle['session'].run(handle['logits'], {handle['x']: nhwc(images)})

    def _saver(self, handle, copy):
        variables = handle['variables'][copy] + handle['running'][copy]
        with handle['graph'].as_default():
            return self.tf.train.Saver(dict(('%d' % number, variable) for number, variable in enumerate(variables)))

    def save(self, handle, folder):
        self._saver(handle, 0).save(handle['session'], os.path.join(folder, 'model'))

    def restore(self, handle, folder):
        for copy in range(self.copies(handle)):
            self._saver(handle, copy).restore(handle['session'], os.path.join(folder, 'model'))

    def evidence(self, handle):
        parameters = sorted(set(variable.device for tower in handle['variables'] for variable in tower))
        return {'parameters': parameters, 'compute': list(handle['places']), 'memory_bytes': None}

    def close(self):
        pass


class Mirrored(object):
    """TensorFlow 2: MirroredStrategy with a custom training step."""

    semantics = {'gradient': 'sum over replicas of the loss divided by the global batch', 'exchange': 'MirroredStrategy'}

    def __init__(self, tf, ctx):
        self.tf, self.keras, self.ctx = tf, tf.keras, ctx
        self.on_gpu = ctx.kind == 'cuda'
        tf.config.threading.set_intra_op_parallelism_threads(ctx.threads)
        tf.config.threading.set_inter_op_parallelism_threads(max(2, len(ctx.devices)))
        if self.on_gpu:
            for device in tf.config.experimental.list_physical_devices('GPU'):
                tf.config.experimental.set_memory_growth(device, True)
            if hasattr(tf.config.experimental, 'enable_tensor_float_32_execution'):
                tf.config.experimental.enable_tensor_float_32_execution(False)
        else:
            self._split_cpu(len(ctx.devices))
        self.places = ['/%s:%d' % ('gpu' if self.on_gpu else 'cpu', number) for number in ctx.devices]

    def exact(self, wanted):
        exact(self.tf, wanted)

    def _split_cpu(self, count):
        """Divide the CPU into several logical devices. (The names without `experimental` came in 2.4.)"""
        config = self.tf.config
        physical = config.experimental.list_physical_devices('CPU')[0]
        if hasattr(config, 'set_logical_device_configuration'):
            config.set_logical_device_configuration(physical, [config.LogicalDeviceConfiguration() for _ in range(count)])
        else:
            config.experimental.set_virtual_device_configuration(
                physical, [config.experimental.VirtualDeviceConfiguration() for _ in range(count)])

    def make(self, net, weights, lr, momentum, replicas, sync):
        places = [self.places[replica] for replica in replicas]
        return self.build(places, net, weights, lr, momentum, sync == 'mean' and len(places) > 1)

    def build(self, places, net, weights, lr, momentum, mirrored):
        """Return a handle with these weights: one model in a strategy, or one for each place."""
        handle = (self._mirrored if mirrored else self._alone)(places, net, lr, momentum)
        handle.update(net=net, places=places)
        for copy in range(self.copies(handle)):
            self.assign(handle, copy, weights)
        return handle

    def model(self, net, lr, momentum):
        """Return (the model that computes logits, its trained variables in the order of net.names, its optimizer)."""
        model = keras_network(self.keras, net)
        parameters, optimizer = keras_parameters(model, net), self.sgd(lr, momentum)
        if hasattr(optimizer, 'build'):         # the optimizer's variables must exist before the step is traced
            optimizer.build(parameters)
        return model, parameters, optimizer

    def sgd(self, lr, momentum):
        return self.keras.optimizers.SGD(lr, momentum=momentum)

    def _gradients(self, model, parameters, x, y, size):
        """Return (loss, gradients) of a shard; the loss is the shard's sum divided by `size`, not by the shard's own size."""
        with self.tf.GradientTape() as tape:
            each = self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x, training=True))
            loss = self.tf.reduce_sum(each) / size
        return loss, self.exchanging(tape).gradient(loss, [inner(variable) for variable in parameters])

    def exchanging(self, tape):
        """Return the tape that computes gradients.

        Add-ons that exchange gradients themselves (Horovod) return a tape that does so.
        """
        return tape

    def _mirrored(self, places, net, lr, momentum):
        tf = self.tf
        # The default is NCCL, which needs GPUs.
        exchange = tf.distribute.NcclAllReduce() if self.on_gpu else tf.distribute.ReductionToOneDevice()
        strategy = self.strategy(places, exchange)
        run = getattr(strategy, 'run', None) or strategy.experimental_run_v2        # renamed in 2.2
        with strategy.scope():
            model, parameters, optimizer = self.model(net, lr, momentum)

        def replica(x, y, size):
            loss, gradients = self._gradients(model, parameters, x, y, size)
            self.apply(optimizer, gradients, parameters, together=True)
            return loss

        def step(batch, size):
            return strategy.reduce(tf.distribute.ReduceOp.SUM, run(replica, args=(batch[0], batch[1], size)), axis=None)

        spread = zip(*[strategy.experimental_local_results(inner(variable)) for variable in parameters])
        return {'models': [model], 'optimizers': [optimizer], 'variables': [list(each) for each in spread],
                'strategy': strategy, 'step': tf.function(step)}

    def _alone(self, places, net, lr, momentum):
        """Make a model for each device in `places`. One function steps all of them, so that they run in parallel."""
        tf, made = self.tf, []
        for place in places:
            with tf.device(place):
                made.append(self.model(net, lr, momentum))

        def step(batches, size):
            losses = []
            for place, (model, parameters, optimizer), (x, y) in zip(places, made, batches):
                with tf.device(place):
                    loss, gradients = self._gradients(model, parameters, x, y, size / len(places))
                    self.apply(optimizer, gradients, parameters, together=False)
                    losses.append(loss)
            return tf.add_n(losses) / len(losses)

        models, parameters, optimizers = zip(*made)
        return {'models': models, 'optimizers': optimizers, 'variables': [[inner(v) for v in each] for each in parameters],
                'strategy': None, 'step': tf.function(step)}

    def strategy(self, places, exchange):
        return self.tf.distribute.MirroredStrategy(places, cross_device_ops=exchange)

    def apply(self, optimizer, gradients, variables, together):
        """Apply one update. With `together`, it runs in each replica of a strategy, and the gradients are summed over the replicas."""
        optimizer.apply_gradients(zip(gradients, variables))

    def set_rate(self, optimizer, lr):
        optimizer.learning_rate = lr

    def put(self, handle, images, labels):
        tf, places, strategy = self.tf, handle['places'], handle['strategy']
        size = tf.constant(float(len(images)))
        if strategy is not None and not hasattr(strategy, 'experimental_distribute_values_from_function'):      # before 2.4
            data = tf.data.Dataset.from_tensor_slices((nhwc(images), labels)).batch(len(images))
            return next(iter(strategy.experimental_distribute_dataset(data))), size
        shards = []
        for number, place in enumerate(places):
            with tf.device(place):
                shards.append((tf.constant(nhwc(self.ctx.shard(images, number, len(places)))),
                               tf.constant(self.ctx.shard(labels, number, len(places)))))
        if strategy is None:
            return shards, size
        return tuple(strategy.experimental_distribute_values_from_function(
            lambda context, part=part: shards[context.replica_id_in_sync_group][part]) for part in (0, 1)), size

    def step(self, handle, batch, lr):
        for optimizer in handle['optimizers']:
            if handle.get('lr') != lr:
                self.set_rate(optimizer, lr)
        handle['lr'] = lr
        return handle['step'](*batch)

    def loss(self, token):
        return float(token.numpy())

    def drain(self):
        """Wait for GPUs (before 2.5, by reading a value from each). On the CPU, a step has ended when its call returns."""
        wait = getattr(getattr(self.tf.test, 'experimental', None), 'sync_devices', None)
        if self.on_gpu and wait:
            wait()
        elif self.on_gpu:
            for place in self.places:
                with self.tf.device(place):
                    (self.tf.constant(0.0) + 1.0).numpy()

    def copies(self, handle):
        return len(handle['variables'])

    def weights(self, handle, copy):
        return from_hwio([variable.numpy() for variable in handle['variables'][copy]], handle['net'])

    def assign(self, handle, copy, weights):
        for variable, value in zip(handle['variables'][copy], to_hwio(weights, handle['net'])):
            variable.assign(value)

    def predict(self, handle, images):
        """Predict within the strategy's scope.

        There the running means are averaged over the replicas, as when they are saved.
        """
        where = handle['strategy'].scope() if handle['strategy'] is not None else self.tf.device(handle['places'][0])
        with where:
            return handle['models'][0](self.tf.constant(nhwc(images)), training=False).numpy()

    def save(self, handle, folder):
        self.tf.train.Checkpoint(model=handle['models'][0]).write(os.path.join(folder, 'model'))

    def restore(self, handle, folder):
        for model in handle['models']:
            self.tf.train.Checkpoint(model=model).restore(os.path.join(folder, 'model')).expect_partial()

    def evidence(self, handle):
        places = sorted(set(variable.device for copy in handle['variables'] for variable in copy))
        return {'parameters': places, 'compute': list(handle['places']), 'memory_bytes': self._memory()}

    def _memory(self):
        try:
            ask = self.tf.config.experimental.get_memory_info
            return sum(int(ask('GPU:%d' % number)['peak']) for number in self.ctx.devices)
        except (AttributeError, ValueError, RuntimeError):
            return None

    def close(self):
        pass


def inner(variable):
    """Return the TensorFlow variable inside a variable of Keras 3."""
    value = getattr(variable, 'value', None)
    return variable if value is None or callable(value) else value


Adapter.sides = (Towers, Mirrored)

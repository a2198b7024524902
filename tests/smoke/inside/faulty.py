"""The NumPy adapter with one fault planted: `--adapter .../faulty.py --option fault=NAME`. Runs inside the guest."""
from __future__ import absolute_import, division, print_function

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

import numpy as np

from .. import clock
from ..clock import pause
from ..networks import refnet, rounding
from ..rank.group import Group
from .numpy_ import Adapter as Healthy

SLOW_S = .15        # far longer than a step of a few images
LATER = 10          # steps: later than the steps that checks look at, and earlier than the end of every benchmark
LONG_LATER = 60     # steps of a process, of all models: more than the phases before the benchmark need
COMPILING_S = 5     # longer than the stall limits that tests set


class Adapter(Healthy):
    name = 'faulty'
    collective_types = Group.TYPES + ('float16',)

    def setup(self, ctx):
        Healthy.setup(self, ctx)
        self.fault, _, size = ctx.options.get('fault', '').partition('=')
        self.size = float(size or 0)
        if self.fault == 'import':
            raise ImportError('libexample.so.9: cannot open shared object file')
        if self.fault == 'needs-colorsys':      # stands for a module of Python that a framework needs
            from colorsys import rgb_to_hsv  # noqa: F401
        other = ctx.options.get('other-nccl-on-rank-1')
        if other and ctx.rank == 1:
            os.environ['STUB_NCCL'] = other
        for name in filter(None, ctx.options.get('load', '').split(',')):
            ctypes.CDLL(os.path.join(os.environ['STUB_LIBRARIES'], 'lib%s.so' % name))
        if self.fault == 'slow-clock' and ctx.rank == 0:
            slow_down(3)
        self.steps = self.done = 0

    def versions(self):
        return dict(Healthy.versions(self), cuda_build=self.ctx.options.get('cuda_build'))

    def make(self, net, weights, lr, momentum, replicas, sync):
        if self.fault == 'other-start-on-rank-1' and self.ctx.rank == 1:
            weights = dict(weights, fc2_b=weights['fc2_b'] + np.float32(.01))
        return Healthy.make(self, net, weights, lr, momentum, replicas, sync)

    def predict(self, handle, images):
        logits = Healthy.predict(self, handle, images)
        if self.fault == 'random-outputs' and handle['net'].name == 'lenet':
            self.done += 1
            return logits * (1 + .01 * np.random.RandomState(self.done).standard_normal(logits.shape))
        return logits * np.float32(1.01) if self.fault == 'outputs' else logits

    def place(self):
        later = self.fault == 'same-shard-later' and self.done >= LATER
        return 0 if later or self.fault == 'same-shard' else self.ctx.rank

    def scale(self, images):
        images = Healthy.scale(self, images)
        return images * np.float32(255 / 256.) if self.fault == 'input-by-256' else images

    def put(self, handle, images, labels):
        self.done = handle['steps']
        if self.fault == 'labels':
            labels = (labels + 1) % 10
        if self.fault == 'one-label':
            labels = np.concatenate([(labels[:1] + 3) % 10, labels[1:]])
        if self.fault == 'slow-input':
            pause(SLOW_S)
        return Healthy.put(self, handle, images, labels)

    def step(self, handle, batch, lr):
        self.done = handle['steps']         # the handle's steps are the same on every rank, the steps of the process are not
        self.steps += 1
        if self.fault == 'raises-everywhere' and self.steps == 3:     # the ranks fail one after the other, the last rank first
            pause(0.5 * (self.ctx.world - self.ctx.rank))
            raise RuntimeError('out of memory on rank %d' % self.ctx.rank)
        if self.ctx.rank == int(self.ctx.options.get('on-rank', self.ctx.world - 1)) and self.steps == 3:
            self.disaster()
        if self.fault == 'newer-ptx':
            raise RuntimeError('INTERNAL: Failed to load PTX text as a module: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was '
                               'compiled with an unsupported toolchain.')
        if self.fault == 'compiles' and self.steps == 1:
            select.select([], [], [], COMPILING_S)      # select instead of sleep, because libclock.c makes sleep fail
        if self.fault == 'slow-rank' and self.ctx.rank == self.ctx.world - 1:
            pause(SLOW_S)
        if self.fault.startswith('same-batch') and handle['sync'] == 'mean':
            batch = self.moved(batch)
        self.lr = lr
        if self.fault == 'alone-same-batch' and handle['sync'] == 'none':
            batch = tuple(np.zeros_like(array) for array in batch)
        if self.fault == 'no-waiting' and lr < 1e-3:      # timed steps are only noted, and done later
            handle.setdefault('later', []).append((batch, lr))
            return handle
        loss = self.rounded_step(handle, batch, lr) if self.fault == 'bf16-layers' else Healthy.step(self, handle, batch, lr)
        return np.float32('nan') if self.fault == 'nan' and self.steps > 9 else loss

    def finish(self, handle):
        for batch, lr in handle.pop('later', ()):
            handle['last'] = Healthy.step(self, handle, batch, lr)

    def loss(self, token):
        if isinstance(token, dict):
            self.finish(token)
            token = token['last']
        wrong = self.fault == 'reported-loss' or (self.fault == 'reported-loss-later' and self.done > LATER)
        return Healthy.loss(self, token) * (self.size if wrong else 1)

    def weights(self, handle, copy):
        self.finish(handle)
        return Healthy.weights(self, handle, copy)

    def rounded_step(self, handle, batch, lr):
        loss, gradient = refnet.loss_and_gradient(handle['net'], handle['p'], batch[0], batch[1], rounding.Reduced('bf16'))
        self.update(handle, self.exchange(gradient) if self.ctx.world > 1 else gradient, lr)
        return loss

    def disaster(self):
        if self.fault in ('killed-parent', 'killed-parent-of-daemon'):      # this child would outlive the rank
            own_session = os.setsid if self.fault == 'killed-parent-of-daemon' else None
            subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)', '--plan', self.ctx.folder], preexec_fn=own_session)
        if self.fault in ('killed', 'killed-parent', 'killed-parent-of-daemon'):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == 'frozen':
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.fault == 'dies-when-asked':         # as if printing the stacks met damaged memory
            signal.signal(signal.SIGUSR1, lambda _number, _frame: os.kill(os.getpid(), int(self.ctx.options['by'])))
        if self.fault in ('asleep', 'dies-when-asked'):
            time.sleep(1000)
        if self.fault == 'full-disk':
            with open('/dev/full', 'w') as stream:
                stream.write('checkpoint')
        if self.fault == 'tells-interface':
            raise RuntimeError('NCCL is told "%s"' % os.environ.get('NCCL_SOCKET_IFNAME', ''))
        if self.fault == 'exits':
            os._exit(0)
        if self.fault == 'exits-politely':
            sys.exit(0)
        if self.fault == 'stopped-child':
            child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)', '--plan', self.ctx.folder])
            os.kill(child.pid, signal.SIGSTOP)
            child.wait()
        if self.fault == 'raises':
            raise RuntimeError(u'out of memory \u2014 sorry')

    def exchange(self, gradient):
        if self.fault == 'slow-exchange':
            pause(SLOW_S)
        own = dict(gradient)
        if self.fault == 'silent-rank-1' and self.ctx.rank == 1:
            gradient = dict((name, np.zeros_like(g)) for name, g in gradient.items())
        if self.fault == 'skipped-fc2_b-on-rank-1' and self.ctx.rank == 1:
            gradient = dict(gradient, fc2_b=np.zeros_like(gradient['fc2_b']))
        if self.fault == 'bfloat16-after-some-steps' and self.done >= LATER:
            gradient = dict((name, short(g)) for name, g in gradient.items())
        if self.fault == 'float16-after-some-steps' and self.done >= LATER:
            gradient = dict((name, g.astype('float16').astype('float32')) for name, g in gradient.items())
        if self.fault == 'half-exchange' or (self.fault == 'half-exchange-later' and self.steps > LONG_LATER):
            gradient = dict((name, g.astype('float16').astype('float32')) for name, g in gradient.items())
        gradient = Healthy.exchange(self, gradient)
        if self.fault == 'noise':       # the same noise on all ranks
            draw = np.random.RandomState(self.steps)
            gradient = dict((name, (g * (1 + self.size * draw.normal(0, 1, g.shape))).astype('float32'))
                            for name, g in sorted(gradient.items()))
        if self.fault == 'second-bucket' and 'fc4_w' in gradient:      # these are the last gradients of a backward pass
            gradient.update((name, own[name]) for name in ('fc1_w', 'fc1_b', 'fc2_w', 'fc2_b'))
        if self.fault == 'not-exchanged-fc2_b':
            gradient['fc2_b'] = own['fc2_b']
        return gradient

    def moved(self, batch):
        """After some steps, the batch of rank 0: as from a loader whose ranks all read the first part."""
        if self.done < LATER:
            return batch
        return tuple(self.ctx.group.broadcast_array(np.ascontiguousarray(array)) for array in batch)

    def average(self, flat):
        if self.fault == 'no-exchange' or (self.fault == 'same-batch-unexchanged-later' and self.done >= LATER):
            return flat
        if self.fault == 'unexchanged-in-bench' and self.lr < 1e-3:
            return flat
        if self.fault == 'summed-later' and self.done >= LATER:
            return Healthy.average(self, flat) * np.float32(self.ctx.world)
        mean = Healthy.average(self, flat)
        if self.fault == 'bfloat16-sum-after-some-steps' and self.done >= LATER:
            return short(mean)
        if self.fault == 'gradients-summed':
            return mean * np.float32(self.ctx.world)
        if self.fault == 'race' and self.ctx.world > 1:
            mean[-100:] *= np.float32(1.1)          # too small a change for the name of another fault
        return mean / np.float32(self.ctx.world) if self.fault == 'averaged-twice' else mean

    def update(self, handle, gradient, lr):
        if self.fault == 'no-update' or (self.fault == 'no-update-later' and self.done >= LATER):
            return
        if self.fault == 'no-momentum':
            handle = dict(handle, momentum=0.0)
        if self.fault == 'reduced-precision':
            gradient = dict((name, short(g)) for name, g in gradient.items())
        if self.fault == 'weight-decay' or (self.fault == 'weight-decay-later' and self.steps > LONG_LATER):
            gradient = dict((name, g + np.float32(self.size) * handle['p'][name]) for name, g in gradient.items())
        if self.fault == 'learning-rate' or (self.fault == 'learning-rate-later' and self.steps > LONG_LATER):
            lr *= self.size
        if self.fault == 'momentum':
            handle = dict(handle, momentum=self.size)
        kept = dict((name, handle['p'][name].copy()) for name in ('conv1_b',) if name in handle['p'])
        Healthy.update(self, handle, gradient, lr)
        if self.fault == 'frozen-conv1_b-on-rank-1' and self.ctx.rank == 1:
            handle['p'].update(kept)

    def collective(self, op, array, root):
        out = self.ctx.group.collective(op, array, root)
        if self.fault == 'collective' and op == 'allreduce' and array.size == 1000 and self.ctx.rank == 1:
            out[777] += 1
        if self.fault == 'collective-' + op and self.ctx.options['type'] == array.dtype.name and self.ctx.rank == 1:
            np.asarray(out[-1] if op == 'allgather' else out).reshape(-1)[-1] += 1
        return out

    def evidence(self, handle):
        where = ['cuda:%d' % self.ctx.devices[0]] if self.fault == 'elsewhere' else ['cpu']
        return {'parameters': where, 'compute': where, 'memory_bytes': None}


def slow_down(times):
    """Let the clock of the guest run slower in this process, as a library in front of the C library can."""
    start = clock.now()
    modules = [module for name, module in sys.modules.items() if name.startswith('envbuild_smoke') or name.startswith(__package__.split('.')[0])]
    real = clock.now
    for module in modules:
        if getattr(module, 'now', None) is real:
            module.now = lambda: start + (real() - start) / times


def short(array):
    """Round to the 7 mantissa bits of bfloat16."""
    bits = np.ascontiguousarray(array, dtype='float32').view('uint32')
    return ((bits + np.uint32(1 << 15)) & np.uint32(0xffff0000)).view('float32')

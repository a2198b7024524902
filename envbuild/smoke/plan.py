"""From options, image and machine to what will be run: device, counts, and one plan per launch."""
from __future__ import absolute_import, division, print_function

import os

from . import nets, probe_cuda

MOMENTUM = 0.9
LR = 0.05
ORACLE = {'steps': 4, 'batch': 64, 'lr': LR}        # one step misses momentum; sixteen let TF32 rounding look like a fault
GLOBAL_BATCH = 64                                   # held for every count: accuracy then means the same on 1 and N devices
EXCHANGE_BYTES = (4, 320808, 4 << 20)               # one number, this network's gradient, a larger one
ALL_EXCHANGE_BYTES = (4, 1 << 10, 16 << 10, 320808, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


class Refusal(Exception):
    """The options contradict each other or the image."""


class Device(object):
    """Which kind of device is used (None: none can be), how many there are, and why."""

    def __init__(self, kind, available, reason):
        self.kind, self.available, self.reason = kind, available, reason


def choose_device(options, image, found):
    """CPU for a CPU image; a GPU image uses GPUs, or with allow_cpu the CPU, or nothing."""
    wants_gpu = options['device'] == 'cuda' or (options['device'] == 'auto' and image['cuda'] is not None)
    if options['device'] == 'cuda' and image['name'] and image['cuda'] is None:
        raise Refusal('this is a CPU image (%s): --device cuda cannot be' % image['name'])
    cores = found['host']['cores_usable']
    if not wants_gpu:
        return Device('cpu', cores, 'CPU workers share %d cores' % cores)
    if found['devices']:
        return Device('cuda', len(found['devices']), '%d GPUs' % len(found['devices']))
    reason = no_gpu_reason(found['cuda'])
    if options['allow_cpu']:
        return Device('cpu', cores, reason)
    return Device(None, 0, reason)


def no_gpu_reason(cuda):
    """Why there is no usable GPU, in words."""
    if not cuda['library']:
        return 'no NVIDIA driver in the container (%s)' % cuda['problem']
    if cuda['code']:
        return 'cuInit answers %d: %s' % (cuda['code'], probe_cuda.MEANING.get(cuda['code'], ('see cuda.h', ''))[0])
    return 'the driver lists no GPU'


def choose_counts(text, device):
    """The numbers of devices to run, those that do not fit the machine apart: (counts, left out).

    `auto`: 1 and 2 CPU workers; on GPUs the powers of two and all of them, at least asking for 2.
    """
    if device.kind is None:
        return [], []
    if text != 'auto':
        counts = sorted(set(int(part) for part in text.split(',')))
    elif device.kind == 'cpu':
        counts = [1, 2]
    else:
        powers = [1 << k for k in range(12) if 1 << k <= device.available]
        counts = sorted(set(powers + [device.available, 2]))
    fits = [n for n in counts if device.kind == 'cpu' or n <= device.available]
    return fits, [n for n in counts if n not in fits]


def global_batch(n):
    """64, or the next multiple of n."""
    return -(-GLOBAL_BATCH // n) * n


def launch(options, image, kind, n, counts, style, folder, cores):
    """What every launch needs, whatever its phases: plain data, because the ranks read it from a file."""
    return {
        'n': n, 'processes': n if style == 'process' else 1, 'device': kind, 'devices': list(range(n)),
        'adapter': options['adapter'] or image['recipe'], 'options': dict(image['options'], **options['options']),
        # The same for every count, so that one device of a run of two equals the device of the run of one.
        'threads': options['threads'] or max(1, cores // max(counts)),
        'phases': [], 'seed': options['seed'], 'momentum': MOMENTUM, 'data': {}, 'folder': folder,
        'rendezvous': 'file:' + os.path.join(folder, 'rendezvous'),
        'stall_s': options['stall'], 'stall_first_s': max(options['stall'], options['stall_first']),
    }


def phases(options, kind, n, counts, data):
    """What the phases of one launch need.

    One device alone is not timed when there are larger counts: each of those times it in its own rounds, under the same
    conditions as all devices, and only such figures may be compared.
    """
    on_cpu = kind == 'cpu'
    wanted = [phase for phase in options['phases'] if phase != 'bench' or n > 1 or max(counts) == 1]
    return {
        'phases': wanted, 'data': data, 'coll': {'bytes': list(options['coll_bytes'])},
        'oracle': dict(ORACLE, batch=global_batch(n)),
        'train': {'epochs': options['epochs'], 'batch': global_batch(n), 'lr': LR},
        'bench': {
            'workload': 'mnist', 'net': nets.DEFAULT['mnist'],
            'batch': options['batch'] or (64 if on_cpu else 256), 'scaling': options['scaling'], 'rounds': options['rounds'],
            'round_seconds': options['round_seconds'] or (0.25 if on_cpu else 0.5),
            'warmup_min': 10, 'warmup_max': options['warmup_max'], 'double_if_noisy': not on_cpu,
        },
    }

"""Decides from options, image and machine what will be run: device, counts, and one plan per launch."""
from __future__ import absolute_import, division, print_function

import os

from . import stats
from .datasets import workloads
from .machine import probe_cuda
from .machine_checks import equal
from .networks import nets

MOMENTUM = 0.9
LR = 0.05
# Four steps, because momentum has no effect in one step, and after 16 steps the rounding of TF32 looks like a fault.
# `more` further steps, so that a fault that occurs every 20th step or more often occurs in them at least once.
ORACLE = {'net': 'reference', 'steps': 4, 'more': 20, 'batch': 64, 'lr': LR}
BUCKETS = {'net': 'wide', 'steps': 3, 'lr': 0.2}       # PyTorch has several buckets from the second step on
WARM_UP_S = 10                                      # the longest warm-up of a mode, in seconds
GLOBAL_BATCH = 64                                   # the same for every count: accuracies on 1 and N devices can be compared
EXCHANGE_BYTES = (4, 320808, 4 << 20)               # one number, LeNet's gradient, a larger array
ALL_EXCHANGE_BYTES = (4, 1 << 10, 16 << 10, 320808, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


WORKERS_PER_CORE, WORKERS_ANYWHERE = 8, 16          # at most so many CPU workers; WORKERS_ANYWHERE on any machine
BYTES_PER_WORKER = 30 * 10 ** 6                     # Python and NumPy alone need this much memory


class Refusal(Exception):
    """The options contradict each other or the image."""


class Device(object):
    """The devices of a run: their kind, how many are available, the reason for this choice, and their numbers in order of use.

    The kind is 'cpu', 'cuda', or None if no device can be used. `shared` is true if a GPU was named more than once: several
    ranks then work on this GPU, which tests function, not speed.
    """

    def __init__(self, kind, available, reason, numbers=None):
        self.kind, self.available, self.reason = kind, available, reason
        self.numbers = list(range(available)) if numbers is None else numbers
        self.shared = len(set(self.numbers)) < len(self.numbers)


def choose_device(options, image, found):
    """Choose the devices.

    With --device auto, a CPU image uses the CPU and a GPU image uses GPUs; --device chooses one of them. If GPUs are wanted but
    there is none, the run uses the CPU if allow_cpu is set, else no device.
    """
    wants_gpu = options['device'] == 'cuda' or (options['device'] == 'auto' and image['cuda'] is not None)
    if options['device'] == 'cuda' and image['name'] and image['cuda'] is None:
        raise Refusal('--device cuda is not possible: this is a CPU image (%s)' % image['name'])
    cores = found['host']['cores_usable']
    if not wants_gpu:
        if options['devices'] not in ('auto', 'all'):
            raise Refusal('--devices chooses GPUs, but this run uses CPU workers: use --counts to set their number')
        return Device('cpu', cores, 'CPU workers share %d core%s' % (cores, 's' if cores > 1 else ''))
    if found['devices']:
        numbers = chosen_devices(options['devices'], found['devices'])
        apart = len(set(numbers))
        of = '' if apart == len(found['devices']) else ' of %d' % len(found['devices'])
        words = '%d%s GPU%s' % (apart, of, 's' if len(found['devices']) > 1 else '') if apart == len(numbers) else '%d ranks share %d%s GPU%s' % (
            len(numbers), apart, of, 's' if apart > 1 else '')
        return Device('cuda', len(numbers), words, numbers)
    reason = no_gpu_reason(found['cuda'])
    if options['allow_cpu']:
        return Device('cpu', cores, reason)
    return Device(None, 0, reason)


def chosen_devices(text, devices):
    """Return the positions in `devices` of the GPUs that --devices names, in that order; for `auto`, the largest set of equal
    GPUs.

    --devices names a GPU by its number, by its UUID or by the beginning of its UUID. Two ranks share a GPU that is named twice.
    """
    if text == 'auto':
        return equal.largest(devices)
    if text == 'all':
        return list(range(len(devices)))
    places = []
    for word in text.split(','):
        fits = [place for place, device in enumerate(devices)
                if word == '%d' % device['index'] or (word.upper().startswith(('GPU-', 'MIG-')) and (device['uuid'] or '').startswith(word))]
        if len(fits) != 1:
            raise Refusal('--devices: %s is %s; available GPUs: %s' % (
                word, 'no GPU here' if not fits else 'more than one GPU',
                ', '.join('%d (%s)' % (device['index'], device['uuid'] or 'UUID unknown') for device in devices)))
        places += fits
    return places


def no_gpu_reason(cuda):
    """Why there is no usable GPU, in words."""
    if not cuda['library']:
        return 'no NVIDIA driver in the container (%s)' % cuda['problem']
    if cuda['code']:
        return 'cuInit returns error %d: %s' % (cuda['code'], probe_cuda.MEANING.get(cuda['code'], ('see cuda.h', ''))[0])
    return 'the driver reports no GPU'


def choose_counts(text, device):
    """Return (numbers of devices to run, numbers that the machine does not have).

    `auto` means 1 and 2 CPU workers; on GPUs, the powers of two, the number of all GPUs, and always 2, even if there is one
    GPU.
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


def refuse_too_many(workers, host):
    """Raise Refusal if a host has too few cores or too little memory for so many CPU workers.

    `host` is the section `host` of the report.
    """
    cores = host['cores_usable']
    most = max(WORKERS_ANYWHERE, WORKERS_PER_CORE * cores)
    if workers > most:
        raise Refusal('%d workers are too many for %d core%s: with more than %d workers, each waits for a processor most of the time. '
                      'Choose --counts of at most %d' % (workers, cores, '' if cores == 1 else 's', most, most))
    free = min([size for size in (host['mem_available_bytes'], host['mem_limit_free_bytes']) if size is not None] or [float('inf')])
    if workers > 1 and workers * BYTES_PER_WORKER > free:
        raise Refusal('%d workers do not fit into the memory: each needs at least %d MB, and %d MB are free. Choose --counts of at most %d' % (
            workers, BYTES_PER_WORKER // 10 ** 6, free // 10 ** 6, max(1, free // BYTES_PER_WORKER)))


def refuse_impossible(options, parts, counts):
    """Raise Refusal if a batch or the training has too few images, or not a multiple, for one of these numbers of devices."""
    for part in parts:
        unequal = [n for n in counts if 'bench' in options['phases'] and not _scalings(options['scaling'], part.batch, n)]
        if unequal:
            step = _common_multiple(counts)
            raise Refusal('--scaling strong divides a batch among the devices, and %d images cannot be divided equally among %d devices. '
                          'Choose --batch %d or another multiple of %d' % (part.batch, unequal[0], -(-part.batch // step) * step, step))
        needed = max([global_batch(n) for n in counts] or [0]) if 'train' in options['phases'] else 0
        if part.train_images < needed:
            raise Refusal('--train-images %d is less than one step, which trains on %d images. Choose at least %d' % (
                part.train_images, needed, needed))


def _common_multiple(numbers):
    """The smallest number that all these numbers divide."""
    out = 1
    for number in numbers:
        step = out
        while out % number:
            out += step
    return out


def global_batch(n):
    """Return the smallest multiple of n that is at least 64."""
    return -(-GLOBAL_BATCH // n) * n


def launch(options, image, device, n, counts, style, folder, cores):
    """Return the part of a plan that every launch needs. It is plain data, because the ranks read the plan from a file."""
    return {
        'n': n, 'processes': n if style == 'process' else 1, 'device': device.kind,
        'devices': device.numbers[:n] if device.kind == 'cuda' else list(range(n)),
        'adapter': options['adapter'] or image['recipe'], 'options': dict(image['options'], **options['options']),
        'shared': device.shared,
        # The same for every count, so that a device computes with the same number of threads alone and beside others.
        'threads': options['threads'] or max(1, cores // max(counts)),
        'phases': [], 'workloads': [], 'seed': options['seed'], 'momentum': MOMENTUM, 'data': {}, 'folder': folder,
        'rendezvous': 'file:' + os.path.join(folder, 'rendezvous'), 'places': [], 'interface': '',       # set for several hosts
        'stall_s': options['stall'], 'stall_first_s': max(options['stall'], options['stall_first']),
    }


def with_enough_rounds(options):
    """Return (options, notes). A demanded speedup needs enough rounds for an interval, so a smaller --rounds is raised."""
    floors = options['min_speedup'] or options['min_efficiency']
    if not floors or 'bench' not in options['phases'] or options['rounds'] >= stats.LEAST:
        return options, []
    return dict(options, rounds=stats.LEAST), [('%d rounds were timed instead of %d, because --min-speedup and '
                                                '--min-efficiency need at least this many.') % (
        stats.LEAST, options['rounds'])]


def parts(options, device, adapter):
    """Return (the workloads to train, checks for the workloads that do not apply); both are empty if no phase trains."""
    if device.kind is None or not set(options['phases']) & set(('train', 'bench')):
        return [], []
    chosen = workloads.names(options, device.kind)
    strangers = [name for name in options['net'] if nets.of(name).workload not in chosen]
    if strangers:
        raise Refusal('--net %s belongs to --workload %s, which is not tested' % (strangers[0], nets.of(strangers[0]).workload))
    return workloads.choose(chosen, options, device.kind, adapter)


def phases(options, kind, n, counts, parts, places):
    """The part of a plan that the phases of one launch need; `places` says where the data files are.

    If there are larger counts, the launch of one device times nothing: each larger launch times one device in its own rounds,
    because only figures from the same rounds may be compared. Saving is tested once, in the launch with the most devices, and
    compiling once, in the launch with the fewest. The reference network trains longer in the launch with the most devices, and
    there it trains again after the workloads.
    """
    wanted = [phase for phase in options['phases'] if not (phase == 'bench' and n == 1 and max(counts) > 1) and
              not (phase == 'save' and n < max(counts)) and not (phase == 'compile' and n > min(counts)) and
              not (phase == 'buckets' and n == 1)]
    if 'oracle' in wanted and parts and n == max(counts):
        wanted.append('oracle_again')
    sizes = set(options['coll_bytes']) | set(part.net.bytes for part in parts)
    return {
        'phases': wanted, 'data': {'oracle': places['oracle']} if 'oracle' in places else {},
        'coll': {'bytes': sorted(sizes), 'all_types': options['all_types']}, 'oracle': dict(ORACLE, batch=global_batch(n), more=ORACLE['more'] if n == max(counts) else 0),
        'buckets': dict(BUCKETS, batch=global_batch(n)),
        'workloads': [_workload(part, options, kind, n, places[part.name]) for part in parts],
    }


def _workload(part, options, kind, n, places):
    """Return the sections of a plan that only the phases of one workload need."""
    on_cpu = kind == 'cpu'
    return {
        'workload': part.name, 'net': part.net.name, 'data': places,
        'train': {'epochs': part.epochs, 'batch': global_batch(n), 'lr': part.lr},
        'bench': {
            'workload': part.name, 'net': part.net.name, 'batch': part.batch, 'scaling': _scalings(options['scaling'], part.batch, n),
            'rounds': options['rounds'], 'round_seconds': options['round_seconds'] or (0.25 if on_cpu else 0.5),
            'warmup_min': 10, 'warmup_max': options['warmup_max'], 'warmup_seconds': WARM_UP_S, 'double_if_noisy': not on_cpu,
        },
    }


def _scalings(wanted, batch, n):
    """Return the scalings that apply to n devices.

    Strong scaling needs a batch that n divides; on one device both are the same.
    """
    fitting = [scaling for scaling in wanted if scaling == 'weak' or batch % n == 0]
    return fitting[:1] if n == 1 else fitting

"""Turns the times of laps (timed groups of steps) and losses into the figures of the report. Pure functions."""
from __future__ import absolute_import, division, print_function

import hashlib

from .. import stats
from ..networks import nets

CURVE = 200         # points of a loss curve in the report
LAUNCHES = .50      # a step is limited by kernel launches if a larger share of its time does not depend on the batch
# Bus bandwidth divided by algorithm bandwidth, for n ranks: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
BUS = {'allreduce': lambda n: 2.0 * (n - 1) / n, 'allgather': lambda n: (n - 1.0) / n, 'broadcast': lambda n: 1.0}
MODES = ('solo', 'indep', 'dp', 'input')


def run(n, measured, exchange_s=None):
    """Return one entry of the report's `runs`, from the result of bench.measure for one scaling."""
    rounds = measured['rounds']
    laps = dict((name, [entry[name + '_s'] for entry in rounds if entry.get(name + '_s') is not None]) for name in MODES)
    per_device, steps = measured['batch_per_device'], measured['steps_per_round']
    alone = per_device if measured['scaling'] == 'weak' else measured['global_batch']
    step_s = dict((name, stats.median(times) / steps if times else None) for name, times in laps.items())
    out = {
        'n': n, 'workload': measured['workload'], 'net': measured['net'], 'scaling': measured['scaling'],
        'batch_per_device': per_device, 'global_batch': measured['global_batch'], 'precision': 'fp32', 'sync': 'mean',
        'steps_per_round': steps,
        'rounds': measured['rounds'], 'warmup': measured['warmup'], 'warmup_rule': measured['warmup_rule'],
        'step_ms': dict((name, None if s is None else 1e3 * s) for name, s in step_s.items()),
        'images_per_s': dict((name, None if s is None else (alone if name == 'solo' else measured['global_batch']) / s)
                             for name, s in step_s.items()),
        'images_per_s_interval': dict((name, _rate_interval(laps[name], steps * images)) for name, images in (
            ('solo', alone), ('dp', measured['global_batch'])) if laps[name]),
        'speedup': None, 'efficiency': None, 'ceiling': None, 'comm_efficiency': None, 'predicted': None,
        'sync_overhead_ratio': None, 'noise_rel_iqr': stats.relative_iqr(laps['solo']), 'split': _split(laps, steps),
        'busy_ms': dict((name, [1e3 * s for s in each]) for name, each in measured['busy_s'].items()),
        'harness_share': measured['harness_s'] / stats.median(laps['dp'] or laps['solo']),
        'launch_bound': _launch_bound(measured.get('half_s'), steps), 'judged': False, 'why_not_judged': '',
    }
    return dict(out, **_gain(n, laps, step_s, exchange_s, measured['scaling'])) if n > 1 else out


def _launch_bound(half_s, steps):
    """Return {'share', 'half_batch_ms', 'bound'}; None if half a batch was not timed.

    `share` is the share of a step's time that does not depend on the batch. With time = a + b * batch, this time is
    a = 2 * (time of half a batch) - (time of the whole batch). The host spends it on launching one kernel after the other, so a
    faster GPU does not shorten it.
    """
    if not half_s:
        return None
    whole, half = half_s
    share = min(1.0, max(0.0, 2 * half / whole - 1))
    return {'share': share, 'half_batch_ms': 1e3 * half / max(1, steps // 2), 'bound': share > LAUNCHES}


def _rate_interval(laps, images):
    found = stats.interval(laps)
    low, high = found['lo'], found['hi']
    return {'lo': high and images / high, 'hi': low and images / low, 'level': found['level']}


def _split(laps, steps):
    """Return how many milliseconds of a step are for computing, for exchanging gradients, and for copying the batch to the
    devices; None if no lap copied its batches from the host.

    The last two figures are differences between laps of the same round. A difference below zero is noise and counts as zero.
    """
    if not laps['input']:
        return None
    resident = laps['dp'] or laps['solo']
    computing = laps['indep'] or laps['solo']
    fed, exchanged = ([a - b for a, b in zip(*pair)] for pair in ((laps['input'], resident), (resident, computing)))
    parts = [stats.median(computing), max(0.0, stats.median(exchanged)), max(0.0, stats.median(fed))]
    compute, communication, feeding = (1e3 * seconds / steps for seconds in parts)
    return {'compute_ms': compute, 'communication_ms': communication, 'input_ms': feeding,
            'input_share': feeding / (compute + communication + feeding)}


def _gain(n, laps, step_s, exchange_s, scaling):
    factor = n if scaling == 'weak' else 1
    speedup = stats.summary(stats.paired_ratios(laps['solo'], laps['dp'], factor))
    speedup['method'] = 'order statistics of paired ratios, widened by the autocorrelation of the rounds'
    out = {
        'speedup': speedup, 'efficiency': speedup['median'] / n,
        'ceiling': stats.median(stats.paired_ratios(laps['solo'], laps['indep'], factor)),
        'comm_efficiency': stats.median(stats.paired_ratios(laps['indep'], laps['dp'])),
    }
    if exchange_s:
        out['predicted'] = factor * step_s['solo'] / (step_s['indep'] + exchange_s)
        out['sync_overhead_ratio'] = (step_s['dp'] - step_s['indep']) / exchange_s
    return out


def collectives(n, results, link):
    """Return the report's `collectives`: one entry for each operation, type and size. `wrong` counts all ranks."""
    phases = [result['phases']['coll']['table'] for result in results]
    out = []
    for place, entry in enumerate(phases[0]):
        rate = entry['bytes'] / entry['time_s'] / 1e9
        out.append({'op': entry['op'], 'type': entry['type'], 'n': n, 'bytes': entry['bytes'], 'time_us': 1e6 * entry['time_s'],
                    'algbw_GBps': rate, 'busbw_GBps': rate * BUS[entry['op']](n), 'nominal_GBps': link and link['GBps'],
                    'wrong': sum(phase[place]['wrong'] for phase in phases)})
    return out


def exchange_time(results, net):
    """Return the seconds that an all-reduce of this network's gradient takes; None if it was not measured."""
    size = nets.of(net).bytes
    for entry in results[0]['phases'].get('coll', {}).get('table', ()):
        if (entry['op'], entry['type'], entry['bytes']) == ('allreduce', 'float32', size):
            return entry['time_s']
    return None


def training(n, plan, results, images):
    """Return (one entry of the report's `training`, facts for the checks LOSS and ACC). Losses are means over the ranks."""
    phases = [result['phases']['train'] for result in results]
    curves = list(zip(*[phase['losses'] for phase in phases]))
    bad = [step + 1 for step, values in enumerate(curves) if any(value is None for value in values)]
    curve = [None if None in values else sum(values) / len(values) for values in curves]
    known = [value for value in curve if value is not None] or [0.0]
    seconds = max(phase['seconds'] for phase in phases)
    every = -(-len(curve) // CURVE)
    digests = [digest for phase in phases for digest in phase['digests']]
    entry = {
        'n': n, 'global_batch': plan['train']['batch'], 'lr': plan['train']['lr'], 'epochs': plan['train']['epochs'],
        'steps': phases[0]['steps'], 'seconds': seconds, 'images_per_s': phases[0]['steps'] * plan['train']['batch'] / seconds,
        'images': images, 'loss_first': stats.median(known[:10]), 'loss_last': stats.median(known[-10:]),
        'loss': [[step + 1, round(value, 5)] for step, value in enumerate(curve) if value is not None and step % every == 0],
        'accuracy': sum(phase['right'] for phase in phases) / float(sum(phase['asked'] for phase in phases)),
        'test_n': sum(phase['asked'] for phase in phases), 'epoch_speedup': None,
        'replica_digest': [hashlib.sha256(''.join(digest[name] for name in sorted(digest)).encode('ascii')).hexdigest()[:16]
                           for digest in digests],
    }
    return entry, {'outputs_apart': max([phase['outputs_apart'] for phase in phases if phase['outputs_apart'] is not None] or [0.0]),
                   'finite': not bad, 'first_not_finite': bad[0] if bad else None, 'loss_first': entry['loss_first'],
                   'loss_last': entry['loss_last'], 'accuracy': entry['accuracy'], 'test_n': entry['test_n']}

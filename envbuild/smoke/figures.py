"""From laps and losses to the figures of the report: speedup, ceiling, communication, bandwidth. Pure functions."""
from __future__ import absolute_import, division, print_function

from . import refnet, stats

CURVE = 200         # points of a loss curve in the report


def run(n, measured, device, exchange_s, floors):
    """One entry of `runs` from what bench.measure gave for one scaling."""
    laps = dict((name, [entry[name + '_s'] for entry in measured['rounds']]) for name in ('solo', 'indep', 'dp'))
    per_device, steps = measured['batch_per_device'], measured['steps_per_round']
    alone = per_device if measured['scaling'] == 'weak' else measured['global_batch']
    images = {'solo': alone, 'indep': measured['global_batch'], 'dp': measured['global_batch']}
    step_s = dict((name, stats.median(times) / steps if times[0] is not None else None) for name, times in laps.items())
    out = {
        'n': n, 'workload': measured['workload'], 'net': measured['net'], 'scaling': measured['scaling'],
        'batch_per_device': per_device, 'global_batch': measured['global_batch'], 'precision': 'fp32', 'sync': 'mean', 'steps_per_round': steps,
        'rounds': measured['rounds'], 'warmup': measured['warmup'],
        'step_ms': dict((name, None if s is None else 1e3 * s) for name, s in step_s.items()),
        'images_per_s': dict((name, None if s is None else images[name] / s) for name, s in step_s.items()),
        'speedup': None, 'efficiency': None, 'ceiling': None, 'comm_efficiency': None, 'predicted': None,
        'sync_overhead_ratio': None, 'noise_rel_iqr': stats.relative_iqr(laps['solo']),
        'harness_share': measured['barrier_s'] / stats.median(laps['solo'] if n == 1 else laps['dp']),
        'judged': False, 'why_not_judged': '',
    }
    out.update(_judged(n, device, floors))
    if n > 1:
        out.update(_gain(n, laps, step_s, exchange_s, measured['scaling']))
    return out


def _judged(n, device, floors):
    if n == 1:
        why = 'one device is the yardstick'
    elif device == 'cpu':
        why = 'CPU workers share cores'
    elif str(n) not in floors:
        why = 'this small network is bound by launches, not by arithmetic'
    else:
        return {'judged': True, 'why_not_judged': ''}
    return {'judged': False, 'why_not_judged': why}


def _gain(n, laps, step_s, exchange_s, scaling):
    factor = n if scaling == 'weak' else 1
    speedup = stats.summary(stats.paired_ratios(laps['solo'], laps['dp'], factor))
    speedup['method'] = 'order statistics of paired ratios'
    out = {
        'speedup': speedup, 'efficiency': speedup['median'] / n,
        'ceiling': stats.median(stats.paired_ratios(laps['solo'], laps['indep'], factor)),
        'comm_efficiency': stats.median(stats.paired_ratios(laps['indep'], laps['dp'])),
    }
    if exchange_s:
        out['predicted'] = factor * step_s['solo'] / (step_s['indep'] + exchange_s)
        out['sync_overhead_ratio'] = (step_s['dp'] - step_s['indep']) / exchange_s
    return out


def collectives(n, results):
    """Entries of `collectives`: all-reduce by size, and for every operation the wrong elements over all ranks."""
    phases = [result['phases']['coll'] for result in results]
    wrong = sum(answer['wrong'] for phase in phases for answer in phase['answers'] if answer['op'] == 'allreduce')
    out = []
    for entry in phases[0]['speed']:
        rate = entry['bytes'] / entry['time_s'] / 1e9
        out.append({'op': 'allreduce', 'n': n, 'bytes': entry['bytes'], 'time_us': 1e6 * entry['time_s'], 'algbw_GBps': rate,
                    'busbw_GBps': rate * 2 * (n - 1) / n, 'wrong': wrong})
    return out


def exchange_time(results):
    """Seconds of an all-reduce of this network's gradient, None where it was not measured."""
    for entry in results[0]['phases'].get('coll', {}).get('speed', ()):
        if entry['bytes'] == refnet.BYTES:
            return entry['time_s']
    return None


def training(n, plan, results, images):
    """One entry of `training`, losses averaged over ranks, and what LOSS needs to know."""
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
        'replica_digest': ['-'.join(digest[name][:4] for name in refnet.NAMES) for digest in digests],
    }
    return entry, {'finite': not bad, 'first_not_finite': bad[0] if bad else None, 'loss_first': entry['loss_first'],
                   'loss_last': entry['loss_last'], 'accuracy': entry['accuracy'], 'test_n': entry['test_n']}

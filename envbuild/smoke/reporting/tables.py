"""Prints the measurements as lines for people: speed, parts of a step, other schemes, collectives.

Plain ASCII for any locale.
"""
from __future__ import absolute_import, division, print_function

from .. import plain, stats, sync
from . import diff


def measured(report):
    """Return the lines for all measurements of a report."""
    return _speed(report) + _schemes(report) + ([] if report['runs'] or report['training'] else _collectives(report)) + _baseline(report)


def _speed(report):
    """Return a block for each workload and scaling, with one line for each number of devices.

    The line for one device comes from the run on the most devices, whose rounds also time one device alone.
    """
    lines, blocks = [], {}
    for run in report['runs']:
        blocks.setdefault(diff.title(run) if run['scaling'] == 'weak' else (run['net'], run['scaling']), []).append(run)
    for runs in sorted(blocks.values(), key=lambda runs: report['runs'].index(runs[0])):
        last = runs[-1]
        rounds = len(last['rounds'])
        lines += ['speed: %s, %d round%s' % (diff.title(last), rounds, '' if rounds == 1 else 's'), '  %7s %9s %10s  %-20s %7s %6s  %s' % (
            'devices', 'ms/step', 'images/s', 'speedup', 'ceiling', 'comm', 'compute + exchange + input')]
        if last['n'] > 1:
            lines.append('  %7d %9.2f %10.0f  1.00' % (1, last['step_ms']['solo'], last['images_per_s']['solo']))
        lines += [_speed_line(run) for run in runs]
    if lines:
        last = report['runs'][-1]
        lines.append('  not included in these figures: %s. The test itself takes %.2g %% of a lap.' % (
            last['warmup_rule'], 100 * max(run['harness_share'] for run in report['runs'])))
    return lines + plain.words(report)


def _speed_line(run):
    gain, mode, split = run['speedup'], 'dp' if run['n'] > 1 else 'solo', run['split']
    words = stats.words(gain) if gain else '1.00'
    ratios = '%7.2f %6.2f' % (run['ceiling'], run['comm_efficiency']) if gain else '%7s %6s' % ('-', '-')
    where = '%.2f + %.2f + %.2f ms' % (split['compute_ms'], split['communication_ms'], split['input_ms']) if split else ''
    return ('  %7d %9.2f %10.0f  %-20s %s  %s' % (
        run['n'], run['step_ms'][mode], run['images_per_s'][mode], words, ratios, where)).rstrip()


def _schemes(report):
    lines = ['  %d devices, %s: %s' % (entry['n'], entry['sync'], sync.price(entry) or 'not measured') for entry in report['schemes']]
    lines += ['  %d devices, %s' % (check['n'], check['message']) for check in report['checks']
              if check['id'] == 'SYNC' and check['status'] == 'skip' and 'parts' not in check['detail']]
    return ['other ways to synchronise, compared with averaging gradients'] + lines if lines else []


def _collectives(report):
    link, lines = report['link'], []
    for entry in report['collectives']:
        lines += [] if lines else ['collectives%s' % (', link %s, nominally %.1f GB/s' % (link['name'], link['GBps']) if link else ''),
                                   '  %7s %-9s %-8s %10s %11s %12s %12s %6s' % (
                                       'devices', 'operation', 'type', 'bytes', 'us', 'algbw GB/s', 'busbw GB/s', 'wrong')]
        lines.append('  %7d %-9s %-8s %10d %11.1f %12.4g %12.4g %6d' % (
            entry['n'], entry['op'], entry['type'], entry['bytes'], entry['time_us'], entry['algbw_GBps'], entry['busbw_GBps'],
            entry['wrong']))
    return lines


def _baseline(report):
    return ['baseline, %d devices: %s' % (check['n'], check['message'])
            for check in report['checks'] if check['id'] == 'BASELINE' and check['n'] and check['status'] in ('pass', 'skip')]

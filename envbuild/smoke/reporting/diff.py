"""Compares two reports: where the second is worse or better than the first, and what cannot be compared. Pure functions.

`envbuild report A B` on the host has the same rule for figures. If the intervals overlap, the difference is noise; if the
medians differ by at most the tolerance, it is too small to matter; else the second figure is better or worse. Figures are
compared only if workload, network, batch, scaling, precision and scheme are equal. If the devices differ, a lower speed is no
regression. A check of correctness that no longer passes, or a lower accuracy, always is one.
"""
from __future__ import absolute_import, division, print_function

from .. import stats

TOLERANCE = 0.1
ACCURACY_DROP = 0.02        # healthy runs of other seeds differ by less than a point
# Checks that say whether the framework is right; the others are about the machine.
CORRECTNESS = ('IMPORT', 'RUN', 'VERSION', 'BUILD', 'DEVICE', 'COLL', 'ORACLE', 'BUCKETS', 'REPLICA', 'EXCHANGE', 'LOSS', 'ACC', 'SAVE', 'WORK',
               'SYNC')
RUN_KEY = ('workload', 'net', 'scaling', 'precision', 'sync', 'batch_per_device', 'n')
NOISE, LITTLE, BETTER, WORSE, OPEN = 'within the noise', 'within %.0f %%', 'better', 'worse', ('not judged, because there is no '
                                                                                               'confidence interval')


def word(old, new, tolerance):
    """Say how the figure `new` differs from `old`. Both are (median, low, high), and more is better."""
    if None in old or None in new:
        return OPEN
    if old[1] <= new[2] and new[1] <= old[2]:
        return NOISE
    if abs(new[0] / old[0] - 1) <= tolerance:
        return LITTLE % (100 * tolerance)
    return BETTER if new[0] > old[0] else WORSE


def compare(old, new, tolerance=TOLERANCE):
    """Return {'alike': bool, 'speed': [...], 'lost': [...], 'changed': [...], 'apart': [sentence]}.

    alike     whether both reports used the same model of device: only then a lower speed is a regression
    speed     {'n', 'what', 'figure', 'old', 'new', 'word'} of each figure that both reports have
    lost      sentences about checks of correctness that passed only in the first report, and about a lower accuracy
    changed   sentences about other checks whose status changed
    apart     what was not compared, and why
    """
    apart = _unlike(old, new)
    alike, speed = not apart, _speed(old, new, tolerance, apart)
    lost, changed = _checks(old, new)
    return {'alike': alike, 'speed': speed, 'lost': lost + _accuracy(old, new), 'changed': changed, 'apart': apart}


def devices(report):
    """Describe the devices on which the speeds were measured; None if the report does not name them."""
    kind = (report.get('mode') or {}).get('device')
    if kind == 'cpu':
        host = report.get('host') or {}
        return '%s, %s cores' % (host.get('cpu_model'), host.get('cores_usable'))
    names = [device['name'] for device in report.get('devices') or ()]
    return ', '.join(sorted(set(names))) if kind and names else None


def _unlike(old, new):
    before, after = devices(old), devices(new)
    if not before or not after:
        return ['Speeds cannot be compared: at least one report does not name the devices of its run.']
    return [] if before == after else ['Speeds cannot be compared, because the devices differ (%s; %s).' % (before, after)]


def _key(run):
    return tuple({'mean': 'gradients'}.get(run.get(part), run.get(part)) for part in RUN_KEY)


def title(run):
    """Describe an entry of `runs`: workload, network, scaling and batch."""
    return '%s %s, %s scaling, batch %d per device' % (run['workload'], run['net'], run['scaling'], run['batch_per_device'])


def _speed(old, new, tolerance, apart):
    before, out = dict((_key(run), run) for run in old.get('runs') or ()), []
    for run in new.get('runs') or ():
        other = before.pop(_key(run), None)
        if other is None:
            apart.append('Only the second report has: %s, %d devices.' % (title(run), run['n']))
            continue
        for figure, read in (('images/s', _throughput), ('speedup', _speedup)):
            first, second = read(other), read(run)
            if first[0] is not None and second[0] is not None:
                out.append({'n': run['n'], 'what': title(run), 'figure': figure, 'old': first, 'new': second,
                            'word': word(first, second, tolerance)})
    apart += ['Only the first report has: %s, %d devices.' % (title(run), run['n']) for run in before.values()]
    return out


def _throughput(run):
    mode = 'dp' if run['n'] > 1 else 'solo'
    interval = (run.get('images_per_s_interval') or {}).get(mode) or {}
    return run['images_per_s'][mode], interval.get('lo'), interval.get('hi')


def _speedup(run):
    gain = run['speedup'] or {}
    return gain.get('median'), gain.get('lo'), gain.get('hi')


def _by_check(report):
    """Return {key: check}, the first check of each key.

    The scheme is a part of the key, because there is one check for each scheme.
    """
    out = {}
    for check in report.get('checks') or ():
        out.setdefault((check['id'], check['n'], check.get('workload', ''), check['detail'].get('sync', '')), check)
    return out


def _checks(old, new):
    before, after, lost, changed = _by_check(old), _by_check(new), [], []
    for key in sorted(set(before) & set(after), key=str):
        was, now = before[key]['status'], after[key]['status']
        if was == now or 'skip' in (was, now) or key[0] in ('SPEED', 'BASELINE'):
            continue
        about = ' '.join([part for part in (key[0], key[2], key[3]) if part] + (['with %d devices' % key[1]] if key[1] else []))
        sentence = '%s: now %s, before %s: %s' % (about, now, was, after[key]['message'])
        (lost if was == 'pass' and key[0] in CORRECTNESS else changed).append(sentence)
    return lost, changed


def _accuracy(old, new):
    def known(report):
        return dict(((entry['n'], entry.get('workload'), entry.get('net'), entry['epochs'], entry['images']), entry['accuracy'])
                    for entry in report.get('training') or ())

    before, out = known(old), []
    for key, accuracy in sorted(known(new).items(), key=str):
        if key in before and accuracy < before[key] - ACCURACY_DROP:
            out.append('accuracy with %d devices: %s, before %s' % (key[0], stats.percent(accuracy), stats.percent(before[key])))
    return out


def table(old, new, found):
    """Return the comparison as lines for people; `found` is the result of `compare`."""
    lines, last = [], None
    for name, report in (('A', old), ('B', new)):
        about = (report.get('environment') or {}).get('name', '')
        lines.append('%s  %-12s %s  %s' % (name, report['status'].upper(), report.get('started_utc', ''), about))
    for entry in found['speed']:
        head = '%s, %d device%s' % (entry['what'], entry['n'], 's' if entry['n'] > 1 else '')
        lines += [head] if head != last else []
        last = head
        lines.append('  %-9s %s -> %s  %+.1f %%  %s' % (entry['figure'], shown(entry['old']), shown(entry['new']),
                                                        100 * (entry['new'][0] / entry['old'][0] - 1), _of_b(entry['word'])))
    for head, sentences in (('worse', found['lost']), ('changed', found['changed']), ('not compared', found['apart'])):
        lines += [head + ':'] + ['  ' + sentence for sentence in sentences] if sentences else []
    return lines


def _of_b(said):
    return 'B is ' + said if said in (BETTER, WORSE) else said


def shown(figure):
    """Return a figure (median, low, high) as text: '1.90 [1.85, 1.95]', or '1.90' if it has no confidence interval."""
    form = '%.2f' if figure[0] < 100 else '%.0f'
    middle = form % figure[0]
    return middle if None in figure else '%s [%s, %s]' % (middle, form % figure[1], form % figure[2])

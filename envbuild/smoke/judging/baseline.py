"""The check BASELINE, which compares this run with the report of an earlier run, and the exit status of the verb `diff`."""
from __future__ import absolute_import, division, print_function

from ..reporting import diff
from ..check_record import check

NEXT = 'To see what changed, run: envbuild-smoke diff A.json B.json'


def pairs(old, new):
    """Return the pairs of reports to compare, as [(title, old report, new report)].

    The report of an image with several frameworks contains one report (a part) for each framework. If `old` or `new` has parts,
    there is one pair for each framework with a part in both, and its title is the framework. If neither has parts, `old` and
    `new` themselves are the only pair, without a title.
    """
    before, after = (dict((part['framework'], part['report']) for part in report.get('parts') or () if part['report'])
                     for report in (old, new))
    if not before and not after:
        return [('', old, new)]
    return [(name, before[name], after[name]) for name in sorted(set(before) & set(after))]


def exit_code(old, new, tolerance=diff.TOLERANCE):
    """The exit status of `diff`.

    It is 1 if the second report failed or is worse, 3 if it is inconclusive or cannot be compared, else 0.

    The host's `envbuild report A B` follows the same rule with exit codes 9, 10 and 0: envbuild/report/regression.py.
    """
    both, (before, after) = pairs(old, new), _names(old, new)
    codes = [{'pass': 0, 'inconclusive': 3}.get(new.get('status'), 1), 3 if not both or before - after else 0]
    return max(codes + [_exit_code_of_pair(other, diff.compare(one, other, tolerance)) for _, one, other in both], key=(0, 3, 1).index)


def _names(old, new):
    return [set(part['framework'] for part in report.get('parts') or () if part['report']) for report in (old, new)]


def _exit_code_of_pair(new, found):
    """The exit status for one pair of reports. On the CPU only correctness counts, not speed."""
    on_cpu = (new.get('mode') or {}).get('device') == 'cpu'
    if found['lost'] or (not on_cpu and found['alike'] and any(entry['word'] == diff.WORSE for entry in found['speed'])):
        return 1
    return 3 if found['apart'] and not (found['alike'] and found['speed']) else 0


def checks(old, new, tolerance):
    """The checks BASELINE: one for correctness, and one for the speed of each number of devices.

    `tolerance` is None if the user gave none.
    """
    insisted, tolerance = tolerance is not None, diff.TOLERANCE if tolerance is None else tolerance
    found = diff.compare(old, new, tolerance)
    on_cpu = (new.get('mode') or {}).get('device') == 'cpu'
    compared = found['speed'] if found['alike'] else []
    out = [_speed(n, found, on_cpu, insisted, tolerance) for n in sorted(set(entry['n'] for entry in compared))]
    if not compared and (old.get('runs') or new.get('runs')):
        out.append(check('BASELINE', None, 'inconclusive', ' '.join(found['apart']) or 'Neither report has a measured speed.',
                         next_step='Choose a baseline of the same machine, workload and options.'))
    return [_correctness(found)] + out


def _correctness(found):
    if found['lost']:
        return check('BASELINE', None, 'fail', '; '.join(found['lost'])[:1000], next_step=NEXT, detail={'lost': found['lost']})
    apart = ''.join(' ' + sentence for sentence in found['apart'])
    words = 'every check that passed in the baseline passes here.' + apart
    return check('BASELINE', None, 'pass', words, detail={'changed': found['changed']})


def _speed(n, found, on_cpu, insisted, tolerance):
    mine = [entry for entry in found['speed'] if entry['n'] == n]
    worse = [entry for entry in mine if entry['word'] == diff.WORSE]
    words = '; '.join('%s %s, in the baseline %s (%s)' % (
        entry['figure'], diff.shown(entry['new']), diff.shown(entry['old']), entry['word']) for entry in worse or mine)
    if on_cpu:
        status = 'inconclusive' if worse and insisted else 'skip'
        words += ': not judged, because CPU workers share cores'
    else:
        status = 'pass' if not worse else 'fail' if insisted else 'warn'
    lowest = min(entry['new'][0] / entry['old'][0] for entry in mine)
    return check('BASELINE', n, status, words, severity='fail' if insisted else 'warn', value=lowest, limit=1 - tolerance,
                 unit='times the baseline', next_step=NEXT if worse else '', detail={'figures': mine})

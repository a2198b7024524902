"""Judges the parallel schemes other than gradient averaging.

A scheme that must give the same weights as averaging is compared with the reference; the others are judged by accuracy.
"""
from __future__ import absolute_import, division, print_function

from ..reporting import figures
from ..sync import price, steps
from ..check_record import check
from . import checks

WORST = ('fail', 'inconclusive', 'warn', 'pass', 'skip')


def judge(name, n, plan, results, matched, limit, images):
    """Return (entry for the report's `schemes`, its check) for one scheme on n devices.

    `matched(results)` returns the ORACLE check of these results; `limit` is what LOSS and ACC require after training on
    `images` images.
    """
    own = [{'phases': result['phases']['schemes'][name]} for result in results]
    done = own[0]['phases']
    entry = {'n': n, 'sync': name, 'run': None, 'training': None, 'accuracy_difference': None, 'distance': None,
             'staleness': None}
    parts = []
    if 'oracle' in done:
        parts += matched(own) + checks.replicas(n, own)
    if 'train' in done:
        entry['training'], learned = figures.training(n, plan, own, images)
        parts += checks.learning(n, learned, limit)
        right = sum(result['phases']['train']['right'] for result in results)
        yardstick = right / float(sum(result['phases']['train']['asked'] for result in results))
        entry['accuracy_difference'] = entry['training']['accuracy'] - yardstick
        entry['distance'] = done['facts']['distance']
    if done['facts'].get('staleness'):
        entry['staleness'] = done['facts']['staleness']
        parts.append(bounded(n, entry['staleness']))
    for measured in done.get('bench', ()):
        entry['run'] = dict(figures.run(n, measured), sync=name, why_not_judged=('other schemes are compared with '
                                                                                 'averaging gradients, not judged'))
    return entry, _whole(name, n, entry, parts)


def bounded(n, staleness):
    """Check that the parameter server held back processes that were too far ahead.

    `largest` was counted when parameters were sent, independently of the code that holds processes back.
    """
    kept = staleness['largest'] <= staleness['bound']
    return check('SYNC', n, 'pass' if kept else 'fail', 'at most %s ahead of the slowest process, %d allowed' % (
        steps(staleness['largest']), staleness['bound']), value=staleness['largest'], limit=staleness['bound'], unit='steps')


def _whole(name, n, entry, parts):
    """Make one check for the scheme: the worst of its `parts` (checks), or the scheme's speed and accuracy if none is bad."""
    worst = min(parts, key=lambda part: WORST.index(part['status'])) if parts else None
    status = worst['status'] if worst else 'skip'
    if status in ('pass', 'skip'):
        message, next_step = price(entry) or 'nothing was measured', ''
    else:
        message, next_step = '%s: %s' % (worst['id'], worst['message']), worst['next_step']
    return check('SYNC', n, status, '%s: %s' % (name, message), next_step=next_step, detail={'sync': name, 'parts': parts})

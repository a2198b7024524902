"""USED: did the GPUs really work? And THROTTLE while they did."""
from __future__ import absolute_import, division, print_function

from ..verdict import check
from .state import throttle

RISES_BY = 50 * 10 ** 6


def used(n, gpus, seen):
    """`gpus` are the devices of this launch as they were before, `seen` what gpuwatch saw of each while it ran."""
    by_uuid = dict((each['uuid'], each) for each in seen)
    pairs = [(each, by_uuid[each['uuid']]) for each in gpus if each['uuid'] in by_uuid and each['mem_used_bytes'] is not None and
             by_uuid[each['uuid']]['mem_used_bytes'] is not None]
    if len(pairs) < len(gpus):
        return [check('USED', n, 'skip', 'NVML is not there to tell')]
    rises = [(now['mem_used_bytes'] - before['mem_used_bytes'], before['index'], now['util_pct']) for before, now in pairs]
    least, index, _ = min(rises)
    common = dict(value=least, limit=RISES_BY, unit='bytes', detail={'gpus': [dict(now, index=before['index']) for before, now in pairs]},
                  next_step='The framework ran on the CPU: look at DEVICE and BUILD, and at its output.')
    if least < RISES_BY:
        return [check('USED', n, 'fail', 'GPU %d was not used: its memory rose by %.0f MB' % (index, max(0, least) / 1e6), **common)]
    idle = [number for _, number, load in rises if not load]
    if idle and not any(before['mig'] for before, _ in pairs):      # of a slice there is no load
        return [check('USED', n, 'fail', 'GPU %d held memory and did no work: its load stayed 0 %%' % idle[0], **common)]
    common.update(next_step='')
    made = [check('USED', n, 'pass', 'memory rose by %.0f MB or more, load reached %d %%' % (
        least / 1e6, min(load for _, _, load in rises)), **common)]
    return made + [each for each in throttle(n, [dict(now, index=before['index']) for before, now in pairs]) if each['status'] != 'pass']

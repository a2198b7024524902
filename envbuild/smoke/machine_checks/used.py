"""USED: checks that the GPUs really worked. Also repeats the checks HEALTH and THROTTLE with the data of the run."""
from __future__ import absolute_import, division, print_function

from ..check_record import check
from .state import throttle, uncorrected

RISES_BY = 50 * 10 ** 6
WORK = ('train', 'bench')
LONG_S = 3.0                # seconds; shorter work may show as a load of 0 %, because NVML's load is a mean over up to a second


class Gpu(object):
    """The signs that a launch used one GPU, from NVML and from the driver. A figure is None if its source has no answer."""

    def __init__(self, before, seen, results):
        self.index, self.is_slice = before['index'], bool(before['mig'])
        self.rise = _more(before['mem_used_bytes'], seen.get('mem_used_bytes'))
        self.new_processes = _more(before['processes'], seen.get('processes'))
        self.load = None if self.is_slice else seen.get('util_pct')         # NVML reports no load for a slice
        told = [result['contexts'] for result in results if result.get('contexts') is not None]
        self.ranks = None if not told else sum(1 for contexts in told for each in contexts if each['uuid'] in (None, before['uuid']))

    def is_known(self):
        """Whether at least one source has an answer."""
        return (self.rise, self.new_processes, self.ranks) != (None, None, None)

    def is_held(self):
        """Whether at least one source shows that a rank used the GPU.

        Even if memory use did not rise, a rank may have used the GPU: other programs may have freed memory meanwhile.
        """
        return (self.rise or 0) >= RISES_BY or (self.new_processes or 0) > 0 or bool(self.ranks)

    def idleness(self):
        """Say, for each source with an answer, why the GPU seems unused."""
        words = [] if self.rise is None else ['its memory use rose by %.0f MB' % (max(0, self.rise) / 1e6)]
        words += [] if self.new_processes is None else ['no new process appeared on it']
        return ', '.join(words + ([] if self.ranks is None else ['no rank opened it']))

    def use(self):
        """Describe the use of the GPU, by at most two of the sources that show it."""
        words = [] if self.rise is None or self.rise < RISES_BY else ['memory use rose by %.0f MB' % (self.rise / 1e6)]
        words += ['%d new process%s appeared' % (self.new_processes, '' if self.new_processes == 1 else 'es')] if self.new_processes else []
        words += ['%d rank%s computed on it' % (self.ranks, '' if self.ranks == 1 else 's')] if self.ranks else []
        return ' and '.join(words[:2])


def _more(before, now):
    return None if before is None or now is None else now - before


def used(n, gpus, seen, results):
    """Check the use of the GPUs in a launch. `gpus` is their state before the launch; `seen` is what gpuwatch saw during it."""
    by_uuid = dict((each['uuid'], each) for each in seen)
    pairs = [(before, by_uuid.get(before['uuid'], {})) for before in gpus]
    detail = {'gpus': [dict(now, index=before['index']) for before, now in pairs]}
    made = [_verdict(n, [Gpu(before, now, results) for before, now in pairs], _working_seconds(results), detail)]
    for before, now in pairs:
        new_errors = _more(before['ecc_errors'], now.get('ecc_errors'))
        made += [uncorrected(n, before['index'], new_errors, 'counted, during the test,')] if (new_errors or 0) > 0 else []
    watched = [dict(now, index=before['index']) for before, now in pairs if now]
    return made + [each for each in throttle(n, watched) if each['status'] != 'pass']


def _working_seconds(results):
    """The longest time, in seconds, that a rank trained or was timed."""
    return max([0.0] + [sum(seconds for name, seconds in result.get('timing', {}).items() if name.startswith(WORK)) for result in results])


def _verdict(n, gpus, seconds, detail):
    common = dict(unit='bytes', limit=RISES_BY, detail=detail)
    if not all(gpu.is_known() for gpu in gpus):
        return check('USED', n, 'skip', 'not known: neither NVML nor the driver reports whether the GPUs were used')
    rises = [gpu.rise for gpu in gpus if gpu.rise is not None]
    common['value'] = min(rises) if rises else None
    idle = [gpu for gpu in gpus if not gpu.is_held()]
    if idle:
        return check('USED', n, 'fail', 'GPU %d was not used: %s' % (idle[0].index, idle[0].idleness()),
                     next_step='The framework probably ran on the CPU: see the checks DEVICE and BUILD, and its output.', **common)
    at_rest = [gpu for gpu in gpus if gpu.load == 0]
    if at_rest and seconds >= LONG_S:
        return check('USED', n, 'fail', ('a rank allocated memory on GPU %d but did no work there: the load stayed 0 %% '
                                         'in %.0f s of training') % (
            at_rest[0].index, seconds), next_step=('The framework probably ran on the CPU: see the checks DEVICE and '
                                                   'BUILD, and its output.'), **common)
    least = min(gpus, key=lambda gpu: gpu.rise or 0)
    loads = [gpu.load for gpu in gpus if gpu.load is not None]
    if at_rest:
        load = 'the load was 0 %, but this run may be too short to show a load'
    else:
        load = 'load reached %d %%' % min(loads) if loads else 'NVML does not report the load'
    return check('USED', n, 'pass', 'GPU %d: %s; %s' % (least.index, least.use(), load), **common)

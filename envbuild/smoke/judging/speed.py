"""SPEED: judges whether more devices are really faster, and finds what limits the speed if they are not.

Wrong results fail a test, but low speed only warns, unless the user demanded a speedup. Speed is judged only on GPUs and only
with the large network, because the exchange limits the speed of the small one on any machine. CPU workers share cores, so their
figures are reported and never judged.
"""
from __future__ import absolute_import, division, print_function

from .. import stats
from ..rank.bench import NOISY
from ..check_record import check

GOOD, OK = .80, .60         # efficiency: a speedup of 1.8 with 2 GPUs is good; VGG19, with 80 MB of gradients, gave 1.3
CONTENDED = .85             # if efficiency is below this without any exchange, devices compete for something
EXCHANGING = .75            # if efficiency is below this only with the exchange, the exchange is the cause
FEEDING = .25               # the input limits the speed if copying the batch to devices takes more than this share of a step
STRAGGLING = 1.25           # a rank is slow if it needs this many times the median of the other ranks
SUPERLINEAR = 1.15
TOO_FAST = ('speedup above the number of devices: the single device may have been throttled or slowed down, or the smaller batch per '
            'device fits a cache')
UNSURE = .10                # the lower end of a passing interval is at most this share below the floor
MEASURE_BETTER = 'End other programs on this machine, or measure more --rounds.'
JUDGED = 'cifar'


def standing(n, run, kind, options):
    """Return {'judged', 'why_not_judged'} for an entry of the report's `runs`."""
    floors = _floors(n, run, options)
    if n == 1:
        why = 'the speed of several devices is compared with one device'
    elif kind == 'cpu':
        why = 'CPU workers share cores'
    elif _launches(run) and not floors:
        why = 'a step of %.1f ms is limited by kernel launches, not by arithmetic' % run['step_ms']['solo']
    elif run['workload'] != JUDGED and not floors:
        why = 'the network %s is so small that kernel launches and the exchange limit its speed, not arithmetic' % run['net']
    else:
        return {'judged': True, 'why_not_judged': ''}
    return {'judged': False, 'why_not_judged': why}


def _floors(n, run, options):
    """The user's demands for n devices, as [Floor]. They apply only to the first scaling in --scaling."""
    if n == 1 or run['scaling'] != options['scaling'][0]:
        return []
    asked = (('speedup', 1.0, options['min_speedup']), ('efficiency', float(n), options['min_efficiency']))
    return [Floor(what, run['speedup'], per, floors[str(n)]) for what, per, floors in asked if str(n) in floors]


class Floor(object):
    """One demand of the user and the measured figure: median `got`, interval `low` to `high` (None if there is no interval)."""

    def __init__(self, what, gain, per, limit):
        self.what, self.limit, self.rounds = what, limit, gain['rounds']
        self.got, self.low, self.high = (gain[key] and gain[key] / per for key in ('median', 'lo', 'hi'))

    def answer(self):
        """Return ('pass', ''), ('fail', '') or ('inconclusive', the reason).

        With fewer than stats.LEAST rounds, the answer is always inconclusive. Otherwise the demand fails if the whole interval
        is below the floor. It passes if the median reaches the floor and the lower end of the interval is at most a tenth below
        the floor. In all other cases, it is inconclusive. So the median, which the report shows, decides if it was measured precisely enough.
        """
        if self.rounds < stats.LEAST:
            return 'inconclusive', 'at least %d rounds are needed to test a required speed' % stats.LEAST
        if self.high < self.limit:
            return 'fail', ''
        if self.got < self.limit:
            return 'inconclusive', '%s is %.2f, below the required value, but its interval reaches above this value' % (self.what, self.got)
        if self.low < (1 - UNSURE) * self.limit:
            return 'inconclusive', 'the interval of %s reaches more than %.0f %% below the required value' % (self.what, 100 * UNSURE)
        return 'pass', ''


def verdict(n, run, options):
    """The check SPEED of one entry of `runs`; no check for one device."""
    if n == 1:
        return []
    words, floors, what = _words(n, run), _floors(n, run, options), culprits(run)
    told = words + ''.join('; ' + each for each in what)
    common = dict(value=run['speedup']['median'], unit='times', detail={'culprits': what, 'scaling': run['scaling']})
    if not run['judged']:
        if floors:
            return [check('SPEED', n, 'inconclusive', '%s: %s %.2f is required, but the speed cannot be judged here: %s' % (
                words, floors[0].what, floors[0].limit, run['why_not_judged']), limit=floors[0].limit,
                next_step='On CPUs, leave out --min-speedup and --min-efficiency.', **common)]
        told += '; ' + TOO_FAST if _is_too_fast(run) else ''
        return [check('SPEED', n, 'skip', '%s: not judged, because %s' % (told, run['why_not_judged']), severity='warn', **common)]
    return [_demanded(run, words, told, floors, common) if floors else _by_itself(run, words, told, common)]


def unmeasured(options, made):
    """Return an inconclusive check SPEED if the user demanded a speed with N devices, but `made` has no check SPEED for N.

    If `made` has a failed or inconclusive check, return no check: the run cannot pass anyway.
    """
    if any(each['status'] in ('fail', 'inconclusive') for each in made):
        return []
    judged = set(each['n'] for each in made if each['id'] == 'SPEED')
    missing = sorted(set(int(n) for n in list(options['min_speedup']) + list(options['min_efficiency'])) - judged)
    if not missing:
        return []
    return [check('SPEED', None, 'inconclusive', 'a speed was required with %s devices, but none was measured' % (
        ' and '.join('%d' % n for n in missing)), next_step='In --min-speedup and --min-efficiency, name only numbers above 1 that --counts tests, and '
                                                            'include bench in --phases.')]


def _demanded(run, words, told, floors, common):
    n, what = run['n'], common['detail']['culprits']
    answers = [(floor,) + floor.answer() for floor in floors]
    asked = '; required: ' + ' and '.join('%s %.2f' % (floor.what, floor.limit) for floor in floors)
    missed = [floor for floor, status, _ in answers if status == 'fail']
    # Noise makes a failure inconclusive only if it is large enough that the interval might reach the floor.
    if missed and _noisy(run) and not any(floor.high * (1 + run['noise_rel_iqr']) < floor.limit for floor in missed):
        return check('SPEED', n, 'inconclusive', ('%s%s: too noisy to judge, because the speed of one device alone varies '
                                                  'by %.0f %%') % (
            told, asked, 100 * run['noise_rel_iqr']), limit=missed[0].limit, next_step=MEASURE_BETTER, **common)
    if missed:
        return check('SPEED', n, 'fail', words + asked, limit=missed[0].limit,
                     next_step='; '.join(what) or 'The measurements show no single cause.', **common)
    for floor, status, why in answers:
        if status == 'inconclusive':
            return check('SPEED', n, 'inconclusive', '%s%s: %s' % (told, asked, why), limit=floor.limit, next_step=MEASURE_BETTER, **common)
    return check('SPEED', n, 'pass', words + asked, limit=floors[0].limit, **common)


def _by_itself(run, words, told, common):
    n, what = run['n'], common['detail']['culprits']
    gain = run['speedup']
    noise = ' (noisy: the speed of one device alone varies by %.0f %%)' % (100 * run['noise_rel_iqr']) if _noisy(run) else ''
    if gain['lo'] is None:
        status, comment = 'skip', 'not judged, because one round has no confidence interval'
    elif run['scaling'] != 'weak':
        status, comment = ('warn', 'more devices make training slower') if gain['hi'] < 1 else ('pass', 'no limit applies with a fixed total batch')
    elif _is_too_fast(run):
        status, comment = 'pass', TOO_FAST
    elif gain['lo'] >= GOOD * n:
        status, comment = 'pass', 'good'
    elif gain['median'] >= OK * n:
        status, comment = 'pass', 'ok'
    else:
        status, comment = 'warn', 'more devices make training slower' if gain['hi'] < 1 else 'low for this number of devices'
    message = '%s: %s%s' % (words if comment == 'good' else told, comment, noise)
    return check('SPEED', n, status, message, severity='warn', limit=OK * n,
                 next_step='; '.join(what) if status == 'warn' else '', **common)


def _is_too_fast(run):
    """Whether more devices are faster than devices that share the work can be."""
    gain = run['speedup']
    return run['scaling'] == 'weak' and gain['lo'] is not None and gain['lo'] > SUPERLINEAR * run['n']


def _noisy(run):
    return run['noise_rel_iqr'] > NOISY


def _words(n, run):
    gain = run['speedup']
    return 'speedup %s with %d devices (%s scaling)%s' % (stats.words(gain), n, run['scaling'], _dependent(gain))


def _dependent(gain):
    """Say that the rounds depend on each other, if they do so much that the interval is less certain than usual."""
    found = gain['autocorrelation']
    return '' if found is None or found <= stats.DEPENDENT else ', rounds depend on each other (autocorrelation %.1f)' % found


def culprits(run):
    """Sentences that say what limits the speed, the largest loss first."""
    n, found = run['n'], []
    share = run['ceiling'] / n if run['scaling'] == 'weak' else min(1.0, run['ceiling'] / n)
    if _launches(run):
        # The exchange adds kernel launches, too, so its cost says nothing about the links.
        found.append((1 - run['launch_bound']['share'], 'launch-bound: %.0f %% of a step of %.1f ms does not depend on '
                                                        'the batch size, because the GPU waits for the host between '
                                                        'kernels (use a larger --batch to test the exchange)' % (
                          100 * run['launch_bound']['share'], run['step_ms']['solo'])))
    elif run['comm_efficiency'] < EXCHANGING:
        found.append((run['comm_efficiency'], 'communication-bound: the exchange takes %.0f %% of a step%s' % (
            100 * (1 - run['comm_efficiency']), _path(run))))
    if share < CONTENDED:
        found.append((share, 'contention: even without an exchange, %d devices give a speedup of only %.2f (%s)' % (
            n, run['ceiling'], straggler(run) or 'the devices share power, PCIe, cores or memory, or they differ')))
    split = run.get('split')
    if split and split['input_share'] > FEEDING:
        found.append((1 - split['input_share'], 'input-bound: copying the batch to the devices takes %.0f %% of a step' % (
            100 * split['input_share'])))
    held = sorted(set(why for entry in run['rounds'] for gpu in entry.get('gpus', ()) for why in gpu['held_down']))
    if held:
        found.append((1.0, 'the clock was kept low by: ' + ', '.join(held)))
    return [words for _, words in sorted(found)]


def _launches(run):
    return bool(run['launch_bound'] and run['launch_bound']['bound'])


def _path(run):
    ratio = run['sync_overhead_ratio']
    if ratio is not None and ratio > 3:
        return (', which is %.0f times the duration of one all-reduce of the same size: the framework exchanges gradients '
                'inefficiently') % ratio
    return ': check peer access and NCCL' if run['judged'] else ''


def straggler(run):
    """Say which rank clearly needs longer than the others for the same work without exchange; '' if no rank does."""
    busy = run['busy_ms'].get('indep', [])
    if len(busy) < 2:
        return ''
    slowest = max(busy)
    others = sorted(busy)[:-1]
    usual = others[len(others) // 2]
    if slowest <= STRAGGLING * usual:
        return ''
    return 'rank %d is slow: %.1f ms per step, other ranks %.1f ms' % (busy.index(slowest), slowest, usual)

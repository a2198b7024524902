"""Checks that the timed steps also computed the right result: REPLICA for the timed models, EXCHANGE and TIME.

Pure functions.
"""
from __future__ import absolute_import, division, print_function

from ..networks import nets
from ..rank.timed import NOT_FINITE
from ..check_record import check
from . import checks

# Limits for the error of an applied gradient, as a share of the distance between the gradient of a single device and the mean
# of all devices. Without any exchange, this error is 1.
# The narrowest limit is for images for which no ReLU and no maximum is about to switch, on CPUs and in exact arithmetic.
APART, EXACT_APART, CLEAR_EXCHANGE_APART = .10, .05, 2e-3
PARAMETER_APART, EXACT_PARAMETER_APART = .30, .10       # of a single parameter, beyond what rounding of the weights explains
# Limits as a share of the gradient. Healthy errors in single precision: 3e-7 (LeNet), 4e-3 (ResNet-20), 1e-2 (VGG19); in
# bfloat16: 0.08, 0.32, 0.65. The exact limits are for LeNet if no reduced precision is allowed. Rounding causes errors of at
# most 7e-4 there (150 seeds). Noise of 1e-4 in the weights, as from an inexact convolution, causes 0.022, because some ReLUs
# and maxima switch.
SINGLE_APART, SINGLE_EXACT_APART = .25, .03
# On CPUs, for images for which no ReLU and no maximum is about to switch. Healthy: 3e-6 at start weights, 1.1e-4 at trained
# ones, where the gradient is the small difference of large numbers.
CLEAR_APART, CLEAR_TRAINED_APART = 2e-4, 2e-3
HOLDS = .5                  # with bfloat16, a step of a large network contains HOLDS to 1 / HOLDS times the gradient
# The limit for the error of each single parameter, as a share of its own gradient. Healthy errors in single precision: 0.003
# (LeNet), 0.054 (ResNet-20), 0.018 (VGG19).
SINGLE_PARAMETER_APART = .50
# In a reduced precision, errors of a parameter are larger (0.9 in bfloat16), but have no preferred direction. So for large
# parameters, the limit is how much of its own gradient a step contains: a tenth to ten times as much. Healthy: 0.69 to 1.01.
LEAST_HELD, MOST_HELD = .1, 10.0
# The reported loss may differ from the right one by this share. Healthy, in single precision: 3e-6 with LeNet.
LOSS_APART, EXACT_LOSS_APART = .08, 1e-3
MOST_ROUNDED = 1.0          # and it differs from the gradient by at most this share of the gradient
SCALED = .02                # a gradient that only has a wrong factor leaves at most this share of the difference unexplained
UNTOLD = .20                # nothing can be decided if rounding alone causes a larger error
# An error is smooth if another learning rate and a weight decay explain most of it. Errors of arithmetic are random, so these
# two explain almost nothing of them. Therefore the limit for a smooth error, in exact arithmetic, can be narrower than the
# limits above.
SMOOTH_APART, SMOOTH_LEFT = 2e-3, .5
ROUNDED = .75               # a gradient was rounded if more of its numbers lie where rounding puts them (rank.rounded)
# The coarser type comes first: within the range of float16, each number of bfloat16 is also a number of float16.
HALVES = ('bfloat16', 'float16')
PRECISE = 1e-3              # an error is quoted if rounding alone causes at most this one
LEAST_LOSS = 1e-3           # smaller losses have few digits and may be equal by chance
LEAST_EQUAL = 3
# The longest wait for a loss after a lap, as a share of the lap. Reading a loss that is ready takes less than a thousandth.
LATE = .25
NOT_LOOKED_AT = 'not checked: the adapter cannot set weights'
HIDDEN = 'not checked: rounding errors hide how a step changes the weights'
WORDS = {'dp': 'timed steps with exchange (dp)', 'input': 'timed steps with data from the host (input)', 'train': 'training steps'}


def replicas(n, own):
    """REPLICA of one workload: whether replicas are equal after training and after the last timed lap."""
    found = checks.replicas(n, own)
    looks = [measured for measured in own[0]['phases'].get('bench', ()) if measured['checked']]
    if any(made['status'] == 'fail' for made in found) or not looks:
        return found
    for measured in looks:
        copies = measured['checked']['copies']['dp']
        different = [(place, name) for place, copy in enumerate(copies) for name in sorted(copy) if copy[name] != copies[0].get(name)]
        if different:
            place, name = different[0]
            return [check('REPLICA', n, 'fail', ('replicas differ after speed was measured (%s scaling), first in '
                                                 'parameter %s of replica %d') % (
                measured['scaling'], name, place), value=len(set(p for p, _ in different)), limit=0, unit='differing replicas',
                detail={'parameters': sorted(set(name for _, name in different))},
                next_step=('During the measurement, less was exchanged than in the earlier checks, so the measured speed '
                           'is not that of data parallelism.'))]
    if len(looks[0]['checked']['copies']['dp']) < 2:
        return found or [check('REPLICA', n, 'skip', 'the devices share one set of parameters, so there are no replicas '
                                                     'to compare')]
    after = 'replicas identical after the last timed lap'
    return [dict(found[0], message='%s; %s' % (found[0]['message'], after))] if found else [
        check('REPLICA', n, 'pass', after, value=0, limit=0, unit='differing replicas')]


def drained(n, own):
    """TIME of one workload. It fails if the loss of a lap's last step came late: devices still worked when the lap ended."""
    shares = [(share, mode) for measured in own[0]['phases'].get('bench', ()) for mode, share in measured.get('late', {}).items()]
    share, mode = max(shares or [(0.0, '')])
    if share <= LATE:
        return []
    return [check('TIME', n, 'fail', 'devices were still computing when a timed lap (mode %s) ended: the loss of its last step '
                                     'took another %.2g times as long as the lap' % (mode, min(share, 99)),
                  value=share, limit=LATE, unit='of a lap',
                  next_step='The framework reports too early that its devices have finished, so all measured times are too short. '
                            'Check which work its synchronisation call waits for.')]


def exchange(n, own, oracle, exact=False, kind='cpu'):
    """EXCHANGE of one workload: timed steps and training steps must average the gradients of all devices of this kind.

    `oracle` has the losses of each rank in phase `oracle`, if this phase was run; `exact` selects the narrower limit.
    """
    phases = own[0]['phases']
    looks = [phases['train'].get('checked')] if 'train' in phases else []
    looks += [measured['checked'] for measured in phases.get('bench', ())]
    looks = [look for look in looks if look]
    if not looks:
        return []
    for found in (_alike_alone(n, phases), _same_images(n, own, oracle)):
        if found:
            return [found]
    entries = [entry for look in looks for entry in look['exchange'] or () if _counts(entry, exact, kind)]
    if not entries:
        return [check('EXCHANGE', n, 'skip', NOT_LOOKED_AT)]
    told = [entry for entry in entries if entry['rounding'] <= UNTOLD]
    if not told:
        return [check('EXCHANGE', n, 'skip', HIDDEN)]
    made = _averaged(n, told, exact, kind)
    if made['status'] == 'pass':
        alone = [entry['apart'] for measured in _measured(phases) for entry in measured['single']
                 if _counts(entry, exact, kind) and entry['rounding'] <= PRECISE]
        made['detail']['single'] = max(alone) if alone else None
        made['message'] += '; the gradient of one device differs from that of NumPy by %.1e' % max(alone) if alone else ''
    return [made]


def is_exact(net, precisions):
    """Whether the narrower limits apply: the network has no batch normalisation, and no reduced precision is allowed."""
    return not precisions and not net.normalised


def _measured(phases):
    """The measurements of one workload in which a model on one device was compared with NumPy."""
    return [measured for measured in list(phases.get('bench', ())) + [phases.get('train', {})] if measured.get('single')]


def _counts(entry, exact, kind):
    """Whether a measured step is judged. Steps from trained weights are judged only on CPUs and in exact arithmetic.

    The gradients at trained weights are small, so errors of arithmetic are a larger share of them. No limit was measured for
    GPUs.
    """
    return not entry.get('trained') or (exact and kind == 'cpu')


def single(n, own, precisions=(), kind='cpu'):
    """Return a failed check EXCHANGE if a model that was timed on one device does not follow its own gradient; else no check.

    In a launch of one device, a skipped check says that nothing could be checked. `precisions` are the reduced precisions that
    the run can use. Their rounding error grows from one normalised layer to the next, but it has no preferred direction, so a
    step still contains most of the gradient.
    """
    phases = own[0]['phases']
    looks = [measured for measured in phases.get('bench', ()) if 'single' in measured]
    wrong, told, reported = [], 0, []
    for measured in _measured(phases):
        of = 'training' if measured is phases.get('train') else 'timed'
        net = nets.of(measured['net'])
        exact = is_exact(net, precisions)
        entries = [entry for entry in measured['single'] if _counts(entry, exact, kind)]
        for entry in [entry for entry in entries if entry['rounding'] <= UNTOLD]:
            most = _most_apart(entry, exact, kind)
            held = HOLDS <= entry['holds'] <= 1 / HOLDS and entry['apart'] <= MOST_ROUNDED
            lost = not held if precisions and net.normalised else entry['apart'] > most + 2 * entry['rounding']
            lost = lost or (exact and (is_smooth(entry) or bool(rounded_to(entry)) or bool(smooth_parameter(entry))))
            lost = lost or bool(lost_parameter(entry, precisions))
            wrong, told = wrong + ([dict(entry, limit=most, of=of)] if lost else []), told + 1
        reported = reported or _misreported(n, [dict(entry, of='%s steps of one device' % of) for entry in entries], exact)
    if not wrong:
        seen = any(measured['single'] for measured in looks)
        return reported or ([check('EXCHANGE', n, 'skip', HIDDEN if seen else NOT_LOOKED_AT)] if n == 1 and looks and not told else [])
    worst = max(wrong, key=lambda entry: entry['apart'] / entry['limit'])
    return [check('EXCHANGE', n, 'fail', 'the %s steps of one device (rank %d) do not change its weights by the gradient of its '
                                         'images: the difference is %.4g %% of the gradient%s' % (
                      worst['of'], worst['rank'], min(100 * worst['apart'], 9999), _how(worst, precisions)),
                  value=worst['apart'], limit=worst['limit'], unit='of the gradient', detail={'worst': worst},
                  next_step=('If the check ORACLE passes, a layer that its network does not have (ReLU, max pooling) is '
                             'wrong, or steps after the first ones leave out some work, so that their speed means nothing.'))]


def _most_from_mean(entry, exact, kind):
    """Return the largest allowed distance of a step from the mean gradient, as a share of the difference between devices."""
    if not exact:
        return APART
    return CLEAR_EXCHANGE_APART if kind == 'cpu' and entry.get('clear') else EXACT_APART


def _most_apart(entry, exact, kind):
    """Return the largest allowed error of a step of one device, as a share of the gradient."""
    if not exact:
        return SINGLE_APART
    if kind != 'cpu' or not entry.get('clear'):
        return SINGLE_EXACT_APART
    return CLEAR_TRAINED_APART if entry.get('trained') else CLEAR_APART


def _how(worst, precisions):
    """Describe how the steps of one device differ from the gradient; '' if no description fits."""
    parameter, smooth = lost_parameter(worst, precisions), smooth_parameter(worst)
    if abs(abs(worst['holds'] - 1) - worst['apart']) < SCALED * worst['apart'] and 0 < worst['holds'] < NOT_FINITE:
        return '; each step is %.3g times as large as it should be' % worst['holds']
    if is_smooth(worst):
        return '; it is ' + as_if(worst)
    if rounded_to(worst):
        return '; the gradients are rounded to %s' % rounded_to(worst)
    if parameter:
        return "; in parameter %s, it is %.4g %% of this parameter's gradient" % (parameter['parameter'], min(100 * parameter['apart'], 9999))
    return '; in parameter %s, it is %s' % (smooth['parameter'], as_if(smooth)) if smooth else ''


def _misreported(n, entries, exact):
    """Return a failed check EXCHANGE if the losses of steps that change the weights rightly are reported wrongly; else no check.

    Each entry says in `of` which steps these are.
    """
    most = EXACT_LOSS_APART if exact else LOSS_APART
    worst = max(entries or [{}], key=lambda entry: abs(entry.get('loss', 1) - 1))
    if abs(worst.get('loss', 1) - 1) <= most:
        return []
    what = 'not a finite number' if worst['loss'] == NOT_FINITE else '%.4g times the right one' % worst['loss']
    return [check('EXCHANGE', n, 'fail', 'the %s (rank %d) change the weights rightly, but report a loss that is %s' % (
        worst['of'], worst['rank'], what), value=abs(worst['loss'] - 1), limit=most, unit='of the loss', detail={'worst': worst},
        next_step='Training is right, but not the loss that is printed or logged: check how it is averaged, scaled and read.')]


def lost_parameter(entry, precisions):
    """Return what is known of the parameter whose gradient a step does not apply; None if there is none.

    The error of the whole gradient does not show this, because a parameter's part of it may be small.
    """
    found = entry.get('parameters', {})
    if precisions:
        worst = found.get('holds')
        return worst if worst and not LEAST_HELD <= worst['holds'] <= MOST_HELD else None
    worst = found.get('apart')
    return worst if worst and worst['apart'] > SINGLE_PARAMETER_APART else None


def is_smooth(entry):
    """Whether the error is too large for arithmetic, and most of it is that of another learning rate or weight decay."""
    smooth = entry.get('smooth')
    return bool(smooth) and entry['apart'] > SMOOTH_APART + 4 * entry['rounding'] and smooth['left'] < SMOOTH_LEFT


def smooth_parameter(entry):
    """Return what is known of the parameter that has another learning rate or weight decay than the others; None without one."""
    found = entry.get('parameters', {}).get('smooth')
    return found if found and is_smooth(found) else None


def rounded_to(entry):
    """The half-precision type to which the gradient was rounded; '' if it was not."""
    shares = entry.get('rounded') or {}
    return next((name for name in HALVES if shares.get(name, 0.0) > ROUNDED), '')


def as_if(entry):
    """Describe a smooth error."""
    return 'as if each step were %.4g times as large, with a weight decay of %.2g' % (1 + entry['smooth']['scale'], entry['smooth']['decay'])


def _averaged(n, entries, exact, kind):
    """Make the check EXCHANGE from all conclusive entries."""
    most_of_one = EXACT_PARAMETER_APART if exact else PARAMETER_APART
    limits = [(entry, _most_from_mean(entry, exact, kind)) for entry in entries]
    wrong = [(entry, most) for entry, most in limits if entry['apart'] > most + 2 * entry['rounding']
             or entry['parameter_apart'] > most_of_one or (exact and (is_smooth(entry) or rounded_to(entry)))]
    worst, most = max(wrong or [pair for pair in limits if pair[0]['rounding'] < .01] or limits,
                      key=lambda pair: max(pair[0]['apart'] / pair[1], pair[0]['parameter_apart'] / most_of_one))
    common = dict(value=worst['apart'], limit=most, unit='of the difference between devices', detail={'worst': worst})
    if worst['apart'] >= NOT_FINITE:
        return check('EXCHANGE', n, 'fail', 'the %s change weights by numbers that are not finite (rank %d)' % (WORDS[worst['of']], worst['rank']),
                     next_step='If the check ORACLE passes, later steps overflow or divide by zero.', **common)
    if not wrong:
        misreported = _misreported(n, [dict(entry, of=WORDS[entry['of']]) for entry in entries], exact)
        return misreported[0] if misreported else check('EXCHANGE', n, 'pass', 'the timed steps average the gradients of %d devices with an error of %.1e' % (n, worst['apart']),
                     **common)
    alike = [entry for entry in entries if (entry['of'], entry['lr']) == (worst['of'], worst['lr'])]
    distance, likely = min((max(entry['others'].get(name, 1e9) for entry in alike), name) for name in sorted(worst['others']))
    if distance <= APART + 2 * worst['rounding']:
        why = likely
    elif is_smooth(worst):
        why = as_if(worst)
    elif exact and rounded_to(worst):
        why = 'the gradients are rounded to %s' % rounded_to(worst)
    elif worst['apart'] <= most + 2 * worst['rounding']:
        why = 'parameter %s has the largest error' % worst['parameter']
    else:
        why = 'no known fault explains it (the most similar fault: %s)%s' % (
            likely, '; parameter %s has the largest error' % worst['parameter'] if worst['parameter'] else '')
    return check('EXCHANGE', n, 'fail', 'the %s do not average the gradients of %d devices (rank %d): %s' % (
        WORDS[worst['of']], n, worst['rank'], why), next_step='If the check ORACLE passes, the exchange or the division '
                                                              'of the data changes after the first steps.', **common)


def _alike_alone(n, phases):
    """Return a failed check if devices that trained alone, each on its own images, hold the same weights; else None."""
    for measured in phases.get('bench', ()):
        copies = measured['checked']['copies']['indep'] if measured['checked'] else []
        for place, copy in enumerate(copies):
            if copy in copies[:place]:
                return check('EXCHANGE', n, 'fail', 'devices %d and %d have the same weights after training without '
                                                    'exchange (indep): either they exchange data, or they received the '
                                                    'same images' % (copies.index(copy), place),
                             next_step=('The ceiling and the cost of the exchange are measured against these steps, so '
                                        'both figures are wrong.'))
    return None


def _same_images(n, own, oracle):
    """Return a failed check if two ranks had the same images in some steps: their losses are equal there and differ elsewhere.

    Replicas with equal weights have equal losses on the same images, and on other images only by chance. If the losses of ranks
    are equal in all steps, the adapter reports one common loss, which shows nothing.
    """
    series = [('reference steps', list(zip(*oracle)))] if oracle else []
    if 'train' in own[0]['phases']:
        series.append(('training steps', list(zip(*[phases['phases']['train']['losses'] for phases in own]))))
    for measured in own[0]['phases'].get('bench', ()):
        losses = measured['checked']['losses'] if measured['checked'] else {}
        series += [('timed laps (%s)' % mode, list(zip(*ranks))) for mode, ranks in sorted(losses.items())]
    if len(own) < 2 or all(_equal(step) for _, steps in series for step in steps if _telling(step)):
        return None
    for where, steps in series:
        equal = [number for number, step in enumerate(steps) if _telling(step) and _equal(step)]
        if len(equal) >= min(LEAST_EQUAL, len(steps)):
            first, second = _equal(steps[equal[0]])
            return check('EXCHANGE', n, 'fail', ('ranks %d and %d received the same images in %d of %d %s, first in '
                                                 'number %d') % (
                first, second, len(equal), len(steps), where, equal[0] + 1), value=len(equal), limit=0, unit=where,
                next_step='The division of the data among the ranks changes during the run.')
    return None


def _telling(step):
    return all(loss is not None and LEAST_LOSS < loss < 1e30 for loss in step)


def _equal(step):
    """Return two ranks with equal losses, or None if all differ."""
    for rank, loss in enumerate(step):
        if loss in step[:rank]:
            return step.index(loss), rank
    return None

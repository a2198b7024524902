"""From what the ranks measured to checks, each with its value, its limit, and what to do next. Pure functions."""
from __future__ import absolute_import, division, print_function

import numpy as np

from . import diagnose, refnet
from .verdict import check

ORACLE_PASS = 1e-3          # single precision gives 1e-6; 300 times above that, 600 times below the faintest fault
ORACLE_REDUCED = 0.2        # TF32 gives 0.05, bfloat16 0.12, a lost 10-element bias 0.6 to 1.4
LOSS_FALLS_TO = 0.25


def placement(n, device, evidence):
    """DEVICE: where parameters lived and steps ran."""
    places = sorted(set(place for each in evidence for place in each['parameters'] + each['compute']))
    compute = sorted(set(place for each in evidence for place in each['compute']))
    on_gpu = bool(compute) and all('gpu' in place.lower() or 'cuda' in place.lower() for place in compute)
    right = on_gpu == (device.kind == 'cuda')
    return [check('DEVICE', n, 'pass' if right else 'fail', 'used: ' + ', '.join(places), detail={'evidence': evidence},
                  next_step='' if right else 'The framework fell back to another device without a word: check its build and driver.')]


def collectives(n, results):
    """COLL over all ranks."""
    if n > 1 and len(results) == 1:
        return [check('COLL', n, 'skip', 'all devices are in one process: there are no collectives between processes')]
    if n == 1:
        return [check('COLL', n, 'skip', 'one device has nothing to exchange')]
    wrong, tried = [], 0
    for rank, result in enumerate(results):
        for answer in result['phases']['coll']['answers']:
            tried += 1
            if answer['wrong']:
                wrong.append(dict(answer, rank=rank))
    if not wrong:
        return [check('COLL', n, 'pass', '%d answers exact' % tried, value=0, limit=0, unit='wrong answers')]
    first = wrong[0]
    return [check('COLL', n, 'fail', '%s of %d %s numbers is wrong on ranks %s, first at element %s' % (
        first['op'], first['elements'], first['type'], sorted(set(w['rank'] for w in wrong)), first['first_wrong']),
        value=len(wrong), limit=0, unit='wrong answers', detail={'wrong': wrong[:20]},
        next_step='Look for corrupt peer copies (IOMMU, ACS): try NCCL_P2P_DISABLE=1.')]


def oracle(n, case, want, saved):
    """ORACLE: the largest error of any parameter of any copy; `saved` is [(replica, weights)]."""
    found = [_errors(replica, weights, want, case.start) for replica, weights in saved]
    value, name, replica, overall, each = max(found)
    detail = {'overall': overall, 'worst_parameter': name, 'replica': replica, 'parameters': each, 'hypothesis': None}
    common = dict(value=value, limit=ORACLE_PASS, unit='relative', detail=detail)
    if value <= ORACLE_PASS:
        return [check('ORACLE', n, 'pass', 'weights agree with the reference to %.1e' % value, **common)]
    detail['hypothesis'] = fault = diagnose.name_fault(case, saved, [name])
    if fault['id']:
        words = fault['sentence']
    elif value <= ORACLE_REDUCED:
        return [check('ORACLE', n, 'warn', 'weights agree to %.1e only: a reduced precision such as TF32 is active' % value,
                      severity='warn', next_step='For single precision set NVIDIA_TF32_OVERRIDE=0.', **common)]
    else:
        words = 'weights are wrong, most of all %s of replica %d, and no known fault explains it (nearest: %s)' % (
            name, replica, fault['second'])
    return [check('ORACLE', n, 'fail', words, next_step='Compare with 1 device: right there and wrong here means the averaging.' if n > 1
                  else 'One device is wrong already: the fault is in the arithmetic, not in the exchange.', **common)]


def _errors(replica, weights, want, start):
    """(largest, its parameter, replica, overall, {parameter: error}), with a large number in place of one that is not finite."""
    overall, each = refnet.errors(weights, want, start)
    each = dict((name, error if np.isfinite(error) else 1e9) for name, error in each.items())
    worst = max(sorted(each), key=lambda name: each[name])
    return each[worst], worst, replica, overall if np.isfinite(overall) else 1e9, each


def replicas(n, results):
    """REPLICA: equal bits after every step and after training."""
    if n == 1:
        return [check('REPLICA', n, 'skip', 'one device has one replica')]
    steps = [sum((r['phases']['oracle']['digests'][i] for r in results), []) for i in
             range(len(results[0]['phases']['oracle']['digests']))] if 'oracle' in results[0]['phases'] else []
    if 'train' in results[0]['phases']:
        steps.append(sum((r['phases']['train']['digests'] for r in results), []))
    if not steps:
        return []
    if len(steps[0]) < 2:
        return [check('REPLICA', n, 'skip', 'the devices share one set of parameters')]
    for number, copies in enumerate(steps):
        different = [(place, name) for place, copy in enumerate(copies) for name in refnet.NAMES if copy[name] != copies[0][name]]
        if different:
            place, name = different[0]
            when = 'after training' if number == len(steps) - 1 and 'train' in results[0]['phases'] else 'from step %d on' % (number + 1)
            return [check('REPLICA', n, 'fail', 'replicas differ %s, first in parameter %s of replica %d' % (when, name, place),
                          value=len(set(p for p, _ in different)), limit=0, unit='differing replicas',
                          detail={'step': number + 1, 'parameters': sorted(set(name for _, name in different))},
                          next_step='ORACLE says whether the gradients or the averaging are at fault.')]
    return [check('REPLICA', n, 'pass', '%d replicas identical after each of %d looks' % (len(steps[0]), len(steps)), value=0,
                  limit=0, unit='differing replicas')]


def learning(n, training, least):
    """LOSS and ACC of one training."""
    first, last = training['loss_first'], training['loss_last']
    if not training['finite']:
        loss = check('LOSS', n, 'fail', 'the loss is not a finite number at step %d' % training['first_not_finite'],
                     next_step='See ORACLE: it names the arithmetic fault if there is one.')
    else:
        falls = last < LOSS_FALLS_TO * first
        loss = check('LOSS', n, 'pass' if falls else 'fail', 'loss from %.2f to %.3f' % (first, last), value=last,
                     limit=LOSS_FALLS_TO * first, next_step='' if falls else 'See ORACLE: the optimizer may not step at all.')
    enough = training['accuracy'] >= least
    accuracy = check('ACC', n, 'pass' if enough else 'fail', '%.1f %% of %d test images are right' % (
        100 * training['accuracy'], training['test_n']), value=training['accuracy'], limit=least, unit='fraction',
        next_step='' if enough else 'See ORACLE: it tells wrong arithmetic from too little training.')
    return [loss, accuracy]


def speed(n, run, floors):
    """SPEED: judged on GPUs only, and the small network only against a floor that the user set.

    A floor on the CPU is neither judged nor forgotten: the answer is inconclusive.
    """
    if n == 1:
        return []
    got = run['speedup']
    words = 'speedup %.2f [%.2f, %.2f] with %d devices (%s)' % (got['median'], got['lo'], got['hi'], n, run['scaling'])
    if not run['judged'] and str(n) in floors:
        return [check('SPEED', n, 'inconclusive', words + ': %.2f was asked for, and it cannot be judged here: %s' % (
            floors[str(n)], run['why_not_judged']), value=got['median'], limit=floors[str(n)], unit='times',
            next_step='Leave --min-speedup out on the CPU.')]
    if not run['judged']:
        return [check('SPEED', n, 'skip', words + ': ' + run['why_not_judged'], severity='warn', value=got['median'], unit='times')]
    floor = floors[str(n)]
    enough = got['hi'] >= floor
    return [check('SPEED', n, 'pass' if enough else 'fail', words + ', asked for %.2f' % floor, value=got['median'], limit=floor,
                  unit='times', next_step='' if enough else culprit(run))]


def culprit(run):
    """Which of the two halves of the loss is the larger."""
    n = run['n']
    if run['ceiling'] / n < run['comm_efficiency']:
        return 'Even without exchange %d devices give only %.2f: shared power, PCIe, cores or memory, or unlike GPUs.' % (n, run['ceiling'])
    return 'The exchange takes the time (communication efficiency %.2f): look at peer access and NCCL.' % run['comm_efficiency']

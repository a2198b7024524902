"""Turns the measurements of the ranks into checks, each with its value, its limit, and what to do next. Pure functions."""
from __future__ import absolute_import, division, print_function

import numpy as np

from .. import stats
from ..networks import refnet
from ..check_record import check
from . import diagnose

# The largest allowed error of a parameter, from measured distributions: docs/explanation/reference-check.md. For the gradient of
# a convolution's kernel, cuDNN chooses among algorithms that round less exactly than a sum of products.
ORACLE_PASS, KERNEL_ON_GPU = 4e-5, 4e-4
SAVED = 1e-6                # allowed error of a restored parameter: usually there is none; formats with fewer digits exceed it
ANSWERS = {'cpu': 1e-6, 'cuda': 1e-4}       # on GPUs, a library may choose another algorithm for the restored model
INFERENCE = 'Training is right, but not inference: check what differs in it, such as dropout, another precision or a cache.'
TRAINED = 1e-3              # training must change the model's outputs by at least this much, or a failed restore is invisible


def placement(n, device, evidence):
    """The check DEVICE: whether parameters and computations were on the right kind of device."""
    places = sorted(set(place for each in evidence for place in each['parameters'] + each['compute']))
    compute = sorted(set(place for each in evidence for place in each['compute']))
    on_gpu = bool(compute) and all('gpu' in place.lower() or 'cuda' in place.lower() for place in compute)
    right = on_gpu == (device.kind == 'cuda')
    return [check('DEVICE', n, 'pass' if right else 'fail', 'used: ' + ', '.join(places), detail={'evidence': evidence},
                  next_step='' if right else ('The framework used another device without reporting it: check its build '
                                              'and the driver.'))]


def collectives(n, results):
    """COLL: whether the collectives gave exact answers on all ranks."""
    if n > 1 and len(results) == 1:
        return [check('COLL', n, 'skip', 'all devices are in one process, so there are no collectives between processes')]
    if n == 1:
        return [check('COLL', n, 'skip', 'one device exchanges nothing')]
    wrong, tried = [], 0
    for rank, result in enumerate(results):
        for answer in result['phases']['coll']['answers'] + result['phases']['coll']['table']:
            tried += 1
            if answer['wrong']:
                wrong.append(dict(answer, rank=rank))
    if not wrong:
        return [check('COLL', n, 'pass', '%d answers exact' % tried, value=0, limit=0, unit='wrong answers')]
    first = wrong[0]
    return [check('COLL', n, 'fail', 'wrong result of %s with %s %s numbers on ranks %s, first at element %s' % (
        first['op'], first['elements'], first['type'], sorted(set(w['rank'] for w in wrong)), first['first_wrong']),
        value=len(wrong), limit=0, unit='wrong answers', detail={'wrong': wrong[:20]},
        next_step='Copies between GPUs may corrupt data (IOMMU, ACS): try NCCL_P2P_DISABLE=1.')]


def oracle(n, case, want, saved, alone=None, possible=None, kind='cpu'):
    """The check ORACLE: judges each parameter of each replica; `saved` is [(replica, weights)].

    The check gives the largest error of those above their limits (see `limits_of`), or else of all. `alone` is this check of one
    device in the same run, if there is one. `possible` has the reduced precisions that can be in use (see `precision`): an error
    that one of them explains is a warning. Any other error above its limit is a failure.
    """
    possible, limits = possible or {}, limits_of(case.net, kind)
    found = [_errors(replica, weights, want, case.start, limits) for replica, weights in saved]
    above, value, name, replica, overall, each = max(found)
    detail = {'overall': overall, 'worst_parameter': name, 'replica': replica, 'parameters': each, 'hypothesis': None}
    common = dict(value=value, limit=limits[name], unit='relative', detail=detail)
    if not above:
        return [check('ORACLE', n, 'pass', 'weights agree with the reference to %.1e' % value, **common)]
    detail['hypothesis'] = fault = diagnose.name_fault(
        case, saved, want, [name], possible, dict((other, limit - ORACLE_PASS) for other, limit in limits.items()))
    reduced = fault['id'][len('reduced-'):]
    if fault['id'] == 'reduced-' + reduced and reduced in possible:
        return [check('ORACLE', n, 'warn', 'weights agree with the reference only to %.1e: %s, which this run may use' % (value, fault['sentence']),
                      severity='warn', next_step=possible[reduced][0].upper() + possible[reduced][1:] + '.', **common)]
    if fault['id'] == 'reduced-' + reduced:
        words = '%s (error %.1e), but nothing in this run allows this precision' % (fault['sentence'], value)
    elif fault['id']:
        words = fault['sentence']
    else:
        words = 'weights are wrong by up to %.1e (relative), most in parameter %s of replica %d; no known fault explains this' % (value, name, replica)
    right_alone = fault['id'] in ('', 'noise') and alone is not None and alone['status'] == 'pass'
    if right_alone:
        words += '; with one device, weights agree to %.1e%s' % (alone['value'], ': updates may race with each other' if fault['id'] else '')
    return [check('ORACLE', n, 'fail', words, next_step=_where_to_look(n, right_alone), **common)]


def with_start(made, began):
    """Return a failed check ORACLE, without a clear cause, with the replica and the parameter that started from other weights.

    `began` has for each replica the differences before the first step: see rank.match. Other checks are returned as they are.
    """
    found = [(size, name, replica) for replica, each in enumerate(began) for name, size in each.items()]
    if made['status'] != 'fail' or made['detail']['hypothesis']['id'] not in ('', 'noise') or not found:
        return made
    size, name, replica = max(found)
    words = 'replica %d started from other weights than it was given: parameter %s differed by %.1e before the first step' % (replica, name, size)
    return dict(made, message='weights are wrong by up to %.1e (relative): %s' % (made['value'], words),
                detail=dict(made['detail'], hypothesis=dict(made['detail']['hypothesis'], id='other-start', sentence=words)),
                next_step='Check how weights are initialised, loaded or broadcast to the replicas.')


def _where_to_look(n, right_alone):
    """Advice for wrong weights on n devices; `right_alone`: the cause is unknown, but one device alone is right."""
    if n == 1:
        return 'One device alone is already wrong, so the fault is in the arithmetic and not in the exchange.'
    if right_alone:
        return ('Check what only several devices do: the division of the data, the exchange, and updates that may race '
                'with each other.')
    return 'Compare with the result of 1 device: if that is right, the averaging is wrong.'


def limits_of(net, kind):
    """Return {parameter: its largest allowed error} for a network on this kind of device ('cpu' or 'cuda')."""
    return net.limits(kind, ORACLE_PASS, KERNEL_ON_GPU)


def _errors(replica, weights, want, start, limits):
    """Return (whether any error is above its limit, the largest of these errors, or else of all, its parameter, replica, overall
    error, {parameter: error}).

    Errors that are not finite become 1e9.
    """
    overall, each = refnet.errors(weights, want, start)
    each = dict((name, error if np.isfinite(error) else 1e9) for name, error in each.items())
    above = [name for name in each if each[name] > limits[name]]
    worst = max(sorted(above or each), key=lambda name: each[name])
    return bool(above), each[worst], worst, replica, overall if np.isfinite(overall) else 1e9, each


def replicas(n, results):
    """REPLICA: whether all replicas have equal bits, after every step of the reference phase and after training."""
    if n == 1:
        return [check('REPLICA', n, 'skip', 'one device has only one replica')]
    steps = [sum((r['phases'][phase]['digests'][i] for r in results), []) for phase in ('oracle', 'oracle_again')
             if phase in results[0]['phases'] for i in range(len(results[0]['phases'][phase]['digests']))]
    if 'train' in results[0]['phases']:
        steps.append(sum((r['phases']['train']['digests'] for r in results), []))
    if not steps:
        return []
    if len(steps[0]) < 2:
        return [check('REPLICA', n, 'skip', 'the devices share one set of parameters, so there are no replicas to compare')]
    for number, copies in enumerate(steps):
        different = [(place, name) for place, copy in enumerate(copies) for name in sorted(copy) if copy[name] != copies[0].get(name)]
        if different:
            place, name = different[0]
            when = 'after training' if number == len(steps) - 1 and 'train' in results[0]['phases'] else 'from step %d on' % (number + 1)
            return [check('REPLICA', n, 'fail', 'replicas differ %s, first in parameter %s of replica %d' % (when, name, place),
                          value=len(set(p for p, _ in different)), limit=0, unit='differing replicas',
                          detail={'step': number + 1, 'parameters': sorted(set(name for _, name in different))},
                          next_step='The check ORACLE says whether the gradients or the averaging are wrong.')]
    return [check('REPLICA', n, 'pass', '%d replicas identical in each of %d comparisons' % (len(steps[0]), len(steps)), value=0,
                  limit=0, unit='differing replicas')]


def learning(n, training, limit):
    """The checks LOSS and ACC of one training.

    `limit` has the required 'accuracy', the largest final 'loss' as a share of the first loss, the largest error of the 'outputs'
    for test images, and a 'note' for the message.
    """
    first, last, accuracy = training['loss_first'], training['loss_last'], training['accuracy']
    words = '%s of %d test images are classified correctly%s' % (stats.percent(accuracy), training['test_n'], limit['note'] and '; ' + limit['note'])
    detail = {'outputs_apart': training['outputs_apart']}
    fell = 'the loss went from %.2f to %.3f' % (first, last)
    if not training['finite']:
        loss = check('LOSS', n, 'fail', 'the loss is not a finite number at step %d' % training['first_not_finite'],
                     next_step='See the check ORACLE: it names the arithmetic fault, if there is one.')
    elif limit['loss'] is None:
        loss = check('LOSS', n, 'skip', '%s; %s' % (fell, limit['note']), value=last)
    else:
        falls = last < limit['loss'] * first
        loss = check('LOSS', n, 'pass' if falls else 'fail', fell, value=last, limit=limit['loss'] * first,
                     next_step='' if falls else 'See the check ORACLE: perhaps the optimizer does not change the weights at all.')
    if training['outputs_apart'] > limit['outputs']:
        return [loss, check('ACC', n, 'fail', 'the outputs for test images differ from those of NumPy with the same weights by %.1e (relative)' % (
            training['outputs_apart']), value=training['outputs_apart'], limit=limit['outputs'], unit='relative', detail=detail, next_step=INFERENCE)]
    if limit['accuracy'] is None:
        return [loss, check('ACC', n, 'skip', words, value=accuracy, unit='fraction', detail=detail)]
    enough = accuracy >= limit['accuracy']
    return [loss, check('ACC', n, 'pass' if enough else 'fail', words, value=accuracy, limit=limit['accuracy'], unit='fraction',
                        detail=detail, next_step='' if enough else ('See the check ORACLE: it shows whether the arithmetic is wrong. If '
                                                     'ORACLE passes, the training may be too short.'))]


def saved(n, found, kind):
    """The check SAVE: compares the restored model with the saved one."""
    if found['reason']:
        return [check('SAVE', n, 'skip', 'does not apply: ' + found['reason'])]
    limit, common = ANSWERS[kind], dict(value=found['answers_apart'], limit=ANSWERS[kind], unit='relative', detail=found)
    size = '%d bytes in %d %s' % (found['bytes'], found['files'], 'file' if found['files'] == 1 else 'files')
    if found['again_apart'] > limit:
        return [check('SAVE', n, 'fail', 'the trained model gives other outputs when it is asked again, which differ by %.1e' % found['again_apart'],
                      next_step='Something in inference is random, such as dropout.', **dict(common, value=found['again_apart']))]
    if found['parameters_apart'] > SAVED:
        return [check('SAVE', n, 'fail', 'after restoring, parameter %s differs by %.1e (%s)' % (
            found['parameter'], found['parameters_apart'], size), next_step=('The saved file leaves this parameter out or '
                                                                             'rounds it, or restoring does.'), **common)]
    if found['answers_apart'] > limit:
        return [check('SAVE', n, 'fail', 'after restoring, all parameters are equal, but the outputs differ by %.1e (%s)' % (
            found['answers_apart'], size), next_step=('Values that are not parameters were lost, such as running means of '
                                                      'batch normalisation.'), **common)]
    if found['blank_apart'] < TRAINED:
        return [check('SAVE', n, 'inconclusive', ('training changed the outputs by only %.1e, so comparing them proves '
                                                  'nothing') % found['blank_apart'],
                      next_step='See the checks LOSS and ACC.', **common)]
    how = 'the same outputs, bit by bit' if not found['answers_apart'] else 'outputs that agree to %.1e' % found['answers_apart']
    return [check('SAVE', n, 'pass', 'the restored model gives %s (%s)' % (how, size), **common)]

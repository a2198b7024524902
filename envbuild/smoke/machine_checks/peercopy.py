"""PEERCOPY: checks that copies between GPUs finish and arrive unchanged."""
from __future__ import absolute_import, division, print_function

from ..machine import gpus
from ..check_record import check
from .state import used

REMEDY = ('Switch off PCIe access control (ACS) for the bridges of these GPUs, or switch off the IOMMU (amd_iommu=off, '
          'intel_iommu=off). Until then, set NCCL_P2P_DISABLE=1.')


def peercopy(found, device, largest, stall, say):
    """Let a separate process copy between all GPUs that CUDA lists, before any training. Return [] if only one GPU is used."""
    if len(used(found, device)) < 2 or largest < 2:
        return []
    say('copying between GPUs')
    return judge(gpus.ask(('peers',), len(found['devices']), stall, say), device.numbers)


def judge(answer, numbers):
    """Judge the result of machine.gpus.ask. Only pairs of GPUs that the run uses count."""
    pairs = [pair for pair in answer['pairs'] if set(pair['gpus']) <= set(numbers)]
    wrong = [pair for pair in pairs if pair['wrong']]
    common = dict(unit='wrong numbers', limit=0, detail={'pairs': pairs})
    if wrong:
        return [check('PEERCOPY', None, 'fail', 'copies between GPU %d and GPU %d change %d numbers' % (tuple(wrong[0]['gpus']) + (wrong[0]['wrong'],)),
                      value=wrong[0]['wrong'], next_step=REMEDY, **common)]
    if answer['hung']:
        return [check('PEERCOPY', None, 'fail', answer['problem'], next_step=REMEDY, **common)]
    failed = [pair['not_measured'] for pair in pairs if 'not_measured' in pair]
    if answer['problem'] or failed:
        return [check('PEERCOPY', None, 'warn', 'copies between GPUs could not be tested: %s' % (answer['problem'] or failed[0]), severity='warn',
                      next_step='See the checks MEMORY, BUSY and DRIVER.', **common)]
    slowest = min(pairs, key=lambda pair: pair['GBps'])
    return [check('PEERCOPY', None, 'pass', ('%d pair%s tested, every number arrives unchanged; the slowest pair (GPU %d '
                                             'and %d) copies %.1f GB/s') % (
        (len(pairs), '' if len(pairs) == 1 else 's') + tuple(slowest['gpus']) + (slowest['GBps'],)), value=0, **common)]

"""Verdicts: from what was measured to checks, each with its value, its limit, and what to do next. Pure functions."""
from __future__ import absolute_import, division, print_function

import re

import numpy as np

from . import diagnose, explain, probe_cuda, refnet

ORACLE_PASS = 1e-3          # single precision gives 1e-6; 300 times above that, 600 times below the faintest fault
ORACLE_REDUCED = 0.2        # TF32 gives 0.05, bfloat16 0.12, a lost 10-element bias 0.6 to 1.4
LOSS_FALLS_TO = 0.25
SHM_NEEDED = 256 << 20
SLOWING = ('CUDA_LAUNCH_BLOCKING', 'CUDA_PROFILE', 'CUDA_INJECTION64_PATH', 'NCCL_P2P_DISABLE', 'NCCL_SHM_DISABLE')


def check(key, n, status, message, severity='fail', value=None, limit=None, unit='', next_step='', detail=None):
    """One line of the report. status: pass, warn, fail, inconclusive, skip (not applicable, the message says why)."""
    return {'id': key, 'title': explain.TEXTS[key][0], 'n': n, 'status': status, 'severity': severity, 'value': value,
            'limit': limit, 'unit': unit, 'message': message, 'next_step': next_step, 'detail': detail or {}}


# The machine --------------------------------------------------------------------------------------------------------

START_WITH_GPUS = 'Start the container with --gpus all on a machine with an NVIDIA driver and nvidia-container-toolkit.'


def devices(device, image, left_out, options):
    """Are the devices there that the image needs and the user asked for?"""
    on_gpu, expect = device.kind == 'cuda', options['expect']
    gpus, wanted = device.available if on_gpu else 0, options['expect_gpus'] or (1 if expect == 'gpu' else 0)
    if gpus < wanted:
        return [check('DEVICES', None, 'fail', '%d GPUs were expected, %d can be used: %s' % (wanted, gpus, device.reason),
                      value=gpus, limit=wanted, unit='GPUs', next_step=START_WITH_GPUS)]
    if device.kind is None:
        return [check('DEVICES', None, 'inconclusive', 'this is a GPU image and there is no GPU: ' + device.reason,
                      next_step=START_WITH_GPUS + ' --allow-cpu tests its CPU side.')]
    if not on_gpu and image['cuda'] is not None:
        status = 'pass' if expect == 'cpu' else 'inconclusive'
        return [check('DEVICES', None, status, 'GPU image run on the CPU: %s. Nothing is proved about GPUs' % device.reason,
                      next_step='' if expect == 'cpu' else START_WITH_GPUS)]
    if left_out:
        return [check('DEVICES', None, 'inconclusive', '%s wanted, %d there: data parallelism is not proved for those' % (
            ' and '.join('%d devices' % n for n in left_out), device.available), value=device.available,
            limit=max(left_out), unit='devices', next_step='Run on a machine with more GPUs, or ask for --counts 1.')]
    return [check('DEVICES', None, 'pass', device.reason, value=device.available, unit='devices')]


def driver(found, image):
    """Does the driver work, and is it new enough? Nothing where there is no driver at all (DEVICES says that)."""
    cuda = found['cuda']
    if image['cuda'] is None or not cuda['library'] or cuda['code'] == probe_cuda.NO_DEVICE:
        return []
    if cuda['code']:
        words, remedy = probe_cuda.MEANING.get(cuda['code'], ('see cuda.h', 'Look the code up in cuda.h.'))
        return [check('DRIVER', None, 'fail', 'cuInit answers %d: %s' % (cuda['code'], words), value=cuda['code'], next_step=remedy)]
    has, needs = numbers(cuda['driver_cuda'] or ''), numbers(image['cuda'])
    # Minor-version compatibility since CUDA 11: https://docs.nvidia.com/deploy/cuda-compatibility/
    enough = has[:1] >= needs[:1] if needs[:1] >= [11] else has >= needs
    message = 'driver %s supports CUDA %s, the image needs %s' % (found['host']['driver'] or 'of unknown release',
                                                                  cuda['driver_cuda'], image['cuda'])
    remedy = 'Update the driver to %s or newer, or use an environment with an older CUDA.' % (image['driver_min'] or 'a release for it')
    return [check('DRIVER', None, 'pass' if enough else 'fail', message, next_step='' if enough else remedy)]


def numbers(version):
    """'9.0.176' -> [9, 0, 176]; stops at the first part that is no number."""
    out = []
    for part in version.split('.'):
        if not part.isdigit():
            break
        out.append(int(part))
    return out


def architecture(found, image):
    """Native code, PTX, or nothing for each GPU, by the image's facts."""
    has, out = image['compute_capability'], []
    if not has or not found['devices']:
        return out
    for device in found['devices']:
        mine = numbers(device['cc'])
        native = any(numbers(cc)[0] == mine[0] and numbers(cc) <= mine for cc in has['sass'])
        compiled = any(numbers(cc) <= mine for cc in has['ptx'])
        who = 'GPU %d (%s, capability %s)' % (device['index'], device['name'], device['cc'])
        if native:
            out.append(check('ARCH', None, 'pass', who + ' has native code'))
        elif compiled:
            out.append(check('ARCH', None, 'warn', who + ' has no native code: its PTX is compiled at first start', severity='warn',
                             next_step='Set CUDA_CACHE_MAXSIZE=2147483648 and keep ~/.nv on a volume.'))
        else:
            out.append(check('ARCH', None, 'fail', who + ' cannot run this framework: it has native code for %s and PTX for %s' % (
                ', '.join(has['sass']), ', '.join(has['ptx']) or 'none'), next_step='Use an environment that lists this GPU.'))
    return out


def surroundings(found, device, largest):
    """Warnings about the container: shared memory, mixed GPUs, leftover variables."""
    out = []
    if device.kind == 'cuda':
        kinds = sorted(set('%s with %.0f GB' % (each['name'], each['mem_bytes'] / 1e9) for each in found['devices']))
        out.append(check('MIXED', None, 'pass' if len(kinds) == 1 else 'warn', ' and '.join(kinds), severity='warn',
                         next_step='' if len(kinds) == 1 else 'Choose equal GPUs with CUDA_VISIBLE_DEVICES.'))
        free = found['host']['shm_free_bytes'] or 0
        enough = free >= SHM_NEEDED or largest < 2
        out.append(check('SHM', None, 'pass' if enough else 'warn', '/dev/shm has %d MB free' % (free / 1e6), severity='warn',
                         value=free, limit=SHM_NEEDED, unit='bytes',
                         next_step='' if enough else 'Start the container with --shm-size=1g or --ipc=host.'))
    slow = sorted(name for name in SLOWING if found['variables'].get(name, '0') != '0')
    out.append(check('ENV', None, 'warn' if slow else 'pass', ('set: ' + ', '.join(slow)) if slow else 'no slowing variable is set',
                     severity='warn', next_step='Unset them unless you need them.' if slow else ''))
    return out


# How the ranks ended ------------------------------------------------------------------------------------------------

def ending(n, outcome):
    """RUN, HANG or IMPORT for one launch."""
    results = outcome.results
    if outcome.kind == 'done':
        versions = results[0]['framework']
        return [
            check('IMPORT', n, 'pass', '%s %s imported in %.1f s' % (versions['name'], versions['version'],
                                                                    max(r['timing']['import_s'] for r in results)), unit='s',
                  value=max(r['timing']['import_s'] for r in results)),
            check('RUN', n, 'pass', '%d %s finished' % (len(results), 'process' if len(results) == 1 else 'processes'),
                  value=round(outcome.seconds, 3), unit='s'),
        ]
    blamed = outcome.ranks[outcome.blame]
    where = 'rank %d in phase "%s" (%s)' % (outcome.blame, blamed['where'], blamed['state'])
    detail = {'ranks': outcome.ranks}
    if outcome.kind in ('stalled', 'timeout'):
        what = 'nothing moves any more' if outcome.kind == 'stalled' else 'the time limit is over'
        others = '; '.join('rank %d in "%s" (%s)' % (r['rank'], r['where'], r['state']) for r in outcome.ranks if r is not blamed)
        return [check('HANG', n, 'fail', '%s: look at %s%s' % (what, where, ', the others: ' + others if others else ''),
                      detail=detail, next_step='The stacks of all ranks are in the report\'s logs.')]
    error = (results[outcome.blame] or {}).get('error')
    if error is None:
        hint = 'SIGKILL usually means that memory ran out: look at the container\'s limit.' if 'SIGKILL' in blamed['state'] else \
            'Its last output is in the report\'s logs.'
        return [check('RUN', n, 'fail', 'a process ended too early: ' + where, detail=detail, next_step=hint)]
    key = 'IMPORT' if error['phase'] == 'import' else 'RUN'
    return [check(key, n, 'fail', 'rank %d failed in phase "%s": %s: %s' % (
        outcome.blame, error['phase'], error['type'], error['message'].strip()[:600]),
        detail=dict(detail, traceback=error['traceback'][-4000:]), next_step='Its output is in the report\'s logs.')]


def contents(image, versions):
    """VERSION and BUILD: the framework against the image's lock."""
    out = []
    if image['version']:
        same = _release(versions['version']) == _release(image['version'])
        out.append(check('VERSION', None, 'pass' if same else 'fail', 'the framework says %s, the lock says %s' % (
            versions['version'], image['version']), next_step='' if same else 'Build the image again.'))
    if image['cuda'] is None:
        return out
    built = versions['cuda_build']
    if not built:
        return out + [check('BUILD', None, 'fail', '%s %s is a CPU build inside a GPU image' % (versions['name'], versions['version']),
                            next_step='Install the framework\'s package for CUDA %s.' % image['cuda'])]
    alike = numbers(built)[:2] == numbers(image['cuda'])[:2]
    return out + [check('BUILD', None, 'pass' if alike else 'warn', 'built with CUDA %s, the image says %s' % (built, image['cuda']),
                        severity='fail' if alike else 'warn')]


def _release(version):
    """Without what packages add to the version that the framework itself knows: 2.13.0+cpu, 1.5.1.post0, 2.4.0-rc1."""
    return re.sub(r'\.post\d+$', '', version.split('+')[0]).replace('-', '')


# What the ranks measured --------------------------------------------------------------------------------------------

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

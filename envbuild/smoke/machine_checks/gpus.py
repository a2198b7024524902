"""DEVICES, MIXED, ARCH: check that the GPUs exist, that they are equal, and that the framework has code for them."""
from __future__ import absolute_import, division, print_function

from ..check_record import check
from . import equal
from .versions import numbers

START_WITH_GPUS = 'Start the container with --gpus all on a machine with an NVIDIA driver and nvidia-container-toolkit.'
CACHE_NEEDED = 1 << 30


def devices(device, image, left_out, options):
    """Check that the machine has the devices that the image needs and the user asked for."""
    on_gpu, expect = device.kind == 'cuda', options['expect']
    gpus, wanted = device.available if on_gpu else 0, options['expect_gpus'] or (1 if expect == 'gpu' else 0)
    if gpus < wanted:
        return [check('DEVICES', None, 'fail', 'expected %d GPU%s, but only %d can be used: %s' % (wanted, 's' if wanted > 1 else '', gpus, device.reason),
                      value=gpus, limit=wanted, unit='GPUs', next_step=START_WITH_GPUS)]
    if device.kind is None:
        asked = 'this is a GPU image' if image['cuda'] is not None else '--device cuda needs a GPU'
        return [check('DEVICES', None, 'inconclusive', '%s, but there is no GPU: %s' % (asked, device.reason),
                      next_step=START_WITH_GPUS + ' With --allow-cpu, the test runs on the CPU instead.')]
    if not on_gpu and (image['cuda'] is not None or options['device'] == 'cuda'):
        status = 'pass' if expect == 'cpu' else 'inconclusive'
        return [check('DEVICES', None, status, '%s: the test runs on the CPU (%s) and proves nothing about GPUs' % (
            'GPU image' if image['cuda'] is not None else 'a GPU was requested', device.reason),
                      next_step='' if expect == 'cpu' else START_WITH_GPUS)]
    if left_out:
        return [check('DEVICES', None, 'inconclusive', ('not tested with %s, because only %d can be used: data '
                                                        'parallelism is not proved for these counts') % (
            ' and '.join('%d devices' % n for n in left_out), device.available), value=device.available,
            limit=max(left_out), unit='devices', next_step='Run the test on a machine with more GPUs, or use --counts 1.')]
    return [check('DEVICES', None, 'pass', device.reason, value=device.available, unit='devices')]


def mixed(found, device):
    """Check that all GPUs are equal, and say which set of GPUs is used."""
    kinds = equal.sets(found['devices'])
    if len(kinds) == 1:
        return [check('MIXED', None, 'pass', equal.listed(kinds[0]), severity='warn', value=1, limit=1, unit='kinds')]
    used = equal.sets([each for each in found['devices'] if each['index'] in device.numbers])
    rest = equal.sets([each for each in found['devices'] if each['index'] not in device.numbers])
    words = 'used: ' + ' and '.join(equal.listed(alike) for alike in used)
    if rest:
        words += '; left out: ' + ' and '.join(equal.listed(alike) for alike in rest)
    remedy = ('Every training step waits for the slowest GPU. Without --devices, the test uses the largest set of equal '
              'GPUs.') if len(used) > 1 else \
        'The test proves nothing about the GPUs that are left out. Test them with --devices %s.' % ','.join('%d' % each['index'] for each in rest[0])
    return [check('MIXED', None, 'warn', words, severity='warn', value=len(kinds), limit=1, unit='kinds', next_step=remedy)]


def architecture(found, image, device):
    """Check for each used GPU whether the image has native code, only PTX, or no code for it."""
    has = image['compute_capability']
    if not has or device.kind != 'cuda':
        return []
    return [_code(each, has, found, image) for each in found['devices'] if each['index'] in device.numbers]


def _code(device, has, found, image):
    mine = numbers(device['cc'])
    native = any(numbers(cc)[0] == mine[0] and numbers(cc) <= mine for cc in has['sass'])
    compiled = any(numbers(cc) <= mine for cc in has['ptx'])
    who = 'GPU %d (%s, capability %s)' % (device['index'], device['name'], device['cc'])
    if native:
        return check('ARCH', None, 'pass', who + ' can run native code of this framework')
    variables = found['variables']
    if compiled and variables.get('CUDA_DISABLE_PTX_JIT', '0') not in ('', '0'):
        return check('ARCH', None, 'fail', who + (" can use only the framework's PTX, which cannot be compiled because "
                                                  'CUDA_DISABLE_PTX_JIT is set'),
                     next_step='Unset CUDA_DISABLE_PTX_JIT.')
    if compiled and numbers(found['cuda']['driver_cuda'] or '')[:2] < numbers(image['cuda'])[:2]:
        # Minor-version compatibility runs native code only: https://docs.nvidia.com/deploy/cuda-compatibility/
        return check('ARCH', None, 'fail', who + " can use only the framework's PTX, and a driver for CUDA %s cannot compile PTX of CUDA %s" % (
            found['cuda']['driver_cuda'], image['cuda']), next_step='Update the driver to %s or newer.' % (
                image['driver_min'] or 'the first release that supports this CUDA,'))
    if compiled:
        return check('ARCH', None, 'warn', who + " can use only the framework's PTX: the driver compiles it at the first start, which "
                                                 'takes minutes, and half an hour for large frameworks%s' % _forgotten(variables), severity='warn',
                     next_step=('Set CUDA_CACHE_MAXSIZE=2147483648 and keep ~/.nv on a volume, or use an environment that '
                                'has native code for this GPU.'))
    return check('ARCH', None, 'fail', who + (' cannot run this framework, which has native code only for %s, and PTX for '
                                              '%s') % (
        ', '.join(has['sass']), ', '.join(has['ptx']) or 'none'), next_step='Use an environment with native code for this GPU.')


def _forgotten(variables):
    """Return why the driver will compile the PTX again at every start; '' if its cache keeps the result."""
    if variables.get('CUDA_CACHE_DISABLE', '0') not in ('', '0'):
        return '; this happens at every start, because CUDA_CACHE_DISABLE is set'
    size = variables.get('CUDA_CACHE_MAXSIZE', '')
    return '; this happens at every start, because CUDA_CACHE_MAXSIZE is too small' if size.isdigit() and int(size) < CACHE_NEEDED else ''

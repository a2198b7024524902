"""DEVICES and ARCH: are the GPUs there, and does the framework have code for them?"""
from __future__ import absolute_import, division, print_function

from ..verdict import check
from .versions import numbers

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

"""DRIVER: checks that the driver works in this container and supports the image's CUDA."""
from __future__ import absolute_import, division, print_function

from ..machine import probe_cuda
from ..check_record import check
from .versions import numbers

DIFFERS, REFUSED = 803, 804             # error codes of cuInit if libcuda does not belong to the driver
NVML_DIFFERS = 18


def driver(found, image):
    """Check that the driver works and is new enough. [] if there is no driver or no GPU: the check DEVICES reports that."""
    cuda = found['cuda']
    if not cuda['library'] or cuda['code'] == probe_cuda.NO_DEVICE:
        return []
    detail = {'libcuda': cuda['path'], 'libcuda_release': cuda['release'], 'kernel_driver': found['host']['kernel_driver']}
    if cuda['code']:
        words, remedy = probe_cuda.MEANING.get(cuda['code'], ('see cuda.h', 'Look up this error code in cuda.h.'))
        return [check('DRIVER', None, 'fail', 'cuInit returns error %d: %s%s' % (cuda['code'], words, _which(found)), value=cuda['code'], limit=0,
                      next_step=remedy, detail=detail)]
    if image['cuda'] is None:
        return [check('DRIVER', None, 'pass', 'driver %s supports CUDA %s; no lock says which CUDA the framework needs' % (
            found['host']['driver'] or 'of unknown release', cuda['driver_cuda']), detail=detail)]
    has, needs = numbers(cuda['driver_cuda'] or ''), numbers(image['cuda'])
    # Minor-version compatibility since CUDA 11: https://docs.nvidia.com/deploy/cuda-compatibility/
    enough = has[:1] >= needs[:1] if needs[:1] >= [11] else has >= needs
    message = 'driver %s supports CUDA %s, and the image needs CUDA %s%s%s' % (
        found['host']['driver'] or 'of unknown release', cuda['driver_cuda'], image['cuda'],
        ' (supported through the forward-compatibility library %s)' % cuda['path'] if cuda['compat'] else '',
        # Native code in libraries runs with this driver. But the driver cannot compile the PTX that XLA or Triton generate at
        # run time: the tools in the image must compile it.
        '; the driver runs native code of CUDA %s, but cannot compile its PTX' % image['cuda'] if enough and has[:2] < needs[:2] else '')
    return [check('DRIVER', None, 'pass' if enough else 'fail', message, next_step='' if enough else _newer(cuda, image), detail=detail)]


def _which(found):
    """Say which libcuda is loaded if it does not match the kernel's driver, and whether NVML does not match it either."""
    cuda, host = found['cuda'], found['host']
    out = ''
    if cuda['code'] in (DIFFERS, REFUSED, 36, 34) and cuda['path']:
        out = '; the loaded file is %s%s' % (cuda['path'], ', of driver %s' % cuda['release'] if cuda['release'] else '')
        out += '; the driver in the kernel is %s' % host['kernel_driver'] if host['kernel_driver'] else ''
    if found['nvml']['code'] == NVML_DIFFERS:
        out += ("; NVML differs from the driver in the kernel, too: the host's driver was updated, but the host was not "
                'restarted')
    return out


def _newer(cuda, image):
    if cuda['compat_folder'] and not cuda['compat']:
        return ("On a data-center GPU, set LD_LIBRARY_PATH=%s, which contains the image's forward-compatibility libcuda. "
                'On other GPUs, update the driver to %s or newer.' % (cuda['compat_folder'], image['driver_min'] or 'the first release that supports this CUDA,'))
    return 'Update the driver to %s or newer, or use an environment with an older CUDA.' % (image['driver_min'] or 'the first release that supports this CUDA,')

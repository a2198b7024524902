"""DRIVER: does the driver work here, and does it serve the image's CUDA?"""
from __future__ import absolute_import, division, print_function

from .. import probe_cuda
from ..verdict import check
from .versions import numbers


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

"""VERSION and BUILD: the framework against the image's lock."""
from __future__ import absolute_import, division, print_function

from ..verdict import check
from .versions import numbers, release


def contents(image, versions):
    """The framework's own word for its version and its CUDA."""
    out = []
    if image['version']:
        same = release(versions['version']) == release(image['version'])
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

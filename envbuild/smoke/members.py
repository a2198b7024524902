"""Lists the frameworks of an image, and restarts this process in the prefix (set of packages) of one of them."""
from __future__ import absolute_import, division, print_function

import os

from . import files, image

INSIDE = '_ENVBUILD_SMOKE_INSIDE'       # set by `enter`: the prefix of the new process


class Member(object):
    """One framework of the lock. `prefix`, `path` and `python` are the name, path and Python version of its prefix, or ''."""

    def __init__(self, framework, prefix):
        self.name, self.version, self.recipe = framework['name'], framework['version'], framework['recipe']
        self.prefix, self.path = prefix.get('name', ''), prefix.get('path', '')
        self.python = (prefix.get('python') or {}).get('version', '')
        self.on_gpu = framework.get('cuda_libraries') != 'none'

    def title(self):
        """Name, version and Python in words: 'tensorflow 1.12.3 (Python 2.7)'."""
        return '%s %s%s' % (self.name, self.version, ' (Python %s)' % self.python if self.python else '')


def read(path):
    """Return the frameworks of the lock at `path`, in the lock's order; [] if there is no lock.

    If `path` is '', the image's own lock is read.
    """
    lock = image.load(path)
    return [] if lock is None else image.checked(path, lambda: [
        Member(each, _prefix_of(each['name'], lock)) for each in lock.content['environment']['frameworks']])


def enter(path, framework, argv):
    """Replace this process by the Python of the prefix that holds `framework`, with the variables of that prefix.

    Nothing happens if the image has only one prefix, or if this process already runs in the prefix of `framework`.
    """
    lock = image.load(path)
    prefix = {} if lock is None else _prefix_of(framework, lock)
    if os.environ.pop(INSIDE, '') == prefix.get('name') or not prefix or len(lock.content['prefixes']) == 1:
        return
    os.environ[INSIDE] = prefix['name']
    python = os.path.join(prefix['path'], 'bin', 'python')
    os.execv('/bin/sh', ['sh', os.path.join(files.PROGRAM, 'use.sh'), prefix['name'], python, files.PROGRAM] + argv)


def _prefix_of(framework, lock):
    return next((each for each in lock.content.get('prefixes', ()) if framework in each['frameworks']), {})

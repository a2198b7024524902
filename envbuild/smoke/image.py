"""Reads the facts of the image's lock that the smoke test needs."""
from __future__ import absolute_import, division, print_function

import hashlib
import io
import json
import os

DEFAULT_LOCK = '/opt/envbuild/lock.json'


class BadLock(Exception):
    """The lock cannot be used; the message says why."""


def unknown():
    """Return the facts of an image without a lock: all empty."""
    return {'lock_sha256': None, 'name': '', 'framework': '', 'version': '', 'recipe': '', 'options': {}, 'cuda': None,
            'cudnn': None, 'nccl': None, 'driver_min': None, 'compute_capability': None}


class Lock(object):
    """A lock file: its JSON, and the SHA-256 of its bytes."""

    def __init__(self, data):
        self.content, self.sha256 = json.loads(data.decode('utf-8')), hashlib.sha256(data).hexdigest()


def load(path):
    """Return the lock at `path`. If `path` is '', return the image's own lock, or None if the image has none."""
    if not path and not os.path.exists(DEFAULT_LOCK):
        return None

    def read_file():
        with io.open(path or DEFAULT_LOCK, 'rb') as stream:
            return Lock(stream.read())
    return checked(path, read_file)


def checked(path, reading):
    """Return the result of `reading()`. Raises BadLock if the lock cannot be read or does not have the expected form."""
    try:
        return reading()
    except (IOError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadLock('cannot read %s as a lock of envbuild: %s: %s' % (path or DEFAULT_LOCK, type(error).__name__, error))


def read(path, framework=''):
    """The facts of the lock at `path` for one of its frameworks; `path` '' means the image's own lock, if there is one."""
    lock = load(path)
    return unknown() if lock is None else checked(path, lambda: _facts(lock, framework, path or DEFAULT_LOCK))


def _facts(lock, framework, path):
    environment = lock.content['environment']
    chosen = _choose(environment['frameworks'], framework, path)
    return dict(
        whole(lock), framework=chosen['name'], version=chosen['version'], recipe=chosen['recipe'], options=dict(chosen.get('options') or {}),
        # In an image of several frameworks, a CPU build has no CUDA, and a GPU build may have a CUDA version of its own.
        cuda=None if chosen.get('cuda_libraries') == 'none' else chosen.get('cuda') or environment['cuda'])


def whole(lock):
    """The facts that hold for all frameworks of a lock together."""
    environment = lock.content['environment']
    facts = dict((key, environment.get(key)) for key in ('cudnn', 'nccl', 'driver_min', 'compute_capability'))
    return dict(unknown(), lock_sha256=lock.sha256, name=environment['name'], cuda=environment['cuda'], **facts)


def _choose(frameworks, wanted, path):
    names = [each['name'] for each in frameworks]
    if wanted and wanted not in names:
        raise BadLock('%s has no framework "%s"; it has: %s' % (path, wanted, ', '.join(names)))
    if not wanted and len(names) > 1:
        raise BadLock('%s has several frameworks (%s): choose one with --framework' % (path, ', '.join(names)))
    return frameworks[names.index(wanted) if wanted else 0]

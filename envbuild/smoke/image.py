"""What the image says of itself: the facts of its lock that the smoke test needs."""
from __future__ import absolute_import, division, print_function

import hashlib
import io
import json
import os

DEFAULT_LOCK = '/opt/envbuild/lock.json'


class BadLock(Exception):
    """The lock cannot be used; the message says why."""


def unknown():
    """An image without a lock."""
    return {'lock_sha256': None, 'name': '', 'framework': '', 'version': '', 'recipe': '', 'options': {}, 'cuda': None,
            'cudnn': None, 'nccl': None, 'driver_min': None, 'compute_capability': None}


def read(path, framework=''):
    """The facts of the lock at `path` for one of its frameworks; `path` '' means the image's own lock, if there is one."""
    if not path and not os.path.exists(DEFAULT_LOCK):
        return unknown()
    path = path or DEFAULT_LOCK
    try:
        with io.open(path, 'rb') as stream:
            data = stream.read()
        environment = json.loads(data.decode('utf-8'))['environment']
        chosen = _choose(environment['frameworks'], framework, path)
        return {
            'lock_sha256': hashlib.sha256(data).hexdigest(), 'name': environment['name'],
            'framework': chosen['name'], 'version': chosen['version'], 'recipe': chosen['recipe'],
            'options': dict(chosen.get('options') or {}), 'cuda': environment['cuda'], 'cudnn': environment.get('cudnn'),
            'nccl': environment.get('nccl'), 'driver_min': environment.get('driver_min'),
            'compute_capability': environment.get('compute_capability'),
        }
    except (IOError, OSError, ValueError, KeyError, TypeError) as error:
        raise BadLock('%s is not a lock of envbuild: %s: %s' % (path, type(error).__name__, error))


def _choose(frameworks, wanted, path):
    names = [each['name'] for each in frameworks]
    if wanted and wanted not in names:
        raise BadLock('%s holds no framework "%s"; it holds: %s' % (path, wanted, ', '.join(names)))
    if not wanted and len(names) > 1:
        raise BadLock('%s holds several frameworks (%s): choose one with --framework' % (path, ', '.join(names)))
    return frameworks[names.index(wanted) if wanted else 0]

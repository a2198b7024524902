"""Finds the files that a plan or a result names by path, so that they can be sent with it."""
from __future__ import absolute_import, division, print_function

import hashlib
import io
import os


def read(path):
    """The bytes of a file."""
    with io.open(path, 'rb') as stream:
        return stream.read()


def write(path, data):
    """Write bytes into a new file."""
    with io.open(path, 'wb') as stream:
        stream.write(data)


def digest(path):
    """Return [size, SHA-256] of a file; None if it cannot be read."""
    try:
        data = read(path)
    except (IOError, OSError):
        return None
    return [len(data), hashlib.sha256(data).hexdigest()]


def named(value, folder=''):
    """Return all strings in a JSON value that are paths of files. If `folder` is given, only paths below it."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return sorted(set(path for each in value for path in named(each, folder)))
    value = value.decode('utf-8', 'replace') if isinstance(value, bytes) else value
    return [value] if isinstance(value, type(u'')) and value.startswith(folder + os.sep) and os.path.isfile(value) else []


def renamed(value, names):
    """Return a JSON value in which each string that is a key of `names` is replaced by its entry there."""
    if isinstance(value, dict):
        return dict((key, renamed(each, names)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return [renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, (bytes, type(u''))) else value

"""Writes JSON files atomically, and knows the guest's own folder."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import tempfile

SHM_SPARE = 1 << 30
PROGRAM = os.path.dirname(os.path.abspath(__file__))     # the guest's folder, which Python runs as a program


def unwritable(folder):
    """Why nothing can be written into `folder`, with what to do about it; '' if something can."""
    if os.access(folder, os.W_OK):
        return ''
    try:
        there = os.stat(folder)
    except OSError:
        return 'there is no folder %s' % folder
    return ("user %d cannot write to %s, which belongs to user %d: add '--user %d:%d' to the command that starts the container, "
            'or give the folder to user %d' % (os.getuid(), folder, there.st_uid, there.st_uid, there.st_gid, os.getuid()))


class NoScratch(Exception):
    """No folder for temporary files can be written; the message says which were tried and what to do."""


def choose_scratch(beside=''):
    """Choose a writable folder for all temporary files of this process and of those that it starts.

    The root of a container may be read-only, with no /tmp of its own. `beside` is a folder that the user named for the answer.
    /dev/shm comes last, and only if it has room: NCCL needs it for its exchange.
    """
    tried = []
    for folder, needed in [(folder, 0) for folder in (os.environ.get('TMPDIR'), '/tmp', '/var/tmp', beside, os.environ.get('HOME'))
                           ] + [('/dev/shm', SHM_SPARE)]:
        if folder and folder not in tried:
            tried.append(folder)
            if _can_be_used(folder, needed):
                tempfile.tempdir = os.environ['TMPDIR'] = folder
                return
    raise NoScratch('there is no folder for temporary files: %s cannot be written. Start the container with --tmpfs /tmp, or set TMPDIR to a '
                    'folder that is mounted' % ', '.join(tried))


def _can_be_used(folder, needed):
    try:
        os.rmdir(tempfile.mkdtemp(prefix='.envbuild-smoke-', dir=folder))
        stat = os.statvfs(folder)
    except (IOError, OSError):
        return False
    return stat.f_bavail * stat.f_frsize >= needed


def write_text(path, text):
    """Write `path` atomically: a reader sees either the old or the complete new content."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix='.' + os.path.basename(path) + '.', dir=folder)
    try:
        with os.fdopen(handle, 'wb') as stream:
            stream.write(text.encode('utf-8'))
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path, value):
    """`value` as JSON. NaN and infinity are refused: the reports must be readable by every JSON parser."""
    text = as_json(value)
    write_text(path, text.decode('ascii') if isinstance(text, bytes) else text)


def as_json(value):
    """`value` as a native `str` of this Python."""
    return json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + '\n'


def read_json(path):
    """The content of a JSON file; IOError or ValueError if there is none."""
    with io.open(path, encoding='utf-8') as stream:
        return json.load(stream)


def tail(path, limit=4000):
    """The last `limit` characters of a log, as far as it can be read."""
    try:
        with io.open(path, 'rb') as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - limit))
            return stream.read().decode('utf-8', 'replace')
    except (IOError, OSError):
        return u''

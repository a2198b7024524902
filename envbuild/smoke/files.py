"""Reads files, writes them atomically, and chooses the folder for temporary files."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import tempfile

SHM_SPARE = 1 << 30
PROGRAM = os.path.dirname(os.path.abspath(__file__))     # the guest's folder, which Python runs as a program


def unwritable(folder):
    """Return why this process cannot write to `folder`, and what to do about it; '' if it can."""
    if os.access(folder, os.W_OK):
        return ''
    try:
        there = os.stat(folder)
    except OSError:
        return 'the folder %s does not exist' % folder
    return ("user %d cannot write to %s, which belongs to user %d. Add '--user %d:%d' to the command that starts the "
            'container, or change the owner of the folder to user %d' % (os.getuid(), folder, there.st_uid, there.st_uid, there.st_gid, os.getuid()))


class NoScratch(Exception):
    """No folder for temporary files can be written; the message says which were tried and what to do."""


def choose_scratch(beside=''):
    """Choose a writable folder for all temporary files of this process and of those that it starts.

    The container's root may be read-only, and /tmp with it. `beside` is the folder that the user named for the report.
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
    raise NoScratch('no folder for temporary files is writable (tried %s). Start the container with --tmpfs /tmp, or set '
                    'TMPDIR to a mounted folder' % ', '.join(tried))


def room(folder):
    """Return how much of a folder's disk is free, in words: '0.0 MB of 2.1 MB are free'; '' if the folder cannot be read."""
    try:
        stat = os.statvfs(folder)
    except (IOError, OSError):
        return ''
    words = '%.1f MB of %.1f MB are free' % (stat.f_bavail * stat.f_frsize / 1e6, stat.f_blocks * stat.f_frsize / 1e6)
    return words + (', but no further file can be created' if stat.f_files and not stat.f_favail else '')


def _can_be_used(folder, needed):
    try:
        os.rmdir(tempfile.mkdtemp(prefix='.envbuild-smoke-', dir=folder))
        stat = os.statvfs(folder)
    except (IOError, OSError):
        return False
    return stat.f_bavail * stat.f_frsize >= needed


def write_text(path, text):
    """Write `path` atomically: a reader sees either the old or the complete new content.

    The target of a symbolic link is replaced, not the link. Devices and pipes, such as /dev/stdout, are written to as they are.
    """
    real = os.path.realpath(path)
    if os.path.exists(path) and (real.startswith(('/dev/', '/proc/')) or not os.path.isfile(path)):
        with io.open(path, 'wb') as stream:
            stream.write(text.encode('utf-8'))
        return
    path, folder = real, os.path.dirname(real)
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
    """Write `value` as JSON. NaN and infinity raise ValueError: every JSON parser must be able to read the reports."""
    text = as_json(value)
    write_text(path, text.decode('ascii') if isinstance(text, bytes) else text)


def as_json(value):
    """Return `value` as JSON text. The text is a `str`, in Python 2 as in Python 3."""
    return json.dumps(value, indent=2, sort_keys=False, allow_nan=False) + '\n'


def read_json(path):
    """Return the content of a JSON file. Raises IOError if the file cannot be read, ValueError if it is not JSON."""
    with io.open(path, encoding='utf-8') as stream:
        return json.load(stream)


def tail(path, limit=4000):
    """Return the last `limit` bytes of a log as text; '' if the log cannot be read."""
    try:
        with io.open(path, 'rb') as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - limit))
            return stream.read().decode('utf-8', 'replace')
    except (IOError, OSError):
        return u''

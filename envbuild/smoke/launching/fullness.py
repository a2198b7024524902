"""Finds out whether the ranks of a launch ended because a disk is full."""
from __future__ import absolute_import, division, print_function

import errno
import os
import re

from .. import files

LITTLE = 50 * 10 ** 6         # the largest files of a rank need almost as much
FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
# NumPy reports a short write in a message of its own, without an error number.
SHORT_WRITE = re.compile(r'\d requested and \d+ written')
OF_FILE = re.compile(r"(?:%s): u?'(/[^']*)'" % '|'.join(map(re.escape, FULL)))


def sentence(folder, texts):
    """Say which folder has no room, and how much of its disk is free; '' if there is no sign of a full disk.

    `folder` is the folder in which the ranks write their files. `texts` are the output and the errors of the ranks. If a rank
    has removed its unfinished file, the disk has room again. On a full disk, the output of a rank may be lost, too.
    """
    named = [path for text in texts for path in OF_FILE.findall(text)]
    if named and not named[-1].startswith(folder + os.sep):
        folder = os.path.dirname(named[-1])
    room, free = files.room(folder), _free(folder)
    if free == 0:
        return 'the disk of the folder %s is full: %s' % (folder, room)
    if named or any(SHORT_WRITE.search(text) or any(words in text for words in FULL) for text in texts):
        return 'a file did not fit into the folder %s%s' % (folder, room and ': %s now' % room)
    return 'the disk of the folder %s is almost full: %s' % (folder, room) if free < LITTLE else ''


def _free(folder):
    """Return how many bytes can be written to a folder: 0 if no file can be created, infinity if this is unknown."""
    try:
        stat = os.statvfs(folder)
    except (IOError, OSError):
        return float('inf')
    if not stat.f_blocks:           # some file systems do not count
        return float('inf')
    return 0 if stat.f_files and not stat.f_favail else stat.f_bavail * stat.f_frsize

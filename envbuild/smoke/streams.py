"""Standard output and standard error that never raise: a stream that is closed, full or broken must not hide the result."""
from __future__ import absolute_import, division, print_function

import errno
import fcntl
import os
import sys
import traceback

from .verdict import FAIL, USAGE

CLOSED = 'it is closed'


class Stream(object):
    """Writes to `raw`, a stream of this process with the file descriptor `number`. `raw` is None if the stream is closed.

    `error` says why something could not be written; it is '' if nothing was lost, or if only the reader of a pipe has gone.
    `last` is the last text that was lost. `is_data` is true if a program reads this stream, so that no sentence may be added.
    """

    def __init__(self, raw, number, name):
        self._raw, self._number, self.name = raw, number, name
        self.error, self.last, self.is_data, self._is_off = '', '', False, False
        self.buffer = self          # for callers who write bytes

    def __getattr__(self, name):
        return getattr(self._raw, name)

    def write(self, text):
        """Write text or bytes at once. After the first text that cannot be written, nothing more is written."""
        if self._raw is None:
            self.error, self._is_off = CLOSED, True
        if not self._is_off:
            try:
                self._write(text)
            except (IOError, OSError) as error:
                self._give_up(error)
        if self.error:
            self.last = text

    def is_closed(self):
        """Whether the stream was closed when the program began."""
        return self._raw is None

    def _write(self, text):
        raw = getattr(self._raw, 'buffer', self._raw) if isinstance(text, bytes) else self._raw
        try:
            raw.write(text)
        except UnicodeError:            # the stream's encoding does not have a character of the text
            escaped = text.encode('ascii', 'backslashreplace')
            raw.write(escaped if str is bytes else escaped.decode('ascii'))
        raw.flush()

    def _give_up(self, error):
        self._is_off = True
        if error.errno != errno.EPIPE:
            self.error = os.strerror(error.errno) if error.errno else '%s' % error
        # The text is still in the buffer of `raw`. Python writes the buffer when it ends, and must not fail then.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._number)
        os.close(nothing)

    def flush(self):
        """Do nothing: each text is written at once."""


def guarded(work):
    """Call `work` while Streams replace standard output and standard error; return its exit status.

    If one of the two cannot be written, a sentence on the other one says so. If standard output cannot be written, the exit
    status is not 0. It is no error if the reader of a pipe ends early (`| head -1`).
    """
    out, err = sys.stdout, sys.stderr = _streams()
    try:
        code = work()
    except SystemExit as stop:
        code = stop.code
    except Exception:
        traceback.print_exc()
        code = FAIL
    _tell(out, err, '')
    _tell(err, out, err.last if code == USAGE else '')
    return USAGE if out.error and not code else code


def _streams():
    """Return the Streams for standard output and standard error.

    Each closed descriptor is opened to /dev/null. Else the next opened file would get its number, and with it the output.
    """
    raw = []
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)         # gets the lowest free number, which is this one
            fcntl.fcntl(opened, fcntl.F_SETFD, fcntl.FD_CLOEXEC)        # a program that replaces this one finds it closed, too
            stream = None
        raw.append(stream)
    return Stream(raw[1], 1, 'standard output'), Stream(raw[2], 2, 'standard error')


def _tell(lost, other, message):
    if lost.error and not other.is_data:
        other.write('envbuild-smoke: cannot write to %s: %s\n%s' % (lost.name, lost.error, message))

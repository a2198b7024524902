"""One call of the guest in its own process. The parent watches this process, and ends it and all processes that it started."""
from __future__ import absolute_import, division, print_function

import io
import os
import signal
import subprocess
import sys

from .. import files
from ..clock import now, pause
from . import watchdog

POLL_S = 0.1
CLEAN_UP_S = 5.0            # seconds that the process may take after SIGTERM to end its own workers


class Child(object):
    """The process of one call. Its progress (standard error) is passed on at once; its table and its report are kept."""

    def __init__(self, argv, folder):
        self._report = os.path.join(folder, 'report.json')
        self._out, self._err = (os.path.join(folder, name) for name in ('out', 'err'))
        with io.open(self._out, 'wb') as out, io.open(self._err, 'wb') as err, io.open(os.devnull, 'rb') as nothing:
            # A session of its own: a Ctrl-C at the terminal reaches only the parent, which then ends this process.
            self._process = subprocess.Popen([sys.executable, files.PROGRAM] + argv, stdin=nothing, stdout=out, stderr=err, close_fds=True,
                                             preexec_fn=os.setsid)
        self._passed_on = 0

    def wait(self, seconds):
        """Wait for the process; return its exit status, or None if it did not end by itself in that time."""
        until = now() + seconds
        while self._process.poll() is None and now() < until:
            self._pass_on()
            pause(POLL_S)
        self._pass_on()
        return self._process.poll()

    def end(self):
        """Stop the process and all that it started: SIGTERM, so that it can end its workers and report, and then SIGKILL."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(CLEAN_UP_S)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number):
        try:
            os.killpg(self._process.pid, number)
        except OSError:
            pass

    def _pass_on(self):
        with io.open(self._err, 'rb') as stream:
            stream.seek(self._passed_on)
            news = stream.read()
        if news:
            self._passed_on += len(news)
            getattr(sys.stderr, 'buffer', sys.stderr).write(news)
            sys.stderr.flush()

    def report(self):
        """The report that the process wrote, or None if the file cannot be read."""
        try:
            return files.read_json(self._report)
        except (IOError, OSError, ValueError):
            return None

    def said(self):
        """The table that the process printed, as a `str` in Python 2 and in Python 3."""
        with io.open(self._out, 'rb') as stream:
            text = stream.read().decode('utf-8', 'replace').encode('ascii', 'replace')
        return text if str is bytes else text.decode('ascii')

    def tail(self):
        """The last lines of the process's output."""
        return files.tail(self._out) + files.tail(self._err)

    def ending(self):
        """Describe how the process ended."""
        return watchdog.describe_end(self._process.returncode)

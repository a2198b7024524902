"""Signs of life: each rank appends a line to its own file whenever it gets further; the parent reads them.

A file is used instead of a pipe, because the last news of a killed rank must remain readable. Times are of the clock that all processes of
a machine share.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os

from ..clock import now

EVERY_S = 0.2       # a line per step would cost more than a small step


class Heart(object):
    """The writing side, in a rank."""

    def __init__(self, path):
        self._stream = io.open(path, 'ab', 0)
        self._last, self.phase = 0.0, ''

    def enter(self, phase):
        """A new phase begins; always written, and so is the first beat in it."""
        self.phase = phase
        self._write({'phase': phase})
        self._last = 0.0

    def beat(self, done=None, total=None):
        """One more step is done."""
        if now() - self._last >= EVERY_S:
            self._write({'phase': self.phase, 'done': done, 'total': total})

    def _write(self, news):
        self._last = news['t'] = now()
        self._stream.write((json.dumps(news) + '\n').encode('ascii'))


class Monitor(object):
    """The reading side, in the parent: the latest news of one rank."""

    def __init__(self, path):
        self._path, self._at = path, 0
        self.last_time, self.phase, self.done, self.total = now(), 'start', None, None

    def read(self):
        """Take in what is new; True if there was anything."""
        if not os.path.exists(self._path):
            return False
        with io.open(self._path, 'rb') as stream:
            stream.seek(self._at)
            data = stream.read()
        lines = data[:data.rfind(b'\n') + 1]
        self._at += len(lines)
        for line in lines.splitlines():
            self.take(line.decode('ascii'))
        return bool(lines)

    def take(self, line):
        """One line of news."""
        news = json.loads(line)
        self.phase, self.done, self.total = news['phase'], news.get('done'), news.get('total')
        self.last_time = news['t']

    def where(self):
        """Words for the phase and step."""
        if self.done is None:
            return self.phase
        return '%s %s' % (self.phase, self.done if self.total is None else '%d of %d' % (self.done, self.total))

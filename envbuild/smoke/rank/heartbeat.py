"""Heartbeats: each rank appends a line to its own file when it makes progress, and the parent process reads these files.

Files are used instead of pipes, because the last line of a killed rank must remain readable. Times are of the monotonic clock,
which all processes of a machine share.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os

from ..clock import now

EVERY_S = 0.2       # seconds between lines: a line per step would take longer than a small step
LEAST_LINES = 6     # to compare the clocks of a rank and of its parent


class Heart(object):
    """The writing side, in a rank: appends lines to the rank's file."""

    def __init__(self, path):
        self._stream = io.open(path, 'ab', 0)
        self._last, self.phase = 0.0, ''

    def enter(self, phase):
        """Begin a new phase. Its line is written at once, and so is the line of the first beat in the phase."""
        self.phase = phase
        self._write({'phase': phase})
        self._last = 0.0

    def beat(self, done=None, total=None):
        """Report that `done` steps of `total` are done; written at most every EVERY_S seconds."""
        if now() - self._last >= EVERY_S:
            self._write({'phase': self.phase, 'done': done, 'total': total})

    def _write(self, news):
        self._last = news['t'] = now()
        self._stream.write((json.dumps(news) + '\n').encode('ascii'))


class Monitor(object):
    """The reading side, in the parent: the last heartbeat of one rank."""

    def __init__(self, path):
        self._path, self._at, self._looked, self._bounds = path, 0, now(), []
        self.last_time, self.phase, self.done, self.total = now(), 'start', None, None

    def read(self):
        """Read the new lines; return whether there were any."""
        if not os.path.exists(self._path):
            return False
        before, self._looked = self._looked, now()
        with io.open(self._path, 'rb') as stream:
            stream.seek(self._at)
            data = stream.read()
        lines = data[:data.rfind(b'\n') + 1]
        self._at += len(lines)
        for line in lines.splitlines():
            self.take(line.decode('ascii'))
        if lines:
            arrival = now()
            self._bounds.append((arrival, before - json.loads(lines.splitlines()[0].decode('ascii'))['t'], arrival - self.last_time))
        return bool(lines)

    def drift(self):
        """Return (the seconds by which the rank's clock fell behind the parent's, the seconds of the parent in which it did).

        The first number is negative if the rank's clock ran ahead. Each line was written between two successive looks of the
        parent at the file. This gives a lower and an upper bound for the difference of the two clocks at that time, which are
        right however late the parent looks. The bounds of the first third of the time are compared with those of the last
        third, and the smallest drift that fits them is returned. Returns (0.0, 0.0) if there are too few lines.
        """
        if len(self._bounds) < LEAST_LINES:
            return 0.0, 0.0
        first, last = self._bounds[0][0], self._bounds[-1][0]
        third = (last - first) / 3
        early = [each for each in self._bounds if each[0] <= first + third]
        late = [each for each in self._bounds if each[0] >= last - third]
        # A lower bound is too high if the rank was interrupted after it read its clock and before it wrote the line. It is too
        # low if the parent looked late. The lower quartile is right if at most a quarter of the bounds are too low, and at most
        # three quarters are too high.
        (early_least, early_most), (late_least, late_most) = [
            (_quarter([low for _, low, _ in part]), min(high for _, _, high in part)) for part in (early, late)]
        return max(late_least - early_most, 0.0) - max(early_least - late_most, 0.0), last - first

    def take(self, line):
        """Take the phase, the step and the time from one line."""
        news = json.loads(line)
        self.phase, self.done, self.total = news['phase'], news.get('done'), news.get('total')
        self.last_time = news['t']

    def where(self):
        """Describe the phase and step of the last heartbeat."""
        if self.done is None:
            return self.phase
        return '%s %s' % (self.phase, self.done if self.total is None else '%d of %d' % (self.done, self.total))


def _quarter(values):
    return sorted(values)[len(values) // 4]

"""TIME: clocks of ranks that run at another speed than the clock of the parent, and heartbeats that arrive late."""
from __future__ import absolute_import, division, print_function

import json
import os
import shutil
import tempfile
import unittest

import boot  # noqa: F401
from envbuild_smoke.judging import endings
from envbuild_smoke.rank import heartbeat


class Outcome(object):
    kind, seconds = 'done', 30.0

    def __init__(self, drifts):
        self.drifts = drifts
        self.results = [{'framework': {'name': 'numpy', 'version': '2'}, 'timing': {'import_s': .1}}]


class Clocks(unittest.TestCase):
    def setUp(self):
        self.folder, self.time = tempfile.mkdtemp(), 100.0
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(setattr, heartbeat, 'now', heartbeat.now)
        heartbeat.now = lambda: self.time

    def drift(self, speed, waits=(.1,), late=(0,), lines=120):
        """Return the drift of a rank whose clock has this speed. It writes a line 0.2 s after the last one, in turn `late`
        seconds after it read its clock. The parent looks at the file in turn after these waits.
        """
        path = os.path.join(self.folder, 'heart')
        monitor, begun, look = heartbeat.Monitor(path), self.time, 0
        written, now = [], 0.0
        for number in range(lines):
            written.append((now + late[number % len(late)], 7 + now * speed))
            now = written[-1][0] + .2
        while written:
            self.time += waits[look % len(waits)]
            look += 1
            with open(path, 'a') as stream:
                while written and begun + written[0][0] <= self.time:
                    stream.write(json.dumps({'phase': 'bench', 't': written.pop(0)[1]}) + '\n')
            monitor.read()
        return monitor.drift()

    def judge(self, *drift):
        return [made for made in endings.ending(1, Outcome([(0, 0.0, 20.0), (1,) + drift])) if made['id'] == 'TIME']

    def test_a_right_clock_passes_however_late_the_parent_looks(self):
        """A busy machine may stop the parent for seconds, also only at the beginning or at the end."""
        for waits in ((.1,), (.1, 4.0, .1, .3), (3.0,), (5.0,) + (.1,) * 150, (.1,) * 150 + (9.0,), (1.3,) * 8 + (.1,) * 200):
            for late in ((0,), (0, 0, 0, 0, 0, 2.0)):
                behind, seconds = self.drift(1.0, waits, late)
                self.assertLess(abs(behind), .01 if late == (0,) else 1.0, (waits, late))
                self.assertEqual(self.judge(behind, seconds), [], (waits, late))

    def test_a_wrong_clock_fails(self):
        for waits in ((.1,), (.1, 1.0), (.1, .1, 2.0)):
            for speed, word in ((1 / 3.0, 'lost'), (.8, 'lost'), (1.25, 'gained'), (3.0, 'gained')):
                made, = self.judge(*self.drift(speed, waits, lines=300))
                self.assertEqual(made['status'], 'fail')
                self.assertIn('the clock of rank 1 %s ' % word, made['message'])

    def test_few_lines_show_nothing(self):
        self.assertEqual(self.drift(.1, lines=heartbeat.LEAST_LINES - 1), (0.0, 0.0))


if __name__ == '__main__':
    unittest.main()

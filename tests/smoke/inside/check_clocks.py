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

    def drift(self, speed, delays=(.01,), lines=60):
        """Return the drift of a rank whose clock has this speed, if a line every half second arrives after these delays."""
        path = os.path.join(self.folder, 'heart')
        monitor, begun = heartbeat.Monitor(path), self.time
        for number in range(lines):
            beat = begun + number / 2
            with open(path, 'a') as stream:
                stream.write(json.dumps({'phase': 'bench', 't': 7 + (beat - begun) * speed}) + '\n')
            self.time = beat + delays[number % len(delays)]
            monitor.read()
        return monitor.drift()

    def judge(self, *drift):
        return [made for made in endings.ending(1, Outcome([(0, 0.0, 20.0), (1,) + drift])) if made['id'] == 'TIME']

    def test_a_right_clock_passes_also_if_lines_arrive_late(self):
        for delays in ((.01,), (.3, 4.0, .02, 9.0), (5.0, .1)):
            behind, seconds = self.drift(1.0, delays)
            self.assertLess(abs(behind), .4)
            self.assertGreater(seconds, 8)
            self.assertEqual(self.judge(behind, seconds), [])

    def test_a_wrong_clock_fails(self):
        for speed, word in ((1 / 3.0, 'lost'), (.9, 'lost'), (1.1, 'gained'), (3.0, 'gained')):
            made, = self.judge(*self.drift(speed, (.01, .2), 120))
            self.assertEqual(made['status'], 'fail')
            self.assertIn('the clock of rank 1 %s ' % word, made['message'])

    def test_few_lines_show_nothing(self):
        self.assertEqual(self.drift(.1, lines=heartbeat.LEAST_LINES - 1), (0.0, 0.0))


if __name__ == '__main__':
    unittest.main()

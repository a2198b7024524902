"""TIME: clocks that run at another speed than the clock that they are compared with, and heartbeats that arrive late."""
from __future__ import absolute_import, division, print_function

import json
import os
import shutil
import tempfile
import unittest

import boot  # noqa: F401
from envbuild_smoke import clock
from envbuild_smoke.judging import endings
from envbuild_smoke.rank import heartbeat


class Outcome(object):
    kind, seconds = 'done', 30.0

    def __init__(self, drifts, drift=(0.0, 30.0)):
        self.drifts, self.drift = drifts, drift
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


class KernelsTime(unittest.TestCase):
    """The clock of all ranks is compared with the time that the kernel writes into a file."""

    def setUp(self):
        self.folder, self.time = tempfile.mkdtemp(), 100.0
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ('now', 'UPTIME', 'SLEEPS'):
            self.addCleanup(setattr, clock, name, getattr(clock, name))
        clock.now = lambda: self.time
        clock.UPTIME, clock.SLEEPS = (os.path.join(self.folder, name) for name in ('uptime', 'sleeps'))

    def write(self, path, text):
        with open(path, 'w') as stream:
            stream.write(text)

    def judged(self, kernel_s, own_s, after=''):
        """Return the checks TIME of a run in which the clocks advance by these seconds; `after` is the text of the count of
        sleeps at its end."""
        self.write(clock.UPTIME, '5000.25 9000.5\n')
        compared = clock.Comparison()
        self.time += own_s
        self.write(clock.UPTIME, '%.2f 9000.5\n' % (5000.25 + kernel_s))
        if after:
            self.write(clock.SLEEPS, after)
        return [made for made in endings.ending(1, Outcome([(0, 0.0, 20.0)], compared.drift())) if made['id'] == 'TIME']

    def test_equal_speeds_pass(self):
        for kernel_s, own_s in ((30, 30.0), (30, 29.99), (.01, 0.0), (1.0, 1.4), (200, 205.0)):
            self.assertEqual(self.judged(kernel_s, own_s), [])

    def test_a_wrong_speed_of_all_clocks_fails(self):
        for own_s, word in ((10.0, 'lost'), (90.0, 'gained'), (26.0, 'lost'), (-5.0, 'lost')):
            made, = self.judged(30, own_s)
            self.assertEqual(made['status'], 'fail')
            self.assertIn('the clock of all processes of this machine %s ' % word, made['message'])
            self.assertIn('since the machine was started', made['message'])

    def test_a_process_that_is_stopped_while_it_reads_the_clocks_passes(self):
        """It is stopped for 4 s at the beginning and at the end, so the kernel's time may be of any moment in these seconds."""
        for kernel_s, behind in ((26.1, 0.0), (30.0, 0.0), (33.9, 0.0), (40.0, 6.0), (20.0, -6.0)):
            times = [134.0, 130.0, 104.0, 100.0]
            clock.now = times.pop
            self.write(clock.UPTIME, '5000.0 1\n')
            compared = clock.Comparison()
            self.write(clock.UPTIME, '%.2f 1\n' % (5000 + kernel_s))
            self.assertAlmostEqual(compared.drift()[0], behind)

    def test_a_machine_that_slept_shows_nothing(self):
        self.write(clock.SLEEPS, '3\n')
        self.assertEqual(self.judged(3000, 30.0, after='4\n'), [])
        self.assertEqual(len(self.judged(3000, 30.0, after='4\n')), 1)      # it did not sleep again

    def test_without_the_kernels_time_nothing_is_compared(self):
        for text in (None, '', 'no number'):
            clock.UPTIME = os.path.join(self.folder, 'other')
            if text is not None:
                self.write(clock.UPTIME, text)
            self.assertEqual(clock.Comparison().drift(), (0.0, 0.0))

    def test_the_clocks_of_this_machine_agree(self):
        for name in ('now', 'UPTIME', 'SLEEPS'):
            setattr(clock, name, REAL[name])
        compared = clock.Comparison()
        clock.pause(1.1)
        behind, seconds = compared.drift()
        self.assertGreater(seconds, 1)
        self.assertLess(abs(behind), .5)


REAL = dict((name, getattr(clock, name)) for name in ('now', 'UPTIME', 'SLEEPS'))

if __name__ == '__main__':
    unittest.main()

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys
import time
import unittest

import boot  # noqa: F401
from envbuild_smoke.launching import starvation

PATIENCE = 60.0
AFFINITY = getattr(os, 'sched_getaffinity', None)        # since Python 3.3


class Silence(unittest.TestCase):
    """A silence of ranks, with simulated counters of the kernel."""

    def setUp(self):
        self.counters = {(5, '5'): 100.0, (5, '6'): 20.0}
        self.reads = 0
        original, starvation.waited = starvation.waited, self.read
        self.addCleanup(setattr, starvation, 'waited', original)
        self.starvation = starvation.Starvation(lambda: [5])

    def read(self, pids):
        self.assertEqual(pids, [5])
        self.reads += 1
        return dict(self.counters)

    def explains(self, silent, last=7.0):
        return self.starvation.explains(last, silent, PATIENCE)

    def test_ranks_that_sleep_hang(self):
        self.assertFalse(self.explains(3))
        self.assertFalse(self.explains(61))

    def test_ranks_without_a_processor_do_not_hang(self):
        self.explains(3)
        self.counters[5, '5'] += 20
        self.counters[5, '6'] += 25
        self.assertTrue(self.explains(61))
        self.assertTrue(self.explains(104))
        self.assertFalse(self.explains(106))        # 61 s of them with a processor

    def test_a_thread_that_began_during_the_silence_counts(self):
        self.explains(3)
        self.counters[9, '9'] = 10.0
        self.assertTrue(self.explains(69))

    def test_what_was_waited_before_the_silence_does_not_count(self):
        self.explains(3, last=1.0)
        self.counters[5, '5'] += 50
        self.assertFalse(self.explains(3, last=7.0))
        self.assertFalse(self.explains(61, last=7.0))

    def test_a_very_long_silence_is_a_hang(self):
        self.explains(3)
        self.counters[5, '5'] += 1e6                # for example ranks that wait in a busy loop
        self.assertTrue(self.explains(299))
        self.assertFalse(self.explains(301))

    def test_the_counters_are_read_seldom(self):
        for tenth in range(20, 640):
            self.explains(tenth / 10.0)
        self.assertLess(self.reads, 8)

    def test_without_counters_the_limit_holds(self):
        self.counters = {}
        self.explains(3)
        self.assertFalse(self.explains(61))


class Kernel(unittest.TestCase):
    @unittest.skipUnless(AFFINITY and os.path.exists('/proc/self/schedstat'), 'needs both')
    def test_processes_that_share_a_processor_wait_for_it(self):
        core = min(AFFINITY(0))
        busy = [subprocess.Popen([sys.executable, '-c', 'import os; os.sched_setaffinity(0, [%d])\nwhile True: pass' % core])
                for _ in range(2)]
        try:
            until = time.time() + 60
            while sum(starvation.waited([each.pid for each in busy]).values()) < 0.2 and time.time() < until:
                time.sleep(0.05)
            self.assertGreaterEqual(sum(starvation.waited([each.pid for each in busy]).values()), 0.2)
            child_included = starvation.waited([os.getpid()])
            self.assertTrue(set(each.pid for each in busy) <= set(pid for pid, _ in child_included))
        finally:
            for each in busy:
                each.kill()
                each.wait()

    def test_a_process_that_ended_has_waited_for_nothing(self):
        process = subprocess.Popen([sys.executable, '-c', ''])
        process.wait()
        self.assertEqual(starvation.waited([process.pid]), {})


if __name__ == '__main__':
    unittest.main()

"""Plant every fault of faulty.py, with two ranks as threads: the right check fails and names the right hypothesis."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import threading
import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke import adapters, plan
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import checks, simulate
from envbuild_smoke.networks import nets, refnet
from envbuild_smoke.rank import match, worker
from envbuild_smoke.rank.heartbeat import Heart

BATCH = 16
NET = nets.of(plan.ORACLE['net'])
FAULTY = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'faulty.py')

# fault -> (status of ORACLE, hypothesis, status of REPLICA)
TABLE = {
    '': ('pass', None, 'pass'),
    'no-exchange': ('fail', 'no-exchange', 'fail'),
    'gradients-summed': ('fail', 'gradients-summed', 'pass'),
    'averaged-twice': ('fail', 'averaged-twice', 'pass'),
    'not-exchanged-fc2_b': ('fail', 'not-exchanged-fc2_b', 'fail'),
    'same-shard': ('fail', 'same-shard', 'pass'),
    'silent-rank-1': ('fail', 'silent-rank-1', 'pass'),
    'no-update': ('fail', 'no-update', 'pass'),
    'no-momentum': ('fail', 'no-momentum', 'pass'),
    'input-by-256': ('fail', 'input-by-256', 'pass'),
    'weight-decay=0.0005': ('fail', 'weight-decay', 'pass'),
    'labels': ('fail', 'labels-plus-one', 'pass'),
    'one-label': ('fail', 'wrong-labels', 'pass'),
    'reduced-precision': ('fail', 'gradients-in-bfloat16', 'pass'),
    'half-exchange': ('fail', 'gradients-in-float16', 'pass'),
    'learning-rate=1.01': ('fail', 'learning-rate', 'pass'),
    'learning-rate=1.1': ('fail', 'learning-rate', 'pass'),
    'momentum=0.95': ('fail', 'momentum', 'pass'),
    'weight-decay=0.001': ('fail', 'weight-decay', 'pass'),
    'weight-decay=0.005': ('fail', 'weight-decay', 'pass'),
    'noise=1e-4': ('fail', 'noise', 'pass'),
    'skipped-fc2_b-on-rank-1': ('fail', 'silent-fc2_b-rank-1', 'pass'),
    'frozen-conv1_b-on-rank-1': ('fail', 'frozen-conv1_b-rank-1', 'fail'),
}


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        adapters.load(FAULTY)       # load it here once, not in two threads at the same time
        pictures, labels = synth.digits(4 * BATCH, 105)
        cls.case = simulate.Case(NET, NET.initial(7), pictures, labels, 4, BATCH, 2, .05, .9)
        cls.want, _ = refnet.train(NET, cls.case.start, pictures, labels, 4, BATCH, .05, .9)

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        paths = dict((name, os.path.join(self.folder, name)) for name in ('images.npy', 'labels.npy', 'weights.npz'))
        np.save(paths['images.npy'], self.case.images)
        np.save(paths['labels.npy'], self.case.labels)
        np.savez(paths['weights.npz'], **self.case.start)
        self.data = {'oracle': {'images': paths['images.npy'], 'labels': paths['labels.npy']}, 'weights': paths['weights.npz']}

    def tearDown(self):
        shutil.rmtree(self.folder)

    def train(self, fault):
        """The results of both ranks, in the form of their result files."""
        results = [None, None]
        options = {'adapter': FAULTY, 'options': {'fault': fault}, 'threads': 1, 'seed': 7, 'stall': 60, 'stall_first': 60}
        made = plan.launch(options, {'recipe': '', 'options': {}}, plan.Device('cpu', 2, ''), 2, [2], 'process', self.folder, 2)
        made.update(data=self.data, oracle=dict(plan.ORACLE, batch=BATCH))

        def rank(number):
            session = worker.Session(made, number, Heart(os.path.join(self.folder, 'heart-%d' % number)))
            session.adapter.setup(session.ctx)
            results[number] = {'phases': {'oracle': match.measure(session)}}
            session.ctx.group.close()

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        os.remove(os.path.join(self.folder, 'rendezvous'))
        return results

    def copies(self, results):
        out = []
        for rank, result in enumerate(results):
            with np.load(result['phases']['oracle']['weights'][0]) as stored:
                out.append((rank, dict((name, stored[name]) for name in stored.files)))
        return out

    def test_every_fault_is_caught_by_the_right_check_and_named(self):
        for fault, (oracle, hypothesis, replica) in sorted(TABLE.items()):
            results = self.train(fault)
            judged = checks.oracle(2, self.case, self.want, self.copies(results))[0]
            self.assertEqual(judged['status'], oracle, (fault, judged))
            named = judged['detail']['hypothesis']
            self.assertEqual(named and named['id'], hypothesis, (fault, named))
            self.assertEqual(checks.replicas(2, results)[0]['status'], replica, fault)

    def test_replicas_that_drift_apart_are_told_with_step_and_parameter(self):
        judged = checks.replicas(2, self.train('not-exchanged-fc2_b'))[0]
        self.assertIn('from step 1 on, first in parameter fc2_b of replica 1', judged['message'])


if __name__ == '__main__':
    unittest.main()

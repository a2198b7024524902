"""Judge the phase `buckets` on a small network: the effect of each fault of a bucket, and the name that the check gives it."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import unittest

import boot  # noqa: F401
import numpy as np

from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import buckets
from envbuild_smoke.networks import nets, refnet, rounding
from envbuild_smoke.rank import buckets as phase
from envbuild_smoke.rank.match import fingerprint

PLAN = {'net': 'narrow', 'steps': 3, 'batch': 8, 'lr': 0.2}
N, MOMENTUM = 2, 0.9
SECOND = ['fc1_w', 'fc1_b']         # the parameters of the bucket that is exchanged last


def _narrow():
    net = nets.Net('narrow', (1, 28, 28), 'none')
    net.flatten('flat')
    net.dense('fc1', 12)
    net.tanh('tanh1')
    net.dense('fc2', 10)
    return net


class Group(object):
    """A group with one process, which holds all replicas."""

    def gather(self, value):
        return [value]


class Adapter(object):
    """Two replicas in one process. `spoil(step, replica, name, gradients, mean)` returns the second bucket's gradient for a
    replica.
    """

    numbers = rounding.EXACT

    def __init__(self, spoil):
        self.spoil, self.step_number, self.late = spoil, 0, None

    def make(self, net, weights, lr, momentum, replicas, sync):
        self.net = net
        self.p = [dict((name, np.array(weights[name])) for name in net.names) for _ in range(N)]
        self.v = [dict((name, np.zeros_like(weights[name])) for name in net.names) for _ in range(N)]
        return self

    def put(self, handle, images, labels):
        return images, labels

    def step(self, handle, batch, lr):
        self.step_number += 1
        size, gradients = len(batch[0]) // N, []
        for replica in range(N):
            mine = slice(replica * size, (replica + 1) * size)
            x = refnet.scaled(batch[0][mine], 'float32')
            found = refnet.loss_and_gradient(self.net, self.p[replica], x, batch[1][mine], self.numbers)[1]
            gradients.append(dict((name, np.asarray(found[name], 'float32')) for name in found))
        mean = dict((name, sum(each[name] for each in gradients) / np.float32(N)) for name in self.net.names)
        for replica in range(N):
            got = dict(mean)
            if self.step_number > 1:
                got.update((name, self.spoil(self, replica, name, gradients, mean)) for name in SECOND)
            refnet.update(self.p[replica], self.v[replica], dict((name, np.asarray(got[name], 'float32')) for name in got), np.float32(lr), np.float32(MOMENTUM))
        self.late = mean

    def drain(self):
        pass

    def copies(self, handle):
        return N

    def weights(self, handle, copy):
        return self.p[copy]


FAULTS = {
    'bucket-not-exchanged': lambda side, replica, name, gradients, mean: gradients[replica][name],
    'bucket-lost': lambda side, replica, name, gradients, mean: 0 * mean[name],
    'bucket-late': lambda side, replica, name, gradients, mean: side.late[name],
    'bucket-summed': lambda side, replica, name, gradients, mean: N * mean[name],
    'bucket-averaged-twice': lambda side, replica, name, gradients, mean: mean[name] / N,
    'bucket-of-replica-0': lambda side, replica, name, gradients, mean: gradients[0][name],
    'bucket-rounded': lambda side, replica, name, gradients, mean: mean[name].astype('float16'),
    None: lambda side, replica, name, gradients, mean: np.roll(mean[name], 5, axis=0),
}


class Judged(unittest.TestCase):
    def setUp(self):
        nets._MAKERS['narrow'] = _narrow
        self.folder = tempfile.mkdtemp()
        self.data = synth.digits(24, 3)
        self.wanted = buckets.Wanted(PLAN, _narrow().initial(1), *self.data, momentum=MOMENTUM)
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(nets._MAKERS.pop, 'narrow')

    def results(self, spoil):
        test, adapter = self, Adapter(spoil)

        class Session(object):
            plan, heart, ctx = {'buckets': PLAN}, type('Heart', (), {'beat': lambda self, *_: None})(), type('Ctx', (), {'rank': 0, 'group': Group()})

            def data(self, part):
                return test.data

            def path(self, name):
                return os.path.join(test.folder, name)

            def make(self, sync, lr, net):
                return adapter.make(net, net.initial(1), lr, MOMENTUM, [0, 1], sync)

        session = Session()
        session.adapter = adapter
        return [{'phases': {'buckets': phase.measure(session)}}]

    def judged(self, spoil, precision=''):
        made, = buckets.judge(N, self.wanted, self.results(spoil), precision)
        return made

    def test_without_a_fault_it_passes_and_one_copy_of_a_step_is_written(self):
        made = self.judged(lambda side, replica, name, gradients, mean: mean[name])
        self.assertEqual((made['id'], made['status']), ('BUCKETS', 'pass'), made)
        self.assertLess(made['value'], buckets.LIMIT / 3)
        self.assertEqual(sorted(os.listdir(self.folder)), ['buckets-%d-0.npz' % step for step in (1, 2, 3)])

    def test_every_fault_of_a_bucket_fails_and_is_named_with_its_parameters(self):
        for fault, spoil in FAULTS.items():
            made = self.judged(spoil)
            self.assertEqual((made['status'], made['detail']['hypothesis'], made['detail']['wrong'], made['detail']['step']),
                             ('fail', fault, SECOND, 2), made)
            self.assertIn('the gradients of fc1_w, fc1_b are', made['message'])
            self.assertIn('the gradients of fc2_w, fc2_b are right', made['message'])

    def test_a_small_error_is_called_rounding_only_if_it_looks_like_it(self):
        def uneven(side, replica, name, gradients, mean):
            return .505 * gradients[0][name] + .495 * gradients[1][name]

        def louder(side, replica, name, gradients, mean):
            return mean[name] * np.float32(1.003)

        def one_lost(side, replica, name, gradients, mean):
            got = np.array(mean[name])
            got.reshape(-1)[np.abs(got).argmax()] = 0
            return got

        def coarse(side, replica, name, gradients, mean):
            return rounding.cut(mean[name], rounding.MANTISSA['bf16'])

        for spoil, name in ((uneven, None), (louder, None), (one_lost, None), (coarse, 'bucket-rounded')):
            made = self.judged(spoil)
            self.assertEqual((made['status'], made['detail']['hypothesis']), ('fail', name), (spoil, made['message']))

    def test_copies_that_differ_by_less_than_the_limit_fail_too(self):
        made = self.judged(lambda side, replica, name, gradients, mean: mean[name] * np.float32(1 + 1e-6 * replica))
        self.assertLess(made['value'], buckets.LIMIT)
        self.assertEqual((made['status'], made['detail']['differ_from_step']), ('fail', 2), made)
        self.assertIn('lead to different weights in the replicas', made['message'])

    def test_a_number_that_is_none_fails(self):
        made = self.judged(lambda side, replica, name, gradients, mean: mean[name] * np.float32('nan'))
        self.assertEqual((made['status'], made['detail']['wrong']), ('fail', SECOND), made)

    def test_a_reduced_precision_that_oracle_saw_is_a_warning_and_nothing_else_is(self):
        """Faults in buckets fail in addition to it, however small their errors are."""
        def healthy(side, replica, name, gradients, mean):
            return mean[name]

        def louder(side, replica, name, gradients, mean):
            return mean[name] * np.float32(1.02)

        def bytewise(side, replica, name, gradients, mean):
            unit = max(float(np.abs(mean[name]).max()) / 127, 1e-30)
            return np.round(mean[name] / unit) * unit

        def uneven(side, replica, name, gradients, mean):
            return (1.02 * gradients[0][name] + .98 * gradients[1][name]) / 2

        Adapter.numbers = rounding.Reduced('bf16')
        self.addCleanup(setattr, Adapter, 'numbers', rounding.EXACT)
        made = self.judged(healthy, 'bf16')
        self.assertEqual((made['status'], made['value'] > buckets.LIMIT), ('warn', True), made)
        self.assertEqual(self.judged(healthy)['status'], 'fail')
        for spoil in [louder, bytewise, uneven] + [each for fault, each in FAULTS.items() if fault != 'bucket-rounded']:
            self.assertEqual(self.judged(spoil, 'bf16')['status'], 'fail', spoil)

    def test_where_nothing_is_rounded_a_spoiled_bucket_is_no_precision(self):
        for fault, spoil in FAULTS.items():
            self.assertEqual(self.judged(spoil, 'bf16')['status'], 'fail', fault)
        self.assertEqual(self.judged(lambda side, replica, name, gradients, mean: mean[name] * np.float32('nan'), 'bf16')['status'], 'fail')

    def test_a_network_that_the_framework_cannot_build_does_not_apply(self):
        Adapter.without = {'narrow': 'it has no dense layers'}
        self.addCleanup(delattr, Adapter, 'without')
        made = self.judged(None)
        self.assertEqual((made['status'], made['message']), ('skip', 'does not apply: it has no dense layers'))

    def test_the_network_is_larger_than_a_bucket_of_pytorch_s(self):
        self.assertGreater(nets.WIDE.bytes, 25 << 20)
        self.assertGreater(nets.WIDE.bytes - 4 * 2048 * 2048, 16 << 20)       # even without its largest parameter

    def test_digests_tell_copies_apart(self):
        weights = _narrow().initial(1)
        other = dict(weights, fc1_b=np.nextafter(weights['fc1_b'], np.float32(1)))
        self.assertNotEqual(fingerprint(weights), fingerprint(other))


if __name__ == '__main__':
    unittest.main()

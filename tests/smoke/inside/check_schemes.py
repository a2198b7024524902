"""Schemes other than averaging gradients, with ranks as threads: their promises, and what checks say of broken ones."""
from __future__ import absolute_import, division, print_function

import threading
import time
import unittest

import boot  # noqa: F401
import numpy as np
from check_group import together
from envbuild_smoke import sync
from envbuild_smoke.adapters import numpy_
from envbuild_smoke.clock import now
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import schemes as judging
from envbuild_smoke.networks import nets, refnet
from envbuild_smoke.rank import parameters, schemes
from envbuild_smoke.rank.context import Context

BATCH, STEPS = 16, 6
IMAGES, LABELS = synth.digits(STEPS * BATCH, 3)
START = nets.REFERENCE.initial(7)
WANT = refnet.train(nets.REFERENCE, START, IMAGES, LABELS, STEPS, BATCH, .05, .9)[0]


def until_ahead(servers, by):
    """Wait until rank 0 has sent `by` steps more than rank 1, or all of its steps. This does not depend on the speed of the
    machine.
    """
    deadline = now() + 60
    while not servers or servers[0].clocks[0] - servers[0].clocks[1] < by and servers[0].clocks[0] < STEPS:
        assert now() < deadline, servers and servers[0].clocks
        time.sleep(.001)


def train(name, world=2, behind=0, gate=None):
    """Train under a scheme; rank 1 stays `behind` by so many steps.

    Returns (the weights of each rank after each step and at the end, facts of rank 0).
    """
    servers = []

    def work(group):
        ctx = Context(group.rank, world, 'cpu', [group.rank], world, 1, {}, 7, group)
        adapter = numpy_.Adapter()
        adapter.setup(ctx)
        under = schemes.Schemed(adapter, ctx, name)
        handle = under.make(nets.REFERENCE, START, .05, .9, [0], 'mean')
        if gate and group.rank == 0:
            handle._server.may_go = gate
        if behind and group.rank == 0:
            servers.append(handle._server)
        seen = []
        for step in range(STEPS):
            part = slice(step * BATCH, (step + 1) * BATCH)
            if behind and group.rank == 1:
                until_ahead(servers, behind)
            under.step(handle, under.put(handle, IMAGES[part], LABELS[part]), .05)
            seen.append(dict((key, np.array(value)) for key, value in under.weights(handle, 0).items()))
        group.barrier()
        under.predict(handle, IMAGES[:4])
        seen.append(dict((key, np.array(value)) for key, value in under.weights(handle, 0).items()))
        under.end()
        return seen, under.facts()

    out = together(world, work)
    return [each[0] for each in out], out[0][1]


def same(one, other):
    return all((one[name] == other[name]).all() for name in one)


class Equivalent(unittest.TestCase):
    """With equal starting weights, averaging the parameters after each step is the same as averaging gradients."""

    def test_the_reference_network_judges_them(self):
        for name in ('parameters:1', 'async:0'):
            for world in (2, 4):
                ranks, facts = train(name, world)
                for seen in ranks:
                    self.assertLess(max(refnet.errors(seen[STEPS - 1], WANT, START)[1].values()), 1e-4, name)
                    self.assertTrue(all(same(mine, first) for mine, first in zip(seen, ranks[0])), name)
                self.assertEqual(facts['distance'] < 1e-5, name == 'async:0')     # measured before the last exchange

    def test_the_others_train_something_else_which_is_why_they_are_not_judged_so(self):
        ranks, facts = train('parameters:4')
        self.assertGreater(max(refnet.errors(ranks[0][STEPS - 1], WANT, START)[1].values()), 1e-2)
        self.assertTrue(same(ranks[0][3], ranks[1][3]))
        self.assertFalse(same(ranks[0][4], ranks[1][4]))
        self.assertTrue(same(ranks[0][STEPS], ranks[1][STEPS]))         # predict() has averaged them
        self.assertGreater(facts['distance'], 1e-3)
        self.assertNotIn('parameters:4', sync.EQUIVALENT)


class Bound(unittest.TestCase):
    def test_nobody_is_further_ahead_than_allowed(self):
        for bound in (0, 1, 3):
            ranks, facts = train('async:%d' % bound, behind=bound + 1)       # rank 0 waits in the last one
            self.assertEqual(facts['staleness']['largest'], bound)
            self.assertEqual(judging.bounded(2, facts['staleness'])['status'], 'pass')
            self.assertTrue(same(ranks[0][STEPS], ranks[1][STEPS]))

    def test_a_gate_that_is_always_open_is_caught(self):
        """The planted fault does not hold back a worker that is too far ahead."""
        _, facts = train('async:1', behind=2, gate=lambda worker: True)
        judged = judging.bounded(2, facts['staleness'])
        self.assertEqual(judged['status'], 'fail', judged)
        self.assertGreater(judged['value'], judged['limit'])

    def test_all_that_may_go_on_get_the_same_bits(self):
        server, out = parameters.Server(np.zeros(1), 2, 0), [None, None]

        def worker(number):
            out[number] = server.push(number, np.array([number + 1.0], 'float32'))

        threads = [threading.Thread(target=worker, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        self.assertEqual([each.tolist() for each in out], [[1.5], [1.5]])
        self.assertEqual(server.ledger()['leads'], {'0': 2})


class Names(unittest.TestCase):
    def test_lists(self):
        self.assertEqual(sync.parse('gradients'), ['gradients'])
        self.assertEqual(sync.parse('parameters:04,async:0,parameters:4'), ['parameters:4', 'async:0'])
        for wrong in ('', 'parameters', 'parameters:0', 'async:-1', 'gradients:2', 'elastic:3', 'parameters:4,'):
            with self.assertRaises(ValueError):
                sync.parse(wrong)

    def test_what_cannot_be_done_is_not_applicable_with_the_reason(self):
        class Old(object):
            pass

        class New(object):
            def assign(self):
                pass

        class Sided(object):
            sides = (New,)

        names = ['gradients', 'parameters:2', 'async:1']
        self.assertEqual(sync.chosen(names, Sided, 'process', 2)[1], [])
        self.assertEqual(sync.chosen(names, New, 'process', 2), (['parameters:2', 'async:1'], []))
        self.assertEqual(sync.chosen(names, New, 'process', 1), ([], []))
        chosen, left_out = sync.chosen(names, New, 'single', 2)
        self.assertEqual((chosen, left_out[0]['status']), (['parameters:2'], 'skip'))
        self.assertIn('step together', left_out[0]['message'])
        chosen, left_out = sync.chosen(names, Old, 'process', 2)
        self.assertEqual((chosen, len(left_out)), ([], 2))
        self.assertIn('cannot set weights', left_out[0]['message'])


class Verdict(unittest.TestCase):
    """A scheme whose checks pass also passes, and the message gives its cost. The worst check decides."""

    def results(self, right, largest):
        losses = [2.3] * 12 + [.1] * 12
        weights = [dict((name, '00') for name in nets.REFERENCE.names)]
        train_of = {'losses': losses, 'seconds': 2.0, 'steps': 24, 'right': right, 'asked': 500, 'digests': weights,
                    'outputs_apart': None}
        facts = {'distance': .01, 'staleness': {'bound': 2, 'largest': largest, 'leads': {'%d' % largest: 3}}}
        own = {'train': train_of, 'facts': facts}
        return [{'phases': {'train': dict(train_of, right=490), 'schemes': {'async:2': own}}} for _ in range(2)]

    def judge(self, right, largest):
        plan = {'train': {'batch': 64, 'lr': .05, 'epochs': 1}}
        limit = {'accuracy': .9, 'loss': .25, 'outputs': 2e-5, 'note': ''}
        return judging.judge('async:2', 2, plan, self.results(right, largest), None, limit, 1536)

    def test_price(self):
        entry, judged = self.judge(480, 2)
        self.assertEqual(judged['status'], 'pass', judged)
        self.assertAlmostEqual(entry['accuracy_difference'], -.02)
        for words in ('async:2', '96.0 %', '-2.0 points', 'at most 2 steps ahead of the slowest process'):
            self.assertIn(words, judged['message'])

    def test_too_far_ahead_or_too_little_learned_fails(self):
        self.assertEqual(self.judge(480, 3)[1]['status'], 'fail')
        self.assertIn('3 steps ahead of the slowest process, 2 allowed', self.judge(480, 3)[1]['message'])
        self.assertEqual(self.judge(300, 2)[1]['status'], 'fail')
        self.assertIn('ACC', self.judge(300, 2)[1]['message'])


if __name__ == '__main__':
    unittest.main()

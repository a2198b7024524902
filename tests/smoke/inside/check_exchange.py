"""Collectives: every operation is right for every type, and one wrong element of one rank is found.

The bandwidth is computed as its name promises.
"""
from __future__ import absolute_import, division, print_function

import os
import unittest

import boot  # noqa: F401
import numpy as np
from check_group import together
from envbuild_smoke import adapters
from envbuild_smoke.judging import checks
from envbuild_smoke.networks import rounding
from envbuild_smoke.rank import exchange
from envbuild_smoke.rank.context import Context
from envbuild_smoke.rank.group import Group
from envbuild_smoke.reporting import figures

FAULTY = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'faulty.py')
TYPES = ('float32', 'float64', 'int64', 'float16')


class _Session(object):
    """The part of a session that the phase uses."""

    def __init__(self, group, options, adapter=FAULTY):
        self.plan = {'seed': 7, 'coll': {'bytes': [4, 1000], 'all_types': True}}
        self.ctx = Context(group.rank, group.world, 'cpu', [group.rank], group.world, 1, options, 7, group)
        self.adapter, self.heart = adapters.load(adapter)(), self
        self.adapter.setup(self.ctx)

    def beat(self):
        pass


def measure(world, **options):
    """The measurements of all ranks."""
    return [{'phases': {'coll': each}} for each in together(world, lambda group: exchange.measure(_Session(group, options)))]


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        adapters.load(FAULTY)       # load it here once, not in several threads at the same time

    def test_right_ones(self):
        for world in (2, 3):
            results = measure(world)
            self.assertEqual(checks.collectives(world, results)[0]['status'], 'pass')
            table = figures.collectives(world, results, None)
            self.assertEqual(set((entry['op'], entry['type']) for entry in table),
                             set((op, dtype) for op in exchange.OPERATIONS for dtype in TYPES))
            self.assertEqual(sum(entry['wrong'] for entry in table), 0)

    def test_one_wrong_element_is_found_in_each_operation_and_type(self):
        for op in exchange.OPERATIONS:
            for dtype in TYPES:
                results = measure(2, fault='collective-' + op, type=dtype)
                judged = checks.collectives(2, results)[0]
                self.assertEqual(judged['status'], 'fail', (op, dtype))
                self.assertIn('wrong result of %s with 1 %s numbers on ranks [1]' % (op, dtype), judged['message'])
                wrong = [entry for entry in figures.collectives(2, results, None) if entry['wrong']]
                self.assertEqual(set((entry['op'], entry['type']) for entry in wrong), {(op, dtype)})
                self.assertEqual([entry['wrong'] for entry in wrong], [1, 1])

    def test_numbers_that_were_rounded_to_halves_are_found(self):
        def measured(group):
            session = _Session(group, {})
            right = session.adapter.collective
            session.adapter.collective = lambda op, array, root: right(op, rounding.cut(array, 10).astype(array.dtype), root)
            return {'phases': {'coll': exchange.measure(session)}}

        judged = checks.collectives(2, together(2, measured))[0]
        self.assertEqual(judged['status'], 'fail')
        self.assertIn('float32 numbers', judged['message'])

    def test_sums_are_exact_even_in_halves(self):
        for world in (2, 8, 64):
            for dtype in TYPES:
                total = sum(exchange._pattern(rank, 5000, world, dtype).astype('float64') for rank in range(world))
                halves = exchange._pattern(0, 5000, world, dtype)
                for rank in range(1, world):
                    halves = halves + exchange._pattern(rank, 5000, world, dtype)
                self.assertTrue((halves == total).all(), (world, dtype))
                self.assertGreater(len(np.unique(halves)), 1)


class WithoutOwn(unittest.TestCase):
    def test_those_of_the_ring_are_checked_in_all_its_types(self):
        results = together(2, lambda group: {'phases': {'coll': exchange.measure(_Session(group, {}, 'numpy'))}})
        self.assertEqual(checks.collectives(2, results)[0]['status'], 'pass')
        tried = [(answer['op'], answer['type']) for answer in results[0]['phases']['coll']['answers']]
        self.assertEqual(set(tried), set((op, dtype) for op in exchange.OPERATIONS for dtype in Group.TYPES))


class Bandwidth(unittest.TestCase):
    def test_as_nccl_tests_defines_it(self):
        """https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""
        entry = {'type': 'float32', 'elements': 1, 'bytes': 10 ** 9, 'time_s': .5, 'wrong': 0, 'first_wrong': None}
        results = [{'phases': {'coll': {'table': [dict(entry, op=op) for op in exchange.OPERATIONS]}}}] * 4
        made = figures.collectives(4, results, {'name': 'NVLink x4', 'GBps': 100.0})
        self.assertEqual([each['algbw_GBps'] for each in made], [2, 2, 2])
        self.assertEqual([each['busbw_GBps'] for each in made], [3, 2, 1.5])
        self.assertEqual(made[0]['nominal_GBps'], 100)


if __name__ == '__main__':
    unittest.main()

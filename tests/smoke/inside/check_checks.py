from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke import explain, plan
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import checks, simulate
from envbuild_smoke.networks import nets, refnet
from envbuild_smoke.reporting import report
from machines import CPU_IMAGE, found, options, statuses


class Placement(unittest.TestCase):
    def test_work_on_the_wrong_device_fails(self):
        cuda, cpu = plan.Device('cuda', 1, ''), plan.Device('cpu', 2, '')
        on_cpu, on_gpu = {'parameters': ['cpu'], 'compute': ['cpu']}, {'parameters': ['cuda:0'], 'compute': ['/gpu:0']}
        self.assertEqual(statuses(checks.placement(1, cuda, [on_gpu])), [('DEVICE', 'pass')])
        self.assertEqual(statuses(checks.placement(1, cuda, [on_gpu, on_cpu])), [('DEVICE', 'fail')])
        self.assertEqual(statuses(checks.placement(1, cpu, [on_cpu])), [('DEVICE', 'pass')])


class Oracle(unittest.TestCase):
    def setUp(self):
        pictures, labels = synth.digits(4 * 16, 105)
        self.case = simulate.Case(nets.REFERENCE, nets.REFERENCE.initial(7), pictures, labels, 4, 16, 1, .05, .9)
        self.want, _ = refnet.train(nets.REFERENCE, self.case.start, pictures, labels, 4, 16, .05, .9)

    def judge(self, relative):
        """The answer of the check for weights whose first layer has an error of this size."""
        got = dict(self.want)
        got['conv1_w'] = self.want['conv1_w'] + relative * (self.want['conv1_w'] - self.case.start['conv1_w'])
        return checks.oracle(1, self.case, self.want, [(0, got)])[0]

    def test_limits(self):
        for relative, want in ((0, 'pass'), (.9 * checks.ORACLE_PASS, 'pass'), (1.1 * checks.ORACLE_PASS, 'fail'), (.15, 'fail')):
            made = self.judge(relative)
            self.assertEqual(made['status'], want, relative)
            self.assertAlmostEqual(made['value'], relative, delta=1e-9)
        self.assertEqual(made['detail']['worst_parameter'], 'conv1_w')

    def test_not_a_number_fails(self):
        got = dict(self.want, fc2_b=self.want['fc2_b'] * np.nan)
        made = checks.oracle(1, self.case, self.want, [(0, got)])[0]
        self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', 'not-finite'))


class Conclusion(unittest.TestCase):
    def conclude(self, *made, **changes):
        facts = dict(found(), host=dict(found()['host']))
        answer = report.new(dict(options(**changes), seed=1), CPU_IMAGE, facts, [], 0)
        answer['checks'] = [checks.check(key, None, status, 'because') for key, status in made]
        report.conclude(answer, options(**changes), 1.0)
        return answer['status'], answer['exit_code']

    def test_the_worst_check_decides(self):
        self.assertEqual(self.conclude(('ACC', 'pass'), ('COLL', 'skip')), ('pass', 0))
        self.assertEqual(self.conclude(('ACC', 'pass'), ('SHM', 'warn')), ('pass', 0))
        self.assertEqual(self.conclude(('ACC', 'pass'), ('SHM', 'warn'), strict=True), ('fail', 5))
        self.assertEqual(self.conclude(('ACC', 'pass'), ('DEVICES', 'inconclusive')), ('inconclusive', 3))
        self.assertEqual(self.conclude(('ACC', 'fail'), ('DEVICES', 'inconclusive')), ('fail', 1))
        self.assertEqual(self.conclude(('RUN', 'pass'), ('HANG', 'fail')), ('fail', 4))

    def test_nothing_checked_is_not_a_pass(self):
        self.assertEqual(self.conclude(), ('inconclusive', 3))
        self.assertEqual(self.conclude(('COLL', 'skip')), ('inconclusive', 3))


class Explanations(unittest.TestCase):
    def test_all_have_a_title_and_a_text(self):
        for key in explain.TEXTS:
            self.assertTrue(explain.text(key).startswith(key + ': '))


if __name__ == '__main__':
    unittest.main()

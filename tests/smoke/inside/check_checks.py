from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke import explain, plan, verdict
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

    def judge(self, relative, name='conv1_w', kind='cpu'):
        """The answer of the check for weights with an error of this size in one parameter."""
        got = dict(self.want)
        got[name] = self.want[name] + relative * (self.want[name] - self.case.start[name])
        return checks.oracle(1, self.case, self.want, [(0, got)], kind=kind)[0]

    def test_limits(self):
        for relative, want in ((0, 'pass'), (.9 * checks.ORACLE_PASS, 'pass'), (1.1 * checks.ORACLE_PASS, 'fail'), (.15, 'fail')):
            made = self.judge(relative)
            self.assertEqual(made['status'], want, relative)
            self.assertAlmostEqual(made['value'], relative, delta=1e-9)
        self.assertEqual(made['detail']['worst_parameter'], 'conv1_w')

    def test_only_kernels_have_a_wider_limit_on_gpus(self):
        """cuDNN's Winograd kernels gave errors up to 1.2e-4 on an H100: docs/explanation/reference-check.md."""
        for name, relative, want in (('conv1_w', 1.2e-4, 'pass'), ('conv2_w', .9 * checks.KERNEL_ON_GPU, 'pass'),
                                     ('conv1_w', 1.1 * checks.KERNEL_ON_GPU, 'fail'), ('conv1_b', 1.1 * checks.ORACLE_PASS, 'fail'),
                                     ('fc1_w', 1.1 * checks.ORACLE_PASS, 'fail')):
            made = self.judge(relative, name, 'cuda')
            self.assertEqual((made['status'], made['detail']['worst_parameter']), (want, name), relative)
            self.assertEqual(made['limit'], checks.KERNEL_ON_GPU if name in ('conv1_w', 'conv2_w') else checks.ORACLE_PASS)

    def test_the_largest_error_is_told(self):
        got = dict((name, a + size * (a - self.case.start[name])) for name, a, size in (
            ('conv1_w', self.want['conv1_w'], 3e-4), ('fc2_w', self.want['fc2_w'], 3.5e-5)))
        made = checks.oracle(1, self.case, self.want, [(0, dict(self.want, **got))], kind='cuda')[0]
        self.assertEqual((made['status'], made['message']), ('pass', 'weights agree with the reference to 3.0e-04'))

    def test_the_error_that_is_too_large_is_told_though_a_kernel_has_a_larger_one(self):
        got = dict((name, a + 1e-4 * (a - self.case.start[name])) for name, a in self.want.items() if name in ('conv1_w', 'fc2_w'))
        made = checks.oracle(1, self.case, self.want, [(0, dict(self.want, **got))], kind='cuda')[0]
        self.assertEqual((made['status'], made['detail']['worst_parameter']), ('fail', 'fc2_w'))

    def test_not_a_number_fails(self):
        got = dict(self.want, fc2_b=self.want['fc2_b'] * np.nan)
        made = checks.oracle(1, self.case, self.want, [(0, got)])[0]
        self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', 'not-finite'))


class Conclusion(unittest.TestCase):
    def conclude(self, *made, **changes):
        facts = dict(found(), host=dict(found()['host']))
        answer = report.new(dict(options(**changes), seed=1), CPU_IMAGE, facts, [], 0)
        answer['checks'] = [checks.check(key, None, status, 'because') for key, status in made]
        verdict.conclude(answer, options(**changes), 1.0)
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

"""ORACLE for each step alone: faults that come back every few steps, and healthy steps."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import later_steps
from envbuild_smoke.judging.simulate import Case
from envbuild_smoke.networks import nets, refnet
from envbuild_smoke.rank.match import rate_of
from envbuild_smoke.check_record import check

STEPS, BATCH, LR, MOMENTUM = 9, 8, .05, .9


FACTORS = {'a kernel': {'conv1_w': 1.0003}, 'a dense layer': {'fc1_w': 1.0003}, 'both': {'conv2_w': 1.6, 'fc2_b': 1.1}}


class LaterSteps(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        images, labels = synth.digits(4 * BATCH, 5)
        net = nets.of('reference')
        self.case = Case(net, net.initial(3), images, labels, 4, BATCH, 1, LR, MOMENTUM)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def judge(self, fault='', at=(6,), reduced=False, kind='cpu', inside=False):
        """Train in single precision with a fault in some steps, and judge the weights after every step.

        `inside` says whether gradients are multiplied by the learning rate before they are added to the momentum.
        """
        case = self.case
        p = dict((name, case.start[name].astype('float32')) for name in case.net.names)
        v, kept = dict((name, np.zeros_like(p[name])) for name in p), []
        for step in range(STEPS):
            part = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
            now, labels = fault if step + 1 in at else '', np.array(case.labels[part])
            if now == 'label':
                labels[0] = (labels[0] + 1) % 10
            gradient = refnet.loss_and_gradient(case.net, p, refnet.scaled(case.images[part], 'float32'), labels)[1]
            if now == 'momentum':
                v = dict((name, np.zeros_like(p[name])) for name in p)
            for name, factor in FACTORS.get(now, {}).items():
                gradient[name] = gradient[name] * np.float32(factor)
            if now == 'not finite':
                gradient['fc2_b'] = gradient['fc2_b'] * np.float32('nan')
            rate = np.float32(LR if now == 'first rate' else rate_of(step, case.steps, LR) * (1.1 if now == 'rate' else 1))
            if inside:
                gradient, rate = dict((name, rate * array) for name, array in gradient.items()), np.float32(1)
            if now != 'skip':
                refnet.update(p, v, gradient, rate, np.float32(MOMENTUM))
            kept.append(dict((name, array.copy()) for name, array in p.items()))
        path = os.path.join(self.folder, 'every-step.npz')
        np.savez(path, **dict((name, np.stack([each[name] for each in kept])) for name in p))
        passed = check('ORACLE', 1, 'pass', 'weights agree', value=1e-6, limit=4e-5)
        return later_steps.judge(passed, later_steps.measure(case, path), case.steps, later_steps.limits_of(case.net, kind, reduced))

    def test_healthy(self):
        made = self.judge()
        self.assertEqual((made['status'], len(made['detail']['steps'])), ('pass', STEPS))
        self.assertLess(max(made['detail']['steps']), later_steps.LIMIT / 3)
        self.assertIn('weights agree; each of 9 single steps has an error of at most ', made['message'])

    def test_the_learning_rate_may_be_a_part_of_the_momentum(self):
        made = self.judge(inside=True)
        self.assertEqual(made['status'], 'pass')
        self.assertLess(max(made['detail']['steps']), later_steps.LIMIT / 3)

    def test_the_learning_rate_falls_after_the_first_steps(self):
        rates = [rate_of(step, 4, LR) for step in range(STEPS)]
        self.assertEqual(rates[:4], [LR] * 4)
        self.assertTrue(all(late < early for early, late in zip(rates[3:], rates[4:])), rates)
        for inside in (False, True):
            for fault, words in (('momentum', 'are wrong: 5; they have no momentum'), ('first rate', 'are wrong: 5; they ')):
                made = self.judge(fault, at=range(5, STEPS + 1), inside=inside)
                self.assertEqual((made['status'], words in made['message']), ('fail', True), made['message'])
                self.assertIn('After step 4, the learning rate falls', made['next_step'])

    def test_each_fault_is_found_at_its_step(self):
        for fault, words in (('momentum', '6; they have no momentum'), ('skip', '6; they do not change the weights'),
                             ('rate', '6; they are 1.1 times as large as they should be'), ('label', '6; they change parameter '),
                             ('not finite', '6; they give numbers that are not finite')):
            made = self.judge(fault)
            self.assertEqual((made['id'], made['status'], made['detail']['hypothesis']['id']), ('ORACLE', 'fail', 'some-steps'), fault)
            self.assertIn('right, but of 9 single steps, these are wrong: ' + words, made['message'])
            self.assertGreater(made['value'], made['limit'])

    def test_only_kernels_have_a_wider_limit_on_gpus(self):
        for fault, kind, want in (('a kernel', 'cpu', 'fail'), ('a kernel', 'cuda', 'pass'), ('a dense layer', 'cuda', 'fail')):
            self.assertEqual(self.judge(fault, kind=kind)['status'], want, (fault, kind))

    def test_on_gpus_a_kernel_is_judged_beside_a_smaller_error(self):
        made = self.judge('both', kind='cuda', reduced=True)
        self.assertEqual((made['status'], made['limit']), ('fail', later_steps.REDUCED))
        self.assertIn('change parameter conv2_w wrongly', made['message'])

    def test_all_steps_at_fault_are_listed(self):
        self.assertIn('of 9 single steps, these are wrong: 5, 8; they have no momentum', self.judge('momentum', at=(5, 8))['message'])

    def test_where_a_reduced_precision_is_in_use_only_large_faults_fail(self):
        self.assertEqual(self.judge('momentum', reduced=True)['status'], 'fail')
        self.assertEqual(self.judge('skip', reduced=True)['status'], 'fail')

    def test_the_training_at_the_end_of_the_run_counts_as_well(self):
        healthy, faulty = self.judge(), self.judge('momentum')
        both = later_steps.joined(healthy, healthy)
        self.assertEqual((both['status'], len(both['detail']['steps'])), ('pass', 2 * STEPS))
        self.assertIn('; the same holds at the end of the run', both['message'])
        made = later_steps.joined(healthy, faulty)
        self.assertEqual((made['status'], made['detail']['hypothesis']['id'], made['value']), ('fail', 'some-steps', faulty['value']))
        self.assertTrue(made['message'].startswith('right at the start of the run; at its end: the weights after'), made['message'])

    def test_a_reduced_precision_that_is_in_use_at_the_end_only_is_a_warning(self):
        warned = dict(self.judge(), status='warn')
        for first, again, status in (('pass', warned, 'warn'), ('warn', self.judge(), 'warn')):
            self.assertEqual(later_steps.joined(dict(self.judge(), status=first), again)['status'], status)


if __name__ == '__main__':
    unittest.main()

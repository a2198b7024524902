"""ORACLE for what the framework reports: losses and outputs that are wrong although the weights are right."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.check_record import check
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import reported
from envbuild_smoke.judging.simulate import Case
from envbuild_smoke.networks import nets, refnet

STEPS, BATCH, LR, MOMENTUM, RANKS, ASKED = 9, 8, .05, .9, 2, 6


class Reported(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Train in single precision, as a framework does; keep what it may report."""
        cls.folder = tempfile.mkdtemp()
        images, labels = synth.digits(4 * BATCH, 5)
        net = nets.of('reference')
        cls.case = case = Case(net, net.initial(3), images, labels, 4, BATCH, RANKS, LR, MOMENTUM)
        p = dict((name, case.start[name].astype('float32')) for name in net.names)
        v, kept, each = dict((name, np.zeros_like(p[name])) for name in p), [], []
        for step in range(STEPS):
            part = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
            x = refnet.scaled(images[part], 'float32')
            each.append(refnet.losses(refnet.logits(net, p, x), labels[part]))
            refnet.update(p, v, refnet.loss_and_gradient(net, p, x, labels[part])[1], np.float32(LR), np.float32(MOMENTUM))
            kept.append(dict((name, array.copy()) for name, array in p.items()))
        each = np.array(each)
        cls.whole = each.mean(axis=1)
        cls.parts = [each[:, :BATCH // 2].mean(axis=1), each[:, BATCH // 2:].mean(axis=1)]
        cls.after = np.array([refnet.losses(refnet.logits(net, kept[step], refnet.scaled(images[part], 'float32')), labels[part])
                              for step in range(STEPS) for part in [slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)]])
        cls.logits = refnet.logits(net, p, refnet.scaled(images[:ASKED], 'float32'))
        path = os.path.join(cls.folder, 'every-step.npz')
        np.savez(path, **dict((name, np.stack([each[name] for each in kept])) for name in p))
        cls.expected = reported.Expected(case, path)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def judge(self, losses=None, answers=None, status='pass', kind='cpu', reduced=False):
        made = check('ORACLE', RANKS, status, 'weights agree', value=1e-6, limit=4e-5)
        return reported.judge(made, self.expected, self.parts if losses is None else losses,
                              [self.logits] * RANKS if answers is None else answers, reported.limit_of(kind, reduced))

    def test_losses_of_the_own_part_or_of_the_whole_batch_are_right(self):
        for losses in (self.parts, [self.whole] * RANKS):
            made = self.judge(losses)
            self.assertEqual(made['status'], 'pass')
            self.assertLess(max(made['detail']['losses_apart'], made['detail']['outputs_apart']), reported.LIMITS['cpu'] / 10)
            self.assertIn('weights agree; reported losses and outputs agree to ', made['message'])

    def test_wrong_losses_are_named(self):
        first, second = self.parts
        before = np.concatenate([second[:1], second[:-1]])
        mean = np.cumsum(second) / np.arange(1, STEPS + 1)
        for wrong, words in ((1.7 * second, 'are 1.7 times as large as they should be'), (before, 'are those of the step before'),
                             (self.after[:, BATCH // 2:].mean(axis=1), 'are computed after the update, not before it'),
                             (mean, 'are means over all steps so far'), (first, 'are wrong by up to '),
                             (second + np.where(np.arange(STEPS) == 5, .1, 0), 'most in step 6'),
                             ([None] + list(second[1:]), 'are not all finite numbers')):
            made = self.judge([first, wrong])
            self.assertEqual((made['id'], made['status'], made['detail']['hypothesis']['id']), ('ORACLE', 'fail', 'reported-loss'), words)
            self.assertIn('the weights are right, but the losses that rank 1 reports ', made['message'])
            self.assertIn(words, made['message'])
            self.assertGreater(made['value'], made['limit'])

    def test_wrong_outputs_fail(self):
        noisy = self.logits * (1 + .05 * np.random.RandomState(1).standard_normal(self.logits.shape))
        for wrong in (noisy, self.logits * 1.001, self.logits * np.nan, self.logits[::-1]):
            made = self.judge(answers=[self.logits, wrong])
            self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', 'outputs'))
            self.assertIn('the outputs that rank 1 computes from them without gradients are wrong by ', made['message'])

    def test_a_reduced_precision_has_a_wider_limit(self):
        near = [self.logits * 1.01] * RANKS
        for status in ('warn', 'pass'):
            self.assertEqual(self.judge(answers=near, status=status, reduced=True)['status'], status)
            self.assertEqual(self.judge(answers=[self.logits * 1.2] * RANKS, status=status, reduced=True)['status'], 'fail')
        self.assertEqual(self.judge(answers=[self.logits * 1.0003] * RANKS, kind='cuda')['status'], 'pass')
        self.assertEqual(self.judge([1.0003 * part for part in self.parts])['status'], 'fail')


if __name__ == '__main__':
    unittest.main()

"""Compare a run with an earlier one: which differences count as worse, on which machines, and which are not compared."""
from __future__ import absolute_import, division, print_function

import copy
import json
import os
import tempfile
import unittest

import boot  # noqa: F401
from envbuild_smoke.judging import baseline
from envbuild_smoke.reporting import diff, report, stored


def run(n=2, rate=1000.0, spread=.01, speedup=1.8, **changes):
    interval = {'lo': rate * (1 - spread), 'hi': rate * (1 + spread), 'level': .96}
    gain = {'median': speedup, 'lo': speedup * (1 - spread), 'hi': speedup * (1 + spread)}
    return dict({'n': n, 'workload': 'cifar', 'net': 'resnet20', 'scaling': 'weak', 'precision': 'fp32', 'sync': 'mean',
                 'batch_per_device': 64, 'images_per_s': {'solo': rate / 2, 'dp': rate},
                 'images_per_s_interval': {'solo': interval, 'dp': interval},
                 'speedup': gain if n > 1 else None}, **changes)


def check(key, status='pass', n=2, **detail):
    return {'id': key, 'n': n, 'status': status, 'message': 'because', 'detail': detail}


def made(runs=None, checks=None, accuracy=.985, kind='cuda', gpu='A', **changes):
    answer = report.empty()
    answer.update(status='pass', mode={'device': kind}, devices=[{'name': gpu}] if kind == 'cuda' else [],
                  host={'cpu_model': 'C', 'cores_usable': 2}, runs=[run()] if runs is None else runs,
                  checks=[check('ORACLE'), check('SHM', n=None)] if checks is None else checks,
                  training=[dict(n=2, workload='cifar', net='resnet20', epochs=2, images=8192, accuracy=accuracy)])
    return dict(answer, **changes)


def judged(old, new, tolerance=None):
    return dict((each['n'], each['status']) for each in baseline.checks(old, new, tolerance))


class Words(unittest.TestCase):
    def test_rule(self):
        for new, want in (((1.0, .95, 1.05), diff.NOISE), ((.5, .4, .99), diff.NOISE), ((.95, .94, .96), 'within 10 %'),
                          ((.85, .84, .86), diff.WORSE), ((1.2, 1.1, 1.3), diff.BETTER), ((.5, None, None), diff.OPEN)):
            self.assertEqual(diff.word((1.0, .98, 1.02), new, .1), want, new)


class Speed(unittest.TestCase):
    def test_a_regression_warns_and_fails_where_a_tolerance_was_given(self):
        slow = made([run(rate=800)])
        self.assertEqual(judged(made(), slow), {None: 'pass', 2: 'warn'})
        self.assertEqual(judged(made(), slow, .1), {None: 'pass', 2: 'fail'})
        self.assertEqual(judged(made(), slow, .3), {None: 'pass', 2: 'pass'})
        self.assertEqual(judged(made(), made([run(speedup=1.4)]), .1), {None: 'pass', 2: 'fail'})
        self.assertEqual(judged(slow, made(), .1), {None: 'pass', 2: 'pass'})

    def test_within_the_intervals_nothing_is_worse_however_small_the_tolerance(self):
        wide = made([run(rate=800, spread=.3, speedup=1.7)])
        self.assertEqual(judged(made(), wide, 0.0), {None: 'pass', 2: 'pass'})

    def test_cpu_is_reported_and_not_judged(self):
        old, slow = made(kind='cpu'), made([run(rate=500)], kind='cpu')
        self.assertEqual(judged(old, slow), {None: 'pass', 2: 'skip'})
        self.assertEqual(judged(old, slow, .1), {None: 'pass', 2: 'inconclusive'})
        self.assertEqual(judged(old, made(kind='cpu'), .1), {None: 'pass', 2: 'skip'})

    def test_only_equal_things_are_compared_and_the_rest_is_said(self):
        for other, words in ((made(gpu='B'), 'devices differ'), (made(kind='cpu'), 'devices differ'),
                             (made([run(net='vgg19_bn')]), 'vgg19_bn'), (made([run(batch_per_device=32)]), 'batch 32'),
                             (made([run(scaling='strong')]), 'strong')):
            found = baseline.checks(made(), other, .1)
            self.assertEqual([each['status'] for each in found], ['pass', 'inconclusive'])
            self.assertIn(words, found[1]['message'])

    def test_reports_from_before_there_were_intervals(self):
        old = made([dict((key, value) for key, value in run().items() if key != 'images_per_s_interval')])
        found = diff.compare(old, made([run(rate=500)]))
        self.assertEqual([each['word'] for each in found['speed']], [diff.OPEN, diff.NOISE])


class Correctness(unittest.TestCase):
    def test_what_passed_must_pass(self):
        for status, want in (('pass', 'pass'), ('warn', 'fail'), ('fail', 'fail'), ('inconclusive', 'fail'), ('skip', 'pass')):
            new = made(checks=[check('ORACLE', status), check('SHM', 'warn', None)])
            self.assertEqual(judged(made(), new)[None], want, status)

    def test_a_check_belongs_to_its_scheme_and_workload(self):
        both = [check('SYNC', sync='parameters:4'), check('SYNC', sync='async:1')]
        worse = copy.deepcopy(both)
        worse[1]['status'] = 'fail'
        found = diff.compare(made(checks=both), made(checks=worse))
        self.assertEqual(len(found['lost']), 1)
        self.assertIn('async:1', found['lost'][0])

    def test_accuracy(self):
        self.assertEqual(judged(made(), made(accuracy=.97))[None], 'pass')
        self.assertEqual(judged(made(), made(accuracy=.96))[None], 'fail')


class Reading(unittest.TestCase):
    def write(self, value):
        handle, path = tempfile.mkstemp()
        os.write(handle, json.dumps(value).encode('ascii'))
        os.close(handle)
        self.addCleanup(os.remove, path)
        return path

    def test_the_part_of_a_framework(self):
        parts = [{'framework': 'a', 'report': made()}, {'framework': 'b', 'report': None}]
        several = self.write(dict(report.empty(), parts=parts))
        self.assertEqual(stored.read(several, 'a')['status'], 'pass')
        for framework in ('b', 'c', ''):
            with self.assertRaises(stored.Unreadable):
                stored.read(several, framework)
        whole = stored.read(several, whole=True)
        self.assertEqual([name for name, _, _ in baseline.pairs(whole, whole)], ['a'])

    def test_what_is_no_report(self):
        for path in (self.write([]), self.write({'schema': 'other'}), '/nowhere/report.json'):
            with self.assertRaises(stored.Unreadable):
                stored.read(path)


class Verb(unittest.TestCase):
    def test_exit_codes(self):
        wrong = made(checks=[check('ORACLE', 'fail')])
        for new, want in ((made(), 0), (made([run(rate=500)]), 1), (wrong, 1), (made(gpu='B'), 3)):
            self.assertEqual(baseline.exit_code(made(), new), want)
        for status, want in (('fail', 1), ('error', 1), ('inconclusive', 3), ('pass', 0)):
            self.assertEqual(baseline.exit_code(made(), dict(made(), status=status)), want)
        slow = made([run(rate=500)], kind='cpu')
        self.assertEqual(baseline.exit_code(made(kind='cpu'), slow), 0)
        lines = '\n'.join(diff.table(made(), slow, diff.compare(made(), made([run(rate=500)]))))
        self.assertIn('-50.0 %  B is worse', lines)


if __name__ == '__main__':
    unittest.main()

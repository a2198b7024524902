"""Reports that are read again: real ones are taken, and whatever is damaged is refused in a sentence or does no harm."""
from __future__ import absolute_import, division, print_function

import copy
import io
import json
import os
import random
import shutil
import tempfile
import unittest

import boot  # noqa: F401
from envbuild_smoke.judging import baseline
from envbuild_smoke.reporting import diff, stored

REAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'unit', 'data')
NAMES = ('pass', 'fail', 'no-gpu', 'allow-cpu', 'schemes')
WRONG = (None, True, 0, -1, 1.5, 5e-324, 10 ** 400, u'x', '', [], {}, [1], {'a': 1}, ['x'], [None], u'\ud800', 'pass')


def real(name):
    with io.open(os.path.join(REAL, 'report-%s.json' % name), encoding='utf-8') as stream:
        return json.load(stream)


def places(value, way=()):
    """The path to each value inside `value`, without the rounds and the logs: nothing that reads a report uses them."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        if key not in ('rounds', 'logs', 'variables', 'collectives', 'topology'):
            yield way + (key,)
            for deeper in places(inner, way + (key,)):
                yield deeper


def use(old, new):
    """Call everything that uses two reports."""
    baseline.exit_code(old, new)
    for _title, one, other in baseline.pairs(old, new):
        diff.table(one, other, diff.compare(one, other))
        baseline.checks(one, other, None)


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.path = os.path.join(folder, 'report.json')

    def read(self, value, **how):
        with io.open(self.path, 'wb') as stream:
            stream.write(value if isinstance(value, bytes) else json.dumps(value).encode('ascii'))
        return stored.read(self.path, **how)

    def refusal(self, value, **how):
        with self.assertRaises(stored.Unreadable) as caught:
            self.read(value, **how)
        return str(caught.exception).replace(self.path, 'FILE')

    def test_real_reports_are_taken(self):
        for name in NAMES:
            self.assertEqual(self.read(real(name)), real(name))

    def test_what_is_no_report(self):
        for value, words in ((b'', 'the report FILE is not JSON: '), (b'{"a"', 'the report FILE is not JSON: '),
                             (b'\xff', 'the report FILE is not JSON, because it is not in UTF-8'),
                             (b'[' * 10 ** 6, 'its values are nested too deeply'), (b'{"schema": NaN}', 'NaN is no number of JSON'),
                             ([], 'FILE is not a report'), (5, 'FILE is not a report'), ({'schema': 'other'}, 'FILE is not a report')):
            said = self.refusal(value)
            self.assertIn(words, said)
            self.assertIn('Name a file that envbuild-smoke run --json has written', said)
        with self.assertRaises(stored.Unreadable) as caught:
            stored.read('/nowhere/report.json')
        self.assertIn('/nowhere/report.json cannot be read: No such file', str(caught.exception))

    def test_the_first_damaged_field_is_named(self):
        for path, value, words in (
                (('status',), 5, 'status must be a text'), (('checks',), 'x', 'checks must be a list or null'),
                (('checks', 1), None, 'checks[1] must be an object'), (('checks', 0, 'n'), 'x', 'checks[0].n must be a whole number of at least 1 or null'),
                (('runs', 0, 'n'), True, 'runs[0].n must be a whole number'), (('runs', 0, 'images_per_s', 'dp'), 0, 'runs[0].images_per_s.dp must be a number above 0 or null'),
                (('runs', 0, 'net'), KeyError, 'runs[0].net is missing'), (('training', 0, 'accuracy'), None, 'training[0].accuracy must be a number')):
            report = real('pass')
            inner = report
            for key in path[:-1]:
                inner = inner[key]
            if value is KeyError:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
            self.assertIn('the report FILE is damaged: its field ' + words, self.refusal(report))
            whole = dict(real('pass'), parts=[{'framework': 'a', 'report': report}])
            self.assertIn('its field parts[0].report.' + words, self.refusal(whole, framework='a'))

    def test_damage_is_refused_or_does_no_harm(self):
        chance, taken = random.Random(7), 0
        for _ in range(400):
            good = real(chance.choice(NAMES))
            bad = copy.deepcopy(good)
            way = chance.choice(list(places(bad)))
            inner = bad
            for key in way[:-1]:
                inner = inner[key]
            if isinstance(inner, dict) and chance.random() < .4:
                del inner[way[-1]]
            else:
                inner[way[-1]] = chance.choice(WRONG)
            try:
                bad = self.read(bad, whole=True)
            except stored.Unreadable:
                continue
            taken += 1
            use(good, bad)
            use(bad, good)
        self.assertTrue(50 < taken < 350, taken)


if __name__ == '__main__':
    unittest.main()

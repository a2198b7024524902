"""The launch that shows the speed of a plain script."""
from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
from envbuild_smoke import plain
from envbuild_smoke.launching import launch
from envbuild_smoke.reporting import report

PLAN = {'threads': 1, 'processes': 1, 'places': [], 'interface': 'lo', 'folder': '/nowhere', 'phases': ['bench'],
        'workloads': [{'bench': {'scaling': ['weak', 'strong'], 'rounds': 12}}]}
SET = dict.fromkeys(plain.KEPT_MEMORY, '1')
MEASURED = {'n': 1, 'images_per_s': {'solo': 5000.0, 'dp': None}, 'page_faults_per_step': 3}


class Environment(unittest.TestCase):
    def test_a_plain_script_gets_no_settings_of_the_test(self):
        tested = launch.environment(PLAN, 0, {})
        alone = launch.environment(dict(PLAN, plain=True), 0, {})
        self.assertEqual(sorted(set(tested) - set(alone)), sorted(list(plain.KEPT_MEMORY) + ['NVIDIA_TF32_OVERRIDE']))

    def test_a_plain_script_keeps_the_user_s_settings(self):
        alone = launch.environment(dict(PLAN, plain=True), 0, dict(SET, NVIDIA_TF32_OVERRIDE='1'))
        self.assertEqual([alone[name] for name in sorted(SET) + ['NVIDIA_TF32_OVERRIDE']], ['1', '1', '1'])


class Plan(unittest.TestCase):
    def test_it_is_left_out_if_it_would_differ_in_nothing(self):
        for device, variables, wanted in (('cpu', {}, True), ('cpu', SET, False), ('cuda', {}, True), ('cuda', SET, True)):
            made = plain.plan(dict(PLAN, device=device), '/plain', variables)
            self.assertEqual(made is not None, wanted, (device, variables))

    def test_it_times_one_scaling_only(self):
        bench = plain.plan(dict(PLAN, device='cuda'), '/plain', {})['workloads'][0]['bench']
        self.assertEqual((bench['scaling'], bench['rounds']), (['weak'], plain.ROUNDS))


class Words(unittest.TestCase):
    def words(self, device, left_out):
        return plain.words({'mode': {'device': device}, 'allocator': {'set_by_test': left_out}, 'plain_runs': [MEASURED]})

    def test_a_report_of_a_run_that_failed_early_has_none(self):
        self.assertEqual(plain.words(report.empty()), [])

    def test_they_name_what_differs(self):
        speed = ': 5000 images/s on 1 device (3 page faults per step)'
        self.assertEqual(self.words('cpu', ['A', 'B']), ['  a plain training script without A and B' + speed])
        own = ', in the framework\'s own precision (which may be TF32)'
        self.assertEqual(self.words('cuda', ['A']), ['  a plain training script without A' + own + speed])
        self.assertEqual(self.words('cuda', []), ['  a plain training script' + own + speed])


if __name__ == '__main__':
    unittest.main()

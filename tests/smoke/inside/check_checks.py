from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np

from envbuild_smoke import checks, diagnose, explain, figures, image, plan, refnet, report, synth
from envbuild_smoke.environment import container, driver, gpus, libraries

GPU_IMAGE = dict(image.unknown(), name='x', cuda='12.4', driver_min='550.54', version='1.2.3',
                 compute_capability={'sass': ['7.0', '8.0'], 'ptx': ['8.0']})
CPU_IMAGE = dict(image.unknown(), name='x')


def found(devices=(), code=0, library=True, driver_cuda='12.4', shm=1 << 30, **variables):
    made = [dict(index=i, name=name, cc=cc, mem_bytes=16 * 10 ** 9, peers=[]) for i, (name, cc) in enumerate(devices)]
    return {'host': {'cores_usable': 4, 'driver': '550.54', 'shm_free_bytes': shm}, 'devices': made, 'variables': variables,
            'cuda': {'library': library, 'problem': 'no such file', 'code': code, 'driver_cuda': driver_cuda}}


def options(**changes):
    return dict({'device': 'auto', 'allow_cpu': False, 'expect': None, 'expect_gpus': 0, 'strict': False, 'counts': 'auto'}, **changes)


def statuses(made):
    return [(check['id'], check['status']) for check in made]


class Devices(unittest.TestCase):
    def look(self, picture, facts, **changes):
        opts = options(**changes)
        device = plan.choose_device(opts, picture, facts)
        counts, left_out = plan.choose_counts(opts['counts'], device)
        return device.kind, counts, gpus.devices(device, picture, left_out, opts)[0]['status']

    def test_cpu_image(self):
        self.assertEqual(self.look(CPU_IMAGE, found()), ('cpu', [1, 2], 'pass'))
        self.assertEqual(self.look(CPU_IMAGE, found([('A', '8.0')])), ('cpu', [1, 2], 'pass'))
        self.assertEqual(self.look(CPU_IMAGE, found(), expect='gpu')[2], 'fail')
        with self.assertRaises(plan.Refusal):
            self.look(CPU_IMAGE, found(), device='cuda')

    def test_gpu_image_without_gpu_is_never_a_pass(self):
        nothing = found(library=False)
        self.assertEqual(self.look(GPU_IMAGE, nothing)[::2], (None, 'inconclusive'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, allow_cpu=True), ('cpu', [1, 2], 'inconclusive'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, allow_cpu=True, expect='cpu'), ('cpu', [1, 2], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, expect='gpu')[::2], (None, 'fail'))
        self.assertEqual(self.look(GPU_IMAGE, nothing, expect_gpus=2)[2], 'fail')

    def test_gpu_image_with_gpus(self):
        two, one = found([('A', '8.0')] * 2), found([('A', '8.0')])
        self.assertEqual(self.look(GPU_IMAGE, two), ('cuda', [1, 2], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, found([('A', '8.0')] * 6)), ('cuda', [1, 2, 4, 6], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, one), ('cuda', [1], 'inconclusive'))
        self.assertEqual(self.look(GPU_IMAGE, one, counts='1'), ('cuda', [1], 'pass'))
        self.assertEqual(self.look(GPU_IMAGE, one, expect_gpus=2)[2], 'fail')


class Driver(unittest.TestCase):
    def test_codes_of_cuinit(self):
        for code in (3, 34, 46, 304, 802, 803, 804, 999, 12345):
            made = driver.driver(found(code=code), GPU_IMAGE)
            self.assertEqual(statuses(made), [('DRIVER', 'fail')])
            self.assertIn(str(code), made[0]['message'])
            self.assertTrue(made[0]['next_step'])
        self.assertEqual(driver.driver(found(code=100), GPU_IMAGE), [])
        self.assertEqual(driver.driver(found(library=False), GPU_IMAGE), [])

    def test_driver_must_support_the_images_cuda(self):
        for has, needs, want in (('12.4', '12.4', 'pass'), ('12.0', '12.4', 'pass'), ('11.8', '12.4', 'fail'), ('13.0', '12.4', 'pass'),
                                    ('9.0', '9.2', 'fail'), ('10.1', '9.2', 'pass'), ('10.0', '10.1', 'fail')):
            made = driver.driver(found(driver_cuda=has), dict(GPU_IMAGE, cuda=needs))
            self.assertEqual(statuses(made), [('DRIVER', want)], (has, needs))

    def test_architectures(self):
        for capability, want in (('7.0', 'pass'), ('7.5', 'pass'), ('8.6', 'pass'), ('9.0', 'warn'), ('12.0', 'warn'), ('6.1', 'fail')):
            self.assertEqual(statuses(gpus.architecture(found([('A', capability)]), GPU_IMAGE)), [('ARCH', want)], capability)

    def test_surroundings(self):
        cuda = plan.Device('cuda', 2, '')
        alike, mixed = found([('A', '8.0')] * 2), found([('A', '8.0'), ('B', '7.0')], shm=64 << 20, NCCL_P2P_DISABLE='1')
        self.assertEqual(statuses(container.surroundings(alike, cuda, 2)), [('MIXED', 'pass'), ('SHM', 'pass'), ('ENV', 'pass')])
        self.assertEqual(statuses(container.surroundings(mixed, cuda, 2)), [('MIXED', 'warn'), ('SHM', 'warn'), ('ENV', 'warn')])
        self.assertEqual(statuses(container.surroundings(mixed, cuda, 1))[1], ('SHM', 'pass'))


class Contents(unittest.TestCase):
    def test_a_cpu_build_in_a_gpu_image_fails(self):
        versions = {'name': 'f', 'version': '1.2.3+cpu', 'cuda_build': None}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, versions)), [('VERSION', 'pass'), ('BUILD', 'fail')])

    def test_versions(self):
        right = {'name': 'f', 'version': '1.2.3', 'cuda_build': '12.4.1'}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, right)), [('VERSION', 'pass'), ('BUILD', 'pass')])
        other = {'name': 'f', 'version': '1.2.4', 'cuda_build': '11.8'}
        self.assertEqual(statuses(libraries.contents(GPU_IMAGE, other)), [('VERSION', 'fail'), ('BUILD', 'warn')])

    def test_work_on_the_wrong_device_fails(self):
        cuda, cpu = plan.Device('cuda', 1, ''), plan.Device('cpu', 2, '')
        on_cpu, on_gpu = {'parameters': ['cpu'], 'compute': ['cpu']}, {'parameters': ['cuda:0'], 'compute': ['/gpu:0']}
        self.assertEqual(statuses(checks.placement(1, cuda, [on_gpu])), [('DEVICE', 'pass')])
        self.assertEqual(statuses(checks.placement(1, cuda, [on_gpu, on_cpu])), [('DEVICE', 'fail')])
        self.assertEqual(statuses(checks.placement(1, cpu, [on_cpu])), [('DEVICE', 'pass')])


class Oracle(unittest.TestCase):
    def setUp(self):
        pictures, labels = synth.digits(4 * 16, 105)
        self.case = diagnose.Case(refnet.initial(7), pictures, labels, 4, 16, 1, .05, .9)
        self.want, _ = refnet.train(self.case.start, pictures, labels, 4, 16, .05, .9)

    def judge(self, relative):
        """The check on weights that are off by so much in their first layer."""
        got = dict(self.want)
        got['conv1_w'] = self.want['conv1_w'] + relative * (self.want['conv1_w'] - self.case.start['conv1_w'])
        return checks.oracle(1, self.case, self.want, [(0, got)])[0]

    def test_limits(self):
        for relative, want in ((0, 'pass'), (9e-4, 'pass'), (2e-3, 'warn'), (.15, 'warn'), (.25, 'fail')):
            made = self.judge(relative)
            self.assertEqual(made['status'], want, relative)
            self.assertAlmostEqual(made['value'], relative, delta=1e-6)
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


class Speed(unittest.TestCase):
    def figures(self, device, solo, indep, dp, floors=None, scaling='weak'):
        rounds = [{'order': '', 'solo_s': solo * k, 'indep_s': indep * k, 'dp_s': dp * k} for k in (1, 1.1, .9, 1.3, 1, 1, 1, 1, 1)]
        measured = {'workload': 'mnist', 'net': 'lenet', 'scaling': scaling, 'batch_per_device': 64,
                    'global_batch': 128, 'steps_per_round': 10, 'rounds': rounds,
                    'warmup': {}, 'barrier_s': 0.001}
        return figures.run(2, measured, device, None, floors or {})

    def test_figures(self):
        run = self.figures('cuda', 1.0, 1.1, 1.25)
        self.assertAlmostEqual(run['speedup']['median'], 1.6)
        self.assertAlmostEqual(run['efficiency'], .8)
        self.assertAlmostEqual(run['ceiling'], 2 / 1.1)
        self.assertAlmostEqual(run['comm_efficiency'], 1.1 / 1.25)
        self.assertAlmostEqual(run['images_per_s']['solo'], 640)
        self.assertAlmostEqual(run['images_per_s']['dp'], 1280 / 1.25)

    def test_strong_scaling_shares_one_batch(self):
        run = self.figures('cuda', 1.0, .5, .625, scaling='strong')
        self.assertAlmostEqual(run['speedup']['median'], 1.6)
        self.assertAlmostEqual(run['images_per_s']['solo'], 1280)
        self.assertAlmostEqual(run['images_per_s']['dp'], 1280 / .625)

    def test_cpu_is_never_judged(self):
        run = self.figures('cpu', 1.0, 1.1, 4.0, {'2': 1.5})
        self.assertEqual(statuses(checks.speed(2, run, {})), [('SPEED', 'skip')])
        self.assertEqual(statuses(checks.speed(2, run, {'2': 1.5})), [('SPEED', 'inconclusive')])

    def test_a_floor_is_judged_on_gpus_and_names_the_culprit(self):
        slow_link, slow_device = self.figures('cuda', 1.0, 1.0, 2.0, {'2': 1.5}), self.figures('cuda', 1.0, 1.9, 2.0, {'2': 1.5})
        self.assertEqual(checks.speed(2, slow_link, {'2': 1.5})[0]['status'], 'fail')
        self.assertIn('exchange', checks.speed(2, slow_link, {'2': 1.5})[0]['next_step'])
        self.assertIn('Even without', checks.speed(2, slow_device, {'2': 1.5})[0]['next_step'])
        fast = self.figures('cuda', 1.0, 1.0, 1.1, {'2': 1.5})
        self.assertEqual(statuses(checks.speed(2, fast, {'2': 1.5})), [('SPEED', 'pass')])


class Explanations(unittest.TestCase):
    def test_all_have_a_title_and_a_text(self):
        for key in explain.TEXTS:
            self.assertTrue(explain.text(key).startswith(key + ': '))


if __name__ == '__main__':
    unittest.main()

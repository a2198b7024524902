"""Speed: the figures computed from laps, and the sentences about these figures."""
from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.judging import speed
from envbuild_smoke.machine import link
from envbuild_smoke.rank import bench
from envbuild_smoke.reporting import figures

ASKED = {'scaling': ['weak'], 'min_speedup': {}, 'min_efficiency': {}}


def measured(solo=1.0, indep=1.0, dp=1.1, fed=None, n=2, scaling='weak', noise=None, busy=None, workload='cifar', gpus=None):
    """The result of bench.measure for constant laps; `noise` has a factor for each round."""
    rounds = []
    for factor in noise or [1.0] * 9:
        entry = {'order': '', 'solo_s': solo * factor, 'indep_s': indep, 'dp_s': dp, 'input_s': fed}
        rounds.append(dict(entry, gpus=gpus) if gpus else entry)
    return {'workload': workload, 'net': 'resnet20', 'scaling': scaling, 'batch_per_device': 64, 'global_batch': 64 * n,
            'steps_per_round': 10, 'rounds': rounds, 'warmup': {}, 'warmup_rule': '', 'harness_s': .001,
            'busy_s': {'indep': busy or [(indep or solo) / 10] * n}}


def judge(kind='cuda', asked=ASKED, n=2, exchange_s=None, **laps):
    run = figures.run(n, measured(n=n, **laps), exchange_s)
    run.update(speed.standing(n, run, kind, asked))
    return run, speed.verdict(n, run, asked)[0]


class Figures(unittest.TestCase):
    def test_weak_and_strong(self):
        run = figures.run(2, measured(1.0, 1.1, 1.25, 1.5), .01)
        self.assertAlmostEqual(run['speedup']['median'], 1.6)
        self.assertAlmostEqual(run['efficiency'], 0.8)
        self.assertAlmostEqual(run['ceiling'], 2 / 1.1)
        self.assertAlmostEqual(run['comm_efficiency'], 1.1 / 1.25)
        self.assertAlmostEqual(run['images_per_s']['dp'], 1280 / 1.25)
        self.assertAlmostEqual(run['predicted'], .2 / .12)
        self.assertAlmostEqual(run['sync_overhead_ratio'], 1.5)
        strong = figures.run(2, dict(measured(1.0, .5, .625, scaling='strong'), global_batch=64))
        self.assertAlmostEqual(strong['speedup']['median'], 1.6)
        self.assertAlmostEqual(strong['images_per_s']['solo'], 640)

    def test_the_split_adds_up_and_noise_is_not_negative_time(self):
        split = figures.run(2, measured(1.0, 1.1, 1.25, 1.5))['split']
        self.assertAlmostEqual(split['compute_ms'], 110)
        self.assertAlmostEqual(split['communication_ms'], 15)
        self.assertAlmostEqual(split['input_ms'], 25)
        self.assertAlmostEqual(split['input_share'], 25 / 150.)
        self.assertEqual(figures.run(2, measured(1.0, 1.3, 1.25, 1.2))['split']['communication_ms'], 0)
        self.assertIsNone(figures.run(2, measured())['split'])

    def test_one_device_has_a_split_and_no_speedup(self):
        alone = measured(1.0, None, None, 1.25, n=1)
        run = figures.run(1, alone)
        self.assertIsNone(run['speedup'])
        self.assertAlmostEqual(run['split']['input_ms'], 25)
        self.assertEqual(speed.verdict(1, run, ASKED), [])

    def test_the_interval_holds_the_true_speedup_as_often_as_it_says(self):
        """Laps with a common drift and independent lognormal noise. The true ratio is 1.6."""
        draw, hits = np.random.RandomState(5), 0
        for _ in range(600):
            laps = measured()
            for entry in laps['rounds']:
                drift = np.exp(draw.normal(0, .5))
                entry['solo_s'], entry['dp_s'] = (drift * base * np.exp(draw.normal(0, .05)) for base in (.8, 1.0))
            gain = figures.run(2, laps)['speedup']
            hits += gain['lo'] <= 1.6 <= gain['hi']
        self.assertAlmostEqual(hits / 600., gain['level'], delta=.03)


class WarmUp(unittest.TestCase):
    plan = {'warmup_min': 10, 'warmup_max': 40, 'warmup_seconds': 5}

    def test_rule(self):
        self.assertFalse(bench._is_warm([.1] * 9, self.plan))
        self.assertTrue(bench._is_warm([1.0] + [.1] * 9, self.plan))
        self.assertFalse(bench._is_warm([.2] * 5 + [.1] * 5, self.plan))
        self.assertFalse(bench._is_warm([.1] * 11, self.plan))
        self.assertTrue(bench._is_warm([.2, .1] * 20, dict(self.plan, warmup_seconds=1e9)))
        self.assertTrue(bench._is_warm([3.0, 3.0], self.plan))          # two long steps are enough
        self.assertFalse(bench._is_warm([60.0], self.plan))             # the first step may include compiling


class Simulated(object):
    """A session with a simulated clock. A step takes `launch_s` seconds, and `image_s` seconds for each image."""

    def __init__(self, launch_s, image_s=0.0, clocks=None, batch=64):
        self.time, self.launch_s, self.image_s = 0.0, launch_s, image_s
        self.rising, self.adapter, self.batch = clocks, self, batch
        self.plan = {'bench': dict(WarmUp.plan, batch=batch)}
        self.ctx = self.group = self.heart = self
        self.rank, self.world = 0, 1

    def data(self, _part):
        return np.zeros(512), np.zeros(512)

    def put(self, _handle, images, _labels):
        return len(images)

    def step(self, _handle, batch, _lr):
        self.time += self.launch_s + self.image_s * batch

    def clocks(self, since):
        """The GPU clock rates that gpuwatch would have recorded since then, one every 0.2 s."""
        looks = int((self.time - since) / .2)
        return [[self.rising(since + .2 * i) for i in range(looks)]] if self.rising else []

    def drain(self):
        pass

    barrier = beat = drain

    def broadcast(self, value):
        return value

    def __enter__(self):
        self._now, bench.now = bench.now, lambda: self.time
        return self

    def __exit__(self, *_):
        bench.now = self._now


class Clocks(unittest.TestCase):
    def warm(self, clocks, launch_s=.002):
        with Simulated(launch_s, clocks=clocks) as session:
            mode = bench.Mode('solo', object(), lambda i: 64)
            bench._warm(session, mode, session)
        return session.time, mode

    def test_without_clocks_the_time_of_steps_decides(self):
        self.assertEqual(self.warm(None)[1].warmup_steps, 10)
        self.assertIsNone(self.warm(None)[1].clocks_settled)

    def test_warm_up_lasts_until_the_clocks_have_settled(self):
        """Steps of 2 ms take the same time from the first one on, because the host limits them. The clock rate rises for three
        seconds.
        """
        took, mode = self.warm(lambda t: min(1980, 345 + 545 * t))
        self.assertTrue(3.0 < took < 4.5, took)
        self.assertTrue(mode.clocks_settled)

    def test_clocks_that_never_settle_are_not_waited_for_without_end(self):
        took, mode = self.warm(lambda t: 1000 + 500 * (int(t / .4) % 2))
        self.assertTrue(bench.CLOCK_S < took < bench.CLOCK_S + 1, took)
        self.assertFalse(mode.clocks_settled)

    def test_a_gpu_that_does_not_tell_its_clock(self):
        self.assertLess(self.warm(lambda t: None)[0], 2)

    def test_rule(self):
        steady = [1980] * bench.CLOCK_LOOKS
        self.assertTrue(bench.clocks_settled([steady, [345] * 9 + steady]))
        self.assertFalse(bench.clocks_settled([steady, steady[1:]]))
        self.assertFalse(bench.clocks_settled([steady, [1980, 1980, 1900, 1980, 1980, 1980]]))
        self.assertTrue(bench.clocks_settled([]))


class Launches(unittest.TestCase):
    def bound(self, launch_s, image_s):
        """The report about one GPU whose steps take these times."""
        with Simulated(launch_s, image_s) as session:
            solo = bench.Mode('solo', object(), lambda i: 64)
            half_s = bench._half(session, solo, 100, session)
        whole = 100 * (launch_s + 64 * image_s)
        run = figures.run(2, dict(measured(whole, whole, 2 * whole), steps_per_round=100, half_s=half_s))
        run.update(speed.standing(2, run, 'cuda', ASKED))
        return run, speed.verdict(2, run, ASKED)[0]

    def test_a_step_that_does_not_know_its_batch_is_launch_bound_and_the_exchange_is_not_blamed(self):
        run, made = self.bound(.002, .000002)
        self.assertTrue(run['launch_bound']['bound'])
        self.assertAlmostEqual(run['launch_bound']['share'], .002 / .002128, 3)
        self.assertAlmostEqual(run['launch_bound']['half_batch_ms'], 2.064, 3)
        self.assertEqual((made['status'], run['judged']), ('skip', False))
        self.assertIn('launch-bound: 94 % of a step of 2.1 ms does not depend on the batch', made['message'])
        self.assertNotIn('communication-bound', made['message'])

    def test_a_step_of_arithmetic_is_not(self):
        run, made = self.bound(.0003, .00005)
        self.assertFalse(run['launch_bound']['bound'])
        self.assertEqual((made['status'], run['judged']), ('warn', True))
        self.assertIn('communication-bound', made['next_step'])

    def test_with_a_floor_it_is_judged_and_named(self):
        run = figures.run(2, dict(measured(1.0, 1.0, 2.0), half_s=[.5, .49]))
        asked = dict(ASKED, min_speedup={'2': 1.5})
        run.update(speed.standing(2, run, 'cuda', asked))
        made = speed.verdict(2, run, asked)[0]
        self.assertEqual(made['status'], 'fail')
        self.assertTrue(made['next_step'].startswith('launch-bound'))
        self.assertNotIn('communication-bound', made['next_step'])


class Judgement(unittest.TestCase):
    def status(self, **how):
        return judge(**how)[1]['status']

    def test_limits_of_efficiency(self):
        for dp, want, words in ((1.05, 'pass', 'good'), (1.25, 'pass', 'good'), (1.3, 'pass', 'ok'), (1.6, 'pass', 'ok'),
                                (1.8, 'warn', 'low for this number'), (2.1, 'warn', 'make training slower'), (.8, 'pass', 'speedup above the number')):
            _, made = judge(dp=dp)
            self.assertEqual(made['status'], want, dp)
            self.assertIn(words, made['message'])

    def test_a_small_network_that_does_not_scale_is_no_failure_and_says_why(self):
        run, made = judge(dp=4.0, workload='mnist')
        self.assertEqual((made['status'], run['judged']), ('skip', False))
        self.assertIn('communication-bound', made['message'])

    def test_cpu_is_never_judged_and_says_what_it_saw(self):
        run, made = judge('cpu', dp=4.0)
        self.assertEqual((made['status'], run['why_not_judged']), ('skip', 'CPU workers share cores'))
        self.assertIn('communication-bound', made['message'])
        for floors in ({'min_speedup': {'2': 1.5}}, {'min_efficiency': {'2': .9}}):
            self.assertEqual(self.status(kind='cpu', asked=dict(ASKED, **floors)), 'inconclusive')

    def test_floors(self):
        for floors, dp, want in (({'min_speedup': {'2': 1.5}}, 1.1, 'pass'), ({'min_speedup': {'2': 1.5}}, 1.5, 'fail'),
                                 ({'min_efficiency': {'2': .9}}, 1.1, 'pass'), ({'min_efficiency': {'2': .95}}, 1.1, 'fail'),
                                 ({'min_speedup': {'4': 3.0}}, 1.1, 'pass')):
            self.assertEqual(self.status(asked=dict(ASKED, **floors), dp=dp, workload='cifar'), want, (floors, dp))
        self.assertEqual(self.status(asked=dict(ASKED, min_speedup={'2': 1.5}), dp=1.5, workload='mnist'), 'fail')

    def test_a_floor_fails_only_where_the_whole_interval_is_below_even_with_the_noise(self):
        asked = dict(ASKED, min_speedup={'2': 1.9})
        self.assertEqual(self.status(asked=asked, dp=1.1), 'fail')
        noisy = [.8, .5, .95, .6, 1.0, .7, .9, .8, 1.0]
        self.assertEqual(self.status(asked=asked, dp=1.1, noise=noisy), 'inconclusive')
        self.assertEqual(self.status(asked=dict(ASKED, min_speedup={'2': 20.0}), dp=1.1, noise=noisy), 'fail')     # too much for noise

    def test_a_median_below_the_floor_never_passes(self):
        _, made = judge(asked=dict(ASKED, min_speedup={'2': 1.9}), dp=1.1, noise=[1.0, .98, 1.07, .99, 1.05, 1.0, 1.06, 1.0, 1.04])
        self.assertEqual(made['status'], 'inconclusive')
        self.assertIn('below the required value, but its interval reaches above this value', made['message'])
        wide = [.735, .36, 1.105, .5, .735, .4, 1.0, .735, .9]          # 1.47 [0.72, 2.21] passed a floor of 1.9
        for floors in ({'min_speedup': {'2': 1.9}}, {'min_efficiency': {'2': .95}}):
            self.assertEqual(self.status(asked=dict(ASKED, **floors), dp=1.0, noise=wide), 'inconclusive')

    def test_a_median_above_the_floor_passes_where_the_interval_is_narrow(self):
        asked = dict(ASKED, min_speedup={'2': 1.8})
        self.assertEqual(self.status(asked=asked, dp=1.1, noise=[1.0, .97, 1.03, .98, 1.02, 1.0, .99, 1.01, 1.0]), 'pass')
        _, made = judge(asked=asked, dp=1.0, noise=[1.0, .6, 1.3, .7, 1.0, .65, 1.2, .95, 1.25])
        self.assertEqual(made['status'], 'inconclusive')
        self.assertIn('more than 10 % below the required value', made['message'])

    def test_a_floor_for_a_number_of_devices_that_was_not_measured_is_inconclusive(self):
        asked = {'min_speedup': {'2': 1.5, '4': 3.0}, 'min_efficiency': {'8': .8}}
        made = [{'id': 'SPEED', 'n': 2, 'status': 'pass'}, {'id': 'RUN', 'n': 4, 'status': 'pass'}]
        found, = speed.unmeasured(asked, made)
        self.assertEqual((found['id'], found['status']), ('SPEED', 'inconclusive'))
        self.assertIn('with 4 and 8 devices', found['message'])
        self.assertEqual(speed.unmeasured({'min_speedup': {'2': 1.5}, 'min_efficiency': {}}, made), [])
        self.assertEqual(speed.unmeasured(asked, [{'id': 'DEVICES', 'n': None, 'status': 'inconclusive'}]), [])

    def test_a_floor_needs_six_rounds(self):
        asked = dict(ASKED, min_speedup={'2': 1.5})
        for rounds, want in ((1, 'inconclusive'), (5, 'inconclusive'), (6, 'pass')):
            self.assertEqual(self.status(asked=asked, dp=1.1, noise=[1.0] * rounds), want)
        self.assertIn('at least 6 rounds', judge(asked=asked, noise=[1.0])[1]['message'])

    def test_one_round_states_no_interval_and_is_not_judged(self):
        run, made = judge(dp=1.9, noise=[1.0])
        self.assertEqual((run['speedup']['lo'], run['speedup']['hi'], made['status']), (None, None, 'skip'))
        self.assertIn('no confidence interval', made['message'])
        self.assertNotIn('[', made['message'])
        self.assertEqual(run['images_per_s_interval']['dp']['lo'], None)

    def test_rounds_that_depend_on_each_other_are_said(self):
        self.assertIn('autocorrelation 1.0', judge(noise=[1 + .01 * i for i in range(9)])[1]['message'])
        self.assertNotIn('autocorrelation', judge(noise=[1.0, .99, 1.01, .98, 1.02, .99, 1.01, 1.0, .99])[1]['message'])

    def test_strong_scaling_is_not_held_to_the_limits_of_weak(self):
        self.assertEqual(self.status(dp=.7, indep=.6, scaling='strong'), 'pass')
        self.assertEqual(self.status(dp=1.2, indep=.6, scaling='strong'), 'warn')
        both = dict(ASKED, scaling=['weak', 'strong'], min_speedup={'2': 1.9})
        self.assertEqual(self.status(asked=both, dp=.7, indep=.6, scaling='strong'), 'pass')


class Culprits(unittest.TestCase):
    def test_a_slow_link(self):
        _, made = judge(dp=2.0)
        self.assertIn('communication-bound: the exchange takes 50 %', made['next_step'])
        self.assertNotIn('contention', made['next_step'])

    def test_a_slow_rank_is_named(self):
        _, made = judge(indep=1.9, dp=2.0, busy=[.1, .19])
        self.assertIn('contention', made['next_step'])
        self.assertIn('rank 1 is slow: 190.0 ms per step, other ranks 100.0 ms', made['next_step'])
        self.assertNotIn('communication-bound', made['next_step'])
        self.assertIn('share power', judge(indep=1.9, dp=2.0, busy=[.19, .19])[1]['next_step'])

    def test_an_exchange_worse_than_its_size(self):
        self.assertIn('20 times the duration of one all-reduce', judge(dp=3.0, exchange_s=.01)[1]['next_step'])

    def test_input(self):
        self.assertIn('input-bound', judge('cpu', fed=2.0)[1]['message'])
        self.assertNotIn('input-bound', judge('cpu', fed=1.2)[1]['message'])

    def test_a_clock_that_was_held_down(self):
        hot = [{'uuid': 'GPU-0', 'held_down': ['heat (limited by hardware)']}]
        self.assertIn('heat (limited by hardware)', judge(dp=2.0, gpus=hot)[1]['next_step'])

    def test_the_larger_loss_comes_first(self):
        self.assertTrue(judge(indep=1.3, dp=4.0)[1]['next_step'].startswith('communication-bound'))
        self.assertTrue(judge(indep=3.0, dp=4.3)[1]['next_step'].startswith('contention'))


class Links(unittest.TestCase):
    def gpu(self, cc='8.0', generation=4, width=16):
        return {'cc': cc, 'pcie_gen_max': generation, 'pcie_width_max': width}

    def test_the_slowest_pair_counts(self):
        three = [[None, 'NV12', 'PIX'], ['NV12', None, 'SYS'], ['PIX', 'SYS', None]]
        two = [row[:2] for row in three[:2]]
        self.assertEqual(link.nominal([self.gpu()] * 2, two), {'name': 'NVLink x12', 'GBps': 300})
        self.assertEqual(link.nominal([self.gpu()] * 3, three)['name'], 'PCIe 4.0 x16')
        mixed = [self.gpu(), self.gpu(width=8)]
        self.assertEqual(link.nominal(mixed, [[None, 'PHB'], ['PHB', None]]), {'name': 'PCIe 4.0 x8', 'GBps': 1.969 * 8})

    def test_what_is_not_known_is_not_said(self):
        for gpus, words in (([self.gpu()], [['X']]), ([self.gpu()] * 2, [['X', '?'], ['?', 'X']]),
                            ([self.gpu(generation=None)] * 2, [['X', 'PIX'], ['PIX', 'X']]),
                            ([self.gpu('99.0')] * 2, [['X', 'NV4'], ['NV4', 'X']])):
            self.assertIsNone(link.nominal(gpus, words))


if __name__ == '__main__':
    unittest.main()

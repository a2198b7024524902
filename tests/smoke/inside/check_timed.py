"""EXCHANGE and REPLICA for the timed laps: what the checks say of copies, losses and distances."""
from __future__ import absolute_import, division, print_function

import functools
import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import timed
from envbuild_smoke.networks import margins, nets, refnet, rounding
from envbuild_smoke.rank import rounded
from envbuild_smoke.rank import timed as looking


def entry(**other):
    return dict({'of': 'dp', 'rank': 0, 'lr': .05, 'apart': 1e-6, 'rounding': 1e-5, 'parameter': '', 'parameter_apart': 0.0,
                 'others': {'gradients are summed': 3.0, 'nothing is exchanged': 1.0}}, **other)


def bench(exchange=None, dp=('a', 'a'), indep=('a', 'b'), losses=((2.3, 2.2, 2.1), (2.4, 2.5, 2.6)), scaling='weak'):
    return {'scaling': scaling, 'checked': {
        'exchange': [entry(), entry(rank=1)] if exchange is None else exchange, 'losses': {'dp': [list(rank) for rank in losses]},
        'copies': {'dp': [{'fc1_w': bits} for bits in dp], 'indep': [{'fc1_w': bits} for bits in indep]}}}


def own(*scalings, **phases):
    return [{'phases': dict(phases, bench=list(scalings))}, {'phases': dict(phases, bench=list(scalings))}]


class Replicas(unittest.TestCase):
    def test_after_the_timed_laps(self):
        made, = timed.replicas(2, own(bench()))
        self.assertEqual(made['status'], 'pass')
        made, = timed.replicas(2, own(bench(), bench(dp=('a', 'b'), scaling='strong')))
        self.assertEqual((made['id'], made['status'], made['value']), ('REPLICA', 'fail', 1))
        self.assertIn('after speed was measured (strong scaling), first in parameter fc1_w of replica 1', made['message'])
        self.assertEqual(timed.replicas(2, own(bench(dp=('a',))))[0]['status'], 'skip')

    def test_nothing_is_said_where_nothing_was_looked_at(self):
        self.assertEqual(timed.replicas(2, own({'scaling': 'weak', 'checked': None})), [])
        self.assertEqual(timed.exchange(2, own({'scaling': 'weak', 'checked': None}), []), [])


class Exchange(unittest.TestCase):
    def judge(self, *scalings, **more):
        oracle = more.pop('oracle', [[2.3, 2.2], [2.1, 2.0]])
        made, = timed.exchange(2, own(*scalings, **more), oracle)
        self.assertEqual(made['id'], 'EXCHANGE')
        return made

    def test_healthy(self):
        self.assertEqual(self.judge(bench())['status'], 'pass')

    def test_each_fault_is_named_by_what_fits_all_copies(self):
        both = {'gradients are summed': 3.0, 'nothing is exchanged': 1e-6, 'every device received the images of device 0': 1e-7}
        made = self.judge(bench([entry(apart=1.0, others=both), entry(apart=1.0, rank=1, others=dict(both, **{
            'every device received the images of device 0': 2.0}))]))
        self.assertEqual(made['status'], 'fail')
        self.assertTrue(made['message'].endswith('(rank 0): nothing is exchanged'), made['message'])
        self.assertIn('no known fault', self.judge(bench([entry(apart=.6)]))['message'])
        made = self.judge(bench([entry(parameter='fc2_b', parameter_apart=1.0)]))
        self.assertIn('parameter fc2_b has the largest error', made['message'])

    def test_rounding_is_allowed_for_and_where_it_is_too_much_nothing_is_told(self):
        self.assertEqual(self.judge(bench([entry(apart=.2, rounding=.1)]))['status'], 'pass')
        self.assertEqual(self.judge(bench([entry(apart=.9, rounding=.5)]))['status'], 'skip')
        self.assertEqual(self.judge(bench([]))['status'], 'skip')        # the adapter cannot set weights

    def test_numbers_that_are_not_finite_fail_on_one_copy_and_on_all(self):
        lost = dict(apart=looking.NOT_FINITE, rounding=0.0, others={}, parameter_apart=looking.NOT_FINITE)
        for second in (entry(rank=1), entry(rank=1, **lost)):
            made = self.judge(bench([entry(**lost), second]))
            self.assertEqual(made['status'], 'fail')
            self.assertIn('not finite (rank 0)', made['message'])

    def test_devices_that_train_alone_must_differ(self):
        made = self.judge(bench(indep=('a', 'b', 'b')))
        self.assertEqual(made['status'], 'fail')
        self.assertIn('devices 1 and 2 have the same weights', made['message'])

    def test_equal_losses_are_the_same_images(self):
        same = bench(losses=((2.3, 2.2, 2.1), (2.3, 2.2, 2.1)))
        made = self.judge(same)
        self.assertEqual(made['status'], 'fail')
        self.assertIn('ranks 0 and 1 received the same images in 3 of 3 timed laps (dp)', made['message'])
        made = self.judge(train={'losses': [2.0 + .1 * i for i in range(9)], 'checked': {'exchange': [entry()]}})
        self.assertIn('9 of 9 training steps', made['message'])

    def test_a_loss_that_all_ranks_share_says_nothing(self):
        same = bench(losses=((2.3, 2.2, 2.1), (2.3, 2.2, 2.1)))
        self.assertEqual(self.judge(same, oracle=[[2.3, 2.2], [2.3, 2.2]])['status'], 'pass')
        self.assertEqual(self.judge(bench(losses=((2.3, 1e-4, None), (2.4, 1e-4, None))))['status'], 'pass')      # few digits; no number


class Session(object):
    """Devices in one process that share one framework (NumPy)."""

    net, plan = nets.LENET, {'momentum': 0.9, 'seed': 7}

    def __init__(self, devices=2):
        self.ctx = type('ctx', (Session.ctx,), {'replicas': devices})

    class heart(object):
        beat = staticmethod(lambda: None)

    class ctx(object):
        rank, world, replicas = 0, 1, 2

        class group(object):
            gather = staticmethod(lambda value: [value])
            gather_arrays = staticmethod(lambda array: [array])
            broadcast = staticmethod(lambda value: value)

        @staticmethod
        def shard(array, place, parts):
            size = len(array) // parts
            return array[place * size:(place + 1) * size]

    class adapter(object):
        @staticmethod
        def put(handle, images, labels):
            return refnet.scaled(images, 'float32'), labels

        @staticmethod
        def step(handle, batch, lr):
            handle['steps'] = handle.get('steps', 0) + 1
            if handle['steps'] % handle.get('period', 1e9) == 0:        # the fault: an optimizer that loses its state
                handle['v'] = dict((name, np.zeros_like(array)) for name, array in handle['v'].items())
            parts = handle.get('last') if handle.get('stale') else None
            handle['last'] = [refnet.loss_and_gradient(nets.LENET, handle['p'], *[Session.ctx.shard(array, place, handle['n']) for array in batch])[1]
                              for place in range(handle['n'])]
            parts = parts or handle['last']
            if 'own' in handle:
                parts = [dict((name, half(array, handle['own'])) for name, array in part.items()) for part in parts]
            mean = dict((name, handle.get('add', sum)([part[name] for part in parts]) / handle['divide']) for name in nets.LENET.names)
            if 'mean' in handle:
                mean = dict((name, half(array, handle['mean'])) for name, array in mean.items())
            if 'noise' in handle:
                draw = np.random.RandomState(handle['steps'])
                mean = dict((name, array * (1 + handle['noise'] * draw.normal(size=array.shape)).astype('float32')) for name, array in mean.items())
            if handle['p']['fc1_b'].max() > handle.get('fails_above', 9):       # a fault of the values that only training reaches
                mean = dict((name, array * np.float32(.9)) for name, array in mean.items())
            decay = dict((name, np.float32(handle.get('decay', 0) if name in handle.get('only', mean) else 0)) for name in mean)
            decayed = dict((name, mean[name] + decay[name] * handle['p'][name]) for name in mean)
            decayed = dict((name, array * (0 if name == handle.get('frozen') else 1)) for name, array in decayed.items())
            lr *= handle.get('rate', 1)
            loss = refnet.loss_and_gradient(nets.LENET, handle['p'], *batch)[0]
            refnet.update(handle['p'], handle['v'], decayed, np.float32(lr), np.float32(0.9))
            return loss * (handle['misreports'] if handle['steps'] > handle.get('from', 0) else 1) if 'misreports' in handle else loss

        loss = staticmethod(float)

        @staticmethod
        def assign(handle, copy, weights):
            for name, value in weights.items():
                handle['p'][name] = np.array(value, 'float32')

        drain = staticmethod(lambda: None)
        copies = staticmethod(lambda handle: 1)
        weights = staticmethod(lambda handle, copy: dict((name, array.copy()) for name, array in handle['p'].items()))


def half(array, kind):
    return rounding.cut(array, rounding.MANTISSA[kind]).astype('float32')


def add_in(kind):
    """Return a function that adds as a ring of devices does which exchanges half-precision numbers: each partial sum is rounded."""
    return lambda arrays: functools.reduce(lambda total, array: half(total + half(array, kind), kind), arrays, np.float32(0))


def handle(n, divide, momentum=0.0):
    draw = np.random.RandomState(3)
    start = nets.LENET.initial(7)
    return {'n': n, 'divide': divide, 'p': start,
            'v': dict((name, (momentum * draw.normal(size=array.shape)).astype('float32')) for name, array in start.items())}


def own_of_training(exchanged, alone):
    phases = {'train': {'net': 'lenet', 'single': alone, 'checked': {'exchange': exchanged}, 'losses': [2.0, 1.0]}}
    return [{'phases': phases}, {'phases': dict(phases, train=dict(phases['train'], losses=[2.1, 1.1]))}]


class Looking(unittest.TestCase):
    """The measuring part of the check, with any momentum that the timed laps have left."""

    def setUp(self):
        self.in_a_row, looking.IN_A_ROW = looking.IN_A_ROW, 3
        self.longest, looking.LONGEST_S = looking.LONGEST_S, 1e9         # the machine of the test may be slow

    def tearDown(self):
        looking.IN_A_ROW, looking.LONGEST_S = self.in_a_row, self.longest

    def apart(self, divide, momentum, alone=1, devices=2, **fault):
        draw = np.random.RandomState(5)
        batch = draw.randint(0, 256, (16 * devices, 1, 28, 28)).astype('uint8'), draw.randint(0, 10, 16 * devices)
        together = dict(handle(devices, divide, momentum), **fault)
        part = Session.adapter.put(together, *batch)
        return looking.exchange(Session(devices), handle(1, alone, momentum), batch, [('dp', together, lambda: part, .05)])[0]

    def test_the_mean_is_the_mean_whatever_the_momentum(self):
        for momentum in (0.0, 0.01, 0.1):
            found = self.apart(2, momentum)
            self.assertLess(found['apart'], timed.APART / 2)    # about 1e-3, and more if rounding changes the sign at a ReLU
            self.assertLess(found['rounding'], .01)

    def test_what_is_not_finite_is_as_far_apart_as_can_be(self):
        for divide, alone in ((float('nan'), 1), (2, float('nan')), (float('nan'), float('nan'))):
            found = self.apart(divide, 0.01, alone)
            self.assertEqual((found['apart'], found['rounding']), (looking.NOT_FINITE, 0.0), (divide, alone))

    def test_a_fault_of_each_20th_step_is_seen(self):
        """Two steps alone do not show it."""
        self.assertLess(self.apart(2, .01, period=20)['apart'], timed.APART)
        looking.IN_A_ROW = self.in_a_row
        found = self.apart(2, .01, period=20)
        self.assertEqual(found['looks'], 20)
        self.assertGreater(found['apart'], 1.0)

    def test_the_gradients_of_the_step_before_are_seen_even_if_only_two_steps_are_made(self):
        for longest in (1e9, 0.0):
            looking.LONGEST_S = longest
            self.assertGreater(self.apart(2, .01, stale=True)['apart'], .5)

    def test_slow_steps_are_looked_at_twice_at_least(self):
        looking.IN_A_ROW, looking.LONGEST_S = self.in_a_row, 0.0
        self.assertEqual(self.apart(2, .01)['looks'], 1)

    def test_a_sum_is_no_mean(self):
        found = self.apart(1, 0.01)
        self.assertGreater(found['apart'], .5)
        self.assertLess(found['others']['gradients are summed'], timed.APART / 2)

    def single(self, divide, rates=(1e-4, .05), **fault):
        draw = np.random.RandomState(5)
        batch = draw.randint(0, 256, (32, 1, 28, 28)).astype('uint8'), draw.randint(0, 10, 32)
        return looking.single(Session(), dict(handle(1, divide, .01), **fault), batch, rates)

    def test_one_device_is_compared_with_numpy(self):
        for entry in self.single(1):
            self.assertLess(entry['apart'], timed.APART / 2 + 2 * entry['rounding'])
        for divide, apart in ((2., .5), (1e9, 1.)):         # half of the images are left out; the weights do not move
            for entry in self.single(divide):
                self.assertAlmostEqual(entry['apart'], apart, delta=.1)
            made, = timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': self.single(divide)}]}}])
            self.assertEqual((made['id'], made['status']), ('EXCHANGE', 'fail'))
            self.assertIn('do not change its weights by the gradient of its images', made['message'])

    def test_a_parameter_that_does_not_train_is_found_however_small_its_part_of_the_gradient_is(self):
        for name in nets.LENET.names:
            worst = max((entry['parameters']['apart'] for entry in self.single(1, (.05,), frozen=name)), key=lambda each: each['apart'])
            self.assertEqual(worst['parameter'], name)
            self.assertAlmostEqual(worst['apart'], 1.0, delta=.01)
            self.assertAlmostEqual(worst['holds'], 0.0, delta=.01)
        for entry in self.single(1):
            self.assertLess(entry['parameters']['apart']['apart'], timed.SINGLE_PARAMETER_APART / 10)
            self.assertGreaterEqual(entry['parameters']['holds']['numbers'], looking.LARGE)

    def test_a_parameter_without_a_gradient_counts_for_nothing(self):
        """Such as a bias before batch normalisation: its gradient is rounding error."""
        look, size = looking._Look(Session()), len(looking._Look(Session())._at_starts[0])
        truth = np.ones(size)
        truth[look._parts['conv1_b']] = 1e-6
        got = truth.copy()
        got[look._parts['conv1_b']] = -5e-6
        self.assertEqual(look.beside(got, truth, .05, 0)['parameters']['apart']['apart'], 0.0)
        self.assertEqual(look.beside(got * 0, truth * 0, .05, 0)['parameters'], {})

    def test_one_parameter_alone_fails_if_its_gradient_is_not_applied(self):
        fine = {'lr': .05, 'apart': .15, 'holds': .98, 'rounding': 1e-5, 'rank': 0, 'smooth': None}
        for frozen, precisions, count in ((True, {}, 1), (True, {'bf16': ''}, 1), (False, {}, 0), (False, {'bf16': ''}, 0)):
            worst = {'parameter': 'conv3_1a_w', 'apart': 1.0 if frozen else .2, 'holds': 0.0 if frozen else .8, 'numbers': 4096}
            entry = dict(fine, parameters={'apart': worst, 'holds': worst})
            made = timed.single(2, [{'phases': {'bench': [{'net': 'resnet20', 'single': [entry]}]}}], precisions)
            self.assertEqual(len(made), count, (frozen, precisions))
            if frozen:
                self.assertIn("15 % of the gradient; in parameter conv3_1a_w, it is 100 % of this parameter's gradient", made[0]['message'])
        rough = {'parameter': 'norm0_b', 'apart': .9, 'holds': .4, 'numbers': 16}
        entry = dict(fine, parameters={'apart': rough})       # in bfloat16, a small parameter may differ by so much
        self.assertEqual(timed.single(2, [{'phases': {'bench': [{'net': 'resnet20', 'single': [entry]}]}}], {'bf16': ''}), [])

    def test_a_small_error_without_a_pattern_fails_on_a_cpu(self):
        alone = self.single(1, (.05,), noise=.005)
        self.assertTrue(all(entry['clear'] for entry in alone))
        self.assertLess(max(entry['apart'] for entry in alone), timed.SINGLE_EXACT_APART)
        own = [{'phases': {'bench': [{'net': 'lenet', 'single': alone}]}}]
        made, = timed.single(1, own)
        self.assertEqual((made['status'], made['limit']), ('fail', timed.CLEAR_APART))
        for precisions, kind in (({'bf16': ''}, 'cpu'), ((), 'cuda')):
            self.assertEqual(timed.single(1, own, precisions, kind), [])
        self.assertLess(max(entry['apart'] for entry in self.single(1, (.05,))), timed.CLEAR_APART / 10)

    def test_a_small_error_of_the_exchange_without_a_pattern_fails_on_a_cpu(self):
        draw = np.random.RandomState(5)
        batch = draw.randint(0, 256, (32, 1, 28, 28)).astype('uint8'), draw.randint(0, 10, 32)
        images, labels, clear = looking.clear_images(Session(), batch)
        self.assertTrue(clear)
        for noise, said, status in ((.01, True, 'fail'), (.01, False, 'pass'), (0, True, 'pass')):
            together = dict(handle(2, 2, .01), noise=noise)
            part = Session.adapter.put(together, images, labels)
            found = looking.exchange(Session(), handle(1, 1, .01), (images, labels), [('train', together, lambda part=part: part, .05)], clear=said)
            looks = own_of_training([dict(entry, rank=0) for entry in found], [])
            made = [timed.exchange(2, looks, [], exact, kind)[0] for exact, kind in ((True, 'cpu'), (True, 'cuda'), (False, 'cpu'))]
            self.assertEqual([each['status'] for each in made], [status, 'pass', 'pass'], (noise, said))
        self.assertLess(made[0]['value'], made[0]['limit'] / 10)

    def test_a_fault_at_trained_weights_alone_fails_on_a_cpu(self):
        trained = dict((name, array * np.float32(1.5)) for name, array in nets.LENET.initial(9).items())
        draw = np.random.RandomState(5)
        batch = draw.randint(0, 256, (32, 1, 28, 28)).astype('uint8'), draw.randint(0, 10, 32)
        for bound, status in ((.06, 'fail'), (9, 'pass')):
            alone = looking.single(Session(), dict(handle(1, 1, .01), fails_above=bound), batch, (.05,), trained)
            self.assertEqual(sorted(set(entry['trained'] for entry in alone)), [False, True])
            own = [{'phases': {'train': {'net': 'lenet', 'single': alone}}}]
            self.assertEqual([made['status'] for made in timed.single(2, own)], ['fail'] if status == 'fail' else [])
            self.assertEqual(timed.single(2, own, (), 'cuda'), [])
            together = dict(handle(2, 2, .01), fails_above=bound)
            part = Session.adapter.put(together, *batch)
            found = looking.exchange(Session(), handle(1, 1, .01), batch, [('train', together, lambda part=part: part, .05)], trained)
            looks = own_of_training([dict(entry, rank=0) for entry in found], alone)
            made = dict(((exact, kind), timed.exchange(2, looks, [], exact, kind)[0]) for exact in (False, True) for kind in ('cpu', 'cuda'))
            self.assertEqual(made[True, 'cpu']['status'], status)
            self.assertEqual([made[key]['status'] for key in sorted(made) if key != (True, 'cpu')], ['pass'] * 3)
        self.assertIn('; the gradient of one device differs from that of NumPy by ', made[True, 'cpu']['message'])
        self.assertLess(made[True, 'cpu']['detail']['single'], timed.CLEAR_TRAINED_APART / 10)

    def test_trained_weights_that_are_not_finite_are_not_used(self):
        """Another check fails then: LOSS."""
        trained = dict(nets.LENET.initial(9), fc2_b=np.array([np.nan] * 10, 'float32'))
        draw = np.random.RandomState(5)
        batch = draw.randint(0, 256, (32, 1, 28, 28)).astype('uint8'), draw.randint(0, 10, 32)
        alone = looking.single(Session(), handle(1, 1, .01), batch, (.05,), trained)
        self.assertEqual(timed.single(2, [{'phases': {'train': {'net': 'lenet', 'single': alone}}}]), [])
        self.assertFalse(any(entry['trained'] for entry in alone))

    def test_images_for_which_a_relu_or_a_maximum_is_about_to_switch_are_replaced(self):
        """Relative noise of 1e-6 in the weights changes the gradient of the whole batch by 1.6 %."""
        images, labels = synth.digits(64, 5019)
        draw = np.random.RandomState(19)
        exact = dict((name, array.astype('float64')) for name, array in nets.LENET.initial(19).items())
        noisy = dict((name, array * (1 + 1e-6 * draw.randn(*array.shape))) for name, array in exact.items())

        def error(images, labels):
            first, second = (np.concatenate([array.reshape(-1) for _, array in sorted(refnet.loss_and_gradient(
                nets.LENET, weights, refnet.scaled(images), labels)[1].items())]) for weights in (exact, noisy))
            return np.linalg.norm(first - second) / np.linalg.norm(first)

        session = Session()
        session.plan = dict(Session.plan, seed=19)
        chosen = looking.clear_images(session, (images, labels))
        near = margins.about_to_switch(nets.LENET, exact, refnet.scaled(images))
        self.assertTrue(chosen[2] and near.any() and not near.all())
        self.assertEqual(chosen[0].shape, images.shape)
        self.assertFalse(margins.about_to_switch(nets.LENET, exact, refnet.scaled(chosen[0])).any())
        self.assertGreater(error(images, labels), .01)
        self.assertLess(error(*chosen[:2]), 1e-5)

    def test_equal_inputs_are_not_about_to_switch(self):
        """Such as those of a black part of an image."""
        black = np.zeros((2, 1, 28, 28), 'uint8')
        exact = dict((name, array.astype('float64')) for name, array in nets.LENET.initial(7).items())
        self.assertFalse(margins.about_to_switch(nets.LENET, exact, refnet.scaled(black)).any())

    def test_where_one_device_is_right_nothing_is_said(self):
        self.assertEqual(timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': self.single(1)}, {'net': 'lenet', 'single': None}]}}]), [])
        self.assertEqual(timed.single(1, [{'phases': {}}]), [])

    def test_the_batches_of_training_are_compared_with_numpy_as_well(self):
        """Some libraries choose their algorithms by the size of the batch, and one of them may be wrong."""
        good, wrong = self.single(1), self.single(2)
        for n in (1, 2):
            done = {'bench': [{'net': 'lenet', 'single': good}], 'train': {'net': 'lenet', 'single': wrong}}
            made, = timed.single(n, [{'phases': done}])
            self.assertEqual((made['id'], made['status']), ('EXCHANGE', 'fail'))
            self.assertIn('the training steps of one device (rank 0) do not change its weights by the gradient', made['message'])
            done['train']['single'] = good
            self.assertEqual(timed.single(n, [{'phases': done}]), [])

    def test_with_one_device_what_was_not_looked_at_is_said(self):
        hidden = {'lr': 1e-9, 'apart': 3.0, 'holds': 0.0, 'rounding': .9, 'rank': 0}
        for seen, words in ((None, 'the adapter cannot set weights'), ([hidden], 'rounding errors hide how a step changes the weights')):
            own = [{'phases': {'bench': [{'net': 'lenet', 'single': seen}]}}]
            made, = timed.single(1, own)
            self.assertEqual((made['id'], made['status'], made['message']), ('EXCHANGE', 'skip', 'not checked: ' + words))
            self.assertEqual(timed.single(2, own), [])      # with two devices, the check `exchange` reports it

    def test_a_wrong_loss_is_reported_although_the_weights_are_right(self):
        """Also one that begins only after many steps."""
        for times, begins, precisions in ((1.7, 0, {}), (1.01, 2, {}), (1.7, 2, {'bf16': ''})):
            alone = self.single(1, (.05,), **{'misreports': times, 'from': begins})
            made, = timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': alone}]}}], precisions)
            self.assertEqual((made['id'], made['status'], made['limit']), ('EXCHANGE', 'fail', .08 if precisions else 1e-3))
            self.assertIn('the timed steps of one device (rank 0) change the weights rightly, but report a loss that is %.4g times the right '
                          'one' % times, made['message'])
            found = self.apart(2, .01, **{'misreports': times, 'from': begins})
            made, = timed.exchange(2, own(bench([dict(found, rank=0)])), [], not precisions)
            self.assertIn('the timed steps with exchange (dp) (rank 0) change the weights rightly, but report a loss', made['message'])
        self.assertEqual(timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': self.single(1, misreports=1.01)}]}}], {'bf16': ''}), [])
        made, = timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': self.single(1, misreports=float('nan'))}]}}])
        self.assertTrue(made['message'].endswith('but report a loss that is not a finite number'), made['message'])
        self.assertLess(abs(self.apart(2, .01)['loss'] - 1), 1e-5)

    def test_a_single_parameter_may_be_less_wrong_in_exact_arithmetic(self):
        uneven = own(bench([entry(parameter='fc2_b', parameter_apart=.28)]))      # averaged with the weights 0.64 and 0.36
        self.assertEqual([timed.exchange(2, uneven, [], exact)[0]['status'] for exact in (False, True)], ['pass', 'fail'])

    def test_a_step_that_counts_a_little_more_fails_where_arithmetic_is_exact(self):
        """For networks without normalised layers, unless a reduced precision is allowed."""
        more = {'lr': .05, 'apart': .1, 'holds': 1.1, 'rounding': 1e-5, 'rank': 0}
        for net, precisions, count in (('lenet', (), 1), ('lenet', {'bf16': ''}, 0), ('resnet20', (), 0)):
            made = timed.single(1, [{'phases': {'bench': [{'net': net, 'single': [more]}]}}], precisions)
            self.assertEqual(len(made), count, (net, precisions))
        self.assertIn('10 % of the gradient; each step is 1.1 times as large', timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': [more]}]}}])[0]['message'])
        looks = own(bench([entry(apart=.08)]))
        self.assertEqual([timed.exchange(2, looks, [], exact)[0]['status'] for exact in (False, True)], ['pass', 'fail'])

    def test_a_small_error_that_a_decay_or_a_learning_rate_explains_fails_where_arithmetic_is_exact(self):
        for fault, words in ((dict(decay=.005), 'as if each step were 1 times as large, with a weight decay of 0.005'),
                             (dict(rate=1.01), 'as if each step were 1.01 times as large, with a weight decay of ')):
            found = self.apart(2, .01, **fault)
            self.assertLess(found['apart'], timed.EXACT_APART)
            statuses = [timed.exchange(2, own(bench([dict(found, rank=0)])), [], exact)[0]['status'] for exact in (False, True)]
            self.assertEqual(statuses, ['pass', 'fail'], fault)
            self.assertIn(words, timed.exchange(2, own(bench([dict(found, rank=0)])), [], True)[0]['message'])
            draw = np.random.RandomState(5)
            batch = draw.randint(0, 256, (32, 1, 28, 28)).astype('uint8'), draw.randint(0, 10, 32)
            alone = looking.single(Session(), dict(handle(1, 1, .01), **fault), batch, (.05,))
            made, = timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': alone}]}}])
            self.assertIn('each step is 1.01 times as large' if 'rate' in fault else 'gradient; it is ' + words, made['message'])
        healthy = self.apart(2, .01)
        self.assertFalse(timed.is_smooth(healthy), healthy)

    def test_a_small_decay_of_one_parameter_fails_where_arithmetic_is_exact(self):
        for name in ('conv2_w', 'fc1_w', 'fc2_w'):
            alone = self.single(1, (.05,), decay=.002, only=[name])
            self.assertLess(max(entry['apart'] for entry in alone), timed.SINGLE_EXACT_APART)
            own = [{'phases': {'bench': [{'net': 'lenet', 'single': alone}]}}]
            made, = timed.single(1, own)
            self.assertIn('; in parameter %s, it is as if each step were 1 times as large, with a weight decay of 0.002' % name, made['message'])
            self.assertEqual(timed.single(2, own, {'bf16': ''}), [])

    def test_gradients_in_half_precision_fail_where_arithmetic_is_exact(self):
        """Their error is as small as that of a ReLU that switches."""
        for kind, name in (('bf16', 'bfloat16'), ('fp16', 'float16')):
            for way in ('own', 'mean'):
                found = self.apart(2, .01, **{way: kind})
                self.assertLess(found['apart'], timed.EXACT_APART)
                self.assertEqual(timed.rounded_to(found), name, (way, found))
                statuses = [timed.exchange(2, own(bench([dict(found, rank=0)])), [], exact)[0]['status'] for exact in (False, True)]
                self.assertEqual(statuses, ['pass', 'fail'], (way, found))
                self.assertIn('the gradients are rounded to ' + name, timed.exchange(2, own(bench([dict(found, rank=0)])), [], True)[0]['message'])
            draw = np.random.RandomState(5)
            batch = draw.randint(0, 256, (32, 1, 28, 28)).astype('uint8'), draw.randint(0, 10, 32)
            alone = looking.single(Session(), dict(handle(1, 1, .01), own=kind), batch, (.05,))
            made, = timed.single(1, [{'phases': {'bench': [{'net': 'lenet', 'single': alone}]}}])
            self.assertIn('the gradients are rounded to ' + name, made['message'])
        for healthy in [self.apart(2, momentum) for momentum in (0.0, .01, .1)] + self.single(1):
            self.assertFalse(timed.rounded_to(healthy), healthy)
            self.assertTrue(healthy['rounded'] or healthy['lr'] < .05, healthy)

    def test_a_sum_that_is_rounded_at_each_addition_fails_with_any_number_of_devices(self):
        for devices in (3, 4, 8):
            for kind, name in (('bf16', 'bfloat16'), ('fp16', 'float16')):
                found = self.apart(devices, .01, devices=devices, add=add_in(kind))
                self.assertEqual(timed.rounded_to(found), name, (devices, found))
            healthy = self.apart(devices, .01, devices=devices)
            self.assertFalse(timed.rounded_to(healthy), healthy)
            self.assertGreater(min(healthy['rounded'].values()), .3)         # chance: it can be told, and it is not

    def test_zeros_are_no_sign_of_rounding(self):
        """The gradients of units that no image of the batch reaches."""
        singles = np.random.RandomState(3).normal(size=(2, 4000))
        singles[:, 400:] = 0
        for kind, name in rounded.TYPES.items():
            self.assertLess(max(rounded.shares(singles.mean(axis=0), singles, 1e-9).values()), .6)
            self.assertEqual(rounded.shares(half(singles.mean(axis=0), kind), singles, 1e-9)[name], 1.0)

    def test_devices_that_still_work_after_a_lap_make_its_time_wrong(self):
        for late, count in (({'dp': 1e-4}, 0), ({'dp': .2, 'input': 3.0}, 1), ({}, 0)):
            made = timed.drained(2, [{'phases': {'bench': [{'late': late}]}}])
            self.assertEqual(len(made), count, late)
        self.assertEqual((made, timed.drained(2, [{'phases': {}}])), ([], []))

    def test_a_large_network_in_bfloat16_must_hold_most_of_its_gradient(self):
        rounded = {'lr': .05, 'apart': .65, 'holds': .81, 'rounding': 1e-5, 'rank': 0}
        allowed = {'bf16': ''}
        for net, precisions, seen, count in (
                ('vgg19_bn', allowed, {}, 0), ('vgg19_bn', allowed, {'holds': .1}, 1), ('vgg19_bn', {}, {}, 1), ('lenet', allowed, {}, 1),
                ('vgg19_bn', allowed, {'holds': 32.0, 'apart': 31.0}, 1), ('vgg19_bn', allowed, {'holds': 1.0, 'apart': 9.0}, 1),
                ('vgg19_bn', allowed, {'holds': looking.NOT_FINITE, 'apart': looking.NOT_FINITE}, 1)):
            own = [{'phases': {'bench': [{'net': net, 'single': [dict(rounded, **seen)]}]}}]
            self.assertEqual(len(timed.single(1, own, precisions)), count, (net, precisions, seen))


if __name__ == '__main__':
    unittest.main()

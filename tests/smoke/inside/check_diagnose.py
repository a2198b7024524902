"""Which cause the check names for which weights: every known fault at a size that is just noticeable, and faults without a
name.
"""
from __future__ import absolute_import, division, print_function

import re
import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import checks, diagnose, fitting, hypotheses, precision, simulate
from envbuild_smoke.launching import launch
from envbuild_smoke.networks import nets, refnet, rounding
from machines import gpu

BATCH, STEPS, LR, MOMENTUM = 16, 4, .05, .9
SUSPECTS = ('conv1_b', 'fc1_w')


def case(replicas):
    images, labels = synth.digits(STEPS * BATCH, 105)
    net = nets.REFERENCE
    return simulate.Case(net, net.initial(7), images, labels, STEPS, BATCH, replicas, LR, MOMENTUM)


def reference(one):
    return refnet.train(one.net, one.start, one.images, one.labels, STEPS, BATCH, LR, MOMENTUM)[0]


def single(weights):
    """The weights that a framework in single precision would compute."""
    draw = np.random.RandomState(1)
    return dict((name, (a + draw.normal(0, 1e-8, a.shape)).astype('float32')) for name, a in weights.items())


def trained(one, **switches):
    return [(replica, single(weights)) for replica, weights in enumerate(diagnose.simulate(one, **switches))]


class Remembered(object):
    """A cache around `simulate`: a table of n faults then needs n simulations of the hypotheses instead of n times n."""

    def __init__(self):
        self._known, self._real = {}, simulate.simulate

    def __call__(self, one, **switches):
        told = sorted((name, value.tolist() if isinstance(value, np.ndarray) else repr(value)) for name, value in switches.items())
        key = one.replicas, repr(told)
        if key not in self._known:
            self._known[key] = self._real(one, **switches)
        return self._known[key]


def setUpModule():
    diagnose.simulate = fitting.simulate = Remembered()


class Known(unittest.TestCase):
    def test_every_known_fault_is_named(self):
        for replicas, count in ((1, 15), (2, 37)):
            one = case(replicas)
            want = reference(one)
            listed = hypotheses.known(one, SUSPECTS)
            self.assertEqual(len(listed), count)
            for key, sentence, switches in listed:
                copies = [(replica, single(weights)) for replica, weights in enumerate(diagnose.simulate(one, **switches))]
                fault = diagnose.name_fault(one, copies, want, SUSPECTS)
                self.assertEqual((fault['id'], fault['sentence']), (key, sentence), fault)


class Sized(unittest.TestCase):
    def named(self, one, copies):
        return diagnose.name_fault(one, copies, reference(one), ('fc2_b',))

    def test_learning_rate_momentum_and_decay_are_told_with_their_size(self):
        one = case(1)
        for switches, key, words in (
                (dict(lr=1.01), 'learning-rate', '1 % higher: 0.0505 instead of 0.05'),
                (dict(lr=1.1), 'learning-rate', '10 % higher: 0.055 instead of 0.05'),
                (dict(lr=.25), 'learning-rate', '0.25 times as high: 0.0125 instead of 0.05'),
                (dict(momentum=.95), 'momentum', 'momentum is 0.95 instead of 0.9'),
                (dict(momentum=.89), 'momentum', 'momentum is 0.89 instead of 0.9'),
                (dict(decay=5e-4), 'weight-decay', 'a weight decay of 0.0005 is active, but none was set'),
                (dict(decay=1e-5), 'weight-decay', 'a weight decay of 1e-05 is active, but none was set'),
                (dict(counts=(1, .99, .99, .99)), 'dampening', 'a dampening of 0.01 is active: after the first step, '
                                                               'gradients count 1 % less'),
                (dict(smoothing=.02), 'label-smoothing', 'labels are smoothed by 0.02: each class gets 0.002 of every label')):
            fault = self.named(one, trained(one, **switches))
            self.assertEqual(fault['id'], key, (switches, fault))
            self.assertIn(words, fault['sentence'])

    def test_what_one_replica_does_otherwise_is_named_with_the_replica(self):
        one = case(2)
        for number, (other, key, words) in enumerate((
                (dict(momentum=0.0), 'no-momentum', 'does not apply momentum: its optimizer loses its state'),
                (dict(never=''), 'frozen', 'never updates its parameters'),
                (dict(never='_b'), 'frozen-biases', 'never updates its biases'),
                (dict(lr=1.05), 'learning-rate', 'the effective learning rate is 5 % higher'),
                (dict(lr=2.0), 'learning-rate', 'the effective learning rate is 2 times as high'),
                (dict(decay=1e-3), 'weight-decay', 'a weight decay of 0.001 is active, but none was set'))):
            replica = number % 2
            fault = self.named(one, trained(one, other=(replica, other)))
            self.assertEqual(fault['id'], '%s-rank-%d' % (key, replica), (other, fault))
            self.assertIn(words, fault['sentence'])
            self.assertIn('replica %d ' % replica, fault['sentence'])

    def test_replicas_that_differ_by_something_else_get_no_name_of_one_replica(self):
        """One replica gets other images in each step. The other replica is right, and its rounding errors must not be called
        noise.
        """
        one, other = case(2), case(2)
        other.images = one.images[::-1].copy()
        fault = self.named(one, [(0, single(reference(one))), (1, single(simulate.simulate(other)[1]))])
        self.assertEqual(fault['id'], '', fault)

    def test_wrong_labels_are_found_one_by_one(self):
        one = case(2)
        for share in (1, 3):
            labels, places = one.labels.copy(), []
            for step in range(STEPS):
                places += [step * BATCH + place for place in range(2, 2 + share)]
            labels[places] = (labels[places] + 3) % 10
            fault = self.named(one, trained(one, labels=labels))
            self.assertEqual(fault['id'], 'wrong-labels', fault)
            self.assertIn('%d of 64 labels are wrong, in 4 of 4 batches; the first is that of image 2' % len(places), fault['sentence'])


class Judged(unittest.TestCase):
    def judged(self, one, copies, *possible):
        return checks.oracle(one.replicas, one, reference(one), copies, possible=dict((kind, 'x') for kind in possible))[0]


class Rounded(Judged):
    def test_gradients_in_half_precision_are_named(self):
        for kind in ('float16', 'bfloat16'):
            for way in ('summed', 'divided', 'each', 'after', 'both'):
                one = case(2)
                made = self.judged(one, trained(one, cast=(kind, way)))
                self.assertEqual((made['status'], made['message']), ('fail', 'gradients are exchanged in ' + kind))

    def test_reduced_precision_passes_with_a_warning_only_where_it_can_be_in_use(self):
        one = case(1)
        for kind in precision.KINDS:
            copies = trained(one, numbers=rounding.Reduced(kind))
            for possible, status in (((kind,), 'warn'), ((), 'fail')):
                made = self.judged(one, copies, *possible)
                self.assertEqual((made['status'], made['detail']['hypothesis']['id']), (status, 'reduced-' + kind), made)

    def test_noise_as_large_as_a_rounding_error_is_no_rounding(self):
        one = case(1)
        want, draw = reference(one), np.random.RandomState(5)
        rounded = simulate.simulate(one, numbers=rounding.Reduced('bf16'))[0]
        noise = [(0, dict((name, want[name] + np.linalg.norm(rounded[name] - want[name]) * draw.normal(0, 1, a.shape)
                           / np.sqrt(a.size)) for name, a in want.items()))]
        made = self.judged(one, noise, 'bf16')
        self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', 'noise'))

    def test_a_small_fault_does_not_hide_behind_bfloat16(self):
        """The errors of the faults are as large as that of bfloat16, or are added to it."""
        one, rounded = case(2), rounding.Reduced('bf16')
        for switches in (dict(shares=(1.012, .988)), dict(numbers=rounded, lr=1.03)):
            made = self.judged(one, trained(one, **switches), 'bf16')
            self.assertEqual(made['status'], 'fail', (switches, made))
        self.assertEqual(self.judged(one, trained(one, numbers=rounded), 'bf16')['status'], 'warn')

    def test_a_fault_is_no_precision_where_that_can_be_in_use(self):
        one = case(2)
        labels = one.labels.copy()
        labels[::BATCH] = (labels[::BATCH] + 1) % 10
        for switches in (dict(lr=.998), dict(lr=1.01), dict(momentum=.91), dict(decay=5e-4), dict(labels=labels),
                         dict(cast=('bfloat16', 'summed')), dict(silent=('fc2_b', 1))):
            made = self.judged(one, trained(one, **switches), 'tf32')
            self.assertEqual(made['status'], 'fail', (switches, made))


class Possible(unittest.TestCase):
    def kinds(self, cc=None, options=None, **variables):
        devices = [gpu(0, cc=cc)] if cc else []
        return sorted(precision.possible('cuda' if cc else 'cpu', devices, options or {}, variables))

    def test_tf32_is_switched_off_on_every_gpu(self):
        """The launch sets NVIDIA_TF32_OVERRIDE=0, whatever the user has set."""
        for cc in ('7.5', '8.0', '9.0', '12.0'):
            self.assertEqual(self.kinds(cc), [])
            self.assertEqual(self.kinds(cc, NVIDIA_TF32_OVERRIDE='1'), [])
        plan = {'places': [], 'threads': 1, 'processes': 1, 'interface': '', 'folder': '/'}
        self.assertEqual(launch.environment(plan, 0, {'NVIDIA_TF32_OVERRIDE': '1'})['NVIDIA_TF32_OVERRIDE'], '0')

    def test_an_error_as_large_as_that_of_tf32_fails_on_a_gpu_where_tf32_is_off(self):
        one = case(1)
        rounded = [(0, simulate.simulate(one, numbers=rounding.Reduced('tf32'))[0])]
        for kind, cc in (('cuda', '8.0'), ('cpu', '9.0')):
            possible = precision.possible(kind, [gpu(0, cc=cc)], {}, {})
            made, = checks.oracle(1, one, reference(one), rounded, possible=possible)
            self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', 'reduced-tf32'))

    def test_others_must_be_asked_for(self):
        self.assertEqual(self.kinds(), [])
        self.assertEqual(self.kinds(ONEDNN_DEFAULT_FPMATH_MODE='BF16'), ['bf16'])
        self.assertEqual(self.kinds('9.0', ONEDNN_DEFAULT_FPMATH_MODE='BF16'), [])      # affects CPUs only
        self.assertEqual(self.kinds(ONEDNN_DEFAULT_FPMATH_MODE='STRICT'), [])
        self.assertEqual(self.kinds(DNNL_DEFAULT_FPMATH_MODE='any'), ['bf16', 'fp16', 'tf32'])
        self.assertEqual(self.kinds('7.0', MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION='1'), ['fp16'])
        self.assertEqual(self.kinds('6.1', MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION='1'), [])
        self.assertEqual(self.kinds('7.0', TF_ENABLE_AUTO_MIXED_PRECISION='1'), ['fp16'])
        self.assertEqual(self.kinds(options={'precision': 'bf16'}), ['bf16'])
        self.assertEqual(self.kinds('9.0', options={'precision': 'tf32'}), [])          # the launch switches TF32 off on GPUs


class Likeness(Judged):
    def test_noise_is_named_with_its_size(self):
        for replicas, size in ((1, 1e-3), (2, 1e-2), (1, 2e-4)):
            one = case(replicas)
            made = self.judged(one, self.noisy(one, size))
            self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', 'noise'), made)
            said = float(re.search(r'random errors of about (\S+) of their size', made['message']).group(1))
            self.assertTrue(0.8 * size <= said <= 1.25 * size, made['message'])

    @staticmethod
    def noisy(one, size):
        draw, want = np.random.RandomState(4), reference(one)
        made = dict((name, want[name] + size * draw.normal(0, 1, a.shape) * (want[name] - a)) for name, a in one.start.items())
        return [(replica, made) for replica in range(one.replicas)]

    def test_a_strange_fault_is_no_noise(self):
        """One image of each batch occurs twice. That is a systematic error for which there is no hypothesis."""
        one = case(1)
        other = case(1)
        other.images, other.labels = one.images.copy(), one.labels.copy()
        other.images[1::BATCH], other.labels[1::BATCH] = one.images[::BATCH], one.labels[::BATCH]
        made = self.judged(one, trained(other))
        self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', ''), made)

    def test_bfloat16_is_recognised_where_a_library_rounds_other_numbers(self):
        """Only dense layers compute in bfloat16, and each number is cut off: not one of the simulated ways.

        The check fails, because no reduced precision is allowed.
        """
        one = case(1)
        other = rounding.Reduced('bf16')
        other.give = lambda op, array: array
        made = self.judged(one, trained(one, numbers=other))
        self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', 'reduced-bf16'), made)

    def test_weights_in_half_precision_and_stale_gradients_are_named(self):
        one = case(2)
        for switches, key in ((dict(kept='float16'), 'weights-in-float16'), (dict(kept='bfloat16'), 'weights-in-bfloat16'),
                              (dict(start='float16'), 'start-in-float16'), (dict(stale=(1, 'zero')), 'stale-rank-1'),
                              (dict(stale=(0, 'fresh')), 'stale-rank-0')):
            made = self.judged(one, trained(one, **switches))
            self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', key), made)


class OnGpus(unittest.TestCase):
    """cuDNN computes the gradient of a convolution's kernel by a Winograd transform, whose rounding is like noise of 1e-4."""

    def judged(self, one, **switches):
        draw, copies = np.random.RandomState(4), []
        # Not by the cache in `diagnose`, which does not know whose images another test has changed.
        for replica, got in enumerate(single(weights) for weights in simulate.simulate(one, **switches)):
            noise = dict((name, 1e-4 * draw.normal(0, 1, got[name].shape) * np.abs(got[name] - one.start[name])) for name in one.net.kernels)
            copies.append((replica, dict(got, **dict((name, got[name] + each) for name, each in noise.items()))))
        return checks.oracle(one.replicas, one, reference(one), copies, kind='cuda')[0]

    def test_the_rounding_of_kernels_is_no_fault(self):
        self.assertEqual(self.judged(case(1))['status'], 'pass')

    def test_a_fault_of_one_kernel_is_named(self):
        for switches, name in ((dict(silent=('conv2_w', 1)), 'silent-conv2_w-rank-1'), (dict(frozen=('conv2_w', None)), 'frozen-conv2_w')):
            made = self.judged(case(2), **switches)
            self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', name), made['message'])
            self.assertEqual(made['detail']['worst_parameter'], 'conv2_w')

    def test_it_hides_no_name(self):
        for switches, name in ((dict(cast=('float16', 'each')), 'gradients-in-float16'), (dict(lr=1.01), 'learning-rate'),
                               (dict(lr=1.0001), 'learning-rate'), (dict(momentum=.9001), 'momentum'), (dict(decay=1e-5), 'weight-decay')):
            made = self.judged(case(1), **switches)
            self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', name), made['message'])


ALONE = {'status': 'pass', 'value': 1e-6}


class Nameless(unittest.TestCase):
    def test_a_stranger_gets_no_name(self):
        one = case(2)
        got = dict((name, a + np.random.RandomState(2).normal(0, .1, a.shape).astype('float32')) for name, a in one.start.items())
        fault = diagnose.name_fault(one, [(0, got), (1, got)], reference(one))
        self.assertEqual((fault['id'], fault['sentence']), ('', ''))

    def test_a_race_is_named_only_where_nothing_else_explains_it(self):
        one = case(2)
        want, draw = reference(one), np.random.RandomState(3)
        copies = [(r, dict((name, a + 1e-3 * draw.normal(0, 1, a.shape) * np.abs(a - one.start[name])) for name, a in want.items()))
                  for r in range(2)]
        self.assertIn('may race with', checks.oracle(2, one, want, copies, alone=ALONE)[0]['message'])
        self.assertNotIn('may race with', checks.oracle(2, one, want, trained(one, lr=1.01), alone=ALONE)[0]['message'])
        self.assertNotIn('may race with', checks.oracle(2, one, want, copies, alone=dict(ALONE, status='fail'))[0]['message'])

    def test_an_error_with_a_structure_is_not_called_a_race(self):
        """One replica mirrors its images. There is no hypothesis for that, and the error is the same in every run."""
        one, other = case(2), case(2)
        want, other.images = reference(one), one.images.copy()
        for step in range(STEPS):
            second = slice(step * BATCH + BATCH // 2, (step + 1) * BATCH)
            other.images[second] = one.images[second][..., ::-1]
        made = checks.oracle(2, one, want, trained(other), alone=ALONE)[0]
        self.assertEqual((made['status'], made['detail']['hypothesis']['id']), ('fail', ''), made)
        self.assertNotIn('may race with', made['message'])
        self.assertIn('the division of the data, the exchange', made['next_step'])

    def test_not_finite_and_untouched_weights(self):
        one = case(2)
        want, broken = reference(one), dict(one.start, fc2_b=one.start['fc2_b'] * np.nan)
        self.assertEqual(diagnose.name_fault(one, [(0, one.start), (1, broken)], want)['id'], 'not-finite')
        self.assertEqual(diagnose.name_fault(one, [(0, one.start)], want)['id'], 'no-update')

    def test_without_a_fault_the_simulation_is_the_reference(self):
        one = case(2)
        for got in simulate.simulate(one):
            self.assertLess(refnet.errors(got, reference(one), one.start)[0], 1e-12)


if __name__ == '__main__':
    unittest.main()

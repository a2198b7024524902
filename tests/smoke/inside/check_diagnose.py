from __future__ import absolute_import, division, print_function

import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.datasets import synth
from envbuild_smoke.judging import diagnose
from envbuild_smoke.networks import nets, refnet

SUSPECTS = ('conv1_b', 'fc2_b', 'fc1_w')


def rounded(weights):
    """What a framework in single precision would have got."""
    draw = np.random.RandomState(1)
    return dict((name, (a + draw.normal(0, 1e-7, a.shape)).astype('float32')) for name, a in weights.items())


class Names(unittest.TestCase):
    def case(self, replicas):
        images, labels = synth.digits(4 * 16, 105)
        return diagnose.Case(nets.REFERENCE, nets.REFERENCE.initial(7), images, labels, 4, 16, replicas, .05, .9)

    def test_every_known_fault_is_named(self):
        for replicas in (1, 2):
            case, seen = self.case(replicas), 0
            for key, sentence, switches in diagnose.hypotheses(replicas, SUSPECTS if replicas > 1 else ()):
                copies = [(replica, rounded(weights)) for replica, weights in enumerate(case.model(key, switches))]
                fault = diagnose.name_fault(case, copies, SUSPECTS if replicas > 1 else ())
                self.assertEqual((fault['id'], fault['sentence']), (key, sentence), fault)
                seen += 1
            self.assertEqual(seen, 10 if replicas == 1 else 19)

    def test_a_stranger_gets_no_name(self):
        case = self.case(2)
        got = dict((name, a + np.random.RandomState(2).normal(0, .1, a.shape).astype('float32')) for name, a in case.start.items())
        fault = diagnose.name_fault(case, [(0, got)])
        self.assertEqual((fault['id'], fault['sentence']), ('', ''))

    def test_not_finite_and_untouched_weights(self):
        case = self.case(2)
        broken = dict(case.start, fc2_b=case.start['fc2_b'] * np.nan)
        self.assertEqual(diagnose.name_fault(case, [(0, case.start), (1, broken)])['id'], 'not-finite')
        self.assertEqual(diagnose.name_fault(case, [(0, case.start)])['id'], 'no-update')

    def test_without_a_fault_the_simulation_is_the_reference(self):
        case = self.case(2)
        want, _ = refnet.train(nets.REFERENCE, case.start, case.images, case.labels, 4, 16, .05, .9)
        for got in diagnose.simulate(case):
            self.assertLess(refnet.errors(got, want, case.start)[0], 1e-12)


if __name__ == '__main__':
    unittest.main()

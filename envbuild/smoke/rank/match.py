"""Phase `oracle`: trains the reference network for a few steps with the framework. judging.checks compares the weights."""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..datasets import synth
from ..networks import nets


def measure(session):
    """Return the digests of this process's replicas after each step, the losses, and the files with their final weights."""
    plan, adapter = session.plan['oracle'], session.adapter
    images, labels = session.data('oracle')
    net = nets.of(plan['net'])
    handle = session.make('mean', plan['lr'], net=net)
    digests, losses = [], []
    for step in range(plan['steps']):
        part = slice(step * plan['batch'], (step + 1) * plan['batch'])
        token = adapter.step(handle, adapter.put(handle, images[part], labels[part]), plan['lr'])
        losses.append(adapter.loss(token))
        adapter.drain()
        copies = [adapter.weights(handle, copy) for copy in range(adapter.copies(handle))]
        digests.append([fingerprint(weights) for weights in copies])
        session.heart.beat(step + 1, plan['steps'])
    saved = []
    for place, weights in enumerate(copies):
        path = session.path('weights-%d-%d.npz' % (session.ctx.rank, place))
        np.savez(path, **dict((name, np.asarray(weights[name], 'float32')) for name in net.names))
        saved.append(path)
    return {'digests': digests, 'losses': losses, 'weights': saved, 'evidence': adapter.evidence(handle)}


def fingerprint(weights):
    """Return {parameter: short digest of its bits}."""
    return dict((name, synth.digest(np.asarray(weights[name], 'float32'))[:16]) for name in weights)

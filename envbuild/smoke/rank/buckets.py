"""Phase `buckets`: some training steps of a network whose gradients fill several exchange buckets. This side only measures.

Weights are compared by their digests. Only copies that differ are written to disk, KEPT at most: a healthy run writes one file of
40 MB after each step, however many ranks there are.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import nets
from .match import fingerprint

KEPT = 2


def measure(session):
    """Digests of every copy after each step, and where the weights that differ lie; 'reason' if the network cannot be built."""
    plan, adapter = session.plan['buckets'], session.adapter
    net = nets.of(plan['net'])
    reason = getattr(adapter, 'without', {}).get(net.name, '')
    if reason:
        return {'reason': reason}
    images, labels = session.data('oracle')
    handle = session.make('mean', plan['lr'], net=net)
    digests, weights = [], []
    session.heart.beat()
    for step in range(plan['steps']):
        part = slice(step * plan['batch'], (step + 1) * plan['batch'])
        adapter.step(handle, adapter.put(handle, images[part], labels[part]), plan['lr'])
        adapter.drain()
        digests.append([fingerprint(adapter.weights(handle, copy)) for copy in range(adapter.copies(handle))])
        session.heart.beat(step + 1, plan['steps'])
        weights += _written(session, handle, step, digests[-1])
    return {'reason': '', 'digests': digests, 'weights': weights}


def _written(session, handle, step, own):
    """Save each of this process's copies that differs from all earlier ones: [{'step', 'replica', 'path'}]."""
    everybody = session.ctx.group.gather(own)
    before = sum(len(each) for each in everybody[:session.ctx.rank])
    every = sum(everybody, [])
    first = [replica for replica, each in enumerate(every) if each not in every[:replica]][:KEPT]
    out = []
    for replica in first:
        if before <= replica < before + len(own):
            path = session.path('buckets-%d-%d.npz' % (step + 1, replica))
            np.savez(path, **session.adapter.weights(handle, replica - before))
            out.append({'step': step + 1, 'replica': replica, 'path': path})
    return out

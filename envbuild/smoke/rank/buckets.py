"""Phase `buckets`: trains a few steps of a network whose gradients fill several exchange buckets. judging.buckets judges the
result.

The weights of replicas are compared by digests. Only replicas that differ are written to disk, at most KEPT of them after each
step. So a healthy run writes one file of 40 MB after each step, however many ranks there are.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..networks import nets
from .match import fingerprint

KEPT = 2


def measure(session):
    """Return the digests of this process's replicas after each step, and the files with weights that differ.

    `reason` says why the framework cannot build the network, or is ''.
    """
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
    """Save each replica of this process that differs from all replicas before it; return [{'step', 'replica', 'path'}]."""
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

"""Phases `oracle` and `oracle_again`: train the reference network with the framework, before and after the workloads.

The limits for this network are far narrower than the limits for the timed steps. The second training shows small faults that
begin only after many steps. judging.checks compares the weights after the first steps with the reference. judging.later_steps
examines every step, the first ones too: it computes the change of the weights again from the weights before the step.
judging.reported compares the losses and the outputs that the framework reports.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..datasets import synth
from ..networks import nets

ANSWERED = 64           # images of which the outputs are compared
FALL = .01              # the share by which the learning rate falls in each step that only judging.later_steps examines


def rate_of(step, compared, lr):
    """The learning rate of a step, counted from 0: `lr` in the first `compared` steps, which the reference network also makes.

    Afterwards it falls in each step, as in phase `train`. So an optimizer that loses its momentum when the learning rate changes
    is noticed, and one that goes on with the first learning rate.
    """
    return lr * (1 - FALL * max(0, step + 1 - compared))


def measure(session):
    """Train the network; see _measured."""
    return _measured(session, '')


def again(session):
    """Train the network once more, from the same start, after the workloads; see _measured."""
    return _measured(session, 'again-')


def _measured(session, prefix):
    """Return the measurements of this process.

    `began` has for each of its replicas the largest difference of each parameter from the weights that the replica was given,
    before the first step; parameters without a difference are left out.
    `digests` describe its replicas after each step. `weights` are the files with the weights of its replicas after
    plan['steps'] steps. On rank 0, `every_step` is the file with the weights of the first replica after every step, if the plan
    has later steps (`more`); else it is None. `answers` is the file with the logits of the first ANSWERED images after the last
    step, under the same condition; every rank has its own.
    """
    plan, adapter = session.plan['oracle'], session.adapter
    images, labels = session.data('oracle')
    net = nets.of(plan['net'])
    handle = session.make('mean', plan['lr'], net=net)
    steps = plan['steps'] + plan.get('more', 0)
    began = [_differences(net, adapter.weights(handle, copy), net.initial(session.plan['seed'])) for copy in range(adapter.copies(handle))]
    digests, losses, saved, followed = [], [], [], []
    for step in range(steps):
        low = step % plan['steps'] * plan['batch']          # later steps train on the same batches again
        part = slice(low, low + plan['batch'])
        rate = rate_of(step, plan['steps'], plan['lr'])
        token = adapter.step(handle, adapter.put(handle, images[part], labels[part]), rate)
        losses.append(adapter.loss(token))
        adapter.drain()
        copies = [dict((name, np.array(each[name], 'float32')) for name in net.names)
                  for each in [adapter.weights(handle, copy) for copy in range(adapter.copies(handle))]]
        digests.append([fingerprint(weights) for weights in copies])
        followed.append(copies[0])
        session.heart.beat(step + 1, steps)
        if step + 1 == plan['steps']:
            saved = [_kept(session, '%sweights-%d-%d' % (prefix, session.ctx.rank, place), weights) for place, weights in enumerate(copies)]
    every = answers = None
    if plan.get('more', 0):
        logits = np.asarray(adapter.predict(handle, images[:ANSWERED]), 'float32')
        answers = _kept(session, '%sanswers-%d' % (prefix, session.ctx.rank), {'logits': logits})
        if session.ctx.rank == 0:
            every = _kept(session, prefix + 'every-step', dict((name, np.stack([each[name] for each in followed])) for name in net.names))
    return {'began': began, 'digests': digests, 'losses': losses, 'weights': saved, 'every_step': every, 'answers': answers,
            'evidence': adapter.evidence(handle)}


def _differences(net, weights, given):
    apart = dict((name, float(np.abs(np.asarray(weights[name], 'float64') - given[name]).max())) for name in net.names)
    return dict((name, size if np.isfinite(size) else 1e9) for name, size in apart.items() if size != 0)


def _kept(session, name, arrays):
    """Write arrays into a file of this launch; return its path."""
    path = session.path(name + '.npz')
    np.savez(path, **arrays)
    return path


def fingerprint(weights):
    """Return {parameter: short digest of its bits}."""
    return dict((name, synth.digest(np.asarray(weights[name], 'float32'))[:16]) for name in weights)

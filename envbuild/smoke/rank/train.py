"""Phase `train`: trains some epochs on the data of the workload, then measures the accuracy on other images."""
from __future__ import absolute_import, division, print_function

import numpy as np

from ..clock import now
from ..datasets import synth
from ..networks import refnet
from . import timed

SLICE = 256         # images per prediction
ODD = 37            # another size for a prediction: libraries treat the rest of a division by 8, 16 or 32 in another way


def measure(session):
    """Return this process's losses, its part of the test results, digests of its replicas, and the seconds of training."""
    plan, adapter, group = session.plan['train'], session.adapter, session.ctx.group
    images, labels = session.data('train')
    session.trained = handle = session.make('mean', plan['lr'])
    per_epoch = len(images) // plan['batch']
    total, tokens = plan['epochs'] * per_epoch, []
    group.barrier()
    start = now()
    for epoch in range(plan['epochs']):
        order = synth.order(len(images), session.plan['seed'] + epoch)
        for i in range(per_epoch):
            pick = order[i * plan['batch']:(i + 1) * plan['batch']]
            lr = plan['lr'] * (1 - 0.9 * len(tokens) / total)          # the learning rate falls linearly to a tenth
            tokens.append(adapter.step(handle, adapter.put(handle, images[pick], labels[pick]), lr))
            session.heart.beat(len(tokens), total)
    adapter.drain()
    group.barrier()
    seconds = now() - start
    session.heart.enter(session.heart.phase + ' check')
    losses = [adapter.loss(token) for token in tokens]
    right, asked, outputs = _score(session, handle)
    digests = timed.digests(adapter, handle)
    exchanged, single = _checked(session, handle) if plan.get('checked', True) else (None, None)
    return {
        'checked': {'exchange': exchanged} if session.ctx.replicas > 1 and plan.get('checked', True) else None,
        'single': single, 'net': session.net.name,
        'seconds': seconds, 'steps': total, 'losses': [value if np.isfinite(value) else None for value in losses],
        'right': right, 'asked': asked, 'outputs_apart': outputs, 'evidence': adapter.evidence(handle),
        'digests': digests,
    }


def _checked(session, handle):
    """Return what timed.exchange says of the trained model, and what timed.single says of a model on one device.

    The trained model gets its trained weights again. The single model is compared with NumPy here as well as after the timed
    steps, because the batches of training can have another size, and libraries choose their algorithms by the size.
    """
    plan, adapter = session.plan['train'], session.adapter
    if not timed.can_assign(adapter):
        return None, None
    images, labels = session.data('train')
    pair = np.asarray(images[:plan['batch']]), labels[:plan['batch']]
    alone, exchanged = session.make('none', plan['lr'], [0]), None
    trained = [adapter.weights(handle, copy) for copy in range(adapter.copies(handle))]
    start = None if session.net.normalised else trained[0]          # the running means of a normalised network are not set
    if session.ctx.replicas > 1:
        images, labels, clear = timed.clear_images(session, pair, start)
        pair = images, labels
        exchanged = timed.exchange(session, alone, pair, [('train', handle, lambda: adapter.put(handle, *pair), timed.LR)], start, clear)
        for copy, weights in enumerate(trained):
            adapter.assign(handle, copy, weights)
    return exchanged, timed.single(session, alone, pair, [timed.LR], start)


def _score(session, handle):
    """Return (right predictions, test images, error of the outputs) of this process.

    Each process predicts its part of the test images. The error is the distance of the first SLICE outputs from NumPy's, as a
    share of their size, or that of the first ODD outputs, if they are predicted alone and this error is larger. It is None for
    networks with batch normalisation, whose running means NumPy does not follow.
    """
    images, labels = session.data('test')
    images, labels = images[session.ctx.rank::session.ctx.world], labels[session.ctx.rank::session.ctx.world]
    right, error = 0, None
    for low in range(0, len(images), SLICE):
        answer = np.asarray(session.adapter.predict(handle, images[low:low + SLICE]))
        if low == 0 and not session.net.normalised:
            few = np.asarray(session.adapter.predict(handle, images[:ODD]))
            error = max(_from_numpy(session, handle, images[:len(each)], each) for each in (answer, few))
        right += int((answer.argmax(axis=1) == labels[low:low + SLICE]).sum())
        session.heart.beat()
    return right, len(images), error


def _from_numpy(session, handle, images, answer):
    weights = session.adapter.weights(handle, 0)
    wanted = refnet.logits(session.net, dict((name, np.asarray(each, 'float64')) for name, each in weights.items()), refnet.scaled(images))
    error = float(np.linalg.norm(answer - wanted) / max(np.linalg.norm(wanted), 1e-300))
    return error if np.isfinite(error) else timed.NOT_FINITE

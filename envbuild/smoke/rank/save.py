"""Phase `save`: rank 0 saves the trained model, restores it into a fresh model, and compares the outputs of both."""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from ..clock import now

QUESTIONS = 64


def measure(session):
    """Return how far the parameters and outputs of the restored model are from the saved one.

    `reason` says why the adapter cannot save, or is ''.
    """
    adapter, trained = session.adapter, session.trained
    if not (hasattr(adapter, 'save') and hasattr(adapter, 'restore')):
        return {'reason': 'its adapter has no method to save a model'}
    fresh = session.make('none', session.plan['train']['lr'], [0])          # on every rank: all ranks may have to take part
    found = {'reason': ''}
    if session.ctx.rank == 0:
        found.update(_round_trip(session, trained, fresh))
    session.ctx.group.barrier()
    return found


def _round_trip(session, trained, fresh):
    adapter, images = session.adapter, session.data('test')[0][:QUESTIONS]
    folder = session.path('saved-' + session.net.name)
    os.mkdir(folder)
    before, again, blank = (np.asarray(adapter.predict(handle, images), 'float64') for handle in (trained, trained, fresh))
    session.heart.beat()
    start = now()
    adapter.save(trained, folder)
    saved_s, start = now() - start, now()
    session.heart.beat()
    adapter.restore(fresh, folder)
    restored_s = now() - start
    after = np.asarray(adapter.predict(fresh, images), 'float64')
    sizes = [os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names]
    lost = _lost(adapter.weights(trained, 0), adapter.weights(fresh, 0))
    return {'bytes': sum(sizes), 'files': len(sizes), 'save_s': saved_s, 'restore_s': restored_s, 'parameter': lost[1],
            'parameters_apart': lost[0], 'answers_apart': apart(before, after), 'again_apart': apart(before, again),
            'blank_apart': apart(before, blank)}


def _lost(before, after):
    """Return (the largest relative difference of a parameter, the parameter's name)."""
    return max((apart(before[name], after[name]) if name in after else 1.0, name) for name in sorted(before))


def apart(a, b):
    """Return the largest difference, relative to the largest number; 1e9 if it is not finite or the shapes differ."""
    a, b = np.asarray(a, 'float64'), np.asarray(b, 'float64')
    found = float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-300)) if a.shape == b.shape else 1e9
    return found if np.isfinite(found) else 1e9

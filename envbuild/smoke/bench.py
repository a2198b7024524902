"""Phase `bench`: three ways to run the same step, interleaved in one launch.

solo    one device works, the others wait in a host barrier
indep   all devices work, nothing is exchanged: the ceiling that shared cores, memory or power leave
dp      all devices work and average their gradients

Each round runs all three, odd rounds in reverse order, so that a drift of the machine cancels in the ratio of a round.
A lap is timed from barrier to barrier, devices drained: the slowest rank counts. Warm-up steps are not measured.
"""
from __future__ import absolute_import, division, print_function

from . import stats
from .clock import now

LR = 1e-4               # small enough that the work does not change while it is measured
SETTLED = 0.05          # warm-up ends when two medians of five steps agree to this
NOISY = 0.10            # relative IQR of solo above which the rounds are doubled once, on devices that are judged
BATCHES = 8
MOST_STEPS = 2000
EMPTY_LAPS = 9


class Mode(object):
    """One of the three ways: the handle that this process steps, None if it only waits."""

    def __init__(self, name, handle, batches):
        self.name, self.handle, self.batches = name, handle, batches
        self.first_s, self.warmup_steps = None, 0


def measure(session):
    """One entry per scaling: warm-up, steps per round, and the seconds of every lap."""
    return [_scaling(session, scaling) for scaling in session.plan['bench']['scaling']]


def _modes(session, per_device):
    ctx, alone = session.ctx, [Mode('solo', None, [])]
    batch = session.plan['bench']['batch']
    solo = session.make('none', LR, [0])
    if ctx.rank == 0:
        alone = [Mode('solo', solo, _batches(session, solo, batch))]
    if ctx.replicas == 1:
        return alone
    indep, here = solo, per_device
    if len(ctx.devices) > 1:
        indep, here = session.make('none', LR), per_device * len(ctx.devices)
    together = session.make('mean', LR)
    return alone + [
        Mode('indep', indep, _batches(session, indep, here)),
        Mode('dp', together, _batches(session, together, per_device * ctx.replicas)),
    ]


def _batches(session, handle, size):
    images, labels = session.data('bench')
    last = max(1, min(BATCHES, len(images) // size))
    return [session.adapter.put(handle, images[i * size:(i + 1) * size], labels[i * size:(i + 1) * size])
            for i in range(last)]


def _lap(session, mode, steps):
    """Seconds of `steps` steps between two barriers."""
    adapter, group = session.adapter, session.ctx.group
    group.barrier()
    start = now()
    if mode.handle is not None:
        for i in range(steps):
            adapter.step(mode.handle, mode.batches[i % len(mode.batches)], LR)
        adapter.drain()
    group.barrier()
    return now() - start


def _warm(session, mode):
    """Step until the time per step has settled; rank 0 decides for all. The median of the last five steps."""
    plan, times = session.plan['bench'], []
    while True:
        times.append(_lap(session, mode, 1))
        session.heart.beat()
        settled = False
        if len(times) >= plan['warmup_min'] and len(times) % 5 == 0:
            last, before = stats.median(times[-5:]), stats.median(times[-10:-5])
            settled = len(times) >= plan['warmup_max'] or abs(last - before) < SETTLED * before
            if session.ctx.group.broadcast(settled):
                break
    mode.first_s, mode.warmup_steps = times[0], len(times)
    return stats.median(times[-5:])


def _scaling(session, scaling):
    plan, ctx = session.plan['bench'], session.ctx
    per_device = plan['batch'] if scaling == 'weak' else plan['batch'] // ctx.replicas
    session.heart.enter('bench %s warm-up' % scaling)
    modes = _modes(session, per_device)
    step_s = [_warm(session, mode) for mode in modes][0]
    steps = ctx.group.broadcast(max(1, min(MOST_STEPS, int(round(plan['round_seconds'] / step_s)))))
    session.heart.enter('bench %s' % scaling)
    rounds, wanted = [], plan['rounds']
    while len(rounds) < wanted:
        ordered = modes if len(rounds) % 2 == 0 else modes[::-1]
        entry = {'order': ','.join(mode.name for mode in ordered), 'solo_s': None, 'indep_s': None, 'dp_s': None}
        for mode in ordered:
            entry[mode.name + '_s'] = _lap(session, mode, steps)
            session.heart.beat(len(rounds), wanted)
        rounds.append(entry)
        if len(rounds) == plan['rounds'] and plan['double_if_noisy']:
            noisy = stats.relative_iqr([r['solo_s'] for r in rounds]) > NOISY
            wanted = plan['rounds'] * (2 if ctx.group.broadcast(noisy) else 1)
    empty = Mode('empty', None, [])
    return {
        'workload': plan['workload'], 'net': plan['net'], 'scaling': scaling, 'batch_per_device': per_device,
        'global_batch': per_device * ctx.replicas, 'steps_per_round': steps, 'rounds': rounds,
        'warmup': dict((mode.name, {'steps': mode.warmup_steps, 'first_s': mode.first_s}) for mode in modes),
        'barrier_s': stats.median([_lap(session, empty, 0) for _ in range(EMPTY_LAPS)]),
    }

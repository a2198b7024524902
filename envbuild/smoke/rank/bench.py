"""Phase `bench`: times the same training step in four modes, which take turns in one launch.

solo    one device works; the other processes wait in a barrier on the host
indep   all devices work, but exchange nothing: their speed is the ceiling that shared cores, memory or power allow
dp      all devices work and average their gradients
input   like dp, but each step copies its batch from the host; in the other modes, the batches are already on the devices

A lap is a number of steps in one mode. It is timed from barrier to barrier, after all devices have finished, so the slowest
rank counts. A round has one lap of each mode. Every second round runs the modes in reverse order, so that a slow change of the
machine's speed cancels in the ratios. Warm-up steps are not measured; WARM_UP says when the warm-up ends. After the last lap,
the timed models are checked (rank.timed): the replicas of dp and input must be equal, the replicas of indep must differ, and
each step must have averaged the gradients of all devices.
"""
from __future__ import absolute_import, division, print_function

import resource

from .. import stats
from ..clock import now
from ..machine import gpuwatch
from . import timed

LR = 1e-4               # a learning rate so small that the network hardly changes while it is measured
SETTLED = 0.05          # warm-up ends when the medians of two successive groups of five steps differ by less than this share
NOISY = 0.10            # if the relative IQR of solo is above this, there are twice as many rounds (on GPUs only)
LEAST_WARM = 2
WITH_LOSS = 4
BATCHES = 8
MOST_STEPS = 2000
EMPTY_LAPS = 9
AT_ONCE_S = 0.002       # reading a loss that is ready takes less than this
EXCHANGING = ('dp', 'input')
WARM_UP = ('the first step, which is measured separately; then at least %(warmup_min)d steps, until the medians of two '
           'successive groups of five steps agree to 5 %%, but at most %(warmup_max)d steps or %(warmup_seconds)g s')
# When work begins, the clock of an idle GPU rises for about a second. If steps take only a few milliseconds, the warm-up would
# end earlier than that, so it also waits for the clocks.
CLOCK_LOOKS, CLOCK_STEADY, CLOCK_S = 6, 0.03, 8.0
ON_GPUS = ('; on GPUs also until the clocks of all working GPUs stay within %d %% in %d readings, one every %.1f s, but '
           'at most %d s longer') % (
    100 * CLOCK_STEADY, CLOCK_LOOKS, gpuwatch.EVERY_S, CLOCK_S)
SHORT_STEP_S = 0.010    # if a step is shorter, half a batch is timed too, to see whether kernel launches limit the speed
HALF_LAPS = 5


class Mode(object):
    """One of the four modes in this process.

    `handle` is the model to train, or None if this process only waits. `feed(i)` returns the batch of step i.

    `clocks_settled` says whether the GPUs' clocks became steady during warm-up; None if the clocks are not watched.
    """

    def __init__(self, name, handle=None, feed=None):
        self.name, self.handle, self.feed, self.clocks_settled = name, handle, feed, None
        self.first_s, self.warmup_steps, self.busy = None, 0, []
        self.page_faults = []                   # page faults of this process per step, for each lap
        self.token, self.losses = None, []      # the token of a lap's last step, and the losses of the last steps of all laps
        self.late = []                          # how long after a lap the loss of its last step came, as a share of the lap

    def warmed(self):
        """The facts about this mode's warm-up for the report."""
        return {'steps': self.warmup_steps, 'first_s': self.first_s, 'clocks_settled': self.clocks_settled}


class _Nothing(object):
    """An adapter whose steps do nothing, to measure the smoke test's own share of a lap."""

    def step(self, handle, batch, lr):
        pass

    def drain(self):
        pass


def measure(session):
    """Return the measurements for each scaling: warm-up, steps per round, and the seconds of every lap."""
    with gpuwatch.Watch(session.plan.get('gpus', ()) if session.ctx.rank == 0 else ()) as watch:
        return [_scaling(session, scaling, watch) for scaling in session.plan['bench']['scaling']]


def _modes(session, per_device):
    """Return all modes. A process that only waits in a mode has a Mode without a handle.

    `per_device` is the number of images per device in the modes with several devices.
    """
    ctx, plan = session.ctx, session.plan['bench']
    solo, fed = session.make('none', LR, [0]), plan.get('input', True)
    modes = [_mode(session, 'solo', solo if ctx.rank == 0 else None, plan['batch'])]
    if plan.get('plain'):
        return modes + ([_mode(session, 'dp', session.make('mean', LR), per_device * ctx.replicas)] if ctx.replicas > 1 else [])
    if ctx.replicas == 1:
        return modes + ([_mode(session, 'input', solo, plan['batch'])] if fed else [])
    indep = session.make('none', LR) if len(ctx.devices) > 1 else solo
    together, whole = session.make('mean', LR), per_device * ctx.replicas
    modes += [_mode(session, 'indep', indep, whole, own=True), _mode(session, 'dp', together, whole)]
    return modes + ([_mode(session, 'input', together, whole)] if fed else [])


def _mode(session, name, handle, size, own=False):
    """Make a Mode whose batches have `size` images. With `own`, each batch has only this process's part of the images, because
    the adapter does not split batches of models that train alone.
    """
    if handle is None:
        return Mode(name)
    ctx, (images, labels) = session.ctx, session.data('bench')
    last = max(1, min(BATCHES, len(images) // size))

    def put(i):
        part = slice(i % last * size, (i % last + 1) * size)
        pair = images[part], labels[part]
        return session.adapter.put(handle, *([ctx.shard(array, ctx.rank, ctx.world) for array in pair] if own else pair))

    if name == 'input':
        return Mode(name, handle, put)
    batches = [put(i) for i in range(last)]
    return Mode(name, handle, lambda i: batches[i % last])


def lap(group, adapter, mode, steps):
    """Time `steps` steps between two barriers; return the seconds. The mode records how long this process was busy."""
    group.barrier()
    start, faults = now(), _page_faults()
    if mode.handle is not None:
        for i in range(steps):
            mode.token = adapter.step(mode.handle, mode.feed(i), LR)
        adapter.drain()
    mode.busy.append(now() - start)
    group.barrier()
    seconds = now() - start
    mode.page_faults.append((_page_faults() - faults) / steps)
    return seconds


def _page_faults():
    """The minor page faults of this process so far.

    They show how often freed memory had to be requested from the kernel again.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _warm(session, mode, watch):
    """Train until the time per step and the clocks of the GPUs are steady; return the median time of the last five steps.

    Rank 0 decides for all ranks when the warm-up ends.
    """
    plan, times, start, settled = session.plan['bench'], [], now(), None
    while True:
        times.append(lap(session.ctx.group, session.adapter, mode, 1))
        session.heart.beat()
        settled = settled or (_is_warm(times, plan) and now()) or None
        clocks = watch.clocks(start)[:1 if mode.name == 'solo' else None]
        if session.ctx.group.broadcast(settled is not None and (clocks_settled(clocks) or now() - settled > CLOCK_S)):
            break
    mode.clocks_settled = clocks_settled(clocks) if clocks else None
    mode.first_s, mode.warmup_steps, mode.busy = times[0], len(times), []
    return stats.median(times[-5:])


def _until_the_loss(session, mode):
    """Return the shortest time of WITH_LOSS steps, in seconds. Each time includes the wait for the loss of the step.

    Some frameworks do not wait for their devices. There, a step without this wait would seem very short, and laps would get far
    too many steps.
    """
    times = []
    for _ in range(WITH_LOSS):
        start = now()
        lap(session.ctx.group, session.adapter, mode, 1)
        if mode.handle is not None:
            session.adapter.loss(mode.token)
        times.append(now() - start)
    mode.busy = []
    return min(times)


def clocks_settled(clocks):
    """Whether the SM clock of each GPU has stopped changing. GPUs that do not report their clock are not waited for."""
    last = [seen[-CLOCK_LOOKS:] for seen in clocks]
    return all(len(seen) == CLOCK_LOOKS and (None in seen or max(seen) - min(seen) <= CLOCK_STEADY * max(seen)) for seen in last)


def _is_warm(times, plan):
    if len(times) >= LEAST_WARM and sum(times) > plan['warmup_seconds']:
        return True
    if len(times) < plan['warmup_min'] or len(times) % 5:
        return False
    last, before = stats.median(times[-5:]), stats.median(times[-10:-5] or times)
    return len(times) >= plan['warmup_max'] or abs(last - before) < SETTLED * before


def _scaling(session, scaling, watch):
    plan, ctx = session.plan['bench'], session.ctx
    per_device = plan['batch'] if scaling == 'weak' else plan['batch'] // ctx.replicas
    session.heart.enter('bench %s warm-up' % scaling)
    modes = _modes(session, per_device)
    step_s = max([_warm(session, mode, watch) for mode in modes][0], _until_the_loss(session, modes[0]))
    steps = ctx.group.broadcast(max(1, min(MOST_STEPS, int(round(plan['round_seconds'] / step_s)))))
    session.heart.enter('bench %s' % scaling)
    watch.take()                # samples of the warm-up belong to no round
    rounds, wanted = [], plan['rounds']
    while len(rounds) < wanted:
        rounds.append(_round(session, modes, steps, len(rounds), wanted, watch))
        if len(rounds) == plan['rounds'] and plan['double_if_noisy']:
            noisy = stats.relative_iqr([r['solo_s'] for r in rounds]) > NOISY
            wanted = plan['rounds'] * (2 if ctx.group.broadcast(noisy) else 1)
    page_faults = stats.median(modes[0].page_faults[-len(rounds):]) if ctx.rank == 0 else 0
    empty = Mode('empty', _Nothing(), lambda i: None)
    harness_s = stats.median([lap(ctx.group, empty.handle, empty, steps) for _ in range(EMPTY_LAPS)])
    busy_s = dict((mode.name, ctx.group.gather(stats.median(mode.busy) / steps)) for mode in modes if mode.name != 'solo')
    late = dict((mode.name, max(ctx.group.gather(stats.median(mode.late)))) for mode in modes if mode.late)
    session.heart.enter('bench %s check' % scaling)
    short = ctx.kind == 'cuda' and step_s < SHORT_STEP_S and plan.get('checked', True)
    half_s = _half(session, modes[0], steps, watch) if ctx.group.broadcast(short) else None
    checked = _checked(session, modes, per_device * ctx.replicas) if ctx.replicas > 1 and plan.get('checked', True) else None
    single = _single(session, modes, per_device * ctx.replicas) if plan.get('checked', True) else None
    return {
        'half_s': half_s, 'checked': checked, 'single': single, 'late': late,
        'workload': plan['workload'], 'net': plan['net'], 'scaling': scaling, 'batch_per_device': per_device,
        'global_batch': per_device * ctx.replicas, 'steps_per_round': steps, 'rounds': rounds,
        'warmup': dict((mode.name, mode.warmed()) for mode in modes),
        'warmup_rule': WARM_UP % plan + (ON_GPUS if ctx.kind == 'cuda' else ''),
        'harness_s': harness_s, 'busy_s': busy_s, 'page_faults': page_faults,
    }


def _half(session, solo, steps, watch):
    """Return [seconds of a lap with the whole batch, seconds with half of it] of one device. The laps take turns.

    They show which part of a step depends on the size of the batch.
    """
    size = session.plan['bench']['batch'] // 2
    if size < 1:
        return None
    half = _mode(session, 'solo', solo.handle, size)
    _warm(session, half, watch)
    pairs = [[lap(session.ctx.group, session.adapter, mode, max(1, steps // 2)) for mode in (solo, half)] for _ in range(HALF_LAPS)]
    return [stats.median(seconds) for seconds in zip(*pairs)]


def _round(session, modes, steps, number, of, watch):
    """Run one round; return the seconds of each mode's lap, and what was seen of the GPUs meanwhile."""
    ordered = modes if number % 2 == 0 else modes[::-1]
    entry = {'order': ','.join(mode.name for mode in ordered), 'solo_s': None, 'indep_s': None, 'dp_s': None}
    for mode in ordered:
        entry[mode.name + '_s'] = lap(session.ctx.group, session.adapter, mode, steps)
        if mode.name in EXCHANGING:
            start = now()
            mode.losses.append(session.adapter.loss(mode.token))
            mode.late.append(max(0.0, now() - start - AT_ONCE_S) / mode.busy[-1])
        session.heart.beat(number, of)
    seen = watch.take()
    return dict(entry, gpus=seen) if seen else entry


def _checked(session, modes, whole):
    """Check the timed models after the last lap; return the facts from all processes, which judging.timed judges.

    `whole` is the number of images in a global batch.
    """
    ctx, adapter = session.ctx, session.adapter
    named = dict((mode.name, mode) for mode in modes)
    fed = named[EXCHANGING[-1]] if EXCHANGING[-1] in named else named['dp']
    found = {'copies': dict((name, _gathered(ctx.group, timed.digests(adapter, named[name].handle))) for name in ('indep', 'dp')),
             'losses': dict((mode.name, ctx.group.gather(mode.losses)) for mode in modes if mode.name in EXCHANGING),
             'exchange': None}
    session.heart.beat()
    if timed.can_assign(adapter):
        images, labels = session.data('bench')
        alone = named['solo'].handle or named['indep'].handle
        found['exchange'] = timed.exchange(session, alone, (images[:whole], labels[:whole]), [
            ('dp', named['dp'].handle, lambda: named['dp'].feed(0), LR),
            (fed.name, fed.handle, lambda: fed.feed(0), timed.LR)])
    return found


def _single(session, modes, whole):
    """Measure whether a timed model of one device changes its weights by the gradient of its images.

    `whole` is the number of images in a global batch. None if the adapter cannot set weights.
    """
    if not timed.can_assign(session.adapter):
        return None
    named, (images, labels) = dict((mode.name, mode) for mode in modes), session.data('bench')
    alone = named['solo'].handle or named['indep'].handle
    return timed.single(session, alone, (images[:whole], labels[:whole]), (LR, timed.LR))


def _gathered(group, mine):
    """Return the entries of all processes in one list, in the order of the replicas."""
    return [each for theirs in group.gather(mine) for each in theirs]

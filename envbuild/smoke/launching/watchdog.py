"""Watches the ranks of one launch until the launch ends, and finds the rank that caused a failure.

A launch ends in one of four ways: all ranks are done; a rank ended early; no rank made progress for `stall_s` seconds (a hang;
seconds in which the ranks waited for a processor do not count); the time limit of the whole run is over (that is no hang,
unless a signal or a debugger has stopped a rank). In the last two cases, every rank first prints its stacks.
"""
from __future__ import absolute_import, division, print_function

import os
import signal

from .. import files
from ..clock import Comparison, now, pause
from ..rank import lost_peer
from ..rank.heartbeat import Monitor
from . import processes, starvation

POLL_S = 0.1
GRACE_S = 3.0           # how long the other ranks may take to report after one rank failed
STACKS_S = 1.0          # how long the ranks get to print their stacks
BEFORE_WORK = ('start', 'rendezvous', 'import', 'prepare')      # a cold disk or a compiler may delay these phases for long
# Before the first step of these phases is done, kernels for GPUs may be compiled. Some frameworks also compile steps for CPUs.
COMPILING = ('oracle', 'oracle_again', 'buckets', 'train')
# Signals that a process sends to itself when its peer is gone, or gets from a program that cleans up. So they are often not the
# first cause of a failure.
OF_CONSEQUENCE = (signal.SIGABRT, signal.SIGTERM)
OTHER_NAMES = ('SIGIOT', 'SIGCLD', 'SIGPOLL')     # of SIGABRT, SIGCHLD and SIGIO
NOTICED_AFTER_S = 1.0   # the end of a process may be noticed this many seconds late


class Rank(object):
    """One rank: its process, log, heartbeat and result.

    `told` holds further entries about the rank for the report. `ended_at` is the time at which its end was noticed.
    """

    is_here = True

    def __init__(self, number, folder, process, log, told=()):
        self.number, self.process, self.log, self.told = number, process, log, dict(told)
        self.ended_at, self._finished = None, False
        self.monitor = Monitor(os.path.join(folder, 'heart-%d' % number))
        self._result = os.path.join(folder, 'result-%d.json' % number)

    def result(self):
        """The result that the rank wrote; None if it has written none."""
        try:
            return files.read_json(self._result)
        except (IOError, OSError, ValueError):
            return None

    def poll(self):
        """The exit status, None while it runs."""
        code = self.process.poll()
        if code is not None and self.ended_at is None:
            self.ended_at = now()
        return code

    def has_finished(self):
        """Whether the rank ended well: with exit status 0, and after it wrote a result without an error."""
        if not self._finished and self.poll() == 0:
            result = self.result()
            self._finished = isinstance(result, dict) and result.get('error') is None
        return self._finished

    def state(self, with_children=False):
        """The state of the process as the kernel reports it; '' if /proc cannot be read."""
        return processes.state(self.process.pid, with_children)

    def ending(self):
        """Describe how the rank ended."""
        silent = self.process.returncode == 0 and not self.has_finished()
        return describe_end(self.process.returncode) + (' and without a result' if silent else '')

    def signal(self, number):
        """Send a signal to the rank and everything it started."""
        try:
            os.killpg(self.process.pid, number)
        except OSError:
            pass


class Outcome(object):
    """How a launch ended: `kind` is done, failed, stalled or timeout; `blame` names the rank at fault.

    `silent_s` are the seconds since the last progress of any rank. `drifts` has for each rank of this machine (rank, seconds by
    which its clock fell behind, in so many seconds): see rank.heartbeat. `drift` is the drift of the watching process's own
    clock: see clock.Comparison.
    """

    def __init__(self, kind, ranks, seconds, drift, blame=None, states=()):
        self.kind, self.seconds, self.drift, self.blame = kind, seconds, drift, blame
        self.silent_s = now() - max(rank.monitor.last_time for rank in ranks)
        self.drifts = [(rank.number,) + rank.monitor.drift() for rank in ranks if rank.is_here]
        seen = dict(zip(ranks, states))
        self.results = [rank.result() for rank in ranks]
        self.logs = [files.tail(rank.log) for rank in ranks]
        self.ranks = [dict(r.told, rank=r.number, where=r.monitor.where(), state=_state(r, seen.get(r))) for r in ranks]


def _state(rank, seen):
    """Describe the state of a rank as it was `seen` before the rank got a signal, how the rank ended, or both."""
    if not seen or seen == processes.STATES['Z']:
        return rank.state() if rank.poll() is None else rank.ending()
    return '%s, then %s' % (seen, rank.ending()) if has_died(rank) else seen


def has_died(rank):
    """Whether a rank ended without a result and without a message.

    SIGUSR1 asks a rank for its stacks. It kills a rank whose Python has only just started. Such a rank did not end by itself,
    so it does not count.
    """
    return rank.poll() not in (None, -signal.SIGUSR1) and rank.result() is None


def describe_end(code):
    """Describe the return code of a process."""
    if code is None or code >= 0:
        return 'ended with status %s' % code
    names = dict((getattr(signal, name), name) for name in dir(signal)
                 if name.startswith('SIG') and '_' not in name and name not in OTHER_NAMES)
    return 'killed by %s' % names.get(-code, 'signal %d' % -code)


class Watchdog(object):
    """Watches `ranks`, a list that a subclass fills when it starts the ranks; `began` is the time of this start."""

    def __init__(self, plan, on_progress):
        self.plan, self._on_progress = dict(plan), on_progress
        self.ranks, self.began, self._clock = [], now(), Comparison()
        self._starvation = starvation.Starvation(lambda: [rank.process.pid for rank in self.ranks
                                                            if rank.is_here and rank.process.pid > 0])

    def watch(self, deadline):
        """Wait until the launch ends, and return its Outcome."""
        while True:
            self._read_hearts()
            codes = [rank.poll() for rank in self.ranks]
            if any(code is not None and not rank.has_finished() for rank, code in zip(self.ranks, codes)):
                return self._failed()
            if all(code == 0 for code in codes):
                return self._outcome('done')
            if now() > deadline:
                return self._stopped('timeout')
            if self._is_stalled():
                return self._stopped('stalled')
            self._pause()

    def _pause(self):
        """Let a moment pass before looking again."""
        pause(POLL_S)

    def _is_stalled(self):
        """Whether no rank made progress for longer than allowed, and waiting for a processor does not explain this."""
        last, patience = max(rank.monitor.last_time for rank in self.ranks), self._patience()
        silent = now() - last
        explained = self._starvation.explains(last, silent, patience)
        return silent > patience and not explained

    def _patience(self):
        """Return how many seconds without progress are allowed.

        More seconds are allowed until the first step is done, because the step may have to be compiled. With half a core of a
        busy machine, TensorFlow 2.9 took 23 s for the first step instead of the usual 2 s.
        """
        early = any(rank.monitor.phase in BEFORE_WORK or (rank.monitor.phase.split()[0] in COMPILING and rank.monitor.done is None)
                    for rank in self.ranks)
        return self.plan['stall_first_s'] if early else self.plan['stall_s']

    def _read_hearts(self):
        for rank in self.ranks:
            if rank.monitor.read() and rank.number == 0:
                self._on_progress(self.plan['n'], rank.monitor)

    def _outcome(self, kind, blame=None, states=()):
        return Outcome(kind, self.ranks, now() - self.began, self._clock.drift(), blame, states)

    def _grace(self):
        """How many seconds the other ranks may take to report after one failed."""
        return GRACE_S

    def _failed(self):
        """A rank ended early: give the other ranks time to write their results, then find the rank that failed first."""
        until = now() + self._grace()
        while now() < until and any(rank.poll() is None for rank in self.ranks):
            self._pause()
            self._read_hearts()
        return self._outcome('failed', min(self.ranks, key=order_of_failure).number)

    def _stopped(self, kind):
        """No rank makes progress, or the time is over: let all ranks print their stacks, and find the rank to blame.

        Blame a rank that a signal or a debugger has stopped, or else a rank that has died meanwhile (some die when they are
        asked for their stacks), or else the rank whose last progress is the oldest. If a rank is stopped, this counts as a
        hang, even if the time limit ended the launch.
        """
        states = [rank.state(with_children=True) for rank in self.ranks]
        for rank in self.ranks:
            rank.signal(signal.SIGUSR1)
        pause(STACKS_S)
        self._read_hearts()
        frozen = [rank.number for rank, state in zip(self.ranks, states) if processes.is_stopped(state)]
        dead = sorted((rank for rank in self.ranks if has_died(rank)), key=order_of_failure)
        oldest = min(self.ranks, key=lambda rank: rank.monitor.last_time).number
        blame = (frozen + [rank.number for rank in dead] + [oldest])[0]
        return self._outcome('stalled' if frozen else kind, blame, states)


def order_of_failure(rank):
    """A sort key that puts the rank first whose failure caused the others.

    First come ranks that ended without a message, or by a signal that no peer's failure explains. Then, by time, ranks that
    ended by an exception of their own, or by a signal or status that a peer's failure may cause. Then come ranks that lost a
    peer, as their exception or the end of their log says. Last come ranks that still run or have finished.
    """
    code, error = rank.poll(), (rank.result() or {}).get('error') or {}
    if code is None or rank.has_finished():
        return 3, 0.0, rank.number
    if error:
        return (2 if error.get('consequence') else 1), error.get('time', float('inf')), rank.number
    if code == 0 or (code < 0 and -code not in OF_CONSEQUENCE):
        return 0, rank.ended_at, rank.number
    return (2 if lost_peer.told_by(files.tail(rank.log)) else 1), rank.ended_at - NOTICED_AFTER_S, rank.number

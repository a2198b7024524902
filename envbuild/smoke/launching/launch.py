"""Start the ranks of one launch, watch them, and leave none behind.

The watchdog knows four ends: all ranks done; a rank ended early; no rank got further for `stall_s` (a hang); the time
limit of the whole run. On a hang every rank is asked for its stacks first.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import pwd
import signal
import subprocess
import sys
import time

from .. import files
from ..rank.heartbeat import Monitor
from . import mpi, ranks

POLL_S = 0.1
GRACE_S = 3.0           # how long the others may take to report after one rank failed
STACKS_S = 1.0          # how long the ranks get to print their stacks
BEFORE_WORK = ('start', 'rendezvous', 'import', 'prepare')      # a cold disk or a compiler may hold these up for long
# glibc gives memory at the end of its heap back whenever 128 KiB of it are free, and has it zeroed again in the next step: by what
# happened to lie there, a process was up to a third slower than the next, for as long as it ran. 32 MiB is the most that the second
# may be: https://man7.org/linux/man-pages/man3/mallopt.3.html
KEPT_MEMORY = {'MALLOC_TRIM_THRESHOLD_': str(1 << 30), 'MALLOC_MMAP_THRESHOLD_': str(32 << 20)}
COMPILING = ('oracle', 'train')        # until the first step is done: a GPU's kernels, and some frameworks' step on CPUs as well
STATES = {'T': 'stopped by a signal', 't': 'stopped by a debugger', 'D': 'waiting inside the kernel', 'Z': 'ended',
          'S': 'waiting', 'R': 'running'}


class Rank(object):
    """One process and what is known of it. `told` is what reports say of it beside its state."""

    def __init__(self, number, folder, process, log, told=()):
        self.number, self.process, self.log, self.told = number, process, log, dict(told)
        self.monitor = Monitor(os.path.join(folder, 'heart-%d' % number))
        self._result = os.path.join(folder, 'result-%d.json' % number)

    def result(self):
        """What the rank wrote down, None if it did not get that far."""
        try:
            return files.read_json(self._result)
        except (IOError, OSError, ValueError):
            return None

    def state(self):
        """The kernel's word for what the process does, '' where /proc does not tell."""
        try:
            with io.open('/proc/%d/stat' % self.process.pid, encoding='utf-8', errors='replace') as stream:
                return STATES.get(stream.read().rsplit(')', 1)[1].split()[0], '')
        except (IOError, OSError, IndexError):
            return ''

    def ending(self):
        """Words for how it ended."""
        return describe_end(self.process.returncode)

    def signal(self, number):
        """Send a signal to the rank and everything it started."""
        try:
            os.killpg(self.process.pid, number)
        except OSError:
            pass


class Outcome(object):
    """How a launch ended: `kind` is done, failed, stalled or timeout; `blame` names the rank at fault."""

    def __init__(self, kind, ranks, seconds, blame=None):
        self.kind, self.seconds, self.blame = kind, seconds, blame
        self.results = [rank.result() for rank in ranks]
        self.logs = [files.tail(rank.log) for rank in ranks]
        self.ranks = [dict(r.told, rank=r.number, where=r.monitor.where(), state=r.state() if r.process.poll() is None else r.ending())
                      for r in ranks]


def describe_end(code):
    """Words for a return code."""
    if code is None or code >= 0:
        return 'ended with status %s' % code
    names = dict((getattr(signal, name), name) for name in dir(signal) if name.startswith('SIG') and '_' not in name)
    return 'killed by %s' % names.get(-code, 'signal %d' % -code)


def environment(plan, rank, base):
    """The environment of a rank. What the user has set stays, except what would make the arithmetic incomparable."""
    env = ranks.without_launcher(base) if plan['places'] else dict(base)
    for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'NUMEXPR_NUM_THREADS'):
        env[name] = str(plan['threads'])
    env.update({
        'RANK': str(rank), 'LOCAL_RANK': str(plan['places'][rank]['local_rank'] if plan['places'] else rank),
        'WORLD_SIZE': str(plan['processes']),
        'NVIDIA_TF32_OVERRIDE': '0',             # read by the CUDA libraries when they load; 10-bit operands otherwise
        'PYTHONUNBUFFERED': '1',
    })
    if plan['places']:
        env.update(mpi.handed_on(base, rank, plan['processes']))
    for name in ('GLOO_SOCKET_IFNAME', 'NCCL_SOCKET_IFNAME'):
        # On one machine, in a container without network, there is nothing else.
        env.setdefault(name, plan['interface'] or 'lo')
    for name, value in KEPT_MEMORY.items():
        env.setdefault(name, value)
    env.setdefault('CUDA_DEVICE_ORDER', 'PCI_BUS_ID')        # the same numbers as NVML and nvidia-smi
    home = env.get('HOME', '')
    if not home or not os.path.isdir(home) or not os.access(home, os.W_OK):
        env['HOME'] = plan['folder']             # frameworks keep caches there, some fail without
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:                             # getpass.getuser() fails for a user id without a name
        env.setdefault('LOGNAME', 'envbuild')
        env.setdefault('USER', 'envbuild')
    return env


class Launch(object):
    """The ranks of one plan, or some of them. Use as a context manager: leaving it kills what still runs."""

    def __init__(self, plan, on_progress, numbers=None):
        self.plan, self._on_progress = dict(plan), on_progress
        self._numbers = range(plan['processes']) if numbers is None else numbers
        self.ranks = []

    def __enter__(self):
        plan_file = os.path.join(self.plan['folder'], 'plan.json')
        self.plan['parent'] = os.getpid()
        files.write_json(plan_file, self.plan)
        self.started = time.time()
        try:
            for rank in self._numbers:
                argv = [sys.executable, files.PROGRAM, 'worker', '--plan', plan_file, '--rank', str(rank)]
                self._start(rank, argv)
        except BaseException:
            self.kill()
            raise
        return self

    def _start(self, rank, argv):
        log = os.path.join(self.plan['folder'], 'log-%d' % rank)
        with io.open(log, 'wb') as stream, io.open(os.devnull, 'rb') as nothing:
            # A session of its own: a Ctrl-C at the terminal reaches the parent alone, which then ends all ranks.
            process = subprocess.Popen(argv, stdin=nothing, stdout=stream, stderr=subprocess.STDOUT, close_fds=True,
                                       env=environment(self.plan, rank, os.environ), preexec_fn=os.setsid)
        self.ranks.append(Rank(rank, self.plan['folder'], process, log))

    def __exit__(self, *_exc):
        self.kill()

    def kill(self):
        """End every rank that still runs, at once, and what any of them started: that may outlive it."""
        for rank in self.ranks:
            rank.signal(signal.SIGKILL)
        for rank in self.ranks:
            rank.process.wait()

    def watch(self, deadline):
        """Wait for the end, one way or another."""
        while True:
            self._read_hearts()
            codes = [rank.process.poll() for rank in self.ranks]
            if all(code == 0 for code in codes):
                return self._outcome('done')
            if any(code not in (None, 0) for code in codes):
                return self._failed()
            if time.time() > deadline:
                return self._stopped('timeout')
            if time.time() - max(rank.monitor.last_time for rank in self.ranks) > self._patience():
                return self._stopped('stalled')
            time.sleep(POLL_S)

    def _patience(self):
        """How long silence is normal: longer before the first step, which may have to be compiled. On half a core of a busy machine
        TensorFlow 2.9 took 23 s for it, where 2 s are usual.
        """
        early = any(rank.monitor.phase in BEFORE_WORK or (rank.monitor.phase.split()[0] in COMPILING and rank.monitor.done is None)
                    for rank in self.ranks)
        return self.plan['stall_first_s'] if early else self.plan['stall_s']

    def _read_hearts(self):
        for rank in self.ranks:
            if rank.monitor.read() and rank.number == 0:
                self._on_progress(self.plan['n'], rank.monitor)

    def _outcome(self, kind, blame=None):
        return Outcome(kind, self.ranks, time.time() - self.started, blame)

    def _failed(self):
        """A rank ended early: give the others a moment to write down what they saw, then find who was first."""
        until = time.time() + GRACE_S
        while time.time() < until and any(rank.process.poll() is None for rank in self.ranks):
            time.sleep(POLL_S)
            self._read_hearts()
        return self._outcome('failed', self._first_to_fail())

    def _first_to_fail(self):
        """The rank whose failure caused the others': killed by a signal before anything, then by time, peers last."""
        def order(rank):
            code = rank.process.poll()
            error = (rank.result() or {}).get('error') or {}
            killed = code is not None and code < 0 and not error
            return (not killed, error.get('consequence', True), error.get('time', float('inf')))
        return min(self.ranks, key=order).number

    def _stopped(self, kind):
        """Nothing moves any more, or time is up: ask everybody for stacks, blame who does not run or lags behind."""
        states = [rank.state() for rank in self.ranks]
        for rank in self.ranks:
            rank.signal(signal.SIGUSR1)
        time.sleep(STACKS_S)
        self._read_hearts()
        frozen = [rank.number for rank, state in zip(self.ranks, states) if state.startswith('stopped')]
        oldest = min(self.ranks, key=lambda rank: rank.monitor.last_time).number
        return self._outcome(kind, frozen[0] if frozen else oldest)

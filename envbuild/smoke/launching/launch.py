"""Starts the ranks of one launch, and ends all of them when the launch is over."""
from __future__ import absolute_import, division, print_function

import io
import os
import pwd
import signal
import subprocess
import sys
import tempfile

from .. import files, plain
from ..clock import now, pause
from . import fullness, mpi, processes, ranks
from .watchdog import Rank, Watchdog

KILL_S = 10.0           # seconds to wait for killed ranks: a rank that the kernel cannot end must not delay the report
# Every rank, and every process that a rank starts, has this environment variable. Its value is the folder of the launch.
MARK = 'ENVBUILD_SMOKE_LAUNCH'


def interface(plan):
    """The network interface that NCCL and Gloo must use; '' leaves the choice to them.

    On one machine the loopback always exists, and in a container without a network it is the only interface. Between machines
    the loopback is never right: if no other interface is known, NCCL and Gloo look for one themselves.
    """
    if max([place['hosts'] for place in plan['places']] or [1]) > 1:
        return '' if plan['interface'] == 'lo' else plan['interface']
    return plan['interface'] or 'lo'


def environment(plan, rank, base):
    """Return the environment variables of a rank.

    The user's variables are kept, except those that the test must set itself, such as the rank, the thread counts and TF32. If
    a launcher started the test, the variables of the launcher are left out, too.
    """
    env = ranks.without_launcher(base) if plan['places'] else dict(base)
    for name in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'NUMEXPR_NUM_THREADS'):
        env[name] = str(plan['threads'])
    env.update({
        'RANK': str(rank), 'LOCAL_RANK': str(plan['places'][rank]['local_rank'] if plan['places'] else rank),
        'WORLD_SIZE': str(plan['processes']),
        'PYTHONUNBUFFERED': '1', MARK: plan['folder'],
    })
    if plan['places']:
        env.update(mpi.handed_on(base, rank, plan['processes']))
    if interface(plan):
        for name in ('GLOO_SOCKET_IFNAME', 'NCCL_SOCKET_IFNAME'):
            env.setdefault(name, interface(plan))
    if not plan.get('plain'):
        env['NVIDIA_TF32_OVERRIDE'] = '0'        # CUDA libraries read it when they load; without it they may use TF32
        for name, value in plain.KEPT_MEMORY.items():
            env.setdefault(name, value)
    env.setdefault('CUDA_DEVICE_ORDER', 'PCI_BUS_ID')        # the same numbers as NVML and nvidia-smi
    home = env.get('HOME', '')
    if not home or not os.path.isdir(home) or not os.access(home, os.W_OK):
        env['HOME'] = plan['folder']             # frameworks keep caches in HOME, and some fail without it
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:                             # getpass.getuser() fails for a user id without a name
        env.setdefault('LOGNAME', 'envbuild')
        env.setdefault('USER', 'envbuild')
    return env


class Launch(Watchdog):
    """The ranks of one plan, or some of them. Use as a context manager: leaving it kills what still runs."""

    def __init__(self, plan, on_progress, numbers=None):
        Watchdog.__init__(self, plan, on_progress)
        self._numbers = range(plan['processes']) if numbers is None else numbers

    def __enter__(self):
        plan_file = os.path.join(self.plan['folder'], 'plan.json')
        self.plan['parent'] = os.getpid()
        files.write_json(plan_file, self.plan)
        self.began = now()
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
            # A session of its own: a Ctrl-C at the terminal reaches only the parent, which then ends all ranks.
            process = subprocess.Popen(argv, stdin=nothing, stdout=stream, stderr=subprocess.STDOUT, close_fds=True,
                                       env=environment(self.plan, rank, os.environ), preexec_fn=os.setsid)
        self.ranks.append(Rank(rank, self.plan['folder'], process, log))

    def _outcome(self, kind, blame=None, states=()):
        """The outcome. If a disk is full, the state of the rank at fault says so, and its error, too."""
        outcome = Watchdog._outcome(self, kind, blame, states)
        errors = [(result or {}).get('error') or {} for result in outcome.results]
        full = '' if kind == 'done' else fullness.sentence(tempfile.gettempdir(), outcome.logs + [
            error[key] for error in errors for key in ('message', 'traceback') if key in error])
        if full:
            at_fault = [rank['rank'] for rank in outcome.ranks].index(blame)
            outcome.ranks[at_fault]['state'] += '; ' + full
            if errors[at_fault]:
                errors[at_fault]['message'] = '%s: %s' % (full, errors[at_fault]['message'])
        return outcome

    def __exit__(self, *_exc):
        self.kill()

    def kill(self):
        """End every rank that still runs, and every process that a rank started, even if this rank has ended.

        A process with a session of its own does not get the signal to its rank's session. It is found by the variable MARK.
        """
        for rank in self.ranks:
            rank.signal(signal.SIGKILL)
        until = now() + KILL_S
        while any(rank.is_here and rank.poll() is None for rank in self.ranks) and now() < until:
            pause(0.01)
        for pid in processes.with_variable(MARK, self.plan['folder']):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue                # the process has ended meanwhile

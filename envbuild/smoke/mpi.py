"""An MPI world of the ranks, which no mpirun started: each takes the place of an idle program that one did start.

A process of Open MPI learns from variables who it is, and meets the others at the daemon that mpirun is. Rank 0 starts mpirun with
as many idle programs as there are ranks and hands out their variables; a rank that has them when MPI starts is a member. This is
for frameworks whose own exchange is MPI's, on one host: the smoke test's ranks stay its own children, with its watchdog and logs.
No standard promises it. Open MPI 4 was seen to let the ranks in; with others it is not tried.
"""
from __future__ import absolute_import, division, print_function

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ALONE = '127.0.0.1'
WAIT_S = 30
VERSION = b'(Open MPI) 4.'
PR_SET_PDEATHSIG = 1
OF_MEMBERS = ('OMPI_', 'PMIX_')
# Leaves its variables, and is there for as long as mpirun is.
IDLE = '''
import json, os, sys, time
mpirun = os.getppid()
path = os.path.join(sys.argv[1], os.environ['OMPI_COMM_WORLD_RANK'])
with open(path + '.new', 'w') as stream:
    json.dump(dict(os.environ), stream)
os.rename(path + '.new', path)
while os.getppid() == mpirun:
    time.sleep(0.2)
'''


class World(object):
    """`joined` tells whether this process is a member now, `reason` why not. To be made by all ranks, before MPI is loaded."""

    def __init__(self, ctx):
        self._mpirun, self._folder = None, None
        places, self.reason = ctx.group.broadcast(self._start(ctx) if ctx.rank == 0 else None)
        self.joined = places is not None
        if self.joined:
            os.environ.update((str(name), str(value)) for name, value in places[ctx.rank].items())
            # Reading another process's memory is what containers forbid: https://github.com/open-mpi/ompi/issues/4948
            os.environ.setdefault('OMPI_MCA_btl_vader_single_copy_mechanism', 'none')

    def _start(self, ctx):
        """([variables of each place], '') or (None, why not)."""
        if ctx.host != ALONE:
            return None, 'the ranks are on several hosts'
        try:
            said = subprocess.Popen(['mpirun', '--version'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).communicate()[0]
        except OSError:
            return None, 'there is no mpirun'
        if VERSION not in said:
            return None, 'mpirun is not that of Open MPI 4'
        self._folder = tempfile.mkdtemp(prefix='envbuild-smoke-mpi-')
        command = ['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-np', str(ctx.world),
                   sys.executable, '-c', IDLE, self._folder]
        with open(os.path.join(self._folder, 'log'), 'wb') as log, open(os.devnull) as nothing:
            self._mpirun = subprocess.Popen(command, stdin=nothing, stdout=log, stderr=log, preexec_fn=_end_with_parent)
        paths = [os.path.join(self._folder, '%d' % rank) for rank in range(ctx.world)]
        limit = time.time() + WAIT_S
        while not all(os.path.exists(path) for path in paths):
            if self._mpirun.poll() is not None or time.time() > limit:
                self.leave()
                return None, 'mpirun does not start programs here'
            time.sleep(0.05)
        return [_variables(path) for path in paths], ''

    def leave(self):
        """End mpirun and what it started."""
        if self._mpirun is not None and self._mpirun.poll() is None:
            self._mpirun.terminate()
            self._mpirun.wait()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _variables(path):
    with open(path) as stream:
        return dict((name, value) for name, value in json.load(stream).items() if name.startswith(OF_MEMBERS))


def _end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

"""Makes the ranks members of an MPI world, although mpirun did not start them. Frameworks that exchange gradients by MPI need
it.

A process that mpirun starts gets environment variables with its rank and the address of mpirun's daemon. Any process that has
such variables becomes this member of the world when it initialises MPI. So each rank gets the variables of a process that
mpirun did start, and the ranks can stay children of the smoke test, which watches them and keeps their logs.

If mpirun started the smoke test itself, with one process for each rank, on one host or several, each process gives its own
variables to its rank. Otherwise rank 0 starts mpirun with one idle program for each rank, and gives the variables of these
programs to the ranks; this works on one host only. No standard guarantees that this works. It works with Open MPI 4; other
versions were not tried.
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

from ..clock import now, pause

ALONE = '127.0.0.1'
WAIT_S = 30
VERSION = b'(Open MPI) 4.'
PR_SET_PDEATHSIG = 1
OF_MEMBERS = ('OMPI_', 'PMIX_')
HANDED_ON = 'ENVBUILD_SMOKE_MPI_PLACE'
# The idle program: it writes its environment variables to a file, then waits until mpirun ends.
IDLE = '''
import sys
sys.path[:] = [entry for entry in sys.path if entry]      # the working folder may hide a module
import json, os, time
mpirun = os.getppid()
path = os.path.join(sys.argv[1], os.environ['OMPI_COMM_WORLD_RANK'])
with open(path + '.new', 'w') as stream:
    json.dump(dict(os.environ), stream)
os.rename(path + '.new', path)
while os.getppid() == mpirun:
    time.sleep(0.2)
'''


class World(object):
    """The MPI world of this launch. All ranks must create it together, before they load MPI.

    `joined` says whether this process has the variables of a member now, `reason` why not.
    """

    def __init__(self, ctx):
        self._mpirun, self._folder = None, None
        place, self.reason = json.loads(os.environ.get(HANDED_ON, 'null')), ''
        if not all(ctx.group.gather(place is not None)):
            places, self.reason = ctx.group.broadcast(self._start(ctx) if ctx.rank == 0 else None)
            place = places and places[ctx.rank]
        self.joined = place is not None
        if self.joined:
            os.environ.update((str(name), str(value)) for name, value in place.items())
            # Containers forbid MPI to read another process's memory: https://github.com/open-mpi/ompi/issues/4948
            os.environ.setdefault('OMPI_MCA_btl_vader_single_copy_mechanism', 'none')

    def _start(self, ctx):
        """Start mpirun with idle programs. Return ([variables for each rank], ''), or (None, why that is not possible)."""
        if ctx.host != ALONE:
            return None, 'the ranks are on several hosts, and they were not all started by the same mpirun'
        try:
            said = subprocess.Popen(['mpirun', '--version'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).communicate()[0]
        except OSError:
            return None, 'mpirun is not installed'
        if VERSION not in said:
            return None, 'mpirun is not from Open MPI 4'
        self._folder = tempfile.mkdtemp(prefix='mpi-', dir=ctx.folder)    # removed with the launch, even if this rank is killed
        command = ['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-np', str(ctx.world),
                   sys.executable, '-c', IDLE, self._folder]
        with open(os.path.join(self._folder, 'log'), 'wb') as log, open(os.devnull) as nothing:
            self._mpirun = subprocess.Popen(command, stdin=nothing, stdout=log, stderr=log, preexec_fn=_end_with_parent)
        paths = [os.path.join(self._folder, '%d' % rank) for rank in range(ctx.world)]
        limit = now() + WAIT_S
        while not all(os.path.exists(path) for path in paths):
            if self._mpirun.poll() is not None or now() > limit:
                self.leave()
                return None, 'mpirun cannot start programs here'
            pause(0.05)
        return [_of_member(_read(path)) for path in paths], ''

    def leave(self):
        """End mpirun and what it started."""
        if self._mpirun is not None and self._mpirun.poll() is None:
            self._mpirun.terminate()
            self._mpirun.wait()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def handed_on(env, rank, size):
    """The variable that gives a rank its place in mpirun's world; {} unless that world has exactly the ranks of this launch."""
    if (env.get('OMPI_COMM_WORLD_RANK'), env.get('OMPI_COMM_WORLD_SIZE')) != (str(rank), str(size)):
        return {}
    return {HANDED_ON: json.dumps(_of_member(env))}


def _of_member(env):
    return dict((name, value) for name, value in env.items() if name.startswith(OF_MEMBERS))


def _read(path):
    with open(path) as stream:
        return json.load(stream)


def _end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

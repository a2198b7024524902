"""Finds the rank of this process, the number of processes, the address of rank 0, and the launcher that set them.

A launcher starts `envbuild-smoke run` once per device; a process with several devices needs the flag --slots. Values without a
flag are read from the launchers' variables. The first launcher in SOURCES whose variables give both a rank and a size counts.
"""
from __future__ import absolute_import, division, print_function

import re

PORT = 29617
ALONE = '127.0.0.1'


class Unclear(Exception):
    """The flags and variables do not say enough, or contradict each other."""


class Source(object):
    """The variables of one launcher; where several names are listed, the first that is set counts. `only_with` is a variable
    that only the launcher's processes have."""

    def __init__(self, name, rank, size, local_rank='', local_size='', only_with=''):
        self.name, self.only_with = name, only_with
        self.names = {'rank': (rank,), 'size': size.split(), 'local_rank': (local_rank,), 'local_size': (local_size,)}

    def read(self, env, field):
        """Return the number, or None if no variable has it."""
        text = next((env[name] for name in self.names[field] if env.get(name)), '')
        return int(text) if text.isdigit() else None


SOURCES = (
    Source('torchrun', 'RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE'),
    Source('Open MPI', 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'OMPI_COMM_WORLD_LOCAL_RANK', 'OMPI_COMM_WORLD_LOCAL_SIZE'),
    Source('PMI', 'PMI_RANK', 'PMI_SIZE', 'MPI_LOCALRANKID', 'MPI_LOCALNRANKS'),
    # SLURM_PROCID is set in a batch script, too, which is a single process. Several processes run only in a step of srun.
    Source('Slurm', 'SLURM_PROCID', 'SLURM_STEP_NUM_TASKS SLURM_NTASKS', 'SLURM_LOCALID', only_with='SLURM_STEP_ID'),
    Source('PMIx', 'PMIX_RANK', 'PMIX_SIZE WORLD_SIZE', 'PMIX_LOCAL_RANK'),
    Source('Kubernetes', 'JOB_COMPLETION_INDEX', 'WORLD_SIZE'),
)
# Variables that a rank must not inherit: with them it would join the world of all processes of the launcher, but a launch may
# have fewer ranks.
OF_LAUNCHERS = re.compile(r'(OMPI_(?!MCA_)|OMPI_MCA_(orte|ess|pmix|plm|ras|rmaps|state)_|PMIX?_|SLURM_|MPI_LOCAL|TORCHELASTIC_|GROUP_|ROLE_|PET_)'
                          r'|(MASTER_ADDR|MASTER_PORT|JOB_COMPLETION_INDEX)$')


class Place(object):
    """The place of this process: `rank` of `size` processes, and `local_rank` on its host (None if unknown).

    Rank 0 listens at `host`:`port`. `slots` is the number of devices of this process.
    """

    def __init__(self, rank, size, local_rank, host, port, source, slots=1):
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.host, self.port, self.source, self.slots = host, port, source, slots


def add_options(parser):
    """The flags, for use without a launcher or to override one."""
    group = parser.add_argument_group('several machines', 'A launcher (mpirun, torchrun, srun, Kubernetes) starts this '
                                                          'command once per device. Rank 0 judges the run and writes the '
                                                          "report. The command reads the launcher's variables; these "
                                                          'options override them.')
    add = group.add_argument
    add('--rank', type=int, metavar='N', help='the number of this process, from 0')
    add('--world-size', type=int, metavar='N', help='the number of processes that were started')
    add('--local-rank', type=int, metavar='N', help='the number of this process on its host')
    add('--master', default='', metavar='HOST[:PORT]', help=('address of rank 0 (default: MASTER_ADDR and MASTER_PORT, or '
                                                             'the address that Slurm gives)'))
    add('--slots', type=int, default=1, metavar='N', help='number of devices of this process (default: 1)')
    add('--interface', default='', metavar='IF', help=('the network interface between the hosts (default: the interface '
                                                       'that reaches rank 0)'))
    add('--join', type=float, default=120, metavar='S', help=('how long to wait until all processes have connected '
                                                              '(default: 120)'))
    add('--alone', action='store_true', help='test only this machine, even if a launcher started the command')


def find(options, env):
    """The Place that flags or a launcher give to this process; None if it is the only one. Raises Unclear."""
    if options['alone']:
        return None
    if options['slots'] < 1:
        raise Unclear('--slots must be a number of at least 1')
    source, said = _said(options, env)
    if source is None or (said['size'] == 1 and options['slots'] == 1):
        return None
    rank, size = said['rank'], said['size']
    if not 0 <= rank < size:
        raise Unclear('rank %d is impossible with %d processes (%s)' % (rank, size, source))
    host, port = _master(options, env, said)
    return Place(rank, size, said['local_rank'], host, port, source, options['slots'])


def _said(options, env):
    """Return (name of the launcher, {field: number or None}); (None, {}) without a launcher."""
    flags = {'rank': options['rank'], 'size': options['world_size'], 'local_rank': options['local_rank'], 'local_size': None}
    for source in SOURCES:
        if source.only_with and source.only_with not in env:
            continue
        said = dict((field, source.read(env, field)) for field in flags)
        if said['rank'] is None:
            continue
        said.update((field, value) for field, value in flags.items() if value is not None)
        if said['size'] is not None:
            return source.name, said
        if source.name == 'Kubernetes':
            raise Unclear(('JOB_COMPLETION_INDEX is %d, but the number of processes is not known: set WORLD_SIZE, or use '
                           '--world-size') % said['rank'])
    if flags['rank'] is not None and flags['size'] is not None:
        return 'flags', flags
    if flags['rank'] is not None or (flags['size'] or 1) > 1:
        raise Unclear('--rank and --world-size must be used together')
    return None, {}


def _master(options, env, said):
    """(host, port) at which rank 0 listens."""
    host, colon, port = options['master'].partition(':')
    if colon and not port.isdigit():
        raise Unclear('--master must be HOST or HOST:PORT')
    if not host:
        host = env.get('MASTER_ADDR') or first_of(env.get('SLURM_STEP_NODELIST') or env.get('SLURM_NODELIST') or '')
    if not host and (said['size'] == 1 or said['size'] == said['local_size']):
        host = ALONE
    if not host:
        raise Unclear('the address of rank 0 is not known: set MASTER_ADDR to its host (mpirun: -x MASTER_ADDR=HOST), or '
                      'use --master HOST[:PORT]')
    if port:
        return host, int(port)
    text = env.get('MASTER_PORT', '')
    if not text.isdigit():
        return host, PORT
    # torchrun's own agent listens on MASTER_PORT, so rank 0 uses the next port.
    return host, int(text) + (1 if 'TORCHELASTIC_RUN_ID' in env else 0)


def first_of(nodes):
    """The first host of Slurm's list: 'gpu[03-05,9],b' -> 'gpu03'."""
    found = re.match(r'([^,\[]*)(?:\[(\w+)[^\]]*\]([^,\[]*))?', nodes)
    return found.group(1) + (found.group(2) or '') + (found.group(3) or '')


def job(env):
    """An identifier of the job, to recognise processes of another job that connect to the same port; '' if there is none."""
    return env.get('ENVBUILD_SMOKE_JOB') or env.get('SLURM_JOB_ID') or env.get('TORCHELASTIC_RUN_ID') or ''


def without_launcher(env):
    """The environment without the variables that connect a process with the launcher."""
    return dict((name, value) for name, value in env.items() if not OF_LAUNCHERS.match(name))


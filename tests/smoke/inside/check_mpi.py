from __future__ import absolute_import, division, print_function

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import boot  # noqa: F401
from envbuild_smoke.launching import mpi

STARTS = '''#!/bin/sh
if [ "$1" = --version ]; then echo "mpirun (Open MPI) %s"; exit; fi
while [ "$1" != -np ]; do shift; done
world=$2; shift 2
rank=0
while [ $rank -lt $world ]; do OMPI_COMM_WORLD_RANK=$rank PMIX_ID=place-$rank OTHER=x "$@" & rank=$((rank + 1)); done
%s
'''


class Group(object):
    def broadcast(self, value):
        return value

    def gather(self, value):
        return [value]


class Context(object):
    """The context of rank 0 of two, on this host unless `host` names another one."""
    rank, world, group, folder = 0, 2, Group(), ''

    def __init__(self, host='127.0.0.1'):
        self.host = host


class Places(unittest.TestCase):
    def setUp(self):
        self.folder, self.kept = tempfile.mkdtemp(), dict(os.environ)
        Context.folder = self.folder
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self._restore)

    def _restore(self):
        os.environ.clear()
        os.environ.update(self.kept)

    def mpirun(self, version='4.1.4', then='wait'):
        path = os.path.join(self.folder, 'mpirun')
        with open(path, 'w') as stream:
            stream.write(STARTS % (version, then))
        os.chmod(path, stat.S_IRWXU)
        os.environ['PATH'] = self.folder + os.pathsep + os.environ['PATH']

    def test_a_rank_takes_the_variables_of_its_place_and_no_others(self):
        self.mpirun()
        world = mpi.World(Context())
        self.addCleanup(world.leave)
        self.assertEqual((world.joined, world.reason), (True, ''))
        self.assertEqual((os.environ['OMPI_COMM_WORLD_RANK'], os.environ['PMIX_ID']), ('0', 'place-0'))
        self.assertNotIn('OTHER', os.environ)

    def test_leaving_ends_mpirun_and_removes_what_it_wrote(self):
        self.mpirun()
        world = mpi.World(Context())
        self.assertEqual(os.path.dirname(world._folder), self.folder)       # the launch's folder, which it always removes
        world.leave()
        self.assertIsNotNone(world._mpirun.poll())
        self.assertFalse(os.path.exists(world._folder))

    def test_a_rank_of_a_process_that_mpirun_started_takes_its_place(self):
        base = {'OMPI_COMM_WORLD_RANK': '1', 'OMPI_COMM_WORLD_SIZE': '2', 'PMIX_ID': 'one', 'OTHER': 'x'}
        self.assertEqual(mpi.handed_on(base, 0, 2), {})
        self.assertEqual(mpi.handed_on(base, 1, 1), {})         # a launch with fewer ranks is not mpirun's world
        self.assertEqual(mpi.handed_on({}, 0, 1), {})
        os.environ.update(mpi.handed_on(base, 1, 2), PATH=self.folder)
        self.assertTrue(mpi.World(Context('10.0.0.1')).joined)
        self.assertEqual((os.environ['OMPI_COMM_WORLD_RANK'], os.environ['PMIX_ID']), ('1', 'one'))
        self.assertNotIn('OTHER', os.environ)

    def test_where_one_of_them_was_not_started_so_none_takes_it(self):
        os.environ.update(mpi.handed_on({'OMPI_COMM_WORLD_RANK': '0', 'OMPI_COMM_WORLD_SIZE': '2'}, 0, 2), PATH=self.folder)
        Context.group.gather, kept = lambda value: [value, False], Context.group.gather
        self.addCleanup(setattr, Context.group, 'gather', kept)
        self.assertEqual(self.refused(mpi.World(Context())), 'mpirun is not installed')

    def refused(self, world):
        self.assertNotIn('OMPI_COMM_WORLD_RANK', os.environ)
        self.assertFalse(world.joined)
        return world.reason

    def test_without_mpirun_there_is_no_world(self):
        os.environ['PATH'] = self.folder
        self.assertEqual(self.refused(mpi.World(Context())), 'mpirun is not installed')

    def test_other_releases_are_not_tried(self):
        self.mpirun(version='1.10.2')
        self.assertEqual(self.refused(mpi.World(Context())), 'mpirun is not from Open MPI 4')

    def test_an_mpirun_that_gives_up_is_no_hang(self):
        self.mpirun(then='exit 1')
        shutil.copy('/bin/true', os.path.join(self.folder, 'python'))
        kept, mpi.sys.executable = mpi.sys.executable, os.path.join(self.folder, 'python')      # it writes nothing
        try:
            self.assertEqual(self.refused(mpi.World(Context())), 'mpirun cannot start programs here')
        finally:
            mpi.sys.executable = kept

    def test_ranks_on_several_hosts_have_no_mpirun_in_common(self):
        self.mpirun()
        self.assertEqual(self.refused(mpi.World(Context('10.0.0.1'))), 'the ranks are on several hosts, and they were not '
                                                                       'all started by the same mpirun')


class Idle(unittest.TestCase):
    def test_the_program_that_keeps_a_place_stays_until_mpirun_ends(self):
        """A shell stands in for mpirun. It ends after it has read a line."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        words = ['sh', '-c', '"$@" & read line', 'sh', sys.executable, '-c', mpi.IDLE, folder]
        started = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, OMPI_COMM_WORLD_RANK='0'))
        while not os.path.exists(os.path.join(folder, '0')) and started.poll() is None:
            time.sleep(0.01)
        self.assertEqual(started.communicate(b'\n')[1], b'')    # returns only after the program has ended


if __name__ == '__main__':
    unittest.main()

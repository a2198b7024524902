from __future__ import absolute_import, division, print_function

import argparse
import unittest

import boot  # noqa: F401
from envbuild_smoke.launching import ranks

OMPI = {'OMPI_COMM_WORLD_RANK': '5', 'OMPI_COMM_WORLD_SIZE': '8', 'OMPI_COMM_WORLD_LOCAL_RANK': '1', 'OMPI_COMM_WORLD_LOCAL_SIZE': '4'}
SLURM = {'SLURM_PROCID': '3', 'SLURM_NTASKS': '9', 'SLURM_STEP_NUM_TASKS': '4', 'SLURM_LOCALID': '1', 'SLURM_STEP_ID': '0',
         'SLURM_NODELIST': 'gpu[03-05,9],b', 'SLURM_JOB_ID': '77'}


def options(*words):
    parser = argparse.ArgumentParser()
    ranks.add_options(parser)
    return vars(parser.parse_args(words))


def find(env, *words):
    """Return (rank, size, local rank, host, port, source); None for a single machine."""
    place = ranks.find(options(*words), env)
    return place and (place.rank, place.size, place.local_rank, place.host, place.port, place.source)


class Sources(unittest.TestCase):
    def test_nobody_says_anything(self):
        self.assertIsNone(find({}))
        self.assertIsNone(find({'MASTER_ADDR': 'a', 'WORLD_SIZE': '4'}))

    def test_flags(self):
        self.assertEqual(find({}, '--rank', '1', '--world-size', '2', '--master', 'a:77'), (1, 2, None, 'a', 77, 'flags'))
        self.assertEqual(find({}, '--rank', '0', '--world-size', '2', '--local-rank', '0', '--master', 'a'), (0, 2, 0, 'a', ranks.PORT, 'flags'))

    def test_torchrun(self):
        env = {'RANK': '2', 'WORLD_SIZE': '4', 'LOCAL_RANK': '0', 'LOCAL_WORLD_SIZE': '2', 'MASTER_ADDR': 'a', 'MASTER_PORT': '29500'}
        self.assertEqual(find(env), (2, 4, 0, 'a', 29500, 'torchrun'))
        # the launcher's own agent listens on the port that it names
        self.assertEqual(find(dict(env, TORCHELASTIC_RUN_ID='x')), (2, 4, 0, 'a', 29501, 'torchrun'))

    def test_open_mpi(self):
        self.assertEqual(find(dict(OMPI, MASTER_ADDR='a')), (5, 8, 1, 'a', ranks.PORT, 'Open MPI'))
        with self.assertRaises(ranks.Unclear):
            find(OMPI)
        self.assertEqual(find(dict(OMPI, OMPI_COMM_WORLD_LOCAL_SIZE='8')), (5, 8, 1, '127.0.0.1', ranks.PORT, 'Open MPI'))

    def test_pmi(self):
        env = {'PMI_RANK': '1', 'PMI_SIZE': '2', 'MPI_LOCALRANKID': '1', 'MPI_LOCALNRANKS': '2'}
        self.assertEqual(find(env), (1, 2, 1, '127.0.0.1', ranks.PORT, 'PMI'))

    def test_pmix(self):
        env = {'PMIX_RANK': '1', 'PMIX_SIZE': '2', 'PMIX_LOCAL_RANK': '0', 'MASTER_ADDR': 'a'}
        self.assertEqual(find(env), (1, 2, 0, 'a', ranks.PORT, 'PMIx'))

    def test_slurm(self):
        self.assertEqual(find(SLURM), (3, 4, 1, 'gpu03', ranks.PORT, 'Slurm'))
        self.assertEqual(find(dict(SLURM, SLURM_STEP_NODELIST='gpu04'))[3], 'gpu04')
        without_step = dict((name, value) for name, value in SLURM.items() if not name.startswith('SLURM_STEP'))
        self.assertIsNone(find(without_step))       # this is a batch script, not a step of srun
        self.assertEqual(ranks.job(SLURM), '77')

    def test_kubernetes(self):
        self.assertEqual(find({'JOB_COMPLETION_INDEX': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': 'smoke-0.smoke'})[:4], (1, 2, None, 'smoke-0.smoke'))
        self.assertEqual(find({'JOB_COMPLETION_INDEX': '1', 'MASTER_ADDR': 'a'}, '--world-size', '3')[:2], (1, 3))
        with self.assertRaises(ranks.Unclear):
            find({'JOB_COMPLETION_INDEX': '1'})

    def test_the_first_hit_counts_and_flags_before_it(self):
        torchrun = {'RANK': '2', 'WORLD_SIZE': '4', 'MASTER_ADDR': 'b'}
        self.assertEqual(find(dict(OMPI, **torchrun))[:2], (2, 4))
        self.assertEqual(find(dict(SLURM, **OMPI))[:2], (5, 8))
        self.assertEqual(find(dict(OMPI, **torchrun), '--rank', '0', '--world-size', '2', '--master', 'c')[:4], (0, 2, None, 'c'))
        self.assertEqual(find(dict(OMPI, RANK='1', MASTER_ADDR='a'))[:2], (5, 8))

    def test_one_process_is_a_machine_alone(self):
        self.assertIsNone(find({'RANK': '0', 'WORLD_SIZE': '1', 'MASTER_ADDR': 'a'}))
        self.assertIsNone(find(dict(OMPI), '--alone'))

    def test_contradictions_are_refused(self):
        for words in (['--rank', '2', '--world-size', '2'], ['--rank', '1'], ['--world-size', '2'], ['--slots', '0'],
                      ['--rank', '0', '--world-size', '2'], ['--rank', '0', '--world-size', '2', '--master', 'a:b']):
            with self.assertRaises(ranks.Unclear):
                find({}, *words)

    def test_hosts_of_slurm(self):
        for text, first in (('a', 'a'), ('a,b', 'a'), ('n[1-3]', 'n1'), ('n[01,03-05]', 'n01'), ('rack1-n[7]-ib,x', 'rack1-n7-ib'), ('', '')):
            self.assertEqual(ranks.first_of(text), first)

    def test_workers_do_not_join_the_launchers_world(self):
        env = dict(OMPI, PATH='/bin', NCCL_IB_HCA='mlx5', OMPI_MCA_btl='^openib', OMPI_MCA_ess_base_jobid='1', PMIX_RANK='1',
                   SLURM_PROCID='1', TORCHELASTIC_RUN_ID='x', MASTER_ADDR='a', UCX_TLS='rc', GROUP_RANK='0', MASTER_PORT_OF_MINE='1')
        self.assertEqual(sorted(ranks.without_launcher(env)), ['MASTER_PORT_OF_MINE', 'NCCL_IB_HCA', 'OMPI_MCA_btl', 'PATH', 'UCX_TLS'])


if __name__ == '__main__':
    unittest.main()

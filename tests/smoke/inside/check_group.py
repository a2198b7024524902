from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import threading
import unittest

import boot  # noqa: F401
import numpy as np
from envbuild_smoke.rank.group import Group, PeerLost


def together(world, work):
    """Run `work(group)` on `world` ranks as threads; the results are in the order of the ranks."""
    folder = tempfile.mkdtemp()
    out, errors = [None] * world, []

    def rank(number):
        try:
            group = Group(number, world, 'file:' + os.path.join(folder, 'rendezvous'), 20)
            out[number] = work(group)
            group.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    shutil.rmtree(folder)
    if errors:
        raise errors[0]
    return out


class Exact(unittest.TestCase):
    def test_allreduce_is_exact_and_the_same_everywhere(self):
        for world in (1, 2, 3, 4):
            for dtype in ('float32', 'int64'):
                for count in (1, 2, 5, 1000, 300001):
                    table = np.random.RandomState(count).randint(-1000, 1000, (world, count)).astype(dtype)
                    for got in together(world, lambda group: group.allreduce(table[group.rank])):
                        self.assertEqual(got.dtype, table.dtype)
                        self.assertTrue((got == table.sum(axis=0).astype(dtype)).all(), (world, dtype, count))

    def test_every_rank_gets_the_same_bits_of_a_rounded_sum(self):
        table = np.random.RandomState(0).normal(0, 1, (3, 1001)).astype('float32')
        first, second, third = together(3, lambda group: group.allreduce(table[group.rank]).tobytes())
        self.assertTrue(first == second == third)

    def test_arrays_and_values_travel(self):
        table = np.arange(12, dtype='float64').reshape(4, 3)
        for rank, got in enumerate(together(4, lambda group: (
                group.gather({'rank': group.rank}), group.broadcast('from %d' % group.rank, 2),
                group.broadcast_array(table[group.rank], 3), group.gather_arrays(table[group.rank])))):
            values, word, sent, gathered = got
            self.assertEqual([value['rank'] for value in values], [0, 1, 2, 3], rank)
            self.assertEqual(word, 'from 2')
            self.assertTrue((sent == table[3]).all())
            self.assertTrue((np.array(gathered) == table).all())

    def test_collectives_by_name(self):
        table = np.arange(12, dtype='int64').reshape(4, 3)
        for op, want in (('allreduce', table.sum(axis=0)), ('broadcast', table[2]), ('allgather', table)):
            for got in together(4, lambda group: group.collective(op, table[group.rank].copy(), 2)):
                np.testing.assert_array_equal(got, want)

    def test_the_means_of_arrays_of_many_shapes(self):
        shapes = [(2, 3), (), (5,), (1, 1, 4)]
        for world in (1, 2, 3):
            given = [[np.full(shape, 6 * rank + place, 'float32') for place, shape in enumerate(shapes)] for rank in range(world)]
            for got in together(world, lambda group: group.means(given[group.rank])):
                self.assertEqual([(part.shape, part.dtype) for part in got], [(shape, np.dtype('float32')) for shape in shapes])
                for place, part in enumerate(got):
                    np.testing.assert_array_equal(part, 3 * (world - 1) + place)

    def test_shape_is_kept(self):
        for got in together(2, lambda group: group.allreduce(np.ones((3, 4, 5), 'float32'))):
            self.assertEqual(got.shape, (3, 4, 5))

    def test_an_address_serves_for_rendezvous_too(self):
        import socket
        probe = socket.socket()
        probe.bind(('127.0.0.1', 0))
        place = 'tcp://127.0.0.1:%d' % probe.getsockname()[1]
        probe.close()
        out = []

        def rank(number):
            group = Group(number, 2, place, 20)
            out.append(group.allreduce(np.ones(1)).tolist())
            group.close()

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(out, [[2.0], [2.0]])


class Lost(unittest.TestCase):
    def test_a_closed_peer_is_a_lost_peer(self):
        def work(group):
            if group.rank == 0:
                return None
            group.barrier()
        with self.assertRaises(PeerLost):
            together(2, work)


if __name__ == '__main__':
    unittest.main()

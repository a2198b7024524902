"""How the adapter tells Horovod's processes their ranks and addresses. Horovod itself is not needed."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import socket
import sys
import tempfile
import unittest

import boot  # noqa: F401
import numpy as np

from envbuild_smoke import adapters, plan
from envbuild_smoke.networks import nets

try:
    from http.client import HTTPConnection      # novm: Python 3
except ImportError:
    from httplib import HTTPConnection          # novm: Python 2

RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'images', 'recipes')
FOLDER = tempfile.mkdtemp(prefix='envbuild-smoke-horovod-')
ADDRESS = '10.0.0.1'


def setUpModule():
    adapters.__path__.append(FOLDER)
    for recipe in ('mxnet', 'pytorch', 'tensorflow'):           # the adapters whose networks Horovod's adapter trains
        shutil.copy(os.path.join(RECIPES, recipe, 'smoke.py'), os.path.join(FOLDER, recipe + '.py'))


def tearDownModule():
    adapters.__path__.remove(FOLDER)
    shutil.rmtree(FOLDER)


class Group(object):
    """The answers of a group of four ranks on two hosts."""

    def gather(self, value):
        return [[0, 0], [0, 1], [1, 0], [1, 1]] if isinstance(value, list) else [value]

    def broadcast(self, value):
        return value or 4711


class Context(object):
    """The context of rank 2 of four: the first rank of the second host."""
    rank, world, kind, host, hosts, node, local_rank, local_world, interface = 2, 4, 'cpu', ADDRESS, 2, 1, 0, 2, 'eth7'
    group = Group()

    def __init__(self, **options):
        self.options = options


class Horovod(object):
    """The part of Horovod that the adapter uses; `place` is Horovod's own (rank, size)."""

    def __init__(self, place=(2, 4), gloo=True):
        self.place, self.with_gloo, self.told = place, gloo, None

    def gloo_built(self):
        return self.with_gloo

    def init(self):
        self.told = dict((name, value) for name, value in os.environ.items() if name.startswith('HOROVOD_'))

    def rank(self):
        return self.place[0]

    def size(self):
        return self.place[1]

    def shutdown(self):
        pass


class BeforeGloo(object):
    """Releases before 0.17, which have no function `gloo_built` and no operation `Sum`."""


class _Array(object):
    """An array of MXNet, with the methods that collectives use."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def asnumpy(self):
        return self.values

    def expand_dims(self, axis):
        return _Array(np.expand_dims(self.values, axis))


class _ByMXNet(object):
    """horovod.mxnet for two processes that have the same array. Its all-reduce is a mean unless `average` is false."""

    def allreduce(self, given, average=True):
        return _Array(given.values * (1 if average else 2))

    def broadcast(self, given, root):
        return _Array(given.values + root)

    def allgather(self, given):
        return _Array(np.concatenate([given.values] * 2))

    def DistributedTrainer(self, *_):
        raise AssertionError('made with the model only')


class HorovodTest(unittest.TestCase):
    def setUp(self):
        loaded = adapters.load(os.path.join(RECIPES, 'horovod', 'smoke.py'))
        self.module, self.kept = sys.modules[loaded.__module__], dict(os.environ)
        self.look_up, self.module._look_up_own_name = self.module._look_up_own_name, lambda: None
        self.addCleanup(self._restore)

    def _restore(self):
        self.module._look_up_own_name = self.look_up
        os.environ.clear()
        os.environ.update(self.kept)

    def meeting(self, hvd, **options):
        return self.module.Meeting(Context(**options), hvd, False)

    def test_over_gloo_each_is_told_its_place_on_its_host_and_among_those_of_the_same_place(self):
        hvd = Horovod()
        self.meeting(hvd).join()
        places = [hvd.told['HOROVOD_' + name] for name in ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE')]
        self.assertEqual(places, ['2', '4', '0', '2', '1', '2'])
        names = ('CONTROLLER', 'CPU_OPERATIONS', 'GLOO_IFACE', 'GLOO_RENDEZVOUS_ADDR', 'GLOO_RENDEZVOUS_PORT')
        self.assertEqual([hvd.told['HOROVOD_' + name] for name in names], ['gloo', 'gloo', 'eth7', ADDRESS, '4711'])

    def test_one_exchange_holds_less_than_the_network_of_buckets_unless_the_user_chose_another_size(self):
        for chosen, wanted in ((None, 25 << 20), ('1048576', 1 << 20)):
            os.environ.pop('HOROVOD_FUSION_THRESHOLD', None)
            if chosen:
                os.environ['HOROVOD_FUSION_THRESHOLD'] = chosen
            hvd = Horovod()
            meeting = self.meeting(hvd)
            meeting.join()
            self.assertEqual(hvd.told['HOROVOD_FUSION_THRESHOLD'], str(wanted))
            self.assertIn(str(wanted), meeting.semantics('x')['fusion'])
            self.assertLess(wanted, nets.of(plan.BUCKETS['net']).bytes)

    def test_nccl_exchanges_gradients_on_gpus_where_it_was_built_with_it_and_the_processes_still_meet_over_gloo(self):
        hvd = Horovod()
        for on_gpu, built, wanted in ((True, True, 'nccl'), (True, False, 'gloo'), (False, True, 'gloo')):
            hvd.nccl_built = lambda built=built: built
            meeting = self.module.Meeting(Context(), hvd, on_gpu)
            self.assertEqual((meeting.backend, meeting.controller), (wanted, 'gloo'))
            self.assertEqual(meeting.semantics('x')['backend'], wanted)
        self.assertEqual(self.module.Meeting(Context(), BeforeGloo(), True).backend, 'mpi')

    def test_with_mxnet_sums_are_sums_and_each_process_has_its_own_part(self):
        side = object.__new__(self.module.OnMXNet)
        side.ctx, side.places, side.meeting = Context(), [None], self.meeting(_ByMXNet())
        side.mx = type('MXNet', (), {'nd': type('Nd', (), {'array': staticmethod(lambda array, ctx, dtype: _Array(array))})})
        array = np.arange(3, dtype='float32')
        np.testing.assert_array_equal(side.collective('allreduce', array, 0), 2 * array)
        np.testing.assert_array_equal(side.collective('broadcast', array, 1), array + 1)
        np.testing.assert_array_equal(side.collective('allgather', array, 0), [array, array])
        Context.shard = staticmethod(lambda array, place, parts: array[place * len(array) // parts:(place + 1) * len(array) // parts])
        self.addCleanup(delattr, Context, 'shard')
        for together, wanted in ((True, [4, 5]), (False, list(range(8)))):
            images, labels = self.module._own(side.ctx, {'shard': together}, np.arange(8), np.arange(8))
            self.assertEqual((images.tolist(), labels.tolist()), (wanted, wanted))

    def test_one_that_takes_itself_for_another_is_an_error(self):
        for place in ((0, 4), (2, 2)):
            self.assertRaises(RuntimeError, self.meeting(Horovod(place)).join)

    def test_a_process_alone_starts_nothing(self):
        hvd = Horovod()
        meeting = self.meeting(hvd)
        meeting.ctx.world = 1
        meeting.join()
        meeting.end()
        self.assertEqual(hvd.told, None)

    def test_a_machine_whose_name_has_no_address_is_told_before_gloo_ends_the_process(self):
        def unknown(_name, _port):
            raise socket.gaierror('no such name')
        self.addCleanup(setattr, socket, 'getaddrinfo', socket.getaddrinfo)
        socket.getaddrinfo, self.module._look_up_own_name = unknown, self.look_up
        with self.assertRaises(RuntimeError) as caught:
            self.meeting(Horovod()).join()
        self.assertIn('--hostname localhost', str(caught.exception))

    def test_without_gloo_there_is_mpi_and_without_mpirun_that_is_said(self):
        os.environ['PATH'] = FOLDER
        for hvd, options in ((Horovod(gloo=False), {}), (BeforeGloo(), {}), (Horovod(), {'controller': 'mpi'})):
            meeting = self.meeting(hvd, **options)
            meeting.ctx.rank = 0
            self.assertEqual((meeting.controller, meeting.backend), ('mpi', 'mpi'))
            with self.assertRaises(NotImplementedError) as caught:
                meeting.join()
            self.assertIn('cannot meet over MPI: the ranks are on several hosts', str(caught.exception))

    def test_the_sum_is_asked_for_in_the_words_of_the_release(self):
        hvd = Horovod()
        hvd.Sum = object()
        self.assertEqual(self.meeting(hvd).sum(), {'op': hvd.Sum})
        self.assertEqual(self.meeting(BeforeGloo()).sum(), {'average': False})

    def test_the_store_knows_a_key_when_it_was_given(self):
        server = self.module._store('127.0.0.1')
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

        def ask(*request):
            connection = HTTPConnection('127.0.0.1', server.server_port, timeout=20)      # novm
            connection.request(*request)
            answer = connection.getresponse()
            return answer.status, answer.read()

        self.assertEqual(ask('GET', '/global/0'), (404, b''))
        self.assertEqual(ask('PUT', '/global/0', b'\x00here'), (200, b''))
        self.assertEqual(ask('GET', '/global/0'), (200, b'\x00here'))
        self.assertEqual(ask('GET', '/global/1'), (404, b''))

    def test_what_it_was_built_for_must_be_something_that_is_driven(self):
        adapter = self.module.Adapter()
        with self.assertRaises(NotImplementedError) as caught:
            adapter.setup(Context(framework='ray'))
        self.assertIn('mxnet, pytorch, tensorflow', str(caught.exception))


if __name__ == '__main__':
    unittest.main()

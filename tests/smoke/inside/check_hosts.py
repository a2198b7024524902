from __future__ import absolute_import, division, print_function

import os
import select
import shutil
import socket
import tempfile
import threading
import time
import unittest

import boot  # noqa: F401
from envbuild_smoke import plan
from envbuild_smoke.clock import now
from envbuild_smoke.launching import agent, hosts, launch, ranks, remote, shipping, watchdog, wire
from envbuild_smoke.machine import probe
from envbuild_smoke.rank import heartbeat
from envbuild_smoke.check_record import check

PROMISED_S = 15         # docs/how-to/cluster.md promises this time from the last sign of life to the end of the launch


def hello(rank, name, local=None, slots=1, gpus=(), **changes):
    made = {'rank': rank, 'size': 4, 'local_rank': local, 'slots': slots, 'job': '', 'name': name, 'node': [name, 'boot', name],
            'guest': 'g', 'lock': 'l', 'devices': [{'name': gpu} for gpu in gpus], 'driver': None, 'cores': 4,
            'here': '', 'there': '10.0.0.1', 'ailments': []}
    return dict(made, **changes)


def team(*hellos, **options):
    """A Team whose processes have sent these hello messages. No connection is made."""
    made = hosts.Team.__new__(hosts.Team)
    made._place = ranks.Place(0, len(hellos) + options.pop('missing', 0), 0, 'ant', 29617, 'test')
    made._options = dict({'counts': 'auto', 'threads': 0, 'interface': '', 'join': 2, 'options': {}}, **options)
    made._mine = hosts.Member(hellos[0])
    others = [hosts.Member(each, link=True, address='10.0.0.%d' % (2 + number)) for number, each in enumerate(hellos[1:])]
    made.members, made._strangers, made.beyond = [made._mine] + others, [], []
    made.missing = list(range(len(hellos), made._place.size))
    made._order()
    made.size = sum(member.slots for member in made.members)
    return made


def four(**changes):
    return [hello(0, 'ant', 0), hello(1, 'ant', 1), hello(2, 'bee', 0), hello(3, 'bee', 1, **changes)]


class Single(object):
    style = 'single'


class Process(object):
    style = 'process'


def presence(made, kind='cpu'):
    check = made.checks(plan.Device(kind, 4, ''))[-1]
    return check['id'], check['status'], check['message']


class Order(unittest.TestCase):
    def test_ranks_dealt_round_the_hosts_are_put_together(self):
        made = team(hello(0, 'ant', 0), hello(1, 'bee', 0), hello(2, 'ant', 1), hello(3, 'bee', 1))
        self.assertEqual([member.rank for member in made.members], [0, 2, 1, 3])
        places = made._places(4)
        self.assertEqual([(p['node'], p['local_rank'], p['local_size'], p['hosts']) for p in places],
                         [(0, 0, 2, 2), (0, 1, 2, 2), (1, 0, 2, 2), (1, 1, 2, 2)])
        self.assertEqual([made.hosts_of(n) for n in (1, 2, 3, 4)], [1, 1, 2, 2])

    def test_counts_are_one_device_one_host_all_hosts(self):
        device = plan.Device('cpu', 4, '')
        self.assertEqual(team(*four()).choose(device, Process, {}), ([1, 2, 4], []))
        self.assertEqual(team(*four(), counts='1,4,8').choose(device, Process, {}), ([1, 4], [8]))

    def test_one_process_for_all_devices_cannot_span_hosts(self):
        made = team(*four())
        self.assertEqual(made.choose(plan.Device('cpu', 4, ''), Single, {}), ([1, 2], []))
        self.assertEqual([(c['n'], c['status']) for c in made.checks(plan.Device('cpu', 4, ''))],
                         [(4, 'skip'), (None, 'inconclusive'), (None, 'pass')])

    def test_devices_are_numbered_as_each_process_sees_them(self):
        every = team(hello(0, 'ant', 0, gpus='ab'), hello(1, 'ant', 1, gpus='ab'))
        own = team(hello(0, 'ant', 0, gpus='a'), hello(1, 'ant', 1, gpus='b'))
        self.assertEqual([member.devices('cuda') for member in every.members], [[0], [1]])
        self.assertEqual([member.devices('cuda') for member in own.members], [[0], [0]])
        pods = team(hello(0, 'ant', slots=2, gpus='ab'), hello(1, 'bee', slots=2, gpus='ab'))
        self.assertEqual([member.devices('cuda') for member in pods.members], [[0, 1], [0, 1]])

    def test_the_address_of_rank_0_is_the_one_that_others_reach(self):
        made = team(hello(0, 'ant', 0), hello(1, 'ant', 1, there='127.0.0.1'), hello(2, 'bee', 0, there='10.0.0.1'))
        self.assertEqual(made._mine.address, '10.0.0.1')
        self.assertEqual(team(hello(0, 'ant'), hello(1, 'ant', there='127.0.0.1'))._mine.address, '127.0.0.1')

    def test_hosts_of_one_name_are_told_apart(self):
        made = team(hello(0, 'box'), hello(1, 'box', node=['box', 'other boot', '']))
        self.assertEqual([member.title for member in made.members], ['box (10.0.0.1)', 'box (10.0.0.2)'])


class Presence(unittest.TestCase):
    def test_all_came(self):
        self.assertEqual(presence(team(*four())), ('HOSTS', 'pass', '4 of 4 processes have connected, started by test: '
                                                                    'ant (2), bee (2)'))

    def test_some_did_not(self):
        key, status, message = presence(team(*four(), missing=2))
        self.assertEqual((key, status), ('HOSTS', 'fail'))
        self.assertIn('ranks 4, 5 did not connect to ant:29617 within 2 s', message)

    def test_another_image_or_smoke_test(self):
        self.assertIn('rank 3 on bee has a different image', presence(team(*four(lock='m')))[2])
        self.assertIn('rank 3 on bee has a different smoke test', presence(team(*four(guest='h')))[2])

    def test_gpus_that_are_not_there_or_differ(self):
        gpus = [hello(rank, 'ant' if rank < 2 else 'bee', rank % 2, gpus=('A', 'A')) for rank in range(4)]
        self.assertEqual(presence(team(*gpus), 'cuda')[1], 'pass')
        self.assertIn('rank 3 on bee sees 0 GPUs', presence(team(*(gpus[:3] + [hello(3, 'bee', 1)])), 'cuda')[2])
        mixed = presence(team(*(gpus[:3] + [hello(3, 'bee', 1, gpus=('B', 'B'))])), 'cuda')
        self.assertEqual((mixed[1], mixed[2].endswith('A, B')), ('warn', True))


class Ailments(unittest.TestCase):
    def test_what_ails_another_host_is_said_once_with_its_name(self):
        little = check('SHM', None, 'fail', '64 MiB of /dev/shm', next_step='--ipc=host')
        made = team(hello(0, 'ant', 0, ailments=[little]), hello(1, 'bee', 0, ailments=[little]), hello(2, 'bee', 1, ailments=[little]))
        told = [each for each in made.checks(plan.Device('cpu', 3, '')) if each['id'] == 'SHM']
        self.assertEqual([(each['status'], each['message'], each['next_step']) for each in told],
                         [('fail', 'bee: 64 MiB of /dev/shm', '--ipc=host')])

    def test_a_machine_tells_what_ails_it(self):
        found = probe.facts()
        found['host'].update(mem_available_bytes=1 << 20, cores_usable=8)
        found['variables'] = {}             # ignore the variables that this machine sets
        options = {'device': 'auto', 'devices': 'auto', 'allow_cpu': False, 'expect': None, 'expect_gpus': None, 'threads': 0}
        told = agent.ailments(found, {'cuda': None, 'name': '', 'options': {}}, 2, options)
        self.assertEqual([(each['id'], each['status']) for each in told], [('RAM', 'warn')])


class Messages(unittest.TestCase):
    def pair(self):
        server = wire.listen(0)
        port = server.getsockname()[1]
        here = wire.connect('127.0.0.1', port, now() + 5)
        raw = server.accept()[0]
        server.close()
        self.addCleanup(here.close)
        self.addCleanup(raw.close)
        return here, raw

    def test_values_and_bytes_arrive_whole(self):
        here, raw = self.pair()
        there, blob = wire.Link(raw), os.urandom(3 << 20)
        sender = threading.Thread(target=lambda: [here.send({'number': n}, [blob, b'']) for n in range(3)])
        sender.start()
        got = []
        while len(got) < 3:
            got += there.receive(1.0)
        sender.join()
        self.assertEqual([value['number'] for value, _ in got], [0, 1, 2])
        self.assertTrue(all(blobs == [blob, b''] for _, blobs in got))

    def test_what_came_before_the_end_counts(self):
        here, raw = self.pair()
        there = wire.Link(raw)
        here.send({'last': 1})
        here.close()
        time.sleep(0.1)
        self.assertEqual(there.receive(1.0)[0][0]['last'], 1)
        with self.assertRaises(wire.Lost):
            there.receive(1.0)

    def test_beats_tell_how_far_apart_the_clocks_are(self):
        here, raw = self.pair()
        there = wire.Link(raw)
        self.addCleanup(there.close)
        until = now() + 10
        while (here.ahead is None or there.ahead is None) and now() < until:
            self.assertEqual((here.receive(0.05), there.receive(0.05)), ([], []))       # receive() returns no beats
        for link in (here, there):             # both ends read one clock, so the offset is at most half of a beat's travel time
            self.assertLessEqual(abs(link.ahead), link._shortest / 2 + 1e-6)

    def test_a_clock_that_began_elsewhere_is_translated(self):
        here, raw = self.pair()
        self.addCleanup(raw.close)
        sent = now()
        self.addCleanup(setattr, wire, 'now', wire.now)
        wire.now = lambda: sent
        here._hear_beat({'beat': sent + 5000.2, 'echo': [sent - 0.4, 0.2]})     # it heard our beat 0.2 s before it sent this one
        self.assertAlmostEqual(here.ahead, -5000.3, places=6)
        here._hear_beat({'beat': sent + 7000.0, 'echo': [sent - 60.0, 0.0]})    # a round trip of a minute is too inexact
        self.assertAlmostEqual(here.ahead, -5000.3, places=6)

    def test_silence_is_loss(self):
        here, _raw = self.pair()
        here._patience = 0.3
        with self.assertRaises(wire.Lost) as caught:
            for _ in range(20):
                here.receive(0.05)
        self.assertIn('no message for', str(caught.exception))

    def test_who_was_busy_reads_before_it_judges(self):
        here, raw = self.pair()
        there = wire.Link(raw)
        self.addCleanup(there.close)
        here._patience = 0.3
        wire.wait_for_any([here], 30)                   # the first beat of the other side has arrived
        time.sleep(0.8)                                 # this side reads nothing meanwhile, and the other side sends beats
        self.assertEqual(here.receive(0.0), [])

    def test_strangers_are_noticed(self):
        here, raw = self.pair()
        raw.sendall(b'GET / HTTP/1.1\r\nHost: here\r\n\r\n')
        with self.assertRaises(wire.Lost):
            here.receive(1.0)

    def test_nobody_answers(self):
        probe = socket.socket()
        probe.bind(('127.0.0.1', 0))
        self.addCleanup(probe.close)
        with self.assertRaises(wire.Lost):
            wire.connect('127.0.0.1', probe.getsockname()[1], now() + 0.3)
        here, _raw = self.pair()
        with self.assertRaises(wire.Lost):
            here.wait('answer', 0.3)


class Clock(object):
    """A clock that advances only while a test waits. It replaces `now`, `pause` and the module `select`."""

    error = select.error

    def __init__(self):
        self.seconds, self._thread = 1000.0, threading.current_thread()

    def now(self):
        return self.seconds

    def pause(self, seconds):
        if threading.current_thread() is not self._thread:
            return time.sleep(seconds)              # the thread that sends a link's beats must really wait
        self.seconds += seconds

    def select(self, reading, writing, other, seconds):
        found = select.select(reading, writing, other, 0)
        if not found[0] and seconds:
            self.seconds += seconds
            found = select.select(reading, writing, other, 0)
        return found


class FakeProcess(object):
    """A process that runs until it is killed."""

    pid, returncode = 0, None

    def poll(self):
        return self.returncode


class Endless(watchdog.Rank):
    """A rank on this host that would wait for ever for the lost rank."""

    def signal(self, number):
        if number == watchdog.signal.SIGKILL:
            self.process.returncode = -number


class Local(object):
    """A launch that starts no processes."""

    def _start(self, rank, _argv):
        log = os.path.join(self.plan['folder'], 'log-%d' % rank)
        shipping.write(log, b'')
        self.ranks.append(Endless(rank, self.plan['folder'], FakeProcess(), log))


class LocalLaunch(Local, launch.Launch):
    pass


class LocalTeamLaunch(Local, remote.TeamLaunch):
    pass


class Busy(object):
    """The link to a host that is alive but never answers."""

    def __init__(self, raw):
        self._raw = raw

    def fileno(self):
        return self._raw.fileno()

    def receive(self, _seconds=0.0):
        return []

    def send(self, _message, _blobs=()):
        pass


class Promise(unittest.TestCase):
    """How long after its last sign of life a lost host ends the launch, by a simulated clock (so on a machine of any speed)."""

    def setUp(self):
        self.clock, self.folder = Clock(), tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, True)
        for module in (wire, launch, watchdog, remote, agent, heartbeat):
            self.stand_in(module, 'now', self.clock.now)
        self.stand_in(wire, 'select', self.clock)
        for module in (wire, launch, watchdog):
            self.stand_in(module, 'pause', self.clock.pause)
        self.plan = {'n': 4, 'processes': 4, 'folder': self.folder, 'stall_s': 300, 'stall_first_s': 300, 'places': []}

    def stand_in(self, module, name, value):
        self.addCleanup(setattr, module, name, getattr(module, name))
        setattr(module, name, value)

    def silent(self):
        """A link to a process that never sends anything."""
        server = wire.listen(0)
        link = wire.Link(socket.create_connection(('127.0.0.1', server.getsockname()[1])))
        raw = server.accept()[0]
        server.close()
        self.addCleanup(raw.close)
        self.addCleanup(link.close)
        return link

    def pipe(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        return ours

    def test_on_the_side_of_rank_0(self):
        members = [hosts.Member(hello(0, 'ant')), hosts.Member(hello(1, 'cat'), Busy(self.pipe())),
                   hosts.Member(hello(2, 'bee'), self.silent()), hosts.Member(hello(3, 'bee'), self.silent())]
        for member in members:
            member.title = member.name
        begun = self.clock.now()
        with LocalTeamLaunch(self.plan, lambda *_: None, members, 1) as launched:
            outcome = launched.watch(begun + 3600)
        took = self.clock.now() - begun
        self.assertEqual((outcome.kind, outcome.blame), ('failed', 2))
        self.assertIn('the connection to its host bee was lost: no message for 10 s', outcome.ranks[2]['state'])
        self.assertGreater(took, wire.QUIET_S)
        self.assertLessEqual(took, PROMISED_S)
        self.assertEqual(launched.ranks[0].process.returncode, -9)

    def test_on_the_other_side(self):
        begun = self.clock.now()
        made = agent.Agent(self.silent(), {'interface': 'eth0'})
        made._launch = LocalLaunch(self.plan, None, [2, 3])
        made._hearts, made._moved = {2: 0, 3: 0}, {2: begun, 3: begun}
        with made._launch as launched:
            with self.assertRaises(wire.Lost):
                made.work(begun + 3600)
            made.end()
        took = self.clock.now() - begun
        self.assertGreater(took, wire.QUIET_S)
        self.assertLessEqual(took, PROMISED_S)
        self.assertEqual([rank.process.returncode for rank in launched.ranks], [-9, -9])


class FakeRank(object):
    def __init__(self, number, code, error=None, ended_at=0.0, finished=False, log=os.devnull):
        self.number, self._code, self._error, self.ended_at, self._finished = number, code, error, ended_at, finished
        self.log = log

    def poll(self):
        return self._code

    def has_finished(self):
        return self._finished

    def result(self):
        return {'error': self._error} if self._error or self._finished else None


class Blame(unittest.TestCase):
    def first(self, *ranks):
        return min([FakeRank(number, *rank) for number, rank in enumerate(ranks)], key=watchdog.order_of_failure).number

    def test_who_is_first(self):
        own, peer = {'time': 5.0}, {'time': 4.0, 'consequence': True}
        runs, done = (None,), (0, None, 1.0, True)
        silent, killed, aborted = (0, None, 6.0), (-9, None, 6.0), (-6, None, 6.5)
        for ranks, blamed in (
                ((done, runs, silent), 2), ((done, silent), 1), ((silent,), 0), ((runs, killed), 1), ((done, done, killed), 2),
                (((1, peer), silent), 1), (((1, peer), (1, own)), 1), (((1, own), killed), 1), (((1, own), silent), 1),
                (((1, own), aborted), 0),                       # perhaps rank 1 was aborted because its peer had ended
                (((1, {'time': 8.0}), aborted), 1), (((1, {'time': 6.2}), aborted), 1),
                (((1, peer), (3, None, 6.0)), 1), ((runs, (1, peer)), 1), (((-9, None, 7.0), (-11, None, 6.0)), 1)):
            self.assertEqual(self.first(*ranks), blamed, ranks)

    def test_an_aborted_rank_that_says_that_another_one_died_is_not_the_first(self):
        folder = tempfile.mkdtemp()
        try:
            log = os.path.join(folder, 'log')
            with open(log, 'w') as stream:
                stream.write('Terminating process because the JAX distributed service detected fatal errors. This most likely '
                             'indicates that another task died; see the other task logs for more details.\n')
            own = {'time': 6.2}
            self.assertEqual(self.first((-6, None, 6.5), (1, own)), 0)
            self.assertEqual(self.first((-6, None, 6.5, False, log), (1, own)), 1)
            self.assertEqual(self.first((-11, None, 6.5, False, log), (1, own)), 0)        # a crash of its own
        finally:
            shutil.rmtree(folder)


class Interface(unittest.TestCase):
    def test_between_hosts_nobody_is_sent_to_the_loopback(self):
        def plan_of(hosts, name):
            return {'places': [{'hosts': hosts}] if hosts else [], 'interface': name}

        self.assertEqual([launch.interface(plan_of(*each)) for each in ((0, ''), (1, ''), (1, 'eth0'), (1, 'lo'), (2, 'eth0'), (2, ''), (2, 'lo'))],
                         ['lo', 'lo', 'eth0', 'lo', 'eth0', '', ''])

    def test_a_process_beside_rank_0_takes_its_interface(self):
        made = agent.Agent.__new__(agent.Agent)
        made._options, made._interface = {'interface': ''}, 'lo'
        self.assertEqual(made._interface_for({'node': 0}, 'eth0'), 'eth0')
        self.assertEqual(made._interface_for({'node': 1}, 'eth0'), 'lo')
        made._interface = 'eth1'
        self.assertEqual(made._interface_for({'node': 0}, 'eth0'), 'eth1')


class Shipping(unittest.TestCase):
    def test_files_that_a_value_names_are_found_and_renamed(self):
        folder = tempfile.mkdtemp()
        path = os.path.join(folder, 'x.npy')
        shipping.write(path, b'abc')
        value = {'a': [{'b': path}, 'x.npy', 7, None], 'c': '/nowhere/x.npy'}
        self.assertEqual(shipping.named(value), [path])
        self.assertEqual(shipping.named(value, folder), [path])
        self.assertEqual(shipping.named(value, '/elsewhere'), [])
        self.assertEqual(shipping.renamed(value, {path: 'new'})['a'][0]['b'], 'new')
        self.assertEqual((shipping.digest(path)[0], shipping.digest('/nowhere/x.npy')), (3, None))
        shutil.rmtree(folder)


if __name__ == '__main__':
    unittest.main()

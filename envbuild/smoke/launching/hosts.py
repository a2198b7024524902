"""Rank 0's view of a run on several machines: which processes connected, which devices they have, and launches across them.

Each other process (agent.py) has one connection to rank 0. Rank 0 plans, watches, judges and reports for all processes. A host
is a machine or container with its own name and network.
"""
from __future__ import absolute_import, division, print_function

import socket

from .. import adapters
from .. import plan as plans
from ..clock import now
from ..machine import interfaces
from ..check_record import check
from . import agent, ranks, remote, shipping, wire
from .launch import Launch

ANSWER_S = 120              # seconds that a process may take to receive data and confirm it
ONE_HOST = ('with this framework, one process drives all devices of a host, so a run cannot use several hosts; use '
            'Horovod for that')
LOOPBACK = '127.'


def team(options, say):
    """Return the team of all processes that the launcher started, after they have connected; Alone if there is no launcher."""
    place = options.get('place')
    return Alone(options) if place is None else Team(place, options, say)


class Alone(object):
    """The team of a run without a launcher: this machine only."""

    def __init__(self, options):
        self._options = options

    def choose(self, device, _adapter, _found):
        """Return (numbers of devices to run, numbers that the machine does not have)."""
        return plans.choose_counts(self._options['counts'], device)

    def checks(self, _device):
        """Return no checks: there are no other hosts."""
        return []

    def launch(self, plan, on_progress):
        """Return the launch of a plan, with all ranks on this machine."""
        return Launch(plan, on_progress)

    def hosts_of(self, _n):
        """How many hosts the first n devices are on."""
        return 1

    def describe(self, _report):
        """Add nothing to the report: there are no other hosts."""

    def close(self):
        """Do nothing: there are no other processes."""


class Member(object):
    """One process of the launcher, as described by its `hello`.

    `link` is the connection to it, None for rank 0 itself; `problem` says why the connection was lost.
    """

    def __init__(self, hello, link=None, address=''):
        self.rank, self.slots, self.name = hello['rank'], hello['slots'], hello['name']
        self.hello, self.link, self.address, self.problem = hello, link, address, ''
        self.node, self.first = 0, 0

    def lose(self, error):
        """Record why the connection was lost. Only the first reason is kept."""
        if not self.problem:
            self.problem = str(error)

    def devices(self, kind):
        """The numbers of this member's devices, as the member's process counts them."""
        seen = len(self.hello['devices'])
        # A launcher may show each process only its own GPUs; then each process numbers its GPUs from 0.
        first = 0 if kind == 'cuda' and seen < self.first + self.slots else self.first
        return list(range(first, first + self.slots))


class Team(object):
    """The processes of the launcher, in order of their hosts."""

    def __init__(self, place, options, say):
        self._place, self._options, self._say = place, options, say
        self._mine = Member(dict(agent.hello(place, options), here='', there=''))
        self.members, self._strangers, self._shared, self.beyond = [self._mine], [], set(), []
        self._launches = 0
        self._gather()
        self._order()
        self.size = sum(member.slots for member in self.members)

    # Connecting the processes

    def _gather(self):
        """Wait at most --join seconds until all other processes have connected."""
        place, until = self._place, now() + self._options['join']
        if place.size > 1:
            self._say('rank 0 of %d (%s): waiting at %s:%d for the other processes' % (place.size, place.source, place.host, place.port))
            try:
                server = wire.listen(place.port)
            except (socket.error, OSError) as error:
                raise ranks.Unclear('rank 0 cannot listen on port %d: %s. Choose another port for all ranks with --master '
                                    'HOST:PORT or MASTER_PORT' % (place.port, error))
            try:
                while len(self.members) < place.size and now() < until:
                    server.settimeout(max(0.1, min(1.0, until - now())))
                    self._admit(server)
            finally:
                server.close()
        self.missing = sorted(set(range(place.size)) - set(member.rank for member in self.members))

    def _admit(self, server):
        try:
            link = wire.Link(server.accept()[0])
        except socket.timeout:
            return
        try:
            hello, _ = link.wait('rank', 5)
        except (wire.Lost, ValueError):
            link.close()
            return
        known = [member.rank for member in self.members]
        if hello['job'] != self._mine.hello['job'] or hello['size'] != self._place.size or hello['rank'] in known:
            self._strangers.append('a process of %s claims to be rank %d of %d' % (link.there, hello['rank'], hello['size']))
            link.close()
            return
        self.members.append(Member(hello, link, link.there))

    def _order(self):
        """Number hosts and devices; rank 0 and its host come first."""
        self.members.sort(key=lambda member: member.rank)
        nodes, taken = [], {}
        for member in self.members:
            if member.hello['node'] not in nodes:
                nodes.append(member.hello['node'])
            member.node = nodes.index(member.hello['node'])
        local = dict((member.rank, member.hello['local_rank']) for member in self.members)
        self.members.sort(key=lambda m: (m.node, m.rank if local[m.rank] is None else local[m.rank], m.rank))
        for member in self.members:
            member.first = taken.get(member.node, 0)
            taken[member.node] = member.first + member.slots
        self._per_node = [taken[node] for node in sorted(taken)]
        # Use an address at which another host reached rank 0. Rank 0's own name may resolve to 127.0.1.1 on its host.
        outside = [m.hello['there'] for m in self.members if m.link is not None and not m.hello['there'].startswith(LOOPBACK)]
        self._mine.address = outside[0] if outside else '127.0.0.1'
        for member in self.members:
            if member.address.startswith(LOOPBACK):
                member.address = self._mine.address
        for member in self.members:
            others = set(m.node for m in self.members if m.name == member.name)
            member.title = '%s (%s)' % (member.name, member.address) if len(others) > 1 else member.name
        self.interface = self._options['interface'] or interfaces.of(self._mine.address)

    def node_name(self, node):
        """The name of a host in messages."""
        return next(member.title for member in self.members if member.node == node)

    # Counts, checks and the report

    def choose(self, device, adapter, found):
        """Return (numbers of devices to run, numbers of devices that the hosts together do not have).

        By default, the numbers to run are 1, the number of one host's devices, and the number of all devices.
        """
        kind, text = device.kind, self._options['counts']
        if kind is None:
            return [], []
        device.available, device.reason = self.size, '%d %s on %d %s' % (
            self.size, 'GPUs' if kind == 'cuda' else 'CPU workers', len(self._per_node), 'hosts' if len(self._per_node) > 1 else 'host')
        counts = sorted(set((1, self._per_node[0], self.size))) if text == 'auto' else sorted(set(int(part) for part in text.split(',')))
        if adapters.style_of(adapter, kind, self._options['options']) == 'single':
            here = len(found['devices']) if kind == 'cuda' else self._per_node[0]
            counts, self.beyond = [n for n in counts if n <= here], [n for n in counts if n > here]
        return [n for n in counts if n <= self.size], [n for n in counts if n > self.size]

    def checks(self, device):
        """Return the check HOSTS, the problems of other hosts, and skipped checks for counts that cannot span hosts."""
        out = [check('DEVICES', n, 'skip', 'does not apply: ' + ONE_HOST) for n in self.beyond]
        if self.beyond:
            out.append(check('DEVICES', None, 'inconclusive', '%s were requested, but %s' % (
                ' and '.join('%d devices' % n for n in self.beyond), ONE_HOST), next_step='Use --alone to test a single host.'))
        return out + [self._presence(device)] + self._ailments()

    def _ailments(self):
        """The findings of the checks on the other hosts. Those of this host are in the report already."""
        return [dict(each, message='%s: %s' % (member.title, each['message']), detail=dict(each['detail'], host=member.title))
                for member in self._first_of_hosts() if member.node != self._mine.node for each in member.hello['ailments']]

    def _first_of_hosts(self):
        seen = dict((member.node, member) for member in reversed(self.members))
        return [seen[node] for node in sorted(seen)]

    def _presence(self, device):
        who = ', '.join('%s (%d)' % (self.node_name(node), slots) for node, slots in enumerate(self._per_node))
        words = '%d of %d processes have connected, started by %s: %s' % (len(self.members), self._place.size, self._place.source, who)
        detail = {'hosts': self.entries()}
        if self.missing:
            strangers = '; '.join([''] + self._strangers[:3])
            return check('HOSTS', None, 'fail', 'ranks %s did not connect to %s:%d within %g s%s. %s' % (
                ', '.join(map(str, self.missing)), self._place.host, self._place.port, self._options['join'], strangers, words),
                detail=detail, next_step=('Read the output of these ranks. Check that their hosts can reach %s on port %d '
                                          'and on the ports above 1024.') % (
                    self._place.host, self._place.port))
        for key, what in (('guest', 'smoke test'), ('lock', 'image')):
            others = [member for member in self.members if member.hello[key] != self._mine.hello[key]]
            if others:
                return check('HOSTS', None, 'fail', 'rank %d on %s has a different %s than rank 0' % (others[0].rank, others[0].title, what),
                             detail=detail, next_step=('Start the same image on every host: pull it again, or name it by '
                                                       'its digest.'))
        return self._alike(device, words, detail)

    def _alike(self, device, words, detail):
        if device.kind == 'cuda':
            without = [member for member in self.members if len(member.hello['devices']) < member.slots]
            if without:
                return check('HOSTS', None, 'fail', 'rank %d on %s sees %d GPUs, but needs %d' % (
                    without[0].rank, without[0].title, len(without[0].hello['devices']), without[0].slots), detail=detail,
                    next_step='Give every process on every host its GPUs (--gpus all, --gpus-per-task, nvidia.com/gpu).')
            kinds = sorted(set(each['name'] for member in self.members for each in member.hello['devices']))
            if len(kinds) > 1:
                return check('HOSTS', None, 'warn', '%s; the GPUs differ: %s' % (words, ', '.join(kinds)), severity='warn', detail=detail,
                             next_step='Use hosts with equal GPUs in one run: each step takes as long as on the slowest GPU.')
        return check('HOSTS', None, 'pass', words, value=len(self._per_node), unit='hosts', detail=detail)

    def entries(self):
        """The hosts, for the report."""
        out = []
        for node, slots in enumerate(self._per_node):
            there = [member for member in self.members if member.node == node]
            first = there[0].hello
            out.append({'name': there[0].name, 'address': there[0].address, 'devices': slots, 'ranks': [member.rank for member in there],
                        'gpus': sorted(each['name'] for each in first['devices']), 'driver': first['driver'], 'cores': first['cores']})
        return out

    def describe(self, report):
        """Add the hosts to the report, and say which bandwidths were measured between hosts and which within a host."""
        report['hosts'], bandwidth = self.entries(), {}
        report['launcher'] = self._place.source
        for entry in report['collectives']:
            entry['hosts'] = self.hosts_of(entry['n'])
            if entry['op'] != 'allreduce':
                continue
            best = bandwidth.setdefault(entry['hosts'] > 1, entry)
            bandwidth[entry['hosts'] > 1] = max(best, entry, key=lambda each: (each['n'], each['busbw_GBps']))
        for across, entry in sorted(bandwidth.items()):
            report['notes'].append('All-reduce %s: %.3g GB/s bus bandwidth (%d devices%s, %d bytes).' % (
                'between hosts' if across else 'within a host', entry['busbw_GBps'], entry['n'],
                ' on %d hosts' % entry['hosts'] if across else '', entry['bytes']))

    def hosts_of(self, n):
        """How many hosts the first n devices are on."""
        return len(set(place['node'] for place in self._places(n)))

    # Launches

    def _places(self, n):
        """Return, for each of n ranks, its member, host (node), slot, and numbers among the ranks of its host."""
        out = []
        for member in self.members:
            for slot in range(member.slots):
                out.append({'member': member, 'node': member.node, 'slot': slot})
        out = out[:n]
        for place in out:
            here = [each for each in out if each['node'] == place['node']]
            place.update(local_rank=here.index(place), local_size=len(here), hosts=len(set(each['node'] for each in out)))
        return out

    def launch(self, plan, on_progress):
        """Return the launch of a plan, with each rank on the host of its device."""
        places = self._places(plan['n'] if plan['processes'] > 1 else 1)
        slots = [place.pop('slot') for place in places]
        members = [place.pop('member') for place in places]
        most = max(place['local_size'] for place in places)
        cores = min(member.hello['cores'] for member in members)
        plan = dict(plan, places=places, interface=self.interface, threads=self._options['threads'] or max(1, cores // most))
        if plan['processes'] > 1:
            plan['devices'] = [member.devices(plan['device'])[slot] for member, slot in zip(members, slots)]
        elif plan['n'] == 1:
            plan['devices'] = self._mine.devices(plan['device'])[:1]
        plan['rendezvous'] = 'tcp://%s:%d' % (self._mine.address, _free_port())
        away = [member for member in self.members if member.link is not None and member in members]
        self._share(shipping.named([plan['data'], plan.get('workloads', [])]), away)
        self._launches += 1
        return remote.TeamLaunch(plan, on_progress, members, self._launches)

    def _share(self, paths, away):
        """Give every process the data: files that a process cannot read at the same path are sent to it."""
        facts = [[path, shipping.digest(path)] for path in paths]
        new = [member for member in away if not member.problem and (member.rank, tuple(paths)) not in self._shared]
        try:
            for member in new:
                member.link.send({'do': 'have', 'files': facts})
            for member in new:
                asked = member.link.wait('wanted', ANSWER_S)[0]['wanted']
                wanted = [each for each in facts if each[0] in asked]
                member.link.send({'do': 'store', 'files': wanted}, [shipping.read(path) for path, _ in wanted])
                stored = member.link.wait('stored', ANSWER_S)[0]['stored']
                if stored != wanted:
                    raise wire.Lost('the data files changed while they were sent')
                self._shared.add((member.rank, tuple(paths)))
        except wire.Lost as error:
            member.lose(error)                  # the launch reports it

    def close(self):
        """Tell all other processes to end, and close the connections."""
        for member in self.members:
            if member.link is not None:
                try:
                    if not member.problem:
                        member.link.send({'do': 'bye'})
                    member.link.close()
                except wire.Lost:
                    pass


def _free_port():
    """A port that is free on this host."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    probe.bind(('', 0))
    port = probe.getsockname()[1]
    probe.close()
    return port

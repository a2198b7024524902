"""Runs a launch whose ranks are on several machines. Agents on the other machines report on their ranks."""
from __future__ import absolute_import, division, print_function

import os

from .. import files
from ..clock import now
from ..rank.heartbeat import Monitor
from . import shipping, wire
from .launch import Launch
from .watchdog import POLL_S, Rank

LOGS_S = 3.0                # how long agents may take to send what their ranks printed
LOST_GRACE_S = 1.0          # how long the other ranks may take to report after a host was lost
LOST = -1000                # used in place of an exit status


class Told(Monitor):
    """A monitor that gets the lines of a heartbeat over the network. The time of arrival counts, because clocks differ."""

    def __init__(self):
        Monitor.__init__(self, os.devnull)
        self._news = []

    def hear(self, lines):
        """Store new lines of the rank's heartbeat for the next read()."""
        self._news += lines

    def read(self):
        lines, self._news = self._news, []
        for line in lines:
            self.take(line)
        if lines:
            self.last_time = now()
        return bool(lines)


class Process(object):
    """The part of subprocess.Popen's interface that a launch needs."""

    def __init__(self):
        self.returncode = None

    def poll(self):
        return self.returncode

    def wait(self):
        return self.returncode


class RemoteRank(Rank):
    """A rank that an agent watches."""

    is_here = False

    def __init__(self, number, folder, member):
        Rank.__init__(self, number, folder, Process(), os.path.join(folder, 'log-%d' % number), {'host': member.title})
        self.member, self.monitor, self._state, self._folder = member, Told(), '', folder
        files.write_text(self.log, u'')

    def state(self, with_children=False):
        return self._state

    def ending(self):
        if self.process.returncode == LOST:
            return 'the connection to its host %s was lost: %s' % (self.member.title, self.member.problem)
        return Rank.ending(self)

    def signal(self, number):
        _tell(self.member, {'do': 'signal', 'rank': self.number, 'number': int(number)})

    def see(self, state):
        """Store the state of the process, as its agent reports it."""
        self._state = state

    def end(self, message, blobs):
        """Record that the rank has ended: keep its result and the files that it names, each under a new name."""
        names = {}
        for path, blob in zip(message['paths'], blobs):
            names[path] = os.path.join(self._folder, 'rank-%d-%s' % (self.number, os.path.basename(path)))
            shipping.write(names[path], blob)
        result = shipping.renamed(message['result'], names)
        if result is not None:
            if result['error']:
                result['error']['time'] = self._here(result['error']['time'])
            files.write_json(os.path.join(self._folder, 'result-%d.json' % self.number), result)
        self.write_log(message['log'])
        self.process.returncode = message['code']

    def _here(self, seconds):
        """Convert a time of the rank's machine into a time of this machine; if the difference is unknown, return now."""
        ahead = self.member.link.ahead
        return now() if ahead is None else min(now(), seconds + ahead)

    def write_log(self, text):
        """Store the output of the rank so far."""
        files.write_text(self.log, text)


def _tell(member, message, blobs=()):
    """Send a message, unless the connection is lost. The launch notices the loss when it reads the next messages."""
    if member.link is None or member.problem:
        return
    try:
        member.link.send(message, blobs)
    except wire.Lost as error:
        member.lose(error)


class TeamLaunch(Launch):
    """The ranks of one plan on all members; `members` lists, for each rank, the member that runs it."""

    def __init__(self, plan, on_progress, members, number):
        self._number, self._members = number, members[:plan['processes']]
        Launch.__init__(self, plan, on_progress, [number for number, member in enumerate(self._members) if member.link is None])
        self._away = []
        for member in self._members:
            if member.link is not None and member not in self._away:
                self._away.append(member)
        self._logs = set()

    def __enter__(self):
        Launch.__enter__(self)
        for number, member in enumerate(self._members):
            if member.link is not None:
                self.ranks.append(RemoteRank(number, self.plan['folder'], member))
        self.ranks.sort(key=lambda rank: rank.number)
        for member in self._away:
            numbers = [number for number, each in enumerate(self._members) if each is member]
            _tell(member, {'do': 'launch', 'launch': self._number, 'plan': self.plan, 'ranks': numbers})
        return self

    def kill(self):
        Launch.kill(self)
        for member in self._away:
            _tell(member, {'do': 'kill'})

    def _read_hearts(self):
        self._listen()
        Launch._read_hearts(self)

    def _listen(self):
        """Read the messages of the agents."""
        for member in self._away:
            if not member.problem:
                try:
                    for message, blobs in member.link.receive():
                        if message.get('launch') == self._number:
                            self._take(message, blobs)
                except wire.Lost as error:
                    member.lose(error)
            if member.problem:
                for rank in self._of(member):
                    if rank.process.returncode is None:
                        rank.process.returncode = LOST

    def _of(self, member):
        return [rank for rank in self.ranks if getattr(rank, 'member', None) is member]

    def _take(self, message, blobs):
        ranks = dict((rank.number, rank) for rank in self.ranks if isinstance(rank, RemoteRank))
        if 'ended' in message:
            ranks[message['ended']].end(message, blobs)
        for number, lines in message.get('news', ()):
            ranks[number].monitor.hear(lines)
        for number, state in message.get('states', ()):
            ranks[number].see(state)
        for number, log in message.get('logs', ()):
            ranks[number].write_log(log)
            self._logs.add(number)

    def _grace(self):
        """Wait only briefly if a host is lost, because the cause is known then."""
        return LOST_GRACE_S if any(member.problem for member in self._away) else Launch._grace(self)

    def _pause(self):
        """Pause for POLL_S seconds, or until an agent's message arrives: a rank counts as silent until its message is read."""
        wire.wait_for_any([member.link for member in self._away if not member.problem], POLL_S)

    def _outcome(self, kind, blame=None, states=()):
        """Get the output of remote ranks that still run, and return the Outcome."""
        running = [rank for rank in self.ranks if isinstance(rank, RemoteRank) and rank.process.returncode is None]
        until, self._logs = now() + LOGS_S, set()
        for member in set(rank.member for rank in running):
            _tell(member, {'do': 'logs'})
        while not self._logs.issuperset(rank.number for rank in running if not rank.member.problem) and now() < until:
            self._pause()
            self._read_hearts()
        return Launch._outcome(self, kind, blame, states)

"""Runs in each process of the launcher except rank 0: starts the ranks that rank 0 asks for, and reports on them to rank 0.

Nothing that comes over the network is executed: the adapter and all programs come from this process's image or from its own
options.
"""
from __future__ import absolute_import, division, print_function

import hashlib
import io
import os
import shutil
import socket
import tempfile

from .. import files, image, machine_checks
from .. import plan as plans
from ..clock import now
from ..machine import interfaces, probe
from . import shipping, wire
from .launch import Launch
from .ranks import job

POLL_S = 0.1
STATES_EVERY_S = 1.0
SILENT_S = 3.0              # after so many seconds without progress, the state of a rank's child processes is read, too
LOG_AFTER_S = 0.5           # seconds for a rank to print its stacks after the signal
BEYOND_S = 120              # how many seconds after the run's time limit an agent still waits for rank 0 to end the run
LOST = 1


def hello(place, options):
    """Return the facts that rank 0 needs about this process: host, files, devices, and problems of the machine."""
    found, held = probe.facts(), image.read(options['lock'], options['framework'])
    return {
        'rank': place.rank, 'size': place.size, 'local_rank': place.local_rank, 'slots': place.slots, 'job': job(os.environ),
        'name': socket.gethostname(), 'node': [socket.gethostname(), _read('/proc/sys/kernel/random/boot_id'), _link('/proc/self/ns/net')],
        'guest': guest_digest(), 'lock': held['lock_sha256'],
        'devices': found['devices'], 'driver': found['host']['driver'], 'cores': found['host']['cores_usable'],
        'ailments': ailments(found, held, place.slots, options),
    }


def ailments(found, held, slots, options):
    """The checks of this machine that do not pass, except DEVICES: rank 0 checks the number of devices."""
    try:
        device = plans.choose_device(options, held, found)
    except plans.Refusal:
        return []                       # rank 0 has the same options and image, so it ends with the same error
    made = machine_checks.before(found, held, device, [slots], [], options)
    return [each for each in made if each['status'] not in ('pass', 'skip') and each['id'] != 'DEVICES']


def guest_digest():
    """The SHA-256 of the guest's Python files. It must be equal in all processes: different guests cannot work together."""
    total = hashlib.sha256()
    for folder, folders, names in os.walk(files.PROGRAM):
        folders.sort()
        for name in sorted(each for each in names if each.endswith('.py')):
            with io.open(os.path.join(folder, name), 'rb') as stream:
                total.update(os.path.relpath(os.path.join(folder, name), files.PROGRAM).encode('utf-8') + b'\0' + stream.read())
    return total.hexdigest()


def _read(path):
    try:
        with io.open(path, encoding='ascii') as stream:
            return stream.read().strip()
    except (IOError, OSError):
        return ''


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ''


def serve(place, options, say):
    """Carry out rank 0's requests until it sends `bye`. Return the exit status: 0, or 1 if the connection to rank 0 is lost."""
    try:
        link = wire.connect(place.host, place.port, now() + options['join'])
        link.send(dict(hello(place, options), here=link.here, there=link.there))
        say('rank %d of %d (%s): rank 0 at %s judges the run and writes the report' % (place.rank, place.size, place.source, link.there))
        agent = Agent(link, options)
        try:
            return agent.work(now() + options['join'] + options['timeout'] + BEYOND_S)
        finally:
            agent.end()
    except wire.Lost as error:
        say('lost the connection to rank 0 at %s:%d: %s' % (place.host, place.port, error))
        return LOST


class Agent(object):
    """Starts ranks, and sends their heartbeats, states, logs and results to rank 0."""

    def __init__(self, link, options):
        self._link, self._options = link, options
        self._folder = tempfile.mkdtemp(prefix='envbuild-smoke-')
        self._interface = options['interface'] or interfaces.of(link.here)
        self._data, self._launch, self._number = {}, None, 0
        self._hearts, self._ended, self._logs_at, self._states, self._states_at = {}, set(), None, [], 0.0
        self._moved = {}
        self.status = None

    def work(self, until):
        """Carry out rank 0's requests until it sends `bye`; return the exit status."""
        while self.status is None:
            for message, blobs in self._link.receive(POLL_S):
                getattr(self, '_do_' + message['do'])(message, blobs)
            if self._launch is not None:
                self._news()
            if now() > until:
                raise wire.Lost('rank 0 has sent nothing more, and the time limit has passed')
        return self.status

    def end(self):
        """Kill the ranks that still run, close the connection and remove the temporary files."""
        self._do_kill({}, ())
        self._link.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _do_bye(self, _message, _blobs):
        self.status = 0

    def _do_have(self, message, _blobs):
        """Tell rank 0 which of these files it must send. The others exist here already, for example on a shared file system."""
        wanted = [path for path, facts in message['files'] if path not in self._data and shipping.digest(path) != facts]
        self._data.update((path, path) for path, _ in message['files'] if path not in wanted and path not in self._data)
        self._link.send({'wanted': wanted})

    def _do_store(self, message, blobs):
        for (path, facts), blob in zip(message['files'], blobs):
            self._data[path] = os.path.join(self._folder, 'data-%d-%s' % (len(self._data), os.path.basename(path)))
            shipping.write(self._data[path], blob)
        self._link.send({'stored': [[path, shipping.digest(self._data[path])] for path, facts in message['files']]})

    def _do_launch(self, message, _blobs):
        folder = tempfile.mkdtemp(prefix='launch-', dir=self._folder)
        plan = shipping.renamed(message['plan'], self._data)
        plan.update(folder=folder, adapter=self._options['adapter'] or os.path.basename(plan['adapter']),
                    interface=self._interface_for(plan['places'][message['ranks'][0]], plan['interface']))
        self._hearts, self._ended, self._logs_at = dict((number, 0) for number in message['ranks']), set(), None
        self._states, self._states_at, self._moved = [], 0.0, dict((number, now()) for number in message['ranks'])
        self._launch, self._number = Launch(plan, None, message['ranks']), message['launch']
        self._launch.__enter__()

    def _interface_for(self, place, of_rank_0):
        """Return the interface of this host to the other hosts.

        A process on rank 0's host may have connected to rank 0 at 127.0.1.1, the address that Debian gives to a host's own
        name. Then its connection does not show the interface to the other hosts, and the interface that rank 0 found is used.
        """
        met_within = self._interface in ('', 'lo')
        return of_rank_0 if met_within and place['node'] == 0 and not self._options['interface'] else self._interface

    def _do_signal(self, message, _blobs):
        for rank in self._launch.ranks if self._launch is not None else ():
            if rank.number == message['rank']:
                rank.signal(message['number'])
        self._logs_at = now() + LOG_AFTER_S

    def _do_logs(self, _message, _blobs):
        self._send_logs()

    def _do_kill(self, _message, _blobs):
        if self._launch is not None:
            self._launch.kill()
            shutil.rmtree(self._launch.plan['folder'], ignore_errors=True)
            self._launch = None

    def _tell(self, message, blobs=()):
        """Send a message with the number of its launch, because it may arrive after the next launch has begun."""
        self._link.send(dict(message, launch=self._number), blobs)

    def _send_logs(self):
        ranks = self._launch.ranks if self._launch is not None else ()
        self._tell({'logs': [[rank.number, files.tail(rank.log)] for rank in ranks]})

    def _news(self):
        """Send the new output of the ranks, their states, and how they ended."""
        self._send_news(self._launch.ranks)
        if now() - self._states_at > STATES_EVERY_S:
            before, self._states_at = self._states, now()
            self._states = [[rank.number, rank.state(now() - self._moved[rank.number] > SILENT_S)] for rank in self._launch.ranks]
            if self._states != before:
                self._tell({'states': self._states})
        if self._logs_at is not None and now() > self._logs_at:
            self._logs_at = None
            self._send_logs()
        for rank in self._launch.ranks:
            if rank.number not in self._ended and rank.process.poll() is not None:
                self._ended.add(rank.number)
                self._end_of(rank)

    def _send_news(self, ranks):
        news = [[rank.number, lines] for rank, lines in [(rank, self._lines(rank.number)) for rank in ranks] if lines]
        if news:
            self._tell({'news': news})

    def _lines(self, number):
        """The complete lines that a rank's heartbeat has written since the last call."""
        path = os.path.join(self._launch.plan['folder'], 'heart-%d' % number)
        if not os.path.exists(path):
            return []
        with io.open(path, 'rb') as stream:
            stream.seek(self._hearts[number])
            data = stream.read()
        data = data[:data.rfind(b'\n') + 1]
        if data:
            self._hearts[number] += len(data)
            self._moved[number] = now()
        return data.decode('ascii').splitlines()

    def _end_of(self, rank):
        self._send_news([rank])
        result = rank.result()
        paths = shipping.named(result, self._launch.plan['folder'])
        self._tell({'ended': rank.number, 'code': rank.process.returncode, 'result': result, 'paths': paths,
                    'log': files.tail(rank.log)}, [shipping.read(path) for path in paths])

"""The program of one rank: imports the framework, runs the phases of the plan, and writes the measurements.

It judges nothing.
"""
from __future__ import absolute_import, division, print_function

import copy
import ctypes
import os
import signal
import sys
import traceback

import numpy as np

from .. import adapters, files, plain, shadows
from ..clock import now
from ..machine import contexts, mapped
from ..networks import nets
from . import bench, buckets, compiling, exchange, lost_peer, match, save, schemes, train, work
from .context import Context, exactly
from .group import Group, PeerLost
from .heartbeat import Heart

COMMON = (('coll', exchange.measure), ('oracle', exactly(match.measure)), ('buckets', exactly(buckets.measure)),
          ('work', work.measure))
OF_A_WORKLOAD = (('train', train.measure), ('save', save.measure), ('bench', bench.measure), ('schemes', schemes.measure))
AFTER_WORKLOADS = (('oracle_again', exactly(match.again)),)
LAST = (('compile', compiling.measure),)        # last: libraries that compilers load must not be taken for the framework's
PR_SET_PDEATHSIG = 1


class Session(object):
    """The objects that the phases of a rank share.

    `net` is the network that `make` builds; `trained` is the model that phase `train` leaves for phase `save`.
    """

    net, trained = nets.LENET, None

    def __init__(self, plan, rank, heart):
        self.plan, self.heart = plan, heart
        self.adapter = adapters.load(plan['adapter'])()
        group = Group(rank, plan['processes'], plan['rendezvous'])
        devices = [plan['devices'][rank]] if plan['processes'] > 1 else plan['devices']
        self.ctx = Context(rank, plan['processes'], plan['device'], devices, plan['n'], plan['threads'], plan['options'],
                           plan['seed'], group, folder=plan['folder'], shared=plan['shared'],
                           plain=plan.get('plain', False), *_where(plan, rank))

    def of(self, workload):
        """Return the session of one workload: the same ranks and adapter, with the workload's sections in the plan."""
        own = copy.copy(self)
        own.plan = dict(self.plan, **workload)
        own.plan['data'] = dict(self.plan['data'], **workload['data'])
        own.net = nets.of(workload['net'])
        return own

    def path(self, name):
        """The path of a file in the folder of this launch."""
        return os.path.join(self.plan['folder'], name)

    def data(self, part):
        """(images, labels) that the parent prepared for a phase."""
        place = self.plan['data'][part]
        return np.load(place['images'], mmap_mode='r'), np.load(place['labels'])

    def make(self, sync, lr, replicas=None, net=None):
        """Make a model with the run's start weights, on all devices of this process, or on some (`replicas`)."""
        replicas = list(range(len(self.ctx.devices))) if replicas is None else replicas
        net = net or self.net
        return self.adapter.make(net, net.initial(self.plan['seed']), lr, self.plan['momentum'], replicas, sync)


def _where(plan, rank):
    """Return (the host of rank 0, the place of this rank) for Context; () on a single machine."""
    if not plan['places']:
        return ()
    return plan['rendezvous'][len('tcp://'):].rsplit(':', 1)[0], dict(plan['places'][rank], interface=plan['interface'])


def _die_with_parent(parent):
    """Ask the kernel to kill this rank when its parent process ends, however it ends."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent:
        os._exit(1)


def _show_stacks_on_signal():
    """Let SIGUSR1 print the stacks of all threads into this rank's log; on Python 3 also while C code runs."""
    try:
        import faulthandler  # novm: Python 3.3
    except ImportError:
        signal.signal(signal.SIGUSR1, lambda number, frame: traceback.print_stack(frame))
        return
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _measure(session, phases, of, done, timing):
    """Run the planned phases one after the other; all ranks begin each phase together."""
    for name, measure in phases:
        if name not in session.plan['phases'] or (name == 'coll' and session.plan['processes'] == 1):
            continue
        session.heart.enter(name + of)
        session.ctx.group.barrier()
        start = now()
        done[name] = measure(session)
        timing['%s%s_s' % (name, of.replace(' ', '_'))] = now() - start


def _run(plan, rank, heart, result):
    heart.enter('rendezvous')
    session = Session(plan, rank, heart)
    heart.enter('import')
    start = now()
    session.adapter.setup(session.ctx)
    result['timing']['import_s'] = now() - start
    result['framework'] = session.adapter.versions()
    result['semantics'] = session.adapter.semantics
    result['allocator'] = plain.steering(os.environ)
    if plan['phases'] and hasattr(session.adapter, 'prepare'):
        heart.enter('prepare')
        start = now()
        session.adapter.prepare(heart.beat)
        result['timing']['prepare_s'] = now() - start
    _measure(session, COMMON, '', result['phases'], result['timing'])
    for workload in plan['workloads']:
        done = result['workloads'][workload['workload']] = {}
        _measure(session.of(workload), OF_A_WORKLOAD, ' ' + workload['workload'], done, result['timing'])
    _measure(session, AFTER_WORKLOADS, '', result['phases'], result['timing'])
    result['libraries'] = mapped.facts()        # done at the end, because frameworks load cuDNN when they first need it
    if plan['device'] == 'cuda':
        result['contexts'] = contexts.facts()
    _measure(session, LAST, '', result['phases'], result['timing'])
    heart.enter('end')
    session.ctx.group.barrier()
    session.adapter.close()
    session.ctx.group.close()


def main(plan_file, rank):
    """Return exit status 0 if everything was measured; otherwise the result file has the error."""
    plan = files.read_json(plan_file)
    _die_with_parent(plan['parent'])
    _show_stacks_on_signal()
    heart = Heart(os.path.join(plan['folder'], 'heart-%d' % rank))
    result = {'rank': rank, 'error': None, 'framework': None, 'semantics': {}, 'timing': {}, 'phases': {}, 'workloads': {}}
    try:
        _run(plan, rank, heart, result)
    except (Exception, SystemExit) as error:  # the parent reports any exception of a framework as a result
        traceback.print_exc()
        text = ascii_text(traceback.format_exc())
        result['error'] = {
            'phase': heart.phase, 'type': type(error).__name__, 'message': ascii_text(error), 'time': now(),
            'traceback': text, 'consequence': isinstance(error, PeerLost) or lost_peer.told_by(text), 'shadows': shadows.found(text),
        }
    files.write_json(os.path.join(plan['folder'], 'result-%d.json' % rank), result)
    sys.stdout.flush()
    sys.stderr.flush()
    # Do not use sys.exit: threads and exit handlers of a framework can wait for ever if another rank has died.
    os._exit(0 if result['error'] is None else 1)


def ascii_text(value):
    """Convert an exception or a text to plain ASCII. (Python 2 mixes bytes and text in messages.)"""
    text = value if isinstance(value, (bytes, type(u''))) else _message(value)
    if isinstance(text, bytes):
        text = text.decode('utf-8', 'replace')
    return text.encode('ascii', 'backslashreplace').decode('ascii')


def _message(error):
    try:
        return str(error)
    except UnicodeError:                # Python 2, where str() of a text that is not ASCII fails
        return type(u'')(error)

"""Reads the kernel's facts about a rank and the processes that it started."""
from __future__ import absolute_import, division, print_function

import io
import os

STATES = {'T': 'stopped by a signal', 't': 'stopped by a debugger', 'D': 'waiting in the kernel', 'Z': 'ended',
          'S': 'waiting', 'R': 'running'}
STOPPED = ('T', 't')


class Facts(object):
    """One process: its state as one letter, its parent, its session, its name."""

    def __init__(self, text):
        before, after = text.split('(', 1)[1].rsplit(')', 1)
        fields = after.split()
        self.name, self.state, self.parent, self.session = before, fields[0], int(fields[1]), int(fields[3])


def facts(pid):
    """The Facts of a process; None if there is no such process or /proc cannot be read."""
    try:
        with io.open('/proc/%d/stat' % pid, encoding='utf-8', errors='replace') as stream:
            return Facts(stream.read())
    except (IOError, OSError, IndexError, ValueError):
        return None


def state(pid, with_children=False):
    """Describe the state of a process; '' if the kernel does not report it.

    A rank that waits for its own child process looks as idle as a rank that waits for another rank. So with `with_children`, a
    stopped child of the rank is reported too. That reads all of /proc, so do not use it while something is timed.
    """
    own = facts(pid)
    if own is None:
        return ''
    if with_children and own.state not in STOPPED:
        for child, found in sorted(started_by(pid).items()):
            if found.state in STOPPED:
                return 'its child %d (%s) is %s' % (child, found.name, STATES[found.state])
    return STATES.get(own.state, '')


def with_variable(name, value):
    """The PIDs of all processes that have this variable in their environment, also of those whose parent has ended."""
    wanted, found = ('%s=%s' % (name, value)).encode('utf-8'), []
    for entry in os.listdir('/proc'):
        try:
            with io.open('/proc/%s/environ' % entry, 'rb') as stream:
                if entry.isdigit() and wanted in stream.read().split(b'\0'):
                    found.append(int(entry))
        except (IOError, OSError):
            continue            # the process belongs to another user, or it has ended
    return found


def is_stopped(words):
    """Whether this answer of `state` says that a process was stopped."""
    return any(STATES[letter] in words for letter in STOPPED)


def started_by(pid):
    """Return {pid: Facts} of all processes that a rank started: its descendants, and all processes of its session.

    If a process in between has ended, its children are no descendants of the rank any more, but they are still in its session.
    """
    try:
        every = dict((int(name), facts(int(name))) for name in os.listdir('/proc') if name.isdigit())
    except OSError:
        return {}
    every = dict((number, found) for number, found in every.items() if found is not None)
    out = dict((number, found) for number, found in every.items() if found.session == pid and number != pid)
    grown = True
    while grown:
        more = dict((number, found) for number, found in every.items() if (found.parent == pid or found.parent in out) and number not in out)
        out.update(more)
        grown = bool(more)
    return out

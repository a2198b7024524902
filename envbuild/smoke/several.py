"""Tests the frameworks of an image one after the other. Each has its own process, with the Python in which it is installed.

The process of this module imports no framework and measures nothing. It starts one process for each framework (a part), limits
its time, and combines the reports of all parts into one. The status of the whole is the worst status of a part. A part without
a test is "not-applicable", with the reason, and does not count. If no part has a test, the result is inconclusive.
"""
from __future__ import absolute_import, division, print_function

import os
import shutil
import sys
import tempfile

from . import adapters, members, verdict
from . import image as images
from .check_record import check
from .clock import now
from .launching.child import Child
from .reporting import report as reports

GRACE_S = 10.0              # after its time limit, a part has this long to write its report and end by itself
WORST = ('error', 'fail', 'inconclusive', 'pass')
# Options for a framework without a GPU build in this image. What the user demands of GPUs applies only to the other frameworks.
ON_CPU = ['--device', 'auto', '--expect', 'any', '--expect-gpus', '0']
NO_FLOORS = ['--min-speedup', '', '--min-efficiency', '']           # only for `run`: `coll` does not have these options


class Part(object):
    """The test of one framework: its process's report and log, and the verdict."""

    def __init__(self, member):
        self.member, self.report, self.log = member, None, ''
        self.status, self.code, self.reason, self.hung = 'error', verdict.FAIL, 'it was not tested', False

    def conclude(self, status, code, reason):
        """Set the verdict of the part."""
        self.status, self.code, self.reason = status, code, reason

    def entry(self):
        """The part's entry in the report."""
        member = self.member
        return {'framework': member.name, 'version': member.version, 'prefix': member.prefix, 'python': member.python,
                'status': self.status, 'reason': self.reason, 'report': self.report}

    def check(self):
        """One check that sums up the part."""
        status = {'not-applicable': 'skip', 'error': 'fail'}.get(self.status, self.status)
        blamed = [each for each in (self.report or {}).get('checks', ()) if each['status'] == status and each['next_step']]
        return check('HANG' if self.hung else 'PART', None, status,
                            '%s: %s' % (self.member.title(), self.reason or 'every check passed'),
                            next_step=blamed[0]['next_step'] if blamed and status != 'pass' else '',
                            detail={'framework': self.member.name})


class Several(object):
    """All parts of one call of `run` or `coll`. `say` is called with each line of progress."""

    def __init__(self, options, argv, say):
        self.options, self.argv, self.say = options, argv, say
        self.began = now()
        lock = images.load(options['lock'])
        whole = images.checked(options['lock'], lambda: images.whole(lock))
        self.parts = [Part(member) for member in members.read(options['lock'])]
        environment = dict((key, whole[key]) for key in ('name', 'cuda', 'cudnn', 'nccl', 'driver_min'))
        self.report = dict(
            reports.empty(), argv=argv, seed=options['seed'], environment=dict(environment, lock=whole['lock_sha256']), parts=[],
            collectives=[], data=None, timing={}, image={'ref': os.environ.get('ENVBUILD_IMAGE', ''), 'id': os.environ.get('ENVBUILD_IMAGE_ID', '')})

    def go(self):
        """Test every part.

        Each part is added to the report as soon as it ends, so that an interrupted run reports finished parts.
        """
        folder = tempfile.mkdtemp(prefix='envbuild-smoke-')
        try:
            for number, part in enumerate(self.parts):
                self.say('%s, %d of %d' % (part.member.title(), number + 1, len(self.parts)))
                try:
                    self._test(part, os.path.join(folder, '%d' % number))
                finally:
                    self._note(part)
            self._conclude()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _test(self, part, folder):
        limit = self.options['part_timeout']
        if self.options['timeout']:
            limit = min(limit, self.began + self.options['timeout'] - now())
        if part.member.recipe not in adapters.names():
            part.conclude('not-applicable', 0, 'this image has no test for it (no adapter "%s")' % part.member.recipe)
        elif limit < 1:
            part.conclude('inconclusive', verdict.INCONCLUSIVE, 'the time limit of the whole test passed before this '
                                                                "framework's turn")
        else:
            os.mkdir(folder)
            part.reason = 'it was interrupted'       # this reason stays only if this process is interrupted before _judge()
            child = Child(self._argv(part.member, os.path.join(folder, 'report.json'), limit), folder)
            try:
                code = child.wait(limit + GRACE_S)
            finally:
                child.end()
                part.report, part.log = child.report(), child.tail()
            sys.stdout.write(child.said())
            sys.stdout.flush()
            _judge(part, code, child.ending(), limit)

    def _argv(self, member, target, limit):
        own = ['--framework', member.name, '--json', target, '--timeout', '%.1f' % limit]
        if member.on_gpu:
            return self.argv + own
        # A speed that the user demands is meant for the frameworks on GPUs. If no framework is on GPUs, the demand stays, so
        # that it is not ignored silently.
        judged = any(part.member.on_gpu for part in self.parts)
        return self.argv + own + ON_CPU + (NO_FLOORS if judged and 'min_speedup' in self.options else [])

    def _note(self, part):
        self.report['parts'].append(part.entry())
        self.report['checks'].append(part.check())
        if part.report is None and part.log:
            self.report['logs'][part.member.name] = part.log
        for key in ('host', 'variables', 'devices'):
            if key in (part.report or {}):
                self.report.setdefault(key, part.report[key])
        self.report['mode'] = _mode(self.parts, self.options, self.report['environment']['cuda'] is not None)
        self.report['duration_s'] = round(now() - self.began, 3)

    def _conclude(self):
        """Take the status of the worst part. If several parts have this status, take the first."""
        tested = [part for part in self.parts if part.status != 'not-applicable']
        left_out = [part for part in self.parts if part not in tested]
        self.report['notes'] += ['%s: not tested and not counted: %s' % (part.member.title(), part.reason) for part in left_out]
        if not tested:
            self.report.update(status='inconclusive', exit_code=verdict.INCONCLUSIVE, reason=('this image has no framework with a '
                                                                                              'test'))
            return
        worst = min(tested, key=lambda part: WORST.index(part.status))
        reason = '' if worst.status == 'pass' else '%s: %s' % (worst.member.title(), worst.reason)
        self.report.update(status=worst.status, exit_code=worst.code, reason=reason)


def _judge(part, code, ending, limit):
    """Take the verdict from the part's report, if there is a report and the exit status agrees with it.

    `code` is the exit status of the part's process, or None if this process had to end it.
    """
    own = part.report or {}
    if code is None:
        part.hung = True
        part.conclude('fail', verdict.HANG, 'it was stopped, because it did not end within %.0f s%s' % (
            limit, '' if part.report is None else '; its report says: ' + (own.get('reason') or own['status'])))
    elif not own and code == verdict.USAGE and part.log.strip():
        part.conclude('error', verdict.FAIL, 'it did not start: %s' % part.log.strip().splitlines()[-1])
    elif not own:
        part.conclude('error', verdict.FAIL, 'it wrote no report and %s' % ending)
    elif code != own['exit_code']:
        part.conclude('error', verdict.FAIL, 'its report says %s, but its process %s' % (own['status'], ending))
    else:
        part.conclude(own['status'], code, own['reason'])


def _mode(parts, options, gpu_image):
    """Return the report's `mode`. Its device is 'cuda' only if every part with a GPU build used GPUs."""
    modes = [part.report['mode'] for part in parts if part.report and part.report.get('mode')]
    used = set(mode['device'] for mode in modes if mode['gpu_image']) or set(mode['device'] for mode in modes)
    device = next((kind for kind in (None, 'cpu', 'cuda') if kind in used), None)
    return {'device': device, 'gpu_image': gpu_image, 'allow_cpu': options['allow_cpu'], 'expect': options['expect']}


def table(report):
    """One line for each part, then the verdict."""
    width = max([len('framework')] + [len('%(framework)s %(version)s' % part) for part in report.get('parts', ())])
    lines = ['', '%-*s  %-12s %-7s %s' % (width, 'framework', 'environment', 'Python', 'result')]
    for part in report.get('parts', ()):
        lines.append('%-*s  %-12s %-7s %s' % (width, '%(framework)s %(version)s' % part, part['prefix'] or '-', part['python'] or '-',
                                              part['status'] + (': ' + part['reason'] if part['reason'] else '')))
    return lines + ['%s in %.0f s' % (report['status'].upper(), report['duration_s'])]

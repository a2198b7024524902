"""The verbs of `envbuild-smoke`. JSON reports go to --json FILE, tables to standard output, progress to standard error."""
from __future__ import absolute_import, division, print_function

import argparse
import errno
import os
import re
import signal
import sys
import tempfile
import traceback

from . import adapters, files, image, members, option_types, plan, shadows, sync
from .clock import now
from .datasets import workloads
from .judging import baseline
from .launching import ranks
from .networks import nets
from .reporting import diff, stored
from .verdict import USAGE

TIMEOUT_S = 900
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
REFUSALS = (files.NoScratch, plan.Refusal, stored.Unreadable, ranks.Unclear, adapters.UnknownAdapter, image.BadLock)
EXIT_CODES = ('Exit codes: 0 pass, 1 a check failed, 2 wrong usage or output that could not be written, 3 inconclusive, 4 a rank hangs, '
              '5 warnings under --strict; interrupted: 129 by SIGHUP (the terminal was closed), 130 by Ctrl-C, 143 by SIGTERM.')
INTERRUPTED = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}


def _options(parser):
    add = parser.add_argument
    add('--json', type=option_types.report_file, metavar='FILE', help='write the report to this file in one step; - means standard output')
    add('--lock', metavar='FILE', default='', help='the lock of the image (default: /opt/envbuild/lock.json)')
    add('--framework', default='', help=('the framework to test, if the image has several (default: run and coll test '
                                         'each in turn)'))
    add('--adapter', default='', help=('the name of an installed adapter, or an adapter file (default: the adapter of the '
                                       "lock's recipe)"))
    add('--option', action='append', default=[], metavar='KEY=VALUE', help=('an option for the adapter, in addition to '
                                                                            'the options in the lock'))
    add('--counts', type=option_types.counts, default='auto', help='numbers of devices to test, for example 1,2,4 (default: auto)')
    add('--device', choices=('auto', 'cpu', 'cuda'), default='auto', help='where to train (default: auto, which means GPUs in a GPU image, else the CPU)')
    add('--devices', default='auto', metavar='0,1|UUID|all', help='which GPUs to use, in this order (default: the largest '
                                                                  'set of equal GPUs). Two ranks share a GPU that is '
                                                                  'named twice: results are checked, speeds mean nothing')
    add('--allow-cpu', action='store_true', help='if there is no GPU, run a GPU image on the CPU')
    add('--expect', choices=('cpu', 'gpu', 'any'), default='any', help=('the kind of device that you expect (default: any). '
                                                                        'gpu: the run fails if there is no GPU. cpu: a GPU '
                                                                        'image that runs on the CPU (--allow-cpu or '
                                                                        '--device cpu) can pass'))
    add('--expect-gpus', type=option_types.any_number, default=0, metavar='N', help='fail if there are fewer GPUs than this')
    add('--threads', type=option_types.positive, default=0, help=('CPU threads per device (default: number of cores / largest number '
                                                      'of devices)'))
    add('--timeout', type=option_types.seconds, default=0, metavar='S', help=('time limit for the whole test (default: 900; no limit if '
                                                               'the image has several frameworks)'))
    add('--part-timeout', type=option_types.seconds, default=TIMEOUT_S, metavar='S', help=('time limit for each framework, if the image '
                                                                            'has several (default: 900)'))
    add('--stall', type=option_types.seconds, default=60, metavar='S', help=('stop if no rank makes progress for this time (default: 60); '
                                                                    'time without a processor does not count'))
    add('--stall-first', type=option_types.seconds, default=300, metavar='S', help=('like --stall, but until the framework is imported and '
                                                                     'the first step is done (default: 300)'))
    add('--strict', action='store_true', help='end with exit code 5 if there are warnings')
    add('--seed', type=option_types.seed, default=7, help='seed of the start weights and the generated images (default: 7)')


def _probe_options(look):
    look.add_argument('--measure', nargs='?', const='cpu,disk,network,gpu', default='', type=option_types.parts, metavar='cpu,disk,network,gpu',
                      help='also measure the speed of these parts: up to a minute for each GPU, a few seconds for the others')
    look.add_argument('--disk', metavar='DIR', default='', help=('measure the disk that holds this folder (default: the '
                                                                 'folder for temporary files)'))
    look.add_argument('--listen', type=option_types.positive, default=0, metavar='PORT', help=('wait for --connect from another '
                                                                                   'machine, then measure the network'))
    look.add_argument('--connect', default='', metavar='HOST:PORT', help=('measure the network to a machine that runs '
                                                                          '--listen'))


def _inner(verbs):
    """Add the verbs that other verbs start as separate processes."""
    gpus = verbs.add_parser('gpus', help='measures GPUs (run and probe start it)')
    gpus.add_argument('--out', required=True)
    gpus.add_argument('--do', required=True)
    gpus.add_argument('--count', type=int, required=True)
    worker = verbs.add_parser('worker', help='one rank (run starts it)')
    worker.add_argument('--plan', required=True)
    worker.add_argument('--rank', type=int, required=True)


def _run_options(parser):
    add = parser.add_argument
    add('--phases', type=option_types.phases, default='coll,oracle,buckets,train,save,bench,compile',
        help='some of coll,oracle,buckets,train,save,bench,compile')
    add('--workload', type=option_types.workloads, default='auto', metavar='mnist,cifar', help=('the data to train on (default: mnist; '
                                                                                    'on GPUs mnist and cifar)'))
    add('--net', type=option_types.nets, default='', help='%s (default: lenet for mnist, resnet20 for cifar)' % ', '.join(nets.NAMES))
    add('--data', default='', metavar='DIR', help='folder with the files of MNIST or CIFAR-10 (default: /data if it '
                                                  'exists, else generated images)')
    add('--scaling', type=option_types.scaling, default='weak', help='weak: a fixed batch per device; strong: a fixed total batch')
    add('--batch', type=option_types.positive, default=0, help=('images per device when speed is measured (default: 64 on CPUs, 256 '
                                                    'on GPUs)'))
    add('--epochs', type=option_types.positive, default=0, help='how often to train on all training images (default: 2)')
    add('--train-images', type=option_types.positive, default=0, help='number of training images (default: 8192)')
    add('--test-images', type=option_types.positive, default=0, help='number of images for the accuracy (default: 2048)')
    add('--rounds', type=option_types.positive, default=9, help='how often to measure the speed (default: 9)')
    add('--round-seconds', type=option_types.seconds, default=0, metavar='S', help=('length of one measurement (default: 0.25 on CPUs, 0.5 '
                                                                     'on GPUs)'))
    add('--warmup-max', type=option_types.positive, default=60, metavar='N', help='at most this many steps before the speed is measured (default: 60)')
    add('--min-accuracy', type=option_types.accuracy, default=None, metavar='SHARE', help=('the test fails below this accuracy, from 0 to 1 '
                                                                           '(the default depends on data and network)'))
    add('--min-speedup', type=option_types.floors, default={}, help='on GPUs, required speedup as DEVICES:RATIO, for example 2:1.2,4:2.0')
    add('--min-efficiency', type=option_types.floors, default={}, help=('on GPUs, required efficiency (speedup / number of '
                                                            'devices) as DEVICES:RATIO, for example 2:0.8'))
    add('--sync', type=option_types.sync, default='gradients', help=('how devices are synchronised: gradients, parameters:K, async:S, '
                                                         'or several of them'))
    add('--baseline', default='', metavar='REPORT', help='an earlier report; this run fails if it is worse')
    add('--tolerance', type=option_types.share, default=None,
        help='how much lower the speed may be than in the baseline (default: 0.1, and then a lower speed is only a warning)')


def _parser():
    parser = argparse.ArgumentParser(prog='envbuild-smoke', description=('Test whether this image trains correctly on one '
                                                                         'and on several devices, and measure the speed.'),
                                     epilog=EXIT_CODES)
    verbs = parser.add_subparsers(dest='verb', metavar='VERB')
    run = verbs.add_parser('run', help='run the smoke test (the default command)', epilog=EXIT_CODES)
    _options(run)
    _run_options(run)
    ranks.add_options(run)
    coll = verbs.add_parser('coll', help=('test whether collective operations are correct, and measure their bandwidth '
                                          'for several message sizes'), epilog=EXIT_CODES)
    _options(coll)
    ranks.add_options(coll)
    look = verbs.add_parser('probe', help='show the machine, the driver and the versions of the framework')
    _options(look)
    _probe_options(look)
    _inner(verbs)
    two = verbs.add_parser('diff', help='compare two reports, and say whether the second is worse', description=_diff.__doc__)
    two.add_argument('a', help='the earlier report')
    two.add_argument('b', help='the later report')
    two.add_argument('--tolerance', type=option_types.share, default=diff.TOLERANCE, help='how much lower the speed may be (default: %s)' % diff.TOLERANCE)
    explain = verbs.add_parser('explain', help='explain what a check means')
    explain.add_argument('id', nargs='?', default='')
    return parser


def main(argv):
    """Return the exit status, one of those in EXIT_CODES.

    The default verb is `run`: `docker run --gpus all IMAGE envbuild-smoke` runs the smoke test.
    """
    if not argv or (argv[0].startswith('-') and argv[0] not in ('-h', '--help')):
        argv = ['run'] + argv
    parser = _parser()
    options = vars(parser.parse_args(argv))
    verb = options.pop('verb')
    if verb == 'gpus':
        from .machine import gpu_work
        return gpu_work.main(options['out'], options['do'].split(','), options['count'])
    if verb == 'worker':
        from .rank import worker
        return worker.main(options['plan'], options['rank'])
    if verb == 'explain':
        return _explain(options['id'])
    if verb == 'diff':
        return _diff(options)
    beside = os.path.dirname(os.path.abspath(options['json'])) if options['json'] not in (None, '', '-') else ''
    why = files.unwritable(beside) if beside else options['json'] == '-' and sys.stdout.is_closed() and 'standard output is closed'
    if why:
        parser.error('--json %s: %s' % (options['json'], why))
    try:
        options['options'] = dict(pair.split('=', 1) for pair in options.pop('option'))
    except ValueError:
        parser.error('--option takes KEY=VALUE')
    options['expect'] = None if options['expect'] == 'any' else options['expect']
    try:
        files.choose_scratch(beside)
        options['place'] = ranks.find(options, os.environ) if verb != 'probe' else None
        if verb != 'probe' and not options['framework'] and not options['adapter'] and len(members.read(options['lock'])) > 1:
            return _several(options, argv)
        if options['framework']:
            members.enter(options['lock'], options['framework'], argv)
        options['timeout'] = options['timeout'] or TIMEOUT_S
        return {'run': _run, 'coll': _coll, 'probe': _probe}[verb](options, argv)
    except REFUSALS as error:
        sys.stderr.write('envbuild-smoke: %s\n' % error)
        return USAGE


def _explain(key):
    from . import explain
    if key.upper() in explain.TEXTS:
        print(explain.text(key.upper()))
        return 0
    for name in sorted(explain.TEXTS):
        print('%-8s %s' % (name, explain.TEXTS[name][0]))
    return USAGE if key else 0


def _diff(options):
    """Exit status 0: the second report is not worse. 1: it failed or is worse. 3: it is inconclusive, or the reports have nothing in common."""
    try:
        old, new = (stored.read(options[key], whole=True) for key in ('a', 'b'))
    except stored.Unreadable as error:
        sys.stderr.write('envbuild-smoke: %s\n' % error)
        return USAGE
    for title, one, other in baseline.pairs(old, new):
        print('\n'.join(([title] if title else []) + diff.table(one, other, diff.compare(one, other, options['tolerance']))))
    return baseline.exit_code(old, new, options['tolerance'])


class _Say(object):
    """Prints progress to standard error, with the seconds since the start."""

    def __init__(self):
        self.start = now()

    def __call__(self, text):
        sys.stderr.write('[%6.1f s] %s\n' % (now() - self.start, text))
        sys.stderr.flush()


def _on_signal(number, _frame):
    raise SystemExit(INTERRUPTED[number])


def _listen_to_signals():
    for number in INTERRUPTED:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:       # nohup ignores it on purpose
            signal.signal(number, _on_signal)


def _run(options, argv):
    from . import run
    from .launching import agent
    from .reporting import report
    if options['place'] is not None and options['place'].rank > 0:
        _listen_to_signals()
        return agent.serve(options['place'], options, _Say())
    options.setdefault('coll_bytes', plan.EXCHANGE_BYTES)
    options.setdefault('all_types', False)
    return _test(options, lambda: run.Run(options, argv, _Say()), report.table)


def _several(options, argv):
    from . import several
    if options['place'] is not None:
        raise ranks.Unclear('on several machines, only one framework can be tested at a time: choose one with --framework')
    return _test(options, lambda: several.Several(options, argv, _Say()), several.table)


def _test(options, make, table):
    """Run a test, print its report as a table, and write the report however the test ends."""
    from .reporting import report
    _listen_to_signals()
    answer = report.empty()
    try:
        this = make()
        answer = this.report
        this.go()
    except REFUSALS:
        raise
    except Exception as error:  # a bug of the smoke test: report it as an error, never as a pass or a failed check
        if not _is_out_of_room(error):
            traceback.print_exc()
        answer.update(status='error', exit_code=1, reason='the smoke test failed because of an error of its own: %s: %s' % (type(error).__name__, error))
        hidden = shadows.words(shadows.found(traceback.format_exc()))
        if hidden:
            answer['reason'] += '. The cause: ' + hidden
        if _is_out_of_room(error):
            answer['reason'] = 'cannot write to %s: %s. Without the files of this test, %s in %s. Free some space, or set TMPDIR to another folder' % (
                error.filename or tempfile.gettempdir(), os.strerror(error.errno or errno.ENOSPC), files.room(tempfile.gettempdir()), tempfile.gettempdir())
    except SystemExit as stop:
        answer.update(status='error', exit_code=stop.code, reason='interrupted')
        _write(options, answer)
        raise
    return _exit_code(_answer(options, answer, table), answer['exit_code'])


def _is_out_of_room(error):
    """Whether a disk is full or read-only. NumPy reports a short write in a message of its own, without an error number."""
    return isinstance(error, (IOError, OSError)) and (error.errno in NO_ROOM or re.search(r'\d requested and \d+ written', str(error)) is not None)


def _answer(options, answer, table):
    """Write JSON if the user asked for it, and print a table, to standard error if the JSON goes to standard output.

    Return whether the JSON was written.
    """
    is_written = _write(options, answer)
    (sys.stderr if options['json'] == '-' else sys.stdout).write('\n'.join(table(answer)) + '\n')
    return is_written


def _write(options, answer):
    """Write JSON if the user asked for it. Return False, after a sentence on standard error, if the file cannot be written."""
    if options['json'] == '-':
        sys.stdout.is_data = True
        sys.stdout.write(files.as_json(answer))
    elif options['json']:
        try:
            files.write_json(options['json'], answer)
        except (IOError, OSError) as error:
            if error.errno != errno.EPIPE:      # the reader of a pipe has gone on purpose
                sys.stderr.write('envbuild-smoke: cannot write the report to %s: %s\n' % (options['json'], error.strerror or error))
                return False
    return True


def _coll(options, argv):
    return _run(dict(options, phases=['coll'], coll_bytes=plan.ALL_EXCHANGE_BYTES, all_types=True, sync=[sync.GRADIENTS], min_speedup={},
                     min_efficiency={}), argv)


def _probe(options, argv):
    from . import look
    _listen_to_signals()
    answer = look.look(options, argv, _Say())
    return _exit_code(_answer(options, answer, look.table), 0 if answer['error'] is None else 1)


def _exit_code(is_written, code):
    """Return the exit status of a verb that ends with `code`, but whose report may not be written."""
    return code if is_written else code or USAGE

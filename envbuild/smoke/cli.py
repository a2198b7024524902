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

from . import adapters, files, image, members, plan, shadows, sync
from .clock import now
from .datasets import workloads
from .judging import baseline
from .launching import ranks
from .networks import nets
from .reporting import diff

USAGE = 2
TIMEOUT_S = 900
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
REFUSALS = (files.NoScratch, plan.Refusal, baseline.Unreadable, ranks.Unclear, adapters.UnknownAdapter, image.BadLock)
INTERRUPTED = {signal.SIGINT: 130, signal.SIGTERM: 143}


def _phases(text):
    known = ('coll', 'oracle', 'buckets', 'train', 'save', 'bench', 'compile')
    chosen = text.split(',')
    if not set(chosen) <= set(known):
        raise argparse.ArgumentTypeError('phases are %s' % ', '.join(known))
    if 'save' in chosen:
        chosen.append('train')          # saving needs a trained model
    return [phase for phase in known if phase in chosen]


def _workloads(text):
    if text != 'auto' and not set(text.split(',')) <= set(workloads.NAMES):
        raise argparse.ArgumentTypeError('workloads are auto, or some of %s' % ', '.join(workloads.NAMES))
    return text


def _nets(text):
    chosen = text.split(',') if text else []
    if not set(chosen) <= set(nets.NAMES):
        raise argparse.ArgumentTypeError('networks are %s' % ', '.join(nets.NAMES))
    return chosen


def _scaling(text):
    chosen = text.split(',')
    if not set(chosen) <= set(('weak', 'strong')):
        raise argparse.ArgumentTypeError('scaling is weak, strong or weak,strong')
    return chosen


def _counts(text):
    if text != 'auto' and not all(part.isdigit() and int(part) > 0 for part in text.split(',')):
        raise argparse.ArgumentTypeError('counts are numbers from 1 on, separated by commas, or auto')
    return text


def _floors(text):
    """Parse floors such as `2:1.2,4:2.0` into {number of devices: ratio}; {} for an empty text."""
    try:
        return {} if not text else dict((str(int(n)), float(ratio)) for n, ratio in (part.split(':') for part in text.split(',')))
    except ValueError:
        raise argparse.ArgumentTypeError('write it as DEVICES:RATIO, as in 2:1.2,4:2.0')


def _sync(text):
    try:
        return sync.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error))


def _parts(text):
    chosen = text.split(',') if text else []
    if not set(chosen) <= set(('cpu', 'disk', 'network', 'gpu')):
        raise argparse.ArgumentTypeError('cpu, disk, network and gpu can be measured')
    return chosen


def _positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError('a number from 1 on')
    return value


def _share(text):
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError('a number from 0 to 1, as 0.1')
    return value


def _any_number(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError('a number from 0 on')
    return value


def _options(parser):
    add = parser.add_argument
    add('--json', metavar='FILE', help='write the report there, in one step (-: to standard output)')
    add('--lock', metavar='FILE', default='', help='the image\'s lock (default: /opt/envbuild/lock.json)')
    add('--framework', default='', help='which one, where the image holds several (default: run and coll try each in turn)')
    add('--adapter', default='', help='an installed adapter or a file (default: the lock\'s recipe)')
    add('--option', action='append', default=[], metavar='KEY=VALUE', help='for the adapter, beside the lock\'s options')
    add('--counts', type=_counts, default='auto', help='numbers of devices, as 1,2,4 (default: auto)')
    add('--device', choices=('auto', 'cpu', 'cuda'), default='auto')
    add('--devices', default='auto', metavar='0,1|UUID|all', help='which GPUs, in this order (default: the largest set of equal ones); one '
        'that is named twice is shared by two ranks, which tests function, not speed')
    add('--allow-cpu', action='store_true', help='run a GPU image on the CPU where there is no GPU')
    add('--expect', choices=('cpu', 'gpu', 'any'), default='any', help='what the run must be: without a GPU, gpu fails; cpu accepts a GPU image on the CPU')
    add('--expect-gpus', type=_any_number, default=0, metavar='N', help='fail with fewer GPUs')
    add('--threads', type=_positive, default=0, help='CPU threads per device (default: cores / largest count)')
    add('--timeout', type=float, default=0, metavar='S', help='for everything (default: 900; of several frameworks none)')
    add('--part-timeout', type=float, default=TIMEOUT_S, metavar='S', help='for each of several frameworks (default: 900)')
    add('--stall', type=float, default=60, metavar='S', help='no rank gets further for so long: a hang (default: 60)')
    add('--stall-first', type=float, default=300, metavar='S', help='the same, while the framework is imported (default: 300)')
    add('--strict', action='store_true', help='warnings end with status 5')
    add('--seed', type=int, default=7)


def _probe_options(look):
    look.add_argument('--measure', nargs='?', const='cpu,disk,network,gpu', default='', type=_parts, metavar='cpu,disk,network,gpu',
                      help='how fast they are, too: a minute at most for each GPU, else seconds')
    look.add_argument('--disk', metavar='DIR', default='', help='the folder whose disk is measured (default: the temporary one)')
    look.add_argument('--listen', type=_positive, default=0, metavar='PORT', help='wait for --connect on another machine, to measure the network')
    look.add_argument('--connect', default='', metavar='HOST:PORT', help='measure the network to a machine that listens')


def _inner(verbs):
    """Add the verbs that other verbs start as separate processes."""
    gpus = verbs.add_parser('gpus', help='measures GPUs (started by run and probe)')
    gpus.add_argument('--out', required=True)
    gpus.add_argument('--do', required=True)
    gpus.add_argument('--count', type=int, required=True)
    worker = verbs.add_parser('worker', help='one rank (started by run)')
    worker.add_argument('--plan', required=True)
    worker.add_argument('--rank', type=int, required=True)


def _run_options(parser):
    add = parser.add_argument
    add('--phases', type=_phases, default='coll,oracle,buckets,train,save,bench,compile',
        help='some of coll,oracle,buckets,train,save,bench,compile')
    add('--workload', type=_workloads, default='auto', metavar='mnist,cifar', help='what to train (default: mnist; on GPUs both)')
    add('--net', type=_nets, default='', help='%s (default: lenet for mnist, resnet20 for cifar)' % ', '.join(nets.NAMES))
    add('--data', default='', metavar='DIR', help='files of MNIST or CIFAR-10 (default: /data if there is one; else images '
                                                  'are generated)')
    add('--scaling', type=_scaling, default='weak', help='weak: batch per device fixed; strong: global batch fixed')
    add('--batch', type=_positive, default=0, help='for the speed: images per device (default: 64 CPU, 256 GPU)')
    add('--epochs', type=_positive, default=0, help='default: 2')
    add('--train-images', type=_positive, default=0, help='so many of the data set (default: 8192)')
    add('--test-images', type=_positive, default=0, help='default: 2048')
    add('--rounds', type=_positive, default=9)
    add('--round-seconds', type=float, default=0)
    add('--warmup-max', type=_positive, default=60)
    add('--min-accuracy', type=float, default=None, help='default: by data and network')
    add('--min-speedup', type=_floors, default={}, help='on GPUs: DEVICES:RATIO, as 2:1.2,4:2.0')
    add('--min-efficiency', type=_floors, default={}, help='the same for the speedup per device, as 2:0.8')
    add('--sync', type=_sync, default='gradients', help='gradients, parameters:K, async:S, or several of them')
    add('--baseline', default='', metavar='REPORT', help='an earlier report that this run must not fall behind')
    add('--tolerance', type=_share, default=None,
        help='by which its speed may be lower (default: 0.1, and then only a warning)')


def _parser():
    parser = argparse.ArgumentParser(prog='envbuild-smoke', description='Does this image train correctly on 1 to N devices, and how fast?')
    verbs = parser.add_subparsers(dest='verb', metavar='VERB')
    run = verbs.add_parser('run', help='the smoke test (also without a verb)')
    _options(run)
    _run_options(run)
    ranks.add_options(run)
    coll = verbs.add_parser('coll', help='collectives: right answers, and bandwidth by message size')
    _options(coll)
    ranks.add_options(coll)
    look = verbs.add_parser('probe', help='the machine, the driver, the framework\'s versions')
    _options(look)
    _probe_options(look)
    _inner(verbs)
    two = verbs.add_parser('diff', help='two reports compared: is the second worse?', description=_diff.__doc__)
    two.add_argument('a')
    two.add_argument('b')
    two.add_argument('--tolerance', type=_share, default=diff.TOLERANCE)
    explain = verbs.add_parser('explain', help='what a check means')
    explain.add_argument('id', nargs='?', default='')
    return parser


def main(argv):
    """Return the exit status: 0 pass, 1 a check failed, 2 usage, 3 inconclusive, 4 hang, 5 warnings under --strict.

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
    why = beside and files.unwritable(beside)
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
    """Exit status 0: the second report is not worse. 1: it failed or is worse. 3: it proves nothing, or the reports have nothing in common."""
    try:
        old, new = (baseline.read(options[key], whole=True) for key in ('a', 'b'))
    except baseline.Unreadable as error:
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
        raise ranks.Unclear('on several machines one framework is tested at a time: name it with --framework')
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
        answer.update(status='error', exit_code=1, reason='the smoke test itself failed: %s: %s' % (type(error).__name__, error))
        hidden = shadows.words(shadows.found(traceback.format_exc()))
        if hidden:
            answer['reason'] += '. The cause: ' + hidden
        if _is_out_of_room(error):
            answer['reason'] = 'no more can be written to %s: %s. Give it room, or set TMPDIR to another folder' % (
                error.filename or tempfile.gettempdir(), os.strerror(error.errno or errno.ENOSPC))
    except SystemExit as stop:
        answer.update(status='error', exit_code=stop.code, reason='interrupted')
        _write(options, answer)
        raise
    _answer(options, answer, table)
    return answer['exit_code']


def _is_out_of_room(error):
    """Whether a disk is full or read-only. NumPy reports a short write in a message of its own, without an error number."""
    return isinstance(error, (IOError, OSError)) and (error.errno in NO_ROOM or re.search(r'\d requested and \d+ written', str(error)) is not None)


def _answer(options, answer, table):
    """Write JSON if the user asked for it, and print a table, to standard error if the JSON goes to standard output."""
    _write(options, answer)
    (sys.stderr if options['json'] == '-' else sys.stdout).write('\n'.join(table(answer)) + '\n')


def _write(options, answer):
    if options['json'] == '-':
        sys.stdout.write(files.as_json(answer))
    elif options['json']:
        files.write_json(options['json'], answer)


def _coll(options, argv):
    return _run(dict(options, phases=['coll'], coll_bytes=plan.ALL_EXCHANGE_BYTES, all_types=True, sync=[sync.GRADIENTS], min_speedup={},
                     min_efficiency={}), argv)


def _probe(options, argv):
    from . import look
    _listen_to_signals()
    answer = look.look(options, argv, _Say())
    _answer(options, answer, look.table)
    return 0 if answer['error'] is None else 1

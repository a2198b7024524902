"""The order of a run: look at the machine, prepare data, launch each count, judge, report."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import time

import numpy as np

from . import adapters, checks, diagnose, endings, environment, figures, image as images, limits, plan as plans, probe, refnet
from . import report as reports, synth
from .launch import Launch

BENCH_IMAGES = 2048
PTX_COMPILES_S = 900        # TensorFlow 2.3 took over 30 minutes on Ampere, most others a few


class Run(object):
    """One call of `run` or `coll`. `say` takes lines of progress."""

    def __init__(self, options, argv, say):
        self.say = say
        self.started = time.time()
        self.image = images.read(options['lock'], options['framework'])
        if not (options['adapter'] or self.image['recipe']):
            raise plans.Refusal('no lock in this image says which framework it holds: name an --adapter')
        self.adapter = adapters.load(options['adapter'] or self.image['recipe'])
        self.found = probe.facts()
        self.device = plans.choose_device(options, self.image, self.found)
        self.limits = limits.of(self.adapter, dict(self.image['options'], **options['options']))
        self.options = dict(options, phases=self.limits.phases(options['phases']))
        self.counts, self.left_out, self.beyond = self.limits.counts(*plans.choose_counts(options['counts'], self.device))
        self.report = reports.new(options, self.image, self.found, argv, self.started)
        self.report['mode']['device'] = self.device.kind
        self.folder = None
        self._shown = {}

    def go(self):
        """The finished report."""
        try:
            self._machine()
            if self.counts and not any(check['status'] == 'fail' for check in self.report['checks']):
                self._launch_all()
        finally:
            self.report['duration_s'] = round(time.time() - self.started, 3)
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
        return reports.conclude(self.report, self.options, time.time() - self.started)

    def _machine(self):
        found, image = self.found, self.image
        self.report['checks'] += environment.before(found, image, self.device, self.counts, self.left_out, self.options)
        if any(check['id'] == 'ARCH' and check['status'] == 'warn' for check in self.report['checks']):
            self.options['stall_first'] = max(self.options['stall_first'], PTX_COMPILES_S)
        self.report['checks'] += self.limits.checks(self.counts, self.beyond, self.options['min_speedup'])
        self.report['notes'] += self.limits.notes()

    def _launch_all(self):
        self.folder = tempfile.mkdtemp(prefix='envbuild-smoke-')
        data = self._prepare()
        deadline = self.started + self.options['timeout']
        for n in self.counts:
            folder = os.path.join(self.folder, '%d' % n)
            os.mkdir(folder)
            plan = plans.launch(self.options, self.image, self.device.kind, n, self.counts, adapters.style_of(self.adapter, self.device.kind),
                                folder, self.found['host']['cores_usable'])
            plan.update(plans.phases(self.options, self.device.kind, n, self.counts, data))
            with Launch(plan, self._progress) as launch:
                outcome = launch.watch(deadline)
            self._judge(n, plan, outcome)
            if outcome.kind in ('stalled', 'timeout'):
                break

    def _prepare(self):
        """Generate the data once and save it where the ranks map it."""
        start, options, seed = time.time(), self.options, self.options['seed']
        self.say('generating digits')
        largest = max(self.counts)
        sizes = {'oracle': plans.ORACLE['steps'] * plans.global_batch(largest), 'train': options['train_images'],
                 'test': options['test_images'], 'bench': max(BENCH_IMAGES, 2 * largest * (options['batch'] or 256))}
        needed = [part for part in ('oracle', 'train', 'test', 'bench') if part.replace('test', 'train') in options['phases']]
        data, self._arrays = {}, {}
        for number, part in enumerate(needed):
            pictures, labels = synth.digits(sizes[part], seed + 100 * (number + 1))
            self._arrays[part] = pictures, labels
            data[part] = {'images': os.path.join(self.folder, part + '-images.npy'), 'labels': os.path.join(self.folder, part + '-labels.npy')}
            np.save(data[part]['images'], pictures)
            np.save(data[part]['labels'], labels)
        self._start = refnet.initial(seed)
        self._wanted = {}
        self.report['timing']['data_s'] = round(time.time() - start, 3)
        if 'train' in needed:
            self.report['data'] = {'name': synth.NAME, 'source': 'generated', 'n_train': sizes['train'], 'n_test': sizes['test'],
                                   'sha256': synth.digest(*(self._arrays['train'] + self._arrays['test']))}
        return data

    def _reference(self, n):
        """(case, weights that must come out) for n devices; equal batches are trained once."""
        size = plans.global_batch(n)
        pictures, labels = self._arrays['oracle']
        steps, lr = plans.ORACLE['steps'], plans.ORACLE['lr']
        if size not in self._wanted:
            self._wanted[size] = refnet.train(self._start, pictures, labels, steps, size, lr, plans.MOMENTUM)[0]
        return diagnose.Case(self._start, pictures, labels, steps, size, n, lr, plans.MOMENTUM), self._wanted[size]

    def _progress(self, n, monitor):
        """A line for each new phase, then one every few seconds."""
        now = time.time()
        phase, last = self._shown.get(n, ('', 0.0))
        if monitor.phase != phase or now - last >= 5:
            self._shown[n] = (monitor.phase, now)
            self.say('%d %s: %s' % (n, 'worker' if n == 1 else 'workers', monitor.where()))

    def _judge(self, n, plan, outcome):
        """Checks and figures of one launch."""
        report, options = self.report, self.options
        report['checks'] += endings.ending(n, outcome)
        if outcome.kind != 'done':
            for rank, text in enumerate(outcome.logs):
                report['logs']['%d workers, rank %d' % (n, rank)] = text
            return
        results, done = outcome.results, outcome.results[0]['phases']
        for name, seconds in results[0]['timing'].items():
            key = '%dx_%s' % (n, name)
            report['timing'][key] = round(seconds, 3)
        if report['framework'] is None:
            report['framework'] = reports.framework(plan['adapter'], results[0])
            report['checks'] += environment.of_framework(self.image, report['framework'])
        evidence = [result['phases'][name]['evidence'] for result in results for name in ('oracle', 'train') if name in done]
        if evidence:
            report['checks'] += checks.placement(n, self.device, evidence)
        if 'work' in done:
            report['checks'] += limits.work(done['work'])
            return
        if 'coll' in plan['phases']:
            report['checks'] += checks.collectives(n, results)
            report['collectives'] += figures.collectives(n, results) if 'coll' in done else []
        if 'oracle' in done:
            case, wanted = self._reference(n)
            report['checks'] += checks.oracle(n, case, wanted, self._saved(results))
        report['checks'] += checks.replicas(n, results)
        if 'train' in done:
            entry, learned = figures.training(n, plan, results, options['train_images'])
            first = report['training'][0] if report['training'] else None
            entry['epoch_speedup'] = first['seconds'] / entry['seconds'] if first and first['n'] == 1 else None
            report['training'].append(entry)
            report['checks'] += checks.learning(n, learned, options['min_accuracy'])
        for measured in done.get('bench', ()):
            run = figures.run(n, measured, self.device.kind, figures.exchange_time(results), options['min_speedup'])
            report['runs'].append(run)
            report['checks'] += checks.speed(n, run, options['min_speedup'])

    @staticmethod
    def _saved(results):
        """[(replica, weights)] of every copy that the ranks saved after the oracle's steps."""
        out = []
        for result in results:
            for path in result['phases']['oracle']['weights']:
                with np.load(path) as stored:
                    out.append((len(out), dict((name, stored[name]) for name in refnet.NAMES)))
        return out

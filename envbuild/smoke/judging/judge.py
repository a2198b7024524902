"""Turns the results of one launch into checks and figures of the report."""
from __future__ import absolute_import, division, print_function

import os

import numpy as np

from .. import machine_checks
from .. import plain as plains
from .. import plan as plans
from ..machine_checks import limits
from ..networks import nets, refnet
from ..reporting import figures
from ..reporting import report as reports
from . import buckets, checks, compiling, endings, later_steps, precision, reported, schemes, speed, timed
from .simulate import Case


class Judge(object):
    """Judges the launches of one run, one after the other, and adds checks and figures to the report of the run."""

    def __init__(self, report, options, image, device, parts, prepared):
        self.report, self.options, self.image, self.device = report, options, image, device
        self.parts, self._prepared = parts, prepared
        self._net, self._wanted, self._larger = nets.of(plans.ORACLE['net']), {}, None
        self._start = self._net.initial(options['seed'])

    def launch(self, n, plan, outcome):
        """Judge everything that one launch measured."""
        report = self.report
        report['checks'] += endings.ending(n, outcome)
        if outcome.kind != 'done':
            for rank, text in enumerate(outcome.logs):
                report['logs']['%d workers, rank %d' % (n, rank)] = text
            return
        results = outcome.results
        for name, seconds in results[0]['timing'].items():
            report['timing']['%dx_%s' % (n, name)] = round(seconds, 3)
        if report['framework'] is None:
            report['framework'] = reports.framework(plan['adapter'], results[0])
            report['allocator'] = {'variables': results[0]['allocator'], 'set_by_test': plains.set_by_test(os.environ)}
            report['checks'] += machine_checks.of_framework(self.image, report['framework'], self.device.kind == 'cuda')
        evidence = [phase['evidence'] for result in results for phase in _phases(result) if 'evidence' in phase]
        if evidence:
            report['checks'] += checks.placement(n, self.device, evidence)
        self._common(n, plan, results)
        for part, section in zip(self.parts, plan['workloads']):
            self._workload(n, part, dict(plan, **section), results)

    def plain(self, n, plan, outcome):
        """Judge the launch that ran without the settings of the smoke test: report its figures, or how it ended."""
        if outcome.kind != 'done':
            self.report['checks'] += endings.ending(n, outcome)
            return
        done = outcome.results[0]['workloads'][plan['workloads'][0]['workload']]
        self.report['plain_runs'].append(plains.entry(n, done['bench'][0], outcome.results[0]['allocator']))

    def _common(self, n, plan, results):
        """Judge what no workload changes: collectives, reference network, tasks of frameworks that train nothing."""
        report, done = self.report, results[0]['phases']
        report['checks'] += compiling.checks(n, done.get('compile'))
        if 'work' in done:
            report['checks'] += limits.work(done['work'])
            return
        if 'coll' in plan['phases']:
            report['checks'] += checks.collectives(n, results)
            report['collectives'] += figures.collectives(n, results, report['link']) if 'coll' in done else []
        if 'oracle' in done:
            made = self._oracle(n, plan, results, 'oracle')
            if 'oracle_again' in done and made['status'] != 'fail':
                made = later_steps.joined(made, self._oracle(n, plan, results, 'oracle_again'))
            report['checks'].append(made)
        if 'buckets' in done:
            report['checks'] += buckets.judge(n, self._buckets(plan['buckets']), results, self._reduced(n))
        report['checks'] += checks.replicas(n, results)

    def _oracle(self, n, plan, results, phase):
        """The check ORACLE from one of the two trainings of the reference network."""
        case, wanted = self._reference(n)
        made, = checks.oracle(n, case, wanted, _saved(results, phase), self._alone(), self._precisions(plan), self.device.kind)
        made = checks.with_start(made, sum((result['phases'][phase]['began'] for result in results), []))
        every = results[0]['phases'][phase]['every_step']
        if every and made['status'] != 'fail':
            limits = later_steps.limits_of(case.net, self.device.kind, reduced=made['status'] == 'warn')
            made = later_steps.judge(made, later_steps.measure(case, every), case.steps, limits)
        if every and made['status'] != 'fail':
            own = [result['phases'][phase] for result in results]
            made = reported.judge(made, reported.Expected(case, every), [each['losses'] for each in own],
                                  [_answers(each) for each in own], reported.limit_of(self.device.kind, self._precisions(plan)))
        return made

    def _buckets(self, plan):
        """The expected weights of phase `buckets`. They are computed again only if the plan of the phase differs."""
        if self._larger is None or self._larger.plan != plan:
            net = nets.of(plan['net'])
            self._larger = buckets.Wanted(plan, net.initial(self.options['seed']), *self._prepared.oracle, momentum=plans.MOMENTUM)
        return self._larger

    def _reduced(self, n):
        """The reduced precision that ORACLE accepted with a warning on this number of devices; '' if it passed or failed."""
        seen = [each for each in self.report['checks'] if (each['id'], each['n'], each['status']) == ('ORACLE', n, 'warn')]
        return seen[0]['detail']['hypothesis']['id'][len('reduced-'):] if seen else ''

    def _precisions(self, plan):
        """The reduced precisions that a launch may use."""
        return precision.possible(self.device.kind, self.report['devices'], plan['options'], os.environ)

    def _alone(self):
        """The check ORACLE of one device alone in this run; None if no launch had one device."""
        return next((each for each in self.report['checks'] if each['id'] == 'ORACLE' and each['n'] == 1), None)

    def _workload(self, n, part, plan, results):
        """Judge the measurements of one workload, and mark the checks with its name."""
        report, options, made = self.report, self.options, []
        own = [{'phases': result['workloads'][part.name]} for result in results]
        done = own[0]['phases']
        limit = None
        if 'train' in done:
            entry, learned = figures.training(n, plan, own, self._trained_on(part)['n_train'])
            data = self._trained_on(part)
            limit = dict(part.limit(data['name'], entry['steps'] * entry['global_batch'], data['n_train'], options['min_accuracy']),
                         outputs=reported.limit_of(self.device.kind, self._precisions(plan)))
            self._note_training(n, part, entry)
            made += checks.learning(n, learned, limit)
        precisions = self._precisions(plan)
        alone = timed.single(n, own, precisions, self.device.kind)
        if n > 1:
            losses = [result['phases']['oracle']['losses'] for result in results if 'oracle' in result['phases']]
            alone = timed.replicas(n, own) + (alone or timed.exchange(n, own, losses, timed.is_exact(part.net, precisions), self.device.kind))
        made = timed.drained(n, own) + alone + made
        if 'save' in done:
            made += checks.saved(n, done['save'], self.device.kind)
        for measured in done.get('bench', ()):
            run = figures.run(n, measured, figures.exchange_time(results, part.net.name))
            run.update(speed.standing(n, run, self.device.kind, options))
            if self.device.shared and n > 1:
                run.update(judged=False, why_not_judged='ranks share a GPU')
            report['runs'].append(run)
            made += speed.verdict(n, run, options)
        for name in plan['schemes'] if 'schemes' in done else ():
            entry, judged = schemes.judge(name, n, plan, own, lambda under: checks.oracle(
                n, *self._reference(n), saved=_saved(under), possible=precisions, kind=self.device.kind), limit, self._trained_on(part)['n_train'])
            report['schemes'].append(dict(entry, workload=part.name))
            made.append(judged)
        report['checks'] += [dict(check, workload=part.name) for check in made]

    def _trained_on(self, part):
        return next(entry for entry in self._prepared.entries if entry['workload'] == part.name)

    def _note_training(self, n, part, entry):
        first = next((other for other in self.report['training'] if (other['n'], other['workload']) == (1, part.name)), None)
        entry.update(workload=part.name, net=part.net.name, data=self._trained_on(part)['name'],
                     epoch_speedup=first['seconds'] / entry['seconds'] if first else None)
        self.report['training'].append(entry)

    def _reference(self, n):
        """Return (case, expected weights) for n devices. The weights are computed once for each size of the global batch."""
        size, (pictures, labels) = plans.global_batch(n), self._prepared.oracle
        steps, lr = plans.ORACLE['steps'], plans.ORACLE['lr']
        if size not in self._wanted:
            self._wanted[size] = refnet.train(self._net, self._start, pictures, labels, steps, size, lr, plans.MOMENTUM)[0]
        return Case(self._net, self._start, pictures, labels, steps, size, n, lr, plans.MOMENTUM), self._wanted[size]


def _phases(result):
    """Return the measurements of all phases of a rank, except those that are no dictionaries."""
    found = list(result['phases'].values()) + [phase for each in result['workloads'].values() for phase in each.values()]
    return [phase for phase in found if isinstance(phase, dict)]


def _answers(phase):
    with np.load(phase['answers']) as stored:
        return stored['logits']


def _saved(results, phase='oracle'):
    """[(replica, weights)] of every copy that the ranks saved after the steps that are compared."""
    out = []
    for result in results:
        for path in result['phases'][phase]['weights']:
            with np.load(path) as stored:
                out.append((len(out), dict((name, stored[name]) for name in stored.files)))
    return out

"""The order of a run: examine the machine, prepare the data, launch and judge each number of devices, report."""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
import time

from . import adapters, machine_checks, plain, sync, verdict
from . import image as images
from . import plan as plans
from .clock import now
from .datasets import data as datas
from .judging import baseline, compiling, speed
from .judging.judge import Judge
from .launching import hosts
from .machine import gpuwatch, link, probe
from .machine_checks import limits, loopback, peercopy
from .reporting import report as reports
from .reporting import stored

# The least --stall-first if the driver must compile PTX. Most frameworks need a few minutes for that; TensorFlow 2.3 took over
# 30 minutes on Ampere.
PTX_COMPILES_S = 900


class Run(object):
    """One call of `run` or `coll`. `say` is called with each line of progress."""

    def __init__(self, options, argv, say):
        self.say = say
        self.began, self.started = now(), time.time()
        self.team = hosts.team(options, say)
        self.image = images.read(options['lock'], options['framework'])
        if not (options['adapter'] or self.image['recipe']):
            raise plans.Refusal('no lock in this image names its framework: choose an --adapter')
        self.baseline = stored.read(options['baseline'], options['framework']) if options.get('baseline') else None
        self.left_out_checks = []
        self.adapter = adapters.load(options['adapter'] or self.image['recipe'])
        self.found = probe.facts()
        self.device = plans.choose_device(options, self.image, self.found)
        if self.device.shared and not getattr(self.adapter, 'shares_gpus', False):
            raise plans.Refusal('--devices names a GPU twice, but %s cannot run several ranks on one GPU' % self.adapter.name)
        self.limits = limits.of(self.adapter, dict(self.image['options'], **options['options']), self.device.kind)
        self.options, notes = plans.with_enough_rounds(dict(options, phases=self._phases(options)))
        self.counts, self.left_out, self.beyond = self.limits.counts(*self.team.choose(self.device, self.adapter, self.found))
        if self.device.kind == 'cpu' and self.counts:
            plans.refuse_too_many(-(-max(self.counts) // self.team.hosts_of(max(self.counts))), self.found['host'])
        self.parts, left_out = plans.parts(self.options, self.device, self.adapter)
        plans.refuse_impossible(self.options, self.parts, self.counts)
        self.report = reports.new(options, self.image, self.found, argv, self.started)
        self.report['mode']['device'] = self.device.kind
        self.report['checks'] += left_out + self.left_out_checks
        self.report['notes'] += notes
        self.folder = None
        self._shown = {}

    def _phases(self, options):
        """The phases that apply to this framework and this image."""
        phases = self.limits.phases(options['phases'])
        if 'compile' not in options['phases'] or not hasattr(self.adapter, 'compile_and_run'):
            return [phase for phase in phases if phase != 'compile']
        if not compiling.is_left_out(dict(self.image['options'], **options['options'])):
            return phases
        self.left_out_checks = compiling.left_out()
        return [phase for phase in phases if phase != 'compile']

    def go(self):
        """Run all stages and return the finished report."""
        try:
            self._machine()
            if self.counts and not any(check['status'] == 'fail' for check in self.report['checks']):
                self._prepare_and_launch()
        finally:
            self.team.close()
            self.report['duration_s'] = round(now() - self.began, 3)
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
        self.team.describe(self.report)
        self.report['checks'] += speed.unmeasured(self.options, self.report['checks'])
        if self.baseline:
            self.report['checks'] += baseline.checks(self.baseline, self.report, self.options['tolerance'])
        return verdict.conclude(self.report, self.options, now() - self.began)

    def _machine(self):
        found, image = self.found, self.image
        self.report['checks'] += machine_checks.before(found, image, self.device, self.counts, self.left_out, self.options)
        if not any(check['status'] == 'fail' for check in self.report['checks']):
            self.report['checks'] += peercopy.peercopy(found, self.device, max(self.counts or [0]), self.options['stall'], self.say)
        if any(check['id'] == 'ARCH' and check['status'] == 'warn' for check in self.report['checks']):
            self.options['stall_first'] = max(self.options['stall_first'], PTX_COMPILES_S)
        self.report['checks'] += self.team.checks(self.device)
        if self.counts and self._style() == 'process' and self.team.hosts_of(max(self.counts)) == 1:
            self.report['checks'] += loopback.loopback(max(self.counts))
        self.report['checks'] += self.limits.checks(self.counts, self.beyond, dict(self.options['min_speedup'], **self.options['min_efficiency']))
        self.report['notes'] += self.limits.notes()

    def _prepare_and_launch(self):
        self.folder = tempfile.mkdtemp(prefix='envbuild-smoke-')
        try:
            prepared = self._prepare()
        except datas.Unusable as error:
            self.report['checks'].append(error.made)
        else:
            self._launch_all(prepared)

    def _prepare(self):
        start, largest = now(), max(self.counts)
        self.say('preparing data')
        prepared = datas.Prepared(self.options, self.parts, self.folder, plans.ORACLE['steps'] * plans.global_batch(largest), largest)
        self.report['checks'] += prepared.checks
        self.report['datasets'] = prepared.entries
        self.report['data'] = prepared.entries[0] if prepared.entries else None
        self.report['timing']['data_s'] = round(now() - start, 3)
        return prepared

    def _launch_all(self, prepared):
        judge = Judge(self.report, self.options, self.image, self.device, self.parts, prepared)
        deadline = self.began + self.options['timeout']
        for n in self.counts:
            folder = os.path.join(self.folder, '%d' % n)
            os.mkdir(folder)
            plan = plans.launch(self.options, self.image, self.device, n, self.counts, self._style(),
                                folder, self.found['host']['cores_usable'])
            plan.update(plans.phases(self.options, self.device.kind, n, self.counts, self.parts, prepared.places))
            self._measuring(n, plan)
            with self.team.launch(plan, self._progress) as launch, gpuwatch.Watch(plan.get('gpus', ())) as watch:
                outcome = launch.watch(deadline)
            judge.launch(n, plan, outcome)
            if outcome.kind == 'done':
                gpus = [self.found['devices'][place] for place in plan['devices']] if self.device.kind == 'cuda' else []
                self.report['checks'] += machine_checks.after(n, self.image, self.report['framework'], outcome.results, gpus, watch.take())
            if outcome.kind in ('stalled', 'timeout'):
                return
        if self.counts and outcome.kind == 'done':
            self._plain(judge, plan, deadline)

    def _plain(self, judge, largest, deadline):
        """Run a short form of the largest launch again, without the settings that ranks get from the smoke test."""
        plan = plain.plan(largest, os.path.join(self.folder, 'plain'), os.environ)
        if plan is not None and now() - self.began < self.options['timeout'] / 2:
            os.mkdir(plan['folder'])
            with self.team.launch(plan, self._progress) as launch:
                judge.plain(plan['n'], plan, launch.watch(deadline))

    def _style(self):
        return adapters.style_of(self.adapter, self.device.kind, dict(self.image['options'], **self.options['options']))

    def _measuring(self, n, plan):
        """Add the schemes and the GPUs to watch to the plan of the launch with n devices.

        Add to the report which schemes and scalings cannot be measured with n devices, and the slowest link between the GPUs.
        """
        style = self._style()
        plan['schemes'], left_out = sync.chosen(self.options['sync'], self.adapter, style, n)
        self.report['checks'] += left_out
        if plan['schemes']:
            plan['phases'] = plan['phases'] + ['schemes']
        for each in plan['workloads'] if 'bench' in plan['phases'] and n > 1 else ():
            if len(each['bench']['scaling']) < len(self.options['scaling']):
                self.report['notes'].append(('Strong scaling with %d devices was not measured: %d images cannot be '
                                             'divided equally.') % (n, each['bench']['batch']))
        if self.device.kind == 'cuda' and self.team.hosts_of(n) == 1:
            plan['gpus'] = [self.found['devices'][place]['uuid'] for place in plan['devices']]
            self.report['link'] = (not self.device.shared and link.nominal(*self._wired(plan['devices']))) or self.report['link']

    def _wired(self, places):
        """Return (the GPUs at these places, the table of the links between them)."""
        words = self.found['topology']['links']
        return [self.found['devices'][i] for i in places], [[words[i][j] for j in places] for i in places]

    def _progress(self, n, monitor):
        """Print a line for each new phase, then one every five seconds."""
        phase, last = self._shown.get(n, ('', 0.0))
        if monitor.phase != phase or now() - last >= 5:
            self._shown[n] = (monitor.phase, now())
            self.say('%d %s: %s' % (n, 'worker' if n == 1 else 'workers', monitor.where()))

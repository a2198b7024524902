"""Finds the checks that do not apply to a framework, according to its adapter.

They are skipped with the reason, and never count as passed.
"""
from __future__ import absolute_import, division, print_function

from ..check_record import check

WITHOUT_TRAINING = ('ORACLE', 'LOSS', 'ACC', 'SAVE')


class Limits(object):
    """The limits of a framework: the reason why it trains nothing (`training`) or uses only one device (`devices`), or ''."""

    def __init__(self, training='', devices=''):
        self.training = training
        self.devices = devices or training

    def phases(self, wanted):
        """Return the phases that apply. If the framework trains nothing, the phase `work` replaces the phases that train."""
        if not self.training:
            return wanted
        return (['work'] if set(wanted) & set(('oracle', 'buckets', 'train')) else []) + [phase for phase in wanted if phase == 'compile']

    def counts(self, fits, left_out):
        """Return (counts that apply, counts that the machine has too few devices for, counts that do not apply)."""
        if not self.devices:
            return fits, left_out, []
        asked = sorted(fits + left_out)
        return [n for n in fits if n == 1], [n for n in left_out if n == 1], [n for n in asked if n > 1]

    def checks(self, counts, beyond, floors):
        """Return a skipped check for each count in `beyond`, and for each check that needs training if nothing is trained.

        If the user asked only for counts in `beyond`, or required a speedup or efficiency for one of them (`floors`), an
        inconclusive check is added.
        """
        out = [check('DEVICES', n, 'skip', 'does not apply: ' + self.devices) for n in beyond]
        demanded = [n for n in beyond if str(n) in floors or not counts]
        if demanded:
            out.append(check('DEVICES', None, 'inconclusive', 'the test on %s was requested, but cannot run: %s' % (
                ' and '.join('%d devices' % n for n in demanded), self.devices), next_step='Ask for --counts 1.'))
        if self.training and counts:
            out += [check(key, 1, 'skip', 'does not apply: ' + self.training) for key in WITHOUT_TRAINING]
        return out

    def notes(self):
        """Sentences for the report about the limits of its figures."""
        if self.training:
            return ['Nothing was trained: %s.' % self.training]
        return ['Data parallelism was not tested: %s.' % self.devices] if self.devices else []


def of(adapter, options, kind='cpu'):
    """The limits of an adapter (class) under the options of this image, on devices of this kind."""
    said = adapter.limits(options) if hasattr(adapter, 'limits') else {}
    return Limits(**dict((name, why.get(kind, '') if isinstance(why, dict) else why) for name, why in said.items()))


def work(found):
    """The check WORK: whether a framework that does not train solves its tasks; `found` is the result of rank.work."""
    if 'skip' in found:
        return [check('WORK', 1, 'inconclusive', found['skip'], next_step='Run the test on a machine with a GPU.')]
    tasks = found['tasks']
    wrong = [task for task in tasks if not task['right']]
    if wrong:
        words = '%s gives a wrong result: %s' % (wrong[0]['what'], wrong[0]['detail'])
    else:
        words = 'right: ' + ', '.join(task['what'] for task in tasks) if tasks else 'the recipe has no tasks to test'
    return [check('WORK', 1, 'pass' if tasks and not wrong else 'fail', words, value=len(tasks) - len(wrong), limit=len(tasks),
                  unit='tasks', detail={'tasks': tasks}, next_step='Run the same package on another machine and compare.' if wrong else '')]

"""RUN, HANG, IMPORT: how the ranks of one launch ended, and which rank caused a failure."""
from __future__ import absolute_import, division, print_function

from .. import shadows
from ..check_record import check
from . import known_errors

MORE_SPACE = 'Free some space, or set TMPDIR to another folder.'
HINTS = (
    ('disk of the folder', MORE_SPACE),
    ('did not fit into the folder', MORE_SPACE),
    ('SIGKILL', 'SIGKILL usually means that the container reached its memory limit: raise the limit, or use fewer devices.'),
    ('without a result', 'Something in this process called exit before the work was done. The last output of the process '
                         "is in the report's logs."),
)

# A clock may differ from the one that it is compared with by DRIFT_S seconds, and by this share of the time.
DRIFT_S, DRIFT = .5, .05


def ending(n, outcome):
    """Return the checks RUN, HANG or IMPORT of one launch, from its outcome; also TIME if the clock of a rank is wrong."""
    results = outcome.results
    if outcome.kind == 'done':
        versions = results[0]['framework']
        return _clocks(n, outcome) + [
            check('IMPORT', n, 'pass', '%s %s imported in %.1f s' % (versions['name'], versions['version'],
                                                                    max(r['timing']['import_s'] for r in results)), unit='s',
                  value=max(r['timing']['import_s'] for r in results)),
            check('RUN', n, 'pass', '%d %s finished' % (len(results), 'process' if len(results) == 1 else 'processes'),
                  value=round(outcome.seconds, 3), unit='s'),
        ]
    blamed = outcome.ranks[outcome.blame]
    where = 'rank %d in phase "%s" (%s)' % (outcome.blame, blamed['where'], blamed['state'])
    detail = {'ranks': outcome.ranks}
    if outcome.kind in ('stalled', 'timeout'):
        others = '; '.join('rank %d in "%s" (%s)' % (r['rank'], r['where'], r['state']) for r in outcome.ranks if r is not blamed)
        where += ', the others: ' + others if others else ''
        if outcome.kind == 'stalled':
            return [check('HANG', n, 'fail', 'no rank makes progress: check ' + where, detail=detail,
                          next_step='The stacks of all ranks are in the report\'s logs.')]
        return [check('HANG', n, 'inconclusive', ('the time limit passed before everything was tested; the last progress was %.1f s earlier: '
                                                  '%s') % (outcome.silent_s, where), detail=detail,
                      next_step='Use a larger --timeout, or a machine that is less busy. The stacks of all ranks are in the '
                                "report's logs.")]
    error = (results[outcome.blame] or {}).get('error')
    if error is None:
        hint = _hint(blamed['state']) or "The last output of this rank is in the report's logs."
        return [check('RUN', n, 'fail', 'a process ended too early: ' + where, detail=detail, next_step=hint)]
    key = 'IMPORT' if error['phase'] == 'import' else 'RUN'
    known, remedy = known_errors.cause(error['message'] + error['traceback'])
    hidden = shadows.words(error.get('shadows'))
    why = ''.join('. The cause: ' + words for words in (known, hidden) if words)
    return [check(key, n, 'fail', 'rank %d failed in phase "%s": %s: %s%s' % (
        outcome.blame, error['phase'], error['type'], error['message'].strip()[:600], why),
        detail=dict(detail, traceback=error['traceback'][-4000:]), next_step=(
            remedy or _hint(error['message']) or "The output of this rank is in the report's logs."))]


def _hint(text):
    return next((words for sign, words in HINTS if sign in text), '')


def _clocks(n, outcome):
    """Return a failed check TIME for the clock that is furthest from the clock that it is compared with, if it is too far."""
    compared = [(outcome.drift, 'the clock of all processes of this machine', "the kernel's count of the time since the machine was started")]
    compared += [((behind, seconds), 'the clock of rank %d' % rank, 'the clock of the process that started it')
                 for rank, behind, seconds in outcome.drifts]
    wrong = [(abs(behind), seconds, which, 'lost' if behind > 0 else 'gained', by) for (behind, seconds), which, by in compared
             if abs(behind) > DRIFT_S + DRIFT * seconds]
    if not wrong:
        return []
    size, seconds, which, went, by = max(wrong)
    return [check('TIME', n, 'fail', '%s %s %.3g s in %.3g s, by %s' % (which, went, size, seconds, by), value=size,
                  limit=DRIFT_S + DRIFT * seconds, unit='s', next_step='All times and speeds by this clock are wrong. Look for a '
                  'library that replaces the clock (LD_PRELOAD, libfaketime).')]

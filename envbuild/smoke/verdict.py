"""The verdict of a run, made from its checks: status, exit code and reason."""
from __future__ import absolute_import, division, print_function

# The exit codes of `envbuild-smoke`, and those of `envbuild smoke` for them: docs/explanation/training.md, "Verdicts"
PASS, FAIL, USAGE, INCONCLUSIVE, HANG, WARNINGS = 0, 1, 2, 3, 4, 5


def conclude(report, options, seconds):
    """Set status, exit code and reason from the checks. Without a passed check, the status is never `pass`."""
    by_status = {}
    for check in report['checks']:
        by_status.setdefault(check['status'], []).append(check)
    failed, open_ones, warned = (by_status.get(key, []) for key in ('fail', 'inconclusive', 'warn'))
    report['duration_s'] = round(seconds, 3)
    if failed:
        code = HANG if any(check['id'] == 'HANG' for check in failed) else FAIL
        status, reason = 'fail', failed[0]['message']
    elif open_ones:
        code, status, reason = INCONCLUSIVE, 'inconclusive', open_ones[0]['message']
    elif warned and options['strict']:
        code, status, reason = WARNINGS, 'fail', '--strict was used, and there is a warning: ' + warned[0]['message']
    elif not by_status.get('pass'):
        code, status, reason = INCONCLUSIVE, 'inconclusive', 'nothing was checked'
    else:
        code, status, reason = PASS, 'pass', ''
    report['status'], report['exit_code'], report['reason'] = status, code, reason
    if report['mode']['gpu_image'] and report['mode']['device'] == 'cpu':
        report['notes'].append('A GPU image was tested on the CPU: this report says nothing about GPUs.')
    return report

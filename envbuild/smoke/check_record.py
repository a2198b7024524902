"""Makes a check, one entry of the report: what was checked, the result, and what to do next."""
from __future__ import absolute_import, division, print_function

from . import explain


def check(key, n, status, message, severity='fail', value=None, limit=None, unit='', next_step='', detail=None):
    """Return one check. `status` is pass, warn, fail, inconclusive or skip (not applicable; the message says why).

    `n` is the number of devices, or None if the check is about the machine or the image.
    """
    return {'id': key, 'title': explain.TEXTS[key][0], 'n': n, 'status': status, 'severity': severity, 'value': value,
            'limit': limit, 'unit': unit, 'message': message, 'next_step': next_step, 'detail': detail or {}}

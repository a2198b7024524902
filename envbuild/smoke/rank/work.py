"""Phase `work`: lets a framework that trains nothing run tasks with known results."""
from __future__ import absolute_import, division, print_function


def measure(session):
    """Return {'tasks': the adapter's tasks}, or {'skip': reason} if it cannot compute on these devices."""
    try:
        return {'tasks': session.adapter.exercise()}
    except NotImplementedError as error:
        return {'skip': str(error)}

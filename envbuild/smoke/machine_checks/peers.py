"""PEER: checks whether the used GPUs can access each other's memory, and over which link."""
from __future__ import absolute_import, division, print_function

from ..machine import topology
from ..check_record import check
from .state import used


def peers(found, device, largest):
    """Return the check PEER for all pairs of used GPUs.

    Without peer access, an exchange goes through the host's memory. This is slower but not wrong, so the check only warns.
    """
    gpus = used(found, device)
    if len(gpus) < 2 or largest < 2:
        return []
    pairs = [(one['index'], other['index']) for place, one in enumerate(gpus) for other in gpus[place + 1:]]
    reach = dict((each['index'], each['peers']) for each in gpus)
    apart = [(one, other) for one, other in pairs if other not in reach[one] or one not in reach[other]]
    detail = {'pairs': dict(('%d-%d' % pair, _words(found['topology'], *pair)) for pair in pairs)}
    common = dict(severity='warn', value=len(pairs) - len(apart), limit=len(pairs), unit='pairs', detail=detail)
    if not apart:
        kinds = sorted(set(_words(found['topology'], *pair) for pair in pairs))
        return [check('PEER', None, 'pass', "in all %d pairs, each GPU can access the other's memory (%s)" % (len(pairs), ', '.join(kinds)), **common)]
    word = _words(found['topology'], *apart[0])
    return [check('PEER', None, 'warn', "in %d of %d pairs, the GPUs cannot access each other's memory. The first pair is "
                                        "GPU %d and %d (%s: %s). They exchange data through the host's memory" % (
                                            len(apart), len(pairs), apart[0][0], apart[0][1], word, _meaning(word)),
                  next_step=('GeForce GPUs since 2018 cannot do this without NVLink. For other GPUs, check the IOMMU, ACS '
                             'and virtual machines.'), **common)]


def _words(links, one, other):
    return links['links'][links['gpus'].index(one)][links['gpus'].index(other)]


def _meaning(word):
    return topology.MEANING['NV' if word.startswith('NV') else word]

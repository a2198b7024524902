"""The parallel schemes: their names, where they apply, and their descriptions. Pure functions.

gradients       every step averages gradients over all devices (the default; the other schemes are compared with it)
parameters:k    every device steps alone, and every k steps their parameters are averaged
async:s         every process steps alone and sends its changes to a parameter server; a process that is more than s steps ahead
                of the slowest waits before it reads (stale synchronous parallel: https://papers.nips.cc/paper/4894)

A step of SGD with momentum is linear in its gradients. So if all devices start from equal weights, parameters:1 (averaging
after each step) and async:0 (waiting for all processes in each step) train exactly as averaging gradients does: their weights
are compared with those of the reference network. Other schemes are judged by what they learn. Each device keeps its own
momentum.
"""
from __future__ import absolute_import, division, print_function

from .check_record import check

GRADIENTS = 'gradients'
EQUIVALENT = (GRADIENTS, 'parameters:1', 'async:0')


def parse(text):
    """Return the schemes in a list such as gradients,parameters:4,async:2. Raises ValueError for an unknown scheme."""
    out = []
    for part in text.split(','):
        kind, number = part.partition(':')[::2]
        least = {'parameters': 1, 'async': 0}.get(kind)
        if part != GRADIENTS and not (least is not None and number.isdigit() and int(number) >= least):
            raise ValueError('sync must be gradients, parameters:K (K at least 1) or async:S (S at least 0)')
        name = part if part == GRADIENTS else '%s:%d' % (kind, int(number))
        if name not in out:
            out.append(name)
    return out


def why_not(name, adapter, style):
    """Return why a scheme does not apply to an adapter (a class); '' if it does."""
    if not all(hasattr(side, 'assign') for side in getattr(adapter, 'sides', (adapter,))):
        return 'the adapter cannot set weights'
    if name.startswith('async') and style == 'single':
        return 'the devices are in one process and make each step together'
    return ''


def chosen(names, adapter, style, n):
    """Return (schemes to run beside averaging gradients, checks for those that do not apply); both are empty for one device."""
    others = [name for name in names if name != GRADIENTS and n > 1]
    reasons = dict((name, why_not(name, adapter, style)) for name in others)
    left_out = [check('SYNC', n, 'skip', '%s does not apply: %s' % (name, reasons[name]), detail={'sync': name})
                for name in others if reasons[name]]
    return [name for name in others if not reasons[name]], left_out


def steps(number):
    """A number of steps in words."""
    return '%d step%s' % (number, '' if number == 1 else 's')


def price(entry):
    """Speed and cost of one scheme in words."""
    words = []
    if entry['run'] and entry['run']['speedup']:
        words.append('speedup %.2f' % entry['run']['speedup']['median'])
    if entry['training']:
        words.append('accuracy %.1f %%, %+.1f points compared with averaging gradients' % (
            100 * entry['training']['accuracy'], 100 * entry['accuracy_difference']))
    if entry['distance'] is not None:
        words.append('replicas differed by %.1e before they were last averaged' % entry['distance'])
    if entry['staleness']:
        words.append('at most %s ahead of the slowest process' % steps(entry['staleness']['largest']))
    return ', '.join(words)

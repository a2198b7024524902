"""VISIBLE, MIG, MPS: settings that hide GPUs, or give processes only parts of them."""
from __future__ import absolute_import, division, print_function

from ..check_record import check

HIDES_ALL = ('', '-1', 'none', 'nodevfiles', 'void')


def visible(found):
    """Check that no variable hides the GPUs or names a GPU that does not exist."""
    variables, there = found['variables'], len(found['devices'])
    toolkit, own = variables.get('NVIDIA_VISIBLE_DEVICES'), variables.get('CUDA_VISIBLE_DEVICES')
    if own is not None:
        if own.strip().lower() in HIDES_ALL:
            return [check('VISIBLE', None, 'warn', 'CUDA_VISIBLE_DEVICES="%s" hides every GPU' % own, severity='warn', value=0, unit='GPUs',
                          next_step='Unset CUDA_VISIBLE_DEVICES, or write the numbers of GPUs into it.')]
        wrong = _wrong(own, found['nvml']['devices'])
        if wrong:
            return [check('VISIBLE', None, 'fail', 'CUDA_VISIBLE_DEVICES="%s": %s. CUDA uses %d GPU%s' % (
                own, wrong, there, '' if there == 1 else 's'), value=there, limit=len(own.split(',')), unit='GPUs',
                next_step=('Compare it with the output of nvidia-smi -L inside the container, where numbers start at 0 '
                           'again.'))]
        return [check('VISIBLE', None, 'pass', 'CUDA_VISIBLE_DEVICES="%s" leaves %d GPUs visible' % (own, there), value=there, unit='GPUs')]
    if not there and toolkit is not None and toolkit.lower() in HIDES_ALL:
        return [check('VISIBLE', None, 'warn', ('NVIDIA_VISIBLE_DEVICES="%s" tells the container toolkit to pass no GPU '
                                                'to the container') % toolkit,
                      severity='warn', value=0, unit='GPUs', next_step='Start the container with --gpus all or -e NVIDIA_VISIBLE_DEVICES=all.')]
    capabilities = variables.get('NVIDIA_DRIVER_CAPABILITIES')
    if capabilities and not set(capabilities.split(',')) & set(('all', 'compute')):
        return [check('VISIBLE', None, 'fail', ('NVIDIA_DRIVER_CAPABILITIES="%s" does not include compute, which CUDA '
                                                'needs') % capabilities,
                      next_step='Set it to compute,utility.')]
    return [check('VISIBLE', None, 'pass', 'no variable hides a GPU', value=there, unit='GPUs')] if there else []


def _wrong(value, known):
    """Return why CUDA rejects an entry of CUDA_VISIBLE_DEVICES; '' if no entry is known to be wrong."""
    entries = [entry.strip() for entry in value.split(',')]
    for place, entry in enumerate(entries):
        if entry in entries[:place]:
            return 'it names %s twice' % entry
        if entry.startswith('MIG-'):
            if len(entries) > 1:
                return 'CUDA uses only one MIG slice at a time, but the variable names %d devices' % len(entries)
        elif entry.lstrip('-').isdigit():
            if known and not 0 <= int(entry) < len(known):
                return 'there is no GPU %s, only %d GPUs; CUDA ignores this entry and all entries after it' % (entry, len(known))
        elif entry.startswith('GPU-'):
            if known and not any((device['uuid'] or '').startswith(entry) for device in known):
                return 'there is no GPU with the UUID %s here; CUDA ignores this entry and all entries after it' % entry
        else:
            return '"%s" is neither a number nor a UUID; CUDA ignores this entry and all entries after it' % entry
    return ''


def slices(found):
    """Check whether MIG divides a GPU, and whether an MPS server shares the GPUs."""
    out, cut = [], [device['index'] for device in found['nvml']['devices'] if device['mig']]
    if cut:
        out.append(check('MIG', None, 'warn', 'MIG is on for GPU %s: a CUDA process sees only one slice%s' % (
            ', '.join('%d' % index for index in cut), '' if found['devices'] else ', and this container has received none'),
            severity='warn', value=len(cut), limit=0, unit='GPUs',
            next_step='Slices cannot train together. Use --counts 1, or switch MIG off with nvidia-smi -mig 0.'))
    share = found['variables'].get('CUDA_MPS_ACTIVE_THREAD_PERCENTAGE')
    if found['host']['mps'] or share:
        out.append(check('MPS', None, 'warn', 'GPUs are shared through MPS%s' % (
            ', and each process may use at most %s %% of a GPU' % share if share else ''), severity='warn', limit=100,
            value=float(share) if share and share.replace('.', '', 1).isdigit() else None, unit='%',
            next_step=('Measured speeds are those of a shared GPU. Unset CUDA_MPS_PIPE_DIRECTORY, or stop the server with '
                       'nvidia-cuda-mps-control.')))
    elif found['devices']:
        out.append(check('MPS', None, 'pass', 'no MPS server shares the GPUs', severity='warn'))
    if found['devices'] and not cut:
        out.append(check('MIG', None, 'pass', 'no GPU is divided into MIG slices', severity='warn', value=0, limit=0, unit='GPUs'))
    return out

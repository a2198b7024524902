"""MIXED, SHM, ENV: what about this container slows a run down or stops it."""
from __future__ import absolute_import, division, print_function

from ..verdict import check

SHM_NEEDED = 256 << 20
SLOWING = ('CUDA_LAUNCH_BLOCKING', 'CUDA_PROFILE', 'CUDA_INJECTION64_PATH', 'NCCL_P2P_DISABLE', 'NCCL_SHM_DISABLE')


def surroundings(found, device, largest):
    """Warnings about the container: shared memory, mixed GPUs, leftover variables."""
    out = []
    if device.kind == 'cuda':
        kinds = sorted(set('%s with %.0f GB' % (each['name'], each['mem_bytes'] / 1e9) for each in found['devices']))
        out.append(check('MIXED', None, 'pass' if len(kinds) == 1 else 'warn', ' and '.join(kinds), severity='warn',
                         next_step='' if len(kinds) == 1 else 'Choose equal GPUs with CUDA_VISIBLE_DEVICES.'))
        free = found['host']['shm_free_bytes'] or 0
        enough = free >= SHM_NEEDED or largest < 2
        out.append(check('SHM', None, 'pass' if enough else 'warn', '/dev/shm has %d MB free' % (free / 1e6), severity='warn',
                         value=free, limit=SHM_NEEDED, unit='bytes',
                         next_step='' if enough else 'Start the container with --shm-size=1g or --ipc=host.'))
    slow = sorted(name for name in SLOWING if found['variables'].get(name, '0') != '0')
    out.append(check('ENV', None, 'warn' if slow else 'pass', ('set: ' + ', '.join(slow)) if slow else 'no slowing variable is set',
                     severity='warn', next_step='Unset them unless you need them.' if slow else ''))
    return out

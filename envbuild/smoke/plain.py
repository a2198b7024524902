"""Runs one more launch without the smoke test's own settings, to show the speed of a plain script.

The ranks keep freed memory (KEPT_MEMORY), without which one process is up to a third slower than the next. A script that a user
starts has no such settings. So a short form of the largest launch is repeated once without them. The report shows its images
per second beside the others, with the page faults of a step: if there are hundreds, the C library returns memory to the kernel
in each step and has to get it again. glibc stops that by itself once the process has freed one block of 8 MB or so
(https://man7.org/linux/man-pages/man3/mallopt.3.html, M_MMAP_THRESHOLD: the dynamic threshold). Whether it has differs from run to run.
"""
from __future__ import absolute_import, division, print_function

import os

from . import stats

ROUNDS = 5
# glibc gives memory at the end of its heap back whenever 128 KiB of it are free, and has it zeroed again in the next step: by what
# happened to lie there, a process was up to a third slower than the next, for as long as it ran. 32 MiB is the most that the second
# may be: https://man7.org/linux/man-pages/man3/mallopt.3.html
KEPT_MEMORY = {'MALLOC_TRIM_THRESHOLD_': str(1 << 30), 'MALLOC_MMAP_THRESHOLD_': str(32 << 20)}
# The beginnings of variable names that configure memory allocators, of the host and of GPUs.
STEERING = ('MALLOC_', 'GLIBC_TUNABLES', 'LD_PRELOAD', 'TCMALLOC_', 'PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'TF_GPU_ALLOCATOR',
            'TF_FORCE_GPU_ALLOW_GROWTH', 'XLA_PYTHON_CLIENT_', 'XLA_FLAGS', 'MXNET_GPU_MEM_POOL_', 'MXNET_CPU_MEM_POOL_')


def steering(variables):
    """The variables that configure a memory allocator, sorted by name."""
    return dict((name, variables[name]) for name in sorted(variables) if name.startswith(STEERING))


def set_by_test(variables):
    """The names that a rank gets from the smoke test, because the user has not set them."""
    return sorted(name for name in KEPT_MEMORY if name not in variables)


def plan(largest, folder):
    """The short plan, made from that of the largest launch; None if there is nothing to time or nothing to leave out."""
    if 'bench' not in largest['phases'] or not largest['workloads'] or not set_by_test(os.environ) or largest['places']:
        return None
    first = largest['workloads'][0]
    bench = dict(first['bench'], scaling=first['bench']['scaling'][:1], rounds=min(ROUNDS, first['bench']['rounds']), plain=True,
                 double_if_noisy=False, checked=False)
    return dict(largest, phases=['bench'], schemes=[], workloads=[dict(first, bench=bench)], plain=True, folder=folder,
                rendezvous='file:' + os.path.join(folder, 'rendezvous'))


def entry(n, measured, allocator):
    """One entry of `plain_runs` from what bench.measure gave, and what its ranks found among their variables."""
    laps = dict((mode, [each[mode + '_s'] for each in measured['rounds'] if each[mode + '_s'] is not None]) for mode in ('solo', 'dp'))
    step_s = dict((mode, stats.median(times) / measured['steps_per_round'] if times else None) for mode, times in laps.items())
    images = {'solo': measured['batch_per_device'] if measured['scaling'] == 'weak' else measured['global_batch'],
              'dp': measured['global_batch']}
    return {'n': n, 'workload': measured['workload'], 'net': measured['net'], 'scaling': measured['scaling'],
            'batch_per_device': measured['batch_per_device'], 'allocator': allocator, 'rounds': len(measured['rounds']),
            'step_ms': dict((mode, s and 1e3 * s) for mode, s in step_s.items()),
            'images_per_s': dict((mode, s and images[mode] / s) for mode, s in step_s.items()),
            'page_faults_per_step': measured['page_faults']}


def words(report):
    """The lines below the table of speeds; [] if the plain launch was not measured."""
    out = []
    for each in report.get('plain_runs', ()):
        rates = each['images_per_s']
        together = ', %.0f on %d' % (rates['dp'], each['n']) if rates['dp'] else ''
        out.append('  a plain script, without %s: %.0f images/s on 1 device%s (%.0f page faults a step)' % (
            ' and '.join(report['allocator']['set_by_test']), rates['solo'], together, each['page_faults_per_step']))
    return out

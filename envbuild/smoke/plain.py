"""Runs one more launch without the smoke test's own settings, to show the speed of a plain script.

In all other launches, the smoke test sets variables (KEPT_MEMORY) that make each rank keep freed memory. Without these
variables, one process can be a third slower than another. On GPUs, these launches also switch TF32 off and let cuDNN try its
algorithms. A script that a user starts does none of this. So a short form of the largest launch (the one with the most devices)
is repeated once without these settings. The report shows the images per second of this launch beside the other speeds, and its
page faults per step. Hundreds of page faults mean that the C library returns memory to
the kernel in each step and must get it back. glibc stops doing so once the process has freed a block of about 8 MB: see
"dynamic mmap threshold" at https://man7.org/linux/man-pages/man3/mallopt.3.html. In some runs the process has freed such a
block, in others it has not.
"""
from __future__ import absolute_import, division, print_function

import os

from . import stats

ROUNDS = 5
# By default, glibc returns the end of its heap to the kernel whenever 128 KiB there are free, and gets the memory back, zeroed,
# in the next step. Depending on what lay at the end of the heap, one process was up to a third slower than another for as long
# as it ran. 32 MiB is the largest value that M_MMAP_THRESHOLD may have: https://man7.org/linux/man-pages/man3/mallopt.3.html
KEPT_MEMORY = {'MALLOC_TRIM_THRESHOLD_': str(1 << 30), 'MALLOC_MMAP_THRESHOLD_': str(32 << 20)}
# Variables whose names begin with one of these configure memory allocators of the host or of GPUs.
STEERING = ('MALLOC_', 'GLIBC_TUNABLES', 'LD_PRELOAD', 'TCMALLOC_', 'PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'TF_GPU_ALLOCATOR',
            'TF_FORCE_GPU_ALLOW_GROWTH', 'XLA_PYTHON_CLIENT_', 'XLA_FLAGS', 'MXNET_GPU_MEM_POOL_', 'MXNET_CPU_MEM_POOL_')


def steering(variables):
    """The variables that configure a memory allocator, sorted by name."""
    return dict((name, variables[name]) for name in sorted(variables) if name.startswith(STEERING))


def set_by_test(variables):
    """Return the names of the memory variables that the smoke test sets for each rank, because the user has not set them."""
    return sorted(name for name in KEPT_MEMORY if name not in variables)


def plan(largest, folder, variables):
    """Return the plan of the plain launch, made from the plan of the largest launch; `variables` are those of the environment.

    None if no step is timed, if the run uses several hosts, or if it uses CPUs and the user has set all variables of KEPT_MEMORY.
    """
    differs = largest['device'] == 'cuda' or set_by_test(variables)
    if 'bench' not in largest['phases'] or not largest['workloads'] or not differs or largest['places']:
        return None
    first = largest['workloads'][0]
    bench = dict(first['bench'], scaling=first['bench']['scaling'][:1], rounds=min(ROUNDS, first['bench']['rounds']), plain=True,
                 double_if_noisy=False, checked=False)
    return dict(largest, phases=['bench'], schemes=[], workloads=[dict(first, bench=bench)], plain=True, folder=folder,
                rendezvous='file:' + os.path.join(folder, 'rendezvous'))


def entry(n, measured, allocator):
    """Return one entry of the report's `plain_runs`. `measured` is the result of bench.measure for n devices."""
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
        without, rates = ' and '.join(report['allocator']['set_by_test']), each['images_per_s']
        settings = ' without ' + without if without else ''
        if report['mode']['device'] == 'cuda':
            settings += ', in the framework\'s own precision (which may be TF32)'
        together = ', %.0f on %d' % (rates['dp'], each['n']) if rates['dp'] else ''
        out.append('  a plain training script%s: %.0f images/s on 1 device%s (%.0f page faults per step)' % (
            settings, rates['solo'], together, each['page_faults_per_step']))
    return out

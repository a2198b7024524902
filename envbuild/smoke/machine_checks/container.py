"""SHM, MEMLOCK, RAM, CORES, NUMA, ENV, TIME: settings of the container that slow a run down or stop it."""
from __future__ import absolute_import, division, print_function

from ..check_record import check
from .state import used

SHM_NEEDED = 256 << 20
MEMLOCK_NEEDED = 64 << 20
RAM_FOR_ALL, RAM_PER_PROCESS = 500 * 10 ** 6, 750 * 10 ** 6
COARSE_S = 1e-3
SLOW_SOURCES = ('jiffies', 'acpi_pm', 'hpet')
# How each variable slows a run down if it is set and not 0.
SLOWING = {
    'CUDA_LAUNCH_BLOCKING': 'each kernel waits until the kernel before it has ended', 'CUDA_PROFILE': 'a profiler is attached',
    'COMPUTE_PROFILE': 'a profiler is attached', 'CUDA_INJECTION64_PATH': 'a library is loaded into every CUDA process',
    'NCCL_P2P_DISABLE': "GPUs exchange data through the host's memory", 'NCCL_SHM_DISABLE': 'GPUs exchange data through the network',
    'CUDA_FORCE_PTX_JIT': 'all GPU code is compiled again at every start', 'CUDA_CACHE_DISABLE': 'compiled GPU code is not cached',
    'PYTORCH_NO_CUDA_MEMORY_CACHING': 'memory for each tensor is allocated anew',
}


def container(found, device, largest, options):
    """Run all checks of this module. `largest` is the largest number of devices with which the test runs."""
    out = []
    if device.kind == 'cuda':
        out += shm(found['host'], largest) + memlock(found['host'], largest) + numa(found, device)
    if largest:
        out += ram(found['host'], largest) + cores(found['host'], device, largest, options)
    return out + variables(found['variables']) + timer(found['host'])


def shm(host, largest):
    free = host['shm_free_bytes'] or 0
    enough = free >= SHM_NEEDED or largest < 2
    return [check('SHM', None, 'pass' if enough else 'warn', '/dev/shm has %d MB free' % (free / 1e6), severity='warn', value=free,
                  limit=SHM_NEEDED, unit='bytes', next_step='' if enough else 'Start the container with --shm-size=1g or --ipc=host.')]


def memlock(host, largest):
    """Check the limit of locked memory. Only InfiniBand and RoCE cards need more than a few megabytes."""
    limit = host['memlock_bytes']
    if limit is None or limit >= MEMLOCK_NEEDED or largest < 2 or not host['infiniband']:
        words = 'the locked memory is not limited' if limit is None else '%d kB of memory may be locked%s' % (
            limit // 1000, '' if host['infiniband'] else ', and there is no InfiniBand or RoCE card that needs more')
        return [check('MEMLOCK', None, 'pass', words, severity='warn', value=limit, unit='bytes')]
    return [check('MEMLOCK', None, 'warn', ('only %d kB of memory may be locked, which is not enough for %s: NCCL and MPI will fail with '
                                            '"Cannot allocate memory"') % (
        limit // 1000, ', '.join(host['infiniband'])), severity='warn', value=limit, limit=MEMLOCK_NEEDED, unit='bytes',
        next_step='Start the container with --ulimit memlock=-1. Under Slurm, set PropagateResourceLimitsExcept=MEMLOCK.')]


def ram(host, largest):
    """Check the free memory: that of the host, or that within the container's limit if it is less."""
    free = host['mem_available_bytes']
    limited = host['mem_limit_free_bytes'] is not None and host['mem_limit_free_bytes'] < free
    free, need = host['mem_limit_free_bytes'] if limited else free, RAM_FOR_ALL + largest * RAM_PER_PROCESS
    words = '%.1f GB of memory are free%s' % (free / 1e9, ' within the container\'s limit of %.1f GB' % (host['mem_limit_bytes'] / 1e9) if limited else '')
    return [check('RAM', None, 'pass' if free >= need else 'warn', words, severity='warn', value=free, limit=need, unit='bytes',
                  next_step='' if free >= need else ('If a process is killed (exit code 137), the memory ran out: '
                                                     'raise --memory, or use fewer devices.'))]


def cores(host, device, largest, options):
    """Compare the total number of threads of all devices with the number of cores that may be used."""
    there = host['cores_usable']
    threads = options['threads'] or max(1, there // largest)
    words = '%d device%s with %d thread%s each on %d cores' % (largest, '' if largest == 1 else 's', threads, '' if threads == 1 else 's', there)
    quota = ' (a CPU quota of %.2g)' % host['cpu_quota'] if host['cpu_quota'] else ''
    if largest * threads <= there:
        return [check('CORES', None, 'pass', words + quota, severity='warn', value=largest * threads, limit=there, unit='threads')]
    remedy = 'Leave --threads out.' if options['threads'] else ('Give the container more cores (--cpus, --cpuset-cpus), '
                                                                'or use fewer devices.')
    return [check('CORES', None, 'warn', words + quota + ': threads must share cores, so measured speeds mean little', severity='warn',
                  value=largest * threads, limit=there, unit='threads', next_step=remedy)]


def numa(found, device):
    """Check for each GPU that the container may use at least one core of its NUMA node."""
    mine, gpus = set(found['host']['cpus'] or ()), [each for each in used(found, device) if each['near_cpus']]
    far = [each for each in gpus if mine and not mine & set(each['near_cpus'])]
    if not gpus:
        return []
    if far:
        first = far[0]
        return [check('NUMA', None, 'warn', 'GPU %d is close to the cores %s, but this container may use only %s' % (
            first['index'], spans(first['near_cpus']), spans(mine)), severity='warn', value=len(far), limit=0, unit='GPUs',
            next_step='Start the container with --cpuset-cpus=%s, or use GPUs close to its cores.' % spans(first['near_cpus']))]
    return [check('NUMA', None, 'pass', 'each GPU is close to cores that this container may use', severity='warn', value=0, limit=0, unit='GPUs')]


def spans(cpus):
    """Write a list of cores as ranges: [0, 1, 2, 8] -> '0-2,8'."""
    out = []
    for cpu in sorted(cpus):
        if out and cpu == out[-1][1] + 1:
            out[-1][1] = cpu
        else:
            out.append([cpu, cpu])
    return ','.join('%d' % first if first == last else '%d-%d' % (first, last) for first, last in out)


def variables(found):
    slow = sorted(name for name in SLOWING if found.get(name, '') not in ('', '0'))
    words = 'set: ' + '; '.join('%s (%s)' % (name, SLOWING[name]) for name in slow) if slow else 'no variable that slows training is set'
    return [check('ENV', None, 'warn' if slow else 'pass', words, severity='warn', value=len(slow), limit=0, unit='variables',
                  next_step='Unset these variables unless you need them.' if slow else '')]


def timer(host):
    """Check that the clock advances in small enough steps, and is fast enough, to time a few milliseconds."""
    coarse = host['clock_step_s'] > COARSE_S
    slow = host['clock_source'] in SLOW_SOURCES
    words = 'the clock (%s) advances in steps of %.3g us' % (host['clock_source'] or 'of unknown source', 1e6 * host['clock_step_s'])
    return [check('TIME', None, 'warn' if coarse or slow else 'pass', words, severity='warn', value=host['clock_step_s'], limit=COARSE_S, unit='s',
                  next_step=('Choose the clock source tsc, or the clock source of the hypervisor, in '
                             '/sys/devices/system/clocksource on the host.') if coarse or slow else '')]

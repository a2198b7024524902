"""Facts of the machine and the container that need no driver: processor, memory, limits, operating system."""
from __future__ import absolute_import, division, print_function

import io
import multiprocessing
import os
import platform
import re
import resource

from ..clock import now


def _text(path):
    try:
        with io.open(path, encoding='utf-8', errors='replace') as stream:
            return stream.read()
    except (IOError, OSError):
        return u''


def _processor():
    for line in _text('/proc/cpuinfo').splitlines():
        if line.startswith(('model name', 'Hardware', 'cpu model')):
            return line.split(':', 1)[1].strip()
    return platform.processor() or platform.machine()


def _physical_cores():
    """Return the number of physical cores (not hyper-threads) of all sockets; None if the kernel does not report them."""
    cores, here = set(), {}
    for line in _text('/proc/cpuinfo').splitlines() + ['']:
        key, _, value = line.partition(':')
        if key.strip() in ('physical id', 'core id'):
            here[key.strip()] = value.strip()
        elif not line.strip() and here:
            cores.add((here.get('physical id'), here.get('core id')))
            here = {}
    return len(cores) or None


def usable_cores():
    """Return how many processors this process may use, by its affinity mask and the container's CPU quota."""
    try:
        count = len(os.sched_getaffinity(0))        # novm: Python 3.3
    except AttributeError:
        count = multiprocessing.cpu_count()
    quota = cpu_quota()
    return max(1, min(count, int(quota + 0.5)) if quota else count)


def cpu_quota():
    """Return the container's CPU quota in processors, from cgroup 2 or else cgroup 1; None if there is no quota."""
    fields = _text('/sys/fs/cgroup/cpu.max').split()
    if len(fields) == 2 and fields[0] != 'max':
        return int(fields[0]) / int(fields[1])
    quota = _text('/sys/fs/cgroup/cpu/cpu.cfs_quota_us').strip()
    period = _text('/sys/fs/cgroup/cpu/cpu.cfs_period_us').strip()
    if quota.lstrip('-').isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
        return int(quota) / int(period)
    return None


def _memory():
    """(total, available) in bytes."""
    found = {}
    for line in _text('/proc/meminfo').splitlines():
        key, _, value = line.partition(':')
        if value.split():
            found[key] = int(value.split()[0]) * 1024
    return found.get('MemTotal', 0), found.get('MemAvailable', found.get('MemFree', 0))


def _memory_limit():
    """The container's memory limit in bytes; None if there is no limit."""
    for path in ('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory/memory.limit_in_bytes'):
        text = _text(path).strip()
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _limit_free():
    """Return how many bytes are free within the container's memory limit; None if there is no limit.

    The inactive file cache counts as free, because the kernel can drop it.
    """
    limit = _memory_limit()
    for used, stat, key in (('memory.current', 'memory.stat', 'inactive_file'),
                            ('memory/memory.usage_in_bytes', 'memory/memory.stat', 'total_inactive_file')):
        text = _text('/sys/fs/cgroup/' + used).strip()
        if limit and text.isdigit():
            cached = dict(line.split() for line in _text('/sys/fs/cgroup/' + stat).splitlines() if len(line.split()) == 2).get(key, '0')
            return max(0, limit - int(text) + int(cached))
    return None


def kernel_driver():
    """The release of the NVIDIA driver that the kernel has loaded; None if the kernel does not report one."""
    found = re.search(r'Kernel Module\D*? (\d+\.\d[\d.]*)', _text('/proc/driver/nvidia/version').replace('x86_64', ''))
    return str(found.group(1)) if found else None


def _cpus():
    """The numbers of the processors that may be used; None on Python 2.7, which has no function for it."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else None     # novm: Python 3.3


def _listed(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _clock_step():
    """Return the smallest observed step, in seconds, of the clock that times the measurements."""
    steps, last = [], now()
    for _ in range(2000):
        this = now()
        if this > last:
            steps.append(this - last)
        last = this
    return min(steps) if steps else 1.0


def _mps():
    """Whether an MPS server shares the GPUs."""
    return os.path.exists(os.path.join(os.environ.get('CUDA_MPS_PIPE_DIRECTORY', '/tmp/nvidia-mps'), 'control'))


def shm_free_bytes():
    """Free bytes of /dev/shm; None if there is no /dev/shm."""
    try:
        stat = os.statvfs('/dev/shm')
        return stat.f_bavail * stat.f_frsize
    except OSError:
        return None


def _container():
    marks = ('docker', 'containerd', 'kubepods', 'lxc', 'slurm')
    return any(os.path.exists(path) for path in ('/.dockerenv', '/run/.containerenv', '/.singularity.d')) or any(
        mark in _text('/proc/1/cgroup') for mark in marks)


def facts():
    """Return the section `host` of the report, without the facts about the driver."""
    total, available = _memory()
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    system = [line.split('=', 1)[1].strip('"') for line in _text('/etc/os-release').splitlines()
              if line.startswith('PRETTY_NAME=')]
    return {
        'hostname': platform.node(), 'kernel': platform.release(), 'os': system[0] if system else platform.system(),
        'machine': platform.machine(), 'cpu_model': _processor(), 'cores_physical': _physical_cores(),
        'cores_usable': usable_cores(), 'cpu_quota': cpu_quota(), 'mem_bytes': total, 'mem_available_bytes': available,
        'mem_limit_bytes': _memory_limit(), 'shm_free_bytes': shm_free_bytes(),
        'memlock_bytes': None if locked == resource.RLIM_INFINITY else locked, 'container': _container(),
        'mem_limit_free_bytes': _limit_free(), 'kernel_driver': kernel_driver(), 'cpus': _cpus(), 'mps': _mps(),
        'numa_nodes': len([name for name in _listed('/sys/devices/system/node') if re.match(r'node\d+$', name)]) or None,
        'infiniband': _listed('/sys/class/infiniband'), 'clock_step_s': _clock_step(),
        'clock_source': _text('/sys/devices/system/clocksource/clocksource0/current_clocksource').strip() or None,
    }

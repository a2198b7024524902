"""Describes the machine as the smoke test sees it: host, driver, GPUs.

It takes a fraction of a second and needs no framework.
"""
from __future__ import absolute_import, division, print_function

import os

from . import probe_cuda, probe_host, probe_nvml, topology

# Variables that change which devices are used or how fast they are. Without them, two reports could not be compared.
TELLING = (
    'CUDA_VISIBLE_DEVICES', 'NVIDIA_VISIBLE_DEVICES', 'NVIDIA_DRIVER_CAPABILITIES', 'CUDA_DEVICE_ORDER', 'CUDA_LAUNCH_BLOCKING',
    'CUDA_PROFILE', 'COMPUTE_PROFILE', 'CUDA_INJECTION64_PATH', 'CUDA_FORCE_PTX_JIT', 'CUDA_DISABLE_PTX_JIT', 'CUDA_CACHE_DISABLE',
    'CUDA_CACHE_MAXSIZE', 'CUDA_DEVICE_MAX_CONNECTIONS', 'CUDA_MPS_PIPE_DIRECTORY', 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE',
    'NCCL_P2P_DISABLE', 'NCCL_P2P_LEVEL', 'NCCL_SHM_DISABLE', 'NCCL_IB_DISABLE', 'NCCL_NET_GDR_LEVEL', 'NCCL_ALGO', 'NCCL_PROTO',
    'NCCL_DEBUG', 'NCCL_SOCKET_IFNAME', 'OMP_NUM_THREADS', 'OMP_PROC_BIND', 'GOMP_CPU_AFFINITY', 'KMP_AFFINITY',
    'PYTORCH_NO_CUDA_MEMORY_CACHING', 'MXNET_ENGINE_TYPE', 'LD_PRELOAD')
FROM_NVML = ('uuid', 'mem_free_bytes', 'mem_used_bytes', 'util_pct', 'processes', 'power_limit_w', 'pcie_gen', 'pcie_width', 'pcie_gen_max',
             'pcie_width_max', 'near_cpus', 'compute_mode', 'persistence', 'mig', 'held_down', 'temperature_c', 'sm_clock_max_mhz',
             'ecc_errors', 'memory_fault')
UNKNOWN = {'held_down': [], 'memory_fault': False}


def facts():
    """Return {'host', 'cuda', 'nvml', 'devices', 'topology', 'variables'}. `devices` combines the facts of libcuda and NVML.

    libcuda numbers only the devices that CUDA_VISIBLE_DEVICES allows, and NVML numbers all of them, so devices are matched by
    their PCI address. If the driver is too old to report this address, they are matched by number, but only if
    CUDA_VISIBLE_DEVICES is not set and both list the same number of devices.
    """
    variables = dict((name, os.environ[name]) for name in TELLING if name in os.environ)
    os.environ.setdefault('CUDA_DEVICE_ORDER', 'PCI_BUS_ID')
    cuda, nvml = probe_cuda.facts(), probe_nvml.facts()
    devices, numbers = [], []
    listed = cuda.pop('devices')
    for place, device in enumerate(listed):
        more = _same(device, place, nvml['devices'], len(listed))
        numbers.append(more.get('index'))
        devices.append(dict(dict((key, more.get(key, UNKNOWN.get(key))) for key in FROM_NVML), **dict(
            device, uuid=device['uuid'] if more.get('mig') else more.get('uuid') or device['uuid'])))
    host = dict(probe_host.facts(), driver=nvml['driver'], driver_cuda=cuda['driver_cuda'])
    return {'host': host, 'cuda': cuda, 'nvml': nvml, 'devices': devices, 'variables': variables,
            'topology': {'gpus': [device['index'] for device in devices], 'links': topology.matrix(numbers, nvml['links'])}}


def _same(device, place, known, count):
    """Return what NVML knows about this device; {} if it is unclear which of NVML's devices it is."""
    where = probe_nvml.address(device['pci'])
    for each in known:
        if where and each['place'] == where:
            return each
    counted = 'CUDA_VISIBLE_DEVICES' not in os.environ and not where and len(known) == count
    return known[place] if counted else {}


def table(found):
    """The facts as lines for people."""
    host = found['host']
    gib = float(1 << 30)
    rows = [
        ('machine', '%s, kernel %s, %s' % (host['os'], host['kernel'], host['machine'])),
        ('processor', '%s, %s usable of %s physical cores%s' % (
            host['cpu_model'], host['cores_usable'], host['cores_physical'] or '?',
            ', quota %.2g' % host['cpu_quota'] if host['cpu_quota'] else '')),
        ('memory', '%.1f GiB, %.1f GiB available%s' % (
            host['mem_bytes'] / gib, host['mem_available_bytes'] / gib,
            ', limit %.1f GiB' % (host['mem_limit_bytes'] / gib) if host['mem_limit_bytes'] else '')),
        ('/dev/shm', 'none' if host['shm_free_bytes'] is None else '%.0f MiB free' % (host['shm_free_bytes'] / float(1 << 20))),
        ('driver', '%s, CUDA %s%s' % (host['driver'] or 'unknown', host['driver_cuda'] or 'unknown',
                                      ', forward compatibility' if found['cuda']['compat'] else '')
         if found['cuda']['library'] else 'none: %s' % found['cuda']['problem']),
    ]
    for device in found['devices']:
        rows.append(('GPU %d' % device['index'], '%s, capability %s, %.1f GiB, %d multiprocessors, peers %s' % (
            device['name'], device['cc'], device['mem_bytes'] / gib, device['multiprocessors'], device['peers'] or 'none')))
    rows += [(name, value) for name, value in sorted(found['variables'].items())]
    return ['%-12s %s' % row for row in rows] + topology.table(found['topology'])

"""The machine as the smoke test sees it: host facts, driver, GPUs. Takes a fraction of a second, needs no framework."""
from __future__ import absolute_import, division, print_function

import os

from . import probe_cuda, probe_host, probe_nvml

# Variables that change what is measured; a report without them cannot be compared.
TELLING = ('CUDA_VISIBLE_DEVICES', 'NVIDIA_VISIBLE_DEVICES', 'NVIDIA_DRIVER_CAPABILITIES', 'CUDA_LAUNCH_BLOCKING', 'CUDA_PROFILE',
           'CUDA_INJECTION64_PATH', 'NCCL_P2P_DISABLE', 'NCCL_SHM_DISABLE', 'NCCL_IB_DISABLE', 'NCCL_DEBUG', 'OMP_NUM_THREADS',
           'LD_PRELOAD')


def facts():
    """{'host', 'cuda', 'devices', 'variables'}; a device joins what libcuda and NVML know of it, by its number.

    libcuda numbers the devices that CUDA_VISIBLE_DEVICES lets through, NVML all; only without that variable, and with
    the same count, are they the same, so otherwise NVML's part stays out.
    """
    os.environ.setdefault('CUDA_DEVICE_ORDER', 'PCI_BUS_ID')
    cuda, nvml = probe_cuda.facts(), probe_nvml.facts()
    same = 'CUDA_VISIBLE_DEVICES' not in os.environ and len(cuda['devices']) == len(nvml['devices'])
    devices = []
    for place, device in enumerate(cuda.pop('devices')):
        more = nvml['devices'][place] if same else {}
        extra = dict((key, more.get(key)) for key in ('uuid', 'mem_free_bytes', 'util_pct', 'power_limit_w', 'pcie_gen', 'pcie_width'))
        devices.append(dict(device, **extra))
    host = dict(probe_host.facts(), driver=nvml['driver'], driver_cuda=cuda['driver_cuda'])
    variables = dict((name, os.environ[name]) for name in TELLING if os.environ.get(name))
    return {'host': host, 'cuda': cuda, 'devices': devices, 'variables': variables}


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
        ('driver', '%s, CUDA %s' % (host['driver'] or 'unknown', host['driver_cuda'] or 'unknown')
         if found['cuda']['library'] else 'none: %s' % found['cuda']['problem']),
    ]
    for device in found['devices']:
        rows.append(('GPU %d' % device['index'], '%s, capability %s, %.1f GiB, %d multiprocessors, peers %s' % (
            device['name'], device['cc'], device['mem_bytes'] / gib, device['multiprocessors'], device['peers'] or 'none')))
    rows += [(name, value) for name, value in sorted(found['variables'].items())]
    return ['%-12s %s' % row for row in rows]

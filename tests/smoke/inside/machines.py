"""Simulated machines: facts in the form of `probe.facts`. A machine is healthy except for what a test changes."""
from __future__ import absolute_import, division, print_function

from envbuild_smoke import image

GB = 10 ** 9
GPU_IMAGE = dict(image.unknown(), name='x', cuda='12.4', driver_min='550.54', version='1.2.3',
                 compute_capability={'sass': ['7.0', '8.0'], 'ptx': ['8.0']})
CPU_IMAGE = dict(image.unknown(), name='x')
HOST = {
    'cores_usable': 16, 'cpu_quota': None, 'cpus': list(range(16)), 'driver': '550.54', 'driver_cuda': '12.4', 'kernel_driver': '550.54',
    'shm_free_bytes': 1 << 30, 'memlock_bytes': None, 'infiniband': [], 'mem_available_bytes': 32 * GB, 'mem_limit_bytes': None,
    'mem_limit_free_bytes': None, 'mps': False, 'clock_step_s': 1e-7, 'clock_source': 'tsc',
}


def gpu(index, name='A', cc='8.0', **changes):
    """The facts of one idle GPU."""
    return dict({
        'index': index, 'name': name, 'cc': cc, 'mem_bytes': 16 * GB, 'uuid': 'GPU-%d' % index, 'multiprocessors': 80, 'clock_khz': 1000,
        'mem_free_bytes': 15 * GB, 'mem_used_bytes': GB // 2, 'util_pct': 0, 'processes': 0, 'compute_mode': 'default', 'persistence': True,
        'mig': False, 'held_down': [], 'temperature_c': 40, 'ecc_errors': 0, 'memory_fault': False, 'pcie_width': 16, 'pcie_width_max': 16,
        'near_cpus': list(range(8)), 'peers': None}, **changes)


def found(devices=(), code=0, library=True, driver_cuda='12.4', host=None, cuda=None, nvml=None, links='NV4', **variables):
    """The facts of a machine.

    `devices` are pairs of name and capability, or results of `gpu`. Every GPU can access the memory of the others unless its
    `peers` say otherwise.
    """
    made = [each if isinstance(each, dict) else gpu(place, *each) for place, each in enumerate(devices)]
    for each in made:
        each['peers'] = [other['index'] for other in made if other is not each] if each['peers'] is None else each['peers']
    names = [each['index'] for each in made]
    return {
        'host': dict(HOST, **(host or {})), 'devices': made, 'variables': variables,
        'cuda': dict({'library': library, 'problem': 'no such file', 'code': code, 'driver_cuda': driver_cuda, 'path': '/usr/lib/libcuda.so.1',
                      'release': '550.54', 'compat': False, 'compat_folder': None}, **(cuda or {})),
        'nvml': dict({'code': 0, 'driver': '550.54', 'devices': made}, **(nvml or {})),
        'topology': {'gpus': names, 'links': [['X' if one == other else links for other in names] for one in names]},
    }


def options(**changes):
    """The options that the command line of a run sets."""
    return dict({'device': 'auto', 'devices': 'auto', 'allow_cpu': False, 'expect': None, 'expect_gpus': 0, 'strict': False, 'counts': 'auto',
                 'threads': 0, 'workload': 'auto'}, **changes)


def statuses(made):
    """The ids and statuses of the checks, without their texts."""
    return [(check['id'], check['status']) for check in made]

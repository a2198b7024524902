"""How GPUs are connected, in the words of `nvidia-smi topo -m`."""
from __future__ import absolute_import, division, print_function

import ctypes

MOST_LINKS = 18
OVER_NVLINK = 2             # NVML_P2P_CAPS_INDEX_NVLINK
# nvmlGpuTopologyLevel_t
ANCESTORS = {0: 'PIX', 10: 'PIX', 20: 'PXB', 30: 'PHB', 40: 'NODE', 50: 'SYS'}
MEANING = {
    'NV': 'over this number of NVLinks', 'PIX': 'through one PCIe switch', 'PXB': 'through several PCIe switches',
    'PHB': 'through the processor\'s PCIe bridge', 'NODE': 'between PCIe bridges of one NUMA node',
    'SYS': 'from one processor to another (QPI, UPI, Infinity Fabric)', '?': 'not known',
}


def between(nvml, devices):
    """Return {(index, other index): 'NV4', 'PIX', 'SYS', '?'...} for every pair of GPUs, with the lower index first."""
    out = {}
    for place, first in enumerate(devices):
        for second in devices[place + 1:]:
            one, other = nvml.handle(first['index']), nvml.handle(second['index'])
            lanes = _nvlinks(nvml, one, other, second['place'])
            out[first['index'], second['index']] = 'NV%d' % lanes if lanes else ANCESTORS.get(_ancestor(nvml, one, other), '?')
    return out


def _pair(nvml, name, one, other, *between_them):
    function, value = getattr(nvml.lib, name, None), ctypes.c_int(-1)
    arguments = (one, other) + between_them + (ctypes.byref(value),)
    return value.value if function is not None and function(*arguments) == 0 else None


def _ancestor(nvml, one, other):
    return _pair(nvml, 'nvmlDeviceGetTopologyCommonAncestor', one, other)


def _nvlinks(nvml, one, other, place):
    """Return the number of NVLinks between two GPUs.

    If no active link leads directly to the other GPU, all active links lead to a switch. They count if the driver uses NVLink
    between these GPUs.
    """
    active = [link for link in range(MOST_LINKS) if nvml.number('nvmlDeviceGetNvLinkState', one, link)]
    if not active:
        return 0
    direct = [link for link in active if place and nvml.pci(one, 'nvmlDeviceGetNvLinkRemotePciInfo_v2', link) == place]
    if direct:
        return len(direct)
    return len(active) if _pair(nvml, 'nvmlDeviceGetP2PStatus', one, other, OVER_NVLINK) == 0 else 0


def matrix(numbers, found):
    """Return the table of links between the GPUs with these NVML numbers, 'X' on the diagonal. A number is None if unknown."""
    def word(one, other):
        return 'X' if one == other else found.get((min(numbers[one], numbers[other]), max(numbers[one], numbers[other])), '?') \
            if None not in (numbers[one], numbers[other]) else '?'
    return [[word(one, other) for other in range(len(numbers))] for one in range(len(numbers))]


def table(topology):
    """Return the table of links as lines for people, with the meaning of its words."""
    if len(topology['gpus']) < 2:
        return []
    names = ['GPU%d' % number for number in topology['gpus']]
    lines = ['%-6s' % '' + ''.join('%-6s' % name for name in names)]
    lines += ['%-6s' % name + ''.join('%-6s' % word for word in row) for name, row in zip(names, topology['links'])]
    used = sorted(set('NV' if word.startswith('NV') else word for row in topology['links'] for word in row) - set(['X']))
    return lines + ['%-6s %s' % (word + ('n' if word == 'NV' else ''), MEANING[word]) for word in used]

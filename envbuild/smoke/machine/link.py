"""The nominal speed of the link between GPUs, with which measured collectives are compared.

Speeds are in GB/s (1e9 bytes per second) in one direction.
"""
from __future__ import absolute_import, division, print_function

# GB/s of one lane by PCIe generation, after line coding: https://en.wikipedia.org/wiki/PCI_Express#Comparison_table
PCIE_LANE = {1: .25, 2: .5, 3: .985, 4: 1.969, 5: 3.938, 6: 7.563}
# GB/s of one NVLink by the GPU's major compute capability: https://www.nvidia.com/en-us/data-center/nvlink/
NVLINK = {6: 20., 7: 25., 8: 25., 9: 25., 10: 50.}


def nominal(devices, words):
    """Return {'name', 'GBps'} of the slowest link between these GPUs; None if a link is unknown or there is only one GPU.

    `devices` are entries of the probe; `words` is the table of links between them ('NV4', 'PIX', 'SYS').
    """
    found = [_link(devices[i], devices[j], words[i][j]) for i in range(len(devices)) for j in range(i)]
    return min(found, key=lambda each: each['GBps']) if found and None not in found else None


def _link(one, other, word):
    if word.startswith('NV'):
        each = NVLINK.get(int(one['cc'].split('.')[0]))
        return each and {'name': 'NVLink x%s' % word[2:], 'GBps': each * int(word[2:])}
    if word == '?':
        return None
    # An idle GPU lowers the generation and the width of its link. So use the highest values that the card and its slot support.
    ways = [(device.get('pcie_gen_max'), device.get('pcie_width_max')) for device in (one, other)]
    if any(generation not in PCIE_LANE or not width for generation, width in ways):
        return None
    generation, width = min(ways, key=lambda way: PCIE_LANE[way[0]] * way[1])
    return {'name': 'PCIe %d.0 x%d' % (generation, width), 'GBps': PCIE_LANE[generation] * width}

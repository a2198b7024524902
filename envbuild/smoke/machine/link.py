"""The link between GPUs and its nominal speed, for comparison with the measured collectives: GB/s in one direction, GB is 1e9."""
from __future__ import absolute_import, division, print_function

# One lane, after the coding on the wire: https://en.wikipedia.org/wiki/PCI_Express#Comparison_table
PCIE_LANE = {1: .25, 2: .5, 3: .985, 4: 1.969, 5: 3.938, 6: 7.563}
# One NVLink, by the GPU's architecture: https://www.nvidia.com/en-us/data-center/nvlink/
NVLINK = {6: 20., 7: 25., 8: 25., 9: 25., 10: 50.}


def nominal(devices, words):
    """{'name', 'GBps'} of the slowest link between these GPUs; None if it is not known, or where there is only one.

    `devices` are the probe's, `words` the matrix of its topology for them ('NV4', 'PIX', 'SYS').
    """
    found = [_link(devices[i], devices[j], words[i][j]) for i in range(len(devices)) for j in range(i)]
    return min(found, key=lambda each: each['GBps']) if found and None not in found else None


def _link(one, other, word):
    if word.startswith('NV'):
        each = NVLINK.get(int(one['cc'].split('.')[0]))
        return each and {'name': 'NVLink x%s' % word[2:], 'GBps': each * int(word[2:])}
    if word == '?':
        return None
    # The highest generation and width that card and slot support, because an idle GPU slows its link down.
    ways = [(device.get('pcie_gen_max'), device.get('pcie_width_max')) for device in (one, other)]
    if any(generation not in PCIE_LANE or not width for generation, width in ways):
        return None
    generation, width = min(ways, key=lambda way: PCIE_LANE[way[0]] * way[1])
    return {'name': 'PCIe %d.0 x%d' % (generation, width), 'GBps': PCIE_LANE[generation] * width}

"""Measures the machine: processors, memory, disk, network, GPUs. Each measurement takes seconds, and each figure has its unit.

GB means 1e9 bytes, and GFLOPS means 1e9 operations per second. A multiplication and an addition count as two operations. If a
figure cannot be measured on this machine, `not_measured` says why; no figure is guessed.
"""
from __future__ import absolute_import, division, print_function

from . import cpu, disk, gpus, network, nominal


def measure(wanted, found, folder, say):
    """Measure the `wanted` parts ('cpu', 'disk', 'network', 'gpu'); return {part: figures}. `folder` is on the disk to measure."""
    out = {}
    if 'cpu' in wanted:
        say('measuring processor and memory')
        out['cpu'] = cpu.measure(found['host']['cores_usable'])
    if 'disk' in wanted:
        say('measuring the disk at %s' % folder)
        out['disk'] = disk.measure(folder)
    if 'network' in wanted:
        say('measuring the network within this machine')
        out['network'] = network.loopback()
    if 'gpu' in wanted:
        say('measuring the GPUs')
        out['gpu'] = gpus.measure(found, say) if found['devices'] else {'not_measured': 'there is no GPU'}
    return out


def table(measured, found):
    """Return the figures as lines for people."""
    rows = []
    if 'cpu' in measured:
        got = measured['cpu']
        rows += [('processor', '%.0f GFLOPS fp64, %.0f GFLOPS fp32 (NumPy, matrices of size %d)' % (
            got['fp64_gflops'], got['fp32_gflops'], got['size'])),
                 ('memory', 'copies %.1f GB/s with %d thread%s (bytes read plus bytes written)' % (
                     got['memory_GBps'], got['threads'], '' if got['threads'] == 1 else 's'))]
    if 'disk' in measured:
        rows += _disk(measured['disk'])
    if 'network' in measured:
        rows.append(('loopback', network.words(measured['network'])))
    if 'gpu' in measured:
        rows += _gpus(measured['gpu'], found)
    return ['%-12s %s' % row for row in rows]


def _disk(got):
    if 'not_measured' in got:
        return [('disk', 'not measured: ' + got['not_measured'])]
    past = '' if got['direct'] else ' (through the page cache, because this file system has no O_DIRECT)'
    return [('disk', '%s: reads %.0f MB/s, writes %.0f MB/s sequentially%s' % (got['folder'], got['read_MBps'], got['write_MBps'], past)),
            ('disk 4K', 'reads %.0f, writes %.0f per second at random positions, one at a time' % (got['read_4k_per_s'], got['write_4k_per_s']))]


def _gpus(got, found):
    if 'not_measured' in got:
        return [('GPUs', 'not measured: ' + got['not_measured'])]
    rows = []
    for device, each in zip(found['devices'], got['devices']):
        parts = []
        for key, title in nominal.KINDS:
            if each.get(key) is not None:
                ideal = nominal.gflops(device).get(key)
                parts.append('%s %.0f GFLOPS%s' % (title, each[key], ' of %.0f nominal' % ideal if ideal else ''))
        if each.get('memory_GBps') is not None:
            ideal = nominal.memory(device)
            parts.append('memory %.0f GB/s%s' % (each['memory_GBps'], ' of %.0f nominal' % ideal if ideal else ''))
        if each.get('from_host_GBps') is not None:
            parts.append('from the host %.1f GB/s, to the host %.1f GB/s' % (each['from_host_GBps'], each['to_host_GBps']))
        parts += ['%s not measured: %s' % pair for pair in sorted(each['not_measured'].items())]
        rows.append(('GPU %d' % device['index'], '; '.join(parts)))
    for pair in got['pairs']:
        rows.append(('GPU %d - %d' % tuple(pair['gpus']), 'not measured: ' + pair['not_measured'] if 'not_measured' in pair else
                     '%.1f GB/s %s' % (pair['GBps'], 'peer to peer' if pair['peer'] else 'through the host')))
    return rows

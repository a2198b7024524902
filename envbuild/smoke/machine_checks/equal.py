"""Finds sets of equal GPUs.

A synchronous step takes as long as the slowest device, so by default only equal GPUs work together.
"""
from __future__ import absolute_import, division, print_function


def kind(device):
    """Describe the properties that two GPUs must share to count as equal."""
    return '%s with %.0f GB' % (device['name'], device['mem_bytes'] / 1e9)


def sets(devices):
    """Return the sets of equal devices, as [[device]]: the largest set first; of sets of the same size, the fastest first."""
    found = {}
    for device in devices:
        found.setdefault((kind(device), device['cc']), []).append(device)
    return sorted(found.values(), key=lambda alike: (-len(alike), -_strength(alike[0]), alike[0]['index']))


def _strength(device):
    return device.get('multiprocessors', 0) * device.get('clock_khz', 0) + device['mem_bytes'] * 1e-12


def largest(devices):
    """Return the numbers of the GPUs in the largest set of equal GPUs."""
    return [device['index'] for device in sets(devices)[0]] if devices else []


def listed(alike):
    """Describe a set of equal GPUs: '4 x Tesla A with 16 GB (GPU 0, 1, 2, 3)'."""
    return '%d x %s (GPU %s)' % (len(alike), kind(alike[0]), ', '.join('%d' % device['index'] for device in alike))

"""Checks of what surrounds the framework: driver, GPUs, container, libraries. Each has a cause, and a remedy where it fails."""
from __future__ import absolute_import, division, print_function

from . import container, driver, gpus, libraries, peers, state, used, visible


def before(found, image, device, counts, left_out, options):
    """What can be known of machine and container before any framework is started."""
    largest = max(counts or [0])
    out = driver.driver(found, image) + gpus.devices(device, image, left_out, options)
    out += visible.visible(found, image) + visible.slices(found, image)
    if device.kind == 'cuda':
        out += gpus.mixed(found, device) + gpus.architecture(found, image, device)
    return out + state.state(found, device, options) + peers.peers(found, device, largest) + container.container(found, device, largest, options)


def of_framework(image, versions):
    """What the imported framework says of itself, against the image's lock."""
    return libraries.contents(image, versions)


def after(n, image, versions, results, gpus, seen):
    """What the ranks had loaded, and whether the GPUs (as they were before) really worked; none of them for CPU workers."""
    out = libraries.loaded(n, image, versions, [result.get('libraries') or {} for result in results])
    return out + (used.used(n, gpus, seen) if gpus else [])

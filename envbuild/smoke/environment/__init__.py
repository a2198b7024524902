"""Checks of what surrounds the framework: driver, GPUs, container, libraries. Each has a cause, and a remedy if it fails."""
from __future__ import absolute_import, division, print_function

from . import container, driver, gpus, libraries, peers, state, used, visible


def before(found, image, device, counts, left_out, options):
    """What can be known of machine and container before any framework is started."""
    largest, out = max(counts or [0]), gpus.devices(device, image, left_out, options)
    if image['cuda'] is not None or options['device'] == 'cuda':        # else nobody needs a GPU, and what hides one is no fault
        out = driver.driver(found, image) + out + visible.visible(found) + visible.slices(found)
    if device.kind == 'cuda':
        out += gpus.mixed(found, device) + gpus.architecture(found, image, device)
    return out + state.state(found, device, options) + peers.peers(found, device, largest) + container.container(found, device, largest, options)


def of_framework(image, versions, on_gpu):
    """What the imported framework says of itself, against the image's lock and what it is used for."""
    return libraries.contents(image, versions, on_gpu)


def after(n, image, versions, results, gpus, seen):
    """What the ranks had loaded, and whether the GPUs (as they were before) really worked; none of them for CPU workers."""
    out = []
    if image['cuda'] is not None or gpus:
        out = libraries.loaded(n, image, versions, [result.get('libraries') or {} for result in results])
    return out + (used.used(n, gpus, seen, results) if gpus else [])

"""Checks of the framework's environment: driver, GPUs, container, libraries. Each failure names a cause and a remedy."""
from __future__ import absolute_import, division, print_function

from . import container, driver, gpus, libraries, peers, state, used, visible


def before(found, image, device, counts, left_out, options):
    """Check the machine and the container before any framework is started."""
    largest, out = max(counts or [0]), gpus.devices(device, image, left_out, options)
    if image['cuda'] is not None or options['device'] == 'cuda':        # a run that needs no GPU may hide GPUs
        out = driver.driver(found, image) + out + visible.visible(found) + visible.slices(found)
    if device.kind == 'cuda':
        out += gpus.mixed(found, device) + gpus.architecture(found, image, device)
    return out + state.state(found, device, options) + peers.peers(found, device, largest) + container.container(found, device, largest, options)


def of_framework(image, versions, on_gpu):
    """Compare the versions that the imported framework reports with the image's lock and with the devices used."""
    return libraries.contents(image, versions, on_gpu)


def after(n, image, versions, results, gpus, seen):
    """Check which libraries the ranks loaded, and whether the GPUs really worked.

    `gpus` is the state of the used GPUs before the launch; it is empty for CPU workers. `seen` is the result of
    machine.gpuwatch, which watched these GPUs during the launch.
    """
    out = []
    if image['cuda'] is not None or gpus:
        out = libraries.loaded(n, image, versions, [result.get('libraries') or {} for result in results])
    return out + (used.used(n, gpus, seen, results) if gpus else [])

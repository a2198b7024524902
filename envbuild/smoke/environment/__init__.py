"""Checks of what surrounds the framework: driver, GPUs, container, libraries. Each has a cause, and a remedy where it fails."""
from __future__ import absolute_import, division, print_function

from . import container, driver, gpus, libraries


def before(found, image, device, counts, left_out, options):
    """What can be known of machine and container before any framework is started."""
    return (driver.driver(found, image) + gpus.devices(device, image, left_out, options) + gpus.architecture(found, image) +
            container.surroundings(found, device, max(counts or [0])))


def of_framework(image, versions):
    """What the imported framework says of itself, against the image's lock."""
    return libraries.contents(image, versions)

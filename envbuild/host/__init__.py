"""Reads the machine: driver, GPUs, container toolkit, what is missing for building, and what of the matrix runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.host.doctor import EngineFacts, Finding, doctor
from envbuild.host.nvidia import Driver, Gpu, Toolkit, driver, gpus, toolkit
from envbuild.lazily import exported

if TYPE_CHECKING:
    from envbuild.host.fitting import fits

__all__ = ["Driver", "EngineFacts", "Finding", "Gpu", "Toolkit", "doctor", "driver", "fits", "gpus", "toolkit"]

# A module here must not have the name of what it offers: importing it would take that name's place in the package.
__getattr__ = exported(__name__, fitting="fits")

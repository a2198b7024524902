"""Reads the machine: driver, GPUs, container toolkit, and what is missing for building."""

from envbuild.host.doctor import EngineFacts, Finding, doctor
from envbuild.host.nvidia import Driver, Gpu, Toolkit, driver, gpus, toolkit

__all__ = ["Driver", "EngineFacts", "Finding", "Gpu", "Toolkit", "doctor", "driver", "gpus", "toolkit"]

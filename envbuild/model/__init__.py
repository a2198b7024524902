"""The values that stages pass to each other: frozen, without I/O, and without defaults that hide a decision.

All versions are strings. Tuples keep the order that the producer chose and are written in that order. Each module here has one
reason to change: the additions of a user's recipe, the decision, its explanation, the pins, and progress messages.
:mod:`envbuild.model.lock` is not imported here: planning does not need it, and making its classes takes 5 ms.
"""

from envbuild.model.custom import CopiedFile, Custom, Service
from envbuild.model.environment import (
    AptPackage,
    AptRepository,
    Base,
    ComputeCapability,
    Environment,
    Framework,
    PinnedFile,
    PrefixPlan,
    Python,
    RemoteFile,
    System,
)
from envbuild.model.progress import OnProgress, Progress, as_news, ignore_progress
from envbuild.model.resolution import Details, Reason, Resolution, Upon
from envbuild.model.words import SCHEMA, CudaLibraries, Provider, PythonFrom, Status

__all__ = [
    "SCHEMA",
    "AptPackage",
    "AptRepository",
    "Base",
    "ComputeCapability",
    "CopiedFile",
    "CudaLibraries",
    "Custom",
    "Details",
    "Environment",
    "Framework",
    "OnProgress",
    "PinnedFile",
    "PrefixPlan",
    "Progress",
    "Provider",
    "Python",
    "PythonFrom",
    "Reason",
    "RemoteFile",
    "Resolution",
    "Service",
    "Status",
    "System",
    "Upon",
    "as_news",
    "ignore_progress",
]

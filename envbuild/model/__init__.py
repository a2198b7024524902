"""The values that stages pass to each other: frozen, without I/O, and without defaults that hide a decision.

All versions are strings. Tuples keep the order that the producer chose and are written in that order. Each module here has one
reason to change: what a user's recipe adds, what was decided, how that is told, what is pinned, and what is shown meanwhile.
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
from envbuild.model.lock import (
    AptLock,
    AptPlan,
    AptStep,
    Artifact,
    BaseLock,
    Bootstrap,
    DebianPackage,
    Lock,
    Missing,
    Prefix,
    SourceArchive,
)
from envbuild.model.progress import OnProgress, Progress, as_news, ignore_progress
from envbuild.model.resolution import Details, Reason, Resolution, Upon
from envbuild.model.words import SCHEMA, CudaLibraries, Provider, PythonFrom, Status

__all__ = [
    "SCHEMA",
    "AptLock",
    "AptPackage",
    "AptPlan",
    "AptRepository",
    "AptStep",
    "Artifact",
    "Base",
    "BaseLock",
    "Bootstrap",
    "ComputeCapability",
    "CopiedFile",
    "CudaLibraries",
    "Custom",
    "DebianPackage",
    "Details",
    "Environment",
    "Framework",
    "Lock",
    "Missing",
    "OnProgress",
    "PinnedFile",
    "Prefix",
    "PrefixPlan",
    "Progress",
    "Provider",
    "Python",
    "PythonFrom",
    "Reason",
    "RemoteFile",
    "Resolution",
    "Service",
    "SourceArchive",
    "Status",
    "System",
    "Upon",
    "as_news",
    "ignore_progress",
]

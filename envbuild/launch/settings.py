"""Settings of a batch system, read from the command line. Hosts and devices are not among them."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from envbuild.errors import UsageError

_WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._,@+-]*[A-Za-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SIZE = re.compile(r"([1-9]\d{0,8})([MGT])(?:i?B?)?", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d{1,3})-)?(\d{1,3}):(\d{2}):(\d{2})")
_SPAN = re.compile(r"([1-9]\d{0,7})([smhd]?)")
_SECONDS = {"": 60, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MIB = {"M": 1, "G": 1024, "T": 1024**2}
_KEY = re.compile(r"([A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, kw_only=True, slots=True)
class Toleration:
    """A toleration of a Kubernetes taint. An empty ``key`` tolerates every taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSettings:
    """The settings of a batch system. If a setting is empty, the default of the site applies.

    ``time_s`` limits the whole job. ``cpus`` are cores per device, ``memory_mib`` is per host. With ``shared``, other jobs may
    use the rest of a host. ``sbatch`` are further options of the program sbatch.
    """

    partition: str = ""
    account: str = ""
    time_s: int = 0
    cpus: int = 0
    memory_mib: int = 0
    shared: bool = False
    sbatch: tuple[str, ...] = ()
    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()

    def given(self) -> list[str]:
        """Return the names of the options that the user set, spelled as in launcher.yaml."""
        return [_OPTIONS[each.name] for each in fields(self) if getattr(self, each.name) != each.default]


_OPTIONS = {
    "partition": "partition",
    "account": "account",
    "time_s": "time",
    "cpus": "cpus",
    "memory_mib": "memory",
    "shared": "shared",
    "sbatch": "sbatch",
    "namespace": "namespace",
    "pull_secrets": "pull-secret",
    "tolerations": "toleration",
}
OPTIONS = tuple(_OPTIONS.values())


def read_word(option: str, text: str) -> str:
    """Check the name of a Slurm partition or account. Return '' if none is given."""
    if text and not _WORD.fullmatch(text):
        raise UsageError(f"--{option}: {text!r} is not a name.", hint="Write letters, digits and . _ - only.")
    return text


def read_label(option: str, text: str) -> str:
    """Check the name of a Kubernetes object. Return '' if none is given."""
    if text and not _LABEL.fullmatch(text):
        raise UsageError(
            f"--{option}: {text!r} is not a valid name in Kubernetes.", hint="Write lower-case letters, digits and - only."
        )
    return text


def read_time(text: str) -> int:
    """Convert a time limit to seconds. An empty text gives 0.

    Examples of valid texts are ``30`` (minutes), ``90s``, ``30m``, ``2h``, ``1d``, ``2:30:00`` and ``1-12:00:00``.
    """
    if not text:
        return 0
    if (clock := _CLOCK.fullmatch(text)) is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        if minutes < 60 and seconds < 60 and (total := ((days * 24 + hours) * 60 + minutes) * 60 + seconds):
            return total
    elif (span := _SPAN.fullmatch(text)) is not None:
        return int(span[1]) * _SECONDS[span[2]]
    raise UsageError(f"--time: {text!r} is not a time limit.", hint="Write 30m, 2h, 1d or HOURS:MINUTES:SECONDS.")


def read_memory(text: str) -> int:
    """Convert a size such as ``64G``, ``500M`` or ``1T`` to MiB. An empty text gives 0. The units are binary, as in Slurm."""
    if not text:
        return 0
    size = _SIZE.fullmatch(text)
    if size is None:
        raise UsageError(f"--memory: {text!r} is not a size.", hint="Write 64G, 500M or 1T.")
    return int(size[1]) * _MIB[size[2].upper()]


def read_sbatch(text: str) -> str:
    """Check one option of sbatch, such as ``--qos=high``."""
    if not text.startswith("-") or "\n" in text or "\r" in text:
        raise UsageError(f"--sbatch: {text!r} is not an option of sbatch.", hint="For example --sbatch=--qos=high.")
    return text


def read_toleration(text: str) -> Toleration:
    """Read a toleration: ``KEY``, ``KEY=VALUE``, or ``*`` for every key. ``:EFFECT`` may follow each of these forms."""
    head, colon, effect = text.partition(":")
    key, equals, value = head.partition("=")
    if key == "*" and not equals:
        key = ""
    elif not key or not _KEY.fullmatch(key):
        raise _no_toleration(text)
    if (colon and effect not in _EFFECTS) or not _KEY.fullmatch(value) or (equals and not value):
        raise _no_toleration(text)
    return Toleration(key=key, value=value, effect=effect)


def _no_toleration(text: str) -> UsageError:
    return UsageError(
        f"--toleration: {text!r} is not KEY, KEY=VALUE or KEY=VALUE:EFFECT.",
        hint=f"For example nvidia.com/gpu:NoSchedule; the effects are {', '.join(_EFFECTS)}.",
    )

"""Divides work among machines that share no files. A layer that several pieces of work need is made on one machine only.

The functions are pure: the same work gives the same division on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A piece of work, with its time, its disk space in bytes, and the keys of its layers that other pieces may need, too."""

    name: str
    seconds: float
    disk: int
    shares: frozenset[str] = frozenset()


def divide(work: Iterable[Work], count: int, room: int | None = None) -> list[list[Work]]:
    """Divide the work into ``count`` shards of about equal time.

    Pieces with a common key form a group, and all of them are put into one shard, so that the common layer is made once. With
    ``room``, a shard takes no more than this many bytes of disk, where that is possible. A group that fits into no shard goes
    to the shard that needs the least disk space.
    """
    shards: list[list[Work]] = [[] for _ in range(count)]
    seconds, disk = [0.0] * count, [0] * count
    for group in sorted(_groups(work), key=lambda group: (-_seconds(group), group[0].name)):
        need = sum(each.disk for each in group)
        fitting = [number for number in range(count) if room is None or disk[number] + need <= room]
        load = seconds if fitting else disk
        best = min(fitting or range(count), key=lambda number: (load[number], number))
        shards[best] += group
        seconds[best] += _seconds(group)
        disk[best] += need
    return [sorted(shard, key=lambda each: each.name) for shard in shards]


def shared(work: Collection[Work]) -> set[str]:
    """Return the keys that more than one piece of ``work`` has."""
    keys = [key for each in work for key in each.shares]
    return {key for key in keys if keys.count(key) > 1}


def _seconds(group: Sequence[Work]) -> float:
    return sum(each.seconds for each in group)


def _groups(work: Iterable[Work]) -> list[list[Work]]:
    """Group the pieces that have a common key, directly or through other pieces. Each group is sorted by name."""
    groups: list[tuple[set[str], list[Work]]] = []
    for each in sorted(work, key=lambda each: each.name):
        keys, members, rest = set(each.shares), [each], []
        for known in groups:
            if known[0] & keys:
                keys |= known[0]
                members += known[1]
            else:
                rest.append(known)
        groups = [*rest, (keys, members)]
    return [sorted(members, key=lambda each: each.name) for _, members in groups]

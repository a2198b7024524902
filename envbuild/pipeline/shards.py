"""Divides work among machines that share no files. One machine makes a layer that several pieces of work need, if possible.

The functions are pure: the same work gives the same division on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# Seconds. A shard may take this long so that a layer is made once, even if the others then end much sooner.
_LONG = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A piece of work, with its time and its disk space in bytes.

    ``layers`` maps the keys of its layers that other pieces may need, too, to their sizes in bytes.
    """

    name: str
    seconds: float
    disk: int
    layers: Mapping[str, int] = field(default_factory=dict)


def divide(work: Iterable[Work], count: int, room: int | None = None) -> list[list[Work]]:
    """Divide the work into ``count`` shards of about equal time.

    Pieces with a common layer form a group, and all of them are put into one shard, so that the layer is made once. But pieces
    are not joined if their group would take longer than an hour and longer than an equal share of the time. With ``room``, a
    shard takes no more than this many bytes of disk, where that is possible. A group that fits into no shard goes to the shard
    that needs the least disk space.
    """
    pieces = sorted(work, key=lambda each: each.name)
    longest = max(_LONG, _seconds(pieces) / count)
    largest = None if room is None else max(room, _disk(pieces) / count)
    shards: list[list[Work]] = [[] for _ in range(count)]
    seconds, disk = [0.0] * count, [0] * count
    for group in sorted(_groups(pieces, longest, largest), key=lambda group: (-_seconds(group), group[0].name)):
        need = _disk(group)
        fitting = [number for number in range(count) if room is None or disk[number] + need <= room]
        load = seconds if fitting else disk
        best = min(fitting or range(count), key=lambda number: (load[number], number))
        shards[best] += group
        seconds[best] += _seconds(group)
        disk[best] += need
    return [sorted(shard, key=lambda each: each.name) for shard in shards]


def shared(work: Collection[Work]) -> set[str]:
    """Return the keys of the layers that more than one piece of ``work`` has."""
    keys = [key for each in work for key in each.layers]
    return {key for key in keys if keys.count(key) > 1}


def _seconds(group: Sequence[Work]) -> float:
    return sum(each.seconds for each in group)


def _disk(group: Sequence[Work]) -> int:
    return sum(each.disk for each in group)


def _groups(pieces: Sequence[Work], longest: float, largest: float | None) -> list[list[Work]]:
    """Put pieces with a common layer into one group, as far as the limits allow. Each group is sorted by name.

    The pieces with the largest common layers are joined first, so that only smaller layers are in several groups. No group
    takes more seconds than ``longest`` or more bytes of disk than ``largest``, unless it has a single piece.
    """
    group_of = {each.name: [each] for each in pieces}
    users: dict[tuple[int, str], list[str]] = {}
    for each in pieces:
        for key, size in each.layers.items():
            users.setdefault((-size, key), []).append(each.name)
    for _, names in sorted(users.items()):
        groups = {id(group_of[name]): group_of[name] for name in names}.values()
        joined: list[list[Work]] = []
        for group in sorted(groups, key=lambda group: (-_seconds(group), group[0].name)):
            for other in joined:
                both = [*other, *group]
                if _seconds(both) <= longest and (largest is None or _disk(both) <= largest):
                    other[:] = sorted(both, key=lambda each: each.name)
                    group_of.update(dict.fromkeys((each.name for each in group), other))
                    break
            else:
                joined.append(group)
    return list({id(group): group for group in group_of.values()}.values())

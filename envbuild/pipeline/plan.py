"""``plan``: finds the images that must be made again, with the reasons, and divides the work among separate machines."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from envbuild.errors import InvalidInputError, Problem
from envbuild.pipeline import disk_need, incomplete_locks, rendering, shards
from envbuild.pipeline.disk_need import DiskNeed
from envbuild.pipeline.revision_inputs import ChangedInput, Revision
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.model.lock import Lock
    from envbuild.pipeline.batch import Job

# The estimated time for an image that was not measured: a fixed time for the smoke test, and a time for each byte that is
# downloaded and unpacked. The time for each byte comes from docs/decisions/0028: 74 s for 340 MB of wheels.
_FIXED_S = 60.0
_S_PER_BYTE = 0.2e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Buildable:
    """An environment that can be built: its lock, its rendering, the digest of all its inputs, and the tags of its image."""

    request: str
    locked: Locked
    rendering: Mapping[str, str]
    inputs: str
    tags: tuple[str, ...]

    @property
    def lock(self) -> Lock:
        """The lock of the environment."""
        return self.locked.lock

    @property
    def name(self) -> str:
        """The canonical name of the environment."""
        return self.lock.environment.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """An image to make. Its ``tag`` never moves. ``lock`` and ``inputs`` are digests.

    If ``is_measured`` is true, ``seconds`` is the time that an earlier run measured; else it is an estimate. ``shard`` is the
    number of the shard that makes the image. The first shard has the number 1.
    """

    name: str
    request: str
    lock: str
    inputs: str
    tag: str
    reasons: tuple[ChangedInput, ...]
    gpu: bool
    seconds: float
    is_measured: bool
    disk: DiskNeed
    shard: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedLayer:
    """A layer that several images of the plan have, with the file name and the size in bytes of its wheel."""

    key: str
    wheel: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The part of the work for one machine.

    ``layers`` are layers that several images of this shard have. No other shard makes these layers.
    """

    number: int
    items: tuple[Item, ...]
    disk: DiskNeed
    layers: tuple[SharedLayer, ...]

    @property
    def seconds(self) -> float:
        """The estimated time of the whole shard."""
        return sum(item.seconds for item in self.items)


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """An environment that cannot be built. The reason is given as a ``message`` for people and as a ``code`` for programs."""

    name: str
    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The images to make, divided into ``shards``, of which some may be empty.

    ``removed`` are environments that exist only at the git revision and not in the working tree.
    """

    shards: tuple[Shard, ...]
    unchanged: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """All images to make, sorted by name."""
        return tuple(sorted((item for shard in self.shards for item in shard.items), key=lambda item: item.name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """How to divide the work: into ``count`` shards, each with ``room`` bytes of disk space.

    ``seconds`` maps names of environments to measured times. ``sizes`` maps names of environments to the measured sizes of
    their images in bytes.
    """

    count: int = 1
    room: int | None = None
    seconds: Mapping[str, float]
    sizes: Mapping[str, int] = field(default_factory=dict)


def since(tools: Tools, jobs: Sequence[Job], revision: str, division: Division, only: str = "") -> Plan:
    """Plan the images that differ between a git revision and the working tree. The shards divide only these images.

    :func:`candidates` explains ``only``.

    Raises :class:`UsageError` (``no-checkout``, ``unknown-revision``), and the errors of locks and recipes.
    """
    before = Revision(tools, revision)
    found, skipped = candidates(tools, jobs, only)
    reasons = {each.name: before.reasons(each.locked, each.rendering) for each in found}
    needed = [each for each in found if reasons[each.name]]
    known = {job.name for job in jobs}
    notes = [] if before.sees_the_guest else [
        "Changes of the smoke test are not compared: it comes from the installed envbuild, not from this checkout. To compare "
        "it too, use --against."
    ]  # fmt: skip
    return Plan(
        shards=_shards(tools, needed, needed, reasons, division),
        unchanged=tuple(each.name for each in found if not reasons[each.name]),
        skipped=tuple(skipped),
        removed=tuple(sorted(before.names() - known)) if _is_whole(tools, known) else (),
        notes=tuple(notes),
    )


def against(tools: Tools, jobs: Sequence[Job], repository: str, division: Division, only: str = "") -> Plan:
    """Plan the images that ``repository`` (``HOST/REPOSITORY``) lacks.

    All of ``jobs`` are divided into shards, not only the missing images. So each machine keeps the same part of the work, even
    if other machines publish images in the meantime. :func:`candidates` explains ``only``. Raises :class:`PublishError`
    (``tag-taken`` if a tag that never moves is on another image), and the errors of locks and recipes.
    """
    from envbuild.compose.outputs import documents, referrers
    from envbuild.pipeline.published_inputs import PublishedInputs

    with referrers.opened(repository, writes=False) as client:
        # Raises if no registry answers; else all images would seem to be missing. The locks are read afterwards, because
        # reading them takes long.
        documents.has_repository(client)
        found, skipped = candidates(tools, jobs, only)
        published = PublishedInputs(tools, client)
        reasons = {each.name: published.reasons(each.locked, each.rendering, each.tags) for each in found}
        published.require_own_images()
    needed = [each for each in found if reasons[each.name]]
    return Plan(
        shards=_shards(tools, found, needed, reasons, division),
        unchanged=tuple(each.name for each in found if not reasons[each.name]),
        skipped=tuple(skipped),
    )


def candidates(tools: Tools, jobs: Sequence[Job], only: str = "") -> tuple[list[Buildable], list[Skipped]]:
    """Return the environments that can be built, and the environments that cannot be built.

    If ``only`` is ``cpu`` or ``gpu``, environments for the other kind of device are left out. If it is empty, none are left
    out. Raises the errors of damaged locks. Raises :class:`InvalidInputError` (``misplaced-lock``) if the name of a lock's
    folder is not the name of its environment.
    """
    from envbuild import build, image_inputs

    found, skipped = [], []
    misplaced: list[Locked] = []
    for job in jobs:
        own = tools.at([job.request])
        locked = read_locked(own, job.name)
        if locked is None:
            skipped.append(
                Skipped(name=job.name, code="no-lock", message=f"no lock; to make it, run `envbuild lock {job.name}`")
            )
            continue
        if own.user_recipe is None and locked.path.parent.name != locked.lock.environment.name:
            misplaced.append(locked)
            continue
        if only and (locked.lock.environment.cuda is not None) != (only == "gpu"):
            continue
        unpinned = incomplete_locks.unpinned_frameworks(locked.lock)
        if unpinned:
            names = ", ".join(framework.name for framework in unpinned)
            skipped.append(Skipped(name=job.name, code="lock-incomplete", message=f"the lock pins no file of {names}"))
            continue
        texts = rendering.render_text(own, locked.lock)
        inputs = image_inputs.inputs_digest(own.workspace, locked.lock, own.recipes, texts)
        tags = build.tags_of(locked.lock, inputs)
        found.append(Buildable(request=job.request, locked=locked, rendering=texts, inputs=inputs, tags=tags))
    _refuse_misplaced(misplaced)
    return found, skipped


def _refuse_misplaced(locks: Sequence[Locked]) -> None:
    """Refuse each lock whose folder does not have the name of its environment.

    With such a lock, the plan could lack an environment, or contain it twice.
    """
    if not locks:
        return
    problems = [
        Problem(
            where=str(each.path),
            line=0,
            message=f"the folder is named {each.path.parent.name}, but the environment is {each.lock.environment.name}",
        )
        for each in locks
    ]
    raise InvalidInputError(
        f"{len(locks)} lock{'s are' if len(locks) > 1 else ' is'} in a folder with another name.",
        code="misplaced-lock",
        hint="Rename each folder to the name of its environment. If the environment has its own folder, delete the copy.",
        problems=problems,
    )


def _is_whole(tools: Tools, names: set[str]) -> bool:
    """Whether ``names`` contains all committed environments. Only then does a missing name mean a removed environment."""
    from envbuild.pipeline import committed

    return set(committed.names(tools)) <= names


def _shards(
    tools: Tools,
    divided: Sequence[Buildable],
    needed: Sequence[Buildable],
    reasons: Mapping[str, tuple[ChangedInput, ...]],
    division: Division,
) -> tuple[Shard, ...]:
    """Divide the environments ``divided`` into shards, and then keep only the ``needed`` environments in each shard."""
    locks = {each.name: each.lock for each in divided}
    layers = {name: _large_layers(lock) for name, lock in locks.items()}
    estimate = functools.partial(disk_need.estimate, held=(), unpacked=tools.unpacked_sizes, sizes=division.sizes)
    needs = {name: estimate([lock]) for name, lock in locks.items()}
    seconds = {name: division.seconds.get(name, _FIXED_S + _S_PER_BYTE * need.downloads) for name, need in needs.items()}
    work = [
        shards.Work(
            name=name,
            seconds=seconds[name],
            disk=need.total - need.kept,
            layers={key: layer.size for key, layer in layers[name].items()},
        )
        for name, need in needs.items()
    ]
    for_wheels = max((need.kept for need in needs.values()), default=0)  # of one build at a time
    room = None if division.room is None else division.room - for_wheels
    by_name = {each.name: each for each in needed}
    parts = shards.divide(work, division.count, room)
    makers = Counter(key for part in parts for key in {key for each in part for key in each.layers})
    found = []
    for number, part in enumerate(parts, 1):
        kept = [each for each in part if each.name in by_name]
        items = tuple(
            Item(
                name=each.name,
                request=by_name[each.name].request,
                lock=by_name[each.name].locked.digest,
                inputs=by_name[each.name].inputs,
                tag=by_name[each.name].tags[2].rpartition(":")[2],
                reasons=reasons[each.name],
                gpu=locks[each.name].environment.cuda is not None,
                seconds=each.seconds,
                is_measured=each.name in division.seconds,
                disk=needs[each.name],
                shard=number,
            )
            for each in kept
        )
        known = {key: layer for each in kept for key, layer in layers[each.name].items()}
        common = tuple(known[key] for key in sorted(shards.shared(kept)) if makers[key] == 1)
        disk = estimate([locks[each.name] for each in kept])
        found.append(Shard(number=number, items=items, disk=disk, layers=common))
    return tuple(found)


def _large_layers(lock: Lock) -> dict[str, SharedLayer]:
    """Return the layers of the largest wheels, as a mapping from the key of each layer to the layer.

    These layers take longest to make. They do not depend on the Python interpreter, so environments can share them.
    """
    from envbuild.compose import layer_plan

    found = {}
    for prefix in lock.prefixes:
        wheels = [
            layer_plan.Wheel(filename=each.filename, sha256=each.sha256, size=each.size or 0)
            for each in prefix.artifacts
            if each.filename.endswith(".whl")
        ]
        for layer in layer_plan.wheel_layers(prefix, wheels, ""):
            if layer.holds == "files":
                (wheel,) = layer.wheels
                found[layer.key] = SharedLayer(key=layer.key, wheel=wheel.filename, size=wheel.size)
    return found

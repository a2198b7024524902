"""Build an image from a lock and its rendering, and record the inputs of the build."""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from envbuild import codec, files
from envbuild.errors import BuildError, EnvbuildError, InvalidInputError
from envbuild.image_inputs import BuildInputs, guest_digest, inputs_digest, rendering_digest
from envbuild.lock import lock_file
from envbuild.model.lock import Lock
from envbuild.model.progress import OnProgress, as_news
from envbuild.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.build_preparation import Ingredients
    from envbuild.engine.client import Engine
    from envbuild.engine.model import BuiltImage

REPOSITORY = "envbuild"
PULLED = "pull"  # value of `builder` for an image that was pulled by the tag of its inputs
# A function that checks an image before the image gets a tag, and raises if the image must not get one. Its arguments are the
# ids of the image and of its base.
Check = Callable[[str, str], None]
Placed = TypeVar("Placed")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseRecord:
    """The base image that a build used.

    ``notes`` are messages for the user about this base, for example that the lock does not pin it.
    """

    reference: str
    image: str
    how: str
    digest: str
    notes: tuple[str, ...]


class Composition(Protocol):
    """A way to make an image without the engine's builder."""

    @property
    def installs(self) -> bool:
        """Whether a step of this image's Dockerfile installs packages."""
        ...

    def begin(self) -> None:
        """Start long work that needs no build context, such as downloads."""

    def __call__(self, ingredients: Ingredients) -> BuiltImage:
        """Make the image in the engine."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """The result and the inputs of a build. ``tags[0]`` is the canonical tag.

    ``lock``, ``inputs``, ``rendering`` and ``guest`` are SHA-256 hashes in hex: of the lock, of all inputs, of the rendering
    and of the guest. The evidence of this image names ``rendering`` and ``guest``.

    Builds with the same inputs, base and Debian packages have equal ``layers``. If ``dated`` is true, such builds also have
    equal ``image`` ids. ``dated`` means that the image got the creation time of its lock, which needs BuildKit 0.11 or newer.
    ``kept`` is true if nothing had changed and the earlier image was kept. ``builder`` is ``docker`` if the image was built
    from its Dockerfile, ``compose`` if it is a composed image, and ``pull`` if it was pulled from a registry. ``pushed`` lists
    this image's addresses in registries, ``HOST/REPOSITORY@DIGEST``.
    """

    name: str
    lock: str
    inputs: str
    image: str
    tags: tuple[str, ...]
    base: BaseRecord
    engine: str
    built_at: str
    seconds: float
    steps: int
    cached: int
    size: int
    kept: bool
    layers: tuple[str, ...] = ()
    dated: bool = False
    rendering: str = ""
    guest: str = ""
    builder: str = "docker"
    pushed: tuple[str, ...] = ()


def build(
    engine: Engine,
    inputs: BuildInputs,
    *,
    no_cache: bool = False,
    aliases: Sequence[str] = (),
    repository: str = REPOSITORY,
    check: Check = lambda _image, _base: None,
    compose: Composition | None = None,
    supply: Callable[[], Mapping[str, Path]] = dict,
) -> BuildRecord:
    """Build the image of a lock from its rendering, or keep the existing image if all inputs are the same.

    If ``compose`` is given, it makes the image instead of the engine's builder. ``supply`` is called before anything is built,
    and returns further files for the build context (path in the context → file). ``aliases`` are further tags, such as the
    request as it was typed; invalid tags are left out. ``check`` is called for every image before a tag moves to that image. If
    ``check`` raises, no tag moves and the build record stays unchanged.

    Raises :class:`BuildError` (such as ``base-unreachable``, ``base-differs``, ``packages-differ``, ``build-step``,
    ``index-unreachable``, ``artifact-gone``, ``artifact-changed`` and ``no-space``), :class:`EngineError`, and the errors of
    ``check``. An interrupted build changes neither the build record nor the tags.
    """
    workspace, lock, name = inputs.workspace, inputs.lock, inputs.lock.environment.name
    with _alone(inputs):
        # Compute the digest before the files are copied into the build context. If somebody edits a file in between, the
        # recorded digest is that of the old file, so the next run builds again.
        digest = inputs_digest(workspace, lock, inputs.recipes, inputs.rendering)
        tags = tags_of(lock, digest, aliases, repository)
        rendered = rendering_digest(
            workspace, lock.environment.custom, {path: text.encode() for path, text in inputs.rendering.items()}
        )
        guest = guest_digest(workspace, lock, inputs.recipes)
        kept = None if no_cache else _held(engine, workspace, lock, digest, _builder(compose))
        if kept is not None:
            return _kept(engine, workspace, replace(kept, rendering=rendered, guest=guest), tags, check)
        from envbuild.build_preparation import prepare, require_system, time_of  # imported only if something is built
        from envbuild.lock import download_errors

        more = _begun(engine, supply, compose.begin if compose else None)
        start = prepare(engine, replace(inputs, installs=compose is None or compose.installs), more, no_cache=no_cache)
        before = read_record(workspace, name)
        tags = tuple(dict.fromkeys((*tags, *carried_aliases(engine, before))))
        real, unverified = start.base, start.ingredients.tag
        try:
            make_image = compose or functools.partial(_built_by_dockerfile, engine, inputs.on_progress)
            built = make_image(start.ingredients)
        except BuildError as error:
            raise download_errors.of_lock(lock, explain_base_error(lock, error)) from error
        try:
            require_system(engine, lock, start, built.id)
            check(built.id, real.image_id)
            for tag in tags:
                engine.tag(built.id, tag)
        finally:  # remove an image that a check refused; its layers stay in the builder's cache
            engine.remove_unused(unverified)
        image = engine.image(built.id)
        record = BuildRecord(
            name=name,
            lock=lock_file.digest(lock),
            inputs=digest,
            image=built.id,
            tags=tags,
            base=BaseRecord(reference=real.reference, image=real.image_id, how=real.how, digest=real.digest, notes=real.notes),
            engine=engine.info.name,
            built_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            seconds=round(built.seconds, 1),
            steps=built.steps,
            cached=built.cached,
            size=image.size if image is not None else 0,
            kept=False,
            layers=image.layers if image is not None else (),
            dated=image is not None and image.created.startswith(time_of(lock).isoformat()[:19]),
            rendering=rendered,
            guest=guest,
            builder=_builder(compose),
        )
        files.write_atomic(workspace.build_record(name), codec.dumps(record))
        _drop_superseded(engine, before, record)
        return record


def compose_elsewhere(
    engine: Engine,
    inputs: BuildInputs,
    *,
    begin: Callable[[], object],
    compose: Callable[[Ingredients, Callable[[str], None]], Placed],
    supply: Callable[[], Mapping[str, Path]] = dict,
) -> Placed:
    """Call ``compose`` to make the image of a lock and write it to a place outside the engine; return the result of
    ``compose``.

    ``compose`` gets the inputs of the build and a check. Before ``compose`` writes anything, it calls the check with the id of
    an image that has the same base and system packages. The check raises the same errors as :func:`build`. ``begin`` starts
    long work that needs no build context, such as downloads.
    """
    from envbuild.build_preparation import prepare, require_system
    from envbuild.lock import download_errors

    lock = inputs.lock
    with _alone(inputs):
        start = prepare(engine, inputs, _begun(engine, supply, begin), no_cache=False)
        try:
            return compose(start.ingredients, functools.partial(require_system, engine, lock, start))
        except BuildError as error:
            raise download_errors.of_lock(lock, explain_base_error(lock, error)) from error


def _alone(inputs: BuildInputs) -> contextlib.AbstractContextManager[None]:
    """Hold a file lock, so that only one build of this environment runs at a time; wait while another build holds the lock."""
    record = inputs.workspace.build_record(inputs.lock.environment.name)
    return files.locked(record.with_suffix(".running"), as_news("build", inputs.on_progress))


def _begun(engine: Engine, supply: Callable[[], Mapping[str, Path]], begin: Callable[[], object] | None) -> Mapping[str, Path]:
    """Call ``supply``, then ``begin``, which starts downloads. Return the files of ``supply``.

    ``supply`` is called first, because it may fill caches, so that less has to be downloaded. Neither function is called if the
    engine cannot build.
    """
    engine.require_builder()
    more = supply()
    if begin is not None:
        begin()
    return more


def _builder(compose: Composition | None) -> str:
    return "docker" if compose is None else "compose"


def _built_by_dockerfile(engine: Engine, on_progress: OnProgress, ingredients: Ingredients) -> BuiltImage:
    ingredients.add_guest()
    return engine.build(
        ingredients.context,
        tag=ingredients.tag,
        secrets=ingredients.secrets,
        build_args=ingredients.build_args,
        on_progress=on_progress,
        no_cache=ingredients.no_cache,
    )


def read_record(workspace: Workspace, name: str) -> BuildRecord | None:
    """Return the record of the last build of ``name`` on this machine. Return None if there is no such record, or if it cannot
    be read."""
    path = workspace.build_record(name)
    try:
        return codec.decode(BuildRecord, codec.loads(files.read_bytes(path)), str(path))
    except (OSError, ValueError, EnvbuildError):
        return None


def _held(engine: Engine, workspace: Workspace, lock: Lock, inputs: str, builder: str) -> BuildRecord | None:
    record = read_record(workspace, lock.environment.name)
    if record is None or (record.lock, record.inputs) != (lock_file.digest(lock), inputs):
        return None
    if record.builder not in (builder, PULLED):
        return None
    return record if engine.image(record.image) is not None else None


def tags_of(lock: Lock, inputs: str, aliases: Iterable[str] = (), repository: str = REPOSITORY) -> tuple[str, ...]:
    """Return the image's tags: the canonical name, the tag of its lock, the tag of all its inputs, and the aliases.

    The tag of all inputs never moves to another image.
    """
    canonical = lock.environment.name.replace("+", "_")
    of_lock = f"{canonical}-{lock_file.digest(lock)[:8]}"
    wanted = [canonical, of_lock, f"{of_lock}-{inputs[:8]}", *(alias.replace("+", "_") for alias in aliases)]
    if not _TAG.fullmatch(wanted[2]):  # the longest tag; it must be valid, because it identifies the image
        raise InvalidInputError(
            f"{lock.environment.name} cannot be the name of an image: it is too long, or has a character that tags cannot have."
        )
    return tuple(dict.fromkeys(f"{repository}:{tag}" for tag in wanted if _TAG.fullmatch(tag)))


def unverified_tag(lock: Lock, inputs: str) -> str:
    """Return the tag of an image that is not verified. It is the tag of all inputs, with ``-unverified`` at its end."""
    canonical = lock.environment.name.replace("+", "_")
    tag = f"{canonical}-{lock_file.digest(lock)[:8]}-{inputs[:8]}-unverified"
    return tag if _TAG.fullmatch(tag) else f"{inputs[:32]}-unverified"


def _kept(engine: Engine, workspace: Workspace, record: BuildRecord, tags: Sequence[str], check: Check) -> BuildRecord:
    missing = [tag for tag in tags if (found := engine.image(tag)) is None or found.id != record.image]
    if missing:
        check(record.image, record.base.image)
    for tag in missing:
        engine.tag(record.image, tag)
    whole = replace(record, tags=tuple(dict.fromkeys((*tags, *record.tags))))
    if whole != read_record(workspace, record.name):
        files.write_atomic(workspace.build_record(record.name), codec.dumps(whole))
    return replace(whole, kept=True)


def carried_aliases(engine: Engine, before: BuildRecord | None) -> list[str]:
    """Return the aliases of the last build that still name the image of that build. These aliases move to the new image."""
    if before is None:
        return []
    fixed = re.compile(re.escape(before.tags[0]) + "(-[0-9a-f]{8}){1,2}")
    return [tag for tag in before.tags if not fixed.fullmatch(tag) and (held := engine.image(tag)) and held.id == before.image]


def _drop_superseded(engine: Engine, before: BuildRecord | None, now: BuildRecord) -> None:
    """Remove the image that the new image replaces, unless the old image is in use or has another name.

    If both images have the same lock, the old image's tag with the digest of its inputs does not count as another name.
    Otherwise every change of the guest would leave an old image behind.
    """
    if before is None or before.image == now.image:
        return
    old = engine.image(before.image)
    own = {f"{before.tags[0]}-{before.lock[:8]}-{before.inputs[:8]}"} if before.lock == now.lock else set()
    if old is not None and set(old.tags) <= own:
        engine.remove_unused(next(iter(old.tags), old.id))


def explain_base_error(lock: Lock, error: BuildError) -> BuildError:
    """Return ``error``, unless the base is its cause. Then return an error that names the base's provider and other
    providers."""
    text = "\n".join([error.message, *error.details])
    hosts = [repository.url.partition("://")[2].partition("/")[0] for repository in lock.environment.base.repositories]
    of_repository = error.code == "index-unreachable" and any(host and host in text for host in hosts)
    if error.code != "base-unreachable" and not of_repository:
        return error
    from envbuild.engine import bases

    told = bases.unreachable(lock.environment, error.message)
    return BuildError(told.message, code=told.code, hint=told.hint, details=(*told.details, *error.details))

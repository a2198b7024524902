"""One stage: lock and rendering to an image in the engine, with a record of what it was made from."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from envbuild import codec, files
from envbuild import lock as locks
from envbuild.engine import Engine, bases
from envbuild.errors import BuildError, EnvbuildError, InvalidInputError
from envbuild.model import Artifact, Lock, OnProgress, Progress, ignore_progress
from envbuild.recipes import Recipe
from envbuild.render import render
from envbuild.workspace import Workspace

REPOSITORY = "envbuild"
_EPOCH = 1577836800  # the oldest time stamp of a context
_YEAR = 31536000
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_TOOL_WHEELS = {"pip": "pip.whl", "virtualenv": "virtualenv.whl"}


class IndexLike(Protocol):
    """What a build needs of :class:`envbuild.index.Index`."""

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: OnProgress = ...) -> Path:
        """The file, downloaded or from an earlier run, checked against its sha256."""

    def build_secrets(self) -> dict[str, bytes]:
        """What the steps of a build need to reach the index; see the secrets' names in ``docs/architecture.md``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseRecord:
    """The base that was really used; ``drift`` has a line for each difference from the lock."""

    reference: str
    image: str
    how: str
    digest: str
    drift: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """What a build made and from what. ``lock`` and ``inputs`` are sha256 in hex, ``tags[0]`` is the canonical one.

    ``kept`` is true where nothing had changed and the earlier image was kept.
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


def build(  # noqa: PLR0917 - what a build is made from, in the order of the stages
    engine: Engine,
    workspace: Workspace,
    lock: Lock,
    recipes: Mapping[str, Recipe],
    templates: Mapping[str, str],
    index: IndexLike,
    on_progress: OnProgress = ignore_progress,
    *,
    no_cache: bool = False,
    aliases: Sequence[str] = (),
    repository: str = REPOSITORY,
) -> BuildRecord:
    """Build the image of ``lock``, or keep the one that an earlier build made from the same.

    ``aliases`` are further tags, such as the request as it was typed; those that are no tags are left out. Raises
    :class:`BuildError` (``base-unreachable`` before anything else is done, ``build-step``, ``index-unreachable``,
    ``no-space``) and :class:`EngineError`. An interrupted build leaves the record and the tags as they were.
    """
    name = lock.environment.name
    with files.locked(workspace.build_record(name).with_suffix(".running")):
        tags = tags_of(lock, aliases, repository)
        kept = None if no_cache else is_current(engine, workspace, lock, recipes, templates)
        if kept is not None:
            return _kept(engine, workspace, kept, tags)
        rendering = render(lock, recipes, templates)
        real = bases.provide(lock.base, lock.environment, engine, workspace, on_progress)
        for line in real.drift:
            on_progress(Progress(stage="base", message=f"warning: the base differs from the lock: {line}", log=True))
        bases.check_repositories(lock.environment)
        context = assemble(workspace, lock, rendering, index, on_progress)
        secrets = index.build_secrets()
        if real.apt_sources is not None:
            secrets["envbuild-apt"] = real.apt_sources
        before = read_record(workspace, name)
        tags = tuple(dict.fromkeys((*tags, *_carried(engine, before))))
        try:
            built = engine.build(
                context,
                tag=tags,
                secrets=secrets,
                build_args={"BASE_IMAGE": real.reference},
                on_progress=on_progress,
                no_cache=no_cache,
            )
        except BuildError as error:
            raise _of_the_base(lock, error) from error
        image = engine.image(built.id)
        record = BuildRecord(
            name=name,
            lock=locks.digest(lock),
            inputs=inputs_digest(workspace, lock, rendering),
            image=built.id,
            tags=tags,
            base=BaseRecord(reference=real.reference, image=real.image_id, how=real.how, digest=real.digest, drift=real.drift),
            engine=engine.info.name,
            built_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            seconds=round(built.seconds, 1),
            steps=built.steps,
            cached=built.cached,
            size=image.size if image is not None else 0,
            kept=False,
        )
        files.write_atomic(workspace.build_record(name), codec.dumps(record))
        _drop_superseded(engine, before, record)
        return record


def read_record(workspace: Workspace, name: str) -> BuildRecord | None:
    """What the last build of ``name`` here left on record; None where there was none or it cannot be read."""
    path = workspace.build_record(name)
    try:
        return codec.decode(BuildRecord, json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError, EnvbuildError):
        return None


def is_current(
    engine: Engine, workspace: Workspace, lock: Lock, recipes: Mapping[str, Recipe], templates: Mapping[str, str]
) -> BuildRecord | None:
    """The record of a build of exactly this lock, rendering and guest whose image ``engine`` still has, else None."""
    record = read_record(workspace, lock.environment.name)
    if record is None or record.lock != locks.digest(lock):
        return None
    if record.inputs != inputs_digest(workspace, lock, render(lock, recipes, templates)):
        return None
    return record if engine.image(record.image) is not None else None


def tags_of(lock: Lock, aliases: Iterable[str] = (), repository: str = REPOSITORY) -> tuple[str, ...]:
    """The image's names: the canonical one, which moves, the one with the lock's digest, which never does, the aliases."""
    canonical = lock.environment.name.replace("+", "_")
    wanted = [canonical, f"{canonical}-{locks.digest(lock)[:8]}", *(alias.replace("+", "_") for alias in aliases)]
    if not _TAG.fullmatch(wanted[1]):
        raise InvalidInputError(f"{lock.environment.name} is too long for, or not possible as, the name of an image.")
    return tuple(dict.fromkeys(f"{repository}:{tag}" for tag in wanted if _TAG.fullmatch(tag)))


def inputs_digest(workspace: Workspace, lock: Lock, rendering: Mapping[str, str]) -> str:
    """One sha256 over everything that the image is made from.

    The tools that only the build uses (uv, pip) are left out: the lock, not they, decides what is in the image.
    """
    whole = hashlib.sha256()
    parts = {path: text.encode() for path, text in rendering.items()}
    parts["lock.json"] = locks.dumps(lock).encode()
    parts |= {path: source.read_bytes() for path, source in guest_files(workspace, lock).items()}
    for path, content in sorted(parts.items()):
        whole.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()


def guest_files(workspace: Workspace, lock: Lock) -> dict[str, Path]:
    """The smoke package and the adapters of the environment's recipes: path in the context → file here."""
    guest = {
        f"smoke/{path.relative_to(workspace.guest).as_posix()}": path
        for path in workspace.guest.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    for framework in lock.environment.frameworks:
        adapter = workspace.recipes / framework.recipe / "smoke.py"
        if adapter.is_file():
            guest[f"smoke/adapters/{framework.recipe}.py"] = adapter
    return dict(sorted(guest.items()))


def assemble(workspace: Workspace, lock: Lock, rendering: Mapping[str, str], index: IndexLike, on_progress: OnProgress) -> Path:
    """Write the build context of ``lock`` anew and return its folder.

    Raises :class:`BuildError` (``index-unreachable``) where a tool of the build has to be fetched and cannot be.
    """
    name = lock.environment.name
    on_progress(Progress(stage="context", message=f"assembling the build context of {name}"))
    final = workspace.context(name)
    part = final.with_name(f".{final.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for path, text in {**rendering, "lock.json": locks.dumps(lock)}.items():
            _put(part, path, text.encode())
        for path, source in guest_files(workspace, lock).items():
            _put(part, path, source.read_bytes())
        for path, source in _tools(workspace, lock, index, on_progress).items():
            _put(part, path, source.read_bytes(), mode=0o755 if path == "tools/uv" else 0o644)
        _normalise(part)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
    except OSError as error:
        raise files.explain_os_error(error, final) from error
    return final


def _tools(workspace: Workspace, lock: Lock, index: IndexLike, on_progress: OnProgress) -> dict[str, Path]:
    import uv

    tools: dict[str, Path] = {"tools/uv": Path(uv.find_uv_bin())}
    for prefix in lock.prefixes:
        for artifact in prefix.build_artifacts if prefix.backend == "pip" else ():
            if artifact.name in _TOOL_WHEELS:
                wheel = index.fetch_artifact(artifact, workspace.downloads, on_progress)
                tools[f"tools/{_TOOL_WHEELS[artifact.name]}"] = wheel
    return tools


def _put(folder: Path, path: str, content: bytes, mode: int = 0o644) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(mode)


def _normalise(folder: Path) -> None:
    """Rights and times by content alone, so that archives of equal contexts are equal.

    A file's time must change with its content: between builds BuildKit sends again only files whose size or time differs.
    """
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            moment = _EPOCH + int(files.sha256_of(path)[:12], 16) % _YEAR
            os.utime(path, (moment, moment))
        Path(parent).chmod(0o755)
        os.utime(parent, (_EPOCH, _EPOCH))


def _kept(engine: Engine, workspace: Workspace, record: BuildRecord, tags: Sequence[str]) -> BuildRecord:
    missing = [tag for tag in tags if (found := engine.image(tag)) is None or found.id != record.image]
    for tag in missing:
        engine.tag(record.image, tag)
    whole = replace(record, tags=tuple(dict.fromkeys((*tags, *record.tags))))
    if whole != record:
        files.write_atomic(workspace.build_record(record.name), codec.dumps(whole))
    return replace(whole, kept=True)


def _carried(engine: Engine, before: BuildRecord | None) -> list[str]:
    """The aliases of the last build that still name its image: they name the environment, so they move with it."""
    if before is None:
        return []
    fixed = f"{before.tags[0]}-{before.lock[:8]}"
    return [tag for tag in before.tags if tag != fixed and (held := engine.image(tag)) and held.id == before.image]


def _drop_superseded(engine: Engine, before: BuildRecord | None, now: BuildRecord) -> None:
    """Remove the image that the one just built took the last name from; one that is in use or has a name stays."""
    if before is None or before.image == now.image:
        return
    old = engine.image(before.image)
    if old is not None and not old.tags:
        engine.remove_unused(old.id)


def _of_the_base(lock: Lock, error: BuildError) -> BuildError:
    """The same error, or, where what failed belongs to the base, the one that names provider and alternatives."""
    text = "\n".join([error.message, *error.details])
    hosts = [repository.url.partition("://")[2].partition("/")[0] for repository in lock.environment.base.repositories]
    of_repository = error.code == "index-unreachable" and any(host and host in text for host in hosts)
    if error.code != "base-unreachable" and not of_repository:
        return error
    told = bases.unreachable(lock.environment, error.message)
    return BuildError(told.message, code=told.code, hint=told.hint, details=(*told.details, *error.details))

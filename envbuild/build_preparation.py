"""Prepares a build: the base in the engine, the build context, and the secrets of this machine."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuild import build_secret
from envbuild.build_context import add_guest, assemble_without_guest, require_tools
from envbuild.engine import bases, bootstrap, host_apt, package_check, package_store, temporary_names
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.image_inputs import BuildInputs
from envbuild.lock import download_errors
from envbuild.model.lock import Lock
from envbuild.model.progress import OnProgress, Progress
from envbuild.workspace import Workspace

_UNBOUNDED = "2020-01-01"  # creation time of images without a date limit; the files in images get the time of this day


@dataclass(frozen=True, kw_only=True, slots=True)
class Ingredients:
    """The prepared inputs of a build. ``tag`` is the name that the image gets; ``secrets`` must not get into the image.

    ``context`` lacks the files that only the last stage needs. Call ``add_guest`` before the last stage is built: it adds these
    files, and may raise :class:`BuildError`.
    """

    context: Path
    add_guest: Callable[[], None]
    tag: str
    secrets: Mapping[str, bytes]
    build_args: Mapping[str, str]
    no_cache: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A build that is ready to start. ``base_layers`` are the layers of the base image in the engine."""

    base: bases.RealisedBase
    base_layers: tuple[str, ...]
    ingredients: Ingredients


def prepare(engine: Engine, inputs: BuildInputs, more: Mapping[str, Path], *, no_cache: bool) -> Prepared:
    """Provide the base in the engine, and assemble the build context with ``more`` as further files."""
    lock = inputs.lock
    real, have = provide_base(lock, engine, inputs.workspace, inputs.on_progress)
    below = engine.image(real.image_id)
    _tell_notes(real, inputs.on_progress)
    bases.check_repositories(lock.environment)
    have(lock.step_debs())
    try:
        context = assemble_without_guest(inputs, more)
    except BuildError as error:
        raise download_errors.of_lock(lock, error) from error
    ingredients = Ingredients(
        context=context,
        add_guest=functools.partial(add_guest, context, inputs),
        tag=temporary_names.name_for(inputs.workspace.home, lock.environment.name),
        secrets=build_secret.joined(inputs.index.build_secrets() | _apt_secrets(lock, inputs.workspace, inputs.on_progress)),
        build_args={"BASE_IMAGE": real.reference, "SOURCE_DATE_EPOCH": str(int(time_of(lock).timestamp()))},
        no_cache=no_cache,
    )
    return Prepared(base=real, base_layers=below.layers if below else (), ingredients=ingredients)


def require_system(engine: Engine, lock: Lock, start: Prepared, image: str) -> None:
    """Raise :class:`BuildError` unless ``image`` has the base and the system packages that the lock pins."""
    _require_base(engine, start.base, start.base_layers, image)
    package_check.require_pinned(engine, lock, image)


def require_complete(lock: Lock) -> None:
    """Raise :class:`BuildError` (``incomplete-lock``) if the lock pins the packages of its base, but not the packages of the
    steps.

    The tools of the build must be pinned, too: see :func:`envbuild.build_context.require_tools`.
    """
    require_tools(lock)
    # In an image from a registry, apt's sources have only the component main.
    if lock.apt is None and (lock.base.bootstrap is not None or lock.environment.base.components):
        raise BuildError(
            f"The lock of {lock.environment.name} does not pin the Debian packages that its build installs.",
            code="incomplete-lock",
            hint=f"Run `envbuild lock {lock.environment.name}` on a machine that can reach a Debian mirror: this adds the "
            "missing pins and keeps the Python packages.",
        )


def time_of(lock: Lock) -> datetime.datetime:
    """Return the image's creation time. It is the date limit of the dependencies, so it does not depend on the clock."""
    return datetime.datetime.fromisoformat(lock.environment.exclude_newer or _UNBOUNDED).replace(tzinfo=datetime.UTC)


def provide_base(
    lock: Lock, engine: Engine, workspace: Workspace, on_progress: OnProgress
) -> tuple[bases.RealisedBase, bases.Debs]:
    """Return the base of ``lock`` and the function that provides the files of its packages.

    First check that the lock and this machine have everything that is needed, because fetching or making a base takes minutes.
    """
    engine.require_builder()
    require_complete(lock)
    have = package_store.collector(workspace, lock, on_progress)
    return bases.provide(lock.base, lock.environment, engine, workspace, on_progress, have), have


def _apt_secrets(lock: Lock, workspace: Workspace, on_progress: OnProgress) -> dict[str, bytes]:
    """Return this machine's apt settings for the build. The result is empty if the lock pins all packages, because the build
    then needs no repository."""
    repositories = lock.environment.base.repositories
    if lock.apt is not None and not repositories:
        return {}
    secrets = host_apt.build_secrets()
    if lock.base.bootstrap is None:  # the base image has its own apt sources
        return secrets
    options = host_apt.host_options()
    if host_apt.dates_ignored(options):
        told = "the apt settings of this machine switch off the check of the dates of package indexes; the build uses them, too"
        on_progress(Progress(stage="base", message=told, warning=True))
    sources = bootstrap.mirror(workspace, lock.base.bootstrap.suite, lock.environment.base.components)
    return secrets | {"envbuild-apt": bootstrap.source_lines(host_apt.with_host_options(sources, options))}


def _tell_notes(real: bases.RealisedBase, on_progress: OnProgress) -> None:
    for line in real.notes:
        on_progress(Progress(stage="base", message=line, warning=True))


def _require_base(engine: Engine, real: bases.RealisedBase, layers: tuple[str, ...], image: str) -> None:
    """Raise :class:`BuildError` (``base-differs``) if the builder used another base than ``real``, whose layers are ``layers``.

    A builder finds the base by name, and another program may have given that name to another image in the meantime.
    """
    named, built = engine.image(real.reference), engine.image(image)
    moved = named is not None and named.id != real.image_id
    if moved or built is None or built.layers[: len(layers)] != layers:
        raise bases.misnamed(real.reference)

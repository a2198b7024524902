"""Makes, completes, checks and writes locks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.errors import EnvbuildError, InvalidInputError
from envbuild.model.environment import Environment
from envbuild.model.lock import BaseLock, Lock, Missing
from envbuild.pipeline import debian_packages, stack_requests, user_recipe
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.rendering import render_text
from envbuild.pipeline.resolving import require_recipes, resolve_words, todays_decision
from envbuild.pipeline.stored_locks import Locked, read_lock, read_locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.engine import bases
    from envbuild.lock.making import LockInputs
    from envbuild.matrix.types import Matrix


def check_lock(tools: Tools, locked: Locked) -> None:
    """Raise :class:`InvalidInputError` (``stale-lock``) unless the matrix and the recipes still accept the lock."""
    from envbuild.lock import checking
    from envbuild.resolve.recheck import recheck

    environment = locked.lock.environment
    known = tools.recipes
    asked = {each.name: known[each.recipe].requirements_of(each) for each in environment.frameworks if each.recipe in known}
    path = locked.path if tools.user_recipe is None else None
    refusals = recheck(tools.matrix, environment)
    problems = checking.check(locked.lock, refusals, asked, today=todays_decision(tools, environment), path=path)
    problems += stack_requests.departures(tools, environment)
    problems += user_recipe.pinned_differences(tools.user_recipe, locked.lock) if tools.user_recipe is not None else []
    if problems:
        raise InvalidInputError(
            f"The lock of {environment.name} is stale: the matrix or the recipe no longer accepts its contents.",
            code="stale-lock",
            hint=f"Make it again with `envbuild lock {tools.cli_name(environment.name)} --relock`, and review the changes."
            + (
                ""
                if tools.workspace.overlays
                else " If the lock was made with rows of your own, name their file: --matrix FILE."
            ),
            problems=problems,
        )


def require_lock(tools: Tools, name: str) -> Locked:
    """Return the lock of ``name`` after checking it. Raises :class:`InvalidInputError` (``no-lock``) if there is no lock."""
    locked = read_locked(tools, name)
    if locked is None:
        raise InvalidInputError(
            f"{name} has no lock.",
            code="no-lock",
            hint=f"To make one, run `envbuild lock {tools.cli_name(name)}` (it needs a package index).",
        )
    check_lock(tools, locked)
    user_recipe.require_taken_over(tools, locked.lock)
    return locked


def lock_environment(tools: Tools, environment: Environment, *, relock: bool = False) -> Locked:
    """Return the lock of ``environment``. If there is no lock, make one.

    If the lock on disk is incomplete, missing parts that are available now are added. A stale lock is refused (exit code 5).
    With ``relock``, a new lock is made in any case.
    """
    from envbuild.lock import lock_file, making

    found = None if relock else read_locked(tools, environment.name)
    if found is not None:
        check_lock(tools, found)
        # Some settings of a user's recipe need no pins, such as ports. They are copied into the lock from the current recipe.
        lock = found.lock if tools.user_recipe is None else replace(found.lock, environment=environment)
        if _may_be_completed(tools, found):
            lock = making.complete(lock, lock_inputs(tools, environment))
        lock = debian_packages.completed(tools, lock)
    else:
        start = starting_lock(tools)
        lock = debian_packages.pinned(tools, making.make(environment, lock_inputs(tools, environment), like=start), like=start)
    if found is not None and lock == found.lock:
        return found
    path = tools.workspace.written_lock(environment.name)
    write_lock(tools, path, lock)
    return Locked(lock=lock, digest=lock_file.digest(lock), path=path, kept=False)


def starting_lock(tools: Tools) -> Lock | None:
    """Return the earlier lock from which a new lock of a user's recipe takes the pins that fit.

    The earlier lock is the previous lock of the recipe or, without one, the committed lock of the recipe's frameworks. So the
    images share layers. The result is None if neither lock exists, or if there is no user's recipe.
    """
    if tools.user_recipe is None:
        return None
    path = tools.workspace.written_lock(tools.user_recipe.name)
    try:
        if path.exists() and (held := read_lock(path)).environment.custom is not None:
            return held
        name = resolve_words(tools, tools.user_recipe.request, Constraints(**tools.user_recipe.insists)).environment.name
        committed = tools.workspace.images / "environments" / name / "lock.json"
        return read_lock(committed) if committed.exists() else None
    except EnvbuildError:
        return None  # images then share fewer layers; the error is reported when that lock is used


def write_lock(tools: Tools, path: Path, lock: Lock) -> None:
    """Write ``lock`` to ``path``. Before that, parse and render the text of the lock in memory, as later verbs will do.

    If that fails, raise :class:`InvalidInputError` (``unusable-lock``) and write nothing, so that a lock on disk is always
    usable.
    """
    from envbuild.lock import lock_file

    try:
        if lock_file.parse(lock_file.dumps(lock), path) != lock:
            raise InvalidInputError("Reading it back gives a different lock.")
        render_text(tools, lock)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The new lock of {lock.environment.name} cannot be used, so it was not written: {error.message}",
            code="unusable-lock",
            hint=error.hint,
            problems=error.problems,
            details=error.details,
        ) from error
    lock_file.write(path, lock)


def lock_inputs(tools: Tools, environment: Environment) -> LockInputs:
    """Return all inputs that making a lock needs in addition to ``environment``."""
    from envbuild.lock.making import LockInputs

    recipes = require_recipes(tools, environment)
    return LockInputs(
        recipe_requirements={each.name: recipes[each.recipe].requirements_of(each) for each in environment.frameworks},
        ignored={each.name: recipes[each.recipe].ignore for each in environment.frameworks},
        index=tools.index,
        pin_base=lambda target: _pin_base(tools, target),
        downloads=tools.workspace.downloads,
        tools=tools.build_tools,
        pips=tools.pips,
        sources=tools.source_archives,
        on_progress=tools.on_progress,
    )


def _pin_base(tools: Tools, environment: Environment) -> BaseLock | Missing:
    """Return the pin of the base, or an entry for the lock's ``missing`` with the reason."""
    from envbuild.engine import bases

    engine = tools.engine_or_none()
    found = bases.pin(environment, engine, tools.workspace, tools.on_progress, known_base(tools.matrix, environment))
    image = environment.base.build_image
    if isinstance(found, Missing) or not image:
        return found
    return replace(found, build_digest=bases.digest_of(image, engine, tools.on_progress))


def known_base(matrix: Matrix, environment: Environment) -> bases.KnownBase:
    """Return the facts in the matrix about the base image, with or without CUDA. There are none for a user's own image."""
    from envbuild.engine import bases

    row = next((row for row in matrix.systems if row.name == environment.system.name), None)
    if row is None or environment.base.provider == "local":
        return bases.NOTHING_KNOWN
    with_cuda = {provider.image: provider.digest for cuda in matrix.cuda for provider in cuda.providers if provider.image}
    return bases.KnownBase(digest=({**with_cuda, row.image: row.digest}).get(environment.base.image, ""), archive=row.archive)


def _may_be_completed(tools: Tools, locked: Locked) -> bool:
    """Whether the lock lacks a part that may be available now.

    Build tools and pip are always available, because the matrix pins them. All other parts need the network. They are not tried
    again if an image was already built without them.
    """
    from envbuild.lock import installers

    without_pip = any(each.pip is None and each.python.version in tools.pips for each in locked.lock.prefixes)
    return (
        without_pip
        or bool(installers.missing_tools(locked.lock))
        or (bool(locked.lock.missing) and not _built_from(tools, locked))
    )


def _built_from(tools: Tools, locked: Locked) -> bool:
    """Whether an image was made from exactly this lock."""
    from envbuild import build

    record = build.read_record(tools.workspace, locked.lock.environment.name)
    return record is not None and record.lock == locked.digest

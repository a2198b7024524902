"""Each stage on its own: what it needs, what it leaves on disk, and when there is nothing to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import files
from envbuild.errors import EnvbuildError, InvalidInputError, UnknownNameError
from envbuild.model import Environment, Lock, Resolution
from envbuild.pipeline import archive, lock_gaps, named, own, remarks, rendering, ways_on
from envbuild.pipeline.tools import Tools
from envbuild.workspace import can_be_name

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.custom import UserRecipe
    from envbuild.pipeline.judge import Verified
    from envbuild.recipes import Recipe
    from envbuild.resolve import Explanation, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    """What the user insists on beside the request's own words; None leaves it to the matrix."""

    driver: str | None = None
    gpu: str | None = None
    python: str | None = None
    python_from: str | None = None
    system: str | None = None
    base: str | None = None

    def any(self) -> bool:
        """Whether the user insists on anything."""
        return any(value is not None for value in asdict(self).values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Locked:
    """A lock on disk. ``kept`` tells one found there from one made or completed now."""

    lock: Lock
    digest: str
    path: Path
    kept: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A rendering on disk. ``kept`` tells one found there, byte for byte, from one written now."""

    folder: Path
    files: Mapping[str, str]
    kept: bool


def resolve_request(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool = False) -> Resolution:
    """The environment that ``texts`` mean.

    The exact canonical name of an environment that has a lock means that lock's decision: a lock stays valid while the matrix
    accepts it, preferred or not. So do a stack, while its file asks for what the lock holds, and a user's own recipe, unless
    they are to be decided ``anew``. Raises :class:`ConflictError` and :class:`UnknownNameError` with what would work instead.
    """
    resolution = _resolve_request(tools, texts, constraints, anew=anew)
    return remarks.with_remarks(resolution, partial(read_locked, tools))


def _resolve_request(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool) -> Resolution:
    if tools.own is not None:
        return _resolve_own(tools, tools.own, constraints, anew=anew)
    locked = _locked_environment(tools, texts, constraints, anew=anew)
    if locked is None or (named.stack_of(tools, texts) and (anew or named.departures(tools, locked))):
        return _resolve_words(tools, texts, constraints)
    return _held(tools, texts[0], locked)


def _resolve_words(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Resolution:
    from envbuild import resolve

    if (stack := named.stack_of(tools, texts)) is not None:
        return resolve.resolve_stack(tools.matrix, stack, **named.hardware(stack, constraints))
    return resolve.resolve(tools.matrix, _parse(tools, texts, constraints))


def _held(tools: Tools, text: str, locked: Environment) -> Resolution:
    """The decision of a lock, as the answer to ``text``."""
    from envbuild import resolve

    overlaid = resolve.overlaid(tools.matrix, locked) if tools.workspace.overlays else ()
    told = resolve.details_of(tools.matrix, locked)
    return Resolution(request=text, environment=locked, reasons=(), warnings=(), overlaid=overlaid, details=told)


def _resolve_own(tools: Tools, recipe: UserRecipe, constraints: Constraints, *, anew: bool) -> Resolution:
    """A user's own recipe: the decision of the lock beside it while that was made for the same request, else a new one."""
    own.require_alone(recipe, insisted=constraints.any())
    own.require_free_name(tools, recipe)
    locked = None if anew else read_locked(tools, recipe.name)
    environment = own.as_locked(recipe, locked.lock) if locked is not None else None
    if environment is not None:
        return own.with_advice(tools, _held(tools, str(recipe.path), environment))
    return own.with_advice(tools, own.named(_resolve_words(tools, recipe.request, Constraints(**recipe.insists)), recipe))


def todays_decision(tools: Tools, environment: Environment) -> Environment | None:
    """What the matrix says today of the environment of this name; None where it knows none, or the name says too little."""
    if tools.own is not None or named.stack_of(tools, [environment.name]) is not None:
        return None
    try:
        found = _resolve_words(tools, [environment.name], Constraints()).environment
    except EnvbuildError:
        return None  # the check of its lock says why
    return found if found.name == environment.name else None


def resolve_buildable(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool = False) -> Resolution:
    """The environment that ``texts`` mean, for the verbs that go beyond planning: its frameworks have recipes.

    Raises :class:`InvalidInputError` (``no-recipe``) where one has none.
    """
    resolution = resolve_request(tools, texts, constraints, anew=anew)
    require_recipes(tools, resolution.environment)
    return resolution


def explain_request(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Explanation:
    """Why ``texts`` resolve as they do, or why they do not; the matrix alone is asked, never a lock."""
    if tools.own is None:
        found = _explain_words(tools, texts, constraints)
        return replace(
            found, resolution=found.resolution and remarks.with_remarks(found.resolution, partial(read_locked, tools))
        )
    own.require_alone(tools.own, insisted=constraints.any())
    found = _explain_words(tools, tools.own.request, Constraints(**tools.own.insists))
    return replace(found, resolution=found.resolution and own.named(found.resolution, tools.own))


def _explain_words(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Explanation:
    from envbuild import resolve

    if (stack := named.stack_of(tools, texts)) is not None:
        return resolve.explain_stack(tools.matrix, stack, **named.hardware(stack, constraints))
    return resolve.explain(tools.matrix, _parse(tools, texts, constraints))


def _parse(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Request:
    from envbuild import resolve

    try:
        return resolve.parse(texts, matrix=tools.matrix, **asdict(constraints))
    except UnknownNameError as error:
        raise named.suggested(tools, texts, error) from error


def _locked_environment(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool) -> Environment | None:
    """The decision of the lock of this name. What is decided ``anew`` does not need it: a damaged one counts as none then."""
    if len(texts) != 1 or constraints.any() or not can_be_name(texts[0]):
        return None
    path = tools.workspace.lock_file(texts[0])
    try:
        return read_lock(path).environment if os.path.lexists(path) else None
    except InvalidInputError:
        if not anew:
            raise
        return None


def read_locked(tools: Tools, name: str) -> Locked | None:
    """The lock of ``name``, None where there is none; :class:`InvalidInputError` where it cannot be read."""
    from envbuild import lock as locks

    path = tools.workspace.lock_file(name)
    if not os.path.lexists(path):
        return None
    lock = read_lock(path)
    return Locked(lock=lock, digest=locks.digest(lock), path=path, kept=True)


def read_lock(path: Path) -> Lock:
    """The lock in ``path``; :class:`InvalidInputError` where it cannot be read as one."""
    from envbuild import lock as locks

    return locks.read(path)


def check_lock(tools: Tools, locked: Locked) -> None:
    """Raise :class:`InvalidInputError` (``stale-lock``) unless matrix and recipes still accept what the lock holds."""
    from envbuild import lock as locks
    from envbuild import resolve

    environment = locked.lock.environment
    known = tools.recipes
    asked = {each.name: known[each.recipe].requirements_of(each) for each in environment.frameworks if each.recipe in known}
    path = locked.path if tools.own is None else None
    refusals = resolve.refusals(tools.matrix, environment)
    problems = locks.check(locked.lock, refusals, asked, today=todays_decision(tools, environment), path=path)
    problems += named.departures(tools, environment)
    problems += own.pinned_differences(tools.own, locked.lock) if tools.own is not None else []
    if problems:
        raise InvalidInputError(
            f"The lock of {environment.name} is stale: the matrix or the recipe no longer accepts what it holds.",
            code="stale-lock",
            hint=f"Make it again with `envbuild lock {tools.spoken(environment.name)} --relock`, and look at what changed."
            + ("" if tools.workspace.overlays else " If it was made with rows of your own, name their file: --matrix FILE."),
            problems=problems,
        )


def require_lock(tools: Tools, name: str) -> Locked:
    """The lock of ``name``, checked; :class:`InvalidInputError` (``no-lock``) where there is none."""
    locked = read_locked(tools, name)
    if locked is None:
        raise InvalidInputError(
            f"{name} has no lock.",
            code="no-lock",
            hint=f"`envbuild lock {tools.spoken(name)}` makes one (it needs a package index).",
        )
    check_lock(tools, locked)
    own.require_taken_over(tools, locked.lock)
    return locked


def lock_environment(tools: Tools, environment: Environment, *, relock: bool = False) -> Locked:
    """The lock of ``environment``: the one on disk, its missing parts completed where they can be had now, else a new one.

    A stale lock is refused (exit 5), never replaced, unless ``relock``.
    """
    from envbuild import lock as locks

    found = None if relock else read_locked(tools, environment.name)
    if found is not None:
        check_lock(tools, found)
        # What a user's recipe says beyond its pins is taken over as it is now.
        lock = found.lock if tools.own is None else replace(found.lock, environment=environment)
        if lock_gaps.may_be_completed(tools, found):
            lock = locks.complete(lock, **lock_inputs(tools, environment))
        lock = archive.completed(tools, lock)
    else:
        start = starting_lock(tools)
        lock = archive.pinned(tools, locks.make(environment, **lock_inputs(tools, environment), like=start), like=start)
    if found is not None and lock == found.lock:
        return found
    path = tools.workspace.written_lock(environment.name)
    write_lock(tools, path, lock)
    return Locked(lock=lock, digest=locks.digest(lock), path=path, kept=False)


def starting_lock(tools: Tools) -> Lock | None:
    """The lock whose pins a user's own recipe keeps wherever they fit; None where there is none, or for anything else.

    It is the one beside the recipe; else that of its frameworks alone, so that the image shares their layers.
    """
    if tools.own is None:
        return None
    path = tools.workspace.written_lock(tools.own.name)
    try:
        if path.exists() and (held := read_lock(path)).environment.custom is not None:
            return held
        name = _resolve_words(tools, tools.own.request, Constraints(**tools.own.insists)).environment.name
        committed = tools.workspace.images / "environments" / name / "lock.json"
        return read_lock(committed) if committed.exists() else None
    except EnvbuildError:
        return None  # nothing is lost but layers that could be shared; what is wrong is told where it is needed


def write_lock(tools: Tools, path: Path, lock: Lock) -> None:
    """Write ``lock`` to ``path`` once it has been read back and rendered in memory, as every later verb will do.

    Raises :class:`InvalidInputError` (``unusable-lock``) and writes nothing where that fails: whatever a package index said, a
    lock that is on disk can be used.
    """
    from envbuild import lock as locks

    try:
        if locks.parse(locks.dumps(lock), path) != lock:
            raise InvalidInputError("It reads back as another lock.")
        render_text(tools, lock)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The lock that was made of {lock.environment.name} could not be used, so it was not written: {error.message}",
            code="unusable-lock",
            hint=error.hint,
            problems=error.problems,
            details=error.details,
        ) from error
    locks.write(path, lock)


def lock_inputs(tools: Tools, environment: Environment) -> dict[str, Any]:
    """What making a lock of ``environment`` takes beside it."""
    from envbuild.pipeline import bases

    recipes = require_recipes(tools, environment)
    return {
        "recipe_requirements": {each.name: recipes[each.recipe].requirements_of(each) for each in environment.frameworks},
        "ignored": {each.name: recipes[each.recipe].ignore for each in environment.frameworks},
        "index": tools.index,
        "pin_base": lambda target: bases.pin(tools, target),
        "downloads": tools.workspace.downloads,
        "tools": tools.build_tools,
        "pips": tools.pips,
        "sources": tools.source_archives,
        "on_progress": tools.on_progress,
    }


def require_recipes(tools: Tools, environment: Environment) -> dict[str, Recipe]:
    """The recipe of each framework of ``environment``, by name; :class:`InvalidInputError` (``no-recipe``) where one has none.

    The matrix may know frameworks that envbuild cannot build yet: they are planned with, and nothing more.
    """
    for framework in environment.frameworks:
        if framework.recipe not in tools.recipes:
            have = [table.title for table in tools.matrix.frameworks if table.recipe in tools.recipes]
            raise InvalidInputError(
                f"The matrix knows {framework.name} {framework.version}, envbuild has no recipe for it yet; "
                f"frameworks with recipes: {', '.join(have) or 'none'}.",
                code="no-recipe",
                hint=f"A recipe is a folder, {tools.workspace.recipes / framework.recipe}: see docs/adding-a-framework.md.",
            )
    return {framework.recipe: tools.recipes[framework.recipe] for framework in environment.frameworks}


def render_text(tools: Tools, lock: Lock) -> dict[str, str]:
    """What ``lock`` renders to, as text; pure but for reading recipes and templates."""
    from envbuild import render

    return render.render(lock, tools.recipes, tools.templates)


def render_environment(tools: Tools, lock: Lock) -> Rendered:
    """The rendering on disk, beside the lock."""
    text = render_text(tools, lock)
    folder = tools.workspace.environment(lock.environment.name)
    shipped = tools.workspace.rendering(lock.environment.name)
    own.keep_private(tools)
    if shipped != folder and not rendering.differences(shipped, text):
        return Rendered(folder=shipped, files=text, kept=True)
    running = tools.workspace.running(lock.environment.name, "render")
    with files.locked(running, lambda message: tools.say("render", message), limit_s=files.SHORT_WAIT_S):
        changed = rendering.write(folder, text)
    return Rendered(folder=folder, files=text, kept=not changed)


def build_environment(
    tools: Tools, locked: Locked, *, aliases: Sequence[str] = (), no_cache: bool = False
) -> tuple[BuildRecord, Verified | None]:
    """The verified image of a lock, with what verifying said; None where an image was kept with all its tags.

    No tag moves before the image is verified (else :class:`VerifyError`). A lock that pins no file of a framework is refused.
    """
    from envbuild import build
    from envbuild.pipeline import incomplete, judge, proving

    incomplete.require_complete(tools, locked.lock)
    seen: list[Verified] = []

    def check(image: str, base: str) -> None:
        seen.append(judge.verify_image(tools, locked.lock, locked.digest, image, replay=True, base=base))

    with ways_on.named_with_error(tools.matrix, locked.lock.environment):
        record = build.build(
            tools.engine,
            tools.workspace,
            locked.lock,
            tools.recipes,
            tools.templates,
            tools.index,
            tools.on_progress,
            aliases=tuple(aliases),
            no_cache=no_cache,
            check=check,
        )
    proving.prove_image(tools, record, record.image, "built")
    if seen:
        proving.prove_image(tools, record, record.image, "verified")
    return record, seen[0] if seen else None

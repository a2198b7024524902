"""``add``: add packages to the user's recipe, and lock the recipe again. Pins that still fit stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import UsageError
from envbuild.model.lock import Lock
from envbuild.pipeline import debian_packages, locking, resolving, stored_locks, user_recipe
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.custom.reading import UserRecipe
    from envbuild.lock.comparison import LockDifference


@dataclass(frozen=True, kw_only=True, slots=True)
class Additions:
    """The list items to add to ``envbuild.yaml``. The field ``pip`` has the new items of the key ``pip``, and so on."""

    frameworks: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AddResult:
    """The result of ``add``. ``is_new`` is true for a new recipe, false for an edited one.

    ``difference`` compares the new lock with the previous lock of the recipe. Without a previous lock, it compares the new lock
    with the committed lock of the recipe's frameworks. It is None if neither earlier lock exists, or if nothing was changed.
    """

    path: Path
    lock_path: Path
    lock: Lock
    is_new: bool
    changed: bool
    difference: LockDifference | None


def sort_words(tools: Tools, words: Sequence[str], *, apt: Sequence[str], newer: bool) -> Additions:
    """Sort ``words`` into frameworks of the matrix and requirements (PEP 508).

    With ``newer``, the packages of all these requirements are also put into the field ``newer``. Raises
    :class:`UsageError` for a word that is neither a framework nor a requirement.
    """
    from packaging.requirements import Requirement

    from envbuild.custom.requirements import NoRequirementError, read_requirement

    frameworks, pip = [], []
    for word in words:
        if _is_framework(tools, word):
            frameworks.append(word)
            continue
        try:
            pip.append(read_requirement(word))
        except NoRequirementError as error:
            raise UsageError(f"{error}.", hint="For example: pandas, or 'pandas>=1.0'.") from error
    newest = tuple(Requirement(text).name for text in pip) if newer else ()
    return Additions(frameworks=tuple(frameworks), pip=tuple(pip), newer=newest, apt=tuple(apt))


def add(tools: Tools, name: str, additions: Additions, folder: Path) -> AddResult:
    """Add packages and frameworks to a user's recipe. ``name`` is the path of the recipe, or a request.

    For a request, the ``envbuild.yaml`` in ``folder`` is edited. If there is no such file, it is written. Pins that fit the new
    packages stay. The recipe and its lock are written only after locking has succeeded. Raises :class:`UsageError`
    (``exists``) if ``folder`` has a recipe for another request. Also raises the errors of reading, resolving and locking.
    """
    from envbuild.custom import paths, reading
    from envbuild.custom.services import load_services
    from envbuild.lock import comparison, making

    path = paths.path_in([name])
    is_new = path is None and not (folder / paths.FILE).exists()
    path = path or folder / paths.FILE
    services = load_services(tools.workspace)
    if is_new:
        text = _first_text(tools, name, folder)
        before = reading.read(text, path, services)
    else:
        before = reading.load(path, services)
        text = path.read_text(encoding="utf-8")
        _require_same(name, before)
    edited = _edit(text, before, additions)
    recipe = reading.read(edited, path, services)

    start = locking.starting_lock(tools.for_recipe(path, before))
    aimed = tools.for_recipe(path, recipe)
    user_recipe.require_free_name(aimed, recipe)
    changed = is_new or edited != text
    if not changed and (held := stored_locks.read_locked(aimed, recipe.name)) is not None:
        return AddResult(path=path, lock_path=held.path, lock=held.lock, is_new=False, changed=False, difference=None)
    environment = resolving.resolve_buildable(aimed, [str(path)], Constraints(), anew=True).environment
    lock = debian_packages.pinned(
        aimed, making.make(environment, locking.lock_inputs(aimed, environment), like=start), like=start
    )
    lock_path = aimed.workspace.written_lock(recipe.name)
    locking.write_lock(aimed, lock_path, lock)
    files.write_atomic(path, edited)
    return AddResult(
        path=path,
        lock_path=lock_path,
        lock=lock,
        is_new=is_new,
        changed=True,
        difference=comparison.compare(start, lock) if start is not None else None,
    )


def _is_framework(tools: Tools, word: str) -> bool:
    """Whether ``word`` is the name of a framework, alone or with a version after it."""
    match = re.match(r"([A-Za-z][A-Za-z0-9_.]*(?:-[A-Za-z][A-Za-z0-9_.]*)*)(?=-[0-9]|[<>=!~]|$)", word)
    return match is not None and any(
        match.group(1).lower() in {table.name, table.short, *table.aliases} for table in tools.matrix.frameworks
    )


def _first_text(tools: Tools, request: str, folder: Path) -> str:
    from envbuild.custom import writing
    from envbuild.custom.services import load_services
    from envbuild.custom.writing import Wishes

    resolving.resolve_buildable(tools, [request], Constraints())
    services = load_services(tools.workspace)
    wishes = Wishes(name=user_recipe.free_name(tools, folder), frameworks=(request,), python="", pip=(), apt=(), services=())
    return writing.text(wishes, tuple(services))


def _require_same(name: str, recipe: UserRecipe) -> None:
    """Raise :class:`UsageError` unless ``name`` is a path, the name of the recipe, or one of the recipe's requests."""
    from envbuild.custom import paths

    if paths.path_in([name]) is None and name not in (recipe.name, *recipe.request):
        raise UsageError(
            f"{recipe.path} already exists, for {' '.join(recipe.request)} and not for {name}.",
            code="exists",
            hint=f"To add to it, run `envbuild add ./{recipe.path.name} …`. To start another one, use --folder.",
        )


def _edit(text: str, recipe: UserRecipe, additions: Additions) -> str:
    """Return ``text`` with the additions. A new requirement replaces an existing requirement for the same package."""
    from envbuild.custom.editing import edit_list
    from envbuild.custom.requirements import project_of

    for key, wanted, present in (
        ("frameworks", additions.frameworks, recipe.request),
        ("pip", additions.pip, recipe.custom.pip),
        ("newer", additions.newer, recipe.custom.newer),
        ("apt", additions.apt, recipe.custom.apt),
    ):
        held = {project_of(entry): entry for entry in present} if key == "pip" else {entry: entry for entry in present}
        named = {project_of(entry) if key == "pip" else entry: entry for entry in wanted}
        text = edit_list(
            text,
            key,
            new=[entry for name, entry in named.items() if name not in held],
            # The bare name of a project does not replace an existing entry for that project, which may name a version.
            replaced={name: entry for name, entry in named.items() if held.get(name, entry) != entry and entry != name},
        )
    return text

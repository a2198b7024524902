"""Choose the packages of all frameworks and of the user together, and name the user's packages that do not fit. Only the
function ``resolve``, which callers pass, uses the network or files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.errors import Conflict, ConflictError
from envbuild.lock.resolver import PackageCandidate
from envbuild.model.environment import Environment

Resolve = Callable[[Sequence[Requirement]], list[PackageCandidate]]


def choose(
    asked: Sequence[Requirement], added: Sequence[Requirement], resolve: Resolve, environment: Environment
) -> list[PackageCandidate]:
    """Resolve ``asked`` (for the frameworks) and ``added`` (by the user) together.

    Raises :class:`ConflictError` (``added-package``) with the packages of ``added`` that conflict. If ``asked`` alone cannot be
    satisfied, the error is about the frameworks only. Its code is ``apart`` if there are several frameworks.
    """
    try:
        return resolve([*asked, *added])
    except ConflictError as error:
        together = error
    without = _failure(resolve, asked) if added else together
    if without is not None:
        raise _of_frameworks(without, environment) from together
    failed = {requirement: cause for requirement in added if (cause := _failure(resolve, [*asked, requirement]))}
    guilty = list(failed) or list(added)
    shown = failed[guilty[0]] if failed else together
    fitting = [found for requirement in guilty if (found := _what_fits(requirement, asked, resolve))]
    raise _refusal(guilty, shown, environment, fitting, alone=bool(failed)) from together


def _what_fits(requirement: Requirement, asked: Sequence[Requirement], resolve: Resolve) -> str:
    """Return the version of the required project that is compatible with ``asked``. If there is none, return an empty text."""
    try:
        chosen = resolve([*asked, Requirement(requirement.name)])
    except ConflictError:
        return ""
    project = canonicalize_name(requirement.name)
    return next((f"{requirement.name}=={each.offer.version}" for each in chosen if each.project == project), "")


def _of_frameworks(error: ConflictError, environment: Environment) -> ConflictError:
    """Convert a conflict of requirements to an error about the frameworks. The matrix could not report this conflict before,
    because it does not know the requirements of the frameworks' dependencies."""
    if len(environment.frameworks) == 1 or not error.conflicts:
        return error
    return ConflictError(
        f"{_names(environment)} cannot be installed together: the requirements of their packages conflict.",
        code="apart",
        hint="Request versions that were published at about the same time, or a stack, in which each framework has its "
        "own packages.",
        conflicts=error.conflicts,
    )


def _failure(resolve: Resolve, wanted: Sequence[Requirement]) -> ConflictError | None:
    try:
        resolve(wanted)
    except ConflictError as error:
        return error
    return None


def _refusal(
    guilty: Sequence[Requirement], error: ConflictError, environment: Environment, fitting: Sequence[str], *, alone: bool
) -> ConflictError:
    frameworks = _names(environment)
    named = ", ".join(map(str, guilty))
    hint = f"Versions that would fit: {', '.join(fitting)}. " if fitting else ""
    hint += (
        f"Allow more versions under `pip` in envbuild.yaml, leave out the package, or choose another version of {frameworks}."
    )
    if environment.exclude_newer and any(
        "were published after the date limit" in conflict.reason for conflict in error.conflicts
    ):
        hint += (
            f" Only versions that were published by {environment.exclude_newer} are used, except for packages under `newer`."
        )
    return ConflictError(
        f"{named} cannot be installed together with {frameworks}"
        + ("." if alone else (": each could be installed alone, but not all of them together.")),
        code="added-package",
        hint=hint,
        conflicts=[_owned(conflict, guilty) for conflict in error.conflicts],
    )


def _names(environment: Environment) -> str:
    return " + ".join(f"{framework.name} {framework.version}" for framework in environment.frameworks)


def _owned(conflict: Conflict, guilty: Sequence[Requirement]) -> Conflict:
    """If the user requested the package of the conflict, return the conflict as an error about the user's file. Otherwise,
    return it unchanged."""
    if conflict.row == "requirements" and conflict.reason in {f"ask for {each.name}{each.specifier}" for each in guilty}:
        return conflict._replace(row="envbuild.yaml pip", reason=conflict.reason.replace("ask", "asks", 1))
    return conflict

"""Resolves a request to an environment: with the resolver, or from the decision in a valid lock."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import Conflict, EnvbuildError, InvalidInputError, UnknownNameError
from envbuild.model.environment import Environment
from envbuild.model.resolution import Reason, Resolution
from envbuild.pipeline import stack_requests, user_recipe
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import read_lock, read_locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import can_be_name

if TYPE_CHECKING:
    from envbuild.custom.reading import UserRecipe
    from envbuild.matrix.types import Matrix
    from envbuild.recipes import Recipe
    from envbuild.resolve.explanation import Explanation
    from envbuild.resolve.request.model import Request


def resolve_request(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool = False) -> Resolution:
    """Return the environment for the request ``texts``.

    If the request is the canonical name of an environment with a lock, the answer is the environment in the lock. A lock stays
    valid while the matrix accepts it, even if the matrix now prefers another environment. The lock of a stack or of a user's
    recipe decides only if it still matches the stack or recipe, and if ``anew`` is false. Raises :class:`ConflictError` and
    :class:`UnknownNameError`. Both errors list alternatives.
    """
    resolution = _resolve_request(tools, texts, constraints, anew=anew)
    return _with_remarks(tools, resolution)


def _resolve_request(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool) -> Resolution:
    if tools.user_recipe is not None:
        return _resolve_own(tools, tools.user_recipe, constraints, anew=anew)
    locked = _locked_environment(tools, texts, constraints, anew=anew)
    is_left = locked is not None and not site_conflicts(tools, locked)
    if locked is None or not is_left or (stack_requests.stack_of(tools, texts) and _departs(tools, locked, anew=anew)):
        return resolve_words(tools, texts, constraints)
    return _held(tools, texts[0], locked)


def _departs(tools: Tools, locked: Environment, *, anew: bool) -> bool:
    return anew or bool(stack_requests.departures(tools, locked))


def site_conflicts(tools: Tools, environment: Environment) -> list[Conflict]:
    """Return the conflicts between ``environment`` and the site rules of the policy; empty without a policy."""
    if tools.policy is None or not tools.policy.site:
        return []
    from envbuild.matrix.platform import SITE
    from envbuild.resolve.recheck import recheck

    return [each for each in recheck(tools.matrix, environment) if SITE in each.reason]


def resolve_words(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Resolution:
    """Return the answer of the matrix to a request. ``texts`` is the name of a stack, or the words of any other request.

    No lock is used. If the site rules of the policy change the answer, the reasons of the answer name these rules. Among
    environments with the same releases, an environment that was proved on the requested GPU is preferred.
    """
    found = _by_rules(tools, texts, constraints)
    if constraints.gpu is None or tools.user_recipe is not None or not tools.workspace.gathered_names():
        return found
    from envbuild.pipeline import gpu_proofs

    return gpu_proofs.prefer(tools, texts, constraints, found, lambda words, narrower: _by_rules(tools, words, narrower))


def _by_rules(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Resolution:
    found = _by_matrix(tools, tools.matrix, texts, constraints)
    if tools.policy is None or not tools.policy.site:
        return found
    usual = _by_matrix(tools, tools.matrix_without_site, texts, constraints).environment
    if usual.name == found.environment.name:
        return found
    rules = [Reason(each.row, f"not {usual.name}: {each.reason}", each.source) for each in site_conflicts(tools, usual)]
    return found._replace(reasons=(*found.reasons, *rules))


def _by_matrix(tools: Tools, matrix: Matrix, texts: Sequence[str], constraints: Constraints) -> Resolution:
    if (stack := stack_requests.stack_of(tools, texts)) is not None:
        from envbuild.resolve.stacks import resolve_stack

        return resolve_stack(matrix, stack, **stack_requests.hardware(stack, constraints))
    from envbuild.resolve.resolution import resolve

    return resolve(matrix, _parse(tools, texts, constraints, matrix))


def _held(tools: Tools, text: str, locked: Environment) -> Resolution:
    """Return the environment of a lock as the answer to the request ``text``."""
    from envbuild.resolve.explain.build_details import details_of
    from envbuild.resolve.explain.overlay_notes import overlaid_rows

    overlaid = overlaid_rows(tools.matrix, locked) if tools.workspace.overlays else ()
    told = details_of(tools.matrix, locked)
    return Resolution(request=text, environment=locked, reasons=(), warnings=(), overlaid=overlaid, details=told)


def _resolve_own(tools: Tools, recipe: UserRecipe, constraints: Constraints, *, anew: bool) -> Resolution:
    """Resolve a user's recipe: use the environment of its lock if the lock is for the same request, else decide anew."""
    user_recipe.require_alone(recipe, insisted=constraints.any())
    user_recipe.require_free_name(tools, recipe)
    locked = None if anew else read_locked(tools, recipe.name)
    environment = user_recipe.as_locked(recipe, locked.lock) if locked is not None else None
    if environment is not None:
        return user_recipe.with_advice(tools, _held(tools, str(recipe.path), environment))
    found = resolve_words(tools, recipe.request, Constraints(**recipe.insists))
    return user_recipe.with_advice(tools, user_recipe.named(found, recipe))


def todays_decision(tools: Tools, environment: Environment) -> Environment | None:
    """Return the environment to which the current matrix resolves the name of ``environment``.

    Return None if the matrix has no environment of this name. Also return None for stacks and users' recipes.
    """
    if tools.user_recipe is not None or stack_requests.stack_of(tools, [environment.name]) is not None:
        return None
    try:
        found = resolve_words(tools, [environment.name], Constraints()).environment
    except EnvbuildError:
        return None  # the check of the environment's lock reports the reason
    return found if found.name == environment.name else None


def resolve_buildable(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool = False) -> Resolution:
    """Return the environment for ``texts``, for callers that build it.

    Raises :class:`InvalidInputError` (``no-recipe``) if a framework has no recipe. With a bundle, raises :class:`BuildError`
    (``not-in-bundle``) if the bundle does not have the environment.
    """
    resolution = resolve_request(tools, texts, constraints, anew=anew)
    if tools.offline is not None:
        tools.offline.require(resolution.environment.name)
    require_recipes(tools, resolution.environment)
    return resolution


def require_recipes(tools: Tools, environment: Environment) -> dict[str, Recipe]:
    """Return the recipes of all frameworks of ``environment``, as a mapping from the name of the recipe to the recipe.

    Raises :class:`InvalidInputError` (``no-recipe``) if a framework has no recipe. The matrix may have frameworks without a
    recipe. Environments with such frameworks can be resolved, but not built.
    """
    for framework in environment.frameworks:
        if framework.recipe not in tools.recipes:
            have = [table.title for table in tools.matrix.frameworks if table.recipe in tools.recipes]
            raise InvalidInputError(
                f"The matrix has {framework.name} {framework.version}, but envbuild has no recipe for it yet. Frameworks "
                f"with recipes: {', '.join(have) or 'none'}.",
                code="no-recipe",
                hint=f"A recipe is a folder, here {tools.workspace.recipes / framework.recipe}. To write one, see "
                "docs/how-to/new-framework.md.",
            )
    return {framework.recipe: tools.recipes[framework.recipe] for framework in environment.frameworks}


def explain_request(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Explanation:
    """Explain why ``texts`` resolve to their environment, or why they are refused. Only the matrix is used, no locks."""
    if tools.user_recipe is None:
        found = _explain_words(tools, texts, constraints)
        return replace(found, resolution=found.resolution and _with_proof(tools, texts, constraints, found.resolution))
    user_recipe.require_alone(tools.user_recipe, insisted=constraints.any())
    found = _explain_words(tools, tools.user_recipe.request, Constraints(**tools.user_recipe.insists))
    return replace(found, resolution=found.resolution and user_recipe.named(found.resolution, tools.user_recipe))


def _with_proof(tools: Tools, texts: Sequence[str], constraints: Constraints, resolution: Resolution) -> Resolution:
    """Return ``resolution`` with remarks about its lock.

    Add a warning if `resolve` would prefer another environment, namely one that was proved on this GPU.
    """
    told = _with_remarks(tools, resolution)
    preferred = resolve_words(tools, texts, constraints) if constraints.gpu and tools.workspace.gathered_names() else resolution
    if preferred.environment.name == resolution.environment.name:
        return told._replace(reasons=tuple(dict.fromkeys((*told.reasons, *preferred.reasons))))
    reason = preferred.reasons[-1]
    remark = (
        f"`resolve` prefers {preferred.environment.name}: {reason.because}. This explanation considers only the matrix, not "
        "the proofs."
    )
    return told._replace(warnings=(*told.warnings, remark))


def _explain_words(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Explanation:
    if (stack := stack_requests.stack_of(tools, texts)) is not None:
        from envbuild.resolve.stacks import explain_stack

        return explain_stack(tools.matrix, stack, **stack_requests.hardware(stack, constraints))
    from envbuild.resolve.explanation import explain

    return explain(tools.matrix, _parse(tools, texts, constraints))


def _parse(tools: Tools, texts: Sequence[str], constraints: Constraints, matrix: Matrix | None = None) -> Request:
    from envbuild.resolve.request.parser import parse

    @functools.cache
    def resolves(text: str) -> bool:
        return _resolves(tools, text, constraints)

    try:
        return parse(texts, matrix=matrix or tools.matrix, **constraints._asdict(), resolves=resolves)
    except UnknownNameError as error:
        error.alternatives = tuple(each for each in error.alternatives if resolves(each.name))
        raise stack_requests.suggested(tools, texts, error) from error


def _resolves(tools: Tools, text: str, constraints: Constraints) -> bool:
    """Whether the corrected spelling ``text`` resolves to an environment. The spelling may still name an unknown version."""
    from envbuild.resolve.request.parser import parse
    from envbuild.resolve.resolution import resolve

    try:
        resolve(tools.matrix, parse([text], matrix=tools.matrix, **constraints._asdict()))
    except EnvbuildError:
        return False
    return True


def _locked_environment(tools: Tools, texts: Sequence[str], constraints: Constraints, *, anew: bool) -> Environment | None:
    """Return the environment in the lock that ``texts`` name; None if there is none. With ``anew``, ignore a damaged lock."""
    if len(texts) != 1 or constraints.any() or not can_be_name(texts[0]):
        return None
    path = tools.workspace.lock_file(texts[0])
    try:
        return read_lock(path).environment if os.path.lexists(path) else None
    except InvalidInputError:
        if not anew:
            raise
        return None


def _with_remarks(tools: Tools, resolution: Resolution) -> Resolution:
    """Return ``resolution``, with a warning if its lock pins libraries for another CUDA version."""
    from envbuild.lock import cuda_mismatch

    path = tools.workspace.lock_file(resolution.environment.name)
    try:
        if not cuda_mismatch.is_possible(files.read_bytes(path)):
            return resolution
        remarks = cuda_mismatch.other_cuda(read_lock(path))
    except (EnvbuildError, OSError):
        return resolution  # commands that need the lock report that it is missing or damaged
    return resolution._replace(warnings=tuple(dict.fromkeys((*resolution.warnings, *remarks))))

"""Check that a lock has exactly the base, prefixes, frameworks and tools that its environment needs. The functions are pure (no
network, files or clock)."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement

from envbuild.lock.gaps import build_image_gap, gap_of, is_pinned, unpinned
from envbuild.lock.installers import BUILDERS, INSTALLERS, backend_of, path_of
from envbuild.model.environment import PrefixPlan
from envbuild.model.lock import Lock, Prefix


def problems_of(lock: Lock) -> Iterator[str]:
    """Yield a line for each problem in the structure of a lock."""
    yield from _of_base(lock)
    plans = lock.environment.plans()
    if [prefix.name for prefix in lock.prefixes] == [plan.name for plan in plans]:
        for plan, prefix in zip(plans, lock.prefixes, strict=True):
            found = (*_of_prefix(lock, plan, prefix), *_of_frameworks(lock, plan, prefix), *_of_tools(prefix))
            yield from (f"{prefix.name}: {message}" for message in found)
    else:
        held = ", ".join(prefix.name for prefix in lock.prefixes) or "none"
        yield f"its prefixes are {held}, but the environment has {', '.join(plan.name for plan in plans)}"
    for gap in unpinned(lock.environment):
        if gap not in lock.missing:
            yield f"its list of unpinned files lacks {gap.what}"


def _of_base(lock: Lock) -> Iterator[str]:
    image = lock.environment.base.image
    if lock.base.image != image:
        yield f"its base is {lock.base.image}, but the environment has {image}"
    if not is_pinned(lock.base) and not any(gap.what == f"base {image}" for gap in lock.missing):
        yield f"its base {image} is neither pinned nor listed as unpinned"
    for gap in build_image_gap(lock.environment, lock.base):
        if gap not in lock.missing:
            yield f"its list of unpinned files lacks {gap.what}"


def _of_prefix(lock: Lock, plan: PrefixPlan, prefix: Prefix) -> Iterator[str]:
    if prefix.python != plan.python:
        held, meant = (
            f"{python.executable} ({python.version}, {python.provided_by})" for python in (prefix.python, plan.python)
        )
        yield f"its Python is {held}, but the environment has {meant}" + (" in another form" if held == meant else "")
    path, backend = path_of(lock.environment, plan), backend_of(plan.python.version)
    if prefix.path != path:
        yield f"it is at {prefix.path} instead of {path}"
    if prefix.backend != backend:
        yield f"it is installed by {prefix.backend} instead of {backend}"
    for kind, artifacts in (("artifacts", prefix.artifacts), ("build artifacts", prefix.build_artifacts)):
        names = [artifact.name for artifact in artifacts]
        if names != sorted(names):
            yield f"its {kind} are not sorted by name"


def _of_frameworks(lock: Lock, plan: PrefixPlan, prefix: Prefix) -> Iterator[str]:
    if strange := [name for name in prefix.frameworks if name not in plan.frameworks]:
        yield f"it installs {', '.join(strange)}, which the environment does not have in this prefix"
    for framework in lock.environment.part(plan).frameworks:
        if framework.name not in prefix.frameworks and gap_of(framework) not in lock.missing:
            yield f"{framework.name} is neither installed nor listed as unpinned"


def _of_tools(prefix: Prefix) -> Iterator[str]:
    """Check that tools are pinned if, and only if, the prefix needs them."""
    sources = any(not artifact.filename.endswith(".whl") for artifact in prefix.artifacts)
    wanted = [*(INSTALLERS if prefix.backend == "pip" else ()), *(BUILDERS if sources else ())]
    held = {artifact.name for artifact in prefix.build_artifacts}
    missing = sorted({Requirement(text).name for text in wanted} - held)
    if sources and not held:
        yield "it has source archives, but no tools to build them"
    elif missing:
        yield f"it lacks {', '.join(missing)}, which installing or building needs"
    elif held and not wanted:
        yield f"it pins the build tools {', '.join(sorted(held))}, but builds nothing"

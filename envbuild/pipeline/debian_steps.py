"""Finds the packages that each step of a build installs with apt, in addition to the packages of earlier steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from envbuild.model.lock import AptPlan, AptStep, DebianPackage, Lock
from envbuild.pipeline.tools import Tools


def install_steps(
    plans: Iterable[AptPlan],
    held: Iterable[DebianPackage],
    install: Callable[[AptPlan, tuple[DebianPackage, ...]], tuple[DebianPackage, ...]],
) -> tuple[AptStep, ...]:
    """Return the packages that each of ``plans`` installs.

    When a step runs, the packages of the base (``held``) and the packages of the earlier steps are already installed.
    ``install`` gets the plan of the step and these packages. It returns the packages that apt adds.
    """
    found: dict[str, AptStep] = {}
    for plan in plans:
        earlier = (package for name in plan.before for package in found[name].packages)
        packages = install(plan, tuple({package.name: package for package in (*held, *earlier)}.values()))
        found[plan.name] = AptStep(name=plan.name, asked=plan.asked, build_only=plan.build_only, packages=packages)
    return tuple(found.values())


def snapshot_of(tools: Tools, lock: Lock) -> str:
    """Return the address of the distribution's snapshot archive; empty if the matrix names none."""
    return next((row.snapshot for row in tools.matrix.systems if row.name == lock.environment.system.name), "")

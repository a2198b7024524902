"""The JSON that ``resolve --json`` and ``show --json`` print for scripts (schemas/resolution.json)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envbuild.codec import encode
from envbuild.matrix.gpu_code import only_by_ptx
from envbuild.model.environment import Base, Environment
from envbuild.model.resolution import Resolution
from envbuild.model.words import SCHEMA


def answer_json(resolution: Resolution, evidence: Sequence[str]) -> dict[str, Any]:
    """Return the JSON object for a resolution. ``evidence`` lists the proofs of the environment, which the caller has looked
    up."""
    environment = resolution.environment
    code, compiled = environment.compute_capability, only_by_ptx(resolution.details)
    return {
        "schema": SCHEMA,
        "request": resolution.request,
        "name": environment.name,
        "frameworks": [
            {
                "name": framework.name,
                "version": framework.version,
                "package": framework.package,
                "variant": framework.variant,
                "cuda": environment.cuda_of(framework),
                "requirements": list(framework.requirements),
                "constraints": list(framework.constraints),
                "released": framework.released,
                **encode(details),
            }
            for framework, details in zip(environment.frameworks, resolution.details, strict=True)
        ],
        "python": environment.python.version,
        **_prefixes(environment),
        "os": environment.system.name,
        "cuda": environment.cuda,
        "cudnn": environment.cudnn,
        "nccl": environment.nccl,
        "base": _base(environment.base),
        "driver_min": environment.driver_min,
        "require_cuda": environment.require_cuda,
        "compute_capability": None if code is None else {**encode(code), **({"only_ptx": list(compiled)} if compiled else {})},
        "exclude_newer": environment.exclude_newer,
        "reasons": encode(list(resolution.reasons)),
        "warnings": list(resolution.warnings),
        "overlaid": list(resolution.overlaid),
        "evidence": list(evidence),
        **({} if environment.custom is None else {"custom": encode(environment.custom)}),
    }


def _prefixes(environment: Environment) -> dict[str, Any]:
    """The prefixes, each with its name, Python and frameworks; empty if the environment has only one prefix."""
    plans = [
        {"name": plan.name, "python": plan.python.version, "frameworks": list(plan.frameworks)} for plan in environment.prefixes
    ]
    return {"prefixes": plans} if plans else {}


def _base(base: Base) -> dict[str, Any]:
    return {
        "provider": base.provider,
        "image": base.image,
        "default": base.is_default,
        "packages": [f"{package.name}={package.version}" for package in base.packages],
        "other_providers": list(base.other_providers),
        **_as_wheels(base),
        **_to_build(base),
        **_of_debian(base),
    }


def _of_debian(base: Base) -> dict[str, Any]:
    """The Debian packages that bring CUDA's libraries, and the Debian packages for compiling. The result is empty if CUDA does
    not come from Debian's archive."""
    if not base.components:
        return {}
    named = {"components": base.components, "apt": base.apt, "build_apt": base.build_apt}
    return {key: list(words) for key, words in named.items() if words}


def _as_wheels(base: Base) -> dict[str, Any]:
    """The wheels of CUDA that the base brings, if there are any. Also the CUDA version of the base's libraries, and the version
    of its compiler, if they differ from the frameworks' version."""
    wheels = [wheel.requirement for wheel in base.wheels]
    told = {"wheels": wheels, "cuda": base.libraries_cuda, "compiler_cuda": base.compiler_cuda}
    return {key: value for key, value in told.items() if value}


def _to_build(base: Base) -> dict[str, Any]:
    """The packages and the image of the stage that compiles GPU code; empty if nothing is compiled for GPUs."""
    packages = [f"{package.name}={package.version}" for package in base.build_packages]
    image = {"build_image": base.build_image} if base.build_image else {}
    return {**({"build_packages": packages} if packages else {}), **image}

"""Resolves a stack to one environment with several prefixes, and names the conflict that makes each prefix necessary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from envbuild.errors import ConflictError, InvalidInputError, Problem
from envbuild.matrix.types import Matrix
from envbuild.matrix.versions import version_matches, within
from envbuild.model.environment import Base, Environment, PrefixPlan
from envbuild.model.resolution import Reason, Resolution
from envbuild.resolve.environment import environment_of, framework_of
from envbuild.resolve.explain import reasons
from envbuild.resolve.explain.build_details import details_of
from envbuild.resolve.explain.overlay_notes import marked, overlaid_rows
from envbuild.resolve.explain.warnings import package_warnings, status_warnings
from envbuild.resolve.explanation import Explanation
from envbuild.resolve.request.model import Request
from envbuild.resolve.request.names import find_framework
from envbuild.resolve.request.parser import parse
from envbuild.resolve.search import addon_builds
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate
from envbuild.resolve.search.compatibility import LIBRARIES, together
from envbuild.resolve.search.hardware import hardware_objections, hardware_warnings
from envbuild.resolve.search.lookup import Lookup, lookup_of
from envbuild.resolve.search.placement import offers_on, on_libraries
from envbuild.resolve.search.search import Search
from envbuild.resolve.stack_groups import Grouping, Shares, in_image
from envbuild.stacks import Stack


def resolve_stack(matrix: Matrix, stack: Stack, *, driver: str | None = None, gpu: str | None = None) -> Resolution:
    """The environment of a stack, with reasons and warnings.

    ``driver`` and ``gpu`` are only checked; they do not change the environment. Raises :class:`ConflictError` if a framework
    does not fit into the stack, or if the stack does not run on the driver or the GPU.
    """
    lookup, request = lookup_of(matrix), request_of(matrix, stack)
    shares = Grouping(Search(lookup, request), stack).shares()
    hardware = request_of(matrix, stack, driver=driver, gpu=gpu) if driver or gpu else request
    _check_hardware(lookup, stack, hardware, shares.whole.builds)
    environment = _environment(lookup, stack, request, shares)
    return Resolution(
        request=stack.name,
        environment=environment,
        reasons=tuple(_reasons(lookup, request, shares, environment)),
        warnings=tuple(dict.fromkeys(_warnings(lookup, stack, hardware, shares))),
        overlaid=overlaid_rows(matrix, environment, hardware.gpus),
        details=details_of(matrix, environment),
    )


def builds_of(matrix: Matrix, stack: Stack) -> tuple[Build, ...]:
    """The builds of all frameworks of a stack. Raises the same errors as :func:`resolve_stack`."""
    return Grouping(Search(lookup_of(matrix), request_of(matrix, stack)), stack).shares().whole.builds


def explain_stack(matrix: Matrix, stack: Stack, *, driver: str | None = None, gpu: str | None = None) -> Explanation:
    """Explain why a stack is divided into its prefixes. If the stack cannot be resolved, the error is not raised but is part of
    the explanation."""
    try:
        resolution = resolve_stack(matrix, stack, driver=driver, gpu=gpu)
    except ConflictError as error:
        return Explanation(request=stack.name, resolution=None, choices=(), passed_over=(), error=error)
    return Explanation(request=stack.name, resolution=resolution, choices=(), passed_over=(), error=None)


def departures(matrix: Matrix, stack: Stack, environment: Environment) -> list[str]:
    """Return texts about the differences between an earlier decision and the stack's request. Each text begins with a verb."""
    return list(_departures(request_of(matrix, stack), stack, environment))


def _departures(request: Request, stack: Stack, environment: Environment) -> Iterator[str]:
    held = {framework.name: framework.version for framework in environment.frameworks}
    asked = {wanted.framework.name: wanted for wanted in request.wanted}
    yield from (f"no longer contains {name}" for name in held if name not in asked)
    for member, (name, wanted) in zip(stack.members, asked.items(), strict=True):
        if name not in held:
            yield f"now asks for {member.request}"
        elif not version_matches(held[name], wanted.version):
            yield f"asks for {member.request}, but the lock has {held[name]}"
        python = next(plan.python.version for plan in environment.plans() if name in plan.frameworks) if name in held else ""
        if python and python not in member.pythons:
            yield f"asks for {name} on Python {', '.join(member.pythons)}, but the lock has {python}"
    for what, now, then in (("on", stack.system, environment.system.name), ("for CUDA", stack.cuda, environment.cuda or "")):
        if now != then:
            yield f"is {what} {now or 'none'}, but the lock is {what} {then or 'none'}"
    for library, said in (("cudnn", request.cudnn), ("nccl", request.nccl)):
        version = getattr(environment, library)
        if said and version and not within(version, said):
            yield f"asks for {library} {said.lstrip('=')}, but the lock has {version}"


def request_of(matrix: Matrix, stack: Stack, *, driver: str | None = None, gpu: str | None = None) -> Request:
    """Return the stack as one request, with the driver and GPUs of the stack's file if no others are given.

    Raises :class:`UnknownNameError` for a name without a row, and :class:`InvalidInputError` for a framework that is named
    twice.
    """
    _check_names(matrix, stack)
    words = [member.request for member in stack.members]
    words += [f"cuda=={stack.cuda}"] if stack.cuda else ["cpu"]
    words += [f"{library}=={version}" for library, version in (("cudnn", stack.cudnn), ("nccl", stack.nccl)) if version]
    request = parse(
        words, matrix=matrix, system=stack.system, driver=driver or stack.driver or None, gpu=gpu or stack.gpus or None
    )
    return request._replace(text=stack.name)


def _check_names(matrix: Matrix, stack: Stack) -> None:
    """Raise :class:`InvalidInputError` if a framework is named twice. Also raise it if the ``apart`` of a framework names a
    framework that does not come earlier in the stack's file."""
    before: list[str] = []
    messages: list[str] = []
    for member in stack.members:
        found = find_framework(matrix, re.split("[<>=!~]", member.request)[0])
        messages += [
            (
                f"{member.request}: its `apart` names {said.framework}, but only frameworks that come before it can be named "
                f"({', '.join(before) or 'none'})"
            )
            for said in member.apart
            if said.framework not in before
        ]
        if found and found[0].name in before:
            messages.append(f"{found[0].title} is named twice, but an image contains only one version of a framework")
        before += [found[0].name] if found else []
    if messages:
        raise InvalidInputError(
            f"The stack {stack.name} contradicts itself: {messages[0]}.",
            hint="Correct the file of the stack.",
            problems=[Problem(where=f"stack {stack.name}", line=0, message=message) for message in messages],
        )


def _check_hardware(lookup: Lookup, stack: Stack, hardware: Request, builds: Sequence[Build]) -> None:
    found = [item.conflict for build in builds for item in hardware_objections(lookup, hardware, build.row, build.variant)]
    if found:
        raise ConflictError(
            f"The stack {stack.name} does not run on the requested driver or GPU.",
            hint="The versions of a stack are fixed: choose another driver or GPU, or a stack with other versions.",
            conflicts=marked(lookup.matrix, dict.fromkeys(found)),
        )


# --- the environment ----------------------------------------------------------------------------------------------------


def _environment(lookup: Lookup, stack: Stack, request: Request, shares: Shares) -> Environment:
    """The environment of all frameworks. If there are several prefixes, each has its own Python and date limit."""
    whole = environment_of(lookup, request, shares.whole)
    plans = tuple(_plan(name, candidate, whole) for name, candidate in zip(_names(shares), shares.candidates, strict=True))
    python = {name: plan.python.version for plan in plans for name in plan.frameworks}
    builds = {build.framework.name: build for build in shares.whole.builds}
    beside = {name: [builds[each] for each in plan.frameworks] for plan in plans for name in plan.frameworks}
    return replace(
        whole,
        name=stack.name,
        frameworks=tuple(
            framework_of(builds[f.name], python[f.name], whole.cuda or "", beside[f.name]) for f in whole.frameworks
        ),
        python=plans[0].python,
        base=_base(lookup, shares, whole.base),
        prefixes=plans if len(plans) > 1 else (),
    )


def _names(shares: Shares) -> list[str]:
    """The names of the prefixes. A prefix is named after its Python; if an earlier prefix has that name, the name also contains
    the prefix's first framework."""
    found: list[str] = []
    for group in shares.groups:
        name = f"py{group.python.replace('.', '')}"
        found.append(f"{name}-{group.wanted[0].framework.short}" if name in found else name)
    return found


def _plan(name: str, candidate: Candidate, whole: Environment) -> PrefixPlan:
    ours = {build.framework.name for build in candidate.builds}
    until = max(build.release.exclude_newer for build in candidate.builds)
    return PrefixPlan(
        name=name,
        python=candidate.place.python,
        frameworks=tuple(framework.name for framework in whole.frameworks if framework.name in ours),
        exclude_newer="" if until == whole.exclude_newer else until,
    )


def _base(lookup: Lookup, shares: Shares, base: Base) -> Base:
    """Return the base, marked as the default base of the stack. Its ``other_providers`` are the other providers that all
    prefixes could use."""
    variant = together(shares.whole.builds)
    offers, _ = offers_on(lookup, variant, shares.place.system, "")
    ordered = sorted(offers, key=lambda offer: (offer.deleted, -offer.preference))
    others = dict.fromkeys(offer.provider for offer in ordered if offer.provider != base.provider)
    return replace(base, is_default=True, other_providers=tuple(others))


# --- in words -----------------------------------------------------------------------------------------------------------


def _reasons(lookup: Lookup, request: Request, shares: Shares, environment: Environment) -> Iterator[Reason]:
    names = _names(shares)
    yield from reasons.of_builds(lookup, request, shares.whole)
    yield from reasons.of_libraries(lookup, shares.whole, environment)
    for index, (group, candidate) in enumerate(zip(shares.groups, shares.candidates, strict=True)):
        prefix = f"{names[index]}: " if len(names) > 1 else ""
        variant = together(candidate.builds)
        python = reasons.of_python(lookup, request._replace(python=f"=={group.python}"), candidate, variant)
        dependencies = reasons.of_dependencies(candidate)
        yield python._replace(choice=f"{prefix}{python.choice}")
        yield dependencies._replace(choice=f"{prefix}{dependencies.choice}")
        ours = {wanted.framework.name for wanted in group.wanted}
        for split in (each for each in shares.splits if each.framework.name in ours):
            for conflict in split.conflicts:
                because = f"cannot be in the prefix {names[split.group]}: {conflict.row}: {conflict.reason}"
                yield Reason(
                    choice=f"{prefix}{split.framework.name}",
                    because=because,
                    source=conflict.source or split.framework.origin.source,
                )
    yield from reasons.of_place(request, shares.whole, environment)


def _warnings(lookup: Lookup, stack: Stack, request: Request, shares: Shares) -> Iterator[str]:
    yield from request.warnings
    for candidate in shares.candidates:
        for build in candidate.builds:
            variant = on_libraries(build.variant, shares.whole.place.offer.stands_in)
            yield from hardware_warnings(lookup, request, build.row, variant)
        yield from addon_builds.warnings(candidate.builds)
        yield from package_warnings(candidate.builds)
        yield from status_warnings(lookup, request, candidate)
    whole = together(shares.whole.builds)
    for library in LIBRARIES:
        if getattr(request, library) and not in_image(whole, library):
            yield f"{stack.name} sets {library}, but no framework of the stack uses it from the image: each contains its own."

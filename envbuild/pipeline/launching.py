"""``launch``: runs the smoke test on several machines by means of a launcher, and reads the report."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.errors import BuildError, SmokeFailedError, UsageError
from envbuild.pipeline import own_images, trusted_sources
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.launch.image_programs import Contents
    from envbuild.launch.launchers import Kind, Launcher
    from envbuild.launch.rendering import LaunchOrder
    from envbuild.model.environment import Environment

_REPORT = "report.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A launch: ``argv`` is the command of the launcher, which reads ``text`` from its standard input."""

    launcher: Launcher
    kind: Kind
    order: LaunchOrder
    text: str

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that reads the text from its standard input."""
        return self.kind.run


def image_of(tools: Tools, name: str, *, must_exist: bool, registry: str = "") -> str:
    """Return the name of the image of the environment ``name``.

    With a ``registry`` (``HOST/REPOSITORY``), return the image's name in that registry. This is the image with the inputs of
    this checkout. Only if ``name`` has no lock here, the tag is the canonical name, which can move.

    Without a ``registry``, return the name of the image that was built last on this machine. If no image was built, return the
    name that a build would give to it. Raises :class:`BuildError` (``no-image``) if no image was built and ``must_exist`` is
    true. Raises :class:`UsageError` (``not-a-registry``) for a ``registry`` without a host, and
    :class:`PolicyError` for a ``registry`` that the policy of the site does not allow.
    """
    from envbuild import build
    from envbuild.launch import image_names

    if registry:
        place = registry.rstrip("/")
        if not image_names.has_registry(place):
            raise UsageError(
                f"--registry: {registry} does not begin with a host that other machines can reach.",
                code="not-a-registry",
                hint="Write HOST/REPOSITORY, for example registry.example/team/envbuild.",
            )
        if tools.policy is not None:
            trusted_sources.require_repository(tools.policy, place, "Launch an image from an allowed repository")
        own = own_images.find(tools, name)
        return f"{place}:{own.fixed if own else own_images.moving_tag(name)}"

    record = build.read_record(tools.workspace, name)
    if record is not None:
        return record.tags[0]
    if must_exist:
        raise BuildError(
            f"This machine has not built an image of {name}.",
            code="no-image",
            hint=f"To build it, run `envbuild build {tools.cli_name(name)}`. To use another image that the hosts can "
            "pull, name it with --image.",
        )
    return f"{build.REPOSITORY}:{name.replace('+', '_')}"


def launch_text(
    tools: Tools,
    via: str,
    kind: str,
    order: LaunchOrder,
    environment: Environment,
    *,
    shared: bool = False,
    vouched: Collection[str] = (),
) -> Launch:
    """Return the launch: the command of the launcher ``via``, and the text that it reads.

    ``shared`` means that all hosts have an image with the name in ``order``. Otherwise, a name that only this machine knows is
    refused. A kind of launch that needs a program in the image is refused if the image lacks this program. It is not refused
    if the user ``vouched`` for the program. Raises :class:`UnknownNameError` for an unknown launcher, and :class:`UsageError`
    if the launcher cannot start this image.
    """
    from envbuild.launch import image_names, image_programs, launchers, rendering

    known = launchers.load_launchers(tools.workspace)
    launcher, chosen = launchers.choose(known, via, kind)
    programs = image_programs.load_programs(tools.workspace)
    contents = _contents(tools, environment)
    image_programs.require_programs(known, programs, (launcher, chosen), contents, name=order.name, vouched=vouched)
    if not shared:
        image_names.require_reachable(launcher, chosen, order.image, order.hosts, here=(socket.gethostname(),))
    root = tools.workspace.launchers
    templates = {str(path.relative_to(root)): path.read_text() for path in sorted(root.glob("*/*.j2"))}
    text = rendering.render(launcher, chosen, order, templates)
    return Launch(launcher=launcher, kind=chosen, order=order, text=text)


def _contents(tools: Tools, environment: Environment) -> Contents:
    """Return the packages of the image: the requirements of frameworks and recipes and, if there is a lock, its pins."""
    from envbuild import render
    from envbuild.launch import image_programs
    from envbuild.pipeline.stored_locks import read_locked

    packages: dict[str, set[str]] = {}
    for name, version in _pins(environment):
        packages.setdefault(name, set()).add(version)
    apt = {*(environment.custom.system_packages() if environment.custom else ())}
    apt |= {name for each in environment.frameworks for name in tools.recipes[each.recipe].apt_of(each)}
    locked = read_locked(tools, environment.name)
    if locked is not None:
        for prefix in locked.lock.prefixes:
            for each in prefix.artifacts:
                packages.setdefault(each.name, set()).add(each.version)
        apt |= {package.name for package in locked.lock.image_packages()}
        apt |= {*render.apt_names(locked.lock, tools.recipes, tools.templates)}
    return image_programs.Contents(packages=packages, apt=frozenset(apt), is_locked=locked is not None)


def _pins(environment: Environment) -> Iterator[tuple[str, str]]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    for framework in environment.frameworks:
        for each in map(Requirement, framework.requirements):
            for clause in each.specifier:
                if clause.operator == "==":
                    yield canonicalize_name(each.name), clause.version


def require_launcher(plan: Launch) -> None:
    """Raise :class:`UsageError` (``missing-program``) if this machine lacks a program that the launcher needs."""
    missing = [program for program in plan.kind.programs if shutil.which(program) is None]
    if missing:
        raise UsageError(
            f"{plan.launcher.name} needs {', '.join(missing)}, which this machine does not have.",
            code="missing-program",
            hint="With --print, envbuild shows the commands, which you can run on another machine.",
        )


def run_launch(plan: Launch, on_line: Callable[[str], None]) -> dict[str, Any] | None:
    """Run the launch now, and pass each line of its output to ``on_line``.

    Return the report; None if the report is not on this machine. Raises :class:`UsageError` (``missing-program``) if this
    machine lacks a program that the launcher needs. Raises :class:`SmokeFailedError` if the launcher ended with an error,
    unless there is a report with another verdict than pass.
    """
    from envbuild import procs
    from envbuild.pipeline import image_checks
    from envbuild.report import view

    require_launcher(plan)
    left = Path(plan.order.report) / _REPORT if plan.order.report else None
    if left is not None:
        left.unlink(missing_ok=True)
    result = procs.run(plan.argv, input_text=plan.text, on_line=on_line)
    content = image_checks.read_report(left) if left is not None and left.is_file() else None
    if content is None and result.code != 0:
        raise SmokeFailedError(
            f"{plan.launcher.name} ended with exit code {result.code}.",
            code="launch-failed",
            hint="Its output shows the cause. With --report FOLDER, the report is kept if the test wrote one.",
            details=result.output.splitlines()[-20:],
        )
    if content is not None and view.verdict_of(content) == "pass" and result.code != 0:
        raise SmokeFailedError(
            f"The report says pass, but {plan.launcher.name} ended with exit code {result.code}.", code="launch-failed"
        )
    return content

"""``evidence --prove``: runs the stages whose proofs are missing. Each proof is stored at once, so a run can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from envbuild.errors import EnvbuildError, InvalidInputError
from envbuild.pipeline import building, fetching, image_checks, link_check, locking, proofs, rendering, stored_locks
from envbuild.pipeline.evidence import Kind
from envbuild.pipeline.image_checks import Smoked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.smoketest import SmokeOptions

_NOT_LINKED = "objects in the image need libraries or symbols that the image lacks; the warning says how to list them"
_OF_IMAGES: tuple[Kind, ...] = ("built", "verified", "linked", "smoke-cpu", "smoke-gpu")
# Error codes which mean that this machine cannot run a stage. Such an error is no failure of the environment.
_OUT_OF_REACH = ("base-unreachable", "source-unreachable", "index-unreachable", "lock-incomplete", "not-fetched")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """The result for one environment: the kinds of proof that are valid (``held``), and requested kinds that are ``lacking``.

    ``state`` is ``proved`` if no kind is lacking, ``impossible`` if this machine cannot prove the lacking kinds, else
    ``failed``.
    """

    name: str
    state: Literal["proved", "impossible", "failed"]
    held: tuple[str, ...]
    lacking: tuple[Kind, ...]
    why: str = ""
    exit_code: int = 0


def prove_again(
    tools: Tools,
    names: Sequence[str],
    kinds: Sequence[Kind],
    *,
    smoke: SmokeOptions,
    keep_images: bool,
    on_done: Callable[[Attempt], None],
) -> list[Attempt]:
    """For each of ``names``, run the stages that prove the missing ``kinds``.

    A failure of one environment is reported, and the other environments are still proved. An image that did not exist before is
    removed after its checks, unless ``keep_images`` is true. Raises :class:`EngineError` if images must be built and no engine
    answers.
    """
    lacking = {name: _lacking(tools, name, kinds) for name in names}
    to_fetch = [name for name in names if "downloaded" in lacking[name]]
    told = {done.name: done for done in fetching.fetch(tools, to_fetch)} if to_fetch else {}
    attempts = []
    for name in names:
        problem: EnvbuildError | None = None
        smoked: Smoked | None = None
        try:
            _offline(tools, name, lacking[name])
            of_images = [kind for kind in lacking[name] if kind in _OF_IMAGES]
            if of_images:
                smoked = _of_images(tools, name, of_images, smoke, keep_images=keep_images)
        except EnvbuildError as error:
            if error.exit_code in {6, 130}:
                raise
            problem = error
        attempt = _attempt(tools, name, kinds, problem, told.get(name), smoked)
        attempts.append(attempt)
        on_done(attempt)
    return attempts


def explain_skipped(tools: Tools, name: str, kinds: Sequence[Kind]) -> list[str]:
    """Return a sentence for each smoke test in ``kinds`` that is missing and is not run here.

    The sentence gives the reason, which is a property of the environment or of this machine.
    """
    if stored_locks.read_locked(tools, name) is None:
        return []
    uses_gpu, has_gpu = _uses_gpu(tools, name), _has_gpu()
    wanted = set(kinds) - set(proofs.renewed_kinds(tools, name))
    found = []
    if "smoke-gpu" in wanted and not uses_gpu:
        found.append(f"smoke-gpu does not apply to {name}, because it uses no GPU.")
    elif "smoke-gpu" in wanted and not has_gpu:
        found.append(f"smoke-gpu of {name} is not proved here, because this machine has no GPU.")
    if "smoke-cpu" in wanted and uses_gpu and has_gpu:
        found.append(f"smoke-cpu of {name} is not proved here, because its smoke test runs on the GPUs of this machine.")
    return found


def _uses_gpu(tools: Tools, name: str) -> bool:
    locked = stored_locks.read_locked(tools, name)
    return locked is not None and locked.lock.environment.cuda is not None


def _has_gpu() -> bool:
    from envbuild.host import nvidia

    return bool(nvidia.gpus())


def _lacking(tools: Tools, name: str, kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    held = proofs.renewed_kinds(tools, name)
    wanted = [kind for kind in kinds if kind not in held]
    # Only one smoke test is run: on the GPUs if the image is for GPUs and this machine has some, else on the CPU.
    skipped = "smoke-cpu" if _uses_gpu(tools, name) and _has_gpu() else "smoke-gpu"
    return tuple(kind for kind in wanted if kind != skipped)


def _offline(tools: Tools, name: str, lacking: Sequence[Kind]) -> None:
    locked = locking.require_lock(tools, name)
    if "locked" in lacking and not locked.lock.missing:
        proofs.prove_lock(tools, name, locked.digest, "locked")
    if "rendered" in lacking:
        text = rendering.render_text(tools, locked.lock)
        found = rendering.differences(tools.workspace.rendering(name), text)
        if found:
            raise InvalidInputError(
                f"These files of {name} differ from the rendering of its lock: {', '.join(each.path.name for each in found)}.",
                code="stale-rendering",
                hint=f"Write them again with `envbuild render {tools.cli_name(name)}`, then repeat the command.",
            )
        proofs.prove_rendering(tools, locked.lock, locked.digest, text)


def _of_images(tools: Tools, name: str, lacking: Sequence[Kind], smoke: SmokeOptions, *, keep_images: bool) -> Smoked | None:
    """Build the image, and run those checks (verify, linkcheck, smoke) that prove the kinds in ``lacking``.

    Return the verdict if the smoke test ran.
    """
    from envbuild import build

    locked = locking.require_lock(tools, name)
    before = build.read_record(tools.workspace, name)
    had = before is not None and tools.engine.image(before.image) is not None
    # A normal build would keep a pulled image. Such an image does not prove that the environment can be built.
    anew = "built" in lacking and before is not None and before.builder == build.PULLED
    text = rendering.render_text(tools, locked.lock)
    record, verified = building.build_environment(tools, locked, text, no_cache=anew)
    try:
        if verified is None and set(lacking) - {"built"}:
            image_checks.verify_image(tools, locked.lock, locked.digest, record.image, replay=True)
        if "linked" in lacking:
            link_check.link_and_warn(tools, locked.lock, locked.digest, record.image)
        if set(lacking) - {"built", "verified", "linked"}:
            on_cpu = locked.lock.environment.cuda is not None and "smoke-cpu" in lacking
            options = replace(smoke, allow_cpu=True, expect="cpu") if on_cpu else smoke
            return image_checks.smoke_image(tools, locked.lock, locked.digest, record.image, options, replay=True)
        return None
    finally:
        if not (had or keep_images):
            _remove(tools, record)


def _remove(tools: Tools, record: BuildRecord) -> None:
    for tag in record.tags:
        tools.engine.remove_unused(tag)


def _why(problem: EnvbuildError) -> str:
    """The message, and the first of the problems that it counts."""
    if not problem.problems:
        return problem.message
    more = len(problem.problems) - 1
    return f"{problem.message} {problem.problems[0]}{f' ({more} more)' if more else ''}"


def _attempt(  # noqa: PLR0917 - each step has its own result
    tools: Tools,
    name: str,
    kinds: Sequence[Kind],
    problem: EnvbuildError | None,
    fetched: fetching.Fetched | None,
    smoked: Smoked | None,
) -> Attempt:
    lacking = _lacking(tools, name, kinds)
    held = proofs.held_kinds(tools, name)
    if not lacking:
        return Attempt(name=name, state="proved", held=held, lacking=())
    if problem is not None:
        impossible = problem.code in _OUT_OF_REACH
        code = 0 if impossible else problem.exit_code
        state: Literal["impossible", "failed"] = "impossible" if impossible else "failed"
        return Attempt(name=name, state=state, held=held, lacking=lacking, why=_why(problem), exit_code=code)
    if smoked is not None and smoked.status in {"fail", "error"}:
        return Attempt(name=name, state="failed", held=held, lacking=lacking, why=smoked.sentence, exit_code=smoked.exit_code)
    if "linked" in lacking and "verified" in held:  # the check ran and found gaps
        return Attempt(name=name, state="failed", held=held, lacking=lacking, why=_NOT_LINKED, exit_code=8)
    if fetched is not None and fetched.contradicted:
        return Attempt(name=name, state="failed", held=held, lacking=lacking, why=fetched.failed[0], exit_code=7)
    reasons = []
    if "locked" in lacking:
        reasons.append("the lock does not pin every file")
    if "downloaded" in lacking and fetched is not None:
        reasons += fetched.failed or [f"not pinned: {', '.join(fetched.unpinned)}"]
    if smoked is not None:
        reasons.append(smoked.sentence)
    return Attempt(name=name, state="impossible", held=held, lacking=lacking, why="; ".join(reasons))

"""The stages ``verify`` and ``smoke``, which check a built image. Their results are stored for the next run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import codec, disk_cache, files
from envbuild.errors import BuildError, InvalidInputError, Problem, TimedOutError, VerifyError
from envbuild.model.lock import Lock
from envbuild.model.progress import Progress, as_news
from envbuild.pipeline import evidence, locking, proofs, resolving, stage_cache, user_recipe
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import IMPORT_RULES, WRONG_RECORDS

if TYPE_CHECKING:
    from envbuild.smoketest import SmokeOptions
    from envbuild.verify.rules import ImportRules


_CHECKS = 3  # increase this number when `verify` gets more checks, so that older stored results do not count


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """The result of verifying an image. ``replayed`` is true if it is a stored result of an earlier run."""

    report: Mapping[str, Any]
    replayed: bool
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Smoked:
    """The result of a smoke test. ``status`` is the verdict: pass, fail, inconclusive or error.

    ``exit_code`` is the exit code that envbuild returns for this verdict.
    """

    status: str
    exit_code: int
    sentence: str
    hint: str
    report: Mapping[str, Any]
    paths: Mapping[str, Path]
    replayed: bool


def require_image(tools: Tools, name: str) -> str:
    """Return the id of the image that was built last for ``name``.

    Raises :class:`BuildError` (``no-image``) if no image was built, or if the engine does not have it any more.
    """
    from envbuild import build

    record = build.read_record(tools.workspace, name)
    if record is None or tools.engine.image(record.image) is None:
        raise BuildError(
            f"The engine ({tools.engine.endpoint}) has no image of {name}.",
            code="no-image",
            hint=f"To build it, run: envbuild build {tools.cli_name(name)}",
        )
    return record.image


def require_built(tools: Tools, text: str, constraints: Constraints) -> tuple[Locked, str]:
    """Return the lock of the environment that ``text`` means, and the id of the image that was built last for it."""
    name = resolving.resolve_buildable(tools, [text], constraints).environment.name
    return locking.require_lock(tools, name), require_image(tools, name)


def sources_of_image(tools: Tools, name: str, digest: str) -> tuple[list[tuple[str, str, str]] | None, str]:
    """Return (binary package, source package, source version) for each Debian package in the image.

    The image is the one that was built on this machine from the lock with this ``digest``. The list is None if no image can be
    read; the second value then says why. The list is empty if dpkg in the image is missing or lists no packages.
    """
    from envbuild import build
    from envbuild.verify import installed

    record = build.read_record(tools.workspace, name)
    if record is None or record.lock != digest:
        return None, no_image_here(tools, name)
    engine = tools.engine_or_none()
    if engine is None:
        return None, "an image of this lock was built here, but no container engine responded"
    if engine.image(record.image) is None:
        return None, "an image of this lock was built here, but the container engine does not have it any more"
    try:
        return installed.sources(engine, record.image), ""
    except VerifyError:
        return [], ""


def no_image_here(tools: Tools, name: str) -> str:
    """Return the reason for a missing result if no image of the environment's lock was built on this machine, and the command
    that builds it."""
    return f"no image of this lock was built here; `envbuild build {tools.cli_name(name)}` builds it"


def verify_image(tools: Tools, lock: Lock, digest: str, image: str, *, replay: bool, base: str | None = None) -> Verified:
    """Compare the image with its lock. Raises :class:`VerifyError` (exit code 8) with every difference.

    With ``replay``, a stored result for this image, lock and rules is used. ``base`` is the base image; it must be given
    if no build record names the base image yet.
    """
    from envbuild import build

    began = time.monotonic()
    name = lock.environment.name
    images = tools.workspace.images
    rules = [files.sha256_of(images / file) for file in (IMPORT_RULES, WRONG_RECORDS)]
    key = {"image": image, "lock": digest, "checks": _CHECKS, "rules": rules}
    known = stage_cache.recall(tools.workspace, name, "verify", key) if replay else None
    if known is None:
        from envbuild import verify, wrong_records
        from envbuild.engine import host_apt
        from envbuild.verify import leaks

        record = build.read_record(tools.workspace, name)
        report = verify.verify(
            tools.engine,
            lock,
            image,
            tools.on_progress,
            secrets=leaks.secret_strings(tools.index.build_secrets() | host_apt.build_secrets()),
            base=base or (record.base.image if record is not None and record.image == image else None),
            rules=_rules(tools, lock),
            wrong_records=wrong_records.load(images),
        )
        known = {"ok": report.ok, "report": codec.encode(report)}
        stage_cache.keep(tools.workspace, name, "verify", key, known)
        replayed = False
    else:
        replayed = True
    if not known["ok"]:
        proofs.contradict(tools, name, "verified")
        problems = [Problem(where=p["where"], line=0, message=p["message"]) for p in known["report"]["problems"]]
        tags = "No tag was moved to this image. " if base else ""
        if all(": import " in problem.where for problem in problems):
            raise VerifyError(
                f"The image of {name} matches its lock, but some requested modules cannot be imported in it.",
                code="import-failed",
                problems=problems,
                hint=f"{tags}Add the libraries that are named above, or leave out the package, and run `envbuild make` again.",
            )
        raise VerifyError(
            f"The image of {name} does not match its lock.",
            problems=problems,
            hint=f"{tags}Build the image again with `envbuild build {tools.cli_name(name)} --no-cache`. If it still does "
            "not match, the lock or the recipe is wrong.",
        )
    proofs.prove_image(tools, build.read_record(tools.workspace, name), image, "verified", replayed=replayed)
    return Verified(report=known["report"], replayed=replayed, seconds=time.monotonic() - began)


def _rules(tools: Tools, lock: Lock) -> ImportRules:
    """Return the rules about imports.

    The rules come from a file, from the matrix, and from the recipes, which say which packages are ignored.
    """
    from packaging.utils import canonicalize_name

    from envbuild.verify import rules

    left_out = (name for each in lock.environment.frameworks for name in tools.recipes[each.recipe].ignore)
    ignored = frozenset(str(canonicalize_name(name)) for name in left_out)
    packages = user_recipe.packages_of_frameworks(tools)
    return replace(rules.load(tools.workspace.images), frameworks=packages, ignored=ignored)


def smoke_image(tools: Tools, lock: Lock, digest: str, image: str, options: SmokeOptions, *, replay: bool) -> Smoked:
    """Run the smoke test in the image.

    With ``replay``, the test is not run if there is a stored verdict for this image with the same lock, options and GPUs. Then
    the stored verdict is returned.
    """
    from envbuild import smoketest

    name = lock.environment.name
    key = _smoke_key(tools, digest, image, options)
    if replay and (stored := stored_verdict(tools, name, digest, image, options)) is not None:
        return stored
    try:
        outcome = smoketest.run(
            tools.engine,
            image,
            lock,
            options,
            tools.workspace.report_folder(name),
            tools.on_progress,
            reserve=lambda devices: _reserved(tools, devices),
        )
    except TimedOutError:  # the report of this test has replaced the report of the stored verdict
        stage_cache.forget(tools.workspace, name, "smoke")
        raise
    answer = {
        "status": outcome.status,
        "exit_code": outcome.exit_code,
        "sentence": outcome.sentence,
        "hint": outcome.hint,
        "paths": {kind: str(path) for kind, path in outcome.paths.items()},
        "report": _hash(outcome.paths),
    }
    if outcome.status == "error":
        stage_cache.forget(tools.workspace, name, "smoke")  # the test crashed, so the next run tries again
    else:
        stage_cache.keep(tools.workspace, name, "smoke", key, answer)
    smoked = _smoked(answer, replayed=False)
    if len(lock.environment.frameworks) == 1 or smoked.report.get(
        "parts"
    ):  # a test of only some frameworks proves nothing about the whole image
        _note_smoke(tools, name, digest, image, smoked)
    return smoked


def stored_verdict(tools: Tools, name: str, digest: str, image: str, options: SmokeOptions) -> Smoked | None:
    """Return the stored verdict of a smoke test with the same image, lock, options and GPUs; None if there is none."""
    known = stage_cache.recall(tools.workspace, name, "smoke", _smoke_key(tools, digest, image, options))
    return _stored(known) if known is not None else None


def _smoke_key(tools: Tools, digest: str, image: str, options: SmokeOptions) -> dict[str, Any]:
    from envbuild.host import nvidia

    return {
        "image": image,
        "lock": digest,
        "options": codec.encode(options),
        "gpus": [codec.encode(gpu) for gpu in nvidia.gpus()],
        **_circumstances(tools.engine.endpoint, options),
    }


def _circumstances(endpoint: str, options: SmokeOptions) -> dict[str, str]:
    """Return further facts that a verdict depends on: the driver, the address of a remote engine, and the training data."""
    from envbuild.host import nvidia

    driver = nvidia.driver()
    found = {
        "driver": driver.version if driver else "",
        "engine": "" if endpoint.startswith("unix://") else endpoint,
        "data": disk_cache.stamp([Path(options.data)])[0] if options.data else "",
    }
    return {name: value for name, value in found.items() if value}


@contextlib.contextmanager
def _reserved(tools: Tools, devices: Sequence[str]) -> Iterator[None]:
    """Hold the lock file of each device during the block.

    The lock files are taken in sorted order, so that two tests never wait for each other.
    """
    with contextlib.ExitStack() as held:
        for device in sorted(set(devices)):
            wait = as_news("smoke", tools.on_progress)
            held.enter_context(files.locked(tools.workspace.device_lock(device), wait))
        yield


def _stored(known: Mapping[str, Any]) -> Smoked | None:
    """Return the stored verdict; None if its report is gone or was replaced by the report of another test."""
    paths = {kind: Path(path) for kind, path in known["paths"].items()}
    if not all(path.exists() for path in paths.values()) or known.get("report") != _hash(paths):
        return None
    return _smoked(known, replayed=True)


def _hash(paths: Mapping[str, Path]) -> str:
    return files.sha256_of(paths["json"]) if "json" in paths else ""


def _smoked(answer: Mapping[str, Any], *, replayed: bool) -> Smoked:
    paths = {kind: Path(path) for kind, path in answer["paths"].items()}
    return Smoked(
        status=answer["status"],
        exit_code=answer["exit_code"],
        sentence=answer["sentence"],
        hint=answer["hint"],
        report=read_report(paths["json"]) if "json" in paths else {},
        paths=paths,
        replayed=replayed,
    )


def read_report(path: Path) -> dict[str, Any]:
    """Read a smoke report from a file that a user may have named.

    Raises :class:`InvalidInputError` if the file is not a smoke report.
    """
    hint = "To make one, run: envbuild smoke NAME"
    try:
        value = codec.loads(files.read_bytes(path))
    except (ValueError, OSError) as error:
        raise InvalidInputError(f"{path} is not a smoke report, because it cannot be read: {error}.", hint=hint) from error
    if not isinstance(value, dict) or "schema" not in value:
        raise InvalidInputError(f"{path} is not a smoke report.", hint=hint)
    return value


def _note_smoke(tools: Tools, name: str, digest: str, image: str, smoked: Smoked) -> None:
    from envbuild import build
    from envbuild.attest import signing
    from envbuild.pipeline import smoke_reports

    kind = evidence.kind_of_smoke(smoked.report)
    lacks = smoke_reports.untested(smoked.report) if smoked.status == "pass" else ""
    if lacks:
        message = f"this test of {name} proves nothing about the image, because it was not the whole test: {lacks}"
        tools.on_progress(Progress(stage="smoke", message=message, warning=True))
    elif smoked.status == "pass":
        gpus = evidence.gpus_of(smoked.report)
        proofs.prove_image(tools, build.read_record(tools.workspace, name), image, kind, gpus=gpus)
    elif smoked.status == "fail":
        proofs.contradict(tools, name, kind)
    elif smoked.status == "inconclusive" and signing.device(smoked.report) is not None:  # without a device, nothing was tried
        proofs.leave_open(tools, name, digest, kind, why=smoked.sentence)

"""Renews the locks of a checkout and renders them again. Records what changed, and which proofs are no longer valid."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from envbuild import codec, files
from envbuild.errors import EnvbuildError, InterruptedByUserError, UnknownNameError
from envbuild.model.progress import Progress
from envbuild.pipeline import committed, evidence, locking, proofs, rendering, resolving, stored_locks, upgrading
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools
from envbuild.updates import advisories
from envbuild.updates.advisories import Advisories
from envbuild.updates.model import KeptLock, RenewedLock, UpdateRequest

if TYPE_CHECKING:
    from packaging.version import Version

    from envbuild.lock.comparison import LockDifference
    from envbuild.model.lock import Lock
    from envbuild.model.vulnerabilities import Vulnerability
    from envbuild.pipeline.evidence import Evidence

_Told = tuple["tuple[Vulnerability, ...] | None", "tuple[Vulnerability, ...] | None"]
# Reasons why a vulnerability remains after the packages of a lock were upgraded.
_DOES_NOT_FIT = "no version that closes these advisories fits the other packages of the environment"
_NO_FIX = "no release closes these advisories"
_OWN = "these advisories are about the framework itself, whose version is in the name; lock an environment with a newer release"
_REMADE: tuple[evidence.Kind, ...] = ("locked", "rendered")  # the kinds of proof that an update makes itself


class Locks:
    """The locks in the scratch copy that ``tools`` use, and the changes that were made to these locks."""

    def __init__(self, tools: Tools, request: UpdateRequest, known: Advisories) -> None:
        self.tools = tools
        self.renewed: list[RenewedLock] = []
        self.kept: list[KeptLock] = []
        self._request = request
        self._known = known

    def names(self) -> list[str]:
        """Return the environments whose locks the request covers.

        Raises :class:`UnknownNameError` (``nothing-matches``) if no name matches the pattern of the request.
        """
        pattern = self._request.pattern
        names = [name for name in _locked_names(self.tools) if not pattern or fnmatchcase(name, pattern)]
        if pattern and not names:
            raise UnknownNameError(
                f"No environment matches {pattern!r}.",
                code="nothing-matches",
                hint="Put the pattern in quotes. `envbuild evidence --all` lists the names.",
            )
        return names

    def renew(self) -> None:
        """Renew the locks that the request's ``locks`` selects. A failure ends the update, unless ``keeps_going`` is set."""
        if self._request.locks == "none":
            return
        before = {name: _read(self.tools, name) for name in self.names()}
        self._known.look_up(before.values())
        for number, (name, lock) in enumerate(before.items()):
            self._say(name, number, len(before))
            try:
                if self._request.locks == "all":
                    self._apply(name, lock, upgrading.upgrade_environment(self.tools, lock.environment).difference)
                else:
                    self._secure(name, lock)
            except InterruptedByUserError:
                raise
            except EnvbuildError as error:
                if not self._request.keeps_going:
                    raise _about(error, name) from error
                self.kept.append(KeptLock(name=name, reason=error.message))

    def add(self, text: str) -> None:
        """Lock the environment to which the updated matrix resolves ``text``, unless this environment already has a lock."""
        name = resolving.resolve_buildable(self.tools, [text], Constraints()).environment.name
        if self.tools.workspace.lock_file(name).exists():
            return
        self._say(name, 0, 1)
        environment = resolving.resolve_buildable(self.tools, [text], Constraints()).environment
        try:
            lock = locking.lock_environment(self.tools, environment).lock
        except EnvbuildError as error:
            raise _about(error, name) from error
        _list(self.tools, name, f"the environment that {text} resolves to")
        self._apply(name, None, None, lock)

    def _secure(self, name: str, lock: Lock) -> None:
        """Upgrade the packages with known vulnerabilities to the lowest fixed versions.

        All these packages are upgraded together. If that is impossible, they are upgraded one after the other, as far as they
        fit. Advisories that are still open are recorded with the reason.
        """
        own = {canonicalize_name(framework.package) for framework in lock.environment.frameworks}
        least = {name: fix for name, fix in advisories.least_fixes(self._known.of(lock)).items() if name not in own}
        if least:
            self._upgrade(name, lock, least)
        now = _read(self.tools, name)
        self._known.look_up([now])
        remaining: dict[str, list[str]] = {}
        for each in self._known.of(now):
            reason = (
                _OWN if canonicalize_name(each.package) in own else _DOES_NOT_FIT if advisories.least_fixes([each]) else _NO_FIX
            )
            remaining.setdefault(reason, []).append(each.advisory)
        self.kept += [KeptLock(name=name, reason=reason, remaining=tuple(told)) for reason, told in sorted(remaining.items())]

    def _upgrade(self, name: str, lock: Lock, least: Mapping[str, Version]) -> None:
        path = self.tools.workspace.written_lock(name)
        original = path.read_bytes()
        fitting = [f"{package}=={version}" for package, version in sorted(least.items())]
        found = self._try(lock, original, fitting)
        if found is None:
            fitting = []
            for package, version in sorted(least.items()):
                for each in (f"{package}=={version}", f"{package}>{version}"):
                    if (tried := self._try(lock, original, [*fitting, each])) is not None:
                        fitting, found = [*fitting, each], tried
                        break
            found = self._try(lock, original, fitting) if fitting else None  # again, because the last attempt may have failed
        if found is not None and not found.empty:
            self._apply(name, lock, found)

    def _try(self, lock: Lock, original: bytes, wanted: Sequence[str]) -> LockDifference | None:
        """Upgrade the packages ``wanted`` in the original lock. If they do not fit, keep the original lock and return None."""
        files.write_atomic(self.tools.workspace.written_lock(lock.environment.name), original)
        try:
            return upgrading.upgrade_environment(self.tools, lock.environment, packages=wanted).difference
        except EnvbuildError as error:
            if error.code not in ("unsatisfiable", "unusable-lock"):
                raise
            return None

    def _apply(self, name: str, before: Lock | None, difference: LockDifference | None, after: Lock | None = None) -> None:
        """Render the changed lock, update its evidence, and record the changes."""
        if difference is not None and difference.empty:
            return
        held = _evidence(self.tools, name, before) if before is not None else None
        lock = after or _read(self.tools, name)
        rendering.render_environment(self.tools, lock)
        lost = _prove_again(self.tools, name, lock, held)
        closed, opened = self._advisories(before, lock)
        self.renewed.append(
            RenewedLock(
                name=name,
                difference=difference,
                size_before=_size(before) if before else 0,
                size_after=_size(lock),
                closed=closed,
                opened=opened,
                lost=lost,
                missing=tuple(gap.what for gap in lock.missing),
            )
        )

    def _advisories(self, before: Lock | None, after: Lock) -> _Told:
        """Return the advisories that apply only to the old lock, and the advisories that apply only to the new lock.

        Both are None if no advisories are looked up.
        """
        if not self._known.is_asked:
            return None, None
        self._known.look_up([*([before] if before else []), after])
        old = {(each.package, each.advisory): each for each in (self._known.of(before) if before else ())}
        new = {(each.package, each.advisory): each for each in self._known.of(after)}
        return tuple(old[key] for key in old if key not in new), tuple(new[key] for key in new if key not in old)

    def _say(self, name: str, done: int, total: int) -> None:
        self.tools.on_progress(Progress(stage="locks", message=name, done=done, total=total, unit="locks"))


def stale(tools: Tools) -> set[str]:
    """Return the names of locks that the matrix or the recipes do not accept."""
    return {name for name in _locked_names(tools) if not _is_accepted(tools, name)}


def _is_accepted(tools: Tools, name: str) -> bool:
    try:
        locking.require_lock(tools, name)
    except EnvbuildError:
        return False
    return True


def _locked_names(tools: Tools) -> list[str]:
    return [name for name in committed.names(tools) if tools.workspace.lock_file(name).is_file()]


def _read(tools: Tools, name: str) -> Lock:
    return stored_locks.read_lock(tools.workspace.lock_file(name))


def _size(lock: Lock) -> int:
    return sum(artifact.size or 0 for prefix in lock.prefixes for artifact in prefix.artifacts)


def _evidence(tools: Tools, name: str, before: Lock) -> Evidence:
    """Return the committed evidence that is valid for the earlier lock ``before`` and its rendering."""
    from envbuild import image_inputs
    from envbuild.lock import lock_file
    from envbuild.pipeline.evidence import Subject

    text = {path: content.encode() for path, content in rendering.render_text(tools, before).items()}
    subject = Subject(
        lock=lock_file.digest(before),
        rendering=image_inputs.rendering_digest(tools.workspace, None, text),
        guest=image_inputs.guest_digest(tools.workspace, before, tools.recipes_of(before.environment)),
    )
    return evidence.current(evidence.read(tools.workspace.committed_evidence(name), name), subject)


def _prove_again(tools: Tools, name: str, lock: Lock, held: Evidence | None) -> tuple[str, ...]:
    """Write the evidence of the changed lock, and return the kinds of proof that are no longer valid.

    The update itself makes two kinds of proof: that the lock pins every file, and that the files are the rendering of the lock.
    """
    subject = proofs.subject_of(tools, name)
    assert subject is not None, "the lock was written before"
    before = evidence.kinds(held) if held is not None else _REMADE
    path = tools.workspace.committed_evidence(name)
    now = evidence.current(evidence.read(path, name), subject)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    for kind in _REMADE:
        if kind in before and not (kind == "locked" and lock.missing):
            now = evidence.with_proof(now, evidence.proof(kind, subject, date=today, engine=""))
    evidence.write(path, now)
    return tuple(kind for kind in before if kind not in evidence.kinds(now)) if held is not None else ()


def _list(tools: Tools, name: str, reason: str) -> None:
    """Add the environment to the end of ``images/environments.yaml``, the list of committed environments."""
    path = tools.workspace.images / committed.FILE
    if name in committed.listed(tools.workspace) or not path.is_file():
        return
    text = files.read_text(path)
    files.write_atomic(path, f"{text.rstrip()}\n\n  {name}: {codec.dumps(reason).strip()}\n")
    committed.listed(tools.workspace)


def _about(error: EnvbuildError, name: str) -> EnvbuildError:
    error.message = f"{name}: {error.message}"
    error.details = (
        *error.details,
        "Nothing was changed, because an update is made as a whole. With --keep-going, such locks stay as they are.",
    )
    return error

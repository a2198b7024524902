"""``lock --upgrade``: chooses the pins of all or some packages again, and reports the changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envbuild.errors import InvalidInputError, UnknownNameError, UsageError
from envbuild.model.environment import Environment
from envbuild.model.lock import BaseLock, Lock, Missing
from envbuild.pipeline import debian_packages, locking, proofs, resolving, stored_locks
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from envbuild.lock.comparison import LockDifference


@dataclass(frozen=True, kw_only=True, slots=True)
class Upgraded:
    """A lock before and after the upgrade. ``outdated`` are the kinds of proof that are valid only for the old lock.

    ``base_kept`` says why the base could not be pinned again, or is empty.
    """

    before: Locked
    after: Locked
    difference: LockDifference
    base_kept: str
    outdated: tuple[str, ...]
    written: bool


def upgrade_environment(
    tools: Tools, environment: Environment, *, packages: Sequence[str] = (), base_image: bool = False, write: bool = True
) -> Upgraded:
    """Choose pins of ``environment`` again.

    With ``packages``, the pins of these packages are chosen again; with ``base_image``, the pin of the base. With neither, all
    pins are chosen again.

    ``packages`` are names or requirements. All other pins stay if they fit. A package with explicit bounds may be newer than
    the date limit, and so may the packages that it requires. The date limit applies to all other packages. The lock is written
    only if it has changed and ``write`` is true.

    Raises :class:`InvalidInputError` (``no-lock``) if there is no lock, :class:`UnknownNameError` for a package that is not
    pinned, and the errors of locking.
    """
    from envbuild.lock import comparison, lock_file, making

    before = stored_locks.read_locked(tools, environment.name)
    if before is None:
        raise InvalidInputError(
            f"{environment.name} has no lock to upgrade.",
            code="no-lock",
            hint=f"To make one, run `envbuild lock {tools.cli_name(environment.name)}` (it needs a package index).",
        )
    everything = not packages and not base_image
    inputs = locking.lock_inputs(tools, environment)
    base = _Base(before.lock, inputs.pin_base if everything or base_image else None)
    inputs = replace(inputs, pin_base=base.pin)
    if everything:
        lock = making.make(resolving.todays_decision(tools, environment) or environment, inputs)
    elif packages:
        lock = making.make(environment, inputs, like=before.lock, upgrading=_read(packages, before.lock))
    else:
        lock = base.repinned()
    if packages and not base_image:
        lock = replace(lock, apt=before.lock.apt, missing=lock.missing)
    lock = debian_packages.pinned(tools, lock) if not packages or base_image else debian_packages.completed(tools, lock)
    difference = comparison.compare(before.lock, lock)
    proved = proofs.held_kinds(tools, environment.name)
    if write and not difference.empty:
        locking.write_lock(tools, tools.workspace.written_lock(environment.name), lock)
    return Upgraded(
        before=before,
        after=before._replace(lock=lock, digest=lock_file.digest(lock), path=tools.workspace.written_lock(environment.name)),
        difference=difference,
        base_kept=base.kept,
        outdated=() if difference.empty else proved,
        written=write and not difference.empty,
    )


class _Base:
    """The pin of the base. The function ``ask`` makes a new pin. If ``ask`` is None or finds no pin, the old pin is used."""

    def __init__(self, lock: Lock, ask: Callable[[Environment], BaseLock | Missing] | None) -> None:
        self._lock = lock
        self._ask = ask
        self._gap = next((gap for gap in lock.missing if gap.what == f"base {lock.base.image}"), None)
        self.kept = ""

    def pin(self, environment: Environment) -> BaseLock | Missing:
        """Return the pin of the base of ``environment``, or an entry for the lock's ``missing`` with the reason."""
        held = self._gap or self._lock.base
        found = self._ask(environment) if self._ask else held
        if isinstance(found, Missing) and isinstance(held, BaseLock) and held.image == environment.base.image:
            self.kept = found.why
            return held
        return found

    def repinned(self) -> Lock:
        """Return the lock with the new pin of the base, and without any other change."""
        found = self.pin(self._lock.environment)
        if isinstance(found, Missing):
            return self._lock
        return replace(self._lock, base=found, missing=tuple(gap for gap in self._lock.missing if gap != self._gap))


def _read(packages: Sequence[str], lock: Lock) -> list[Requirement]:
    """Parse ``packages`` as requirements. Raises :class:`UnknownNameError` for a package that the lock does not pin."""
    import difflib

    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    pinned = sorted({artifact.name for prefix in lock.prefixes for artifact in (*prefix.artifacts, *prefix.build_artifacts)})
    found = []
    for text in packages:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise UsageError(
                f"--package must be a name or a requirement, not {text!r}: {error}.", hint="Such as: pillow==6.2.2"
            ) from error
        name = canonicalize_name(requirement.name)
        if name not in pinned:
            near = difflib.get_close_matches(name, pinned, n=3)
            raise UnknownNameError(
                f"The lock of {lock.environment.name} pins no package named {name}.",
                code="unknown-package",
                hint=f"Did you mean {' or '.join(near)}?" if near else "The file lock.json lists the pinned packages.",
                details=pinned,
            )
        found.append(requirement)
    return found

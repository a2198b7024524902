"""``envbuild lock NAME``: write a lock, which pins every file of an environment by its hash."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from envbuild import errors
from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted


@click.command("lock")
@options.naming("names", several=True, required=False, metavar="NAME…")
@click.option(
    "--check", is_flag=True, help="Only check that each lock exists and still agrees with the matrix. This needs no network."
)
@click.option(
    "--online", is_flag=True, help="With --check: also ask the package indexes whether each file still exists unchanged."
)
@click.option("--relock", is_flag=True, help="Make a new lock, even if a lock exists.")
@click.option(
    "--upgrade",
    is_flag=True,
    help="Choose new versions of all packages, or of those that --package names, and show what changes.",
)
@click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="X",
    help=("With --upgrade: upgrade only X and its dependencies. With X==1.2, this version may be newer than the date limit."),
)
@click.option(
    "--base-image",
    is_flag=True,
    help="With --upgrade: upgrade only the base image, or the base image and what --package names.",
)
@click.option("--dry-run", is_flag=True, help="With --upgrade: show what would change, and write nothing.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="All environments that have a folder in images/environments/ or are listed in images/environments.yaml.",
)
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], every: bool, **values: Any) -> int:
    """Pin the packages and the base of each NAME by hash, using only releases from before the date limit of the framework.

    An existing lock is kept. If it lacks hashes, they are added as soon as the index with these files can be reached.
    """
    asked = _Asked(**{name: values.pop(name) for name in _Asked._fields})
    _refuse_contradictions(asked)
    if every and asked.relock:
        raise errors.UsageError(
            "--relock cannot be combined with --all.", hint="Name the environments whose locks you want to make again."
        )
    if bool(names) == every:
        raise errors.UsageError("Name environments, or use --all.", hint="`envbuild list` shows the names.")
    if asked.check:
        from envbuild.cli import lock_check

        return lock_check.run(session, names, values, online=asked.online)
    return _upgrade(session, names, values, asked) if asked.upgrade else _lock(session, names, values, asked.relock)


class _Asked(NamedTuple):
    """The task of this command, as its options describe it."""

    check: bool
    online: bool
    relock: bool
    upgrade: bool
    packages: tuple[str, ...]
    base_image: bool
    dry_run: bool


def _refuse_contradictions(asked: _Asked) -> None:
    if sum((asked.check, asked.relock, asked.upgrade)) > 1:
        raise errors.UsageError("--check, --relock and --upgrade cannot be combined.", hint="Use one of them.")
    of_upgrades = {"--package": asked.packages, "--base-image": asked.base_image, "--dry-run": asked.dry_run}
    if not asked.upgrade and (given := [name for name, value in of_upgrades.items() if value]):
        raise errors.UsageError(f"{', '.join(given)} can only be used with --upgrade.", hint="Add --upgrade.")
    if asked.online and not asked.check:
        raise errors.UsageError("--online needs --check.", hint="Add --check.")


def _upgrade(session: Session, names: tuple[str, ...], constraints: dict[str, str | None], asked: _Asked) -> int:
    from envbuild.cli import lock_upgrade
    from envbuild.pipeline import committed, proofs, resolving, upgrading

    documents = []
    for name in names or committed.names(session.tools()):
        with display(session) as shown:
            tools = session.tools([name], on_progress=shown.news)
            resolution = resolving.resolve_buildable(tools, [name], options.chosen(constraints))
            upgraded = upgrading.upgrade_environment(
                tools,
                resolution.environment,
                packages=asked.packages,
                base_image=asked.base_image,
                write=not asked.dry_run,
            )
            if upgraded.written and not upgraded.after.lock.missing:
                proofs.prove_lock(tools, upgraded.after.lock.environment.name, upgraded.after.digest, "locked")
        lock_upgrade.tell(session, upgraded, tools.cli_name(upgraded.after.lock.environment.name))
        documents.append(lock_upgrade.document(upgraded))
    session.document({"schema": 1, "upgrades": documents})
    return 0


def _lock(session: Session, names: tuple[str, ...], constraints: dict[str, str | None], relock: bool) -> int:
    from envbuild import codec
    from envbuild.lock import cuda_mismatch
    from envbuild.pipeline import committed, locking, proofs, resolving

    documents = []
    tools = session.tools()
    for name in names or committed.kept(tools):
        with display(session) as shown:
            tools = session.tools([name], on_progress=shown.news).sharing(tools)
            resolution = resolving.resolve_buildable(tools, [name], options.chosen(constraints), anew=relock)
            environment = resolution.environment
            if relock:
                environment = resolving.todays_decision(tools, environment) or environment
            locked = locking.lock_environment(tools, environment, relock=relock)
            if not locked.lock.missing:
                proofs.prove_lock(tools, locked.lock.environment.name, locked.digest, "locked")
        lock = locked.lock
        wording.warnings(session, tuple(dict.fromkeys((*resolution.warnings, *cuda_mismatch.other_cuda(lock)))))
        count = sum(len(prefix.artifacts) for prefix in lock.prefixes)
        session.out(f"{lock.environment.name}: {counted(count, 'file')} pinned by sha256{' (kept)' if locked.kept else ''}")
        session.out(f"  {locked.path}")
        for missing in lock.missing:
            session.out(f"  not pinned: {missing.what}: {missing.why}")
        documents.append(
            {
                "name": lock.environment.name,
                "path": str(locked.path),
                "sha256": locked.digest,
                "kept": locked.kept,
                "files": count,
                "missing": codec.encode(lock.missing),
            }
        )
    session.document({"schema": 1, "locks": documents})
    return 0

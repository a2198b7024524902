"""``publish --release`` and ``publish --rollback``: move the tags of many images together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envbuild.cli import given_options
from envbuild.cli.batch_summary import Conclusion
from envbuild.cli.session import Session
from envbuild.errors import EnvbuildError, PublishError, UsageError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.pipeline.batch import Outcome
    from envbuild.pipeline.publishing import Destination
    from envbuild.pipeline.release_index import ReleasedImage
    from envbuild.pipeline.releases import ReleaseChange


def require_alone() -> None:
    """Raise :class:`UsageError` if ``--rollback`` was given with environments or with options that ``--rollback`` excludes."""
    others = given_options.others("repository", "key_file", "rollback", "dry_run")
    if others:
        raise UsageError(
            f"--rollback undoes the whole current release, so it cannot be combined with {', '.join(others)}.",
            hint="To see which tags would move, run: envbuild publish --rollback --to HOST/REPOSITORY --key FILE --dry-run",
        )


def conclude(outcomes: Sequence[Outcome], *, to: Destination, name: str, dry_run: bool) -> Conclusion:
    """If the registry has all images of the release, record the release and move its tags. With ``dry_run``, only say what
    would move."""
    from envbuild.pipeline import releases

    failed = [each for each in outcomes if each.state not in {"done", "kept"}]
    if failed:
        return Conclusion(error=_incomplete(name, failed, len(outcomes)))
    if not outcomes:
        return Conclusion()
    members: list[ReleasedImage] = []
    unknown: list[str] = []
    for each in outcomes:
        member = _member(each, dry_run=dry_run)
        if member is None:
            unknown.append(each.job.name)
        else:
            members.append(member)
    if unknown:
        missing = f"{len(unknown)} of {len(outcomes)} missing"
        line = f"release {name}: the tags would move when all of its images are there; {missing}"
        return Conclusion(document={"release": {"name": name, "repository": to.repository, "waits_for": unknown}}, lines=[line])
    try:
        change = releases.publish(to.repository, name, members, to.key, dry_run=dry_run)
    except EnvbuildError as error:
        return Conclusion(error=error)
    return Conclusion(document={"release": document(to.repository, change)}, lines=lines(change, dry_run=dry_run))


def _incomplete(name: str, failed: Sequence[Outcome], count: int) -> PublishError:
    """The error for a release of ``count`` images of which some are not published. The hint depends on the causes."""
    waiting = [each for each in failed if each.state in {"not started", "interrupted"}]
    wrong = [each for each in failed if each not in waiting]
    named = wrong or waiting
    names = ", ".join(each.job.name for each in named[:3]) + (", …" if len(named) > 3 else "")
    why = f"{len(named)} of {counted(count, 'image')} {'could not be' if wrong else 'are not'} published ({names})"
    if wrong and waiting:
        why += f", and {len(waiting)} {'was' if len(waiting) == 1 else 'were'} not tried"
    hints = []
    if any(each.state == "failed" for each in wrong):
        hints.append("Correct what failed, or release the other images only: name them, or use --match.")
    if any(each.state == "inconclusive" for each in wrong):
        hints.append("If a smoke test was inconclusive, use a machine with the devices that it needs, or --allow inconclusive.")
    return PublishError(
        f"The release {name} was not made, and no tag was moved: {why}.",
        code="release-incomplete",
        hint=" ".join(
            [*hints, "Then run the command again to continue." if hints else "Run the same command again to continue."]
        ),
    )


def roll_back(session: Session, repository: str, key: PublicKey, *, dry_run: bool) -> int:
    """Return to the release before the current one, and print which tags moved."""
    from envbuild.pipeline import releases

    change = releases.roll_back(repository, key, dry_run=dry_run)
    session.document({"schema": 1, "dry_run": dry_run, "release": document(repository, change)})
    for line in lines(change, dry_run=dry_run):
        session.out(line)
    return 0


def document(repository: str, change: ReleaseChange) -> dict[str, Any]:
    """Return the change of a release as JSON."""
    from envbuild import codec

    release = change.release
    return {
        "name": release.name, "repository": repository, "digest": release.digest, "previous": release.previous,
        "images": codec.encode(release.members), "moves": codec.encode(change.moves),
        "stays": [{"tag": tag, "why": why} for tag, why in change.stays],
        **({"lost": [{"tag": tag, "why": why} for tag, why in change.lost]} if change.lost else {}),
    }  # fmt: skip


def lines(change: ReleaseChange, *, dry_run: bool) -> list[str]:
    """Describe the change of a release: a line for each tag that moves, with its old and its new image."""
    verb = "would move" if dry_run else "moved"
    told = [
        f"  {verb}  {each.tag}  {_short(each.before) or 'new'} → {_short(each.after) or 'removed'}" for each in change.moves
    ]
    told += [f"  stays  {tag}  {why}" for tag, why in change.stays]
    told += [f"  {'would be lost' if dry_run else 'lost'}  {tag}  {why}" for tag, why in change.lost]
    release = change.release
    is_now = "would be" if dry_run and change.moves else "is"
    return [f"release {release.name} {is_now} the current release, with {counted(len(release.members), 'image')}", *told]


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _member(outcome: Outcome, *, dry_run: bool) -> ReleasedImage | None:
    """Return the image of one environment; None in a dry run if the image is not in the registry yet."""
    from envbuild.pipeline.release_index import ReleasedImage

    told = outcome.document
    if dry_run:
        would = told.get("would", {})
        if not told.get("nothing_to_do"):
            return None
        digest, tags = would["digest"], would["all_tags"]
    else:
        digest, tags = told["published"]["digest"], told["published"]["tags"]
    *moving, fixed = tags
    # Sorted, because the order depends on how the request names the environment.
    return ReleasedImage(name=str(told["name"]), digest=digest, fixed=fixed, tags=tuple(sorted(moving)))

"""Sentences with a count are right for one thing, too."""

from __future__ import annotations

import pytest

from envbuild.cli import audit, batch_display, batch_summary, lock_check, publish_release
from envbuild.cli.session import Session
from envbuild.model.progress import counted
from envbuild.model.vulnerabilities import Audit, Vulnerability
from envbuild.pipeline.batch import Job, Outcome


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 locks exist, and the matrix accepts them"),
        (1, "1 lock exists, and the matrix accepts it"),
        (2, "2 locks exist, and the matrix accepts them"),
    ],
)
def test_accepted_locks(count: int, text: str) -> None:
    assert lock_check.accepted_text(count) == text


@pytest.mark.parametrize(
    ("advisories", "checked", "text"),
    [
        (1, 1, "x: 1 advisory about 1 of 1 package, by 2 OSV records in db"),
        (2, 30, "x: 2 advisories about 1 of 30 packages, by 2 OSV records in db"),
    ],
)
def test_advisories(advisories: int, checked: int, text: str) -> None:
    found = Vulnerability(package="pillow", version="9.0", advisory="CVE-1", aliases=(), fixed_in=(), summary="")
    audited = Audit(database="2 OSV records in db", checked=checked, findings=(found,) * advisories, unchecked=())
    assert audit.audit_text("x", audited).splitlines()[0] == text


def test_a_noun_has_an_s_unless_there_is_one():
    assert [counted(count, "image") for count in (0, 1, 2)] == ["0 images", "1 image", "2 images"]


OUTCOMES = [
    Outcome(job=Job(name="a", request="a"), state="done", document={"name": "a", "would": {"make": True}}),
    Outcome(job=Job(name="b", request="b"), state="kept"),
]


def test_a_release_of_one_image_has_one():
    failed = [Outcome(job=Job(name="a", request="a"), state="failed", exit_code=9)]
    told = publish_release.conclude(failed, to=None, name="r1", dry_run=False)
    assert told.error is not None
    assert told.error.message == ("The release r1 was not made, and no tag was moved: 1 of 1 image could not be published (a).")


RELEASES = {
    "failed": (("failed", "not started", "not started"), "could not be published (a), and 2 were not tried.", "Correct what"),
    "no GPU": (("inconclusive", "done", "kept"), "could not be published (a).", "If a smoke test was inconclusive"),
    "stopped": (
        ("interrupted", "not started", "done"),
        "2 of 3 images are not published (a, b).",
        "Run the same command again",
    ),
}


@pytest.mark.parametrize("case", RELEASES)
def test_what_to_do_about_a_release_depends_on_the_causes(case):
    states, why, hint = RELEASES[case]
    outcomes = [Outcome(job=Job(name=name, request=name), state=state) for name, state in zip("abc", states, strict=True)]
    error = publish_release.conclude(outcomes, to=None, name="r1", dry_run=False).error
    assert error.message.endswith(why) and error.hint.startswith(hint) and error.hint.endswith("again to continue.")


def test_in_a_dry_run_nothing_is_done(capsys):
    told = batch_summary.Summary(verb="publish", outcomes=OUTCOMES, is_dry_run=True)
    assert batch_summary.tell(Session(), told, None) == 0
    out = capsys.readouterr().out
    assert "\npublish --dry-run: 1 planned, 1 kept, in 0.0 s\n" in out and " done" not in out
    told.is_dry_run = False
    batch_summary.tell(Session(), told, None)
    assert "\npublish: 1 done, 1 kept, in 0.0 s\n" in capsys.readouterr().out
    with batch_display.display_batch(Session(progress="plain"), 2, 1, is_dry_run=True) as shown:
        shown.started(OUTCOMES[0].job)
        shown.ended(OUTCOMES[0])
    assert "a: planned after 0.0 s (2 of 2)" in capsys.readouterr().err

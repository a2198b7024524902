"""The text of an update: plain, complete, and harmless whatever an index or a database says."""

from __future__ import annotations

from markdown_it import MarkdownIt

from envbuild.lock.comparison import LockDifference, PackageChange
from envbuild.matrix.online.waiting import Waiting
from envbuild.model.lock import Artifact
from envbuild.model.vulnerabilities import Vulnerability
from envbuild.updates import markdown
from envbuild.updates.model import Changes, KeptLock, NewRelease, RenewedLock

NOTHING = Changes(releases=(), waiting=(), left=(), locks=(), kept=(), stale=(), database="", unchecked=())


def artifact(name: str, version: str) -> Artifact:
    return Artifact(name=name, version=version, filename=f"{name}.whl", sha256="0" * 64, index="default", project=name, size=1)


def renewed(**changes: object) -> RenewedLock:
    change = PackageChange(
        prefix="p", role="package", kind="changed", name="alpha", before=artifact("alpha", "1"), after=artifact("alpha", "2")
    )
    difference = LockDifference(changes=(change,), base=(), decision=(), missing_added=(), missing_removed=())
    values = {
        "name": "tf-1", "difference": difference, "size_before": 1_500_000, "size_after": 2_500_000_000,
        "closed": (), "opened": (), "lost": (), **changes,
    }  # fmt: skip
    return RenewedLock(**values)  # type: ignore[arg-type]


def told(**changes: object) -> str:
    values = {name: getattr(NOTHING, name) for name in NOTHING.__slots__} | changes
    return markdown.page(Changes(**values), locks="all")


def test_titles_are_subjects_of_commits() -> None:
    locks = (renewed(), renewed(difference=None))
    releases = tuple(NewRelease(framework="f", version=str(number), file="f.yaml") for number in range(1000))
    made = Changes(**{**{name: getattr(NOTHING, name) for name in NOTHING.__slots__}, "releases": releases, "locks": locks})
    assert made.title == "Add 1000 releases, lock 1 environment, renew 1 lock" and len(made.title) <= 72
    assert markdown.message(made).splitlines()[:3] == [made.title, "", "f 0: a row with the status unknown"]


def test_a_lock_is_told_with_versions_sizes_and_lost_evidence() -> None:
    text = told(locks=(renewed(lost=("built", "smoke-cpu")),), database="toy records")
    assert "| `tf-1` | alpha 1 → 2 | 1.5 MB → 2.5 GB | 0 | 0 | built, smoke-cpu |" in text
    assert "By toy records" in text


def test_what_was_not_looked_up_is_never_zero() -> None:
    text = told(locks=(renewed(closed=None, opened=None),))
    assert "| not checked | not checked |" in text and "Not checked: no advisories were looked up." in text


def test_texts_from_elsewhere_are_no_markup() -> None:
    evil = "<img src=x>\n# head | [a](javascript:x) `b` @team *c*"
    advisory = Vulnerability(package=evil, version="1", advisory=evil, aliases=(), fixed_in=(), summary="")
    text = told(
        waiting=(Waiting(framework=evil, version=evil, reason=evil),),
        locks=(renewed(name=evil, closed=(advisory,)),),
        kept=(KeptLock(name=evil, reason=evil, remaining=(evil,)),),
        database=evil,
        unchecked=(evil,),
    )
    page = MarkdownIt().enable("table").render(text)
    assert "<img" not in page and "<a " not in page and "<em>" not in page
    assert page.count("<h1>") == 1 and "head" not in "".join(line for line in page.splitlines() if line.startswith("<h"))


def test_long_lists_are_counted() -> None:
    kept = KeptLock(name="tf-1", reason="why", remaining=tuple(f"CVE-{number}" for number in range(20)))
    assert "CVE-11 and 8 more" in told(kept=(kept,))

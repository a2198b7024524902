"""``envbuild matrix measure``: read from wheels what they need, and compare it with the matrix."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session
from envbuild.errors import EnvbuildError, InvalidInputError, Problem, UsageError

if TYPE_CHECKING:
    from envbuild.measure.comparison import Compared
    from envbuild.measure.measuring import Measured
    from envbuild.model import OnProgress


@click.command("measure")
@click.argument("targets", nargs=-1, metavar="FILE|PROJECT==VERSION…")
@click.option("--record", is_flag=True, help="Keep what was measured in matrix/measured/<project>.json.")
@click.option("--recorded", is_flag=True, help="Measure all wheels of matrix/measured again, from the package index.")
@click.option("--no-compare", is_flag=True, help="Only measure; do not compare with the matrix.")
@options.common
@click.pass_obj
def command(session: Session, /, targets: tuple[str, ...], record: bool, recorded: bool, no_compare: bool) -> int:
    """Read from wheels and shared libraries what they need: GPUs, libraries, glibc. Compare it with the matrix.

    A FILE is a wheel or a library on this machine, or the name of a wheel on the package index. PROJECT==VERSION means the
    wheel for the newest Python. Wheels of the index are not kept. Exit code 5: a file is damaged, or a row differs.
    """
    from envbuild.measure import answer, comparison, kept

    folder = session.workspace.root / "matrix" / "measured"
    if recorded:
        targets = (*targets, *(each["filename"] for each in kept.read(folder)))
    if not targets:
        raise UsageError("Nothing to measure is named.", hint="For example: envbuild matrix measure nvidia-nccl-cu12==2.21.5")
    measured, failures = _measure(session, targets)
    summaries = [answer.summary(each) for each in measured]
    changed = kept.keep(folder, summaries) if record else []
    matrix = None if no_compare else session.tools().matrix
    compared = [comparison.compare(matrix, each) if matrix is not None else [] for each in summaries]
    wrong = [_problem(each, summary) for summary, found in zip(summaries, compared, strict=True) for each in found
             if each.verdict == "differs"]  # fmt: skip
    for each, summary, found in zip(measured, summaries, compared, strict=True):
        session.out("\n".join([*_shown(summary, len(each.libraries)), *_verdicts(found)]) + "\n")
    if failures and len(targets) == 1:
        raise failures[0]
    if failures or wrong:
        raise InvalidInputError(
            _sentence(len(failures), len(wrong)),
            code="measured",
            problems=[*(Problem(where="", line=0, message=each.message) for each in failures), *wrong],
            hint="Correct the row, with the measured file as its source; or say in its note why the row is right.",
        )
    files = [{**answer.as_json(each), "compared": [one._asdict() for one in found]}
             for each, found in zip(measured, compared, strict=True)]  # fmt: skip
    session.document(
        {"schema": 1, "files": files, "recorded": [str(path.relative_to(folder.parent.parent)) for path in changed]}
    )
    return 0


def _measure(session: Session, targets: Sequence[str]) -> tuple[list[Measured], list[EnvbuildError]]:
    """What could be measured, and the errors of the others; a missing name or index ends the run."""
    from envbuild.cli.progress_display import display
    from envbuild.index.client import Index

    index = Index()
    measured: list[Measured] = []
    failures: list[EnvbuildError] = []
    session.workspace.downloads.mkdir(parents=True, exist_ok=True)
    with display(session) as shown, tempfile.TemporaryDirectory(dir=session.workspace.downloads, prefix=".measure-") as folder:
        for target in dict.fromkeys(targets):
            try:
                measured.append(_measure_one(index, target, Path(folder), shown.news))
            except InvalidInputError as error:
                failures.append(error)
    return measured, failures


def _measure_one(index: Any, target: str, folder: Path, on_progress: OnProgress) -> Measured:
    from envbuild.files import explain_os_error
    from envbuild.measure import measuring, published

    path = Path(target)
    if not path.is_file() and (path.is_dir() or "/" in target or target.endswith(".so")):
        raise UsageError(f"There is no file {target}.", hint="Give a wheel, a shared library, or PROJECT==VERSION.")
    try:
        if path.is_file():
            return measuring.measure(path, folder, on_progress)
        return published.measure_published(index, published.find(index, target), folder, on_progress)
    except OSError as error:
        raise explain_os_error(error, path) from error


def _problem(each: Compared, summary: Mapping[str, Any]) -> Problem:
    where, _, line = each.at.rpartition(":")
    message = (
        f"{each.framework} {each.version} ({each.variant}): {each.field} is {each.row}; "
        f"measured in {summary['filename']}: {each.measured}"
    )
    return Problem(where=where, line=int(line), message=message)


def _sentence(failures: int, wrong: int) -> str:
    parts = []
    if wrong:
        parts.append(f"the matrix differs from the measured files in {wrong} place{'s' if wrong > 1 else ''}")
    if failures:
        parts.append(f"{failures} file{'s' if failures > 1 else ''} could not be measured")
    text = ", and ".join(parts)
    return text[0].upper() + text[1:] + "."


def _shown(summary: Mapping[str, Any], libraries: int) -> list[str]:
    code = summary["gpu_code"]
    rows = [["sha256", summary["sha256"]]]
    if code is None:
        rows.append(["GPU code", "none"])
    else:
        rows.append(["GPU code", f"native {' '.join(code['native']) or 'none'}; PTX {' '.join(code['ptx']) or 'none'}"])
        rows.append(["", f"{code['certainty']}: {code['share']:.0%} of the containers that are not of CUDA's libraries"])
        others = sorted({each for one in code["lists"] for each in one["native"]} - set(code["native"]))
        if others:
            rows.append(["", f"other kernels in it also have {' '.join(others)}"])
    for name in ("glibc", "glibcxx", "cxxabi", "libcuda"):
        rows.append([name, summary[name] or "none"])
    rows += [["NCCL", f"{each['version']} for CUDA {each['cuda']}"] for each in summary["nccl"]]
    rows.append(["needs", " ".join(summary["needed"])])
    return [f"{summary['filename']}: {libraries} libraries", wording.columns(rows, indent="  ")]


def _verdicts(found: Sequence[Compared]) -> list[str]:
    if not found:
        return []
    head = ["VERDICT", "ROW", "BUILD", "FIELD", "MATRIX", "MEASURED", "AT"]
    rows = [
        [each.verdict, f"{each.framework} {each.version}", each.variant, each.field, each.row or "-", each.measured, each.at]
        for each in found
    ]
    return [wording.columns([head, *rows], indent="  ")]

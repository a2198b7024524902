"""``envbuild matrix measure``: read from the libraries inside wheels what they need, and compare it with the matrix."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session, describe
from envbuild.errors import (
    EnvbuildError,
    InterruptedByUserError,
    InvalidInputError,
    Problem,
    SmokeInconclusiveError,
    UsageError,
)

if TYPE_CHECKING:
    from envbuild.measure.comparison import Compared
    from envbuild.measure.measuring import Measured
    from envbuild.model.lock import Artifact
    from envbuild.model.progress import OnProgress


# The option ``--no-measure`` of the commands that add rows for new releases.
no_measure = click.option(
    "--no-measure",
    is_flag=True,
    help=(
        "Do not download and measure the wheels of new releases. GPU code and glibc are copied from other "
        "releases of the series instead."
    ),
)


@dataclass(kw_only=True)
class _Run:
    """The results of a run: ``measured`` files, ``written`` records, and ``failures`` with their targets.

    Each measurement in ``measured`` comes with a flag. The flag is true if the target came from a record in
    ``matrix/measured``.
    """

    measured: list[tuple[Measured, bool]] = field(default_factory=list)
    written: set[Path] = field(default_factory=set)
    failures: list[tuple[str, EnvbuildError]] = field(default_factory=list)


@click.command("measure")
@click.argument("targets", nargs=-1, metavar="FILE|PROJECT==VERSION…")
@click.option("--record", is_flag=True, help="Store the measurements in matrix/measured/PROJECT.json.")
@click.option("--replace", is_flag=True, help="With --record: replace a stored measurement of the same file that differs.")
@click.option(
    "--recorded",
    is_flag=True,
    help=(
        "Download all wheels of matrix/measured/ from the package index, measure them again, and compare with "
        "the stored measurements."
    ),
)
@click.option(
    "--locked",
    is_flag=True,
    help=(
        "Also measure the wheels with compiled code that committed locks pin, unless matrix/measured/ has them. A wheel must "
        "have the sha256 of the lock."
    ),
)
@click.option("--no-compare", is_flag=True, help="Only measure; do not compare with the matrix.")
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    targets: tuple[str, ...],
    *,
    record: bool,
    replace: bool,
    recorded: bool,
    locked: bool,
    no_compare: bool,
) -> int:
    """Read from wheels and shared libraries which GPUs, libraries and glibc they need. Compare these facts with the matrix.

    A FILE is a wheel or a library on this machine, or the name of a wheel on the package index. PROJECT==VERSION means the
    wheel of this version for the newest Python. Downloaded wheels are deleted afterwards. The exit code is 5 if a file is
    damaged, or if it differs from its row or from its stored measurement. The exit code is 10 if the matrix has no fact to
    compare with a file, or if it is unclear which GPU code is the framework's own. --no-compare, --recorded and --locked never
    give exit code 10.
    """
    from envbuild.measure import answer_json, comparison, measured_files
    from envbuild.pipeline import committed

    folder = session.workspace.measured
    stored = {each["filename"]: each for each in measured_files.read(folder)}
    known = stored if recorded else {}
    pinned = committed.compiled_wheels(session.tools()) if locked else {}
    missing = [name for name in pinned if name not in stored]
    wanted = dict.fromkeys([*((each, False) for each in (*targets, *missing)), *((each, True) for each in known)])
    if not wanted and locked:
        session.err("matrix/measured has all wheels with compiled code that committed locks pin.")
    elif not wanted:
        raise UsageError(
            "Name at least one file or project to measure.",
            hint="For example: envbuild matrix measure nvidia-nccl-cu12==2.21.5",
        )
    if replace and not record:
        raise UsageError("--replace can only be used with --record.", hint="Add --record, or leave --replace out.")
    keep = functools.partial(measured_files.keep, folder, replace=replace) if record else None
    run = _measure(session, list(wanted), pinned, keep)
    matrix = None if no_compare else session.tools().matrix
    files, wrong, outdated, undecided = [], [], [], False
    for each, is_recorded in run.measured:
        summary = answer_json.summary(each)
        found = comparison.compare(matrix, summary, list(stored.values())) if matrix is not None else []
        nothing = comparison.compared_with_nothing(matrix, summary, found) if matrix is not None else "--no-compare was given"
        wrong += [_problem(one, summary) for one in found if one.verdict == "differs"]
        undecided |= bool(nothing) or any(one.verdict == "unclear" for one in found)
        if is_recorded and not record:  # with --record, `measured_files.keep` has already compared the measurements
            outdated += _outdated(measured_files.path_of(folder, each.project), known[each.filename], summary)
        remark = [f"  not compared: {nothing}"] if nothing and matrix is not None else []
        session.out("\n".join([*_shown(summary, each), *_verdicts(found), *remark]) + "\n")
        files.append({**answer_json.as_json(each), "compared": [one._asdict() for one in found], "not_compared": nothing})
    if run.failures and len(wanted) == 1 and not files:
        raise run.failures[0][1]
    written = [str(path.relative_to(folder.parent.parent)) for path in sorted(run.written)]
    document = {"schema": 1, "files": files, "recorded": written}
    error = _refusal(run.failures, wrong, outdated)
    if error is not None:
        session.document({**document, "error": error.to_json()})
        session.failure(describe(error, session.options))
        return error.exit_code
    session.document(document)
    return SmokeInconclusiveError.exit_code if undecided and not (no_compare or recorded or locked) else 0


def _measure(
    session: Session,
    wanted: Sequence[tuple[str, bool]],
    pinned: Mapping[str, Artifact],
    keep: Callable[[list[Any]], list[Path]] | None,
) -> _Run:
    """Measure each target, and store the result at once, so that a later failure loses no result.

    ``wanted`` has pairs of a target and a flag. The flag is true if the target comes from a record; the target is then the file
    name of a wheel. ``pinned`` has the wheels in locks, by file name.
    """
    from envbuild.cli.progress_display import display
    from envbuild.index.client import Index
    from envbuild.measure import answer_json, published

    index, run = Index(), _Run()
    with display(session) as shown, published.room(session.workspace.downloads) as folder:
        for target, is_recorded in wanted:
            try:
                found = _measure_one(index, target, folder, shown.news, is_recorded)
                _require_pinned(found, pinned.get(target))
                run.measured.append((found, is_recorded))
                if keep is not None:
                    run.written.update(keep([answer_json.summary(found)]))
            except InterruptedByUserError:
                raise
            except EnvbuildError as error:
                run.failures.append((target, error))
    return run


def _measure_one(index: Any, target: str, folder: Path, on_progress: OnProgress, is_recorded: bool) -> Measured:
    from envbuild.files import explain_os_error
    from envbuild.measure import measuring, published

    path = Path(target)
    # A record is about a wheel on the package index, never about a file on this machine.
    is_file = path.is_file() and not is_recorded
    if path.is_dir() and not is_recorded:
        raise UsageError(f"{target} is a folder.", hint="Name a wheel or a shared library in it, or PROJECT==VERSION.")
    if not is_file and ("/" in target or target.endswith(".so")):
        raise UsageError(f"The file {target} does not exist.", hint="Name a wheel, a shared library, or PROJECT==VERSION.")
    try:
        if is_file:
            return measuring.measure(path, folder, on_progress)
        return published.measure_published(index, published.find(index, target), folder, on_progress)
    except OSError as error:
        raise explain_os_error(error, path) from error


def _require_pinned(measured: Measured, artifact: Artifact | None) -> None:
    """Raise :class:`InvalidInputError` if the wheel does not have the sha256 of ``artifact``. None allows each wheel."""
    if artifact is not None and measured.sha256 != artifact.sha256:
        raise InvalidInputError(
            f"It has the sha256 {measured.sha256}, but a lock pins {artifact.sha256}.",
            code="measured",
            hint="Find out why the index offers another file with this name before you trust it.",
        )


def _problem(each: Compared, summary: Mapping[str, Any]) -> Problem:
    where, _, line = each.at.rpartition(":")
    message = (
        f"{each.framework} {each.version} ({each.variant}): the row says {each.field} {each.row}, but "
        f"{summary['filename']} has {each.measured}"
    )
    return Problem(where=where, line=int(line), message=message)


def _outdated(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Problem]:
    from envbuild.measure import measured_files

    differences = measured_files.differing(old, new)
    message = f"measured again: {old['filename']} now has a different {', '.join(differences)}"
    return [Problem(where=f"matrix/measured/{path.name}", line=0, message=message)] if differences else []


def _refusal(
    failures: Sequence[tuple[str, EnvbuildError]], wrong: Sequence[Problem], outdated: Sequence[Problem]
) -> EnvbuildError | None:
    if not (failures or wrong or outdated):
        return None
    parts, hints = [], []
    if wrong:
        parts.append(f"the matrix differs from the measured files in {_number(wrong, 'place')}")
        hints.append("Correct the row, with the measured file as its source. If the row is right, give the reason in its note.")
    if outdated:
        parts.append(f"matrix/measured differs from the new measurement in {_number(outdated, 'entry', 'entries')}")
        hints.append("If the new measurement is right, save it with --record --replace.")
    if failures:
        parts.append(f"{_number(failures, 'target')} could not be measured or saved")
        hints += dict.fromkeys(error.hint for _, error in failures if error.hint)
    text = ", and ".join(parts)
    return InvalidInputError(
        text[0].upper() + text[1:] + ".",
        code="measured",
        problems=[*(Problem(where=target, line=0, message=error.message) for target, error in failures), *wrong, *outdated],
        hint=" ".join(hints[:3]),
    )


def _number(items: Sequence[object], one: str, several: str = "") -> str:
    return f"{len(items)} {one if len(items) == 1 else several or one + 's'}"


def _shown(summary: Mapping[str, Any], measured: Measured) -> list[str]:
    rows = [["sha256", summary["sha256"]], *_gpu_code(summary["gpu_code"])]
    for name in ("glibc", "glibcxx", "cxxabi", "libcuda"):
        rows.append([name, summary[name] or "none"])
    rows += [["NCCL", f"{each['version']} for CUDA {each['cuda'] or 'not stated'}"] for each in summary["nccl"]]
    rows += [["built with", f"{each['library']} {each['version']}, by {each['file']}"] for each in summary["built_with"]]
    rows.append(["processor", " ".join(summary["instruction_sets"]) or _no_instruction_sets(measured)])
    rows.append(["needs", " ".join(summary["needed"])])
    rows += [["note", each] for each in measured.notes]
    for each in measured.wrong_record:
        rows += [["wrong RECORD", each.file], ["", f"recorded {each.recorded}"], ["", f"contained {each.contained}"]]
    return [f"{summary['filename']}: {len(measured.libraries)} libraries", wording.columns(rows, indent="  ")]


def _no_instruction_sets(measured: Measured) -> str:
    """Say what was read, because all other code of the libraries may still need a newer processor."""
    if measured.unread:
        return "not known"
    count = sum(library.processor.functions for library in measured.libraries)
    return f"not known: {count} initialisers and the functions that they call use no more than x86-64; other code was not read"


def _gpu_code(code: Mapping[str, Any] | None) -> list[list[str]]:
    """The lines about GPU code. If libraries of the file are compiled for different GPUs, there is a line for each of them,
    because the GPUs of most kernels say nothing about the other libraries."""
    if code is None or not code["lists"]:
        return [["GPU code", "none" if code is None else "not known"]]
    libraries = code.get("libraries", ())
    differ = len({(*each["native"], "PTX", *each["ptx"]) for each in libraries}) > 1
    rows = [
        ["GPU code", f"{'most kernels: ' if differ else ''}{_gpus(code)}"],
        ["", f"{code['certainty']}: {code['share']:.0%} of the fat binaries that do not belong to CUDA's libraries"],
    ]
    if differ:
        return [*rows, *(["", f"{each['path']}: {_gpus(each)} ({each['certainty']})"] for each in libraries)]
    others = sorted({each for one in code["lists"] for each in one["native"]} - set(code["native"]))
    return [*rows, ["", f"other kernels in it also have {' '.join(others)}"]] if others else rows


def _gpus(code: Mapping[str, Any]) -> str:
    return f"native {' '.join(code['native']) or 'none'}; PTX {' '.join(code['ptx']) or 'none'}"


def _verdicts(found: Sequence[Compared]) -> list[str]:
    if not found:
        return []
    head = ["VERDICT", "ROW", "BUILD", "FIELD", "MATRIX", "MEASURED", "AT"]
    rows = [
        [each.verdict, f"{each.framework} {each.version}", each.variant, each.field, each.row or "-", each.measured, each.at]
        for each in found
    ]
    return [wording.columns([head, *rows], indent="  ")]

"""The host's side of the smoke test: start the guest in a container, fetch its report, check it, write the pages."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from envbuild import codec, files
from envbuild.errors import EngineError, SmokeFailedError, TimedOutError, UnknownNameError, UsageError
from envbuild.model.lock import Lock
from envbuild.model.progress import OnProgress, Progress, ignore_progress

if TYPE_CHECKING:
    from envbuild.engine.client import Engine
    from envbuild.engine.model import ImageInfo, RunResult

Status = Literal["pass", "fail", "inconclusive", "error"]
# A function that reserves the named devices: other smoke tests wait until the block ends.
Reserve = Callable[[Sequence[str]], contextlib.AbstractContextManager[None]]

COMMAND = "envbuild-smoke"
# The guest's report in the container. Every user can write to this folder. The folder is not a mount, so the report can be
# copied out of any engine, including a remote engine and an engine with user namespaces.
_ANSWER = "/tmp/envbuild-smoke.json"  # noqa: S108 - a path in the container
_DATA = "/data"  # a path in the container
BASELINE = "/tmp/envbuild-baseline.json"  # noqa: S108 - a path in the container
_FILES = {"json": "report.json", "html": "report.html", "markdown": "report.md", "junit": "junit.xml"}
_EXIT_OF_STATUS = {"pass": 0, "fail": 9, "inconclusive": 10, "error": 9}
_EXIT_OF_GUEST = {0: 0, 1: 9, 2: 2, 3: 10, 4: 9, 5: 9}
_LOG_LINES = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeOptions:
    """What to run. If a value is empty, the guest chooses the value.

    ``expect`` is the device that must have been used (``cpu`` or ``gpu``). ``gpus`` are indexes or UUIDs; if it is empty, the
    test uses all GPUs of the host, provided that the image can use GPUs. ``min_speedup`` (``N:RATIO``), ``min_efficiency``,
    ``scaling`` and ``sync`` are lists in the guest's syntax. ``arguments`` go to the guest as they are. ``timeout_s`` is the
    user's own limit for the whole test. ``data`` is a folder of this machine with files of MNIST or CIFAR-10. ``baseline`` is
    an earlier report. The files of ``data`` and this report are copied into the container.
    """

    counts: tuple[int, ...] = (1, 2)
    allow_cpu: bool = False
    expect: str = ""
    expect_gpus: int | None = None
    gpus: tuple[str, ...] = ()
    min_speedup: str = ""
    strict: bool = False
    workload: str = ""
    net: str = ""
    data: str = ""
    scaling: str = ""
    sync: str = ""
    min_efficiency: str = ""
    baseline: Path | None = None
    tolerance: float | None = None
    timeout_s: float | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeOutcome:
    """The verdict. ``exit_code`` is the exit code of envbuild (0, 9 or 10). ``paths`` has the report's files by format: json,
    html, markdown, junit."""

    status: Status
    exit_code: int
    sentence: str
    hint: str
    report: dict[str, Any]
    paths: dict[str, Path]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The values that all steps of one run of the guest share."""

    engine: Engine
    image: str
    info: ImageInfo
    lock: Lock
    options: SmokeOptions
    on_progress: OnProgress
    reserve: Reserve = lambda _devices: contextlib.nullcontext()


def run(  # noqa: PLR0917 - all stages have this signature
    engine: Engine,
    image: str,
    lock: Lock,
    options: SmokeOptions,
    folder: Path,
    on_progress: OnProgress = ignore_progress,
    *,
    reserve: Reserve = lambda _devices: contextlib.nullcontext(),
) -> SmokeOutcome:
    """Train in a container of ``image`` and write the report's files below ``folder``.

    ``reserve`` gets the names of the used devices, because two tests on one device would measure wrong speeds.

    A test that ran and failed, was inconclusive or crashed is an outcome, not an exception. Raises :class:`UsageError` if the
    guest refuses its arguments, :class:`SmokeFailedError` (``no-guest``) if the image has no guest, and :class:`TimedOutError`
    if the user's time limit passed. Before this last error, a report about the timeout is written. Ctrl-C leaves no container
    and no file.
    """
    info = engine.image(image)
    if info is None:
        raise UnknownNameError(
            f"The engine does not have the image {image}.", code="no-image", hint="To build it, run: envbuild build NAME"
        )
    trial = Trial(engine=engine, image=image, info=info, lock=lock, options=options, on_progress=on_progress, reserve=reserve)
    try:
        content = judge(trial, _run(trial))
    except TimedOutError as error:
        cause = f"The time limit of {options.timeout_s:g} s passed."
        write_reports(
            folder, _replacement(trial, cause, "Raise --timeout, or look at the log for what was slow.", error.details)
        )
        raise
    paths = write_reports(folder, content)
    return outcome_of(content, paths)


def outcome_of(content: dict[str, Any], paths: dict[str, Path]) -> SmokeOutcome:
    """Return the outcome of a report, with the report's files."""
    from envbuild.report import view

    verdict = view.verdict_of(content)
    sentence, hint = view.summary(content)
    return SmokeOutcome(
        status=verdict, exit_code=_EXIT_OF_STATUS[verdict], sentence=sentence, hint=hint, report=content, paths=paths
    )


def _run(trial: Trial) -> RunResult:
    gpus = gpus_to_use(trial)
    try:
        with trial.reserve(devices(trial.engine.endpoint, gpus)):
            return _start(trial, gpus)
    except EngineError as error:
        if error.code != "no-gpu-support" or not trial.options.allow_cpu:
            raise
        trial.on_progress(Progress(stage="smoke", message=f"{error.message} Going on without, as --allow-cpu says.", log=True))
        with trial.reserve(devices(trial.engine.endpoint, None)):
            return _start(trial, None)


def devices(endpoint: str, gpus: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the devices of a test: ``cpu``, or each GPU by its UUID. Devices of different machines have different
    names.

    The GPUs of another machine are not known here, so all of them share one name.
    """
    if not endpoint.startswith("unix://"):
        return (f"{'cpu' if gpus is None else 'gpus'}-{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}",)
    if gpus is None:
        return ("cpu",)
    from envbuild.host import nvidia

    known = nvidia.gpus()
    uuids = {str(gpu.index): gpu.uuid for gpu in known}
    return tuple(gpu.uuid for gpu in known) if gpus == "all" else tuple(uuids.get(gpu, gpu) for gpu in gpus)


def _start(trial: Trial, gpus: str | tuple[str, ...] | None) -> RunResult:
    def listen(line: str) -> None:
        trial.on_progress(Progress(stage="smoke", message=line, log=True))

    trial.on_progress(Progress(stage="smoke", message=f"starting {trial.image}" + (" with GPUs" if gpus else "")))
    try:
        return trial.engine.run(
            trial.info.id,
            [COMMAND, "run", *guest_arguments(trial.options)],
            env={"ENVBUILD_IMAGE": trial.image, "ENVBUILD_IMAGE_ID": trial.info.id, **_driver()},
            gpus=gpus,
            shm_size="1g",  # 64 MB, the default, is too little for collectives: https://github.com/NVIDIA/nccl/issues/290
            ulimits={"memlock": -1, "stack": 64 << 20},
            network="none",
            timeout_s=trial.options.timeout_s,
            collect=[_ANSWER],
            deliver={**_data(trial.options), **_baseline(trial.options)},
            on_line=listen,
        )
    except EngineError as error:
        if COMMAND in error.message and "not found" in error.message:  # the image has no init program of its own
            raise _no_guest(trial.image) from error
        raise


def _data(options: SmokeOptions) -> dict[str, Path]:
    """Return the data files to copy: path in the container → file on this machine. Raises UsageError if the user's folder has
    no file of a data set."""
    if not options.data:
        return {}
    from envbuild import datasets

    found = datasets.found(datasets.load(), Path(options.data))
    return {f"{_DATA}/{place}": path for place, path in found.items()}


def _baseline(options: SmokeOptions) -> dict[str, Path]:
    return {} if options.baseline is None else {BASELINE: options.baseline}


def guest_arguments(options: SmokeOptions) -> list[str]:
    """The guest's arguments for ``options``."""
    # The guest's own time limit must not pass before the user's limit: a test that exceeds the user's limit ends with exit code
    # 124.
    limit = "" if options.timeout_s is None else f"{options.timeout_s + 60:g}"
    pairs = (
        ("--counts", ",".join(map(str, options.counts))),
        ("--expect", options.expect),
        ("--expect-gpus", "" if options.expect_gpus is None else str(options.expect_gpus)),
        ("--min-speedup", options.min_speedup),
        ("--min-efficiency", options.min_efficiency),
        ("--scaling", options.scaling),
        ("--sync", options.sync),
        ("--baseline", "" if options.baseline is None else BASELINE),
        ("--tolerance", "" if options.tolerance is None else f"{options.tolerance:g}"),
        ("--workload", options.workload),
        ("--net", options.net),
        ("--data", _DATA if options.data else ""),
        ("--timeout", limit),
    )
    words = ["--json", _ANSWER]
    for flag, value in pairs:
        words += [flag, value] if value else []
    words += ["--allow-cpu"] if options.allow_cpu else []
    words += ["--strict"] if options.strict else []
    return [*words, *options.arguments]


def gpus_to_use(trial: Trial) -> str | tuple[str, ...] | None:
    """Return the GPUs to request from the engine. These are the GPUs that the user named or, by default, all GPUs of the host.

    Return None if the image cannot use GPUs, if the user expects the test to use the CPU, or if the host has no GPUs.
    """
    if trial.lock.environment.cuda is None or trial.options.expect == "cpu":
        return None
    if trial.options.gpus:
        return trial.options.gpus
    from envbuild.host import nvidia

    local = trial.engine.endpoint.startswith("unix://")
    return "all" if (bool(nvidia.gpus()) if local else trial.engine.info.gives_gpus) else None


def _driver() -> dict[str, str]:
    from envbuild.host import nvidia

    driver = nvidia.driver()
    return {"ENVBUILD_HOST_DRIVER": driver.version} if driver else {}


def judge(trial: Trial, result: RunResult) -> dict[str, Any]:
    """Return the guest's report if it is credible, else a report that says what happened. Without a credible report, the
    verdict is never a pass."""
    tail = result.output.splitlines()[-_LOG_LINES:]
    answer = next(iter(result.files.values()), None)
    if answer is None:
        if result.code == 2:
            # Only the last line says what is wrong; the lines before it are the usage message of the guest's command.
            raise UsageError(
                f"{COMMAND} refused its arguments: {' '.join(tail[-1:])}",
                hint="`envbuild smoke --help` says what may be given.",
            )
        if result.code in (126, 127) and COMMAND in result.output:  # exit codes of an init program that cannot find the command
            raise _no_guest(trial.image)
        return _replacement(trial, f"The smoke test left no report: {_cause(result)}.", _next_step(result), tail)
    content, problems = read_report(answer)
    if content is None or problems:
        cause = f"The smoke test's report is not valid: {'; '.join(problems)}."
        step = "The image may carry an older guest: build it again with this version of envbuild."
        return _replacement(trial, cause, step, tail)
    return _agreed(content, result, tail)


def _agreed(content: dict[str, Any], result: RunResult, lines: Sequence[str]) -> dict[str, Any]:
    """Return the report. If the report says pass but the guest ended with an error, change the report's status to the status
    that belongs to this error, and add a check that says so, and the last lines of output."""
    if content["status"] != "pass" or result.code == 0:
        return content
    status = {9: "fail", 10: "inconclusive"}.get(_EXIT_OF_GUEST.get(result.code, 1), "error")
    reason = f"The report says pass, but the guest {_cause(result)}."
    check = _check("inconclusive" if status == "inconclusive" else "fail", reason, _next_step(result))
    logs = {**content.get("logs", {}), "container": "\n".join(lines)}
    return {**content, "status": status, "reason": reason, "checks": [*content["checks"], check], "logs": logs}


def _cause(result: RunResult) -> str:
    if result.oom_killed:
        return "was killed: the container ran out of memory"
    if result.code > 128:
        try:
            name = signal.Signals(result.code - 128).name
        except ValueError:
            name = f"signal {result.code - 128}"
        return f"was killed by {name}"
    meaning = {4: " (a worker hung)", 5: " (warnings under --strict)"}.get(result.code, "")
    return f"ended with exit code {result.code}{meaning}"


def _next_step(result: RunResult) -> str:
    if result.oom_killed or result.code == 128 + signal.SIGKILL:
        return "Give the engine more memory, or train with fewer workers (--counts 1)."
    return "The last lines of its output are in the report."


def _no_guest(image: str) -> SmokeFailedError:
    return SmokeFailedError(
        f"{image} carries no smoke test ({COMMAND} is not in it).",
        code="no-guest",
        hint="Only images that envbuild built carry it: `envbuild build NAME`.",
    )


def read_report(data: bytes) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the report in ``data``, and a list of the places where it violates its schema."""
    import jsonschema

    try:
        content = codec.loads(data)
    except ValueError as error:
        return None, [f"not JSON ({error})"]
    schema = json.loads(resources.files("envbuild.schemas").joinpath("smoke-report.json").read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    problems = sorted(validator.iter_errors(content), key=lambda problem: problem.json_path)
    said = [f"{problem.json_path}: {problem.message[:200]}" for problem in problems[:5]]
    return (content if isinstance(content, dict) else None), said


def _replacement(trial: Trial, cause: str, step: str, lines: Sequence[str]) -> dict[str, Any]:
    """Make a report for a test that wrote no report. The verdict is error, the only check names the cause, and the report has
    the last lines of output."""
    return {
        "schema": "envbuild-smoke/1",
        "status": "error",
        "exit_code": 1,
        "reason": cause,
        "started_utc": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "environment": {"name": trial.lock.environment.name},
        "image": {"ref": trial.image, "id": trial.info.id},
        "checks": [_check("fail", cause, step)],
        "runs": [],
        "training": [],
        "logs": {"container": "\n".join(lines)},
    }


def _check(status: str, cause: str, step: str) -> dict[str, Any]:
    """The check of this module: whether the guest's report can be believed."""
    return {
        "id": "REPORT",
        "title": "the smoke test reports what it found",
        "n": None,
        "status": status,
        "severity": "fail",
        "value": None,
        "limit": None,
        "unit": "",
        "message": cause,
        "next_step": step,
        "detail": {},
    }


def write_reports(folder: Path, content: Mapping[str, Any]) -> dict[str, Path]:
    """Write the report in all formats. JSON is written last: if the JSON file exists, the other files exist, too."""
    from envbuild.report import html_page, junit_xml, markdown_page

    pages = {
        "html": html_page.html(content),
        "markdown": markdown_page.markdown(content),
        "junit": junit_xml.junit(content),
        "json": json.dumps(content, indent=2, allow_nan=False) + "\n",
    }
    paths = {kind: folder / name for kind, name in _FILES.items()}
    # Remove the old JSON file first: if this process is killed between two files, new pages must not be next to an old report.
    paths["json"].unlink(missing_ok=True)
    for kind, page in pages.items():
        files.write_atomic(paths[kind], page)
    return paths

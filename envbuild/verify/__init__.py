"""Compares an image with its lock, and lists all differences at once.

A script of envbuild (``smoke/contents.py``) reads the image. It runs on the image's system Python and imports no installed
package. Some things cannot be compared directly. What is compared instead:

- Wheels: the lock has the sha256 of each wheel, but an installed wheel no longer exists as a file. So names and versions are
  compared with the lock. Files are compared with the hashes in RECORD, which comes from the wheel. A RECORD that was forged
  together with its files is not detected.
- A wheel's file that has no SHA-256 or stronger hash in RECORD is noted, and not compared. Such files are common, because
  installers add lines without a hash for files that the wheel's own RECORD lacks.
- A package built from source has no wheel in the lock. Its version is compared with the lock. Its files are compared with the
  RECORD that its build wrote.
- Bytecode next to a recorded source was compiled in the image. Only the source is compared.
- System packages are compared by exact version if the lock has versions. Their files are compared with dpkg's own checksums
  (MD5), which do not include configuration files.
- An interpreter or a CUDA that the build unpacked is compared with a list. The build step that installed the files wrote this
  list (see ``unpackaged_files``). Files that the build compiled outside of any package are compared with such a list, too.
- A few publishers changed a file after RECORD was written. Such a file is compared with the hash that is known from the
  publisher's wheel (see ``misrecorded``).
- METADATA and WHEEL of a locked wheel may differ from its RECORD, because publishers edit them. The name and version in them
  are compared with the lock.
- No file may be setuid or setgid or have capabilities, whether it came with the base or with a package.
- Credentials, keys and proxies are searched for in the places where programs store them. The addresses of this machine's
  proxies, package indexes and mirrors are searched for in all files.
- If a framework needs the NVIDIA driver for its import, and this machine has no driver, the framework's version is not
  compared. The report notes this.
- The modules of frameworks, and of packages that a user's recipe names, are imported as the image's user: see ``imports``.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.errors import EngineError, UnknownNameError
from envbuild.model.environment import Framework
from envbuild.model.lock import Lock
from envbuild.model.progress import OnProgress, Progress, ignore_progress
from envbuild.report.values import text
from envbuild.verify import comparisons, framework_facts, imports, misrecorded, unpackaged_files
from envbuild.verify.findings import Findings, VerifyReport
from envbuild.verify.leaks import search
from envbuild.verify.rules import ImportRules
from envbuild.wrong_records import WrongRecord

if TYPE_CHECKING:
    from envbuild.engine.client import Engine
    from envbuild.engine.model import ImageInfo

_SCRIPT = Path(__file__).parents[1] / "smoke" / "contents.py"
_ANSWER = "/tmp/envbuild-contents.json"  # noqa: S108 - a path in the container
_PROBE = "/tmp/envbuild-probe.json"  # noqa: S108
_NEEDED = ("/usr/local/bin/envbuild-smoke", "/opt/envbuild/smoke/__main__.py")
_NEEDED_OF_SEVERAL = ("/usr/local/bin/envbuild-use", "/opt/envbuild/smoke/use.sh", "/opt/envbuild/prefixes")


def verify(
    engine: Engine,
    lock: Lock,
    image: str,
    on_progress: OnProgress = ignore_progress,
    *,
    secrets: Mapping[str, str] | None = None,
    base: str | None = None,
    rules: ImportRules | None = None,
    wrong_records: Sequence[WrongRecord] = (),
) -> VerifyReport:
    """Compare ``image`` with ``lock``, file by file. Differences are not raised as errors; the report lists them.

    ``secrets`` maps names to strings (see :func:`leaks.secret_strings`). These strings must not occur in any layer. If there
    are secrets, the whole image is searched. ``base`` is the image from which ``image`` was built; it is needed only if the
    engine does not have this base under the name in the lock. Keys and settings in the base are not reported. ``rules`` list
    modules that are not imported, and the system package of each library. ``wrong_records`` are the known errors in the RECORD
    of any wheel.
    """
    started = time.monotonic()
    info = engine.image(image)
    if info is None:
        raise UnknownNameError(
            f"The engine does not have the image {image}.", code="no-image", hint="To build it, run: envbuild build NAME"
        )
    found = Findings()
    comparisons.compare_configuration(lock, info, found)
    told = _look(engine, lock, info, found, on_progress)
    layers = unpackaged_files.Layers({})
    if told is not None:
        layers = _compare_lists(lock, told, found)
        comparisons.compare_paths(lock, told, found)
        hash_files = functools.partial(misrecorded.hashes, engine, lock, info)
        misrecorded.accept(lock, told, wrong_records, hash_files, found)
        for prefix in lock.prefixes:
            comparisons.compare_prefix(lock, prefix, told["prefixes"].get(prefix.path) or {}, found)
        comparisons.compare_packages(lock, told, found)
        below = _base(engine, lock, info, base)
        comparisons.compare_rights(told, found)
        comparisons.compare_secrets(told, _in_base(engine, below, [item["path"] for item in told["secrets"]]), found)
    said = list(ask_frameworks(engine, lock, info, found, on_progress)) if told is not None else []
    if told is not None:
        trial = imports.ImportTrial(
            engine=engine,
            lock=lock,
            info=info,
            rules=rules or ImportRules(),
            on_progress=on_progress,
            with_gpus=_with_gpus(engine, lock),
        )
        imports.check(trial, found)
    search(engine, info, secrets or {}, layers, found, on_progress)
    return VerifyReport(
        name=lock.environment.name,
        image=info.id,
        quick=False,
        seconds=round(time.monotonic() - started, 3),
        problems=tuple(found.problems),
        notes=tuple(found.notes),
        counts=found.counts,
        framework=said[0] if said else {},
        others=tuple(said[1:]),
    )


def _look(engine: Engine, lock: Lock, info: ImageInfo, found: Findings, on_progress: OnProgress) -> dict[str, Any] | None:
    """Return the answer of the script, which runs as root. If the image's Python cannot run the script, add a difference and
    return None."""
    python = lock.environment.python.executable
    paths = [*_NEEDED, *(f"{prefix.path}/bin/python" for prefix in lock.prefixes)]
    paths += _NEEDED_OF_SEVERAL if len(lock.prefixes) > 1 else ()
    wanted = [*paths, lock.environment.system.init] if lock.environment.system.init else paths
    config = {"out": _ANSWER, "prefixes": [p.path for p in lock.prefixes], "quick": False, "paths": wanted}

    def listen(line: str) -> None:
        words = line.split()
        if len(words) == 3 and words[0] == "progress" and words[1].isdigit() and words[2].isdigit():
            done, total = float(words[1]), float(words[2])
            on_progress(Progress(stage="verify", message="comparing files", done=done, total=total, unit="bytes"))

    on_progress(Progress(stage="verify", message=f"reading the files of {lock.environment.name}"))
    kept = {name: f"{unpackaged_files.FOLDER}/{name}" for name in unpackaged_files.candidates(lock)}
    program = ["-S", "-s", "-E", "-B", "-c", _SCRIPT.read_text(encoding="utf-8"), json.dumps(config)]
    try:
        result = engine.run(
            info.id,
            program,
            entrypoint=[python],
            user="0:0",
            network="none",
            collect=[_ANSWER, comparisons.LOCK, *kept.values()],
            on_line=listen,
        )
    except EngineError as error:
        _unusable(error, python, found)
        return None
    comparisons.compare_lock(lock, result.files.get(comparisons.LOCK), found)
    answer = result.files.get(_ANSWER)
    if result.code or answer is None:
        said = " ".join(result.output.split()[-40:])
        found.wrong(python, f"cannot list the contents of the image (exit code {result.code}): {said}")
        return None
    told: dict[str, Any] = json.loads(answer)
    told["lists"] = {name: unpackaged_files.parse(result.files[path]) for name, path in kept.items() if path in result.files}
    return told


def _compare_lists(lock: Lock, told: dict[str, Any], found: Findings) -> unpackaged_files.Layers:
    """Check that the required lists exist. Remove the files that these lists name from the unrecorded files in ``told``. The
    returned object later compares the files in the layers with the lists."""
    from packaging.utils import canonicalize_name

    names = {
        path: [str(canonicalize_name(one["name"])) for one in about["distributions"]]
        for path, about in told["prefixes"].items()
    }
    wanted = unpackaged_files.expected(lock, names)
    parsed: dict[str, unpackaged_files.FileList] = {name: content for name, content in told["lists"].items() if name in wanted}
    unpackaged_files.compare_presence(wanted, parsed, found)
    for about in told["prefixes"].values():
        about["unrecorded"] = [path for path in about["unrecorded"] if not any(path in one for one in parsed.values())]
    return unpackaged_files.Layers(parsed)


def _unusable(error: EngineError, where: str, found: Findings) -> None:
    """If the engine refused to start a program of the image, add a difference. If the engine itself failed, raise ``error``."""
    if error.code != "refused":
        raise error
    found.wrong(where, f"cannot be started: {error.message}")


def _base(engine: Engine, lock: Lock, info: ImageInfo, base: str | None) -> ImageInfo | None:
    """The base from which this image was made; None if the engine does not have this base."""
    pinned = f"{lock.base.image}@{lock.base.digest}" if lock.base.digest else ""
    candidates = (engine.image(reference) for reference in (base, pinned, lock.base.image) if reference)
    return next((each for each in candidates if each and info.layers[: len(each.layers)] == each.layers), None)


def _in_base(engine: Engine, base: ImageInfo | None, paths: Sequence[str]) -> list[str]:
    """Those of ``paths`` that also exist in the base. They are not reported, because they came with the base."""
    if base is None or not paths:
        return []
    look = 'for path; do if [ -e "$path" ]; then echo "has $path"; fi; done'
    result = engine.run(base.id, ["-c", look, "sh", *paths], entrypoint=["/bin/sh"], user="0:0", network="none")
    return [line.removeprefix("has ") for line in result.output.splitlines() if line.startswith("has ")]


def _with_gpus(engine: Engine, lock: Lock) -> bool:
    """Whether the image is for GPUs, the engine runs on this machine, and this machine has GPUs."""
    from envbuild.host import nvidia

    return lock.environment.cuda is not None and engine.endpoint.startswith("unix://") and bool(nvidia.gpus())


def ask_frameworks(
    engine: Engine, lock: Lock, info: ImageInfo, found: Findings, on_progress: OnProgress
) -> Iterator[dict[str, str]]:
    """Import each framework in the image. Yield what each framework reports about its version and build."""
    with_gpus = _with_gpus(engine, lock)
    for framework in lock.environment.frameworks:
        on_progress(Progress(stage="verify", message=f"asking {framework.name} for its version"))
        told = _ask(engine, lock, info, framework, found, with_gpus=with_gpus)
        if told:
            framework_facts.compare_framework(lock, framework, told, found)
        yield {key: text(value) for key, value in told.items() if text(value)}


def _ask(
    engine: Engine, lock: Lock, info: ImageInfo, framework: Framework, found: Findings, *, with_gpus: bool
) -> dict[str, Any]:
    where = framework_facts.named(lock, framework) if len(lock.environment.frameworks) > 1 else "framework"
    which = ["--framework", framework.name] if len(lock.environment.frameworks) > 1 else []
    try:
        result = engine.run(
            info.id,
            ["envbuild-smoke", "probe", "--json", _PROBE, *which],
            gpus="all" if with_gpus else None,
            network="none",
            collect=[_PROBE],
        )
    except EngineError as error:
        _unusable(error, where, found)
        return {}
    answer: dict[str, Any] = json.loads(result.files.get(_PROBE, b"{}"))
    told: dict[str, Any] | None = answer.get("framework")
    if not told:
        said = str(answer.get("error") or "") or " ".join(result.output.split()[-60:])
        if lock.environment.cuda is not None and not with_gpus and "libcuda.so" in said:
            who = framework.name if which else "the framework"
            found.notes.append(f"not checked: {who} needs the NVIDIA driver, and this machine has none")
        else:
            found.wrong(where, f"cannot be started (exit code {result.code}): {said}")
    return told or {}

"""Imports the requested packages in the image, as the image's user. The requested packages are the frameworks, and the packages
under ``pip:``.

Each module is imported in a separate process without a network. Several processes run at the same time (see
``smoke/imports.py``). Modules that need a GPU, or that are not meant to be imported, are not checked. The report has a note
about each module that is not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.errors import EngineError
from envbuild.model.lock import Lock, Prefix
from envbuild.model.progress import OnProgress, Progress
from envbuild.verify import requirements
from envbuild.verify.findings import Findings
from envbuild.verify.rules import ImportRules

if TYPE_CHECKING:
    from envbuild.engine.client import Engine
    from envbuild.engine.model import ImageInfo

_SCRIPT = Path(__file__).parents[1] / "smoke" / "imports.py"
_ANSWER = "/tmp/envbuild-imports.json"  # noqa: S108 - a path in the container
_LIMIT_S = 300  # seconds; the slowest import seen, of a framework from a slow disk on two cores, took one minute
_WORKERS = 4  # imports at the same time; each may need a gigabyte of memory
_MISSING = re.compile(r"(?P<library>[^\s:'\"]+\.so[.\d]*): cannot open shared object file")
_ERROR = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")
_SHOWN_LIBRARIES = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportTrial:
    """The image whose modules are imported, and the rules for judging the imports. ``with_gpus`` is true if the containers of
    the image get GPUs."""

    engine: Engine
    lock: Lock
    info: ImageInfo
    rules: ImportRules
    on_progress: OnProgress
    with_gpus: bool


def check(trial: ImportTrial, found: Findings) -> None:
    """In each prefix, import the requested packages. Also compare the installed packages with each other's requirements."""
    for prefix in trial.lock.prefixes:
        told = _ask(trial, prefix, found)
        if told is not None:
            compare_imports(
                trial.lock, prefix, told, replace(trial.rules, without_gpu=()) if trial.with_gpus else trial.rules, found
            )
            requirements.compare_requirements(trial.lock, prefix, told, trial.rules, found)


def asked_for(lock: Lock, prefix: Prefix) -> list[str]:
    """The projects (canonical names) of one prefix that were requested by name: frameworks, and projects under ``pip:``.

    Their dependencies are not listed, because the requested projects themselves import them.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    environment = lock.environment
    ours = [each for each in environment.frameworks if each.name in prefix.frameworks]
    names = [each.package for each in ours]
    names += [Requirement(text).name for text in (environment.custom.requirements() if environment.custom else ())]
    locked = {str(canonicalize_name(artifact.name)) for artifact in prefix.artifacts}
    built = {str(canonicalize_name(each.package)) for each in ours if each.options.get("repository")}
    return [name for name in dict.fromkeys(str(canonicalize_name(name)) for name in names) if name in locked | built]


def _ask(trial: ImportTrial, prefix: Prefix, found: Findings) -> dict[str, Any] | None:
    """Run the script in the image, and return its answer. If the script cannot run, add a difference and return None."""

    def listen(line: str) -> None:
        words = line.split()
        if len(words) == 3 and words[0] == "progress" and words[1].isdigit() and words[2].isdigit():
            done, total = float(words[1]), float(words[2])
            trial.on_progress(Progress(stage="verify", message="importing modules", done=done, total=total, unit="modules"))

    wanted = asked_for(trial.lock, prefix)
    skip = [[pattern, rule.reason] for rule in trial.rules.skip for pattern in rule.modules]
    config = {"out": _ANSWER, "wanted": wanted, "skip": skip, "limit_s": _LIMIT_S, "workers": _WORKERS}
    where = f"{prefix.path}: imports"
    trial.on_progress(Progress(stage="verify", message=f"importing {', '.join(wanted) or 'nothing'} from {prefix.path}"))
    try:
        result = trial.engine.run(
            trial.info.id,
            [*_python(trial.lock, prefix), "-c", _SCRIPT.read_text(encoding="utf-8"), json.dumps(config)],
            gpus="all" if trial.with_gpus else None,
            network="none",
            collect=[_ANSWER],
            on_line=listen,
        )
    except EngineError as error:
        if error.code != "refused":
            raise
        found.wrong(where, f"the imports cannot be tested: {error.message}")
        return None
    answer = result.files.get(_ANSWER)
    if result.code or answer is None:
        said = " ".join(result.output.split()[-40:])
        found.wrong(where, f"the imports cannot be tested (exit code {result.code}): {said}")
        return None
    told: dict[str, Any] = json.loads(answer)
    return told


def _python(lock: Lock, prefix: Prefix) -> list[str]:
    """The command that starts a prefix's Python as a user would start it, with the variables that its frameworks need."""
    several = len(lock.prefixes) > 1
    return ["envbuild-use", Path(prefix.path).name, "python"] if several else [f"{prefix.path}/bin/python"]


def compare_imports(lock: Lock, prefix: Prefix, told: Mapping[str, Any], rules: ImportRules, found: Findings) -> None:
    """Judge every import that was tried. A failed import is a difference, which names the missing libraries and their
    packages."""
    system = lock.environment.system.name
    lacking: dict[str, set[str]] = {}
    for each in told["libraries"]:
        if not rules.is_of_the_driver(each["library"]):
            lacking.setdefault(each["distribution"], set()).add(each["library"])
    failed: set[str] = set()
    for each in told["modules"]:
        message = _judge(each, lacking.get(str(each["distribution"]), set()), system, rules, found)
        if message:
            failed.add(str(each["distribution"]))
            advice = _advice(str(each["distribution"]), lock, rules)
            found.wrong(f"{prefix.path}: import {each['module']} ({each['distribution']})", message + advice)
    for name in sorted(lacking.keys() - failed):
        lacks = _named(lacking[name], system, rules)
        found.notes.append(f"{name}: some of its modules need libraries that are not in the image: {lacks}")
    _note_unchecked(prefix, told, found)


def _judge(each: Mapping[str, Any], lacking: set[str], system: str, rules: ImportRules, found: Findings) -> str:
    """Return a description of a failed import, or an empty text if the import succeeded. If this machine cannot test the
    import, add a note and return an empty text."""
    said = str(each["said"])
    if each["outcome"] == "ok":
        found.count("imported", 1)
        return ""
    if each["outcome"] == "timeout":
        return f"does not end within {_LIMIT_S} s"
    reason = rules.without_gpu_reason(said)
    if reason:
        found.notes.append(f"not checked: import {each['module']} ({each['distribution']}): {reason}")
        return ""
    libraries = {match["library"] for match in _MISSING.finditer(said)} | lacking
    return _failure(each["code"], said, sorted(libraries), system, rules)


def _note_unchecked(prefix: Prefix, told: Mapping[str, Any], found: Findings) -> None:
    for each in told["skipped"]:
        found.notes.append(f"not checked: import {each['module']} ({each['distribution']}): {each['reason']}")
    for name in told["without"]:
        found.notes.append(f"not checked: {name} has no modules to import")
    for name in told["absent"]:
        found.notes.append(f"not checked: {name} is not installed as a package of {prefix.path}")


def _failure(code: int, said: str, libraries: list[str], system: str, rules: ImportRules) -> str:
    ended = f"killed by signal {-code}" if code < 0 else _telling_line(said) or f"ended with exit code {code}"
    return f"failed: {ended}" + (f". Missing libraries: {_named(libraries, system, rules)}" if libraries else "")


def _telling_line(said: str) -> str:
    """The line of an import's output that states the reason for the failure. It is not always the last line, because packages
    write advice after the error."""
    lines = [line.rstrip() for line in said.splitlines() if line.strip()]
    for pattern in (_MISSING, _ERROR):
        found = [line.strip() for line in lines if pattern.search(line)]
        if found:
            return found[-1]
    return lines[-1].strip() if lines else ""


def _named(libraries: Iterable[str], system: str, rules: ImportRules) -> str:
    """A text with the libraries, the packages that contain them, and how to install these packages."""
    names = sorted(libraries)
    shown = [_with_package(name, system, rules) for name in names[:_SHOWN_LIBRARIES]]
    more = f" and {len(names) - _SHOWN_LIBRARIES} more" if len(names) > _SHOWN_LIBRARIES else ""
    packages = list(dict.fromkeys(filter(None, (rules.package_of(name, system)[0] for name in names))))
    return f"{', '.join(shown)}{more}" + (f" (write `apt: [{', '.join(packages)}]` in envbuild.yaml)" if packages else "")


def _with_package(library: str, system: str, rules: ImportRules) -> str:
    package, of = rules.package_of(library, system)
    if not package:
        return f"{library} (package unknown)"
    return f"{library} in package {package}" + ("" if of == system else f" of {of}")


def _advice(name: str, lock: Lock, rules: ImportRules) -> str:
    """Advice for a project under ``pip:`` that is a framework of the matrix: under ``frameworks:``, it gets the libraries that
    it needs."""
    framework = rules.frameworks.get(name, "")
    taken = {each.name for each in lock.environment.frameworks}
    if not framework or framework in taken or lock.environment.custom is None:
        return ""
    return f". List {framework} under `frameworks:` instead of `pip:`; then its libraries are installed, too"

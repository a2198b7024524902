"""Understands a request: ``name-1.12-cuda9``, canonical names, and free form with operators, in any mixture."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from envbuild.errors import Alternative, UnknownNameError, UsageError
from envbuild.matrix.leftout import why_left_out
from envbuild.matrix.platform import CudaRow
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.matrix.versions import NUMBERS, SPECIFIER, within
from envbuild.model import Provider
from envbuild.resolve import names
from envbuild.resolve.request import GpuWanted, Request, version_matches, version_parts

PROVIDERS = tuple(word for word in get_args(Provider))
_OPERATORS = re.compile(r"\s*(===|==|~=|!=|>=|<=|=|>|<|,)\s*")
_WITH_OPERATOR = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*?)((?:===|==|~=|!=|>=|<=|=|>|<).*)")
_VERSION = re.compile(r"v?(\d[0-9a-z]*(?:\.[0-9a-z]+)*)")
_VERSION_CLAUSE = re.compile(r"(===|==|=|~=|!=|>=|<=|>|<)(\d[0-9a-z]*(?:\.[0-9a-z]+)*)(\.\*)?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_MAX_LENGTH = 1000


class _Draft:
    """The parts found so far. A part said twice in different words is refused, since one of the two would be ignored."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.framework: FrameworkTable | None = None
        self.parts: dict[str, str] = {}

    def put(self, part: str, value: str) -> None:
        if self.parts.get(part, value) != value:
            raise UsageError(
                f"{self.text!r} says {part} twice: {self.parts[part]} and {value}.",
                code="contradiction",
                hint="Say each part once, in the name or as an option.",
            )
        self.parts[part] = value

    def narrow(self, part: str, clauses: str) -> None:
        """Several clauses about one part hold together."""
        self.parts[part] = ",".join(filter(None, (self.parts.get(part, ""), clauses)))

    def get(self, part: str) -> str:
        return self.parts.get(part, "")


def parse(
    texts: Sequence[str],
    *,
    matrix: Matrix,
    driver: str | None = None,
    gpu: str | Sequence[str] | None = None,
    python: str | None = None,
    system: str | None = None,
    base: str | None = None,
) -> Request:
    """The request that ``texts`` and the options make together.

    Raises :class:`UnknownNameError` for names and versions that are in no row, :class:`ConflictError` for versions without one
    on purpose, and :class:`UsageError` for what is no request.
    """
    text = " ".join(texts).strip()
    if not text or len(text) > _MAX_LENGTH:
        raise UsageError("There is no request." if not text else "The request is too long.", hint=names.example(matrix))
    draft = _Draft(text)
    for word in _OPERATORS.sub(r"\1", text).lower().split():
        _read_word(matrix, draft, word)
    if draft.framework is None:
        raise UsageError(f"{text!r} names no framework.", hint=names.example(matrix))
    if python is not None:
        draft.put("python", _python_clause(python))
    if system is not None:
        draft.put("system", system.strip().lower())
    return _finish(matrix, draft, draft.framework, hardware=(driver, _gpus(gpu)), base=base)


def _gpus(gpu: str | Sequence[str] | None) -> list[str]:
    given = [gpu] if isinstance(gpu, str) else list(gpu or ())
    return [part for text in given for part in text.split(",")]


def _read_word(matrix: Matrix, draft: _Draft, word: str) -> None:
    match = _WITH_OPERATOR.fullmatch(word)
    if match and match[1] in ("cuda", "cudnn", "nccl", "python", "py"):
        part = "python" if match[1] == "py" else match[1]
        if not re.fullmatch(SPECIFIER, match[2]):
            raise UsageError(f"{word!r} is not a condition on {part}.", hint=f"For example: {part}>=3,<10")
        draft.narrow(part, match[2])
        return
    if match:
        _read_framework(matrix, draft, match[1], match[1])
        clauses = match[2].split(",")
        if not all(_VERSION_CLAUSE.fullmatch(clause) for clause in clauses):
            raise UsageError(f"{word!r} is not a condition on a version.", hint="For example: name>=1.12,<2")
        for clause in clauses:
            names.refuse_hinted(matrix, f"{match[1]}-{clause.lstrip('=')}")
            draft.narrow("version", clause)
        return
    word = re.sub(r"\+(?=cu\d|cpu\b)", "-", word)  # a wheel's own spelling, 2.6.0+cu126
    _refuse_several(word)
    names.refuse_hinted(matrix, word)
    if draft.framework is None or names.find_framework(matrix, word):
        rest = _read_framework(matrix, draft, word, re.split(r"[-+]", word)[0])
    else:
        rest = word
    tokens = rest.split("-") if rest else []
    for index, token in enumerate(tokens):
        _read_token(matrix, draft, token, tokens[index:])
        if "image" in draft.parts:
            return


def _refuse_several(word: str) -> None:
    if "+" in word:
        raise UsageError(
            f"{word!r} names several frameworks; one environment holds one framework.",
            code="several-frameworks",
            hint=f"Make one environment each: {', '.join(part for part in word.split('+') if part)}.",
        )


def _read_framework(matrix: Matrix, draft: _Draft, word: str, head: str) -> str:
    found = names.find_framework(matrix, word)
    if found is None:
        raise names.unknown_framework(matrix, head, word[len(head) :])
    framework, rest = found
    if draft.framework is not None and draft.framework is not framework:
        _refuse_several(f"{draft.framework.short}+{framework.short}")
    draft.framework = framework
    return rest


def _read_token(matrix: Matrix, draft: _Draft, token: str, rest: list[str]) -> None:
    """One part of a dashed name, by its form."""
    if token in ("cpu", "gpu", "cuda"):
        draft.put("device", token.replace("cuda", "gpu"))
    elif re.fullmatch(rf"cuda{NUMBERS}", token):
        draft.put("cuda", f"=={token[4:]}")
    elif re.fullmatch(rf"cu{NUMBERS}", token):
        draft.put("cuda", f"=={_compact(token[2:])}")
    elif re.fullmatch(rf"(py|python|cp){NUMBERS}", token):
        draft.put("python", _python_clause(token))
    elif names.find_systems(matrix, token):
        draft.put("system", token)
    elif token in PROVIDERS:
        draft.put("base", token)
    elif (match := _VERSION.fullmatch(token)) and "version" not in draft.parts:
        draft.put("version", f"=={match[1]}")
    elif "system" in draft.parts and "python" in draft.parts:  # what follows a whole name is the slug of an image
        draft.put("image", "-".join(rest))
    else:
        raise _unknown_token(matrix, draft, token)


def _compact(digits: str) -> str:
    """``90`` is 9.0 and ``118`` is 11.8, as wheels are called; ``9``, ``11`` and ``12`` are majors."""
    if "." in digits or len(digits) == 1 or len(digits) > 3 or (len(digits) == 2 and digits[0] == "1"):
        return digits
    return f"{digits[:-1]}.{digits[-1]}"


def _python_clause(text: str) -> str:
    word = text.strip().lower()
    if re.fullmatch(SPECIFIER, word):
        return word
    digits = re.sub(r"^(python|py|cp)", "", word)
    if not re.fullmatch(NUMBERS, digits):
        raise UsageError(f"{text!r} is not a Python version.", code="bad-python", hint="For example: --python 3.6")
    if "." not in digits and len(digits) > 1:
        digits = f"{digits[0]}.{digits[1:]}"
    return f"=={'.'.join(digits.split('.')[:2])}"


def _unknown_token(matrix: Matrix, draft: _Draft, token: str) -> UnknownNameError:
    known = [row.name for row in matrix.systems] + [f"py{row.version.replace('.', '')}" for row in matrix.pythons]
    known += [f"cuda{row.version}" for row in matrix.cuda] + [*PROVIDERS, "cpu"]
    near = names.nearest(token, known)
    fixed = [re.sub(rf"(?<![^-\s]){re.escape(token)}(?![^-\s])", word, draft.text.lower(), count=1) for word in near]
    return UnknownNameError(
        f"{token!r} in {draft.text!r} is no version, CUDA, Python, operating system or base that the matrix knows.",
        hint=(f"Did you mean {near[0]}? " if near else "")
        + "A name is framework-version[-cudaX.Y|-cpu][-pyXY][-system][-base]. "
        + names.example(matrix),
        alternatives=[
            Alternative(name=name, changes=f"{word} instead of {token}") for name, word in zip(fixed, near, strict=True)
        ],
    )


def _finish(
    matrix: Matrix,
    draft: _Draft,
    framework: FrameworkTable,
    *,
    hardware: tuple[str | None, list[str]],
    base: str | None,
) -> Request:
    version = _exact_if_release(framework, draft.get("version"))
    _check_version(framework, version, draft)
    doubts = _check_known(matrix, draft)
    systems = names.find_systems(matrix, draft.get("system")) if draft.get("system") else ()
    if draft.get("system") and not systems:
        raise names.unknown_system(matrix, draft.get("system"))
    provider, image = _base(draft, base, systems)
    driver, wanted, warnings = _hardware(matrix, *hardware)
    device: Any = _device(draft, bool(driver or wanted))
    if device == "cpu" and (driver or wanted):
        warnings = ["A CPU environment uses no GPU: the driver and the GPU that were named were not checked."]
    return Request(
        text=draft.text,
        framework=framework,
        version=version,
        device=device,
        cuda=draft.get("cuda"),
        cudnn=draft.get("cudnn"),
        nccl=draft.get("nccl"),
        python=draft.get("python"),
        systems=systems,
        system_text=draft.get("system"),
        base=provider,
        image=image,
        driver=driver,
        gpus=tuple(wanted),
        warnings=(*doubts, *warnings),
    )


def _hardware(matrix: Matrix, driver: str | None, gpus: list[str]) -> tuple[str, list[GpuWanted], list[str]]:
    found, warnings = names.find_driver(matrix, driver) if driver is not None else ("", [])
    wanted = []
    for text in gpus:
        gpu, doubts = names.find_gpu(matrix, text)
        wanted.append(gpu)
        warnings.extend(doubts)
    return found, wanted, warnings


def _device(draft: _Draft, hardware: bool) -> Literal["", "cpu", "gpu"]:
    said = draft.get("device")
    needs_cuda = any(draft.get(part) for part in ("cuda", "cudnn", "nccl"))
    if said == "cpu" and needs_cuda:
        raise UsageError(
            f"{draft.text!r} asks for CUDA and for a CPU environment.", code="contradiction", hint="Say one of the two."
        )
    if said == "cpu":
        return "cpu"
    return "gpu" if said or needs_cuda or hardware else ""


def _exact_if_release(framework: FrameworkTable, clauses: str) -> str:
    """A whole version that is a release means that one, though others may begin with it (2.15.0, 2.15.0.post1)."""
    version = clauses.removeprefix("==")
    whole = version.count(".") >= 2 and any(release.version == version for release in framework.releases)
    return f"==={version}" if whole else clauses


def _check_version(framework: FrameworkTable, clauses: str, draft: _Draft) -> None:
    from packaging.version import InvalidVersion, Version

    try:
        if any(version_matches(release.version, clauses) for release in framework.releases):
            return
    except InvalidVersion as error:
        raise UsageError(
            f"{draft.text!r} has a version that cannot be compared: {error}.", hint="For example: name>=1.12,<2"
        ) from error
    wanted = re.sub(r"^=+", "", clauses)
    known = [release.version for release in framework.releases]
    parts = version_parts(wanted)
    near: dict[tuple[int, ...], str] = {}  # the newest of each series, the nearest series first
    for release in framework.releases:
        if any(variant.origin.status != "known-bad" for variant in release.variants):
            near.setdefault(tuple(version_parts(release.version)[: len(parts)]), release.version)
    nearest = names.nearest_versions(list(near.values()), wanted)[:3]
    instead = [Alternative(name=f"{framework.short}-{version}", changes=f"version {version}") for version in nearest]
    if rule := why_left_out(framework.left_out, wanted):
        final = f"{framework.short}-{Version(wanted).base_version}"
        raise names.left_out(framework, wanted, rule, sorted(instead, key=lambda each: each.name != final))
    raise names.unknown_version(framework.title, wanted, known, instead)


def _check_known(matrix: Matrix, draft: _Draft) -> list[str]:
    """CUDA and Python versions that no row has are unknown; those that some row has and this framework not are conflicts.

    A release of CUDA means its minor, with a remark where another release stands for that.
    """
    doubts = []
    known_cuda = [row.version for row in matrix.cuda]
    cuda = draft.get("cuda")
    if cuda and not any(within(version, cuda) for version in itertools.chain(known_cuda, _built_for(matrix))):
        release = cuda.lstrip("=")
        if (row := _cuda_release(matrix, cuda)) is None:
            raise names.unknown_version("CUDA", release, known_cuda)
        draft.parts["cuda"] = f"=={row.version}"
        if release != row.release:
            doubts.append(f"CUDA {release} is taken as {row.version}: what the matrix installs of it is {row.release}.")
    python = draft.get("python")
    if python and not any(within(row.version, python) for row in matrix.pythons):
        raise names.unknown_version("Python", python.lstrip("="), [row.version for row in matrix.pythons])
    return doubts


def _built_for(matrix: Matrix) -> Iterator[str]:
    """The CUDA versions of all builds; one may be without a row of its own."""
    for table in matrix.frameworks:
        for release in table.releases:
            yield from (variant.cuda for variant in release.variants if variant.cuda)


def _cuda_release(matrix: Matrix, clause: str) -> CudaRow | None:
    """The row that a toolkit's full release belongs to, as in ``cuda9.0.176``."""
    wanted = clause.removeprefix("==")
    return next((row for row in matrix.cuda if wanted in (row.release, *(release.version for release in row.releases))), None)


def _base(draft: _Draft, base: str | None, systems: tuple[str, ...]) -> tuple[str, str]:
    """The provider that was insisted on, and the image of a local base."""
    said = draft.get("base")
    text = (base or "").strip()
    slug = draft.get("image")
    if not text and slug:
        raise UnknownNameError(
            f"{slug!r} in {draft.text!r} stands for a base image, which a name cannot be turned back into.",
            code="base-image-needed",
            hint="Name the image with --base IMAGE, and use the name without that ending.",
        )
    if not text or text.lower() in PROVIDERS:
        return _provider(draft, text.lower(), said), ""
    if not _IMAGE.fullmatch(text) or not re.search(r"[/:@]", text):
        near = names.nearest(text, PROVIDERS)
        raise UnknownNameError(
            f"{text!r} is neither a provider nor an image with a tag.",
            hint=(f"Did you mean {near[0]}? " if near else "")
            + f"Providers: {', '.join(PROVIDERS)}. An image is written name:tag.",
        )
    if said or (slug and slug != image_slug(text).lower()):
        raise UsageError(f"{draft.text!r} names another base than {text}.", code="contradiction", hint="Name one base.")
    if len(systems) != 1 or not re.fullmatch(r"==\d+\.\d+", draft.get("python")):
        raise UsageError(
            f"What is inside {text} is not known before it is used.",
            code="base-needs-os",
            hint="Say which system and Python the image holds, as in --os debian11 --python 3.6.",
        )
    return "local", text


def _provider(draft: _Draft, text: str, said: str) -> str:
    if text and said and text != said:
        raise UsageError(
            f"{draft.text!r} names the base {said}, the option {text}.", code="contradiction", hint="Name one base."
        )
    if "local" in (text, said):
        raise UsageError(
            "The base `local` is an image of your own.",
            code="base-needs-image",
            hint="Name it: --base IMAGE, as in --base my/python:3.6.",
        )
    return text or said


def image_slug(image: str) -> str:
    """An image reference as a part of a name; doubling keeps different images from getting the same slug."""
    slug = image.replace("_", "__").replace("-", "--").replace("/", "_").replace(":", "-").replace("@", "_-")
    if len(slug) <= 60:
        return slug
    import hashlib

    return f"{slug[:40].rstrip('-_.')}-{hashlib.sha256(image.encode()).hexdigest()[:12]}"

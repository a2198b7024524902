"""Parses a request: short names such as ``name-1.12-cuda9``, canonical names, and conditions with operators, in any mixture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import get_args

from envbuild.errors import Alternative, EnvbuildError, UnknownNameError, UsageError
from envbuild.matrix.similar_names import did_you_mean, nearest
from envbuild.matrix.types import Matrix
from envbuild.matrix.versions import NUMBERS, SPECIFIER
from envbuild.model.words import PythonFrom
from envbuild.resolve.request import names, packages
from envbuild.resolve.request.bases import PROVIDERS
from envbuild.resolve.request.draft import Draft, FrameworkDraft
from envbuild.resolve.request.model import Request
from envbuild.resolve.request.validation import finish

_OPERATORS = re.compile(r"\s*(===|==|~=|!=|>=|<=|=|>|<|,)\s*")
_WITH_OPERATOR = re.compile(r"(?P<name>[a-z][a-z0-9_.-]*?)(?:\[(?P<extras>[a-z0-9_.,-]*)\])?(?P<clauses>(?:[<>=!~]).*)?")
_VERSION = re.compile(r"v?(\d[0-9a-z]*(?:\.[0-9a-z]+)*)")
_VERSION_CLAUSE = re.compile(r"(===|==|=|~=|!=|>=|<=|>|<)(\d[0-9a-z]*(?:\.[0-9a-z]+)*)(\.\*)?")
_LABEL = re.compile(r"(?P<clause>[^+]*)\+(?P<label>cu\d+|cpu)")  # the label of a build, as in the versions of wheels
_MAX_LENGTH = 1000
_SHARED = ("cuda", "cudnn", "nccl", "python", "py")
PYTHON_FROM: tuple[str, ...] = get_args(PythonFrom)
_PYTHON = re.compile(rf"(?P<version>(?:py|python|cp){NUMBERS})(?P<supply>{'|'.join(PYTHON_FROM)})?")


def parse(
    texts: Sequence[str],
    *,
    matrix: Matrix,
    driver: str | None = None,
    gpu: str | Sequence[str] | None = None,
    python: str | None = None,
    python_from: str | None = None,
    system: str | None = None,
    base: str | None = None,
    resolves: Callable[[str], bool] = lambda _text: True,
) -> Request:
    """Parse ``texts`` and the options into one request. If a word is misspelt, the hint proposes the most similar known word
    with which the corrected request ``resolves``.

    Raises :class:`UnknownNameError` for a name or version that the matrix does not have. Raises :class:`ConflictError` for a
    version that the matrix leaves out on purpose, and :class:`UsageError` for a text that is not a request.
    """
    text = " ".join(texts).strip()
    if not text or len(text) > _MAX_LENGTH:
        raise UsageError("The request is empty." if not text else "The request is too long.", hint=names.example(matrix))
    if other := next((letter for letter in text if letter.isdigit() and not letter.isascii()), ""):
        raise UsageError(f"The request contains the digit {other!r}.", hint="Write versions with the digits 0 to 9.")
    draft = Draft(text, resolves)
    words = [
        part
        for word in _OPERATORS.sub(r"\1", text).lower().split()
        for part in (_joined(matrix, word) if re.search("[<>=]", word) else [word])
    ]
    conditions = [word for word in words if _is_of_a_package(matrix, word)]
    if conditions:
        rest = [word for word in words if word not in conditions]
        beside = [word for place, word in enumerate(rest) if _names_a_package(matrix, word, rest[:place])]
        options = {"python": python, "python_from": python_from, "os": system, "base": base, "driver": driver, "gpu": gpu}
        raise packages.own_environment([*conditions, *beside], [word for word in rest if word not in beside], options)
    for place, word in enumerate(words):
        _read_word(matrix, draft, word, words[:place])
    if not draft.pieces:
        raise _no_framework(matrix, draft)
    if python is not None:
        draft.put("python", _python_clause(python))
    if python_from is not None:
        draft.put("python-from", _supply(python_from))
    if system is not None:
        draft.put("system", system.strip().lower())
    return finish(matrix, draft, hardware=(driver, _gpus(gpu)), base=base)


def _gpus(gpu: str | Sequence[str] | None) -> list[str]:
    given = [gpu] if isinstance(gpu, str) else list(gpu or ())
    return [part for text in given for part in text.split(",")]


def _joined(matrix: Matrix, word: str) -> list[str]:
    """Split a word at each ``+`` that does not begin a label such as ``+cu126`` or ``+cpu``."""
    parts = re.split(r"\+(?!cu\d|cpu\b)", word)
    if not all(parts):
        raise UsageError(f"{word!r} has a + without a framework on one side of it.", hint=names.example(matrix))
    return parts


def _no_framework(matrix: Matrix, draft: Draft) -> UsageError:
    return UsageError(f"{draft.text!r} names no framework.", hint=names.example(matrix))


def _is_of_a_package(matrix: Matrix, word: str) -> bool:
    """Whether ``word`` is a condition on a package that is neither a framework nor, probably, a misspelt framework."""
    match = _WITH_OPERATOR.fullmatch(word)
    if match is None or match["clauses"] is None or match["name"] in _SHARED:
        return False
    name = match["name"]
    if found := names.find_framework(matrix, packages.canonical(name)):
        first = found[1].split("-")[0]
        said = first in PROVIDERS or bool(names.find_systems(matrix, first))
        return not said and packages.is_another(found[0], packages.canonical(name), found[1])
    return names.is_package(matrix, name) or not nearest(name, names.all_names(matrix))


def _names_a_package(matrix: Matrix, word: str, before: Sequence[str]) -> bool:
    """Whether ``word`` can only be the name of a package, because it is not a framework, version, CUDA, system or Python."""
    if not before or not packages.NAME.fullmatch(word) or names.find_framework(matrix, word):
        return False
    draft = Draft(" ".join((*before, word)))
    try:
        for place, each in enumerate((*before, word)):
            _read_word(matrix, draft, each, before[:place])
    except UnknownNameError:
        return True
    except EnvbuildError:
        return False
    return False


def _read_word(matrix: Matrix, draft: Draft, word: str, before: Sequence[str]) -> None:
    match = _WITH_OPERATOR.fullmatch(word)
    if match and match["clauses"] and match["name"] in _SHARED:
        part = "python" if match["name"] == "py" else match["name"]
        if not re.fullmatch(SPECIFIER, match["clauses"]):
            raise UsageError(f"{word!r} is not a condition on {part}.", hint=f"For example: {part}>=3,<10")
        draft.narrow(part, match["clauses"])
    elif match and (match["clauses"] or match["extras"]):
        _read_condition(matrix, draft, match)
    else:
        _read_names(matrix, draft, re.sub(r"\+(?=cu\d|cpu\b)", "-", word), before)  # for versions such as 2.6.0+cu126


def _read_condition(matrix: Matrix, draft: Draft, match: re.Match[str]) -> None:
    """Read ``name>=1.12,<2``, or ``name==2.6.0+cu126``, which has a version and its CUDA."""
    piece, rest = _piece(matrix, draft, match["name"], match["name"])
    if match["extras"]:
        _note(draft, piece, packages.read_extras(piece.framework, match["name"], match["extras"]))
    for token in filter(None, rest.split("-")):
        _read_token(matrix, draft, piece, token, [token])
    clauses = match["clauses"].split(",") if match["clauses"] else []
    for index, clause in enumerate(clauses):
        if labelled := _LABEL.fullmatch(clause):
            clauses[index] = labelled["clause"]
            _read_label(matrix, draft, piece, match, labelled)
    if not all(_VERSION_CLAUSE.fullmatch(clause) for clause in clauses):
        raise UsageError(f"{match[0]!r} is not a condition on a version.", hint="For example: name>=1.12,<2")
    for clause in clauses:
        names.refuse_hinted(matrix, f"{match['name']}-{clause.lstrip('=')}")
    piece.parts["version"] = ",".join(filter(None, (piece.parts.get("version", ""), *clauses)))


def _read_label(matrix: Matrix, draft: Draft, piece: FrameworkDraft, word: re.Match[str], labelled: re.Match[str]) -> None:
    """Read the label of a build, such as ``+cu126``. Only ``==`` with a whole version may have a label: a label names one build
    of one version, and PEP 440 does not allow labels in ranges."""
    label = labelled["label"]
    if not re.fullmatch(r"={1,3}\d[^*]*", labelled["clause"]):
        device = label if label == "cpu" else f"cuda=={_compact(label[2:])}"
        without = word["clauses"].replace(f"+{label}", "")
        raise UsageError(
            f"{word[0]!r}: +{label} selects one build of one version, so write it after == and a complete version.",
            hint=f"Write the version and the device separately: {word['name']}{without} {device}"
            if "!=" not in without
            else "Say which build you need.",
        )
    _read_token(matrix, draft, piece, label, [label])


def _read_names(matrix: Matrix, draft: Draft, word: str, before: Sequence[str]) -> None:
    """Read a name with dashed parts, several names joined with ``+``, or a separate word. A separate word may be any word that
    could also follow a name after a dash."""
    parts = _joined(matrix, word)
    for part in parts:
        names.refuse_hinted(matrix, part)
        found = names.find_framework(matrix, part)
        if len(parts) == 1 and draft.pieces and not found:
            piece, rest = None, part
            if error := packages.misspelt(matrix, part):
                raise error
        elif len(parts) > 1 and found and draft.find(found[0]):
            raise UsageError(
                f"{draft.text!r} names {found[0].title} twice.",
                code="contradiction",
                hint="An environment contains only one version of a framework: name each framework once.",
            )
        else:
            piece, rest = _piece(matrix, draft, part, part.split("-")[0])
        tokens = rest.split("-") if rest or part.endswith("-") else []
        for index, token in enumerate(tokens):
            if not token:
                raise UsageError(f"{draft.text!r} has a - with nothing on one side of it.", hint=names.example(matrix))
            if piece and index == 0 and (match := _VERSION.fullmatch(token)):
                draft.put("version", f"=={match[1]}", piece)
                continue
            try:
                _read_token(matrix, draft, piece, token, tokens[index:])
            except UnknownNameError as error:
                raise packages.with_pip(error, part, before) if piece is None else error from None
            if "image" in draft.parts:
                return


def _piece(matrix: Matrix, draft: Draft, word: str, head: str) -> tuple[FrameworkDraft, str]:
    """Return the draft of the framework with whose name ``word`` begins, and the text after the name."""
    if not head:
        raise _no_framework(matrix, draft)
    found = names.find_framework(matrix, word)
    if found is None and (error := packages.misspelt(matrix, word)):
        raise error
    if found is None and word == head:  # a package name with underscores, as in requirements files
        found = names.find_framework(matrix, packages.canonical(word))
    if found and found[1] and (distribution := packages.read_distribution(found[0], word)):
        said, rest = distribution
        piece = draft.piece(said.framework)
        _note(draft, piece, said)
        return piece, rest
    if found is None:
        raise names.unknown_framework(matrix, draft, head, word[len(head) :])
    return draft.piece(found[0], word.removesuffix(found[1]).rstrip("-") if found[1] else word), found[1]


def _note(draft: Draft, piece: FrameworkDraft, said: packages.Distribution) -> None:
    """Store what the name of a distribution or its extras imply, such as a device or a CUDA version."""
    if said.device:
        draft.put("device", said.device)
    if said.cuda:
        draft.put("cuda", said.cuda, piece)


def _read_token(matrix: Matrix, draft: Draft, piece: FrameworkDraft | None, token: str, rest: list[str]) -> None:
    """Read one part of a dashed name. The form of the part shows what it states, such as a version or a system. ``piece`` is
    None in a word that names no framework. ``rest`` has this part and all later parts of the name."""
    versions = (piece or draft.pieces[-1]).parts
    if token in ("cpu", "gpu", "cuda"):
        draft.put("device", token.replace("cuda", "gpu"))
    elif re.fullmatch(rf"cuda{NUMBERS}", token):
        draft.put("cuda", f"=={token[4:]}", piece)
    elif re.fullmatch(rf"cu{NUMBERS}", token):
        draft.put("cuda", f"=={_compact(token[2:])}", piece)
    elif match := re.fullmatch(rf"(cudnn|nccl)({NUMBERS})", token):
        draft.put(match[1], f"=={match[2]}")
    elif match := _PYTHON.fullmatch(token):
        _read_python(draft, match)
    elif token in PROVIDERS and ("system" in draft.parts or not names.find_systems(matrix, token)):
        draft.put("base", token)  # `debian` is also a family of systems; after a system, it is the base
    elif names.find_systems(matrix, token):
        draft.put("system", token)
    elif (match := _VERSION.fullmatch(token)) and versions.get("version") in (None, f"=={match[1]}"):
        versions["version"] = f"=={match[1]}"
    elif "system" in draft.parts and "python" in draft.parts:  # what follows a complete name stands for an image
        draft.put("image", "-".join(rest))
    else:
        raise _unknown_token(matrix, draft, token)


def _compact(digits: str) -> str:
    """Read a CUDA version as wheels spell it: ``90`` is 9.0, ``118`` is 11.8; ``9``, ``11`` and ``12`` are major versions."""
    if "." in digits or len(digits) == 1 or len(digits) > 3 or (len(digits) == 2 and digits[0] == "1"):
        return digits
    return f"{digits[:-1]}.{digits[-1]}"


def _python_clause(text: str) -> str:
    word = "".join(text.lower().split())
    if re.fullmatch(SPECIFIER, word):
        return word
    digits = re.sub(r"^(python|py|cp)", "", word)
    if not re.fullmatch(NUMBERS, digits):
        raise UsageError(f"{text!r} is not a Python version.", code="bad-python", hint="For example: --python 3.6")
    if "." not in digits and len(digits) > 1:
        digits = f"{digits[0]}.{digits[1:]}"
    return f"=={'.'.join(digits.split('.')[:2])}"


def _read_python(draft: Draft, match: re.Match[str]) -> None:
    """Read ``py36``, or ``py36conda``, which also states the supply of Python."""
    draft.put("python", _python_clause(match["version"]))
    if match["supply"]:
        draft.put("python-from", match["supply"])


def _supply(text: str) -> str:
    word = text.strip().lower()
    if word not in PYTHON_FROM:
        near = nearest(word, PYTHON_FROM)
        raise UnknownNameError(
            f"{text!r} is not a source of Python.",
            code="unknown-supply",
            hint=did_you_mean(near) + f"The sources are: {', '.join(PYTHON_FROM)}.",
        )
    return word


def _unknown_token(matrix: Matrix, draft: Draft, token: str) -> UnknownNameError:
    known = [row.name for row in matrix.systems] + [f"py{row.version.replace('.', '')}" for row in matrix.pythons]
    known += [f"cuda{version}" for row in matrix.cuda for version in (row.version, row.version.partition(".")[0])]
    place = re.compile(rf"(?<![^-+\s]){re.escape(token)}(?![^-+\s])")
    fixed = {word: place.sub(word, draft.text.lower(), count=1) for word in nearest(token, [*known, *PROVIDERS, "cpu"])}
    near = sorted(fixed, key=lambda word: not draft.resolves(fixed[word]))
    return UnknownNameError(
        f"{token!r} in {draft.text!r} is not a version, CUDA, Python, operating system or base in the matrix.",
        hint=did_you_mean(near)
        + "A name has the form framework-version[-cudaX.Y|-cpu][-pyXY][-system][-base]. "
        + names.example(matrix),
        alternatives=[Alternative(name=fixed[word], changes=f"{word} instead of {token}") for word in near],
    )

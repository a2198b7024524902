"""Find the GPU for a name as people, cloud providers and nvidia-smi spell it. Unknown names are refused.

Names are compared in several ways, the strictest first. Later ways ignore more words, but only words that do not affect which
code runs on the GPU: the brand, the memory size, the form factor, "Ti" and "SUPER".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envbuild.errors import UnknownNameError
from envbuild.matrix.gpu_rows import Architecture, Gpu
from envbuild.matrix.types import Matrix
from envbuild.matrix.versions import numbers

_CAPABILITY = re.compile(r"(?:(?:sm|compute)_?(\d{1,3})(\d)[af]?|(\d{1,2})\.(\d))")
_WORDS = re.compile(r"[a-z]+|\d+")
_IN_BRACKETS = re.compile(r"\[([^\[\]]+)\]")  # lspci prints "GP102 [GeForce GTX 1080 Ti]"
# The part of a name that stands for a MIG instance ("MIG 1g.5gb"), for a vGPU profile ("-40C" or "-2B4"), or for a vGPU profile
# on a MIG instance ("-1-5C" or "-1-5CME").
_SHARE = re.compile(r"\bmig\s+\d+g\.\d+gb\S*|(?<=\w)(?<!geforce)(?:-\d)?-\d+[abcq](?:me|gfx|\d)?$")
_COUNT = re.compile(r"^\d+\s*x\s*(?=[a-z]|\d{3})|\s+\(?x\s*\d+\)?$")  # "8xH100", "A100 x8"
# Words that say nothing about the GPU itself.
_EMPTY = re.compile(
    r"\b(nvidia|corporation|graphics|cards?|gpus?|laptop|notebook|mobile|desktop|with|design|max[- ]?q|edition|server"
    r"|workstation|generation|founders|vws|embedded|mega|lite|hash|rate|lhr|developer|devkit|kit|module)\b"
)
_BRAND = re.compile(r"geforce|tesla|quadro|\bgrid\b")
# Brands that use the same numbers for different GPUs. GRID is not listed, because GRID GPUs are also called Tesla.
_FAMILY = re.compile(r"geforce|tesla|quadro|\bnvs\b|\bjetson\b")
_MEMORY = re.compile(r"\b\d+\s*(gb|gib|g)\b")
_FORM = re.compile(r"\b(sxm\d?|pcie|nvl|hbm\w*|gddr\w*|fhhl|hgx|dgxs?|sff)\b")
_GRADE = re.compile(r"(?<=\d)\s*(ti|super)\b|\b(ti|super)\b")
# Each reading is one way to compare names: it ignores the words that match its patterns, and the words that match _EMPTY.
_READINGS: tuple[tuple[re.Pattern[str], ...], ...] = (
    (),
    (_BRAND,),
    (_MEMORY,),
    (_BRAND, _MEMORY),
    (_BRAND, _MEMORY, _FORM),
    (_BRAND, _MEMORY, _FORM, _GRADE),
)
_LAPTOP = re.compile(r"m(x)?")  # the letter after the number of a laptop GPU
_PARTIAL = 3  # index in _READINGS of the reading that is used to search for a part of a name
_LEAST_PART = 3  # characters; a shorter part of a name is not accepted
_SHOWN = 12
_NEAREST = 3
_LONGEST = 60  # maximum characters of a name that a message shows

Words = tuple[str, ...]


class Patterns(NamedTuple):
    """The regular expressions of this module, for a web page that compares names in the same ways. The expressions are also
    valid in JavaScript."""

    brackets: str
    share: str
    counted: str
    empty: str
    readings: tuple[tuple[str, ...], ...]
    family: str
    capability: str
    ignores_brand: tuple[bool, ...]


def patterns() -> Patterns:
    """The regular expressions, as text."""
    return Patterns(
        brackets=_IN_BRACKETS.pattern,
        share=_SHARE.pattern,
        counted=_COUNT.pattern,
        empty=_EMPTY.pattern,
        readings=tuple(tuple(each.pattern for each in reading) for reading in _READINGS),
        family=_FAMILY.pattern,
        capability=_CAPABILITY.pattern,
        ignores_brand=tuple(_BRAND in reading for reading in _READINGS),
    )


def find_architecture(matrix: Matrix, capability: str) -> Architecture | None:
    """Return the architecture to which a compute capability belongs."""
    wanted = numbers(capability)
    return next((row for row in matrix.architectures if wanted in map(numbers, row.capabilities)), None)


def read_capability(text: str) -> str:
    """Return the compute capability that ``text`` names (``sm_61`` or ``6.1``). Return an empty text if it names none."""
    match = _CAPABILITY.fullmatch(text.lower())
    if match is None:
        return ""
    major, minor = (part for part in match.groups() if part is not None)
    return f"{int(major)}.{minor}"


def find_board(matrix: Matrix, text: str) -> Gpu:
    """The board with the name ``text``.

    Raises :class:`UnknownNameError` for a name that the matrix does not have, that different GPUs share, or that belongs to
    another vendor's GPU.
    """
    inside = _IN_BRACKETS.search(text)
    name = _COUNT.sub(" ", _SHARE.sub(" ", (inside[1] if inside else text).lower().strip())).strip()
    found = next(_matches(matrix, name), None)
    if found is None:
        _refuse_other_vendor(matrix, text)
        found = _containing(matrix, name, _read(name, _PARTIAL))
    if not found:
        raise _unknown(matrix, text, name)
    if len({row.capability for row in found}) > 1:
        shown = ", ".join(f"{row.name} ({row.capability})" for row in found[:_SHOWN])
        raise UnknownNameError(
            f"{_shown(text)} names several GPUs of different compute capability.",
            code="ambiguous-gpu",
            hint=f"Name one of them, or its capability: {shown}{' …' if len(found) > _SHOWN else ''}.",
        )
    return found[0]


def _matches(matrix: Matrix, name: str) -> Iterator[list[Gpu]]:
    """Yield, for each reading, the rows that have the name in this reading; the strictest reading comes first. Readings without
    a match are skipped.

    If a row matches only because brands are ignored, the rows that contain the name are added. For example, "RTX 6000" may mean
    a Quadro GPU of 2018 or an Ada GPU of 2022.
    """
    for reading in range(len(_READINGS)):
        wanted = _read(name, reading)
        flat = "".join(wanted)
        found = [row for row in matrix.gpus if flat and any("".join(_read(each, reading)) == flat for each in _spellings(row))]
        if not found:
            continue
        by_alias = any("".join(_read(alias, 0)) == flat for row in found for alias in row.aliases)
        if _BRAND in _READINGS[reading] and not by_alias:
            found += [row for row in _containing(matrix, name, wanted) if row not in found]
        yield found


def _containing(matrix: Matrix, name: str, wanted: Words) -> list[Gpu]:
    """Return the rows whose names contain the words. "NVS 510" does not match "GeForce 510", because the brands differ."""
    if len("".join(wanted)) < _LEAST_PART:
        return []
    brand = _FAMILY.findall(name)
    return [
        row
        for row in matrix.gpus
        if any(_contains(_read(each, _PARTIAL), wanted) for each in _spellings(row))
        and not (brand and _FAMILY.search(row.name.lower()) and _FAMILY.findall(row.name.lower()) != brand)
    ]


def _contains(words: Words, part: Words) -> bool:
    """Whether ``words`` contain ``part`` as whole words: "K5100" does not contain "5100", and "GT 635M" does not contain "GT
    635"."""
    for start in range(len(words) - len(part) + 1):
        end = start + len(part)
        before, after = "".join(words[max(start - 1, 0) : start]), "".join(words[end : end + 1])
        letter_before = part[0].isdecimal() and len(before) == 1
        if words[start:end] == part and not letter_before and not (part[-1].isdecimal() and _LAPTOP.fullmatch(after)):
            return True
    return False


def _spellings(row: Gpu) -> tuple[str, ...]:
    return (row.name, *row.aliases)


@functools.lru_cache(maxsize=16_384)
def _read(name: str, reading: int) -> Words:
    """Split a name into words, with letters and digits separated: gtx1080ti becomes gtx, 1080, ti. Words that the reading
    ignores are left out."""
    text = name.lower().replace("_", " ").replace("-", " ")
    for pattern in (_EMPTY, *_READINGS[reading]):
        text = pattern.sub(" ", text)
    return tuple(_WORDS.findall(text))


def _refuse_other_vendor(matrix: Matrix, text: str) -> None:
    """Raise for a GPU or an accelerator that is not NVIDIA's."""
    name = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
    for row in matrix.gpu_vendors:
        if any(re.search(rf"\b(?:{pattern})\b", name) for pattern in row.names):
            raise UnknownNameError(
                f"{_shown(text)} is a device of {row.vendor}. CUDA does not run on it; it needs {row.needs}.",
                code="other-vendor",
                hint="envbuild builds for NVIDIA GPUs and for CPUs: name an NVIDIA GPU, or ask for the CPU build with -cpu.",
            )


def _unknown(matrix: Matrix, text: str, name: str) -> UnknownNameError:
    near = _nearest(matrix.gpus, name)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return UnknownNameError(
        f"The matrix has no GPU {_shown(text)}.",
        code="unknown-gpu",
        hint=f"{meant}`envbuild matrix show gpus` lists the names. A GPU that is not listed can be given by its compute "
        "capability, --gpu sm_XX: `nvidia-smi --query-gpu=compute_cap --format=csv` prints it (8.9 is sm_89).",
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _nearest(rows: Sequence[Gpu], name: str) -> list[str]:
    """Return the names that are most similar to ``name``, best first."""
    import difflib

    flat = {"".join(_read(each, _PARTIAL)): row.name for row in rows for each in _spellings(row)}
    close = difflib.get_close_matches("".join(_read(name, _PARTIAL)), flat, n=_NEAREST, cutoff=0.6)
    return list(dict.fromkeys(flat[each] for each in close))

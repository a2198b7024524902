"""Questions about the real matrix whose answers are in public documents: one YAML file per topic in `questions/`.

The answers are copied from the documents, not from the matrix, so that the tests find wrong rows. The kinds of questions::

    - ask: "tf-1.12-cuda9"                  # a request, with `options` (driver, gpu, python, system, base)
      is: {cuda: "9.0", frameworks.0.version: "1.12.0"}      # fields of `resolve --json`
      warns: ["words"]                      # optional
      reasons: ["words"]                    # optional: words of "choice: reason [document]"
      source: "https://…"
    - ask: "tf-1.12-cuda9"
      options: {gpu: "RTX 3090"}
      refused: {code: conflict, because: ["Ampere"]}         # words of the message or of the conflicting facts
      source: "https://…"                                    # `offers`: words of the alternatives; `code` may be left out
    - ask: "tf1.12"                         # a wrong spelling: refused, and the hint has the right one
      says: "tf-1.12"
      source: "https://…"
    - row: [cuda, "9.0"]                    # [table, row]: a row by its version, name or branch; also a release of CUDA
      is: {driver_min: "384.81"}
      source: "https://…"
    - gpu: "NVIDIA A100-SXM4-80GB"          # a GPU's name, as people and nvidia-smi write it
      is: {capability: "8.0", first_cuda: "11.0"}            # fields of its architecture and its board; or `refused`
      source: "https://…"
    - build: [tensorflow, "1.12.0", gpu]    # one build of a release, by the variant's name
      is: {cuda: "9.0", "cudnn.minimum": "7.2"}
      source: "https://…"
    - pair: [keras, "2.2.4", tensorflow, "1.9.0"]            # two releases; the first is an add-on to the second
      is: tested                            # or `allowed`, `refused`; `resolves`: either of the first two
      device: cpu                           # optional; else CUDA if the pair has CUDA builds
      source: "https://…"
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_matrix import FACTS

from envbuild.codec import encode
from envbuild.errors import EnvbuildError
from envbuild.matrix.types import Matrix
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.request.gpus import find_gpu
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

LISTS = sorted((Path(__file__).parent / "questions").glob("*.yaml"))
KINDS = {
    "ask": {"is", "warns", "reasons", "refused", "says", "options"},
    "row": {"is"},
    "build": {"is"},
    "pair": {"is", "device"},
    "gpu": {"is", "refused"},
}


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return FACTS


def questions() -> Iterator[Any]:
    for path in LISTS:
        for number, question in enumerate(yaml.safe_load(path.read_text())["questions"], 1):
            yield pytest.param(question, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("question", list(questions()))
def test_question(facts: Matrix, question: dict[str, Any]) -> None:
    (kind,) = set(question) & set(KINDS)
    assert set(question) <= {kind, "source", "note"} | KINDS[kind] and len(set(question) & {"is", "refused", "says"}) == 1, (
        question
    )
    assert question["source"].startswith(("https://", "http://", "pkg:")), "a question needs a public source"
    if kind == "ask":
        _ask(facts, question)
        return
    if kind == "pair":
        _pair(facts, question["pair"], question["is"], question.get("device", ""))
        return
    if kind == "gpu":
        _gpu(facts, question)
        return
    found = _row(facts, *question["row"]) if kind == "row" else _build(facts, *question["build"])
    _compare(found, question["is"])


def _ask(facts: Matrix, question: dict[str, Any]) -> None:
    words, options = question["ask"], question.get("options", {})
    texts = [words] if isinstance(words, str) else words
    if "is" in question:
        resolution = resolve(facts, parse(texts, matrix=facts, **options))
        _compare(answer_json(resolution, []), question["is"])
        for part in question.get("warns", ()):
            assert any(part in warning for warning in resolution.warnings), (part, resolution.warnings)
        told = [f"{each.choice}: {each.because} [{each.source}]" for each in resolution.reasons]
        for part in question.get("reasons", ()):
            assert any(part in each for each in told), (part, told)
        return
    with pytest.raises(EnvbuildError) as caught:
        resolve(facts, parse(texts, matrix=facts, **options))
    if "says" in question:
        assert question["says"] in re.findall(r"[\w.+-]*\w", caught.value.hint or ""), caught.value.hint
        return
    _refused(caught.value, question["refused"])


def _refused(error: EnvbuildError, wanted: dict[str, Any]) -> None:
    assert error.code == wanted.get("code", error.code), error.message
    offers = " ".join(item.name for item in error.alternatives)
    assert all(part in offers for part in wanted.get("offers", ())), offers
    told = " ".join([error.message, error.hint or "", *(f"{item.row}: {item.reason}" for item in error.conflicts)])
    for part in wanted.get("because", ()):
        assert part in told, (part, told)


def _pair(facts: Matrix, pair: list[str], expected: str, device: str) -> None:
    above, version, below, under = pair
    request = parse(list(filter(None, [f"{above}=={version}", f"{below}=={under}", device])), matrix=facts)
    if expected == "refused":
        with pytest.raises(EnvbuildError) as caught:
            resolve(facts, request)
        assert caught.value.code == "conflict", caught.value.message
        assert any(item.source for item in caught.value.conflicts)
        return
    resolution = resolve(facts, request)
    names = [framework.name for framework in resolution.environment.frameworks]
    word = resolution.details[names.index(above)].upon[0].pair
    assert word == expected or (expected == "resolves" and word in ("tested", "allowed"))
    warned = [warning for warning in resolution.warnings if "upstream allows this combination but has not tested it" in warning]
    assert bool(warned) == (word == "allowed"), resolution.warnings


def _gpu(facts: Matrix, question: dict[str, Any]) -> None:
    if "refused" in question:
        with pytest.raises(EnvbuildError) as caught:
            find_gpu(facts, question["gpu"])
        _refused(caught.value, question["refused"])
        return
    found, _ = find_gpu(facts, question["gpu"])
    known = {"capability": found.capability}
    for part in (found.architecture, found.board):
        known |= encode(part) if part is not None else {}
    _compare(known, question["is"])


def _compare(value: Any, wanted: dict[str, Any]) -> None:
    differences = {way: (_at(value, way), expected) for way, expected in wanted.items() if _at(value, way) != expected}
    assert not differences, f"(the matrix's, the document's): {differences}"


def _at(value: Any, way: str) -> Any:
    for part in way.split("."):
        if value is None:
            return None
        value = value[int(part)] if part.isdecimal() else value[part] if isinstance(value, dict) else getattr(value, part)
    return value if isinstance(value, (dict, str, int, float, bool, type(None))) else encode(value)


def _row(facts: Matrix, table: str, name: str) -> Any:
    rows = getattr(facts, table)
    releases = [release for row in rows for release in getattr(row, "releases", ())]
    for row in (*rows, *releases):
        if name in [getattr(row, key, None) for key in ("version", "name", "branch", "cuda_major")]:
            return row
        if name in getattr(row, "aliases", ()) or name in getattr(row, "capabilities", ()):
            return row
    pytest.fail(f"{table} has no row {name}")


def _build(facts: Matrix, framework: str, version: str, variant: str) -> Any:
    table = next(table for table in facts.frameworks if table.name == framework)
    release = next((release for release in table.releases if release.version == version), None)
    assert release is not None, f"{framework} has no release {version}"
    found = next((build for build in release.variants if build.name == variant), None)
    assert found is not None, f"{framework} {version} has {[build.name for build in release.variants]}, not {variant}"
    return found

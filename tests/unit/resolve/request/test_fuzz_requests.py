"""Ten thousand requests of the real matrix, valid and invalid: never a traceback, never a wrong answer.

A second reader of the matrix judges (brute_force.py). An accepted environment must be right in every part; for a refused
request, trying every combination must find nothing.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
from pathlib import Path
from typing import Any

import pytest
from brute_force import Judge, Wish
from brute_joint import lies, solutions, wish_of
from brute_world import World
from fuzz_requests import Asked, Requests, garbled
from fuzzing import fuzz
from hypothesis import strategies as st
from real_matrix import FACTS

from envbuild.cli import frame
from envbuild.errors import ConflictError, EnvbuildError, UnknownNameError
from envbuild.matrix.types import Matrix
from envbuild.model.resolution import Resolution
from envbuild.resolve.explanation import explain, explanation_json
from envbuild.resolve.request.parser import parse

ROOT = Path(__file__).parents[4]


@functools.cache
def table() -> Matrix:
    return FACTS


@functools.cache
def judge() -> Judge:
    return Judge(World.read(ROOT / "matrix.yaml"))


@functools.cache
def requests() -> Requests:
    return Requests(judge().world)


def answer(text: str, options: dict[str, Any]) -> Resolution | EnvbuildError:
    """The answer of `explain`, which runs all parts of `resolve`, too."""
    try:
        found = explain(table(), parse([text], matrix=table(), **options))
    except EnvbuildError as error:
        return error
    assert (found.resolution is None) != (found.error is None)
    json.dumps(explanation_json(found))
    return found.resolution or found.error  # type: ignore[return-value]


def is_whole(error: EnvbuildError) -> bool:
    """Whether a refusal says what is wrong and what to do, and names the facts of each conflict."""
    facts = all(item.row and item.reason and item.source for item in error.conflicts)
    return (
        bool(error.message) and bool(error.hint) and facts and (not isinstance(error, ConflictError) or bool(error.conflicts))
    )


@fuzz(900, st.deferred(lambda: requests().asked()))
def test_what_is_well_said_is_answered_truly(asked: Asked) -> None:
    found = answer(asked.text, asked.options)
    if isinstance(found, Resolution):
        assert not lies(judge(), asked.wish, found.environment, found.warnings), (asked, found)
    else:
        assert isinstance(found, (ConflictError, UnknownNameError)), (asked, found)
        assert is_whole(found), (asked, found)
        better = next(solutions(judge(), asked.wish), None)
        assert better is None, (asked, found, better)


def understood(text: str, options: dict[str, Any]) -> Wish | None:
    """The meaning that envbuild has read from a garbled request.

    Other tests check this reading with requests of known meaning.
    """
    try:
        return wish_of(parse([text], matrix=table(), **options))
    except EnvbuildError:
        return None


@fuzz(4200, st.deferred(lambda: garbled(requests())))
def test_what_is_badly_said_is_refused_or_answered_truly(asked: tuple[str, dict[str, Any]]) -> None:
    found, wish = answer(*asked), understood(*asked)
    if isinstance(found, Resolution):
        assert wish is not None
        assert not lies(judge(), wish, found.environment, found.warnings), (asked, found)
    else:
        assert is_whole(found), (asked, found)
        assert wish is None or next(solutions(judge(), wish), None) is None, (asked, found)


@fuzz(300, st.lists(st.text(max_size=12), max_size=4), st.dictionaries(st.sampled_from(["driver", "gpu", "python"]), st.text()))
def test_what_is_no_request_is_refused(texts: list[str], options: dict[str, Any]) -> None:
    with pytest.raises(EnvbuildError) as refused:
        parse(texts, matrix=table(), **options)
    assert is_whole(refused.value)


@fuzz(
    120,
    st.one_of(st.deferred(lambda: requests().asked()), st.deferred(lambda: garbled(requests()))),
    st.sampled_from(["resolve", "explain", "show"]),
)
def test_the_command_answers_in_one_document_and_with_the_right_code(asked: Any, verb: str) -> None:
    if isinstance(asked, tuple):
        asked = Asked(*asked, Wish(frameworks=()))
    if "\0" in "".join(asked.argv) or asked.text.startswith("-"):
        return  # no shell can pass a NUL, and a word that begins with - is an option
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = frame.run(["--root", str(ROOT), verb, "--json", *asked.argv])
    document = json.loads(output.getvalue())
    assert "Traceback" not in errors.getvalue()
    found = answer(asked.text, asked.options)
    expected = 0 if isinstance(found, Resolution) else found.exit_code
    assert code == expected, (asked, code, document)
    assert ("error" in document) == bool(code)


@fuzz(280, st.deferred(lambda: requests().asked()), st.integers(0, 9))
def test_asking_for_less_never_loses_a_solution(asked: Asked, at: int) -> None:
    """Removing a condition never removes the solution, and asking again gives the same answer.

    Requests with an own image are left out, because such an image needs its system and Python in the request.
    """
    found = answer(asked.text, asked.options)
    assert answer(asked.text, asked.options) == found or isinstance(found, EnvbuildError)
    parts = [] if asked.wish.image else list(asked.options)
    if isinstance(found, Resolution) and parts:
        less = {name: value for name, value in asked.options.items() if name != parts[at % len(parts)]}
        # Naming a base also allows more: a deleted image is used only if it is named.
        insisted = "base" in asked.options and "base" not in less
        assert insisted or isinstance(answer(asked.text, less), Resolution), (asked, less)

"""Damaged overlays of users, given by ``--matrix`` or ``ENVBUILD_MATRIX``: refused with the file name, or answered."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import tempfile
from pathlib import Path
from unittest.mock import patch

from fuzz_matrices import Seed, Spoilt, garbled, misvalued
from fuzzing import fuzz
from hypothesis import strategies as st

from envbuild.cli import frame

TOY = Path(__file__).parents[2] / "golden" / "toy"
DATA = Path(__file__).parents[1] / "data" / "overlays"


@functools.cache
def site() -> Seed:
    return Seed({path.name: path.read_bytes() for path in DATA.glob("*.yaml")})


@fuzz(
    200,
    st.one_of(st.deferred(lambda: misvalued(site())), st.deferred(lambda: garbled(site()))),
    st.sampled_from([("resolve", "wd-1.12"), ("explain", "gd"), ("show", "wd", "--driver", "384.130"), ("matrix", "check")]),
    st.booleans(),
)
def test_overlays_of_the_command_line(spoilt: Spoilt, words: tuple[str, ...], by_variable: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("rows.yaml", "more.yaml")]
        for path in paths:
            path.write_bytes(spoilt.sources[path.name])
        variables = {"ENVBUILD_HOME": f"{folder}/home", "ENVBUILD_MATRIX": ""}
        flags = [word for path in paths for word in ("--matrix", str(path))]
        if by_variable:
            variables["ENVBUILD_MATRIX"], flags = os.pathsep.join(map(str, paths)), []
        output, errors = io.StringIO(), io.StringIO()
        with patch.dict(os.environ, variables), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = frame.run(["--root", str(TOY), *flags, "--json", *words])
        document = json.loads(output.getvalue())
        assert "Traceback" not in errors.getvalue()
        assert code in (0, 3, 4, 5), document
        assert ("error" in document) == bool(code)
        problems = document["error"]["problems"] if code == 5 else []
        assert (code == 5) == bool(problems)
        known = [str(path) for path in paths]
        assert [p for p in problems if p["where"] not in known or not p["line"]] == []

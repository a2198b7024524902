"""A missing judge skips a test, and fails it in `make prove`."""

from __future__ import annotations

from pathlib import Path

import judges
import pytest

ROOT = Path(__file__).parents[2]


def test_a_missing_judge_skips_the_test(monkeypatch):
    monkeypatch.delenv("ENVBUILD_REQUIRE_JUDGES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not installed: no-such-judge, nodejs-of-nobody"):
        judges.require("sh", "no-such-judge", "nodejs-of-nobody")


def test_a_missing_judge_fails_the_test_if_judges_are_required(monkeypatch):
    monkeypatch.setenv("ENVBUILD_REQUIRE_JUDGES", "1")
    judges.require("sh")
    with pytest.raises(pytest.fail.Exception, match="not installed: no-such-judge"):
        judges.require("no-such-judge")


def test_make_prove_requires_the_judges():
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nprove:")[2].partition("\n\n")[0]
    assert "ENVBUILD_REQUIRE_JUDGES=1" in recipe and "ENVBUILD_REQUIRE_ENGINE=1" in recipe

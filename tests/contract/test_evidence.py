"""Committed evidence belongs to the committed locks, renderings and guest; otherwise it is stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import workspace
from envbuild.pipeline import evidence, evidence_upkeep
from envbuild.pipeline.tools import Tools

ROOT = Path(__file__).parents[2]
TOOLS = Tools(workspace.find(str(ROOT)))
FILES = sorted((ROOT / "images/evidence").iterdir())


def test_there_is_committed_evidence():
    assert len(FILES) > 80


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_committed_evidence_is_stale(path: Path):
    held = evidence.read(path, path.stem)
    assert (held.name, path.suffix) == (path.stem, ".json")
    assert held.contradicted == ()
    row = evidence_upkeep.survey_evidence(TOOLS, path.stem)
    assert not row.orphan, "the matrix has no such environment: envbuild evidence --all --prune"
    stale = [each for each in row.stale if each.place == "repository"]
    assert stale == [], "envbuild evidence --all --prune"


def test_every_kind_has_a_place_in_the_schema_of_answers():
    import json

    schema = json.loads((ROOT / "envbuild/schemas/resolution.json").read_text())
    assert schema["$defs"]["proof"]["enum"] == list(evidence.KINDS)

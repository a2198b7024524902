"""Launchers are read from data files."""

import dataclasses

import pytest
from launch_orders import HERE, LAUNCHERS, PLAIN

from envbuild.errors import InvalidInputError, UnknownNameError
from envbuild.launch.launchers import choose, load_launchers
from envbuild.launch.rendering import render


def test_an_unknown_launcher_or_kind_names_those_there_are():
    with pytest.raises(UnknownNameError, match="bsub") as refused:
        choose(LAUNCHERS, "bsub", "")
    assert "mpirun" in refused.value.hint
    with pytest.raises(UnknownNameError) as refused:
        choose(LAUNCHERS, "slurm", "podman")
    assert "pyxis" in refused.value.hint


def test_a_launcher_is_added_without_python(tmp_path):
    folder = tmp_path / "images" / "launchers" / "bsub"
    folder.mkdir(parents=True)
    (folder / "launcher.yaml").write_text(
        "schema: 1\nlauncher: bsub\ntitle: LSF\nkinds:\n  - {kind: plain, title: plain, run: [bsub], programs: [bsub]}\n"
    )
    (folder / "plain.j2").write_text("#BSUB -n {{ total }}\n{{ guest | words }}\n")
    place = dataclasses.replace(HERE, root=tmp_path)
    launcher, kind = choose(load_launchers(place), "bsub", "")
    assert (
        render(launcher, kind, PLAIN, {"bsub/plain.j2": (folder / "plain.j2").read_text()})
        == "#BSUB -n 8\nenvbuild-smoke run\n"
    )


def test_what_is_wrong_in_a_launcher_is_said_at_once(tmp_path):
    folder = tmp_path / "images" / "launchers" / "bsub"
    folder.mkdir(parents=True)
    (folder / "launcher.yaml").write_text(
        "schema: 1\nlauncher: lsf\ntitle: LSF\nkinds:\n  - {kind: plain, titel: plain, run: [bsub]}\n"
    )
    with pytest.raises(InvalidInputError) as refused:
        load_launchers(dataclasses.replace(HERE, root=tmp_path))
    said = " ".join(str(problem) for problem in refused.value.problems)
    assert all(word in said for word in ("lsf", "titel", "plain.j2"))

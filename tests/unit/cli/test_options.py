"""Shared options, and the text of answers."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from envbuild import cli
from envbuild.cli import options, wording
from envbuild.errors import UsageError
from envbuild.smoketest import SmokeOptions

NOTHING = {"driver": None, "gpu": None, "python": None, "python_from": None, "system": None, "base": None}


@pytest.mark.parametrize(
    ("request_text", "tags"),
    [
        ("ab-1.2-cpu", ("ab-1.2-cpu",)),
        ("ab-1.2+cd-3", ("ab-1.2_cd-3",)),
        ("AB-1.2", ("ab-1.2",)),
        ("ab==1.2", ()),
        ("-x", ()),
        ("a" * 129, ()),
    ],
)
def test_a_request_that_can_be_a_tag_becomes_one(request_text, tags):
    assert options.alias(request_text, NOTHING) == tags


def test_a_request_with_other_options_is_no_tag():
    assert options.alias("ab-1.2", {**NOTHING, "python": "3.9"}) == ()


def values(**changes):
    return {
        "allow_cpu": False,
        "expect": None,
        "expect_gpus": None,
        "counts": "1,2",
        "gpus": "",
        "min_speedup": "",
        "timeout_s": None,
        "strict": False,
        **changes,
    }


def test_counts_are_sorted_and_without_repeats():
    assert options.smoke_options(values(counts="2, 1,2")).counts == (1, 2)


def test_counts_can_be_left_to_the_guest():
    assert options.smoke_options(values(counts="auto")).counts == ()


def test_what_nobody_said_is_left_to_the_guest():
    said = {}
    click.command()(options.judging(lambda **values: said.update(values))).main([], standalone_mode=False)
    assert options.smoke_options(said) == SmokeOptions(counts=())


@pytest.mark.parametrize("text", ["", "0,1", "1,,2", "one", "1;2", "-1"])
def test_counts_that_are_none_are_a_usage_error(text):
    with pytest.raises(UsageError, match="--counts"):
        options.smoke_options(values(counts=text))


def test_options_are_split_by_what_they_are_for():
    constraints, judging = options.split({**NOTHING, **values(), "gpu": "sm_61"})
    assert constraints["gpu"] == "sm_61"
    assert set(judging) == set(values())


@pytest.mark.parametrize(
    ("value", "text"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7260, "2 h 1 min")]
)
def test_durations(value, text):
    assert wording.seconds(value) == text


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3.2e9, "3.2 GB")])
def test_sizes(count, text):
    assert wording.size(count) == text


def test_columns_are_aligned_without_trailing_spaces():
    assert wording.columns([["a", "bb"], ["ccc", ""]], indent="  ") == "  a    bb\n  ccc"


def test_an_environment_reads_as_a_list_of_choices():
    answer = {
        "name": "ab-1.2.3-cuda9.0-py35-os1",
        "frameworks": [{"name": "ab", "version": "1.2.3", "package": "ab-gpu"}],
        "python": "3.5",
        "os": "os1",
        "cuda": "9.0",
        "cudnn": "7.4.2",
        "nccl": None,
        "base": {"provider": "apt", "image": "os:1", "other_providers": ["tag"]},
        "driver_min": "384.81",
        "compute_capability": {"sass": ["3.5", "7.0"], "ptx": ["7.0"]},
        "reasons": [{"choice": "cuda 9.0", "because": "the only one", "source": "https://docs.example/x"}],
        "evidence": ["locked"],
    }
    text = wording.environment(answer)
    assert text.startswith("ab-1.2.3-cuda9.0-py35-os1\n")
    for part in (
        "ab-gpu",
        "provider apt; also tag",
        ">= 384.81",
        "3.5, 7.0",
        "locked",
        "the only one [https://docs.example/x]",
    ):
        assert part in text
    assert "nccl" not in text


@pytest.mark.parametrize(("base", "code"), [("nonsense", 4), ("condo", 4), ("WHEELS", 0)])
def test_a_list_for_a_base_that_there_is_not_is_refused(capsys, base, code):
    with pytest.raises(SystemExit) as left:
        cli.main(["list", "tensorflow", "--base", base, "--root", str(Path(__file__).parents[3])])
    assert left.value.code == code
    said = capsys.readouterr()
    assert ("tf-2" in said.out) == (code == 0)
    assert ("Providers: " in said.err) == (code != 0)


def test_requests_for_one_environment_give_its_image_a_tag_each():
    requests = ("tf-2.21-cpu", "TF-2.21.0-cpu", "tensorflow==2.21.0", "tf-2.21-cpu")
    assert options.aliases(requests, {"driver": None}) == ("tf-2.21-cpu", "tf-2.21.0-cpu")
    assert options.aliases(requests, {"driver": "390"}) == ()

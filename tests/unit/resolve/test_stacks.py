"""Stacks in the toy matrix: they are read, divided and refused, and locked ones are checked again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild import codec, stacks
from envbuild.errors import ConflictError, EnvbuildError, InvalidInputError, UnknownNameError, UsageError
from envbuild.matrix.reading.loader import compile_matrix, load_files, read_sources
from envbuild.model.environment import Environment, PrefixPlan
from envbuild.model.lock import BaseLock, Lock
from envbuild.model.resolution import Resolution
from envbuild.pipeline import listing, locking, resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve
from envbuild.resolve.stacks import departures, resolve_stack
from envbuild.workspace import Workspace

ENTRY = Path(__file__).parents[2] / "golden" / "toy" / "several.yaml"
TOY = load_files(ENTRY)
GPU = """\
schema: 1
stack: shelf
title: A shelf
system: granite16.04
python: ["3.5", "2.7"]
cuda: "9.0"
frameworks: [{}]
"""
CPU = GPU.replace('cuda: "9.0"\n', "")


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Read a stack from its text."""

    def call(text: str, name: str = "shelf") -> stacks.Stack:
        found = stacks.read(workspace(tmp_path, {name: text}), name)
        assert found is not None
        return found

    return call


@pytest.fixture
def ask(read: Any) -> Any:
    """The resolution of a stack of these frameworks, each given as YAML."""

    def call(*members: str, text: str = GPU, **hardware: str) -> Resolution:
        return resolve_stack(TOY, read(text.format(", ".join(members))), **hardware)

    return call


def workspace(root: Path, texts: dict[str, str]) -> Workspace:
    (root / "images" / "stacks").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (root / "images" / "stacks" / f"{name}.yaml").write_text(text)
    return Workspace(root=root, output=root / "images", home=root / "home")


def prefixes(environment: Environment) -> dict[str, set[str]]:
    return {plan.name: set(plan.frameworks) for plan in environment.plans()}


def told(resolution: Resolution, choice: str) -> list[str]:
    return [reason.because for reason in resolution.reasons if reason.choice == choice]


# --- dividing -----------------------------------------------------------------------------------------------------------


def test_what_goes_together_is_one_set_under_the_stacks_name(ask: Any) -> None:
    found = ask('"shade==2.2.2"', '"lantern==1.0.0"', text=GPU).environment
    joint = resolve(TOY, parse(["shade-2.2.2+lantern-1.0.0-cuda9.0-py35-granite16.04"], matrix=TOY)).environment
    assert (found.name, found.prefixes) == ("shelf", ())
    base = replace(found.base, other_providers=joint.base.other_providers)
    assert replace(found, name=joint.name, base=base) == joint


def test_a_python_that_a_framework_lacks_makes_a_prefix_and_is_told_with_its_row(ask: Any) -> None:
    resolution = ask('"wd==1.12.3"', '"plain==2.4.9"', '"lantern==1.0.0"')
    environment = resolution.environment
    assert prefixes(environment) == {"py35": {"widget", "lantern"}, "py27": {"plain"}}
    assert [plan.python.version for plan in environment.plans()] == ["3.5", "2.7"]
    assert environment.python.version == "3.5" and environment.driver_min == "384.81"
    (why,) = told(resolution, "py27: plain")
    assert why == "cannot be in the prefix py35: plain 2.4.9 system: supports Python 2.7; the request asks for 3.5"
    source = next(reason.source for reason in resolution.reasons if reason.choice == "py27: plain")
    assert source == "https://example.org/plain"


def test_packages_that_contradict_make_a_second_prefix_of_one_python(ask: Any) -> None:
    resolution = ask('"wd==1.12.3"', '"crate==1.2"', '"plain==4.0"', text=GPU.replace('"9.0"', '"9.0"\ncudnn: "7.6.4"'))
    assert prefixes(resolution.environment) == {"py35": {"widget", "plain"}, "py35-crate": {"crate"}}
    assert any("must have helper<3" in why for why in told(resolution, "py35-crate: crate"))
    assert resolution.environment.cudnn == "7.6.4"


def test_each_prefix_has_the_dependencies_of_its_own_time(ask: Any) -> None:
    environment = ask('"wd==1.12.3"', '"plain==2.4.9"').environment
    old = environment.part(environment.plans()[1])
    assert environment.exclude_newer > "2019" and old.exclude_newer.startswith("2016")
    assert [framework.name for framework in old.frameworks] == ["plain"] and old.prefixes == ()


def test_the_first_of_a_prefix_brings_its_python_and_later_ones_may_take_an_earlier_prefix(ask: Any) -> None:
    found = ask('"plain==2.4.9"', '"crate==1.0"', '"lantern==1.0.0"').environment
    assert prefixes(found) == {"py27": {"lantern", "plain"}, "py35": {"crate"}}


def test_builds_of_an_earlier_prefix_give_way_to_what_the_image_must_hold(ask: Any) -> None:
    """Alone, the first framework would get another release of the library."""
    assert ask('"wd==1.12.3"').environment.cudnn == "7.4.2"
    found = ask('"wd==1.12.3"', '"crate==1.1"').environment
    assert (found.cudnn, prefixes(found)) == ("7.6.4", {"env": {"widget", "crate"}})


def test_what_only_locking_shows_is_said_in_the_file(ask: Any) -> None:
    member = (
        '{request: "lantern==1.0.0", apart: [{from: widget, because: "both own one file", source: "https://example.org/x"}]}'
    )
    resolution = ask('"wd==1.12.3"', member, '"plain==4.0"')
    assert prefixes(resolution.environment) == {"py35": {"widget", "plain"}, "py35-lantern": {"lantern"}}
    (why,) = told(resolution, "py35-lantern: lantern")
    assert why == "cannot be in the prefix py35: stack shelf: lantern: kept apart from widget: both own one file"


def test_a_framework_may_have_pythons_of_its_own(ask: Any) -> None:
    resolution = ask('"wd==1.12.3"', '{request: "plain==4.0", python: ["2.7"], source: "https://example.org/said"}')
    assert prefixes(resolution.environment) == {"py35": {"widget"}, "py27": {"plain"}}
    assert told(resolution, "py27: plain") == [
        "cannot be in the prefix py35: stack shelf: plain: must have Python 2.7, not 3.5"
    ]


def test_a_stack_without_cuda_is_for_cpus(ask: Any) -> None:
    environment = ask('"wd==1.12.3"', '"plain==2.4.9"', text=CPU).environment
    assert (environment.cuda, environment.driver_min, environment.require_cuda) == (None, None, None)
    assert {framework.name: framework.variant for framework in environment.frameworks} == {"widget": "cpu", "plain": "system"}


def test_the_same_stack_is_the_same_to_the_byte_and_reads_back(ask: Any) -> None:
    members = ['"wd==1.12.3"', '"plain==2.4.9"', '"crate==1.2"']
    text = GPU.replace('"9.0"', '"9.0"\ncudnn: "7.6.4"')
    first, second = (ask(*members, text=text).environment for _ in range(2))
    assert codec.dumps(first) == codec.dumps(second)
    assert codec.decode(Environment, codec.encode(first), "it") == first


# --- refusing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "text", "part"),
    [
        (['"wd==1.12.3"', '"crate==2.0"'], GPU, "crate 2.0 cu110: built for CUDA 11.0; the request asks for CUDA 9.0"),
        (['"gizmo==3.1.0"'], GPU.replace('cuda: "9.0"', 'cuda: "12.4"'), "granite16.04"),
        (['"wd==1.12.4"'], GPU, "crashes at import"),
        (['"crate==1.0"'], GPU.replace('["3.5", "2.7"]', '["2.7"]'), "supports Python 3.5, 3.6; the request asks for 2.7"),
        (['"wd==1.12.3"', '"crate==1.1"'], GPU.replace('"9.0"', '"9.0"\ncudnn: "7.4.2"'), ""),
    ],
)
def test_a_framework_that_fits_nowhere_is_refused_with_the_facts(ask: Any, members: list[str], text: str, part: str) -> None:
    with pytest.raises(ConflictError) as caught:
        ask(*members, text=text)
    error = caught.value
    assert f"no prefix can contain {members[-1].strip(chr(34))}" in error.message and error.hint
    assert part in "\n".join(f"{each.row}: {each.reason}" for each in error.conflicts)


def test_hardware_is_checked_and_changes_nothing(ask: Any) -> None:
    members = ['"wd==1.12.3"', '"plain==2.4.9"']
    plain = ask(*members).environment
    assert ask(*members, driver="390.10", gpu="sm_70").environment == plain
    with pytest.raises(ConflictError, match="shelf does not run on the requested driver or GPU") as caught:
        ask(*members, driver="375.26")
    assert caught.value.conflicts[0].row == "cuda 9.0"
    with pytest.raises(ConflictError):
        ask(*members, text=GPU.replace('"9.0"', '"9.0"\ndriver: "375.26"'))


def test_a_library_that_nothing_takes_from_the_image_is_a_warning(ask: Any) -> None:
    found = ask('"lantern==1.0.0"', text=GPU.replace('"9.0"', '"9.0"\ncudnn: "7.6.4"'))
    assert any("sets cudnn, but no framework of the stack uses it from the image" in text for text in found.warnings)


def test_an_unknown_or_doubled_framework_is_refused(ask: Any) -> None:
    with pytest.raises(UnknownNameError):
        ask('"nothing==1.0"')
    with pytest.raises(InvalidInputError, match="Widget is named twice"):
        ask('"wd==1.12.3"', '"widget==1.12.0"')
    misspelt = '{request: "plain==4.0", apart: [{from: wd, because: "clash", source: "https://example.org/x"}]}'
    with pytest.raises(InvalidInputError, match=r"its `apart` names wd, .* come before it can be named \(widget\)"):
        ask('"wd==1.12.3"', misspelt)


# --- an earlier decision ------------------------------------------------------------------------------------------------


def test_each_prefix_of_an_earlier_decision_is_judged_as_an_environment(ask: Any) -> None:
    environment = ask('"wd==1.12.3"', '"plain==2.4.9"').environment
    assert recheck(TOY, environment) == []
    first, second = environment.prefixes
    swapped = replace(environment, prefixes=(first, replace(second, python=first.python)))
    assert [each.reason for each in recheck(TOY, swapped)] == ["supports Python 2.7, but no longer 3.5"]


def test_what_all_prefixes_share_is_judged_too(ask: Any) -> None:
    environment = ask('"wd==1.12.3"', '"plain==2.4.9"').environment
    sources = read_sources(ENTRY)
    place = next(name for name in sources if name.endswith("plain.yaml"))
    sources[place] = sources[place].replace(b"systems: [granite16.04]", b"systems: [marble10]")
    reasons = [each.reason for each in recheck(compile_matrix(sources), environment)]
    assert reasons and all("marble10" in reason or "granite16.04" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('"wd==1.12.3"', '"wd==1.12.0"', "asks for wd==1.12.0, but the lock has 1.12.3"),
        (', "plain==2.4.9"', "", "no longer contains plain"),
        ('"plain==2.4.9"', '"plain==2.4.9", "lantern==1.0.0"', "now asks for lantern==1.0.0"),
        ('["3.5", "2.7"]', '["2.7", "3.6"]', "asks for widget on Python 2.7, 3.6, but the lock has 3.5"),
        ('cuda: "9.0"', 'cuda: "9.0"\ncudnn: "7.6.4"', "asks for cudnn 7.6.4, but the lock has 7.4.2"),
        ("granite16.04", "marble10", "is on marble10, but the lock is on granite16.04"),
    ],
)
def test_a_stack_that_changed_since_is_told_apart(ask: Any, read: Any, old: str, new: str, part: str) -> None:
    environment = ask('"wd==1.12.3"', '"plain==2.4.9"').environment
    text = GPU.format('"wd==1.12.3", "plain==2.4.9"')
    assert departures(TOY, read(text), environment) == []
    assert part in departures(TOY, read(text.replace(old, new)), environment)


# --- the file -----------------------------------------------------------------------------------------------------------


def test_every_problem_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    broken = (
        GPU.replace('cuda: "9.0"', "cuda: 9.0").format('"wd = 1.12", {request: "plain==4.0", python: ["2.7"]}') + "modul: x\n"
    )
    other = CPU.replace("stack: shelf", "stack: shelve").format("") + 'driver: "384"\n'
    with pytest.raises(InvalidInputError) as caught:
        stacks.load(workspace(tmp_path, {"shelf": broken, "other": other}))
    text = "\n".join(map(str, caught.value.problems))
    for part in (
        "images/stacks/shelf.yaml:6: cuda: YAML reads 9.0 as a number: quote it",
        "'wd = 1.12' is not a framework with conditions",
        "frameworks[1]: source is missing",
        "unknown key",
        "images/stacks/other.yaml:2: stack: must be 'other', the name of the file, not 'shelve'",
        "frameworks: the list is empty; it needs at least one entry",
        "driver: a stack without `cuda` is only for CPUs, so it cannot have this key",
    ):
        assert part in text, text


def test_no_file_is_no_stack(tmp_path: Path) -> None:
    assert stacks.read(workspace(tmp_path, {}), "shelf") is None
    assert stacks.load(workspace(tmp_path, {})) == {}


# --- as a request -------------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    found = Tools(workspace(tmp_path, {"shelf": GPU.format('"wd==1.12.3", "plain==2.4.9"')}))
    found.__dict__["matrix"] = TOY
    return found


def test_a_stacks_name_is_a_request_in_any_case(tools: Tools) -> None:
    for text in ("shelf", "Shelf"):
        assert resolving.resolve_request(tools, [text], Constraints()).environment.name == "shelf"
    explained = resolving.explain_request(tools, ["shelf"], Constraints(driver="375.26"))
    assert explained.resolution is None and explained.error is not None and explained.error.exit_code == 3


def test_what_a_stacks_file_says_cannot_be_said_otherwise(tools: Tools) -> None:
    for option in ({"python": "3.6"}, {"python_from": "uv"}, {"system": "marble10"}, {"base": "tag"}):
        with pytest.raises(UsageError) as caught:
            resolving.resolve_request(tools, ["shelf"], Constraints(**option))
        assert caught.value.code == "stack-fixed"


def test_a_misspelt_stack_is_suggested(tools: Tools) -> None:
    with pytest.raises(EnvbuildError) as caught:
        resolving.resolve_request(tools, ["shlef"], Constraints())
    assert caught.value.exit_code == 4 and caught.value.alternatives[0].name == "shelf"
    assert caught.value.hint.startswith("Did you mean the stack shelf?")


def test_stacks_are_listed(tools: Tools) -> None:
    (row,) = listing.list_stacks(tools)
    assert (row["name"], row["frameworks"], row["cuda"]) == ("shelf", ["wd==1.12.3", "plain==2.4.9"], "9.0")


def test_a_lock_of_a_stack_that_changed_is_stale(tools: Tools) -> None:
    environment = resolving.resolve_request(tools, ["shelf"], Constraints()).environment
    base = BaseLock(image=environment.base.image, digest=None, bootstrap=None)
    path = tools.workspace.lock_file("shelf")
    locked = Locked(lock=Lock(environment=environment, base=base, prefixes=(), missing=()), digest="", path=path, kept=True)
    workspace(tools.workspace.root, {"shelf": GPU.format('"wd==1.12.0", "plain==2.4.9"')})
    with pytest.raises(InvalidInputError) as caught:
        locking.check_lock(tools, locked)
    assert caught.value.code == "stale-lock" and caught.value.exit_code == 5
    assert "the stack asks for wd==1.12.0, but the lock has 1.12.3" in [problem.message for problem in caught.value.problems]


def test_a_locked_stack_is_its_lock_until_the_file_changes_or_a_new_one_is_asked_for(tools: Tools) -> None:
    found = resolving.resolve_request(tools, ["shelf"], Constraints()).environment
    older = replace(found, exclude_newer="2020-01-01")
    base = BaseLock(image=older.base.image, digest=None, bootstrap=None)
    path = tools.workspace.lock_file("shelf")
    path.parent.mkdir(parents=True)
    path.write_text(codec.dumps(Lock(environment=older, base=base, prefixes=(), missing=())))
    assert resolving.resolve_request(tools, ["shelf"], Constraints()).environment == older
    assert resolving.resolve_request(tools, ["shelf"], Constraints(), anew=True).environment == found
    workspace(tools.workspace.root, {"shelf": GPU.format('"wd==1.12.3", "plain==4.0"')})
    assert resolving.resolve_request(tools, ["shelf"], Constraints()).environment.prefixes == ()


# --- over many combinations ---------------------------------------------------------------------------------------------

MEMBERS = ["wd==1.12.3", "wd==1.12.0", "shade==2.2.2", "lantern==1.0.0", "lantern==1.0.1", "crate==1.0", "crate==1.2",
           "plain==2.4.9", "plain==4.0", "shutter==1.23"]  # fmt: skip
SETS = [chosen for chosen in itertools.permutations(MEMBERS, 3) if len({text.split("=")[0] for text in chosen}) == 3][::4]


def stack_of(requests: tuple[str, ...]) -> stacks.Stack:
    pythons = ("3.5", "2.7")
    members = tuple(stacks.StackMember(request=text, pythons=pythons, source="", apart=()) for text in requests)
    return stacks.Stack(
        name="shelf", title="", note="", source="", system="granite16.04", pythons=pythons, cuda="9.0", cudnn="", nccl="",
        driver="", gpus=(), members=members,
    )  # fmt: skip


def test_every_division_is_accepted_and_no_framework_would_fit_an_earlier_prefix() -> None:
    divided = 0
    for requests in SETS:
        try:
            environment = resolve_stack(TOY, stack_of(requests)).environment
        except ConflictError:
            continue
        assert recheck(TOY, environment) == [], requests
        divided += bool(environment.prefixes)
        for later, plan in enumerate(environment.plans()):
            for name, earlier in itertools.product(plan.frameworks, environment.plans()[:later]):
                assert recheck(TOY, moved(environment, name, earlier)), (requests, name, earlier.name)
    assert divided > 20


def moved(environment: Environment, name: str, to: PrefixPlan) -> Environment:
    """The same builds, with one of them in another prefix."""
    plans = []
    for plan in environment.prefixes:
        others = tuple(each for each in plan.frameworks if each != name)
        plans.append(replace(plan, frameworks=(*others, name) if plan == to else others))
    return replace(environment, prefixes=tuple(plan for plan in plans if plan.frameworks))

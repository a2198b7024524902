"""Releases that are add-ons to another framework, and builds that are on no package index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.errors import ConflictError, InvalidInputError, UnknownNameError
from envbuild.matrix import checks
from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.model.environment import Framework
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

SYSTEMS = """\
defaults: {source: "https://example.org/systems", checked: "2026-01-01"}
systems:
  - {name: plain1, family: plain, version: "1", codename: one, image: "plain:1", glibc: "2.31", released: "2020-01-01",
     pythons: [{version: "3.9", packages: [python3], executable: /usr/bin/python3.9}]}
pythons:
  - {version: "3.13", released: "2024-10-07"}
  - {version: "3.9", released: "2020-01-01"}
  - {version: "3.6", released: "2017-01-01"}
"""
HEAD = """\
defaults: {source: doc, checked: "2026-01-01"}
sources: {doc: {title: Document, url: "https://example.org/doc"}}
"""


def base(variants: str, release: str = "") -> str:
    return f"""{HEAD}
framework: {{name: below, title: Below, short: below, aliases: [below], recipe: below}}
series:
  - series: "1.0"
    constraints: ["lib<3"]
    variants:
{variants}
    releases:
      - {{version: "1.0.1", released: "2020-01-01"{release}}}
"""


BASE = base(
    """      gpu: {package: below-gpu, python: ["3.6", "3.9"], cuda_libraries: none, glibc: "2.17", options: {flavour: plain},
            index: "https://example.org/whl", local_version: "+one", requirements: ["part==2"]}"""
)


def above(release: str, series: str = "package: above") -> str:
    return f"""{HEAD.replace("doc", "paper")}
framework: {{name: above, title: Above, short: above, aliases: [above], recipe: above, options: {{kind: upper}}}}
series:
  - series: "2.0"
    {series}
    constraints: ["other<1"]
    releases:
      - {{version: "2.0.0", released: "2020-02-01"{release}}}
"""


@pytest.fixture
def read(tmp_path: Path):
    """Read the matrix from a few files, with one system."""

    def load(*texts: str) -> Matrix:
        names = [f"file{number}.yaml" for number in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            (tmp_path / name).write_text(text)
        entry = tmp_path / "matrix.yaml"
        (tmp_path / "systems.yaml").write_text(SYSTEMS)
        entry.write_text(
            "schema: 1\npolicy: {dependency_margin_days: 60, python_from: [distribution]}\ninclude: [systems.yaml, "
            + ", ".join(names)
            + "]\n"
        )
        return load_files(entry)

    return load


def framework(facts: Matrix, name: str) -> FrameworkTable:
    return next(table for table in facts.frameworks if table.name == name)


def chosen(facts: Matrix, request: str) -> Framework:
    return resolve(facts, parse([request], matrix=facts)).environment.frameworks[0]


def problems(read, *texts: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read(*texts)
    return "\n".join(str(problem) for problem in caught.value.problems)


def test_builds_are_those_of_what_it_stands_upon(read):
    facts = read(above(', upon: {below: "1.0.1"}'), BASE)
    assert checks.check(facts) == []
    (variant,) = framework(facts, "above").releases[0].variants
    assert (variant.package, variant.python, variant.glibc, variant.index) == (
        "above",
        ("3.6", "3.9"),
        "2.17",
        "https://example.org/whl",
    )
    assert [item.requirement for item in variant.requirements] == ["below-gpu==1.0.1+one", "part==2"]
    assert [item.requirement for item in variant.constraints] == ["lib<3", "other<1"]
    assert variant.options == (("flavour", "plain"), ("kind", "upper"))
    assert variant.origin.sources == ("https://example.org/paper", "https://example.org/doc")
    assert variant.origin.source_of("python") == "https://example.org/doc"
    assert chosen(facts, "above-2.0").requirements == ("above==2.0.0", "below-gpu==1.0.1+one", "part==2")


def test_builds_for_different_systems_are_all_stood_upon(read):
    row = "{name}: {{package: {name}, python: ['3.9'], cuda_libraries: none, glibc: '2.5'}}"
    here, there = (row.format(name=name) for name in ("here", "there"))
    facts = read(base(f"      {here}\n      {there}"), above(', upon: {below: "1.0.1"}'))
    assert [variant.name for variant in framework(facts, "above").releases[0].variants] == ["here", "there"]


def test_its_dependencies_may_be_as_young_as_those_of_what_it_stands_upon(read):
    late = BASE.replace('released: "2020-01-01"', 'released: "2020-08-01"')
    facts = read(above(', upon: {below: "1.0.1"}'), late)
    assert framework(facts, "above").releases[0].exclude_newer == "2020-09-30"
    own = read(above(', upon: {below: "1.0.1"}, exclude_newer: "2020-02-02"'), late)
    assert framework(own, "above").releases[0].exclude_newer == "2020-02-02"


def test_pythons_are_narrowed_and_a_local_version_is_shared(read):
    facts = read(BASE, above(', upon: {below: "1.0.1"}, python: ["3.9", "3.13"], local_version: same'))
    (variant,) = framework(facts, "above").releases[0].variants
    assert variant.python == ("3.9",)
    assert variant.pins("2.0.0") == ("above==2.0.0+one",)


def test_a_build_is_as_doubtful_as_what_it_stands_upon(read):
    facts = read(
        base(BASE.split("variants:\n")[1].split("    releases")[0].rstrip(), ', status: unknown, note: "not tried"'),
        above(', upon: {below: "1.0.1"}'),
    )
    (variant,) = framework(facts, "above").releases[0].variants
    assert (variant.origin.status, variant.origin.note) == ("unknown", "not tried")


def test_without_a_package_it_is_the_other_under_another_name(read):
    inside = above(', upon: {below: "1.0.1"}', "source: paper").replace("2.0.0", "1.0.1")
    facts = read(BASE, inside)
    assert chosen(facts, "above").requirements == ("below-gpu==1.0.1+one", "part==2")
    assert recheck(facts, resolve(facts, parse(["above"], matrix=facts)).environment) == []
    assert "must have the version of below" in problems(read, BASE, above(', upon: {below: "1.0.1"}', "source: paper"))


def test_own_builds_come_first_and_others_can_be_left_out(read):
    own = ', upon: {below: "1.0.1"}, variants: {cpu: {package: above, python: ["3.9"], cuda_libraries: none, glibc: "2.5"}}'
    (variant,) = framework(read(BASE, above(own)), "above").releases[0].variants
    assert (variant.name, variant.glibc) == ("cpu", "2.5")
    assert "the release has no build" in problems(read, BASE, above(', upon: {below: "1.0.1"}, without: [gpu]'))
    assert "leaves out 'tpu'" in problems(read, BASE, above(', upon: {below: "1.0.1"}, without: [tpu]'))


@pytest.mark.parametrize(
    ("release", "message"),
    [
        (', upon: {nothing: "1"}', "the matrix has no framework nothing"),
        (', upon: {below: "9.9"}', "the matrix has no below 9.9"),
        (', upon: {above: "2.0.0"}', "above is itself based on this framework"),
        ("", "`package` can be written here only for an add-on"),
        (', upon: {below: "1.0.1"}, revision: abc', "`repository` and `revision` belong together"),
    ],
)
def test_what_it_cannot_stand_upon_is_a_problem(read, release, message):
    assert message in problems(read, BASE, above(release))


def test_a_build_from_source_asks_no_index_and_tells_the_recipe_where(read):
    facts = read(
        base(
            """      cpu: {package: below, python: ["3.9"], cuda_libraries: none, glibc: "2.17",
            repository: "https://example.org/below", revision: abc123, requirements: [part]}"""
        )
    )
    request = parse(["below"], matrix=facts)
    found = resolve(facts, request)
    assert found.environment.frameworks[0].requirements == ("part",)
    assert found.environment.frameworks[0].options == {"repository": "https://example.org/below", "revision": "abc123"}
    assert "source https://example.org/below at abc123" in [reason.choice for reason in found.reasons]
    assert recheck(facts, found.environment) == []


def test_a_package_of_the_distribution_says_its_version(read):
    text = base(
        """      cpu: {package: python-below, python: ["3.9"], cuda_libraries: none, glibc: "2.17", systems: [plain1],
            distribution: "1.0.1-2"}"""
    )
    facts = read(text)
    found = resolve(facts, parse(["below"], matrix=facts))
    assert found.environment.frameworks[0].options == {"distribution": "1.0.1-2"}
    assert "package python-below 1.0.1-2 of plain1" in [reason.choice for reason in found.reasons]
    assert "so no add-on can be based on it" in problems(read, text, above(', upon: {below: "1.0.1"}'))


# --- pairs: tested, allowed, known bad ----------------------------------------------------------------------------------

TEN = """      gpu: {package: below, python: ["3.6", "3.9"], cuda_libraries: none, glibc: "2.17"}"""
LATER = "".join(
    f'\n      - {{version: "{each}", released: "2020-01-01"}}' for each in ("1.0.0", "1.0.2", "1.0.3", "1.0.4", "1.0.5")
)
RANGE = (
    'package: above\n    upon:\n      below: {allows: ">=1.0.1", allows_source: "https://example.org/range",\n'
    '        known_bad: [{versions: ">=1.0.5", why: "it crashes", source: "https://example.org/report"}]}'
)
TESTED = ', upon: {below: {tested: ["1.0.2", "1.0.3"], source: "https://example.org/tests"}}'


def pairs(read) -> Matrix:
    return read(above(TESTED, RANGE), base(TEN) + LATER.lstrip("\n") + "\n")


def ask(facts: Matrix, *words: str):
    return resolve(facts, parse(list(words), matrix=facts))


def test_ranges_are_handed_down_key_by_key(read):
    facts = pairs(read)
    assert checks.check(facts) == []
    (found,) = framework(facts, "above").releases[0].pairs
    assert (found.taken, found.tested, found.allowed) == ("1.0.3", ("1.0.3", "1.0.2"), ("1.0.4", "1.0.1"))
    assert [each.releases for each in found.bad] == [("1.0.5",)]
    assert (found.source, found.allows_source) == ("https://example.org/tests", "https://example.org/range")
    (variant,) = framework(facts, "above").releases[0].variants
    assert variant.upon == (("below", "1.0.3", "gpu"),)


def test_a_pair_is_tested_or_allowed_with_a_warning_or_refused(read):
    facts = pairs(read)
    tested, allowed = ask(facts, "above", "below==1.0.2"), ask(facts, "above", "below==1.0.4")
    assert (tested.details[0].upon[0].pair, tested.warnings) == ("tested", ())
    assert "below==1.0.4" in allowed.environment.frameworks[0].requirements
    assert allowed.details[0].upon[0].pair == "allowed"
    assert allowed.warnings == (
        "above 2.0.0 on below 1.0.4: upstream allows this combination but has not tested it [https://example.org/range].",
    )
    for version, reason, source in (
        ("1.0.5", "does not work with below 1.0.5: it crashes", "https://example.org/report"),
        ("1.0.0", "works with below>=1.0.1, but not with 1.0.0", "https://example.org/range"),
    ):
        with pytest.raises(ConflictError) as caught:
            ask(facts, "above", f"below=={version}")
        (conflict,) = caught.value.conflicts
        assert (conflict.row, conflict.reason, conflict.source) == ("above 2.0.0 gpu", reason, source)
        assert caught.value.alternatives[0].name.startswith("above-2.0.0+below-1.0.")


def test_tested_pairs_come_first_and_then_the_newest_allowed(read):
    facts = pairs(read)
    versions = [framework.version for framework in ask(facts, "below", "above").environment.frameworks]
    assert versions == ["2.0.0", "1.0.3"]
    only = read(above(', upon: {below: {default: "1.0.1"}}', RANGE), base(TEN) + LATER.lstrip("\n") + "\n")
    assert [each.version for each in ask(only, "below", "above").environment.frameworks] == ["2.0.0", "1.0.1"]
    assert [each.version for each in ask(only, "below>1.0.1", "above").environment.frameworks] == ["2.0.0", "1.0.4"]


def test_what_stands_upon_another_by_itself_takes_its_default_and_else_names_the_other(read):
    old = '      gpu: {package: below, python: ["3.6"], cuda_libraries: none, glibc: "2.17"}'
    new = LATER.replace('"1.0.3", released: "2020-01-01"', '"1.0.3", released: "2020-01-01", python: ["3.9"]').lstrip("\n")
    facts = read(above(TESTED, RANGE), base(old.replace('"3.6"', '"3.9"')) + new + "\n")
    assert ask(facts, "above").environment.name == "above-2.0.0-cpu-py39-plain1"
    assert ask(facts, "above").environment.frameworks[0].requirements[1] == "below==1.0.3"
    narrow = read(
        above(TESTED, RANGE),
        base(old.replace('["3.6"]', '["3.6", "3.9"]'))
        + LATER.lstrip("\n").replace(
            '"1.0.3", released: "2020-01-01"', '"1.0.3", released: "2020-01-01", variants: {gpu: {python: ["3.6"]}}'
        )
        + "\n",
    )
    found = ask(narrow, "above")
    assert found.environment.name == "above-2.0.0+below-1.0.2-cpu-py39-plain1"
    assert recheck(narrow, found.environment) == []


def test_a_decision_is_stale_once_its_pair_is_known_bad(read):
    facts = pairs(read)
    held = ask(facts, "above", "below==1.0.4").environment
    alone = replace(held, frameworks=held.frameworks[:1])
    assert recheck(facts, held) == recheck(facts, alone) == []
    worse = read(above(TESTED, RANGE.replace(">=1.0.5", ">=1.0.4")), base(TEN) + LATER.lstrip("\n") + "\n")
    assert any("does not work with below 1.0.4: it crashes" in each.reason for each in recheck(worse, held))
    assert any("which the lock does not pin" in each.reason for each in recheck(worse, alone))


@pytest.mark.parametrize(
    ("upon", "problem"),
    [
        ('{tested: ["1.0.5"]}', "is listed both as tested and as known bad"),
        ('{default: "1.0.0"}', "below 1.0.0 is neither tested nor allowed"),
        ('{allows: "newer"}', "is not a condition on versions"),
        ('{known_bad: [{versions: ">=1", why: "no"}]}', "needs a `source`: the report"),
        ('{test: ["1.0.1"]}', "unknown key, did you mean tested?"),
        ('{allows: ">=9"}', "no version of below is listed as tested or allowed"),
    ],
)
def test_mistakes_in_ranges_are_told(read, upon, problem):
    text = above(f", upon: {{below: {upon}}}", RANGE)
    assert problem in problems(read, text, base(TEN) + LATER.lstrip("\n") + "\n")


def test_a_list_of_releases_in_the_place_of_a_range_is_told(read):
    assert "mapping" in problems(read, above(', upon: {below: ["1.0.1"]}'), base(TEN) + "\n")


def test_a_range_without_a_package_of_its_own_may_hold_its_own_version_alone(read):
    """Otherwise the base's package of another release would be offered under this version."""
    text = above(', upon: {below: {tested: ["2.0.0"], allows: ">=1"}}', "")
    below = base(TEN) + LATER.lstrip("\n") + '\n      - {version: "2.0.0", released: "2020-01-01"}\n'
    assert "a part of below and must have the version of below, 1.0.5" in problems(read, text, below)


# --- pairs that were tested on one device --------------------------------------------------------------------------------

ON_ONE = ', upon: {below: {tested_cpu: ["1.0.3"], tested_cuda: ["1.0.2"], source: "https://example.org/tests"}}'


def test_what_was_tested_on_one_device_is_allowed_on_the_other(read):
    facts = read(above(ON_ONE, RANGE), base(TEN) + LATER.lstrip("\n") + "\n")
    assert checks.check(facts) == []
    (found,) = framework(facts, "above").releases[0].pairs
    assert (found.taken, found.taken_cuda) == ("1.0.3", "1.0.2")
    assert [found.is_tested("1.0.3", cuda) for cuda in ("", "9.0")] == [True, False]
    assert [found.is_tested("1.0.2", cuda) for cuda in ("", "9.0")] == [False, True]
    assert chosen(facts, "above").requirements[1] == "below==1.0.3"
    untested = ask(facts, "above", "below==1.0.2")
    assert untested.details[0].upon[0].pair == "allowed"
    assert untested.warnings == (
        "above 2.0.0 on below 1.0.2: upstream allows this combination but has not tested it [https://example.org/range].",
    )


def test_what_was_tested_on_one_device_must_be_allowed(read):
    only = above(ON_ONE, "package: above")
    assert "so `allows` must contain it" in problems(read, only, base(TEN) + LATER.lstrip("\n") + "\n")


def test_a_release_that_says_what_was_tested_replaces_all_that_its_series_says(read):
    series = (
        'package: above\n    upon: {below: {allows: ">=1.0.1", tested_cpu: ["1.0.4"], source: "https://example.org/tests"}}'
    )
    facts = read(above(', upon: {below: {tested: ["1.0.2"]}}', series), base(TEN) + LATER.lstrip("\n") + "\n")
    (found,) = framework(facts, "above").releases[0].pairs
    assert (found.tested, found.cpu_only, found.taken) == (("1.0.2",), (), "1.0.2")


def test_the_document_of_a_default_tells_of_that_default_alone(read):
    series = RANGE.replace("{allows", '{default: "1.0.2", default_source: "https://example.org/image", allows')
    facts = read(above(TESTED, series), base(TEN) + LATER.lstrip("\n") + "\n")
    told = {
        version: [each.source for each in ask(facts, "above", f"below=={version}").reasons if " on below " in each.choice]
        for version in ("1.0.2", "1.0.3")
    }
    assert told == {"1.0.2": ["https://example.org/image"], "1.0.3": ["https://example.org/tests"]}
    other = read(above(TESTED.replace("{tested", '{default: "1.0.3", tested'), series), base(TEN) + LATER.lstrip("\n") + "\n")
    (reason,) = (each for each in ask(other, "above", "below").reasons if " on below " in each.choice)
    assert reason.source == "https://example.org/tests"


# --- add-ons that support a named framework in other releases only -------------------------------------------------------

LOW = f"""{HEAD}
framework: {{name: low, title: Low, short: low, aliases: [low], recipe: low}}
series:
  - series: "5"
    variants:
      gpu: {{package: low, python: ["3.9"], cuda_libraries: none, glibc: "2.17"}}
    releases:
      - {{version: "5.0.0", released: "2020-01-01"}}
"""
OTHER = f"""{HEAD}
framework: {{name: above-low, title: Above on Low, short: abovelow, aliases: [above-low], recipe: above,
  instead_of: above, beside: low}}
left_out:
  - {{releases: ["<2.1"], status: known-bad, source: "https://example.org/notes", note: "Low is supported from 2.1 on"}}
series:
  - series: "2.1"
    package: above
    releases:
      - {{version: "2.1.0", released: "2020-03-01", upon: {{low: "5.0.0"}}}}
"""


def test_an_add_on_is_not_put_upon_what_nobody_named(read):
    facts = read(above(', upon: {below: "1.0.1"}'), BASE, LOW, OTHER)
    with pytest.raises(ConflictError) as caught:
        ask(facts, "above-2.0.0+low-5.0.0")
    error = caught.value
    assert error.exit_code == 3
    assert (
        error.message == "Above 2.0.0 does not support Low, and the request does not name Below, on which Above could be based."
    )
    assert [(each.row, each.reason, each.source) for each in error.conflicts] == [
        ("above-low 2.0.0", "Low is supported from 2.1 on", "https://example.org/notes"),
        ("above-low", "the matrix has Above on Low releases from 2.1.0 to 2.1.0", "https://example.org/doc"),
    ]
    assert "above-2.1.0+low-5.0.0" in error.hint
    assert "name Below too: above-2.0.0+below-1.0.1+low-5.0.0." in error.hint
    for each in error.alternatives:
        assert ask(facts, each.name).environment.name == each.name
    assert len(error.alternatives) == 2


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("above-2.0.0+below+low", ["above", "below", "low"]),
        ("above+below+low", ["above", "below", "low"]),
        ("above+low", ["above-low", "low"]),
        ("above-2.0.0", ["above"]),
    ],
)
def test_what_names_its_base_or_is_supported_stays(read, request_, names):
    facts = read(above(', upon: {below: "1.0.1"}'), BASE, LOW, OTHER)
    assert [each.name for each in ask(facts, request_).environment.frameworks] == names


def test_a_release_that_there_is_not_is_told_first(read):
    facts = read(above(', upon: {below: "1.0.1"}'), BASE, LOW, OTHER)
    with pytest.raises(UnknownNameError):
        ask(facts, "above-9.0.0+low-5.0.0")


# --- what an add-on needs beside its base framework ----------------------------------------------------------------------

ON_GPUS = base(
    """      gpu: {package: below, python: ["3.9"], cuda: "9.0", cuda_libraries: wheels, glibc: "2.17",
            capabilities: {sass: ["6.0", "7.0"]}}
      cpu: {package: below, python: ["3.9"], cuda_libraries: none, glibc: "2.17"}"""
)
BAD = 'bad_capabilities: [{capabilities: ["6.0", "6.1"], reason: "it has code for 7.0 and later"}]'


def test_an_add_on_has_code_for_fewer_gpus_than_its_base(read):
    builds = framework(read(ON_GPUS, above(f', upon: {{below: "1.0.1"}}, {BAD}')), "above").releases[0].variants
    gpu, cpu = sorted(builds, key=lambda each: each.name, reverse=True)
    assert gpu.sass == ("7.0",)
    assert [(each.capabilities, each.reason) for each in gpu.bad_capabilities] == [
        (("6.0", "6.1"), "it has code for 7.0 and later")
    ]
    assert cpu.sass == ()


@pytest.mark.parametrize(("cuda", "sass"), [("9.0", ("7.0",)), ("10.0", ("6.0", "7.0"))])
def test_an_add_on_has_code_for_fewer_gpus_only_for_one_cuda(read, cuda, sass):
    """As bitsandbytes 0.45.0, whose library for CUDA 11.8 has no code for 9.0."""
    bad = BAD.replace("reason", f'cuda: ["{cuda}"], reason')
    builds = framework(read(ON_GPUS, above(f', upon: {{below: "1.0.1"}}, {bad}')), "above").releases[0].variants
    gpu = next(each for each in builds if each.cuda)
    assert (gpu.sass, bool(gpu.bad_capabilities)) == (sass, cuda == "9.0")
    text = base(
        f"""      gpu: {{package: below, python: ["3.9"], cuda: "9.0", cuda_libraries: wheels, glibc: "2.17", {bad}}}"""
    )
    assert "bad_capabilities[0].cuda: unknown key" in problems(read, text), "a build has only one CUDA"


def test_an_add_on_has_only_ptx_for_gpus_of_its_base(read):
    """The driver compiles it there. GPUs for which the base has no code do not run it either."""
    builds = framework(read(ON_GPUS, above(', upon: {below: "1.0.1"}, only_ptx: ["7.0", "9.0"]')), "above").releases[0].variants
    gpu = next(each for each in builds if each.sass)
    assert (gpu.sass, gpu.ptx, gpu.only_ptx) == (("6.0",), (), ("7.0",))
    assert [code_for(gpu, capability) for capability in ("6.0", "7.0", "7.5", "9.0")] == ["native", "ptx", "ptx", "none"]


@pytest.mark.parametrize(("glibc", "needed", "source"), [("2.28", "2.28", "paper"), ("2.5", "2.17", "doc")])
def test_an_add_on_needs_the_newer_glibc_of_its_own_and_its_base(read, glibc, needed, source):
    facts = read(ON_GPUS, above(f', upon: {{below: "1.0.1"}}, glibc: "{glibc}"'))
    for variant in framework(facts, "above").releases[0].variants:
        assert variant.glibc == needed
        assert variant.origin.source_of("glibc") == f"https://example.org/{source}"


@pytest.mark.parametrize("key", ['glibc: "2.28"', BAD, "nvcc: true", "optional_nvcc: true", 'only_ptx: ["7.0"]'])
def test_only_an_add_on_states_these_for_all_builds(read, key):
    text = base("""      cpu: {package: below, python: ["3.9"], cuda_libraries: none, glibc: "2.17"}""", f", {key}")
    assert f"`{key.partition(':')[0]}` can be written here only for an add-on" in problems(read, text)

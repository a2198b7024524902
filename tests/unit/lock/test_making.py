"""Locking with a small package index: which versions are chosen, refused or missing, and that the bytes are stable."""

import json
import random
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from lock_universe import Universe, environment, framework

import envbuild
from envbuild.errors import BuildError, Conflict, ConflictError, InvalidInputError, UnknownNameError
from envbuild.lock import checking, comparison, installers, lock_file, making
from envbuild.model.environment import AptPackage, Base, PrefixPlan
from envbuild.model.lock import Artifact, BaseLock, Missing, SourceArchive

ANY = "py2.py3-none-any.whl"
SCHEMA = json.loads((Path(envbuild.__file__).parent / "schemas" / "lock.json").read_text())


def pinned_base(env):
    return BaseLock(image=env.base.image, digest="sha256:" + "1" * 64, bootstrap=None)


def no_base(_env):
    return Missing(what="base toyos:12", why="no engine answers")


@pytest.fixture
def world():
    universe = Universe()
    universe.add("alpha-1.0-cp36-cp36m-manylinux1_x86_64.whl", ("beta>=1", 'gone; python_version<"3"'), day="2018-06-30")
    universe.add("alpha-1.0-cp27-cp27mu-manylinux1_x86_64.whl", ("beta>=1", 'old; python_version<"3"'), day="2018-06-30")
    universe.add(f"beta-1.0-{ANY}", day="2017-01-01")
    universe.add(f"beta-1.5-{ANY}", day="2018-06-30")
    universe.add(f"beta-2.0-{ANY}", day="2018-07-01")
    universe.add(f"numpy-1.14-{ANY}", day="2018-01-01")
    universe.add(f"old-1-{ANY}", day="2018-01-01")
    universe.add(f"pip-20.3.4-{ANY}", day="2021-01-23")
    universe.add("pip-21.3.1-py3-none-any.whl", day="2021-10-22", python=">=3.6")
    universe.add(f"virtualenv-16.7.12-{ANY}", day="2021-01-01")
    universe.add(f"virtualenv-20.0-{ANY}", day="2021-01-01")
    universe.add(f"setuptools-39.2-{ANY}", day="2018-05-20")
    universe.add(f"setuptools-50.0-{ANY}", day="2020-08-30")
    universe.add(f"wheel-0.31-{ANY}", day="2018-04-01")
    return universe


@pytest.fixture
def make(world, tmp_path):
    def call(env=None, *, pin_base=pinned_base, recipe=("numpy",), on_progress=lambda _: None, **pinned):
        wanted = env or environment()
        asked = {each.name: recipe for each in wanted.frameworks}
        return making.make(
            wanted,
            making.LockInputs(
                recipe_requirements=asked, index=world, pin_base=pin_base, downloads=tmp_path, on_progress=on_progress, **pinned
            ),
        )

    return call


def chosen(made, *, tools=False):
    prefix = made.prefixes[0]
    return [artifact.filename for artifact in (prefix.build_artifacts if tools else prefix.artifacts)]


def test_dependencies_are_as_of_the_date_whole_day_included(make):
    assert chosen(make()) == ["alpha-1.0-cp36-cp36m-manylinux1_x86_64.whl", f"beta-1.5-{ANY}", f"numpy-1.14-{ANY}"]
    assert chosen(make(environment(exclude_newer="2018-06-29")))[1] == f"beta-1.0-{ANY}"
    assert chosen(make(environment(exclude_newer="")))[1] == f"beta-2.0-{ANY}"


def test_the_frameworks_own_files_are_not_bounded_by_the_date(make):
    assert chosen(make(environment(exclude_newer="2018-02-01")))[0].startswith("alpha-1.0")


def test_markers_are_the_targets_and_old_pythons_get_their_installers(make):
    made = make(environment(python="2.7"))
    assert chosen(made) == [
        "alpha-1.0-cp27-cp27mu-manylinux1_x86_64.whl", f"beta-1.5-{ANY}", f"numpy-1.14-{ANY}", f"old-1-{ANY}",
    ]  # fmt: skip
    assert made.prefixes[0].backend == "pip"
    assert chosen(made, tools=True) == [f"pip-20.3.4-{ANY}", f"virtualenv-16.7.12-{ANY}"]
    assert make().prefixes[0].backend == "uv"
    assert chosen(make(), tools=True) == []


def test_source_archives_only_where_no_wheel_serves_and_with_tools_of_their_time(make, world):
    world.add("beta-1.6.tar.gz", day="2018-06-01")
    assert chosen(make())[1] == f"beta-1.5-{ANY}"
    world.add(f"alpha-1.1-{ANY}", ("gamma",))
    world.add("gamma-0.1.tar.gz", ("beta",), setup="setup(setup_requires=['pbr>=1'])")
    world.add(f"pbr-5.0-{ANY}")
    news = []
    made = make(environment(framework(version="1.1")), on_progress=news.append)
    assert "gamma-0.1.tar.gz" in chosen(made)
    assert chosen(made, tools=True) == [
        "pbr-5.0-" + ANY,
        "pip-21.3.1-py3-none-any.whl",
        f"setuptools-39.2-{ANY}",
        f"wheel-0.31-{ANY}",
    ]
    assert [n.message for n in news if n.log] == ["built from source: gamma 0.1"]
    assert checking.check(made, []) == []


def test_constraints_bind_only_what_is_wanted_anyway(make):
    made = make(environment(framework(constraints=("beta<1.5", "never-heard-of<3"))))
    assert chosen(made)[1] == f"beta-1.0-{ANY}"


def test_extras_bring_their_own_requirements(make, world):
    world.add(f"alpha-3.0-{ANY}", ('delta==1.0; extra == "gpu-libs"', "beta"))
    world.add(f"delta-1.0-{ANY}")
    with_extra = make(environment(framework("alpha", "3.0", "alpha[gpu_libs]==3.0")))
    assert chosen(with_extra) == [f"alpha-3.0-{ANY}", f"beta-1.5-{ANY}", f"delta-1.0-{ANY}", f"numpy-1.14-{ANY}"]
    assert f"delta-1.0-{ANY}" not in chosen(make(environment(framework("alpha", "3.0"))))


def test_the_search_goes_back_where_the_newest_does_not_fit(make, world):
    world.add(f"alpha-4.0-{ANY}", ("left", "right"))
    world.add(f"left-1-{ANY}", ("beta<1.5",))
    world.add(f"left-2-{ANY}", ("beta>=1.5",))
    world.add(f"right-1-{ANY}", ("beta<1.5",))
    made = make(environment(framework("alpha", "4.0")))
    assert f"left-1-{ANY}" in chosen(made)
    assert f"beta-1.0-{ANY}" in chosen(made)


def test_files_that_lie_about_their_version_or_cannot_be_read_are_passed_over(make, world):
    world.add(f"beta-1.5.2-{ANY}", day="2018-05-01", said="1.5")
    world.add(f"beta-1.5.1-{ANY}", ("((broken",), day="2018-05-01")
    assert chosen(make())[1] == f"beta-1.5-{ANY}"


def test_prereleases_and_yanked_files_only_when_asked_for(make, world):
    world.add(f"beta-1.9rc1-{ANY}")
    world.add(f"beta-1.8-{ANY}", yanked=True)
    assert chosen(make())[1] == f"beta-1.5-{ANY}"
    assert chosen(make(recipe=("beta==1.8",)))[1] == f"beta-1.8-{ANY}"
    assert chosen(make(recipe=("beta>=1.9rc1",)))[1] == f"beta-1.9rc1-{ANY}"
    world.add(f"early-0.1a1-{ANY}")
    assert f"early-0.1a1-{ANY}" in chosen(make(recipe=("early",)))


def test_a_clash_names_both_sides_and_what_there_is(make, world):
    world.add(f"alpha-5.0-{ANY}", ("beta>=1.5", "right"))
    world.add(f"right-1-{ANY}", ("beta<1.5",))
    with pytest.raises(ConflictError) as caught:
        make(environment(framework("alpha", "5.0")))
    said = {(c.row, c.reason) for c in caught.value.conflicts}
    assert caught.value.code == "unsatisfiable"
    assert ("alpha 5.0", "requires beta>=1.5") in said
    assert ("right 1", "requires beta<1.5") in said
    assert any(row == "beta" and "1.5, 1.0" in reason and "published after the date limit" in reason for row, reason in said)
    assert {c.source for c in caught.value.conflicts} >= {"pkg:pypi/alpha@5.0", "pkg:pypi/beta"}


def test_frameworks_whose_packages_clash_are_named_with_the_way_out(make, world):
    world.add(f"alpha-5.0-{ANY}", ("beta>=1.5",))
    world.add(f"gamma-1.0-{ANY}", ("beta<1.5",))
    with pytest.raises(ConflictError) as caught:
        make(environment(framework("alpha", "5.0"), framework("gamma", "1.0")))
    assert caught.value.code == "apart"
    assert caught.value.message.startswith("alpha 5.0 + gamma 1.0 cannot be installed together")
    assert "stack" in caught.value.hint
    assert {"requires beta>=1.5", "requires beta<1.5"} <= {c.reason for c in caught.value.conflicts}


def test_no_file_for_the_python_is_said_as_such(make):
    with pytest.raises(ConflictError) as caught:
        make(environment(python="3.9"))
    reasons = " ".join(c.reason for c in caught.value.conflicts)
    assert "2 files are for another platform than Python 3.9" in reasons


def test_an_index_without_dates_cannot_be_bounded(make, world):
    world.add(f"alpha-6.0-{ANY}", ("dateless",))
    world.add(f"dateless-1-{ANY}", day="")
    with pytest.raises(BuildError) as caught:
        make(environment(framework("alpha", "6.0")))
    assert caught.value.code == "index-undated"
    assert f"dateless-1-{ANY}" in chosen(make(environment(framework("alpha", "6.0"), exclude_newer="")))


def test_what_of_this_machine_is_not_used_is_told(make, world):
    world.notes = ("find-links is not used",)
    news = []
    make(on_progress=news.append)
    assert [n.message for n in news if n.log] == ["find-links is not used"]


def test_errors_of_the_index_and_of_requirements_pass_through(make, world):
    with pytest.raises(UnknownNameError):
        make(recipe=("nobody-made-this",))
    with pytest.raises(InvalidInputError) as caught:
        make(recipe=("a b", "c d"))
    assert len(caught.value.problems) == 2
    world.down.add("default")
    with pytest.raises(BuildError) as unreachable:
        make()
    assert unreachable.value.code == "index-unreachable"


def test_what_cannot_be_pinned_is_missing(make):
    packages = (
        AptPackage(name="libx", version="1-1", repository="vendor", url="", sha256=""),
        AptPackage(name="liby", version="2-1", repository="vendor", url="https://v.example/liby.deb", sha256="2" * 64),
    )
    base = Base(provider="apt", image="toyos:12", is_default=True, repositories=(), packages=packages, other_providers=())
    made = make(environment(base=base), pin_base=no_base)
    assert [m.what for m in made.missing] == ["sha256 of libx 1-1", "base toyos:12"]
    assert made.base == BaseLock(image="toyos:12", digest=None, bootstrap=None)
    assert checking.check(made, []) == []


def test_a_framework_on_an_index_that_does_not_answer_is_missing_and_completed_later(make, world, tmp_path):
    elsewhere = "https://wheels.example/cu90"
    world.add(f"omega-1.0-{ANY}", ("beta<2",), index=elsewhere, day="")
    env = environment(framework(), framework("omega", "1.0", index=elsewhere))
    world.down.add(elsewhere)
    made = make(env, pin_base=no_base)
    assert [m.what for m in made.missing] == ["the files of omega 1.0 and of its dependencies", "base toyos:12"]
    assert made.prefixes[0].frameworks == ("alpha",)

    def complete(the_lock, pin_base):
        return making.complete(
            the_lock,
            making.LockInputs(recipe_requirements={"alpha": ("numpy",)}, index=world, pin_base=pin_base, downloads=tmp_path),
        )

    assert complete(made, no_base) == made
    world.down.clear()
    world.down.add("default")
    assert complete(made, no_base) == made
    assert complete(made, pinned_base).missing == made.missing[:1]
    world.down.clear()
    world.add(f"beta-1.5.5-{ANY}")
    completed = complete(made, pinned_base)
    assert completed.missing == ()
    assert completed.prefixes[0].frameworks == ("alpha", "omega")
    assert [a.index for a in completed.prefixes[0].artifacts if a.name == "omega"] == [elsewhere]
    assert set(made.prefixes[0].artifacts) < set(completed.prefixes[0].artifacts)
    assert lock_file.dumps(complete(completed, pinned_base)) == lock_file.dumps(completed)


def test_what_the_metadata_of_a_package_asks_for_can_be_left_out(world, tmp_path):
    world.add(f"alpha-1.0-{ANY}", ("beta>=1", "gone"), day="2018-06-30")
    options = {"recipe_requirements": {"alpha": ("numpy",)}, "index": world, "pin_base": pinned_base, "downloads": tmp_path}
    made = making.make(environment(), making.LockInputs(ignored={"alpha": ("Beta",)}, **options))
    assert "beta" not in {artifact.name for artifact in made.prefixes[0].artifacts}


def test_a_source_that_the_matrix_names_by_a_tag_is_not_pinned(make):
    commit = {"repository": "https://x.example/alpha", "revision": "a" * 40}
    assert make(environment(framework(options=commit))).missing == ()
    (gap,) = make(environment(framework(options={**commit, "revision": "v1"}))).missing
    assert gap.what == "the commit of https://x.example/alpha that v1 names"


def test_completing_what_lacks_only_the_base_asks_no_index(make, world, tmp_path):
    made = make(pin_base=no_base)
    world.asked.clear()
    completed = making.complete(
        made,
        making.LockInputs(recipe_requirements={"alpha": ("numpy",)}, index=world, pin_base=pinned_base, downloads=tmp_path),
    )
    assert (completed.missing, completed.base.digest, world.asked) == ((), "sha256:" + "1" * 64, [])


def several(*frameworks_of):
    """An environment with several prefixes: one per Python, with the named frameworks."""
    whole = environment(*(framework(name, "1.0") for _, names in frameworks_of for name in names))
    plans = tuple(
        PrefixPlan(
            name=f"py{python.replace('.', '')}",
            python=replace(whole.python, version=python, executable=f"/usr/bin/python{python}"),
            frameworks=names,
            exclude_newer="2018-01-31" if python == "2.7" else "",
        )
        for python, names in frameworks_of
    )
    return replace(whole, name="shelf", python=plans[0].python, prefixes=plans)


def test_each_prefix_is_locked_for_its_own_python_frameworks_recipes_and_time(world, tmp_path):
    world.add(f"omega-1.0-{ANY}", ("beta",))
    env = several(("3.6", ("alpha",)), ("2.7", ("omega",)))
    asked = {"alpha": ("numpy",), "omega": ("old",)}
    options = {"index": world, "pin_base": pinned_base, "downloads": tmp_path}
    made = making.make(env, making.LockInputs(recipe_requirements=asked, ignored={"omega": ("beta",)}, **options))
    assert [(p.name, p.path, p.python.version, p.backend, p.frameworks) for p in made.prefixes] == [
        ("py36", "/opt/envs/py36", "3.6", "uv", ("alpha",)),
        ("py27", "/opt/envs/py27", "2.7", "pip", ("omega",)),
    ]
    assert [[a.name for a in p.artifacts] for p in made.prefixes] == [["alpha", "beta", "numpy"], ["old", "omega"]]
    assert [bool(p.build_artifacts) for p in made.prefixes] == [False, True]
    assert checking.check(made, [], asked) == []
    assert any("the recipe requires gone" in each.message for each in checking.check(made, [], {**asked, "omega": ("gone",)}))
    jsonschema.validate(json.loads(lock_file.dumps(made)), SCHEMA)
    followed = making.make(env, making.LockInputs(recipe_requirements=asked, **options))
    assert next((a.name, a.version) for a in followed.prefixes[1].artifacts) == ("beta", "1.0")  # of its own date limit


def test_what_is_built_from_source_leaves_the_index_of_its_name_to_the_package(world, tmp_path):
    """Two frameworks may use one name for different things: one is built from source, the other is a package."""
    elsewhere = "https://wheels.example/cu90"
    world.add(f"omega-1.0-{ANY}", index=elsewhere, day="")
    source = {"repository": "https://x.example/other", "revision": "a" * 40}
    built = framework("omega", "7.0", name="other", requirements=(), options=source)
    env = environment(framework("omega", "1.0", index=elsewhere), built)
    made = making.make(env, making.LockInputs(recipe_requirements={}, index=world, pin_base=pinned_base, downloads=tmp_path))
    assert [(a.name, a.index) for a in made.prefixes[0].artifacts] == [("omega", elsewhere)]


def test_what_one_prefix_misses_is_completed_there_alone(world, tmp_path):
    elsewhere = "https://wheels.example/cu90"
    world.add(f"omega-1.0-{ANY}", index=elsewhere, day="")
    env = several(("3.6", ("alpha",)), ("2.7", ("omega",)))
    env = replace(env, frameworks=tuple(replace(f, index=elsewhere) if f.name == "omega" else f for f in env.frameworks))
    world.down.add(elsewhere)
    options = {"recipe_requirements": {}, "index": world, "pin_base": pinned_base, "downloads": tmp_path}
    made = making.make(env, making.LockInputs(**options))
    assert [p.frameworks for p in made.prefixes] == [("alpha",), ()] and len(made.missing) == 1
    world.down.clear()
    completed = making.complete(made, making.LockInputs(**options))
    assert [p.frameworks for p in completed.prefixes] == [("alpha",), ("omega",)] and completed.missing == ()
    assert completed.prefixes[0] == made.prefixes[0]


UV = Artifact(
    name="uv", version="1.0", filename="uv-1.0-py3-none-manylinux_2_17_x86_64.whl", sha256="a" * 64, index="default",
    project="uv", size=1,
)  # fmt: skip
SOURCE = SourceArchive(repository="https://git.example/alpha", revision="a" * 40, sha256="b" * 64)


def of_a_repository(revision="a" * 40, **options):
    source = {"repository": "https://git.example/alpha", "revision": revision}
    return environment(framework(requirements=("beta",), options=source), **options)


def test_the_tools_and_sources_of_a_build_are_pinned_where_it_needs_them(make, world, tmp_path):
    made = make(of_a_repository(), tools=(UV,), sources=(SOURCE, replace(SOURCE, revision="b" * 40)))
    assert (made.tools, made.sources) == ((UV,), (SOURCE,))
    assert checking.check(made, []) == []
    assert installers.missing_tools(made) == ()
    jsonschema.validate(json.loads(lock_file.dumps(made)), SCHEMA)
    lock_file.write(tmp_path / "lock.json", made)
    assert lock_file.read(tmp_path / "lock.json") == made
    old = make(environment(python="2.7"), tools=(UV,), sources=(SOURCE,))
    assert (old.tools, old.sources, installers.missing_tools(old)) == ((), (), ())


def test_a_lock_of_before_tools_were_pinned_gets_them_and_keeps_every_other_pin(make, world, tmp_path):
    before = make(of_a_repository())
    assert installers.missing_tools(before) == ("uv",) and checking.check(before, []) == []
    world.add(f"beta-1.9-{ANY}", day="2018-06-30")
    world.asked.clear()
    after = making.complete(
        before,
        making.LockInputs(
            recipe_requirements={}, index=world, pin_base=pinned_base, downloads=tmp_path, tools=(UV,), sources=(SOURCE,)
        ),
    )
    assert (after.tools, after.sources, world.asked) == ((UV,), (SOURCE,), [])
    assert replace(after, tools=(), sources=()) == before
    newer = replace(UV, version="2.0", filename="uv-2.0-py3-none-manylinux_2_17_x86_64.whl", sha256="c" * 64)
    again = making.complete(
        after,
        making.LockInputs(
            recipe_requirements={}, index=world, pin_base=pinned_base, downloads=tmp_path, tools=(newer,), sources=(SOURCE,)
        ),
    )
    assert again == after
    (change,) = comparison.compare(before, after).changes
    assert (change.role, change.kind, change.name, change.prefix) == ("build tool", "added", "uv", "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tools": (UV, replace(UV, name="hammer", project="hammer", filename="hammer-1.0-py3-none-any.whl"))},
            "its tools include hammer",
        ),
        ({"tools": (UV, UV)}, "pins the tool uv 2 times"),
        ({"tools": (replace(UV, sha256="x"),)}, "is not a sha256"),
        ({"tools": (replace(UV, filename="uv-1.0-py3-none-manylinux_2_99_x86_64.whl"),)}, "does not work with"),
        ({"tools": (replace(UV, filename="uv-2.0-py3-none-any.whl"),)}, "does not contain uv 1.0"),
        ({"sources": (replace(SOURCE, revision="c" * 40),)}, "but nothing is built from it"),
        ({"sources": (replace(SOURCE, sha256="x"),)}, "is not a sha256"),
    ],
)
def test_tools_and_sources_that_do_not_belong_to_the_build_are_named(make, changes, message):
    made = make(of_a_repository(), tools=(UV,), sources=(SOURCE,))
    assert message in "\n".join(problem.message for problem in checking.check(replace(made, **changes), []))


def test_the_same_world_gives_the_same_bytes_whatever_the_pages_order(make, world):
    first = lock_file.dumps(make())
    for files in world.pages.values():
        random.Random(7).shuffle(files)
    assert lock_file.dumps(make()) == first


def test_a_lock_survives_the_disk_and_fits_its_schema(make, tmp_path):
    made = make(environment(python="2.7"), pin_base=no_base)
    path = tmp_path / made.environment.name / "lock.json"
    lock_file.write(path, made)
    assert lock_file.read(path) == made
    assert path.read_text() == lock_file.dumps(made)
    import hashlib

    assert lock_file.digest(made) == hashlib.sha256(path.read_bytes()).hexdigest()
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(path.read_text()))


def test_the_schema_knows_exactly_the_fields_of_the_model():
    import dataclasses

    from envbuild.model import custom, environment, lock

    kinds = {
        "pinned_file": environment.PinnedFile, "framework": environment.Framework,
        "python": environment.Python, "system": environment.System,
        "apt_repository": environment.AptRepository,
        "apt_package": environment.AptPackage, "base": environment.Base, "compute_capability": environment.ComputeCapability,
        "environment": environment.Environment, "debian_package": lock.DebianPackage, "bootstrap": lock.Bootstrap,
        "base_lock": lock.BaseLock, "artifact": lock.Artifact, "prefix": lock.Prefix, "missing": lock.Missing,
        "remote_file": environment.RemoteFile, "prefix_plan": environment.PrefixPlan, "copied_file": custom.CopiedFile,
        "service": custom.Service, "custom": custom.Custom, "source_archive": lock.SourceArchive,
        "apt_lock": lock.AptLock, "apt_step": lock.AptStep, "cuda_wheel": environment.CudaWheel,
        "toolkit_link": environment.ToolkitLink,
    }  # fmt: skip
    assert set(SCHEMA["$defs"]) == set(kinds)
    for name, kind in kinds.items():
        if name == "debian_package":  # a line of text; older locks have an object here
            continue
        assert [f.name for f in dataclasses.fields(kind)] == list(SCHEMA["$defs"][name]["properties"]), name
    assert [f.name for f in dataclasses.fields(lock.Lock)] == list(SCHEMA["properties"])


def test_absent_and_damaged_locks_are_refused_with_the_command_to_make_them(make, tmp_path):
    path = tmp_path / "alpha-1.0" / "lock.json"
    with pytest.raises(InvalidInputError) as caught:
        lock_file.read(path)
    assert (caught.value.code, caught.value.exit_code) == ("no-lock", 5)
    assert "envbuild lock alpha-1.0" in caught.value.hint
    lock_file.write(path, make())
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(InvalidInputError) as caught:
        lock_file.read(path)
    assert caught.value.code == "broken-lock"
    assert caught.value.problems[0].line > 1
    path.write_text(whole.replace('"sha256"', '"sha257"'))
    with pytest.raises(InvalidInputError) as caught:
        lock_file.read(path)
    assert len(caught.value.problems) > 2


def test_check_says_all_that_is_wrong_at_once(make, tmp_path):
    made = make()
    prefix = made.prefixes[0]
    alpha, beta, numpy = prefix.artifacts
    spoilt = replace(
        prefix,
        artifacts=(
            replace(alpha, filename=alpha.filename.replace("cp36", "cp27"), sha256="abc"),
            replace(beta, version="1.4"),
            replace(numpy, filename="../numpy-1.14.tar.gz"),
            numpy,
        ),
    )
    env = replace(made.environment, frameworks=(framework(requirements=("alpha==1.0", "absent>1"), constraints=("beta<1.2",)),))
    bad = replace(made, environment=env, prefixes=(spoilt,), base=replace(made.base, digest="sha256:12"))
    refusal = Conflict(row="alpha 1.0", reason="is now known bad", source="https://x.example")
    problems = [
        p.message
        for p in checking.check(bad, [refusal], {"alpha": ("numpy>=2", "gone")}, path=tmp_path / "other" / "lock.json")
    ]
    text = "\n".join(problems)
    for part in (
        "no longer accepts this environment: alpha 1.0: is now known bad",
        "the folder is named other",
        "sha256:12 is not a digest",
        "numpy is pinned 2 times",
        "'abc' is not a sha256",
        "does not work with Python 3.6 and glibc 2.36",
        "does not contain beta 1.4",
        "not a plain file name",
        "no tools to build them",
        "alpha requires absent>1, which is not pinned",
        "alpha allows beta<1.2, but 1.4 is pinned",
        "the recipe allows numpy>=2, but ",
        "the recipe requires gone, which is not pinned",
    ):
        assert part in text
    assert checking.check(made, []) == []

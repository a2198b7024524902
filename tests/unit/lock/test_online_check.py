"""The answers of an index about locked files today: gone, changed, yanked, refused, unreachable; one request for all locks."""

from dataclasses import replace

from envbuild.lock import online_check

ANY = "py2.py3-none-any.whl"
ELSEWHERE = "https://wheels.example/cu90"


def told(world, *locks):
    return [(each.kind, each.environment, each.filename) for each in online_check.ask(locks, world)]


def change(world, project, index="default", **values):
    world.pages[index, project] = [replace(file, **values) for file in world.pages[index, project]]


def test_nothing_is_said_of_what_is_as_it_was(world, made):
    world.asked.clear()
    other = replace(made, environment=replace(made.environment, name="other"))
    assert told(world, made, other) == []
    assert sorted(world.asked) == ["alpha", "beta", "omega"]


def test_what_is_wrong_is_named_with_every_lock_that_it_breaks(world, made):
    name = made.environment.name
    other = replace(made, environment=replace(made.environment, name="other"))
    world.pages["default", "beta"] = []
    change(world, "omega", ELSEWHERE, sha256="0" * 64)
    change(world, "alpha", requires_python=">=3.9")
    assert told(world, made, other) == [
        (kind, lock_name, f"{project}-1.0-{ANY}")
        for lock_name in (name, "other")
        for kind, project in (("refuses-python", "alpha"), ("gone", "beta"), ("changed", "omega"))
    ]
    del world.pages["default", "beta"]
    assert ("gone", name, f"beta-1.0-{ANY}") in told(world, made)
    (changed,) = [each for each in online_check.ask([made], world) if each.kind == "changed"]
    assert "0" * 64 in changed.message and changed.index == ELSEWHERE and changed.project == "omega"


def test_a_yanked_file_counts_unless_its_exact_version_is_asked_for(world, made):
    for project in ("alpha", "beta"):
        change(world, project, yanked=True)
    assert [kind for kind, _, _ in told(world, made)] == ["yanked-yet-asked-for", "yanked"]
    assert set(online_check.HARMLESS) == {"yanked-yet-asked-for"}


def test_an_index_that_does_not_answer_is_said_and_nothing_else_is_said_of_its_files(world, made):
    world.down.add(ELSEWHERE)
    change(world, "alpha", sha256="")
    (found,) = online_check.ask([made], world)
    assert (found.kind, found.index, found.filename) == ("unreachable", ELSEWHERE, f"omega-1.0-{ANY}")
    assert "does not answer" in found.message

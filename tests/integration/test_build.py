"""The build stage on a real engine, with the smallest real environment: NumPy on a plain Debian."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_toy import NUMPY, RECIPE, environment, lock, with_packages, workspace_with_recipe

from envbuild import build, build_context, build_preparation, recipes
from envbuild.engine import bases, package_check, temporary_names
from envbuild.engine.client import Engine
from envbuild.errors import BuildError, VerifyError
from envbuild.image_inputs import BuildInputs
from envbuild.index.client import Index
from envbuild.model.environment import AptRepository
from envbuild.model.lock import BaseLock, Lock
from envbuild.model.progress import OnProgress, Progress, ignore_progress
from envbuild.render import render
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]
REPOSITORY = "envbuild-test"
CANARY = "canary-9f8e7d6c"
STOLEN = "envbuild-test-base:stolen"


class CanaryIndex(Index):
    """The host's index, with an additional line in the build secret that must not appear anywhere else."""

    def build_secrets(self) -> dict[str, bytes]:
        secrets = super().build_secrets()
        secrets["envbuild-env"] = secrets.get("envbuild-env", b"") + f"export ENVBUILD_CANARY='{CANARY}'\n".encode()
        return secrets


class DeadProxyIndex(Index):
    """The host's index behind a proxy that does not answer, so the build has no network."""

    def build_secrets(self) -> dict[str, bytes]:
        lines = [f"export {name}=http://127.0.0.1:9/" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")]
        return {"envbuild-env": "\n".join([*lines, "export UV_HTTP_RETRIES=0 UV_HTTP_TIMEOUT=5", ""]).encode()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, workspace: Workspace) -> Workspace:
    folder = tmp_path_factory.mktemp("toy")
    return workspace_with_recipe(folder / "root", folder / "home", workspace)


@pytest.fixture(scope="module")
def templates(workspace: Workspace, place: Workspace) -> dict[str, str]:
    (place.recipes / "toy" / "install.j2").write_text("{## nothing ##}\n")
    (place.recipes / "toy" / "smoke.py").write_text("")
    return {**recipes.templates(workspace), **{name: text for name, text in recipes.templates(place).items() if "toy" in name}}


@pytest.fixture(scope="module")
def locked(engine: Engine, workspace: Workspace, templates: dict[str, str]) -> Lock:
    pinned = bases.pin(environment(), engine, workspace, ignore_progress)
    assert isinstance(pinned, BaseLock), pinned
    return with_packages(lock(pinned, Index()), workspace, {"toy": RECIPE}, templates)


@pytest.fixture(scope="module")
def built(
    engine: Engine, place: Workspace, locked: Lock, templates: dict[str, str]
) -> Iterator[tuple[build.BuildRecord, list[Progress]]]:
    news: list[Progress] = []
    made_from = inputs(place, locked, templates, CanaryIndex(), news.append)
    record = build.build(engine, made_from, aliases=["toy-1", "no tag!"], repository=REPOSITORY)
    yield record, news
    for image in engine.client.images.list(REPOSITORY):  # images of changed inputs have other names
        for tag in image.tags:
            engine.remove_image(tag)


def inputs(
    place: Workspace, lock: Lock, templates: dict[str, str], index: Index, on_progress: OnProgress = ignore_progress
) -> BuildInputs:
    recipes = {"toy": RECIPE}
    return BuildInputs(
        workspace=place,
        lock=lock,
        recipes=recipes,
        rendering=render(lock, recipes, templates),
        index=index,
        on_progress=on_progress,
    )


def again(
    engine: Engine,
    place: Workspace,
    locked: Lock,
    templates: dict[str, str],
    on_progress: OnProgress = ignore_progress,
    **options: object,
) -> build.BuildRecord:
    made_from = inputs(place, locked, templates, CanaryIndex(), on_progress)
    return build.build(engine, made_from, repository=REPOSITORY, **options)


def test_the_image_holds_what_the_lock_says(engine, built, locked, place):
    record, _ = built
    result = engine.run(record.image, ["/opt/env/bin/python", "-c", "import numpy; print(numpy.__version__)"], network="none")
    assert result.output.strip().splitlines()[-1] == NUMPY
    result = engine.run(record.image, ["sh", "-c", "id -u; cat /opt/envbuild/lock.json; ls /opt/envbuild/smoke/adapters"])
    assert not result.output.startswith("0\n")
    assert f'"version": "{NUMPY}"' in result.output
    assert "toy.py" in result.output


@pytest.mark.parametrize("user", ["12345:0", "12345:12345"])
@pytest.mark.parametrize("read_only", [False, True])
def test_any_user_can_work_in_it(engine, built, user, read_only):
    record, _ = built
    script = "import getpass, os; home = os.path.expanduser('~'); print(getpass.getuser(), home, os.access(home, os.W_OK))"
    told = engine.run(record.image, ["python", "-c", script], user=user, read_only=read_only, network="none")
    assert told.output.strip().splitlines()[-1] == f"envbuild /home/envbuild {not read_only}"
    tried = engine.run(
        record.image, ["envbuild-smoke", "probe", "--adapter", "numpy", "--json", "/tmp/x.json"], user=user, read_only=read_only
    )
    assert tried.code == 0, tried.output


def test_tags_and_record(engine, built, locked, place):
    record, _ = built
    assert record.tags[:3] == (
        f"{REPOSITORY}:{locked.environment.name}",
        f"{REPOSITORY}:{locked.environment.name}-{record.lock[:8]}",
        f"{REPOSITORY}:{locked.environment.name}-{record.lock[:8]}-{record.inputs[:8]}",
    )
    assert record.tags[3:] == (f"{REPOSITORY}:toy-1",)
    for tag in record.tags:
        image = engine.image(tag)
        assert image is not None
        assert image.id == record.image
    assert json.loads(place.build_record(record.name).read_text())["image"] == record.image
    assert build.read_record(place, record.name) == record
    assert record.base.image
    assert not record.kept


def test_news_has_steps_bytes_or_seconds(built):
    _, news = built
    steps = [n for n in news if n.unit == "steps"]
    assert steps[-1].done == steps[-1].total


def test_nothing_of_this_machine_is_in_the_image(engine, built):
    """Search every file of every layer, the configuration and the history for every value in the secrets."""
    record, _ = built
    words = {CANARY.encode(), b"ENVBUILD_CANARY"}
    for line in CanaryIndex().build_secrets()["envbuild-env"].decode().splitlines():
        value = line.partition("=")[2].strip("'\"")
        if value.startswith(("http://", "https://")):
            words.add(value.rstrip("/").encode())
    found: list[tuple[str, bytes]] = []
    for entry in engine.layer_files(record.image):
        if entry.kind == "file":
            content = entry.open().read()
            found += [(entry.path, word) for word in words if word in content and not documented(entry.path)]
    assert found == []
    told = "\n".join([*engine.history(record.image), str(engine.client.api.inspect_image(record.image))])
    assert [word for word in words if word.decode() in told] == []


def documented(path: str) -> bool:
    """Whether a path is a file of a package that names public hosts in every installation."""
    return path.startswith(("/usr/share/doc/", "/usr/lib/python3")) or path.endswith((".py", ".pyc", "METADATA"))


def test_no_tool_of_the_build_is_left(engine, built):
    record, _ = built
    paths = [entry.path for entry in engine.layer_files(record.image)]
    assert not [p for p in paths if p.rsplit("/", 1)[-1] in ("uv", "uvx", "pip.whl", "step.sh", "secret")]
    assert not [p for p in paths if p.startswith("/var/lib/apt/lists/") or "/.cache/" in p]


def test_a_second_build_keeps_the_image_and_starts_no_build(engine, built, place, locked, templates, monkeypatch):
    record, _ = built
    monkeypatch.setattr(engine, "build", None)
    monkeypatch.setattr(build_preparation, "assemble_without_guest", None)
    kept = again(engine, place, locked, templates)
    assert kept.kept
    assert kept.image == record.image
    assert kept.built_at == record.built_at


def test_a_tag_that_was_taken_away_is_given_back(engine, built, place, locked, templates):
    record, _ = built
    engine.client.api.remove_image(record.tags[0], noprune=True)
    assert engine.image(record.tags[0]) is None
    assert again(engine, place, locked, templates).kept
    image = engine.image(record.tags[0])
    assert image is not None
    assert image.id == record.image


def test_an_image_that_is_refused_gets_no_tag_and_moves_none(engine, built, place, locked, templates):
    record, _ = built
    seen: list[str] = []

    def refuse(image: str, base: str) -> None:
        assert base == record.base.image
        seen.append(image)
        raise VerifyError("it is not what the lock says")

    before = {tag: engine.image(tag).id for tag in record.tags}
    adapter = place.recipes / "toy" / "smoke.py"
    text = adapter.read_text()
    try:
        adapter.write_text(text + "# refused\n")
        with pytest.raises(VerifyError):
            again(engine, place, locked, templates, check=refuse)
    finally:
        adapter.write_text(text)
    assert seen
    assert seen[0] != record.image
    assert engine.image(seen[0]) is None  # the image was removed
    assert engine.client.images.list(temporary_names.REPOSITORY) == []
    assert {tag: engine.image(tag).id for tag in record.tags} == before
    assert build.read_record(place, record.name) == record


def test_packages_in_another_version_than_pinned_stop_the_build_before_any_tag(engine, built, place, locked, templates):
    record, _ = built
    if locked.base.bootstrap is None:
        pytest.skip("the engine pulled the base: its packages are pinned by its digest")
    first, *rest = locked.base.bootstrap.packages
    wrong = dataclasses.replace(first, version="0.1")
    bootstrap = dataclasses.replace(locked.base.bootstrap, packages=(wrong, *rest))
    older = dataclasses.replace(locked, base=dataclasses.replace(locked.base, bootstrap=bootstrap))
    before = {tag: engine.image(tag).id for tag in record.tags}
    with pytest.raises(BuildError) as stopped:
        again(engine, place, older, templates)
    assert stopped.value.code == "base-differs"
    assert f"{first.name}: pinned 0.1, found {first.version}" in stopped.value.message
    with pytest.raises(BuildError) as stopped:
        package_check.require_pinned(engine, older, record.image)
    assert stopped.value.code == "packages-differ"
    assert f"{first.name}: pinned 0.1, found {first.version}" in stopped.value.message
    assert {tag: engine.image(tag).id for tag in record.tags} == before


@pytest.fixture
def steal(
    engine: Engine, built: tuple[build.BuildRecord, list[Progress]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], None]]:
    """Give the name of the base to an image with the same packages and one more file.

    The base has a separate name here, because other builds can use the same engine.
    """
    record, _ = built
    if record.base.how != "bootstrapped":
        pytest.skip("the engine pulled the base: its digest names it")
    other = f"{REPOSITORY}:other-base"
    monkeypatch.setattr(bases.bootstrap, "reference", lambda _: STOLEN)
    (tmp_path / "Dockerfile").write_text(f"FROM {record.base.reference}\nCOPY Dockerfile /more\n")
    engine.build(tmp_path, tag=other)
    engine.tag(record.base.image, STOLEN)
    yield lambda: engine.tag(other, STOLEN)
    engine.remove_image(STOLEN)
    engine.remove_image(other)


def test_another_image_under_the_name_of_the_base_stops_the_build(engine, built, place, locked, templates, steal):
    record, _ = built
    before = {tag: engine.image(tag).id for tag in record.tags}
    steal()
    with pytest.raises(BuildError) as stopped:
        again(engine, place, locked, templates, no_cache=True)
    assert (stopped.value.code, stopped.value.exit_code) == ("base-differs", 7)
    assert STOLEN in stopped.value.message
    assert STOLEN in stopped.value.hint
    assert {tag: engine.image(tag).id for tag in record.tags} == before
    assert build.read_record(place, record.name) == record


def test_a_base_whose_name_moves_during_the_build_stops_it_too(engine, built, place, locked, templates, steal, monkeypatch):
    record, _ = built
    before = {tag: engine.image(tag).id for tag in record.tags}
    assemble = build_preparation.assemble_without_guest

    def assemble_late(*words: object, **more: object) -> Path:
        steal()
        return assemble(*words, **more)

    monkeypatch.setattr(build_preparation, "assemble_without_guest", assemble_late)
    adapter = place.recipes / "toy" / "smoke.py"
    text = adapter.read_text()
    try:
        adapter.write_text(text + "# another base\n")
        with pytest.raises(BuildError) as stopped:
            again(engine, place, locked, templates)
    finally:
        adapter.write_text(text)
    assert stopped.value.code == "base-differs"
    assert engine.client.images.list(temporary_names.REPOSITORY) == []
    assert {tag: engine.image(tag).id for tag in record.tags} == before


def test_a_changed_adapter_rebuilds_the_last_layers_only(engine, built, place, locked, templates):
    record, _ = built
    adapter = place.recipes / "toy" / "smoke.py"
    before = adapter.read_text()
    try:
        adapter.write_text(before + "# changed\n")
        changed = again(engine, place, locked, templates)
    finally:
        adapter.write_text(before)
    assert not changed.kept
    assert changed.image != record.image
    assert engine.image(record.image) is None  # no tag was left, so it was removed
    assert changed.cached >= changed.steps - 5  # steps of the guest, the lock, the command and the folder run again
    back = again(engine, place, locked, templates)
    assert back.inputs == record.inputs
    assert engine.image(changed.image) is None


def test_a_broken_record_is_no_record(engine, built, place, locked, templates):
    record, _ = built
    path = place.build_record(record.name)
    for content in ("", "{", "[]", '{"name": 3}'):
        path.write_text(content)
        assert build.read_record(place, record.name) is None
    assert not again(engine, place, locked, templates).kept  # built again, from the cache, and recorded
    assert build.read_record(place, record.name) is not None


def test_an_unreachable_index_is_named_and_nothing_is_recorded(engine, place, locked, templates, built):
    record, _ = built
    other = dataclasses.replace(locked, environment=dataclasses.replace(locked.environment, name="toy-2-cpu-py311-debian12"))
    with pytest.raises(BuildError) as caught:
        build.build(engine, inputs(place, other, templates, DeadProxyIndex()), no_cache=True, repository=REPOSITORY)
    assert caught.value.code == "index-unreachable", caught.value.details
    assert build.read_record(place, other.environment.name) is None
    assert engine.image(f"{REPOSITORY}:{other.environment.name}") is None
    assert engine.image(record.tags[0]) is not None


def test_a_repository_out_of_reach_stops_the_build_before_it_begins(engine, place, locked, templates):
    repository = AptRepository(
        name="cuda-repo", url="https://cuda.invalid/repos", suite="/", components="", key_url="", key_fingerprint="A" * 40
    )
    decided = dataclasses.replace(
        locked.environment,
        name="toy-3-cpu-py311-debian12",
        base=dataclasses.replace(locked.environment.base, provider="apt", repositories=(repository,)),
    )
    news: list[Progress] = []
    with pytest.raises(BuildError) as caught:
        other = dataclasses.replace(locked, environment=decided)
        build.build(engine, inputs(place, other, templates, Index(), news.append), repository=REPOSITORY)
    assert caught.value.code == "base-unreachable"
    assert "cuda.invalid" in caught.value.message
    assert "`apt`" in caught.value.message
    assert not [n for n in news if n.stage == "build"]


def test_contexts_are_the_same_bytes_each_time(engine, place, locked, templates, built):
    made_from = inputs(place, locked, templates, Index())
    first = listing(build_context.assemble(made_from))
    second = listing(build_context.assemble(made_from))
    assert first == second
    assert {mode for _, mode, _, _ in first} <= {0o100644, 0o100755, 0o40755}


def listing(folder: Path) -> list[tuple[str, int, int, bytes]]:
    found = []
    for path in sorted(folder.rglob("*")):
        stat = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found.append((str(path.relative_to(folder)), stat.st_mode, int(stat.st_mtime), content))
    return found


def test_a_file_that_is_edited_while_its_image_is_built_makes_the_next_run_build_again(engine, place, locked, templates):
    adapter = place.recipes / "toy" / "smoke.py"
    before = adapter.read_text()

    def edit(news: Progress) -> None:
        if news.stage == "build":
            adapter.write_text(before + "# edited during the build\n")

    try:
        adapter.write_text(before + "# edited before it\n")
        again(engine, place, locked, templates, on_progress=edit)
        assert not again(engine, place, locked, templates).kept
    finally:
        adapter.write_text(before)


def test_two_builds_from_scratch_have_the_same_layers(engine, built, place, locked, templates):
    """The images are the same, too, if both engines can set the creation time."""
    record, _ = built
    second = again(engine, place, locked, templates, no_cache=True)
    assert second.layers == record.layers == engine.image(second.image).layers
    assert (second.image == record.image) == record.dated == second.dated

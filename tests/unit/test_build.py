from __future__ import annotations

import dataclasses
import errno
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from render_locks import RECIPES
from verify_locks import lock as make_lock

from envbuild import build, build_context, build_preparation, image_inputs
from envbuild.engine import package_store
from envbuild.engine.model import BuiltImage
from envbuild.errors import BuildError, EngineError, EnvbuildError, InvalidInputError
from envbuild.lock import lock_file
from envbuild.model.environment import AptRepository
from envbuild.model.lock import AptLock, AptStep, Artifact, DebianPackage, Lock
from envbuild.workspace import Workspace


class NoIndex:
    """An index that must not be used."""

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: object = None) -> Path:
        raise AssertionError(f"{artifact.name} was asked for")

    def build_secrets(self) -> dict[str, bytes]:
        return {}


class Wheels(NoIndex):
    """An index whose wheels have one file each, at the path ``program``."""

    def __init__(self, folder: Path, program: str = "{name}-{version}.data/scripts/{name}") -> None:
        self.folder = folder
        self.program = program
        self.asked: list[str] = []

    def fetch_artifact(self, artifact: Artifact, folder: Path, on_progress: object = None) -> Path:
        self.asked.append(artifact.name)
        path = self.folder / artifact.filename
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(self.program.format(name=artifact.name, version=artifact.version), artifact.name)
        return path


UV = Artifact(
    name="uv",
    version="0.13.9",
    filename="uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    sha256="0" * 64,
    index="default",
    project="uv",
    size=1,
)


def inputs_of(place: Workspace, lock: Lock, rendering: Mapping[str, str], index: NoIndex) -> image_inputs.BuildInputs:
    return image_inputs.BuildInputs(workspace=place, lock=lock, recipes={}, rendering=rendering, index=index)


def assemble(place: Workspace, lock: Lock, rendering: Mapping[str, str], index: NoIndex) -> Path:
    return build_context.assemble(inputs_of(place, lock, rendering, index))


@pytest.fixture
def lock() -> Lock:
    return dataclasses.replace(make_lock(), tools=(UV,))


@pytest.fixture
def index(tmp_path: Path) -> Wheels:
    return Wheels(tmp_path)


@pytest.fixture
def place(tmp_path: Path, lock: Lock) -> Workspace:
    for framework in lock.environment.frameworks:
        folder = tmp_path / "images" / "recipes" / framework.recipe
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "smoke.py").write_text("# the framework's side\n")
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")


def test_tags_are_the_canonical_name_that_of_the_lock_and_the_one_that_does_not_move(lock):
    first, second, third, *rest = build.tags_of(lock, "0123456789abcdef", ["tf-1", "tf 1 with spaces", "a==1"])
    assert first == f"envbuild:{lock.environment.name}"
    assert second == f"{first}-{lock_file.digest(lock)[:8]}"
    assert third == f"{second}-01234567"
    assert rest == ["envbuild:tf-1"]


def test_several_frameworks_are_joined_as_tags_allow(lock):
    several = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, name="a-1+b-2-cpu"))
    assert build.tags_of(several, "0" * 64, repository="r/x")[0] == "r/x:a-1_b-2-cpu"


@pytest.mark.parametrize("length", [111, 119, 200])
def test_a_name_that_can_be_no_tag_is_refused(lock, length):
    endless = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, name="x" * length))
    with pytest.raises(InvalidInputError):
        build.tags_of(endless, "0" * 64)


def test_the_tag_of_an_image_that_nothing_verified_says_so_and_is_possible(lock):
    inputs = "0123456789abcdef" * 4
    tag = build.unverified_tag(lock, inputs)
    assert tag == f"{build.tags_of(lock, inputs)[2].partition(':')[2]}-unverified"
    named = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, name="a" * 110))
    assert build.unverified_tag(named, inputs) == f"{inputs[:32]}-unverified"


def test_an_image_bears_the_day_up_to_which_its_dependencies_were_looked_for(lock):
    dated = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, exclude_newer="2018-11-05"))
    assert build_preparation.time_of(dated).isoformat() == "2018-11-05T00:00:00+00:00"
    unbounded = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, exclude_newer=""))
    assert build_preparation.time_of(unbounded).year == 2020


def test_inputs_change_with_lock_rendering_and_guest(place, lock):
    rendering = {"Dockerfile": "FROM x\n"}
    before = image_inputs.inputs_digest(place, lock, {}, rendering)
    assert image_inputs.inputs_digest(place, lock, {}, rendering) == before
    assert image_inputs.inputs_digest(place, lock, {}, {"Dockerfile": "FROM y\n"}) != before
    other = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, driver_min="1"))
    assert image_inputs.inputs_digest(place, other, {}, rendering) != before
    adapter = place.recipes / lock.environment.frameworks[0].recipe / "smoke.py"
    adapter.write_text("# another\n")
    assert image_inputs.inputs_digest(place, lock, {}, rendering) != before


def test_proofs_of_an_image_rest_on_the_scripts_that_built_it_and_those_of_the_guest_do_not(place, lock):
    place.partials.mkdir()
    script = place.partials / "step.sh"
    script.write_text("one\n")
    rendered, guest = (
        image_inputs.rendering_digest(place, lock.environment.custom, {}),
        image_inputs.guest_digest(place, lock, {}),
    )
    inputs = image_inputs.inputs_digest(place, lock, {}, {})
    script.write_text("another\n")
    assert image_inputs.rendering_digest(place, lock.environment.custom, {}) != rendered
    assert image_inputs.inputs_digest(place, lock, {}, {}) != inputs
    assert image_inputs.guest_digest(place, lock, {}) == guest


def test_the_guest_comes_with_the_recipes_adapters_and_without_caches(place, lock):
    files = image_inputs.guest_files(place, lock, {})
    assert "envbuild/smoke/__main__.py" in files
    recipe = lock.environment.frameworks[0].recipe
    assert files[f"envbuild/smoke/adapters/{recipe}.py"] == place.recipes / recipe / "smoke.py"
    assert not [path for path in files if "__pycache__" in path or "/." in path]


def test_the_adapters_that_a_recipe_s_own_one_imports_come_with_it(place, lock):
    own = lock.environment.frameworks[0].recipe
    (place.recipes / "lender").mkdir()
    (place.recipes / "lender" / "smoke.py").write_text("# lent\n")
    files = image_inputs.guest_files(place, lock, {own: dataclasses.replace(RECIPES["alpha"], name=own, adapters=("lender",))})
    assert files["envbuild/smoke/adapters/lender.py"] == place.recipes / "lender" / "smoke.py"
    assert f"envbuild/smoke/adapters/{own}.py" in files


def test_a_context_is_whole_normalised_and_made_anew(place, lock, index):
    folder = assemble(place, lock, {"Dockerfile": "FROM x\n", "requirements.txt": "a\n"}, index)
    (folder / "stale").write_text("from an earlier build")
    again = assemble(place, lock, {"Dockerfile": "FROM x\n", "requirements.txt": "a\n"}, index)
    assert again == folder == place.context(lock.environment.name)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"Dockerfile", "requirements.txt", "envbuild/lock.json", "tools/uv", "envbuild/smoke/__main__.py"} <= names
    assert "stale" not in names
    assert (folder / "tools" / "uv").read_bytes() == b"uv"
    assert (folder / "tools" / "uv").stat().st_mode & 0o777 == 0o755
    assert (folder / "envbuild/lock.json").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_context_in_two_parts_is_the_same_as_a_whole_one(place, lock, index):
    inputs = inputs_of(place, lock, {"Dockerfile": "FROM x\n", "requirements.txt": "a\n"}, index)

    def listing(folder: Path) -> dict[str, tuple[int, int, bytes]]:
        found = {path: path.stat() for path in (folder, *folder.rglob("*"))}
        return {
            path.relative_to(folder).as_posix(): (
                about.st_mode,
                about.st_mtime_ns,
                path.read_bytes() if path.is_file() else b"",
            )
            for path, about in found.items()
        }

    whole = listing(build_context.assemble(inputs))
    folder = build_context.assemble_without_guest(inputs, {})
    assert {name.partition("/")[0] for name in whole} - {name.partition("/")[0] for name in listing(folder)} == {"envbuild"}
    build_context.add_guest(folder, inputs)
    assert listing(folder) == whole
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_time_of_a_file_in_a_context_is_that_of_its_content(place, lock, index):
    """BuildKit sends only files whose size or time has changed. So a changed text of the same length must get another time."""

    def times(text: str) -> dict[str, int]:
        folder = assemble(place, lock, {"Dockerfile": text, "requirements.txt": "a\n"}, index)
        return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in folder.rglob("*")}

    before, again, after = times("FROM x\n"), times("FROM x\n"), times("FROM y\n")
    assert before == again
    assert {name for name in before if before[name] != after[name]} == {"Dockerfile"}


def test_pip_prefixes_get_their_tools_from_the_lock(place, lock, index):
    def tool(name: str) -> Artifact:
        return dataclasses.replace(lock.prefixes[0].artifacts[0], name=name, filename=f"{name}-1-py2.py3-none-any.whl")

    tools = tuple(tool(name) for name in ("pip", "virtualenv", "wheel"))
    prefix = dataclasses.replace(lock.prefixes[0], backend="pip", build_artifacts=tools)
    folder = assemble(place, dataclasses.replace(lock, prefixes=(prefix,), tools=()), {"Dockerfile": ""}, index)
    assert index.asked == ["pip", "virtualenv"]
    for name in ("pip", "virtualenv"):
        assert zipfile.ZipFile(folder / "tools" / f"{name}.whl").namelist() == [f"{name}-1.0.data/scripts/{name}"]
    assert not (folder / "tools" / "uv").exists()


def test_each_of_several_prefixes_gets_the_tools_that_know_its_python(place, lock, index):
    (env,) = lock.prefixes
    prefixes = []
    for name in ("old", "older"):
        pip = dataclasses.replace(env.artifacts[0], name="pip", filename=f"pip-{name}-py2.py3-none-any.whl")
        prefixes.append(dataclasses.replace(env, name=name, backend="pip", build_artifacts=(pip,)))
    lock = dataclasses.replace(lock, prefixes=tuple(prefixes), tools=())
    folder = assemble(place, lock, {"Dockerfile": ""}, index)
    assert {path.parent.name for path in folder.glob("tools/*/pip.whl")} == {"old", "older"}


@pytest.mark.parametrize("fails", ["contents", "_normalise"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), InvalidInputError("A file is damaged.")])
def test_a_context_that_fails_leaves_nothing(place, lock, index, tmp_path, monkeypatch, fails, error):
    def fail(*_arguments):
        raise error

    monkeypatch.setattr(build_context, fails, fail)
    inputs = image_inputs.BuildInputs(workspace=place, lock=lock, recipes={}, rendering={"Dockerfile": ""}, index=index)
    (tmp_path / "mine").mkdir()
    with pytest.raises(EnvbuildError):
        build_context.assemble(inputs, folder=tmp_path / "mine" / "new" / "context")
    assert not any((tmp_path / "mine").iterdir())


def test_uv_is_the_one_that_the_lock_pins_and_never_this_machine_s(place, lock):
    unpinned = dataclasses.replace(lock, tools=())
    with pytest.raises(InvalidInputError, match="does not pin uv") as caught:
        assemble(place, unpinned, {"Dockerfile": ""}, NoIndex())
    assert (caught.value.code, caught.value.exit_code) == ("unpinned-tool", 5)
    assert f"envbuild lock {lock.environment.name}" in (caught.value.hint or "")
    assert not place.context(lock.environment.name).exists()


@pytest.mark.parametrize(
    "program", ["uv/__init__.py", "uv-0.13.9.data/scripts/uvx", "a/b.data/scripts/uv", "x.data/scripts/uv/uv"]
)
def test_a_wheel_without_the_program_is_refused(place, lock, tmp_path, program):
    with pytest.raises(InvalidInputError, match="contains no program named uv"):
        assemble(place, lock, {"Dockerfile": ""}, Wheels(tmp_path, program))


def test_a_tool_that_is_no_wheel_is_refused(place, lock, index, monkeypatch):
    (index.folder / UV.filename).write_bytes(b"no zip")
    monkeypatch.setattr(Wheels, "fetch_artifact", lambda self, artifact, folder, news=None: self.folder / artifact.filename)
    with pytest.raises(InvalidInputError, match="cannot be read as a wheel"):
        assemble(place, lock, {"Dockerfile": ""}, index)


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"name": 3}'])
def test_no_record_or_a_broken_one_is_none(place, content):
    if content is not None:
        place.build_record("x").parent.mkdir(parents=True)
        place.build_record("x").write_text(content)
    assert build.read_record(place, "x") is None


@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        ("index-unreachable", "Err:1 https://cuda.example/repos  Could not resolve 'cuda.example'", "base-unreachable"),
        ("index-unreachable", "error sending request for url (https://pypi.example/simple)", "index-unreachable"),
        ("build-step", "https://cuda.example/repos: the package has another hash", "build-step"),
        ("base-unreachable", "", "base-unreachable"),
    ],
)
def test_a_source_of_the_base_that_fails_is_the_base(lock, code, line, expected):
    repository = AptRepository(
        name="cuda", url="https://cuda.example/repos", suite="/", components="", key_url="", key_fingerprint=""
    )
    base = dataclasses.replace(lock.environment.base, repositories=(repository,), other_providers=("wheels",))
    decided = dataclasses.replace(lock, environment=dataclasses.replace(lock.environment, base=base))
    told = build.explain_base_error(decided, BuildError("it failed", code=code, details=(line,)))
    assert told.code == expected
    if expected == "base-unreachable":
        assert "wheels" in told.hint
        assert line in told.details


def test_an_engine_that_cannot_build_is_said_before_anything_is_read_fetched_or_made(lock, index, place, monkeypatch) -> None:
    class Engine:
        def image(self, reference: str) -> None:
            return None

        def require_builder(self) -> None:
            raise EngineError("It cannot build.", code="no-buildkit")

    class Compose:
        def begin(self) -> None:
            pytest.fail("downloads were begun")

        def __call__(self, _ingredients: build_preparation.Ingredients) -> BuiltImage:
            pytest.fail("an image was composed")

    def supply() -> Mapping[str, Path]:
        pytest.fail("a bundle was read")

    monkeypatch.setattr(build_preparation.bases, "provide", lambda *_: pytest.fail("a base was made"))
    inputs = image_inputs.BuildInputs(workspace=place, lock=lock, recipes=RECIPES, rendering={}, index=index)
    with pytest.raises(EngineError) as caught:
        build.build(Engine(), inputs, compose=Compose(), supply=supply)  # type: ignore[arg-type]
    assert caught.value.code == "no-buildkit"


def test_a_missing_debian_package_is_named_with_what_fetches_it(place, lock, index):
    package = DebianPackage(name="tini", version="0.19", sha256="a" * 64, path="debian/pool/main/t/tini/tini_0.19_amd64.deb")
    step = AptStep(name="system", asked=("tini",), packages=(package,))
    lock = dataclasses.replace(lock, apt=AptLock(snapshots=(), steps=(step,)))
    store = package_store.Store(place)
    with pytest.raises(BuildError, match=re.escape(f"tini_0.19_amd64.deb, which {lock.environment.name} installs")) as caught:
        assemble(place, lock, {"Dockerfile": ""}, index)
    assert (caught.value.code, str(store.path(package)) in caught.value.message) == ("package-missing", True)
    assert f"`envbuild fetch {lock.environment.name}`" in caught.value.hint
    assert not place.context(lock.environment.name).exists()
    store.folder.mkdir(parents=True)
    store.path(package).write_bytes(b"deb")
    assert (assemble(place, lock, {"Dockerfile": ""}, index) / "apt/system/tini_0.19_amd64.deb").read_bytes() == b"deb"

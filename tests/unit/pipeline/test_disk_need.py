"""The disk space that several builds need according to their locks, and the error if there is too little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import composed
import pytest
import verify_locks

from envbuild import build, codec, files, render
from envbuild.compose import downloads, layer_plan
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError
from envbuild.lock import lock_file
from envbuild.model.lock import DebianPackage, Lock, SourceArchive
from envbuild.pipeline import stored_locks
from envbuild.pipeline.disk_need import Disk, DiskNeed, estimate, need_of, require_space, require_space_of
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools
from envbuild.pipeline.unpacked_sizes import UnpackedSizes
from envbuild.workspace import Workspace

SHARED = "a" * 64
ROOT = Path(__file__).parents[3]
OPENCV_5, OPENCV_4 = "opencv-5.0.0.93-cpu-py311-debian12", "opencv-4.10.0.84-cpu-py311-debian12"
TENSORFLOW = "tf-2.21.0-cpu-py311-debian12"


def toy_lock(name: str, own: int, *, cuda: str | None = None, base: int = 10) -> Lock:
    """A lock with its own wheel, a wheel of 100 bytes that all locks share, and a base with a package that all share."""
    made = verify_locks.lock(cuda=cuda)
    wheels = (
        replace(verify_locks.artifact(name, "1"), sha256=name[0].encode().hex() * 32, size=own),
        replace(verify_locks.artifact("shared", "1"), sha256=SHARED, size=100),
    )
    package = DebianPackage(
        name="bash",
        version="5",
        sha256="b" * 64,
        architecture="amd64",
        size=base,
        path="debian/pool/main/b/bash/bash_5_amd64.deb",
    )
    assert made.base.bootstrap is not None
    return replace(
        made,
        environment=replace(made.environment, name=name),
        prefixes=(replace(made.prefixes[0], artifacts=wheels),),
        base=replace(made.base, bootstrap=replace(made.base.bootstrap, packages=(package,))),
    )


PLAIN = UnpackedSizes()  # without measured ratios
OWN = CONTEXT = 9_000_000  # each image has a smoke test, and each build context, too
ARCHIVE = 39  # of the base
OWN_STORE, CONTAINERD = {"image_store": "docker"}, {"image_store": "containerd"}


def never(_lock: Lock) -> bool:
    return False


def always(_lock: Lock) -> bool:
    return True


def test_what_two_environments_share_is_downloaded_once_and_unpacked_in_each_image():
    need = estimate([toy_lock("x", 7), toy_lock("y", 9)], (), PLAIN)
    assert need.downloads == 7 + 9 + 100 + 10
    assert need.stored == 2 * CONTEXT + 10 + ARCHIVE, "the package of the base, and the base; the engine unpacks wheels at once"
    assert need.images == 2 * OWN + 4 * (7 + 9 + 2 * 100) + 43
    assert need.kept == CONTEXT + 4 * (9 + 100), "the builder keeps the wheels of the largest build once more"
    assert need.total == need.stored + need.images + need.kept
    assert need.unknown == 0


def test_composed_images_share_the_layers_of_wheels():
    need = estimate([toy_lock("x", 7), toy_lock("y", 9)], (), PLAIN, composed=("x", "y"))
    assert need.images == OWN + 4 * (7 + 9 + 100) + 43
    assert need.stored == 2 * CONTEXT + 2 * (7 + 9 + 100) + 10 + ARCHIVE, "each wheel and its layer"
    assert need.kept == 0


BASE = 43


def test_containerd_keeps_compressed_layers_and_the_builder_keeps_its_own_copy():
    locks = [toy_lock("x", 7), toy_lock("y", 9)]
    plain = estimate(locks, (), PLAIN)
    need = estimate(locks, (), PLAIN, in_containerd=True)
    assert need == replace(plain, images=2 * plain.images + 7 + 9 + 2 * 100 + ARCHIVE)


def test_an_image_that_is_not_composed_shares_no_layers_with_one_that_is():
    locks = [toy_lock("x", 7), toy_lock("y", 9)]
    both, one = (estimate(locks, (), PLAIN, composed=names) for names in (("x", "y"), ("x",)))
    assert one.images - both.images == OWN + 4 * 100, "what both share"
    assert both.stored - one.stored == 2 * 9, "the wheel and the layer of the image that is not composed"
    assert one.kept == CONTEXT + 4 * (9 + 100)


def test_the_builder_keeps_the_base_of_composed_images():
    locks = [toy_lock("x", 7), toy_lock("y", 9)]
    plain = estimate(locks, (), PLAIN, composed=("x", "y"))
    need = estimate(locks, (), PLAIN, composed=("x", "y"), in_containerd=True)
    assert need == replace(plain, images=plain.images + 7 + 9 + 100 + ARCHIVE + BASE)


@pytest.mark.parametrize(("name", "is_composed", "on_disk"), [
    (OPENCV_5, True, 1535), (TENSORFLOW, True, 2484), (OPENCV_5, False, 1950), (TENSORFLOW, False, 5587),
])  # fmt: skip
def test_the_forecast_for_containerd_is_right_within_6_percent(name: str, is_composed: bool, on_disk: int):
    """Measured with Docker 28.5.2: the data folder in MB, after the first build in an empty engine."""
    tools = Tools(Workspace(root=ROOT, output=ROOT / "images", home=Path("/nowhere")))
    lock = lock_file.read(tools.workspace.lock_file(name))
    need = estimate([lock], (), tools.unpacked_sizes, composed=[name] if is_composed else (), in_containerd=True)
    assert (need.images + need.kept) / 1e6 == pytest.approx(on_disk, rel=0.06)


def test_files_that_were_downloaded_before_are_not_counted():
    held = ["shared-1-py3-none-any.whl", f"{'b' * 64}.deb"]
    need = estimate([toy_lock("x", 7)], held, PLAIN)
    assert (need.downloads, need.stored) == (7, CONTEXT + ARCHIVE)


def test_libraries_of_cuda_are_hardly_compressed_and_so_grow_less():
    assert estimate([toy_lock("x", 7, cuda="12.6", base=0)], (), PLAIN).images == OWN + 2 * 107


def test_the_programs_that_install_packages_are_stored_and_unpacked():
    lock = toy_lock("x", 7)
    uv, pip = (replace(verify_locks.artifact(name, "1"), sha256=name * 2, size=1000) for name in ("uv", "pip"))
    prefix = replace(lock.prefixes[0], pip=pip)
    plain, more = (estimate([each], (), PLAIN) for each in (lock, replace(lock, tools=(uv,), prefixes=(prefix,))))
    assert more.stored - plain.stored == 2 * 1000 + 4 * 1000 + 1000, "both files; in the context uv is unpacked, pip is not"
    assert more.kept - plain.kept == 4 * 1000 + 1000 and more.images == plain.images


def test_pip_keeps_its_wheels_as_they_are():
    lock = toy_lock("x", 7)
    old = replace(lock, prefixes=(replace(lock.prefixes[0], backend="pip"),))
    assert estimate([old], (), PLAIN).kept == CONTEXT + 107


@pytest.mark.parametrize(
    ("name", "on_disk"),
    [
        ("chainer-5.4.0-cpu-py27-debian11", 331_000_000),
        (OPENCV_5, 695_000_000),
        ("kerascntk-2.2.2-cpu-py27-debian11", 807_000_000),
        ("cupy-14.2.0-cuda13.0-py313-debian13", 2_537_000_000),
        ("pytorch-2.11.0-cuda13.0-py311-debian12", 5_465_000_000),
    ],
)
def test_the_forecast_is_right_within_5_percent_for_images_that_were_measured(name, on_disk, tmp_path):
    """The figures are sums of the blocks that the files of real images took on a disk (`benchmarks/unpacked_sizes.py`)."""
    tools = Tools(Workspace(root=ROOT, output=ROOT / "images", home=tmp_path))
    lock = stored_locks.read_lock(ROOT / f"images/environments/{name}/lock.json")
    assert abs(estimate([lock], (), tools.unpacked_sizes).images / on_disk - 1) < 0.05


def test_a_measured_size_counts_if_the_lock_does_not_say_how_large_the_image_is():
    lock = toy_lock("x", 7)
    pulled = replace(lock, base=replace(lock.base, bootstrap=None))
    for each in (lock, pulled):
        need = estimate([each], (), PLAIN, sizes={"x": 900_000_000})
        assert (need.images, need.unknown) == (900_000_000, 0)
    assert estimate([pulled], (), PLAIN).unknown == 1
    assert estimate([lock], (), PLAIN, sizes={"x": 1}).images == OWN + 4 * 107 + 43


def test_a_lock_that_does_not_tell_all_sizes_is_said_to_be_unknown():
    lock = toy_lock("x", 7)
    pulled = replace(lock, base=replace(lock.base, bootstrap=None))
    silent = replace(lock.prefixes[0], artifacts=(replace(lock.prefixes[0].artifacts[0], size=None),))
    from_git = replace(lock, sources=(SourceArchive(repository="r", revision="1", sha256="c" * 64),))
    locks = [lock, pulled, replace(lock, prefixes=(silent,)), from_git]
    assert estimate(locks, (), PLAIN).unknown == 3


def disk(device: int, *, needed: int, free: int = 100) -> Disk:
    return Disk(place=f"/disk{device}", device=device, needed=needed, free=free)


def test_enough_space_on_each_disk_is_no_error():
    require_space([disk(1, needed=100), disk(2, needed=60)])


def test_two_needs_on_one_disk_are_added_up():
    with pytest.raises(BuildError) as told:
        require_space([disk(1, needed=60), disk(1, needed=60)])
    assert told.value.code == "no-space"
    assert "Nothing was started" in told.value.message


def test_for_one_environment_the_error_names_it_and_advises_no_smaller_selection():
    with pytest.raises(BuildError, match=r"The build of x needs about 0\.0 GB in /disk1, .* Nothing was built") as told:
        require_space([disk(1, needed=101)], "x")
    assert "--match" not in told.value.hint and told.value.hint.startswith("Free some space")


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """A machine with the image of ``x``, which was built from its lock by its Dockerfile."""
    made = Tools(Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path / "home"))
    lock = toy_lock("x", 7)
    lock_file.write(made.workspace.lock_file("x"), lock)
    record = build.BuildRecord(
        name="x",
        lock=lock_file.digest(lock),
        inputs="of an earlier smoke test",
        image="sha256:1",
        tags=("envbuild:x",),
        base=build.BaseRecord(reference="", image="", how="", digest="", notes=()),
        engine="",
        built_at="",
        seconds=1.0,
        steps=1,
        cached=0,
        size=0,
        kept=False,
    )
    files.write_atomic(made.workspace.build_record("x"), codec.dumps(record))
    made.__dict__["engine"] = SimpleNamespace(image=lambda name: "there" if name == "sha256:1" else None, **OWN_STORE)
    return made


def test_a_new_smoke_test_in_images_that_are_there_needs_no_space(tools):
    assert need_of(tools, ["x"], is_composed=never) == DiskNeed(downloads=0, stored=0, images=0, unknown=0)


def test_another_lock_builder_or_engine_or_building_anew_needs_all_of_it(tools):
    whole = DiskNeed(
        downloads=7 + 100 + 10,
        stored=CONTEXT + 10 + ARCHIVE,
        images=OWN + 4 * (7 + 100) + 43,
        unknown=0,
        kept=CONTEXT + 4 * (7 + 100),
    )
    assert need_of(tools, ["x"], is_composed=never, anew=True) == whole
    assert need_of(tools, ["x"], is_composed=always) == replace(whole, kept=0, stored=whole.stored + 2 * 107)
    path = tools.workspace.lock_file("x")
    path.write_bytes(path.read_bytes() + b"\n")
    assert need_of(tools, ["x"], is_composed=never) == whole
    lock_file.write(path, toy_lock("x", 7))
    tools.__dict__["engine"] = SimpleNamespace(image=lambda _name: None, **OWN_STORE)
    assert need_of(tools, ["x"], is_composed=never) == whole
    tools.__dict__["engine"] = SimpleNamespace(image=lambda _name: None, **CONTAINERD)
    assert need_of(tools, ["x"], is_composed=never).images == 2 * whole.images + 7 + 100 + ARCHIVE


def test_a_single_build_is_checked_unless_its_image_is_there(tools):
    locked = read_locked(tools, "x")
    assert locked is not None
    asked = []
    small = SimpleNamespace(data_root="/", free_bytes=100)
    engine = SimpleNamespace(image=lambda _name: "there", info=small, make_room=asked.append, **OWN_STORE)
    tools.__dict__["engine"] = engine
    require_space_of(tools, locked, is_composed=False)
    assert not asked
    with pytest.raises(BuildError, match="The build of x needs") as told:
        require_space_of(tools, locked, is_composed=False, anew=True)
    assert told.value.code == "no-space" and len(asked) == 1
    tools.space_is_checked = True  # by a batch
    require_space_of(tools, locked, is_composed=False, anew=True)
    tools.space_is_checked = False
    engine.image = lambda _name: None
    with pytest.raises(BuildError, match="The build of x needs"):
        require_space_of(tools, locked, is_composed=False)


def test_wheels_whose_layers_are_in_the_store_are_not_downloaded_for_composed_images(tmp_path):
    tools = Tools(Workspace(root=ROOT, output=ROOT / "images", home=tmp_path))
    tools.__dict__["engine"] = SimpleNamespace(image=lambda _name: None, **OWN_STORE)
    before = need_of(tools, [OPENCV_5], is_composed=always)
    lock = stored_locks.read_lock(ROOT / f"images/environments/{OPENCV_5}/lock.json")
    (prefix,), order = lock.prefixes, render.install_order(lock, tools.recipes)
    python = layer_plan.interpreter(lock, prefix)
    assert python is not None
    wheels = layer_plan.ranked(map(downloads.wheel, prefix.artifacts), order[prefix.name])
    layers = layer_plan.wheel_layers(prefix, wheels, python)
    assert len(layers) > 2
    store = LayerStore(tools.workspace.layers)
    for planned in layers[:-1]:
        content, layer = composed.blob(composed.tarred({"file": planned.key.encode()}))
        store.add(planned.key, composed.writer(content, layer))
    missing = {wheel.sha256 for wheel in layers[-1].wheels}
    stored = sum(each.size or 0 for each in prefix.artifacts if each.sha256 not in missing)
    after = need_of(tools, [OPENCV_5], is_composed=always)
    assert stored > 10**7 and after == replace(before, downloads=before.downloads - stored, stored=before.stored - 2 * stored)
    assert need_of(tools, [OPENCV_5], is_composed=never).downloads == before.downloads, "the engine's builder has no store"
    locks = [lock, stored_locks.read_lock(ROOT / f"images/environments/{OPENCV_4}/lock.json")]
    both = need_of(tools, [OPENCV_5, OPENCV_4], is_composed=always).downloads
    assert both < estimate(locks, (), PLAIN, composed=[OPENCV_5, OPENCV_4]).downloads
    for path in store.blob_files().values():
        path.unlink()
    assert need_of(tools, [OPENCV_5], is_composed=always) == before, "a layer whose file is gone must be made again"

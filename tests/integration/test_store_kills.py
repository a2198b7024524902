"""Several processes use the layer store: a writer killed at any moment leaves no damaged layer; two writers make one layer."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import composed
import pytest

from envbuild.compose import upkeep
from envbuild.compose.store import LayerStore
from envbuild.model.progress import ignore_progress

UNIT = Path(__file__).parents[1] / "unit"
_LAYERS = 6

# Adds layers of 2 MB each, in pieces, and prints a line when it begins one. Each layer is added under two keys.
_WRITER = """
import hashlib, random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import composed
from envbuild.compose.store import LayerStore

store = LayerStore(Path(sys.argv[1]))
def write(number):
    content, layer = composed.blob(composed.tarred({"f": random.Random(number).randbytes(2 << 20)}), gzipped=False)
    def pieces(stream):
        print("writing", flush=True)
        for start in range(0, len(content), 1 << 14):
            stream.write(content[start : start + (1 << 14)])
            stream.flush()
        return layer
    return pieces
for number in range(int(sys.argv[3])):
    for name in ("one", "two"):
        store.add(composed.key(f"{name}{number}"), write(number))
print("done", flush=True)
"""


def start(store: LayerStore) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", _WRITER, str(store.folder), str(UNIT), str(_LAYERS)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> int:
    """The number of layers that the process wrote."""
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and output.endswith("done\n")
    return output.count("writing")


def contents(store: LayerStore) -> dict[str, object]:
    return {entry.key: entry.layer for entry in store.entries()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], set[str], float]:
    """The entries and files of an undisturbed writer, and the seconds that it takes."""
    store = LayerStore(tmp_path_factory.mktemp("whole") / "store")
    began = time.monotonic()
    assert finish(start(store)) == 2 * _LAYERS
    return contents(store), composed.tree(store.folder), time.monotonic() - began


@pytest.mark.parametrize("times", [pytest.param(12, id="12"), pytest.param(100, id="100", marks=pytest.mark.prove)])
def test_a_writer_killed_at_any_moment_leaves_no_bad_layer(undisturbed, tmp_path: Path, times: int) -> None:
    entries, tree, seconds = undisturbed
    chance = random.Random(times)
    store = LayerStore(tmp_path / "store")
    for _ in range(times):
        process = start(store)
        assert process.stdout is not None
        for _ in range(chance.randrange(3)):  # the kill comes before the first layer, or in the first or second one
            process.stdout.readline()
        time.sleep(chance.uniform(0, seconds / 4))  # any moment will do, because each must be harmless
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = contents(store)
        assert found.items() <= entries.items()
        for layer in found.values():
            assert store.has(layer)
        if len(found) == len(entries):  # all layers are there, so there is nothing left to write
            break_up(store, chance)
    verified = upkeep.verify(store, ignore_progress)
    assert (verified.damaged, verified.entries) == ((), ())
    store.forget(composed.key("one0"))
    finish(start(store))  # a writer also removes the files that killed ones left
    assert contents(store) == entries and composed.tree(store.folder) == tree


def break_up(store: LayerStore, chance: random.Random) -> None:
    """Remove half of the layers, so that the next writer has something to do."""
    for entry in store.entries():
        if chance.random() < 0.5:
            store.forget(entry.key)
    upkeep.prune(store, 10**9)


def test_two_processes_write_each_layer_once(undisturbed, tmp_path: Path) -> None:
    entries, tree, _ = undisturbed
    store = LayerStore(tmp_path / "store")
    writers = [start(store) for _ in range(3)]
    assert sum(finish(writer) for writer in writers) == 2 * _LAYERS
    assert contents(store) == entries and composed.tree(store.folder) == tree
    assert upkeep.verify(store, ignore_progress).damaged == ()


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A real file system of 3 MB, on which the second layer does not fit."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(disk)], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        store = LayerStore(disk / "store")
        argv = [sys.executable, "-c", _WRITER, str(store.folder), str(UNIT), "2"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        assert f"No space left on the file system mounted at {disk} while writing" in done.stderr and done.returncode == 1
        assert len(store.blob_files()) == 1 and upkeep.verify(store, ignore_progress).damaged == ()
        assert not [name for name in composed.tree(store.folder) if "/." in name or name.startswith("locks")]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Forks children that add one layer. Each is killed one file operation later than the child before, until one finishes.
_STEPS = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import composed
from envbuild.compose import upkeep
from envbuild.compose.store import LayerStore
from envbuild.model.progress import ignore_progress

OPERATIONS = {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.utime", "fcntl.flock"}
tree = None
for last in range(1, 500):
    store = LayerStore(Path(sys.argv[1]) / str(last))
    child = os.fork()
    if child == 0:
        steps = 0
        def count(event, _words):
            global steps
            if event in OPERATIONS:
                steps += 1
                if steps == last:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        composed.add(store, "a")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    for entry in store.entries():
        assert store.has(entry.layer), last
    verified = upkeep.verify(store, ignore_progress)
    assert (verified.damaged, verified.entries) == ((), ()), last
    composed.add(LayerStore(store.folder), "a")
    composed.add(LayerStore(store.folder), "b")  # what writes removes what the killed one left
    tree = tree or composed.tree(store.folder)
    assert composed.tree(store.folder) == tree, last
    if status == 0:
        print(last)
        break
"""


def test_a_kill_before_each_file_operation_is_harmless(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _STEPS, str(tmp_path), str(UNIT)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15, "so many operations there are at least"

"""Two checkouts give the same bytes although they differ in folder, times, the user's settings, and umask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PARTS = ("envbuild", "images", "matrix", "matrix.yaml")
# Makes the build context of one environment whose build downloads nothing, and prints its hash as an archive. Names,
# permissions and times are included. Owners are left out, as builders leave them out.
_PROGRAM = """
import dataclasses, hashlib, io, sys, tarfile, zipfile
from pathlib import Path
from envbuild import build_context, image_inputs, recipes, workspace
from envbuild.engine import package_store
from envbuild.lock import lock_file
from envbuild.pipeline.tools import Tools
from envbuild.render import render
class Wheels:
    def fetch_artifact(self, artifact, folder, on_progress):
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / artifact.filename, "w") as wheel:
            wheel.writestr(f"{artifact.name}.data/scripts/{artifact.name}", "a program")
        return folder / artifact.filename
place = workspace.find(sys.argv[1])
fetches = ('"backend": "pip"', '"repository": "http')
locks = ((p.parent.name, p.read_text()) for p in sorted(place.environments.glob("*/lock.json")))
name = next(name for name, text in locks if not any(word in text for word in fetches))
locked = dataclasses.replace(lock_file.read(place.lock_file(name)), tools=Tools(place).build_tools)
for package in (package for step in locked.apt.steps for package in step.packages):
    held = package_store.Store(place).path(package)
    held.parent.mkdir(parents=True, exist_ok=True)
    held.write_text(package.filename)
known = recipes.load(place)
rendering = render(locked, known, recipes.templates(place))
folder = build_context.assemble(
    image_inputs.BuildInputs(workspace=place, lock=locked, recipes=known, rendering=rendering, index=Wheels())
)
whole = io.BytesIO()
with tarfile.open(fileobj=whole, mode="w") as tar:
    for path in sorted(folder.rglob("*")):
        info = tar.gettarinfo(path, str(path.relative_to(folder)))
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        with path.open("rb") if path.is_file() else io.BytesIO() as content:
            tar.addfile(info, content)
print(name, hashlib.sha256(whole.getvalue()).hexdigest())
"""


def answer(folder: Path, *, umask: int, time: int, **environment: str) -> str:
    """The output of the program for a copy of this checkout in ``folder``; all files of the copy have the time ``time``."""
    for part in _PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, folder / part)
    for path in folder.rglob("*"):
        os.utime(path, (time, time))
    said = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder)],
        cwd=folder,
        umask=umask,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "ENVBUILD_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_two_checkouts_make_the_same_rendering_and_the_same_context(tmp_path: Path) -> None:
    one = tmp_path / "one"
    other = tmp_path / "ein Ordner mit Ümlaut" / "deeper"
    for folder in (one, other):
        folder.mkdir(parents=True)
    first = answer(one, umask=0o022, time=1_000_000_000, PYTHONHASHSEED="0", TZ="UTC", LC_ALL="C", HOME="/", USER="a")
    second = answer(
        other,
        umask=0o077,
        time=1_700_000_000,
        PYTHONHASHSEED="77",
        TZ="Asia/Tokyo",
        LC_ALL="C.UTF-8",
        HOME=str(tmp_path),
        USER="b",
    )
    assert first == second

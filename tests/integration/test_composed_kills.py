"""``build --to`` is killed at random moments. The next run continues, and its image equals that of an undisturbed run.

ENVBUILD_KILLS sets the number of kills. Runs that end before they are killed do not count.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from program import Program, fresh_root, share_bases, share_downloads

from envbuild.engine.client import Engine

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.prove]
NAME = "opencv-5.0.0.93-cpu-py311-debian12"
KILLS = int(os.environ.get("ENVBUILD_KILLS", "30"))


def placed(program: Program, folder: Path) -> tuple[dict[str, str], float]:
    """The files of the layout by path, and the seconds that making it took."""
    answer = program.run("build", NAME, "--to", f"oci:{folder}", timeout=900).expect(0)
    files = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    for path, digest in files.items():
        assert not path.startswith("blobs/sha256/") or path.endswith(digest)
    return files, answer.seconds


def test_killed_at_any_moment(tmp_path: Path, engine: Engine) -> None:
    home = tmp_path / "home"
    share_bases(home)
    share_downloads(home)
    program = Program(root=fresh_root(tmp_path / "root"), home=home, environment={"DOCKER_HOST": engine.endpoint})
    program.run("lock", NAME, timeout=600).expect(0)
    wanted, _ = placed(program, tmp_path / "undisturbed")
    shutil.rmtree(home / "layers")
    again, seconds = placed(program, tmp_path / "again")  # faster than the first run, for which the engine built the system
    assert again == wanted
    moments, killed = random.Random(14), 0
    for number in itertools.count():
        if number % 5 == 0:  # otherwise earlier runs would soon have made everything
            shutil.rmtree(home / "layers")
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        argv = program.argv("build", NAME, "--to", f"oci:{tmp_path}/out")
        with subprocess.Popen(argv, env=program.env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(moments.uniform(0.2, seconds))
            killed += process.poll() is None
            process.kill()
        if number % 5 == 4:
            assert placed(program, tmp_path / "out")[0] == wanted
            assert program.run("cache", "verify").expect(0)
            if killed >= KILLS:
                break
        assert number < 10 * KILLS, "too few runs took long enough to be killed"

"""The script that imports modules in images, with every Python of this machine: all must give the same answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import envbuild

SCRIPT = Path(envbuild.__file__).parent / "smoke" / "imports.py"
PYTHONS = ["python2.7", "python3.5", "python3.8", Path(sys.executable).name, "python3.13", "python3.14"]


def interpreter(name: str) -> str:
    """The path of a working Python of this name. The Python of this test always works."""
    found = sys.executable if name == Path(sys.executable).name else shutil.which(name)
    if found is None or not version(found):
        pytest.skip(f"{name} is not on this machine")
    return found


def version(python: str) -> str:
    program = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=False).stdout.strip()


def site(folder: Path, modules: dict[str, str], **headers: str) -> None:
    """A distribution with these modules and its list of files."""
    name = headers["Name"]
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    for path, text in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in headers.items()) + "Version: 1.0\n")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in modules))


@pytest.mark.parametrize("name", PYTHONS)
def test_every_module_is_tried_in_a_process_of_its_own(name: str, tmp_path: Path) -> None:
    python = interpreter(name)
    folder = tmp_path / "site-packages"
    site(
        folder,
        {
            "good.py": "import sys\nassert 'quits' not in sys.modules\n",
            "quits.py": "import sys\nsys.exit(0)\n",
            "breaks.py": "raise ImportError('libnothere.so.1: cannot open shared object file: No such file or directory')\n",
            "crashes.py": "import os\nos.abort()\n",
            "hangs.py": "import subprocess, time\nsubprocess.Popen(['sleep', '777123'])\ntime.sleep(600)\n",
            "tests/__init__.py": "raise SystemExit('not to be run')\n",
        },
        Name="Many_Things",
    )
    site(folder, {}, Name="only-data")
    answer = tmp_path / "answer.json"
    wanted = ["many-things", "only-data", "absent"]
    config = {"out": str(answer), "wanted": wanted, "skip": [["tests", "theirs"]], "limit_s": 3, "workers": 2}
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    argv = [python, "-c", SCRIPT.read_text(), json.dumps(config)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "progress 5 5"
    told = json.loads(answer.read_text())
    outcomes = {each["module"]: (each["outcome"], each["code"]) for each in told["modules"]}
    assert outcomes == {
        "good": ("ok", 0), "quits": ("failed", 0), "breaks": ("failed", 1), "crashes": ("failed", -6), "hangs": ("timeout", -9),
    }  # fmt: skip
    assert told["without"] == ["only-data"] and told["absent"] == ["absent"]
    assert [each["reason"] for each in told["skipped"]] == ["theirs"]
    assert told["markers"]["python_version"] == version(python)
    assert subprocess.run(["pgrep", "-f", "sleep 777123"], capture_output=True, check=False).returncode == 1

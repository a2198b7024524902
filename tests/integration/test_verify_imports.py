"""The script that imports modules in images, with every Python of this machine: all must give the same answer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from pythons import interpreter

import envbuild

SCRIPT = Path(envbuild.__file__).parent / "smoke" / "imports.py"
PYTHONS = ["2.7", "3.5", "3.6", "3.8", "3.11", "3.13", "3.14"]


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


@pytest.mark.parametrize("wanted_version", PYTHONS)
def test_every_module_is_tried_in_a_process_of_its_own(wanted_version: str, tmp_path: Path) -> None:
    python = interpreter(wanted_version)
    sleep = f"sleep 777{wanted_version.replace('.', '')}"  # not that of this test with another Python, which may run now
    folder = tmp_path / "site-packages"
    site(
        folder,
        {
            "good.py": "import sys\nassert 'quits' not in sys.modules\n",
            "quits.py": "import sys\nsys.exit(0)\n",
            "breaks.py": "raise ImportError('libnothere.so.1: cannot open shared object file: No such file or directory')\n",
            "crashes.py": "import os\nos.abort()\n",
            "hangs.py": f"import subprocess, time\nsubprocess.Popen({sleep.split()})\ntime.sleep(600)\n",
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
    assert told["markers"]["python_version"] == wanted_version
    assert subprocess.run(["pgrep", "-f", sleep], capture_output=True, check=False).returncode == 1

"""Conditions on packages that are no frameworks: the command in the hint of the error works unchanged in an empty folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ASKED = [
    (["chainer-7-cpu", "six!=1.15"], ["six!=1.15"]),
    (["mxnet-1.9-cpu", "scipy>=1.5,<1.8", "requests"], ["scipy>=1.5,<1.8", "requests"]),
    (["tf-2.12-cpu", "protobuf==3.20.*"], ["protobuf==3.20.*"]),
    (["jax-0.5-cpu", "flax~=0.10.2"], ["flax~=0.10.2"]),
    (["tf-2.12-cpu", "debian12", "numpy<1.24", "tensorflow-datasets>=4.9"], ["numpy<1.24", "tensorflow-datasets>=4.9"]),
]


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key != "ENVBUILD_ROOT"}
    environment |= {"PATH": path, "ENVBUILD_HOME": str(folder / "home")}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400
    )


def _hinted(asked: list[str], folder: Path) -> tuple[str, str]:
    """The two commands of the hint."""
    refused = _shell(f"envbuild resolve {shlex.join(asked)}", folder)
    assert refused.returncode == 4, refused.stderr
    hint = re.search(r"^ *hint: `(envbuild init .*) && (envbuild make \S+)`$", refused.stderr, flags=re.MULTILINE)
    assert hint, refused.stderr
    return hint[1], hint[2]


# Each case uses the package index for up to a minute. Other tests build images from locks.
@pytest.mark.network
@pytest.mark.parametrize(
    ("asked", "packages"),
    [*(pytest.param(*each, marks=pytest.mark.prove) for each in ASKED[:-1]), ASKED[-1]],
    ids=lambda words: words[-1],
)
def test_the_hint_makes_a_lock_that_holds_the_packages(asked: list[str], packages: list[str], tmp_path: Path) -> None:
    begin, make = _hinted(asked, tmp_path)
    begun = _shell(begin, tmp_path)
    assert begun.returncode == 0, begun.stderr
    recipe = make.split()[-1]
    assert yaml.safe_load((tmp_path / recipe).read_text())["pip"] == packages
    resolved = _shell(f"envbuild resolve {recipe}", tmp_path)
    assert resolved.returncode == 0, resolved.stderr
    done = _shell(make.replace("envbuild make", "envbuild lock"), tmp_path)
    assert done.returncode == 0, done.stderr
    lock = json.loads((tmp_path / recipe).with_name("envbuild.lock.json").read_text())
    pinned = {each["name"]: each["version"] for prefix in lock["prefixes"] for each in prefix["artifacts"]}
    for wanted in map(Requirement, packages):
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)], prereleases=True), (str(wanted), pinned)

"""Run envbuild as a person or a script would: in a separate process, with its own workspace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild import workspace

ROOT = Path(__file__).parents[2]
_USERS_CACHE = workspace.find(str(ROOT)).home  # read here, because tests set ENVBUILD_HOME to another folder
_FACTS = ("matrix.yaml", "matrix")
_HAND_WRITTEN = (
    "images/compiling.yaml",
    "images/driver-symbols.json",
    "images/host-libraries.json",
    "images/imports.yaml",
    "images/linking.yaml",
    "images/overlay",
    "images/partials",
    "images/pipelines",
    "images/recipes",
    "images/recorded-layers.json",
    "images/services",
    "images/stacks",
    "images/unpacked-sizes.json",
    "images/wrong-records.yaml",
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The exit code and output of one run."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> Any:
        """The JSON document on standard output. Fails if there is anything else."""
        return json.loads(self.out)

    def expect(self, code: int) -> Answer:
        """Return this answer after checking that the run ended with ``code`` and without a traceback."""
        assert "Traceback" not in self.err + self.out, self.err
        assert self.code == code, f"exit {self.code}, not {code}\n--- out\n{self.out[-3000:]}\n--- err\n{self.err[-6000:]}"
        return self


@dataclass(kw_only=True)
class Program:
    """``envbuild`` with a copy of the facts and recipes, and with its own cache folder."""

    root: Path
    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def argv(self, *words: str) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "envbuild", *words]

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        ours = {"ENVBUILD_ROOT": str(self.root), "ENVBUILD_HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        merged = {**os.environ, **ours, **self.environment, **(extra or {})}
        return {name: value for name, value in merged.items() if value != "<unset>"}

    def run(self, *words: str, timeout: float = 1500, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Answer:
        began = time.monotonic()
        done = subprocess.run(
            self.argv(*words), capture_output=True, text=True, timeout=timeout, env=self.env(env), cwd=cwd, check=False
        )
        return Answer(code=done.returncode, out=done.stdout, err=done.stderr, seconds=time.monotonic() - began)

    def interrupt(self, number: signal.Signals, when: Callable[[str], bool], *words: str, patience: float = 600) -> Answer:
        """Run a command, interrupt it, and wait for its end.

        The signal ``number`` is sent as soon as ``when`` returns true for the text on standard error.
        """
        began = time.monotonic()
        process = subprocess.Popen(
            self.argv(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env(), start_new_session=True
        )
        written: list[str] = []
        sent = threading.Event()

        def watch() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                written.append(line)
                if not sent.is_set() and when("".join(written)):
                    sent.set()
                    process.send_signal(number)

        reader = threading.Thread(target=watch, daemon=True)
        reader.start()
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"still running: {''.join(written)[-3000:]}") from None
        reader.join(10)
        out = process.stdout.read() if process.stdout else ""
        assert sent.is_set(), f"it ended before the moment came:\n{''.join(written)[-3000:]}"
        return Answer(code=code, out=out, err="".join(written), seconds=time.monotonic() - began)

    def timed(self, *words: str) -> tuple[Answer, list[tuple[float, str]]]:
        """Run a command and record the time at which each line of standard error arrived."""
        began = time.monotonic()
        process = subprocess.Popen(
            self.argv(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env(), bufsize=1
        )
        assert process.stderr is not None
        assert process.stdout is not None
        lines = [(time.monotonic() - began, line.rstrip("\n")) for line in process.stderr]
        out = process.stdout.read()
        answer = Answer(
            code=process.wait(), out=out, err="\n".join(line for _, line in lines), seconds=time.monotonic() - began
        )
        return answer, lines

    def leftovers(self) -> list[str]:
        """Hidden temporary files that a killed run left in the folders for results. They must not disturb the next run."""
        places = (self.root / "images/environments", self.root / "images/evidence", self.home / "evidence")
        return [str(path) for place in places for path in place.rglob(".*") if path.is_file()]


def fresh_root(folder: Path) -> Path:
    """Copy the facts and recipes of the checkout, without files that tools wrote."""
    for name in _FACTS + _HAND_WRITTEN:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


def own_program(folder: Path, environment: Mapping[str, str] | None = None) -> Program:
    """envbuild with copies of the facts and recipes in ``folder``, and a cache folder of its own there."""
    home = folder / "home"
    share_matrix(home)
    return Program(root=fresh_root(folder / "root"), home=home, environment=dict(environment or {}))


def share_matrix(home: Path) -> None:
    """Use the compiled matrix of the user's cache, because compiling takes seconds. This is safe, because envbuild uses it only
    if the hashes of the matrix's files are the same."""
    _share(home, "compiled-matrix")


def share_bases(home: Path) -> None:
    """Use the bootstrapped bases of the user's cache. This is safe, because they are stored under the hash of their content."""
    _share(home, "bases")


def share_downloads(home: Path) -> None:
    """Use the downloads of the user's cache in tests that are not about downloading; they are stored under their hashes."""
    _share(home, "downloads")


def _share(home: Path, name: str) -> None:
    shared = _USERS_CACHE / name
    shared.mkdir(parents=True, exist_ok=True)
    home.mkdir(parents=True, exist_ok=True)
    if not (home / name).is_symlink():
        (home / name).symlink_to(shared)

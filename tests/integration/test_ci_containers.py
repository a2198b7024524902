"""The jobs of both pipelines run in containers that have nothing but what their own machine has.

Debian 12 with Python, pip and git stands in for the image python:3.11-bookworm, and with docker's command for GitHub's runner.
Nothing of the jobs is replaced: they install envbuild, build, train, and publish into Debian's docker-registry. Jobs share the
registry and nothing else. The GPU image is small; it is built and verified, and its smoke test is inconclusive without a GPU.
In two places, something stands in for a service: advisories about vulnerabilities come from a file, and a script notes what
GitHub's command ``gh`` was asked for.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml
from plan_world import commit, git
from program import ROOT, Program, fresh_root
from signing import write_pair

from envbuild.engine.client import Engine

pytestmark = [pytest.mark.prove, pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

CPU, GPU = "opencv-5.0.0.93-cpu-py311-debian12", "cupy-12.3.0-cuda11.8-py311-debian12-debian"
IMAGE = "envbuild-test:empty-ci"
HOST = "127.0.0.1:5000"
PACKAGES = "python3,python3-pip,git,ca-certificates"
HOME = Path("/root")
ADVISORIES = "envbuild update --locks security"
# What the machine's own configuration says about package indexes and mirrors; a CI system has its own.
OURS = ("/etc/apt/sources.list.d", "/etc/apt/apt.conf.d", "/etc/pip.conf", str(HOME / ".config/pip"), "/etc/ssl/certs", "/opt")
# https://man7.org/linux/man-pages/man7/capabilities.7.html, in the order of linux/capability.h. Old engines know no newer ones.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO",
    "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME",
    "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
)  # fmt: skip
PREPARE = "ln -sf python3 /usr/bin/python; rm -f /usr/lib/python3*/EXTERNALLY-MANAGED"

# GitHub's runner lets its user become root, and has Docker.
RUNNER = "printf '#!/bin/sh\\nexec \"$@\"\\n' > /usr/bin/sudo; chmod +x /usr/bin/sudo; mkdir /tmp/runner"
ENGINE = "apt-get update -qq; apt-get install -qq -y --no-install-recommends docker.io iproute2 > /dev/null"


@dataclass(kw_only=True)
class Machines:
    """Containers that stand in for the machines of a CI system. ``origin`` is the repository that each job clones."""

    docker: tuple[str, ...]
    network: str
    origin: Path
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    number: int = 0

    def job(self, script: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the script of a job on a new machine, in a new clone. ``/out`` is kept, for what the CI system would keep."""
        self.number += 1
        cache = self.folder / f"cache{self.number}"
        cache.mkdir()
        mounts = [f"--volume={path}:{path}:ro" for path in OURS if Path(path).exists()]
        mounts += [f"--volume={self.origin}:/origin", f"--volume={cache}:{HOME}/.cache", f"--volume={self.folder}/out:/out"]
        given = [f"--env={name}={value}" for name, value in {**self.variables, **variables}.items()]
        clone = f"{PREPARE}; git config --global safe.directory '*'; git clone -q /origin /builds; cd /builds"
        whole = f"set -eo pipefail\n{clone}\n{script}\n"
        rights = [f"--cap-add={each}" for each in capabilities()]
        rights += ["--security-opt=seccomp=unconfined", "--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup"]
        argv = [*self.docker, "run", "--rm", "--interactive", f"--network={self.network}", *rights, *mounts, *given]
        try:
            return subprocess.run(
                [*argv, *options, IMAGE, "bash", "-s"], input=whole, capture_output=True, text=True, timeout=3600, check=False
            )
        finally:
            shutil.rmtree(cache, ignore_errors=True)


def capabilities() -> list[str]:
    """The capabilities that this machine has. ``--privileged`` demands all, and some machines lack one."""
    bounding = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapBnd:"))
    return [name for place, name in enumerate(CAPABILITIES) if int(bounding.split()[1], 16) >> place & 1]


@pytest.fixture(scope="module")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """The words of a docker command whose engine has the image of an almost empty machine."""
    judges.require("docker", "docker-registry")
    docker = ("docker", "--host", engine.endpoint)
    if subprocess.run([*docker, "image", "inspect", IMAGE], check=False, capture_output=True).returncode == 0:
        yield docker  # somebody made it beforehand, to run these tests more than once
        return
    tar = tmp_path_factory.mktemp("ci") / "root.tar"
    subprocess.run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(tar)], check=True)
    subprocess.run([*docker, "import", str(tar), IMAGE], check=True, capture_output=True)
    tar.unlink()
    yield docker
    subprocess.run([*docker, "image", "rm", "--force", IMAGE], check=False, capture_output=True)


@pytest.fixture
def machines(image: tuple[str, ...], tmp_path: Path) -> Iterator[Machines]:
    """Machines whose network has a registry at ``HOST``, and a repository with an environment for CPUs and one for GPUs."""
    origin = fresh_root(tmp_path / "origin")
    for name in (CPU, GPU):
        shutil.copytree(ROOT / "images/environments" / name, origin / "images/environments" / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, origin / name)
    shutil.copytree(ROOT / "envbuild", origin / "envbuild", ignore=shutil.ignore_patterns("__pycache__"))
    git(origin, "init", "--quiet", "--initial-branch=main")
    commit(origin)
    (tmp_path / "out").mkdir()
    config = tmp_path / "registry.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: /data}}\nhttp: {addr: 127.0.0.1:5000}\n"
    )
    program = shutil.which("docker-registry")
    argv = [*image, "run", "--detach", f"--volume={program}:/registry:ro", f"--volume={config}:/config.yml:ro"]
    started = subprocess.run(
        [*argv, IMAGE, "/registry", "serve", "/config.yml"], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        key, _ = write_pair(tmp_path, "ours")
        shutil.copy(key, tmp_path / "out/cosign.key")
        yield Machines(docker=image, network=f"container:{started}", origin=origin, folder=tmp_path)
    finally:
        subprocess.run([*image, "rm", "--force", "--volumes", started], check=False, capture_output=True)


def written(machines: Machines, system: str) -> dict[str, Any]:
    program = Program(root=machines.origin, home=machines.folder / "home")
    text = program.run("ci", system, "--to", f"{HOST}/lab/dl", "--shards", "2").expect(0).out
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def tags(machines: Machines) -> list[str]:
    """The tags in the registry, read without envbuild."""
    script = f"python3 -c \"import urllib.request as u; print(u.urlopen('http://{HOST}/v2/lab/dl/tags/list').read().decode())\""
    done = subprocess.run(
        [*machines.docker, "run", "--rm", f"--network={machines.network}", IMAGE, "bash", "-c", script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return json.loads(done.stdout)["tags"] if done.returncode == 0 else []


def require(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout + done.stderr


def test_the_jobs_of_gitlab_run_on_empty_machines(machines: Machines) -> None:
    jobs = written(machines, "gitlab")
    before = "\n".join(jobs["default"]["before_script"])
    machines.variables |= {
        "REPOSITORY": f"{HOST}/lab/dl", "COMPARE": f"--against={HOST}/lab/dl", "CI_NODE_TOTAL": "2",
        "CI_COMMIT_BRANCH": "main", "COSIGN_KEY": "/out/cosign.key", "COSIGN_PASSWORD": "",
        "REGISTRY_USER": "me", "REGISTRY_PASSWORD": "password",
    }  # fmt: skip

    def run(name: str, more: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return machines.job("\n".join((before, *jobs[name]["script"], more)), **variables)

    parts = "\n".join(
        f'echo "part {number}: $(envbuild plan "$COMPARE" --shard {number}/2 --format names)"' for number in (1, 2)
    )
    planned = require(run("plan", parts))
    assert "2 of 2 images" in planned
    cpu, gpu = (next(number for number in ("1", "2") if f"part {number}: {name}" in planned) for name in (CPU, GPU))
    require(run("build", CI_NODE_INDEX=cpu))
    assert "Some images need a GPU for their test." in require(run("build", CI_NODE_INDEX=gpu))
    require(run("gpu", "echo unreachable", CI_NODE_INDEX=gpu), 10)
    there = tags(machines)
    assert CPU in there and not any(tag.startswith("cupy") for tag in there), there
    assert GPU in require(run("verdict"), 10), "what no GPU tested is inconclusive"
    assert "This part has no work." in require(run("build", CI_NODE_INDEX=cpu)), "it is published"
    require(run("pages", "cp -r public /out/"))
    require_catalogue(machines)


def test_the_job_update_of_gitlab_pushes_a_branch(machines: Machines) -> None:
    jobs = written(machines, "gitlab")
    git(machines.origin, "config", "receive.advertisePushOptions", "true")
    there = "https://oauth2:token@gitlab.example.org/lab/dl.git"
    before, here = jobs["default"]["before_script"], f"git config --global url./origin.insteadOf {there}"
    script = known_to(machines, "\n".join((*before, here, *jobs["update"]["script"])))
    machines.variables |= {
        "REPOSITORY": f"{HOST}/lab/dl", "CI_SERVER_HOST": "gitlab.example.org", "UPDATE_TOKEN": "token",
        "CI_REPOSITORY_URL": "https://gitlab-ci-token:job@gitlab.example.org/lab/dl.git",
    }  # fmt: skip
    require(machines.job(script))
    require_update(machines)
    commit_before = git(machines.origin, "rev-parse", "envbuild-update")
    require(machines.job(script))
    assert git(machines.origin, "rev-parse", "envbuild-update") == commit_before, "the same update keeps its commit"


def known_to(machines: Machines, script: str) -> str:
    """The script, but with advisories from a file: one says that NumPy 2.4.4 is vulnerable, which is now in the lock."""
    record = {
        "id": "TEST-1", "modified": "2026-01-01T00:00:00Z", "summary": "A made-up fault",
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": "numpy"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.4.5"}]}],
            }
        ],
    }  # fmt: skip
    program = Program(root=machines.origin, home=machines.folder / "home")
    program.run("lock", CPU, "--upgrade", "--package", "numpy==2.4.4").expect(0)
    program.run("render", CPU).expect(0)
    commit(machines.origin)
    folder = machines.folder / "out/advisories"
    folder.mkdir(exist_ok=True)
    (folder / "TEST-1.json").write_text(json.dumps(record))
    assert script.count(ADVISORIES) == 1
    return script.replace(ADVISORIES, f"{ADVISORIES} --database /out/advisories")


def require_update(machines: Machines) -> None:
    """Require that the pushed branch, and no other, has the lowest fixed version of NumPy."""
    found = {
        branch: re.findall(
            r'"numpy-([0-9.]+)-cp', git(machines.origin, "show", f"{branch}:images/environments/{CPU}/lock.json")
        )
        for branch in git(machines.origin, "branch", "--format=%(refname:short)").split()
    }
    assert found == {"envbuild-update": ["2.4.5"], "main": ["2.4.4"]}


def require_catalogue(machines: Machines) -> None:
    document = json.loads((machines.folder / "out/public/catalogue.json").read_text())
    shown = {entry["name"]: entry["published"] for entry in document["entries"]}
    assert shown[CPU]["digest"].startswith("sha256:") and shown[GPU] is None


def evaluated(text: str, values: Mapping[str, str]) -> str:
    """The text with the values of its expressions. On a push, `a && b || c` is c, because no base branch is set."""

    def value(found: re.Match[str]) -> str:
        expression = found[1].strip()
        return expression.rpartition("|| ")[2].strip("'") if "||" in expression else values[expression]

    return re.sub(r"\$\{\{(.+?)\}\}", value, text)


def steps_of(pipeline: Mapping[str, Any], name: str, values: Mapping[str, str]) -> str:
    """The steps with a script of a job, as GitHub's runner runs them: each in a shell of its own."""
    lines = []
    for number, step in enumerate(pipeline["jobs"][name]["steps"]):
        if "run" not in step:
            continue
        assert step.get("if", "always()") in ("always()", "github.event_name == 'push'")
        given = {**pipeline["env"], **pipeline["jobs"][name].get("env", {}), **step.get("env", {})}
        words = " ".join(f"{key}={shlex.quote(evaluated(str(value), values))}" for key, value in given.items())
        script = shlex.quote(evaluated(step["run"], values))
        lines.append(f"printf %s {script} > /tmp/step{number}.sh; env {words} bash -e /tmp/step{number}.sh")
        if name in ("build", "gpu") and "pip install" in step["run"]:
            lines.append(f"{ENGINE}; envbuild engine up")
    return "\n".join(lines)


def test_the_jobs_of_github_run_on_empty_machines(machines: Machines) -> None:
    pipeline = written(machines, "github")
    machines.variables |= {"GITHUB_OUTPUT": "/out/output", "GITHUB_STEP_SUMMARY": "/out/summary", "RUNNER_TEMP": "/tmp/runner"}
    secrets = {"COSIGN_KEY": (machines.folder / "out/cosign.key").read_text(), "COSIGN_PASSWORD": ""}
    values = {f"secrets.{name}": value for name, value in secrets.items()}
    values |= {"secrets.REGISTRY_USER": "me", "secrets.REGISTRY_PASSWORD": "password"}
    out = machines.folder / "out"

    def run(name: str, more: str = "", **changed: str) -> subprocess.CompletedProcess[str]:
        script = steps_of(pipeline, name, values | changed)
        has_engine = name in ("build", "gpu")  # other jobs only log in, for which docker's command needs no engine
        docker = [] if has_engine else [f"--volume={shutil.which('docker')}:/usr/bin/docker:ro"]
        return machines.job(f"{RUNNER}\n{script}\n{more}", *docker)

    def planned() -> dict[str, list[str]]:
        (out / "output").unlink(missing_ok=True)
        require(run("plan"))
        told = dict(line.split("=", 1) for line in (out / "output").read_text().splitlines())
        values["needs.plan.outputs.gpu"] = told["gpu"]
        return {kind: [part["names"] for part in json.loads(text)["include"]] for kind, text in told.items()}

    assert planned() == {"all": [GPU, CPU], "gpu": [GPU]}
    assert "2 of 2 images must be made again" in (out / "summary").read_text()
    require(run("build", "test ! -e /tmp/runner/cosign.key; cp /tmp/runner/junit.xml /out/", **{"matrix.names": CPU}))
    assert CPU in (out / "junit.xml").read_text() and " pass: opencv" in (out / "summary").read_text()
    assert "::warning::Some images need a GPU" in require(run("build", **{"matrix.names": GPU}))
    require(run("gpu", **{"matrix.names": GPU}), 10)
    there = tags(machines)
    assert CPU in there and not any(tag.startswith("cupy") for tag in there), there
    assert planned() == {"all": [GPU], "gpu": [GPU]}, "what was published is not made again"
    results = {"needs.plan.result": "success", "needs.build.result": "success", "needs.gpu.result": "skipped"}
    assert "Inconclusive" in require(run("verdict", **results), 10), "what no GPU tested is inconclusive"
    require(run("catalogue", "cp -r site /out/public"))
    require_catalogue(machines)


def test_the_job_update_of_github_pushes_a_branch_and_opens_a_pull_request(machines: Machines) -> None:
    pipeline = written(machines, "github")
    machines.variables |= {"RUNNER_TEMP": "/tmp/runner"}
    script = steps_of(pipeline, "update", {"github.token": "token"})
    script = known_to(machines, script)
    for number, asked in ((0, "pr create --base main --head envbuild-update"), (1, "pr edit envbuild-update")):
        notes = f'echo "$@" >> /out/gh; case "$*" in "pr list"*) echo {number};; esac'
        command = f"printf '%s\\n' {shlex.quote('#!/bin/sh')} {shlex.quote(notes)} > /usr/bin/gh; chmod +x /usr/bin/gh"
        require(machines.job(f"{RUNNER}\n{command}\n{script}"))
        require_update(machines)
        assert asked in (machines.folder / "out/gh").read_text()

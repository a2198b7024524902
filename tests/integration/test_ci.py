"""The pipelines that `envbuild ci` writes: the schemas of the CI systems accept them, and their scripts run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from plan_world import commit, git
from program import ROOT, Program, own_program
from signing import write_pair
from stand_in_registry import Registry

from envbuild.attest import keys

CPU, GPU = "opencv-5.0.0.93-cpu-py311-debian12", "tf-2.21.0-cuda12.5-py311-debian12"
EMPTY = '{"include":[]}'
# Replaces envbuild except `plan`: it records its arguments and ends with the exit code that the test sets. If there is news,
# `update` makes a branch with one commit, and writes the text.
STAND_IN = """\
#!/bin/bash
case "$1" in
  plan) exec "$PYTHON" -m envbuild "$@" ;;
  update)
    echo "$@" >> "$ASKED"
    if [ -z "$NEWS" ]; then exit "${CODE:-0}"; fi
    made=$(printf '%s\\n\\n%s\\n' "$NEWS" "a row" | git commit-tree -p HEAD "HEAD^{tree}")
    git branch --force envbuild-update "$made"
    printf '# %s\\n\\nthe text\\n' "$NEWS" > "${@: -1}" ;;
  *) echo "$@" >> "$ASKED"; [ "$1" = report ] && exit 0; exit "${CODE:-0}" ;;
esac
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = own_program(tmp_path)
    for name in (CPU, GPU):
        shutil.copytree(ROOT / "images/environments" / name, program.root / "images/environments" / name)
    git(program.root, "init", "--quiet", "--initial-branch=main")
    commit(program.root)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("envbuild", STAND_IN), ("docker", "#!/bin/sh\ncat > /dev/null\n"), ("apt-get", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    program.environment |= {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHON": sys.executable, "ASKED": str(tmp_path / "asked"),
        "NO_PROXY": "127.0.0.1", "DOCKER_CONFIG": str(tmp_path), "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }  # fmt: skip
    return program


def written(program: Program, system: str, *argv: str) -> dict[str, Any]:
    told = program.run("ci", system, *argv, "-o", str(program.root), "--json").expect(0).document
    assert Path(told["path"]).read_text() == told["text"]
    content: dict[str, Any] = yaml.safe_load(told["text"])
    return content


def bash(program: Program, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    argv = ["bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        argv, cwd=program.root, env=program.env(variables), capture_output=True, text=True, timeout=300, check=False
    )


def asked(program: Program) -> list[str]:
    path = Path(program.environment["ASKED"])
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def steps(job: dict[str, Any]) -> list[str]:
    scripts = (step["run"] for step in job["steps"] if "run" in step)
    return [each for each in scripts if "pip install" not in each and "apt-get install" not in each]


def test_the_scripts_of_github_run(program, registry: Registry, tmp_path):
    repository = f"{registry.host}/lab/dl"
    jobs = written(program, "github", "--to", repository)["jobs"]
    login, script = steps(jobs["plan"])
    secrets = {"REPOSITORY": repository, "COSIGN_KEY": "key", "REGISTRY_USER": "me", "REGISTRY_PASSWORD": "pw"}
    assert bash(program, login, **secrets).returncode == 0
    done = bash(program, script, COMPARE=f"--against={repository}")
    assert done.returncode == 0, done.stderr
    output = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    parts = json.loads(output["all"])["include"]
    assert sorted(name for part in parts for name in part["names"].split()) == [CPU, GPU]
    assert [part["names"] for part in json.loads(output["gpu"])["include"]] == [GPU]
    assert "2 of 2 images must be made again" in (tmp_path / "summary").read_text()
    make, again, publish = steps(jobs["build"])
    assert again == login
    assert bash(program, make, NAMES=f"{CPU} {GPU}", CODE="10").returncode == 0
    words = asked(program)[0].split()
    assert words[:3] == ["make", CPU, GPU]
    assert words[-1] == f"{tmp_path}/junit.xml", "a file in the checkout would modify it, and the provenance would say so"
    assert bash(program, make, NAMES=CPU, CODE="9").returncode == 9
    asked(program)
    assert bash(program, publish, NAMES=f"{CPU} {GPU}", CODE="10", **secrets).returncode == 0
    assert asked(program) == [f"publish {CPU} {GPU} --jobs 1 --keep-going --to {repository} --key {tmp_path}/cosign.key"]
    assert not (tmp_path / "cosign.key").exists()
    on_gpus, *_ = steps(jobs["gpu"])
    assert bash(program, on_gpus, NAMES=GPU, CODE="10").returncode == 10, "on a machine with GPUs it is a failure"


@pytest.mark.parametrize(
    ("plan", "build", "gpu", "images", "code"),
    [
        ("success", "success", "success", "x", 0),
        ("success", "success", "skipped", EMPTY, 0),
        ("success", "skipped", "skipped", EMPTY, 0),
        ("success", "success", "skipped", "x", 10),
        ("success", "success", "cancelled", "x", 10),
        ("success", "success", "failure", "x", 1),
        ("success", "failure", "success", EMPTY, 1),
        ("success", "cancelled", "skipped", EMPTY, 1),
        ("failure", "skipped", "skipped", "", 1),
    ],
)
def test_what_no_gpu_tested_is_inconclusive_and_never_green(plan, build, gpu, images, code):
    template = yaml.safe_load((ROOT / "images/pipelines/github.yml.j2").read_text().partition("\n  verdict:")[2])
    (script,) = steps(template)
    variables = {"PLAN": plan, "BUILD": build, "GPU": gpu, "GPU_IMAGES": images}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], env={**os.environ, **variables}, capture_output=True, check=False
    )
    assert done.returncode == code


def test_the_scripts_of_gitlab_run(program, registry: Registry):
    repository = f"{registry.host}/lab/dl"
    jobs = written(program, "gitlab", "--to", repository, "--shards", "2")
    common = {"COMPARE": f"--against={repository}", "REPOSITORY": repository, "CI_NODE_TOTAL": "2", "COSIGN_KEY": "k.key"}
    common |= {"REGISTRY_USER": "me", "REGISTRY_PASSWORD": "pw"}
    assert bash(program, "\n".join(jobs["plan"]["script"]), **common).returncode == 0
    (exclude,) = (line for line in jobs["default"]["before_script"] if "exclude" in line)
    assert bash(program, exclude).returncode == 0
    commit(program.root)
    build, gpu, verdict = ("\n".join(jobs[name]["script"]) for name in ("build", "gpu", "verdict"))
    made = []
    for number in ("1", "2"):
        done = bash(program, build, CI_NODE_INDEX=number, CODE="10", CI_COMMIT_BRANCH="main", **common)
        assert done.returncode == 0, done.stderr
        first, second = asked(program)
        made.append(first.split()[1])
        assert second.startswith(f"publish {made[-1]} ") and f"--to {repository} --key k.key" in second
    assert sorted(made) == [CPU, GPU]
    assert git(program.root, "status", "--porcelain") == "", "a modified checkout is what the provenance would tell of"
    assert bash(program, build, CI_NODE_INDEX="1", CODE="8", CI_COMMIT_BRANCH="x", **common).returncode == 8
    untested = bash(program, verdict, **common)
    assert untested.returncode == 10 and GPU in untested.stdout
    for number in ("1", "2"):
        assert bash(program, gpu, CI_NODE_INDEX=number, CI_COMMIT_BRANCH="a-branch", **common).returncode == 0
    assert bash(program, verdict, **common).returncode == 0
    assert not any(line.startswith("publish") for line in asked(program)), "a branch of another name publishes nothing"


def test_a_registry_that_does_not_answer_fails_the_jobs_of_gitlab(program):
    """Bash ignores how the program in <(…) ends: then a part with work would pass without doing any."""
    jobs = written(program, "gitlab", "--to", "127.0.0.1:1/lab/dl")
    program.environment["PATH"] = f"{Path(program.environment['ASKED']).parent}/quick{os.pathsep}{program.environment['PATH']}"
    quick = Path(program.environment["PATH"].partition(os.pathsep)[0])
    quick.mkdir()
    (quick / "envbuild").write_text("#!/bin/sh\nexit 11\n")  # what it answers then, without its six attempts
    (quick / "envbuild").chmod(0o755)
    for name in ("plan", "build", "gpu", "verdict"):
        done = bash(program, "\n".join(jobs[name]["script"]), COMPARE="--against=127.0.0.1:1/lab/dl", CI_NODE_INDEX="1")
        assert done.returncode == 11, (name, done.stdout)


def test_only_the_registry_of_github_gets_its_token(program):
    def text(repository: str) -> str:
        told: str = program.run("ci", "github", "--to", repository, "--json").expect(0).document["text"]
        return told

    assert "secrets.GITHUB_TOKEN" in text("ghcr.io/lab/dl") and "REGISTRY_USER and" not in text("ghcr.io/lab/dl")
    other = text("registry.example.org/lab/dl")
    assert "GITHUB_TOKEN" not in other and "secrets.REGISTRY_PASSWORD" in other and "# REGISTRY_USER and" in other


def test_the_catalogue_is_a_job_of_its_own_with_its_own_rights(program, registry: Registry, tmp_path):
    repository = f"{registry.host}/lab/dl"
    job = written(program, "github", "--to", repository)["jobs"]["catalogue"]
    login, made = steps(job)
    assert "docker login" in login and job["permissions"]["packages"] == "read"
    pages = written(program, "gitlab", "--to", repository)["pages"]
    assert made.replace(" site ", " public ") == pages["script"][0] and pages["artifacts"] == {"paths": ["public"]}
    assert bash(program, made, REPOSITORY=repository).returncode == 0
    assert asked(program) == [f"catalogue -o site --registry {repository}"]


def test_the_catalogue_checks_signatures_with_the_keys_that_were_named(program, registry: Registry, tmp_path):
    repository, public = f"{registry.host}/lab/dl", []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        public.append(write_pair(tmp_path / name)[1])
    given = [word for path in public for word in ("--key", str(path))]
    job = written(program, "github", "--to", repository, *given)["jobs"]["catalogue"]
    (step,) = (step for step in job["steps"] if "catalogue" in step.get("run", ""))
    assert bash(program, step["run"], REPOSITORY=repository, **step["env"]).returncode == 0
    assert asked(program) == [f"catalogue -o site --registry {repository} --key {tmp_path}/1.pub --key {tmp_path}/2.pub"]
    for number, path in enumerate(public, 1):
        assert keys.public_key(tmp_path / f"{number}.pub").hint == keys.public_key(path).hint
    program.environment["ENVBUILD_KEY"] = str(public[0])
    pages = written(program, "gitlab", "--to", repository, "--force")["pages"]
    script = "\n".join(pages["script"]).replace("/tmp/", f"{tmp_path}/gitlab-")
    assert bash(program, script, REPOSITORY=repository, **pages["variables"]).returncode == 0
    assert asked(program) == [f"catalogue -o public --registry {repository} --key {tmp_path}/gitlab-1.pub"]
    assert keys.public_key(tmp_path / "gitlab-1.pub").hint == keys.public_key(public[0]).hint


def test_a_private_key_is_not_written_into_a_pipeline(program, tmp_path):
    private, _ = write_pair(tmp_path)
    told = program.run("ci", "github", "--to", "h.example/lab/dl", "--key", str(private)).expect(5)
    assert "contains a private key" in told.err and not told.out


def test_a_pipeline_that_checks_no_signature_says_so(program):
    told = program.run("ci", "github", "--to", "h.example/lab/dl").expect(0)
    assert "checks no signature" in told.err and "# No signature is checked" in told.out


# Replaces GitHub's own program: it knows how many pull requests are open, and records what it is told.
HUB = """\
#!/bin/bash
if [ "$2" = list ]; then cat "$OPEN"; else printf '%s\\n' "$*" >> "$ASKED"; echo 1 > "$OPEN"; cat "${@: -1}" >> "$ASKED"; fi
"""
NEWS = "Add widget 1.5.0"


def with_a_remote(program: Program, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Push the checkout to a repository that keeps the options of each push. Return it, and the variables of a job there."""
    remote = tmp_path / "remote.git"
    git(program.root, "init", "--quiet", "--bare", str(remote))
    git(remote, "config", "receive.advertisePushOptions", "true")
    hook = remote / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\nenv | grep ^GIT_PUSH_OPTION_ | sort > push-options || true\n")
    hook.chmod(0o755)
    git(program.root, "remote", "add", "origin", str(remote))
    git(program.root, "push", "--quiet", "origin", "main")
    hub = tmp_path / "bin/gh"
    hub.write_text(HUB)
    hub.chmod(0o755)
    (tmp_path / "open").write_text("0\n")
    return remote, {"OPEN": str(tmp_path / "open"), "NEWS": NEWS}


def test_github_gets_one_pull_request_that_follows_the_updates(program, tmp_path):
    jobs = written(program, "github", "--to", "h.example/lab/dl")
    job = jobs["jobs"]["update"]
    assert job["permissions"] == {"contents": "write", "pull-requests": "write"}
    (script,) = steps(job)
    remote, variables = with_a_remote(program, tmp_path)
    argv = f"update --locks security --keep-going --replace -o {tmp_path}/update.md"
    done = bash(program, script, **variables)
    assert done.returncode == 0, done.stderr
    first = git(remote, "rev-parse", "envbuild-update")
    body = ["# " + NEWS, "", "the text"]
    text = f"--title {NEWS} --body-file {tmp_path}/update.md.short"
    assert asked(program) == [argv, f"pr create --base main --head envbuild-update {text}", *body]
    assert git(remote, "log", "-1", "--format=%an", "envbuild-update").strip() == "envbuild"
    # The next month, in a new clone: the branch is replaced, the pull request follows.
    git(program.root, "branch", "-D", "envbuild-update")
    (tmp_path / "update.md").unlink()
    assert bash(program, script, **(variables | {"NEWS": "Add widget 1.6.0"})).returncode == 0
    assert git(remote, "rev-parse", "envbuild-update") != first
    assert asked(program)[1] == f"pr edit envbuild-update {text.replace(NEWS, 'Add widget 1.6.0')}"
    # Nothing is new: nothing is pushed and no pull request is touched.
    git(program.root, "branch", "-D", "envbuild-update")
    (tmp_path / "update.md").unlink()
    assert bash(program, script, **(variables | {"NEWS": ""})).returncode == 0
    assert asked(program) == [argv]
    assert bash(program, script, **(variables | {"NEWS": "", "CODE": "11"})).returncode == 11


def test_gitlab_gets_a_merge_request_that_follows_the_updates(program, tmp_path):
    job = written(program, "gitlab", "--to", "h.example/lab/dl")["update"]
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule" && $UPDATE_TOKEN'}]
    script = "\n".join(job["script"])
    remote, variables = with_a_remote(program, tmp_path)
    variables |= {
        "CI_SERVER_HOST": "git.example.org", "CI_REPOSITORY_URL": "https://gitlab-ci-token:other@git.example.org:8443/lab/dl.git",
        "UPDATE_TOKEN": "secret", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{remote}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://oauth2:secret@git.example.org:8443/lab/dl.git",
    }  # fmt: skip
    done = bash(program, script, **variables)
    assert done.returncode == 0, done.stderr
    assert asked(program) == ["update --locks security --keep-going --replace -o update.md"]
    assert git(remote, "log", "-1", "--format=%B", "envbuild-update").strip() == f"{NEWS}\n\na row"
    options = [line.partition("=")[2] for line in (remote / "push-options").read_text().splitlines()]
    assert {"merge_request.create", "merge_request.target=main"} <= set(options)
    (program.root / "update.md").unlink()
    (remote / "push-options").unlink()
    assert bash(program, script, **(variables | {"NEWS": ""})).returncode == 0
    assert not (remote / "push-options").exists()
    assert bash(program, script, **(variables | {"NEWS": "", "CODE": "11"})).returncode == 11


def test_a_size_is_one_word_of_the_shell(program):
    assert "--disk 1.5GB --format" in program.run("ci", "github", "--to", "h.example/r", "--disk", "1.5 GB").expect(0).out


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ((), 2),
        (("--to", "nowhere"), 11),
        (("--to", "h.example/r", "--branch", 'a"b'), 2),
        (("--to", "h.example/r", "--branch", "$(id)"), 2),
        (("--to", "h.example/r", "--branch", ""), 2),
        (("--to", "h.example/r", "--branch", "a..b"), 2),
        *((("--to", "h.example/r", "--install", text), 2) for text in ("[x", "true", "- x", "x:", "&a b", "x ")),
    ],
)
def test_what_would_make_another_pipeline_is_refused(program, argv, code):
    program.run("ci", "github", *argv, "--json").expect(code)


def test_a_file_of_ones_own_is_kept(program):
    argv = ["ci", "gitlab", "--to", "h.example/r", "-o", str(program.root)]
    (program.root / ".gitlab-ci.yml").write_text("mine\n")
    assert program.run(*argv, "--json").expect(2).document["error"]["code"] == "file-exists"
    program.run(*argv, "--force").expect(0)


@pytest.mark.prove
@pytest.mark.network
@pytest.mark.parametrize(("system", "schema"), [("github", "vendor.github-workflows"), ("gitlab", "vendor.gitlab-ci")])
def test_the_schemas_of_the_systems_accept_the_files(program, system, schema, tmp_path):
    path = program.run("ci", system, "--to", "ghcr.io/lab/dl", "-o", str(tmp_path), "--json").expect(0).document["path"]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=300)
    subprocess.run([tmp_path / "venv/bin/pip", "install", "-q", "check-jsonschema"], check=True, timeout=600)
    subprocess.run([tmp_path / "venv/bin/check-jsonschema", "--builtin-schema", schema, path], check=True, timeout=300)


def test_actionlint_finds_nothing_but_a_planted_fault(program, tmp_path):
    """Its checks include the scripts of the jobs by shellcheck, and actions that GitHub's runners no longer run."""
    path = Path(program.run("ci", "github", "--to", "ghcr.io/lab/dl", "-o", str(tmp_path), "--json").expect(0).document["path"])
    programs = Path(sys.executable).parent
    lint = [programs / "actionlint", "-shellcheck", programs / "shellcheck", "-oneline", path]
    done = subprocess.run(lint, check=False, timeout=300, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    text = path.read_text()
    for was, fault, told in (
        ("needs: plan", "needs: nobody", "nobody"),
        ("actions/checkout@v6", "actions/checkout@v4", "node20"),
        ('read -ra names <<< "$NAMES"', "rm -r $NAMES", "SC2086"),
    ):
        assert was in text
        path.write_text(text.replace(was, fault))
        done = subprocess.run(lint, check=False, timeout=300, capture_output=True, text=True)
        assert done.returncode == 1 and told in done.stdout, fault

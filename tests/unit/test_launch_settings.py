"""What a site's launcher is asked for: batch settings, names of images, and programs that the image must hold."""

import dataclasses
import re

import pytest
from test_launch import FULL, HERE, LAUNCHERS, PLAIN, text_of

from envbuild.errors import UsageError
from envbuild.launch.hosts import read_hosts
from envbuild.launch.image_names import enroot_image, has_registry, require_reachable
from envbuild.launch.image_programs import Contents, load_programs, require_programs
from envbuild.launch.launchers import choose
from envbuild.launch.settings import (
    Settings,
    Toleration,
    read_label,
    read_memory,
    read_sbatch,
    read_time,
    read_toleration,
    read_word,
)

PROGRAMS = load_programs(HERE)
ASKED = Settings(partition="gpu", account="lab", time_s=5400, cpus=6, memory_mib=64 * 1024, sbatch=("--qos=high",))
DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0), ("30", 1800), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1:30:00", 5400), ("1-12:00:00", 129600)],
)
def test_time_limits(text, seconds):
    assert read_time(text) == seconds


@pytest.mark.parametrize("text", ["0", "soon", "-1h", "1:70:00", "0:00:00", "1w", "2h\n"])
def test_malformed_time_limits_are_refused(text):
    with pytest.raises(UsageError):
        read_time(text)


@pytest.mark.parametrize(
    ("text", "mib"), [("", 0), ("64G", 65536), ("64Gi", 65536), ("500M", 500), ("1T", 1048576), ("2gb", 2048)]
)
def test_sizes(text, mib):
    assert read_memory(text) == mib


@pytest.mark.parametrize("text", ["0G", "64", "lots", "1.5G", "64G\n"])
def test_malformed_sizes_are_refused(text):
    with pytest.raises(UsageError):
        read_memory(text)


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("nvidia.com/gpu", Toleration(key="nvidia.com/gpu", value="", effect="")),
        ("nvidia.com/gpu:NoSchedule", Toleration(key="nvidia.com/gpu", value="", effect="NoSchedule")),
        ("queue=night:NoExecute", Toleration(key="queue", value="night", effect="NoExecute")),
        ("*", Toleration(key="", value="", effect="")),
    ],
)
def test_tolerations(text, toleration):
    assert read_toleration(text) == toleration


@pytest.mark.parametrize("text", ["", "a:Never", "a=", "=b", "a b", "*=x", "a:"])
def test_malformed_tolerations_are_refused(text):
    with pytest.raises(UsageError):
        read_toleration(text)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda text: read_word("partition", text), "gpu\n#SBATCH --x"),
        (lambda text: read_word("account", text), "a b"),
        (lambda text: read_label("namespace", text), "Upper"),
        (lambda text: read_label("namespace", text), "a: b"),
        (read_sbatch, "qos=high"),
        (read_sbatch, "--qos=high\nrm -rf /"),
    ],
)
def test_a_setting_cannot_add_lines_of_its_own(read, text):
    with pytest.raises(UsageError):
        read(text)


def directives(kind, order):
    text = text_of(*choose(LAUNCHERS, "slurm", kind), order)
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE)), text


@pytest.mark.parametrize(("kind", "tasks", "cpus"), [("docker", "1", "24"), ("pyxis", "4", "6"), ("apptainer", "4", "6")])
def test_slurm_is_asked_for_what_the_site_needs(kind, tasks, cpus):
    asked, text = directives(kind, dataclasses.replace(PLAIN, settings=ASKED))
    assert asked == {
        "job-name": "envbuild-smoke",
        "output": "envbuild-smoke-%j.log",
        "nodes": "2",
        "nodelist": "a,b",
        "ntasks-per-node": tasks,
        "cpus-per-task": cpus,
        "gpus-per-node": "4",
        "exclusive": "",
        "mem": "65536M",
        "partition": "gpu",
        "account": "lab",
        "time": "1:30:00",
        "qos": "high",
    }
    assert f"export SRUN_CPUS_PER_TASK={cpus}" in text
    first_command = next(line for line in text.splitlines() if not line.startswith("#"))
    assert text.rindex("#SBATCH") < text.index(first_command)  # sbatch reads directives up to the first command


def test_slurm_takes_whole_hosts_and_all_their_memory_unless_told_otherwise():
    whole, text = directives("pyxis", PLAIN)
    assert whole["exclusive"] == "" and whole["mem"] == "0" and "cpus-per-task" not in whole
    assert "SLURM_CPUS_ON_NODE" in text
    shared, _ = directives("pyxis", dataclasses.replace(PLAIN, settings=Settings(shared=True, cpus=2)))
    assert "exclusive" not in shared and "mem" not in shared and shared["cpus-per-task"] == "2"


def test_a_shared_hosts_container_takes_no_more_than_its_share():
    _, text = directives("docker", dataclasses.replace(PLAIN, settings=Settings(shared=True, cpus=2, memory_mib=1024)))
    assert "--cpus 8" in text and "--memory 1024m" in text
    _, whole = directives("docker", dataclasses.replace(PLAIN, settings=Settings(cpus=2, memory_mib=1024)))
    assert "--cpus 8" not in whole and "--memory" not in whole


@pytest.mark.parametrize(("via", "kind"), [(via, "docker") for via in ("mpirun", "torchrun", "slurm")])
def test_containers_get_gpus_by_number(via, kind):
    order = dataclasses.replace(FULL, hosts=read_hosts("a:4,b:4"))
    text = text_of(*choose(LAUNCHERS, via, kind), order)
    assert "--gpus all" not in text
    wanted = {"mpirun": '--gpus "$OMPI_COMM_WORLD_LOCAL_SIZE"', "torchrun": "--gpus 4", "slurm": "gpus=4"}[via]
    assert wanted in text


def test_each_host_of_torchrun_gets_its_own_number_of_gpus():
    text = text_of(*choose(LAUNCHERS, "torchrun", "docker"), dataclasses.replace(PLAIN, hosts=read_hosts("a:4,b:2")))
    assert re.findall(r"--gpus (\d)", text) == ["4", "2"]


@pytest.mark.parametrize(("via", "kind", "name"), [("mpirun", "docker", "partition"), ("slurm", "docker", "namespace")])
def test_a_setting_that_a_launcher_cannot_use_is_refused(via, kind, name):
    order = dataclasses.replace(PLAIN, settings=Settings(**{name: "x"}))
    with pytest.raises(UsageError, match=f"no use for --{name}") as refused:
        text_of(*choose(LAUNCHERS, via, kind), order)
    assert refused.value.code == "option-unused"


@pytest.mark.parametrize(
    ("image", "enroot"),
    [
        ("registry.example/team/envbuild:x", "registry.example#team/envbuild:x"),
        ("registry.example:5000/envbuild:x", "registry.example:5000#envbuild:x"),
        ("localhost/envbuild:x", "localhost#envbuild:x"),
        ("team/envbuild:x", "team/envbuild:x"),
        ("envbuild:x", "envbuild:x"),
        (f"registry.example/envbuild:x@{DIGEST}", f"registry.example#envbuild:{DIGEST}"),
        (f"registry.example:5000/envbuild@{DIGEST}", f"registry.example:5000#envbuild:{DIGEST}"),
        ("registry.example#team/envbuild:x", "registry.example#team/envbuild:x"),
        ("/shared/envbuild.sqsh", "/shared/envbuild.sqsh"),
        ("dockerd://envbuild:x", "dockerd://envbuild:x"),
    ],
)
def test_pyxis_gets_images_in_enroots_form(image, enroot):
    assert enroot_image(image) == enroot
    text = text_of(*choose(LAUNCHERS, "slurm", "pyxis"), dataclasses.replace(PLAIN, image=image))
    assert f"--container-image={enroot}" in text.replace("'", "")


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("registry.example/x:1", True),
        ("registry.example:5000/x:1", True),
        ("envbuild:x", False),
        ("team/x", False),
        ("localhost:5000/x", False),
        ("127.0.0.1:5000/x", False),
        ("localhost/x:1", False),
    ],
)
def test_images_that_only_this_machine_has_are_refused(image, known):
    launcher, kind = choose(LAUNCHERS, "torchrun", "docker")
    assert has_registry(image) == known
    if known:
        require_reachable(launcher, kind, image, PLAIN.hosts)
        return
    with pytest.raises(UsageError) as refused:
        require_reachable(launcher, kind, image, PLAIN.hosts)
    assert refused.value.code == "image-not-shared" and "--registry" in refused.value.hint
    require_reachable(launcher, kind, image, read_hosts("localhost:2"))
    require_reachable(launcher, kind, image, read_hosts("me:2"), here=("me",))
    require_reachable(*choose(LAUNCHERS, "torchrun", "inside"), image, PLAIN.hosts)


def refusal(via, kind, contents, vouched=()):
    chosen = choose(LAUNCHERS, via, kind)
    try:
        require_programs(LAUNCHERS, PROGRAMS, chosen, contents, name="x-1.0", vouched=vouched)
    except UsageError as error:
        return error
    return None


NOTHING = Contents(packages={}, apt=frozenset())
TORCH = Contents(packages={"torch": ("2.14.1+cpu",)}, apt=frozenset())
OLD_TORCH = Contents(packages={"torch": ("1.9.1",)}, apt=frozenset())
OPEN_MPI = Contents(packages={}, apt=frozenset({"openmpi-bin"}))
BOTH = Contents(packages={}, apt=frozenset({"openmpi-bin", "openssh-server"}))


@pytest.mark.parametrize(
    ("via", "kind", "contents", "lacking"),
    [
        ("torchrun", "docker", TORCH, []),
        ("torchrun", "docker", OLD_TORCH, ["torchrun"]),
        ("torchrun", "docker", NOTHING, ["torchrun"]),
        ("kubernetes", "mpijob", NOTHING, ["mpirun", "ssh", "sshd"]),
        ("kubernetes", "mpijob", OPEN_MPI, ["sshd"]),
        ("kubernetes", "mpijob", BOTH, []),
        ("mpirun", "inside", OPEN_MPI, ["sshd"]),
        ("mpirun", "docker", NOTHING, []),
        ("slurm", "pyxis", NOTHING, []),
        ("kubernetes", "pytorchjob", NOTHING, []),
    ],
)
def test_a_program_that_the_image_lacks_is_refused_with_what_serves(via, kind, contents, lacking):
    error = refusal(via, kind, contents)
    if not lacking:
        assert error is None
        return
    assert error is not None and error.code == "program-not-in-image"
    assert all(f"--has {name}" in error.hint for name in lacking)
    assert "--via slurm (docker, pyxis, apptainer, inside)" in error.hint and "--via mpirun (docker, apptainer" in error.hint
    assert refusal(via, kind, contents, lacking) is None


def test_a_program_that_no_launcher_asks_for_cannot_be_vouched_for():
    error = refusal("mpirun", "docker", NOTHING, ("bsub",))
    assert error is not None and "torchrun" in error.hint


def test_every_program_that_a_kind_needs_is_described():
    assert {name for launcher in LAUNCHERS.values() for kind in launcher.kinds for name in kind.needs} <= set(PROGRAMS)

"""Runs on several machines: hosts are read, launchers are data, and what is rendered holds what was asked for."""

import dataclasses
import itertools
import json

import pytest
import yaml

from envbuild import workspace
from envbuild.errors import InvalidInputError, UnknownNameError, UsageError
from envbuild.launch.hosts import Host, read_hosts
from envbuild.launch.launchers import choose, load_launchers
from envbuild.launch.rendering import Order, render

HERE = workspace.find()
LAUNCHERS = load_launchers(HERE)
KINDS = [(launcher, kind) for launcher in LAUNCHERS.values() for kind in launcher.kinds]
TEMPLATES = {str(path.relative_to(HERE.launchers)): path.read_text() for path in HERE.launchers.glob("*/*.j2")}
PLAIN = Order(name="x-1.0", image="registry/x:1", hosts=read_hosts("a:4,b:4"), gpus=True, port=29617)
FULL = dataclasses.replace(
    PLAIN,
    rdma=True,
    interface="ib0",
    variables=(("NCCL_IB_HCA", "mlx5_0:1"), ("NOTE", "it's $HOME")),
    arguments=("--counts", "1,8", "--option", "a=b c"),
)


def text_of(launcher, kind, order):
    return render(launcher, kind, order, TEMPLATES)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a:4,b:4", [("a", 4), ("b", 4)]),
        ("gpu-01.example", [("gpu-01.example", 1)]),
        ("10.0.0.1:2, 10.0.0.2:1", [("10.0.0.1", 2), ("10.0.0.2", 1)]),
        ("3x8", [("", 8)] * 3),
    ],
)
def test_hosts(text, hosts):
    assert [(host.name, host.slots) for host in read_hosts(text)] == hosts


@pytest.mark.parametrize("text", ["", "a:", "a:0", "a:x", "a b", "a,,b", "a:4,a:4", "a;rm:1", "-a", "0x4", "$(x)", "a:4:4"])
def test_malformed_hosts_are_refused(text):
    with pytest.raises(UsageError) as refused:
        read_hosts(text)
    assert refused.value.code == "malformed-hosts"


def test_an_unknown_launcher_or_kind_names_those_there_are():
    with pytest.raises(UnknownNameError, match="bsub") as refused:
        choose(LAUNCHERS, "bsub", "")
    assert "mpirun" in refused.value.hint
    with pytest.raises(UnknownNameError) as refused:
        choose(LAUNCHERS, "slurm", "podman")
    assert "pyxis" in refused.value.hint


def test_a_launcher_is_added_without_python(tmp_path):
    folder = tmp_path / "images" / "launchers" / "bsub"
    folder.mkdir(parents=True)
    (folder / "launcher.yaml").write_text(
        "schema: 1\nlauncher: bsub\ntitle: LSF\nkinds:\n  - {kind: plain, title: plain, run: [bsub], programs: [bsub]}\n"
    )
    (folder / "plain.j2").write_text("#BSUB -n {{ total }}\n{{ guest | words }}\n")
    place = dataclasses.replace(HERE, root=tmp_path)
    launcher, kind = choose(load_launchers(place), "bsub", "")
    assert (
        render(launcher, kind, PLAIN, {"bsub/plain.j2": (folder / "plain.j2").read_text()})
        == "#BSUB -n 8\nenvbuild-smoke run\n"
    )


def test_what_is_wrong_in_a_launcher_is_said_at_once(tmp_path):
    folder = tmp_path / "images" / "launchers" / "bsub"
    folder.mkdir(parents=True)
    (folder / "launcher.yaml").write_text(
        "schema: 1\nlauncher: lsf\ntitle: LSF\nkinds:\n  - {kind: plain, titel: plain, run: [bsub]}\n"
    )
    with pytest.raises(InvalidInputError) as refused:
        load_launchers(dataclasses.replace(HERE, root=tmp_path))
    said = " ".join(str(problem) for problem in refused.value.problems)
    assert all(word in said for word in ("lsf", "titel", "plain.j2"))


@pytest.mark.parametrize(("launcher", "kind"), KINDS, ids=lambda value: value.name)
def test_each_kind_says_what_was_asked(launcher, kind):
    order = dataclasses.replace(FULL, report="/data/reports" if kind.report else "")
    text = text_of(launcher, kind, order)
    for word in ("x-1.0", "registry/x:1", "envbuild-smoke", "ib0", "NCCL_IB_HCA", "mlx5_0:1", "1,8"):
        assert word in text or (word == "registry/x:1" and kind.name == "inside"), word
    assert ("report.json" in text) == kind.report
    quiet = text_of(launcher, kind, dataclasses.replace(PLAIN, gpus=False))
    for word in ("gpu", "infiniband", "--nv", "rdma", "ib0", "report"):
        assert word not in quiet.replace("The report: kubectl", "").lower(), word


@pytest.mark.parametrize(("launcher", "kind"), KINDS, ids=lambda value: value.name)
def test_each_kind_refuses_what_it_cannot_do(launcher, kind):
    unequal = dataclasses.replace(PLAIN, hosts=read_hosts("a:4,b:2"))
    anonymous = dataclasses.replace(PLAIN, hosts=read_hosts("2x4"))
    reporting = dataclasses.replace(PLAIN, report="/x")
    for order, possible in ((unequal, not kind.equal), (anonymous, not kind.named), (reporting, kind.report)):
        if possible:
            assert text_of(launcher, kind, order)
        else:
            with pytest.raises(UsageError):
                text_of(launcher, kind, order)


@pytest.mark.parametrize(
    "bad", [{"image": "x\ny"}, {"arguments": ("a\0b",)}, {"variables": (("1X", "y"),)}, {"interface": "a\nb"}]
)
def test_nothing_is_passed_on_that_would_end_a_line(bad):
    with pytest.raises(UsageError):
        text_of(*KINDS[0], dataclasses.replace(PLAIN, **bad))


def test_mpirun_has_the_flags_that_horovod_users_know():
    text = text_of(*choose(LAUNCHERS, "mpirun", ""), dataclasses.replace(PLAIN, hosts=read_hosts("a:4,b:2")))
    flat = " ".join(text.replace("\\\n", " ").split())
    for words in ("-np 6", "-H a:4,b:2", "-bind-to none -map-by slot", "-mca pml ob1 -mca btl ^openib", "-x MASTER_ADDR=a"):
        assert words in flat
    assert "-mca pml ucx" in text_of(*choose(LAUNCHERS, "mpirun", ""), FULL)


def manifests(kind, order):
    return list(yaml.safe_load_all(text_of(*choose(LAUNCHERS, "kubernetes", kind), order)))


@pytest.mark.parametrize(("kind", "order"), [*itertools.product(["job", "pytorchjob", "mpijob"], [PLAIN, FULL])])
def test_manifests_are_yaml_and_their_containers_are_whole(kind, order):
    documents = manifests(kind, order)
    assert all({"apiVersion", "kind", "metadata", "spec"} == set(each) for each in documents)
    containers = [each for each in found(documents, "containers") for each in each]
    assert all(isinstance(word, str) for each in containers for word in each["args"])
    assert all(isinstance(each["value"], str) for each in containers for each in each.get("env", []))
    volumes = [volume for each in found(documents, "volumes") for volume in each]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}} in volumes
    limits = [each["limits"] for each in found(documents, "resources")]
    assert all(each["nvidia.com/gpu"] == 4 for each in limits) and limits
    assert all(("rdma/hca" in each) == order.rdma for each in limits)
    assert [each["values"] for each in found(documents, "matchExpressions") for each in each][:1] == [["a", "b"]]


def found(value, key):
    """Everything that stands under `key`, however deep."""
    if isinstance(value, dict):
        return [v for k, v in value.items() if k == key] + [each for v in value.values() for each in found(v, key)]
    return [each for v in value for each in found(v, key)] if isinstance(value, list) else []


def test_an_indexed_job_finds_its_rank_0():
    service, job = manifests("job", FULL)
    assert service["spec"]["clusterIP"] == "None"
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"], spec["backoffLimit"]) == ("Indexed", 2, 2, 0)
    pod = spec["template"]["spec"]
    env = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert (pod["subdomain"], env["WORLD_SIZE"]) == (service["metadata"]["name"], "2")
    assert service["spec"]["selector"] == spec["template"]["metadata"]["labels"]
    assert pod["containers"][0]["args"][-2:] == ["--slots", "4"]


def test_a_pytorchjob_has_a_master_and_the_rest():
    (job,) = manifests("pytorchjob", PLAIN)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {role: spec["replicas"] for role, spec in replicas.items()} == {"Master": 1, "Worker": 1}
    assert all(spec["template"]["spec"]["containers"][0]["name"] == "pytorch" for spec in replicas.values())
    (alone,) = manifests("pytorchjob", dataclasses.replace(PLAIN, hosts=(Host(name="a", slots=4),)))
    assert set(alone["spec"]["pytorchReplicaSpecs"]) == {"Master"}


def test_an_mpijob_starts_every_slot():
    (job,) = manifests("mpijob", FULL)
    replicas = job["spec"]["mpiReplicaSpecs"]
    words = replicas["Launcher"]["template"]["spec"]["containers"][0]["args"]
    assert words[words.index("-np") + 1] == "8" and job["spec"]["slotsPerWorker"] == 4
    assert f"MASTER_ADDR={job['metadata']['name']}-worker-0.{job['metadata']['name']}" in words
    assert "NOTE=it's $HOME" in words and json.dumps(words)

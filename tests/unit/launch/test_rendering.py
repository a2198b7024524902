"""Runs on several machines: host lists, launchers as data, and rendered files that contain every requested option."""

import dataclasses
import itertools
import json

import pytest
import yaml
from launch_orders import FULL, KINDS, LAUNCHERS, PLAIN, found, text_of

from envbuild.errors import UsageError
from envbuild.launch.hosts import Host, read_hosts
from envbuild.launch.launchers import choose


@pytest.mark.parametrize(("launcher", "kind"), KINDS, ids=lambda value: value.name)
def test_each_kind_says_what_was_asked(launcher, kind):
    order = dataclasses.replace(FULL, report="/data/reports" if kind.report else "")
    text = text_of(launcher, kind, order)
    for word in ("x-1.0", "registry/x:1", "envbuild-smoke", "ib0", "NCCL_IB_HCA", "mlx5_0:1", "1,8"):
        assert word in text or (word == "registry/x:1" and kind.name == "inside"), word
    assert ("report.json" in text) == kind.report
    quiet = text_of(launcher, kind, dataclasses.replace(PLAIN, gpus=False))
    for word in ("gpu", "infiniband", "--nv", "rdma", "ib0", "report"):
        assert word not in quiet.replace("Show the report: kubectl", "").lower(), word


@pytest.mark.parametrize(
    ("launcher", "kind"), [each for each in KINDS if each[0].name == "kubernetes"], ids=lambda value: value.name
)
def test_a_second_job_of_the_same_name_is_refused_by_kubectl(launcher, kind):
    """`kubectl apply` would change or keep the existing job. The manifest says how to delete that job."""
    assert [words[1] for words in (kind.run, kind.rehearse)] == ["create", "create"]
    assert "kubectl delete" in text_of(launcher, kind, PLAIN)


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

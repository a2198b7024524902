"""Manifests: each field is in the published schemas, and each option is where it has an effect."""

import dataclasses
import itertools

import pytest
import yaml
from kubernetes_fields import faults
from launch_orders import FULL, LAUNCHERS, PLAIN, found, text_of

from envbuild.launch.hosts import Host
from envbuild.launch.launchers import choose
from envbuild.launch.settings import BatchSettings, Toleration

ASKED = BatchSettings(
    time_s=7200,
    cpus=8,
    memory_mib=65536,
    namespace="ml",
    pull_secrets=("reg", "other"),
    tolerations=(
        Toleration(key="nvidia.com/gpu", value="", effect="NoSchedule"),
        Toleration(key="queue", value="night", effect=""),
        Toleration(key="", value="", effect=""),
    ),
)
SITE = dataclasses.replace(FULL, settings=ASKED)
KINDS = ("job", "pytorchjob", "mpijob")


def manifests(kind, order):
    return list(yaml.safe_load_all(text_of(*choose(LAUNCHERS, "kubernetes", kind), order)))


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        *itertools.product(
            KINDS,
            [
                PLAIN,
                FULL,
                SITE,
                dataclasses.replace(PLAIN, gpus=False),
                dataclasses.replace(PLAIN, settings=ASKED, gpus=False, hosts=(Host(name="", slots=2),) * 3),
                dataclasses.replace(PLAIN, settings=BatchSettings(cpus=1)),
                dataclasses.replace(PLAIN, settings=BatchSettings(pull_secrets=("a",))),
            ],
        )
    ],
)
def test_every_field_is_one_of_the_published_schema(kind, order):
    documents = manifests(kind, order)
    assert documents
    assert [fault for each in documents for fault in faults(each)] == []


def test_the_check_finds_a_field_that_there_is_not():
    (job,) = manifests("mpijob", SITE)
    job["spec"]["runPolicy"]["activeDeadlineSeconds"] = "7200"
    job["spec"]["tolerations"] = []
    del job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"]
    said = " ".join(faults(job))
    assert all(word in said for word in ("activeDeadlineSeconds: integer", "spec.tolerations", "containers[0].name is missing"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_site_asks_for_stands_in_every_pod(kind):
    documents = manifests(kind, SITE)
    assert {each["metadata"]["namespace"] for each in documents} == {"ml"}
    assert [deadline for deadline in found(documents, "activeDeadlineSeconds")] == [7200]
    pods = [each["spec"] for each in found(documents, "template")]
    assert len(pods) == {"job": 1, "pytorchjob": 2, "mpijob": 2}[kind]
    for pod in pods:
        assert pod["imagePullSecrets"] == [{"name": "reg"}, {"name": "other"}]
        assert pod["tolerations"] == [
            {"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoSchedule"},
            {"operator": "Equal", "key": "queue", "value": "night"},
            {"operator": "Exists"},
        ]
    wanted = {"nvidia.com/gpu": 4, "rdma/hca": 1, "cpu": 32, "memory": "65536Mi"}
    asked = found(documents, "resources")
    assert asked and all(each == {"requests": wanted, "limits": wanted} for each in asked)


@pytest.mark.parametrize("kind", KINDS)
def test_pods_are_spread_by_the_label_that_they_have(kind):
    documents = manifests(kind, PLAIN)
    templates = [each for each in found(documents, "template") if "topologySpreadConstraints" in each["spec"]]
    assert templates
    for each in templates:
        (spread,) = each["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"] == each["metadata"]["labels"]


def test_nothing_is_asked_for_that_nobody_asked_for():
    text = text_of(*choose(LAUNCHERS, "kubernetes", "mpijob"), dataclasses.replace(PLAIN, gpus=False))
    for word in ("namespace", "imagePullSecrets", "tolerations", "activeDeadlineSeconds", "resources", "cpu"):
        assert word not in text


@pytest.mark.parametrize(("namespace", "address"), [("ml", "envbuild-smoke-worker-0.envbuild-smoke.ml.svc"), ("", None)])
def test_an_mpijob_finds_rank_0_by_the_operators_name_for_it(namespace, address):
    order = dataclasses.replace(PLAIN, settings=BatchSettings(namespace=namespace))
    (job,) = manifests("mpijob", order)
    words = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"]
    name = job["metadata"]["name"]
    assert f"MASTER_ADDR={address or f'{name}-worker-0.{name}'}" in words


@pytest.mark.parametrize("user", ["envbuild", "ada"])
def test_ssh_of_an_mpijob_works_for_the_images_user(user):
    (job,) = manifests("mpijob", dataclasses.replace(PLAIN, user=user))
    keys = job["spec"]["sshAuthMountPath"]
    assert keys == f"/home/{user}/.ssh"
    specs = job["spec"]["mpiReplicaSpecs"]
    server = specs["Worker"]["template"]["spec"]["containers"][0]["args"]
    launcher = specs["Launcher"]["template"]["spec"]["containers"][0]["args"]
    client = launcher[launcher.index("plm_rsh_args") + 1].split()
    port = server[server.index("-p") + 1]
    assert int(port) > 1023  # only root can listen on a lower port
    assert server[0] == "/usr/sbin/sshd" and client[client.index("-p") + 1] == port
    assert f"AuthorizedKeysFile={keys}/authorized_keys" in server and f"{keys}/id_rsa" in server and f"{keys}/id_rsa" in client

"""`envbuild check` judges real locks, and `envbuild publish` obeys the policy. Stand-ins replace the stages of `make`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import jsonschema
import pytest
from program import ROOT
from signing import write_pair
from stand_in_registry import Registry, serve
from stood_in_stages import Stages, stand_in

from envbuild.attest import keys, signing
from envbuild.cli import frame
from envbuild.compose.outputs import referrers
from envbuild.pipeline import make, policy_facts, unchanged

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
SCHEMA = json.loads((ROOT / "envbuild/schemas/check.json").read_text())
SEVERE = "vulnerabilities: {deadlines: {critical: 7, high: 30, unknown: 30}}\nunchecked_allowed: [vulnerabilities]\n"
ACCEPTED = """exceptions:
  - {subject: CVE-2026-1, packages: [numpy], status: not_affected, justification: component_not_present,
     reason: "our image does not load it", owner: team@example.org, expires: 2999-01-01}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the compiled matrix, so that it is compiled once for all tests."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def stages(tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "compiled-matrix").symlink_to(compiled)
    return stand_in(tmp_path, monkeypatch, {NAME: "one"})


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve(Registry(knows_referrers=True)) as served:
        yield served


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A critical advisory about the locked NumPy, and one of low severity that is no hurry."""
    folder = tmp_path / "osv"
    folder.mkdir()

    def write(name: str, word: str, published: str) -> None:
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.0"}]}]
        affected = [{"package": {"ecosystem": "PyPI", "name": "numpy"}, "ranges": ranges}]
        record = {"id": name, "aliases": [f"CVE-2026-{name[-1]}"], "published": published, "affected": affected}
        (folder / f"{name}.json").write_text(json.dumps({**record, "database_specific": {"severity": word}}))

    write("GHSA-1", "CRITICAL", "2026-01-05T10:00:00Z")
    write("GHSA-2", "HIGH", f"{policy_facts.today()}T10:00:00Z")
    return folder


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write a policy, and name it in the environment."""

    def write(text: str) -> Path:
        path = tmp_path / "policy.yaml"
        path.write_text(f"schema: 1\n{text}")
        monkeypatch.setenv("ENVBUILD_POLICY", str(path))
        return path

    return write


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = frame.run(["check", NAME, "--json", "--no-upgrades", *words])
    document = json.loads(capsys.readouterr().out)
    if "error" not in document:
        jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return code, document


def test_a_vulnerability_past_its_deadline_is_found_with_its_line(capsys, stages, policy, database, tmp_path):
    path = policy(SEVERE)
    junit = tmp_path / "junit.xml"
    code, document = check(capsys, "--database", str(database), "--junit", str(junit))
    (judged,) = document["environments"]
    (found,) = judged["findings"]
    assert (code, document["clean"], found["at"]) == (12, False, f"{path}:2")
    assert "published on 2026-01-05, and had to be fixed by 2026-01-12 (7 days)" in found["message"]
    assert any("GHSA-2 (high)" in text and "fix it by" in text for text in judged["warnings"])
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite.get("failures") == "1"
    assert float(suite.find("testcase").get("time")) > 0, "the time is measured"


def test_an_accepted_finding_is_listed_and_an_exception_for_nothing_is_found(capsys, stages, policy, database):
    policy(SEVERE + ACCEPTED)
    code, document = check(capsys, "--database", str(database))
    (judged,) = document["environments"]
    assert (code, judged["clean"], len(judged["excused"])) == (0, True, 1)
    policy(SEVERE.replace("unchecked_allowed: [vulnerabilities]\n", "") + ACCEPTED)
    assert check(capsys, "--database", str(database))[0] == 12  # the packages of the system were not checked
    wrong = ACCEPTED.replace("CVE-2026-1", "Python 2.7").replace("packages: [numpy], ", "rule: end_of_life, ")
    path = policy(wrong.replace("expires", f'environments: ["{NAME}"], expires') + "end_of_life: {refuse: true}\n")
    code, document = check(capsys)
    assert code == 12 and document["environments"][-1]["name"] == "policy"
    assert document["environments"][-1]["findings"][0]["at"] == f"{path}:3"


def test_what_nobody_checked_is_not_clean(capsys, stages, policy):
    policy("vulnerabilities: {deadlines: {high: 30}}\nsizes: {image: 1GB}\nlicences: {denied: [GPL]}\n")
    code, document = check(capsys, "--stored")
    (judged,) = document["environments"]
    assert code == 12 and not judged["findings"]
    assert [each["rule"] for each in judged["unchecked"]] == ["vulnerabilities", "licences", "sizes"]


def test_an_answer_of_audit_is_taken_for_the_same_lock_only(capsys, stages, policy, database, tmp_path):
    assert frame.run(["audit", NAME, "--json", "--database", str(database)]) == 0
    answer = json.loads(capsys.readouterr().out)
    policy(SEVERE)
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    code, document = check(capsys, "--audit", str(tmp_path / "answer.json"))
    assert (code, len(document["environments"][0]["findings"])) == (12, 1)
    for date in ("2026-01-01", "2999-01-01", "soon", ""):
        (tmp_path / "answer.json").write_text(json.dumps({**answer, "date": date}))
        old = check(capsys, "--audit", str(tmp_path / "answer.json"))[1]["environments"][0]
        assert not old["findings"] and f"is of {date or 'an unknown day'}" in old["unchecked"][0]["message"]
    (tmp_path / "answer.json").write_text(json.dumps({**answer, "lock": "0" * 64}))
    unchecked = check(capsys, "--audit", str(tmp_path / "answer.json"))[1]["environments"][0]["unchecked"]
    assert "another lock" in unchecked[0]["message"]
    (tmp_path / "answer.json").write_text("{}")
    assert (
        "another environment"
        in check(capsys, "--audit", str(tmp_path / "answer.json"))[1]["environments"][0]["unchecked"][0]["message"]
    )


def test_no_policy_and_a_wrong_policy_are_refused(capsys, stages, policy):
    code, document = check(capsys)
    assert (code, document["error"]["code"]) == (2, "no-policy")
    policy("sizs: {image: 1GB}\n")
    code, document = check(capsys)
    assert (code, document["error"]["code"], document["error"]["problems"][0]["line"]) == (5, "bad-policy", 2)
    policy(ACCEPTED.replace("2999", "2026"))
    assert check(capsys)[1]["error"]["code"] == "expired-exception"


REFUSALS = {
    "registries: {allowed: [elsewhere/*]}\n": "does not allow the repository",
    "bases: {denied: [debian*]}\n": "bases: the base image debian:12",
    "evidence: {required: [{kind: smoke-gpu}]}\n": "evidence: there is no valid proof smoke-gpu",
    "vulnerabilities: {deadlines: {critical: 7}}\n": "not checked",
    SEVERE: "GHSA-1 (critical) about numpy",
}


def publish(capsys: pytest.CaptureFixture[str], registry: Registry, folder: Path, *words: str) -> tuple[int, Any]:
    key = folder / "cosign.key"
    if not key.exists():
        write_pair(folder)
    code = frame.run(["publish", NAME, "--to", f"{registry.host}/lab/dl", "--key", str(key), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("text", REFUSALS)
def test_what_the_policy_does_not_allow_is_not_pushed(capsys, stages, policy, database, registry, tmp_path, text):
    policy(text)
    for more in ((), ("--dry-run",)):
        code, document = publish(capsys, registry, tmp_path, "--database", str(database), *more)
        told = " ".join([document["error"]["message"], *document["error"]["details"]])
        assert code == 12 and document["error"]["code"] == "policy" and REFUSALS[text] in told
    assert not registry.manifests and not registry.received


def test_an_image_that_a_site_rule_excludes_is_not_pushed(capsys, stages, policy, registry, tmp_path):
    policy("site:\n  - {systems: [debian12], reason: not on our cluster}\n")
    for more in ((), ("--dry-run",)):
        code, document = publish(capsys, registry, tmp_path, *more)
        error = document["error"]
        assert code == 12 and error["code"] == "policy" and "not on our cluster" in error["details"][0]
        assert error["alternatives"], "the error names an environment that the policy allows"
    assert not registry.manifests and not registry.received


def never(*_arguments: object, **_named: object) -> NoReturn:
    """Stand in for `make` where a test must end before any work."""
    raise unchanged.WorkNeededError


LASTING = {
    "site:\n  - {systems: [debian12], reason: not on our cluster}\n": (12, "policy", "site: "),
    "bases: {denied: [debian*]}\n": (12, "policy", "bases: "),
    "evidence: {required: [{kind: smoke-gpu}]}\n": (12, "policy", "evidence: there is no valid proof smoke-gpu"),
    "registries: {allowed: [elsewhere/*]}\n": (12, "policy", ""),
    SEVERE: (12, "policy", "vulnerabilities: GHSA-1 (critical) about numpy"),
    ACCEPTED.replace("2999", "2026"): (5, "expired-exception", ""),
    "sizs: {image: 1GB}\n": (5, "bad-policy", ""),
}


@pytest.mark.parametrize("text", LASTING)
@pytest.mark.parametrize("batch", [(), ("--keep-going",)])
def test_a_run_and_a_dry_run_give_the_same_verdict_before_any_work(
    capsys, stages, policy, database, registry, tmp_path, monkeypatch, text, batch
):
    monkeypatch.setattr(make, "make", never)
    policy(text)
    found = []
    for more in ((), ("--dry-run",)):
        code, document = publish(capsys, registry, tmp_path, "--database", str(database), *batch, *more)
        error = document["error"] if "error" in document else document["environments"][0]["error"]
        found.append((code, error["code"], "".join(error["details"][:1])))
    code, word, told = LASTING[text]
    assert found[0] == found[1] and found[0][:2] == (code, word) and found[0][2].startswith(told)
    assert not registry.manifests and not registry.received


def test_facts_about_the_image_are_not_judged_before_it_is_made(capsys, stages, policy, registry, tmp_path, monkeypatch):
    monkeypatch.setattr(make, "make", never)
    policy("evidence: {required: [{kind: smoke-cpu}]}\nsizes: {image: 1MB}\nlicences: {denied: [GPL]}\n")
    code, document = publish(capsys, registry, tmp_path, "--dry-run")
    assert code == 0 and document["would"] == {"make": True}


def test_a_run_and_a_dry_run_refuse_a_missing_key(capsys, stages, registry, tmp_path):
    for more in ((), ("--dry-run",)):
        words = ["--to", f"{registry.host}/lab/dl", "--key", str(tmp_path / "no.key"), "--json", *more]
        assert frame.run(["publish", NAME, *words]) == 5, "before any work"
        assert "no.key" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_an_excluded_environment_does_not_stop_the_others(capsys, stages, policy, registry, tmp_path):
    assert publish(capsys, registry, tmp_path)[0] == 0
    policy("site:\n  - {systems: [ubuntu16.04], reason: not on our cluster}\n")
    for more in ((), ("--dry-run",)):
        code, document = publish(capsys, registry, tmp_path, "caffe-1.0.0-cpu-py27-ubuntu16.04", "--keep-going", *more)
        assert code == 12 and [each["exit_code"] for each in document["environments"]] == [0, 12]


def test_an_allowed_image_is_pushed_and_its_exceptions_are_stated(capsys, stages, policy, database, registry, tmp_path):
    policy(SEVERE + ACCEPTED + "registries: {allowed: ['127.0.0.1:*/lab/*']}\nsizes: {image: 1GB}\n")
    code, document = publish(capsys, registry, tmp_path, "--database", str(database))
    assert code == 0
    digest = document["published"]["digest"]
    key = keys.public_key(tmp_path / "cosign.pub")
    bundles = referrers.read(f"{registry.host}/lab/dl", digest, signing.BUNDLE)
    found = {each.kind: each.predicate for each in (signing.opened(bundle, digest, key) for bundle in bundles)}
    stated = {each["vulnerability"]["name"]: each for each in found[signing.OPENVEX]["statements"]}
    assert stated["GHSA-1"]["status"] == "not_affected" and "action_statement" not in stated["GHSA-1"]
    assert stated["GHSA-1"]["justification"] == "component_not_present"
    assert "team@example.org until 2999-01-01: our image does not load it" in stated["GHSA-1"]["status_notes"]
    assert stated["GHSA-2"]["status"] == "affected" and "Fixed in 99.0" in stated["GHSA-2"]["action_statement"]
    products = [product["@id"] for each in stated.values() for product in each["products"]]
    assert set(products) == {f"pkg:oci/dl@{digest.replace(':', '%3A')}"}, "the image, and not its environment"
    assert publish(capsys, registry, tmp_path, "--database", str(database))[1]["nothing_to_do"]


def test_a_dry_run_leaves_the_stored_answer_about_the_image(capsys, stages, policy, database, registry, tmp_path, monkeypatch):
    publish(capsys, registry, tmp_path)
    policy("vulnerabilities: {deadlines: {critical: 9999}}\nunchecked_allowed: [vulnerabilities]\n")
    words = ("--database", str(database))
    assert check(capsys, *words)[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr(make, "make", never)
        assert publish(capsys, registry, tmp_path, "--dry-run", *words)[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr("envbuild.audit.audit", never)
        assert check(capsys, *words)[0] == 0, "the stored answer is used"


def test_an_exception_for_a_repository_holds_for_its_environments(capsys, stages, policy, registry, tmp_path):
    exception = f"subject: '{registry.host}/lab/*', reason: while we move, owner: me, expires: 2999-01-01"
    text = "registries: {{allowed: [elsewhere/*]}}\nexceptions:\n  - {{rule: registries, {0}, environments: ['{1}*']}}\n"
    policy(text.format(exception, "tf-"))
    assert publish(capsys, registry, tmp_path)[0] == 12
    policy(text.format(exception, "opencv-"))
    assert publish(capsys, registry, tmp_path)[0] == 0


def test_a_refusal_for_another_reason_than_the_site_rules_offers_only_what_they_allow(capsys, stages, policy):
    policy("site:\n  - {systems: [ubuntu18.04], reason: not on our cluster}\n")
    code = frame.run(["check", "tf-1.12-cuda10", "--json", "--no-upgrades"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert code == 3 and error["alternatives"]
    assert not any("ubuntu18.04" in each["name"] for each in error["alternatives"])


OTHER = "opencv-5.0.0.93-cpu-py313-debian13"


def test_a_name_without_a_lock_is_not_checked_and_the_others_are(capsys, stages, policy):
    policy("bases: {denied: ['debian:*']}\nexceptions: []\n")
    code, document = check(capsys, OTHER)
    assert code == 12 and not document["clean"]
    first, second = document["environments"]
    assert first["name"] == NAME and [each["rule"] for each in first["findings"]] == ["bases"]
    assert (second["name"], second["clean"], second["findings"]) == (OTHER, False, [])
    assert second["unchecked"] == [
        {
            "rule": "lock",
            "message": f"there is no lock, and only a lock can be judged; `envbuild lock {OTHER}` makes one",
            "is_allowed": False,
            "package": "",
        }
    ]
    policy("bases: {allowed: ['debian:*']}\nunchecked_allowed: [vulnerabilities, licences, bases, sizes]\n")
    assert frame.run(["check", NAME, OTHER, "--no-upgrades"]) == 12, "a policy cannot allow that nothing is checked"
    told = capsys.readouterr()
    assert f"{NAME}: meets the policy\n{OTHER}: not checked\n  lock: not checked: there is no lock" in told.out
    assert "1 not checked, of 2 environments (policy " in told.err


def test_an_exception_for_an_environment_without_a_lock_is_not_called_unused(capsys, stages, policy):
    policy(ACCEPTED.replace("expires", f'environments: ["{OTHER}"], expires') + SEVERE)
    code, document = check(capsys, OTHER, "--stored")
    assert code == 12 and [each["name"] for each in document["environments"]] == [NAME, OTHER]


@pytest.mark.parametrize("words", [[NAME], ["--match", "opencv-5.0.0.93-cpu-py311-*"], ["opencv-5.0.0.93-cpu"]])
def test_an_excluded_system_is_a_finding_however_the_environment_is_named(capsys, stages, policy, words):
    policy("site:\n  - {systems: [debian12], reason: not on our cluster}\n")
    if words == ["opencv-5.0.0.93-cpu"]:
        policy("site:\n  - {frameworks: ['opencv>0'], reason: not on our cluster}\n")
    code = frame.run(["check", "--json", "--no-upgrades", *words])
    document = json.loads(capsys.readouterr().out)
    assert code == 12 and document["environments"][0]["name"] == NAME
    (found,) = document["environments"][0]["findings"]
    assert found["rule"] == "site" and "not on our cluster" in found["message"]


@pytest.mark.parametrize("how", ["named", "all"])
def test_a_damaged_lock_is_a_finding_and_the_others_are_judged(capsys, stages, policy, tmp_path, monkeypatch, how):
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "matrix", root / "matrix")
    shutil.copy(ROOT / "matrix.yaml", root)
    shutil.copytree(ROOT / "images", root / "images", ignore=shutil.ignore_patterns("environments", "evidence"))
    third = "opencv-4.10.0.84-cpu-py311-debian12"
    for name in (NAME, third):
        shutil.copytree(ROOT / "images/environments" / name, root / "images/environments" / name)
    lock = root / "images/environments" / NAME / "lock.json"
    lock.write_text(lock.read_text()[:1000])
    monkeypatch.setenv("ENVBUILD_ROOT", str(root))
    policy("bases: {denied: ['debian:*']}\n" + ACCEPTED.replace("expires", f'environments: ["{NAME}"], expires'))
    words, page = [NAME, third] if how == "named" else ["--all"], tmp_path / "junit.xml"
    code = frame.run(["check", *words, "--json", "--junit", str(page)])
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert code == 5, "a damaged lock is worse than a finding of the policy"
    judged = {each["name"]: each for each in document["environments"]}
    assert set(judged) == {NAME, third}, "no exception for an environment that was not judged is called unused"
    assert [each["rule"] for each in judged[third]["findings"]] == ["bases"]
    (found,) = judged[NAME]["findings"]
    assert (found["rule"], found["subject"]) == ("lock", NAME) and found["at"].startswith(f"{lock}:")
    assert found["message"].startswith(f"Cannot read the lock {lock}: ") and "lock" in found["upgrade"]
    assert [each["rule"] for each in judged[NAME]["unchecked"]] == ["lock"]
    assert {case.get("name") for case in ElementTree.parse(page).iter("testcase")} == {NAME, third}
    assert frame.run(["check", *words]) == 5
    told = capsys.readouterr()
    assert f"{NAME}: not checked, because its lock is damaged\n  lock: Cannot read the lock" in told.out
    assert f"fixed by `envbuild lock {NAME} --relock`" in told.out
    assert "1 with a damaged lock, 1 not meeting the policy, of 2 environments" in told.err

"""The plan names exactly the images whose inputs changed, compared with a git revision and with a registry."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import composed
import jsonschema
import pytest
import render_locks
from plan_world import ALPHA, BETA, checkout, commit, git, locks, put
from program import ROOT, Program, own_program
from stand_in_registry import INDEX, MANIFEST, Registry

from envbuild.attest import provenance, signing
from envbuild.compose.outputs import referrers
from envbuild.compose.outputs.push import Tags, push
from envbuild.compose.store import LayerStore
from envbuild.errors import PublishError, UsageError
from envbuild.image_inputs import guest_digest, rendering_digest
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import committed, plan
from envbuild.pipeline.batch import Job
from envbuild.pipeline.plan import Buildable, Division, Plan
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

ONE = Division(seconds={})
Edit = Callable[[Workspace], object]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr(Workspace, "guest", property(lambda workspace: workspace.root / "envbuild" / "smoke"))
    return checkout(tmp_path)


def jobs(place: Workspace) -> list[Job]:
    return [Job(name=name, request=name) for name in committed.names(Tools(place))]


def planned(place: Workspace, revision: str = "HEAD", division: Division = ONE) -> Plan:
    return plan.since(Tools(place), jobs(place), revision, division)


def told(made: Plan) -> dict[str, set[str]]:
    return {item.name: {reason.input for reason in item.reasons} for item in made.items}


def candidates(place: Workspace) -> dict[str, Buildable]:
    return {each.name: each for each in plan.candidates(Tools(place), jobs(place))[0]}


def inputs(place: Workspace) -> dict[str, str]:
    return {name: each.inputs for name, each in candidates(place).items()}


def append(path: str, text: str = "# more\n") -> Edit:
    def edit(place: Workspace) -> None:
        (place.root / path).write_text(f"{(place.root / path).read_text()}{text}")

    return edit


def write(path: str, text: str = "# new\n") -> Edit:
    def edit(place: Workspace) -> None:
        (place.root / path).parent.mkdir(exist_ok=True)
        (place.root / path).write_text(text)

    return edit


def lock_with(name: str, change: Callable[..., object]) -> Edit:
    return lambda place: put(place, name, change(locks()[name]))


def other_wheel(lock):
    (prefix,) = lock.prefixes
    return replace(lock, prefixes=(replace(prefix, artifacts=(render_locks.artifact("six", "1.17.0"), *prefix.artifacts[1:])),))


def other_base(lock):
    return replace(lock, base=replace(lock.base, digest="sha256:" + "cd" * 32))


def comment(place: Workspace) -> None:
    """Lengthen a comment of the template, which is not part of any rendering."""
    path = place.partials / "Dockerfile.j2"
    assert "{##\n" in path.read_text()
    path.write_text(path.read_text().replace("{##\n", "{##\n  More.\n", 1))


BOTH_GUEST = {ALPHA: {"guest"}, BETA: {"guest"}}
BOTH_STEPS = {ALPHA: {"partials"}, BETA: {"partials"}}
CASES = {
    "nothing": (lambda _place: None, {}),
    "a document": (write("README.md"), {}),
    "a row of the matrix": (append("widget.yaml"), {}),
    "the recipe of nobody": (append("images/recipes/widget/smoke.py"), {}),
    "a note about a recipe": (append("images/recipes/alpha/README.md"), {}),
    "a comment in a template": (comment, {}),
    "a service that nobody has": (append("images/services/web.sh"), {}),
    "compiled modules": (
        lambda place: (place.guest / "__pycache__").mkdir() or write("envbuild/smoke/__pycache__/run.pyc")(place),
        {},
    ),
    "a hidden file of the smoke test": (write("envbuild/smoke/.swap"), {}),
    "a file of the smoke test": (append("envbuild/smoke/run.py"), BOTH_GUEST),
    "one below": (append("envbuild/smoke/rank/train.py"), BOTH_GUEST),
    "a new file of it": (write("envbuild/smoke/rank/more.py"), BOTH_GUEST),
    "one file less": (lambda place: (place.guest / "rank/train.py").unlink(), BOTH_GUEST),
    "a program for users' packages": (append("images/overlay/envbuild_overlay.py"), {ALPHA: {"overlay"}}),
    "a new one": (write("images/overlay/more.py"), {ALPHA: {"overlay"}}),
    "a script of the build": (append("images/partials/step.sh"), BOTH_STEPS),
    "a new script": (write("images/partials/other.sh"), BOTH_STEPS),
    "a template of all": (append("images/partials/Dockerfile.j2", "\nENV MORE=1\n"), BOTH_STEPS),
    "an adapter": (append("images/recipes/beta/smoke.py"), {BETA: {"recipe"}}),
    "an adapter that another imports": (append("images/recipes/alpha/smoke.py"), {ALPHA: {"recipe"}, BETA: {"recipe"}}),
    "an adapter that is imported no more": (
        lambda place: drop(place, "images/recipes/beta/recipe.yaml", "adapters: [alpha]\n"),
        {BETA: {"recipe"}},
    ),
    "a template of a recipe": (append("images/recipes/alpha/install.j2", "\nENV MORE=1\n"), {ALPHA: {"recipe"}}),
    "a lock": (lock_with(ALPHA, other_wheel), {ALPHA: {"lock"}}),
    "a base": (lock_with(BETA, other_base), {BETA: {"base"}}),
    "a lock and its base": (lock_with(BETA, lambda lock: other_base(other_wheel(lock))), {BETA: {"base", "lock"}}),
    "a new environment": (lambda place: renamed(place, ALPHA, "al-2"), {"al-2": {"new"}}),
}


def drop(place: Workspace, path: str, text: str) -> None:
    content = (place.root / path).read_text()
    assert text in content
    (place.root / path).write_text(content.replace(text, ""))


def renamed(place: Workspace, old: str, new: str) -> None:
    lock = locks()[old]
    put(place, new, replace(lock, environment=replace(lock.environment, name=new)))


def test_the_plan_has_the_images_whose_inputs_changed_and_no_other(place):
    """One input of each kind is changed at a time. The digest in an image's name changes in the same cases."""
    before = inputs(place)
    wrong = {}
    for case, (edit, expected) in CASES.items():
        edit(place)
        made, after = planned(place), inputs(place)
        changed = {name for name in after if after[name] != before.get(name)}
        if (told(made), changed) != (expected, set(expected)) or set(made.unchanged) != set(after) - changed or made.skipped:
            wrong[case] = told(made), changed
        git(place.root, "reset", "--quiet", "--hard")
        git(place.root, "clean", "-fdxq")
    assert wrong == {}


def test_what_was_committed_meanwhile_counts_as_what_was_not(place):
    first = git(place.root, "rev-parse", "HEAD").strip()
    append("images/recipes/beta/smoke.py")(place)
    made = planned(place, first)
    commit(place.root)
    assert planned(place, first) == made
    assert told(made) == {BETA: {"recipe"}} and told(planned(place)) == {}


def test_a_rendering_that_another_envbuild_wrote_is_a_reason_of_its_own(place):
    path = place.environment(ALPHA) / "Dockerfile"
    text = path.read_text()
    path.write_text(f"{text}# of another version\n")
    commit(place.root)
    path.write_text(text)
    assert told(planned(place)) == {ALPHA: {"render"}}


def test_what_an_edited_rendering_says_is_not_what_is_built(place):
    append(f"images/environments/{ALPHA}/Dockerfile")(place)
    assert told(planned(place)) == {}


def test_files_are_named_and_environments_that_are_gone(place):
    append("images/recipes/alpha/install.j2", "\nENV MORE=1\n")(place)
    shutil.rmtree(place.environment(BETA))
    made = planned(place)
    assert [reason.files for item in made.items for reason in item.reasons] == [("images/recipes/alpha/install.j2",)]
    assert made.removed == (BETA,)


def test_environments_that_cannot_be_built_are_told_and_not_planned(place):
    (place.environments / "no-lock").mkdir()
    lock = locks()[ALPHA]
    hollow = replace(lock, environment=replace(lock.environment, name="hollow"), prefixes=())
    put(place, "whole", replace(hollow, environment=replace(lock.environment, name="whole"), prefixes=lock.prefixes))
    put_lock_only(place, hollow)
    made = planned(place)
    assert told(made) == {"whole": {"new"}}
    assert {each.name: each.code for each in made.skipped} == {"no-lock": "no-lock", "hollow": "lock-incomplete"}


def put_lock_only(place: Workspace, lock) -> None:
    from envbuild.lock import lock_file

    (place.environments / lock.environment.name).mkdir()
    lock_file.write(place.environments / lock.environment.name / "lock.json", lock)


def test_the_smoke_test_of_an_installed_envbuild_is_in_no_revision(place, tmp_path, monkeypatch):
    shutil.copytree(place.guest, tmp_path / "installed")
    monkeypatch.setattr(Workspace, "guest", property(lambda _: tmp_path / "installed"))
    made = planned(place)
    assert made.notes and "smoke test" in made.notes[0]
    assert told(made) == {}, "what is the checkout's alone is still compared"
    append("images/partials/step.sh")(place)
    assert told(planned(place)) == BOTH_STEPS


def test_every_image_has_one_part_and_a_large_wheel_too(place):
    wheel = replace(render_locks.artifact("huge", "1"), size=60_000_000)
    for number in range(6):
        lock = locks()[ALPHA]
        (prefix,) = lock.prefixes
        more = (wheel,) if number < 3 else ()
        named = replace(lock.environment, name=f"al-{number}")
        put(
            place,
            f"al-{number}",
            replace(lock, environment=named, prefixes=(replace(prefix, artifacts=prefix.artifacts + more),)),
        )
    whole = planned(place, division=Division(count=3, seconds={"al-5": 1000.0}))
    parts = [{item.name for item in part.items} for part in whole.shards]
    assert sorted(name for part in parts for name in part) == [f"al-{number}" for number in range(6)]
    assert [part for part in parts if "al-5" in part] == [{"al-5"}], "it takes longest, as measured"
    assert [sorted(part) for part in parts if "al-0" in part] == [["al-0", "al-1", "al-2"]]
    assert [[layer.wheel for layer in part.layers] for part in whole.shards if part.layers] == [[wheel.filename]]
    assert {item.is_measured for item in whole.items if item.name == "al-5"} == {True}
    hours = planned(place, division=Division(count=3, seconds={f"al-{number}": 3600.0 for number in range(3)}))
    parts = [{item.name for item in part.items} for part in hours.shards]
    assert [len(part & {"al-0", "al-1", "al-2"}) for part in parts] == [1, 1, 1], "one part would take three hours"
    assert not any(part.layers for part in hours.shards), "no part has two images with the layer"
    minutes = planned(place, division=Division(count=3, seconds={f"al-{number}": 1700.0 for number in range(3)}))
    parts = [{item.name for item in part.items} for part in minutes.shards]
    assert sorted(len(part & {"al-0", "al-1", "al-2"}) for part in parts) == [0, 1, 2], "two of them take less than an hour"
    assert not any(part.layers for part in minutes.shards), "two parts make the layer"


@pytest.fixture
def published(place: Workspace, registry: Registry, docker_config: Path, tmp_path: Path) -> Iterator[Registry]:
    """A registry with the image of each candidate, and with the statements that `publish` attaches."""
    for each in candidates(place).values():
        send(place, registry, each, tmp_path / each.name)
    yield registry


class Unsigned:
    """A key whose signatures are not checked."""

    class public:
        hint = "none"

    def sign(self, _content: bytes) -> bytes:
        return b"0"


def send(place: Workspace, registry: Registry, each: Buildable, folder: Path, stated: object = None) -> None:
    """Push an image of the candidate with its statements. ``stated`` are other labels than the right ones."""
    store = LayerStore(folder)
    labels = {"org.envbuild.name": each.name, "org.envbuild.lock": each.locked.digest}
    image = composed.image([composed.add(store, each.name)], Labels=labels if stated is None else stated)
    canonical, of_lock, fixed = (tag.rpartition(":")[2] for tag in each.tags[:3])
    source = f"{registry.host}/lab/dl"
    push(image, store, source, Tags(moving=[canonical, of_lock], fixed=[fixed]), ignore_progress)
    texts = {path: text.encode() for path, text in each.rendering.items()}
    built = provenance.BuildFacts(
        name=each.name, lock=each.locked.digest, inputs=each.inputs, builder="docker", engine="", version="1", built_at="t",
        rendering=rendering_digest(place, None, texts), guest=guest_digest(place, each.lock, Tools(place).recipes),
        commit=git(place.root, "rev-parse", "HEAD").strip(), is_modified=False,
    )  # fmt: skip
    predicates = {kind: {} for kind in signing.REQUIRED} | {signing.PROVENANCE: provenance.predicate(each.lock, built)}
    with referrers.opened(source, writes=True) as client:
        subject = referrers.image(client, fixed)
        artifacts = []
        for kind, predicate in predicates.items():
            statement = signing.Statement(kind=kind, predicate=predicate)
            content = signing.bundle(statement, f"sha256:{subject.digest}", Unsigned())
            artifacts.append(referrers.Artifact(content=content, kind=signing.BUNDLE, annotations={signing.ABOUT: kind}))
        referrers.attach(client, subject, artifacts)


def against(place: Workspace, registry: Registry, repository: str = "lab/dl", **division: object) -> Plan:
    return plan.against(Tools(place), jobs(place), f"{registry.host}/{repository}", Division(**{"seconds": {}, **division}))


@pytest.mark.parametrize(("knows_referrers", "for_each"), [(True, 4), (False, 5)], ids=["referrers", "list by tag"])
def test_a_registry_with_all_images_needs_nothing_and_few_requests_for_each(place, published, knows_referrers, for_each):
    """For each image, the requests are for the manifest of the tag that never moves, the labels, the list of statements, and
    the digest of the tag that is set last. A registry without the referrers API has the list under a tag, and refuses the
    first request for it."""
    published.knows_referrers = knows_referrers
    published.asked.clear()
    made = against(place, published)
    assert told(made) == {} and len(made.unchanged) == 2
    assert published.count("GET", "/blobs/") == published.count("GET", "/referrers/") == published.count("HEAD", "") == 2
    assert published.count("GET", "/manifests/") == (2 if knows_referrers else 4)
    for_the_repository = len(published.asked) - 2 * for_each
    assert for_the_repository <= 1, published.asked


OTHER_CONTENT = {
    "the image of another environment": {"org.envbuild.name": BETA},
    "the image of another lock": {"org.envbuild.lock": "ab" * 32},
    "an image without labels": None,
    "labels that are no object": ["org.envbuild.name"],
}


@pytest.mark.parametrize("case", OTHER_CONTENT)
def test_a_tag_that_never_moves_on_other_content_is_refused(place, registry, docker_config, tmp_path, case):
    """Everything else about the tag is right, so its name alone would pass for the image."""
    each = candidates(place)[ALPHA]
    right, change = {"org.envbuild.name": ALPHA, "org.envbuild.lock": each.locked.digest}, OTHER_CONTENT[case]
    send(place, registry, each, tmp_path / "other", right | change if isinstance(change, dict) else change or {})
    send(place, registry, candidates(place)[BETA], tmp_path / "beta")
    with pytest.raises(PublishError) as caught:
        against(place, registry)
    (problem,) = caught.value.problems
    assert caught.value.code == "tag-taken" and problem.where == each.tags[2].rpartition(":")[2]
    assert all(label in problem.message for label in change or ("org.envbuild.name", "org.envbuild.lock"))


def test_a_list_of_images_as_buildx_pushes_it_is_followed(place, published):
    """The list has the image and, without a platform of ours, an attestation."""
    fixed = f"lab/dl:{candidates(place)[ALPHA].tags[2].rpartition(':')[2]}"
    content = published.manifests[fixed]
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    entry = {"mediaType": MANIFEST, "digest": digest, "size": len(content)}
    unknown = {"os": "unknown", "architecture": "unknown"}
    listed = [
        {**entry, "digest": f"sha256:{'0' * 64}", "platform": unknown},
        {**entry, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    told_by_list = {"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}
    published.manifests[fixed] = json.dumps(told_by_list, separators=(",", ":")).encode()
    assert told(against(place, published)) == {ALPHA: {"unfinished"}}, "buildx attaches no statements of ours"
    published.manifests[fixed] = json.dumps({**told_by_list, "manifests": listed[:1]}, separators=(",", ":")).encode()
    with pytest.raises(PublishError, match="never move"):
        against(place, published)


@pytest.mark.parametrize("content", [b"no json", b"[]", b'{"config": 7}', b'{"config": {"size": 1e999, "digest": "x"}}'])
def test_a_tag_that_never_moves_on_a_damaged_document_is_refused(place, published, content):
    published.manifests[f"lab/dl:{candidates(place)[ALPHA].tags[2].rpartition(':')[2]}"] = content
    with pytest.raises(PublishError, match="never move"):
        against(place, published)


def test_a_configuration_of_another_digest_is_no_proof(place, published):
    for content in published.manifests.values():
        digest = json.loads(content).get("config", {}).get("digest", "")
        blob = published.blobs["lab/dl"].get(digest, b"")
        if b"Labels" in blob:
            published.blobs["lab/dl"][digest] = blob.replace(b"amd64", b"arm64")
    with pytest.raises(PublishError, match="2 of the tags that never move"):
        against(place, published)


def test_an_empty_repository_needs_all_as_new(place, registry, docker_config):
    assert told(against(place, registry, "other/dl")) == {ALPHA: {"new"}, BETA: {"new"}}


@pytest.mark.parametrize("case", ["a file of the smoke test", "an adapter", "a lock", "a base", "a template of all"])
def test_what_the_registry_lacks_is_explained_by_the_commit_of_its_provenance(place, published, case):
    edit, expected = CASES[case]
    edit(place)
    assert told(against(place, published)) == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("a file of the smoke test", {ALPHA: {"guest"}, BETA: {"guest"}}),
        ("a template of a recipe", {ALPHA: {"render"}}),
        ("a base", {BETA: {"lock"}}),
    ],
)
def test_without_that_commit_the_digests_explain_it(place, published, case, expected, tmp_path):
    edit, _ = CASES[case]
    edit(place)
    shutil.rmtree(place.root / ".git")
    git(place.root, "init", "--quiet")
    assert told(against(place, published)) == expected


def test_the_part_of_a_machine_is_the_same_whatever_was_published_meanwhile(place, published, tmp_path):
    for number in range(5):
        renamed(place, ALPHA, f"al-{number}")

    def parts() -> dict[str, int]:
        return {item.name: item.shard for item in against(place, published, count=3).items}

    first = parts()
    assert set(first) == {f"al-{number}" for number in range(5)} and len(set(first.values())) == 3
    for name in ("al-0", "al-3"):
        send(place, published, candidates(place)[name], tmp_path / name)
        first.pop(name)
        assert parts() == first


@pytest.mark.parametrize(
    "source",
    [
        {"digest": "has gitCommit in it", "annotations": {"modified": False}},
        {"digest": {"gitCommit": "0\0"}, "annotations": {"modified": False}},
        {"digest": {"gitCommit": "HEAD"}, "annotations": {"modified": False}},
    ],
)
def test_a_strangers_provenance_explains_nothing_and_stops_nothing(place, published, source, monkeypatch):
    """The signature is not checked, so that anybody who may write to the repository can state anything."""
    append("images/partials/step.sh")(place)
    real = provenance.predicate

    def predicate(*argv: object) -> dict[str, object]:
        made = real(*argv)
        made["buildDefinition"]["resolvedDependencies"] = [source]
        return made

    monkeypatch.setattr(provenance, "predicate", predicate)
    published.manifests.clear()
    for each in candidates(place).values():
        canonical = replace(each, tags=(each.tags[0], each.tags[1], f"{each.tags[0]}-other"))
        send(place, published, canonical, place.root.parent / f"again-{each.name}")
    assert told(against(place, published)) == {name: {"render", "guest"} for name in (ALPHA, BETA)}


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_registry_that_refuses_is_no_proof_that_it_lacks_something(place, published, status, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    published.faults["GET"] = [status] * 20
    with pytest.raises(PublishError):
        against(place, published)


def test_a_web_page_is_no_answer_of_a_registry(place, published, monkeypatch):
    """Otherwise the page of a proxy passes for an image, and a web server for a registry that lacks everything."""
    cases = {200: "does not answer as a registry: it sent", 404: "does not answer as a registry", 502: "with a web page"}
    for status, words in cases.items():
        published.web_page = status
        published.asked.clear()
        with pytest.raises(PublishError, match=words) as caught:
            against(place, published)
        assert "<" not in f"{caught.value.message}{caught.value.hint}"
        assert (max(map(published.asked.count, published.asked)) > 1) == (status == 502)  # what may pass is asked again
    published.web_page = 0
    published.manifests = {reference: b"<html>" for reference in published.manifests if ":sha256:" not in reference}
    monkeypatch.setattr("stand_in_registry.MANIFEST", "text/html")  # the page comes later, in place of the manifests only
    with pytest.raises(PublishError, match="does not answer as a registry: it sent"):
        against(place, published)


def test_a_registry_may_send_its_errors_as_web_pages(place, published):
    published.error_pages = True
    assert told(against(place, published, "other/dl")) == {ALPHA: {"new"}, BETA: {"new"}}


def test_the_command_names_a_web_page_and_does_not_print_it(program, registry):
    registry.web_page = 200
    to = f"{registry.host}/lab/dl"
    done = program.run("plan", "--against", to, "--json", env={"NO_PROXY": "127.0.0.1"}).expect(11)
    told = done.document["error"]
    assert told["code"] == "unknown-format" and "proxy" in told["hint"] and "<" not in f"{done.out}{done.err}"
    shown = program.run("plan", "--against", to, env={"NO_PROXY": "127.0.0.1"}).expect(11)
    assert "<" not in f"{shown.out}{shown.err}" and shown.err.count("does not answer as a registry") == 1


def test_outside_of_a_checkout_a_revision_is_refused(place, monkeypatch):
    shutil.rmtree(place.root / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(place.root.parent))
    with pytest.raises(UsageError) as error:
        planned(place)
    assert error.value.code == "no-checkout"


REAL = ("opencv-5.0.0.93-cpu-py311-debian12", "tf-2.21.0-cuda12.5-py311-debian12")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = own_program(tmp_path)
    for name in REAL:
        shutil.copytree(ROOT / "images/environments" / name, program.root / "images/environments" / name)
    git(program.root, "init", "--quiet")
    commit(program.root)
    return program


def test_the_command_answers_in_every_form(program, tmp_path):
    argv = ["plan", "--changed-since", "HEAD"]
    assert program.run(*argv, "--format", "names").expect(0).out == ""
    assert json.loads(program.run(*argv, "--format", "matrix").expect(0).out) == {"include": []}
    step = program.root / "images/partials/step.sh"
    step.write_text(f"{step.read_text()}# more\n")
    assert program.run(*argv, "--format", "names", "--only", "gpu").expect(0).out.split() == [REAL[1]]
    schema = json.loads(resources.files("envbuild.schemas").joinpath("plan.json").read_text())
    document = program.run(*argv, "--shards", "2", "--json").expect(0).document
    jsonschema.validate(document, schema)
    assert [[each["name"] for each in part["environments"]] for part in document["parts"]] == [[REAL[1]], [REAL[0]]]
    one = program.run(*argv, "--shard", "2/2", "--json").expect(0).document
    assert one["parts"] == document["parts"][1:]
    matrix = json.loads(program.run(*argv, "--shards", "4", "--format", "matrix").expect(0).out)["include"]
    assert [each["shard"] for each in matrix] == ["1/4", "2/4"] and {each["names"] for each in matrix} == set(REAL)
    text = program.run(*argv).expect(0)
    assert "2 of 2 images must be made again" in text.out and "partials: images/partials/step.sh" in text.out
    assert "note: Changes of the smoke test are not compared" in text.err
    assert "| `" in program.run(*argv, "--format", "markdown").expect(0).out
    made = {
        "environments": [{"name": REAL[0], "state": "done", "seconds": 7.5}, {"name": REAL[1], "state": "kept", "seconds": 1}]
    }
    made["environments"][0]["size"] = 7_000_000_000  # larger than the estimate
    (tmp_path / "times.json").write_text(json.dumps(made))
    timed = program.run(*argv, "--times", str(tmp_path / "times.json"), "--json").expect(0).document["parts"][0]
    assert [each["seconds"] for each in timed["environments"] if each["measured"]] == [7.5]
    assert [each["disk"]["images"] for each in timed["environments"] if each["measured"]] == [7_000_000_000]
    shutil.copy(tmp_path / "times.json", program.root / "images/times.json")
    assert program.run(*argv, "--json").expect(0).document["parts"][0] == timed


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ([], 2),
        (["--changed-since", "HEAD", "--against", "h.example/r"], 2),
        (["--changed-since", "HEAD", "--shard", "3/2"], 2),
        (["--changed-since", "HEAD", "--shard", "1/2", "--shards", "2"], 2),
        (["--changed-since", "HEAD", "--match", "nothing-*"], 4),
        (["--changed-since", "nowhere"], 2),
        (["--changed-since", "HEAD", "--times", "matrix.yaml"], 5),
        (["--against", "127.0.0.1:1/lab"], 11),
    ],
)
def test_what_cannot_be_planned_ends_with_a_code(program, argv, code):
    program.run("plan", *argv, "--json", cwd=program.root, env={"NO_PROXY": "127.0.0.1"}).expect(code)

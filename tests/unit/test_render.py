"""Rendering: the place of each part, the refused locks, and that values cannot break out of their place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import render_locks as locks

from envbuild import codec, recipes
from envbuild.errors import InvalidInputError, UsageError
from envbuild.model.lock import Lock
from envbuild.render import render
from envbuild.render.dockerfile import MOUNT_FILES, MOUNT_FOLDERS
from envbuild.workspace import Workspace

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "render"
TEMPLATES = {
    **recipes.templates(Workspace(root=ROOT, output=ROOT / "images", home=Path("/nowhere"))),
    "recipes/alpha/install.j2": "",
    "recipes/beta/install.j2": "",
    **locks.SCRIPTS,
}


def rendering(lock: Lock) -> dict[str, str]:
    """The rendering with the toy recipes and the real partials."""
    return render(lock, locks.RECIPES, TEMPLATES)


@pytest.mark.parametrize("name", sorted(locks.ALL))
def test_rendering_is_the_golden_one(name: str, update_golden: bool) -> None:
    made = rendering(locks.ALL[name]())
    folder = GOLDEN / name
    if update_golden:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (path for path in folder.rglob("*") if path.is_file()):
            path.unlink()
        for file, text in made.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
    assert made == {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", sorted(locks.ALL))
def test_every_artifact_is_in_exactly_one_requirements_file_with_its_hash(name: str) -> None:
    lock = locks.ALL[name]()
    made = rendering(lock)
    lines = [line for file, text in made.items() if file.startswith("requirements") for line in text.splitlines()[1:]]
    wanted = [artifact for prefix in lock.prefixes for artifact in prefix.artifacts]
    for prefix in lock.prefixes:
        if any(not artifact.filename.endswith(".whl") for artifact in prefix.artifacts):
            wanted += prefix.build_artifacts
    assert sorted(lines) == sorted(f"{a.name}=={a.version} --hash=sha256:{a.sha256}" for a in wanted)


def test_equal_pins_are_equal_files_whatever_environment_they_are_of() -> None:
    lock = locks.wheels()
    other = replace(lock, environment=replace(lock.environment, name="al-1.12.3-other"))
    one, two = rendering(lock), rendering(other)
    assert [name for name in one if one[name] != two[name]] == ["Dockerfile"]


def test_large_wheels_small_ones_and_sources_are_apart() -> None:
    made = rendering(locks.wheels())
    assert sorted(made) == [
        "Dockerfile", "requirements-alpha.txt", "requirements-beta.txt", "requirements-build.txt", "requirements-sdists.txt",
        "requirements-vendor.txt", "requirements.txt",
    ]  # fmt: skip
    assert made["requirements.txt"].splitlines()[1].startswith("numpy==")
    assert made["requirements-sdists.txt"].splitlines()[1].startswith("old_source==")


def stages(dockerfile: str) -> dict[str, str]:
    """Stage name → text of the stage, including its first line."""
    parts = re.split(r"(?m)^(?=FROM )", dockerfile)
    return {part.splitlines()[0].rsplit(" AS ", 1)[1]: part.rstrip() for part in parts[1:]}


def test_stages_stand_in_the_order_in_which_environments_share_them() -> None:
    assert list(stages(rendering(locks.gpu())["Dockerfile"])) == [
        "os", "python", "cuda-files", "cuda", "sdists", "alpha", "packages", "image",
    ]  # fmt: skip
    assert list(stages(rendering(locks.wheels())["Dockerfile"])) == [
        "os", "python", "libraries", "sdists", "vendor", "alpha", "beta", "packages", "image",
    ]  # fmt: skip


def test_several_prefixes_stand_side_by_side_each_with_its_own_python_packages_and_variables() -> None:
    recipes = {**locks.RECIPES, "beta": replace(locks.RECIPES["beta"], env={"PYTHONPATH": "/opt/beta/python"})}
    recipes["beta"] = replace(recipes["beta"], apt_runtime=("python{python}-dev",))
    made = render(locks.several(), recipes, TEMPLATES)
    text = stages(made["Dockerfile"])
    assert list(text) == [
        "os", "python", "cuda-files", "cuda", "libraries", "sdists", "old-alpha", "new-beta", "packages", "image",
    ]  # fmt: skip
    assert "source=tools/old,target=/mnt/tools make-venv /usr/bin/python2.7 /opt/envs/old\n" in text["python"]
    assert "target=/mnt make-venv /usr/bin/python3.6 /opt/envs/new\n" in text["python"]
    assert "ENV VIRTUAL_ENV=/opt/envs/old PATH=/opt/envs/old/bin:" in text["python"]
    assert " python3.6-dev" in text["libraries"]
    assert "python2.7-dev" not in made["Dockerfile"]
    assert "PYTHONPATH" not in text["image"]
    assert "ALPHA_LOG" not in text["image"]
    assert "Python 2.7 and 3.6" in text["image"]
    assert made["prefixes"].splitlines()[1:] == [
        "/opt/envs/old  Python 2.7   Alpha 1.12.3",
        "  ALPHA_LOG=1",
        "/opt/envs/new  Python 3.6   Beta 2.1.0",
        "  PYTHONPATH=/opt/beta/python",
    ]


def test_prefixes_under_one_python_install_it_once() -> None:
    lock = locks.several()
    python = lock.prefixes[0].python
    both = tuple(replace(prefix, python=python) for prefix in lock.prefixes)
    text = stages(rendering(replace(lock, prefixes=both))["Dockerfile"])["python"]
    assert text.count("apt-install") == 1


def test_prefixes_whose_stages_would_have_one_name_are_refused() -> None:
    lock = locks.several()
    data = codec.encode(lock)
    for where in (data["prefixes"][1], data["environment"]["prefixes"][1]):
        where["name"] = "cuda"
    data["prefixes"][1]["artifacts"][0]["name"] = "files"
    recipes = {**locks.RECIPES, "beta": replace(locks.RECIPES["beta"], large=("files",))}
    with pytest.raises(InvalidInputError, match="cuda-files"):
        render(codec.decode(Lock, data, "lock"), recipes, TEMPLATES)


def test_a_lock_of_other_prefixes_than_its_environment_is_refused() -> None:
    lock = locks.several()
    with pytest.raises(InvalidInputError, match="but its environment has the prefixes"):
        rendering(replace(lock, prefixes=lock.prefixes[:1]))


def test_every_file_says_first_how_to_make_it_again() -> None:
    made = rendering(locks.gpu())
    said = "# Rendered from lock.json by envbuild, do not edit. "
    first, second, *_ = made.pop("Dockerfile").splitlines()
    assert first == "# The image al-1.12.3-cuda9.0-py27-toyos4: Alpha 1.12.3, CUDA 9.0, Python 2.7."
    assert second.startswith(f"{said}Make it again with: envbuild render al-1.12.3-")
    assert all(text.startswith(f"{said}The Dockerfile beside it says how") for text in made.values())


def test_a_local_image_is_named_without_its_id() -> None:
    lock = locks.image_base()
    lock = replace(lock, base=replace(lock.base, digest="sha256:" + "ef" * 32))
    assert "efef" not in rendering(lock)["Dockerfile"].split("LABEL")[0]


def test_shared_stages_are_the_same_bytes() -> None:
    one, other = stages(rendering(locks.cpu())["Dockerfile"]), stages(rendering(locks.wheels())["Dockerfile"])
    assert one["os"] == other["os"]
    assert one["python"] == other["python"]


def test_each_index_is_asked_alone() -> None:
    text = rendering(locks.wheels())["Dockerfile"]
    asking = [line for line in text.splitlines() if "--default-index https://wheels.example/cu126" in line]
    assert len(asking) == 1
    assert "--default-index" in stages(text)["beta"]


def test_gpu_images_say_what_they_need_of_the_host_and_cpu_images_do_not() -> None:
    image = stages(rendering(locks.gpu())["Dockerfile"])["image"]
    assert 'NVIDIA_REQUIRE_CUDA="cuda>=9.0"' in image
    assert 'NVIDIA_DRIVER_CAPABILITIES="compute,utility"' in image
    assert "NVIDIA" not in rendering(locks.cpu())["Dockerfile"]


def test_apt_packages_are_exact_held_and_their_keys_pinned() -> None:
    made = stages(rendering(locks.gpu())["Dockerfile"])
    assert "cuda-cudart-9-0=9.0.176-1" in made["cuda"]
    assert "/mnt/cuda/packages/libcudnn7.deb" in made["cuda"]
    assert "apt-install-held " in made["cuda"]
    assert "A" * 40 in made["cuda-files"]
    assert "B" * 40 in made["cuda-files"]
    assert f"fetch /cuda/packages/libcudnn7.deb {'cd' * 32} " in made["cuda-files"]


def test_final_image_is_a_user_s_and_has_an_init() -> None:
    lines = rendering(locks.cpu())["Dockerfile"].splitlines()
    entry = 'ENTRYPOINT ["/usr/bin/tini", "--", "/bin/sh", "/opt/envbuild/smoke/enter.sh"]'
    assert lines[-4:] == ["WORKDIR /workspace", "USER 1000", entry, 'CMD ["bash"]']
    bare = locks.cpu()
    bare = replace(
        bare, environment=replace(bare.environment, system=replace(bare.environment.system, init_package="", init=""))
    )
    text = rendering(bare)["Dockerfile"]
    assert '\nENTRYPOINT ["/bin/sh", "/opt/envbuild/smoke/enter.sh"]\n' in text
    assert " apt-install ca-certificates\n" in text


def test_what_fetches_gets_the_secret_and_nothing_else_does() -> None:
    """Steps that download get the secret.

    A step with pinned packages needs no network, nor does a step that installs the results of an earlier stage.
    """
    fetches = re.compile(r" (apt-install(?!-listed)|apt-archive|fetch|fetch-key|pip-install|pip-build|apt-install-held) ")
    for name in locks.ALL:
        for step in logical_lines(rendering(locks.ALL[name]())["Dockerfile"]):
            if step.startswith("RUN"):
                mounted = "--mount=type=secret,id=envbuild,target=/mnt/secret" in step
                assert mounted == (fetches.search(step) is not None), step


@pytest.mark.parametrize("name", sorted(locks.ALL))
def test_every_mount_has_its_place_in_the_folder_of_the_script(name: str) -> None:
    """If a mount point is missing, BuildKit 0.8 makes it in the image, or fails in a read-only folder."""
    places = {"/mnt", *(f"/mnt/{each}" for each in (*MOUNT_FILES, *MOUNT_FOLDERS))}
    for step in logical_lines(rendering(locks.ALL[name]())["Dockerfile"]):
        assert set(re.findall(r"--mount=\S*target=([^,\s]+)", step)) <= places


def framework_of(lock: Lock, **changes: Any) -> Lock:
    """``lock`` with changes of its first framework."""
    first, *others = lock.environment.frameworks
    return replace(lock, environment=replace(lock.environment, frameworks=(replace(first, **changes), *others)))


def test_render_names_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="cannot mount secrets"):
        render(locks.cpu(), locks.RECIPES, TEMPLATES, dialect="classic")
    with pytest.raises(UsageError, match="'nonsense'"):
        render(locks.cpu(), locks.RECIPES, TEMPLATES, dialect="nonsense")
    with pytest.raises(InvalidInputError, match="There is no recipe 'alpha'"):
        render(locks.cpu(), {"beta": locks.RECIPES["beta"]}, TEMPLATES)
    source = framework_of(locks.cpu(), options={"repository": "https://x.example/alpha", "revision": "a" * 40})
    with pytest.raises(InvalidInputError, match="does not say how"):
        rendering(source)
    with pytest.raises(InvalidInputError, match="conda"):
        rendering(_changed(locks.cpu(), ("environment", "base", "provider"), "conda"))
    with pytest.raises(InvalidInputError, match=r"Python 3\.11 from uv"):
        rendering(_changed(locks.cpu(), ("prefixes", 0, "python", "provided_by"), "uv"))
    toolless = locks.wheels()
    prefix = replace(toolless.prefixes[0], build_artifacts=toolless.prefixes[0].build_artifacts[1:])
    with pytest.raises(InvalidInputError, match="no wheel of pip"):
        rendering(replace(toolless, prefixes=(prefix,)))


def test_misspelt_names_in_templates_are_errors_with_their_place() -> None:
    broken = {**TEMPLATES, "recipes/alpha/install.j2": "# one\nRUN {{ framework.vresion | word }}\n"}
    with pytest.raises(InvalidInputError, match="vresion"):
        render(locks.cpu(), locks.RECIPES, broken)
    with pytest.raises(InvalidInputError, match=r"recipes/alpha/install\.j2, line 2"):
        render(locks.cpu(), locks.RECIPES, {**TEMPLATES, "recipes/alpha/install.j2": "# one\n{% if %}\n"})


def test_values_that_pass_no_filter_are_a_bug_of_the_template() -> None:
    with pytest.raises(TypeError, match="without a filter"):
        render(locks.cpu(), locks.RECIPES, {**TEMPLATES, "recipes/alpha/install.j2": "# {{ framework.version }}\n"})


def test_install_templates_see_their_framework_its_options_and_its_prefix() -> None:
    step = "RUN echo {{ framework.name | word }} {{ prefix.path | word }}\n"
    text = "{% if framework.options.api == '1' %}\n" + step + "{% endif %}\n"
    made = render(locks.cpu(), locks.RECIPES, {**TEMPLATES, "recipes/alpha/install.j2": text})["Dockerfile"]
    assert "RUN echo alpha /opt/env" in stages(made)["packages"]


def test_a_recipe_needs_no_install_template() -> None:
    without = {name: text for name, text in TEMPLATES.items() if name != "recipes/alpha/install.j2"}
    assert render(locks.cpu(), locks.RECIPES, without) == render(locks.cpu(), locks.RECIPES, TEMPLATES)


def test_packages_that_belong_to_a_python_follow_it_and_stay_out_where_the_base_brings_its_own() -> None:
    recipe = replace(locks.RECIPES["alpha"], apt_runtime=("g++", "python{python}-dev"))
    lock = locks.wheels()
    for source, there in (("distribution", True), ("base", False)):
        prefix = replace(lock.prefixes[0], python=replace(lock.prefixes[0].python, version="3.11", provided_by=source))
        made = render(replace(lock, prefixes=(prefix,)), {**locks.RECIPES, "alpha": recipe}, TEMPLATES)["Dockerfile"]
        assert ("g++ python3.11-dev" in stages(made)["libraries"]) == there
        assert "{python}" not in made


def test_sources_that_need_the_packages_are_compiled_above_them_and_leave_only_their_wheels() -> None:
    """Source packages in the recipe's ``compiled``, and a source at a git revision, which build.j2 of the recipe compiles."""
    recipe = replace(locks.RECIPES["alpha"], compiled=("old-*",), builds=True)
    steps = (
        '{{ m.build_wheels(prefix, prefix.compiled, ["ALPHA_WITH=1"]) }}\n'
        "{{ m.run(m.source(framework)) }}\n    tar -xf /mnt/source.tar -C /src\n"
    )
    templates = {
        **TEMPLATES,
        "recipes/alpha/build.j2": steps,
        "recipes/alpha/install.j2": "COPY --from=built /src /opt/alpha\n",
    }
    rendering = render(locks.wheels(), {**locks.RECIPES, "alpha": recipe}, templates)
    assert "old_source==0.1" in rendering["requirements-compiled.txt"]
    assert "requirements-sdists.txt" not in rendering
    made = stages(rendering["Dockerfile"])
    assert list(made)[-4:] == ["packages", "built", "frameworks", "image"]
    assert made["built"].startswith("FROM packages AS built")
    assert "apt-install gcc" in made["built"]
    assert "pip-build /opt/env /wheels/env ALPHA_WITH=1" in made["built"]
    assert "source=sources/alpha.tar" in made["built"]
    assert made["frameworks"].startswith("FROM packages AS frameworks")
    assert "from=built,source=/wheels/env" in made["frameworks"]
    assert "COPY --from=built /src /opt/alpha" in made["frameworks"]
    assert made["image"].startswith("FROM frameworks AS image")


def test_a_recipe_that_compiles_some_versions_compiles_nothing_of_the_others() -> None:
    """Only a row with a repository has a source. The other versions are packages, which need no compiler here."""
    recipe = replace(locks.RECIPES["alpha"], builds=True, apt_build=("only-to-compile",))
    templates = {**TEMPLATES, "recipes/alpha/build.j2": "{{ m.run(m.source(framework)) }}\n    true\n"}
    lock = locks.wheels()
    package = render(lock, {**locks.RECIPES, "alpha": recipe}, templates)["Dockerfile"]
    assert "only-to-compile" not in package and "AS built" not in package
    first, *others = lock.environment.frameworks
    source = replace(first, options={**first.options, "repository": "https://x.example/alpha", "revision": "a" * 40})
    environment = replace(lock.environment, frameworks=(source, *others))
    compiled = render(replace(lock, environment=environment), {**locks.RECIPES, "alpha": recipe}, templates)["Dockerfile"]
    assert "only-to-compile" in compiled and "source=sources/alpha.tar" in compiled


def test_a_framework_that_could_not_be_locked_is_named_without_a_hash_for_an_installer_that_requires_one() -> None:
    lock = locks.wheels()
    prefix = replace(lock.prefixes[0], frameworks=("alpha",))
    made = rendering(replace(lock, prefixes=(prefix,)))
    name = next(file for file in made if file.endswith("-unpinned.txt"))
    assert name == "requirements-beta-unpinned.txt"
    lines = [line for line in made[name].splitlines() if not line.startswith("#")]
    (beta,) = [each for each in lock.environment.frameworks if each.name == "beta"]
    assert lines == [f"{beta.package}=={beta.version}"]
    text = stages(made["Dockerfile"])["packages"]
    assert f"source={name},target=/mnt/requirements.txt" in text
    step = text[text.index(f"source={name}") :]
    assert f"pip-install /opt/env --default-index {beta.index}" in step
    assert "exit 1" not in text
    assert f"Run `envbuild lock` on a machine that can reach {beta.index}" in text


def test_bash_array_lengths_do_not_open_a_comment() -> None:
    made = render(locks.cpu(), locks.RECIPES, {**TEMPLATES, "recipes/alpha/install.j2": 'RUN echo "${#array[@]}"\n'})
    assert 'RUN echo "${#array[@]}"' in made["Dockerfile"]


HOSTILE = (
    "x\nUSER root",
    "x\r\nUSER root",
    "x\u2028USER root",
    "$(touch /pwned)",
    "`touch /pwned`",
    "${HOME}",
    "x; touch /pwned",
    "x && touch /pwned",
    "x | sh",
    "x # rest",
    "'; touch /pwned; '",
    '"; touch /pwned; "',
    "x \\",
    "x\\",
    "<<EOF",
    "-oDPkg::Pre-Invoke::=/pwned",
    "--help",
    "x y",
    "x{{ 7 * 7 }}",
    "*",
    "x\x00y",
    "../../etc/passwd",
)


def logical_lines(dockerfile: str) -> list[str]:
    """The instructions with continuation lines joined, without comments."""
    kept = "\n".join(line for line in dockerfile.splitlines() if not line.startswith("#"))
    return [line for line in kept.replace("\\\n", " ").splitlines() if line.strip()]


def shape(line: str) -> tuple[str, int]:
    """The instruction and the number of its shell words. No value may change these."""
    return line.split(maxsplit=1)[0], len(shlex.split(line, comments=True))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all non-empty texts in an encoded lock."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    elif isinstance(value, str) and value:
        yield path


def _changed(lock: Lock, path: tuple[Any, ...], text: str) -> Lock:
    data = codec.encode(lock)
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = text
    return codec.decode(Lock, data, "lock")


@pytest.mark.parametrize("name", ["gpu", "wheels"])
def test_no_text_of_a_lock_can_leave_its_place(name: str) -> None:
    lock = locks.ALL[name]()
    normal = logical_lines(rendering(lock)["Dockerfile"])
    paths = list(leaves(codec.encode(lock)))
    assert len(paths) > 80
    accepted = 0
    for path in paths:
        for text in HOSTILE:
            try:
                found = logical_lines(rendering(_changed(lock, path, text))["Dockerfile"])
            except InvalidInputError:
                continue
            accepted += 1
            assert len(found) == len(normal), (path, text)
            changed = [(one, other) for one, other in zip(normal, found, strict=True) if one != other]
            assert [shape(other) for _, other in changed] == [shape(one) for one, _ in changed], (path, text)
    assert accepted, "every value was refused: the test would prove nothing of quoting"


@pytest.mark.parametrize("text", [each for each in HOSTILE if each])
def test_environment_values_of_a_recipe_are_quoted(text: str) -> None:
    recipe = replace(locks.RECIPES["alpha"], env={"ALPHA_LOG": text})
    try:
        made = render(locks.cpu(), {"alpha": recipe}, TEMPLATES)["Dockerfile"]
    except InvalidInputError:
        assert re.search(r"[\x00-\x1f\u2028]", text)
        return
    line = next(line for line in made.splitlines() if line.startswith("ENV ALPHA_LOG="))
    value = line.removeprefix('ENV ALPHA_LOG="').removesuffix('" MPLBACKEND="Agg"')
    assert re.sub(r"\\(.)", r"\1", value) == text
    assert not re.search(r'(?<!\\)(\\\\)*[$"]', value)


def test_a_users_own_recipe_adds_a_stage_and_what_starts_its_services() -> None:
    made = rendering(locks.own())
    assert {"envbuild-start", "services/jupyter", "services/ssh"} <= made.keys()
    stage = made["Dockerfile"].partition(" AS custom\n")[2].partition("\nFROM ")[0]
    assert "copy-file /mnt/files/0 /workspace/train.py /workspace/train.py;" in stage
    assert "copy-file /mnt/files/1 /etc/lab\n" in stage
    assert "EXPOSE 2222 8000 8888" in stage
    assert "apt-install ffmpeg git=1:2.39 openssh-server;" in stage
    assert "rename-user envbuild me" in stage
    assert " gcc g++ python3.11-dev\n" in made["Dockerfile"], "a source package may need a compiler"
    lock = locks.own()
    custom = replace(lock.environment.custom, apt_build=("libpq-dev",))
    made = rendering(replace(lock, environment=replace(lock.environment, custom=custom)))
    assert " gcc g++ python3.11-dev libpq-dev\n" in made["Dockerfile"]
    assert "libpq-dev" not in made["Dockerfile"].partition(" AS packages\n")[2], "nothing of it stays"
    plain = rendering(locks.cpu())
    assert not [name for name in plain if "service" in name or name == "envbuild-start"]
    assert "AS custom" not in plain["Dockerfile"]


def test_a_users_own_recipe_that_adds_nothing_adds_no_step() -> None:
    lock = locks.own()
    nothing = replace(
        lock.environment.custom, pip=(), newer=(), apt=(), files=(), user="", ports=(), services=()
    )  # fmt: skip
    made = rendering(replace(lock, environment=replace(lock.environment, custom=nothing)))
    stage = made["Dockerfile"].partition(" AS custom\n")[2].partition("\nFROM ")[0]
    assert [line for line in stage.splitlines() if line] == []


def test_a_service_without_a_script_is_refused() -> None:
    lock = locks.own()
    gone = replace(lock.environment.custom.services[0], name="gone")
    custom = replace(lock.environment.custom, services=(gone,))
    with pytest.raises(InvalidInputError, match="No script starts the service 'gone'"):
        rendering(replace(lock, environment=replace(lock.environment, custom=custom)))

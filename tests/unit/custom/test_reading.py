"""``envbuild.yaml`` is read strictly, and all errors are reported at once. The file that `init` writes can be read again."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

import envbuild
from envbuild.custom import paths, reading, writing
from envbuild.custom.reading import UserRecipe
from envbuild.custom.services import load_services
from envbuild.custom.writing import Wishes
from envbuild.errors import InvalidInputError, UsageError
from envbuild.model.custom import CopiedFile, Custom, Service
from envbuild.workspace import Workspace

SCHEMA = json.loads((Path(envbuild.__file__).parent / "schemas" / "envbuild.json").read_text())
WEB = Service(name="web", pip=("flask",), apt=("curl",), ports=(8080,))
SSH = Service(name="shell", pip=(), apt=("sshd",), ports=(2222,))
SERVICES = {service.name: service for service in (WEB, SSH)}

WHOLE = """\
schema: 1
name: my-lab
frameworks: [alpha-1.0, beta]
python: "3.9"
python_from: uv
os: plain1
driver: "535.104"
gpu: [big, small]
pip: [Pandas>=1, "scikit-learn[extra]<2"]
requirements: more.txt
newer: [Scikit_Learn]
apt: [git, ffmpeg=7:5.1]
apt_build: [libpq-dev]
files:
  - {source: train.py, target: /workspace/}
  - {source: ./conf, target: /etc/lab}
user: alice
ports: [8000]
services: [web]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lab = tmp_path / "lab"
    (lab / "conf" / "deep").mkdir(parents=True)
    (lab / "train.py").write_text("print()\n")
    (lab / "conf" / "deep" / "a.yaml").write_text("a: 1\n")
    (lab / "more.txt").write_text("# what the paper used\n\ntqdm==4.1  # bars\npandas>=1\n")
    (tmp_path / "outside.txt").write_text("not yours\n")
    return lab


def read(folder: Path, text: str) -> UserRecipe:
    path = folder / "envbuild.yaml"
    path.write_text(text)
    return reading.load(path, SERVICES)


def problems(folder: Path, *lines: str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(folder, "\n".join(("schema: 1", "frameworks: [alpha]", *lines)))
    return [f"{problem.line}: {problem.message}" for problem in caught.value.problems]


def test_every_key_is_read(folder: Path) -> None:
    recipe = read(folder, WHOLE)
    assert (recipe.name, recipe.request) == ("my-lab", ("alpha-1.0", "beta"))
    assert recipe.insists == {"python": "3.9", "python_from": "uv", "system": "plain1", "driver": "535.104", "gpu": "big,small"}
    assert recipe.custom == Custom(
        request=("alpha-1.0", "beta", "--python=3.9", "--python-from=uv", "--os=plain1", "--driver=535.104", "--gpu=big,small"),
        pip=("Pandas>=1", "scikit-learn[extra]<2", "tqdm==4.1", "pandas>=1"),
        newer=("scikit-learn",),
        apt=("git", "ffmpeg=7:5.1"),
        apt_build=("libpq-dev",),
        files=(
            CopiedFile(source="train.py", target="/workspace/train.py"),
            CopiedFile(source="conf/", target="/etc/lab/"),
        ),
        user="alice",
        ports=(8000,),
        services=(WEB,),
    )
    assert recipe.custom.requirements()[-1] == "flask"
    assert recipe.custom.system_packages() == ("git", "ffmpeg=7:5.1", "curl")
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(WHOLE))


def test_the_least_there_is_takes_the_name_of_its_folder(folder: Path) -> None:
    assert read(folder, "schema: 1\nframeworks: [alpha]\n").name == "lab"
    other = folder / "paper.yaml"
    other.write_text("schema: 1\nframeworks: [alpha]\n")
    assert reading.load(other, SERVICES).name == "paper"


def test_the_schema_knows_exactly_the_keys_that_are_read(folder: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(folder, "schema: 1\nframeworks: [alpha]\n" + "".join(f"{key}x: 1\n" for key in SCHEMA["properties"]))
    meant = {problem.message.rpartition("did you mean ")[2].rstrip("?") for problem in caught.value.problems}
    assert meant == set(SCHEMA["properties"])


def test_everything_that_is_wrong_is_told_at_once_with_its_line(folder: Path) -> None:
    found = problems(
        folder, "framework: [x]", "python: 3.10", "apt: [Not a package]", "user: root", "ports: [0, '80']", "services: [webb]"
    )
    assert found == [
        "3: framework: unknown key, did you mean frameworks?",
        '4: python: YAML reads 3.10 as a number: quote it, "3.10"',
        "5: apt: 'Not a package' does not have the expected form",
        "6: user: images run as an unprivileged user; to run one as root, use `docker run --user 0`",
        "7: ports: 0 is not between 1 and 65535",
        "7: ports: integers expected, found '80'",
        "8: services: 'webb' is not a service; did you mean web?",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("git+https://example.org/x.git", "not from a package index"),
        ("x @ https://example.org/x.whl", "not from a package index"),
        ("./mine", "not from a package index"),
        ("mine-1.0-py3-none-any.whl", "not from a package index"),
        ("-e .", "is an option of pip"),
        ("--index-url https://example.org", "is an option of pip"),
        ("numpy>=>1", "is not a requirement"),
    ],
)
def test_what_no_lock_could_hold_is_refused_in_both_places(folder: Path, text: str, why: str) -> None:
    (folder / "more.txt").write_text(f"six\n{text}\n")
    found = problems(folder, f"pip: [{json.dumps(text)}]", "requirements: more.txt")
    assert len(found) == 2
    assert all(why in each for each in found)
    assert {each.partition(":")[0] for each in found} == {"3", "2"}


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("../outside.txt", "/workspace/", "outside the folder"),
        ("/etc/passwd", "/workspace/", "outside the folder"),
        ("escape.txt", "/workspace/", "outside the folder"),
        ("linked", "/workspace/linked", "a link to a folder"),
        ("empty", "/workspace/", "contains no files"),
        ("nothing.py", "/workspace/", "does not exist"),
        ("train.py", "workspace/", "is not an absolute path in the image"),
        ("train.py", "/workspace/../opt/x", "is not an absolute path in the image"),
        ("train.py", "/with blank", "is not an absolute path in the image"),
        ("train.py", "/opt/env/bin/python", "is reserved"),
        ("conf", "/opt/envbuild/", "is reserved"),
    ],
)
def test_files_stay_inside_and_keep_out_of_what_is_ours(folder: Path, source: str, target: str, why: str) -> None:
    (folder / "escape.txt").symlink_to("../outside.txt")
    (folder / "linked").mkdir()
    (folder / "empty").mkdir()
    (folder / "linked" / "to").symlink_to("../conf")
    found = problems(folder, "files:", f"  - {{source: {json.dumps(source)}, target: {json.dumps(target)}}}")
    assert len(found) == 1
    assert found[0].startswith("4: ")
    assert why in found[0]


def test_a_link_in_a_folder_that_leads_out_of_it_is_no_way_out(folder: Path) -> None:
    (folder / "conf" / "secret").symlink_to("/etc/hostname")
    assert "leads outside" in problems(folder, "files:", "  - {source: conf, target: /etc/lab}")[0]


def test_a_folder_is_copied_without_what_tools_keep_there(folder: Path) -> None:
    from envbuild.custom.copying import contents

    for name in (".git", ".envbuild", "__pycache__"):
        (folder / "conf" / name).mkdir()
        (folder / "conf" / name / "x").write_text("")
    found = contents(folder, CopiedFile(source="conf/", target="/etc/lab/"))
    assert [path for path, _ in found] == ["deep/a.yaml"]


def test_a_folder_whose_name_no_image_can_have_is_told_to_give_one(tmp_path: Path) -> None:
    odd = tmp_path / "My Lab"
    odd.mkdir()
    assert "name is missing, and the folder name 'My Lab'" in problems(odd)[0]


@pytest.mark.parametrize(
    "wishes",
    [
        Wishes(name="lab", frameworks=("alpha",), python="", pip=(), apt=(), services=()),
        Wishes(
            name="lab", frameworks=("alpha-1", "beta>=2"), python="3.9", pip=("x<2,>=1", 'y; python_version < "3.9"'),
            apt=("git",), services=("web", "shell"),
        ),
    ],
    ids=["nothing", "everything"],
)  # fmt: skip
def test_what_init_writes_is_read_again(folder: Path, wishes: Wishes) -> None:
    text = writing.text(wishes, tuple(SERVICES))
    recipe = read(folder, text)
    assert (recipe.name, recipe.request) == (wishes.name, wishes.frameworks)
    assert (recipe.insists.get("python", ""), recipe.custom.apt) == (wishes.python, wishes.apt)
    assert recipe.custom.pip == wishes.pip
    assert tuple(service.name for service in recipe.custom.services) == wishes.services
    written = {line.lstrip("# ").partition(":")[0] for line in text.splitlines()}
    assert set(SCHEMA["properties"]) - written == {"base"}  # the file shows every other key


def test_its_comments_are_right_too(folder: Path) -> None:
    """With every commented key activated, the recipe is valid."""
    text = writing.text(Wishes(name="lab", frameworks=("alpha",), python="", pip=(), apt=(), services=()), ("web", "shell"))
    lines = [line.removeprefix("# ") if _is_a_key(line) else line for line in text.splitlines()]
    (folder / "requirements.txt").write_text("six\n")
    taken = read(folder, "\n".join(lines))
    assert taken.insists.keys() == {"python", "python_from", "system", "driver", "gpu"}
    assert taken.custom.files
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load("\n".join(lines)))


def _is_a_key(line: str) -> bool:
    return line.startswith("#   - ") or (line.startswith("# ") and line[2:].partition(":")[0] in SCHEMA["properties"])


def test_which_words_are_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "envbuild.yaml"
    file.write_text("")
    monkeypatch.chdir(folder)
    assert paths.path_in(["tf-1.12", "cuda>=9"]) is None
    assert paths.path_in(["envbuild.yaml"]) == Path("envbuild.yaml")
    assert paths.path_in(["."]) == Path("envbuild.yaml")
    assert paths.path_in([str(folder)]) == file
    with pytest.raises(UsageError) as caught:
        paths.path_in(["conf/"])
    assert "envbuild init conf" in caught.value.hint
    with pytest.raises(UsageError, match=r"names an envbuild\.yaml, so no other request can be given"):
        paths.path_in(["./envbuild.yaml", "tf-1.12"])


def test_services_are_read_strictly(tmp_path: Path) -> None:
    services = tmp_path / "images" / "services"
    services.mkdir(parents=True)
    (services / "web.yaml").write_text("schema: 1\nservice: web\npip: [flask]\nports: [8080]\napt: [curl]\n")
    (services / "web.sh").write_text("")
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path)
    assert load_services(workspace) == {"web": WEB}
    (services / "bad.yaml").write_text("schema: 1\nservice: other\nport: 1\n")
    with pytest.raises(InvalidInputError) as caught:
        load_services(workspace)
    assert [problem.message for problem in caught.value.problems] == [
        "bad.sh, which starts it, is missing",
        "service: must be 'bad', the name of the file, not 'other'",
        "port: unknown key, did you mean ports?",
    ]

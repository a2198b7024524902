"""Wheels with wrong metadata or RECORD, pinned by their hash like honest ones: no image with such a wheel gets a tag."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import smoke_toy

from envbuild import verify
from envbuild.engine.client import Engine
from envbuild.errors import BuildError, VerifyError
from envbuild.index.client import Index
from envbuild.model.lock import Artifact, Lock
from envbuild.verify import rules
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]
FILE = "honest-1.0-py3-none-any.whl"
SHARED = [f"shared/{number}.py" for number in range(40)]
SITE = "/opt/env/lib/python3.11/site-packages"
METADATA = "Metadata-Version: 2.1\nName: honest\nVersion: 1.0\n"
RULES = rules.load(smoke_toy.ROOT / "images")


def wheel(*, metadata: str = METADATA, files: Mapping[str, str], lines: Mapping[str, str], info: str = "honest-1.0") -> bytes:
    """A wheel of ``files`` whose RECORD is right except for ``lines``, which replace the lines of some paths.

    An empty line hides the file.
    """
    own = {"METADATA": metadata, "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    held = {f"{info}.dist-info/{name}": text for name, text in own.items()} | dict(files)
    told = {path: record_line(path, text) for path, text in held.items()} | dict(lines)
    record = f"{info}.dist-info/RECORD"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in held.items():
            archive.writestr(path, text)
        archive.writestr(record, "\n".join([*filter(None, told.values()), f"{record},,", ""]))
    return content.getvalue()


def record_line(path: str, text: str) -> str:
    """A line of RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(text.encode())}"


class IndexWith(Index):
    """The host's index and more wheels. The build gets the wheels in its secret, so that no layer contains them."""

    def __init__(self, wheels: Mapping[str, bytes]) -> None:
        super().__init__()
        self.wheels = wheels

    def build_secrets(self) -> dict[str, bytes]:
        secrets = super().build_secrets()
        folder = "/dev/shm/wheels"
        copies = "\n".join(
            f"echo {base64.b64encode(content).decode()} | base64 -d > {folder}/{file}" for file, content in self.wheels.items()
        )
        lines = f"""
mkdir -p {folder}
{copies}
export UV_FIND_LINKS="{folder}${{UV_FIND_LINKS:+,${{UV_FIND_LINKS}}}}"
"""
        secrets["envbuild-env"] = secrets.get("envbuild-env", b"") + lines.encode()
        return secrets


def build(engine: Engine, workspace: Workspace, folder: Path, content: bytes, more: Mapping[str, bytes] | None = None) -> None:
    """Build the toy environment with this wheel and ``more`` wheels. As in `envbuild build`, it is verified before it gets a
    tag.
    """
    wheels = {FILE: content} | dict(more or {})

    def locked(lock: Lock) -> Lock:
        artifacts = [
            Artifact(
                name=file.partition("-")[0], version="1.0", filename=file, sha256=hashlib.sha256(content).hexdigest(),
                index="default", project=file.partition("-")[0], size=len(content),
            )
            for file, content in wheels.items()
        ]  # fmt: skip
        (prefix,) = lock.prefixes
        return dataclasses.replace(lock, prefixes=(dataclasses.replace(prefix, artifacts=(*prefix.artifacts, *artifacts)),))

    def check(lock: Lock, image: str, base: str) -> None:
        report = verify.verify(engine, lock, image, base=base, rules=RULES)
        assert any(note.startswith("4 files of honest have no hash") for note in report.notes)
        shared = [note for note in report.notes if "same path" in note]
        assert shared == [
            f"{name} and shared-c have different files at the same path: the image has those of shared-c "
            f"({len(SHARED)} in all, such as {SITE}/{SHARED[0]})"
            for name in ("shared-a", "shared-b")
        ]
        report.require()

    smoke_toy.make(engine, workspace, folder, locked, index=IndexWith(wheels), check=check)


def test_what_a_wheel_says_wrongly_or_requires_in_vain_is_a_difference(
    engine: Engine, workspace: Workspace, tmp_path: Path
) -> None:
    files = {f"{name}.py": f"name = '{name}'\n" for name in ("right", "edited", "concealed", "unhashed", "weak")}
    outside = "honest-1.0.data/data/../../etc/outside"
    lines = {
        "edited.py": record_line("edited.py", "name = 'EDITED'\n"),
        "concealed.py": "",
        "unhashed.py": "unhashed.py,,",
        "weak.py": f"weak.py,md5={base64.urlsafe_b64encode(hashlib.md5(files['weak.py'].encode()).digest()).decode()},",
        outside: "",
    }
    metadata = f"{METADATA}Requires-Dist: numpy<1\nRequires-Dist: pickled-cucumber\nRequires-Python: >=3.14\n"
    content = wheel(metadata=metadata, files=files | {outside: "x"}, lines=lines, info="liar-1.0")
    with pytest.raises(VerifyError) as refused:
        build(engine, workspace, tmp_path / "lies", content, sharing())
    assert refused.value.exit_code == 8
    found = {(each.where, re.sub(r"3\.11\.\d+", "3.11.N", each.message)) for each in refused.value.problems}
    assert found == {
        (f"{SITE}/edited.py", "modified since it was installed (of honest)"),
        ("/opt/env: honest", "lies in liar-1.0.dist-info, the folder of another package: Python cannot find it by its name"),
        ("/opt/env: honest 1.0", "requires numpy<1, and 1.26.4 is installed"),
        ("/opt/env: honest 1.0", "requires pickled-cucumber, which is not installed"),
        ("/opt/env: honest 1.0", "requires Python >=3.14, and 3.11.N is installed"),
    }
    assert not engine.client.images.list("envbuild-test-lies")


def sharing() -> dict[str, bytes]:
    """Three packages with different files at the same paths; uv keeps any one of them. Their RECORDs list a folder."""
    return {
        f"shared_{name}-1.0-py3-none-any.whl": wheel(
            metadata=METADATA.replace("honest", f"shared-{name}"),
            files={path: f"name = '{name}'\n" for path in SHARED},
            lines={"shared/": "shared/,,"},
            info=f"shared_{name}-1.0",
        )
        for name in "cab"
    }


def test_a_record_that_lists_files_which_the_wheel_lacks_stops_every_build(
    engine: Engine, workspace: Workspace, tmp_path: Path
) -> None:
    """uv reports the error when it unpacks a wheel. The second build must not find the wheel already unpacked."""
    content = wheel(files={"right.py": ""}, lines={name: f"{name},," for name in ("folder/", "ghost.py", "more/ghost.py")})
    for name in ("first", "second"):
        with pytest.raises(BuildError) as refused:
            build(engine, workspace, tmp_path / name, content)
        assert (refused.value.exit_code, refused.value.code) == (7, "artifact-malformed")
        assert "The wheel of honest==1.0 lacks files that its RECORD lists" in refused.value.message
        assert "ghost.py" in refused.value.message
        assert not engine.client.images.list(f"envbuild-test-{name}")


@pytest.mark.parametrize("lie", ["Name: liar", pytest.param("Version: 2.0", marks=pytest.mark.prove)])
def test_another_name_or_version_in_the_metadata_stops_the_build(
    engine: Engine, workspace: Workspace, tmp_path: Path, lie: str
) -> None:
    key = lie.partition(":")[0]
    metadata = "".join(f"{lie if line.startswith(key) else line}\n" for line in METADATA.splitlines())
    with pytest.raises(BuildError) as refused:
        build(engine, workspace, tmp_path / "liar", wheel(metadata=metadata, files={"right.py": ""}, lines={}))
    assert refused.value.exit_code == 7
    assert refused.value.code == "artifact-malformed"
    assert f"{lie.split()[1]} != {'honest' if key == 'Name' else '1.0'}" in refused.value.message
    assert FILE in "\n".join(refused.value.details)
    assert not engine.client.images.list("envbuild-test-liar")

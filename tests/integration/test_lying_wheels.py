"""Wheels that lie about themselves, pinned by their hash as honest ones are: no image of theirs gets a tag."""

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
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]
FILE = "honest-1.0-py3-none-any.whl"
SITE = "/opt/env/lib/python3.11/site-packages"
METADATA = "Metadata-Version: 2.1\nName: honest\nVersion: 1.0\n"
RULES = verify.load_rules(smoke_toy.ROOT / "images")


def wheel(*, metadata: str = METADATA, files: Mapping[str, str], lines: Mapping[str, str], info: str = "honest-1.0") -> bytes:
    """A wheel of ``files``, whose RECORD is right but for the ``lines`` that it has for some paths; an empty one conceals."""
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
    """See https://packaging.python.org/en/latest/specifications/recording-installed-packages/."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(text.encode())}"


class IndexWith(Index):
    """The host's index and one more wheel, which the build gets in its secret: no layer holds that."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content

    def build_secrets(self) -> dict[str, bytes]:
        secrets = super().build_secrets()
        folder = "/dev/shm/wheels"
        lines = f"""
mkdir -p {folder}
echo {base64.b64encode(self.content).decode()} | base64 -d > {folder}/{FILE}
export UV_FIND_LINKS="{folder}${{UV_FIND_LINKS:+,${{UV_FIND_LINKS}}}}"
"""
        secrets["envbuild-env"] = secrets.get("envbuild-env", b"") + lines.encode()
        return secrets


def build(engine: Engine, workspace: Workspace, folder: Path, content: bytes) -> None:
    """The toy with this wheel, verified before it gets a tag, as `envbuild build` does it."""

    def locked(lock: Lock) -> Lock:
        artifact = Artifact(
            name="honest", version="1.0", filename=FILE, sha256=hashlib.sha256(content).hexdigest(), index="default",
            project="honest", size=len(content),
        )  # fmt: skip
        (prefix,) = lock.prefixes
        return dataclasses.replace(lock, prefixes=(dataclasses.replace(prefix, artifacts=(*prefix.artifacts, artifact)),))

    def check(lock: Lock, image: str, base: str) -> None:
        report = verify.verify(engine, lock, image, base=base, rules=RULES)
        assert any(note.startswith("4 files of honest have no hash") for note in report.notes)
        report.require()

    smoke_toy.make(engine, workspace, folder, locked, index=IndexWith(content), check=check)


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
        build(engine, workspace, tmp_path / "lies", content)
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

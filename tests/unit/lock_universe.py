"""A small package index in memory with real wheels and source archives."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.errors import BuildError, UnknownNameError
from envbuild.index.project_pages import IndexFile
from envbuild.model.environment import Base, Environment, Framework, Python, System

TOYOS = System(
    name="toyos12", family="debian", version="12", codename="toy", image="toyos:12", glibc="2.36", bootstrap_suite="toy",
    init_package="tini", init="/usr/bin/tini", packages=("ca-certificates",),
)  # fmt: skip


def wheel(name: str, version: str, requires: tuple[str, ...] = (), *, said: str = "") -> bytes:
    """A wheel with METADATA; ``said`` is the version in METADATA if it is a wrong one."""
    out = io.BytesIO()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {said or version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    with zipfile.ZipFile(out, "w") as archive:
        entry = zipfile.ZipInfo(f"{name.replace('-', '_')}-{version}.dist-info/METADATA")
        archive.writestr(entry, "\n".join(lines) + "\n\n")
    return out.getvalue()


def source(name: str, version: str, requires: tuple[str, ...] = (), *, setup: str = "setup()") -> bytes:
    """A source archive in the form that setuptools wrote for a decade."""
    out = io.BytesIO()
    files = {
        "PKG-INFO": f"Metadata-Version: 1.1\nName: {name}\nVersion: {version}\n",
        f"{name}.egg-info/requires.txt": "\n".join(requires),
        "setup.py": setup,
    }
    with tarfile.open(fileobj=out, mode="w") as archive:
        for inner, text in files.items():
            info = tarfile.TarInfo(f"{name}-{version}/{inner}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


class Universe:
    """Replaces ``envbuild.index.Index``; ``down`` names the indexes that do not answer."""

    def __init__(self) -> None:
        self.pages: dict[tuple[str, str], list[IndexFile]] = {}
        self.contents: dict[str, bytes] = {}
        self.down: set[str] = set()
        self.asked: list[str] = []
        self.notes: tuple[str, ...] = ()

    def add(
        self, filename: str, requires: tuple[str, ...] = (), *, day: str = "2018-01-01", python: str = "",
        index: str = "default", said: str = "", yanked: bool = False, setup: str = "setup()",
    ) -> IndexFile:  # fmt: skip
        """Publish a file. Its content is generated from its name and requirements."""
        if filename.endswith(".whl"):
            name, version = filename.split("-")[:2]
            content = wheel(name, version, requires, said=said)
        else:
            name, _, version = filename.removesuffix(".tar.gz").rpartition("-")
            content = source(name, version, requires, setup=setup)
        file = IndexFile(
            index=index, project=canonicalize_name(name), filename=filename, url=f"toy:{index}/{filename}",
            sha256=hashlib.sha256(content).hexdigest(), size=len(content), uploaded=f"{day}T12:00:00Z" if day else "",
            requires_python=python, yanked=yanked, metadata=None,
        )  # fmt: skip
        self.pages.setdefault((index, file.project), []).append(file)
        self.contents[file.url] = content
        return file

    def project_files(self, project: str, index: str = "default") -> list[IndexFile]:
        if index in self.down:
            raise BuildError(f"{index} does not answer", code="index-unreachable")
        self.asked.append(project)
        try:
            return self.pages[index, canonicalize_name(project)]
        except KeyError:
            raise UnknownNameError(f"no {project}", code="unknown-project") from None

    def skipped(self, project: str, index: str = "default") -> tuple[str, ...]:
        return ()

    def prefetch(self, projects, index: str = "default") -> None:
        pass

    def read_range(self, url: str, start: int, end: int | None):
        content = self.contents[url]
        part = content[start:] if start < 0 else content[start : None if end is None else end + 1]
        return part, len(content)

    def download(self, file: IndexFile, folder: Path, on_progress=None, *, sha256: str = "") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.filename).write_bytes(self.contents[file.url])
        return folder / file.filename

    def sizes(self, files) -> list[int | None]:
        return [file.size for file in files]


def framework(package: str = "alpha", version: str = "1.0", *requirements: str, **changes) -> Framework:
    base = Framework(
        name=package, version=version, package=package, variant="cpu", requirements=requirements or (f"{package}=={version}",),
        constraints=(), recipe=package, released="2018-06-30", index="default", cuda_libraries="none", options={},
    )  # fmt: skip
    return replace(base, **changes)


def environment(*frameworks: Framework, python: str = "3.6", exclude_newer: str = "2018-06-30", **changes) -> Environment:
    base = Environment(
        name=f"alpha-1.0-cpu-py{python.replace('.', '')}-toyos12", frameworks=frameworks or (framework(),),
        python=Python(version=python, provided_by="distribution", executable=f"/usr/bin/python{python}", packages=()),
        system=TOYOS, cuda=None, cudnn=None, nccl=None,
        base=Base(provider="distribution", image="toyos:12", is_default=True, repositories=(), packages=(), other_providers=()),
        driver_min=None, compute_capability=None, require_cuda=None, exclude_newer=exclude_newer,
    )  # fmt: skip
    return replace(base, **changes)

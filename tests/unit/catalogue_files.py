"""A small catalogue, and the files of its site."""

from __future__ import annotations

from dataclasses import replace

from envbuild.catalogue import model
from envbuild.catalogue.machines import Machines
from envbuild.catalogue.pages import pages
from envbuild.matrix.gpu_names import patterns

NO_MACHINES = Machines(
    drivers=(),
    branches=("384",),
    boards=(),
    capabilities=(),
    about=("",),
    texts=(),
    outcomes=(),
    cells=(),
    names=patterns(),
    vendors=(),
)


def entry(name: str = "widget-1.2.0-cpu-py36-plain1", **changes: object) -> model.CatalogueEntry:
    made = model.CatalogueEntry(
        name=name,
        why="the newest",
        frameworks=(
            model.FrameworkEntry(
                name="widget",
                title="Widget",
                version="1.2.0",
                package="widget",
                released="2018-01-01",
                source="https://example.org/w",
            ),
        ),
        python="3.6",
        os="plain1",
        cuda=None,
        cudnn=None,
        nccl=None,
        driver_min=None,
        sass=(),
        ptx=(),
        only_ptx=(),
        base="plain:1",
        base_provider="distribution",
        base_digest="",
        choices=(model.Choice(what="widget 1.2.0", because="the newest", source="https://example.org/w"),),
        warnings=(),
        proofs=(
            model.Proved(kind="locked", date="2026-01-02", engine="", where="repository"),
            model.Proved(kind="built", date="2026-02-03", engine="Docker", where="this machine"),
        ),
        ends=(model.EndOfSupport(what="Python 3.6", date="2021-12-23", source="https://example.org/python"),),
        lock=model.LockEntry(
            sha256="a" * 64,
            missing=(),
            parts=(
                model.InstalledPart(title="Python packages", files=(file("widget", "1.2.0", 1500), file("shared", "1.9", 0))),
            ),
        ),
        sbom=f"sbom/{name}.cdx.json",
        page=f"environments/{name}.html",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def file(name: str, version: str, length: int) -> model.File:
    return model.File(name=name, version=version, filename=f"{name}.whl", sha256="b" * 64, size=length, source="PyPI")


def row(name: str, page: str) -> model.SearchRow:
    return model.SearchRow(
        name=name,
        frameworks=(("Widget", "1.2.0"),),
        python="3.6",
        os="plain1",
        cuda="",
        driver_min="",
        status="",
        released="2018-01-01",
        proofs=("locked",),
        page=page,
        builds=(),
    )


def catalogue(*entries: model.CatalogueEntry, title: str = "Environments") -> model.Catalogue:
    rows = tuple(row(each.name, each.page) for each in entries)
    return model.Catalogue(
        schema=1,
        made_by="envbuild 0",
        title=title,
        updated="2026-02-03",
        matrix="c" * 64,
        since="",
        words={"Widget": "w"},
        entries=entries,
        rows=(*rows, row("widget-1.1.0-cpu-py36-plain1", "")),
    )


def made(whole: model.Catalogue, **options: object) -> dict[str, str]:
    return dict(pages(whole, NO_MACHINES, shm_size="2g", **options))  # type: ignore[arg-type]

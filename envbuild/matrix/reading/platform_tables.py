"""Readers of all tables except those about frameworks and GPUs: one function for each kind of row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args

from envbuild.matrix.platform import (
    ArchiveRow,
    BuildTool,
    CudaRelease,
    CudaRow,
    DriverRow,
    DriverRule,
    LibraryPackage,
    LibraryRow,
    LibraryWheel,
    PackageRow,
    Provenance,
    ProviderRow,
    PythonRow,
    PythonSupply,
    RepositoryRow,
    SourceArchiveRow,
    SystemPython,
    SystemRow,
)
from envbuild.matrix.reading import cuda_sets
from envbuild.matrix.reading.context import NAME, URL, Context, date, descending, minor, unique, version
from envbuild.matrix.types import MatrixPolicy
from envbuild.matrix.versions import BRANCH, CUDA_OR_MAJOR, NUMBERS, has_prefix
from envbuild.model.words import Provider, PythonFrom
from envbuild.yaml_reader import Table

T = TypeVar("T")
Files = list[tuple[Table, Provenance]]
APT_SOURCE = r"deb https?://[A-Za-z0-9._/:-]+ [a-z0-9./-]+( [a-z]+)+"
PROVIDERS = get_args(Provider)
PYTHON_FROM = get_args(PythonFrom)
_LARGEST_TOOL = 1 << 30  # bytes; no program that installs packages is larger
DRIVER_KINDS = ("long-term support", "production", "new feature", "developer", "legacy")


def rows(
    context: Context, files: Files, name: str, key: Callable[[T], str], read: Callable[[Context, Table, Provenance], T]
) -> list[T]:
    """All rows of one table from all files, in the order of the files."""

    def each() -> Iterator[tuple[str, Table, T]]:
        for file, defaults in files:
            for table in file.tables(name):
                row = read(context, table, defaults)
                table.finish()
                yield f"{name} {key(row)}", table, row

    return unique(context, each())


def policy(table: Table) -> MatrixPolicy:
    """Read ``policy`` of the entry file; both of its keys are required."""
    found = table.table("policy", required=True)
    if found is None:
        return MatrixPolicy(dependency_margin_days=0, python_from=())
    order: tuple[Any, ...] = found.texts("python_from", required=True)
    for text in order:
        if text not in PYTHON_FROM:
            found.problem(f"{text!r} is not one of {', '.join(PYTHON_FROM)}", "python_from")
    result = MatrixPolicy(
        dependency_margin_days=found.integer("dependency_margin_days"),
        python_from=tuple(text for text in order if text in PYTHON_FROM),
    )
    found.finish()
    return result


def system(context: Context, table: Table, defaults: Provenance) -> SystemRow:
    """A row of ``systems``."""
    init = table.table("init")
    package, path = ("", "") if init is None else (init.text("package", pattern=NAME), init.text("path", pattern=r"/\S+"))
    if init is not None:
        init.finish()
    return SystemRow(
        name=table.text("name", pattern=NAME).lower(),
        family=table.text("family", pattern=NAME),
        version=version(table, "version"),
        codename=table.text("codename", pattern=NAME),
        image=table.text("image", pattern=r"\S+"),
        digest=table.text("digest", "", pattern=r"sha256:[0-9a-f]{64}"),
        glibc=version(table, "glibc"),
        gcc=version(table, "gcc", ""),
        mirror=table.text("mirror", "", pattern=URL),
        archive=table.texts("archive", pattern=APT_SOURCE),
        snapshot=table.text("snapshot", "", pattern=URL),
        released=date(table, "released", ""),
        end_of_life=date(table, "end_of_life", ""),
        bootstrap_suite=table.text("bootstrap_suite", "", pattern=NAME),
        init_package=package,
        init=path,
        packages=table.texts("packages", pattern=NAME),
        pythons=tuple(_system_python(item) for item in table.tables("pythons")),
        preference=table.integer("preference", 0),
        origin=context.origin(table, defaults),
    )


def _system_python(table: Table) -> SystemPython:
    row = SystemPython(
        version=minor(table, "version"),
        packages=table.texts("packages", required=True, pattern=NAME),
        executable=table.text("executable", pattern=r"/\S+"),
    )
    table.finish()
    return row


def python(context: Context, table: Table, defaults: Provenance) -> PythonRow:
    """A row of ``pythons``."""
    supplies = []
    for item in table.tables("from"):
        by = item.choice("by", ("uv", "conda"))
        supplies.append(
            PythonSupply(
                by=by,
                glibc=version(item, "glibc"),
                executable=item.text("executable", pattern=r"/\S+"),
                installer=item.text("installer", "", pattern=NAME),
                files=item.texts("files", pattern=NAME),
            )
        )
        item.finish()
    return PythonRow(
        version=minor(table, "version"),
        released=date(table, "released", ""),
        end_of_life=date(table, "end_of_life", ""),
        preference=table.integer("preference", 0),
        supplies=tuple(supplies),
        origin=context.origin(table, defaults),
    )


def archive(context: Context, table: Table, defaults: Provenance) -> ArchiveRow:
    """A row of ``archives``."""
    return ArchiveRow(
        name=table.text("name", pattern=NAME),
        url=table.text("url", pattern=URL),
        sha256=table.text("sha256", pattern=r"[0-9a-f]{64}"),
        origin=context.origin(table, defaults),
    )


def build_tool(context: Context, table: Table, defaults: Provenance) -> BuildTool:
    """A row of ``build_tools``."""
    row = BuildTool(
        name=table.text("name", pattern=r"[a-z0-9]+(-[a-z0-9]+)*"),
        version=table.text("version", pattern=NUMBERS),
        filename=table.text("filename", pattern=r"[A-Za-z0-9][A-Za-z0-9._+-]*\.whl"),
        sha256=table.text("sha256", pattern=r"[0-9a-f]{64}"),
        size=table.integer("size", least=1, most=_LARGEST_TOOL),
        origin=context.origin(table, defaults),
        pythons=table.texts("python"),
    )
    for unknown in sorted(set(row.pythons) - context.pythons):
        table.problem(f"the matrix has no Python {unknown}", "python")
    if not row.filename.startswith(f"{row.name.replace('-', '_')}-{row.version}-"):
        table.problem(f"the file name does not contain '{row.name}' and '{row.version}'", "filename")
    return row


def source_archive(context: Context, table: Table, defaults: Provenance) -> SourceArchiveRow:
    """A row of ``source_archives``."""
    return SourceArchiveRow(
        repository=table.text("repository", pattern=URL),
        revision=table.text("revision", pattern=r"[0-9a-f]{40}"),
        sha256=table.text("sha256", pattern=r"[0-9a-f]{64}"),
        origin=context.origin(table, defaults),
    )


def driver(context: Context, table: Table, defaults: Provenance) -> DriverRow:
    """A row of ``drivers``."""
    return DriverRow(
        branch=table.text("branch", pattern=BRANCH),
        max_cuda=minor(table, "max_cuda"),
        kind=table.choice("kind", DRIVER_KINDS, ""),
        released=date(table, "released", ""),
        end_of_life=date(table, "end_of_life", ""),
        latest=version(table, "latest", ""),
        origin=context.origin(table, defaults),
    )


def driver_rule(context: Context, table: Table, defaults: Provenance) -> DriverRule:
    """A row of ``driver_rules``."""
    return DriverRule(
        cuda_major=table.text("cuda_major", pattern=r"\d{1,3}"),
        driver_min=version(table, "driver_min"),
        origin=context.origin(table, defaults),
    )


def repository(context: Context, table: Table, defaults: Provenance) -> RepositoryRow:
    """A row of ``repositories``."""
    return RepositoryRow(
        name=table.text("name", pattern=NAME),
        url=table.text("url", pattern=URL),
        suite=table.text("suite"),
        components=table.text("components", "", pattern=".*"),
        key_url=table.text("key_url", pattern=URL),
        key_fingerprint=table.text("key_fingerprint", pattern=r"[0-9A-Fa-f]{40}").upper(),
        origin=context.origin(table, defaults),
    )


def cuda(context: Context, table: Table, defaults: Provenance) -> CudaRow:
    """A row of ``cuda``."""
    number = minor(table, "version")
    limits = table.table("capabilities", required=True)
    low, high = ("", "") if limits is None else (minor(limits, "min"), minor(limits, "max"))
    if limits is not None:
        limits.finish()
    origin = context.origin(table, defaults)
    releases = descending(
        (_cuda_release(context, item, origin, number) for item in table.tables("releases")), lambda row: row.version
    )
    newest = releases[0] if releases else None
    least = version(table, "driver_min", (newest.driver_min if newest else "") or None)
    row = CudaRelease(
        version=version(table, "release", newest.version if newest else number or "0"),
        released=date(table, "released", newest.released if newest else ""),
        driver_min=least,
        installer_driver="" if releases else _installer_driver(table, least),
        origin=origin,
    )
    return CudaRow(
        version=number,
        release=row.version,
        released=row.released,
        driver_min=row.driver_min,
        capability_min=low,
        capability_max=high,
        gcc_max=table.text("gcc_max", "", pattern=CUDA_OR_MAJOR),
        forward_compat=table.texts("forward_compat", pattern=BRANCH),
        require=table.text("require", ""),
        releases=releases or (row,),
        providers=tuple(_provider(context, item, origin) for item in table.tables("providers")),
        origin=origin,
    )


def _cuda_release(context: Context, table: Table, parent: Provenance, minor: str) -> CudaRelease:
    number = version(table, "version")
    if number and minor and not has_prefix(number, minor):
        table.problem(f"{number} is not a release of {minor}", "version")
    least = version(table, "driver_min", "")
    row = CudaRelease(
        version=number,
        released=date(table, "released", ""),
        driver_min=least,
        installer_driver=_installer_driver(table, least),
        origin=context.origin(table, parent),
    )
    table.finish()
    return row


def _installer_driver(table: Table, usual: str) -> str:
    """Read the driver that the installer of a CUDA release contains. The row says ``none`` if the installer contains no driver.
    If the row says nothing, the installer contains the driver ``usual``."""
    said = table.text("installer_driver", usual, pattern=rf"none|{NUMBERS}")
    return "" if said == "none" else said


def _provider(context: Context, table: Table, parent: Provenance) -> ProviderRow:
    kind = table.text("provider", choices=PROVIDERS)
    packaged = cuda_sets.package_set_of(context, table) if kind == "debian" else None
    row = ProviderRow(
        provider=kind,
        system=packaged.system if packaged else _system_of(table, kind),
        image=table.text("image", "" if kind != "tag" else None, pattern=r"\S+"),
        digest=table.text("digest", "", pattern=r"sha256:[0-9a-f]{64}") if kind == "tag" else "",
        repositories=table.texts("repositories", required=kind == "apt", pattern=NAME),
        packages=tuple(package(item) for item in table.tables("packages", required=kind == "apt")),
        build_packages=tuple(package(item) for item in table.tables("build_packages")) if kind == "apt" else (),
        build_image=table.text("build_image", "", pattern=r"\S+") if kind == "tag" else "",
        files=table.texts("files", pattern=NAME) if kind == "conda" else (),
        installer=table.text("installer", "", pattern=NAME) if kind == "conda" else "",
        wheels=cuda_sets.wheels_of(context, table) if kind == "wheels" else None,
        package_set=packaged,
        cudnn=version(table, "cudnn", ""),
        nccl=version(table, "nccl", ""),
        preference=table.integer("preference", 0),
        origin=context.origin(table, parent),
    )
    table.finish()
    return row


def _system_of(table: Table, kind: str) -> str:
    return table.text("system", "" if kind not in ("apt", "tag") else None, pattern=NAME).lower()


def package(table: Table) -> PackageRow:
    """An apt package of a provider."""
    row = _package(table)
    table.finish()
    return row


def _package(table: Table) -> PackageRow:
    return PackageRow(
        name=table.text("name", pattern=NAME),
        version=table.text("version", pattern=r"[A-Za-z0-9.+:~-]+"),
        repository=table.text("repository", "", pattern=NAME),
        url=table.text("url", "", pattern=URL),
        sha256=table.text("sha256", "", pattern=r"[0-9a-f]{64}"),
    )


def library(context: Context, table: Table, defaults: Provenance, *, name: str) -> LibraryRow:
    """A row of ``cudnn`` or ``nccl``."""
    number = version(table, "version")
    origin = context.origin(table, defaults)
    packages = []
    for item in table.tables("apt"):
        runtime, dev = _package(item), item.text("dev", "", pattern=NAME)
        packages.append(
            LibraryPackage(
                cuda=item.text("cuda", pattern=CUDA_OR_MAJOR),
                system=item.text("system", pattern=NAME).lower(),
                package=runtime,
                origin=context.origin(item, origin),
                dev=runtime._replace(name=dev, url="", sha256="") if dev else None,
            )
        )
        item.finish()
    wheels = []
    for item in table.tables("wheels"):
        cuda_of = item.text("cuda", pattern=CUDA_OR_MAJOR)
        wheels.append(LibraryWheel(cuda=cuda_of, wheel=cuda_sets.wheel(item), origin=context.origin(item, origin)))
        item.finish()
    return LibraryRow(
        library=name,
        version=number,
        release=table.text("release", number, pattern=r"[0-9.]+(-[0-9]+)?"),
        released=date(table, "released", ""),
        cuda=table.texts("cuda", required=True, pattern=CUDA_OR_MAJOR),
        capability_min=minor(table, "capability_min", ""),
        apt=tuple(packages),
        origin=origin,
        wheels=tuple(wheels),
    )


def libraries(context: Context, files: Files, name: str) -> tuple[LibraryRow, ...]:
    """The rows of the table ``cudnn`` or ``nccl``, newest first."""
    found = rows(context, files, name, lambda row: row.version, lambda c, t, d: library(c, t, d, name=name))
    return descending(found, lambda row: row.version)

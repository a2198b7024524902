"""Readers of the tables about the packages that bring one CUDA version: wheels of the CUDA vendor, or packages of a
distribution."""

from __future__ import annotations

from envbuild.matrix.platform import PackageSet, Provenance, WheelRow, WheelSet
from envbuild.matrix.reading.context import NAME, Context, minor
from envbuild.matrix.versions import NUMBERS
from envbuild.yaml_reader import Table

FOLDER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*"  # a path below site-packages


def wheel_set(context: Context, table: Table, defaults: Provenance) -> WheelSet:
    """A row of ``wheel_sets``."""
    wheels = []
    for item in table.tables("wheels", required=True):
        wheels.append(wheel(item))
        item.finish()
    links = table.table("toolkit")
    toolkit = [] if links is None else [(name, links.text(name, pattern=FOLDER)) for name in links.keys()]  # noqa: SIM118
    return WheelSet(
        name=table.text("name", pattern=NAME),
        cuda=minor(table, "cuda"),
        wheels=tuple(wheels),
        toolkit=tuple(toolkit),
        apt=table.texts("apt", pattern=NAME),
        origin=context.origin(table, defaults),
    )


def wheel(table: Table) -> WheelRow:
    """A wheel of CUDA, cuDNN or NCCL."""
    return WheelRow(
        requirement=table.text("requirement", pattern=rf"[a-z0-9]+(-[a-z0-9]+)*=={NUMBERS}"),
        folder=table.text("folder", "", pattern=FOLDER),
    )


def wheels_of(context: Context, table: Table) -> WheelSet | None:
    """The wheels that a provider names."""
    name = table.text("wheels", pattern=NAME)
    if name and name not in context.wheel_sets:
        table.problem(f"`wheel_sets` has no row {name}", "wheels")
    return context.wheel_sets.get(name)


def package_set(context: Context, table: Table, defaults: Provenance) -> PackageSet:
    """A row of ``package_sets``."""
    return PackageSet(
        name=table.text("name", pattern=NAME),
        system=table.text("system", pattern=NAME).lower(),
        cuda=minor(table, "cuda"),
        components=table.texts("components", required=True, pattern=NAME),
        packages=table.texts("packages", required=True, pattern=NAME),
        build_packages=table.texts("build_packages", pattern=NAME),
        origin=context.origin(table, defaults),
    )


def package_set_of(context: Context, table: Table) -> PackageSet | None:
    """The Debian packages that a provider names."""
    name = table.text("package_set", pattern=NAME)
    found = context.package_sets.get(name)
    if name and found is None:
        table.problem(f"`package_sets` has no row {name}", "package_set")
    return found

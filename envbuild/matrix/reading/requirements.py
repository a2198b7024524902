"""Reads which libraries a build needs, and on which GPUs the build does not work."""

from __future__ import annotations

from envbuild.matrix.platform import Provenance
from envbuild.matrix.reading.context import Context, minors, version
from envbuild.matrix.types import BadCapability, LibraryNeed
from envbuild.model.words import CudaLibraries
from envbuild.yaml_reader import Table


def need(table: Table, key: str, libraries: CudaLibraries) -> LibraryNeed | None:
    """Read which cuDNN or NCCL (``key``) a build needs; None if the row does not say. ``libraries`` is the row's
    ``cuda_libraries``. If the row does not say where the library comes from, ``libraries`` says so."""
    if key not in table:
        return None
    if table.is_text(key):
        exact = version(table, key)
        return LibraryNeed(minimum=exact, below="", prefer=exact, exact=True, taken_from=libraries)
    found = table.table(key)
    if found is None:
        return None
    read = LibraryNeed(
        minimum=version(found, "min", ""),
        below=version(found, "below", ""),
        prefer=version(found, "prefer", ""),
        exact=False,
        taken_from=found.choice("from", ("system", "bundled", "wheels"), libraries),
    )
    found.finish()
    return read


def bad_capabilities(
    context: Context, table: Table, origin: Provenance, *, of_add_on: bool = False
) -> tuple[BadCapability, ...]:
    """The GPUs on which the binaries start, but are known to fail. An entry without a source gets the source of the row. Only
    the entries of an add-on may be about single CUDA versions."""
    found = []
    for item in table.tables("bad_capabilities"):
        found.append(
            BadCapability(
                capabilities=minors(item, "capabilities", required=True),
                reason=item.text("reason"),
                source=context.document(item, "source", origin.source),
                cuda=minors(item, "cuda") if of_add_on else (),
            )
        )
        item.finish()
    return tuple(found)

"""Bytecode of wheels' modules, compiled by the interpreter of the image itself, in one container for many wheels."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from envbuild import guard
from envbuild.compose.layer import EPOCH
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.model import OnProgress, Progress
from envbuild.model.lock import Prefix

_SOURCES = "/envbuild-sources.tar"
_BYTECODE = "/envbuild-bytecode.tar"
# The same as `compile` of step.sh, for the same reasons. A file that cannot be compiled is no error, so `find` tells what was.
_SCRIPT = """
set -eu
export LC_ALL=C.UTF-8
: > {marker}
tar -xf {sources} -C /
{python} -c 'import compileall'
{{ tar --list --file={sources} | sed 's#^#/#' | sort \\
  | SOURCE_DATE_EPOCH={epoch} PYTHONHASHSEED=0 {python} -m compileall -qq {jobs} -i -; }} || true
find {prefix} -name '*.pyc' -newer {marker} > /envbuild-list
tar -cf {bytecode} -T /envbuild-list
"""


def compiled(
    engine: Engine, image: str, prefix: Prefix, wheels: Sequence[Mapping[str, bytes]], on_progress: OnProgress
) -> list[dict[str, bytes]]:
    """The bytecode of each of ``wheels``, which are modules by their absolute paths in the image; paths as well.

    ``image`` holds the interpreter and the empty prefix. Two wheels that hold the same path are compiled one after the other.
    Raises :class:`BuildError` (``no-bytecode``) if the container fails.
    """
    results: list[dict[str, bytes]] = [{} for _ in wheels]
    for batch in batches(wheels):
        owners = {path: number for number in batch for path in wheels[number]}
        count = len(owners)
        if not count:
            continue
        on_progress(Progress(stage="build", message=f"compiling the bytecode of {count} modules"))
        for path, content in _compile(engine, image, prefix, {path: wheels[owner][path] for path, owner in owners.items()}):
            owner = owners.get(source_of(path))
            if owner is not None:
                results[owner][path] = content
    return results


def batches(wheels: Sequence[Mapping[str, bytes]]) -> list[list[int]]:
    """The numbers of the wheels, in groups within which no path comes twice."""
    groups: list[tuple[list[int], set[str]]] = []
    for number, sources in enumerate(wheels):
        fitting = next((group for group in groups if group[1].isdisjoint(sources)), None)
        if fitting is None:
            fitting = ([], set())
            groups.append(fitting)
        fitting[0].append(number)
        fitting[1].update(sources)
    return [numbers for numbers, _ in groups]


def source_of(path: str) -> str:
    """The module of a file of bytecode: ``a/b.py`` for ``a/__pycache__/b.cpython-311.pyc`` and for Python 2's ``a/b.pyc``."""
    parts = PurePosixPath(path)
    if parts.parent.name == "__pycache__":
        return str(parts.parent.parent / f"{parts.name.split('.')[0]}.py") if parts.name.count(".") == 2 else _dotted(parts)
    return str(parts.with_suffix(".py"))


def _dotted(path: PurePosixPath) -> str:
    """The same for a module whose own name has a dot."""
    return str(path.parent.parent / f"{path.name.rsplit('.', 2)[0]}.py")


def _compile(engine: Engine, image: str, prefix: Prefix, sources: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    script = _SCRIPT.format(
        sources=_SOURCES,
        bytecode=_BYTECODE,
        epoch=EPOCH,
        python=shlex.quote(f"{prefix.path}/bin/python") + (" -S" if prefix.backend == "uv" else ""),
        prefix=shlex.quote(prefix.path),
        jobs="-j 0" if prefix.backend == "uv" else "",
        marker="/envbuild-begun",
    )
    with guard.temporary_folder("envbuild-bytecode-") as folder:
        file = folder / "sources.tar"
        with tarfile.open(file, "w") as archive:
            for path, content in sorted(sources.items()):
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size, entry.mtime = len(content), EPOCH
                archive.addfile(entry, io.BytesIO(content))
        done = engine.run(
            image, ["sh", "-c", script], entrypoint=[], user="0", network="none", deliver={_SOURCES: file}, collect=[_BYTECODE]
        )
    if done.code != 0 or _BYTECODE not in done.files:
        raise BuildError(
            f"The bytecode of the packages in {prefix.path} could not be compiled (exit code {done.code}).",
            code="no-bytecode",
            hint="`--builder docker` builds the image by its Dockerfile.",
            details=tuple(done.output.splitlines()[-20:]),
        )
    with tarfile.open(fileobj=io.BytesIO(done.files[_BYTECODE])) as archive:
        for found in archive:
            stream = archive.extractfile(found)
            if stream is not None:
                yield f"/{found.name.lstrip('/')}", stream.read()

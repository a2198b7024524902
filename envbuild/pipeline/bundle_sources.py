"""Finds a source for each file of a bundle: the caches of this machine, or package indexes, mirrors and repositories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild import files, git_sources
from envbuild.engine import package_store
from envbuild.errors import EnvbuildError
from envbuild.model.lock import Lock, SourceArchive
from envbuild.model.progress import Progress
from envbuild.pipeline import bundle_contents, bundle_folder, fetching
from envbuild.pipeline.bundle_folder import Kind
from envbuild.pipeline.tools import Tools

Put = Callable[[Path, Callable[[int], None]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedFile:
    """A file that the bundle needs. ``put`` is a function that writes the file to a given path."""

    name: str
    kind: Kind
    sha256: str
    size: int
    put: Put


def pinned(tools: Tools, lock: Lock) -> Iterator[WantedFile]:
    """Yield the files that the lock pins, each with the function that fetches it."""
    kinds = {each.sha256: each for each in bundle_contents.needed(lock)}
    for pin in fetching.pins(lock):
        put = _deb(tools, pin) if pin.deb is not None else _download(tools, pin)
        yield WantedFile(name=pin.filename, kind=kinds[pin.sha256].kind, sha256=pin.sha256, size=_size(tools, pin), put=put)
    for source in lock.sources:
        yield WantedFile(
            name=kinds[source.sha256].name, kind="source", sha256=source.sha256, size=0, put=_source(tools, source)
        )


def _size(tools: Tools, pin: fetching.Pin) -> int:
    if pin.size or not pin.url:
        return pin.size
    try:
        return tools.index.size_of(fetching.remote(pin)) or 0
    except EnvbuildError:  # the later download of this file reports the reason
        return 0


def copying(source: Path, sha256: str) -> Put:
    """Return a function that copies ``source`` to a given path, and checks the hash of the copy."""
    return lambda target, on_bytes: bundle_folder.copy(source, target, sha256, on_bytes)


def _deb(tools: Tools, pin: fetching.Pin) -> Put:
    def put(target: Path, on_bytes: Callable[[int], None]) -> None:
        assert pin.deb is not None
        bundle_folder.copy(package_store.Store(tools.workspace).get(pin.deb, pin.origins), target, pin.sha256, on_bytes)

    return put


def _download(tools: Tools, pin: fetching.Pin) -> Put:
    def put(target: Path, on_bytes: Callable[[int], None]) -> None:
        cached = tools.workspace.downloads / pin.filename
        if cached.is_file() and files.sha256_of(cached) == pin.sha256:
            bundle_folder.copy(cached, target, pin.sha256, on_bytes)
            return
        seen = 0

        def tell(news: Progress) -> None:
            nonlocal seen
            done = int(news.done or 0)
            on_bytes(done - seen)
            seen = done

        folder = target.parent / "download"
        fetching.receive(tools, pin, lambda file: tools.index.download(file, folder, tell, sha256=pin.sha256))
        (folder / pin.filename).replace(target)

    return put


def _source(tools: Tools, source: SourceArchive) -> Put:
    def put(target: Path, on_bytes: Callable[[int], None]) -> None:
        folder = tools.workspace.downloads / "sources"
        made = git_sources.archive(source.repository, source.revision, folder, tools.on_progress, sha256=source.sha256)
        bundle_folder.copy(made, target, source.sha256, on_bytes)

    return put

"""Search the layers of an image for strings that belong to the building machine, such as passwords. No layer may contain them.
While the layers are read, the files in them are also compared with the lists of :mod:`envbuild.verify.unpackaged_files`."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from envbuild.index.pip_internals import public_hosts
from envbuild.model.progress import OnProgress, Progress
from envbuild.verify.findings import Findings
from envbuild.verify.unpackaged_files import Layers

if TYPE_CHECKING:
    from envbuild.engine.client import Engine
    from envbuild.engine.model import ImageInfo

_PIECE = 4 << 20
_APT_PROXY = re.compile(r'^(Acquire\S+) "(\S+://\S+)";$', re.MULTILINE)


def secret_strings(build_secrets: Mapping[str, bytes]) -> dict[str, str]:
    """The strings in the secrets of a build that an image must not contain: addresses, their hosts, and passwords. The key of
    each string names the variable that contains the string."""
    found: dict[str, str] = {}
    for line in build_secrets.get("envbuild-env", b"").decode("utf-8", "replace").splitlines():
        words = shlex.split(line)
        name, _, value = words[-1].partition("=") if words else ("", "", "")
        for url in value.split():
            if "://" in url:
                found |= _of_url(name, url)
    for name, url in _APT_PROXY.findall(build_secrets.get("envbuild-apt-conf", b"").decode("utf-8", "replace")):
        found |= _of_url(name, url)
    return found


def _of_url(name: str, url: str) -> dict[str, str]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    # Many packages contain the name of the public index, so only credentials for it are secret.
    public = host in public_hosts()
    found = {} if public and not parts.password else {name: url.rstrip("/")}
    if host and not public and host != "localhost" and not host.startswith("127."):
        found[f"{name} (host)"] = host
    for word in (parts.password or "", unquote(parts.password or "")):
        if len(word) > 5:  # shorter strings also occur by chance
            found[f"{name} (password)"] = word
    return found


def search(  # noqa: PLR0917 - the image, the strings, and the report
    engine: Engine, info: ImageInfo, secrets: Mapping[str, str], listed_files: Layers, found: Findings, on_progress: OnProgress
) -> None:
    """Search for ``secrets`` in the image's configuration and in every file of every layer, including deleted files.

    Reading the layers is slow, so a second check uses the same pass: each entry of a layer is also handed to ``listed_files``.
    It compares the entries with the lists, written during the build, of files that belong to no package.
    """
    wanted = {name: value.encode() for name, value in secrets.items() if value}
    if not wanted and not listed_files:
        return
    spoken = "\n".join([*info.env, *engine.history(info.id), *map(str, info.labels.items()), *info.entrypoint, *info.cmd])
    for name, value in wanted.items():
        if value in spoken.encode():
            found.wrong("image configuration", f"contains {name} of the machine that built it")
    done = 0.0
    for entry in engine.layer_files(info.id):
        listed_files.see(entry)
        if entry.kind != "file" or not wanted:
            continue
        with entry.open() as stream:
            for name in find_strings(iter(functools.partial(stream.read, _PIECE), b""), wanted):
                found.wrong(entry.path, f"contains {name} of the machine that built the image (layer {entry.layer[:20]})")
        done += entry.size
        found.count("searched_files", 1)
        on_progress(Progress(stage="verify", message="searching the layers", done=done, total=float(info.size), unit="bytes"))
    listed_files.compare(found)


def find_strings(pieces: Iterable[bytes], wanted: Mapping[str, bytes]) -> list[str]:
    """The names of the strings in ``wanted`` that occur in ``pieces``. A string is also found if it begins in one piece and
    ends in the next."""
    overlap = max(map(len, wanted.values())) - 1
    rest, seen = b"", dict.fromkeys(wanted, False)
    for piece in pieces:
        text = rest + piece
        for name, value in wanted.items():
            seen[name] = seen[name] or value in text
        rest = text[-overlap:] if overlap else b""
    return [name for name, yes in seen.items() if yes]

"""Read the host's apt configuration (its mirrors and their suites), and check whether these mirrors answer.

All mirror addresses come from /etc/apt of this machine. This project contains none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild import files, guard, network, procs
from envbuild.errors import BuildError

CONF_SECRET = "envbuild-apt-conf"  # noqa: S105 - the id of a secret, not a secret
_MAIN = "main"
_STALE_S = 3600.0  # a folder that is older than this (in seconds) belongs to no running query
TIMEOUTS = ("-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=8", "-o", "Acquire::https::Timeout=8")
_KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)
# apt's configuration key → the option with the same meaning in a source line
_LINE_OPTIONS = {"Acquire::Check-Valid-Until": "check-valid-until", "Acquire::Check-Date": "check-date"}
# Matches proxy settings for a protocol, and for one host (`Acquire::http::Proxy::mirror.example "DIRECT"`).
_PROXY = re.compile(r"Acquire::https?::Proxy(?!-)\S*")
# apt writes the name of the system call, and the number of the error. Only the words after the number are translated.
_FULL = re.compile(rf" - \w+ \((?P<number>{errno.ENOSPC}|{errno.EDQUOT}): ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One source of apt: a mirror, one suite of it, the components of that suite, and the options of the source line."""

    uri: str
    suite: str
    options: tuple[tuple[str, str], ...] = ()
    components: tuple[str, ...] = (_MAIN,)

    @property
    def root(self) -> str:
        """The address below which the mirror has the packages. Package paths are relative to this address."""
        return f"{self.uri.rstrip('/')}/"

    @property
    def archive(self) -> str:
        """The name of the archive that this source mirrors. Package paths in locks begin with this name."""
        return "debian-security" if self.suite.endswith("-security") else "debian"

    def line(self, **more: str) -> str:
        """The source as one line of a ``sources.list`` file, with the options ``more`` added."""
        options = " ".join(f"{key.replace('_', '-')}={value}" for key, value in (*self.options, *more.items()))
        return f"deb {f'[{options}] ' if options else ''}{self.uri} {self.suite} {' '.join(self.components)}"


def parse_list(text: str) -> list[Source]:
    """Return the sources of binary packages in the text of a ``sources.list`` file. Leave out sources without the component
    main."""
    found: list[Source] = []
    for raw in text.splitlines():
        match = re.match(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<rest>.*)$", raw.strip())
        if match and _MAIN in match["rest"].partition("#")[0].split():
            pairs = (word.partition("=") for word in (match["options"] or "").split())
            found.append(Source(uri=match["uri"], suite=match["suite"], options=tuple((k, v) for k, _, v in pairs)))
    return found


def parse_deb822(text: str) -> list[Source]:
    """Return the sources of binary packages in the text of a ``.sources`` file (deb822 stanzas). Leave out sources without the
    component main."""
    found: list[Source] = []
    for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        fields = {k.lower(): v.split() for k, v in re.findall(r"(?m)^([\w-]+):((?:.*)(?:\n[ \t].*)*)", stanza)}
        wanted = "deb" in fields.get("types", []) and _MAIN in fields.get("components", [])
        if not wanted or fields.get("enabled", ["yes"]) == ["no"]:
            continue
        signed = fields.get("signed-by", [])
        options = (("signed-by", signed[0]),) if len(signed) == 1 and signed[0].startswith("/") else ()
        found += [Source(uri=u, suite=s, options=options) for u in fields.get("uris", []) for s in fields.get("suites", [])]
    return found


def host_sources(etc: Path = Path("/etc/apt")) -> list[Source]:
    """Return all sources of this machine's apt, in the order in which apt reads the files."""
    parts = sorted((etc / "sources.list.d").glob("*")) if (etc / "sources.list.d").is_dir() else []
    found: list[Source] = []
    for path in [etc / "sources.list", *parts]:
        if path.is_file() and path.suffix == ".list":
            found += parse_list(path.read_text(encoding="utf-8", errors="replace"))
        elif path.is_file() and path.suffix == ".sources":
            found += parse_deb822(path.read_text(encoding="utf-8", errors="replace"))
    return found


def sources_for(suite: str, sources: Sequence[Source], *, codename: str, components: Sequence[str] = ()) -> list[Source]:
    """Return sources for ``suite``, its updates and its security fixes. They are derived from ``sources``, the sources of a
    host that runs the release ``codename``.

    The result has main and ``components``, even if the host's apt does not use these components. A source of the host for
    ``suite`` itself is preferred to a source for the host's own suite. The result is empty if the host's apt names no Debian
    mirror. Options are not copied: options such as ``trusted=yes`` and ``allow-insecure`` would let a build install unsigned
    packages.
    """
    found: dict[str, Source] = {}
    wanted = (_MAIN, *components)
    for of in (suite, codename):
        for source in sources:
            for ending in ("", "-updates", "-security"):
                if source.suite == f"{of}{ending}" and _signed_by_debian(source):
                    found.setdefault(ending, replace(source, suite=f"{suite}{ending}", options=(), components=wanted))
    return list(found.values()) if "" in found else []


def _signed_by_debian(source: Source) -> bool:
    key = dict(source.options).get("signed-by", "")
    return not key or "debian" in Path(key).name


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    """Return the codename of this machine's Debian release; empty if the machine does not run Debian."""
    try:
        lines = os_release.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    facts = {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
    return facts.get("VERSION_CODENAME", "") if facts.get("ID") == "debian" else ""


def keyring() -> str:
    """Return the path of Debian's archive keyring on this machine. It is empty if there is none; apt then uses its own keys."""
    return next((path for path in _KEYRINGS if Path(path).is_file()), "")


def host_options() -> dict[str, str]:
    """Return the options with which the host's apt reaches its mirror (proxies, date checks). Callers pass them to an apt that
    has another root folder."""
    wanted = re.compile(r"^(Acquire::(?:https?::Proxy\S*|Check-Valid-Until|Check-Date)) \"(.*)\";$")
    dump = procs.run(["apt-config", "dump"], timeout_s=30).output
    return {m[1]: m[2] for m in map(wanted.match, dump.splitlines()) if m is not None}


def build_secrets() -> dict[str, bytes]:
    """Return the host's apt settings for proxies, as a configuration file for apt in a build. Without such settings, return an
    empty mapping.

    The setting Proxy-Auto-Detect is left out, because it names a program that exists only on this machine.
    """
    if procs.find("apt-config") is None:
        return {}
    said = {name: value for name, value in host_options().items() if value and _PROXY.fullmatch(name)}
    lines = [f'{name} "{value}";\n' for name, value in said.items()]
    return {CONF_SECRET: "".join(lines).encode()} if lines else {}


def dates_ignored(options: Mapping[str, str]) -> bool:
    """Whether this machine's apt is configured not to check the dates of indices."""
    return any(options.get(key, "").lower() in {"false", "no", "0"} for key in _LINE_OPTIONS)


def with_host_options(sources: Sequence[Source], options: Mapping[str, str]) -> list[Source]:
    """Return the sources with the host's setting for date checks as an option, so that a file with these sources is enough for
    apt."""
    extra = tuple((word, "no") for key, word in _LINE_OPTIONS.items() if options.get(key, "").lower() in {"false", "no", "0"})
    return [replace(source, options=(*source.options, *extra)) for source in sources]


def answering(sources: Sequence[Source], scratch: Path) -> list[Source]:
    """Return the sources whose mirror has the suite now. The mirrors are queried through the host's proxies.

    Raises :class:`BuildError`: ``base-unreachable`` within seconds if the mirror of the first source does not answer, and
    ``no-space`` if the disk of ``scratch`` is full.
    """
    network.require("A Debian mirror")
    kept: list[Source] = []
    with folder_in(scratch) as folder:
        for number, source in enumerate(sources):
            uri = f"{source.uri.rstrip('/')}/dists/{source.suite}/InRelease"
            argv = ["/usr/lib/apt/apt-helper", *TIMEOUTS, "-o", "APT::Sandbox::User=root", "download-file", uri]
            answer = procs.run([*argv, f"{folder}/{number}"], timeout_s=60)
            if answer.code == 0:
                kept.append(source)
                continue
            require_space(answer.output, folder)
            if number == 0:
                raise BuildError(
                    f"The mirror {source.uri} does not have {source.suite}: {reason(answer.output)}.",
                    code="base-unreachable",
                    hint="Correct the mirror in this machine's apt configuration, or let the engine pull the base image.",
                )
    return kept


@contextlib.contextmanager
def folder_in(scratch: Path) -> Iterator[Path]:
    """Make a temporary folder for one query. Also remove folders that killed runs left."""
    scratch.mkdir(parents=True, exist_ok=True)
    for left in scratch.glob("apt-*"):
        with contextlib.suppress(FileNotFoundError):  # another run may remove the same folder
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
    with guard.temporary_folder("apt-", scratch) as folder:
        yield folder


def require_space(output: str, path: Path) -> None:
    """Raise :class:`BuildError` (``no-space``) if apt's output says that the disk was full when apt wrote ``path``."""
    if (match := _FULL.search(output)) is not None:
        number = int(match["number"])
        raise files.explain_os_error(OSError(number, os.strerror(number)), path, continues=True)


def reason(output: str) -> str:
    """Return the last line of apt's output that reports an error."""
    lines = [line.strip() for line in output.splitlines() if line.startswith(("E:", "Err", "W:"))]
    return " ".join((lines or output.strip().splitlines() or ["no answer"])[-1].split())

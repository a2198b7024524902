"""The host's own apt configuration: which mirror it names, for which suites, and what that mirror has now.

No mirror's address is written in this project: all come from /etc/apt of the machine that runs it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild import guard, procs
from envbuild.errors import BuildError

CONF_SECRET = "envbuild-apt-conf"  # noqa: S105 - the id of a secret, not one
_MAIN = "main"
_STALE_S = 3600.0  # no question takes that long
TIMEOUTS = ("-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=8", "-o", "Acquire::https::Timeout=8")
_KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)
# apt's word in its configuration → the option of a source line that says the same
_LINE_OPTIONS = {"Acquire::Check-Valid-Until": "check-valid-until", "Acquire::Check-Date": "check-date"}
# For one kind of address, or for one host (`Acquire::http::Proxy::mirror.example "DIRECT"`).
_PROXY = re.compile(r"Acquire::https?::Proxy(?!-)\S*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One archive: a mirror, one suite of it, and the options of its line."""

    uri: str
    suite: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> str:
        """The address that the paths of packages go on from."""
        return f"{self.uri.rstrip('/')}/"

    @property
    def archive(self) -> str:
        """The archive that it is a mirror of, by the name that its packages' paths in locks begin with."""
        return "debian-security" if self.suite.endswith("-security") else "debian"

    def line(self, **more: str) -> str:
        """The one-line form, ``more`` options added."""
        options = " ".join(f"{key.replace('_', '-')}={value}" for key, value in (*self.options, *more.items()))
        return f"deb {f'[{options}] ' if options else ''}{self.uri} {self.suite} {_MAIN}"


def parse_list(text: str) -> list[Source]:
    """The binary sources with component main of a ``sources.list`` file."""
    found: list[Source] = []
    for raw in text.splitlines():
        match = re.match(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<rest>.*)$", raw.strip())
        if match and _MAIN in match["rest"].partition("#")[0].split():
            pairs = (word.partition("=") for word in (match["options"] or "").split())
            found.append(Source(uri=match["uri"], suite=match["suite"], options=tuple((k, v) for k, _, v in pairs)))
    return found


def parse_deb822(text: str) -> list[Source]:
    """The same of a ``.sources`` file (deb822 stanzas)."""
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
    """All sources of this machine's apt, in apt's own order of files."""
    parts = sorted((etc / "sources.list.d").glob("*")) if (etc / "sources.list.d").is_dir() else []
    found: list[Source] = []
    for path in [etc / "sources.list", *parts]:
        if path.is_file() and path.suffix == ".list":
            found += parse_list(path.read_text(encoding="utf-8", errors="replace"))
        elif path.is_file() and path.suffix == ".sources":
            found += parse_deb822(path.read_text(encoding="utf-8", errors="replace"))
    return found


def sources_for(suite: str, sources: Sequence[Source], *, codename: str) -> list[Source]:
    """Where ``suite``, its updates and its security fixes should be, going by the sources of a host of ``codename``.

    A source that names the suite itself counts before one that is known to be a mirror because it carries the host's own.
    Empty where the host's apt names no Debian mirror. Options are not taken over: ``trusted=yes``, ``allow-insecure`` and the
    like would have a build take what nobody signed.
    """
    found: dict[str, Source] = {}
    for of in (suite, codename):
        for source in sources:
            for ending in ("", "-updates", "-security"):
                if source.suite == f"{of}{ending}" and _signed_by_debian(source):
                    found.setdefault(ending, replace(source, suite=f"{suite}{ending}", options=()))
    return list(found.values()) if "" in found else []


def _signed_by_debian(source: Source) -> bool:
    key = dict(source.options).get("signed-by", "")
    return not key or "debian" in Path(key).name


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    """The suite that this machine itself runs, empty where it is no Debian."""
    try:
        lines = os_release.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    facts = {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
    return facts.get("VERSION_CODENAME", "") if facts.get("ID") == "debian" else ""


def keyring() -> str:
    """Debian's archive keyring on this machine, empty where there is none and apt's own trust must do."""
    return next((path for path in _KEYRINGS if Path(path).is_file()), "")


def host_options() -> dict[str, str]:
    """What the host's apt must say to reach its mirror (proxies, date checks), to be said again for another root."""
    wanted = re.compile(r"^(Acquire::(?:https?::Proxy\S*|Check-Valid-Until|Check-Date)) \"(.*)\";$")
    dump = procs.run(["apt-config", "dump"], timeout_s=30).output
    return {m[1]: m[2] for m in map(wanted.match, dump.splitlines()) if m is not None}


def build_secrets() -> dict[str, bytes]:
    """What the host's apt is told of proxies, as a file of settings for the apt of a build; nothing where it is told nothing.

    A program that finds a proxy (Proxy-Auto-Detect) is this machine's own, and left out.
    """
    if procs.find("apt-config") is None:
        return {}
    said = {name: value for name, value in host_options().items() if value and _PROXY.fullmatch(name)}
    lines = [f'{name} "{value}";\n' for name, value in said.items()]
    return {CONF_SECRET: "".join(lines).encode()} if lines else {}


def dates_ignored(options: Mapping[str, str]) -> bool:
    """Whether this machine's apt is told not to check when an index was made, or until when it holds."""
    return any(options.get(key, "").lower() in {"false", "no", "0"} for key in _LINE_OPTIONS)


def with_host_options(sources: Sequence[Source], options: Mapping[str, str]) -> list[Source]:
    """The sources with the date checks switched as the host's apt has them, so that one file says all of it."""
    extra = tuple((word, "no") for key, word in _LINE_OPTIONS.items() if options.get(key, "").lower() in {"false", "no", "0"})
    return [replace(source, options=(*source.options, *extra)) for source in sources]


def answering(sources: Sequence[Source], scratch: Path) -> list[Source]:
    """The sources whose mirror has that suite now, asked with the host's proxies; the first one must answer.

    Raises :class:`BuildError` (``base-unreachable``) within seconds where it does not.
    """
    kept: list[Source] = []
    with folder_in(scratch) as folder:
        for number, source in enumerate(sources):
            uri = f"{source.uri.rstrip('/')}/dists/{source.suite}/InRelease"
            argv = ["/usr/lib/apt/apt-helper", *TIMEOUTS, "-o", "APT::Sandbox::User=root", "download-file", uri]
            answer = procs.run([*argv, f"{folder}/{number}"], timeout_s=60)
            if answer.code == 0:
                kept.append(source)
            elif number == 0:
                raise BuildError(
                    f"The mirror {source.uri} does not give {source.suite}: {reason(answer.output)}.",
                    code="base-unreachable",
                    hint="Correct the mirror in this machine's apt configuration, or let the engine pull the base image.",
                )
    return kept


@contextlib.contextmanager
def folder_in(scratch: Path) -> Iterator[Path]:
    """A temporary folder for one question. Also removes those of runs whose guard was killed with them."""
    scratch.mkdir(parents=True, exist_ok=True)
    for left in scratch.glob("apt-*"):
        with contextlib.suppress(FileNotFoundError):  # another run removes it, too
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
    with guard.temporary_folder("apt-", scratch) as folder:
        yield folder


def reason(output: str) -> str:
    """The last line in which apt says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.startswith(("E:", "Err", "W:"))]
    return " ".join((lines or output.strip().splitlines() or ["no answer"])[-1].split())

"""Ask apt what it would install from one suite on this machine's mirrors now. apt runs with its own separate folder.

Nothing is installed, and root rights are not needed. In one run, the package lists are fetched only once, even for many locks.
"""

from __future__ import annotations

import datetime
import email.utils
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from envbuild import network, procs
from envbuild.engine import host_apt
from envbuild.errors import BuildError
from envbuild.model.lock import DebianPackage

_MINIMAL = ("?essential", "?priority(required)", "apt")  # the same packages as the variant minbase of mmdebstrap
_PRINTED_URI = re.compile(r"'(?P<uri>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})")
_STANZA = re.compile(r"Package: (?P<name>\S+)\n(?:.*\n)*?Version: (?P<version>\S+)\n")
_SIZES = re.compile(r"(?m)^Size: ([1-9][0-9]*)$")
_INSTALLED = re.compile(r"(?m)^Installed-Size: ([0-9]+)$")  # in KiB
_UNKNOWN = re.compile(r"Unable to locate package|has no installation candidate|was not found")
_DATE = re.compile(r"(?m)^Date: (?P<date>.+)$")
# With these options, every index must be signed, whatever this machine's apt configuration says.
_STRICT = (
    "Acquire::AllowInsecureRepositories=false",
    "Acquire::AllowWeakRepositories=false",
    "Acquire::AllowDowngradeToInsecureRepositories=false",
    "APT::Get::AllowUnauthenticated=false",
)
_DATED = ("Acquire::Check-Valid-Until=true", "Acquire::Check-Date=true")
NO_DATES = "the dates of the indices"  # the lock lists this text if the dates were not checked


class Archive:
    """The packages of ``sources``: a suite, its updates and its security fixes. ``folder`` is an empty folder for apt's
    files."""

    def __init__(self, folder: Path, sources: Sequence[host_apt.Source], architecture: str) -> None:
        self._folder = folder
        self._sources = tuple(sources)
        self._apt = _private_apt(folder, sources, architecture)
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[DebianPackage, ...]] = {}
        self.unchecked: tuple[str, ...] = ()

    def update(self, *, dates_matter: bool) -> None:
        """Fetch the package lists. If the check of their dates fails and ``dates_matter`` is false, fetch them without this
        check.

        Raises :class:`BuildError` (``base-unreachable``) if the lists cannot be fetched.
        """
        network.require("The package list of a Debian mirror")
        answer = procs.run([*self._apt, *_options(*_DATED), "-qq", "update"], timeout_s=300)
        if answer.code != 0 and not dates_matter:
            without = [option.replace("=true", "=false") for option in _DATED]
            answer = procs.run([*self._apt, *_options(*without), "-qq", "update"], timeout_s=300)
            self.unchecked = (NO_DATES,)
        if answer.code != 0:
            host_apt.require_space(answer.output, self._folder)
            first = self._sources[0]
            raise BuildError(
                f"Cannot fetch the package lists of {first.suite} from {first.uri}: {host_apt.reason(answer.output)}.",
                code="base-unreachable",
                hint="Check the network and the proxy in this machine's apt configuration. envbuild ignores options such "
                "as `trusted=yes` of its sources, because pinned packages must come from signed indices.",
            )

        self._require_components()

    def _require_components(self) -> None:
        """Raise :class:`BuildError` (``base-unreachable``) if the mirror lacks a component. apt itself only warns about
        this."""
        first = self._sources[0]
        lists = self._folder / "state" / "lists"
        for component in first.components:
            if not any(lists.glob(f"*_dists_{first.suite}_{component}_binary-*_Packages")):
                raise BuildError(
                    f"The mirror {first.uri} has no packages of {first.suite} in the component {component}.",
                    code="base-unreachable",
                    hint="Name a mirror in this machine's apt configuration that has this component.",
                )

    def minimal(self) -> tuple[DebianPackage, ...]:
        """Return the packages of a minimal system, sorted by name."""
        # Name usr-is-merged, if the suite has it: otherwise apt would choose usrmerge, which needs Perl modules.
        try:
            return self.install((), (*_MINIMAL, "usr-is-merged"))
        except BuildError as error:
            if "Unable to locate package usr-is-merged" not in error.message:
                raise
        return self.install((), _MINIMAL)

    def install(self, present: Sequence[DebianPackage], asked: Sequence[str]) -> tuple[DebianPackage, ...]:
        """Return what apt would install for ``asked`` on a system with the packages ``present``, sorted by name.

        Raises :class:`BuildError`: ``unknown-package`` if the mirror lacks a name or version; ``packages-unavailable`` if apt
        cannot install a package, or must remove another package for it.
        """
        lines = tuple(sorted({f"{each.name} {each.version}" for each in present}))
        key = (lines, tuple(asked))
        if key not in self._known:
            self._known[key] = self._ask(present, asked)
        return self._known[key]

    def lists(self, package: DebianPackage) -> bool:
        """Whether the package lists contain ``package`` with exactly its version and its hash."""
        stanza = self._stanzas.get((package.name, package.version), "")
        return f"\nSHA256: {package.sha256}" in stanza

    def unpacked_ratios(self) -> dict[str, float]:
        """Return how many times larger each package is when it is installed, compared with its .deb file, by package name."""
        found = ((name, _SIZES.search(stanza), _INSTALLED.search(stanza)) for (name, _), stanza in self._stanzas.items())
        return {name: 1024 * int(inside[1]) / int(size[1]) for name, size, inside in found if size and inside}

    def snapshots(self, address: str) -> tuple[str, ...]:
        """Return the address of a snapshot of each archive. The time of each snapshot is one day after the archive's newest
        index.

        At that time, the archive certainly had all files of the index. ``address`` is the address of the snapshot server. If it
        is empty, the result is empty. A snapshot is requested by a time, and the server answers with the last snapshot before
        this time.
        """
        youngest: dict[str, datetime.datetime] = {}
        for source in self._sources:
            date = self._date(source)
            if date is not None:
                youngest[source.archive] = max(date, youngest.get(source.archive, date))
        day = datetime.timedelta(days=1)
        return tuple(f"{address}/{name}/{date + day:%Y%m%dT%H%M%SZ}" for name, date in youngest.items()) if address else ()

    def _ask(self, present: Sequence[DebianPackage], asked: Sequence[str]) -> tuple[DebianPackage, ...]:
        (self._folder / "status").write_text("".join(self._status(present)), encoding="utf-8")
        words = ["-qq", "-y", "--no-install-recommends", "--no-remove", "--print-uris", "install", *asked]
        answer = procs.run([*self._apt, *words], timeout_s=120)
        found = [self._package(match) for match in _PRINTED_URI.finditer(answer.output)]
        if answer.code != 0:
            host_apt.require_space(answer.output, self._folder)
            raise BuildError(
                f"apt cannot install {', '.join(asked)} on {self._sources[0].suite}: {host_apt.reason(answer.output)}.",
                code="unknown-package" if _UNKNOWN.search(answer.output) else "packages-unavailable",
                hint="Correct the names under `apt` and `apt_build` in envbuild.yaml, or in the recipe.",
            )
        return tuple(sorted(found, key=lambda package: package.name))

    def _status(self, present: Sequence[DebianPackage]) -> Iterator[str]:
        """Yield the parts of a dpkg status file for these packages, from the fields in the package lists."""
        installed = {package.name: package.version for package in present}
        for name, version in sorted(installed.items()):
            stanza = self._stanzas.get((name, version))
            if stanza is None:
                raise BuildError(
                    f"The mirror no longer lists {name} {version}, which the lock pins in the base.",
                    code="packages-unavailable",
                    hint="To pin today's packages, run `envbuild lock NAME --upgrade --base-image`.",
                )
            yield stanza.replace("\n", "\nStatus: install ok installed\n", 1) + "\n\n"

    @functools.cached_property
    def _stanzas(self) -> Mapping[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for path in sorted((self._folder / "state" / "lists").glob("*_Packages")):
            for stanza in path.read_text(encoding="utf-8", errors="replace").split("\n\n"):
                if (match := _STANZA.match(stanza + "\n")) is not None:
                    found[match["name"], match["version"]] = stanza.strip("\n")
        return found

    def _package(self, match: re.Match[str]) -> DebianPackage:
        name, version, rest = match["file"].rsplit("_", 2)
        uri = unquote(match["uri"])
        source = max((each for each in self._sources if uri.startswith(each.root)), key=lambda each: len(each.root))
        return DebianPackage(
            name=name,
            version=version.replace("%3a", ":"),
            sha256=match["sha256"],
            architecture=rest.removesuffix(".deb"),
            size=int(match["size"]),
            path=f"{source.archive}/{uri.removeprefix(source.root)}",
        )

    def _date(self, source: host_apt.Source) -> datetime.datetime | None:
        """Return the date that the index of ``source`` states, or None."""
        lists = self._folder / "state" / "lists"
        for path in lists.glob(f"*_dists_{source.suite.replace('/', '_')}_*Release"):
            if (match := _DATE.search(path.read_text(encoding="utf-8", errors="replace"))) is not None:
                return email.utils.parsedate_to_datetime(match["date"].replace("UTC", "+0000"))
        return None


def _options(*options: str) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def _private_apt(folder: Path, sources: Sequence[host_apt.Source], architecture: str) -> list[str]:
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    key = {"signed-by": host_apt.keyring()} if host_apt.keyring() else {}
    (folder / "sources.list").write_text("".join(f"{source.line(**key)}\n" for source in sources), encoding="utf-8")
    options = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Cache::pkgcache": "pkgcache.bin",
        "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "APT::Update::Post-Invoke-Success": "",
        "Acquire::GzipIndexes": "false",
        "Acquire::Languages": "none",
        "Acquire::ForceHash": "SHA256",
    }
    words = _options(*(f"{key_}={value}" for key_, value in options.items()), *_STRICT)
    return ["apt-get", *host_apt.TIMEOUTS, *words]

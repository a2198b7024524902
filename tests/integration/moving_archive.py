"""A signed Debian archive with one lock's packages: in the locked versions, or with newer versions that replaced them."""

from __future__ import annotations

import email.utils
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from envbuild.model.lock import DebianPackage

MOVED = "+moved1"  # the suffix of every package's version after newer versions replaced the locked ones
_ENDINGS = {"debian": "", "debian-security": "-security"}


class Key:
    """A key of the tests, which replaces Debian's key on this machine."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        # The path of gpg-agent's socket may have at most 100 characters.
        self._home = tempfile.mkdtemp(prefix="gpg-")
        name = "archive@toy.invalid"
        self._gpg("--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key", name, "rsa2048", "sign", "never")
        self.ring = folder / "keyring.gpg"
        self.ring.write_bytes(self._gpg("--export", name))

    def signed(self, text: str) -> bytes:
        """Return ``text`` with an inline signature."""
        return self._gpg("--clearsign", text=text)

    def _gpg(self, *words: str, text: str = "") -> bytes:
        argv = ["gpg", "--batch", "--quiet", "--homedir", self._home, *words]
        return subprocess.run(argv, input=text.encode(), capture_output=True, check=True).stdout

    def end(self) -> None:
        """Stop gpg-agent and remove the key's folder."""
        subprocess.run(["gpgconf", "--homedir", self._home, "--kill", "all"], check=False)
        subprocess.run(["rm", "-rf", self._home], check=True)


def contents(packages: Iterable[DebianPackage], store: Path) -> dict[str, bytes]:
    """The content of each package file, by the path in its line of the lock."""
    return {each.path: (store / f"{each.sha256}.deb").read_bytes() for each in packages}


def stanzas(packages: Iterable[DebianPackage], store: Path) -> dict[str, list[str]]:
    """The entries of the packages in an index, by the name of their archive."""
    found: dict[str, list[str]] = {}
    for each in packages:
        control = subprocess.run(
            ["dpkg-deb", "--field", str(store / f"{each.sha256}.deb")], capture_output=True, text=True, check=True
        ).stdout
        archive, _, rest = each.path.partition("/")
        place = f"Filename: {rest}\nSize: {each.size}\nSHA256: {each.sha256}"
        found.setdefault(archive, []).append(f"{control.strip()}\n{place}\n")
    return found


def moved_on(of: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The entries of the same packages in newer versions. The package files themselves do not exist."""

    def newer(stanza: str) -> str:
        stanza = re.sub(r"(?m)^(Version: \S+)$", rf"\1{MOVED}", stanza)
        stanza = re.sub(r"\(= ([^)]+)\)", rf"(= \1{MOVED})", stanza)
        stanza = re.sub(r"(?m)^Filename: (.*)\.deb$", rf"Filename: \1{MOVED}.deb", stanza)
        digest = hashlib.sha256(stanza.encode()).hexdigest()
        return re.sub(r"(?m)^SHA256: .*$", f"SHA256: {digest}", stanza)

    return {archive: [newer(stanza) for stanza in entries] for archive, entries in of.items()}


def index(root: str, suite: str, archive: str, entries: Iterable[str], key: Key) -> dict[str, bytes]:
    """The signed index of ``entries``, by path on the server; ``root`` is the archive's folder there."""
    suite += _ENDINGS[archive]
    packages = "\n".join(entries).encode()
    digest = hashlib.sha256(packages).hexdigest()
    about = {"Origin": "Debian", "Label": "Debian", "Suite": suite, "Codename": suite, "Architectures": "amd64"}
    about |= {"Components": "main", "Date": email.utils.formatdate(usegmt=True)}
    lines = [*(f"{name}: {value}" for name, value in about.items()), "SHA256:"]
    lines.append(f" {digest} {len(packages)} main/binary-amd64/Packages")
    below = f"{root}/dists/{suite}"
    return {
        f"{below}/InRelease": key.signed("\n".join(lines) + "\n"),
        f"{below}/main/binary-amd64/Packages": packages,
    }


def machine(folder: Path, url: str, suite: str, key: Key) -> tuple[str, ...]:
    """The words to put before a command so that it runs with other apt settings.

    There apt uses only the archive at ``url`` and trusts only ``key``.
    """
    folder.mkdir()
    for name in ("apt.conf.d", "preferences.d", "sources.list.d", "trusted.gpg.d", "auth.conf.d"):
        (folder / name).mkdir()
    (folder / "sources.list").write_text(
        f"deb {url}/debian {suite} main\ndeb {url}/debian-security {suite}-security main\n", encoding="utf-8"
    )
    rings = [
        path for ending in ("gpg", "pgp") if os.path.lexists(path := f"/usr/share/keyrings/debian-archive-keyring.{ending}")
    ]
    script = 'mount --bind "$0" /etc/apt; ' + "".join(f'mount --bind "$1" {path}; ' for path in rings) + 'shift; exec "$@"'
    return ("unshare", "--mount", "sh", "-euc", script, str(folder), str(key.ring))

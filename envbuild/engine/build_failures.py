"""Turn a builder's output into an error, by a table of patterns and error codes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.errors import BuildError

_KEPT_LINES = 40


@dataclass(frozen=True, slots=True)
class Pattern:
    """One row of the table: if the regular expression ``text`` matches the output, the error is ``code``. ``example`` is a real
    line of output for tests."""

    code: str
    text: str
    example: str


# The first matching row decides, so specific rows come first. For example, a full disk also makes downloads fail.
PATTERNS: tuple[Pattern, ...] = (
    Pattern("no-space", r"no space left on device", "write /var/lib/x: no space left on device"),
    Pattern(
        "no-space", r"No space left on device", "E: You don't have enough free space: No space left on device (os error 28)"
    ),
    Pattern("no-space", r"[Dd]isk quota exceeded", "OSError: [Errno 122] Disk quota exceeded"),
    Pattern(
        "no-space", r"You don't have enough free space", "E: You don't have enough free space in /var/cache/apt/archives/."
    ),
    Pattern(
        "base-unreachable",
        r"\[internal\] load metadata for .*ERROR",
        "[internal] load metadata for registry.example/os:1 ERROR: failed to do request: no such host",
    ),
    Pattern(
        "base-unreachable",
        r"failed to resolve source metadata",
        "ERROR: failed to solve: os:1: failed to resolve source metadata for registry.example/os:1: manifest unknown",
    ),
    Pattern(
        "base-unreachable", r"manifest(?: for \S+)?(?: not found|.* unknown)", "manifest for os:1 not found: manifest unknown"
    ),
    Pattern("base-unreachable", r"pull access denied", "pull access denied for os, repository does not exist"),
    Pattern("artifact-changed", r"Hash mismatch for `", "cause: Hash mismatch for `six==1.16.0`"),
    Pattern(
        "artifact-changed", r"DO NOT MATCH THE HASHES", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS"
    ),
    Pattern(
        "artifact-malformed",
        r"cause: (Wheel (?:version|package name) does not match filename \([^)]*\))",
        "  cause: Wheel package name does not match filename (liar != honest), which indicates a malformed wheel.",
    ),
    Pattern(
        "artifact-malformed",
        r"cause: (The wheel is invalid: .*)",
        "  cause: The wheel is invalid: Metadata field Name not found",
    ),
    Pattern(
        "artifact-malformed", r"ERROR: (.* has an invalid wheel, .*)", "ERROR: six has an invalid wheel, multiple .dist-info"
    ),
    Pattern(
        "artifact-malformed",
        r"(The wheel of \S+ lacks files that its RECORD lists: .*)",
        "The wheel of six==1.16.0 lacks files that its RECORD lists: `six/more.py`",
    ),
    Pattern(
        "index-unreachable", r"Temporary failure (?:in name resolution|resolving)", "Err:1 Temporary failure resolving 'a.b'"
    ),
    Pattern("index-unreachable", r"Could not resolve(?: host)?[: ]", "curl: (6) Could not resolve host: index.example"),
    Pattern("index-unreachable", r"Name or service not known", "[Errno -2] Name or service not known"),
    Pattern("index-unreachable", r"failed to lookup address information", "dns error: failed to lookup address information"),
    Pattern(
        "index-unreachable", r"error sending request for url", "Caused by: error sending request for url (https://a.b/simple)"
    ),
    Pattern("index-unreachable", r"Failed to establish a new connection", "Failed to establish a new connection: [Errno 111]"),
    Pattern("index-unreachable", r"(?:HTTPSConnectionPool|Max retries exceeded)", "Max retries exceeded with url: /simple/a/"),
    Pattern("index-unreachable", r"Connection to \S+ timed out", "ConnectTimeoutError: Connection to a.b timed out."),
    Pattern(
        "index-unreachable", r"Could not connect to \S+", "Err:1 Could not connect to a.b:80 (10.0.0.1), connection timed out"
    ),
    Pattern("index-unreachable", r"Unable to connect to \S+", "Err:2 Unable to connect to a.b:http:"),
    Pattern("index-unreachable", r"Connection timed out", "ssh: connect: Connection timed out"),
    Pattern("index-unreachable", r"Connection refused", "curl: (7) Failed to connect to a.b port 443: Connection refused"),
    Pattern("index-unreachable", r"Network is unreachable", "OSError: [Errno 101] Network is unreachable"),
    Pattern(
        "index-unreachable", r"[Cc]ertificate[ _]verif\w+ failed", "SSL: CERTIFICATE_VERIFY_FAILED certificate verify failed"
    ),
    Pattern("index-unreachable", r"invalid peer certificate", "invalid peer certificate: UnknownIssuer"),
    Pattern("index-unreachable", r"curl: \((?:5|6|7|28|35|60)\)", "curl: (28) Operation timed out"),
    Pattern("unknown-package", r"E: Unable to locate package (\S+)", "E: Unable to locate package ffmpge"),
    Pattern("unknown-package", r"E: Version '\S+' for '(\S+)' was not found", "E: Version '9' for 'git' was not found"),
    Pattern(
        "unknown-package", r"E: Package '(\S+)' has no installation candidate", "E: Package 'x' has no installation candidate"
    ),
    Pattern("index-unreachable", r"E: Failed to fetch \S+", "E: Failed to fetch http://a.b/x.deb  404  Not Found"),
    # This row must come after the rows above: pip prints this message, too, if it could not reach an index.
    Pattern("artifact-gone", r"No matching distribution found for", "ERROR: No matching distribution found for six==1.16.99"),
    Pattern("artifact-gone", r"there is no version of \S+==", "Because there is no version of six==1.16.99 and you require it"),
    Pattern("artifact-gone", r"not found in the package registry", "Because a was not found in the package registry"),
)

_HINTS = {
    "no-space": "Free space where the engine keeps its data (`docker system prune`), or set ENVBUILD_HOME to a larger disk.",
    "base-unreachable": "`envbuild show NAME` lists the other providers of this environment; choose one with --base.",
    "index-unreachable": "Check the network, the proxy and the certificates of this machine; finished steps are kept.",
    "unknown-package": "Correct the name: each entry under `apt` in envbuild.yaml must be a package of the image's system.",
    "artifact-changed": "The lines above name a file whose hash differs from the lock. Build again. "
    "If the hash differs again, do not trust the index.",
    "artifact-malformed": "The lines above name a pinned wheel whose contents contradict each other. "
    "Lock another version of this package.",
    "artifact-gone": "The lines above name a version that the index no longer has. "
    "Use an index that has this version, or lock another version.",
    "build-step": "The last lines of the failing step are above; -v shows all of them.",
}


def classify(text: str) -> str:
    """Return the error code for the output of a failed build. If no row matches, return ``build-step``."""
    for pattern in PATTERNS:
        if re.search(pattern.text, text):
            return pattern.code
    return "build-step"


def explain(*, instruction: str, reason: str, lines: Sequence[str]) -> BuildError:
    """Return the error for a failed build, with the failed instruction, the cause, and the last lines of output."""
    tail = tuple(lines[-_KEPT_LINES:])
    code = classify("\n".join([f"{instruction} ERROR: {reason}", *tail]))
    where = f" in: {_shorten(instruction)}" if instruction else ""
    what = {
        "no-space": "The build ran out of disk space",
        "base-unreachable": "The base image cannot be reached",
        "index-unreachable": "A package source cannot be reached from the build",
        "unknown-package": f"The image's system has no package {_found(tail, code)}",
        "artifact-changed": "A downloaded package is not the expected file",
        "artifact-malformed": f"A package is malformed ({_found(tail, code)})",
        "artifact-gone": "A package is no longer offered",
        "build-step": "A build step failed",
    }[code]
    return BuildError(f"{what}{where} ({_shorten(reason)}).", code=code, hint=_HINTS[code], details=tail)


def _found(lines: Sequence[str], code: str) -> str:
    """Return the text that the groups in the patterns of ``code`` matched, such as the packages that apt does not know."""
    patterns = [pattern.text for pattern in PATTERNS if pattern.code == code]
    found = [match[1] for line in lines for text in patterns if (match := re.search(text, line)) and match.groups()]
    return ", ".join(dict.fromkeys(found)) or "of that name"


def _shorten(text: str, limit: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"

"""Parse the project pages of package indexes, in HTML or JSON."""

from __future__ import annotations

import datetime
import json
import re
import time
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import canonicalize_name

from envbuild.index import limits
from envbuild.names import is_file_name

# JSON is preferred (PEP 691), because only JSON always has upload times (PEP 700). Some indexes add upload times to HTML on
# request.
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_UTC = re.compile(r"[12]\d{3}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:\d\d(\.\d{1,9})?Z", re.ASCII)
_PACKAGES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz", ".egg", ".exe")
# Matches an address that the general URL functions would return unchanged. These functions take twenty times as long, and a
# page has thousands of addresses.
_PLAIN_ADDRESS = re.compile(r"https?://[a-z0-9][a-z0-9.-]*/[\w.~%+/-]*", re.ASCII)
_PIECE = 32 * 2**10
_LONGEST_TAG = 64 * 2**10


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexFile:
    """One file as an index offers it. ``sha256`` and ``uploaded`` (ISO time) are empty, and ``size`` is None, if the index does
    not state these values.

    ``index`` is ``default`` or a base URL. ``metadata`` (PEP 658) is None if the index does not serve the wheel's METADATA as a
    separate file. If the index serves this file, ``metadata`` is ``sha256=…`` with the hash of the file, or empty if the index
    states no hash.
    """

    index: str
    project: str
    filename: str
    url: str
    sha256: str
    size: int | None
    uploaded: str
    requires_python: str
    yanked: bool
    metadata: str | None

    @classmethod
    def pinned(cls, url: str, filename: str, sha256: str, *, index: str = "", project: str = "") -> IndexFile:
        """Make an IndexFile from a pinned address and hash, without a query to an index."""
        return cls(
            index=index,
            project=project,
            filename=filename,
            url=url,
            sha256=sha256,
            size=None,
            uploaded="",
            requires_python="",
            yanked=False,
            metadata=None,
        )


def parse(
    text: str, *, content_type: str, url: str, project: str, index: str, skipped: list[str] | None = None
) -> list[IndexFile]:
    """Return the files on a project's page, in order. Links on the page are relative to its ``url``.

    A file whose name, address or hash does not follow the standards is left out, with a line in ``skipped``. Raises ValueError
    if the text is not of this ``content_type``, or if all files are unusable.
    """
    name = canonicalize_name(project)
    left_out: list[str] = []
    entries = _of_json(text, url) if "json" in content_type.lower() else _of_html(text, url)
    files = []
    for entry in entries:
        try:
            files.append(_file(entry, project=name, index=index))
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            left_out.append(f"{_shown(entry)}: {error}")
    if left_out and not files:
        raise ValueError(f"none of its files has the form that the standards require; the first problem: {left_out[0]}")
    if skipped is not None:
        skipped.extend(left_out)
    return files


def _shown(entry: Any) -> str:
    name = entry.get("filename") if isinstance(entry, dict) else entry
    return repr(name)[:120]


def _file(entry: dict[str, Any], *, project: str, index: str) -> IndexFile:
    """Check one file, and return it. The check is strict, because its values are later used in paths, locks and Dockerfiles."""
    filename, address = entry["filename"], entry["url"]
    if not isinstance(filename, str) or not is_file_name(filename):
        raise ValueError("its name is not the name of a wheel or source archive")
    requires_python = entry.get("requires-python") or ""
    if not isinstance(requires_python, str) or len(requires_python) > limits.SPECIFIER_LETTERS:
        raise ValueError("its Requires-Python is not a text, or is too long")
    return IndexFile(
        index=index,
        project=project,
        filename=filename,
        url=_address(address),
        sha256=_hash({} if entry.get("hashes") is None else entry["hashes"]),
        size=_size(entry.get("size")),
        uploaded=_time(entry.get("upload-time")),
        requires_python=requires_python,
        yanked=bool(entry.get("yanked", False)),
        metadata=_metadata(entry.get("core-metadata", entry.get("dist-info-metadata"))),
    )


def _address(url: Any) -> str:
    if not isinstance(url, str) or len(url) > limits.URL_LETTERS:
        raise ValueError("its address is not a text, or is too long")
    if _PLAIN_ADDRESS.fullmatch(url):
        return url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or (parts.port or 1) < 1:  # `port` raises if it is invalid
        raise ValueError("its address does not begin with http or https")
    return urldefrag(url).url


def _hash(hashes: Any) -> str:
    found = hashes.get("sha256", "")
    if found == "":
        return ""
    if not isinstance(found, str) or not _SHA256.fullmatch(found):
        raise ValueError("its sha256 does not consist of 64 hexadecimal digits")
    return found.lower()


def _size(value: Any) -> int | None:
    """Return the size if the index states a possible one. Otherwise, return None; the file's server is queried later."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limits.FILE_BYTES
    return value if is_count else None


def _time(value: Any) -> str:
    """Return the upload time in UTC as ISO text, for the date limit; empty if the time is invalid."""
    if not isinstance(value, str) or len(value) > 40:
        return ""
    if _UTC.fullmatch(value):
        return value
    try:
        moment = datetime.datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return ""
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def _of_json(text: str, url: str) -> list[dict[str, Any]]:
    if text.count("{") + text.count("[") > limits.PAGE_VALUES:
        raise ValueError(f"it has more than {limits.PAGE_VALUES} values")
    try:
        data = json.loads(text, parse_constant=_nothing, parse_float=_nothing, parse_int=_count)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    if not isinstance(data, dict) or not isinstance(data.get("files"), list):
        raise ValueError("the page is JSON, but has no list of files")
    if len(data["files"]) > limits.PAGE_FILES:
        raise ValueError(f"it has more than {limits.PAGE_FILES} files")
    return [{**entry, "url": _joined(url, entry.get("url"))} if isinstance(entry, dict) else entry for entry in data["files"]]


def _nothing(_text: str) -> None:
    """Return None instead of a number that no field can have. So this number affects only its file, not the whole page."""


def _count(text: str) -> int | None:
    return int(text) if len(text) < 20 else None  # Python refuses numbers of more than 4300 digits


def _joined(page: str, target: Any) -> Any:
    if isinstance(target, str) and len(target) <= limits.URL_LETTERS and _PLAIN_ADDRESS.fullmatch(target):
        return target
    try:
        return urljoin(page, target) if target and isinstance(target, str) else None
    except ValueError:
        return None  # a file without an address is refused later


def _metadata(value: Any) -> str | None:
    if isinstance(value, dict):
        digest = value.get("sha256")
        return f"sha256={digest.lower()}" if isinstance(digest, str) and _SHA256.fullmatch(digest) else ""
    if isinstance(value, str) and value.startswith("sha256="):
        return _metadata({"sha256": value.removeprefix("sha256=")})
    return "" if value else None


def _of_html(text: str, url: str) -> list[dict[str, Any]]:
    parser = _Anchors()
    # Feed the parser in pieces. Otherwise, it would repeatedly search a long text for the end of an unfinished tag. Do not
    # close the parser, because an unfinished tag at the end is not a link.
    end = time.monotonic() + limits.PAGE_S
    for start in range(0, len(text), _PIECE):
        try:
            parser.feed(text[start : start + _PIECE])
        except (AssertionError, RecursionError) as error:  # the parser raises these errors for unknown markup
            raise ValueError(f"it is not HTML: {str(error)[:100]}") from error
        if time.monotonic() > end:
            raise ValueError(f"it cannot be read within {limits.PAGE_S:.0f} s")
        if len(parser.rawdata) > _LONGEST_TAG:
            raise ValueError(f"it has a tag of more than {_LONGEST_TAG} letters")
        if len(parser.anchors) > limits.PAGE_FILES:
            raise ValueError(f"it has more than {limits.PAGE_FILES} links")
    base = _joined(url, parser.base) or url
    entries = [_entry(attributes, base) for attributes in parser.anchors]
    # HTML pages contain other links, too. A link that cannot be a package is left out without a note about a malformed entry.
    return [entry for entry in entries if entry["filename"].lower().endswith(_PACKAGES)]


def _entry(attributes: dict[str, str | None], base: Any) -> dict[str, Any]:
    """Convert the attributes of an HTML link to the object that a page in JSON form would have for this file."""
    href = attributes["href"] or ""
    joined = _joined(base, href)
    if joined is None:
        return {"filename": href, "url": None}
    target, fragment = urldefrag(joined)
    digest = re.fullmatch(r"sha256=(\S+)", fragment)
    offered = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
    return {
        "filename": unquote(urlsplit(target).path.rsplit("/", 1)[-1]),
        "url": target,
        "hashes": {"sha256": digest[1]} if digest else {},
        "upload-time": attributes.get("data-upload-time"),
        "requires-python": attributes.get("data-requires-python"),
        "yanked": "data-yanked" in attributes,
        "core-metadata": None if offered is None else offered or True,
    }


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.base = ""
        self.anchors: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "base" and attributes.get("href") and not self.base:
            self.base = attributes["href"] or ""
        elif tag == "a" and attributes.get("href"):
            self.anchors.append({key: value for key, value in attributes.items() if key == "href" or key.startswith("data-")})

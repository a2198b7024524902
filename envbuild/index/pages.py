"""Project pages of package indexes, in both forms that the standards know, to one form of ours. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import canonicalize_name

# JSON first (PEP 691), as it alone is sure to carry upload times (PEP 700); some indexes add them to HTML when asked so.
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexFile:
    """One file as an index offers it. What the index does not say is empty: ``sha256``, ``uploaded`` (ISO time), ``size``.

    ``index`` is ``default`` or a base URL. ``metadata`` is None where the wheel's METADATA is not served beside it, else
    ``sha256=…`` of it, or empty where it is served without a hash (PEP 658).
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
        """A file of which somebody pinned address and hash, and whose index, if it has one, was not asked."""
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


def parse(text: str, *, content_type: str, url: str, project: str, index: str) -> list[IndexFile]:
    """The files on a project's page, in the page's order. ``url`` is the page's own, against which links are resolved.

    Raises ValueError where the text is not what ``content_type`` says.
    """
    name = canonicalize_name(project)
    read = _parse_json if "json" in content_type.lower() else _parse_html
    try:
        return read(text, url=url, project=name, index=index)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not of the form that the standards give it: {error!r}") from error


def _parse_json(text: str, *, url: str, project: str, index: str) -> list[IndexFile]:
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("files"), list):
        raise ValueError("the page is JSON, yet has no list of files")
    return [
        IndexFile(
            index=index,
            project=project,
            filename=entry["filename"],
            url=urldefrag(urljoin(url, entry["url"])).url,
            sha256=entry.get("hashes", {}).get("sha256", "").lower(),
            size=entry.get("size"),
            uploaded=entry.get("upload-time") or "",
            requires_python=entry.get("requires-python") or "",
            yanked=bool(entry.get("yanked", False)),
            metadata=_metadata(entry.get("core-metadata", entry.get("dist-info-metadata"))),
        )
        for entry in data["files"]
    ]


def _metadata(value: Any) -> str | None:
    if isinstance(value, dict):
        digest = value.get("sha256")
        return f"sha256={digest}" if digest else ""
    return "" if value else None


def _parse_html(text: str, *, url: str, project: str, index: str) -> list[IndexFile]:
    parser = _Anchors()
    parser.feed(text)
    parser.close()
    base = urljoin(url, parser.base) if parser.base else url
    files = []
    for attributes in parser.anchors:
        target, fragment = urldefrag(urljoin(base, attributes["href"] or ""))
        digest = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", fragment)
        offered = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
        files.append(
            IndexFile(
                index=index,
                project=project,
                filename=unquote(urlsplit(target).path.rsplit("/", 1)[-1]),
                url=target,
                sha256=digest.group(1).lower() if digest else "",
                size=None,
                uploaded=attributes.get("data-upload-time") or "",
                requires_python=attributes.get("data-requires-python") or "",
                yanked="data-yanked" in attributes,
                metadata=None if offered is None else offered if offered.startswith("sha256=") else "",
            )
        )
    return files


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
            self.anchors.append(attributes)

"""The documents as tests read them: links, code spans, and fenced blocks with the commands and the output that they show.

The first word after a fence is the language. Blocks of ``sh`` hold commands that must succeed; blocks of ``console`` hold
``$ commands`` with the output that they must have, where ``…`` stands for any text, and on a line of its own for any lines.
Further words say what the commands need; the normal suite runs every block that needs nothing.

======== =========================================================================================================
engine   a container engine; tests/integration/test_documents.py runs the block
network  a package index; the same
gpu      an NVIDIA GPU; never run by tests, but its options are parsed, as those of every block
cluster  other hosts, a registry, Slurm or Kubernetes; likewise
terminal a person who types, or who fills in names; likewise
checkout a checkout of its own, in which ``make`` sets up a virtual environment; likewise
======== =========================================================================================================

A block of another language may end with ``file=NAME``: it is written there before the next command runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
COMMANDS = ("sh", "console")
SHOWN = ("text", "yaml", "json", "python", "jinja", "dockerfile", "makefile", "diff")
RUN_WITH_ENGINE = frozenset({"engine", "network"})
NEVER_RUN = frozenset({"gpu", "cluster", "terminal", "checkout"})
ANY = "…"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command line of a block, and the output that the document shows for it (None where it shows none)."""

    line: str
    shown: str | None = None


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block."""

    path: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def where(self) -> str:
        """How messages and test names call it."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    @property
    def needs(self) -> frozenset[str]:
        """What its commands need beside envbuild itself."""
        return frozenset(word for word in self.words if "=" not in word)

    @property
    def file(self) -> str | None:
        """The file whose content it is."""
        return next((word.partition("=")[2] for word in self.words if word.startswith("file=")), None)

    def commands(self) -> list[Command]:
        """The commands of a block of ``sh`` or ``console``."""
        text = re.sub(r"\\\n\s*", "", self.text)
        if self.language == "sh":
            return [Command(line=line) for line in text.splitlines() if line.strip() and not line.startswith("#")]
        parts = re.split(r"^\$ (.*)\n?", text, flags=re.MULTILINE)
        assert not parts[0].strip(), f"{self.where}: output before the first command"
        return [Command(line=line, shown=shown) for line, shown in zip(parts[1::2], parts[2::2], strict=True)]


@cache
def pages() -> tuple[Path, ...]:
    """README and all other pages for people, except the changelog."""
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return tuple(own + sorted((ROOT / "docs").rglob("*.md")))


@cache
def _tokens(path: Path) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(path.read_text()))


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for token in _tokens(path):
        if token.type == "fence":
            language, *words = token.info.split() or [""]
            line = token.map[0] + 1 if token.map else 0
            yield Block(path=path, line=line, language=language, words=tuple(words), text=token.content)


def _inline(path: Path) -> Iterator[Token]:
    for token in _tokens(path):
        yield from token.children or ()


def links(path: Path) -> set[str]:
    """The targets of links and pictures."""
    named = {"link_open": "href", "image": "src"}
    return {str(token.attrGet(named[token.type])) for token in _inline(path) if token.type in named}


def spans(path: Path) -> set[str]:
    """What stands between backticks within sentences."""
    return {token.content for token in _inline(path) if token.type == "code_inline"}


def anchors(path: Path) -> set[str]:
    """The fragments that headings can be linked by, as GitHub makes them."""
    tokens = _tokens(path)
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def programs(line: str) -> Iterator[list[str]]:
    """The words of each simple command of a line, without assignments, and from an inner ``envbuild-smoke`` on."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in {"&&", "||", "|", ";", "&"}:
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            inner = words.index("envbuild-smoke") if "envbuild-smoke" in words else 0
            if words:
                yield words[inner:]
            words = []
        else:
            words.append(word)


def matches(shown: str, printed: str) -> bool:
    """Whether a command printed what a document shows, ignoring spaces at the ends of lines."""
    pattern = ""
    for line in shown.rstrip().splitlines():
        if line.strip() == ANY:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.rstrip().split(ANY)) + r"[ ]*\n"
    return re.fullmatch(pattern, printed.rstrip() + "\n") is not None

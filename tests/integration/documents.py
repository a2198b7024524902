"""Read the documents for tests: links, code spans, and fenced blocks with their commands and shown output.

The first word after a fence is the language. Blocks of ``sh`` contain commands that must succeed. Blocks of ``console`` contain
``$ commands`` with the output that they must have; there ``…`` stands for any text, and on a line of its own for any lines.
Further words say what the commands need. The normal suite runs every block without such a word.

======== =========================================================================================================
engine   a container engine; tests/integration/test_documents.py runs the block
network  a package index; tests/integration/test_documents.py runs the block
gpu      an NVIDIA GPU; tests never run the block, but parse its options, as those of every block
cluster  other hosts, a registry, Slurm or Kubernetes; tests only parse the options
terminal a person who types, or who fills in names; tests only parse the options
checkout a separate checkout, in which ``make`` sets up a virtual environment; tests only parse the options
======== =========================================================================================================

A block of another language may end with ``file=NAME``. Tests write its text into that file before the next command runs.
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
    """One command line of a block, and the output that the document shows for it (None if it shows none)."""

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
        """The page and line of the block, for messages and test names."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    @property
    def needs(self) -> frozenset[str]:
        """What the commands need in addition to envbuild itself."""
        return frozenset(word for word in self.words if "=" not in word)

    @property
    def file(self) -> str | None:
        """The name of the file into which tests write the text of the block, or None."""
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
    """README and all other pages of the documentation, except the changelog."""
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
    """The texts between backticks within sentences."""
    return {token.content for token in _inline(path) if token.type == "code_inline"}


def anchors(path: Path) -> set[str]:
    """The fragments by which links can point to headings, as GitHub forms them."""
    tokens = _tokens(path)
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def programs(line: str) -> Iterator[list[str]]:
    """The words of each simple command of a line, without variable assignments.

    A command that starts ``envbuild-smoke`` through another program begins with ``envbuild-smoke``.
    """
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
    """Whether the printed output is the output that a document shows. Spaces at the ends of lines do not count."""
    pattern = ""
    for line in shown.rstrip().splitlines():
        if line.strip() == ANY:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.rstrip().split(ANY)) + r"[ ]*\n"
    return re.fullmatch(pattern, printed.rstrip() + "\n") is not None

"""README and docs are right: links and files exist, and commands run and print the shown output."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import warnings
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import documents
import pytest
from documents import Block, pages

from envbuild.cli import frame
from envbuild.cli.session import Session

ROOT = documents.ROOT
PAGES = pages()
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
# Paths that begin with these folders must exist in the checkout, up to a placeholder (<name>, *, NAME, …).
FOLDERS = ("docs", "envbuild", "images", "matrix", "tests", "benchmarks", ".ci", ".github")
# The guest cannot be imported here, because it needs NumPy. So its options are read from its source.
GUEST_OPTIONS = {"--help", *re.findall(r"'(--[a-z-]+)'", (ROOT / "envbuild" / "smoke" / "cli.py").read_text())}
COMMAND = re.compile(r"^(\$ |(sudo )?(envbuild|docker|make) \w)", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in documents.links(page):
        parts = urlsplit(link)
        if parts.scheme in {"http", "https", "mailto"}:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.exists():
            broken.append(link)
        elif parts.fragment and parts.fragment not in documents.anchors(target):
            broken.append(f"{link}: no such heading")
    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / urlsplit(link).path).resolve() for link in documents.links(index) if not urlsplit(link).scheme}
    decisions = ROOT / "docs" / "decisions"
    missing = [name(page) for page in PAGES if page.is_relative_to(ROOT / "docs") and decisions not in page.parents]
    assert [each for each in missing if (ROOT / each) not in linked and each != "docs/index.md"] == []


@pytest.mark.parametrize("page", [page for page in PAGES if "decisions" not in page.parts], ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    """Decisions describe the day of the decision.

    Other pages name files of today's checkout and files that the reader writes.
    """
    gone = []
    written = {block.file for block in documents.blocks(page)}
    for span in documents.spans(page):
        for path in re.findall(rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./<>{{}}*-]*", span):
            known = re.split(r"[<*{]|[A-Z]{3,}", path.rstrip("."))[0]
            whole = known == path.rstrip(".")
            if path not in written and not (ROOT / (known if whole else known.rpartition("/")[0])).exists():
                gone.append(path)
    assert gone == []


def test_every_block_says_what_it_is() -> None:
    wrong = []
    for block in (block for page in PAGES for block in documents.blocks(page)):
        runs = block.language in documents.COMMANDS
        known = documents.RUN_WITH_ENGINE | documents.NEVER_RUN
        if not runs and block.language not in documents.SHOWN:
            wrong.append(f"{block.where}: the language {block.language!r} is not one of {documents.COMMANDS + documents.SHOWN}")
        elif runs and not block.needs <= known:
            wrong.append(f"{block.where}: {sorted(block.needs - known)} is not one of {sorted(known)}")
        elif not runs and block.path.name != "commands.md" and COMMAND.search(block.text):
            wrong.append(f"{block.where}: commands stand in blocks of sh or console")
    assert wrong == []


def parse(words: list[str]) -> None:
    """Parse a command line as envbuild does, without running the command. Raises for an unknown option or a bad value."""
    if words[0] == "envbuild-smoke":
        unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in GUEST_OPTIONS]
        if unknown:
            raise ValueError(f"unknown options {unknown}")
        return
    session = Session()
    for option, value in pairwise(words):
        if option in {"--data", "--to", "--folder"}:
            Path(value).mkdir(exist_ok=True, parents=True)  # the option needs an existing folder
    with warnings.catch_warnings(action="ignore"), frame.app.make_context("envbuild", words[1:], obj=session) as context:
        command: click.Command = frame.app
        while isinstance(command, click.Group) and context.protected_args + context.args:
            inner, found, rest = command.resolve_command(context, context.protected_args + context.args)
            assert found is not None
            below = found.make_context(inner, rest, parent=context)
            command, context = found, below  # noqa: PLW2901 - one level down


def programs(block: Block) -> list[list[str]]:
    return [words for command in block.commands() for words in documents.programs(command.line)]


def complaint(words: list[str], where: str, *, partly: bool) -> list[str]:
    """The error in a command line, if any; with ``partly`` the line may lack arguments of the command."""
    try:
        parse([Path(words[0]).name, *words[1:]])
    except click.exceptions.Exit:  # --help, --version
        return []
    except click.MissingParameter as error:
        return [] if partly else [f"{where}: {shlex.join(words)}: {error}"]
    except (click.ClickException, ValueError) as error:
        return [f"{where}: {shlex.join(words)}: {error}"]
    return []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_that_are_shown_are_options(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for block in (block for block in documents.blocks(page) if block.language in documents.COMMANDS):
        for words in programs(block):
            if Path(words[0]).name in {"envbuild", "envbuild-smoke"}:
                # A command may lack the name if the folder has an envbuild.yaml; the test that runs the block checks this.
                wrong += complaint(words, block.where, partly=bool(block.needs))
    for span in documents.spans(page):
        if re.match(r"envbuild(-smoke)? \S", span):
            wrong += complaint(shlex.split(span.replace("…", "")), name(page), partly=True)
    assert wrong == []


def quick(page: Path) -> list[Block]:
    runs = [block for block in documents.blocks(page) if block.file or block.language in documents.COMMANDS]
    return [block for block in runs if not block.needs]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for all pages, so that the matrix is compiled only once."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("page", [page for page in PAGES if any(not block.file for block in quick(page))], ids=name)
def test_commands_run_and_print_what_is_shown(page: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVBUILD_ROOT", str(ROOT))
    monkeypatch.setenv("ENVBUILD_HOME", str(home))
    monkeypatch.delenv("ENVBUILD_MATRIX", raising=False)
    monkeypatch.chdir(tmp_path)
    for block in quick(page):
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
            continue
        for command in block.commands():
            words = shlex.split(command.line, comments=True)
            assert words[0] == "envbuild", f"{block.where}: {command.line!r} needs something that the block does not say"
            with io.StringIO() as printed, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                code = frame.run(words[1:])
                text = printed.getvalue()
            assert code not in {1, 2}, f"{block.where}: {command.line}\n{text}"
            if command.shown is None:
                assert code == 0, f"{block.where}: {command.line}: exit {code}\n{text}"
            elif not documents.matches(command.shown, text):
                pytest.fail(f"{block.where}: {command.line} prints\n{text}\nnot\n{command.shown}")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n…\nd", "a\nb\nc\nd\n", True),
        ("a\n…\nd", "a\nd\n", True),
        ("lock … s  3 files", "lock  1.0 s  3 files\n", True),
        ("a\nd", "a\nb\nd\n", False),
        ("lock … 3 files", "lock 4 files\n", False),
        ("a", "a\nb\n", False),
    ],
)
def test_output_is_compared(shown: str, printed: str, same: bool) -> None:
    assert documents.matches(shown, printed) is same


def test_an_unknown_option_is_found() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["envbuild", "resolve", "tf-1.12", "--gpus", "all"])
    with pytest.raises(ValueError, match="--no-such-option"):
        parse(["envbuild-smoke", "run", "--no-such-option"])


def test_commands_within_a_line_are_found() -> None:
    line = "cd x && A=1 envbuild make . | tee log; docker run --rm IMAGE envbuild-smoke --counts 1"
    assert list(documents.programs(line)) == [
        ["cd", "x"],
        ["envbuild", "make", "."],
        ["tee", "log"],
        ["envbuild-smoke", "--counts", "1"],
    ]


def _where() -> list[tuple[str, str]]:
    """The files and functions in the table under "Where to look"."""
    section = (ROOT / "docs" / "architecture.md").read_text().split("## Where to look", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"\| `(envbuild/[^`]+)` \| `(\w+)` \|$", section, re.MULTILINE)


def test_the_questions_of_the_architecture_page_have_ten_answers() -> None:
    assert len(_where()) == 10


@pytest.mark.parametrize(("file", "function"), _where())
def test_an_answer_names_a_file_that_defines_the_function(file: str, function: str) -> None:
    assert re.search(rf"^ *def {function}\(", (ROOT / file).read_text(), re.MULTILINE), file

"""Rules of the design that no linter checks."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from real_matrix import FACTS

from envbuild import errors, model, procs
from envbuild.index import pip_internals
from envbuild.matrix.types import Matrix

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "envbuild"
GUEST = PACKAGE / "smoke"


def tracked(*patterns: str) -> list[Path]:
    """Files that git tracks or that `git add` would add, except symbolic links and deleted files."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = procs.run(command).output.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def own_modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if GUEST not in path.parents]


@functools.cache
def facts() -> Matrix:
    return FACTS


def framework_names() -> set[str]:
    """Every name and alias of every framework in the matrix."""
    names: set[str] = set()
    for framework in facts().frameworks:
        names |= {framework.name, framework.short, framework.title, *framework.aliases}
    return {name.lower() for name in names}


def test_no_python_outside_the_guest_names_a_framework():
    names = framework_names()
    assert len(names) >= 6
    either = "|".join(re.escape(name) for name in sorted(names))
    word = re.compile(rf"(?<![a-z0-9])(?:{either})(?![a-z0-9])", re.IGNORECASE)
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in own_modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line)
    ]
    assert not hits, "\n".join(hits)


# Public hosts of distributions and vendors, which facts and documents may name.
_PUBLIC = (
    ".ubuntu.com",
    ".debian.org",
    ".launchpad.net",
    ".launchpadcontent.net",
    ".docker.com",
    ".nvidia.com",
    ".microsoft.com",
)
_UBUNTU = """\
Types: deb
URIs: http://archive.ubuntu.com/ubuntu/
Suites: noble noble-updates noble-backports
URIs: http://security.ubuntu.com/ubuntu/
deb [signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/ubuntu noble stable
"""


def registry_hosts(*settings: str) -> set[str]:
    """The hosts of pip's built-in index, and the hosts in ``settings`` (of pip and apt) that are not public."""
    found = (re.findall(r"https?://(?:[^/\s'\"@]*@)?([a-z0-9.-]+\.[a-z]{2,})", text) for text in settings)
    hosts = {host for each in found for host in each if not f".{host}".endswith(_PUBLIC)}
    known = [repository.url for repository in facts().repositories] + [row.snapshot for row in facts().systems]
    return set(pip_internals.public_hosts()) | hosts - {urlsplit(url).netloc for url in known}


def settings_of_this_machine() -> list[str]:
    places = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    pip = procs.run([str(Path(procs.find("python3") or "python3")), "-m", "pip", "config", "list"]).output
    return [pip, *(place.read_text(errors="replace") for place in places if place.is_file())]


def test_a_mirror_of_ones_own_is_a_registry_host_and_a_distributions_archive_is_none():
    assert registry_hosts(_UBUNTU) == registry_hosts()
    mirrors = ("deb http://apt.corp.example/ubuntu noble main", "global.index-url='https://me:pw@pip.corp.example/simple'")
    assert registry_hosts(*mirrors) - registry_hosts() == {"apt.corp.example", "pip.corp.example"}


def test_no_tracked_file_names_a_registry_host():
    hosts = registry_hosts(*settings_of_this_machine())
    word = re.compile("|".join(re.escape(host) for host in sorted(hosts)))
    hits = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        hits += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), 1)
            if word.search(line)
        ]
    assert not hits, "\n".join(hits)


def test_exit_codes_are_the_documented_ones_and_unique():
    codes = [kind.exit_code for kind in errors.EnvbuildError.__subclasses__()]
    assert sorted(codes) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 124, 130]


def test_default_codes_are_unique():
    words = [kind.default_code for kind in errors.EnvbuildError.__subclasses__()]
    assert len(words) == len(set(words))


def test_values_between_stages_are_frozen_and_keyword_only():
    modules = [importlib.import_module(each.name) for each in pkgutil.iter_modules(model.__path__, f"{model.__name__}.")]
    found = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    kinds = [kind for kind in found if kind.__module__.startswith(f"{model.__name__}.") and dataclasses.is_dataclass(kind)]
    assert len(kinds) > 25
    for kind in kinds:
        parameters = kind.__dataclass_params__
        assert parameters.frozen, kind
        assert all(field.kw_only for field in dataclasses.fields(kind)), kind
        assert "__slots__" in vars(kind), kind


@pytest.mark.parametrize("path", sorted((PACKAGE / "schemas").glob("*.json")), ids=lambda path: path.name)
def test_schemas_are_valid_draft_2020_12(path):
    import jsonschema

    schema = json.loads(path.read_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_the_published_schemas_are_all_there():
    names = {path.stem for path in (PACKAGE / "schemas").glob("*.json")}
    assert {"matrix", "recipe", "lock", "refusal", "smoke-report"} <= names


def public_functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node, f"{node.name}.")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield f"{inside}{node.name}", node


def test_every_public_function_has_a_docstring():
    bare = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in own_modules()
        for name, node in public_functions(ast.parse(path.read_text()))
        if not ast.get_docstring(node)
    ]
    assert not bare, "\n".join(bare)


def test_modules_are_short_enough_to_read_at_once():
    long = [f"{path.relative_to(ROOT)}: {n}" for path in own_modules() if (n := len(path.read_text().splitlines())) > 400]
    assert not long, "\n".join(long)


def test_only_procs_starts_processes():
    # ruff bans imports of subprocess; this test finds the other ways to start a process
    doors = re.compile(r"\bos\.(system|popen|exec\w+|spawn\w+|fork\w*|posix_spawn\w*)\(|\bpty\.|multiprocessing")
    others = {"procs.py", "compile_program.py"}  # the text of the latter runs in containers
    hits = [str(path) for path in own_modules() if path.name not in others and doors.search(path.read_text())]
    assert not hits


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_in(path: Path) -> Iterator[list[str]]:
    """Every `envbuild …` and `make …` command line in the code blocks and code spans of a page."""
    text = path.read_text()
    blocks = re.findall(r"^```(?:sh|console|shell)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [
        line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith(("$ ", "envb", "make "))
    ]
    lines += re.findall(r"`((?:envbuild|make) [^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for line in lines:
        words = shlex.split(line, comments=True)
        if words and words[0] in ("envbuild", "make"):
            yield words


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_commands_in_the_documents_exist(path):
    from envbuild.cli.frame import VERBS, app

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands_in(path):
        if words[0] == "make":
            for word in words[1:]:
                assert "=" in word or word in targets, words
            continue
        rest = words[1 : words.index("--")] if "--" in words else words[1:]  # the words after `--` are for another program
        assert rest[0] in VERBS or rest[0].startswith("-"), words
        if rest[0] in VERBS:
            command = app.get_command(None, rest[0])  # type: ignore[arg-type]
            command = getattr(command, "commands", {}).get(rest[1], command) if len(rest) > 1 else command
            known = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)} | {"--help"}
            for word in rest:
                if word.startswith("-") and word != "--":
                    assert word.split("=")[0] in known, (word, words)


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each string in a module, with X for values; without docstrings and help texts of options."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "help":
            skipped |= set(ast.walk(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped |= set(node.values)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


# These texts contain no command that needs the options: titles, a sentence about a verb, and commands for the private engine.
# The texts around init_command put a colon or a backtick before it.
_NO_COMMANDS = (
    "envbuild linkcheck needs NAME, or --image IMAGE.",
    "envbuild smoke X",
    "envbuild check",
    "envbuild update",
    "envbuild catalogue X",
    "sudo -E envbuild engine up",
    "envbuild engine up",
    "envbuild init my-env",
)


def test_every_command_in_a_text_can_get_the_options_of_the_run():
    """envbuild adds the options --root, --matrix and --policy to each command that it prints; so it must recognise each one."""
    from envbuild.cli.verbs import VERBS, with_options

    word = re.compile(rf"envbuild (?:{'|'.join(VERBS)})\b(?![a-z ]*--help)")
    missed = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in own_modules()
        for line, text in texts_of(path)
        if word.search(with_options(text, ["--root=/x"])) and text not in _NO_COMMANDS
    ]
    assert not missed, "\n".join(missed)


def test_the_readme_starts_with_the_two_commands():
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:24])
    assert "\nmake demo " in screen
    assert "\nenvbuild make tf-1.12-cuda9 " in screen
    assert re.search(r"!\[[^]]+\]\(docs/pictures/report.svg\)", screen)


def test_make_help_lists_every_public_target():
    text = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert {"help", "demo", "test", "prove", "lint", "format", "bench", "clean"} <= named
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split())
    assert named <= phony


def test_continuous_integration_runs_make_test():
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[-1].split()[-2:] == ["make", "test"]


def test_committed_files_hold_no_path_of_the_machine():
    home = re.compile(rf"{re.escape(str(Path.home()))}/|{re.escape(str(ROOT))}\b")
    hits = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        hits += [f"{path.relative_to(ROOT)}: {m.group(0)}" for m in [home.search(text)] if m]
    assert not hits, "\n".join(hits)


def test_each_decision_has_a_number_of_its_own():
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) > 10
    assert sorted(numbers) == sorted(set(numbers))


def test_pips_internal_modules_are_imported_in_one_place_only():
    users = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"\b(from|import) pip\._internal", path.read_text())]
    assert users == ["pip_internals.py"]


def test_packages_offer_nothing_of_their_modules():
    """Packages re-export nothing. Callers import the modules, whose names describe their contents. A package may contain code
    itself.
    """
    again = re.compile(r"^__all__\b|^from envbuild\S* import .*\b(\w+) as \1\b", re.MULTILINE)  # ruff finds others
    assert not [str(path.relative_to(ROOT)) for path in own_modules() if again.search(path.read_text())]


def test_only_the_edge_reads_environment_variables():
    """procs and guard pass the whole environment to child processes; cli, workspace and the settings read variables."""
    edge = {"workspace.py", "index/settings.py", "engine/choice.py", "engine/containers.py", "procs.py", "guard.py"}
    edge.add("compose/compile_program.py")  # its text runs in containers
    reads = re.compile(r"\bos\.(environb?|getenvb?)\b|from os import .*\b(environ|getenv)|\bexpandvars\b")
    readers = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if reads.search(path.read_text())}
    inner = {name for name in readers if not name.startswith(("smoke/", "cli/"))}
    assert inner <= edge, sorted(inner - edge)


def private_names(tree: ast.AST) -> Iterator[str]:
    """The private names of envbuild modules that a test imports, reads or replaces."""
    imports = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("envbuild")
    ]
    ours = {alias.asname or alias.name for node in imports for alias in node.names}
    yield from (name for name in ours if name.startswith("_"))
    for node in ast.walk(tree):
        owner = node
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        if isinstance(node, ast.Attribute) and isinstance(owner, ast.Name) and owner.id in ours:
            yield from [ast.unparse(node)] * bool(re.match(r"_(?!_)", node.attr))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            yield from (
                f"{each.value}" for each in node.args[:2] if re.search(r"^_(?!_)|\._(?!_)", str(getattr(each, "value", "")))
            )


def test_unit_tests_touch_no_private_names():
    hits = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked("tests/unit/*.py")
        for name in private_names(ast.parse(path.read_text()))
    ]
    assert not hits, "\n".join(hits)
    planted = "from envbuild.cli import frame\nfrom envbuild.codec import _read\nframe._signals()\n"
    planted += "monkeypatch.setattr(frame, '_WAIT', 0)\nmonkeypatch.setattr('envbuild.cli.frame._WAIT', 0)\n"
    assert len(list(private_names(ast.parse(planted)))) == 4


def test_unit_tests_mirror_the_program():
    """A test is in the folder that mirrors the package of its module.

    The name of a test outside of such a folder begins with the name of its module or package.
    """
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py") and not path.name.startswith("_")}
    hits = []
    for path in tracked("tests/unit/*.py"):
        folder = path.parent.relative_to(ROOT / "tests" / "unit")
        about = path.stem.removeprefix("test_")
        if path.stem.startswith("test_") and str(folder) == ".":
            hits += [path.name] * (not any(f"{about}_".startswith(f"{name}_") for name in names))
        elif path.stem.startswith("test_"):
            hits += [str(folder)] * (not (PACKAGE / folder).is_dir())
    assert not hits, "\n".join(hits)


def test_no_test_keeps_its_caches_in_the_checkout():
    """Later tests would take files in such a cache for data of the project."""
    folders = re.compile(r"\bROOT\b|\bREPOSITORY\b|\brepository\b|__file__")
    hits = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith(("Workspace", "Program")):
                continue
            homes = [ast.unparse(each.value) for each in call.keywords if each.arg == "home"]
            hits += [f"{path.name}:{call.lineno}: {home}" for home in homes if folders.search(home)]
    assert not hits, "\n".join(hits)

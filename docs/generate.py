"""Write the pages in docs/reference/ that follow from the program: commands, options, errors, checks, and fields of files.

    python docs/generate.py [--check]

`make docs` runs this program. With --check it writes nothing, and exits with 1 if a page is out of date.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from envbuild import errors
from envbuild.cli import frame
from envbuild.smoke import explain

HERE = Path(__file__).resolve().parent / "reference"
PACKAGE = Path(errors.__file__).parent
HEAD = "<!-- Made by `make docs` from the program: edits here are lost. -->\n\n"
SCHEMAS = {
    "recipe": ("recipe-fields.md", "Fields of a recipe"),
    "stack": ("stack-fields.md", "Fields of a stack"),
    "matrix": ("matrix-fields.md", "Fields of the matrix"),
    "envbuild": ("envbuild-fields.md", "Fields of an envbuild.yaml"),
    "lock": ("lock-fields.md", "Fields of a lock"),
    "bundle": ("bundle-fields.md", "Fields of a bundle"),
    "catalogue": ("catalogue-fields.md", "Fields of a catalogue.json"),
    "smoke-report": ("report-fields.md", "Fields of a smoke report"),
    "resolution": ("resolution-fields.md", "Fields of a resolution"),
    "refusal": ("refusal-fields.md", "Fields of a refusal"),
    "measurement": ("measurement-fields.md", "Fields of a measurement"),
    "linkcheck": ("linkcheck-fields.md", "Fields of a link check"),
    "batch": ("batch-fields.md", "Fields of the answer about several environments"),
    "run": ("run-fields.md", "Fields of a command to run"),
    "plan": ("plan-fields.md", "Fields of a plan"),
    "policy": ("policy-fields.md", "Fields of a policy"),
    "check": ("check-fields.md", "Fields of the answer of check"),
    "registry": ("registry-fields.md", "Fields of the answer about a registry"),
    "update": ("update-fields.md", "Fields of the answer of update"),
    "bake": ("bake-fields.md", "Fields of the answer of bake"),
}


def pages() -> dict[str, str]:
    """Return a map from the file name of every page to the page's text."""
    made = {"commands.md": commands(), "errors.md": failures(), "checks.md": checks()}
    for schema, (name, title) in SCHEMAS.items():
        made[name] = fields(title, json.loads((PACKAGE / "schemas" / f"{schema}.json").read_text()))
    return {name: HEAD + text.rstrip() + "\n" for name, text in made.items()}


def commands() -> str:
    """Return the page that lists every verb and every option with their help texts."""
    group = frame.Verbs()
    context = click.Context(group, info_name="envbuild")
    found = {verb: command for verb in group.list_commands(context) if (command := group.get_command(context, verb))}
    common = _common([_options(command, click.Context(command)) for command in found.values()])
    lines = [
        "# Commands",
        "",
        "The option `--help` of each command prints the same text. In a line of syntax, parts in brackets may be left out.",
        "",
    ]
    lines += ["## Options of most commands", "", *_listed(common), ""]
    for verb, command in found.items():
        lines += _command(command, click.Context(command, info_name=f"envbuild {verb}"), frame.VERBS[verb][1], common)
    return "\n".join(lines)


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    return [record for each in command.get_params(context) if (record := each.get_help_record(context))]


def _common(lists: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return the options that more than half of the verbs have. They are in the order of the verb that has the most of them."""
    often = [
        each
        for each in dict.fromkeys(each for options in lists for each in options)
        if sum(each in other for other in lists) > len(lists) / 2
    ]
    return sorted(often, key=max(lists, key=lambda each: len(set(often) & set(each))).index)


def _listed(options: list[tuple[str, str]]) -> list[str]:
    return ["| option | meaning |", "|---|---|", *(f"| {_code(name)} | {_cell(words)} |" for name, words in options)]


def _command(command: click.Command, context: click.Context, line: str, common: list[tuple[str, str]]) -> Iterator[str]:
    usage = command.get_usage(context).removeprefix("Usage: ")
    told = inspect.cleandoc(command.help or "").replace("\b\n", "")
    yield from (f"## {context.info_name}", "", line, "", "```text", " ".join(usage.split()), "```", "")
    first, _, rest = told.partition("\n\n")
    if further := rest if " ".join(first.split()) == line else told:
        yield from (further, "")
    options = _options(command, context)
    own = [(name, words) for name, words in options if words and (name, words) not in common]
    shared = [each for each in options if each in common]
    if own:
        yield from (*_listed(own), "")
    if shared:
        names = ", ".join(_code(name.split(",")[-1].split()[0]) for name, _ in shared)
        yield from (f"It also takes these [options of most commands](#options-of-most-commands): {names}.", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            below = click.Context(inner, info_name=f"{context.info_name} {name}")
            yield from _command(inner, below, inner.get_short_help_str(200), common)


def failures() -> str:
    """Return the page that lists the exit codes, and for each exit code the possible values of `error.code`."""
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.EnvbuildError)]
    classes = sorted((each for each in classes if each is not errors.EnvbuildError), key=lambda each: each.exit_code)
    codes = _codes({each.__name__ for each in classes})
    lines = [
        "# Errors",
        "",
        "Exit code 0 means success. Exit code 1 means a bug in envbuild: please report it. With `--json`, the field",
        "`error.code` of the answer has one of the words in the last column.",
        "",
    ]
    lines += ["| exit code | meaning | values of `error.code` |", "|---|---|---|"]
    for each in classes:
        words = ", ".join(f"`{word}`" for word in sorted({each.default_code, *codes.get(each.__name__, ())}))
        lines.append(f"| {each.exit_code} | {_cell(inspect.getdoc(each) or '')} | {words} |")
    return "\n".join(lines)


def _codes(classes: set[str]) -> dict[str, set[str]]:
    """Return a map from the name of each error class to the values of `code` with which the program raises this error."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (name := _name(node.func)) in classes:
                words = [each.value for each in node.keywords if each.arg == "code"]
                found.setdefault(name, set()).update(
                    each.value
                    for word in words
                    for each in ast.walk(word)
                    if isinstance(each, ast.Constant) and _is_word(each.value)
                )
    return found


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def checks() -> str:
    """The page that lists every check of the smoke test: what it means, and what to do when it fails."""
    lines = [
        "# Checks of the smoke test",
        "",
        "`envbuild-smoke explain ID` prints the same inside an image. For each check, the tests plant a fault that it finds.",
        "",
        "| id | passes if |",
        "|---|---|",
        *(f"| `{key}` | {_cell(title)} |" for key, (title, _) in explain.TEXTS.items()),
    ]
    for key, (title, text) in explain.TEXTS.items():
        lines += ["", f"## {key}", "", f"*{title[0].upper()}{title[1:]}.* {' '.join(text.split())}"]
    return "\n".join(lines)


def fields(title: str, schema: Mapping[str, Any]) -> str:
    """The page that lists every field of a JSON schema with its description."""
    lines = [f"# {title}", "", f"{schema['title']}.", "", *_table("", schema, schema)]
    for name, inner in schema.get("$defs", {}).items():
        if "properties" in inner:
            lines += [
                "",
                f"## {name}",
                "",
                *([inner["description"], ""] if "description" in inner else []),
                *_table("", inner, schema),
            ]
    return "\n".join(lines)


def _table(prefix: str, part: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    lines = ["| field | type | required | meaning |", "|---|---|---|---|"]
    return lines + list(_rows(prefix, part, schema))


def _rows(prefix: str, part: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    required = set(part.get("required", ()))
    for name, inner in part.get("properties", {}).items():
        must = "yes" if name in required else ""
        told = "" if isinstance(inner, bool) else inner.get("description", "")
        yield f"| `{prefix}{name}` | {_kind(inner, schema)} | {must} | {_cell(told)} |"
        if not isinstance(inner, bool) and "properties" in inner:
            yield from _rows(f"{prefix}{name}.", inner, schema)


def _kind(part: Mapping[str, Any] | bool, schema: Mapping[str, Any]) -> str:
    """Describe the type of a value in words. A type with fields of its own becomes a link to these fields."""
    if isinstance(part, bool):
        return "anything"
    if "$ref" in part:
        name = part["$ref"].rsplit("/", 1)[-1]
        inner = schema["$defs"][name]
        return (
            f"[{name}](#{name})" if "properties" in inner else inner.get("description", "").rstrip(".") or _kind(inner, schema)
        )
    if "const" in part:
        return f"`{json.dumps(part['const'])}`"
    if "enum" in part:
        return " or ".join(f"`{json.dumps(each)}`" for each in part["enum"])
    for key in ("anyOf", "oneOf"):
        if key in part:
            return " or ".join(dict.fromkeys(_kind(each, schema) for each in part[key]))
    if part.get("type") == "array":
        return f"list of {_kind(part.get('items', {}), schema)}"
    if part.get("type") == "object" and isinstance(part.get("additionalProperties"), Mapping):
        return f"map from name to {_kind(part['additionalProperties'], schema)}"
    kind = part.get("type", "anything")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    made = pages()
    stale = [name for name, text in made.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    extra = [path.name for path in HERE.glob("*.md") if path.name not in made and path.read_text().startswith(HEAD)]
    if options.check:
        for name in stale + extra:
            print(f"docs/reference/{name} is not what the program says: run `make docs`")
        return int(bool(stale or extra))
    HERE.mkdir(exist_ok=True)
    for name in stale:
        (HERE / name).write_text(made[name])
    for name in extra:
        (HERE / name).unlink()
    print(f"docs/reference: {len(made)} pages, {len(stale)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""All problems of a file are reported at once, each with its line. Nothing is guessed or executed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.errors import InvalidInputError, Problem
from envbuild.yaml_reader import Table, load, raise_for


def read(text: str | bytes) -> tuple[Table | None, list[Problem]]:
    problems: list[Problem] = []
    return load(text, "file.yaml", problems), problems


def table(text: str) -> tuple[Table, list[Problem]]:
    found, problems = read(text)
    assert found is not None
    return found, problems


def lines(problems: list[Problem]) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in problems]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\na: 2\n", 2, "a is repeated; first on line 1"),
        ("x:\n  b: 1\n  b: 2\n", 3, "b is repeated; first on line 2"),
        ("1: x\n", 1, "this key must be text: put 1 in quotes"),
        ("? [a, b]\n: x\n", 1, "this key must be text: it is a list or a mapping"),
        ("a: &one [x]\nb: *one\n", 1, "anchors and aliases are not supported here: repeat the value instead"),
        ("<<: {a: b}\n", 1, "this key must be text: put << in quotes"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "the tag or key python/object/apply:os.system is not supported here"),
        ("a: [1, 2\n", 2, "not YAML: while parsing a flow sequence did not find expected ',' or ']'"),
        ("a: b\n---\nc: d\n", 2, "not YAML: expected a single document in the stream but found another document"),
        ("- a\n", 1, "the document must be a mapping"),
        ("", 1, "the document must be a mapping"),
        ("[" * 100_000, 1, "not YAML: nested deeper than 40 levels"),
        ("{a: " * 100_000, 1, "not YAML: nested deeper than 40 levels"),
    ],
)
def test_structure_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    _, problems = read(text)
    assert (line, message) in lines(problems)


def test_bytes_that_are_no_text() -> None:
    assert lines(read(b"a: b\nc: \xff\n")[1]) == [(2, "not UTF-8: invalid start byte")]
    assert "not YAML" in read(b"a: \x01")[1][0].message


@pytest.mark.parametrize(
    ("written", "kind"),
    [("12.10", "a number"), ("9", "an integer"), ("1e3", "a number"), ("yes", "true or false"), ("2018-11-05", "a date")],
)
def test_text_that_yaml_would_garble_has_to_be_quoted(written: str, kind: str) -> None:
    found, problems = table(f"version: {written}\n")
    found.text("version")
    if written == "1e3":  # in YAML 1.1 a float needs a dot, so this is text
        assert problems == []
        return
    assert lines(problems) == [(1, f'version: YAML reads {written} as {kind}: quote it, "{written}"')]
    quoted, problems = table(f'version: "{written}"\n')
    assert quoted.text("version") == written and problems == []


def test_lists_of_versions_are_checked_item_by_item() -> None:
    found, problems = table('python: ["3.5", 3.10, null, [x]]\n')
    assert found.texts("python") == ("3.5",)
    assert lines(problems) == [
        (1, 'python[1]: YAML reads 3.10 as a number: quote it, "3.10"'),
        (1, "python[2]: text expected, found nothing"),
        (1, "python[3]: text expected, found a list or a mapping"),
    ]


def test_all_problems_of_a_table_at_once_with_their_lines() -> None:
    found, problems = table("name: 1.5\nsize: many\nflag: maybe\nlist: x\ninner: y\nwhen: someday\nextra: z\nnmae: q\n")
    found.text("name")
    found.integer("size")
    found.boolean("flag")
    found.texts("list")
    found.table("inner")
    found.date("when")
    found.text("absent")
    found.finish()
    assert sorted(line for line, _ in lines(problems)) == [1, 1, 2, 3, 4, 5, 6, 7, 8]
    assert (8, "nmae: unknown key, did you mean name?") in lines(problems)
    assert (7, "extra: unknown key") in lines(problems)
    assert (1, "absent is missing") in lines(problems)


def test_values_of_every_kind() -> None:
    found, problems = table(
        "t: x\nd: 2018-11-05\nm: '2024-07'\ni: 3\nf: 2.5\nn: 4\nb: true\none: x\nmany: [x, y]\n"
        "map: {a: '1', b: '2'}\nrows:\n  - {a: x}\n  - {a: y}\nnamed: {p: {q: r}}\nmixed: [x, {a: y}]\n"
    )
    assert (found.text("t"), found.date("d"), found.date("m")) == ("x", "2018-11-05", "2024-07")
    assert (found.integer("i"), found.number("f"), found.number("n"), found.boolean("b")) == (3, 2.5, 4.0, True)
    assert (found.texts("one", one=True), found.texts("many")) == (("x",), ("x", "y"))
    assert found.text_map("map") == {"a": "1", "b": "2"}
    rows = found.tables("rows")
    assert [row.text("a") for row in rows] == ["x", "y"]
    assert [row.line for row in rows] == [12, 13]
    assert [(name, inner.text("q")) for name, inner in found.named_tables("named")] == [("p", "r")]
    assert found.mixed("mixed", str.upper, lambda item: item.text("a")) == ("X", "y")
    assert (found.text("none", "d"), found.texts("none"), found.number("none"), found.table("none")) == ("d", (), None, None)
    found.finish()
    assert problems == []


def test_choices_and_patterns() -> None:
    found, problems = table("a: x\nb: y\n")
    assert found.text("a", "p", choices=("p", "q")) == "p"
    assert found.text("b", pattern=r"\d+") == ""
    assert lines(problems) == [(1, "a: 'x' is not one of p, q"), (2, "b: 'y' does not have the expected form")]


def test_raising_sorts_and_counts() -> None:
    raise_for([], "The file")
    problems = [Problem(where="b", line=2, message="two"), Problem(where="a", line=9, message="one")] * 2
    with pytest.raises(InvalidInputError) as caught:
        raise_for(problems, "The file")
    assert [str(problem) for problem in caught.value.problems] == ["a:9: one", "b:2: two"]
    assert caught.value.message == "The file has 2 problems; the first: a:9: one"
    with pytest.raises(InvalidInputError, match="The recipes have a problem: b:2: two"):
        raise_for(problems[:1], "The recipes", is_plural=True)


def test_a_refused_key_is_known_and_a_problem_only_if_it_is_there() -> None:
    found, problems = read("other: 1\nb: 2\n")
    assert found is not None
    found.refuse(("b", "c"), "not here")
    found.finish()
    assert sorted(lines(problems)) == [(1, "other: unknown key"), (2, "b: not here")]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(st.text(max_size=60), st.text(alphabet="ab:- \n[]{}&*!?|>'\"#%@1.", max_size=60), st.binary(max_size=60)))
def test_any_bytes_are_read_or_explained(content: str | bytes) -> None:
    found, problems = read(content)
    assert found is not None or problems
    if found is not None:
        for key in found.keys():  # noqa: SIM118 - not a dict
            found.text(key)
            found.tables(key)
            found.mixed(key, str, lambda item: str(item.keys()))
            found.text_map(key)
        found.finish()


def test_a_character_that_yaml_forbids_has_its_line() -> None:
    problems: list[Problem] = []
    assert load("a: b\né: é\nd: \x7f\n".encode(), "x.yaml", problems) is None
    assert [(problem.line, problem.message) for problem in problems] == [(3, "not YAML: control characters are not allowed")]

"""The folder of a site is replaced as a whole, and never contains an unfinished site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.errors import UsageError
from envbuild.pipeline import site_folder

FIRST = [("catalogue.json", "1"), ("a/b.html", "one")]
SECOND = [("catalogue.json", "2"), ("c.html", "two")]


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_site_is_replaced_as_a_whole(tmp_path: Path) -> None:
    site = tmp_path / "new" / "site"
    assert site_folder.write(site, FIRST) == 3
    assert tree(site) == {"catalogue.json": "1", "a/b.html": "one", "files.txt": "a/b.html\ncatalogue.json\nfiles.txt\n"}
    site_folder.write(site, SECOND)
    assert set(tree(site)) == {"catalogue.json", "c.html", "files.txt"}
    assert [path.name for path in site.parent.iterdir()] == ["site"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    site_folder.write(tmp_path / "site", FIRST)
    assert tree(tmp_path / "site")["catalogue.json"] == "1"


@pytest.mark.parametrize("strange", ["notes.txt", ".git/config", "a/own.html"])
def test_a_folder_with_other_files_is_refused(strange: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site_folder.write(site, FIRST)
    (site / strange).parent.mkdir(exist_ok=True)
    (site / strange).write_text("mine")
    with pytest.raises(UsageError, match=strange.replace(".", r"\.")) as caught:
        site_folder.write(site, SECOND)
    assert caught.value.code == "not-a-catalogue"
    assert tree(site)[strange] == "mine"
    assert tree(site)["catalogue.json"] == "1"


def test_a_folder_that_is_no_catalogue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "files.txt").write_text("thesis.tex\nfiles.txt\n")
    with pytest.raises(UsageError):
        site_folder.require_replaceable(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        site_folder.require_replaceable(tmp_path / "link")
    with pytest.raises(UsageError):
        site_folder.require_replaceable(tmp_path / "thesis.tex")


def test_what_fails_half_way_leaves_the_earlier_site(tmp_path: Path) -> None:
    def failing() -> Iterator[tuple[str, str]]:
        yield SECOND[0]
        raise KeyboardInterrupt

    site = tmp_path / "site"
    site_folder.write(site, FIRST)
    with pytest.raises(KeyboardInterrupt):
        site_folder.write(site, failing())
    assert tree(site)["catalogue.json"] == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]

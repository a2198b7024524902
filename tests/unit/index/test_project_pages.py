"""Project pages in both standard formats give the same values."""

import json
from urllib.parse import urldefrag, urljoin

import pytest

from envbuild.index.project_pages import parse

PAGE = "https://index.example/simple/demo-pkg/"
HASH = "a" * 64


def test_html_with_every_attribute():
    text = f"""<!DOCTYPE html><html><head><base href="https://files.example/x/"></head><body>
    <a href="demo_pkg-1.0-py3-none-any.whl#sha256={HASH.upper()}" data-requires-python="&gt;=3.6,&lt;4"
       data-upload-time="2018-11-05T10:00:00.5Z" data-core-metadata="sha256={HASH}">demo_pkg-1.0-py3-none-any.whl</a>
    <a href="../y/demo-pkg-1.0.tar.gz#md5=0123" data-yanked>demo-pkg-1.0.tar.gz</a>
    <a name="no-link">nothing</a></body></html>"""
    wheel, source = parse(text, content_type="text/html; charset=utf-8", url=PAGE, project="Demo.Pkg", index="default")
    assert wheel.project == "demo-pkg"
    assert wheel.url == "https://files.example/x/demo_pkg-1.0-py3-none-any.whl"
    assert (wheel.sha256, wheel.requires_python, wheel.uploaded) == (HASH, ">=3.6,<4", "2018-11-05T10:00:00.5Z")
    assert (wheel.metadata, wheel.yanked, wheel.size) == (f"sha256={HASH}", False, None)
    assert source.url == "https://files.example/y/demo-pkg-1.0.tar.gz"
    assert (source.sha256, source.uploaded, source.yanked, source.metadata) == ("", "", True, None)


def test_html_unquotes_names_and_takes_the_older_metadata_attribute():
    text = f'<a href="/f/demo_pkg-1.0%2Bcu90-py3-none-any.whl#sha256={HASH}" data-dist-info-metadata="true">x</a>'
    (file,) = parse(text, content_type="text/html", url=PAGE, project="demo-pkg", index="https://other.example")
    assert file.filename == "demo_pkg-1.0+cu90-py3-none-any.whl"
    assert file.url == "https://index.example/f/demo_pkg-1.0%2Bcu90-py3-none-any.whl"
    assert (file.metadata, file.index) == ("", "https://other.example")


def test_json_says_the_same():
    text = json.dumps(
        {
            "meta": {"api-version": "1.1"},
            "files": [
                {
                    "filename": "demo_pkg-1.0-py3-none-any.whl",
                    "url": "../../x/demo_pkg-1.0-py3-none-any.whl",
                    "hashes": {"sha256": HASH},
                    "requires-python": ">=3.6",
                    "upload-time": "2018-11-05T10:00:00Z",
                    "size": 12,
                    "yanked": "broken",
                    "core-metadata": {"sha256": HASH},
                },
                {
                    "filename": "demo-pkg-0.9.zip",
                    "url": "demo-pkg-0.9.zip",
                    "hashes": {},
                    "yanked": False,
                    "core-metadata": False,
                },
            ],
        }
    )
    new, old = parse(text, content_type="application/vnd.pypi.simple.v1+json", url=PAGE, project="demo-pkg", index="default")
    assert new.url == "https://index.example/x/demo_pkg-1.0-py3-none-any.whl"
    assert (new.sha256, new.size, new.yanked, new.metadata) == (HASH, 12, True, f"sha256={HASH}")
    assert (old.url, old.sha256, old.size, old.yanked, old.metadata) == (PAGE + "demo-pkg-0.9.zip", "", None, False, None)


@pytest.mark.parametrize(
    "text",
    [
        "<html>login</html>",
        "[]",
        '{"files": 3}',
        '{"files": [{"filename": "x"}]}',
        '{"files": [{"filename": "x", "url": "x", "hashes": []}]}',
    ],
)
def test_a_page_that_is_not_what_it_says_is_an_error(text):
    with pytest.raises(ValueError, match=r"."):
        parse(text, content_type="application/json", url=PAGE, project="demo-pkg", index="default")


@pytest.mark.parametrize(
    "address",
    [
        "https://files.example/a/b/demo-1.0.tar.gz",
        "HTTPS://Files.Example/demo-1.0.tar.gz",
        "https://files.example:8443/demo-1.0.tar.gz",
        "https://user@files.example/demo-1.0.tar.gz",
        "https://files.example/a/../b//./demo-1.0.tar.gz",
        "https://files.example/demo-1.0.tar.gz?x=1;y#sha256=0",
        "https://files.example/demo 1.0.tar.gz",
        "https://files.example/demö-1.0.tar.gz",
        "https://.example/demo-1.0.tar.gz\n",
        "//files.example/demo-1.0.tar.gz",
        "../demo-1.0.tar.gz",
    ],
)
def test_plain_addresses_are_read_as_all_others(address: str):
    text = json.dumps({"files": [{"filename": "demo-1.0.tar.gz", "url": address, "hashes": {}}]})
    (file,) = parse(text, content_type="application/json", url=PAGE, project="demo", index="default")
    assert file.url == urldefrag(urljoin(PAGE, address)).url

"""Public data sets, downloaded from test servers that break off, send wrong data, or do not exist."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from program import ROOT, Program

CONTENT = {"one.gz": b"1" * 100, "two.gz": bytes(range(256)) * 100_000}  # the second file is downloaded in several pieces


class Mirror:
    """A server of data files. After ``gives_out`` bytes in total, every connection breaks off."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content, self.asked, self.ranges, self.gives_out = content, [], True, float("inf")
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                mirror.asked.append((name, self.headers.get("Range", "")))
                if name not in mirror.content:
                    self.send_error(404)
                    return
                body = mirror.content[name]
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if mirror.ranges else None
                part = body[int(asked[1]) : int(asked[2]) + 1] if asked else body
                self.send_response(206 if asked else 200)
                if asked:
                    self.send_header("Content-Range", f"bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/{len(body)}")
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                mirror.gives_out -= len(part)
                self.wfile.write(part if mirror.gives_out >= 0 else part[: len(part) // 2])
                self.close_connection = mirror.gives_out < 0

            def log_message(self, *_: object) -> None:
                """Write no log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/files/"


@pytest.fixture
def mirrors() -> Iterator[list[Mirror]]:
    both = [Mirror(dict(CONTENT)), Mirror(dict(CONTENT))]
    yield both
    for mirror in both:
        mirror.server.shutdown()
        mirror.server.server_close()


@pytest.fixture
def program(tmp_path: Path, mirrors: list[Mirror]) -> Program:
    """envbuild with the mirrors of this test, whatever proxy this machine uses."""
    files = {name: {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()} for name, body in CONTENT.items()}
    toy = {"title": "Toy", "about": "for the test", "folders": ["", "toy"], "files": files, "fetch": list(files)}
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"toy": {**toy, "mirrors": [mirror.address for mirror in mirrors]}}))
    environment = {"ENVBUILD_SMOKE_DATASETS": str(table), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return Program(root=ROOT, home=tmp_path / "home", environment=environment)


def test_what_is_fetched_is_whole_and_found_again(program: Program, mirrors: list[Mirror], tmp_path: Path) -> None:
    assert program.run("data", "list", "--json").expect(0).document["datasets"][0]["here"] is None
    answer = program.run("data", "fetch", "toy", "--json").expect(0)
    folder = Path(answer.document["folder"])
    assert folder == tmp_path / "home/data"
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    assert program.run("data", "list", "--json").expect(0).document["datasets"][0]["here"] == str(folder)
    mirrors[0].asked.clear()
    program.run("data", "fetch", "toy").expect(0)
    assert mirrors[0].asked == []
    (folder / "one.gz").write_bytes(b"2" * 100)  # damaged after the download
    program.run("data", "fetch", "toy").expect(0)
    assert (folder / "one.gz").read_bytes() == CONTENT["one.gz"]


def test_a_download_that_broke_off_goes_on_at_another_mirror(program: Program, mirrors: list[Mirror], tmp_path: Path) -> None:
    mirrors[0].gives_out = 10 << 20
    program.run("data", "fetch", "toy", "--to", str(tmp_path / "to")).expect(0)
    assert (tmp_path / "to/two.gz").read_bytes() == CONTENT["two.gz"]
    first = next(asked for name, asked in mirrors[1].asked if name == "two.gz")
    assert int(first.removeprefix("bytes=").partition("-")[0]) >= 8 << 20
    assert not list((tmp_path / "to").glob(".*.partial"))


def test_another_file_under_the_name_is_never_kept(program: Program, mirrors: list[Mirror], tmp_path: Path) -> None:
    mirrors[0].content["one.gz"] = b"x" * 100
    program.run("data", "fetch", "toy", "--to", str(tmp_path / "to")).expect(0)
    assert (tmp_path / "to/one.gz").read_bytes() == CONTENT["one.gz"]
    mirrors[1].content["one.gz"] = b"y" * 100
    (tmp_path / "to/one.gz").unlink()
    told = program.run("data", "fetch", "toy", "--to", str(tmp_path / "to")).expect(11)
    assert "a different file: its checksum is" in told.err
    assert not (tmp_path / "to/one.gz").exists()


def test_a_server_without_ranges_serves_too(program: Program, mirrors: list[Mirror], tmp_path: Path) -> None:
    mirrors[0].ranges = False
    program.run("data", "fetch", "toy", "--to", str(tmp_path / "to")).expect(0)
    assert (tmp_path / "to/two.gz").read_bytes() == CONTENT["two.gz"]


def test_unreachable_mirrors_are_named_and_have_their_own_exit_code(program: Program, mirrors: list[Mirror]) -> None:
    for mirror in mirrors:
        mirror.content.clear()
    told = program.run("data", "fetch", "toy", "--json").expect(11)
    assert told.document["error"]["code"] == "data-unreachable"
    assert all(any(mirror.address in line for line in told.document["error"]["details"]) for mirror in mirrors)
    program.run("data", "fetch", "cifar").expect(4)


def test_a_folder_without_data_is_refused_before_anything_starts(program: Program, tmp_path: Path) -> None:
    from envbuild import datasets
    from envbuild.errors import UsageError

    with pytest.raises(UsageError, match="contains no file of"):
        datasets.found(datasets.load(), tmp_path)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/mnist.npz").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    assert datasets.found(datasets.load(), tmp_path) == {"mnist/mnist.npz": tmp_path / "mnist/mnist.npz"}

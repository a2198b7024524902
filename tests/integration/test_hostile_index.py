# ruff: noqa: E501 - bytes and texts of attackers, one a line
"""An index that lies.

Malformed files and pages never stop a lock, never use up memory or time, and never leave a file behind.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import re
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hostile_files as hostile
import lock_universe
import pytest

from envbuild import build_context, image_inputs
from envbuild.errors import BuildError, EnvbuildError
from envbuild.index import limits
from envbuild.index.client import Index
from envbuild.index.project_pages import IndexFile
from envbuild.index.settings import Settings
from envbuild.lock import lock_file, making
from envbuild.model.lock import Artifact, BaseLock, Lock
from envbuild.model.progress import Progress
from envbuild.workspace import Workspace

GOOD = lock_universe.wheel("alpha", "1.0")
BASE = BaseLock(image="toyos:12", digest="sha256:" + "1" * 64, bootstrap=None)


class Handler(BaseHTTPRequestHandler):
    """Serves the entry of a path: bytes with a content type, or a function that makes the answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each answer waits 40 ms for an acknowledgement

    def log_message(self, *_args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = self.server.pages.get(self.path)
        if callable(found):
            try:
                found(self)
            except OSError:
                self.close_connection = True
            return
        kind, body = found or ("text/plain", b"nothing here")
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if found and wanted and body:
            first = max(0, len(body) - int(wanted[2])) if not wanted[1] else int(wanted[1])
            last = min(len(body) - 1, int(wanted[2])) if wanted[1] and wanted[2] else len(body) - 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
            body = body[first : last + 1]
        else:
            self.send_response(200 if found else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Site:
    """A package index on loopback."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.pages: dict[str, Any] = server.pages
        self.asked: list[str] = server.asked
        self.url = f"http://127.0.0.1:{server.server_port}/simple"
        self.settings = Settings(
            index_url=self.url, is_default=False, extra_index_urls=(), ca_bundle="", client_cert="",
            proxy="", proxies={}, mirrors={}, trusted_hosts=(), timeout_s=5.0, keyring_provider="disabled", notes=(),
        )  # fmt: skip

    def offer(self, *files: tuple[str, bytes]) -> None:
        """Offer a page of ``alpha`` with these files."""
        self.pages["/simple/alpha/"] = hostile.page([hostile.entry(name, content) for name, content in files])
        for name, content in files:
            self.pages[f"/simple/alpha/files/{name}"] = ("application/octet-stream", content)


@pytest.fixture
def site() -> Iterator[Site]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.pages, server.asked = {}, []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    here = Site(server)
    offer_tools(here)
    yield here
    server.shutdown()
    server.server_close()


def lock(site: Site, folder: Path, said: list[str] | None = None) -> Lock:
    """Lock ``alpha`` in any version from this index."""

    def listen(news: Progress) -> None:
        if said is not None:
            said.append(news.message)

    environment = lock_universe.environment(lock_universe.framework("alpha", "1.0", "alpha"))
    return making.make(environment, making.LockInputs(recipe_requirements={}, index=Index(site.settings, listen), pin_base=lambda _: BASE, downloads=folder / "cache/downloads", on_progress=listen))  # fmt: skip


def offer_tools(site: Site) -> None:
    """Offer valid build tools for source archives."""
    for tool in ("setuptools", "wheel", "pip", "uv", "x"):
        wheel = lock_universe.wheel(tool, "1.0")
        filename = f"{tool}-1.0-py3-none-any.whl"
        site.pages[f"/simple/{tool}/"] = hostile.page([hostile.entry(filename, wheel)])
        site.pages[f"/simple/{tool}/files/{filename}"] = ("application/octet-stream", wheel)


def holds(made: Lock, folder: Path) -> None:
    """Check that the lock can be read again and that nothing was left outside the cache."""
    assert lock_file.parse(lock_file.dumps(made), folder / "lock.json") == made
    assert {path.name for path in folder.iterdir()} <= {"cache"}
    assert not (folder.parent / "x").exists()


def one(site: Site, folder: Path, number: int) -> None:
    """Lock with one malformed file beside a good file, and with the malformed file alone."""
    chance = random.Random(number)
    name, make = hostile.KINDS[number % 3]
    content = make(chance)
    good = hostile.entry(hostile.GOOD, GOOD)
    site.offer((hostile.GOOD, GOOD), (name, content))
    if number % 5 == 3:
        site.pages["/simple/alpha/"] = hostile.page([hostile.odd_entry(chance, content), good])
    elif number % 5 == 4:
        site.pages["/simple/alpha/"] = hostile.html_page(good, chance, content)
    said: list[str] = []
    made = lock(site, folder, said)
    holds(made, folder)
    (chosen,) = [each for each in made.prefixes[0].artifacts if each.name == "alpha"]
    assert chosen.version in ("1.0", "2.0", "2!0", "2!0+a.b") or number % 5 >= 3
    if number % 5 >= 3:
        return
    site.offer((name, content))
    try:
        holds(lock(site, folder), folder)
    except EnvbuildError as error:
        told = json.dumps(error.to_json())
        assert error.exit_code in (3, 7), told
        assert name in told or "alpha" in told


@pytest.mark.timeout(240)
def test_one_malformed_file_never_ends_a_lock(site, tmp_path):
    for number in range(300):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        try:
            one(site, folder, number)
        except BaseException as error:
            raise AssertionError(f"case {number}") from error


@pytest.mark.prove
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_malformed_files_never_end_a_lock(site, tmp_path, part):
    for number in range(1000 * part + 1000, 1000 * part + 2000):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        try:
            one(site, folder, number)
        except BaseException as error:
            raise AssertionError(f"case {number}") from error


@pytest.mark.parametrize("requirement", hostile.REQUIREMENTS, ids=range(len(hostile.REQUIREMENTS)))
def test_no_requirement_ends_a_lock(site, tmp_path, requirement):
    content = hostile.wheel_of(hostile.as_bytes(hostile.metadata(f"Requires-Dist: {requirement}")))
    site.offer((hostile.GOOD, GOOD), ("alpha-2.0-py3-none-any.whl", content))
    holds(lock(site, tmp_path), tmp_path)


@pytest.mark.parametrize("setup", hostile.SETUPS, ids=range(len(hostile.SETUPS)))
def test_no_setup_py_ends_a_lock(site, tmp_path, setup):
    content = hostile.sdist_of({"PKG-INFO": hostile.metadata().replace("2.1", "1.0"), "setup.py": setup})
    site.offer((hostile.GOOD, GOOD), ("alpha-2.0.tar.gz", content))
    holds(lock(site, tmp_path), tmp_path)
    site.offer(("alpha-2.0.tar.gz", content))
    try:
        lock(site, tmp_path)
    except EnvbuildError as error:
        told = json.dumps(error.to_json())
        assert "alpha-2.0.tar.gz" in told


@pytest.mark.parametrize("name", hostile.NAMES)
def test_names_that_leave_the_cache_or_make_locks_that_nobody_reads_are_left_out(site, tmp_path, name):
    site.offer((hostile.GOOD, GOOD), (name, hostile.wheel_of(hostile.metadata())))
    made = lock(site, tmp_path)
    holds(made, tmp_path)


def test_what_was_left_out_is_told_and_named_where_it_was_alone(site, tmp_path):
    content = hostile.sdist_of({"PKG-INFO": hostile.metadata().replace("2.1", "1.0"), "setup.py": "setup(install_requires=7)"})
    site.offer(("alpha-2.0.tar.gz", content))
    with pytest.raises(EnvbuildError) as caught:
        lock(site, tmp_path)
    assert "alpha-2.0.tar.gz: its install_requires is not a list of texts" in json.dumps(caught.value.to_json())
    said: list[str] = []
    site.offer((hostile.GOOD, GOOD), ("alpha-2.0-py3-none-any.whl", b"PK"))
    lock(site, tmp_path, said)
    assert [line for line in said if line.startswith("left out: alpha-2.0-py3-none-any.whl: ")]


def limited(program: str, *words: str, memory: int = 1200 * 2**20) -> subprocess.CompletedProcess[str]:
    """Run a process with a memory limit. Allocating more is an error in it."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *words],
        capture_output=True, text=True, check=False, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )  # fmt: skip


MEASURED = """
    import sys
    from pathlib import Path
    sys.path[:0] = sys.argv[3].split(":")
    import test_hostile_index as this
    class Here:
        url = sys.argv[1]
        settings = this.replace(this.Settings(index_url=url, is_default=False, extra_index_urls=(), ca_bundle="", client_cert="", proxies={}, mirrors={},
            proxy="", trusted_hosts=(), timeout_s=5.0, keyring_provider="disabled", notes=()))
    made = this.lock(Here, Path(sys.argv[2]))
    # Not ru_maxrss: that of a new process begins with what the process that forked it held.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print([a.version for a in made.prefixes[0].artifacts], int(peak.split()[1]) // 1024)
"""
HERE = Path(__file__).parent


@pytest.mark.parametrize(("name", "make"), hostile.BOMBS, ids=[make.__name__ for _, make in hostile.BOMBS])
def test_bombs_take_little_memory_and_time(site, tmp_path, name, make):
    site.offer((hostile.GOOD, GOOD), (name, make()))
    began = time.monotonic()
    done = limited(MEASURED, site.url, str(tmp_path), f"{HERE}:{HERE.parent / 'unit'}")
    assert done.stdout.startswith("['1.0']"), done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) < 300, "MB"
    assert time.monotonic() - began < 100


def endless(handler: Handler, head: bytes, piece: bytes, pause: float = 0.0) -> None:
    handler.wfile.write(head)
    while True:
        handler.wfile.write(piece)
        handler.wfile.flush()
        time.sleep(pause)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BROKEN: dict[str, Callable[[Handler], None]] = {
    "page without end": lambda handler: endless(handler, HEAD + b"\r\n", b" " * 65536),
    "page of braces": lambda handler: endless(handler, HEAD + b"\r\n", b"[" * 65536),
    "chunks without end": lambda handler: endless(handler, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b" " * 4096 + b"\r\n"),
    "headers without end": lambda handler: endless(handler, HEAD, b"X-A: b\r\n"),
    "one header without end": lambda handler: endless(handler, HEAD + b"X: ", b"a" * 65536),
    "continue without end": lambda handler: endless(handler, b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.001),
    "one byte at a time": lambda handler: endless(handler, HEAD + b"\r\n", b" ", 0.2),
    "one header byte at a time": lambda handler: endless(handler, b"HTTP/1.1 200 OK\r\n", b"a", 0.2),
    "silence": lambda handler: time.sleep(60),
    "silence after the head": lambda handler: (handler.wfile.write(HEAD + b"Content-Length: 5\r\n\r\n"), time.sleep(60)),
    "redirect with a body without end": lambda handler: endless(handler, b"HTTP/1.1 302 Found\r\nLocation: /simple/alpha/\r\n\r\n", b" " * 65536),
    "redirects without end": lambda handler: handler.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: /simple/alpha/\r\nContent-Length: 0\r\n\r\n"),
    "redirect to a file": lambda handler: handler.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
    "redirect to nonsense": lambda handler: handler.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n"),
    "401 with a body without end": lambda handler: endless(handler, b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="x"\r\n\r\n', b" " * 65536),
    "gzip of gigabytes": lambda handler: handler.wfile.write(HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(b" " * 2**28)),
    "gzip in gzip": lambda handler: handler.wfile.write(HEAD + b"Content-Encoding: gzip, gzip\r\nConnection: close\r\n\r\n" + gzip.compress(gzip.compress(b" " * 2**28))),
    "gzip that is none": lambda handler: handler.wfile.write(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello"),
    "no HTTP": lambda handler: (handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n"), handler.connection.shutdown(socket.SHUT_RDWR)),
    "NUL": lambda handler: (handler.wfile.write(b"\0" * 4096), handler.connection.shutdown(socket.SHUT_RDWR)),
    "cut": lambda handler: (handler.wfile.write(HEAD + b"Content-Length: 500\r\n\r\n{"), handler.connection.shutdown(socket.SHUT_RDWR)),
    "length of nonsense": lambda handler: (handler.wfile.write(HEAD + b"Content-Length: -5\r\n\r\n{}"), handler.connection.shutdown(socket.SHUT_RDWR)),
    "nested": lambda handler: handler.wfile.write(HEAD + b"Content-Length: 200000\r\n\r\n" + b"[" * 200000),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_server_is_an_error_within_the_limits(site, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(limits, "ANSWER_S", 2.0)
    monkeypatch.setattr(limits, "PATIENT", 0)
    monkeypatch.setattr(limits, "QUIET_S", 0.5)
    site.pages["/simple/alpha/"] = BROKEN[fault]
    said: list[str] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with pytest.raises(BuildError) as caught:
        lock(site, tmp_path, said)
    assert time.monotonic() - began < 40
    assert caught.value.code == "index-unreachable"
    assert "127.0.0.1" in caught.value.message
    if fault in ("silence", "silence after the head", "one byte at a time", "one header byte at a time"):
        assert [line for line in said if line.startswith("waiting for 127.0.0.1")], said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024
    again = time.monotonic()
    while any(thread.name == "index-exchange" for thread in threading.enumerate()):
        assert time.monotonic() - again < 30, "a thread goes on reading"
        time.sleep(0.05)


def test_a_server_that_asks_to_wait_is_waited_for_in_public_and_not_for_long(site, tmp_path, monkeypatch):
    def busy(wait: str) -> Callable[[Handler], None]:
        def answer(handler: Handler) -> None:
            handler.wfile.write(f"HTTP/1.1 503 Busy\r\nRetry-After: {wait}\r\nContent-Length: 0\r\n\r\n".encode())
            if wait == "2":
                site.offer((hostile.GOOD, GOOD))

        return answer

    site.pages["/simple/alpha/"] = busy("2")
    said: list[str] = []
    lock(site, tmp_path, said)
    assert [line for line in said if "waiting 2 s, because 127.0.0.1" in line and "503" in line]
    for wait in ("3600", "Fri, 31 Dec 2999 23:59:59 GMT", "9" * 500, "-1", "x"):
        site.pages["/simple/alpha/"] = busy(wait)
        began = time.monotonic()
        with pytest.raises(BuildError, match="asks to wait"):
            lock(site, tmp_path)
        assert time.monotonic() - began < 20


def test_a_dead_host_is_asked_once(monkeypatch, site, tmp_path):
    monkeypatch.setattr(limits, "ANSWER_S", 2.0)
    monkeypatch.setattr(limits, "PATIENT", 0)
    index = Index(replace(site.settings, timeout_s=1.0))
    for number in range(30):
        site.pages[f"/files/x-{number}.whl"] = lambda handler: time.sleep(30)
    began = time.monotonic()
    for number in range(30):
        file = IndexFile.pinned(f"{site.url.removesuffix('/simple')}/files/x-{number}.whl", f"x-{number}.whl", "0" * 64)
        with pytest.raises(BuildError):
            index.inspect(file)
    assert time.monotonic() - began < 25
    assert len(site.asked) <= 3
    assert index.is_dead(None, site.url)


def test_one_silence_does_not_end_a_run_with_an_index_that_answered_before(site):
    def silent_once(handler: Handler) -> None:
        site.offer((hostile.GOOD, GOOD))
        time.sleep(3)

    site.pages["/simple/alpha/"] = silent_once
    index = Index(replace(site.settings, timeout_s=0.5))
    assert index.project_files("uv")
    assert [file.filename for file in index.project_files("alpha")] == [hostile.GOOD]
    assert site.asked.count("/simple/alpha/") == 2
    # An index that stays silent is still asked only twice, whatever number of projects waits.
    for number in range(40):
        site.pages[f"/simple/p{number}/"] = lambda handler: time.sleep(5)
    began = time.monotonic()
    index.prefetch([f"p{number}" for number in range(40)])
    for number in range(40):
        with pytest.raises(BuildError) as caught:
            index.project_files(f"p{number}")
        assert caught.value.code == "index-unreachable"
    assert time.monotonic() - began < 10
    assert sum(path.startswith("/simple/p") for path in site.asked) <= 32
    assert index.is_dead(None, site.url)


def test_downloads_that_trickle_or_grow_are_broken_off(monkeypatch, site, tmp_path):
    monkeypatch.setattr(limits, "SLOW_S", 2.0)
    address = site.url.removesuffix("/simple")
    site.pages["/slow.whl"] = lambda handler: endless(handler, HEAD + b"\r\n", b"x" * 70_000, 0.9)
    site.pages["/long.whl"] = lambda handler: endless(handler, HEAD + b"\r\n", b"x" * 65536)
    began = time.monotonic()
    monkeypatch.setattr(limits, "SLOWEST_BYTES_S", 2**20)
    with pytest.raises(BuildError, match="bytes in"):
        Index(site.settings).download(IndexFile.pinned(f"{address}/slow.whl", "slow.whl", "0" * 64), tmp_path)
    monkeypatch.setattr(limits, "FILE_BYTES", 2**24)
    with pytest.raises(BuildError, match="more than the expected 16777216 bytes"):
        Index(site.settings).download(IndexFile.pinned(f"{address}/long.whl", "long.whl", "0" * 64), tmp_path)
    assert time.monotonic() - began < 60
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


def test_a_file_that_is_gone_or_another_is_left_out_for_the_next(site, tmp_path):
    newer = lock_universe.wheel("alpha", "2.0")
    site.offer((hostile.GOOD, GOOD), ("alpha-2.0-py3-none-any.whl", newer))
    del site.pages["/simple/alpha/files/alpha-2.0-py3-none-any.whl"]
    said: list[str] = []
    assert [each.version for each in lock(site, tmp_path, said).prefixes[0].artifacts] == ["1.0"]
    assert [
        line for line in said if line.startswith("left out: alpha-2.0-py3-none-any.whl could not be fetched") and "404" in line
    ]


def test_packages_that_require_one_another_without_end_are_an_error(site, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "PROJECTS", 50)
    for number in range(60):
        name = "alpha" if number == 0 else f"p{number}"
        content = lock_universe.wheel(name, "1.0", (f"p{number + 1}",))
        filename = f"{name}-1.0-py3-none-any.whl"
        site.pages[f"/simple/{name}/"] = hostile.page([hostile.entry(filename, content)])
        site.pages[f"/simple/{name}/files/{filename}"] = ("application/octet-stream", content)
    with pytest.raises(BuildError, match="More than 50 projects"):
        lock(site, tmp_path)


@pytest.mark.parametrize(
    "piece", ["<![", "<!--", "<", "<a x='", "<a a ", "<title>", "&#", "\0", "</", "<!DOCTYPE ", "<?", "]]>"]
)
def test_no_html_is_a_bug_or_takes_for_ever(piece, monkeypatch):
    from envbuild.index.project_pages import parse

    monkeypatch.setattr(limits, "PAGE_S", 2.0)
    for text in (piece * 100_000, "<a " + piece * 100_000, f"<a href='x-1.0-py3-none-any.whl'>{piece}" * 20_000):
        began = time.monotonic()
        try:
            parse(text, content_type="text/html", url="https://a.example/simple/x/", project="x", index="default")
        except ValueError as error:
            assert len(str(error)) < 500
        assert time.monotonic() - began < 60


def test_a_repository_whose_answer_trickles_is_out_of_reach_within_seconds(site):
    from envbuild.engine import bases
    from envbuild.model.environment import AptRepository

    site.pages["/repository"] = BROKEN["one header byte at a time"]
    address = site.url.replace("/simple", "/repository")
    repository = AptRepository(name="cuda", url=address, suite="/", components="", key_url="", key_fingerprint="")
    environment = lock_universe.environment()
    environment = replace(environment, base=replace(environment.base, repositories=(repository,)))
    began = time.monotonic()
    with pytest.raises(BuildError, match="no complete answer within"):
        bases.check_repositories(environment, 1.0)
    assert time.monotonic() - began < 30


def test_the_names_of_one_run_share_the_hosts_that_do_not_answer(site):
    from envbuild.pipeline.tools import Tools
    from envbuild.workspace import Workspace

    place = Workspace(root=Path("/nowhere"), output=Path("/nowhere"), home=Path("/nowhere"))
    first = Tools(place)
    first.__dict__["index"] = Index(site.settings)
    heard: list[Progress] = []
    second = Tools(place, on_progress=heard.append).sharing(first)
    assert second.index is first.index
    second.index.on_progress(Progress(stage="index", message="waiting"))
    assert heard, "what is waited for is told to whoever listens now"


# --- Build tools in the download cache ---------------------------------------------------------------------------------


def uv_wheel(version: str) -> bytes:
    """A valid wheel of uv whose program prints its version."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        wheel.writestr(f"uv-{version}.data/scripts/uv", f"#!/bin/sh\necho uv {version}\n")
        wheel.writestr(f"uv-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n")
    return content.getvalue()


def test_another_uv_under_the_locked_name_is_never_what_installs(site, tmp_path):
    locked, other, name = uv_wheel("0.13.9"), uv_wheel("0.13.8"), "uv-0.13.9-py3-none-any.whl"
    site.pages["/simple/uv/"] = hostile.page([hostile.entry(name, locked)])
    site.pages[f"/simple/uv/files/{name}"] = ("application/octet-stream", locked)
    tool = Artifact(
        name="uv", version="0.13.9", filename=name, sha256=hashlib.sha256(locked).hexdigest(), index="default", project="uv",
        size=len(locked),
    )  # fmt: skip
    site.offer((hostile.GOOD, GOOD))
    made = replace(lock(site, tmp_path), tools=(tool,))
    place = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    place.downloads.mkdir(parents=True)

    def build_tool() -> bytes:
        (place.downloads / name).write_bytes(other)
        inputs = image_inputs.BuildInputs(
            workspace=place, lock=made, recipes={}, rendering={"Dockerfile": ""}, index=Index(site.settings)
        )
        folder = build_context.assemble(inputs)
        return (folder / "tools" / "uv").read_bytes()

    assert b"uv 0.13.9" in build_tool()
    assert (place.downloads / name).read_bytes() == locked
    site.pages[f"/simple/uv/files/{name}"] = ("application/octet-stream", other)  # now the index also offers the other uv
    with pytest.raises(BuildError) as refused:
        build_tool()
    assert (refused.value.code, refused.value.exit_code) == ("hash-differs", 7)
    site.pages["/simple/uv/"] = hostile.page([])
    with pytest.raises(BuildError) as refused:
        build_tool()
    assert refused.value.code == "artifact-gone"
    assert b"uv 0.13.9" in (place.context(made.environment.name) / "tools" / "uv").read_bytes()  # the earlier context

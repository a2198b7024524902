"""The index client over real sockets: both page formats, credentials, damaged and broken answers, interrupted downloads."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from envbuild.errors import BuildError, UnknownNameError
from envbuild.index.client import Index
from envbuild.index.project_pages import IndexFile
from envbuild.index.tool_settings import pip_variables, uv_variables
from envbuild.model.lock import Artifact

CONTENT = bytes(range(256)) * 4096
SHA = hashlib.sha256(CONTENT).hexdigest()
NAME = "demo-1.0-py3-none-any.whl"


class Handler(BaseHTTPRequestHandler):
    """Serves one project in the format and with the faults that the server object names."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        site = self.server.site
        site["asked"].append((self.command, self.path))
        if site.get("password") and self.headers.get("Authorization") != site["password"]:
            self.answer(401, b"who are you", {"WWW-Authenticate": 'Basic realm="x"'})
        elif site.get("status"):
            self.answer(site["status"], b"no")
        elif self.path == "/simple/demo/":
            self.page(site)
        elif self.path == f"/files/{NAME}":
            self.file(site)
        else:
            self.answer(404, b"nothing here")

    def page(self, site):
        if "json" in site["form"]:
            files = [
                {
                    "filename": NAME,
                    "url": f"../../files/{NAME}",
                    "hashes": {"sha256": site["sha"]},
                    "upload-time": "2020-01-01T00:00:00Z",
                }
            ]
            body = json.dumps({"files": files}).encode()
        else:
            body = f'<a href="/files/{NAME}#sha256={site["sha"]}" data-upload-time="2020-01-01T00:00:00Z">x</a>'.encode()
        self.answer(200, body, {"Content-Type": site["form"]})

    def file(self, site):
        wanted = self.headers.get("Range")
        if wanted and site.get("ranges", True):
            start, _, end = wanted.removeprefix("bytes=").rpartition("-")
            first = len(CONTENT) - int(end) if not start else int(start)
            last = len(CONTENT) - 1 if not start or not end else int(end)
            self.answer(206, CONTENT[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(CONTENT)}"})
        elif site.get("cut"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[: len(CONTENT) // 2])
            self.wfile.flush()
            if site["cut"] == "stall":
                time.sleep(30)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.answer(200, CONTENT)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A server on this machine that is the only index in the configuration of pip."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.site = {"form": "text/html", "sha": SHA, "asked": [], "url": f"http://127.0.0.1:{server.server_port}/simple"}
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "http_proxy", "HTTP_PROXY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", server.site["url"])
    yield server.site
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("form", ["text/html; charset=UTF-8", "application/vnd.pypi.simple.v1+json"])
def test_page_size_part_and_download(site, tmp_path, form):
    site["form"] = form
    index = Index()
    (file,) = index.project_files("Demo")
    assert (file.filename, file.sha256, file.uploaded) == (NAME, SHA, "2020-01-01T00:00:00Z")
    assert index.sizes([file]) == [len(CONTENT)]
    assert index.read_range(file.url, -10, None) == (CONTENT[-10:], len(CONTENT))
    assert index.read_range(file.url, 5, 9) == (CONTENT[5:10], len(CONTENT))
    news = []
    path = index.download(file, tmp_path / "d", news.append)
    assert path.read_bytes() == CONTENT
    assert (news[-1].done, news[-1].total, news[-1].unit) == (len(CONTENT), len(CONTENT), "bytes")
    asked = len(site["asked"])
    artifact = Artifact(name="demo", version="1.0", filename=NAME, sha256=SHA, index="default", project="demo", size=None)
    assert index.fetch_artifact(artifact, tmp_path / "d") == path
    assert Index().fetch_artifact(artifact, tmp_path / "d") == path
    assert len(site["asked"]) == asked, "page and file were at hand"
    path.write_bytes(b"damaged")
    assert Index().fetch_artifact(artifact, tmp_path / "d").read_bytes() == CONTENT


def test_a_server_without_parts_says_so(site):
    site["ranges"] = False
    (file,) = Index().project_files("demo")
    assert Index().read_range(file.url, -10, None) is None


def test_an_unknown_project_and_a_gone_file(site, tmp_path):
    with pytest.raises(UnknownNameError) as caught:
        Index().project_files("nobody")
    assert "nobody" in caught.value.message
    other = Artifact(name="demo", version="1.0", filename=NAME, sha256="0" * 64, index="default", project="demo", size=None)
    with pytest.raises(BuildError) as gone:
        Index().fetch_artifact(other, tmp_path)
    assert gone.value.code == "artifact-gone"


@pytest.mark.parametrize("status", [403, 500])
def test_a_server_that_refuses_is_named_with_its_status(site, status):
    site["status"] = status
    started = time.monotonic()
    with pytest.raises(BuildError) as caught:
        Index().project_files("demo")
    assert caught.value.code == "index-unreachable"
    assert str(status) in caught.value.message
    assert "127.0.0.1" in caught.value.message
    assert time.monotonic() - started < 40


def test_a_page_that_is_not_one_is_an_error_not_an_empty_project(site):
    site["form"] = "application/json"
    site["sha"] = None
    with pytest.raises(BuildError, match="cannot be read"):
        Index().project_files("demo")


def test_nobody_listening_is_an_error_within_seconds(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    index = Index()
    started = time.monotonic()
    index.prefetch([f"p{n}" for n in range(40)])
    with pytest.raises(BuildError, match=f"127.0.0.1:{port} could not be used: .*refused") as caught:
        index.project_files("demo")
    assert caught.value.exit_code == 7
    assert time.monotonic() - started < 40


def test_a_file_of_an_address_of_its_own_is_named_and_no_index():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    index = Index()
    for name in (
        "python-3.6.6-h6e4f718_2.tar.bz2",
        "openssl-1.0.2u-h516909a_0.tar.bz2",
    ):  # the host gets one request, and the error names each file
        file = IndexFile.pinned(f"http://{host}/conda-forge/linux-64/{name}", name, "0" * 64)
        with pytest.raises(BuildError, match=f"^{re.escape(name)} could not be fetched from {host}: .*refused"):
            index.inspect(file)
    with pytest.raises(BuildError, match=f"^METADATA could not be fetched from {host}: "):
        index.fetch_bytes(f"http://{host}/some/METADATA?raw=1")


@pytest.mark.parametrize("where", ["url", "netrc", "wrong"])
def test_credentials_come_from_the_url_or_netrc_and_never_show(site, monkeypatch, tmp_path, where):
    site["password"] = "Basic " + base64.b64encode(b"me:secret").decode()
    with_user = site["url"].replace("//", "//me:secret@" if where == "url" else "//me:false-secret@")
    if where == "netrc":
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
        (tmp_path / ".netrc").chmod(0o600)
    else:
        monkeypatch.setenv("PIP_INDEX_URL", with_user)
    index = Index()
    if where == "wrong":
        with pytest.raises(BuildError) as caught:
            index.project_files("demo")
        assert "401" in caught.value.message
        assert "secret" not in str(caught.value.to_json())
        return
    (file,) = index.project_files("demo")
    assert "secret" not in file.url
    assert index.download(file, tmp_path / "d").read_bytes() == CONTENT


def test_a_replaced_file_is_refused_and_nothing_stays(site, tmp_path):
    site["sha"] = "1" * 64
    (file,) = Index().project_files("demo")
    with pytest.raises(BuildError) as caught:
        Index().download(file, tmp_path / "d")
    assert caught.value.code == "hash-differs"
    assert [p.name for p in (tmp_path / "d").iterdir() if not p.name.endswith(".lock")] == []


def test_a_download_that_breaks_off_is_an_error_and_the_next_one_is_whole(site, tmp_path):
    site["cut"] = "close"
    (file,) = Index().project_files("demo")
    with pytest.raises(BuildError, match="was interrupted") as caught:
        Index().download(file, tmp_path / "d")
    assert caught.value.code == "index-unreachable"
    site["cut"] = ""
    assert Index().download(file, tmp_path / "d").read_bytes() == CONTENT


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_while_downloading_leaves_no_file_and_the_next_run_has_it(site, tmp_path, how):
    site["cut"] = "stall"
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from envbuild.index.client import Index
        index = Index()
        index.download(index.project_files("demo")[0], Path(sys.argv[1]), lambda news: print("some", flush=True))
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "d")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    deadline = time.monotonic() + 100
    part = tmp_path / "d" / f".{NAME}.part"
    while not (part.exists() and any("files" in path for _, path in site["asked"])) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert part.exists()
    started = time.monotonic()
    child.send_signal(how)
    assert child.wait(60) != 0
    assert time.monotonic() - started < 25
    assert not (tmp_path / "d" / NAME).exists()
    site["cut"] = ""
    (file,) = Index().project_files("demo")
    assert Index().download(file, tmp_path / "d").read_bytes() == CONTENT
    assert not part.exists()


def test_ctrl_c_does_not_wait_for_questions_that_are_still_open(tmp_path):
    """A server that accepts connections and never answers must not delay the end of the program."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        program = (
            "from envbuild.index.client import Index; i = Index(); i.prefetch(['a', 'b', 'c'] * 9);"
            "print('asked', flush=True); i.project_files('a')"
        )
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        env = {"PIP_INDEX_URL": url, "PIP_CONFIG_FILE": "/dev/null", "PIP_TIMEOUT": "60", "PATH": "/usr/bin:/bin"}
        child = subprocess.Popen(
            [sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert child.stdout.readline() == "asked\n"
        silent.settimeout(100)
        silent.accept()[0].close()
        started = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.wait(60) != 0
        assert time.monotonic() - started < 25


def test_uv_and_pip_reach_the_same_index_by_what_they_are_handed(site, tmp_path):
    """uv and pip themselves use the environment variables and reach the index."""
    site["form"] = "application/vnd.pypi.simple.v1+json"
    index = Index()

    def asks(argv, handed):
        site["asked"].clear()
        done = subprocess.run(argv, env={**os.environ, **handed}, input="demo\n", capture_output=True, text=True, check=False)
        assert ("GET", "/simple/demo/") in site["asked"], done.stdout + done.stderr
        assert all("/demo" in path for _, path in site["asked"])

    asks([sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(tmp_path), "demo"], pip_variables(index.settings))
    uv = Path(sys.executable).with_name("uv")
    asks([str(uv), "pip", "compile", "-", "--no-cache"], uv_variables(index.settings))

"""A registry on loopback that keeps all uploads in memory. Tests can plant faults in it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass
class Registry:
    """The contents of the registry, the requests that it got, and the planted faults.

    ``faults`` has the HTTP statuses of the next answers to requests of a method.
    """

    host: str = ""
    blobs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    unfinished: bytes = b""  # what was sent of the only upload in pieces
    received: int = 0
    sent: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)
    break_uploads: int = 0
    break_downloads: int = 0
    misread_uploads: int = 0  # uploads of which another digest is computed
    misread_manifests: int = 0  # the same for manifests
    silent: str = (
        ""  # the digest of a blob, or "uploads": their requests get no answer until `goes_on` is set or 100 seconds are over
    )
    goes_on: threading.Event = field(default_factory=threading.Event)
    waited_too_long: bool = False
    knows_ranges: bool = True
    knows_referrers: bool = False
    lists_annotations: bool = True  # the registry of go-containerregistry 0.20.7 leaves them out of the list of referrers
    answers_left: int = -1  # after so many answers it refuses every request with the status `refusal`; -1: never
    refusal: int = 403
    token: str = ""
    login: str = ""  # if set: the server that gives tokens, instead of the registry itself
    basic: str = ""
    meddle: Callable[[str], str] | None = None  # called with each request; see `_meddled` for the faults that it may name
    refuses_mounts: int = 0  # if set: the status of the answers to requests for a layer of another repository
    retry_after: str = ""
    scopes: list[list[str]] = field(default_factory=list)
    given: list[str] = field(default_factory=list)  # every Authorization header that clients sent
    blobs_at: str = ""  # if set: the server to which requests for blobs are redirected
    tells_digests: bool = True
    page: int = 100  # the number of tags in one answer
    deletes: bool = True
    web_page: int = 0  # if set: every request gets a web page with this status, as from a proxy
    error_pages: bool = False  # if true, the answers with the status 404 are web pages
    endless: bool = False  # if true, every page of the list of referrers names a next page

    def count(self, method: str, part: str) -> int:
        """The number of requests with this method to paths that contain ``part``."""
        return sum(line.startswith(f"{method} ") and part in line for line in self.asked)


@contextlib.contextmanager
def serve(registry: Registry, certificate: str = "") -> Iterator[Registry]:
    """Run the registry on a free port of loopback until the block ends; with TLS if ``certificate`` names a file with
    certificate and key.
    """
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_args: object) -> None:
        """Ignore the error: a client that was stopped closes its connection in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the two parts of an answer wait for each other, about 40 ms
    registry: Registry

    def log_message(self, *_args: object) -> None:
        """Write no log."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        if status == 404 and self.registry.error_pages:
            body, headers = b"<html>404</html>", {"Content-Type": "text/html"}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle(self) -> None:
        place = urlsplit(self.path)
        query = parse_qs(place.query)
        self.registry.asked.append(f"{self.command} {self.path}")
        if self.headers.get("Authorization"):
            self.registry.given.append(self.headers["Authorization"])
        if self.registry.web_page:
            self._read(None)
            self._answer(self.registry.web_page, b"<html><h1>Blocked</h1></html>", Content_Type="text/html; charset=utf-8")
            return
        if place.path == "/token":
            self._give_token(query)
            return
        if not self._is_allowed():
            self._read(None)
            return
        body = self._read(place.path)
        if body is None:
            return
        self._body = body
        if self.registry.answers_left == 0:
            self._answer(self.registry.refusal, b"{}")
            return
        self.registry.answers_left -= 1
        waiting = self.registry.faults.get(self.command)
        if waiting and place.path != "/v2/":
            status = waiting.pop(0)
            told = json.dumps({"errors": [{"code": "TROUBLE", "message": "as told"}]}).encode()
            self._answer(status, told, **({"Retry_After": self.registry.retry_after} if self.registry.retry_after else {}))
            return
        if place.path != "/v2/" and self.registry.meddle and self._meddled(self.registry.meddle(self.asked_for)):
            return
        self._serve(place.path.removeprefix("/v2/"), query, body)

    @property
    def asked_for(self) -> str:
        return f"{self.command} {self.path}"

    def _meddled(self, fault: str) -> bool:
        """Plant a fault: a status, ``drop`` (the request is lost), or ``lose`` (it is served, but its answer is lost).

        Return whether the request was dealt with. An empty ``fault`` is none.
        """
        if fault.isdigit():
            self._answer(int(fault), b'{"errors":[{"code":"TROUBLE","message":"as told"}]}')
        elif fault == "lose":
            place, body = urlsplit(self.path), self._body
            answers, self.wfile = self.wfile, io.BytesIO()
            self._serve(place.path.removeprefix("/v2/"), parse_qs(place.query), body)
            self.wfile = answers
        if fault in ("drop", "lose"):
            self.close_connection = True
            self.connection.close()
        return bool(fault)

    do_HEAD = do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _handle

    def _read(self, path: str | None) -> bytes | None:
        """The body of the request; None if the planted fault closed the connection instead."""
        left = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            return self._read_chunks()
        if path and self.command == "PUT" and "/uploads/" in path and self.registry.break_uploads:
            self.registry.break_uploads -= 1
            self.rfile.read(left // 2)
            self.close_connection = True
            self.connection.close()
            return None
        body = self.rfile.read(left)
        self.registry.received += len(body)
        return body

    def _read_chunks(self) -> bytes | None:
        body = b""
        while size := int(self.rfile.readline() or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        if self.rfile.readline() != b"\r\n":  # the client broke off
            self.close_connection = True
            return None
        self.registry.received += len(body)
        return body

    def _is_allowed(self) -> bool:
        given = self.headers.get("Authorization", "")
        if self.registry.token and given != f"Bearer {self.registry.token}":
            wanted = f'Bearer realm="http://{self.registry.login or self.registry.host}/token",service="here"'
        elif self.registry.basic and not self.registry.token and given != self.registry.basic:
            wanted = 'Basic realm="here"'
        else:
            return True
        self._answer(401, b'{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}', WWW_Authenticate=wanted)
        return False

    def _give_token(self, query: dict[str, list[str]]) -> None:
        self._read(None)
        self.registry.scopes.append(query.get("scope", []))
        if self.registry.basic and self.headers.get("Authorization") != self.registry.basic:
            self._answer(401, b"{}")
        else:
            self._answer(200, json.dumps({"token": self.registry.token}).encode())

    def _serve(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        name, kind, rest = _parts(path)
        blobs = self.registry.blobs.setdefault(name, {})
        if not kind:
            self._answer(200, b"{}")
        elif kind == "manifests":
            self._manifest(f"{name}:{rest}", body)
        elif kind in ("referrers", "tags"):
            (self._list_referrers if kind == "referrers" else self._list_tags)(name, query, rest)
        elif self.command == "HEAD":
            self._answer(200 if rest in blobs else 404, blobs.get(rest, b""))
        elif self.command == "GET":
            if self.registry.blobs_at:
                self._answer(307, Location=f"http://{self.registry.blobs_at}{self.path}")
                return
            if rest == self.registry.silent:
                self._keep_silent()
            self._give_blob(blobs.get(rest))
        elif self.command == "POST":
            self._begin(name, query)
        else:
            self._receive(name, query, body)

    def _receive(self, name: str, query: dict[str, list[str]], body: bytes) -> None:
        """Take a part of an upload (PATCH), or the rest of an upload and its digest, or forget it (DELETE)."""
        if self.command == "DELETE":
            self.registry.unfinished = b""
            self._answer(204)
            return
        if self.command == "PATCH":
            self.registry.unfinished = body
            self._answer(202, Location=f"/v2/{name}/blobs/uploads/1?state=y")
            return
        body, self.registry.unfinished = body or self.registry.unfinished, b""
        digest = query["digest"][0]
        misread, self.registry.misread_uploads = self.registry.misread_uploads, max(0, self.registry.misread_uploads - 1)
        if misread or digest != f"sha256:{hashlib.sha256(body).hexdigest()}":
            self._answer(400, b'{"errors":[{"code":"DIGEST_INVALID","message":"another digest"}]}')
            return
        self.registry.blobs[name][digest] = body
        self._answer(201)

    def _give_blob(self, blob: bytes | None) -> None:
        """Send the blob, or the requested rest of it. If a planted fault breaks the download, send only the first half."""
        if blob is None:
            self._answer(404, b'{"errors":[{"code":"BLOB_UNKNOWN","message":"no such blob"}]}')
            return
        asked = self.headers.get("Range", "").removeprefix("bytes=").rstrip("-")
        begin = int(asked) if asked and self.registry.knows_ranges else 0
        rest = blob[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.registry.break_downloads:
            self.registry.break_downloads -= 1
            rest = rest[: len(rest) // 2]
            self.close_connection = True
        self.wfile.write(rest)
        self.registry.sent += len(rest)
        if self.close_connection:
            self.connection.close()

    def _begin(self, name: str, query: dict[str, list[str]]) -> None:
        if self.registry.silent == "uploads":
            self._keep_silent()
        digest, source = query.get("mount", [""])[0], query.get("from", [""])[0]
        if digest and self.registry.refuses_mounts:
            self._answer(self.registry.refuses_mounts, b'{"errors":[{"code":"DENIED","message":"not your repository"}]}')
            return
        if digest in self.registry.blobs.get(source, {}):
            self.registry.blobs[name][digest] = self.registry.blobs[source][digest]
            self._answer(201)
        else:
            self._answer(202, Location=f"/v2/{name}/blobs/uploads/1?state=x")

    def _keep_silent(self) -> None:
        self.registry.waited_too_long |= not self.registry.goes_on.wait(100)

    def _list_tags(self, name: str, query: dict[str, list[str]], _rest: str) -> None:
        """Send one page of at most ``page`` tags, sorted by name."""
        known = sorted(each.partition(":")[2] for each in self.registry.manifests if each.startswith(f"{name}:"))
        if not known and not self.registry.blobs.get(name):  # a repository stays when its last tag is deleted
            self._answer(404, b'{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}')
            return
        found = [each for each in known if ":" not in each and each > query.get("last", [""])[0]]
        page = found[: self.registry.page]
        more = {"Link": f'</v2/{name}/tags/list?last={page[-1]}>; rel="next"'} if len(page) < len(found) else {}
        self._answer(200, json.dumps({"name": name, "tags": page or None}).encode(), **more)

    def _delete(self, reference: str) -> None:
        """Delete a manifest and its tags. As in Debian's docker-registry, the request must name the digest."""
        if not self.registry.deletes or ":sha256:" not in reference:
            self._answer(405, b'{"errors":[{"code":"UNSUPPORTED","message":"The operation is unsupported."}]}')
            return
        content = self.registry.manifests.get(reference)
        for each in [each for each, found in self.registry.manifests.items() if content is not None and found == content]:
            del self.registry.manifests[each]
        self._answer(404 if content is None else 202)

    def _manifest(self, reference: str, body: bytes) -> None:
        if self.command == "DELETE":
            self._delete(reference)
            return
        if self.command == "PUT" and self.registry.misread_manifests:
            self.registry.misread_manifests -= 1
            self._answer(400, b'{"errors":[{"code":"DIGEST_INVALID","message":"another digest"}]}')
            return
        if self.command == "PUT":
            told = json.loads(body)
            name = reference.partition(":")[0]
            blobs = (told["config"], *told["layers"]) if "layers" in told else ()
            lacking = [each for each in blobs if each["digest"] not in self.registry.blobs[name]]
            if lacking:
                self._answer(400, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"a blob is missing"}]}')
                return
            self.registry.manifests[reference] = body
            self.registry.manifests[f"{name}:sha256:{hashlib.sha256(body).hexdigest()}"] = body
        found = self.registry.manifests.get(reference)
        if found is None:
            self._answer(404)
            return
        digest = self._digest(found)
        status = 201 if self.command == "PUT" else 200
        kind = INDEX if f'"mediaType":"{INDEX}"'.encode() in found else MANIFEST
        told = {"Docker_Content_Digest": digest} if self.registry.tells_digests else {}
        self._answer(status, found, Content_Type=kind, **told)

    def _digest(self, content: bytes) -> str:
        return f"sha256:{hashlib.sha256(content).hexdigest()}"

    def _list_referrers(self, name: str, _query: dict[str, list[str]], digest: str) -> None:
        if not self.registry.knows_referrers:
            self._answer(404)
            return
        found, more = [], {"Link": f'<{self.path}>; rel="next"'} if self.registry.endless else {}
        for reference, content in sorted(self.registry.manifests.items()):
            told = json.loads(content)
            if reference.startswith(f"{name}:sha256:") and told.get("subject", {}).get("digest") == digest:
                parts = ("mediaType", "artifactType", *(("annotations",) if self.registry.lists_annotations else ()))
                about = {part: told[part] for part in parts}
                found.append({"digest": reference.removeprefix(f"{name}:"), "size": len(content), **about})
        self._answer(200, json.dumps({"schemaVersion": 2, "manifests": found}).encode(), Content_Type=INDEX, **more)


def _parts(path: str) -> tuple[str, str, str]:
    for kind in ("/blobs/uploads/", "/blobs/", "/manifests/", "/referrers/", "/tags/"):
        if kind in path:
            name, _, rest = path.partition(kind)
            return name, kind.strip("/"), rest
    return "", "", ""

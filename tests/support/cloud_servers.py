"""Servers of Google's and Azure's storage for tests: one in memory, and the emulators if they have been installed.

The one in memory answers the requests of Google's XML API that a store sends
(https://cloud.google.com/storage/docs/xml-api/reference-methods). The emulators are other programs' view of the two
protocols:

    npm install --prefix .tools azurite@3.37.0
    GOBIN=$PWD/.tools/bin go install github.com/fsouza/fake-gcs-server@v1.56.1
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.lossy_proxy import LossyProxy
from tests.support.waiting import eventually

BUCKET = "tussock-test"
ROOT = Path(__file__).resolve().parents[2]
# The account of every Azurite, which its documentation publishes.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

GOOGLE_KEY = json.dumps({"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""})


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def google_credentials() -> Iterator[None]:
    """A service account that needs no token, where Google's chain looks for one."""
    with _environment("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY):
        yield


class _InMemory(BaseHTTPRequestHandler):
    """The objects of one bucket."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, tuple[bytes, str]]
    lock: threading.Lock

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.lock:
            if self.headers.get("x-goog-if-generation-match") == "0" and self._name in self.objects:
                self._refuse(412, "PreconditionFailed")
                return
            self.objects[self._name] = (data, format_datetime(datetime.now(UTC), usegmt=True))
        self._answer(200, b"", ETag=_etag_of(data))

    def do_GET(self) -> None:
        bucket, name = self._split()
        if bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        elif not name:
            self._list()
        elif name not in self.objects:
            self._refuse(404, "NoSuchKey")
        else:
            self._send_object(name)

    def _send_object(self, name: str) -> None:
        data, modified = self.objects[name]
        headers, asked = {"ETag": _etag_of(data), "Last-Modified": modified}, self.headers.get("Range")
        if asked is None:
            self._answer(200, data, **headers)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        if start >= len(data):
            self._refuse(416, "InvalidRange")
            return
        part = data[start : int(last) + 1 if first and last else None]
        span = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
        self._answer(206, part, **headers, **{"Content-Range": span})

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        if self.objects.pop(self._name, None) is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._answer(204, b"")

    @property
    def _name(self) -> str:
        return self._split()[1]

    def _split(self) -> tuple[str, str]:
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        return unquote(bucket), unquote(name)

    def _list(self) -> None:
        given = {k: v[-1] for k, v in parse_qs(urlsplit(self.path).query).items()}
        after = max(given.get("start-after", ""), given.get("continuation-token", "")).encode()
        names = sorted((n for n in list(self.objects) if n.startswith(given.get("prefix", ""))), key=str.encode)
        names = [n for n in names if n.encode() > after]
        page = names[: min(int(given.get("max-keys", 1000)), 3)]  # pages are small, so that every listing has some
        entries = "".join(self._entry(n) for n in page)
        more = len(names) > len(page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = f"<ListBucketResult>{entries}<IsTruncated>{str(more).lower()}</IsTruncated>{token}</ListBucketResult>"
        self._answer(200, body.encode())

    def _entry(self, name: str) -> str:
        data, _ = self.objects[name]
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return (
            f"<Contents><Key>{escape(name)}</Key><LastModified>{moment}</LastModified>"
            f"<ETag>{escape(_etag_of(data))}</ETag><Size>{len(data)}</Size></Contents>"
        )

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def memory_server() -> Iterator[str]:
    """The endpoint of Google's storage in the memory of this process, with an empty bucket BUCKET."""
    handler = type("Handler", (_InMemory,), {"objects": {}, "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with google_credentials():
            yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def find_emulator(name: str) -> str | None:
    """The path of an emulator's program in `.tools` or on the PATH; None if it has not been installed."""
    places = (ROOT / ".tools" / "node_modules" / ".bin" / name, ROOT / ".tools" / "bin" / name, name)
    return next((program for place in places if (program := shutil.which(place))), None)


@contextmanager
def azurite(program: str) -> Iterator[str]:
    """The endpoint of an Azurite with an empty container BUCKET."""
    with _process([program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort"]) as port:
        _create_container(port)
        with _environment("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY):
            yield f"http://127.0.0.1:{port}/{ACCOUNT}"


@contextmanager
def fake_gcs_server(program: str) -> Iterator[str]:
    """The endpoint of a fake-gcs-server with an empty bucket BUCKET."""
    command = [program, "-scheme", "http", "-backend", "memory", "-public-host", "127.0.0.1", "-port"]
    with _process(command) as port, _PutsByJson(f"http://127.0.0.1:{port}") as proxy, google_credentials():
        connection = http.client.HTTPConnection("127.0.0.1", port)
        named = json.dumps({"name": BUCKET})
        connection.request("POST", "/storage/v1/b?project=test", named, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200
        yield proxy.endpoint


class _PutsByJson(LossyProxy):
    """Sends a PUT of the XML API as an upload of the JSON API: fake-gcs-server does not know the former."""

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        """Forward one request."""
        if request.command == "PUT":
            bucket, _, name = urlsplit(request.path).path.lstrip("/").partition("/")
            match = request.headers.get("x-goog-if-generation-match")
            condition = "" if match is None else f"&ifGenerationMatch={match}"
            named = quote(unquote(name), safe="")
            request.path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={named}{condition}"
            request.command = "POST"
        super().forward(request)

    def added_headers(self, answer: bytes) -> list[tuple[str, str]]:
        """The ETag, which the JSON API returns in the body."""
        return [("ETag", json.loads(answer)["etag"])] if answer.startswith(b'{"kind":"storage#object"') else []


@contextmanager
def _process(command: Sequence[str]) -> Iterator[int]:
    """Run a server on a free port, which is its last argument."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def answers() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    process = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually("the emulator answers", answers, 60)
        yield port
    finally:
        process.kill()  # it has nothing to save
        process.wait()


def _create_container(port: int) -> None:
    moment = format_datetime(datetime.now(UTC), usegmt=True)
    version = "2021-08-06"
    signed = (
        "PUT"
        + "\n" * 12
        + f"x-ms-date:{moment}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    )
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    authorization = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"x-ms-date": moment, "x-ms-version": version, "Authorization": authorization, "Content-Length": "0"}
    connection.request("PUT", f"/{ACCOUNT}/{BUCKET}?restype=container", headers=headers)
    assert connection.getresponse().status == 201

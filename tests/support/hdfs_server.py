"""WebHDFS in memory, for tests: the requests that a store sends, answered as Hadoop's documentation describes them.

https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html. tests/deep/cluster/test_yarn.py runs
the same contract on a real HDFS.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_API = "/webhdfs/v1"


class _InMemory(BaseHTTPRequestHandler):
    """The name node and the data node: a redirect leads to the same server, with the parameter `data`."""

    protocol_version = "HTTP/1.1"
    files: dict[str, tuple[int, bytes]]  # id and content by path
    lock: threading.Lock
    ids: Iterator[int]

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""

    def do_GET(self) -> None:
        path, asked = self._request()
        with self.lock:
            folders = self._folders()
            match asked["op"]:
                case "GETFILESTATUS" if path in self.files:
                    self._answer(200, {"FileStatus": self._status(path, "")})
                case "GETFILESTATUS" if path in folders:
                    self._answer(200, {"FileStatus": {"type": "DIRECTORY", "length": 0}})
                case "OPEN" if path in self.files:
                    self._open(self.files[path][1], asked)
                case "LISTSTATUS" if path in folders or path in self.files:
                    self._answer(200, {"FileStatuses": {"FileStatus": [*self._entries(path)]}})
                case _:
                    self._refuse(404, "FileNotFoundException")

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, asked = self._request()
        if asked["op"] == "CREATE" and "data" not in asked:
            self._redirect()
            return
        with self.lock:
            if asked["op"] == "CREATE":
                self._make(path, data, asked.get("overwrite") == "true")
            else:
                self._rename(path, asked["destination"], asked["renameoptions"] == "OVERWRITE")

    def do_DELETE(self) -> None:
        path, _ = self._request()
        with self.lock:
            self._answer(200, {"boolean": self.files.pop(path, None) is not None})

    def _request(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return unquote(parts.path).removeprefix(_API).rstrip("/") or "/", asked

    def _open(self, data: bytes, asked: dict[str, str]) -> None:
        start = int(asked.get("offset", 0))
        if "data" not in asked:
            self._redirect()
        elif start > len(data):
            self._refuse(403, "IOException")
        else:
            self._answer(200, data[start : start + int(asked.get("length", len(data)))])

    def _make(self, path: str, data: bytes, overwrite: bool) -> None:
        if path in self.files and not overwrite:
            self._refuse(403, "FileAlreadyExistsException")
        else:
            self.files[path] = (next(self.ids), data)
            self._answer(201, b"")

    def _rename(self, path: str, target: str, overwrite: bool) -> None:
        if path not in self.files:
            self._refuse(404, "FileNotFoundException")
        elif target in self.files and not overwrite:
            self._refuse(403, "FileAlreadyExistsException")
        else:
            self.files[target] = self.files.pop(path)
            self._answer(200, b"")

    def _folders(self) -> set[str]:
        return {"/"} | {path[:at] for path in self.files for at, char in enumerate(path) if char == "/" and at}

    def _entries(self, path: str) -> Iterator[dict[str, Any]]:
        if path in self.files:
            yield self._status(path, "")
        inside = path.rstrip("/") + "/"
        for name in self.files:
            if name.startswith(inside) and "/" not in (leaf := name[len(inside) :]):
                yield self._status(name, leaf)
        for folder in self._folders():
            if folder != "/" and folder.rpartition("/")[0] == path.rstrip("/"):
                yield {"pathSuffix": folder.rpartition("/")[2], "type": "DIRECTORY", "length": 0}

    def _status(self, path: str, leaf: str) -> dict[str, Any]:
        number, data = self.files[path]
        size = len(data)
        return {"pathSuffix": leaf, "type": "FILE", "length": size, "modificationTime": number, "fileId": number}

    def _redirect(self) -> None:
        self._answer(307, b"", Location=f"http://{self.headers['Host']}{self.path}&data=1")

    def _refuse(self, status: int, kind: str) -> None:
        self._answer(status, {"RemoteException": {"exception": kind, "message": "no"}})

    def _answer(self, status: int, body: bytes | dict[str, Any], **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def webhdfs_server() -> Iterator[str]:
    """Start an empty server; yield its address."""
    state = {"files": {}, "lock": threading.Lock(), "ids": count(1)}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_InMemory,), state)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()

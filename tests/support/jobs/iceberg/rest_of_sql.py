"""A REST catalog in this process, over a SQL catalog. It has two tokens: one may do everything, and one only reads."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

OWNER, READER = "owner", "reader"
_CODES: dict[type[Exception], int] = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
}


class RestOfSql:
    """A server with its tables in a folder. It can be stopped, and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self._properties = {"uri": f"sqlite:///{folder}/rest.db", "warehouse": f"file://{folder}"}
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        catalog = SqlCatalog("lake", **self._properties)
        handler = type("Handler", (_Handler,), {"catalog": catalog, "owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if (server := self._server) is not None:
            server.shutdown()
            server.server_close()
        self._server = None


class _Handler(BaseHTTPRequestHandler):
    catalog: SqlCatalog
    owner: RestOfSql

    def do_HEAD(self) -> None:
        self._answer(self._find_namespace)

    def do_GET(self) -> None:
        self._answer(self._read)

    def do_POST(self) -> None:
        self._answer(self._write)

    def _find_namespace(self, names: list[str]) -> dict[str, Any] | None:
        return {} if self.catalog.namespace_exists(names[1]) else None

    def _read(self, names: list[str]) -> dict[str, Any]:
        match names:
            case ["config"]:
                return {"defaults": {}, "overrides": {}}
            case ["namespaces", namespace]:
                return {"namespace": [namespace], "properties": self.catalog.load_namespace_properties(namespace)}
            case ["namespaces", namespace, "tables", name]:
                return _described(self.catalog.load_table((namespace, name)))
        raise NoSuchTableError(self.path)

    def _write(self, names: list[str]) -> dict[str, Any]:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        match names:
            case ["namespaces"]:
                namespace = json.loads(body)["namespace"]
                self.catalog.create_namespace(tuple(namespace))
                return {"namespace": namespace, "properties": {}}
            case ["namespaces", namespace, "tables"]:
                wanted = CreateTableRequest.model_validate_json(body)
                layout = {"partition_spec": wanted.partition_spec, "sort_order": wanted.write_order}
                given = {name: value for name, value in layout.items() if value is not None}
                of_table = {"location": wanted.location, "properties": wanted.properties, **given}
                made = self.catalog.create_table((namespace, wanted.name), wanted.table_schema, **of_table)
                return _described(made)
            case ["namespaces", namespace, "tables", name]:
                commit = CommitTableRequest.model_validate_json(body)
                table = self.catalog.load_table((namespace, name))
                done = self.catalog.commit_table(table, commit.requirements, commit.updates)
                return {
                    "metadata-location": done.metadata_location,
                    "metadata": json.loads(done.metadata.model_dump_json()),
                }
        raise NoSuchTableError(self.path)

    def _answer(self, find: Callable[[list[str]], dict[str, Any] | None]) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (OWNER, READER):
            self._send(401, _error("NotAuthorizedException", "the token is unknown", 401))
        elif token == READER and self.command == "POST":
            self._send(403, _error("ForbiddenException", "the token may only read", 403))
        else:
            try:
                answer = find(self.path.removeprefix("/v1/").split("?")[0].split("/"))
            except Exception as err:
                code = _CODES.get(type(err), 500)
                self._send(code, _error(type(err).__name__, str(err), code))
            else:
                self._send(404 if answer is None else 200, answer or {})

    def _send(self, code: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _described(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(kind: str, message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}

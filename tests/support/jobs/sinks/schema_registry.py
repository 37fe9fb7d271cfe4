"""A schema registry for tests: Confluent's interface for registering schemas, in a thread of this process."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import fastavro


class Registry:
    """The registered schemas, and the answer to the next request if it is to be refused."""

    def __init__(self) -> None:
        self.schemas: list[Any] = []  # the id is the position
        self.subjects: dict[str, list[int]] = {}
        self.logins: set[str | None] = set()
        self.refusal: tuple[int, str] | None = None
        self.address = ""

    def decode(self, message: bytes | None) -> Any:
        """The record of a message, as a consumer that knows only the registry reads it."""
        if message is None:
            return None
        assert message[0] == 0
        return fastavro.schemaless_reader(io.BytesIO(message[5:]), self.schemas[int.from_bytes(message[1:5])])


@contextmanager
def running_registry() -> Iterator[Registry]:
    """Run a registry on a free port."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            registry.logins.add(self.headers["Authorization"])
            if registry.refusal is not None:
                self.answer(registry.refusal[0], {"error_code": 409, "message": registry.refusal[1]})
                return
            schema = json.loads(body["schema"])
            if schema not in registry.schemas:
                registry.schemas.append(schema)
            number = registry.schemas.index(schema)
            registry.subjects.setdefault(self.path.split("/")[2], []).append(number)
            self.answer(200, {"id": number})

        def answer(self, status: int, body: Any) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()

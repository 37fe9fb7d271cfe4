"""An HTTP proxy in front of an S3 server that loses answers: a request takes effect, then the connection breaks.

It tests clients under uncertainty: timeouts, resets, and retries that meet their own object.
"""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit


@dataclass
class LossyProxy:
    """A proxy that listens on a free local port while used as a context manager; `endpoint` is its address.

    `lose(method, path)` is called per request. If it returns True, the server's answer is discarded and the connection
    closed. If `cut(method, path)` returns True, the body ends half way. `seen` lists the requests that arrived.
    """

    upstream: str
    lose: Callable[[str, str], bool] = lambda method, path: False
    cut: Callable[[str, str], bool] = lambda method, path: False
    seen: list[tuple[str, str]] = field(default_factory=list)

    def __enter__(self) -> "LossyProxy":
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                proxy.forward(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def added_headers(self, answer: bytes) -> list[tuple[str, str]]:
        """The headers that this proxy adds to an answer with this body: none."""
        return []

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        """Forward one request to the server, and return its answer unless it is lost."""
        self.seen.append((request.command, request.path))
        if request.headers.get("Expect", "").lower() == "100-continue":
            request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        target = urlsplit(self.upstream)
        server = http.client.HTTPConnection(target.hostname or "", target.port)
        # The Host header stays the proxy's: the request's signature covers it.
        headers = {
            k: v for k, v in request.headers.items() if k.lower() not in ("expect", "connection", "transfer-encoding")
        }
        server.request(request.command, request.path, body, headers)
        answer = server.getresponse()
        data = answer.read()
        server.close()
        if self.lose(request.command, request.path):
            request.close_connection = True
            return
        half = self.cut(request.command, request.path)
        request.send_response_only(answer.status, answer.reason)
        for name, value in (*answer.getheaders(), *self.added_headers(data)):
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                request.send_header(name, value)
        request.send_header(
            "Content-Length", answer.getheader("Content-Length", "0") if request.command == "HEAD" else str(len(data))
        )
        request.end_headers()
        request.wfile.write(data[: len(data) // 2] if half else data)
        request.close_connection = request.close_connection or half

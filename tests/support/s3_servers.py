"""S3 servers for tests: moto's in this process, and versitygw as a separate process if it has been built."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
from moto.server import ThreadedMotoServer

from tests.support.waiting import eventually

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

KEY, SECRET = "testing", "testing-secret"
BUCKET = "tussock-test"
ROOT = Path(__file__).resolve().parents[2]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def credentials() -> Iterator[None]:
    """The test servers' credentials in the environment, where boto3's chain finds them."""
    wanted = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def create_bucket(endpoint: str, bucket: str = BUCKET) -> None:
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)


@contextmanager
def moto_server(seen: "list[Seen] | None" = None, omitted: frozenset[str] = frozenset()) -> Iterator[str]:
    """The endpoint of a moto server with an empty bucket BUCKET.

    Args:
        seen: gets each request, as it was received.
        omitted: the facts of objects that no answer has: ETag, Last-Modified, Content-Length. `W/` makes ETags weak.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    app = _one_conditional_put_at_a_time(server._server.app)  # type: ignore[union-attr]
    app = _omitting(app, omitted) if omitted else app
    server._server.app = app if seen is None else _watched(app, seen)  # type: ignore[union-attr]
    try:
        with credentials():
            create_bucket(f"http://{host}:{port}")
            yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def moto_process() -> Iterator[str]:
    """`moto_server` in a separate process, for clients that hold the interpreter's lock while they wait."""
    command = [sys.executable, "-m", "tests.support.s3_servers"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        with credentials():
            assert process.stdout is not None
            yield process.stdout.readline().strip()
    finally:
        process.communicate()  # it ends with its input


def _one_conditional_put_at_a_time(app: "WSGIApplication") -> "WSGIApplication":
    """Serialize conditional puts. moto checks and then puts, so under load two of eight writers won, unlike in S3."""
    lock = threading.Lock()

    def serve(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        with lock if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
            return app(environ, start_response)

    return serve


def _omitting(app: "WSGIApplication", omitted: frozenset[str]) -> "WSGIApplication":
    elements = {"ETag": b"ETag", "Content-Length": b"Size", "Last-Modified": b"LastModified"}  # of a list

    def serve(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        began: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            began.append((status, headers))

        answer = b"".join(app(environ, start))
        status, headers = began[-1]
        is_list = environ["REQUEST_METHOD"] == "GET" and answer.startswith(b"<?xml")
        for name in omitted & set(elements) if is_list else ():
            answer = re.sub(b"<%s>[^<]*</%s>" % (elements[name], elements[name]), b"", answer)
        if is_list and "W/" in omitted:
            answer = answer.replace(b"<ETag>", b"<ETag>W/")
        lengths = [("Content-Length", str(len(answer)))] if is_list else []
        left = [(k, v) for k, v in headers if k.title() not in {o.title() for o in omitted}]
        left = [(k, f"W/{v}" if "W/" in omitted and k.title() == "Etag" else v) for k, v in left]
        left = [(k, v) for k, v in left if not (is_list and k.title() == "Content-Length")] + lengths
        start_response(status, left)
        return [answer]

    return serve


class Seen(NamedTuple):
    """One request: its method, path and query, bytes of its body and of the answer's, and whether it was refused."""

    method: str
    path: str
    query: str
    bytes_in: int
    bytes_out: int
    failed: bool


def _watched(app: "WSGIApplication", seen: list[Seen]) -> "WSGIApplication":
    def serve(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        status: list[str] = []

        def start(said: str, *more: Any) -> Any:
            status.append(said)
            return start_response(said, *more)

        answer = b"".join(app(environ, start))
        got = int(environ.get("CONTENT_LENGTH") or 0)
        failed = not status[-1].startswith("2")
        seen.append(
            Seen(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], got, len(answer), failed)
        )
        return [answer]

    return serve


def versitygw_binary() -> str | None:
    """The path of versitygw if it has been built: $VERSITYGW, the repository's `.tools/bin`, or the PATH."""
    candidates = (os.environ.get("VERSITYGW", ""), str(ROOT / ".tools" / "bin" / "versitygw"), "versitygw")
    return next((found for c in candidates if c and (found := shutil.which(c))), None)


@contextmanager
def versitygw_server(binary: str, folder: Path) -> Iterator[str]:
    """The endpoint of a versitygw over `folder` with an empty bucket BUCKET."""
    (folder / "data").mkdir(parents=True)
    (folder / "sidecar").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Metadata in a sidecar folder: not every file system a test runs on has extended attributes.
    command = [binary, "--access", KEY, "--secret", SECRET, "--port", f"127.0.0.1:{port}", "--quiet", "posix"]
    process = subprocess.Popen([*command, "--sidecar", str(folder / "sidecar"), str(folder / "data")])
    try:
        eventually("versitygw answers", lambda: _answers(port), 30)
        with credentials():
            create_bucket(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=10)


if __name__ == "__main__":
    with moto_server() as own_endpoint:
        print(own_endpoint, flush=True)
        sys.stdin.read()

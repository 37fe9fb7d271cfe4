"""The failures that only a server can have: lost answers, cut bodies, refusing endpoints."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import count
from types import SimpleNamespace

import pytest

from tests.support.lossy_proxy import LossyProxy
from tests.support.s3_servers import BUCKET, SECRET
from tussock.statestore.objectstore import s3
from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadStoreError,
    ClockSkewError,
    ExpiredCredentialsError,
    ObjectStore,
    ObjectStoreUnavailableError,
)
from tussock.statestore.objectstore.open import open_object_store

_prefixes = count()


def _store(endpoint: str, prefix: str) -> ObjectStore:
    return open_object_store(f"s3://{BUCKET}/{prefix}?endpoint={endpoint}&path_style=true")


@pytest.fixture
def prefix() -> str:
    return f"s3-{next(_prefixes)}"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore waits up to 8 s between attempts; the tests need only that it makes them."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0.01)


@pytest.mark.parametrize("lost", [1, 2, s3.ATTEMPTS, s3.ATTEMPTS + 1])
def test_a_conditional_put_with_lost_answers_recognises_its_own_object(
    moto_endpoint: str, prefix: str, lost: int
) -> None:
    left = [lost]

    def lose(method: str, path: str) -> bool:
        left[0] -= method == "PUT"
        return method == "PUT" and left[0] >= 0

    with LossyProxy(moto_endpoint, lose=lose) as proxy:
        assert _store(proxy.endpoint, prefix).put_if_absent("x", b"mine")
        assert proxy.seen[0][0] == "PUT"
    assert _store(moto_endpoint, prefix).get("x") == b"mine"


@pytest.mark.parametrize("lost", [1, s3.ATTEMPTS])
def test_a_conditional_put_with_lost_answers_recognises_that_another_was_first(
    moto_endpoint: str, prefix: str, lost: int
) -> None:
    assert _store(moto_endpoint, prefix).put_if_absent("x", b"theirs")
    left = [lost]

    def lose(method: str, path: str) -> bool:
        left[0] -= method == "PUT"
        return method == "PUT" and left[0] >= 0

    with LossyProxy(moto_endpoint, lose=lose) as proxy:
        assert not _store(proxy.endpoint, prefix).put_if_absent("x", b"mine")
    assert _store(moto_endpoint, prefix).get("x") == b"theirs"


def test_a_server_that_answers_nothing_at_all_is_an_error_and_never_a_guess(moto_endpoint: str, prefix: str) -> None:
    with LossyProxy(moto_endpoint, lose=lambda method, path: True) as proxy:
        store = _store(proxy.endpoint, prefix)
        with pytest.raises(ObjectStoreUnavailableError, match="put_if_absent"):
            store.put_if_absent("x", b"mine")
    assert _store(moto_endpoint, prefix).put_if_absent("x", b"mine"), "a repeated request recognises its object"


def test_a_body_that_ends_early_is_fetched_again(moto_endpoint: str, prefix: str) -> None:
    data = bytes(range(256)) * 2000
    _store(moto_endpoint, prefix).put("x", data)
    left = [0]

    def cut(method: str, path: str) -> bool:
        left[0] -= 1
        return left[0] >= 0

    with LossyProxy(moto_endpoint, cut=cut) as proxy:
        store = _store(proxy.endpoint, prefix)
        reads: list[Callable[[], bytes]] = [
            lambda: store.get("x"),
            lambda: store.get_ranges("x", [(0, len(data))])[0],
            lambda: store.get_ranges("x", [(-len(data), len(data))])[0],
        ]
        for read in reads:
            left[0] = s3.ATTEMPTS - 1
            assert read() == data
            left[0] = s3.ATTEMPTS
            with pytest.raises(ObjectStoreUnavailableError):
                read()


def test_neighbouring_ranges_are_one_request_and_far_ones_go_out_together(moto_endpoint: str, prefix: str) -> None:
    _store(moto_endpoint, prefix).put("x", bytes(1_000_000))
    with LossyProxy(moto_endpoint) as proxy:
        store = _store(proxy.endpoint, prefix)
        store.get_ranges("x", [(i * 1000, 100) for i in range(50)])
        assert len(proxy.seen) == 1
        store.get_ranges("x", [(0, 10), (300_000, 10), (600_000, 10), (-10, 10)])
        assert len(proxy.seen) == 5


def test_a_forked_child_uses_connections_and_threads_of_its_own(moto_endpoint: str, prefix: str) -> None:
    store = _store(moto_endpoint, prefix)
    store.put("x", bytes(1_000_000))
    apart = [(0, 10), (500_000, 10), (900_000, 10)]
    assert store.get_ranges("x", apart) == [bytes(10)] * 3
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that waits for threads it does not have
        os._exit(0 if store.get_ranges("x", apart) == [bytes(10)] * 3 and store.put_if_absent("y", b"child") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("y") == b"child"


def test_an_endpoint_that_refuses_is_named_with_a_remedy(moto_endpoint: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    store = _store(endpoint, "x")
    for call in (
        lambda: store.get("a"),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: list(store.list("")),
    ):
        with pytest.raises(
            ObjectStoreUnavailableError, match=f"{endpoint}.*the endpoint refuses connections.*Check the endpoint"
        ):
            call()


def test_a_bucket_that_does_not_exist_is_named(moto_endpoint: str) -> None:
    store = open_object_store(f"s3://no-such-bucket/p?endpoint={moto_endpoint}")
    for call in (
        lambda: store.get("a"),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: list(store.list("")),
    ):
        with pytest.raises(BadStoreError, match=r"no-such-bucket.*NoSuchBucket.*create it"):
            call()


def test_a_name_that_no_bucket_can_have_is_named(moto_endpoint: str) -> None:
    with pytest.raises(BadStoreError, match="check the bucket name"):
        open_object_store(f"s3://no!bucket/p?endpoint={moto_endpoint}").put_if_absent("a", b"")


def test_absent_credentials_are_reported_with_their_expected_origin(
    moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    s3._client_of.cache_clear()
    try:
        with pytest.raises(AccessDeniedError, match=r"no credentials were found.*AWS_ACCESS_KEY_ID"):
            _store(moto_endpoint, "x").put_if_absent("a", b"")
    finally:
        s3._client_of.cache_clear()


@pytest.mark.deep
def test_wrong_credentials_are_an_error_that_shows_none(
    versitygw_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-" + SECRET)
    s3._client_of.cache_clear()
    try:
        store = _store(versitygw_endpoint, "x")
        for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b"")):
            with pytest.raises(AccessDeniedError, match="SignatureDoesNotMatch") as denied:
                call()
            assert SECRET not in str(denied.value) + str(denied.value.__cause__)
    finally:
        s3._client_of.cache_clear()


def test_the_body_of_a_request_that_explains_a_failed_head_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    store, body = _store("http://127.0.0.1:9", "x"), BytesIO(b"the whole object, from a server without ranges")
    assert isinstance(store, s3.S3ObjectStore)
    monkeypatch.setattr(s3.S3ObjectStore, "_client", SimpleNamespace(get_object=lambda **_: {"Body": body}))
    assert store._code_of_get("a") == ""
    assert body.closed


@contextmanager
def _refusing_server(status: int, code: str) -> Iterator[str]:
    """A server that refuses each request with a code, as S3 does: in the body, which the answer to a HEAD lacks."""
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "kind", "said"),
    [
        (400, "ExpiredToken", ExpiredCredentialsError, "the credentials of this process have expired"),
        (403, "RequestTimeTooSkewed", ClockSkewError, "Set the clock"),
        (403, "AccessDenied", AccessDeniedError, "Give the process valid credentials with this permission"),
    ],
)
def test_an_expired_token_and_a_wrong_clock_are_named_for_every_request(
    status: int, code: str, kind: type[AccessDeniedError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with _refusing_server(status, code) as endpoint:
        store = _store(endpoint, "x")
        for call in (
            lambda: store.get("a"),
            lambda: store.head("a"),
            lambda: store.put("a", b""),
            lambda: list(store.list("")),
        ):
            with pytest.raises(kind, match=said) as raised:
                call()
            assert type(raised.value) is kind
            assert code in str(raised.value)

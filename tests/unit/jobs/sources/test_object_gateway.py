"""The gateway serves exactly the objects that the driver named. Requests are sent as by Hadoop's client. No Spark."""

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from types import SimpleNamespace
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.support.s3_servers import BUCKET
from tests.support.waiting import eventually
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.object_ticket import REDACTED, VALID_S, Ticket, suffix_of, with_object_names
from tussock.jobs.sources import object_gateway
from tussock.jobs.sources.errors import ChangedFileError
from tussock.jobs.sources.listing import open_file, server_options
from tussock.jobs.sources.object_gateway import ObjectGateway
from tussock.jobs.sources.pins import PinnedFile, open_readable, verify_pin
from tussock.jobs.spark.session import CLOSED
from tussock.statestore.objectstore.base import ObjectStore, ObjectStoreUnavailableError
from tussock.statestore.objectstore.open import open_s3
from tussock.statestore.objectstore.range_file import RangeFile

CONTENT = b"0123456789" * 10


@pytest.fixture(scope="module")
def gateway() -> ObjectGateway:
    return ObjectGateway("127.0.0.1", "127.0.0.1")


@pytest.fixture
def store(s3_bucket: tuple[str, Callable[[str, bytes], None]]) -> ObjectStore:
    uri, put = s3_bucket
    put("in [1]/a é.csv.gz", CONTENT)
    return open_s3(BUCKET, "in [1]", server_options(uri, {}))


def request(url: str, query: str) -> tuple[HTTPResponse, bytes]:
    """GET, without following a redirect."""
    at = urlsplit(url)
    connection = HTTPConnection(at.netloc, timeout=10)
    connection.request("GET", f"/webhdfs/v1{at.path}?{query}")
    answer = connection.getresponse()
    return answer, answer.read()


def test_a_file_is_found_and_read_from_any_offset(gateway: ObjectGateway, store: ObjectStore) -> None:
    url = gateway.url(store, "a é.csv.gz")
    assert url.endswith("/data.gz")
    status = json.loads(request(url, "op=GETFILESTATUS&user.name=x")[1])["FileStatus"]
    assert (status["length"], status["type"]) == (len(CONTENT), "FILE")
    assert status["modificationTime"] == store.head("a é.csv.gz").modified_ms
    assert json.loads(request(url, "op=LISTSTATUS")[1])["FileStatuses"]["FileStatus"] == [status]
    sent, _ = request(url, "op=OPEN&user.name=x")
    assert sent.status == 307
    to = urlsplit(sent.headers["Location"])
    for offset in (0, 7, len(CONTENT)):
        answer, body = request(url, f"{to.query}&offset={offset}")
        assert (answer.status, body) == (200, CONTENT[offset:])


def test_a_stranger_whose_bytes_keep_coming_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_gateway, "_IDLE_S", 0.5)
    address = ObjectGateway("127.0.0.1", "127.0.0.1")._address
    connection = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    connection.setblocking(False)

    def closed() -> bool:
        try:
            connection.send(b"G")
            return connection.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    eventually("the stranger is turned away", closed, every_s=0.1)


def test_a_crowd_of_strangers_keeps_no_reader_out(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_gateway, "_STRANGERS", 4)
    crowded = ObjectGateway("127.0.0.1", "127.0.0.1")
    port = int(crowded._address.rpartition(":")[2])
    crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    url = crowded.url(store, "a é.csv.gz")
    assert request(url, "op=GETFILESTATUS")[0].status == 200
    for connection in crowd[:30]:
        connection.settimeout(10)
        assert connection.recv(1) == b"", "the first ones have to go"
    for connection in crowd:
        connection.close()


def test_strangers_print_nothing(store: ObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    of_other_tests = set(threading.enumerate())
    url = urlsplit(ObjectGateway("127.0.0.1", "127.0.0.1").url(store, "a é.csv.gz"))
    for sent in (b"GET /web", b"GET http://[::1 HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(70_000)):
        with socket.create_connection((url.hostname, url.port), 10) as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends by a reset
            stranger.sendall(sent)
            if sent.endswith(b"\n"):
                assert b" 403 " in stranger.recv(100)
    assert request(url.geturl(), "op=OPEN&data=true")[1] == CONTENT

    def are_gone() -> bool:
        return not any("process_request" in t.name for t in threading.enumerate() if t not in of_other_tests)

    eventually("all are gone", are_gone)
    assert capfd.readouterr().err == ""


def test_only_signed_tickets_open_an_object(gateway: ObjectGateway, store: ObjectStore) -> None:
    url = gateway.url(store, "a é.csv.gz")
    other = ObjectGateway("127.0.0.1", "127.0.0.1").url(store, "a é.csv.gz")
    path, mine = urlsplit(other).path, urlsplit(url)
    forged = f"{mine.scheme}://{mine.netloc}{path}"
    for address in (forged, url.replace("/data", "x/data"), f"{mine.scheme}://{mine.netloc}/nothing"):
        answer, body = request(address, "op=GETFILESTATUS")
        assert answer.status == 403
        assert CONTENT[:10] not in body
    with pytest.raises(PermissionError):
        Ticket.verify_text("é.é", b"secret")


def test_other_content_under_the_name_is_refused(
    gateway: ObjectGateway, store: ObjectStore, s3_bucket: tuple[str, Callable[[str, bytes], None]]
) -> None:
    known = store.head("a é.csv.gz")
    url = gateway.url(store, "a é.csv.gz", known.size, known.etag)
    assert request(url, "op=OPEN&data=true")[1] == CONTENT
    s3_bucket[1]("in [1]/a é.csv.gz", CONTENT[::-1])
    answer, body = request(url, "op=OPEN&data=true")
    error = json.loads(body)["RemoteException"]
    assert (answer.status, error["exception"]) == (409, "IOException")
    assert error["message"].startswith(f"s3://{BUCKET}/in [1]/a é.csv.gz has changed")
    assert json.loads(request(url, "op=GETFILESTATUS")[1])["FileStatus"]["etag"] == store.head("a é.csv.gz").etag
    assert request(gateway.url(store, "a é.csv.gz", known.size), "op=OPEN&data=true")[1] == CONTENT[::-1]


def test_an_address_expires(gateway: ObjectGateway, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    url = gateway.url(store, "a é.csv.gz")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + VALID_S + 1)
    answer, body = request(url, "op=OPEN&data=true")
    assert answer.status == 403
    assert b"expired" in body
    assert request(gateway.url(store, "a é.csv.gz"), "op=OPEN&data=true")[1] == CONTENT


def test_a_task_checks_and_reads_a_served_file_without_credentials(
    gateway: ObjectGateway, s3_bucket: tuple[str, Callable[[str, bytes], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, put = s3_bucket
    put("tasks/a.json", CONTENT)
    options = {"path": f"s3://{BUCKET}/tasks", **server_options(uri, {})}
    store, name = open_file(f"s3://{BUCKET}/tasks/a.json", options)
    info = store.head(name)
    file = PinnedFile(f"s3://{BUCKET}/tasks/a.json", info.size, info.etag, 0)
    served = msgspec.structs.replace(file, served=gateway.url(store, name, info.size, info.etag))
    nowhere = {"path": file.path, "endpoint": "http://127.0.0.1:9"}  # a task reaches only the driver
    verify_pin(served, nowhere)
    objects, within = open_readable(served, nowhere)
    with RangeFile(objects, within, info.size) as opened:
        opened.seek(95)
        assert opened.read(9) == CONTENT[95:]
        opened.seek(3)
        assert opened.read(4) == CONTENT[3:7]
    put("tasks/a.json", CONTENT[::-1])
    with pytest.raises(ChangedFileError):
        verify_pin(served, nowhere)
    with pytest.raises(ObjectStoreUnavailableError, match=f"s3://{BUCKET}/tasks/a.json has changed"):
        objects.get_ranges(within, [(0, 4)])
    gone = msgspec.structs.replace(file, served=gateway.url(store, "gone"))
    with pytest.raises(ChangedFileError, match="no such file"):
        verify_pin(gone, nowhere)


def test_an_application_has_one_gateway_however_many_threads_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def slow(spark: object, in_s3: bool) -> object:
        made.append(spark)
        threading.Event().wait(0.05)
        return object()

    class Context:
        pass

    monkeypatch.setattr(object_gateway, "_gateway_for", slow)
    spark = SimpleNamespace(sparkContext=Context())
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: object_gateway.gateway_of(spark, "s3"), range(32)))  # type: ignore[arg-type]
    assert (len(found), len(made)) == (1, 1)
    assert object_gateway.gateway_of(SimpleNamespace(sparkContext=Context()), "s3") not in found  # type: ignore


def test_a_missing_object_and_an_unknown_operation_are_errors(gateway: ObjectGateway, store: ObjectStore) -> None:
    answer, body = request(gateway.url(store, "gone"), "op=OPEN")
    assert (answer.status, json.loads(body)["RemoteException"]["exception"]) == (404, "FileNotFoundException")
    answer, body = request(gateway.url(store, "a é.csv.gz"), "op=DELETE")
    assert (answer.status, json.loads(body)["RemoteException"]["exception"]) == (400, "UnsupportedOperationException")


@pytest.mark.parametrize("query", ["offset=abc", "offset=-5", "offset=5&length=-1", "length=1e3"])
def test_a_range_that_is_no_count_of_bytes_is_an_error(query: str, gateway: ObjectGateway, store: ObjectStore) -> None:
    answer, body = request(gateway.url(store, "a é.csv.gz"), f"op=OPEN&data=true&{query}")
    assert (answer.status, json.loads(body)["RemoteException"]["exception"]) == (400, "IOException")


def test_texts_name_the_object(gateway: ObjectGateway, store: ObjectStore) -> None:
    url = gateway.url(store, "a é.csv.gz")
    assert with_object_names(f"cannot read {url}: x") == f"cannot read s3://{BUCKET}/in [1]/a é.csv.gz: x"
    assert with_object_names("cannot read s3://b/data.csv") == "cannot read s3://b/data.csv"
    at = urlsplit(url)
    for other in (f"http://{at.netloc}/webhdfs/v1{at.path}?op=OPEN&offset=0", at.path, f"/webhdfs/v1{at.path}"):
        text = with_object_names(f'java.io.IOException: "{other}" failed')
        assert text == f'java.io.IOException: "s3://{BUCKET}/in [1]/a é.csv.gz" failed'
        assert cause_of(OSError(f"{other}: cut")) == f"s3://{BUCKET}/in [1]/a é.csv.gz: cut"
    plan = f"FileScan csv Location: InMemoryFileIndex [{url}, {url}], x"
    assert re.sub(REDACTED, "…", plan) == "FileScan csv Location: InMemoryFileIndex [….gz, ….gz], x", "as Spark redacts"
    assert CLOSED["spark.redaction.string.regex"] == REDACTED
    others = f"webhdfs://namenode:9870/a.{'b' * 22}/data.csv"
    assert with_object_names(others) == others


def test_only_plain_suffixes_are_kept() -> None:
    names = ("a.csv", "b/c.d/e", "x.tar.gz", ".hidden", "a.b c", "a.")
    assert [suffix_of(name) for name in names] == [".csv", "", ".gz", ".hidden", "", ""]

"""The gateway serves exactly the objects that the driver named. Requests are those of Hadoop's client. No Spark."""

import json
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

from tests.s3_servers import BUCKET
from tussock.jobs.sources.listing import server_options
from tussock.jobs.sources.object_gateway import ObjectGateway
from tussock.jobs.sources.object_ticket import Ticket, suffix_of, with_object_names
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import open_s3

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
        Ticket.opened("é.é", b"secret")


def test_a_missing_object_and_an_unknown_operation_are_errors(gateway: ObjectGateway, store: ObjectStore) -> None:
    answer, body = request(gateway.url(store, "gone"), "op=OPEN")
    assert (answer.status, json.loads(body)["RemoteException"]["exception"]) == (404, "FileNotFoundException")
    answer, body = request(gateway.url(store, "a é.csv.gz"), "op=DELETE")
    assert (answer.status, json.loads(body)["RemoteException"]["exception"]) == (400, "UnsupportedOperationException")


def test_texts_name_the_object(gateway: ObjectGateway, store: ObjectStore) -> None:
    url = gateway.url(store, "a é.csv.gz")
    assert with_object_names(f"cannot read {url}: x") == f"cannot read s3://{BUCKET}/in [1]/a é.csv.gz: x"
    assert with_object_names("cannot read s3://b/data.csv") == "cannot read s3://b/data.csv"


def test_only_plain_suffixes_are_kept() -> None:
    names = ("a.csv", "b/c.d/e", "x.tar.gz", ".hidden", "a.b c", "a.")
    assert [suffix_of(name) for name in names] == [".csv", "", ".gz", ".hidden", "", ""]

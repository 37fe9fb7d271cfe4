"""The failures that only a server can have, for the stores of Google and Azure: lost answers, refusals, forks."""

import http.client
import os
import re
from itertools import count
from urllib.parse import quote, urlsplit

import pytest
from obstore.exceptions import GenericError

from tests.support.cloud_servers import ACCOUNT, ACCOUNT_KEY, BUCKET
from tests.support.lossy_proxy import LossyProxy
from tussock.statestore.errors import InputError
from tussock.statestore.objectstore import clouds
from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadStoreError,
    ObjectStore,
    ObjectStoreUnavailableError,
)
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.objectstore.settled import ATTEMPTS

_prefixes = count()


@pytest.fixture
def prefix() -> str:
    return f"cloud-{next(_prefixes)}"


def _store(endpoint: str, prefix: str) -> ObjectStore:
    return open_object_store(f"gs://{BUCKET}/{prefix}?endpoint={endpoint}")


class _Loser:
    """Loses the answers of the first PUTs."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, method: str, path: str) -> bool:
        self.left -= method == "PUT"
        return method == "PUT" and self.left >= 0


@pytest.mark.parametrize("lost", [1, ATTEMPTS])
@pytest.mark.parametrize("first", [b"mine", b"theirs"])
def test_a_conditional_write_with_lost_answers_knows_whose_object_it_is(
    google_endpoint: str, prefix: str, lost: int, first: bytes
) -> None:
    if first == b"theirs":
        assert _store(google_endpoint, prefix).put_if_absent("x", first)
    with LossyProxy(google_endpoint, lose=_Loser(lost)) as proxy:
        assert _store(proxy.endpoint, prefix).put_if_absent("x", b"mine") == (first == b"mine")
    assert _store(google_endpoint, prefix).get("x") == first


def test_a_server_that_answers_nothing_is_an_error_and_never_a_guess(google_endpoint: str, prefix: str) -> None:
    with (
        LossyProxy(google_endpoint, lose=lambda method, path: True) as proxy,
        pytest.raises(ObjectStoreUnavailableError, match="A commit whose answer was lost is recognised"),
    ):
        _store(proxy.endpoint, prefix).put_if_absent("x", b"mine")
    assert _store(google_endpoint, prefix).put_if_absent("x", b"mine"), "a repeated request recognises its object"


def test_a_refused_connection_and_a_missing_bucket_have_messages_of_their_own(google_endpoint: str) -> None:
    with pytest.raises(ObjectStoreUnavailableError, match="refuses connections"):
        open_object_store("gs://b/p?endpoint=http://127.0.0.1:9").get("x")
    elsewhere = open_object_store(f"gs://no-such-bucket/p?endpoint={google_endpoint}")
    for operation in (lambda: elsewhere.get("x"), lambda: list(elsewhere.list(""))):
        with pytest.raises(BadStoreError, match="the bucket does not exist; create it"):
            operation()


@pytest.mark.parametrize(
    ("address", "variables", "error", "finding"),
    [
        ("az://c/p", {}, BadStoreError, "add ?account=NAME"),
        ("az://c/p", {"AZURE_STORAGE_ACCOUNT_KEY": "no key!", "AZURE_STORAGE_ACCOUNT_NAME": "a"}, AccessDeniedError,
         "AZURE_STORAGE_ACCOUNT_KEY is not a key"),
        ("az://c/p?account=a&endpoint=http://127.0.0.1:9/a", {"AZURE_STORAGE_ACCOUNT_KEY": "QUJD"},
         ObjectStoreUnavailableError, "or its host name is unknown (it contains the account)"),
        ("gs://b/p", {"GOOGLE_APPLICATION_CREDENTIALS": "/no/such/file"}, AccessDeniedError, "does not exist"),
        ("gs://b/p", {"GOOGLE_APPLICATION_CREDENTIALS": __file__}, AccessDeniedError, "is not the key of a service"),
    ],
)  # fmt: skip
def test_each_lack_of_credentials_names_the_variable(
    address: str, variables: dict[str, str], error: type[Exception], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    clouds._client_of.cache_clear()
    try:
        with pytest.raises(error, match=re.escape(finding)) as raised:
            open_object_store(address).get("x")
    finally:
        clouds._client_of.cache_clear()
    assert "no key!" not in str(raised.value)


def test_a_listing_begins_near_its_prefix(google_endpoint: str, prefix: str) -> None:
    store = _store(google_endpoint, prefix)
    for name in [f"runs/{day:03}" for day in range(60)]:
        store.put(name, b"x")
    with LossyProxy(google_endpoint) as proxy:
        assert [o.name for o in _store(proxy.endpoint, prefix).list("runs/058")] == ["runs/058"]
        assert len(proxy.seen) <= 2, "a page has three names"


def _put_as_others_do(endpoint: str, name: str, data: bytes = b"") -> None:
    """Write an object under a name that obstore cannot write."""
    place = urlsplit(endpoint)
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    connection.request("PUT", f"/{BUCKET}/{quote(name, safe='')}", data)
    connection.getresponse().read()
    connection.close()


def test_marks_of_folders_are_no_objects(google_endpoint: str, prefix: str) -> None:
    for name in ("", "day/", "day/1.csv", "none/"):
        _put_as_others_do(google_endpoint, f"{prefix}/{name}", b"x" if name.endswith("csv") else b"")
    store = _store(google_endpoint, prefix)
    store.put("empty", b"")
    assert [o.name for o in store.list("")] == ["day/1.csv", "empty"]


@pytest.mark.parametrize("name", ["a//b.csv", "./b.csv", "a\x01.csv"])
def test_an_object_that_cannot_be_listed_is_named(google_endpoint: str, prefix: str, name: str) -> None:
    _put_as_others_do(google_endpoint, f"{prefix}/{name}")
    shown = re.escape(repr(f"{prefix}/{name}"))
    with pytest.raises(BadStoreError, match=f"the object {shown} has an empty part.*Rename it, or remove it"):
        list(_store(google_endpoint, prefix).list(""))


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("gs:///p", "expected gs://name/prefix"),
        ("az://user:secret@c/p", "must not contain credentials"),
        ("gs://b/p?region=x", "unknown option region; the options are endpoint"),
        ("az://c/p?endpoint=ftp://h", "endpoint must be"),
        ("gs://b/p?endpoint=http://h/path", "endpoint must be"),
    ],
)
def test_a_bad_address_is_refused_with_what_is_expected(uri: str, reason: str) -> None:
    with pytest.raises(BadStoreError, match=reason) as refused:
        open_object_store(uri)
    assert "secret" not in str(refused.value)


def test_a_forked_child_of_a_process_that_used_such_a_store_gets_an_error(google_endpoint: str, prefix: str) -> None:
    store = _store(google_endpoint, prefix)
    store.put("x", b"1")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            store.get("x")
        except InputError as err:
            os.write(writer, str(err).encode())
        finally:
            os._exit(0)
    os.close(writer)
    assert "start them by spawn" in os.read(reader, 4096).decode()
    os.waitpid(child, 0)


@pytest.mark.deep
def test_a_wrong_key_is_an_access_error_and_a_missing_container_a_bad_store(
    azurite_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"az://{BUCKET}/p?account={ACCOUNT}&endpoint={azurite_endpoint}"
    with pytest.raises(BadStoreError, match="the container does not exist; create it"):
        open_object_store(address.replace(BUCKET, "no-such-one")).put("x", b"1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY.swapcase())
    clouds._client_of.cache_clear()
    with pytest.raises(AccessDeniedError):
        open_object_store(address).get("x")
    clouds._client_of.cache_clear()


@pytest.mark.parametrize("offset", [0, -2])
def test_a_server_that_fails_for_a_while_is_no_end_of_an_object(
    google_endpoint: str, prefix: str, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    store = _store(google_endpoint, prefix)
    store.put("x", b"abc")

    def fail(*_: object, **__: object) -> None:
        raise GenericError("Generic GCS error: Server returned error response, status code: 503")

    monkeypatch.setattr(clouds.obstore, "get", fail)
    with pytest.raises(ObjectStoreUnavailableError):
        store.get_ranges("x", [(offset, 2)])

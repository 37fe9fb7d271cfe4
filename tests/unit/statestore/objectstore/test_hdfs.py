"""The failures that only a server can have, for stores in HDFS: lost answers, refusals, writers that die."""

from itertools import count
from typing import Any

import pytest

from tests.support.lossy_proxy import LossyProxy
from tussock.statestore.objectstore import hdfs
from tussock.statestore.objectstore.base import BadStoreError, ObjectStore, ObjectStoreUnavailableError
from tussock.statestore.objectstore.hdfs import HdfsAddress, HdfsObjectStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.objectstore.settled import ATTEMPTS

_prefixes = count()


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(hdfs, "_BACKOFF_S", 0.01)
    return f"hdfs-{next(_prefixes)}"


def _store(endpoint: str, prefix: str) -> ObjectStore:
    return open_object_store(f"hdfs://localhost/{prefix}?endpoint={endpoint}")


class _Loser:
    """Loses the answers of the first renames."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, method: str, path: str) -> bool:
        is_rename = "op=RENAME" in path
        self.left -= is_rename
        return is_rename and self.left >= 0


@pytest.mark.parametrize("lost", [1, ATTEMPTS])
@pytest.mark.parametrize("first", [b"mine", b"theirs"])
def test_a_conditional_write_with_lost_answers_knows_whose_object_it_is(
    hdfs_endpoint: str, prefix: str, lost: int, first: bytes
) -> None:
    if first == b"theirs":
        assert _store(hdfs_endpoint, prefix).put_if_absent("x", first)
    with LossyProxy(hdfs_endpoint, lose=_Loser(lost)) as proxy:
        assert _store(proxy.endpoint, prefix).put_if_absent("x", b"mine") == (first == b"mine")
    assert _store(hdfs_endpoint, prefix).get("x") == first
    assert [one.name for one in _store(hdfs_endpoint, prefix).list("")] == ["x"]


def test_a_write_whose_answer_was_lost_is_repeated(hdfs_endpoint: str, prefix: str) -> None:
    with LossyProxy(hdfs_endpoint, lose=_Loser(1)) as proxy:
        _store(proxy.endpoint, prefix).put("x", b"2")
    assert _store(hdfs_endpoint, prefix).get("x") == b"2"


def test_a_name_has_all_of_its_bytes_or_none(hdfs_endpoint: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer dies between its two requests."""
    store, dying = _store(hdfs_endpoint, prefix), _store(hdfs_endpoint, prefix)
    ask = dying._ask_once  # type: ignore[attr-defined]

    def ask_or_die(method: str, path: str, operation: str, *rest: bytes, **more: str) -> object:
        if operation != "CREATE":
            raise KeyboardInterrupt
        return ask(method, path, operation, *rest, **more)

    monkeypatch.setattr(dying, "_ask_once", ask_or_die)
    with pytest.raises(KeyboardInterrupt):
        dying.put_if_absent("x", b"mine")
    assert [one.name for one in store.list("")] == []
    assert store.put_if_absent("x", b"theirs")


def test_a_refused_connection_and_a_server_without_webhdfs_have_messages_of_their_own(
    google_endpoint: str, prefix: str
) -> None:
    with pytest.raises(ObjectStoreUnavailableError, match="refuses connections"):
        _store("http://127.0.0.1:9", prefix).get("x")
    with pytest.raises(BadStoreError, match="does not serve WebHDFS"):
        _store(google_endpoint, prefix).get("x")


def test_webhdfs_is_on_the_port_of_the_name_node_unless_the_address_has_another_one() -> None:
    assert HdfsAddress("nn:8020", "a").web == "http://nn:9870"
    store = open_object_store("hdfs://nn:8020/a%20b?endpoint=https://gateway:14000")
    assert store.uri == "hdfs://nn:8020/a%20b?endpoint=https://gateway:14000"
    with pytest.raises(BadStoreError, match="unknown option user"):
        open_object_store("hdfs://nn/a?user=x")


@pytest.mark.parametrize("write", ["put", "put_if_absent"])
def test_a_server_that_ignores_the_options_of_a_rename_is_refused(
    hdfs_endpoint: str, prefix: str, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """HttpFS answers with {"boolean": false} if the name exists, and keeps the other file."""
    store = _store(hdfs_endpoint, prefix)
    store.put("x", b"theirs")
    ask = HdfsObjectStore._ask_once

    def without_options(self: HdfsObjectStore, method: str, path: str, operation: str, *rest: Any, **more: Any) -> Any:
        if operation != "RENAME":
            return ask(self, method, path, operation, *rest, **more)
        return hdfs._Answer(200, "", b'{"boolean":false}')

    monkeypatch.setattr(HdfsObjectStore, "_ask_once", without_options)
    with pytest.raises(BadStoreError, match="HttpFS"):
        getattr(store, write)("x", b"mine")
    assert store.get("x") == b"theirs"
    assert [one.name for one in store.list("")] == ["x"]


def test_a_file_in_the_place_of_a_folder_has_no_objects(hdfs_endpoint: str, prefix: str) -> None:
    store = _store(hdfs_endpoint, prefix)
    store.put("x", b"1")
    assert not list(store.list("x/"))
    assert not list(store.list("x/y"))

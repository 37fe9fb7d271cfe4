"""URIs of object stores: the accepted forms, and the errors of refused ones."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.names import QUICK, names
from tussock.statestore.objectstore.base import BadObjectNameError, BadStoreError
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import open_object_store, open_s3
from tussock.statestore.objectstore.s3 import S3ObjectStore


def test_a_path_and_its_file_uri_are_the_same_store(tmp_path: Path) -> None:
    folder = tmp_path / "a ä#?%b"
    store = open_object_store(str(folder))
    store.put("x", b"1")
    assert isinstance(store, LocalObjectStore)
    assert store.uri.startswith("file:///")
    assert open_object_store(store.uri).get("x") == b"1"
    assert (folder / "x").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("uri", "spelled"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a%20b?region=eu-central-1", "s3://bucket/a%20b?region=eu-central-1"),
        ("s3://b/p?endpoint=http://h:9000&path_style=true", "s3://b/p?endpoint=http://h:9000&path_style=true"),
        ("s3://b/p?endpoint=http%3A%2F%2Fh%3A9000", "s3://b/p?endpoint=http://h:9000&path_style=true"),
        ("s3://b/p?path_style=false&endpoint=https://h", "s3://b/p?endpoint=https://h&path_style=false"),
    ],
)
def test_an_s3_uri_has_one_spelling_that_opens_the_same_store(uri: str, spelled: str) -> None:
    store = open_object_store(uri)
    assert store.uri == spelled
    assert open_object_store(store.uri).uri == spelled
    assert pickle.loads(pickle.dumps(store)).uri == spelled


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("", "absolute path"),
        ("relative/path", "absolute path"),
        ("ftp://host/x", "absolute path"),
        ("file://host/x", "no host"),
        ("s3:///x", "s3://bucket/prefix"),
        ("s3://AKIA:hunter2@bucket/x", "must not contain credentials"),
        ("s3://b/x?secret_key=hunter2", "unknown option secret_key"),
        ("s3://b/x?endpoint=http://user:hunter2@host", "without user or password"),
        ("s3://b/x?endpoint=host:9000", "http://host:port"),
        ("s3://b/x?endpoint=http://host:port", "http://host:port"),
        ("s3://b/x?endpoint=http://", "http://host:port"),
        ("s3://b/x?endpoint=http://h&path_style=yes", "expected true or false"),
    ],
)
def test_a_uri_that_is_not_understood_is_named_without_its_secrets(uri: str, named: str) -> None:
    with pytest.raises(BadStoreError, match=named) as refused:
        open_object_store(uri)
    assert "hunter2" not in str(refused.value) + repr(refused.value)


def test_a_prefix_that_climbs_out_is_refused() -> None:
    with pytest.raises(BadObjectNameError):
        open_object_store("s3://bucket/a/../b")


@given(st.lists(names(), min_size=1, max_size=3).map("/".join))
@QUICK
def test_a_store_opens_again_from_its_uri_with_any_name(name: str) -> None:
    """By its name as it is, and by the URI that other processes get."""
    local = open_object_store(f"/data/{name}")
    assert isinstance(local, LocalObjectStore)
    assert str(local.root) == f"/data/{name}"
    again = open_object_store(local.uri)
    assert isinstance(again, LocalObjectStore)
    assert again.root == local.root
    bucket = open_s3("bucket", name, {"endpoint": "http://127.0.0.1:1", "region": "eu-1"})
    assert isinstance(bucket, S3ObjectStore)
    assert bucket.address.prefix == name
    found = open_object_store(bucket.uri)
    assert isinstance(found, S3ObjectStore)
    assert found.address == bucket.address


@pytest.mark.parametrize(
    "uri", ["s3://bucket/a#b", "s3://bucket/a\tb", "file:///a#b", "file:///a?b", "file:///a\nb", "s3://bucket/a?b"]
)
def test_a_uri_that_a_parser_would_cut_is_refused_with_a_remedy(uri: str) -> None:
    """Each of these URIs opened the store of another name."""
    with pytest.raises(BadStoreError, match=r"%23|%09|%3F|%0A"):
        open_object_store(uri)

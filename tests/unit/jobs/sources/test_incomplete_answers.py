"""Servers that omit the ETag, the time or the size of an object. Its bytes are pinned by a digest."""

from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.s3_servers import BUCKET, moto_server, versitygw_binary, versitygw_server
from tussock.jobs.barriers.source_holds import HeldSourcesError, require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectNotFoundError
from tussock.statestore.objectstore.s3 import DIGEST, S3Address, S3ObjectStore

FIELDS = (Field("k", "bigint"),)
COPY = CreateView("copy", "SELECT * FROM s", Scan("s", (0,), FIELDS))


@pytest.fixture(
    params=["ETag", "ETag Last-Modified", "ETag Content-Length", "Content-Length", "Last-Modified", "W/"],
    scope="module",
)
def omitted(request: pytest.FixtureRequest) -> frozenset[str]:
    return frozenset(request.param.split())


@pytest.fixture(scope="module")
def endpoint(omitted: frozenset[str]) -> Iterator[str]:
    with moto_server(omitted=omitted) as found:
        yield found


def put(endpoint: str, name: str, data: bytes) -> None:
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").put_object(Bucket=BUCKET, Key=name, Body=data)


def store(endpoint: str, prefix: str) -> S3ObjectStore:
    return S3ObjectStore(S3Address(BUCKET, prefix, endpoint, path_style=True, region="us-east-1"))


def test_every_object_has_its_size_and_a_tag_of_its_bytes(endpoint: str, omitted: frozenset[str]) -> None:
    for name, data in (("a/x", b"1" * 300_000), ("a/y", b"1" * 300_000), ("a/z", b"2" * 300_000), ("a/empty", b"")):
        put(endpoint, name, data)
    objects = store(endpoint, "a")
    listed = {info.name: info for info in objects.list("")}
    assert {name: info.size for name, info in listed.items()} == {"x": 300_000, "y": 300_000, "z": 300_000, "empty": 0}
    for name, info in listed.items():
        assert objects.head(name) == info
        assert objects.version_of(name)[0] == info
    assert listed["x"].etag.startswith(DIGEST) == (omitted != {"Last-Modified"})
    assert listed["x"].etag == listed["y"].etag != listed["z"].etag
    put(endpoint, "a/x", b"2" * 300_000)
    assert objects.head("x").etag == listed["z"].etag, "other bytes of the same size, in the same second"
    with pytest.raises(ObjectNotFoundError):
        objects.head("nothing")


def test_an_object_is_copied_within_the_server(endpoint: str) -> None:
    put(endpoint, "b/x", b"bytes")
    objects = store(endpoint, "b")
    store(endpoint, "c").copy_from(objects, "x", "copy", objects.head("x").etag)
    assert store(endpoint, "c").get("copy") == b"bytes"


def parquet(*values: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": pa.array(values, pa.int64())}), sink)
    return bytes(sink.getvalue())


def source(endpoint: str, folder: str, **options: str) -> CreateSource:
    path = f"s3://{BUCKET}/{folder}/*.parquet?endpoint={endpoint}&path_style=true&region=us-east-1"
    return CreateSource("s", "parquet", FIELDS, {"path": path, **options})


@pytest.mark.parametrize("retain", ["none", "files"])
def test_a_source_reads_its_files_once_and_reports_other_bytes(endpoint: str, retain: str, tmp_path: Path) -> None:
    folder = f"in-{retain}"
    put(endpoint, f"{folder}/1.parquet", parquet(1, 2))
    meta = new_store(tmp_path / "store")
    append(meta, source(endpoint, folder, retain=retain), COPY)
    follow(meta)
    put(endpoint, f"{folder}/2.parquet", parquet(3))
    follow(meta)
    assert sorted(rows(meta, "copy")) == [(1,), (2,), (3,)]
    assert len(parquet(1, 2)) == len(parquet(7, 8))
    put(endpoint, f"{folder}/1.parquet", parquet(7, 8))
    advance_store(LocalRunner(), meta)
    with pytest.raises(HeldSourcesError, match=r"1\.parquet has changed"):
        require_not_held(meta.read_latest().catalog)


def follow(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)


@pytest.mark.skipif(versitygw_binary() is None, reason="versitygw has not been built")
def test_a_file_that_another_program_wrote_into_the_folder_of_a_gateway(tmp_path: Path) -> None:
    binary = versitygw_binary()
    assert binary is not None
    with versitygw_server(binary, tmp_path / "gateway") as endpoint:
        folder = tmp_path / "gateway" / "data" / BUCKET / "in"
        folder.mkdir()
        (folder / "1.parquet").write_bytes(parquet(1, 2))
        assert store(endpoint, "in").head("1.parquet").etag.startswith(DIGEST)
        meta = new_store(tmp_path / "store")
        append(meta, source(endpoint, "in"), COPY)
        follow(meta)
        follow(meta)
        assert sorted(rows(meta, "copy")) == [(1,), (2,)]

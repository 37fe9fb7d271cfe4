"""Checkpoints of other writers: in several parts, of version 2 with sidecars, as JSON, and unfinished ones."""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.jobs.sinks.shop import Shop, in_order, read_back
from tussock.jobs.delta import delta_mirror
from tussock.jobs.delta.checkpoints import SIDECARS
from tussock.jobs.delta.delta_commits import LOG, read_adds, write_checkpoint
from tussock.jobs.delta.location import Location
from tussock.jobs.settings.process import clock_ms
from tussock.jobs.sinks.publication import tidy_tables
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.objectstore.hdfs import HdfsAddress
from tussock.statestore.objectstore.local import LocalObjectStore

_ID = str(uuid.UUID(int=7))


def _classic(log: Path) -> tuple[Path, pa.Table]:
    (file,) = log.glob("*.checkpoint.parquet")
    return file, pq.read_table(file)


def _of_files(actions: pa.Table) -> pa.Array:
    return pc.or_(pc.is_valid(actions["add"]), pc.is_valid(actions["remove"]))


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in kind])
    return kind


def in_two_parts(log: Path) -> None:
    file, actions = _classic(log)
    for part, rows in enumerate((actions.slice(0, 1), actions.slice(1)), 1):
        pq.write_table(rows, log / f"{file.name[:20]}.checkpoint.{part:010}.{2:010}.parquet")
    file.unlink()


def with_sidecars(log: Path) -> None:
    file, actions = _classic(log)
    of_files = _of_files(actions)
    (log / "_sidecars").mkdir()
    side = log / "_sidecars" / f"{_ID}.parquet"
    pq.write_table(actions.filter(of_files).select(["add", "remove"]), side)
    rest = actions.filter(pc.invert(of_files)).to_pylist()
    sidecar = {"path": side.name, "sizeInBytes": side.stat().st_size, "modificationTime": 0}
    kind = pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()})
    own = {"sidecar": kind, "checkpointMetadata": pa.struct({"version": pa.int64()})}
    kinds = {field.name: _nullable(field.type) for field in actions.schema if field.name != "remove"} | own
    rest += [{"sidecar": sidecar}, {"checkpointMetadata": {"version": int(file.name[:20])}}]
    pq.write_table(
        pa.Table.from_pylist(rest, schema=pa.schema(list(kinds.items()))),
        log / f"{file.name[:20]}.checkpoint.{_ID}.parquet",
    )
    file.unlink()


def as_json(log: Path) -> None:
    file, actions = _classic(log)
    lines = [{"checkpointMetadata": {"version": int(file.name[:20])}}]
    rows = actions.to_pylist(maps_as_pydicts="strict")
    lines += [{kind: action for kind, action in row.items() if action is not None} for row in rows]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (log / f"{file.name[:20]}.checkpoint.{_ID}.json").write_text(text)
    file.unlink()


def with_an_unfinished_one(log: Path) -> None:
    """A writer died after the first of two parts."""
    _, actions = _classic(log)
    newest = max(log.glob("*[0-9].json")).name[:20]
    pq.write_table(actions.filter(pc.invert(_of_files(actions))), log / f"{newest}.checkpoint.{1:010}.{2:010}.parquet")


FORMS = pytest.mark.parametrize("write", [in_two_parts, with_sidecars, as_json, with_an_unfinished_one])


@FORMS
def test_the_files_of_a_version_are_those_that_the_package_reads(tmp_path: Path, write: Callable[[Path], None]) -> None:
    for n in range(4):
        write_deltalake(tmp_path / "t", pa.table({"id": [n], "p": ["a"]}), partition_by=["p"], mode="append")
        if n == 2:
            DeltaTable(tmp_path / "t").create_checkpoint()
    write(tmp_path / "t" / "_delta_log")
    adds = read_adds(LocalObjectStore(tmp_path), "t", 3)
    assert adds.keys() == set(pa.table(DeltaTable(tmp_path / "t").get_add_actions())["path"].to_pylist())
    assert all(add["partitionValues"] == {"p": "a"} for add in adds.values())


@FORMS
def test_upkeep_keeps_the_files_of_a_published_table(tmp_path: Path, write: Callable[[Path], None]) -> None:
    shop = Shop(tmp_path)
    for _ in range(3):
        shop.change()
        shop.commit()
        shop.publish()
    table = f"{shop.folder}/tables/orders"
    tidy_tables(shop.meta, shop.settings, 0)
    DeltaTable(table).create_checkpoint()
    write(Path(table, "_delta_log"))
    for file in Path(table).rglob("*.*"):
        os.utime(file, (0, 0))
    tidy_tables(shop.meta, shop.settings, clock_ms())  # removes unneeded files that are so old
    assert read_back(table) == in_order(shop.model()["orders"])
    shop.change()
    shop.commit()
    shop.publish()
    assert read_back(table) == in_order(shop.model()["orders"])


class _Cleaned(LocalObjectStore):
    """Lists an entry of the log that is gone when it is read."""

    gone = f"{LOG}/{SIDECARS}/old.parquet"

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        yield from super().list(prefix, start_after)
        folder = prefix.partition(LOG)[0]
        yield ObjectInfo(folder + self.gone, 1, "", 1)


def test_an_entry_that_is_removed_after_the_listing_stops_neither_a_checkpoint_nor_a_copy_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        write_deltalake(tmp_path / "t", pa.table({"id": [n]}), mode="append")
    address = HdfsAddress("server")
    write_checkpoint(Location("hdfs://server", address, _Cleaned(tmp_path)), "t", 2)
    assert (tmp_path / "t" / LOG / f"{2:020}.checkpoint.parquet").exists()
    monkeypatch.setattr(delta_mirror, "open_bucket", lambda *_: _Cleaned(tmp_path / "t"))
    copy = delta_mirror.mirror_table("hdfs://server", "t", {}, rows=True)
    assert DeltaTable(copy.name).to_pyarrow_table().num_rows == 3

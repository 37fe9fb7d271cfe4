"""Iceberg columns of each type, as sources: views equal pyiceberg's rows at each snapshot."""

import datetime as dt
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as of
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, NestedField

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.tables import NAME, catalog_in, commit_deletes, commit_file, options_of
from tests.unit.jobs.sources.test_iceberg import advance, counted
from tussock.jobs.logical.nodes import Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.reading.reader import scan_relation
from tussock.jobs.sources.describe import describe_source
from tussock.statestore.meta.store import MetaStore

ID = uuid.UUID("6c84fb90-12c4-11e1-840d-7b25c5ee775a")
NOON = dt.datetime(2024, 3, 31, 12, 0, 0, 7)
CASES: Mapping[str, tuple[IcebergType, list[Any]]] = {
    "time": (of.TimeType(), [dt.time(1, 2, 3, 4), None, dt.time(23, 59, 59, 999999)]),
    "uuid": (of.UUIDType(), [ID, None, uuid.UUID(int=0)]),
    "fixed": (of.FixedType(3), [b"abc", None, b"\0\xff\0"]),
    "binary": (of.BinaryType(), [b"", None, b"\xff"]),
    "boolean": (of.BooleanType(), [True, None, False]),
    "decimal": (of.DecimalType(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), None, Decimal("0E-10")]),
    "date": (of.DateType(), [dt.date(1582, 10, 14), None, dt.date(2024, 2, 29)]),
    "timestamp": (of.TimestampType(), [NOON, None, dt.datetime(1, 1, 1)]),
    "timestamptz": (
        of.TimestamptzType(),
        [NOON.replace(tzinfo=dt.UTC), None, dt.datetime(1969, 12, 31, tzinfo=dt.UTC)],
    ),
    "uuids": (of.ListType(9, of.UUIDType(), element_required=False), [[ID, None], None, []]),
    "struct": (
        of.StructType(NestedField(7, "at", of.TimeType()), NestedField(8, "id", of.UUIDType())),
        [{"at": dt.time(1), "id": ID}, None, {"at": None, "id": None}],
    ),
}


def in_view(value: Any) -> Any:
    """A value as a view has it: UUIDs are texts, as in Spark's Iceberg. Instants are in one zone."""
    if isinstance(value, list):
        return [in_view(one) for one in value]
    if isinstance(value, dict):
        return {name: in_view(one) for name, one in value.items()}
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return str(value) if isinstance(value, uuid.UUID) else value


def rows_in(meta: MetaStore) -> list[tuple[Any, ...]]:
    return [(i, in_view(value)) for i, value in rows(meta, "copy")]


def in_file(value: Any) -> Any:
    """A value as pyarrow writes it."""
    if isinstance(value, list):
        return [in_file(one) for one in value]
    if isinstance(value, dict):
        return {name: in_file(one) for name, one in value.items()}
    return value.bytes if isinstance(value, uuid.UUID) else value


def storage_of(kind: pa.DataType) -> pa.DataType:
    """The type of a column without extension types, in which pyarrow makes no nested values."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(storage_of(field.type)) for field in kind])
    return pa.list_(storage_of(kind.value_type)) if pa.types.is_large_list(kind) else kind


def batch_of(schema: Schema, ids: list[int], values: list[Any]) -> pa.Table:
    whole = schema.as_arrow()
    kind = storage_of(whole.field("x").type)
    return pa.table([pa.array(ids, pa.int64()), pa.array(list(map(in_file, values)), kind)], names=["id", "x"]).cast(
        whole
    )


def copied_values(meta: MetaStore) -> pa.ChunkedArray:
    version = meta.read_latest()
    (relation,) = [r for r in version.catalog.live_relations() if r.name == "copy"]
    return pa.concat_tables(scan_relation(meta.objects, version, relation, version.epoch)).column("x")


def store_with_copy(folder: Path) -> MetaStore:
    """A store that has followed the table once, without declared columns."""
    source = describe_source(
        CreateSource("s", "iceberg", (), options_of(folder / "lake")), lambda: pytest.fail("no Spark is needed")
    )
    meta = new_store(folder / "store")
    append(meta, source, CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1), source.fields)))
    advance(meta)
    return meta


@pytest.mark.parametrize("name", CASES)
def test_a_column_of_each_type_is_followed(tmp_path: Path, name: str) -> None:
    kind, values = CASES[name]
    schema = Schema(NestedField(1, "id", of.LongType()), NestedField(2, "x", kind))
    table = catalog_in(tmp_path / "lake").create_table(NAME, schema)
    table.append(batch_of(table.schema(), [0, 1, 2], values))
    meta = store_with_copy(tmp_path)
    expected = [(i, in_view(value)) for i, value in enumerate(values)]
    assert counted(rows_in(meta)) == counted(expected)
    table.append(batch_of(table.schema(), [3], values[:1]))
    table.delete("id = 1")
    advance(meta)
    assert counted(rows_in(meta)) == counted([expected[0], expected[2], (3, expected[0][1])])


@pytest.mark.parametrize("name", ["time", "uuid", "fixed", "decimal", "date", "timestamptz"])
def test_equality_deletes_compare_a_column_of_each_type(tmp_path: Path, name: str) -> None:
    kind, values = CASES[name]
    schema = Schema(NestedField(1, "id", of.LongType()), NestedField(2, "x", kind))
    table = catalog_in(tmp_path / "lake").create_table(NAME, schema)
    table.append(batch_of(table.schema(), [0, 1, 2], values))
    meta = store_with_copy(tmp_path)
    commit_deletes(table, equal=batch_of(table.schema(), [0, 1], values[:2]).select(["x"]))
    advance(meta)
    assert counted(rows_in(meta)) == counted([(2, in_view(values[2]))])


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (of.StringType(), ""),
        (of.StringType(), "a b"),
        (of.BinaryType(), b"\xff"),
        (of.FixedType(2), b"ab"),
        (of.TimeType(), dt.time(1, 2, 3, 4)),
        (of.UUIDType(), ID),
        (of.BooleanType(), False),
        (of.DecimalType(9, 2), Decimal("-1.20")),
        (of.TimestampType(), NOON),
        (of.TimestamptzType(), NOON.replace(tzinfo=dt.UTC)),
    ],
    ids=str,
)
def test_files_without_a_column_have_its_default(tmp_path: Path, kind: IcebergType, default: Any) -> None:
    schema = Schema(NestedField(1, "id", of.LongType()))
    table = catalog_in(tmp_path / "lake").create_table(NAME, schema, properties={"format-version": "3"})
    with table.update_schema() as update:
        update.add_column("x", kind, default_value=default)
    path = f"{table.location().removeprefix('file://')}/data/old.parquet"
    Path(path).parent.mkdir()
    old = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": [7]}, schema=old), path)
    commit_file(table, f"file://{path}")
    assert counted(rows_in(store_with_copy(tmp_path))) == counted([(7, in_view(default))])


@pytest.mark.parametrize(
    ("kind", "partition"),
    [
        (of.StringType(), "at +00:00"),
        (of.DateType(), 3_000_000),  # in the year 10183
        (of.DateType(), -800_000),  # before the year 1
        (of.TimestampType(), 253_402_300_800_000_000),  # in the year 10000
        (of.DecimalType(9, 2), Decimal("-0.10")),
        (of.FloatType(), 0.1),
    ],
)
@pytest.mark.parametrize("adopted", [False, True])
def test_a_partition_value_stays_as_it_is_also_if_python_has_no_such_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: IcebergType, partition: Any, adopted: bool
) -> None:
    """A file that a table has adopted lacks the columns of its partition."""
    schema = Schema(NestedField(1, "id", of.LongType()), NestedField(2, "x", kind))
    table = catalog_in(tmp_path / "lake").create_table(NAME, schema)
    with table.update_spec() as update:
        update.add_identity("x")
    in_files = schema_to_pyarrow(table.schema(), include_field_ids=True)
    column = pa.array([partition])
    if pa.types.is_temporal(in_files.field("x").type):
        column = column.cast(pa.int32() if isinstance(kind, of.DateType) else pa.int64())
    rows_of_file = pa.table([pa.array([1]), column.cast(in_files.field("x").type)], schema=in_files)
    path = tmp_path / "lake" / "warehouse" / "db" / "t" / "data" / "x.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_of_file.drop_columns(["x"] if adopted else []), path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = table.spec().spec_id
    with (
        monkeypatch.context() as patch,
        table.transaction() as transaction,
        transaction.update_snapshot().fast_append() as append_file,
    ):
        patch.setattr(IdentityTransform, "to_human_string", lambda *_, **__: "a")  # in pyiceberg's summary
        append_file.append_data_file(file)
    copied = copied_values(store_with_copy(tmp_path))
    assert copied.equals(rows_of_file["x"].cast(copied.type))

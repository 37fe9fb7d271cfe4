"""Iceberg tables of every type, of odd names, and of every partition: rows change, and pyiceberg reads them equal."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.support.jobs.driver.embedded import append
from tests.support.jobs.iceberg.tables import replace_files
from tests.support.jobs.sinks.shop import in_order
from tussock.jobs.logical.nodes import Call, Column, Field, Literal
from tussock.jobs.logical.statements import CreateTable, Delete, Drop
from tussock.jobs.session import Session
from tussock.jobs.settings.publishing import IcebergSettings
from tussock.jobs.sinks.check import check_tables
from tussock.jobs.sinks.publication import TablesNotPublishedError, publish_tables, tidy_tables
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.types import arrow_type

UTC = dt.UTC
#: Values of each type, with the ones at its borders.
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-32768, 7],
    "int": [-(2**31), 5],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [math.nan, -0.0],
    "double": [math.nan, math.inf, -0.0],
    "decimal(38,18)": [Decimal("-99999999999999999999.999999999999999999"), Decimal("0.000000000000000001")],
    "decimal(5,0)": [Decimal(-12), Decimal(99999)],
    "string": ["", "it's a/b=c %20 ü\u2028"],
    "binary": [b"", b"\x00\xff/"],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2024, 2, 29, tzinfo=UTC)],
    "timestamp_ntz": [dt.datetime(1900, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 2, 29)],
    "array<decimal(38,2)>": [[], [Decimal("1.25"), None]],
    "map<string,struct<a:int,b:binary>>": [[], [("k", {"a": None, "b": b"x"})]],
    "struct<`x y`:struct<z:array<date>>,n:double>": [{"x y": {"z": [dt.date(2024, 1, 1)]}, "n": math.nan}],
}
NAMES = (
    "a b",
    "Ä",
    "select",
    "x.y",
    "1st",
    "a-b",
    "with`tick",
    'with"quote',
    "per%cent",
    "\u6771",
    "_pos",
    "file_path",
)
FIELDS = (Field("id", "bigint"), *(Field(f"{NAMES[i % len(NAMES)]} {i}", kind) for i, kind in enumerate(VALUES)))
PRIMITIVE = [field for field in FIELDS[1:] if "<" not in field.type]


class Lake:
    """A store with the table `t` of all types, published in a format; and a model of its rows."""

    def __init__(
        self, folder: Path, version: int, partition: str = "", key: tuple[int, ...] = (0,), **more: Any
    ) -> None:
        self.folder, self.key = folder, key
        layout = {"t": partition} if partition else {}
        self.settings = IcebergSettings(
            str(folder / "tables"), ("t",), format_version=version, partition_by=layout, **more
        )
        MetaStore.init(open_object_store(f"{folder}/store"), units=2)
        self._writer = MetaStore(open_object_store(f"{folder}/store"), "statements", lambda: 1_700_000_000_000)
        append(self._writer, CreateTable("t", FIELDS, (0,)))
        self.session = Session(f"{folder}/store", create=False, runner="local")
        self.rows: dict[Any, tuple[Any, ...]] = {}

    def create_again(self, fields: tuple[Field, ...]) -> None:
        """Replace the relation by one with the columns `fields`, which has no rows."""
        append(self._writer, Drop(RelationKind.TABLE, "t"))
        append(self._writer, CreateTable("t", fields, (0,)))

    def write(self, ids: list[int], turn: int) -> None:
        """Insert rows, or replace those with the same key."""
        rows = [(i, *(None if (i + turn) % 4 == 0 else v[(i + turn) % len(v)] for v in VALUES.values())) for i in ids]
        columns = [pa.array([row[place] for row in rows], arrow_type(field.type)) for place, field in enumerate(FIELDS)]
        self.session.insert("t", pa.table(columns, [field.name for field in FIELDS]))
        self.rows |= {row[0]: row for row in rows}

    def delete(self, number: int) -> None:
        append(self._writer, Delete("t", Call("EqualTo", "boolean", (Column(0, "bigint"), Literal(number, "bigint")))))
        self.rows.pop(number, None)

    def publish(self) -> Table:
        self.session.flush()
        publish_tables(self.session.meta, self.settings)
        properties = {"uri": f"sqlite:///{self.folder}/tables/catalog.db", "warehouse": f"file://{self.folder}/tables"}
        return load_catalog("tussock", type="sql", **properties).load_table("tussock.t")

    def check(self, table: Table) -> None:
        """Compare flat columns as pyiceberg reads them: 0.12 reads a list that is NULL as an empty one."""
        names = [field.name for field in (FIELDS[0], *PRIMITIVE)]
        places = [place for place, field in enumerate(FIELDS) if field.name in names]
        read = table.scan().to_arrow().select(names)
        assert in_order(list(zip(*(c.to_pylist() for c in read.columns), strict=True))) == in_order(
            [tuple(row[place] for place in places) for row in self.rows.values()]
        )


def run_epochs(lake: Lake) -> Table:
    lake.write(list(range(24)), 0)
    lake.check(lake.publish())
    for turn in range(1, 4):
        lake.write([turn, 8 + turn, 16 + turn, 30 + turn], turn)
        lake.delete(turn + 3)
        table = lake.publish()
        lake.check(table)
    assert sum(f["content"] == 1 for f in table.inspect.delete_files().to_pylist()), "rows were marked, not rewritten"
    return table


@pytest.mark.parametrize("version", [2, 3])
def test_tables_of_every_type_and_of_odd_names_follow_their_changes(tmp_path: Path, version: int) -> None:
    lake = Lake(tmp_path, version)
    run_epochs(lake)
    later = (lake.session.meta.read_latest().published >> 16) + 30 * 86_400_000
    tidy_tables(lake.session.meta, lake.settings, later)
    lake.write([1, 2, 40], 5)
    lake.check(lake.publish())


@pytest.mark.parametrize("version", [2, 3])
def test_names_that_java_changes_in_its_files_are_followed(tmp_path: Path, version: int) -> None:
    def require_equal() -> None:
        assert [check.objection for check in check_tables(lake.session.meta, lake.settings)] == [None]

    lake = Lake(tmp_path, version)
    lake.write([1, 3, 5, 7], 0)  # no row whose list is NULL, which pyiceberg would write as an empty one
    replace_files(lake.publish())
    lake.write([1, 2, 12], 1)
    lake.delete(3)
    lake.check(lake.publish())
    require_equal()
    tidy_tables(lake.session.meta, lake.settings, (lake.session.meta.read_latest().published >> 16) + 30 * 86_400_000)
    lake.write([4, 13], 2)
    lake.check(lake.publish())
    require_equal()


def test_a_column_that_another_program_dropped_and_added_again_is_written_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path, 2)
    lake.write([1, 2, 3], 1)
    table = lake.publish()
    column = table.schema().fields[-1]
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column.name)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column(column.name, column.field_type)
    lake.write([2], 2)
    lake.publish()
    assert [check.objection for check in check_tables(lake.session.meta, lake.settings)] == [None]


NESTED = "array<struct<x:int>>"


@pytest.mark.parametrize(
    ("fields", "partition", "says"),
    [
        ((FIELDS[0], Field("id_bucket_4", "string")), "bucket(4, id)", None),
        ((FIELDS[0], Field("id.x", "string")), "`id.x`", None),
        ((FIELDS[0], Field("s", NESTED), Field("s.element.x", "int")), "", "'s.element.x' has a name with a dot"),
        ((FIELDS[0], Field("s.element.x", "int"), Field("s", NESTED)), "", "'s' has a name with a dot"),
    ],
)
def test_columns_with_names_of_partitions_and_of_nested_fields(
    tmp_path: Path, fields: tuple[Field, ...], partition: str, says: str | None
) -> None:
    lake = Lake(tmp_path, 2, partition)
    lake.create_again(fields)
    for ids in ([1, 2], [2, 3]):
        columns = [pa.array(ids), *(pa.nulls(2, arrow_type(field.type)) for field in fields[1:])]
        lake.session.insert("t", pa.table(columns, [field.name for field in fields]))
        if says is not None:
            with pytest.raises(TablesNotPublishedError, match=says):
                lake.publish()
        else:
            assert sorted(lake.publish().scan().to_arrow()["id"].to_pylist()) == list(range(1, ids[-1] + 1))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [field.type for field in PRIMITIVE])
def test_a_table_with_an_identity_partition_of_each_type_follows_its_changes(tmp_path: Path, kind: str) -> None:
    name = next(field.name for field in PRIMITIVE if field.type == kind).replace("`", "``")
    run_epochs(Lake(tmp_path, 2 + len(kind) % 2, f"`{name}`"))


TRANSFORMS = [
    *((f"{unit}s", kind) for unit in ("year", "month", "day") for kind in ("date", "timestamp", "timestamp_ntz")),
    *(("hours", kind) for kind in ("timestamp", "timestamp_ntz")),
    *(("bucket(3,", kind) for kind in ("int", "bigint", "decimal(5,0)", "string", "binary", "date", "timestamp")),
    *(("truncate(3,", kind) for kind in ("int", "bigint", "decimal(5,0)", "string", "binary")),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("transform", "kind"), TRANSFORMS, ids=lambda part: str(part))
def test_a_table_with_each_transform_follows_its_changes(tmp_path: Path, transform: str, kind: str) -> None:
    name = next(field.name for field in PRIMITIVE if field.type == kind).replace("`", "``")
    text = f"{transform} `{name}`)" if "," in transform else f"{transform}(`{name}`)"
    run_epochs(Lake(tmp_path, 2 + len(kind) % 2, text))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [field.type for field in PRIMITIVE])
def test_the_rows_of_each_file_have_the_order_of_sort_by(tmp_path: Path, kind: str) -> None:
    name = next(field.name for field in PRIMITIVE if field.type == kind)
    text = "`" + name.replace("`", "``") + "`"
    lake = Lake(tmp_path, 2, sort_by={"t": f"{text} DESC NULLS FIRST, id"})
    table = run_epochs(lake)
    order = table.sort_order().order_id
    for file in table.inspect.data_files().to_pylist():
        assert file["sort_order_id"] == order
        rows = pa.parquet.read_table(file["file_path"].removeprefix("file://")).select([name, "id"]).to_pylist()
        values = [row[name] for row in rows]
        nulls = [value is None for value in values]
        assert nulls == sorted(nulls, reverse=True), "NULL is first"
        present = [(isinstance(v, float) and math.isnan(v), 0 if v != v else v) for v in values if v is not None]
        assert present == sorted(present, reverse=True)
    lake.settings = msgspec.structs.replace(lake.settings, sort_by={"t": "id"})
    lake.write([50], 1)
    assert [str(f.direction) for f in lake.publish().sort_order().fields] == ["ASC"]


@pytest.mark.parametrize("version", [2, 3])
def test_the_column_of_a_partition_and_of_an_order_may_disappear(tmp_path: Path, version: int) -> None:
    lake = Lake(tmp_path, version, "`Ä 13`, bucket(2, id)", sort_by={"t": "`Ä 13`"})
    lake.write(list(range(9)), 0)
    lake.publish()
    lake.create_again((FIELDS[0], Field("other", "string")))
    lake.settings = msgspec.structs.replace(lake.settings, partition_by={"t": "other"}, sort_by={})
    for turn in range(2):
        rows = pa.table([pa.array([1, 2, 3]), pa.array([f"a{turn}", None, "c"])], ["id", "other"])
        lake.session.insert("t", rows)
        table = lake.publish()
        assert in_order([tuple(row.values()) for row in table.scan().to_arrow().to_pylist()]) == in_order(
            [(1, f"a{turn}"), (2, None), (3, "c")]
        )


@pytest.mark.parametrize("version", [2, 3])
def test_the_columns_of_an_ordered_table_may_change(tmp_path: Path, version: int) -> None:
    """A name with a dot is added, and the order before and after the change name columns."""
    lake = Lake(tmp_path, version, sort_by={"t": "`Ä 13`, id"})
    lake.write(list(range(9)), 0)
    lake.publish()
    lake.create_again((FIELDS[0], Field("a.b", "string")))
    lake.settings = msgspec.structs.replace(lake.settings, sort_by={"t": "`a.b` desc"})
    lake.session.insert("t", pa.table([pa.array([1, 2]), pa.array(["x", "y"])], ["id", "a.b"]))
    table = lake.publish()
    assert [tuple(row.values()) for row in table.scan().to_arrow().to_pylist()] == [(2, "y"), (1, "x")]
    assert [str(field.direction) for field in table.sort_order().fields] == ["DESC"]


def test_a_column_of_another_type_with_the_name_of_an_earlier_partition_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path, 2, "`Ä 13`")
    lake.write(list(range(9)), 0)
    lake.publish()
    for name, kind, is_refused in (("Ä 13", "array<int>", True), ("other", "array<int>", False)):
        lake.create_again((FIELDS[0], Field(name, kind)))
        lake.settings = msgspec.structs.replace(lake.settings, partition_by={})
        lake.session.insert("t", pa.table([pa.array([1, 2]), pa.array([[1], None])], ["id", name]))
        if is_refused:
            with pytest.raises(TablesNotPublishedError, match="column 'Ä 13' has the name of a partition of the table"):
                lake.publish()
        else:
            assert lake.publish().scan().to_arrow().num_rows == 2


def test_a_table_that_the_catalog_has_elsewhere_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("tables").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/tables/catalog.db", "warehouse": f"file://{tmp_path}"}
    lake = Lake(tmp_path, 2, catalog=catalog)
    lake.write([1], 0)
    lake.publish()
    lake.settings = msgspec.structs.replace(lake.settings, to=f"{tmp_path}/moved")
    lake.write([2], 0)
    with pytest.raises(TablesNotPublishedError, match=r"is not the folder of the table tussock.t, which is file://"):
        lake.publish()

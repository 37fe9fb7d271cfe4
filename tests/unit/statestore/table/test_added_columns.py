"""Tables that get columns after they have rows: every way to read them, against a dict, before and after compaction."""

import random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.unit.statestore.hummock.test_compaction import merged, version_of
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.row_shape import value_bytes, value_of
from tussock.statestore.hummock.shared_buffer import SharedBuffer
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, KeyColumn, Relation, RelationKind, TableSchema
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.table.storage_table import StorageTable

V = 4
KEPT, ROW_ID = ColumnSpec("c0", "int"), ColumnSpec("c1", "bigint")
SEVEN = ColumnSpec("c2", "double", value_bytes(pa.array([7.5])))
NOTHING = ColumnSpec("c3", "array<string>", value_bytes(pa.array([None], pa.list_(pa.string()))))
#: The shapes of a table without a key: the row id stays last, so added columns go before it.
SHAPES = [
    TableSchema(5, "rows", columns, (KeyColumn(len(columns) - 1),), (len(columns) - 1,))
    for columns in ((KEPT, ROW_ID), (KEPT, SEVEN, ROW_ID), (KEPT, SEVEN, NOTHING, ROW_ID))
]
HELD: dict[str, Any] = {"c2": 7.5, "c3": None}
Rows = dict[int, dict[str, Any]]


def names(schema: TableSchema) -> list[str]:
    return [c.name for c in schema.columns]


def shown(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def in_shape(rows: Rows, schema: TableSchema) -> Rows:
    return {key: {name: row.get(name, HELD.get(name)) for name in names(schema)} for key, row in rows.items()}


class Growing:
    """A table over several epochs; `rows` holds its expected rows after each, computed row by row."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.objects = MemoryObjectStore()
        self.cache = BlockCache()
        self.version: HummockVersion = msgspec.structs.replace(version_of((5,)), epoch=0)
        self.rows: dict[int, Rows] = {0: {}}

    def store(self, buffer: SharedBuffer | None = None) -> HummockStore:
        return HummockStore(self.objects, self.version, self.cache, buffer=buffer, pinned=range(20))

    def catalog_says(self, schema: TableSchema) -> None:
        """Add the columns as the commit of their epoch does."""
        relation = Relation(5, "t", RelationKind.TABLE, (), msgspec.Raw(b"{}"), (schema,))
        self.version = msgspec.structs.replace(self.version, catalog=Catalog((relation,), 9, 9))

    def random_row(self, key: int, schema: TableSchema) -> dict[str, Any]:
        some = {
            "c0": self.rng.randrange(9),
            "c1": key,
            "c2": self.rng.random(),
            "c3": self.rng.choice([["x", None], [], None]),
        }
        return {name: some[name] for name in names(schema)}

    def run(self, schema: TableSchema, commit: bool = True) -> Any:
        """Run one epoch of puts and deletes; return its sealed batch."""
        epoch = self.version.epoch + 1
        state = StateTable(schema, self.store(), self.version.epoch, V)
        after = dict(self.rows[epoch - 1])
        for key in self.rng.sample(range(60), 12):
            if key in after and self.rng.random() < 0.4:
                state.delete_rows(pa.Table.from_pylist([in_shape(after, schema).pop(key)], state.layout.rows))
                del after[key]
            else:
                after[key] = self.random_row(key, schema)
                state.insert_rows(pa.Table.from_pylist([after[key]], state.layout.rows))
        self.rows[epoch] = after
        assert read_all(StorageTable(schema, self.store(), epoch - 1, V)) == in_shape(self.rows[epoch - 1], schema)
        merged_in_memory = {row["c1"]: row for part in state.scan(range(V)) for row in shown(part)}
        assert merged_in_memory == in_shape(after, schema)
        sealed = state.seal_changes()
        if commit and sealed is not None:
            self.version = version_after(
                self.version, tuple(batch_ingest(self.objects, [sealed], epoch, f"data/{epoch:016x}")), epoch
            )
        return sealed


def version_after(version: HummockVersion, ssts: Any, epoch: int) -> HummockVersion:
    first, *deeper = version.levels or ((),)
    return msgspec.structs.replace(version, id=version.id + 1, epoch=epoch, levels=((*ssts, *first), *deeper))


def read_all(table: StorageTable) -> Rows:
    return {row["c1"]: row for part in table.scan() for row in shown(part)}


def require_equal(table: StorageTable, expected: Rows) -> None:
    """Every way to read a table gives these rows."""
    schema = table.layout.schema
    assert read_all(table) == expected
    keys = pa.table({"c1": pa.array(range(60), pa.int64())})
    found = table.get_rows(keys)
    assert found.found.to_pylist() == [k in expected for k in range(60)]
    assert [row for row, there in zip(shown(found.rows), found.found.to_pylist(), strict=True) if there] == [
        expected[k] for k in range(60) if k in expected
    ]
    assert shown(table.scan_prefix(keys).rows) == [expected[k] for k in range(60) if k in expected]
    for place, name in enumerate(names(schema)):
        one = [row[name] for part in table.scan(columns=(place,)) for row in shown(part)]
        assert sorted(map(repr, one)) == sorted(repr(row[name]) for row in expected.values())


@pytest.mark.parametrize("seed", range(5))
def test_older_rows_have_the_value_that_was_declared_when_a_column_was_added(seed: int) -> None:
    life = Growing(seed)
    for schema in SHAPES:
        life.catalog_says(schema)
        for _ in range(3):
            life.run(schema)
        epoch = life.version.epoch
        for at in range(epoch + 1):
            require_equal(StorageTable(schema, life.store(), at, V), in_shape(life.rows[at], schema))
        levels = life.version.levels
        inputs = [sst for level in levels for sst in level]
        compacted, _ = merged(life.objects, life.version, inputs, 1, range(epoch + 1))
        life.version = compacted
        for at in range(epoch + 1):
            require_equal(StorageTable(schema, life.store(), at, V), in_shape(life.rows[at], schema))
    (section,) = [s for s in life.version.levels[1][0].sections if s.table_id == 5]
    assert section.rows >= len(life.rows[epoch])
    (reader,) = life.store().source.stored.open_ssts(life.version.levels[1][:1])
    assert reader.open_section(5).row_schema.names == names(SHAPES[-1]), (
        "compaction writes the columns that the table has now"
    )


def test_net_changes_span_the_epoch_that_added_a_column() -> None:
    life = Growing(11)
    for schema in SHAPES:
        life.run(schema)
        life.run(schema)
    table = StorageTable(SHAPES[-1], life.store(), life.version.epoch, V)
    for since in range(7):
        rows = dict(in_shape(life.rows[since], SHAPES[-1]))
        for part in table.read_changes(since):
            for weight, row in zip(part.weights.to_pylist(), shown(part.rows), strict=True):
                if weight < 0:
                    assert rows.pop(row["c1"]) == row
                else:
                    assert row["c1"] not in rows
                    rows[row["c1"]] = row
        assert rows == in_shape(life.rows[6], SHAPES[-1])


def test_an_epoch_in_flight_without_a_new_column_is_read_with_it() -> None:
    life = Growing(3)
    life.run(SHAPES[0])
    sealed = life.run(SHAPES[0], commit=False)
    buffer = SharedBuffer({5: [(2, lambda: sealed)]})
    life.version = msgspec.structs.replace(life.version, epoch=2)
    require_equal(StorageTable(SHAPES[2], life.store(buffer), 2, V), in_shape(life.rows[2], SHAPES[2]))


def test_a_value_that_rows_hold_is_stored_as_one_row() -> None:
    for value in (pa.array([None], pa.int32()), pa.array([[1, None]]), pa.array(["x"])):
        assert value_of(value_bytes(value)).equals(value)


def test_the_same_rows_are_read_with_the_value_of_the_present_column() -> None:
    """An epoch that adds a column can be given up, and another one adds a column with another value."""
    life = Growing(1)
    for epoch in range(1, 7):  # so that small runs are merged in memory
        life.run(SHAPES[0])
        require_equal(StorageTable(SHAPES[0], store := life.store(), epoch, V), life.rows[epoch])
    for value in (pa.array([7.5]), pa.array([9.5]), pa.array(["x"])):
        kind = "string" if pa.types.is_string(value.type) else "double"
        columns = (KEPT, ColumnSpec("c2", kind, value_bytes(value)), ROW_ID)
        schema = TableSchema(5, "rows", columns, (KeyColumn(2),), (2,))
        expected = {key: row | {"c2": value[0].as_py()} for key, row in life.rows[epoch].items()}
        require_equal(StorageTable(schema, store, epoch, V), expected)
        require_equal(StorageTable(schema, life.store(), epoch, V), expected)

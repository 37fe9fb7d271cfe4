"""StateTable and StorageTable: the reference document's worked examples, edges, and a random run against a dict."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.table.rows import delete_row, get_row, insert_row, update_row
from tests.support.statestore.table.stores import BucketStore, DictStore
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table import mem_table, state_table
from tussock.statestore.table.mem_table import MemRun
from tussock.statestore.table.schema import TableSchemaError, WrongColumnsError, row_schema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.table.storage_table import StorageTable, vnode_ranges
from tussock.statestore.vnode import vnodes_of

V = 16
NUMBERS = TableSchema(3, "numbers", tuple(ColumnSpec(f"c{i}", "bigint") for i in range(3)), (KeyColumn(0),), (0,))
SINGLE = TableSchema(4, "single", NUMBERS.columns, (KeyColumn(0),), ())
ORDERS = TableSchema(
    5,
    "orders",
    (ColumnSpec("key", "string"), ColumnSpec("id", "bigint"), ColumnSpec("op", "double"), ColumnSpec("note", "string")),
    (KeyColumn(0, nulls_last=True), KeyColumn(1, descending=True)),
    (0,),
)


Store = BucketStore | DictStore


@pytest.fixture(params=["hummock", "dict"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return BucketStore(LocalObjectStore(tmp_path)) if request.param == "hummock" else DictStore()


def open_table(schema: TableSchema, store: Store, epoch: int) -> StateTable:
    return StateTable(schema, store.reader, epoch, V)


def rows_of(schema: TableSchema, rows: list[tuple[Any, ...]]) -> pa.Table:
    names = row_schema(schema)
    return pa.table([pa.array([row[i] for row in rows], field.type) for i, field in enumerate(names)], schema=names)


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_get_after_commit_and_insert_as_in_the_reference(store: Store) -> None:
    table = open_table(NUMBERS, store, 0)
    insert_row(table, (1, 11, 111))
    insert_row(table, (2, 22, 222))
    delete_row(table, (2, 22, 222))
    insert_row(table, (3, 33, 333))
    store.ingest(table.seal_changes(), 1)

    table = open_table(NUMBERS, store, 1)
    insert_row(table, (3, 3333, 3333))
    assert get_row(table, (1,)) == (1, 11, 111)
    assert get_row(table, (2,)) is None
    assert get_row(table, (3,)) == (3, 3333, 3333)


def test_scan_merges_memory_over_storage_as_in_the_reference(store: Store) -> None:
    table = open_table(SINGLE, store, 0)
    table.insert_rows(rows_of(SINGLE, [(1, 0, 0), (3, 0, 0), (4, 0, 0), (6, 0, 0)]))
    store.ingest(table.seal_changes(), 1)

    table = open_table(SINGLE, store, 1)
    delete_row(table, (3, 0, 0))
    table.insert_rows(rows_of(SINGLE, [(5, 1, 1), (4, 1, 1)]))
    assert tuples(pa.concat_tables(table.scan())) == [(1, 0, 0), (4, 1, 1), (5, 1, 1), (6, 0, 0)]


def test_the_write_path_caches_operations_and_seals_them_as_key_value_pairs(store: Store) -> None:
    schema = TableSchema(7, "abc", tuple(ColumnSpec(name, "string") for name in "xyz"), (KeyColumn(0),), (0,))
    table = open_table(schema, store, 0)
    insert_row(table, ("a", "b", "c"))
    delete_row(table, ("d", "e", "f"))
    sealed = table.seal_changes()
    assert sealed is not None
    assert sealed.table_id == 7
    keys = encode_keys(7, vnodes_of([pa.array(["a", "d"])], V), [pa.array(["a", "d"])], schema.key).to_pylist()
    pairs = {keys[0]: (1, "a", "b", "c"), keys[1]: (0, "d", None, None)}
    assert [tuple(row.values()) for row in sealed.rows.to_pylist()] == [(key, *pairs[key]) for key in sorted(keys)]
    assert sealed.rows.schema.types == [pa.binary(), pa.uint8(), pa.string(), pa.string(), pa.string()]
    assert table.seal_changes() is None  # reset


def test_the_last_operation_on_a_key_wins_also_within_a_batch(store: Store) -> None:
    table = open_table(NUMBERS, store, 0)
    table.insert_rows(rows_of(NUMBERS, [(1, 1, 1), (2, 2, 2), (1, 9, 9)]))
    assert get_row(table, (1,)) == (1, 9, 9)
    table.delete_rows(rows_of(NUMBERS, [(1, 9, 9), (2, 2, 2)]))
    insert_row(table, (2, 8, 8))
    assert get_row(table, (1,)) is None
    got = table.get_rows(pa.table({"k": [2, 1, 2, 7]}))
    assert got.found.to_pylist() == [True, False, True, False]
    assert tuples(got.rows) == [(2, 8, 8), (None, None, None), (2, 8, 8), (None, None, None)]
    assert got.rows.column_names == ["c0", "c1", "c2"]


def test_an_update_may_swap_keys_and_an_unchanged_row_is_not_written(store: Store) -> None:
    table = open_table(ORDERS, store, 0)
    before = [("a", 1, 1.0, "x"), ("b", 2, 2.0, "y"), (None, 3, float("nan"), None), ("z", 4, 0.0, "z")]
    table.insert_rows(rows_of(ORDERS, before))
    store.ingest(table.seal_changes(), 1)

    table = open_table(ORDERS, store, 1)
    after = [("b", 2, 1.0, "x"), ("a", 1, 2.0, "y"), (None, 3, float("nan"), None), ("z", 4, -0.0, "z")]
    table.update_rows(rows_of(ORDERS, before), rows_of(ORDERS, after))
    assert get_row(table, ("a", 1)) == ("a", 1, 2.0, "y")
    assert get_row(table, ("b", 2)) == ("b", 2, 1.0, "x")
    sealed = table.seal_changes()
    assert sealed is not None
    assert sorted(sealed.rows.column(2).to_pylist()) == ["a", "b", "z"]
    assert sealed.rows.column(1).to_pylist() == [1, 1, 1]
    moved = open_table(ORDERS, store, 1)
    update_row(moved, ("a", 1, 1.0, "x"), ("a", 7, 1.0, "x"))
    assert get_row(moved, ("a", 1)) is None
    assert get_row(moved, ("a", 7)) == ("a", 7, 1.0, "x")
    moved.update_rows(rows_of(ORDERS, before), rows_of(ORDERS, before))
    assert moved.seal_changes() is not None
    assert moved.seal_changes() is None


def test_a_float_key_is_found_by_any_zero_or_nan_and_keeps_its_bits(store: Store) -> None:
    schema = TableSchema(8, "floats", (ColumnSpec("k", "double"), ColumnSpec("v", "int")), (KeyColumn(0),), (0,))
    odd_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)
    table = open_table(schema, store, 0)
    table.insert_rows(pa.table([pa.array([-0.0]), pa.array([1], pa.int32())], ["k", "v"]))
    table.insert_rows(pa.table([pa.array(odd_nan), pa.array([2], pa.int32())], ["k", "v"]))
    store.ingest(table.seal_changes(), 1)
    got = open_table(schema, store, 1).get_rows(
        pa.table({"k": [0.0, float("nan"), None]}, schema=pa.schema([("k", pa.float64())]))
    )
    assert got.found.to_pylist() == [True, True, False]
    assert got.rows["v"].to_pylist() == [1, 2, None]
    assert np.signbit(got.rows["k"][0].as_py())


@pytest.mark.parametrize(("reverse", "ahead", "reads"), [(False, 0, 2), (True, 0, 2), (False, 4_096, 1)])
def test_a_limited_prefix_scan_reads_past_rows_that_this_epoch_deleted(
    store: Store, reverse: bool, ahead: int, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_table, "_READ_AHEAD", ahead)
    table = open_table(ORDERS, store, 0)
    rows = [(shop, i, float(i), "s") for shop in ("a", "b", "c") for i in range(40)]
    table.insert_rows(rows_of(ORDERS, rows))
    store.ingest(table.seal_changes(), 1)

    table = open_table(ORDERS, store, 1)
    gone = [i if reverse else 39 - i for i in range(30)]  # id descends in the key
    table.delete_rows(rows_of(ORDERS, [("a", i, float(i), "s") for i in gone]))
    insert_row(table, ("b", 100, 1.0, "m"))
    insert_row(table, ("b", -1, 1.0, "m"))
    with patch.object(table.stored, "read_between", wraps=table.stored.read_between) as read:
        got = table.scan_prefix(pa.table({"p": ["b", "a", "nobody", "a"]}), limit=2, reverse=reverse)
    assert read.call_count == reads
    assert got.index.to_pylist() == [0, 0, 1, 1, 3, 3]
    assert got.rows["id"].to_pylist() == ([-1, 0, 30, 31, 30, 31] if reverse else [100, 39, 9, 8, 9, 8])
    assert table.scan_prefix(pa.table({"p": ["a"]}), limit=0).rows.num_rows == 0


def test_a_singleton_is_scanned_by_one_prefix_without_columns(store: Store) -> None:
    table = open_table(SINGLE, store, 0)
    table.insert_rows(rows_of(SINGLE, [(3, 0, 0), (1, 0, 0)]))
    everything = pa.table({"x": [0]}).select([])
    assert table.scan_prefix(everything).rows["c0"].to_pylist() == [1, 3]
    assert table.scan_prefix(everything, limit=1, reverse=True).rows["c0"].to_pylist() == [3]


def test_a_table_without_key_columns_holds_one_row(store: Store) -> None:
    schema = TableSchema(9, "total", (ColumnSpec("n", "bigint"), ColumnSpec("s", "decimal(38,2)")), (), ())
    table = open_table(schema, store, 0)
    assert get_row(table, ()) is None
    insert_row(table, (1, Decimal("1.50")))
    insert_row(table, (2, Decimal("2.50")))
    assert get_row(table, ()) == (2, Decimal("2.50"))
    store.ingest(table.seal_changes(), 1)
    assert get_row(open_table(schema, store, 1), ()) == (2, Decimal("2.50"))


def test_a_scan_of_some_vnodes_returns_their_rows_in_batches(store: Store) -> None:
    table = open_table(NUMBERS, store, 0)
    table.insert_rows(rows_of(NUMBERS, [(i, i, i) for i in range(100)]))
    store.ingest(table.seal_changes(), 1)
    table = open_table(NUMBERS, store, 1)
    table.insert_rows(rows_of(NUMBERS, [(i, -i, -i) for i in range(50, 150)]))
    vnodes = vnodes_of([pa.array(range(150))], V)
    batches = list(table.scan([3, 1, 2, 9, 3], batch_rows=4))
    assert all(0 < batch.num_rows <= 4 for batch in batches)
    got = [row[0] for batch in batches for row in tuples(batch)]
    assert got == sorted((i for i in range(150) if vnodes[i] in (1, 2, 3, 9)), key=lambda i: (vnodes[i], i))
    assert list(vnode_ranges([3, 1, 2, 9, 3])) == [(1, 4), (9, 10)]
    assert list(vnode_ranges([])) == []


def test_a_storage_table_reads_some_columns_at_an_epoch_and_merges_vnodes(store: Store) -> None:
    for epoch in (1, 2):
        table = open_table(NUMBERS, store, epoch - 1)
        table.insert_rows(rows_of(NUMBERS, [(i, epoch, i) for i in range(30 * epoch)]))
        store.ingest(table.seal_changes(), epoch)
    old, new = (StorageTable(NUMBERS, store.reader, epoch, V) for epoch in (1, 2))
    assert tuples(old.get_rows(pa.table({"k": [5, 40]}), columns=[1]).rows) == [(1,), (None,)]
    assert tuples(new.get_rows(pa.table({"k": [5, 40]}), columns=[2, 1]).rows) == [(5, 2), (40, 2)]
    assert sorted(tuples(pa.concat_tables(old.scan(columns=[0])))) == [(i,) for i in range(30)]
    assert sorted(tuples(pa.concat_tables(new.scan()))) == [(i, 2, i) for i in range(60)]
    assert tuples(new.scan_prefix(pa.table({"k": [7]}), columns=[2]).rows) == [(7,)]
    assert new.get_rows(pa.table({"k": pa.array([], pa.int64())})).rows.schema == row_schema(NUMBERS)
    assert list(StorageTable(SINGLE, DictStore().reader, 1, V).scan()) == []


def test_wrong_columns_and_contradicting_schemas_are_refused(store: Store) -> None:
    table = open_table(ORDERS, store, 0)
    with pytest.raises(
        WrongColumnsError, match=r"'orders': keys have the columns \(k int64\), expected \(key string, id int64\)"
    ):
        table.get_rows(pa.table({"k": [1]}))
    with pytest.raises(WrongColumnsError, match="prefixes have the columns"):
        table.scan_prefix(pa.table({"x": [0]}).select([]))  # lacks the distribution column
    with pytest.raises(WrongColumnsError, match="rows have the columns"):
        table.insert_rows(pa.table({"k": ["a"]}))
    with pytest.raises(TableSchemaError, match="distribution"):
        open_table(TableSchema(1, "t", NUMBERS.columns, (KeyColumn(0),), (1,)), store, 0)
    with pytest.raises(TableSchemaError, match="column 5"):
        open_table(TableSchema(1, "t", NUMBERS.columns, (KeyColumn(5),), ()), store, 0)
    with pytest.raises(TableSchemaError, match="twice"):
        open_table(TableSchema(1, "t", NUMBERS.columns, (KeyColumn(0), KeyColumn(0)), ()), store, 0)


Model = dict[tuple[str | None, int], tuple[Any, ...]]
SHOPS = ["a", "b", "a\x00", "", None]


def model_order(key: tuple[str | None, int]) -> tuple[Any, ...]:
    """shop ascending by bytes, NULL last, then id descending."""
    return (key[0] is None, (key[0] or "").encode(), -key[1])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(2)
def test_random_changes_and_reads_agree_with_a_dict_at_every_epoch(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    model: Model = {}
    history: list[Model] = [{}]

    def random_row() -> tuple[Any, ...]:
        return (rng.choice(SHOPS), rng.randrange(12), rng.choice([0.0, -0.0, 1.5, None]), rng.choice(["x", "y", None]))

    def check(table: StateTable, expected: Model) -> None:
        keys = [(rng.choice(SHOPS), rng.randrange(14)) for _ in range(10)]
        got = table.get_rows(
            pa.table([pa.array([k[0] for k in keys], pa.string()), pa.array([k[1] for k in keys])], ["s", "i"])
        )
        assert got.found.to_pylist() == [key in expected for key in keys]
        assert tuples(got.rows) == [expected.get(key, (None,) * 4) for key in keys]

        prefixes = [rng.choice(SHOPS) for _ in range(3)]
        limit, reverse = rng.choice([None, 1, 2, 5]), rng.random() < 0.5
        rows = table.scan_prefix(pa.table({"s": pa.array(prefixes, pa.string())}), limit, reverse)
        wanted = []
        for place, shop in enumerate(prefixes):
            of_shop = sorted((key for key in expected if key[0] == shop), key=model_order, reverse=reverse)
            wanted += [(place, expected[key]) for key in of_shop[:limit]]
        assert list(zip(rows.index.to_pylist(), tuples(rows.rows), strict=True)) == wanted

        since, shop = rng.randrange(14), rng.choice(SHOPS)  # the first key may be absent
        key = table.layout.keys_of(pa.table([pa.array([shop], pa.string()), pa.array([since])], ["s", "i"]))
        end = successors(table.layout.prefixes_of(pa.table({"s": pa.array([shop], pa.string())})))
        found = table.scan_between(key, end, limit, reverse)
        of_shop = sorted((k for k in expected if k[0] == shop and k[1] <= since), key=model_order, reverse=reverse)
        assert tuples(found.rows) == [expected[k] for k in of_shop[:limit]]
        assert found.keys.to_pylist() == table.layout.keys_of_rows(found.rows).to_pylist()

        ordered = [row for batch in table.scan(batch_rows=rng.choice([2, 7, 1000])) for row in tuples(batch)]
        assert sorted(ordered, key=lambda row: model_order(row[:2])) == [
            expected[key] for key in sorted(expected, key=model_order)
        ]
        for shop in SHOPS:  # within a vnode in primary key order
            assert [row for row in ordered if row[0] == shop] == [
                expected[k] for k in sorted(expected, key=model_order) if k[0] == shop
            ]

    for epoch in range(1, 9):
        table = open_table(ORDERS, store, epoch - 1)
        for _ in range(rng.randrange(6)):
            action = rng.random()
            if action < 0.45:
                rows = [random_row() for _ in range(rng.randrange(1, 8))]
                table.insert_rows(rows_of(ORDERS, rows))
                model = model | {row[:2]: row for row in rows}
            elif action < 0.75:
                rows = rng.sample(sorted(model.values(), key=repr), min(len(model), rng.randrange(1, 8)))
                table.delete_rows(rows_of(ORDERS, rows))
                model = {key: row for key, row in model.items() if row not in rows}
            else:
                old = rng.sample(sorted(model.values(), key=repr), min(len(model), 3))
                new = [(row[0], row[1] + rng.choice([0, 0, 20]), rng.choice([2.5, row[2]]), row[3]) for row in old]
                table.update_rows(rows_of(ORDERS, old), rows_of(ORDERS, new))
                model = {key: row for key, row in model.items() if row not in old} | {row[:2]: row for row in new}
            check(table, model)
        store.ingest(table.seal_changes(), epoch)
        history.append(model)
    for epoch, then in enumerate(history):
        check(open_table(ORDERS, store, epoch), then)
        stored = StorageTable(ORDERS, store.reader, epoch, V)
        found = [row for batch in stored.scan() for row in tuples(batch)]
        assert sorted(found, key=lambda row: model_order(row[:2])) == [
            then[key] for key in sorted(then, key=model_order)
        ]
        for since, before in enumerate(history[: epoch + 1]) if isinstance(store, BucketStore) else ():
            net = {w: [] for w in (-1, 1)}
            for part in stored.read_changes(since):
                assert part.weights.to_pylist() == sorted(part.weights.to_pylist())
                for weight, row in zip(part.weights.to_pylist(), tuples(part.rows), strict=True):
                    net[weight].append(row)
            assert sorted(net[-1], key=repr) == sorted(
                (row for key, row in before.items() if repr(then.get(key)) != repr(row)), key=repr
            )
            assert sorted(net[1], key=repr) == sorted(
                (row for key, row in then.items() if repr(before.get(key)) != repr(row)), key=repr
            )


def test_many_rows_over_many_blocks_agree_with_plain_columns(objects: ObjectStore) -> None:
    """Tables of thousands of rows, so that scans and reads cross blocks, SSTs and the MemTable."""
    rng, store, size = np.random.default_rng(5), BucketStore(objects), 20_000
    value = np.full(size, -1)  # by key; -1: no such row
    for epoch in range(1, 6):
        table = open_table(NUMBERS, store, epoch - 1)
        for step in range(2):
            keys = rng.choice(size, 6000, replace=False)
            table.insert_rows(pa.table([keys, np.full(6000, 10 * epoch + step), keys * 2], ["k", "v", "w"]))
            value[keys] = 10 * epoch + step
            gone = rng.choice(size, 3000, replace=False)
            table.delete_rows(pa.table([gone, gone, gone], ["k", "v", "w"]))
            value[gone] = -1

            asked = rng.integers(0, size + 100, 5000)
            got = table.get_rows(pa.table({"k": asked}))
            expected = np.append(value, np.full(100, -1))[asked]
            assert np.array_equal(got.found.to_numpy(zero_copy_only=False), expected >= 0)
            assert np.array_equal(got.rows["c1"].fill_null(-1).to_numpy(), expected)

            live = np.flatnonzero(value >= 0)
            rows = pa.concat_tables(table.scan(batch_rows=1500))
            vnodes = vnodes_of([pa.array(live)], V)
            assert np.array_equal(rows["c0"].to_numpy(), live[np.lexsort((live, vnodes))])
            assert np.array_equal(rows["c1"].to_numpy(), value[rows["c0"].to_numpy()])
        store.ingest(table.seal_changes(), epoch)
    scanned = pa.concat_tables(StorageTable(NUMBERS, store.reader, 5, V).scan(columns=[0, 2])).sort_by("c0")
    assert np.array_equal(scanned["c0"].to_numpy(), np.flatnonzero(value >= 0))
    assert np.array_equal(scanned["c2"].to_numpy(), np.flatnonzero(value >= 0) * 2)


def test_located_keys_are_read_and_replaced_in_the_order_of_the_store(store: Store) -> None:
    rng = random.Random(4)
    content: dict[int, tuple[Any, ...]] = {}
    for epoch in range(1, 8):
        table = open_table(NUMBERS, store, epoch - 1)
        keys = rng.sample(range(60), rng.choice((0, 1, 40)))
        located = table.locate_keys(pa.table({"k": pa.array(keys, pa.int64())}))
        ordered = [keys[place] for place in located.order.tolist()]
        assert sorted(ordered) == sorted(keys)
        assert located.keys.to_pylist() == sorted(located.keys.to_pylist())
        found = table.get_located(located)
        assert [
            row[0] if there else None for row, there in zip(tuples(found.rows), found.found.to_pylist(), strict=True)
        ] == [key if key in content else None for key in ordered]
        after = np.array([rng.random() < 0.6 for _ in ordered], np.bool_)
        rows = [(key, epoch, rng.randrange(9)) for key in ordered]
        table.replace_located(located, rows_of(NUMBERS, rows), np.asarray(found.found, np.bool_), after)
        for row, there in zip(rows, after.tolist(), strict=True):
            if there:
                content[row[0]] = row
            else:
                content.pop(row[0], None)
        got = table.get_rows(pa.table({"k": list(range(60))}))
        assert [row for row, there in zip(tuples(got.rows), got.found.to_pylist(), strict=True) if there] == [
            content[key] for key in sorted(content)
        ]
        store.ingest(table.seal_changes(), epoch)


def test_turns_of_writing_and_reading_agree_with_a_dict_and_sort_no_row_often(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, sorted_rows = 400, 0
    last_of_each_key = mem_table._last_of_each_key

    def counting(runs: list[MemRun]) -> MemRun:
        nonlocal sorted_rows
        sorted_rows += sum(map(len, runs))
        return last_of_each_key(runs)

    monkeypatch.setattr(mem_table, "_last_of_each_key", counting)
    rng, table, model = random.Random(1), open_table(NUMBERS, DictStore(), 0), dict[int, tuple[int, int, int]]()
    for turn in range(turns):
        if turn % 5 == 4:
            gone = rng.choice([*model, turn])
            delete_row(table, model.pop(gone, (gone, 0, 0)))
        else:
            row = (rng.randrange(turns), turn, -turn)
            insert_row(table, row)
            model[row[0]] = row
        key = rng.randrange(turns)
        assert get_row(table, (key,)) == model.get(key)
    assert sorted(tuples(pa.concat_tables(table.scan()))) == sorted(model.values())
    assert sorted_rows < 12 * turns, (
        "log2 of the turns and a little; one run of all changes would be sorted in each turn"
    )

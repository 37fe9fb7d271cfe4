"""DML replay over a real store with several units, compared with a plain dict that executes the same statements in
order.
"""

import random
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tussock.jobs.executors.operator import Actor, Entry
from tussock.jobs.executors.table_replay import StatementRowError, TableReplay, TableReplayExecutor
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.jobs.logical.statements import OP, Change, Delete, Insert, Update
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, VnodeMapping
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type

VNODES = 16
TYPES = ("bigint", "string", "double")
NODE = TableReplay(1, (0,), TYPES)
Row = tuple[Any, ...]
Statement = Insert | Change | Update | Delete


def column(i: int, types: Sequence[str] = TYPES) -> Column:
    return Column(i, types[i])


def long(value: int | None) -> Literal:
    return Literal(value, "bigint")


def call(node: str, *args: Expr, type: str = "boolean") -> Call:
    return Call(node, type, args, "ANSI" if type != "boolean" else None)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return Kernel()


class Table:
    """A table over a local store: each epoch replays on every unit, checks the chunks and commits."""

    def __init__(self, path: Path, kernel: Kernel, node: TableReplay = NODE, units: int = 3) -> None:
        self.node, self.kernel, self.units = node, kernel, units
        (schema,) = node.state_tables()
        self.schema = msgspec.structs.replace(schema, table_id=5)
        self.objects = LocalObjectStore(path)
        mapping = VnodeMapping(0, tuple(v % units for v in range(VNODES)))
        self.version = HummockVersion(0, 0, 0, 0, 0, ((),), Catalog(), mapping)
        self.payloads: dict[str, pa.Table] = {}
        self.chunks: list[pa.Table] = []

    def insert(self, *rows: Row) -> Insert:
        name = f"payload-{len(self.payloads)}"
        columns = zip(*rows, strict=True) if rows else [()] * len(self.node.types)
        arrays = [pa.array(list(c), arrow_type(t)) for c, t in zip(columns, self.node.types, strict=True)]
        self.payloads[name] = pa.table(arrays, names=["name", "is", "ignored"][: len(arrays)])
        return Insert("t", len(rows), name)

    def epoch(self, *entries: Statement, commit: bool = True) -> list[tuple[int, Row]]:
        """The weighted rows that all units emit."""
        store = HummockStore(self.objects, self.version, BlockCache())
        sealed, out = [], []
        for unit in range(self.units):
            vnodes = [v for v in range(VNODES) if v % self.units == unit]
            state = StateTable(self.schema, store, self.version.epoch, VNODES)
            before = [row for batch in state.scan(vnodes) for row in rows_in(batch)]
            chunk = self.replay(state, vnodes, entries).apply()
            assert [f.type for f in chunk.schema] == [*(arrow_type(t) for t in self.node.types), pa.int64()]
            after = [row for batch in state.scan(vnodes) for row in rows_in(batch)]
            assert applied(before, weighted(chunk)) == sorted(map(repr, after))
            out += weighted(chunk)
            if (batch := state.seal_changes()) is not None:
                sealed.append(batch)
        if commit and sealed:
            epoch = self.version.epoch + 1
            infos = batch_ingest(self.objects, sealed, epoch, f"data/{epoch:016x}")
            levels = ((*reversed(infos), *self.version.levels[0]),)
            self.version = msgspec.structs.replace(self.version, epoch=epoch, levels=levels)
        return sorted(out, key=repr)

    def replay(self, state: StateTable, vnodes: Sequence[int], statements: Sequence[Statement]) -> TableReplayExecutor:
        """An actor's executor of these statements, numbered from 1."""
        entries = [Entry(number, statement) for number, statement in enumerate(statements, 1)]
        return TableReplayExecutor(
            self.node, state, Actor(self.kernel, vnodes, VNODES, entries, self.payloads.__getitem__)
        )


def rows_in(table: pa.Table) -> list[Row]:
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True)) if table.num_rows else []


def weighted(chunk: pa.Table) -> list[tuple[int, Row]]:
    return [(int(r[-1]), r[:-1]) for r in rows_in(chunk)]


def applied(rows: list[Row], changes: list[tuple[int, Row]]) -> list[str]:
    """Rows, as text, after the changes: all deletes first, each of an existing row."""
    left = [repr(r) for r in rows]
    for weight, row in changes:
        if weight < 0:
            left.remove(repr(row))
    return sorted(left + [repr(row) for weight, row in changes if weight > 0])


@pytest.fixture
def table(tmp_path: Path, kernel: Kernel) -> Table:
    return Table(tmp_path / "store", kernel)


def test_a_repeated_key_overwrites_and_the_last_of_one_insert_wins(table: Table) -> None:
    assert table.epoch(table.insert((1, "a", 1.0), (2, "b", 2.0), (1, "c", 3.0))) == [
        (1, (1, "c", 3.0)),
        (1, (2, "b", 2.0)),
    ]
    assert table.epoch(table.insert((1, "d", 1.0), (3, "e", None))) == [
        (-1, (1, "c", 3.0)),
        (1, (1, "d", 1.0)),
        (1, (3, "e", None)),
    ]


@pytest.mark.parametrize("kind", ["insert", "change"])
def test_the_first_row_of_a_key_stays_in_an_append_only_table_by_whatever_statement(
    tmp_path: Path, kernel: Kernel, kind: str
) -> None:
    """The expected rows come from SQLite's INSERT OR IGNORE."""
    table = Table(tmp_path / "store", kernel, msgspec.structs.replace(NODE, append_only=True))
    judge = sqlite3.connect(":memory:")
    emitted: list[tuple[int, Row]] = []
    judge.execute("CREATE TABLE t (a integer PRIMARY KEY, b text, c real)")
    for given in ([(1, "a", 1.0), (2, "b", 2.0), (1, "c", 3.0)], [(2, "d", 1.0), (3, "e", None), (3, "f", 0.5)]):
        judge.executemany("INSERT OR IGNORE INTO t VALUES (?, ?, ?)", given)
        made: Statement = table.insert(*given)
        if kind == "change":
            rows = table.payloads[made.object]
            table.payloads[made.object] = rows.add_column(0, OP, pa.array([1] * rows.num_rows, pa.int8()))
            made = Change("t", made.rows, made.object)
        emitted += table.epoch(made)
    assert sorted(row for _, row in emitted) == sorted(judge.execute("SELECT * FROM t").fetchall())


def test_insert_update_and_delete_of_one_key_in_one_epoch_end_as_a_database_would(table: Table) -> None:
    table.epoch(table.insert((1, "a", 1.0), (2, "b", 2.0)))
    is_one = call("EqualTo", column(0), long(1))
    rename = Update("t", ((1, Literal("x", "string")),), is_one)
    assert table.epoch(Delete("t", is_one), table.insert((1, "z", 9.0)), rename) == [
        (-1, (1, "a", 1.0)),
        (1, (1, "x", 9.0)),
    ]
    assert table.epoch(rename, Delete("t", is_one), rename) == [(-1, (1, "x", 9.0))]
    assert table.epoch(table.insert((7, "new", 0.0)), Delete("t", call("EqualTo", long(7), column(0)))) == []


def test_rows_that_end_unchanged_are_not_emitted(table: Table) -> None:
    table.epoch(table.insert((1, None, float("nan")), (2, "b", -0.0)))
    everything = Delete("t", None)
    assert table.epoch(everything, table.insert((1, None, float("nan")), (2, "b", -0.0))) == []
    assert table.epoch(table.insert((2, "b", 0.0))) == [(-1, (2, "b", -0.0)), (1, (2, "b", 0.0))]


def test_a_condition_that_is_null_touches_nothing(table: Table) -> None:
    table.epoch(table.insert((1, None, None)))
    null = call("EqualTo", column(1), Literal("a", "string"))
    assert table.epoch(Delete("t", null), Update("t", ((2, Literal("1.0", "double")),), null)) == []
    assert table.epoch(Delete("t", call("EqualTo", column(0), long(None)))) == []


def test_an_update_does_not_see_its_own_rows(table: Table) -> None:
    table.epoch(table.insert(*((i, "a", float(i)) for i in range(100))))
    grow = Update("t", ((2, call("Add", column(2), Literal("1.0", "double"), type="double")),), None)
    changes = table.epoch(grow, grow)
    assert sorted(r[2] for w, r in changes if w > 0) == [i + 2.0 for i in range(100)]


def test_a_where_that_names_the_keys_reads_only_them(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.epoch(table.insert(*((i, "a", float(i)) for i in range(100))))

    def no_scan(*_: object, **__: object) -> None:
        raise AssertionError("a scan, although the keys are known")

    named = [
        call("EqualTo", column(0), long(5)),
        call(
            "And",
            call("GreaterThan", column(2), Literal("1.0", "double")),
            call("In", column(0), long(7), long(8), long(7), long(200), long(1)),
        ),
    ]
    store = HummockStore(table.objects, table.version, BlockCache())
    state = StateTable(table.schema, store, table.version.epoch, VNODES)
    monkeypatch.setattr(StateTable, "scan", no_scan)
    chunk = table.replay(state, range(VNODES), [Delete("t", w) for w in named]).apply()
    assert sorted(weighted(chunk)) == [(-1, (i, "a", float(i))) for i in (5, 7, 8)]
    with pytest.raises(AssertionError, match="a scan"):
        table.replay(state, range(VNODES), [Delete("t", call("GreaterThan", column(0), long(5)))]).apply()


def test_a_composite_key_is_read_by_the_product_of_its_choices(tmp_path: Path, kernel: Kernel) -> None:
    types = ("double", "decimal(10,2)", "string")
    wide = Table(tmp_path / "store", kernel, TableReplay(1, (1, 0), types))
    rows = [(x, Decimal(y), "r") for x in (0.0, 1.5, float("nan")) for y in ("1.00", "2.50")]
    wide.epoch(wide.insert(*rows))
    zero = call("EqualTo", Column(0, "double"), Literal("-0.0", "double"))
    price = call("In", Column(1, "decimal(10,2)"), Literal("2.50", "decimal(10,2)"), Literal("9.00", "decimal(10,2)"))
    assert wide.epoch(Delete("t", call("And", zero, price))) == [(-1, (0.0, Decimal("2.50"), "r"))]
    assert wide.epoch(wide.insert((-0.0, Decimal("1.00"), "s"))) == [
        (-1, (0.0, Decimal("1.00"), "r")),
        (1, (-0.0, Decimal("1.00"), "s")),
    ]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 8))])
@pytest.mark.sampled(2)
def test_random_statements_match_a_dict(table: Table, seed: int) -> None:
    """20 epochs of up to 6 statements; the dict executes each in turn."""
    rng = random.Random(seed)
    model: dict[int, Row] = {}
    for _ in range(20):
        before, entries = dict(model), []
        for _ in range(rng.randrange(7)):
            low = rng.randrange(40)
            match rng.randrange(5):
                case 0 | 1:
                    rows = [
                        (rng.randrange(40), rng.choice(["a", "b", None]), rng.choice([0.5, 1.0, None]))
                        for _ in range(rng.randrange(12))
                    ]
                    entries.append(table.insert(*rows))
                    model.update((r[0], r) for r in rows)
                case 2:
                    entries.append(Delete("t", call("GreaterThan", column(0), long(low))))
                    model = {k: r for k, r in model.items() if not k > low}
                case 3:
                    entries.append(Delete("t", call("EqualTo", column(0), long(low))))
                    model.pop(low, None)
                case 4:
                    more = call("Add", column(2), Literal("1.0", "double"), type="double")
                    entries.append(
                        Update("t", ((1, Literal("u", "string")), (2, more)), call("LessThan", column(0), long(low)))
                    )
                    model = {
                        k: (k, "u", None if r[2] is None else r[2] + 1.0) if k < low else r for k, r in model.items()
                    }
        changed = [k for k in before.keys() | model.keys() if before.get(k) != model.get(k)]
        expected = [(-1, before[k]) for k in changed if k in before] + [(1, model[k]) for k in changed if k in model]
        assert table.epoch(*entries) == sorted(expected, key=repr)


def test_an_expression_that_raises_names_table_statement_and_key(table: Table) -> None:
    table.epoch(table.insert((1, "a", 1.0), (2, "b", 2.0)))
    two = call("EqualTo", column(0), long(2))
    overflow = call("Add", column(0), long(2**63 - 1), type="bigint")
    with pytest.raises(
        StatementRowError, match=r"table 't', UPDATE at log entry 2, .*key \(2\).*Nothing of this epoch was committed"
    ):
        table.epoch(
            Delete("t", call("EqualTo", column(0), long(9))),
            Update("t", ((2, call("Cast", overflow, type="double")),), two),
            commit=False,
        )
    with pytest.raises(StatementRowError, match=r"DELETE at log entry 1,"):
        table.epoch(
            Delete("t", call("EqualTo", call("Remainder", column(0), long(0), type="bigint"), long(0))), commit=False
        )


def test_units_share_the_keys_by_vnode(table: Table) -> None:
    entry = table.insert(*((i, "a", 0.0) for i in range(1000)))
    store = HummockStore(table.objects, table.version, BlockCache())
    seen = []
    for vnode in range(VNODES):
        state = StateTable(table.schema, store, 0, VNODES)
        chunk = table.replay(state, [vnode], [entry]).apply()
        assert 20 < chunk.num_rows < 120
        seen += chunk["c0"].to_pylist()
    assert np.array_equal(np.sort(seen), np.arange(1000))


KEYLESS = TableReplay(1, (2,), ("bigint", "string", "bigint"), True)


def put(table: Table, *rows: Row) -> Insert:
    """An INSERT of visible columns."""
    name = f"payload-{len(table.payloads)}"
    columns = list(zip(*rows, strict=True))
    table.payloads[name] = pa.table(
        [pa.array(columns[0], pa.int64()), pa.array(columns[1], pa.string())], names=["a", "b"]
    )
    return Insert("t", len(rows), name)


def visible(changes: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    return sorted(((w, row[:-1]) for w, row in changes), key=repr)


def test_without_a_key_equal_rows_are_kept_and_changed_by_condition(tmp_path: Path, kernel: Kernel) -> None:
    table = Table(tmp_path / "store", kernel, KEYLESS)
    first = put(table, (1, "a"), (1, "a"), (2, "b"))
    assert visible(table.epoch(first)) == [(1, (1, "a")), (1, (1, "a")), (1, (2, "b"))]
    is_one = call("EqualTo", column(0), long(1))
    rename = Update("t", ((1, Literal("x", "string")),), is_one)
    assert (
        visible(table.epoch(rename, put(table, (1, "a"))))
        == [(-1, (1, "a"))] * 2 + [(1, (1, "a"))] + [(1, (1, "x"))] * 2
    )
    assert visible(table.epoch(Delete("t", is_one))) == [(-1, (1, "a")), (-1, (1, "x")), (-1, (1, "x"))]


def test_row_ids_come_only_from_the_log(tmp_path: Path, kernel: Kernel) -> None:
    """A row's id does not depend on the process or the number of units. No two rows share an id."""
    found = []
    for units in (1, 3):
        table = Table(tmp_path / str(units), kernel, KEYLESS, units)
        rows = [put(table, *((i, "x") for i in range(50))), put(table, (0, "x"), (1, "y"))]
        found.append(table.epoch(*rows))
    assert found[0] == found[1]
    ids = [row[-1] for _, row in found[0]]
    assert len(set(ids)) == 52
    assert ids[0] >> 32 in (1, 2)


def test_a_change_deletes_before_it_puts_and_new_rows_get_ids(tmp_path: Path, kernel: Kernel) -> None:
    keyed = Table(tmp_path / "keyed", kernel)
    keyed.epoch(keyed.insert((1, "a", 1.0), (2, "b", 2.0), (3, "c", 3.0)))
    swap = [(1, None, None), (2, None, None)], [(2, "a", 1.0), (1, "b", 2.0), (4, "d", None)]
    keyed.payloads["swap"] = pa.table(
        {
            "op": pa.array([-1, -1, 1, 1, 1], pa.int8()),
            **{f"c{i}": pa.array([r[i] for part in swap for r in part], arrow_type(t)) for i, t in enumerate(TYPES)},
        }
    )
    changes = keyed.epoch(Change("t", 5, "swap"))
    assert changes == sorted(
        [(-1, (1, "a", 1.0)), (-1, (2, "b", 2.0)), (1, (1, "b", 2.0)), (1, (2, "a", 1.0)), (1, (4, "d", None))],
        key=repr,
    )
    table = Table(tmp_path / "keyless", kernel, KEYLESS)
    ((_, (_, _, old)),) = table.epoch(put(table, (1, "a")))
    table.payloads["change"] = pa.table(
        {"op": pa.array([1, 1], pa.int8()), "a": [7, 8], "b": ["x", "y"], "id": pa.array([old, None], pa.int64())}
    )
    changes = table.epoch(Change("t", 2, "change"))
    assert visible(changes) == [(-1, (1, "a")), (1, (7, "x")), (1, (8, "y"))]
    assert {row[-1] for _, row in changes} == {old, (1 << 32) + 1}


def test_an_append_only_table_keeps_the_first_row_of_a_key(tmp_path: Path, kernel: Kernel) -> None:
    rng, known = random.Random(8), dict[int, Row]()
    table = Table(tmp_path / "store", kernel, msgspec.structs.replace(NODE, append_only=True))
    for _ in range(6):
        entries = []
        for _ in range(rng.randrange(4)):
            rows = [(rng.randrange(30), rng.choice("abc"), rng.random()) for _ in range(rng.randrange(1, 9))]
            if rng.random() < 0.3:  # the rows of a MERGE that inserts
                insert = table.insert(*rows)
                table.payloads[insert.object] = table.payloads[insert.object].add_column(
                    0, "op", pa.array(np.ones(len(rows), np.int8))
                )
                entries.append(Change("t", len(rows), insert.object))
            else:
                entries.append(table.insert(*rows))
            for row in rows:
                known.setdefault(row[0], row)
        before = dict(known) if not entries else {}
        changes = table.epoch(*entries)
        assert all(weight > 0 for weight, _ in changes)
        assert entries or known == before
        store = HummockStore(table.objects, table.version, BlockCache())
        stored = StateTable(table.schema, store, table.version.epoch, VNODES).scan(range(VNODES))
        assert sorted(row for batch in stored for row in rows_in(batch)) == sorted(known.values())

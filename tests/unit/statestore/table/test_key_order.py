"""Reads of a table in key order: random tables compared with Python's sort, and the blocks that a limit reads."""

import math
import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.statestore.table.rows import delete_row, insert_row, update_row
from tests.support.statestore.table.stores import BucketStore
from tussock.statestore.hummock import block_source
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table import key_order
from tussock.statestore.table.key_order import Edge, key_bounds
from tussock.statestore.table.schema import row_schema
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.table.storage_table import StorageTable

V = 16
VALUES: dict[str, Sequence[Any]] = {
    "int": (None, -(2**31), -1, 0, 7, 2**31 - 1),
    "double": (None, -math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan),
    "string": (None, "", "a", "a\0", "a\0b", "a\1", "ab", "é", "\U0001f600", "\uffff"),
    "decimal(20,2)": (
        None,
        Decimal("-99999999999999999.99"),
        Decimal("-0.01"),
        Decimal("0.00"),
        Decimal("123456789012345678.90"),
    ),
    "date": (None, date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)),
    "boolean": (None, False, True),
    "array<int>": (None, [], [None], [1], [1, None], [1, 2], [2]),
}


def comparable(value: Any) -> Any:
    """A value that Python compares as SQL does: NaN last, -0.0 as 0.0, strings by bytes, NULL elements first."""
    match value:
        case float():
            return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
        case str():
            return value.encode()
        case list():
            return [(e is not None, 0 if e is None else e) for e in value]
        case _:
            return value


def compared(left: Sequence[Any], right: Sequence[Any], key: Sequence[KeyColumn]) -> int:
    for part in key:
        a, b = left[part.column], right[part.column]
        if a is None or b is None:
            if (a is None) != (b is None):
                return -1 if (a is None) != part.nulls_last else 1
            continue
        x, y = comparable(a), comparable(b)
        if x != y:
            return -1 if (x < y) != part.descending else 1
    return 0


class Table:
    """A random table (two order columns, a key, a note) over several epochs that delete and change rows."""

    def __init__(self, seed: int, objects: Path) -> None:
        rng = self.rng = random.Random(seed)
        self.kinds = [rng.choice(list(VALUES)), rng.choice(list(VALUES)), "bigint", "string"]
        key = (
            *(KeyColumn(c, rng.random() < 0.5, rng.random() < 0.5) for c in rng.sample((0, 1), rng.choice((1, 2)))),
            KeyColumn(2),
        )
        columns = tuple(ColumnSpec(f"c{i}", kind) for i, kind in enumerate(self.kinds))
        self.schema = TableSchema(9, "ordered", columns, key, rng.choice(((2,), ())))
        self.live: dict[int, tuple[Any, ...]] = {}
        store = BucketStore(LocalObjectStore(objects))
        for epoch in range(1, 4):
            table = StateTable(self.schema, store.reader, epoch - 1, V)
            for number in rng.sample(range(300), 120):
                row = (*(rng.choice(VALUES[kind]) for kind in self.kinds[:2]), number, f"{epoch}")
                before = self.live.pop(number, None)
                if before is not None and rng.random() < 0.4:
                    delete_row(table, before)
                elif before is not None:
                    update_row(table, before, row)
                    self.live[number] = row
                else:
                    insert_row(table, row)
                    self.live[number] = row
            store.ingest(table.seal_changes(), epoch)
        self.table = StorageTable(self.schema, store.reader, 3, V)

    def in_order(self, reverse: bool) -> list[tuple[Any, ...]]:
        return sorted(self.live.values(), key=cmp_to_key(lambda a, b: compared(a, b, self.schema.key)), reverse=reverse)

    def array(self, column: int, value: Any) -> pa.Array:
        return pa.array([value], row_schema(self.schema).field(column).type)


def rows_of(parts: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    return [row for part in parts for row in zip(*(c.to_pylist() for c in part.columns), strict=True)]


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return repr(list(found)) == repr(list(expected))  # by text: NaN equals NaN, and -0.0 is not 0.0


@pytest.fixture(params=["in one round", "in many rounds"])
def rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in many rounds":
        for name, rows in (("_BUFFERED", 20), ("_LEAST", 2), ("_LEAST_OF_FEW", 1), ("_SEGMENTS", 3)):
            monkeypatch.setattr(key_order, name, rows)


@pytest.mark.usefixtures("rounds")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(5)
def test_rows_are_in_key_order_and_a_limit_counts_from_the_first(seed: int, tmp_path: Path) -> None:
    made = Table(seed, tmp_path)
    for reverse in (False, True):
        expected = made.in_order(reverse)
        assert same(rows_of(list(made.table.scan_in_order(reverse=reverse))), expected)
        for limit in (0, 1, 5, 100, 1000):
            parts = list(made.table.scan_in_order(limit=limit, reverse=reverse, columns=(2, 0)))
            assert same(rows_of(parts), [(row[2], row[0]) for row in expected[:limit]])
            assert all(part.num_rows for part in parts)


@pytest.mark.usefixtures("rounds")
@pytest.mark.parametrize("seed", range(12, 24))
@pytest.mark.sampled(5)
def test_bounds_of_the_first_columns_of_the_key_give_the_rows_that_pass(seed: int, tmp_path: Path) -> None:
    made, rng = Table(seed, tmp_path), random.Random(seed)
    for _ in range(20):
        width = rng.randrange(len(made.schema.key))
        fixed = [(k, rng.choice(VALUES[made.kinds[k.column]])) for k in made.schema.key[:width]]
        following = made.schema.key[width]
        choices = [v for v in VALUES.get(made.kinds[following.column], (0, 40, 299)) if v is not None]
        low, high = ((None if rng.random() < 0.4 else (rng.choice(choices), rng.random() < 0.5)) for _ in range(2))
        known = rng.random() < 0.5

        def passes(row: tuple[Any, ...]) -> bool:
            if any(compared(row, {k.column: v}, (k,)) for k, v in fixed):  # noqa: B023
                return False
            value = row[following.column]  # noqa: B023
            if value is None:
                return not (low or high or known)  # noqa: B023
            if low is not None and not (comparable(value), low[1]) > (comparable(low[0]), False):  # noqa: B023
                return False
            return high is None or (comparable(high[0]), high[1]) > (comparable(value), False)  # noqa: B023

        edges = [None if edge is None else Edge(made.array(following.column, edge[0]), edge[1]) for edge in (low, high)]
        bounds = key_bounds(made.table.layout, [made.array(k.column, v) for k, v in fixed], *edges, known=known)
        reverse = rng.random() < 0.5
        assert same(
            rows_of(list(made.table.scan_in_order(bounds, reverse=reverse))),
            [r for r in made.in_order(reverse) if passes(r)],
        )


def test_a_limit_and_a_range_read_the_blocks_of_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200,000 rows in 16 vnodes."""
    schema = TableSchema(
        9, "wide", tuple(ColumnSpec(f"c{i}", "bigint") for i in range(2)), (KeyColumn(1, True), KeyColumn(0)), (0,)
    )
    store = BucketStore(LocalObjectStore(tmp_path))
    table = StateTable(schema, store.reader, 0, V)
    numbers = pa.array(range(200_000), pa.int64())
    table.insert_rows(pa.table([numbers, numbers], ["c0", "c1"]))
    store.ingest(table.seal_changes(), 1)
    read: set[int] = set()
    whole = block_source.BlockSource.read_units

    def counted(source: Any, requests: Any, *others: Any) -> Any:
        for request in requests:
            read.update(int(block) for block in request.blocks)
        return whole(source, requests, *others)

    monkeypatch.setattr(block_source.BlockSource, "read_units", counted)
    stored = StorageTable(schema, store.reader, 1, V)

    def blocks_of(*args: Any, **kwargs: Any) -> tuple[int, int]:
        read.clear()
        rows = sum(part.num_rows for part in stored.scan_in_order(*args, **kwargs))
        return len(read), rows

    everything, rows = blocks_of()
    assert rows == 200_000
    assert everything > 4 * V
    first, rows = blocks_of(limit=10)
    assert (rows, first <= V) == (10, True), f"{first} of {everything} blocks"
    last, rows = blocks_of(limit=10, reverse=True)
    assert (rows, last <= V) == (10, True), f"{last} of {everything} blocks"
    low, high = (Edge(pa.array([v], pa.int64()), True) for v in (50_000, 50_099))
    middle, rows = blocks_of(key_bounds(stored.layout, [], low, high))
    assert (rows, middle <= 2 * V) == (100, True), f"{middle} of {everything} blocks"

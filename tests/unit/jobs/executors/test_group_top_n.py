"""GroupTopN under random changes, compared at each epoch with plain Python, which sorts and numbers every group."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from tests.support.jobs.executors.harness import Bench, Row, assert_netted, chunk_of, integrate
from tussock.jobs.executors.group_top_n import GroupTopN
from tussock.jobs.executors.order import Order
from tussock.jobs.logical.nodes import WindowFunction
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.table.state_table import LocatedKeys, StateTable

TYPES = ("int", "int", "bigint")


def first_rows(node: GroupTopN, live: list[Row]) -> Counter[Row]:
    """Every row with its number, up to the limit."""
    found: Counter[Row] = Counter()
    groups: dict[Row, list[Row]] = {}
    for row in live:
        groups.setdefault(tuple(row[c] for c in node.group), []).append(row)
    (order,) = node.order
    for rows in groups.values():
        values = sorted({r[1] for r in rows if r[1] is not None}, reverse=order.descending)
        place = {v: i for i, v in enumerate([*values, None] if order.nulls_last else [None, *values])}
        rows.sort(key=lambda r: (place[r[1]], r[2]))
        present = sorted({place[r[1]] for r in rows})
        for i, row in enumerate(rows):
            rank = sum(place[r[1]] < place[row[1]] for r in rows) + 1
            dense = present.index(place[row[1]]) + 1
            number = {WindowFunction.ROW_NUMBER: i + 1, WindowFunction.RANK: rank, WindowFunction.DENSE_RANK: dense}[
                node.function
            ]
            if number <= node.limit:
                found[*row, number] += 1
    return found


FUNCTIONS = pytest.mark.parametrize("function", [f for f in WindowFunction if f.numbers_rows])
GROUPS = pytest.mark.parametrize(
    ("group", "limit", "order"),
    [((0,), 2, Order(1, True, True)), ((), 5, Order(1, False, False)), ((0,), 1, Order(1, False, True))],
)


@FUNCTIONS
@GROUPS
def test_the_first_rows_of_each_group_equal_its_rows_numbered(
    function: WindowFunction, group: tuple[int, ...], limit: int, order: Order, objects: ObjectStore
) -> None:
    node = GroupTopN(group, (order,), (2,), group, function, limit, TYPES, (*TYPES, "int"))
    rng, bench = random.Random(f"{function} {limit}"), Bench(node, objects)
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    for epoch in range(15):
        changes: list[tuple[Row, int]] = []
        for key in rng.sample(range(50), rng.choice((0, 1, 8, 20)) if epoch else 40):
            if key in live and (rng.random() < 0.8 or epoch > 12):
                changes.append((live.pop(key), -1))
            if key not in live and rng.random() < 0.6:
                live[key] = (rng.choice((None, 0, 1, 2)), rng.choice((None, 1, 1, 2, 3)), key)
                changes.append((live[key], 1))
        rng.shuffle(changes)
        emitted = bench.apply(chunk_of(TYPES, changes))
        assert_netted(emitted, (2,))
        content = integrate(content, emitted)
        assert content == first_rows(node, list(live.values()))


@FUNCTIONS
@GROUPS
def test_append_only_input_keeps_only_the_first_rows_of_each_group(
    function: WindowFunction, group: tuple[int, ...], limit: int, order: Order, objects: ObjectStore
) -> None:
    node = GroupTopN(group, (order,), (2,), group, function, limit, TYPES, (*TYPES, "int"), append_only=True)
    rng, bench = random.Random(f"{function} {limit}"), Bench(node, objects)
    live: list[Row] = []
    content: Counter[Row] = Counter()
    for _ in range(12):
        rows: list[Row] = [
            (rng.choice((None, 0, 1, 2)), rng.choice((None, 1, 1, 2, 3)), len(live) + i)
            for i in range(rng.choice((0, 1, 4, 20)))
        ]
        live += rows
        emitted = bench.apply(chunk_of(TYPES, [(row, 1) for row in rng.sample(rows, len(rows))]))
        assert_netted(emitted, (2,))
        content = integrate(content, emitted)
        assert content == first_rows(node, live)
        (table,) = bench.tables()
        assert sum(rows.num_rows for rows in table.scan()) == len(content)


@GROUPS
def test_a_first_load_sorts_its_rows_once(
    group: tuple[int, ...], limit: int, order: Order, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rows are taken from the rows as they were sorted for the write."""
    node = GroupTopN(group, (order,), (2,), group, WindowFunction.ROW_NUMBER, limit, TYPES, (*TYPES, "int"))
    live: list[Row] = [(n % 5, n * 7 % 11, n) for n in range(400)]
    sorted_rows: list[int] = []
    locate = StateTable.locate_keys

    def locate_counted(table: StateTable, keys: pa.Table) -> LocatedKeys:
        sorted_rows.append(keys.num_rows)
        return locate(table, keys)

    monkeypatch.setattr(StateTable, "locate_keys", locate_counted)
    bench = Bench(node, objects)
    emitted = bench.apply(chunk_of(TYPES, [(row, 1) for row in live]))
    assert integrate(Counter(), emitted) == first_rows(node, live)
    assert sum(sorted_rows) == len(live)
    more: list[Row] = [(n % 5, n * 7 % 11, n) for n in range(400, 500)]
    del sorted_rows[:]
    content = integrate(integrate(Counter(), emitted), bench.apply(chunk_of(TYPES, [(row, 1) for row in more])))
    assert content == first_rows(node, live + more)
    assert sum(sorted_rows) <= len(more) + 2 * 5 * limit, "the new rows, and the first ones of each group"

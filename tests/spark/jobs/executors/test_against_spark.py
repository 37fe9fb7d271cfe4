"""Executors that implement SQL semantics, compared with Spark over the final rows: types, rounding, NULL, NaN, -0.0."""

import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tests.support.jobs.executors.harness import Bench, Row, chunk_of, integrate, pairs_of
from tests.unit.jobs.executors.test_hash_agg import CALLS, KEY, TYPES, agg_node, random_epochs
from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.hash_join import HashJoin, joined_types
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.top_n import TopNNode
from tussock.jobs.logical.nodes import Call, Column, JoinKind
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.types import type_name

pytestmark = pytest.mark.spark

# Spark adds these in doubles and rounds at each step.
FLOAT_SUMS = {i for i, call in enumerate(CALLS) if call.type == "double" and call.function in ("Sum", "Average")}


def _live(seed: int) -> pa.Table:
    """Random rows, without weights."""
    changes = [change for epoch in random_epochs(seed, 9, deletes=False) for change in epoch]
    return chunk_of(TYPES, changes).drop_columns(["w"])


def _weighted(rows: pa.Table, weight: int = 1) -> pa.Table:
    return rows.append_column("w", pa.array([weight] * rows.num_rows, pa.int64()))


def _sql_of(call: Agg) -> str:
    name = {"Average": "avg"}.get(call.function, call.function.lower())
    return f"{name}({'*' if call.arg is None else f'c{call.arg}'})"


def _answer(spark: Any, sql: str, **tables: pa.Table) -> tuple[list[str], list[Row]]:
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    answer = spark.sql(sql).toArrow()
    types = [type_name(f.type) for f in answer.schema]
    return types, [row for row, _ in pairs_of(answer.append_column("w", pa.array([1] * answer.num_rows, pa.int64())))]


def _close(ours: Any, sparks: Any) -> bool:
    if ours is None or sparks is None:
        return ours is sparks
    return ours == sparks or (math.isnan(ours) and math.isnan(sparks)) or math.isclose(ours, sparks, rel_tol=1e-9)


@pytest.mark.parametrize("keys", [(0,), (1,), (0, 9), ()], ids=str)
@pytest.mark.sampled(2)
def test_every_aggregate_equals_sparks(spark: Any, keys: tuple[int, ...], objects: ObjectStore) -> None:
    rows = _live(5)
    # The sum of doubles that differ by 300 decimal orders of magnitude depends on Spark's order, so it is left out.
    rows = rows.set_column(
        5, "c5", pa.array([v if v is None or abs(v) < 1e6 or v != v else 1.0 for v in rows["c5"].to_pylist()])
    )
    chunks = [
        _weighted(rows.slice(0, 50)),
        _weighted(rows.slice(50)),
        _weighted(rows.slice(20, 30), -1),
        _weighted(rows.slice(20, 30)),
    ]
    bench = Bench(agg_node(keys, CALLS, False, False), objects)
    content: Counter[Row] = Counter()
    for chunk in chunks:
        content = integrate(content, bench.apply(chunk))
    columns = [f"c{k}" for k in keys]
    group = f" group by {', '.join(columns)}" if keys else ""
    types, expected = _answer(
        spark, f"select {', '.join([*columns, *map(_sql_of, CALLS)])} from rows{group}", rows=rows
    )
    assert types == list(bench.node.types)
    ours = list(content.elements())
    floats = {len(keys) + i for i in FLOAT_SUMS}
    by_key = {repr(row[: len(keys)]): row for row in expected}  # as text: -0.0 is not 0.0
    assert sorted(map(repr, (row[: len(keys)] for row in ours))) == sorted(by_key)
    for row in ours:
        other = by_key[repr(row[: len(keys)])]
        assert [v for i, v in enumerate(row) if i not in floats] == [v for i, v in enumerate(other) if i not in floats]
        assert all(_close(row[i], other[i]) for i in floats)


@pytest.mark.parametrize(("key", "null_safe"), [(0, False), (1, False), (1, True), (6, False), (9, True), (13, False)])
def test_every_join_equals_sparks(spark: Any, key: int, null_safe: bool, objects: ObjectStore) -> None:
    left, right = _live(6), _live(7)
    bench = Bench(HashJoin(TYPES, TYPES, (key,), (key,), (null_safe,), (KEY,), (KEY,), None, TYPES + TYPES), objects)
    content = integrate(Counter(), bench.apply(_weighted(left.slice(0, 20)), _weighted(right.slice(10))))
    content = integrate(content, bench.apply(_weighted(left.slice(20)), _weighted(right.slice(0, 10))))
    sign = "<=>" if null_safe else "="
    sql = f"select l.c{KEY}, r.c{KEY} from l join r on l.c{key} {sign} r.c{key}"
    _, expected = _answer(spark, sql, l=left, r=right)
    assert Counter((row[KEY], row[len(TYPES) + KEY]) for row in content.elements()) == Counter(expected)


_HOW = {
    "left": "left join",
    "right": "right join",
    "full": "full join",
    "semi": "left semi join",
    "anti": "left anti join",
}


@pytest.mark.parametrize("kind", [k for k in JoinKind if k in _HOW], ids=str)
@pytest.mark.parametrize(
    ("key", "null_safe", "smaller"), [(0, False, False), (0, True, True), (1, False, True), (9, False, False)]
)
@pytest.mark.sampled(2)
def test_every_kind_of_join_equals_sparks_while_both_sides_change(
    spark: Any, kind: JoinKind, key: int, null_safe: bool, smaller: bool, objects: ObjectStore
) -> None:
    condition = (
        Call("LessThan", "boolean", (Column(KEY, "bigint"), Column(len(TYPES) + KEY, "bigint"))) if smaller else None
    )
    types = joined_types(kind, TYPES, TYPES, (key,))
    bench = Bench(HashJoin(TYPES, TYPES, (key,), (key,), (null_safe,), (KEY,), (KEY,), condition, types, kind), objects)
    content: Counter[Row] = Counter()
    held = [Counter[Row](), Counter[Row]()]
    for left, right in zip(
        random_epochs(11, 6, deletes=True)[:-1], random_epochs(12, 6, deletes=True)[:-1], strict=True
    ):
        chunks = chunk_of(TYPES, left), chunk_of(TYPES, right)
        held = [integrate(rows, chunk) for rows, chunk in zip(held, chunks, strict=True)]
        content = integrate(content, bench.apply(*chunks))
    sides = [chunk_of(TYPES, ((row, 1) for row in rows.elements())).drop_columns(["w"]) for rows in held]
    columns = f"l.c{KEY}, r.c{KEY}" if kind.emits_pairs else f"l.c{KEY}"
    on = f"l.c{key} {'<=>' if null_safe else '='} r.c{key}" + (f" and l.c{KEY} < r.c{KEY}" if smaller else "")
    _, expected = _answer(spark, f"select {columns} from l {_HOW[kind]} r on {on}", l=sides[0], r=sides[1])
    places = (KEY, len(TYPES) + KEY) if kind.emits_pairs else (KEY,)
    assert Counter(tuple(row[p] for p in places) for row in content.elements()) == Counter(expected)


@pytest.mark.parametrize("column", [1, 5, 7, 8, 9, 10, 11, 12, 13])
def test_every_order_equals_sparks(spark: Any, column: int, objects: ObjectStore) -> None:
    rows = _live(8)
    order = (Order(column, True, True), Order(KEY, False, False))
    bench = Bench(TopNNode(order, 12, 3, (KEY,), TYPES), objects)
    content = integrate(Counter(), bench.apply(_weighted(rows.slice(0, 9))))
    content = integrate(content, bench.apply(_weighted(rows.slice(9))))
    _, expected = _answer(
        spark, f"select c{KEY} from rows order by c{column} desc nulls last, c{KEY} limit 12 offset 3", rows=rows
    )
    assert sorted(row[KEY] for row in content.elements()) == sorted(row[0] for row in expected)

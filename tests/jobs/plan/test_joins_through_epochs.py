"""Joins of every kind and UNION ALL as views, through whole epochs in this process at three units, against DuckDB over the same rows.

What the executors' own tests can't see is here: stream keys and distributions (views over these views, aggregates and joins above them),
exchanges, the broadcast of NOT IN's facts, and views that are created over rows that are there.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.sql.logical import AggCall, AggFunction, Aggregate, Call, Column, Expr, Field, Join, JoinKind, Plan, Project, Scan, Union
from jobs.sql.statements import Delete
from statestore.meta.store import MetaStore
from tests.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.jobs.plan.catalogs import scan, table, view

Row = tuple[Any, ...]
SMALLER = Call("LessThan", "boolean", (Column(0, "int"), Column(3, "int")))
_SQL = {
    JoinKind.INNER: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "SEMI JOIN",
    JoinKind.ANTI: "ANTI JOIN",
}


def named(plan: Plan) -> Plan:
    """The plan with columns c0, c1, …"""
    columns = tuple(Column(i, f.type) for i, f in enumerate(plan.fields))
    return Project(plan, columns, tuple(Field(f"c{i}", f.type) for i, f in enumerate(plan.fields)))


def join(kind: JoinKind, left: Plan, right: Plan, keys: tuple[int, int], condition: Expr | None = None, null_safe: bool = False) -> Plan:
    pair = Column(keys[0], "int"), Column(keys[1], "int")
    return named(Join(left, right, kind, pair[:1], pair[1:], (null_safe,), condition))


def relation(name: str, width: int) -> Scan:
    return Scan(name, tuple(range(width)), tuple(Field(f"c{i}", "int") for i in range(width)))


def _views() -> dict[str, tuple[Plan, str]]:
    """Name -> plan, and the same in DuckDB's SQL; t and u have columns k, g, a."""
    t, u = scan("t"), scan("u")
    found: dict[str, tuple[Plan, str]] = {}
    for kind, text in _SQL.items():
        columns = "t.*, u.*" if kind.emits_pairs else "t.*"
        found[f"{kind}_plain"] = join(kind, t, u, (1, 1)), f"SELECT {columns} FROM t {text} u ON t.g = u.g"
        smaller = join(kind, t, u, (1, 1), SMALLER, True)
        found[f"{kind}_smaller"] = smaller, f"SELECT {columns} FROM t {text} u ON t.g IS NOT DISTINCT FROM u.g AND t.k < u.k"
        found[f"{kind}_keyed"] = join(kind, t, u, (0, 0)), f"SELECT {columns} FROM t {text} u ON t.k = u.k"
    found["not_in"] = join(JoinKind.NULL_AWARE_ANTI, t, u, (2, 2)), "SELECT * FROM t WHERE a NOT IN (SELECT a FROM u)"
    union = Union((t, u, t), t.fields)
    found["all_rows"] = named(union), "SELECT * FROM t UNION ALL SELECT * FROM u UNION ALL SELECT * FROM t"
    counted = (AggCall(AggFunction.COUNT, "bigint", ()), AggCall(AggFunction.MAX, "int", (Column(0, "int"),)))
    fields = (Field("c0", "int"), Field("c1", "bigint"), Field("c2", "int"))
    for name, width in (("left_plain", 6), ("full_smaller", 6), ("anti_smaller", 3), ("all_rows", 3), ("not_in", 3)):
        grouped = Aggregate(relation(name, width), (Column(1, "int"),), counted, fields)
        found[f"{name}_grouped"] = grouped, f"SELECT c1, count(*), max(c0) FROM {name} GROUP BY c1"
    again = join(JoinKind.FULL, relation("full_plain", 6), relation("left_smaller", 6), (3, 3))
    found["full_again"] = again, "SELECT x.*, y.* FROM full_plain x FULL JOIN left_smaller y ON x.c3 = y.c3"
    both = Union((relation("right_plain", 6), relation("full_keyed", 6)), tuple(Field(f"c{i}", "int") for i in range(6)))
    found["union_of_views"] = both, "SELECT * FROM right_plain UNION ALL SELECT * FROM full_keyed"
    return found


def _expected(held: dict[str, dict[int, Row]], views: dict[str, tuple[Plan, str]]) -> dict[str, Counter[Row]]:
    found: dict[str, Counter[Row]] = {}
    with duckdb.connect() as connection:
        for name, live in held.items():
            columns = [pa.array([row[i] for row in live.values()], pa.int32()) for i in range(3)]
            connection.register(name, pa.table(columns, names=["k", "g", "a"]))
        for name, (plan, sql) in views.items():
            answer = connection.sql(sql).to_arrow_table()
            answer = answer.rename_columns([f"c{i}" for i in range(answer.num_columns)])
            connection.register(name, answer)
            assert answer.num_columns == len(plan.fields), name
            found[name] = Counter(zip(*(c.to_pylist() for c in answer.columns), strict=True))
    return found


def _read(meta: MetaStore, name: str) -> Counter[Row]:
    return Counter(rows(meta, name))


@pytest.mark.parametrize("seed", range(3))
def test_every_view_equals_duckdb_after_every_epoch(seed: int, tmp_path: Path) -> None:
    rng, views = random.Random(seed), _views()
    meta = new_store(tmp_path / "store", units=3)
    append(meta, table("t"), table("u"))
    held: dict[str, dict[int, Row]] = {"t": {}, "u": {}}
    late = [n for n in views if n.startswith(("full_smaller", "not_in", "left_smaller", "full_again", "all_rows"))] if seed else []
    append(meta, *(view(name, plan) for name, (plan, _) in views.items() if name not in late))
    for number in range(7):
        if number == 2:
            append(meta, *(view(name, views[name][0]) for name in late))
        for name, live in held.items():
            if rng.random() < 0.3 and live:
                append(meta, Delete(name, None) if number % 3 == 1 else Delete(name, Call("IsNull", "boolean", (Column(1, "int"),))))
                held[name] = live = {} if number % 3 == 1 else {k: row for k, row in live.items() if row[1] is not None}
            values = (1, 2, 3) if number % 2 else (None, 1, 2, 3)
            new = [(k, rng.choice((None, 1, 2)), rng.choice(values)) for k in rng.sample(range(12), 4)]
            if rng.random() < 0.9:
                insert(meta, name, *new)
                live.update({row[0]: row for row in new})
        epoch(meta)
        expected = _expected(held, views)
        for name in (n for n in views if number >= 2 or n not in late):
            found = _read(meta, name)
            assert found == expected[name], f"{name}, epoch {number}: missing {expected[name] - found}, too many {found - expected[name]}"

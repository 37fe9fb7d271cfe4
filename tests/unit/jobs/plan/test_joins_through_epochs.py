"""Joins of every kind and UNION ALL as views, through whole epochs in this process at three units, compared with
DuckDB.

These tests cover more than the tests of the executors: stream keys and distributions (views over these views,
aggregates and joins that read them), exchanges, places of joins without an equality, the broadcast of NOT IN's facts
and of scalar subqueries' rows, and views created over existing rows.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.executors import hash_join, partial_agg
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Expr,
    Field,
    Filter,
    Join,
    JoinKind,
    Literal,
    Plan,
    Project,
    Scan,
    SingleRow,
    Union,
)
from tussock.jobs.logical.statements import Delete
from tussock.jobs.sql.plan_nodes.join import join_plans
from tussock.jobs.sql.plan_nodes.walk import BoundNode
from tussock.statestore.meta.store import MetaStore

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


def join(
    kind: JoinKind,
    left: Plan,
    right: Plan,
    keys: tuple[int, int],
    condition: Expr | None = None,
    null_safe: bool = False,
) -> Plan:
    pair = Column(keys[0], "int"), Column(keys[1], "int")
    return named(Join(left, right, kind, pair[:1], pair[1:], (null_safe,), condition))


def unequal(kind: JoinKind, left: Plan, right: Plan, condition: Expr | None) -> Plan:
    return named(Join(left, right, kind, (), (), (), condition))


def extreme(function: AggFunction, plan: Plan, column: int) -> Plan:
    """The minimum or maximum of a column: one row."""
    return Aggregate(plan, (), (AggCall(function, "int", (Column(column, "int"),)),), (Field("c0", "int"),))


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
        found[f"{kind}_smaller"] = (
            smaller,
            f"SELECT {columns} FROM t {text} u ON t.g IS NOT DISTINCT FROM u.g AND t.k < u.k",
        )
        found[f"{kind}_keyed"] = join(kind, t, u, (0, 0)), f"SELECT {columns} FROM t {text} u ON t.k = u.k"
    found["not_in"] = join(JoinKind.NULL_AWARE_ANTI, t, u, (2, 2)), "SELECT * FROM t WHERE a NOT IN (SELECT a FROM u)"
    for kind, text in _SQL.items():
        columns = "t.*, u.*" if kind.emits_pairs else "t.*"
        found[f"{kind}_unequal"] = unequal(kind, t, u, SMALLER), f"SELECT {columns} FROM t {text} u ON t.k < u.k"
    found["every_pair"] = unequal(JoinKind.INNER, t, u, None), "SELECT t.*, u.* FROM t CROSS JOIN u"
    found["all_or_none"] = unequal(JoinKind.SEMI, t, u, None), "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u)"
    exists = "EXISTS (SELECT 1 FROM u WHERE u.g = t.g"
    found["exists_plain"] = join(JoinKind.EXISTENCE, t, u, (1, 1)), f"SELECT t.*, {exists}) FROM t"
    found["exists_smaller"] = (
        join(JoinKind.EXISTENCE, t, u, (1, 1), SMALLER),
        f"SELECT t.*, {exists} AND t.k < u.k) FROM t",
    )
    found["exists_unequal"] = (
        unequal(JoinKind.EXISTENCE, t, u, SMALLER),
        "SELECT t.*, EXISTS (SELECT 1 FROM u WHERE t.k < u.k) FROM t",
    )
    found["single_keyed"] = join(JoinKind.SINGLE, t, u, (0, 0)), "SELECT t.*, u.* FROM t LEFT JOIN u ON t.k = u.k"
    same = [Call("EqualTo", "boolean", (Column(i, "int"), Column(i + 3, "int"))) for i in (1, 2)]
    maybe = [Call("Or", "boolean", (e, Call("IsNull", "boolean", (e,)))) for e in same]
    both_sides = BoundNode(t, (0, 1, 2)), BoundNode(u, (3, 4, 5))
    asked = named(join_plans(*both_sides, JoinKind.EXISTENCE, maybe[1:], None).plan)
    found["not_in_value"] = asked, "SELECT t.*, EXISTS (SELECT 1 FROM u WHERE t.a = u.a OR (t.a = u.a) IS NULL) FROM t"
    several = (
        "NOT EXISTS (SELECT 1 FROM u WHERE (t.a = u.a OR (t.a = u.a) IS NULL) AND (t.g = u.g OR (t.g = u.g) IS NULL))"
    )
    found["not_in_several"] = (
        named(join_plans(*both_sides, JoinKind.ANTI, maybe, None).plan),
        f"SELECT t.* FROM t WHERE {several}",
    )
    least, only = (
        extreme(AggFunction.MIN, u, 2),
        SingleRow(Filter(u, Call("EqualTo", "boolean", (Column(0, "int"), Literal(5, "int"))))),
    )
    above = Call("GreaterThan", "boolean", (Column(0, "int"), Column(3, "int")))
    found["above_least"] = unequal(JoinKind.SEMI, t, least, above), "SELECT * FROM t WHERE k > (SELECT min(a) FROM u)"
    found["beside_least"] = unequal(JoinKind.INNER, t, least, None), "SELECT t.*, (SELECT min(a) FROM u) FROM t"
    found["least_beside"] = unequal(JoinKind.INNER, least, t, None), "SELECT (SELECT min(a) FROM u), t.* FROM t"
    found["beside_only"] = (
        unequal(JoinKind.INNER, t, only, None),
        "SELECT t.*, o.* FROM t LEFT JOIN (SELECT * FROM u WHERE k = 5) o ON true",
    )
    both = unequal(JoinKind.INNER, extreme(AggFunction.MAX, t, 0), least, None)
    found["least_and_most"] = both, "SELECT (SELECT max(k) FROM t), (SELECT min(a) FROM u)"
    fewer = Call("LessThan", "boolean", (Column(1, "bigint"), Call("Cast", "bigint", (Column(2, "int"),), "ANSI")))
    ends = unequal(JoinKind.SEMI, counted(t, 1), extreme(AggFunction.MAX, t, 2), fewer)
    found["groups_below"] = ends, "SELECT g, count(*) FROM t GROUP BY g HAVING count(*) < (SELECT max(a) FROM t)"
    union = Union((t, u, t), t.fields)
    found["all_rows"] = named(union), "SELECT * FROM t UNION ALL SELECT * FROM u UNION ALL SELECT * FROM t"
    calls = (AggCall(AggFunction.COUNT, "bigint", ()), AggCall(AggFunction.MAX, "int", (Column(0, "int"),)))
    fields = (Field("c0", "int"), Field("c1", "bigint"), Field("c2", "int"))
    few = (AggCall(AggFunction.COUNT, "bigint", ()), AggCall(AggFunction.SUM, "bigint", (Column(0, "int"),), "ANSI"))
    for name, pairs in (("plain", (1, 1)), ("keyed", (0, 0))):
        own = Aggregate(
            join(JoinKind.LEFT, t, u, pairs), (Column(pairs[0], "int"),), few, (*fields[:2], Field("c2", "bigint"))
        )
        where = "t.k = u.k" if name == "keyed" else "t.g = u.g"
        key = "t.k" if name == "keyed" else "t.g"
        found[f"summed_{name}"] = own, f"SELECT {key}, count(*), sum(t.k) FROM t LEFT JOIN u ON {where} GROUP BY {key}"
        apart = Aggregate(
            join(JoinKind.LEFT, t, u, pairs), (Column(2, "int"),), few, (*fields[:2], Field("c2", "bigint"))
        )
        found[f"summed_apart_{name}"] = (
            apart,
            f"SELECT t.a, count(*), sum(t.k) FROM t LEFT JOIN u ON {where} GROUP BY t.a",
        )
    for name, width in (
        ("left_plain", 6),
        ("full_smaller", 6),
        ("anti_smaller", 3),
        ("all_rows", 3),
        ("not_in", 3),
        ("left_unequal", 6),
        ("above_least", 3),
    ):
        grouped = Aggregate(relation(name, width), (Column(1, "int"),), calls, fields)
        found[f"{name}_grouped"] = grouped, f"SELECT c1, count(*), max(c0) FROM {name} GROUP BY c1"
    again = join(JoinKind.FULL, relation("full_plain", 6), relation("left_smaller", 6), (3, 3))
    found["full_again"] = again, "SELECT x.*, y.* FROM full_plain x FULL JOIN left_smaller y ON x.c3 = y.c3"
    rows = Union(
        (relation("right_plain", 6), relation("full_keyed", 6)), tuple(Field(f"c{i}", "int") for i in range(6))
    )
    found["union_of_views"] = rows, "SELECT * FROM right_plain UNION ALL SELECT * FROM full_keyed"
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


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.deep), pytest.param(1, marks=pytest.mark.deep), 2])
@pytest.mark.sampled(2)
def test_every_view_equals_duckdb_after_every_epoch(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed == 2:  # pieces of two pairs, so that the readers of joins receive many pieces
        monkeypatch.setattr(hash_join, "_LEAST_PAIRS", 2)
        monkeypatch.setattr(hash_join, "PIECE_BYTES", 1)
        monkeypatch.setattr(partial_agg, "MERGED_ROWS", 4)
        monkeypatch.setattr(partial_agg, "_PART_ROWS", 2)
        monkeypatch.setattr(partial_agg, "_FEWER", 1)
    rng, views = random.Random(seed), _views()
    meta = new_store(tmp_path / "store", units=3)
    append(meta, table("t"), table("u"))
    held: dict[str, dict[int, Row]] = {"t": {}, "u": {}}
    late = (
        [n for n in views if n.startswith(("full_smaller", "not_in", "left_smaller", "full_again", "all_rows"))]
        if seed
        else []
    )
    append(meta, *(view(name, plan) for name, (plan, _) in views.items() if name not in late))
    for number in range(5):
        if number == 2:
            append(meta, *(view(name, views[name][0]) for name in late))
        for name, live in held.items():
            if rng.random() < 0.3 and live:
                append(
                    meta,
                    Delete(name, None)
                    if number % 3 == 1
                    else Delete(name, Call("IsNull", "boolean", (Column(1, "int"),))),
                )
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
            assert found == expected[name], (
                f"{name}, epoch {number}: missing {expected[name] - found}, too many {found - expected[name]}"
            )

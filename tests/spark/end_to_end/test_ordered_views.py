"""Views with an ORDER BY, through random histories.

Spark sorts the same rows. Partial reads are checked for the number of rows that they load.
"""

import math
import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tussock.jobs import cli
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.reading import ordered_query
from tussock.jobs.reading.reader import ViewPart, key_of, scan_ordered
from tussock.jobs.session import Session
from tussock.jobs.settings.home import Home
from tussock.jobs.sinks.outline import outline_of
from tussock.jobs.sources.base import Restated
from tussock.jobs.statements import statement_maker
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.meta.catalog import Relation

pytestmark = pytest.mark.spark

DDL = "id int, a int, b string, c double, d decimal(6,2), e date, f boolean, g array<int>"
VALUES: dict[str, Sequence[Any]] = {
    "a": (None, -5, 0, 3, 2**31 - 1),
    "b": (None, "", "a", "a\0b", "B", "é", "\U0001f600"),
    "c": (None, -math.inf, -0.0, 0.0, 1.5, math.nan),
    "d": (None, Decimal("-1.50"), Decimal("0.00"), Decimal("9999.99")),
    "e": (None, date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 1)),
    "f": (None, False, True),
    "g": (None, [], [None], [1], [1, 2]),
}
#: By name: a SELECT up to its ORDER BY, the order, and the view's key, which orders equal rows.
VIEWS = {
    "by_a": ("SELECT id, a, b FROM t", "a DESC NULLS FIRST, b", "id"),
    "by_c": ("SELECT c, id FROM t WHERE f", "c", "id"),
    "hidden": ("SELECT b FROM t", "d DESC, length(b) NULLS LAST, e", "id"),
    "by_array": ("SELECT g, id FROM t", "g DESC", "id"),
    "by_spark": ("SELECT id, b FROM t", "soundex(b), f DESC", "id"),  # it has no kernel
    "grouped": ("SELECT b, count(*) AS n, sum(d) AS s FROM t GROUP BY b", "n DESC, sum(d) NULLS LAST", "b"),
    "joined": ("SELECT x.id, y.e FROM t x JOIN t y ON x.a = y.id", "y.e DESC NULLS FIRST", "y.id, x.id"),
    "nested": ("SELECT id, c FROM (SELECT * FROM t ORDER BY a, id LIMIT 9)", "c DESC", "id"),
    "over": ("SELECT a, max(b) AS m FROM by_a GROUP BY a", "m NULLS LAST", "a"),
}
#: Orders that Spark passes through, and a LIMIT.
THROUGH = {
    "filtered": (
        "SELECT id, e FROM (SELECT * FROM t ORDER BY e) WHERE id > 3",
        "SELECT id, e FROM t WHERE id > 3 ORDER BY e, id",
    ),
    "top": (
        "SELECT b, id FROM t ORDER BY d DESC NULLS LAST LIMIT 4",
        "SELECT b, id FROM t ORDER BY d DESC NULLS LAST, id LIMIT 4",
    ),
    "skipped": ("SELECT id FROM t ORDER BY d, f OFFSET 3", "SELECT id FROM t ORDER BY d, f, id OFFSET 3"),
}


def texts(rows: Sequence[Sequence[Any]]) -> list[str]:
    return [repr(tuple(row)) for row in rows]


def read(session: Session, view: str, epoch: int | None = None) -> list[str]:
    return texts([tuple(row.values()) for row in session.read(view, epoch=epoch).to_pylist()])


def collected(spark: SparkSession, sql: str) -> list[str]:
    return texts(spark.sql(sql).collect())


@pytest.fixture
def beside(spark: SparkSession) -> SparkSession:
    """A separate Spark session, for the expected answers."""
    return spark.newSession()


def history(seed: int, epochs: int, session: Session, beside: SparkSession) -> None:
    rng = random.Random(seed)
    session.execute(f"CREATE TABLE t ({DDL}, PRIMARY KEY (id))")
    for name, (select, order, _) in VIEWS.items():
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select} ORDER BY {order}")
    for name, (select, _) in THROUGH.items():
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    live: dict[int, tuple[Any, ...]] = {}
    seen: dict[int, list[str]] = {}
    types = [
        pa.int32(),
        pa.int32(),
        pa.string(),
        pa.float64(),
        pa.decimal128(6, 2),
        pa.date32(),
        pa.bool_(),
        pa.list_(pa.int32()),
    ]
    for _ in range(epochs):
        picked = rng.sample(range(24), rng.choice((1, 12)))
        gone = [i for i in picked if i in live and rng.random() < 0.4]
        come = [(i, *(rng.choice(values) for values in VALUES.values())) for i in picked if i not in gone]
        if gone:
            session.execute(f"DELETE FROM t WHERE id IN ({', '.join(map(str, gone))})")
        columns = zip(("id", *VALUES), types, strict=True)
        session.insert("t", pa.table({n: pa.array([r[i] for r in come], kind) for i, (n, kind) in enumerate(columns)}))
        live = {i: row for i, row in live.items() if i not in gone} | {row[0]: row for row in come}
        epoch = session.flush().epoch
        beside.createDataFrame(list(live.values()), DDL).createOrReplaceTempView("t")
        beside.sql("SELECT id, a, b FROM t").createOrReplaceTempView("by_a")
        for name, (select, order, ties) in VIEWS.items():
            assert read(session, name) == collected(beside, f"{select} ORDER BY {order}, {ties}"), (
                f"{name}, seed {seed}"
            )
        for name, (_, expected) in THROUGH.items():
            assert read(session, name) == collected(beside, expected), f"{name}, seed {seed}"
        seen[epoch] = read(session, "by_a")
    for epoch, rows in seen.items():
        assert read(session, "by_a", epoch) == rows


def test_rows_are_in_sparks_order_at_every_epoch(beside: SparkSession, spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "store"), spark, runner="auto") as session:
        history(1, 3, session, beside)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 22))
def test_rows_are_in_sparks_order_at_every_epoch_of_many_histories(
    seed: int, beside: SparkSession, spark: SparkSession, tmp_path: Path
) -> None:
    with Session(str(tmp_path / "store"), spark, units=seed % 3 + 1) as session:
        history(seed, 6, session, beside)


# --- reads of a part ----------------------------------------------------------------------------

#: Queries of `v` (`ORDER BY a DESC, b` over 5,000 rows), each with the most rows that it may load; None: all rows.
#: Each order names every key column, so that the answer is unique.
QUERIES = {
    "SELECT * FROM v": 5000,
    "SELECT id, b FROM v ORDER BY a DESC, b, id LIMIT 7": 7,
    "SELECT id, b FROM v ORDER BY a, b DESC, id DESC LIMIT 7 OFFSET 3": 10,
    "SELECT id FROM v WHERE a = 11 ORDER BY b, id LIMIT 5": 5,
    "SELECT id, a FROM v WHERE a > 90 AND a <= 92 ORDER BY a, b, id": 125,
    "SELECT count(*), min(id) FROM v WHERE a >= 95": 200,
    "SELECT count(*), min(id) FROM v WHERE a >= 95 OR a < 3": None,
    "SELECT a, count(*) FROM v WHERE a < 2 GROUP BY a ORDER BY a": 100,
    "SELECT id FROM v WHERE a = 5 AND b >= 'x5' AND id % 2 = 1 ORDER BY id LIMIT 2": 50,
    "SELECT id FROM v WHERE a IS NULL ORDER BY b, id LIMIT 2": 2,
    "SELECT id FROM v WHERE a <=> NULL AND b = 'x1' ORDER BY id": 60,
    "SELECT x.id FROM (SELECT * FROM v ORDER BY a DESC, b, id LIMIT 3) x JOIN t USING (id) ORDER BY id": 3,
    "SELECT a FROM named WHERE a = 3 LIMIT 2": 2,
    "SELECT id FROM v WHERE b = 'x1' ORDER BY a DESC, b, id LIMIT 3": None,
    "SELECT id FROM v ORDER BY b, id LIMIT 3": None,
    "SELECT x.id FROM v x JOIN v y ON x.id = y.id WHERE x.a = 3 ORDER BY x.id": None,
    "SELECT id FROM v WHERE a = (SELECT max(a) FROM v) ORDER BY id": None,
    "SELECT count(*) FROM v WHERE a + 1 > 95": None,
}


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("ordered") / "store")
    with Session(path, spark, runner="local") as session:
        session.execute("CREATE TABLE t (id int, a int, b string, PRIMARY KEY (id))")
        session.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM t ORDER BY a DESC, b; CREATE VIEW named AS SELECT a FROM v"
        )
        numbers = range(5000)
        a = pa.array([None if n % 100 == 99 else n % 100 for n in numbers], pa.int32())
        session.insert(
            "t", pa.table({"id": pa.array(numbers, pa.int32()), "a": a, "b": [f"x{n % 7}" for n in numbers]})
        )
        session.flush()
    return path


@pytest.mark.deep
def test_reads_of_a_part_equal_spark_and_read_only_their_rows(
    store: str, spark: SparkSession, beside: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, ViewPart] = {}

    def noted(*args: Any) -> dict[str, ViewPart]:
        asked.clear()
        asked.update(whole(*args))
        return dict(asked)

    whole = ordered_query.ordered_parts
    monkeypatch.setattr(ordered_query, "ordered_parts", noted)
    assert not hasattr(statement_maker, "ordered_parts")  # it imports the function at each call
    rows = [(n, None if n % 100 == 99 else n % 100, f"x{n % 7}") for n in range(5000)]
    frame = beside.createDataFrame(rows, "id int, a int, b string").cache()
    frame.createOrReplaceTempView("t")
    frame.createOrReplaceTempView("v")
    frame.createOrReplaceTempView("named")
    with Session(store, spark, create=False) as session:
        version = session.meta.read_latest()
        view = find_relation(version.catalog, "v")
        for sql, most in QUERIES.items():
            found = texts([tuple(row.values()) for row in session.query(sql).to_pylist()])
            expected = collected(beside, sql if sql != "SELECT * FROM v" else f"{sql} ORDER BY a DESC, b, id")
            assert found == expected, sql
            assert ("v" in asked) == (most is not None), sql
            if most is not None:
                parts = scan_ordered(session.meta.objects, version, view, version.published, asked["v"])
                assert sum(part.num_rows for part in parts) <= most, sql


#: Constants of the columns of `VALUES`, in SQL.
CONSTANTS = {
    "a": ("-5", "0", "3", "2147483647", "7"),
    "b": ("''", "'a'", "'a\\0b'", "'B'", "'é'", "'zz'"),
    "c": ("-0.0D", "1.5D", "double('NaN')", "double('-Infinity')", "0.3D"),
    "d": ("-1.50", "0", "9999.99", "0.005"),
    "e": ("DATE'0001-01-01'", "DATE'1969-12-31'", "DATE'2026-01-01'", "DATE'2000-01-01'"),
}


def random_query(rng: random.Random, order: Sequence[tuple[str, str]]) -> str:
    """A query of `v` with a unique answer: conditions on any columns, in any order, with a limit, or an aggregate.

    `order`: the order of the view, by column and direction, including the place of NULL.
    """
    conditions = []
    for column, _ in rng.sample(order, rng.randrange(len(order) + 1)):
        value, other = rng.choice(CONSTANTS[column]), rng.choice(CONSTANTS[column])
        shapes = [
            "= {0}",
            "= {0}",
            "<=> {0}",
            "< {0}",
            "<= {0}",
            "> {0}",
            ">= {0}",
            "BETWEEN {0} AND {1}",
            "IN ({0}, {1})",
            "<> {0}",
        ]
        shape = rng.choice([*shapes, "IS NULL", "IS NOT NULL", "<=> NULL"]).format(value, other)
        conditions.append(f"{column} {shape}" if rng.random() < 0.8 else f"NOT ({column} {shape})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if rng.random() < 0.2:
        return f"SELECT count(*) AS n, sum(id) AS s FROM v{where}"
    turned = {"ASC": "DESC", "DESC": "ASC", "FIRST": "LAST", "LAST": "FIRST"}
    way = rng.choice(("along", "against", "across"))
    named = list(order[: rng.randrange(len(order) + 1)] if way != "across" else rng.sample(order, len(order)))
    if way == "against":
        named = [
            (column, " ".join(turned.get(word, word) for word in direction.split())) for column, direction in named
        ]
    by = ", ".join([*(f"{column} {direction}" for column, direction in named), "id DESC" if way == "against" else "id"])
    end = f" LIMIT {rng.choice((0, 1, 4, 50))}" if rng.random() < 0.7 else ""
    return (
        f"SELECT id, {named[0][0] if named else 'a'} AS x FROM v{where} "
        f"ORDER BY {by}{end}{' OFFSET 2' if rng.random() < 0.2 else ''}"
    )


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(12))
def test_random_reads_are_as_spark_s(seed: int, beside: SparkSession, spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(seed)
    order = [
        (c, f"{rng.choice(('ASC', 'DESC'))} NULLS {rng.choice(('FIRST', 'LAST'))}")
        for c in rng.sample(list(CONSTANTS), 3)
    ]
    rows = [(i, *(rng.choice(VALUES[column]) for column in CONSTANTS)) for i in range(200)]
    ddl = ", ".join(DDL.split(", ")[:6])
    beside.createDataFrame(rows, ddl).createOrReplaceTempView("v")
    types = [pa.int32(), pa.int32(), pa.string(), pa.float64(), pa.decimal128(6, 2), pa.date32()]
    with Session(str(tmp_path / "store"), spark, runner="local", units=seed % 3 + 1) as session:
        session.execute(f"CREATE TABLE t ({ddl}, PRIMARY KEY (id))")
        session.execute(
            f"CREATE MATERIALIZED VIEW v AS SELECT * FROM t ORDER BY {', '.join(f'{c} {d}' for c, d in order)}"
        )
        columns = zip(("id", *CONSTANTS), types, strict=True)
        session.insert("t", pa.table({n: pa.array([r[i] for r in rows], kind) for i, (n, kind) in enumerate(columns)}))
        session.flush()
        for _ in range(25):
            sql = random_query(rng, order)
            assert texts([tuple(row.values()) for row in session.query(sql).to_pylist()]) == collected(beside, sql), sql


# --- the life of a view -------------------------------------------------------------------------


def test_an_ordered_view_lives_as_any_other(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Restated files, moved vnodes, compaction, earlier epochs, changes, verification, a key outside the order."""
    files, path = tmp_path / "files", str(tmp_path / "store")
    files.mkdir()
    (files / "1.csv").write_text("k,v\n1,5\n2,9\n3,\n")
    with Session(path, spark, units=2) as session:
        session.execute(f"CREATE SOURCE s (k int, v int) USING csv OPTIONS (path '{files}', header 'true')")
        session.execute("CREATE MATERIALIZED VIEW o AS SELECT k, sum(v) AS v FROM s GROUP BY k ORDER BY v DESC")
        first = session.flush().epoch
        (files / "2.csv").write_text("k,v\n1,6\n4,7\n")
        second = session.flush().epoch
        assert read(session, "o", first) == ["(2, 9)", "(1, 5)", "(3, None)"]
        assert read(session, "o", second) == read(session, "o") == ["(1, 11)", "(2, 9)", "(4, 7)", "(3, None)"]
        changes = session.changes("o", first, second).to_pylist()
        assert sorted((c["k"], c["v"], c["_change_type"]) for c in changes) == [
            (1, 5, "delete"),
            (1, 11, "insert"),
            (4, 7, "insert"),
        ]
        compact_store(session.meta)
        (files / "1.csv").write_text("k,v\n1,5\n2,1\n3,20\n")
        session.restate("s", Restated(str(files / "1.csv")))
        assert read(session, "o") == ["(3, 20)", "(1, 11)", "(4, 7)", "(2, 1)"]
        at = f"SELECT * FROM o VERSION AS OF {second} LIMIT 2"
        assert [tuple(r.values()) for r in session.query(at).to_pylist()] == [(1, 11), (2, 9)]
        assert [tuple(r.values()) for r in session.query("SELECT * FROM o", epoch=second).to_pylist()][:2] == [
            (1, 11),
            (2, 9),
        ]
        assert {v.verdict for v in session.verify().views} == {"equal"}
        relation: Relation = find_relation(session.meta.read_latest().catalog, "o")
        assert key_of(relation) == (0,)
        explained = session.execute("EXPLAIN CREATE MATERIALIZED VIEW p AS SELECT k, v FROM o ORDER BY v DESC, k")[
            0
        ].table
        assert explained is not None
        text = "\n".join(explained["plan"].to_pylist())
        assert "Materialize key=[c0] order=[c1 desc nulls last, c0 nulls first]" in text
        assert "key=[c1 desc, c0]" in text
    assert cli.main(["read", "--store", path, "o", "--csv"]) == 0
    assert capsys.readouterr().out.split()[1:] == ["3,20", "1,11", "4,7", "2,1"]


def test_another_order_is_a_rebuild_in_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    script = "CREATE TABLE t (k int, v int, PRIMARY KEY (k)); CREATE MATERIALIZED VIEW o AS SELECT k, v FROM t{};"
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        session.apply([(tmp_path / "views.sql", script.format(" ORDER BY v"))])
        session.execute("INSERT INTO t VALUES (1, 3), (2, 1), (3, 2)")
        session.flush()
        assert read(session, "o") == ["(2, 1)", "(3, 2)", "(1, 3)"]
        for order, expected in (
            (" ORDER BY v DESC", [1, 3, 2]),
            (" ORDER BY k DESC", [3, 2, 1]),
            (" ORDER BY k", [1, 2, 3]),
            ("", None),
        ):
            planned = session.plan([(tmp_path / "views.sql", script.format(order))])
            (step,) = [step for step in planned.steps if step.what.endswith(" o")]
            assert (str(step.action), step.rebuilt) == ("change", True)
            assert any("ORDER BY" in line for line in step.differences)
            session.apply([(tmp_path / "views.sql", script.format(order))])
            session.flush()
            found = session.read("o")["k"].to_pylist()
            assert found == expected if expected else sorted(found) == [1, 2, 3]
        assert not session.plan([(tmp_path / "views.sql", script.format(""))]).pending


def test_the_order_is_not_part_of_the_views_key_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    """A row that moves within the order is the same row for a published table, a suite and a verification."""
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        session.execute(
            "CREATE TABLE t (k int, v int, PRIMARY KEY (k)); "
            "CREATE MATERIALIZED VIEW o AS SELECT v, k FROM t ORDER BY v"
        )
        session.execute("INSERT INTO t VALUES (1, 3)")
        session.flush()
        relation = find_relation(session.meta.read_latest().catalog, "o")
        assert outline_of(relation, Home("here", "there", "mark")).key == ("k",)

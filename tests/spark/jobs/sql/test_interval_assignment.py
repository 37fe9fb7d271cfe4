"""Intervals of other units in a table's columns.

INSERT, UPDATE, MERGE and DEFAULT accept and refuse the same ones as Spark.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.jobs.sql.fixtures import FORMATS
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.session import Session
from tussock.jobs.sql.binder import Binder
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind
from tussock.statestore.types import INTERVALS, MONTH_INTERVALS

pytestmark = pytest.mark.spark

LITERALS = {
    "interval day": "INTERVAL '-1' DAY",
    "interval hour": "INTERVAL '26' HOUR",
    "interval minute": "INTERVAL '-93' MINUTE",
    "interval second": "INTERVAL '4000.5' SECOND",
    "interval day to hour": "INTERVAL '1 2' DAY TO HOUR",
    "interval day to minute": "INTERVAL '-1 2:03' DAY TO MINUTE",
    "interval day to second": "INTERVAL '-1 2:03:04.5' DAY TO SECOND",
    "interval hour to minute": "INTERVAL '2:03' HOUR TO MINUTE",
    "interval hour to second": "INTERVAL '2:03:04' HOUR TO SECOND",
    "interval minute to second": "INTERVAL '3:04' MINUTE TO SECOND",
    "interval year": "INTERVAL '2' YEAR",
    "interval month": "INTERVAL '-14' MONTH",
    "interval year to month": "INTERVAL '1-2' YEAR TO MONTH",
}
KINDS = tuple(LITERALS)
PAIRS = [(given, wanted) for group in (INTERVALS, MONTH_INTERVALS) for given in group for wanted in group]
FEW = [PAIRS[i] for i in range(0, len(PAIRS), 27)]
T = CreateTable("t", (Field("i", "int"), *(Field(f"c{n}", kind) for n, kind in enumerate(KINDS))), (0,))
NESTED = CreateTable(
    "nested", (Field("i", "int"), *(Field(f"c{n}", f"array<{kind}>") for n, kind in enumerate(KINDS))), (0,)
)


@pytest.fixture(scope="module")
def own_binder(spark: SparkSession) -> Binder:
    relations = [
        Relation(
            number,
            table.name,
            RelationKind.TABLE,
            tuple(ColumnSpec(f.name, f.type) for f in table.fields),
            msgspec.Raw(msgspec.json.encode({"statement": table})),
        )
        for number, table in enumerate((T, NESTED), 1)
    ]
    return Binder(spark, relations, "UTC", FORMATS)


@pytest.fixture(scope="module")
def judge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with a table for each kind of interval, `one0`, …, and for arrays of it, `many0`, …."""
    where: Path = tmp_path_factory.mktemp("intervals")
    names = [(f"{name}{n}", kind) for n, k in enumerate(KINDS) for name, kind in (("one", k), ("many", f"array<{k}>"))]
    for name, kind in names:
        spark.sql(f"CREATE TABLE {name} (c {kind}) USING parquet LOCATION '{where / name}'")
    yield spark
    for name, _ in names:
        spark.sql(f"DROP TABLE {name}")


def takes(spark: SparkSession, sql: str) -> bool:
    """Whether Spark's analyzer accepts a statement. It is not run."""
    state = spark._jsparkSession.sessionState()
    skip = getattr(getattr(spark._jvm, "org.apache.spark.sql.execution.CommandExecutionMode$"), "MODULE$").SKIP()
    try:
        state.executePlan(state.sqlParser().parsePlan(sql), skip).analyzed()
    except PySparkException:
        return False
    return True


def binds(binder: Binder, sql: str) -> bool:
    try:
        binder.bind(sql)
    except SqlError as err:
        assert "cast it explicitly" in str(err)  # noqa: PT017
        return False
    return True


def compare(pairs: Sequence[tuple[str, str]], binder: Binder, spark: SparkSession) -> None:
    for given, wanted in pairs:
        n, value = KINDS.index(wanted), LITERALS[given]
        stored = takes(spark, f"INSERT INTO one{n} VALUES ({value})")
        assert stored == (given == wanted)
        for sql in (
            f"INSERT INTO t (i, c{n}) VALUES (1, {value})",
            f"INSERT INTO t (i, c{n}) SELECT 1, {value}",
            f"UPDATE t SET c{n} = {value} WHERE i = 1",
            f"UPDATE t SET c{n} = c{KINDS.index(given)}",
            f"MERGE INTO t USING (SELECT 1 AS k, {value} AS v) ON i = k WHEN NOT MATCHED THEN INSERT (i, "
            f"c{n}) VALUES (k, v)",
        ):
            assert binds(binder, sql) == stored, sql
        many = takes(spark, f"INSERT INTO many{n} VALUES (array({value}))")
        assert binds(binder, f"INSERT INTO nested (i, c{n}) VALUES (1, array({value}))") == many


def test_statements_take_intervals_as_spark_s_insert_does(own_binder: Binder, judge: SparkSession) -> None:
    compare(FEW, own_binder, judge)


@pytest.mark.deep
def test_statements_take_all_pairs_of_intervals_as_spark_s_insert_does(own_binder: Binder, judge: SparkSession) -> None:
    compare(PAIRS, own_binder, judge)


def compare_defaults(pairs: Sequence[tuple[str, str]], spark: SparkSession, tmp_path: Path) -> None:
    """For rows of an INSERT with and without the column, of an UPDATE and of a MERGE."""
    texts = ", ".join(f"CAST(c{n} AS string)" for n in range(len(pairs)))
    columns = ", ".join(f"c{n} {wanted} DEFAULT {LITERALS[given]}" for n, (given, wanted) in enumerate(pairs))
    spark.sql(f"CREATE TABLE defaults (i int, {columns}) USING parquet LOCATION '{tmp_path / 'defaults'}'")
    try:
        spark.sql("INSERT INTO defaults (i) VALUES (1)")
        expected = tuple(spark.sql(f"SELECT {texts} FROM defaults").first() or ())
    finally:
        spark.sql("DROP TABLE defaults")
    with Session(str(tmp_path / "store"), spark, runner="local") as session:
        session.execute(
            f"CREATE TABLE t (i int, {columns}, PRIMARY KEY (i)); INSERT INTO t (i) VALUES (1); "
            f"INSERT INTO t (i) SELECT 2"
        )
        defaults = ", ".join(["DEFAULT"] * len(pairs))
        session.execute(f"INSERT INTO t VALUES (3, {defaults})")
        session.execute(f"INSERT INTO t VALUES (4, {', '.join(['NULL'] * len(pairs))})")
        session.flush()
        session.execute(f"UPDATE t SET {', '.join(f'c{n} = DEFAULT' for n in range(len(pairs)))} WHERE i = 4")
        session.flush()
        session.execute(
            "MERGE INTO t USING (SELECT 5 AS k) ON i = k WHEN NOT MATCHED THEN INSERT (i, c0) VALUES (k, DEFAULT)"
        )
        session.flush()
        found = [tuple(row.values()) for row in session.query(f"SELECT {texts} FROM t ORDER BY i").to_pylist()]
    assert found == [expected] * 5


def test_a_default_of_other_units_is_taken_and_cast_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    compare_defaults(FEW, spark, tmp_path)


@pytest.mark.deep
def test_a_default_of_any_units_is_taken_and_cast_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    compare_defaults(PAIRS, spark, tmp_path)


@pytest.mark.parametrize(
    ("kind", "default", "taken"),
    [
        ("interval day", "INTERVAL '1' MONTH", False),
        ("interval day", "1", True),
        ("interval month", "14", True),
        ("interval day", "DATE '2020-01-01'", False),
        ("interval hour", "true", False),
        ("array<interval day to second>", "array(INTERVAL '1' DAY)", True),
        ("map<int, interval year>", "map(1, INTERVAL '14' MONTH)", True),
        ("tinyint", "3L", True),
        ("boolean", "1", False),
    ],
)
def test_a_default_of_another_type_is_taken_or_refused_as_by_spark(
    kind: str, default: str, taken: bool, own_binder: Binder, judge: SparkSession
) -> None:
    statement = f"CREATE TABLE other (c {kind} DEFAULT {default})"
    assert takes(judge, f"{statement} USING parquet") == taken
    if taken:
        own_binder.bind(statement)
    else:
        with pytest.raises(SqlError, match="does not accept"):
            own_binder.bind(statement)

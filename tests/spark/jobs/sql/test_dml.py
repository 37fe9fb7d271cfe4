"""INSERT, compared with Spark's INSERT into a table of the same columns: the same rows, or both refuse."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.jobs.sql.fixtures import ACCOUNTS
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.key_columns import NullKeyError
from tussock.jobs.logical.statements import BoundInsert, BoundInsertSelect
from tussock.jobs.sql.binder import Binder
from tussock.jobs.sql.dml import rows_to_insert

pytestmark = pytest.mark.spark

_VALUES = [
    "(1, 'ann', 1.239, TIMESTAMP'2020-01-01 00:00:00', 0.5)",
    "(1 + 1, upper('bo'), -0.005, TIMESTAMP_NTZ'2020-06-01 12:00:00', 1)",
    "(3Y, NULL, 7, DATE'2020-02-29', CAST('NaN' AS DOUBLE)), (4, '', 0, NULL, -0.0D)",
    "(5, 17, 12345678.901, NULL, 0.1BD)",
    "(6, 'x', 123456789012, NULL, NULL)",
    "(9.7D, 'x', 1, NULL, NULL)",
    "(1e30D, 'x', 1, NULL, NULL)",
    "(10, true, 1, NULL, 1)",
    "(11, 'x', true, NULL, 1)",
    "(12, 'x')",
]


@pytest.fixture(scope="module")
def judge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Insert the same values into a Spark table; its rows, or None if Spark refuses."""
    where: Path = tmp_path_factory.mktemp("judge")
    columns = ", ".join(f"{f.name} {f.type}" for f in ACCOUNTS.fields)
    made = iter(range(1000))

    def rows(values: str) -> list[Any] | None:
        n = next(made)
        spark.sql(f"CREATE TABLE judge_{n} ({columns}) USING parquet LOCATION '{where / str(n)}'")
        try:
            spark.sql(f"INSERT INTO judge_{n} {values}")
        except PySparkException:
            return None
        else:
            return spark.table(f"judge_{n}").toArrow().to_pylist()
        finally:
            spark.sql(f"DROP TABLE judge_{n}")

    return rows


@pytest.mark.parametrize("values", _VALUES)
def test_values_become_the_rows_that_spark_would_store(values: str, binder: Binder, judge: Any) -> None:
    expected = judge(f"VALUES {values}")
    if expected is None:
        with pytest.raises(SqlError):
            binder.bind(f"INSERT INTO accounts VALUES {values}")
        return
    bound = binder.bind(f"INSERT INTO accounts VALUES {values}")
    assert isinstance(bound, BoundInsert)
    assert sorted(map(repr, bound.rows.to_pylist())) == sorted(map(repr, expected))
    assert bound.rows.schema == pa.schema(
        [
            ("id", pa.int64()),
            ("owner", pa.string()),
            ("balance", pa.decimal128(10, 2)),
            ("opened", pa.timestamp("us", "UTC")),
            ("rate", pa.float64()),
        ]
    )


_TEXTS = {  # as written -> Spark's form
    "('7', 'x', 1, NULL, NULL)": "(7, 'x', 1, NULL, NULL)",
    "(8, 'x', ' 1.5', '2020-02-29', '-1e3')": "(8, 'x', 1.5, DATE'2020-02-29', -1000D)",
    "(9, 'x', '12345678.901', '2020-01-01 12:00:00+02:00', 'NaN')": "(9, 'x', 12345678.90, "
    "TIMESTAMP'2020-01-01 10:00:00Z', "
    "double('NaN'))",
    "(10, 'x', 1.5, '2020-01-01', 1), ('11', 'y', '2.5', NULL, '0.25')": (
        "(10, 'x', 1.5, TIMESTAMP'2020-01-01', 1), (11, 'y', 2.5, NULL, 0.25)"
    ),
    "(12, 'x', DEFAULT, DEFAULT, '1'), (13, DEFAULT, 2, DEFAULT, 0.5)": "(12, 'x', NULL, NULL, 1), "
    "(13, NULL, 2, NULL, 0.5)",
}


@pytest.mark.parametrize(("written", "meant"), _TEXTS.items())
def test_a_literal_in_text_is_one_of_its_columns_type(written: str, meant: str, binder: Binder, judge: Any) -> None:
    bound = binder.bind(f"INSERT INTO accounts VALUES {written}")
    assert isinstance(bound, BoundInsert)
    assert sorted(map(repr, bound.rows.to_pylist())) == sorted(map(repr, judge(f"VALUES {meant}")))


@pytest.mark.parametrize(
    "values", ["('7x', NULL)", "(1, 'abc')", "(1, '2020-02-30'), (2, NULL)", "(1, concat('2020-01-', '01'))"]
)
def test_a_text_that_is_not_a_value_of_its_columns_type_is_refused(values: str, binder: Binder) -> None:
    with pytest.raises(
        SqlError,
        match=r"column '(id|opened)' of table 'accounts' is .* (cannot hold '|does not accept string).* column \d+",
    ):
        binder.bind(f"INSERT INTO accounts (id, opened) VALUES {values}")


def test_columns_that_are_not_named_are_null(binder: Binder) -> None:
    bound = binder.bind("INSERT INTO accounts (Balance, ID) VALUES (2, 1)")
    assert isinstance(bound, BoundInsert)
    assert bound.rows.to_pylist() == [
        {"id": 1, "owner": None, "balance": Decimal("2.00"), "opened": None, "rate": None}
    ]


def test_null_in_a_key_is_refused_with_the_row(binder: Binder) -> None:
    with pytest.raises(NullKeyError) as caught:
        binder.bind("INSERT INTO accounts (id, owner) VALUES (1, 'a'), (2, 'b'), (NULL, 'c')")
    assert str(caught.value) == (
        "row 3 of 3 has NULL in column 'id', which is part of the primary key of table 'accounts'. "
        "Nothing was changed. Give the column a value or omit the row."
    )


def test_an_insert_of_a_select_is_left_to_the_caller_and_its_rows_fit_the_table(
    binder: Binder, spark: SparkSession
) -> None:
    bound = binder.bind("INSERT INTO accounts BY NAME SELECT name AS owner, id * 2 AS id FROM shops")
    assert isinstance(bound, BoundInsertSelect)
    assert (bound.select, bound.targets, bound.relations) == (
        "SELECT name AS owner, id * 2 AS id FROM shops",
        (1, 0),
        ("shops",),
    )
    spark.createDataFrame([(1, "north", "Oslo")], "id INT, name STRING, city STRING").createOrReplaceTempView("shops")
    rows = rows_to_insert(spark.sql(bound.select), bound)
    assert rows.to_pylist() == [{"id": 2, "owner": "north", "balance": None, "opened": None, "rate": None}]


def test_an_insert_takes_rows_from_files_but_a_view_does_not(binder: Binder, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [7, 8], "owner": ["ann", None]}), tmp_path / "x.parquet")
    bound = binder.bind(f"INSERT INTO accounts (id, owner) SELECT * FROM parquet.`{tmp_path / 'x.parquet'}`")
    assert isinstance(bound, BoundInsert)
    assert bound.rows.select(["id", "owner"]).to_pylist() == [{"id": 7, "owner": "ann"}, {"id": 8, "owner": None}]
    with pytest.raises(SqlError, match="there is no relation `parquet`"):
        binder.bind(f"CREATE MATERIALIZED VIEW v AS SELECT * FROM parquet.`{tmp_path / 'x.parquet'}`")


def test_assigned_values_have_exactly_the_columns_types(binder: Binder) -> None:
    bound = binder.bind("UPDATE accounts SET balance = id, rate = balance / 3, owner = id, opened = DATE'2020-01-01'")
    types = {
        ACCOUNTS.fields[i].name: (e.type, ACCOUNTS.fields[i].type)
        for i, e in bound.assignments  # type: ignore[union-attr]
    }
    assert all(found == wanted for found, wanted in types.values()), types

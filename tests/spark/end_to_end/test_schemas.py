"""Names with schemas mean the same as in Spark, whose own catalog has equal tables in schemas of the same names."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.catalog.schemas import UnknownSchemaError
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

ROWS = {
    "orders": "VALUES (1, 10, named_struct('name', 'ann')), (2, 20, named_struct('name', 'bob'))",
    "a.orders": "VALUES (1, 11, named_struct('name', 'cid')), (3, 31, named_struct('name', 'dan'))",
    "b.orders": "VALUES (1, 12, named_struct('name', 'eve')), (2, 22, named_struct('name', 'fay'))",
    "b.orders_of": "VALUES (1, 5, named_struct('name', 'gus'))",
}
COLUMNS = "(id INT, price INT, customer STRUCT<name: STRING>)"

SELECTS = {
    "a column by its schema": "SELECT a.orders.id, orders.price FROM a.orders",
    "a star by its schema": "SELECT a.orders.* FROM a.orders",
    "the default schema": "SELECT default.orders.id, price FROM default.orders",
    "the default schema without its name": "SELECT orders.id, price FROM orders",
    "a field of a struct": "SELECT a.orders.customer.name, orders.customer.name AS n, customer.name AS m FROM a.orders",
    "two of one name": (
        "SELECT a.orders.id, a.orders.price AS p, b.orders.price AS q FROM a.orders JOIN b.orders "
        "ON a.orders.id = b.orders.id"
    ),
    "three of one name": (
        "SELECT x.id, count(*) AS n FROM orders x JOIN A.Orders y ON x.id = y.id JOIN `b`.`orders` z ON y.id = z.id "
        "GROUP BY x.id"
    ),
    "an alias": "SELECT o.id, o.customer.name FROM b.orders AS o WHERE o.price > 12",
    "an alias that is a schema": "SELECT b.customer.name, b.price FROM a.orders AS b",
    "a WITH of the name": "WITH orders AS (SELECT id FROM a.orders) SELECT orders.id FROM orders",
    "a WITH beside the default schema": (
        "WITH orders AS (SELECT id, price FROM b.orders) SELECT orders.id, d.price FROM orders JOIN default.orders d "
        "ON orders.id = d.id"
    ),
    "a subquery": "SELECT id FROM a.orders WHERE id IN (SELECT id FROM b.orders WHERE b.orders.price > 1)",
    "an EXISTS": ("SELECT id FROM a.orders WHERE NOT EXISTS (SELECT 1 FROM b.orders WHERE b.orders.id = a.orders.id)"),
    "a union": "SELECT id, price FROM a.orders UNION ALL SELECT id, price FROM b.orders",
    "itself": "SELECT x.id, y.price FROM a.orders x JOIN a.orders y ON x.id = y.id",
}


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(str(tmp_path_factory.mktemp("schemas") / "store"), spark, runner="local") as made:
        made.execute("CREATE SCHEMA a; CREATE SCHEMA IF NOT EXISTS b; CREATE DATABASE IF NOT EXISTS b")
        for name, rows in ROWS.items():
            made.execute(f"CREATE TABLE {name} {COLUMNS}; INSERT INTO {name} {rows}")
        made.flush()
        yield made


@pytest.fixture(scope="module")
def oracle(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of Spark with equal tables of its own catalog."""
    other, folder = spark.newSession(), tmp_path_factory.mktemp("spark")
    other.conf.set("spark.sql.ansi.enabled", "true")
    for name in ("a", "b"):
        other.sql(f"CREATE DATABASE {name} LOCATION '{folder / name}'")
    try:
        for name, rows in ROWS.items():
            place = folder / name
            other.sql(f"CREATE TABLE {name} {COLUMNS} USING parquet LOCATION '{place}'")
            other.sql(f"INSERT INTO {name} {rows}")
        yield other
    finally:
        other.sql("DROP TABLE IF EXISTS orders")
        for name in ("a", "b"):
            other.sql(f"DROP DATABASE IF EXISTS {name} CASCADE")


@pytest.mark.parametrize("select", SELECTS.values(), ids=SELECTS)
def test_a_query_over_schemas_equals_sparks(select: str, session: Session, oracle: SparkSession) -> None:
    expected = oracle.sql(select).toArrow()
    answer = session.query(select)
    assert answer.column_names == expected.column_names
    assert rows_of(answer) == rows_of(expected)


def test_views_over_schemas_equal_sparks_queries_after_each_change(
    session: Session, oracle: SparkSession, tmp_path: Path
) -> None:
    names = {
        f"{schema}v{i}": s for i, (s, schema) in enumerate(zip(SELECTS.values(), itertools.cycle(["a.", "b.", ""])))
    }
    selects = {name: select for name, select in names.items() if "n, customer.name AS m" not in select}
    for name, select in selects.items():
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
    session.flush()
    for change in ("", "INSERT INTO b.orders VALUES (3, 33, named_struct('name', 'hal'))"):
        if change:
            session.execute(change)
            session.flush()
            oracle.sql(change)
        for name, select in selects.items():
            assert rows_of(session.read(name)) == rows_of(oracle.sql(select).toArrow()), (name, change)


def test_names_without_a_schema_mean_the_schema_of_the_last_use(session: Session, oracle: SparkSession) -> None:
    selects = {
        "used": "WITH x AS (SELECT id FROM orders) SELECT x.id, o.price FROM x JOIN a.orders o ON o.id = x.id",
        "used_deep": "SELECT orders.id FROM orders WHERE id IN (SELECT id FROM default.orders WHERE price < 15)",
        "used_all": "SELECT b.orders.id, orders.price FROM orders",
    }
    created = "; ".join(f"CREATE MATERIALIZED VIEW {name} AS {select}" for name, select in selects.items())
    session.execute(f"USE b; {created}; CREATE VIEW plain AS SELECT id FROM orders")
    session.flush()
    oracle.sql("USE b")
    try:
        for name, select in selects.items():
            expected = rows_of(oracle.sql(select).toArrow())
            assert rows_of(session.read(f"b.{name}")) == expected, name
            assert rows_of(session.query(select)) == expected, name
            (answer,) = session.execute(select)
            assert answer.table is not None
            assert rows_of(answer.table) == expected, name
        with pytest.raises(UnknownSchemaError):
            session.execute("USE c")
        assert session.query("SELECT * FROM used_deep").num_rows == session.read("b.used_deep").num_rows
        session.execute("USE default")
        assert rows_of(session.query("SELECT * FROM b.plain")) == rows_of(oracle.sql("SELECT id FROM orders").toArrow())
    finally:
        oracle.sql("USE default")
    (shown,) = session.execute("SHOW CREATE VIEW b.used_all")
    assert shown.table is not None
    assert "FROM b.orders" in shown.table.to_pylist()[0]["statement"]


def test_names_of_three_parts_mean_the_schemas_of_their_catalogs(session: Session, oracle: SparkSession) -> None:
    select = (
        "SELECT o.id, spark_catalog.b.orders.price FROM Spark_Catalog.a.orders o JOIN spark_catalog.b.orders USING (id)"
    )
    with Session(session.meta.objects.uri, session.spark, catalogs={"spark_catalog": "{schema}"}) as other:
        expected = rows_of(oracle.sql(select).toArrow())
        assert rows_of(other.query(select)) == expected
        assert rows_of(other.query(select, pending=True)) == expected
        with pytest.raises(SqlError, match="lake"):
            other.query("SELECT * FROM lake.a.orders")


def test_statements_on_rows_take_a_schema(session: Session, oracle: SparkSession) -> None:
    changes = [
        "INSERT INTO b.orders_of SELECT id + 10, price, customer FROM a.orders",
        "INSERT INTO default.orders SELECT b.orders.* FROM b.orders WHERE b.orders.id > 2",
    ]
    for change in changes:
        session.execute(change)
        oracle.sql(change)
    session.execute("CREATE TABLE b.prices (id INT, price INT, PRIMARY KEY (id))")
    session.execute("INSERT INTO b.prices VALUES (1, 12), (2, 22), (3, 33)")
    session.execute("UPDATE b.prices SET price = price + 1 WHERE b.prices.id = 1")
    session.execute("UPDATE b.prices SET price = (SELECT max(price) FROM a.orders) WHERE b.prices.id = 2")
    session.execute(
        "MERGE INTO b.prices USING a.orders ON b.prices.id = a.orders.id "
        "WHEN MATCHED THEN UPDATE SET price = a.orders.price * 100"
    )
    session.execute("USE b; DELETE FROM prices WHERE id IN (SELECT id FROM default.orders WHERE id = 2)")
    session.execute("ALTER TABLE b.prices RENAME TO costs; ALTER TABLE b.costs ADD COLUMN note STRING")
    session.execute("COMMENT ON COLUMN b.costs.price IS 'in cents'")
    before = session.flush().epoch
    assert rows_of(session.read("b.orders_of")) == rows_of(oracle.sql("SELECT * FROM b.orders_of").toArrow())
    assert rows_of(session.read("default.orders")) == rows_of(oracle.sql("SELECT * FROM orders").toArrow())
    assert session.read("B.Costs").to_pylist() == [
        {"id": 1, "price": 1100, "note": None},
        {"id": 3, "price": 3100, "note": None},
    ]
    session.execute("TRUNCATE TABLE b.costs")
    session.flush()
    past = session.query(f"SELECT b.costs.id, costs.price FROM b.costs VERSION AS OF {before}")
    assert past.to_pylist() == [{"id": 1, "price": 1100}, {"id": 3, "price": 3100}]
    changes_of = session.query(f"SELECT _change_type, id FROM table_changes('b.costs', {before})")
    assert sorted(row["id"] for row in changes_of.to_pylist()) == [1, 3]


def test_a_view_of_dataframes_over_schemas_has_their_names_in_its_text(session: Session, oracle: SparkSession) -> None:
    left, right = session.table("a.orders"), session.table("b.orders")
    made = left.join(right, left.id == right.id).select(left.id, right.price)
    session.create_view("b.of_frames", made)
    session.flush()
    (shown,) = session.execute("SHOW CREATE b.of_frames")
    assert shown.table is not None
    _, _, text = shown.table.to_pylist()[0]["statement"].partition(" AS ")
    assert rows_of(session.read("b.of_frames")) == rows_of(oracle.sql(text).toArrow()) != {}

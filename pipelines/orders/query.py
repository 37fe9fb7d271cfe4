"""Query the published tables of the pipeline `orders` with DuckDB: by day, from Iceberg and from Delta.

    python pipelines/orders/query.py --tables .tussock/orders
    python pipelines/orders/query.py --spark       # and by Spark, from Delta

Both tables of a view contain the same epoch, so the answers are equal.
"""

import argparse
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog

QUERY = "SELECT day, sum(orders) AS orders, sum(amount) AS amount FROM orders_by_day GROUP BY day ORDER BY day"


def read_iceberg(tables: Path, name: str) -> pa.Table:
    """Read a published Iceberg table."""
    uri, warehouse = f"sqlite:///{tables}/iceberg/catalog.db", f"file://{tables}/iceberg"
    catalog = load_catalog("tussock", type="sql", uri=uri, warehouse=warehouse)
    return catalog.load_table(f"shop.{name}").scan().to_arrow()


def read_delta(tables: Path, name: str) -> pa.Table:
    """Read a published Delta table."""
    reader = QueryBuilder().register(name, DeltaTable(tables / "delta" / name))
    return pa.table(reader.execute(f"SELECT * FROM {name}").read_all())


def ask_spark(tables: Path) -> list[tuple[object, ...]]:
    """Return Spark's answer from the Delta table. Spark fetches Delta's packages at the first use."""
    from tussock.jobs.delta.delta_packages import with_delta
    from tussock.jobs.spark.session import spark_session

    with spark_session(settings=with_delta({"spark.sql.shuffle.partitions": "2"})) as spark:
        spark.read.format("delta").load(str(tables / "delta" / "orders_by_day")).createOrReplaceTempView(
            "orders_by_day"
        )
        answer = spark.sql(QUERY).toArrow()  # computed once: `show` and `collect` would each run the query
    print(duckdb.from_arrow(answer))
    return duckdb.from_arrow(answer).fetchall()


def main() -> None:
    """Print the answers, and compare them."""
    parser = argparse.ArgumentParser(description="Query the published tables of the pipeline `orders`.")
    parser.add_argument("--tables", type=Path, default=Path(".tussock/orders"), help="folder of the tables")
    parser.add_argument("--spark", action="store_true", help="query with Spark too")
    options = parser.parse_args()
    tables = options.tables.absolute()
    answers = []
    for kind, orders_by_day in (
        ("Iceberg", read_iceberg(tables, "orders_by_day")),
        ("Delta", read_delta(tables, "orders_by_day")),
    ):
        with duckdb.connect() as connection:
            connection.register("orders_by_day", orders_by_day)
            answer = connection.sql(QUERY)
            print(f"{kind}:\n{answer}")
            answers.append(answer.fetchall())
    if options.spark:
        print("Delta, by Spark:", flush=True)
        answers.append(ask_spark(tables))
    assert all(answer == answers[0] for answer in answers), "the answers differ"
    print(f"{len(answers)} equal answers")


if __name__ == "__main__":
    main()

"""Query the published tables of the pipeline `orders` with DuckDB: by day, from Iceberg and from Delta.

    python pipelines/orders/query.py --tables .tussock/orders

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


def main() -> None:
    """Print the answers of both."""
    parser = argparse.ArgumentParser(description="Query the published tables of the pipeline `orders`.")
    parser.add_argument("--tables", type=Path, default=Path(".tussock/orders"), help="folder of the tables")
    tables = parser.parse_args().tables.absolute()
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
    assert answers[0] == answers[1], "the two tables differ"


if __name__ == "__main__":
    main()

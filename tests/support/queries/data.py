"""The suites' data: made by tpcgen-cli, reduced to a size for tests, and kept in DuckDB as the expected rows.

TPC-DS at its smallest is still half a million rows. Over a plain sample most queries find nothing, because joins and
filters miss. The small tables therefore keep 60 rows each, and every reference to them is mapped to those rows. Most
days, sales and stock are removed, and texts that the queries search for replace others in the small tables. 3 in 4
queries then have an answer.
"""

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.nexmark.generate import batch
from tests.support.queries.texts import queries

GENERATED = Path(__file__).parents[3] / ".tussock" / "query-data"
SCALES = {"tpch": "0.005", "tpcds": "0.01"}

#: Primary keys that are not the first column.
KEYS: dict[str, tuple[str, ...]] = {
    "lineitem": ("l_orderkey", "l_linenumber"),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "lineorder": ("lo_orderkey", "lo_linenumber"),
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "catalog_sales": ("cs_item_sk", "cs_order_number"),
    "catalog_returns": ("cr_item_sk", "cr_order_number"),
    "web_sales": ("ws_item_sk", "ws_order_number"),
    "web_returns": ("wr_item_sk", "wr_order_number"),
    "inventory": ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk"),
}

#: TPC-DS: a reference's ending -> the table and the key that it refers to, and how many rows of the table stay.
_FOLDED = {
    "customer_sk": ("customer", "c_customer_sk", 60),
    "item_sk": ("item", "i_item_sk", 60),
    "addr_sk": ("customer_address", "ca_address_sk", 60),
    "cdemo_sk": ("customer_demographics", "cd_demo_sk", 60),
    "hdemo_sk": ("household_demographics", "hd_demo_sk", 60),
    "time_sk": ("time_dim", "t_time_sk", 96),
}
_ORDERS = {  # one order in n stays, with all its lines and returns
    "store_sales": ("ss_ticket_number", 16),
    "store_returns": ("sr_ticket_number", 16),
    "catalog_sales": ("cs_order_number", 16),
    "catalog_returns": ("cr_order_number", 16),
    "web_sales": ("ws_order_number", 2),
    "web_returns": ("wr_order_number", 2),
    "inventory": ("inv_date_sk", 4),
}

Database = duckdb.DuckDBPyConnection


def tables_of(suite: str) -> Database:
    """A suite's tables with unique keys, in memory. Cost: a few seconds, twice as many in a new checkout."""
    match suite:
        case "tpch":
            return _one_row_a_key(_generated("tpch"), "partsupp")
        case "ssb":
            return _star_schema(_generated("tpch"))
        case "nexmark":
            return _auctions()
        case _:
            return _folded(_generated("tpcds"))


def names(database: Database) -> list[str]:
    """The tables, by name."""
    return [name for (name,) in database.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]


def columns(database: Database, table: str) -> dict[str, str]:
    """A table's columns with their types, as Spark names them."""
    found = database.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index", [table]
    )
    spark_names = {"INTEGER": "int", "VARCHAR": "string", "TIMESTAMP WITH TIME ZONE": "timestamp"}
    return {name: spark_names.get(kind, kind.lower()) for name, kind in found.fetchall()}


def key_of(database: Database, table: str) -> tuple[str, ...]:
    """A table's primary key."""
    return KEYS.get(table) or (next(iter(columns(database, table))),)


def rows_of(database: Database, table: str, where: str = "true") -> pa.Table:
    """A table's rows, in the order of its key."""
    order = ", ".join(key_of(database, table))
    return database.sql(f'SELECT * FROM "{table}" WHERE {where} ORDER BY {order}').to_arrow_table()


def _generated(benchmark: str) -> Database:
    folder = GENERATED / f"{benchmark}-{SCALES[benchmark]}"
    if not (folder / "done").exists():
        program = Path(sys.executable).with_name("tpcgen-cli")
        command = [str(program), benchmark, "parquet", "-s", SCALES[benchmark], "--quiet", "--output-dir", str(folder)]
        subprocess.run(command, check=True, timeout=300)
        (folder / "done").touch()
    database = duckdb.connect()
    for path in sorted(folder.glob("*.parquet")):
        database.execute(f"CREATE TABLE {path.stem} AS FROM '{path}'")
    if benchmark == "tpcds":
        database.execute(
            "ALTER TABLE customer RENAME c_last_review_date_sk TO c_last_review_date"
        )  # its name before TPC-DS 2
        database.execute("DROP TABLE dbgen_version")
    return database


def _one_row_a_key(database: Database, *tables: str) -> Database:
    """Keep one of the rows that share a key: at this scale TPC-H's generator gives a part the same supplier twice."""
    for table in tables:
        database.execute(
            f"CREATE OR REPLACE TABLE {table} AS "
            f"SELECT DISTINCT ON ({', '.join(KEYS[table])}) * FROM {table} ORDER BY ALL"
        )
    return database


def _folded(database: Database) -> Database:
    for table, (order, share) in _ORDERS.items():
        database.execute(f"DELETE FROM {table} WHERE hash({order}) % {share} <> 0")
    database.execute("DELETE FROM date_dim WHERE d_year NOT BETWEEN 1998 AND 2002")
    for ending, (table, key, rows) in _FOLDED.items():
        database.execute(
            f"DELETE FROM {table} WHERE {key} NOT IN (SELECT {key} FROM {table} ORDER BY hash({key}) LIMIT {rows})"
        )
        places = f"SELECT {key} AS k, row_number() OVER (ORDER BY {key}) AS place FROM {table}"
        database.execute(f"UPDATE {table} SET {key} = place FROM ({places}) WHERE {key} = k")
        for other in names(database):
            for column in columns(database, other):
                if column.endswith(ending) and (other, column) != (table, key):
                    database.execute(f"UPDATE {other} SET {column} = 1 + {column} % {rows}")
    _one_row_a_key(database, *_ORDERS)  # of lines whose items were folded into one
    pages = "SELECT cs_catalog_page_sk FROM catalog_sales UNION SELECT cr_catalog_page_sk FROM catalog_returns"
    database.execute(
        "DELETE FROM catalog_page WHERE cp_catalog_page_sk NOT IN "
        f"(SELECT * FROM ({pages}) AS p(k) WHERE k IS NOT NULL)"
    )
    database.execute(
        "UPDATE web_page SET wp_char_count = 5000 + wp_web_page_sk"
    )  # query 90 divides by a count of such pages
    asked = _asked_for()
    for table in set(names(database)) - {*_ORDERS, "date_dim"}:
        for column in columns(database, table).keys() & asked.keys():
            values, key = sorted(asked[column]), key_of(database, table)[0]
            if not column.endswith("_sk"):
                chosen = (
                    f"list_extract([{', '.join(values)}], "
                    f"(1 + hash({key}::VARCHAR || '{column}') % {len(values)})::INT)"
                )
                database.execute(
                    f"UPDATE {table} SET {column} = {chosen} WHERE hash('{column}' || {key}::VARCHAR) % 10 < 7"
                )
    return database


def _auctions() -> Database:
    """Half a minute of Nexmark's events, with one bid in eleven."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, rows in batch(0, 30_000).items():
        database.register("made", rows)
        database.execute(f"CREATE TABLE {name} AS FROM made WHERE {'id % 11 = 7' if name == 'bid' else 'true'}")
        database.unregister("made")
    database.execute("CREATE TABLE side_input AS SELECT range AS key, 'value ' || range AS value FROM range(1000)")
    return database


def _asked_for() -> dict[str, set[str]]:
    """The literals that TPC-DS's queries compare each column with."""
    found: dict[str, set[str]] = {}
    for literal in (r"'[^']*'", r"\d+"):
        pattern = re.compile(
            rf"(\w+)\s*(?:=\s*({literal})(?!\s*[+*\d])|in\s*\(((?:\s*{literal}\s*,?)+)\))", re.IGNORECASE
        )
        for suite in ("tpcds", "tpcds_27"):
            for text in queries(suite).values():
                for column, one, many in pattern.findall(text):
                    found.setdefault(column.lower(), set()).update(re.findall(literal, one or many))
    return found


def _star_schema(tpch: Database) -> Database:
    """The Star Schema Benchmark's tables, from TPC-H's as its paper makes them; the days belong to the orders."""
    tpch.execute("""
        CREATE TABLE lineorder AS SELECT l_orderkey::INT AS lo_orderkey, l_linenumber AS lo_linenumber,
            o_custkey::INT AS lo_custkey, l_partkey::INT AS lo_partkey, l_suppkey::INT AS lo_suppkey,
            strftime(o_orderdate, '%Y%m%d')::INT AS lo_orderdate, o_orderpriority AS lo_orderpriority,
            o_shippriority::VARCHAR AS lo_shippriority, l_quantity::INT AS lo_quantity,
            l_extendedprice::INT AS lo_extendedprice, o_totalprice::INT AS lo_ordertotalprice,
            (l_discount * 100)::INT AS lo_discount,
            (l_extendedprice * (1 - l_discount))::INT AS lo_revenue, (l_extendedprice * 0.6)::INT AS lo_supplycost,
            (l_tax * 100)::INT AS lo_tax, strftime(l_commitdate, '%Y%m%d')::INT AS lo_commitdate,
            l_shipmode AS lo_shipmode
        FROM lineitem JOIN orders ON l_orderkey = o_orderkey""")
    for short, table, rest in (("s", "supplier", "s_phone"), ("c", "customer", "c_phone, c_mktsegment")):
        key = {"s": "s_suppkey", "c": "c_custkey"}[short]
        place = (
            f"rpad(n_name, 9, ' ') || ({key} % 10) AS {short}_city, n_name AS {short}_nation, r_name AS {short}_region"
        )
        nation = f"JOIN nation ON {short}_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey"
        own = f"{key}::INT AS {key}, {short}_name, {short}_address"
        tpch.execute(f"CREATE TABLE {short} AS SELECT {own}, {place}, {rest} FROM {table} {nation}")
    tpch.execute("""
        CREATE TABLE p AS SELECT p_partkey::INT AS p_partkey, p_name, replace(p_mfgr, 'Manufacturer', 'MFGR') AS p_mfgr,
            'MFGR#' || right(p_brand, 2) AS p_category,
            'MFGR#' || right(p_brand, 2) || (20 + p_partkey % 20) AS p_brand1,
            split_part(p_name, ' ', 1) AS p_color, p_type, p_size, p_container FROM part""")
    tpch.execute("""
        CREATE TABLE d AS SELECT DISTINCT strftime(o_orderdate, '%Y%m%d')::INT AS d_datekey,
            strftime(o_orderdate, '%B %-d, %Y') AS d_date,
            dayname(o_orderdate) AS d_dayofweek, monthname(o_orderdate) AS d_month, year(o_orderdate)::INT AS d_year,
            strftime(o_orderdate, '%Y%m')::INT AS d_yearmonthnum, strftime(o_orderdate, '%b%Y') AS d_yearmonth,
            weekofyear(o_orderdate)::INT AS d_weeknuminyear FROM orders""")
    for table in ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"):
        tpch.execute(f"DROP TABLE {table}")
    for short, name in (("s", "supplier"), ("c", "customer"), ("p", "part"), ("d", "date")):
        tpch.execute(f'ALTER TABLE {short} RENAME TO "{name}"')
    return tpch

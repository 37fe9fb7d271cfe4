"""Sources USING jdbc over a Postgres server, at each run compared with the server's own rows.

Runs in a separate Spark session, because Spark's jars do not include Postgres' driver.

python -m tests.support.jobs.sources.jdbc_alone <empty directory>
"""

import os
import sys
from pathlib import Path
from typing import Any

from tests.support.postgres import PostgresServer
from tests.support.runners import here
from tussock.jobs.session import Session
from tussock.jobs.spark.session import spark_session

PACKAGE = "org.postgresql:postgresql:42.7.4"
COLUMNS = (
    "id int, name string, balance decimal(10,2), at timestamp, local timestamp_ntz, day date, active boolean, "
    "doc binary, score double, tag string, PRIMARY KEY (id)"
)
OPTIONS = (
    "path '{folder}', url 'jdbc:postgresql://${{airflow:shop.host}}:${{airflow:shop.port}}/${{airflow:shop.dbname}}', "
    "user '${{airflow:shop.user}}', password '${{airflow:shop.password}}'"
)
CREATE = """CREATE TABLE customers (id int PRIMARY KEY, name text, balance numeric(10,2), at timestamptz,
    local timestamp, day date, active boolean, doc bytea, score double precision, tag uuid)"""
FIRST = """INSERT INTO customers VALUES
    (1, 'Ada', 1.50, '2026-01-02 03:04:05.678901+02', '2026-01-02 03:04:05.678901', '1999-12-31', true, '\\x00ff', 1.5,
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (3, 'it''s "x" Ä', -0.01, '1969-12-31 23:59:59+00', '1969-12-31 23:59:59', '1970-01-01', false, '', 'NaN', NULL)"""
SOURCES = {
    "dumped": "dbtable 'public.customers', changes 'snapshot'",
    "asked": "query 'SELECT * FROM customers', changes 'snapshot', delete_limit '50%'",
    "newer": "dbtable 'customers', changes 'upsert', watermark_column 'at'",
}
LATER = (
    "UPDATE customers SET name = 'Bo', at = '2026-02-01 00:00:00+00' WHERE id = 2",
    "INSERT INTO customers VALUES (4, '', 0, '2026-02-01 00:00:00+00')",
    "DELETE FROM customers WHERE id = 3",
)


def texts(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(repr(tuple(bytes(v) if isinstance(v, memoryview) else str(v) for v in row)) for row in rows)


def main(root: Path) -> None:
    host = f"127.{os.getpid() % 200 + 1}.7.7"  # a loopback address without another server
    os.environ["AIRFLOW_CONN_SHOP"] = f"postgres://owner:secret@{host}:5432/postgres"
    settings = {"spark.jars.packages": PACKAGE}
    with (
        PostgresServer(f"listen_addresses='{host}'\n") as server,
        spark_session(settings=settings) as spark,
        Session(str(root / "store"), spark, runner=here(spark)) as session,
    ):
        for statement in (CREATE, FIRST):
            server.execute("postgres", statement)
        for name, more in SOURCES.items():
            options = OPTIONS.format(folder=root / name)
            session.execute(f"CREATE SOURCE {name} ({COLUMNS}) USING jdbc OPTIONS ({options}, {more})")
        for statements in ((), LATER[:2], LATER[2:]):
            for statement in statements:
                server.execute("postgres", statement)
            summary = session.flush()
            assert not summary.held, summary.held
            expected = texts(server.read("postgres", "SELECT * FROM customers"))
            for name in SOURCES if statements != LATER[2:] else ("dumped", "asked"):  # no watermark sees a deletion
                found = texts([tuple(row.values()) for row in session.read(name).to_pylist()])
                assert found == expected, (name, found, expected)
        server.execute("postgres", "ALTER TABLE customers ADD COLUMN city text DEFAULT 'Bern'")
        session.execute("ALTER SOURCE dumped ADD COLUMN city string")
        session.flush()
        assert {row["city"] for row in session.read("dumped").to_pylist()} == {"Bern"}
    written = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert b"secret" not in written, "a credential was stored"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

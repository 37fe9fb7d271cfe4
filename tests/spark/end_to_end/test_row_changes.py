"""Statements on tables, compared with DuckDB over the same rows: tables with and without a key, subqueries, MERGE,
changed keys.
"""

from collections.abc import Iterator

import duckdb
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.logical.key_columns import NullKeyError
from tussock.jobs.session import Session
from tussock.jobs.sql.change import TwoRowsOfOneKeyError, TwoSourceRowsError
from tussock.statestore.errors import InputError

pytestmark = pytest.mark.spark

TABLES = {
    "k": "id int, a int, s string, PRIMARY KEY (id)",
    "e": "g int, a int, s string",
    "d": "id int, a int, s string",
}
_K = (
    "INSERT INTO k VALUES "
    + ", ".join(f"({i}, {i * 7 % 5}, '{'xyz'[i % 3]}')" for i in range(40))
    + ", (100, NULL, NULL)"
)
_E = (
    "INSERT INTO e VALUES "
    + ", ".join(f"({i % 4}, {i % 3}, 'r{i % 5}')" for i in range(30))
    + ", (0, 0, NULL), (NULL, 5, 'n')"
)
_D = "INSERT INTO d VALUES " + ", ".join(f"({i}, {-i}, 'd{i}')" for i in range(35, 45))
VIEW = "SELECT s, count(*) AS n, sum(a) AS a FROM e GROUP BY s"

#: Each statement runs on the result of the ones before. Spark's and DuckDB's SQL are the same here.
STATEMENTS = (
    "UPDATE e SET a = a + 10 WHERE g = 1",
    "DELETE FROM e WHERE a = 2 AND g = 2",
    "INSERT INTO e SELECT * FROM e WHERE g = 0",
    "UPDATE e SET s = (SELECT max(s) FROM d), a = a * 2 WHERE g IN (SELECT a FROM k WHERE id < 2)",
    "UPDATE e SET g = (SELECT count(*) FROM k WHERE k.a = e.a)",
    "DELETE FROM e WHERE EXISTS (SELECT 1 FROM k WHERE k.id = e.a AND k.a > 1)",
    "DELETE FROM e WHERE a NOT IN (SELECT a FROM k WHERE a IS NOT NULL)",
    "UPDATE k SET id = id + 1000 WHERE a > 2",
    "UPDATE k SET id = 41 - id WHERE id > 1 AND id < 40",
    "UPDATE k SET a = (SELECT sum(o.a) FROM k o WHERE o.s = k.s), s = concat(s, '!') WHERE s <> 'y'",
    "DELETE FROM k WHERE id = (SELECT min(id) FROM k)",
    """MERGE INTO k USING d ON k.id = d.id WHEN MATCHED AND d.id > 38 THEN DELETE
        WHEN MATCHED THEN UPDATE SET a = d.a, s = d.s
       WHEN NOT MATCHED AND d.id < 44 THEN INSERT (id, s) VALUES (d.id, d.s)""",
    """MERGE INTO k AS t USING (SELECT id + 1 AS id, a FROM d) AS n ON t.id = n.id
        WHEN MATCHED THEN UPDATE SET id = t.id + 5000
       WHEN NOT MATCHED BY SOURCE AND t.id > 1000 THEN UPDATE SET s = 'alone' WHEN NOT MATCHED BY SOURCE
           AND t.a < 1 THEN DELETE""",
    "MERGE INTO e USING (SELECT DISTINCT a FROM k) n ON e.a = n.a WHEN MATCHED THEN UPDATE SET s = "
    "concat(e.s, '?') WHEN NOT MATCHED THEN "
    "INSERT (a, s) VALUES (n.a, 'new')",
    "MERGE INTO d USING (SELECT id, a, s FROM k) x ON d.id = x.id WHEN MATCHED THEN UPDATE SET a = "
    "x.a WHEN NOT MATCHED THEN INSERT *",
    "MERGE INTO d USING (SELECT s FROM e) x ON d.s = x.s WHEN MATCHED THEN DELETE",
    "CREATE TABLE c AS SELECT s, count(*) AS n FROM e GROUP BY s",
    "UPDATE c SET n = n + 1 WHERE s IN (SELECT s FROM e)",
    "TRUNCATE TABLE d",
    "INSERT INTO d SELECT id, a, s FROM k",
)


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(str(tmp_path_factory.mktemp("changes") / "store"), spark, units=3, runner="local") as made:
        made.execute("; ".join(f"CREATE TABLE {n} ({c})" for n, c in TABLES.items()))
        made.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}; {_K}; {_E}; {_D}")
        made.flush()
        yield made


def test_statements_leave_the_rows_that_duckdb_has_after_them(session: Session) -> None:
    judge = duckdb.connect()
    for name, columns in TABLES.items():
        judge.execute(f"CREATE TABLE {name} ({columns.split(', PRIMARY KEY')[0]})")
    for statement in (_K, _E, _D):
        judge.execute(statement)
    tables = [*TABLES]
    for statement in STATEMENTS:
        judge.execute(
            statement.replace("(SELECT s FROM e)", "(SELECT DISTINCT s FROM e)")
        )  # Spark and Tussock accept a row that is deleted twice
        assert session.execute(statement)[0].message.startswith("log entry"), statement
        session.flush()
        tables += ["c"] if statement.startswith("CREATE TABLE c") else []
        for name in tables:
            expected = sorted(map(repr, judge.execute(f"SELECT * FROM {name}").fetchall()))
            found = sorted(repr(tuple(r.values())) for r in session.read(name).to_pylist())
            assert found == expected, f"{name} after {statement}"
        expected = sorted(map(repr, judge.execute(f"SELECT s, n, CAST(a AS bigint) FROM ({VIEW})").fetchall()))
        assert sorted(repr(tuple(r.values())) for r in session.read("v").to_pylist()) == expected, statement


ONLY = "(k int, s string, PRIMARY KEY (k)) APPEND ONLY"


def test_an_insert_and_a_merge_of_new_rows_of_one_key_leave_the_first_in_an_append_only_table(session: Session) -> None:
    """As INSERT OR IGNORE of DuckDB."""
    rows = "SELECT * FROM VALUES (1, 'a'), (2, 'b'), (1, 'c') AS x(k, s)"
    again = "SELECT * FROM VALUES (2, 'd'), (3, 'e'), (3, 'e') AS x(k, s)"
    judge = duckdb.connect()
    judge.execute("CREATE TABLE t (k int PRIMARY KEY, s varchar)")
    judge.execute("INSERT OR IGNORE INTO t VALUES (1, 'a'), (2, 'b'), (1, 'c')")
    judge.execute("INSERT OR IGNORE INTO t VALUES (2, 'd'), (3, 'e'), (3, 'e')")
    expected = sorted(judge.execute("SELECT * FROM t").fetchall())
    session.execute(f"CREATE TABLE ai {ONLY}; CREATE TABLE am {ONLY}")
    for select in (rows, again):
        session.execute(f"INSERT INTO ai {select}")
        session.execute(f"MERGE INTO am USING ({select}) n ON false WHEN NOT MATCHED THEN INSERT *")
        session.flush()
    for name in ("ai", "am"):
        assert sorted(tuple(r.values()) for r in session.read(name).to_pylist()) == expected, name


REFUSED = {
    "two rows of one key": ("UPDATE k SET id = 7", TwoRowsOfOneKeyError, "two rows with the primary key (7)"),
    "the key of a row that stays": (
        "UPDATE k SET id = (SELECT max(id) FROM k) WHERE id = (SELECT min(id) FROM k)",
        TwoRowsOfOneKeyError,
        "two rows",
    ),
    "an insert of an existing key": (
        "MERGE INTO k USING (SELECT max(id) AS id FROM k) n ON k.id = n.id AND false WHEN NOT MATCHED "
        "THEN INSERT (id) VALUES (n.id)",
        TwoRowsOfOneKeyError,
        "two rows",
    ),
    "two rows of the source": (
        "MERGE INTO k USING (SELECT id FROM k UNION ALL SELECT id FROM k) n ON k.id = n.id WHEN "
        "MATCHED THEN UPDATE SET a = 1",
        TwoSourceRowsError,
        "more than one row of the source",
    ),
    "NULL in the key": ("UPDATE k SET id = NULL", NullKeyError, "part of the primary key"),
    "NULL in the key of a merge": (
        "MERGE INTO k USING d ON k.id = d.id + 100000 WHEN NOT MATCHED THEN INSERT (a) VALUES (d.a)",
        NullKeyError,
        "part of the primary key",
    ),
    "an expression that raises": ("UPDATE k SET a = 1 / (SELECT 0) WHERE id > 0", InputError, "Division by zero"),
}


@pytest.mark.parametrize(("sql", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_change_is_refused_and_leaves_no_trace(
    sql: str, error: type[InputError], says: str, session: Session
) -> None:
    before = session.meta.log_end()
    with pytest.raises(error) as caught:
        session.execute(sql)
    assert says in str(caught.value)
    assert session.meta.log_end() == before


def test_columns_take_their_defaults_and_refuse_null(session: Session) -> None:
    session.execute(
        """CREATE TABLE f (id int, a int NOT NULL, day date DEFAULT '2020-01-01',
            at timestamp DEFAULT current_timestamp(),
        m decimal(5,2) DEFAULT 1 + 1, s string DEFAULT 'it''s', PRIMARY KEY (id)) COMMENT 'f it is';
        INSERT INTO f (a, id) VALUES (1, 1), (2, 2);
        INSERT INTO f (id, a, day, m) VALUES (3, 3, DEFAULT, '1.5'), (4, 4, '2021-02-03', DEFAULT);
        INSERT INTO f (id, a) SELECT 5, 5"""
    )
    import pyarrow as pa

    with pytest.raises(
        InputError, match=r"column 'at': found no values, and a default that is computed \(current_timestamp\(\)\)"
    ):
        session.insert("f", pa.table({"id": [6], "a": [6]}))
    session.insert("f", pa.table({"id": [6], "a": [6], "at": pa.array([0], pa.timestamp("us", "UTC"))}))
    for sql in ("INSERT INTO f (id) VALUES (7)", "INSERT INTO f (id, a) VALUES (7, NULL)"):
        with pytest.raises(NullKeyError, match="column 'a', which is a NOT NULL column of table 'f'"):
            session.execute(sql)
    session.flush()
    with pytest.raises(NullKeyError, match="NOT NULL"):
        session.execute("UPDATE f SET a = CASE WHEN id > 3 THEN a END")
    shown_as_text = (
        "SELECT id, CAST(day AS string) AS day, CAST(m AS string) AS m, s, at IS NULL AS none FROM f ORDER BY id"
    )
    found = session.query(shown_as_text).to_pylist()
    usual = {"day": "2020-01-01", "m": "2.00", "s": "it's", "none": False}
    assert found == [
        {"id": 1, **usual},
        {"id": 2, **usual},
        {"id": 3, **usual, "m": "1.50"},
        {"id": 4, **usual, "day": "2021-02-03"},
        {"id": 5, **usual},
        {"id": 6, **usual},
    ]
    (shown,) = session.execute("SHOW CREATE TABLE f")
    assert shown.table is not None
    again = shown.table["statement"][0].as_py().replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
    assert session.execute(again)[0].message.startswith("nothing to do")


def test_a_table_as_select_is_made_with_its_rows_or_not_at_all(session: Session) -> None:
    assert session.execute("CREATE TABLE g AS VALUES (1, 'x'), (1, 'x')")[0].message.startswith("log entry")
    again = session.execute("CREATE TABLE IF NOT EXISTS g AS SELECT col1, col2 FROM VALUES (2, 'y')")
    assert again[0].message.startswith("nothing to do")
    with pytest.raises(InputError, match="exists already"):
        session.execute("CREATE TABLE g AS SELECT 1 AS a")
    session.flush()
    assert session.read("g").to_pylist() == [{"col1": 1, "col2": "x"}] * 2

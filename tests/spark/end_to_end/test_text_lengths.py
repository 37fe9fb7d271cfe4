"""char(n) and varchar(n) columns: writes, reads and comparisons equal Spark's own tables."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.logical.text_lengths import TextTooLongError
from tussock.jobs.session import Session
from tussock.statestore.errors import InputError

pytestmark = pytest.mark.spark

COLUMNS = "k int, c char(5), v varchar(3), s string"
ROWS = """(1, 'ab', 'abc', 'ab'), (2, 'abcde', 'ab ', 'abcde'), (3, 'abc    ', 'abc  ', 'ab   '), (4, NULL, NULL, NULL),
    (5, '', '', ''),
    (6, 'äßz', 'äßz', 'ä')"""
QUERIES = (
    "SELECT * FROM t",
    "SELECT k, length(c) AS n, length(v) AS m, c || '.' AS cd, v || '.' AS vd FROM t",
    "SELECT k, c = 'ab' AS a, 'abc  ' = c AS b, v = 'ab' AS d, c = s AS e, c > 'abc' AS f FROM t",
    "SELECT k FROM t WHERE c IN ('ab', 'abc') OR v IN ('ab')",
    "SELECT a.k, b.k AS other FROM t a JOIN t b ON a.c = b.s",
    "SELECT c, count(*) AS n, max(v) AS v FROM t GROUP BY c",
)
TOO_LONG = {"c": "abcdef", "v": "abcd"}


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_tables_with_lengths_are_written_read_and_compared_as_sparks(spark: SparkSession, tmp_path: Path) -> None:
    judge = spark.newSession()
    judge.conf.set("spark.sql.ansi.enabled", "true")
    judge.sql(f"CREATE TABLE lengths_judged ({COLUMNS}) USING parquet LOCATION '{tmp_path / 'judged'}'")
    judge.sql(f"INSERT INTO lengths_judged VALUES {ROWS}")
    try:
        with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
            session.execute(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (k)); INSERT INTO t VALUES {ROWS}")
            for number, sql in enumerate(QUERIES):
                session.execute(f"CREATE MATERIALIZED VIEW v{number} AS {sql}")
            session.flush()
            for number, sql in enumerate(QUERIES):
                expected = rows(
                    judge.sql(
                        sql.replace("FROM t", "FROM lengths_judged").replace("JOIN t", "JOIN lengths_judged")
                    ).toArrow()
                )
                assert (rows(session.read(f"v{number}")), rows(session.query(sql))) == (expected, expected), sql
            for column, text in TOO_LONG.items():
                with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
                    judge.sql(f"INSERT INTO lengths_judged (k, {column}) VALUES (7, '{text}')")
                _refuses(session, column, text)
            _changes_rows(session)
            _shows_types(session)
    finally:
        judge.sql("DROP TABLE lengths_judged")


def _refuses(session: Session, column: str, text: str) -> None:
    before = session.meta.log_end()
    for statement in (
        f"INSERT INTO t (k, {column}) VALUES (7, '{text}')",
        f"INSERT INTO t (k, {column}) SELECT k + 10, concat('{text}', s) FROM t",
        f"UPDATE t SET {column} = '{text}'",
        f"UPDATE t SET {column} = concat('{text}', s) WHERE k = 1",
        f"MERGE INTO t USING (SELECT 1 AS k) q ON t.k = q.k WHEN MATCHED THEN UPDATE SET {column} = '{text}'",
        f"ALTER TABLE t ADD COLUMN more varchar(2) DEFAULT '{text}'",
    ):
        with pytest.raises(TextTooLongError, match=f"cannot hold '{text}"):
            session.execute(statement)
    with pytest.raises(TextTooLongError):
        session.insert("t", pa.table({"k": pa.array([7], pa.int32()), column: [text]}))
    assert session.meta.log_end() == before


def _changes_rows(session: Session) -> None:
    session.insert("t", pa.table({"k": pa.array([8], pa.int32()), "c": ["x"], "v": ["yz    "]}))
    session.execute("UPDATE t SET v = 'w    ', c = 'w' WHERE c = 'ab'; DELETE FROM t WHERE c = 'abc'")
    session.flush()
    session.execute("UPDATE t SET c = upper(v) WHERE k = 6")
    session.flush()
    session.execute(
        "MERGE INTO t USING (SELECT 9 AS k, 'm' AS s) q ON t.c = q.s WHEN NOT MATCHED THEN INSERT (k, "
        "c, v) VALUES (q.k, q.s, q.s)"
    )
    session.execute("ALTER TABLE t ADD COLUMN more char(2) DEFAULT 'd'")
    session.flush()
    found = {row["k"]: (row["c"], row["v"], row["more"]) for row in session.read("t").to_pylist()}
    assert found == {
        1: ("w    ", "w  ", "d "),
        2: ("abcde", "ab ", "d "),
        4: (None, None, "d "),
        5: ("     ", "", "d "),
        6: ("ÄSSZ ", "äßz", "d "),
        8: ("x    ", "yz ", "d "),
        9: ("m    ", "m", "d "),
    }


def _shows_types(session: Session) -> None:
    (described,), (shown,) = session.execute("DESCRIBE t"), session.execute("SHOW CREATE t")
    assert described.table is not None
    assert shown.table is not None
    assert described.table["type"].to_pylist() == ["int", "char(5)", "varchar(3)", "string", "char(2)"]
    text = shown.table["statement"][0].as_py()
    assert "c char(5), v varchar(3)" in text
    (again,) = session.execute(text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    assert again.message.startswith("nothing to do")
    with pytest.raises(InputError, match=r"char\(5\) in the store, char\(6\) in the statement"):
        session.execute(text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS").replace("char(5)", "char(6)"))

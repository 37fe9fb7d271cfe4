"""CREATE SOURCE with a PRIMARY KEY in SQL: its text, its rows, and views over it, compared with Spark."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.catalog.alter_source import CannotAlterSourceError
from tussock.jobs.catalog.apply import RelationExistsError
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError
from tussock.jobs.verify.record import Verdict

pytestmark = pytest.mark.spark

DAYS = (
    '{"id": 1, "at": 10, "city": "Bern", "op": "U"}\n{"id": 2, "at": 10, "city": "Basel", "op": "U"}\n',
    '{"id": 1, "at": 12, "city": "Chur", "op": "U"}\n{"id": 2, "at": 11, "op": "d"}\n{"id": 3, "at": 1, "op": "U"}\n',
    '{"id": 1, "at": 11, "city": "late", "op": "U"}\n{"id": 3, "at": 2, "city": "Bern", "op": "U"}\n',
)
ROWS = {(1, 12, "Chur", "U"), (3, 2, "Bern", "U")}
SOURCE = """CREATE SOURCE customers (id bigint, at int, city string, op string, PRIMARY KEY (id)) USING json
    OPTIONS (path '{path}', changes 'upsert', sequence_by 'at', delete_when "lower(op) = 'd'")"""
VIEWS = {
    "per_city": "SELECT city, count(*) AS n, min(at) AS a FROM customers GROUP BY city",
    "pairs": "SELECT a.id, b.id AS other FROM customers a JOIN customers b ON a.id < b.id",
    "ranked": "SELECT id, row_number() OVER (ORDER BY at) AS n FROM customers",
}


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def test_views_over_a_keyed_source_equal_sparks_over_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        for n, text in enumerate(DAYS):
            (folder / f"{n}.json").write_text(text)
            if n == 0:
                session.execute(SOURCE.format(path=folder))
                for name, select in VIEWS.items():
                    session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
            session.flush()
        assert {tuple(row.values()) for row in session.read("customers").to_pylist()} == ROWS
        current = session.table("customers")
        current.createOrReplaceTempView("customers")
        for name, select in VIEWS.items():
            expected = current.sparkSession.sql(select).toArrow().rename_columns(session.read(name).column_names)
            assert texts(session.read(name)) == texts(expected), name
        assert texts(session.query("SELECT city, count(*) AS n, min(at) AS a FROM customers GROUP BY city")) == texts(
            session.read("per_city")
        )
        assert {check.verdict for check in session.verify().views} == {Verdict.EQUAL}
        (answer,) = session.execute("SHOW CREATE SOURCE customers")
        assert "op string, PRIMARY KEY (id)) USING json" in str(answer)
        session.execute("CREATE TABLE copy (id bigint, city string, PRIMARY KEY (id))")
        session.execute(
            "MERGE INTO copy USING customers ON copy.id = customers.id "
            "WHEN NOT MATCHED THEN INSERT (id, city) VALUES (customers.id, customers.city)"
        )
        session.flush()
        assert session.read("copy").num_rows == len(ROWS)
        with pytest.raises(RelationExistsError, match="primary key"):
            session.execute(SOURCE.format(path=folder).replace("KEY (id)", "KEY (id, at)"))
        with pytest.raises(CannotAlterSourceError, match="by its key"):
            session.execute("ALTER SOURCE customers RENAME COLUMN city TO town")
        session.execute("ALTER SOURCE customers ADD COLUMN more int")
        session.flush()
        assert {row["more"] for row in session.read("customers").to_pylist()} == {None}
        with pytest.raises(CannotAlterSourceError, match="sequence_by is fixed"):
            session.execute("ALTER SOURCE customers SET OPTIONS (sequence_by 'id')")


@pytest.mark.parametrize(
    ("written", "instead", "error", "reason"),
    [
        ("KEY (id)", "KEY (ids)", SqlError, "'ids'"),
        ("lower(op) = 'd'", "lower(ops) = 'd'", SqlError, "ops"),
        ("lower(op) = 'd'", "lower(op)", BadOptionError, "expected a condition"),
        ("changes 'upsert', ", "", MissingOptionError, "changes"),
    ],
)
def test_a_statement_that_could_not_be_kept_is_refused(
    spark: SparkSession, tmp_path: Path, written: str, instead: str, error: type[Exception], reason: str
) -> None:
    (tmp_path / "0.json").write_text(DAYS[0])
    text = SOURCE.format(path=tmp_path).replace(written, instead)
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session, pytest.raises(error, match=reason):
        session.execute(text)


def test_views_over_dumps_and_envelopes_equal_sparks_over_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Dumps with and without a key, in folders with a marker, and Debezium's envelopes in files."""
    dump = f"USING json OPTIONS (path '{tmp_path}/dumps/{{day}}', changes 'snapshot', snapshot_done '_SUCCESS'"
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        for n, text in enumerate(DAYS):
            for folder in (f"dumps/{n + 9}", "feed"):
                (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            rows = [json.loads(line) for line in text.splitlines()]
            (tmp_path / f"dumps/{n + 9}/a.json").write_text(json.dumps(rows[0]) + "\n")
            (tmp_path / f"dumps/{n + 9}/b.json").write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
            (tmp_path / f"dumps/{n + 9}/_SUCCESS").touch()
            changes = [{"before": None, "after": row, "op": "c"} for row in rows]
            (tmp_path / f"feed/{n}.json").write_text("".join(json.dumps(change) + "\n" for change in changes))
            if n == 0:
                fields = "id bigint, at int, city string"
                session.execute(f"CREATE SOURCE keyed ({fields}, PRIMARY KEY (id)) {dump}, delete_limit '90%')")
                session.execute(f"CREATE SOURCE bag ({fields}) {dump})")
                session.execute(
                    f"CREATE SOURCE feed ({fields}, PRIMARY KEY (id)) USING json "
                    f"OPTIONS (path '{tmp_path}/feed', changes 'debezium')"
                )
                for name in ("keyed", "bag", "feed"):
                    session.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT id, at, city FROM {name}")
            session.flush()
        newest = spark.read.schema("id bigint, at int, city string").json(str(tmp_path / "dumps/11"))
        expected = texts(newest.toArrow())
        assert texts(session.read("of_keyed")) == texts(session.read("of_bag")) == expected
        last = {row["id"]: row for n in range(3) for row in map(json.loads, DAYS[n].splitlines())}
        assert {row["id"]: row["city"] for row in session.read("of_feed").to_pylist()} == {
            key: row.get("city") for key, row in last.items()
        }
        assert {check.verdict for check in session.verify().views} == {Verdict.EQUAL}
        (answer,) = session.execute("SHOW CREATE SOURCE keyed")
        assert answer.table is not None
        assert "/dumps/{day}" in str(answer.table.to_pylist())

"""Sources that read a database by dumps: Derby, which Spark ships, stands for any database."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.barriers.source_holds import HeldSourceWarning
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import BadOptionError, CredentialInOptionError, MissingOptionError
from tussock.jobs.sources.jdbc import DatabaseReadError
from tussock.jobs.verify.record import Verdict

pytestmark = pytest.mark.spark

SOURCE = """CREATE SOURCE customers (id int, name string, balance decimal(10,2), PRIMARY KEY (id)) USING jdbc
    OPTIONS (path '{folder}', url 'jdbc:derby:{database};create=true', dbtable 'customers', changes 'snapshot',
             delete_limit '50%')"""


class Database:
    """A Derby database in a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        jvm = spark.sparkContext._gateway.jvm  # type: ignore[union-attr]
        jvm.java.lang.Class.forName("org.apache.derby.iapi.jdbc.AutoloadedDriver")
        self._connection = jvm.java.sql.DriverManager.getConnection(f"jdbc:derby:{folder};create=true")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._connection.createStatement().execute(statement)


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Database:
    database = Database(spark, tmp_path / "shop")
    database.run(
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20), balance DECIMAL(10,2))",
        "INSERT INTO customers VALUES (1, 'Ada', 1.50), (2, NULL, 2.00), (3, 'Cy', NULL)",
    )
    return database


def statement(tmp_path: Path) -> str:
    return SOURCE.format(folder=tmp_path / "dumps", database=tmp_path / "shop")


def rows(session: Session, name: str = "customers") -> list[tuple[object, ...]]:
    return sorted(tuple(map(str, row.values())) for row in session.read(name).to_pylist())


def dumps(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "dumps").iterdir())


def test_each_run_takes_the_changed_rows_of_a_table(spark: SparkSession, tmp_path: Path, database: Database) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(statement(tmp_path))
        session.execute(
            "CREATE MATERIALIZED VIEW per_name AS SELECT name, sum(balance) AS b FROM customers GROUP BY name"
        )
        session.flush()
        assert rows(session) == [("1", "Ada", "1.50"), ("2", "None", "2.00"), ("3", "Cy", "None")]
        database.run("UPDATE customers SET name = 'Bo' WHERE id = 2", "DELETE FROM customers WHERE id = 3")
        database.run("INSERT INTO customers VALUES (4, 'Ada', 4.00)")
        summary = session.flush()
        assert rows(session) == [("1", "Ada", "1.50"), ("2", "Bo", "2.00"), ("4", "Ada", "4.00")]
        assert rows(session, "per_name") == [("Ada", "5.50"), ("Bo", "2.00")]
        assert summary.rows["customers"].rows_out == 4  # a delete, an insert, and an update as both
        assert {check.verdict for check in session.verify().views} == {Verdict.EQUAL}


def test_a_change_below_the_millisecond_is_a_change(spark: SparkSession, tmp_path: Path, database: Database) -> None:
    at = "2026-01-01 00:00:00.123"
    database.run("DROP TABLE customers", "CREATE TABLE customers (id INT PRIMARY KEY, changed TIMESTAMP)")
    database.run(f"INSERT INTO customers VALUES (1, '{at}456')")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(statement(tmp_path).replace("name string, balance decimal(10,2)", "changed timestamp"))
        session.flush()
        database.run(f"UPDATE customers SET changed = '{at}457'")
        session.flush()
        assert [str(row["changed"])[:26] for row in session.read("customers").to_pylist()] == [f"{at}457"]


def test_a_table_without_changes_has_no_epoch_and_no_dump(
    spark: SparkSession, tmp_path: Path, database: Database
) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(statement(tmp_path))
        epoch = session.flush().epoch
        assert session.flush().epoch == epoch
        assert dumps(tmp_path) == ["0000000000"]
        database.run("UPDATE customers SET name = 'Cy' WHERE id = 1", "UPDATE customers SET name = 'Ada' WHERE id = 3")
        assert session.flush().epoch > epoch
        assert dumps(tmp_path) == ["0000000000", "0000000001"]


def test_a_database_that_cannot_be_read_holds_the_source_until_it_can(
    spark: SparkSession, tmp_path: Path, database: Database
) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(statement(tmp_path))
        session.execute("CREATE TABLE other (k int)")
        session.flush()
        database.run("RENAME TABLE customers TO elsewhere")
        session.execute("INSERT INTO other VALUES (1)")
        with pytest.warns(HeldSourceWarning, match="'customers'.* its database cannot be read"):
            session.flush()
        assert session.read("other").num_rows == 1
        database.run("RENAME TABLE elsewhere TO customers", "INSERT INTO customers VALUES (9, 'Di', 0)")
        session.flush()
        assert len(rows(session)) == 4


def test_half_a_table_holds_the_source(spark: SparkSession, tmp_path: Path, database: Database) -> None:
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(statement(tmp_path))
        session.flush()
        database.run("DELETE FROM customers WHERE id > 1")
        with pytest.warns(HeldSourceWarning, match="delete_limit"):
            session.flush()
        assert len(rows(session)) == 3


def test_a_watermark_reads_only_changed_rows(spark: SparkSession, tmp_path: Path) -> None:
    database = Database(spark, tmp_path / "shop")
    at = "TIMESTAMP('2026-01-0{} 10:00:00.{}')"
    database.run("CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20), changed TIMESTAMP)")
    for key in (1, 2, 3):
        database.run(f"INSERT INTO customers VALUES ({key}, 'a', {at.format(key, 25)})")
    text = SOURCE.replace("balance decimal(10,2)", "changed timestamp").replace("delete_limit '50%'", "keep_dumps '1'")
    text = text.replace("'snapshot'", "'upsert', watermark_column 'changed'")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(text.format(folder=tmp_path / "dumps", database=tmp_path / "shop"))
        epoch = session.flush().epoch
        assert session.flush().epoch == epoch, "only the newest row was read again"
        database.run(f"INSERT INTO customers VALUES (4, 'b', {at.format(3, 25)})")  # with the same watermark
        assert session.flush().rows["customers"].rows_out == 1
        database.run(f"UPDATE customers SET name = 'c', changed = {at.format(4, 0)} WHERE id = 1")
        assert session.flush().rows["customers"].rows_out == 2
        assert [row[:2] for row in rows(session)] == [("1", "c"), ("2", "a"), ("3", "a"), ("4", "b")]
        read = spark.read.parquet(str(tmp_path / "dumps" / "0000000002")).collect()
        assert sorted(row["id"] for row in read) == [1, 3, 4]
        session.flush()
        assert dumps(tmp_path) == ["0000000002"]
        session.execute("CREATE MATERIALIZED VIEW late AS SELECT count(*) AS n FROM customers")
        session.flush()
        assert rows(session, "late") == [("4",)]
        database.run("CREATE TABLE older (id INT PRIMARY KEY, name VARCHAR(20), changed TIMESTAMP)")
        database.run(f"INSERT INTO older VALUES (7, 'd', {at.format(1, 0)})")
        session.execute("ALTER SOURCE customers SET OPTIONS (dbtable 'older')")
        session.flush()
        assert rows(session, "late") == [("5",)]


@pytest.mark.parametrize(
    ("written", "instead", "error", "reason"),
    [
        ("dbtable 'customers', ", "", MissingOptionError, "dbtable"),
        ("url 'jdbc:derby", "url 'derby", MissingOptionError, "url"),
        ("'customers', changes", "'customers', user 'a', password 'b', changes", CredentialInOptionError, "password"),
        ("balance decimal(10,2)", "balances int", BadOptionError, "no column 'balances'"),
        ("dbtable 'customers'", "dbtable 'customer'", DatabaseReadError, "CUSTOMER"),
        (
            "'snapshot',\n             delete_limit '50%'",
            "'upsert', watermark_column 'at'",
            BadOptionError,
            "no column",
        ),
        ("delete_limit '50%'", "keep_dumps 'all'", BadOptionError, "whole number"),
        ("dbtable 'customers',", "dbtable 'customers', password '${env:NO_SUCH}',", DatabaseReadError, "NO_SUCH"),
        ("PRIMARY KEY (id)", "PRIMARY KEY (ids)", SqlError, "ids"),
    ],
)
def test_a_statement_that_could_not_be_honoured_is_refused(
    spark: SparkSession,
    tmp_path: Path,
    database: Database,
    written: str,
    instead: str,
    error: type[Exception],
    reason: str,
) -> None:
    text = statement(tmp_path).replace(written, instead)
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session, pytest.raises(error, match=reason):
        session.execute(text)


def test_a_credential_comes_from_the_environment_and_is_stored_nowhere(
    spark: SparkSession, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cr3t-of-the-shop"
    monkeypatch.setenv("SHOP_WORD", secret)
    text = statement(tmp_path).replace("dbtable", "user 'app', password '${env:SHOP_WORD}', dbtable")
    with Session(str(tmp_path / "store"), spark, runner=here(spark)) as session:
        session.execute(text)
        session.flush()
        assert len(rows(session)) == 3
        (answer,) = session.execute("SHOW CREATE SOURCE customers")
        assert answer.table is not None
        assert "password '${env:SHOP_WORD}'" in answer.table["statement"][0].as_py()
    stored = [path for path in (*tmp_path.glob("store/**/*"), *tmp_path.glob("dumps/**/*")) if path.is_file()]
    assert stored
    assert not [path for path in stored if secret.encode() in path.read_bytes()]

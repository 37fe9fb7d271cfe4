"""Mistakes of users and damaged storage.

Each is refused with a message that has the place and a remedy. The store does not change.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs import cli
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.source_holds import HeldSourceWarning
from tussock.jobs.catalog.apply import RelationExistsError, RelationInUseError
from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.logical.errors import NoRelationError, SqlError, UnsupportedQueryError
from tussock.jobs.logical.key_columns import NullKeyError
from tussock.jobs.session import Session
from tussock.jobs.sources.errors import (
    BadOptionError,
    MissingPathError,
    MissingSparkModuleError,
    PartitionFoldersError,
    UndeclaredColumnsError,
)
from tussock.jobs.sources.parquet_schema import UnreadableSchemaError
from tussock.jobs.sql.change import TwoRowsOfOneKeyError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.errors import DamagedError, InputError, TussockError
from tussock.statestore.hummock.errors import DamagedSstError, MissingSstError
from tussock.statestore.meta.errors import DamagedDocumentError

pytestmark = pytest.mark.spark

SALES = pa.schema([("id", pa.int32()), ("amount", pa.float64())])


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a table and a view over it, one epoch old."""
    store = tmp_path_factory.mktemp("template") / "store"
    with Session(str(store), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE orders (id int, shop int, item string, at date, PRIMARY KEY (id))")
        session.execute("CREATE MATERIALIZED VIEW by_shop AS SELECT shop, count(*) AS n FROM orders GROUP BY shop")
        session.execute(
            "INSERT INTO orders VALUES (1, 7, 'x', DATE '2013-01-01'), (2, 7, 'y', NULL), (3, 8, NULL, NULL)"
        )
        session.flush()
    return store


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


@pytest.fixture
def session(store: Path, spark: SparkSession) -> Session:
    return Session(str(store), spark, create=False, runner=here(spark))


def works(session: Session, before: int = 2) -> None:
    """The next valid statement and the next epoch succeed."""
    session.execute("INSERT INTO orders VALUES (1000, 7, 'good', NULL)")
    session.flush()  # completes an epoch that was begun and stopped
    session.flush()  # takes the statement, if the first flush did not
    assert session.query("SELECT n FROM by_shop WHERE shop = 7").to_pylist() == [{"n": before + 1}]


# --- statements ---------------------------------------------------------------------------------


class Bad(NamedTuple):
    """A statement, and the expected text of its error."""

    sql: str
    error: type[TussockError]
    says: tuple[str, ...]


STATEMENTS = {
    "a syntax error": Bad(
        "SELECT shop FROM\n  orders WHERE GROUP n", SqlError, ("Syntax error", "line 2", "orders WHERE GROUP n", "^")
    ),
    "no statement at all": Bad("FETCH orders", SqlError, ("expected SELECT, WITH, CREATE", "line 1, column 1")),
    "an unknown column": Bad(
        "CREATE MATERIALIZED VIEW v AS\nSELECT shp FROM orders",
        SqlError,
        ("`shp` cannot be resolved", "shop", "line 2, column 8", "^"),
    ),
    "an unknown column of a query": Bad(
        "SELECT nope FROM by_shop", SqlError, ("`nope` cannot be resolved", "line 1, column 8")
    ),
    "an unknown relation": Bad(
        "SELECT * FROM ordres", NoRelationError, ("no relation `ordres`", "by_shop, orders", "line 1, column 15")
    ),
    "an unknown function": Bad(
        "CREATE MATERIALIZED VIEW v AS SELECT shout(item) AS s FROM orders", SqlError, ("`shout`", "column 38")
    ),
    "an unsupported operator": Bad(
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM orders GROUP BY CUBE "
        "(session_window(at, '5 minutes'))",
        UnsupportedQueryError,
        ("is not supported in a materialized view", "line 1"),
    ),
    "the clock": Bad(
        "CREATE MATERIALIZED VIEW v AS SELECT current_date() AS d FROM orders", UnsupportedQueryError, ("line 1",)
    ),
    "an expression of chance": Bad(
        "CREATE MATERIALIZED VIEW v AS SELECT concat(item, uuid()) AS x FROM orders",
        InputError,
        ("uuid()", "line 1, column 51"),
    ),
    "an aggregate without an executor": Bad(
        "CREATE MATERIALIZED VIEW v AS SELECT shop, approx_top_k(id) AS s FROM orders GROUP BY shop",
        InputError,
        ("line 1, column 44",),
    ),
    "a type mismatch in a view": Bad(
        "CREATE MATERIALIZED VIEW v AS SELECT shop + true AS x FROM orders",
        SqlError,
        ("DATATYPE_MISMATCH", "line 1, column 38", "^"),
    ),
    "a type mismatch in an INSERT": Bad(
        "INSERT INTO orders VALUES (9, true, 'x', NULL)",
        SqlError,
        ("'shop'", "is int and does not accept boolean", "line 1, column 20"),
    ),
    "a value that does not fit": Bad("INSERT INTO orders VALUES (9, 3000000000, 'x', NULL)", SqlError, ("3000000000",)),
    "too few values": Bad("INSERT INTO orders VALUES (9)", SqlError, ("orders",)),
    "NULL in a key": Bad(
        "INSERT INTO orders VALUES (9, 1, 'x', NULL), (NULL, 1, 'x', NULL)", NullKeyError, ("orders", "id", "2")
    ),
    "an UPDATE to one key": Bad("UPDATE orders SET id = 5", TwoRowsOfOneKeyError, ("orders", "primary key (5)")),
    "a repeated CREATE": Bad(
        "CREATE TABLE orders (id int, PRIMARY KEY (id))", RelationExistsError, ("a table 'orders' exists already",)
    ),
    "a view named as a table": Bad(
        "CREATE MATERIALIZED VIEW orders AS SELECT shop FROM by_shop",
        RelationExistsError,
        (
            "it is a table, this statement creates a view",
            "DROP TABLE orders CASCADE, which drops by_shop too, with all rows",
        ),
    ),
    "DROP in use": Bad("DROP TABLE orders", RelationInUseError, ("it is read by by_shop", "CASCADE")),
    "DROP of nothing": Bad("DROP TABLE nobody", UnknownRelationError, ("no table 'nobody'", "orders")),
    "DROP of another kind": Bad("DROP TABLE by_shop", UnknownRelationError, ("no table 'by_shop'",)),
    "INSERT into a view": Bad("INSERT INTO by_shop VALUES (1, 2)", SqlError, ("by_shop",)),
    "a type that cannot be kept": Bad(
        "CREATE TABLE t (a array<interval>, PRIMARY KEY (a))", SqlError, ("'a'", "array<interval>")
    ),
    "an unknown format": Bad(
        "CREATE SOURCE s (a int) USING xlsx OPTIONS (path '/x')",
        SqlError,
        ("parquet, csv, json, orc, avro", "found xlsx", "line 1, column 31"),
    ),
    "a CSV source without columns": Bad(
        "CREATE SOURCE s USING csv OPTIONS (path '/x')",
        UndeclaredColumnsError,
        ("'s'", "CREATE SOURCE s (column type, …) USING csv"),
    ),
    "a mistyped option of a reader of Spark's": Bad(
        "CREATE SOURCE s (a int) USING csv OPTIONS (path '/x', haeder true)",
        BadOptionError,
        ("haeder", "similar options: header"),
    ),
    "an option of another format": Bad(
        "CREATE SOURCE s (a int) USING orc OPTIONS (path '/x', dateFormat 'dd')",
        BadOptionError,
        ("dateFormat", "its options: account, columns, compression"),
    ),
    "Avro in a session without its module": Bad(
        "CREATE SOURCE s (a int) USING avro OPTIONS (path '/x')",
        MissingSparkModuleError,
        ("'s'", f"spark.jars.packages = org.apache.spark:spark-avro_2.13:{pyspark.__version__}"),
    ),
    "Kafka in a session without its module": Bad(
        "CREATE SOURCE s USING kafka OPTIONS (kafka.bootstrap.servers 'localhost:1', subscribe 't')",
        MissingSparkModuleError,
        ("'s'", f"spark.jars.packages = org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"),
    ),
    "Kafka without brokers": Bad(
        "CREATE SOURCE s USING kafka OPTIONS (subscribe 't')", BadOptionError, ("kafka.bootstrap.servers",)
    ),
    "a source without a path": Bad("CREATE SOURCE s (a int) USING parquet", SqlError, ("OPTIONS (path",)),
    "a source without columns whose files are missing": Bad(
        "CREATE SOURCE s USING parquet OPTIONS (path '/nowhere/at/all')",
        MissingPathError,
        ("/nowhere/at/all", "Put the file there"),
    ),
    "a csv source whose missing columns are to be null": Bad(
        "CREATE SOURCE s (a int) USING csv OPTIONS (path '/x', missing 'null')",
        BadOptionError,
        ("'null'", "are matched by position"),
    ),
    "a json source whose missing fields are to be errors": Bad(
        "CREATE SOURCE s (a int) USING json OPTIONS (path '/x', missing 'error')",
        BadOptionError,
        ("'error'", "expected 'null'"),
    ),
    "a source whose files may be maybe missing": Bad(
        "CREATE SOURCE s (a int) USING parquet OPTIONS (path '/x', may_be_missing 'maybe')",
        BadOptionError,
        ("'maybe'", "'true'"),
    ),
    "an option that cannot be honoured": Bad(
        "CREATE SOURCE s (a int) USING csv OPTIONS (path '/x', mode 'DROPMALFORMED')",
        BadOptionError,
        ("'DROPMALFORMED'", "FAILFAST"),
    ),
}


@pytest.fixture(scope="module")
def quiet(template: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """One store for all refused statements."""
    store = shutil.copytree(template, tmp_path_factory.mktemp("quiet") / "store")
    return Session(str(store), spark, create=False, runner=here(spark))


@pytest.mark.parametrize("bad", STATEMENTS.values(), ids=STATEMENTS)
def test_a_bad_statement_is_refused_with_its_place_and_never_enters_the_log(bad: Bad, quiet: Session) -> None:
    before = quiet.meta.log_end()
    with pytest.raises(bad.error) as caught:
        quiet.execute(bad.sql)
    assert isinstance(caught.value, InputError), "the user has to change something"
    assert [part for part in bad.says if part not in str(caught.value)] == [], str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert "at org.apache" not in str(caught.value)
    assert quiet.meta.log_end() == before


def test_after_all_of_them_the_store_takes_the_next_statement_and_epoch(quiet: Session) -> None:
    works(quiet)


def test_statements_before_the_bad_one_of_a_script_stay_in_the_log(session: Session) -> None:
    with pytest.raises(SqlError, match="line 3, column"):
        session.execute(
            "INSERT INTO orders VALUES (4, 7, 'z', NULL);\n\nSELECT nope FROM orders;\nDROP TABLE orders CASCADE"
        )
    works(session, before=3)


# --- files --------------------------------------------------------------------------------------


def write_sales(path: Path, first: int, schema: pa.Schema = SALES) -> None:
    rows = pa.table({"id": range(first, first + 3), "amount": [1.5, 2.5, 3.5]})
    path.parent.mkdir(exist_ok=True)
    pq.write_table(rows.rename_columns(schema.names).cast(schema), path)


def why_held(session: Session) -> str:
    """The reason for the one source that a flush skipped."""
    with pytest.warns(HeldSourceWarning, match="its new input waits") as warned:
        summary = session.flush()
    ((hold,),) = summary.held.values()
    assert [str(w.message) for w in warned if hold.reason in str(w.message)] != []
    assert session.meta.open_barrier() is None
    assert session.execute("SHOW SOURCES")[0].table["state"].to_pylist() == [
        f"held since epoch {hold.since}: {hold.reason}"
    ]
    return hold.reason


def a_bad_csv_row(data: Path) -> str:
    (data / "1.csv").write_text("1,1.5\n2,2.5\n")
    (data / "2.csv").write_text("3,3.5\n4,four\n")
    return "csv"


def another_type(data: Path) -> str:
    write_sales(data / "1.parquet", 1)
    write_sales(data / "2.parquet", 4, pa.schema([("id", pa.int32()), ("amount", pa.string())]))
    return "parquet"


def another_name(data: Path) -> str:
    write_sales(data / "1.parquet", 1)
    write_sales(data / "2.parquet", 4, pa.schema([("id", pa.int32()), ("price", pa.float64())]))
    return "parquet"


def no_parquet(data: Path) -> str:
    write_sales(data / "1.parquet", 1)
    (data / "2.parquet").write_bytes(b"this is no Parquet file")
    return "parquet"


def cut_parquet(data: Path) -> str:
    write_sales(data / "1.parquet", 1)
    write_sales(data / "2.parquet", 4)
    (data / "2.parquet").write_bytes((data / "2.parquet").read_bytes()[:-20])
    return "parquet"


BAD_FILES: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "a CSV row that does not parse": (a_bad_csv_row, ("2.csv", "record 2", "4,four", "barrier abandon")),
    "a Parquet file with another type": (another_type, ("2.parquet", "'amount'", "string", "double", "abandon")),
    "a Parquet file without a column": (another_name, ("2.parquet", "'amount'", "abandon")),
    "a file that is no Parquet": (no_parquet, ("2.parquet", "abandon")),
    "a Parquet file that is cut": (cut_parquet, ("2.parquet", "abandon")),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_holds_its_source_by_name_and_the_documented_command_skips_it(
    name: str, session: Session, tmp_path: Path
) -> None:
    write, says = BAD_FILES[name]
    data = tmp_path / "data"
    data.mkdir()
    file_format = write(data)
    session.execute(f"CREATE SOURCE sales (id int, amount double) USING {file_format} OPTIONS (path '{data}')")
    session.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(amount) AS s FROM sales")
    session.execute("INSERT INTO orders VALUES (90, 90, 'w', NULL)")
    why = why_held(session)
    assert [part for part in says if part not in why] == [], why
    assert session.query("SELECT n FROM by_shop WHERE shop = 90").to_pylist() == [{"n": 1}], "everything else went on"
    assert session.query("SELECT n FROM total").to_pylist() == [{"n": 0}], (
        "and nothing of that source was taken, of its good files neither"
    )
    (bad,) = data.glob("2.*")
    abandon_barrier(session.meta, Detour(skip_files=(str(bad),)))
    works(session)
    (row,) = session.query("SELECT n, s FROM total").to_pylist()
    assert row == ({"n": 2, "s": 4.0} if file_format == "csv" else {"n": 3, "s": 7.5})


def test_a_mistyped_path_is_refused_when_the_source_is_created(session: Session, tmp_path: Path) -> None:
    write_sales(tmp_path / "in" / "sales.parquet", 1)
    before = session.meta.log_end()
    for wrong in ("in/slaes.parquet", "im", "im/{start:%Y}/*.parquet"):
        with pytest.raises(
            MissingPathError,
            match=rf"no file at '{tmp_path}/.*nearby paths: {tmp_path}/in.*may_be_missing 'true'",
        ):
            session.execute(
                f"CREATE SOURCE sales (id int, amount double) USING parquet OPTIONS (path '{tmp_path}/{wrong}')"
            )
    assert session.meta.log_end() == before
    works(session)


def test_folders_named_like_partitions_are_refused_unless_the_path_contains_them(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql("SELECT id, id % 2 AS k, 'x' AS j FROM range(4)").write.partitionBy("k", "j").parquet(f"{tmp_path}/sales")
    assert "k" in spark.read.parquet(f"{tmp_path}/sales").columns
    refused = f"CREATE SOURCE sales USING parquet OPTIONS (path '{tmp_path}/sales')"
    with pytest.raises(PartitionFoldersError, match="Folder names do not become columns") as raised:
        session.execute(refused)
    (remedy,) = re.findall(r"OPTIONS \(path '(.*?)'\)", str(raised.value))
    session.execute(refused.replace(f"{tmp_path}/sales", remedy))
    session.execute("CREATE MATERIALIZED VIEW ids AS SELECT * FROM sales")
    works(session)
    assert (
        session.query("SELECT * FROM ids ORDER BY id").to_pylist()
        == spark.read.parquet(remedy).sort("id").toArrow().to_pylist()
    )


def test_a_source_waits_for_its_files_if_its_statement_allows_it(session: Session, tmp_path: Path) -> None:
    session.execute(
        f"CREATE SOURCE sales (id int, amount double) USING parquet OPTIONS (path "
        f"'{tmp_path}/later/sales.parquet', may_be_missing 'true')"
    )
    session.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM sales")
    session.flush()
    write_sales(tmp_path / "later" / "sales.parquet", 1)
    works(session)
    assert session.query("SELECT n FROM total").to_pylist() == [{"n": 3}]


def test_a_column_that_a_parquet_file_lacks_is_null_if_the_source_allows_it_like_in_spark(
    session: Session, spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    write_sales(data / "1.parquet", 1)
    pq.write_table(pa.table({"ID": pa.array([4, 5], pa.int32()), "more": ["x", "y"]}), data / "2.parquet")
    pq.write_table(pa.table({"other": [1, 2, 3]}), data / "3.parquet")
    declared = "id int, amount double, tags array<string>"
    session.execute(f"CREATE SOURCE sales ({declared}) USING parquet OPTIONS (path '{data}', missing 'null')")
    session.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT id, amount, tags FROM sales; "
        "CREATE MATERIALIZED VIEW n AS SELECT count(*) FROM sales"
    )
    works(session)
    spark.read.schema(declared).parquet(str(data)).createOrReplaceTempView("sales_of_spark")
    expected = spark.sql("SELECT id, amount, tags FROM sales_of_spark").toArrow().to_pylist()
    assert sorted(session.query("SELECT * FROM v").to_pylist(), key=repr) == sorted(expected, key=repr)
    assert session.query("SELECT * FROM n").to_pylist() == [{"count(1)": 8}]


def _whose_files_went(session: Session, folder: Path) -> None:
    """A source whose path no longer exists."""
    write_sales(folder / "sales.parquet", 1)
    session.execute(
        f"CREATE SOURCE sales (id int, amount double) USING parquet OPTIONS (path '{folder}/sales.parquet')"
    )
    session.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM sales")
    shutil.move(folder, folder.with_name("elsewhere"))
    assert re.search(r"^no file at '.*/sales\.parquet'.*ALTER SOURCE sales SET OPTIONS", why_held(session))


def test_a_missing_path_holds_its_source_until_the_file_exists(session: Session, tmp_path: Path) -> None:
    _whose_files_went(session, tmp_path / "in")
    write_sales(tmp_path / "in" / "sales.parquet", 1)
    works(session)
    assert session.query("SELECT n FROM total").to_pylist() == [{"n": 3}]


def test_a_source_whose_path_is_missing_can_be_dropped(session: Session, tmp_path: Path) -> None:
    _whose_files_went(session, tmp_path / "in")
    session.execute("DROP SOURCE sales CASCADE")
    works(session)


def test_a_source_whose_path_is_missing_can_be_dropped_by_abandoning(session: Session, tmp_path: Path) -> None:
    _whose_files_went(session, tmp_path / "in")
    abandon_barrier(session.meta, Detour(drop=("sales",)))
    works(session)


def test_a_taken_file_that_was_touched_or_copied_anew_is_the_same_file(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "sales.parquet"
    write_sales(path, 1)
    session.execute(f"CREATE SOURCE sales USING parquet OPTIONS (path '{tmp_path}/*.parquet')")
    session.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM sales")
    session.flush()
    os.utime(path, (1, 1))
    session.execute(
        "CREATE MATERIALIZED VIEW again AS SELECT sum(amount) AS s FROM sales"
    )  # reads the taken file's bytes again
    write_sales(tmp_path / "more.parquet", 10)
    session.flush()
    path.write_bytes(path.read_bytes())
    works(session)
    assert session.query("SELECT n FROM total").to_pylist() == [{"n": 6}]
    assert session.query("SELECT count(*) AS n FROM again").to_pylist() == [{"n": 1}]


def test_the_remedies_for_a_taken_file_that_changed_work(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sales.parquet"
    write_sales(path, 1)
    session.execute(f"CREATE SOURCE sales USING parquet OPTIONS (path '{path}')")
    session.execute("CREATE MATERIALIZED VIEW total AS SELECT sum(id) AS s FROM sales")
    session.flush()
    taken = path.read_bytes()
    rows = session.query("SELECT s FROM total").to_pylist()
    write_sales(path, 5)
    assert path.stat().st_size == len(taken), "another content of the same size"
    why = why_held(session)
    path.write_bytes(taken)  # the first remedy
    session.flush()
    write_sales(path, 5)
    restate, skip = re.findall(r"`tussock (.*?)`", why)
    assert cli.main([*skip.split(), "--store", session.meta.objects.uri]) == 0  # the second
    works(session)
    assert session.query("SELECT s FROM total").to_pylist() == rows
    assert cli.main([*restate.split(), "--store", session.meta.objects.uri]) == 0  # the third
    assert "rows to add: " in capsys.readouterr().out
    works(session)
    assert (
        session.query("SELECT s FROM total").to_pylist()
        == session.spark.read.parquet(str(path)).selectExpr("sum(id) AS s").toArrow().to_pylist()
    )


@pytest.mark.parametrize("remedy", ["--skip-file", "--repin-file"])
def test_the_remedies_for_a_pinned_file_that_cannot_be_read_work(session: Session, tmp_path: Path, remedy: str) -> None:
    path = tmp_path / "sales.parquet"
    path.write_bytes(b"no parquet file at all")
    session.execute(f"CREATE SOURCE sales (id int, amount double) USING parquet OPTIONS (path '{path}')")
    session.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM sales")
    (said,) = re.findall(rf"`tussock (barrier abandon {remedy} .*?)`", why_held(session))
    if remedy == "--repin-file":
        write_sales(path, 1)
    assert cli.main([*said.split(), "--store", session.meta.objects.uri]) == 0
    works(session)
    assert session.query("SELECT n FROM total").to_pylist() == [{"n": 3 if remedy == "--repin-file" else 0}]


def test_a_file_that_changed_after_it_was_taken_holds_its_source(session: Session, tmp_path: Path) -> None:
    write_sales(tmp_path / "sales.parquet", 1)
    session.execute(f"CREATE SOURCE sales USING parquet OPTIONS (path '{tmp_path}/sales.parquet')")
    session.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM sales")
    session.flush()
    as_taken = (tmp_path / "sales.parquet").read_bytes()
    write_sales(tmp_path / "sales.parquet", 1, pa.schema([("id", pa.int64()), ("amount", pa.float64())]))
    assert re.search(r"sales\.parquet has changed: recorded .* found", why_held(session))
    (tmp_path / "sales.parquet").write_bytes(as_taken)
    works(session)
    assert session.query("SELECT n FROM total").to_pylist() == [{"n": 3}]


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_a_file_without_readable_columns_is_named_when_its_source_is_created(
    format: str, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "sales.bin").write_bytes(b"this is neither a Parquet nor an ORC file")
    with pytest.raises(
        UnreadableSchemaError,
        match=rf"columns of .*sales\.bin cannot be read.*a file of format {format}; check the file",
    ):
        session.execute(f"CREATE SOURCE sales USING {format} OPTIONS (path '{tmp_path}/sales.bin')")
    assert session.meta.log_end() == session.meta.read_latest().log_end


def test_a_row_whose_expression_raises_stops_the_epoch_by_view_and_expression(session: Session) -> None:
    session.execute("CREATE MATERIALIZED VIEW ratio AS SELECT id, 100 div (shop - 9) AS x FROM orders")
    session.flush()
    version = session.meta.read_latest()
    session.execute("INSERT INTO orders VALUES (5, 9, 'zero', NULL)")
    with pytest.raises(InputError, match=r"(?i)division by zero") as caught:
        session.flush()
    assert "'ratio'" in str(caught.value)
    assert session.meta.read_latest() == version
    abandon_barrier(session.meta, Detour(drop=("ratio",)))
    works(session)


# --- storage ------------------------------------------------------------------------------------


def ssts(store: Path) -> list[Path]:
    found = sorted((store / "data").rglob("*.sst"))
    assert found
    return found


def test_a_truncated_sst_is_named_by_queries_and_epochs_and_nothing_is_made_of_it(
    session: Session, store: Path
) -> None:
    before = session.meta.read_latest()
    intact = {path: path.read_bytes() for path in ssts(store)}
    for path, data in intact.items():
        path.write_bytes(data[: len(data) // 2])
    names = "|".join(path.name for path in intact)
    with pytest.raises(DamagedSstError, match=names):
        session.query("SELECT * FROM by_shop")
    session.execute("INSERT INTO orders VALUES (6, 8, 'x', NULL)")
    with pytest.raises(DamagedSstError, match=names):
        session.flush()
    assert session.meta.read_latest() == before
    for path, data in intact.items():
        path.write_bytes(data)
    works(session)


def test_a_missing_sst_is_named(session: Session, store: Path) -> None:
    intact = {path: path.read_bytes() for path in ssts(store)}
    for path in intact:
        path.unlink()
    with pytest.raises(MissingSstError, match="|".join(path.name for path in intact)):  # either may be read first
        session.query("SELECT * FROM by_shop")
    for path, data in intact.items():
        path.write_bytes(data)
    works(session)


def test_a_flipped_byte_in_a_version_delta_stops_every_reader_by_name(store: Path, spark: SparkSession) -> None:
    newest = max((store / "meta" / "version").iterdir())
    intact = newest.read_bytes()
    flipped = bytearray(intact)
    flipped[len(flipped) // 2] ^= 0x01
    newest.write_bytes(bytes(flipped))
    for use in (lambda s: s.query("SELECT * FROM by_shop"), lambda s: s.flush(), lambda s: s.execute("SHOW TABLES")):
        with (
            pytest.raises(DamagedDocumentError, match=newest.name),
            Session(str(store), spark, create=False, runner=here(spark)) as session,
        ):
            use(session)
    newest.write_bytes(intact)
    works(Session(str(store), spark, create=False, runner=here(spark)))


def test_a_flipped_byte_in_a_log_entry_stops_the_epoch_by_name(session: Session, store: Path) -> None:
    session.execute("INSERT INTO orders VALUES (6, 8, 'x', NULL)")
    newest = max((store / "meta" / "log").iterdir())
    intact = newest.read_bytes()
    newest.write_bytes(intact.replace(b"orders", b"0rders", 1))
    with pytest.raises(DamagedError, match=newest.name):
        session.flush()
    newest.write_bytes(intact)
    works(session)


def test_a_damaged_store_is_left_as_it_is_by_a_job_that_meets_it(store: Path, spark: SparkSession) -> None:
    """The epoch job, as Airflow runs it: the same error, and no barrier to abandon."""
    session = Session(str(store), spark, create=False, runner=here(spark))
    newest = max((store / "meta" / "version").iterdir())
    intact = newest.read_bytes()
    newest.write_bytes(intact[:-10])
    with pytest.raises(DamagedDocumentError):
        advance_store(SparkRunner(spark), Session(str(store), spark, create=False, runner=here(spark)).meta)
    newest.write_bytes(intact)
    assert session.meta.open_barrier() is None

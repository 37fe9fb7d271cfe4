"""The files of Spark's own SQL tests, cut into chapters: queries over tables that do not change between them."""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.queries.texts import tests_jar
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.script import split_script
from tussock.jobs.spark.collected import collect_rows
from tussock.statestore.months import given_rows
from tussock.statestore.types import UnsupportedTypeError

_FOLDER = "sql-tests/inputs/"
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(\w+)", re.DOTALL)
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
_SAYS_ONLY = ("EXPLAIN", "DESCRIBE", "DESC", "SHOW", "USE")
_SETTING = re.compile(r"\s*SET\s+([\w.]+)\s*=", re.IGNORECASE)
_SET_ZONE = re.compile(r"\s*SET\s+TIME\s+ZONE\b", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """A table that a query may read: its columns as DDL, and its rows."""

    columns: str
    rows: pa.Table


@dataclass(frozen=True)
class Asked:
    """A query, its number among the statements of its file, and Spark's answer."""

    number: int
    sql: str
    answer: pa.Table


@dataclass(frozen=True)
class Chapter:
    """Queries, and by name the tables that existed when Spark answered them."""

    tables: dict[str, Table]
    asked: list[Asked]


def files() -> list[str]:
    """The names of all files, `subquery/in-subquery/in-basic`, in order."""
    with zipfile.ZipFile(tests_jar()) as jar:
        return sorted(
            n.removeprefix(_FOLDER)[:-4] for n in jar.namelist() if n.startswith(_FOLDER) and n.endswith(".sql")
        )


def statements_of(file: str) -> list[str]:
    """A file's statements; none if it imports another file or cannot be split into statements."""
    with zipfile.ZipFile(tests_jar()) as jar:
        text = jar.read(f"{_FOLDER}{file}.sql").decode()
    if "--IMPORT" in text:
        return []
    lines = "\n".join(line for line in text.split("\n") if not line.startswith("--"))
    try:
        return [statement.text for statement in split_script(lines)]
    except SqlError:
        return []


def chapters(spark: SparkSession, statements: list[str]) -> Iterator[Chapter]:
    """Run a file's statements in Spark; yield its queries with their tables, before a statement changes a table.

    Queries that Spark rejects or fails to run are omitted, as are those under a changed setting.
    """
    asked: list[Asked] = []
    settings: dict[str, str | None] = {}
    for number, statement in enumerate(statements):
        word = _word(statement)
        if word in _QUERIES and "INSERT" not in statement.upper():
            if all(spark.conf.get(name, None) == value for name, value in settings.items()):
                asked += _answered(spark, number, statement)
            continue
        if word in _SAYS_ONLY:
            continue
        if (name := _set_by(statement)) is not None:
            settings.setdefault(name, spark.conf.get(name, None))
        elif asked:
            yield Chapter(_tables(spark), asked)
            asked = []
        try:
            spark.sql(statement)
        except (PySparkException, Py4JJavaError):
            continue
    if asked:
        yield Chapter(_tables(spark), asked)


def forget(spark: SparkSession) -> None:
    """Drop the tables and views of a file."""
    for name in _names(spark):
        for kind in ("VIEW", "TABLE"):
            try:
                spark.sql(f"DROP {kind} IF EXISTS `{name}`")
            except PySparkException:  # it is of the other kind
                continue


def _set_by(statement: str) -> str | None:
    """The setting that a statement changes."""
    if _SET_ZONE.match(statement):
        return "spark.sql.session.timeZone"
    found = _SETTING.match(statement)
    return None if found is None else found[1]


def _word(statement: str) -> str:
    found = _FIRST_WORD.match(statement)
    return "" if found is None else found[1].upper()


def _answered(spark: SparkSession, number: int, sql: str) -> list[Asked]:
    try:
        return [Asked(number, sql, given_rows(collect_rows(spark.sql(sql))))]
    except (PySparkException, Py4JJavaError, pa.ArrowException, ValueError, UnsupportedTypeError):
        return []  # the query's error, or Spark's on the way out (a NULL in a column that is declared NOT NULL)


def _tables(spark: SparkSession) -> dict[str, Table]:
    found = {}
    for name in _names(spark):
        try:
            frame = spark.table(f"`{name}`")
            columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in frame.schema.fields)
            found[name] = Table(columns, given_rows(collect_rows(frame)))
        except (PySparkException, Py4JJavaError):
            continue
    return found


def _names(spark: SparkSession) -> list[str]:
    """The tables and views of a session.

    `catalog.listTables` decodes under the settings of the thread's active session, which may be a judge's
    (tests/support/truth/judge.py), and then fails.
    """
    return [row.tableName for row in spark.sql("SHOW TABLES").collect()]

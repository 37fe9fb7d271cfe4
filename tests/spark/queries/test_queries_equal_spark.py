"""Every query of TPC-H, TPC-DS, SSB and Nexmark as a view over 60 % of the rows, then maintained: equal to Spark.

A suite's views are one pipeline, so an epoch serves them all. The quick run takes a sample of them, with epochs in this
process. The deep run takes all of them, with epochs on Spark. `refused.yaml` lists each refused query with the reason;
all others must be accepted.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from tests.support.queries.changes import deletes, early, for_duckdb, updates
from tests.support.queries.data import Database, columns, key_of, names, rows_of, tables_of
from tests.support.queries.judge import Judge, counts_text
from tests.support.queries.texts import SUITES, queries
from tests.support.runners import here
from tests.support.sample import sample
from tussock.jobs.session import Session
from tussock.statestore.errors import InputError

#: The suites of the quick run with their samples (one in n). TPC-DS is deep: three of its queries take a minute.
QUICK = {"tpch": 8, "ssb": 6, "nexmark": 6}
REFUSED = Path(__file__).with_name("refused.yaml")


@dataclass(frozen=True)
class Refused:
    """The queries that may be refused, by suite, with the reason when the file was written."""

    known: dict[str, dict[str, str]]
    update: bool

    def require(self, suite: str, tried: Collection[str], found: Mapping[str, str]) -> None:
        """Fail unless the refused queries among the tried ones are exactly the ones that the file lists."""
        listed = self.known.setdefault(suite, {})
        if self.update:
            for name in tried:
                listed.pop(name, None)
            listed.update(found)
        here = f"Run again with --update-cases to change {REFUSED.name}."
        assert not (new := {n: r for n, r in found.items() if n not in listed}), (
            f"{suite}: refused, and not in the file: {new}. {here}"
        )
        works = [n for n in tried if n in listed and n not in found]
        assert not works, f"{suite}: no longer refused: {', '.join(works)}. {here}"


@pytest.fixture(scope="module")
def refused(request: pytest.FixtureRequest) -> Iterator[Refused]:
    """The file of refusals; `--update-cases` writes the results of a run to it."""
    refused = Refused(yaml.safe_load(REFUSED.read_text()) or {}, bool(request.config.getoption("--update-cases")))
    yield refused
    if refused.update:
        header = "".join(line for line in REFUSED.read_text().splitlines(keepends=True) if line.startswith("#"))
        REFUSED.write_text(
            header + yaml.safe_dump({s: q for s, q in refused.known.items() if q}, width=1000, allow_unicode=True)
        )


@pytest.mark.spark
@pytest.mark.parametrize(("suite", "every"), QUICK.items())
def test_a_sample_of_queries_equals_spark_through_inserts_deletes_and_updates(
    suite: str, every: int, spark: SparkSession, tmp_path: Path, refused: Refused
) -> None:
    _follow(suite, dict(sample(list(queries(suite).items()), every)), spark, tmp_path, refused, "local")


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", SUITES)
def test_every_query_equals_spark_through_inserts_deletes_and_updates(
    suite: str, spark: SparkSession, tmp_path: Path, refused: Refused
) -> None:
    _follow(suite, queries(suite), spark, tmp_path, refused, "spark")


def _follow(
    suite: str,
    texts: Mapping[str, str],
    spark: SparkSession,
    folder: Path,
    refused: Refused,
    runner: Literal["local", "spark"],
) -> None:
    database, judge = tables_of(suite), Judge(spark)
    late = _take_away_the_late(database)
    with Session(str(folder / "store"), spark, runner=here(spark) if runner == "local" else runner) as session:
        for table in names(database):
            declared = ", ".join(f"{name} {kind}" for name, kind in columns(database, table).items())
            session.execute(f"CREATE TABLE `{table}` ({declared}, PRIMARY KEY ({', '.join(key_of(database, table))}))")
            session.insert(table, rows_of(database, table))
        session.flush()
        for table in names(database):  # a key that rows share would lose them here, and blame the views
            assert session.read(table).num_rows == rows_of(database, table).num_rows, table
        judge.look_at(database)
        views, not_made = _create(session, judge, suite, texts)
        _compare(session, judge, database, views, f"{suite}, over 60 % of the rows")
        for table, rows in late.items():
            session.insert(table, rows)
            database.register("late", rows)
            database.execute(f'INSERT INTO "{table}" SELECT * FROM late')
        _compare(session, judge, database, views, f"{suite}, over all rows")
        for what, statements in (("deletes", deletes(database)), ("updates", updates(database))):
            for statement in list(statements):
                session.execute(statement)
                database.execute(for_duckdb(statement))
            _compare(session, judge, database, views, f"{suite}, after {what}")
    refused.require(suite, texts, not_made)  # at the end: newly accepted queries are compared with Spark too


def _take_away_the_late(database: Database) -> dict[str, pa.Table]:
    taken = {table: rows_of(database, table, f"NOT ({early(database, table)})") for table in names(database)}
    for table in taken:
        database.execute(f'DELETE FROM "{table}" WHERE NOT ({early(database, table)})')
    return taken


def _create(
    session: Session, judge: Judge, suite: str, texts: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Create the views. Returns the accepted ones (name: query) and the refused ones (name: reason)."""
    views, refused = {}, {}
    began = time.monotonic()
    for name, sql in texts.items():
        try:
            session.execute(f"CREATE MATERIALIZED VIEW {name}{_named(judge, sql)} AS {sql}")
            views[name] = sql
        except InputError as err:
            refused[name] = " ".join(str(err).split("\n")[0].split())[:160]
    print(f"{suite}: {len(views)} views made, {len(refused)} refused, {time.monotonic() - began:.1f} s")
    return views, refused


def _named(judge: Judge, sql: str) -> str:
    """Rename a query's columns if two of them have the same name."""
    given = [c.lower() for c in judge.columns(sql)]
    return "" if len(set(given)) == len(given) else f" ({', '.join(f'c{i}' for i in range(len(given)))})"


def _compare(session: Session, judge: Judge, database: Database, views: Mapping[str, str], when: str) -> None:
    began = time.monotonic()
    session.flush()
    flushed = time.monotonic()
    judge.look_at(database)
    wrong, counts = [], {}
    for name, sql in views.items():
        try:
            counts[name] = judge.compare(session.read(name), sql, f"{name} at {when}")
        except AssertionError as err:
            wrong.append(str(err)[:1500])
    print(
        f"{when}: epoch {flushed - began:.1f} s, {counts_text(counts)}, compared in {time.monotonic() - flushed:.1f} s"
    )
    assert not wrong, "\n\n".join(wrong)

"""Statements that fail leave nothing behind for other stores of the process: docs/design/processes.md lists what the
sessions of a process share. After each of them, another store computes what Spark computes.
"""

import decimal
import gc
import locale
import logging
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.runners import here
from tussock.jobs.kernels.functions import declare_function
from tussock.jobs.kernels.registry import renders_any
from tussock.jobs.logical.nodes import Call
from tussock.jobs.session import Session
from tussock.jobs.spark.release import RELEASE
from tussock.statestore.errors import TussockError

pytestmark = pytest.mark.spark

#: Each calls functions that DuckDB gets from Python.
OTHER = {
    "grouped": "SELECT named_struct('k', k) AS g, sum(v) AS s, max(array(v)) AS a FROM t GROUP BY named_struct('k', k)",
    "texts": "SELECT k, upper(w) AS u, reverse(w) AS r, struct() AS nothing FROM t",
}
FUNCTION = "def broken(x):\n    raise ValueError('always')\n"
#: (statements that succeed, a statement or an epoch that fails)
FAILING: Mapping[str, tuple[str, str]] = {
    "a relation that does not exist": ("", "CREATE MATERIALIZED VIEW v AS SELECT * FROM absent"),
    "a syntax error": ("", "CREATE MATERIALIZED VIEW v AS SELECT FROM WHERE"),
    "a function that Spark does not know": ("", "CREATE MATERIALIZED VIEW v AS SELECT nonsense(k) FROM t"),
    "an aggregate that cannot be maintained": ("", "CREATE MATERIALIZED VIEW v AS SELECT approx_top_k(k) FROM t"),
    "a row that raises": ("CREATE MATERIALIZED VIEW v AS SELECT k, 1 DIV (v - 7) AS q FROM t", ""),
    "a sum beyond its type": (
        "CREATE MATERIALIZED VIEW v AS SELECT sum(v * 1234567890123456789) AS s FROM t WHERE v = 7",
        "",
    ),
    "a Python function that raises": (
        "CREATE FUNCTION broken (x int) RETURNS int LANGUAGE PYTHON AS 'broken:broken'; "
        "CREATE MATERIALIZED VIEW v AS SELECT broken(v) AS b FROM t",
        "",
    ),
    "a Python module that is missing": ("", "CREATE FUNCTION g (x int) RETURNS int LANGUAGE PYTHON AS 'missing:g'"),
    "a source that does not exist": ("", "CREATE SOURCE s USING csv OPTIONS (path '/nowhere/at/all/*.csv')"),
    "an option that no reader has": ("", "CREATE SOURCE s (a int) USING json OPTIONS (path '/nowhere', colour 'red')"),
    "two rows of one key": ("", "MERGE INTO t USING (SELECT 1 AS k UNION ALL SELECT 1) s ON t.k = s.k "
                                "WHEN MATCHED THEN UPDATE SET v = 1"),
    **{
        f"a command of Spark: {command}": ("", command)
        for command in (
            "SET spark.sql.ansi.enabled = false",
            "SET TIME ZONE 'Asia/Tokyo'",
            "USE other",
            "CREATE DATABASE other LOCATION '/nowhere'",
            "CREATE TABLE other USING parquet AS SELECT 1 AS a",
            "CREATE TEMPORARY VIEW other AS SELECT 1 AS a",
            "CREATE GLOBAL TEMPORARY VIEW other AS SELECT 1 AS a",
            "CREATE TEMPORARY FUNCTION other AS 'java.lang.Object'",
            "CACHE TABLE t",
            "ADD JAR '/nowhere.jar'",
            "DECLARE VARIABLE other INT DEFAULT 1",
            "CLEAR CACHE",
            "RESET",
        )
    },
}  # fmt: skip


@renders_any("RefusedByDuckDBHere")
def _refused(call: Call, args: list[str]) -> str:
    return f"{declare_function('refused_here', ('int', 'int'), 'int', lambda one: one)}(1, 2)"


def shared_by_python() -> dict[str, object]:
    """What all sessions of a process share, outside of the project's own modules."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "umask": mask,
        "locale": locale.setlocale(locale.LC_ALL),
        "decimals": repr(decimal.getcontext()),
        "warnings": list(warnings.filters),
        "signals": {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)},
        "collector": (gc.isenabled(), gc.get_threshold()),
        "sockets": socket.getdefaulttimeout(),
        "zone": (time.tzname, time.timezone),
        "path": list(sys.path),
        "hooks": list(sys.meta_path),
        "float errors": np.geterr(),
        "pool": pa.default_memory_pool().backend_name,
        "log": (logging.getLogger().level, list(logging.getLogger().handlers)),
    }  # fmt: skip


def shared_by_spark(spark: SparkSession) -> dict[str, object]:
    """What all sessions of an application share, and the settings of the user's session."""
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc.sc()
    catalog: Any = spark._jsparkSession.sharedState().externalCatalog()
    databases = list(catalog.listDatabases().mkString("\n").split("\n"))
    return {
        "settings": spark.conf.getAll,
        "application": sorted(spark.sparkContext.getConf().getAll()),
        "Hadoop": {entry.getKey(): entry.getValue() for entry in context.hadoopConfiguration().iterator()},
        "databases": databases,
        "tables": [catalog.listTables(name).mkString(",") for name in databases],
        "functions": [catalog.listFunctions(name, "*").mkString(",") for name in databases],
        "temporary views": sorted(table.name for table in spark.catalog.listTables()),
        "current database": spark.catalog.currentDatabase(),
        "global views": spark._jsparkSession.sharedState().globalTempViewManager().listViewNames("*").mkString(","),
        "cached": spark._jsparkSession.sharedState().cacheManager().isEmpty(),
        "jars and files": (context.listJars().mkString(","), context.listFiles().mkString(",")),
        "properties": sorted(jvm.System.getProperties().stringPropertyNames()),
        "zone and locale": (jvm.java.util.TimeZone.getDefault().getID(), jvm.java.util.Locale.getDefault().toString()),
        "job group": spark.sparkContext.getLocalProperty("spark.jobGroup.id"),
    }


def differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return [name for name in before if before[name] != after[name]]


class Others:
    """Stores that nothing is wrong with."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._count = spark, folder, 0

    def new(self) -> Session:
        self._count += 1
        session = Session(str(self._folder / f"other{self._count}"), self._spark, runner=here(self._spark))
        session.execute("CREATE TABLE t (k int, v int, w string)")
        for name, select in OTHER.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        return session


def compute(session: Session, number: int) -> None:
    """An epoch of another store. Its views equal Spark's answers."""
    session.execute(f"INSERT INTO t VALUES (1, {number}, 'ß'), (2, 7, 'a😀')")
    session.flush()
    for name, select in OTHER.items():
        ours, theirs = (sorted(map(repr, t.to_pylist())) for t in (session.read(name), session.query(select)))
        assert ours == theirs, name


def spoil(session: Session, folder: Path, before: str, failing: str) -> None:
    """Run statements and an epoch; something in it must fail."""
    session.execute("CREATE TABLE t (k int, v int, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 7), (2, 7), (3, 7)")
    (folder / "functions").mkdir(exist_ok=True)
    (folder / "functions" / "broken.py").write_text(FUNCTION)
    if before:
        session.execute(before, base=folder)
    with pytest.raises(TussockError):
        session.execute(failing, base=folder) if failing else session.flush()


def _spoil_all(spark: SparkSession, folder: Path, check: Callable[[str], None]) -> None:
    for number, (what, (before, failing)) in enumerate(FAILING.items()):
        python, jvm = shared_by_python(), shared_by_spark(spark)
        with Session(str(folder / f"spoilt{number}"), spark, runner=here(spark)) as session:
            spoil(session, folder, before, failing)
        assert differing(python, shared_by_python()) == [], what
        assert differing(jvm, shared_by_spark(spark)) == [], what
        check(what)


def test_a_statement_that_fails_changes_nothing_that_sessions_share(spark: SparkSession, tmp_path: Path) -> None:
    others = Others(spark, tmp_path)
    with others.new() as old:
        compute(old, 1)
        counts = iter(range(2, 1_000))
        _spoil_all(spark, tmp_path, lambda what: None)
        compute(old, next(counts))
    with others.new() as new:
        compute(new, 1)


@pytest.mark.deep
def test_another_store_works_after_each_statement_that_fails(spark: SparkSession, tmp_path: Path) -> None:
    others = Others(spark, tmp_path)
    with others.new() as old:

        def check(what: str) -> None:
            compute(old, len(what))
            with others.new() as new:
                compute(new, len(what))

        _spoil_all(spark, tmp_path, check)


def test_a_kernel_that_duckdb_refuses_is_refused_by_create(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a defect of a renderer would be: here, of `reverse`."""
    from tussock.jobs.kernels import registry

    rules = registry._RULES
    monkeypatch.setitem(rules, ("Reverse", None), rules["RefusedByDuckDBHere", None])
    with Session(str(tmp_path / "refused"), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE t (w string)")
        with pytest.raises(TussockError, match="is refused by DuckDB"):
            session.execute("CREATE MATERIALIZED VIEW v AS SELECT reverse(w) AS r FROM t")
        session.flush()
        assert [r.name for r in session.meta.read_latest().catalog.live_relations()] == ["t"], "nothing was created"
    monkeypatch.undo()
    with Others(spark, tmp_path).new() as other:
        compute(other, 1)


NEAREST = {
    "near": "SELECT u.id, p.product FROM u JOIN p APPROX NEAREST 1 BY DISTANCE abs(u.score - p.score)",
    "two": "SELECT u.id, p.product FROM u LEFT JOIN p EXACT NEAREST 2 BY SIMILARITY -abs(u.score - p.score)",
}


@pytest.mark.skipif(RELEASE < (4, 2), reason="NEAREST BY came with Spark 4.2")
def test_nearest_by_over_tables_without_keys_equals_spark(spark: SparkSession, tmp_path: Path) -> None:
    with Session(str(tmp_path / "near"), spark, runner=here(spark)) as session:
        session.execute("CREATE TABLE u (id int, score double); CREATE TABLE p (product string, score double)")
        for name, select in NEAREST.items():
            session.execute(f"CREATE MATERIALIZED VIEW {name} AS {select}")
        for statements in (
            "INSERT INTO u VALUES (1, 10.0), (2, 20.0), (2, 20.0), (3, NULL); "
            "INSERT INTO p VALUES ('A', 11.0), ('B', 22.5)",
            "INSERT INTO p VALUES ('C', 19.75); UPDATE u SET score = 22.0 WHERE id = 1",
            "DELETE FROM p WHERE product = 'B'; INSERT INTO u VALUES (4, 100.0)",
            "DELETE FROM p; DELETE FROM u WHERE id = 2",
        ):
            session.execute(statements)
            session.flush()
            for name, select in NEAREST.items():
                ours, theirs = (sorted(map(repr, t.to_pylist())) for t in (session.read(name), session.query(select)))
                assert ours == theirs, (statements, name)

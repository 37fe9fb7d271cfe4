"""`tussock query` and `tussock read` without a JVM: plain SELECTs, DuckDB's SQL, limits, conditions and forms."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, open_store
from tests.support.jobs.shell import query_command as shared
from tests.support.jobs.shell.query_command import _FIELDS, _ROWS, lines
from tussock.jobs import cli
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.session import Session
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

store = shared.store


@pytest.mark.spark
def test_a_select_by_spark_says_how_to_do_without_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path)
    MetaStore.init(open_object_store(store), units=1)
    append(open_store(tmp_path, "maker"), CreateTable("orders", _FIELDS, (0,)))
    with Session(store, create=False, runner="local", workers=1) as session:
        session.insert("orders", _ROWS)
        session.flush()
    for arguments in (
        ["query", "SELECT id + 1 AS next FROM orders WHERE shop <=> NULL"],
        ["read", "orders", "--columns", "id", "--where", "shop <=> NULL"],
    ):
        assert cli.main([arguments[0], "--store", store, *arguments[1:]]) == 0
        printed = capfd.readouterr()
        assert lines(printed.out) == (["4", "next"] if arguments[0] == "query" else ["3", "id"])
        assert "With --duckdb, DuckDB answers without Spark" in printed.err

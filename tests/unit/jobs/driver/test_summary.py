"""The summary of an epoch: what people read first. No Spark."""

from pathlib import Path

from tests.support.jobs.driver.embedded import append, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.statestore.meta.catalog import INTERNAL


def test_the_rows_of_quality_views_follow_those_of_the_users_relations(tmp_path: Path) -> None:
    meta, hidden = new_store(tmp_path / "store"), f"{INTERNAL}daily_numbers_{'0' * 32}"
    append(meta, table("t"), view("daily", counted(scan("t"), 0)), view(hidden, counted(scan("t"), 0)))
    insert(meta, "t", (1, 2, 3))
    (summary,) = advance_store(LocalRunner(), meta)
    assert [*summary.rows] == ["daily", "t", hidden]

"""Rows and helpers of test_runner.py, which is in several lanes."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    meta = new_store(tmp_path / "store", units=3)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (0, 0, 0))
    return meta

"""Rows and helpers of test_programs.py, which is in several lanes."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    meta = new_store(tmp_path / "store", units=2)
    append(meta, table("t"), view("v", counted(scan("t"), 1)))
    insert(meta, "t", (1000, 0, 0))
    epoch(meta)
    meta.publish(meta.read_latest().epoch)
    return meta

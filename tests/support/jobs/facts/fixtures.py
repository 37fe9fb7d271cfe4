"""A store whose epochs run in this process, for tests of facts about it."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.driver.publish import publish_epoch
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """A table, a view over it, two epochs, the first published, and waiting statements."""
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    insert(meta, "t", (1, 7, 1), (2, 7, 2), (3, 8, 3))
    publish_epoch(meta, epoch(meta).epoch)
    insert(meta, "t", (4, 7, 1))
    epoch(meta)
    insert(meta, "t", (5, 9, 1))
    return meta

"""A barrier that drops a view does not take a newer statement that creates it again."""

from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import table
from tests.unit.jobs.driver.test_builds import replacing
from tests.unit.jobs.driver.test_following import adding_up_to
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.trouble.detour_errors import CreatedAgainError
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """A store whose open barrier creates the view `sums`, which raises."""
    meta = new_store(tmp_path / "store")
    append(meta, table("t"))
    insert(meta, "t", (5, 1, 1))
    epoch(meta)
    append(meta, adding_up_to(0))
    with pytest.raises(ViewRowError):
        epoch(meta)
    return meta


def test_a_view_that_was_dropped_and_created_again_comes_with_the_next_epoch(meta: MetaStore) -> None:
    abandon_barrier(meta, Detour(drop=("sums",)))
    append(meta, adding_up_to(30))
    with pytest.raises(CreatedAgainError, match=r"drops 'sums', and log entry \d+ creates it again.*Omit --take-log"):
        abandon_barrier(meta, Detour(take_log=True))
    advance_store(LocalRunner(), meta)
    assert [k for k, _ in rows(meta, "sums")] == [5]


def test_a_correction_replaces_a_view_that_no_barrier_has_dropped(meta: MetaStore) -> None:
    append(meta, replacing(adding_up_to(30)))
    with pytest.raises(CreatedAgainError, match="omit --drop"):
        abandon_barrier(meta, Detour(drop=("sums",), take_log=True))
    abandon_barrier(meta, Detour(take_log=True))
    advance_store(LocalRunner(), meta)
    assert [k for k, _ in rows(meta, "sums")] == [5]

"""Facts about a store, as pages and the command line get them; the store's epochs run in this process."""

import json
from pathlib import Path

import msgspec
import pytest

from jobs.driver.barrier import inject
from jobs.driver.detour import Detour
from jobs.driver.publish import publish
from jobs.driver.supersede import abandon
from jobs.shell import facts
from statestore.meta.manifest import RowCounts
from statestore.meta.store import MetaStore
from tests.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.jobs.plan.catalogs import counted, scan, table, view


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """A table, a view over it, and two epochs, the first of them published; statements wait."""
    meta = new_store(tmp_path / "store")
    append(meta, table("t"), view("per_g", counted(scan("t"), 1)))
    insert(meta, "t", (1, 7, 1), (2, 7, 2), (3, 8, 3))
    publish(meta, epoch(meta).epoch)
    insert(meta, "t", (4, 7, 1))
    epoch(meta)
    insert(meta, "t", (5, 9, 1))
    return meta


def test_an_epoch_reports_rows_seconds_and_what_it_changed(meta: MetaStore) -> None:
    first, second = facts.epochs(meta, 10)
    assert (first.published, second.published) == (True, False)
    assert second.prev_epoch == first.epoch
    assert [(r.relation, r.kind, r.rows_out) for r in first.rows] == [("per_g", "view", 2), ("t", "table", 3)]
    assert (first.rows_in, first.rows_out) == (3, 2)
    assert (second.rows_in, second.rows_out) == (1, 2), "one group before and after"
    assert first.mutation is not None
    assert (first.mutation.kind, len(first.mutation.relations)) == ("add", 2)
    assert first.seconds is not None
    assert first.seconds.run > 0
    assert (second.ssts, second.bytes) == (1, sum(s.bytes for s in facts.ssts(meta.latest()) if s.min_epoch == second.epoch))
    assert facts.epochs(meta, 1) == (second,)
    assert facts.epochs(meta, 0) == ()


def test_the_first_manifest_sealed_is_the_one_that_is_reported(meta: MetaStore) -> None:
    """Another driver of the same barrier seals later, with seconds of its own: nothing changes."""
    *_, before = facts.epochs(meta, 1)
    sealed = meta.sealed(before.epoch)
    assert sealed is not None
    other = msgspec.structs.replace(sealed, writer="another", seconds=None, rows={"t": RowCounts(1, 1)})
    assert meta.seal(other) == sealed
    assert facts.epochs(meta, 1) == (before,)


def test_versions_ssts_and_tables_agree_with_each_other(meta: MetaStore) -> None:
    *_, newest = facts.versions(meta, 3)
    version = meta.latest()
    found = facts.ssts(version)
    assert (newest.version, newest.epoch, newest.ssts, newest.bytes) == (version.id, version.epoch, len(found), sum(s.bytes for s in found))
    tables = facts.tables(version)
    assert [t.relation for t in tables if t.role == "rows"] == ["t", "per_g"]
    assert sum(t.rows for t in tables) == sum(s.rows for s in found)
    assert {name for s in found for name in s.tables} == {f"{t.relation}.{t.role}#{t.table_id}" for t in tables if t.rows}


def test_rows_of_a_table_are_those_of_the_epoch_that_is_named(meta: MetaStore) -> None:
    first, _ = facts.epochs(meta, 2)
    assert facts.table_rows(meta, "t", 10).num_rows == 4
    assert facts.table_rows(meta, "per_g", 10).column_names == [c.name for c in meta.latest().catalog.live()[1].columns]
    assert facts.table_rows(meta, "t", 10, first.epoch).num_rows == 3
    assert facts.table_rows(meta, "t", 2).num_rows == 2
    with pytest.raises(facts.NoSuchTableError, match=r"'nope'; give a number or a relation's name: .*t, per_g"):
        facts.table_rows(meta, "nope", 10)


def test_the_open_barrier_says_what_it_takes_changes_and_leaves_out(meta: MetaStore) -> None:
    assert facts.barrier(meta) is None
    inject(meta)
    taken = facts.barrier(meta)
    assert taken is not None
    assert [text for _, text in taken.entries] == ["insert t, 1 rows"]
    assert (taken.mutation.kind, taken.changed, taken.skipped, taken.sealed) == ("nothing", (), (), False)
    abandon(meta, Detour(pause=("per_g",)))
    instead = facts.barrier(meta)
    assert instead is not None
    assert (instead.attempt, instead.mutation.kind, instead.changed) == (1, "pause", ("per_g",))
    assert instead.skipped == ("paused per_g",)
    epoch(meta)
    (done,) = facts.epochs(meta, 1)
    assert done.skipped == ("paused per_g",), "it stays on record after the commit"
    assert len(rows(meta, "t")) == 5


def test_facts_encode_as_json(meta: MetaStore) -> None:
    found = json.loads(msgspec.json.encode(facts.epochs(meta, 1)))
    assert found[0]["rows"][1] == {"relation": "t", "kind": "table", "rows_in": 0, "rows_out": 1}

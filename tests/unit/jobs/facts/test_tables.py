"""Facts about versions, SSTs and state tables."""

import pytest

from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.facts.tables import NoSuchTableError, list_ssts, list_tables, table_rows
from tussock.jobs.facts.versions import list_versions
from tussock.statestore.meta.store import MetaStore


def test_versions_ssts_and_tables_agree_with_each_other(meta: MetaStore) -> None:
    *_, newest = list_versions(meta, 3)
    version = meta.read_latest()
    found = list_ssts(version)
    assert (newest.version, newest.epoch, newest.ssts, newest.bytes) == (
        version.id,
        version.epoch,
        len(found),
        sum(s.bytes for s in found),
    )
    known = list_tables(version)
    assert [t.relation for t in known if t.role == "rows"] == ["t", "per_g"]
    assert sum(t.rows for t in known) == sum(s.rows for s in found)
    assert {name for s in found for name in s.tables} == {
        f"{t.relation}.{t.role}#{t.table_id}" for t in known if t.rows
    }


def test_rows_of_a_table_are_those_of_the_epoch_that_is_named(meta: MetaStore) -> None:
    first, _ = list_epochs(meta, 2)
    assert table_rows(meta, "t", 10).num_rows == 4
    assert table_rows(meta, "per_g", 10).column_names == [
        c.name for c in meta.read_latest().catalog.live_relations()[1].columns
    ]
    assert table_rows(meta, "t", 10, first.epoch).num_rows == 3
    assert table_rows(meta, "t", 2).num_rows == 2
    with pytest.raises(NoSuchTableError, match=r"'nope'; use a number or a relation's name: .*t, per_g"):
        table_rows(meta, "nope", 10)

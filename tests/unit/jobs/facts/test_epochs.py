"""Facts about committed epochs."""

import json

import msgspec

from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.facts.tables import list_ssts
from tussock.statestore.meta.manifest import RowCounts
from tussock.statestore.meta.store import MetaStore


def test_an_epoch_reports_rows_seconds_and_changes(meta: MetaStore) -> None:
    first, second = list_epochs(meta, 10)
    assert (first.published, second.published) == (True, False)
    assert second.prev_epoch == first.epoch
    assert [(r.relation, r.kind, r.rows_out) for r in first.rows] == [("per_g", "view", 2), ("t", "table", 3)]
    assert (first.rows_in, first.rows_out) == (3, 2)
    assert (second.rows_in, second.rows_out) == (1, 2), "one group before and after"
    assert first.mutation is not None
    assert (first.mutation.kind, len(first.mutation.relations)) == ("add", 2)
    assert first.seconds is not None
    assert first.seconds.run > 0
    assert (second.ssts, second.bytes) == (
        1,
        sum(s.bytes for s in list_ssts(meta.read_latest()) if s.min_epoch == second.epoch),
    )
    assert list_epochs(meta, 1) == (second,)
    assert list_epochs(meta, 0) == ()


def test_the_first_manifest_sealed_is_the_one_that_is_reported(meta: MetaStore) -> None:
    """Another driver of the same barrier seals later, with other seconds: nothing changes."""
    *_, before = list_epochs(meta, 1)
    sealed = meta.read_manifest(before.epoch)
    assert sealed is not None
    other = msgspec.structs.replace(sealed, writer="another", seconds=None, rows={"t": RowCounts(1, 1)})
    assert meta.seal_epoch(other) == sealed
    assert list_epochs(meta, 1) == (before,)


def test_facts_encode_as_json(meta: MetaStore) -> None:
    found = json.loads(msgspec.json.encode(list_epochs(meta, 1)))
    assert found[0]["rows"][1] == {"relation": "t", "kind": "table", "rows_in": 0, "rows_out": 1, "net": 1}

"""The bytes of a store by cause: their sums against the listing, and each cause when it appears."""

import json
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import epoch, insert
from tussock.jobs import cli
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.facts.size import SizeFacts, measure_size
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import compact_store
from tussock.jobs.upkeep.vacuum import clean_store
from tussock.statestore.meta.names import source_copy_name
from tussock.statestore.meta.store import MetaStore


def test_causes_and_tables_sum_up_to_the_objects_of_the_store(meta: MetaStore) -> None:
    found = measure_size(meta)
    listed = [one.size for one in meta.objects.list("")]
    assert (found.bytes, found.objects) == (sum(listed), len(listed))
    assert found.bytes == sum(cause.bytes for cause in found.causes)
    ssts = [sst for level in meta.read_latest().levels for sst in level]
    assert sum(table.bytes for table in found.tables) == sum(sst.size for sst in ssts)
    assert {(t.relation, t.role, t.rows) for t in found.tables} >= {("t", "rows", 4), ("per_g", "rows", 3)}
    for table in found.tables:
        assert table.bytes == table.keys + table.epochs + table.values + table.heads + table.filters + table.index


def test_replaced_rows_are_old_until_compaction_and_their_ssts_until_vacuum(meta: MetaStore) -> None:
    publish_epoch(meta, epoch(meta).epoch)
    old = {t.relation: t.old_rows for t in measure_size(meta).tables if t.role == "rows"}
    assert old == {"t": 0, "per_g": 1}, "the group 7 has changed once, and its first row is still stored"
    assert measure_size(meta).old_bytes > 0
    replaced = sum(sst.size for level in meta.read_latest().levels for sst in level)
    meta.apply_retention(1)
    compact_store(meta, full=True)
    before = measure_size(meta)
    assert _bytes_of(before, "SSTs that vacuum would remove") == replaced
    assert before.old_bytes == 0
    clean_store(meta, Retention(keep_epochs=1))
    assert _bytes_of(measure_size(meta), "SSTs that vacuum would remove") == 0


def test_ssts_of_a_pinned_version_and_copies_of_files_are_causes(meta: MetaStore) -> None:
    publish_epoch(meta, epoch(meta).epoch)
    pin = meta.pin_epoch(meta.read_latest().epoch)
    kept = sum(sst.size for level in meta.read_latest().levels for sst in level)
    insert(meta, "t", (6, 9, 1))
    publish_epoch(meta, epoch(meta).epoch)
    meta.apply_retention(1)
    compact_store(meta, full=True)
    meta.objects.put(source_copy_name(meta.read_latest().epoch, "orders", "1.csv"), b"k,g\n")
    found = measure_size(meta)
    assert _bytes_of(found, "SSTs of other versions and open tasks") == kept
    assert _bytes_of(found, "copies of source files") == 4
    meta.unpin(pin)
    assert _bytes_of(measure_size(meta), "SSTs of other versions and open tasks") == 0


def test_the_command_prints_the_facts(meta: MetaStore, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = measure_size(meta)
    store = str(tmp_path / "store")
    assert cli.main(["inspect", "bytes", "--store", store, "--most", "1"]) == 0
    text = capsys.readouterr().out
    assert f"{found.bytes:,} bytes in {found.objects:,} objects" in text
    assert f"{found.tables[0].relation}.{found.tables[0].role}#" in text
    assert f"and {len(found.tables) - 1} more tables" in text
    assert cli.main(["inspect", "bytes", "--store", store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == found.bytes


def _bytes_of(found: SizeFacts, cause: str) -> int:
    return sum(one.bytes for one in found.causes if one.cause == cause)

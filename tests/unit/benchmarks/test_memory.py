"""The memory of a compaction and of a full scan does not follow the size of the state."""

import os
from pathlib import Path

import pytest

from benchmarks.memory import BUDGET_BYTES, RUNS, make_state, measure, scan_state
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.local import LocalObjectStore


def test_the_state_that_is_measured_has_each_key_once_however_it_is_read(tmp_path: Path) -> None:
    objects = LocalObjectStore(tmp_path / "store")
    make_state(objects, rows_per_vnode=40)
    numbers = range(40)
    expected = (256 * 40, 256 * sum(numbers), 256 * sum(n % RUNS for n in numbers))
    meta = MetaStore(objects, "reader", lambda: 0)
    assert sum(sst.rows for sst in meta.read_latest().levels[0]) > 256 * 40, "some rows are there twice"
    assert scan_state(objects.uri) == expected
    compact_store(meta, CompactionOptions(), full=True)
    assert sum(sst.rows for level in meta.read_latest().levels for sst in level) == 256 * 40
    assert scan_state(objects.uri) == expected


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_compaction_and_scan_of_gigabytes_stay_within_a_gigabyte_of_private_memory(tmp_path: Path) -> None:
    """TUSSOCK_TEST_MEMORY_GB=10 takes 23 GB of disk and a quarter of an hour."""
    found = measure(tmp_path, float(os.environ.get("TUSSOCK_TEST_MEMORY_GB", "2")))
    assert found.right
    assert max(found.compaction.peak, found.scan.peak) < BUDGET_BYTES, found

"""`[epoch] memory`: every use of memory of an epoch follows it. No Spark."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import StoreModel, sealed, storage_key
from tussock.jobs.chunks.matched_rows import RowMatcher
from tussock.jobs.task.memory import apply_memory
from tussock.statestore.hummock import shared_buffer
from tussock.statestore.hummock.block_source import BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache, process_cache
from tussock.statestore.hummock.merge import share_of
from tussock.statestore.memory import memory_limit
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.row_cache import process_row_cache

MB = 1 << 20


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """The limits of this process, as they were."""
    blocks, rows = process_cache(), process_row_cache()
    before = memory_limit.nbytes, blocks.capacity, rows.capacity
    yield
    memory_limit.nbytes, blocks.capacity, rows.capacity = before


def test_without_the_setting_nothing_changes() -> None:
    before = process_cache().capacity, process_row_cache().capacity, share_of(1)
    apply_memory(None, 2)
    assert (process_cache().capacity, process_row_cache().capacity, share_of(1)) == before


def test_processes_share_the_memory_of_an_epoch() -> None:
    apply_memory(512 * MB, 2)
    assert (process_cache().capacity, process_row_cache().capacity, share_of(1)) == (64 * MB, 32 * MB, 16 * MB)
    assert RowMatcher(1)._memory == 16 * MB


def test_a_limit_above_the_usual_ones_changes_nothing() -> None:
    before = process_row_cache().capacity, share_of(1), RowMatcher(1)._memory
    apply_memory(1 << 40, 1)
    assert (process_row_cache().capacity, share_of(1), RowMatcher(1)._memory) == before


def test_a_read_of_many_blocks_works_in_smaller_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tussock.statestore.memory._LEAST_SHARE", 1)
    objects = LocalObjectStore(tmp_path)
    model = StoreModel(objects)
    rows = {storage_key(2, 1, b"%06d" % i): {"n": i, "s": str(i)} for i in range(5_000)}
    (info,) = model.commit(3, [sealed(2, dict(rows))])
    source = shared_buffer.BufferedSource(BlockSource(objects, BlockCache()))
    (sst,) = source.stored.open_ssts([info])
    section = OpenSection(sst, sst.open_section(2))

    def count_portions() -> int:
        return len(list(source.in_portions([(section, np.arange(len(section.reader)))], 3, few=False)))

    assert count_portions() == 1
    memory_limit.nbytes = 100_000
    assert count_portions() > 3
    found, _ = model.store().multi_get(2, pa.array(list(rows), pa.binary()), 3)
    assert found.true_count == len(rows)

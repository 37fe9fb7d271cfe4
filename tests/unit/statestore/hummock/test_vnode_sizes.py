"""The rows and bytes per vnode that block indexes give for SSTs, compared with counted rows."""

import numpy as np
import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.vnode_sizes import VnodeSizes, sum_of, vnode_sizes
from tussock.statestore.meta.version import SstInfo

VNODES = 64


def ingested(
    objects: MemoryObjectStore, table_id: int, vnodes: np.ndarray, epoch: int = 1, target: int = 1 << 16
) -> list[SstInfo]:
    """SSTs of one row for each entry of `vnodes`."""
    keys = sorted(
        table_id.to_bytes(4, "big") + int(v).to_bytes(2, "big") + n.to_bytes(8, "big") for n, v in enumerate(vnodes)
    )
    n = len(keys)
    rows = pa.table(
        [pa.array(keys, pa.binary(14)), pa.array(np.ones(n, np.uint8)), pa.array(np.arange(n))],
        names=["key", "op", "n"],
    )
    return list(batch_ingest(objects, [SealedBatch(table_id, rows)], epoch, f"data/{epoch:016x}", target))


def sizes_of(objects: MemoryObjectStore, ssts: list[SstInfo]) -> dict[int, VnodeSizes]:
    return vnode_sizes(BlockSource(objects, BlockCache()), ssts, VNODES)


@pytest.mark.parametrize("per_vnode", [20, 300, 3000])
def test_rows_per_vnode_are_estimated_and_their_sum_is_exact(per_vnode: int) -> None:
    objects, rng = MemoryObjectStore(), np.random.default_rng(per_vnode)
    vnodes = rng.integers(0, VNODES, per_vnode * VNODES)
    ssts = ingested(objects, 7, vnodes)
    assert len(ssts) > 1 or per_vnode < 3000
    (found,) = sizes_of(objects, ssts).values()
    counted = np.bincount(vnodes, minlength=VNODES)
    assert found.rows.sum() == pytest.approx(len(vnodes))
    assert found.bytes.sum() == pytest.approx(sum(s.bytes for sst in ssts for s in sst.sections), rel=0.05, abs=500)
    assert np.abs(found.rows - counted).max() <= max(0.5 * per_vnode, 1100), (
        "a block at each end of a vnode may be its neighbour's"
    )
    if per_vnode >= 300:
        assert np.median(np.abs(found.rows / counted - 1)) < 0.3


def test_a_vnode_that_has_most_rows_is_seen_as_such() -> None:
    objects = MemoryObjectStore()
    vnodes = np.r_[np.full(30_000, 5), np.random.default_rng(1).integers(0, VNODES, 6_000)]
    (found,) = sizes_of(objects, ingested(objects, 7, vnodes)).values()
    assert found.rows.argmax() == 5
    assert found.rows[5] == pytest.approx(30_100, rel=0.07)


def test_a_table_of_one_vnode_and_a_table_of_one_row_are_counted_on_their_vnodes() -> None:
    objects = MemoryObjectStore()
    ssts = [
        *ingested(objects, 7, np.zeros(5_000, int)),
        *ingested(objects, 8, np.array([9]), epoch=2),
        *ingested(objects, 8, np.array([9])),
    ]
    found = sizes_of(objects, ssts)
    assert found[7].rows[0] == pytest.approx(5_000)
    assert np.count_nonzero(found[7].rows.round(9)) == 1
    assert found[8].rows[9] == pytest.approx(2)
    assert sum_of(found.values(), VNODES).rows.sum() == pytest.approx(5_002)

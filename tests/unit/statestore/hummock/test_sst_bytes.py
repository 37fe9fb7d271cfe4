"""The causes of an SST's bytes, against sizes that follow from the rows."""

import random

import pyarrow as pa
import pytest

from tests.support.statestore.hummock.store_model import sealed, storage_key
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sst_bytes import TableBytes, table_bytes
from tussock.statestore.meta.version import SstInfo
from tussock.statestore.objectstore.base import ObjectStore

ROWS = 20_000
_SCHEMA = pa.schema([pa.field("s", pa.binary())])


@pytest.mark.parametrize("sample", [3, 1_000])
def test_the_bytes_of_two_tables_are_those_of_their_random_keys_and_values(objects: ObjectStore, sample: int) -> None:
    """Random bytes do not compress, so their number is a lower bound, and a close one."""
    chance = random.Random(1)
    wide = {storage_key(3, i // 100, chance.randbytes(20)): {"s": b""} for i in range(ROWS)}
    long: dict[bytes, dict[str, object] | None] = {
        storage_key(9, 0, b"%08d" % i): {"s": chance.randbytes(50)} for i in range(ROWS)
    }
    ssts = batch_ingest(
        objects, [sealed(3, dict(wide), _SCHEMA), sealed(9, long, _SCHEMA)], 5, "data/" + "5".zfill(16), 1 << 20
    )
    assert len(ssts) > 1
    found = _measured(objects, ssts, sample)
    assert sum(table.total for table in found.values()) == sum(sst.size for sst in ssts)
    assert 20 * ROWS <= found[3].keys <= 30 * ROWS, "escapes and offsets come on top"
    assert found[3].values < ROWS / 4, "empty values"
    assert 49.9 * ROWS <= found[9].values <= 1.15 * 50 * ROWS
    assert found[9].keys < 8 * ROWS, "digits that ascend"
    for table in found.values():
        assert table.filters == pytest.approx(ROWS * 11 / 8, rel=0.01), "11 bits per row"
        assert table.epochs < ROWS / 5, "one epoch, and puts only"


def test_a_store_without_ssts_has_no_bytes(objects: ObjectStore) -> None:
    assert _measured(objects, [], 8) == {}


def _measured(objects: ObjectStore, ssts: list[SstInfo], sample: int) -> dict[int, TableBytes]:
    return table_bytes(BlockSource(objects, BlockCache(1 << 20)), ssts, sample)

"""A remembered table returns the rows of a StorageTable in every epoch."""

import random
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.catalogs import COLUMNS
from tests.support.statestore.hummock.compactor_model import Compactor
from tests.support.statestore.hummock.living_store import TABLE, VNODES, LivingStore, living_store, sealed_change
from tests.support.statestore.hummock.store_model import storage_key
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.table import recalled_table
from tussock.statestore.table.recalled_table import RecalledTable, recall_written
from tussock.statestore.table.storage_table import StorageTable

SCHEMA = TableSchema(TABLE, "t", COLUMNS, (), ())


def opened(kind: type[StorageTable], store: LivingStore, version: HummockVersion) -> StorageTable:
    hummock = HummockStore(store.objects, version, BlockCache(1 << 20))
    return kind(SCHEMA, hummock, version.epoch, VNODES)


def check(store: LivingStore, version: HummockVersion, rng: random.Random) -> None:
    recalled, stored = (opened(kind, store, version) for kind in (RecalledTable, StorageTable))
    numbers = [rng.randrange(60) for _ in range(rng.randrange(5))]
    keys = pa.array([storage_key(TABLE, n % VNODES, str(n).encode()) for n in numbers], pa.binary())
    for columns in (None, (0,), (1, 0)):
        found, expected = recalled.read_keys(keys, columns), stored.read_keys(keys, columns)
        assert found.found.to_pylist() == expected.found.to_pylist()
        assert found.rows.to_pylist() == expected.rows.to_pylist()
        for vnodes in (None, (1, 3)):
            tables = [pa.concat_tables([*table.scan(columns, vnodes)]) for table in (recalled, stored)]
            assert tables[0].combine_chunks() == tables[1].combine_chunks()


def read_at_all(store: LivingStore, version: HummockVersion) -> None:
    for _ in opened(RecalledTable, store, version).scan():
        pass


@pytest.mark.parametrize("seed", range(4))
def test_a_remembered_table_follows_puts_deletes_and_compactions(seed: int) -> None:
    rng, store = random.Random(seed), living_store(MemoryObjectStore(), 1, 40)
    compactor = Compactor(store.open("compactor"), store.clock, CompactionOptions(l0_runs=2), lambda what, n=1: None)
    for step in range(40):
        before = store.meta.read_latest().epoch
        change = {rng.randrange(60): rng.choice((None, step, step)) for _ in range(rng.randrange(1, 6))}
        epoch = store.run(change)
        if rng.random() < 0.5:  # this process has run the epoch
            recall_written(store.objects.uri, sealed_change(change), before, epoch)
        if rng.random() < 0.3:
            for _ in range(20):
                compactor.advance(rng)
        if rng.random() < 0.7:  # other epochs are skipped
            check(store, store.meta.read_latest(), rng)


def test_only_what_was_written_since_is_read() -> None:
    store = LivingStore()
    for number in range(6):
        store.run({number: number})
    read_at_all(store, store.meta.read_latest())
    store.run({9: 9})
    with patch.object(StorageTable, "read_range", side_effect=AssertionError("the table is read again")):
        table = opened(RecalledTable, store, store.meta.read_latest())
        assert sorted(n for part in table.scan((0,)) for n in part.column(0).to_pylist()) == [0, 1, 2, 3, 4, 5, 9]


def test_what_this_process_has_written_is_not_read() -> None:
    store = LivingStore()
    before = store.run({1: 1, 2: 2})
    read_at_all(store, store.meta.read_latest())
    change = {2: None, 3: 3}
    recall_written(store.objects.uri, sealed_change(change), before, store.run(change))
    with patch.object(HummockStore, "_open_sections", side_effect=AssertionError("an SST is read")):
        table = opened(RecalledTable, store, store.meta.read_latest())
        assert sorted(n for part in table.scan((0,)) for n in part.column(0).to_pylist()) == [1, 3]


def test_a_large_table_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalled_table, "MOST_BYTES", 100)
    rng, store = random.Random(1), LivingStore()
    for number in range(4):
        store.run(dict.fromkeys(range(40), number))
        check(store, store.meta.read_latest(), rng)
    assert (store.objects.uri, TABLE) not in recalled_table._process_memory()._tables


def test_a_remembered_epoch_below_the_floor_is_forgotten() -> None:
    rng, store = random.Random(1), LivingStore()
    store.run(dict.fromkeys(range(20), 0))
    read_at_all(store, store.meta.read_latest())
    store.run({3: None})
    last = store.run({4: 4})
    store.meta.raise_floor(last)
    check(store, store.meta.read_latest(), rng)


def test_another_store_at_the_same_address_is_not_mixed_up() -> None:
    """As if a user deletes a store, or restores an older copy, while a process goes on."""
    rng, first = random.Random(1), living_store(MemoryObjectStore(), 1, 20)
    first.run({3: 3})
    read_at_all(first, first.meta.read_latest())
    copy = MemoryObjectStore()
    second = living_store(copy, 1, 20)
    second.clock.now_ms = first.clock.now_ms + 77
    copy.uri = first.objects.uri
    for number in range(3):
        second.run({number: None, 30 + number: 5})
        check(second, second.meta.read_latest(), rng)
    read_at_all(first, first.meta.read_latest())
    older = MemoryObjectStore()
    older.uri, older.held = first.objects.uri, dict(first.objects.held)
    restored = LivingStore.__new__(LivingStore)
    restored.objects, restored.clock, restored.rows = older, second.clock, dict(first.rows)
    restored.meta = restored.open("owner")
    first.clock.now_ms += 10_000
    first.run({4: 4})
    read_at_all(first, first.meta.read_latest())  # of an epoch that the restored copy lacks
    restored.run({5: 5})
    check(restored, restored.meta.read_latest(), rng)

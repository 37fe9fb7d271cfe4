"""Reads return the same rows with the small runs of recent epochs merged in memory."""

import random
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.compactor_model import Compactor
from tests.support.statestore.hummock.living_store import TABLE, VNODES, LivingStore, living_store, sealed_change
from tests.support.statestore.hummock.store_model import ROW_SCHEMA, Row, StoreModel, assert_agrees, sealed, storage_key
from tussock.statestore.hummock import recent_runs as module
from tussock.statestore.hummock.block_source import BlockSource
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.errors import DamagedSstError, MissingSstError
from tussock.statestore.hummock.recent_runs import OwnKeys, RecentRun, keep_written, recent_runs
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.sst_format import ROWS_PER_BLOCK
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.hummock.version import keys_of
from tussock.statestore.meta.version import HummockVersion

READS = ("multi_get", "scan_prefix", "iter")


def check(
    store: LivingStore, version: HummockVersion, cache: BlockCache, seed: int, vnodes: range | None = None
) -> None:
    """Compare reads at the newest epoch and at an earlier one with the plain rows."""
    hummock = HummockStore(store.objects, version, cache, vnodes=vnodes)
    earlier = random.Random(seed).choice([e for e in store.rows if version.min_readable_epoch <= e <= version.epoch])
    for epoch in {version.epoch, earlier}:
        rows = {key: {"n": n, "s": "x" * 20} for key, n in sorted(store.rows[epoch].items())}
        assert_agrees(hummock, epoch, TABLE, rows, seed, READS)


def merged(store: LivingStore, cache: BlockCache, vnodes: range | None = None) -> tuple[RecentRun, ...]:
    return recent_runs(
        BlockSource(store.objects, cache), store.meta.read_latest(), OwnKeys.of_vnodes(TABLE, vnodes), None
    )


@pytest.mark.parametrize("seed", range(2))
def test_reads_agree_with_plain_rows_in_every_epoch(seed: int) -> None:
    rng, cache = random.Random(seed), BlockCache(1 << 24)
    store = living_store(MemoryObjectStore(), 2, 60)
    compactor = Compactor(store.open("compactor"), store.clock, CompactionOptions(l0_runs=12), lambda what, n=1: None)
    old = [store.meta.read_latest()]
    used = 0
    for step in range(30):
        change = {rng.randrange(80): rng.choice((None, step, step)) for _ in range(rng.randrange(1, 12))}
        store.run(change)
        if rng.random() < 0.5:
            keep_written(cache, store.objects.uri, store.meta.read_latest().levels[0][0], [sealed_change(change)])
        if rng.random() < 0.2:
            compactor.advance(rng)
        version = store.meta.read_latest()
        check(store, version, cache, 100 * seed + step)
        used += any(len(run.ssts) > 1 for run in merged(store, cache))
        if rng.random() < 0.2:  # a reader of an earlier version does not disturb
            check(store, rng.choice(old[-3:]), cache, step)
        old.append(version)
    assert used > 15


@pytest.mark.parametrize("own", [range(2, 4), range(1, 3)])
def test_readers_of_some_vnodes_agree_with_plain_rows(own: range) -> None:
    """Epochs of one unit and of two alternate, and reads of all vnodes go to the reader."""
    rng, cache = random.Random(own.start), BlockCache(1 << 24)
    store = living_store(MemoryObjectStore(), 2, 60)
    compactor = Compactor(store.open("compactor"), store.clock, CompactionOptions(l0_runs=12), lambda what, n=1: None)
    used = skipped = 0
    for step in range(20):
        numbers = [n for n in range(80) if rng.random() < 0.1]
        store.run({n: rng.choice((None, step, step)) for n in numbers or [0]}, units=rng.choice((1, 2, 2)))
        if rng.random() < 0.1:
            compactor.advance(rng)
        check(store, store.meta.read_latest(), cache, step, own)
        runs = merged(store, cache, own)
        used += any(len(run.ssts) > 1 for run in runs)
        level = store.meta.read_latest().levels[0]
        skipped += len(level) > sum(len(run.ssts) for run in runs) > 0
    assert used > 5
    assert skipped > 5 or own == range(1, 3)


def test_ssts_whose_blocks_have_no_row_of_the_own_vnodes() -> None:
    store, cache, own = LivingStore(), BlockCache(1 << 24), range(1, 3)
    for number in range(5):
        store.run({VNODES * n + 3 * (n % 2): number for n in range(2 * ROWS_PER_BLOCK)})
        merged(store, cache, own)
    assert sum(len(run.ssts) for run in merged(store, cache, own)) == 5
    check(store, store.meta.read_latest(), cache, 1, own)


def test_units_divide_the_merge() -> None:
    store, caches = LivingStore(), (BlockCache(1 << 24), BlockCache(1 << 24))
    for number in range(8):
        store.run(dict.fromkeys(range(8), number), units=2)
        for unit, cache in enumerate(caches):
            merged(store, cache, range(2 * unit, 2 * unit + 2))
    for unit, cache in enumerate(caches):
        own = range(2 * unit, 2 * unit + 2)
        runs = merged(store, cache, own)
        assert sum(len(run.ssts) for run in runs) == 8
        assert {key[5] for run in runs for key in run.section.reader.rows.keys.array.to_pylist()} == set(own)
        assert sum(len(run.section.reader.rows) for run in runs) < 8 * 4  # the newest row of each key


def test_the_number_of_runs_grows_with_the_logarithm_of_the_epochs() -> None:
    store, cache = LivingStore(), BlockCache(1 << 24)
    lengths, decoded = [], []
    blocks = BlockSource.read_blocks
    with patch.object(
        BlockSource, "read_blocks", lambda s, requests: decoded.append(len(requests)) or blocks(s, requests)
    ):
        for number in range(40):
            store.run({number: number, 100 + number: number})
            runs = merged(store, cache)
            lengths.append(len(runs))
            assert sorted(name for run in runs for name in run.ssts) == sorted(
                sst.name for sst in store.meta.read_latest().levels[0] if number >= module.WORTH_MERGING - 1
            )
    assert max(lengths) <= 6
    assert max(decoded[1:]) == 1, "an epoch reads only its own run"


def test_rows_that_this_process_uploaded_are_not_read_back() -> None:
    store, cache = LivingStore(), BlockCache(1 << 24)
    for number in range(4):
        store.run({number: number})
        merged(store, cache)
    for number in range(4, 12):
        change = {number: number, 0: None if number % 2 else number}
        store.run(change)
        keep_written(cache, store.objects.uri, store.meta.read_latest().levels[0][0], [sealed_change(change)])
        with patch.object(BlockSource, "_fetch_ranges", side_effect=AssertionError("a read of an SST")):
            assert sum(len(run.ssts) for run in merged(store, cache)) == number + 1
        check(store, store.meta.read_latest(), cache, number)


def test_few_uploaded_rows_are_kept_for_tables_that_are_not_read() -> None:
    store, cache = LivingStore(), BlockCache(1 << 24)
    for number in range(12):
        change = {number: number}
        store.run(change)
        keep_written(cache, store.objects.uri, store.meta.read_latest().levels[0][0], [sealed_change(change)])
        if number == 0:
            assert cache.held_keys() == [], "this process has not read the table"
            merged(store, cache)
    known = cache.get((store.objects.uri, "recent", OwnKeys.of_vnodes(TABLE, None), ""), module.RecentRuns)
    assert known is not None
    assert len(known.written) == module.MOST_WRITTEN
    assert sum(len(run.ssts) for run in merged(store, cache)) == 12
    check(store, store.meta.read_latest(), cache, 1)


def test_an_sst_that_is_uploaded_again_after_its_rows_were_merged() -> None:
    """An attempt that is repeated, or an epoch of a train that is given up and run again, uploads the same bytes."""
    store, cache = LivingStore(), BlockCache(1 << 24)
    for number in range(4):
        store.run({0: number} | {300 * (4 - number) + n: number for n in range(300)})
        merged(store, cache)
    store.run(dict.fromkeys(range(10), 4))
    merged(store, cache)
    again = dict.fromkeys(range(1, 7), 5)
    store.run(again)
    assert [len(run.ssts) for run in merged(store, cache)] == [2, 1, 3]
    keep_written(cache, store.objects.uri, store.meta.read_latest().levels[0][0], [sealed_change(again)])
    store.run({5_000 + n: 6 for n in range(2_000)})
    keys = pa.array([storage_key(TABLE, n % VNODES, str(n).encode()) for n in (0, 1, 5_000, 6_999)], pa.binary())
    version = store.meta.read_latest()
    _, rows = HummockStore(store.objects, version, cache).multi_get(TABLE, keys, version.epoch, schema=ROW_SCHEMA)
    assert rows["n"].to_pylist() == [4, 5, 6, 6]
    assert [len(run.ssts) for run in merged(store, cache)] == [7]


def test_uploaded_rows_do_not_hold_the_memory_of_their_epoch() -> None:
    """The rows of all tables of an epoch are slices of one buffer."""
    store, cache = LivingStore(), BlockCache(1 << 24)
    store.run({0: 0})
    merged(store, cache)
    before = pa.total_allocated_bytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, (rows := sealed_change({1: 1}).rows).schema) as writer:
        writer.write_table(rows)
        end = sink.tell()
        sink.write(bytes(8 << 20))
    epoch = sink.getvalue()
    batch = SealedBatch(TABLE, pa.ipc.open_stream(epoch.slice(0, end)).read_all())
    store.run({1: 1})
    keep_written(cache, store.objects.uri, store.meta.read_latest().levels[0][0], [batch])
    del sink, writer, epoch, batch
    assert pa.total_allocated_bytes() - before < 1 << 20
    known = cache.get((store.objects.uri, "recent", OwnKeys.of_vnodes(TABLE, None), ""), module.RecentRuns)
    assert known is not None
    assert len(known.written) == 1


def test_uploaded_rows_that_are_never_merged_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store, cache = LivingStore(), BlockCache(1 << 24)
    for limit in ("SMALL_ROWS", "SMALL_BYTES"):
        with monkeypatch.context() as patched:
            store.run({0: 0, 1: 1})
            merged(store, cache)
            patched.setattr(module, limit, 1)
            keep_written(cache, store.objects.uri, store.meta.read_latest().levels[0][0], [sealed_change({0: 0, 1: 1})])
            known = cache.get((store.objects.uri, "recent", OwnKeys.of_vnodes(TABLE, None), ""), module.RecentRuns)
            assert known is not None
            assert known.written == ()


def test_a_process_that_reads_one_version_merges_nothing() -> None:
    store = LivingStore()
    for number in range(8):
        store.run({number: number})
    cache = BlockCache(1 << 24)
    assert merged(store, cache) == ()
    assert merged(store, cache) == ()
    store.run({8: 8})
    assert sum(len(run.ssts) for run in merged(store, cache)) == 9


def test_runs_of_several_blocks_and_deletes() -> None:
    store, cache = LivingStore(), BlockCache(1 << 24)
    for number in range(5):
        store.run({n: None if n % 7 == number else number for n in range(0, 2_500, number + 1)})
        merged(store, cache)
    assert max(len(run.ssts) for run in merged(store, cache)) > 1
    check(store, store.meta.read_latest(), cache, 1)
    hummock = HummockStore(store.objects, store.meta.read_latest(), cache)
    keys = pa.array([storage_key(TABLE, n % VNODES, str(n).encode()) for n in range(2_500)], pa.binary())
    found, rows = hummock.multi_get(TABLE, keys, store.meta.read_latest().epoch, schema=ROW_SCHEMA)
    expected = store.rows[store.meta.read_latest().epoch]
    numbers = [n if hit else None for hit, n in zip(found.to_pylist(), rows["n"].to_pylist(), strict=True)]
    assert numbers == [expected.get(key) for key in keys.to_pylist()]


def test_a_reader_of_an_earlier_version_changes_nothing() -> None:
    store, cache = LivingStore(), BlockCache(1 << 24)
    for number in range(6):
        earlier = store.meta.read_latest()
        store.run({number: number})
        runs = merged(store, cache)
    assert recent_runs(BlockSource(store.objects, cache), earlier, OwnKeys.of_vnodes(TABLE, None), None) == ()
    assert merged(store, cache) is runs


@pytest.mark.parametrize("limit", ["SMALL_ROWS", "SMALL_BYTES", "MERGED_ROWS", "MERGED_BYTES"])
def test_large_runs_are_not_merged(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, 1)
    store, cache = LivingStore(), BlockCache(1 << 24)
    for number in range(6):
        store.run({number: number, 50: number})
        assert all(len(run.ssts) == 1 for run in merged(store, cache))
        check(store, store.meta.read_latest(), cache, number)


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_an_epoch_in_flight_hide_older_rows_below_a_newer_sst(seed: int) -> None:
    """An epoch in flight holds its rows in memory, and the next one uploads its own: their order follows the epochs."""
    rng, cache, model, used = random.Random(seed), BlockCache(1 << 24), StoreModel(MemoryObjectStore()), 0
    other = sealed(TABLE + 1, {storage_key(TABLE + 1, 0, b"a"): {"n": 0, "s": ""}})
    for epoch in range(1, 30):
        numbers = rng.sample(range(14), rng.randrange(1, 5))
        rows: dict[bytes, Row | None] = {
            storage_key(TABLE, n % 2, b"%d" % n): rng.choice((None, {"n": epoch, "s": "x"})) for n in sorted(numbers)
        }
        held = epoch > 6 and rng.random() < 0.3
        model.commit(epoch, [other, sealed(TABLE, rows)] if held else [sealed(TABLE, rows)], in_flight=held)
        assert_agrees(model.store(cache), epoch, TABLE, dict(model.scan(epoch, *keys_of(TABLE))), epoch, READS)
        known = cache.get((model.objects.uri, "recent", OwnKeys.of_vnodes(TABLE, None), ""), module.RecentRuns)
        used += known is not None and len(known.runs) > 0
    assert used > 15
    assert len(model.in_flight[TABLE]) > 3


@pytest.mark.parametrize("lost", [True, False])
def test_a_damaged_sst_fails_only_the_reads_that_need_it(lost: bool) -> None:
    objects, cache = MemoryObjectStore(), BlockCache(1 << 24)
    store = LivingStore(objects)
    for number in range(5):
        store.run({VNODES * number: number})
        merged(store, cache)
    store.run({VNODES * 5: 5})
    sst = store.meta.read_latest().levels[0][0]
    (reader,) = BlockSource(objects, BlockCache()).open_ssts([sst])
    data = bytearray(objects.held.pop(sst.name))
    data[int(reader.open_section(TABLE).offsets[0])] ^= 1
    if not lost:
        objects.held[sst.name] = bytes(data)
    for _ in range(2):
        hummock = HummockStore(objects, store.meta.read_latest(), cache)
        keys = [storage_key(TABLE, 0, str(VNODES * n).encode()) for n in range(6)]
        rows = hummock.get(TABLE, keys[3], store.meta.read_latest().epoch)
        assert rows is not None
        assert rows["n"].to_pylist() == [3]
        with pytest.raises(MissingSstError if lost else DamagedSstError, match=sst.name):
            hummock.get(TABLE, keys[5], store.meta.read_latest().epoch)

"""Merging: remaining rows, compared with plain Python; ends of SSTs; untouched SSTs; equal bytes in every run."""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.support.memory_store import MemoryObjectStore
from tests.support.statestore.hummock.catalogs import catalog_of
from tests.support.statestore.hummock.store_model import Row, empty_version, sealed, storage_key, with_l0
from tussock.statestore.hummock import compaction, merge, sst_writer
from tussock.statestore.hummock.block_source import BlockSource, OpenSection
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.compaction import (
    MergePiece,
    MergePlan,
    find_surviving,
    outputs_of,
    plan_merge,
    run_piece,
)
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.merge import heads_of
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.levels import levels_after, merge_objection, order_objection
from tussock.statestore.meta.version import CompactionTask, HummockVersion, LevelInput, SstInfo, VnodeMapping
from tussock.statestore.objectstore.base import ObjectStore

VNODES = 64


def version_of(tables: Iterable[int] = (1,), units: Sequence[int] = (0,) * VNODES) -> HummockVersion:
    """An empty version whose catalog lists these tables."""
    mapping = VnodeMapping(0, tuple(units))
    return msgspec.structs.replace(empty_version(), catalog=catalog_of(tables), mapping=mapping, epochs=(0,))


def flushed(
    objects: ObjectStore,
    version: HummockVersion,
    epoch: int,
    rows: dict[bytes, Row | None],
    target_bytes: int = 1 << 20,
) -> HummockVersion:
    """The version after an epoch of these rows."""
    by_table: dict[int, dict[bytes, Row | None]] = {}
    for key, row in rows.items():
        by_table.setdefault(int.from_bytes(key[:4], "big"), {})[key] = row
    batches = [sealed(table, of) for table, of in sorted(by_table.items())]
    infos = batch_ingest(objects, batches, epoch, f"data/{epoch:016x}", target_bytes)
    after = with_l0(version, epoch, infos)
    return msgspec.structs.replace(after, epochs=(*version.epochs, epoch))


def task_of(version: HummockVersion, ssts: Sequence[SstInfo], target: int, number: int = 1) -> CompactionTask:
    """A task on these SSTs, which meta would open."""
    names = {sst.name for sst in ssts}
    inputs = tuple(
        LevelInput(level, taken)
        for level, held in enumerate(version.levels)
        if (taken := tuple(s.name for s in held if s.name in names))
    )
    assert merge_objection(version, inputs, target) is None
    return CompactionTask(number, "tester", version.id, 0, target, inputs)


def outputs_here(plan: MergePlan, objects: ObjectStore) -> list[SstInfo]:
    """All pieces of a plan, merged by this process."""
    return outputs_of(plan, [run_piece(objects, piece) for piece in plan.pieces])


def merged(
    objects: ObjectStore,
    version: HummockVersion,
    ssts: Sequence[SstInfo],
    target: int,
    readable: Sequence[int],
    target_bytes: int = 1 << 20,
    number: int = 1,
) -> tuple[HummockVersion, list[SstInfo]]:
    """The version after a task on these SSTs, and the task's outputs."""
    task = task_of(version, ssts, target, number)
    outputs = outputs_here(plan_merge(objects, version, task, readable, target_bytes), objects)
    levels = levels_after(version.levels, task.inputs, target, outputs)
    assert all(order_objection(level) is None for level in levels[1:])
    return msgspec.structs.replace(version, levels=levels), outputs


def all_rows(objects: ObjectStore, ssts: Sequence[SstInfo]) -> list[tuple[bytes, int, int]]:
    """(key, epoch, op) of every stored row, read block by block and not by the merge."""
    source = BlockSource(objects, BlockCache())
    found = []
    for sst, reader in zip(ssts, source.open_ssts(ssts), strict=True):
        for section in sst.sections:
            opened = OpenSection(reader, reader.open_section(section.table_id))
            rows = heads_of(source.scan_blocks(opened, 0, len(opened.reader), None))
            found += list(zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True))
    return found


def rows_at(objects: ObjectStore, version: HummockVersion, table: int, epoch: int) -> dict[bytes, Row]:
    store = HummockStore(objects, version, BlockCache(), pinned=[epoch])
    return {row.pop("key"): row for rows in store.iter_rows(table, None, None, epoch) for row in rows.to_pylist()}


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 8)
    monkeypatch.setattr(sst_writer, "_WHOLE", 0)
    monkeypatch.setattr(compaction, "_CHUNK_ROWS", 64)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("seed", range(8))
def test_ssts_record_the_number_of_their_dead_rows(seed: int) -> None:
    """For any cut into blocks and SSTs, compared with a count row by row."""
    rng = random.Random(seed)
    objects, version = MemoryObjectStore(), version_of((1, 2))
    keys = [storage_key(rng.choice([1, 2]), rng.randrange(VNODES), rng.randbytes(2)) for _ in range(200)]
    for epoch in range(1, 8):
        changed = {key: None if rng.random() < 0.3 else {"n": epoch, "s": "x"} for key in rng.sample(keys, 60)}
        version = flushed(objects, version, epoch, dict(sorted(changed.items())))
    inputs = version.levels[0]
    _, outputs = merged(objects, version, inputs, 5, version.epochs, target_bytes=2_000)
    assert len(outputs) > 3
    for sst in (*inputs, *outputs):
        rows = all_rows(objects, [sst])
        newest = {key: op for key, _, op in sorted(rows, key=lambda row: row[1])}
        for section in sst.sections:
            mine = [key for key, _, _ in rows if int.from_bytes(key[:4], "big") == section.table_id]
            assert section.dead == len(mine) - sum(newest[key] for key in set(mine))


@pytest.mark.parametrize("seed", range(40))
def test_only_rows_that_a_readable_epoch_sees_survive(seed: int) -> None:
    rng = random.Random(seed)
    keys = sorted(storage_key(1, 0, rng.randbytes(2)) for _ in range(30))
    history = {key: {e: rng.randrange(2) for e in rng.sample(range(1, 20), rng.randint(1, 6))} for key in keys}
    rows = [
        (key, epoch, history[key][epoch]) for key in sorted(history) for epoch in sorted(history[key], reverse=True)
    ]
    types = (pa.binary(), pa.uint64(), pa.uint8())
    table = pa.table([pa.array([row[i] for row in rows], t) for i, t in enumerate(types)], names=["key", "epoch", "op"])
    readable = sorted(rng.sample(range(0, 22), rng.randint(1, 5)))
    for bottom in (False, True):
        kept = [
            row
            for row, keep in zip(rows, find_surviving(table, np.array(readable, np.uint64), bottom), strict=True)
            if keep
        ]
        for key, epochs in history.items():
            left = {epoch: op for k, epoch, op in kept if k == key}
            assert bottom or max(epochs) in left, "readers to come see the newest row"
            for reader in (*readable, 99):
                before = max((e for e in epochs if e <= reader), default=None)
                after = max((e for e in left if e <= reader), default=None)
                there, stored = before is not None and epochs[before] == 1, after is not None and left[after] == 1
                assert there == stored, "a reader sees another row"
            seen = {max((e for e in epochs if e <= reader), default=None) for reader in (*readable, 99)}
            assert set(left) <= seen, "a row that no reader sees stays"
            if bottom and left:
                assert left[min(left)] == 1, "a tombstone with nothing below it stays"


def test_tombstones_are_kept_while_an_older_row_exists_on_l0_or_deeper() -> None:
    objects, key = MemoryObjectStore(), storage_key(1, 3, b"k")
    version = version_of()
    for epoch, row in ((10, {"n": 1, "s": ""}), (20, {"n": 2, "s": ""}), (30, None)):
        version = flushed(objects, version, epoch, {key: row})
    newest, middle, oldest = version.levels[0]
    on_l0, outputs = merged(objects, version, [newest, middle], 0, [30])
    assert all_rows(objects, outputs) == [(key, 30, 0)]
    assert rows_at(objects, on_l0, 1, 30) == {}
    sunk = msgspec.structs.replace(version, levels=((newest, middle), (), (oldest,)))
    above, outputs = merged(objects, sunk, [newest, middle], 1, [30])
    assert all_rows(objects, outputs) == [(key, 30, 0)]
    gone, outputs = merged(objects, above, [*above.levels[1], oldest], 2, [30])
    assert outputs == []
    assert rows_at(objects, gone, 1, 30) == {}


def test_every_readable_epoch_reads_the_same_after_a_merge_and_nothing_else_is_kept() -> None:
    rng, objects, version = random.Random(5), MemoryObjectStore(), version_of((1, 2))
    for epoch in range(10, 100, 10):
        keys = [storage_key(rng.choice((1, 2)), rng.randrange(VNODES), b"%d" % rng.randrange(4)) for _ in range(200)]
        version = flushed(
            objects, version, epoch, {k: None if rng.random() < 0.3 else {"n": epoch, "s": "x"} for k in sorted(keys)}
        )
    readable = [30, 70, 90]
    before = {(t, e): rows_at(objects, version, t, e) for t in (1, 2) for e in readable}
    after, outputs = merged(objects, version, version.levels[0], 7, readable)
    assert {(t, e): rows_at(objects, after, t, e) for t in (1, 2) for e in readable} == before
    assert len(all_rows(objects, outputs)) <= sum(len(rows) for rows in before.values()) + sum(
        op == 0 for _, _, op in all_rows(objects, outputs)
    )


@pytest.mark.usefixtures("_small_blocks")
def test_ssts_have_the_target_size_and_end_at_borders_of_units() -> None:
    objects, units = MemoryObjectStore(), tuple(v // 4 for v in range(VNODES))
    version = version_of(units=units)
    rng = random.Random(1)
    keys = [storage_key(1, v, b"%05d" % i) for v in range(VNODES) for i in range(40)]
    rows: dict[bytes, Row | None] = {key: {"n": rng.randrange(1 << 60), "s": rng.randbytes(8).hex()} for key in keys}
    version = flushed(objects, version, 10, rows)
    _, outputs = merged(objects, version, version.levels[0], 7, [10], target_bytes=12_000)
    assert len(outputs) > 6
    assert all(8_000 < sst.size < 20_000 for sst in outputs[:-1]), [sst.size for sst in outputs]
    ends = [(o.sections[0].last_key, p.sections[0].first_key) for o, p in pairwise(outputs)]
    crossing = [units[int.from_bytes(a[4:6], "big")] == units[int.from_bytes(b[4:6], "big")] for a, b in ends]
    assert sum(crossing) <= len(crossing) // 4, "an SST ends inside a unit only if no border is near"
    assert [row[0] for row in all_rows(objects, outputs)] == keys


@pytest.mark.usefixtures("_small_blocks")
def test_pieces_give_the_rows_of_one_merge_and_the_same_objects_when_run_again() -> None:
    rng, objects, version = random.Random(2), MemoryObjectStore(), version_of((1, 2, 3))
    for epoch in (10, 20, 30):
        keys = sorted(
            {storage_key(rng.choice((1, 2, 3)), rng.randrange(VNODES), b"%d" % rng.randrange(30)) for _ in range(1500)}
        )
        version = flushed(
            objects,
            version,
            epoch,
            {k: {"n": rng.randrange(1 << 60), "s": rng.randbytes(4).hex()} for k in keys},
            9_000,
        )
    task = task_of(version, version.levels[0], 7)
    whole = outputs_here(plan_merge(objects, version, task, [10, 30], 5_000), objects)
    plan = plan_merge(objects, version, task, [10, 30], 5_000, pieces=5)
    assert len(plan.pieces) == 5
    assert all(msgspec.json.decode(msgspec.json.encode(piece), type=MergePiece) == piece for piece in plan.pieces)
    made = outputs_of(plan, [run_piece(objects, piece) for piece in reversed(plan.pieces)][::-1])
    assert all_rows(objects, made) == all_rows(objects, whole)
    assert order_objection(made) is None
    held = dict(objects.held)
    assert outputs_of(plan, [run_piece(objects, piece) for piece in plan.pieces]) == made
    assert objects.held == held, "a second run writes the same objects"


@pytest.mark.usefixtures("_small_blocks")
def test_an_sst_without_overlapping_input_is_not_rewritten() -> None:
    objects, version = MemoryObjectStore(), version_of()
    for epoch, vnodes in ((10, range(0, 20)), (20, range(20, 40)), (30, range(40, 60))):
        version = flushed(
            objects, version, epoch, {storage_key(1, v, b"%d" % i): {"n": v, "s": ""} for v in vnodes for i in range(9)}
        )
    low = msgspec.structs.replace(version, levels=((), (), version.levels[0][::-1]))
    for epoch, vnode in ((40, 3), (50, 50)):
        low = flushed(objects, low, epoch, {storage_key(1, vnode, b"1"): {"n": -1, "s": ""}})
    version = low
    everything = [sst for level in version.levels for sst in level]
    size = version.levels[2][1].size
    after, outputs = merged(objects, version, everything, 2, [50], target_bytes=size)
    assert version.levels[2][1] in outputs
    assert version.levels[2][0] not in outputs
    assert len(outputs) >= 3
    found = rows_at(objects, after, 1, 50)
    assert (len(found), {key for key, row in found.items() if row["n"] == -1}) == (
        540,
        {storage_key(1, 3, b"1"), storage_key(1, 50, b"1")},
    )


def test_rows_of_tables_in_no_readable_catalog_are_removed() -> None:
    objects, version = MemoryObjectStore(), version_of((1, 2))
    rows: dict[bytes, Row | None] = {storage_key(t, 0, b"%d" % i): {"n": i, "s": ""} for t in (1, 2) for i in range(50)}
    version = flushed(objects, version, 10, rows)
    gone = tuple(msgspec.structs.replace(r, dropped=20) if r.id == 1 else r for r in version.catalog.relations)
    version = msgspec.structs.replace(version, catalog=msgspec.structs.replace(version.catalog, relations=gone))
    for readable, left in (([10, 20], [1, 2]), ([20], [2])):
        _, outputs = merged(objects, version, version.levels[0], 7, readable)
        assert [section.table_id for sst in outputs for section in sst.sections] == left
    only = msgspec.structs.replace(version, catalog=Catalog((), 100, 100))
    assert merged(objects, only, only.levels[0], 7, [20])[1] == []


def test_keys_of_one_length_and_of_several_are_merged_into_one_section() -> None:
    objects, version = MemoryObjectStore(), version_of()
    version = flushed(
        objects, version, 10, {storage_key(1, 0, b"aa"): {"n": 1, "s": ""}, storage_key(1, 0, b"bb"): {"n": 2, "s": ""}}
    )
    version = flushed(
        objects, version, 20, {storage_key(1, 0, b"a"): {"n": 3, "s": ""}, storage_key(1, 0, b"bbb"): {"n": 4, "s": ""}}
    )
    after, outputs = merged(objects, version, version.levels[0], 7, [20])
    assert [row["n"] for row in rows_at(objects, after, 1, 20).values()] == [3, 1, 2, 4]
    assert [section.rows for sst in outputs for section in sst.sections] == [4]


def test_a_merge_of_four_times_the_rows_stays_within_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    window_bytes = 2 << 20
    monkeypatch.setattr(compaction, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(merge, "_LEAST_SHARE", 1)
    monkeypatch.setattr(compaction, "_CHUNK_ROWS", 4096)
    for rows in (100_000, 400_000):  # 7 and 28 MB in three runs
        objects, version = MeasuringStore(), version_of()
        for epoch in (10, 20, 30):
            version = many_rows(objects, version, epoch, rows)
        objects.peak, before = 0, pa.total_allocated_bytes()
        _, outputs = merged(objects, version, version.levels[0], 7, [30], target_bytes=100_000)
        assert sum(sst.rows for sst in outputs) == rows
        # A window is decoded while the merged rows of the windows before it are encoded.
        assert objects.peak - before < 3 * window_bytes, rows


class MeasuringStore(MemoryObjectStore):
    """Records Arrow's peak memory at requests: reads precede decoding, writes follow encoding."""

    peak = 0

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.peak = max(self.peak, pa.total_allocated_bytes())
        return super().get_ranges(name, ranges)

    def put(self, name: str, data: bytes) -> None:
        self.peak = max(self.peak, pa.total_allocated_bytes())
        super().put(name, data)


def many_rows(objects: ObjectStore, version: HummockVersion, epoch: int, count: int) -> HummockVersion:
    """The version after an epoch that writes the same `count` keys."""
    heads = np.zeros((count, 15), np.uint8)
    heads[:, 3] = 1
    heads[:, 5] = np.arange(count) * VNODES // count
    heads[:, 7:] = np.arange(count, dtype=">u8").view(np.uint8).reshape(-1, 8)
    keys = pa.Array.from_buffers(pa.binary(15), count, [None, pa.py_buffer(heads.tobytes())])
    values = pa.array(np.random.default_rng(epoch).integers(0, 1 << 60, count))
    rows = pa.table({"key": keys, "op": pa.array(np.ones(count, np.uint8)), "n": values})
    after = with_l0(version, epoch, batch_ingest(objects, [SealedBatch(1, rows)], epoch, f"data/{epoch:016x}", 1 << 20))
    return msgspec.structs.replace(after, epochs=(*version.epochs, epoch))

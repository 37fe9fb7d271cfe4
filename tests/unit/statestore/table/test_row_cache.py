"""Rows remembered between epochs: reads equal a plain dict's after evictions, moves, retries and skipped epochs."""

import os
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.statestore.table.rows import insert_row
from tests.support.statestore.table.stores import DictStore
from tussock.statestore.hummock.ingest import vnodes_of_keys
from tussock.statestore.meta.catalog import ColumnSpec, KeyColumn, TableSchema
from tussock.statestore.table import row_cache
from tussock.statestore.table.known_run import KnownRun, Mask, Places
from tussock.statestore.table.row_cache import ALL_UNITS, RowCache, RowsOf
from tussock.statestore.table.shared_runs import SharedRuns
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import vnodes_of

V = 16
ONE_ENTRY = 150  # bytes: room for one row of PAIRS
PAIRS = TableSchema(
    3,
    "pairs",
    tuple(ColumnSpec(f"c{i}", t) for i, t in enumerate(("bigint", "string", "double"))),
    (KeyColumn(0),),
    (0,),
)
WIDE = TableSchema(
    4, "wide", tuple(ColumnSpec(f"c{i}", t) for i, t in enumerate(("string", "bigint"))), (KeyColumn(0),), (0,)
)
VNODE_OF_1 = int(vnodes_of([pa.array([1])], V)[0])
Row = tuple[Any, ...]


class CountingStore(DictStore):
    """Counts the requested keys."""

    asked = 0

    def multi_get(
        self, table_id: int, keys: pa.Array, epoch: int, *rest: Any, **named: Any
    ) -> tuple[pa.Array, pa.Table]:
        self.asked += len(keys)
        return super().multi_get(table_id, keys, epoch, *rest, **named)


class Failed(Exception):
    """An attempt's end."""


def rows_table(schema: TableSchema, rows: list[Row]) -> pa.Table:
    types = {"bigint": pa.int64(), "string": pa.string(), "double": pa.float64()}
    return pa.table(
        [pa.array([r[i] for r in rows], types[c.type]) for i, c in enumerate(schema.columns)],
        [c.name for c in schema.columns],
    )


def keys_table(schema: TableSchema, keys: list[Any]) -> pa.Table:
    return rows_table(schema, [(k,) + (None,) * (len(schema.columns) - 1) for k in keys]).select([0])


def rows_read(table: StateTable, schema: TableSchema, keys: list[Any]) -> list[Row | None]:
    got = table.get_rows(keys_table(schema, keys))
    rows = list(zip(*(c.to_pylist() for c in got.rows.columns), strict=True))
    there = got.found.to_pylist()
    assert all(found or set(row) == {None} for row, found in zip(rows, there, strict=True)), (
        "a row that is not there must be NULLs"
    )
    return [row if found else None for row, found in zip(rows, there, strict=True)]


def vnodes_of_unit(units: list[int], unit: int) -> list[int]:
    return [vnode for vnode, owner in enumerate(units) if owner == unit]


# --- the model: workers with separate caches run units of epochs against a dict --------------------------------


def put_row(rng: random.Random, key: int) -> Row:
    return (key, rng.choice(("a", "", None, "longer")), rng.choice((0.5, None, -0.0)))


def run_model(
    seed: int, capacity: int, spare: Callable[[], int] | None = None, together: bool = False
) -> tuple[int, int]:
    """40 epochs of three units: units move or stay idle; barriers are superseded; attempts fail and repeat.

    Args:
        together: workers share their remembered rows.

    Returns: keys answered from memory, and keys requested from the store.
    """
    rng, store = random.Random(seed), CountingStore()
    workers = [RowCache(capacity, spare, SharedRuns(lambda: [os.getpid()]) if together else None) for _ in range(2)]
    content: dict[int, Row] = {}
    units = [vnode % 3 for vnode in range(V)]
    vnode_of = dict(enumerate(vnodes_of([pa.array(range(60))], V).tolist()))
    committed = 0
    for number in range(1, 41):
        if rng.random() < 0.1:
            rng.shuffle(units)
        barriers = [
            number * 10 + i for i in range(rng.choice((1, 1, 1, 2)))
        ]  # all but the last are superseded, after some work
        sticky = rng.random() < 0.7
        plans = {}
        for epoch in barriers:
            after: dict[int, Row | None] = dict(content)
            sealed = []
            for unit in range(3):
                keys = [k for k in rng.sample(range(60), 30) if units[vnode_of[k]] == unit]
                if rng.random() < 0.15 or not keys:  # idle: no tables are opened
                    continue
                changes = {k: rng.choice((put_row(rng, k), None)) for k in keys if rng.random() < 0.7}
                others = [k for k, n in vnode_of.items() if units[n] == unit and rng.random() < 0.1 and k not in keys]
                attempts = [unit % 2 if sticky else rng.randrange(2) for _ in range(rng.choice((1, 1, 2)))]
                batches = []
                for n, worker in enumerate(attempts):
                    fails = epoch != barriers[-1] and rng.random() < 0.3
                    of = RowsOf("store", PAIRS.table_id, unit)
                    rows = workers[worker].open_unit(of, vnodes_of_unit(units, unit), committed, epoch)
                    table = StateTable(PAIRS, store.reader, committed, V, rows)
                    task = workers[worker].defer_publications() if seed % 2 and not together else nullcontext()
                    with suppress(Failed), task:
                        asked = keys + rng.sample(keys, len(keys) // 2) if n == 0 else keys
                        assert rows_read(table, PAIRS, asked) == [content.get(k) for k in asked]
                        table.delete_rows(
                            rows_table(
                                PAIRS, [content.get(k, (k, None, None)) for k, row in changes.items() if row is None]
                            )
                        )
                        table.insert_rows(rows_table(PAIRS, [row for row in changes.values() if row is not None]))
                        now = content | changes
                        assert rows_read(table, PAIRS, keys + others) == [now.get(k) for k in keys + others]
                        if fails:
                            raise Failed
                        batches.append(table.seal_changes())
                    assert workers[worker].nbytes <= capacity
                sealed += batches[:1]
                if batches:
                    after |= changes
            plans[epoch] = (sealed, {k: row for k, row in after.items() if row is not None})
        committed = barriers[-1]
        sealed, content = plans[committed]
        for batch in sealed:
            store.ingest(batch, committed)
    return sum(w.counts.hits for w in workers), store.asked


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(2)
def test_reads_equal_a_dict_despite_changes_of_units_workers_and_barriers(seed: int) -> None:
    hits, _ = run_model(seed, 1 << 20)
    assert hits > 500


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(6)
def test_workers_that_share_rows_read_the_same_and_find_more_in_the_cache(seed: int) -> None:
    alone, _ = run_model(seed, 1 << 20)
    together, _ = run_model(seed, 1 << 20, together=True)
    assert together > 1.1 * alone


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(3)
def test_reads_are_the_same_with_room_for_one_entry(seed: int) -> None:
    hits, asked = run_model(seed, ONE_ENTRY, together=seed == 2)
    assert hits < asked / 10


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(3)
def test_reads_are_the_same_with_room_for_a_few_entries_of_several_units(seed: int) -> None:
    hits, asked = run_model(seed, 2000, together=seed == 2)
    assert 0 < hits < asked


def test_reads_are_the_same_while_the_memory_limit_changes() -> None:
    rng = random.Random(7)
    run_model(1, 1 << 20, lambda: rng.choice((1 << 20, -1000, -(1 << 20))))


# --- single rules ----------------------------------------------------------------------------------------------


def open_pairs(
    cache: RowCache, store: DictStore, base: int, epoch: int, vnodes: Sequence[int] = range(V), unit: int = 0
) -> StateTable:
    remembered = cache.open_unit(RowsOf("store", PAIRS.table_id, unit), vnodes, base, epoch)
    return StateTable(PAIRS, store.reader, base, V, remembered)


def first_epoch(cache: RowCache, store: DictStore) -> None:
    """Key 1 is read and written, key 2 read and found absent, key 3 only written."""
    table = open_pairs(cache, store, 0, 1)
    assert rows_read(table, PAIRS, [1, 2]) == [None, None]
    table.insert_rows(rows_table(PAIRS, [(1, "one", 1.0), (3, "three", 3.0)]))
    store.ingest(table.seal_changes(), 1)


def test_rows_that_an_epoch_read_or_wrote_are_cached_for_the_next() -> None:
    cache, store = RowCache(), CountingStore()
    first_epoch(cache, store)
    store.asked = 0
    table = open_pairs(cache, store, 1, 2)
    assert rows_read(table, PAIRS, [3, 2, 1, 2]) == [(3, "three", 3.0), None, (1, "one", 1.0), None]
    assert store.asked == 0
    assert rows_read(table, PAIRS, [1, 4]) == [(1, "one", 1.0), None]
    assert store.asked == 1


@pytest.mark.parametrize(("base", "inside"), [(0, True), (2, True), (1, False)])
def test_rows_of_another_epoch_or_of_other_vnodes_do_not_count(base: int, inside: bool) -> None:
    cache, store = RowCache(), CountingStore()
    first_epoch(cache, store)
    store.asked = 0
    vnodes = [vnode for vnode in range(V) if inside or vnode != VNODE_OF_1]
    table = open_pairs(cache, store, base, 9, vnodes)
    assert rows_read(table, PAIRS, [1]) == [(1, "one", 1.0) if base else None]
    assert store.asked == 1


def test_one_unit_for_all_vnodes_uses_the_rows_of_several_units_and_they_use_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, store = RowCache(), CountingStore()
    walked: list[int] = []
    monkeypatch.setattr(row_cache, "vnodes_of_keys", lambda keys: walked.append(len(keys)) or vnodes_of_keys(keys))
    halves = [range(V // 2), range(V // 2, V)]
    vnode_of = vnodes_of([pa.array(range(40))], V).tolist()
    keys = [[k for k, vnode in enumerate(vnode_of) if vnode in half] for half in halves]

    def run(base: int, shares: list[tuple[int, range, list[int]]]) -> None:
        written = []
        for unit, vnodes, own in shares:
            table = open_pairs(cache, store, base, base + 1, vnodes, unit)
            text = str(base)
            assert rows_read(table, PAIRS, own) == [(k, text, None) if base else None for k in own]
            table.insert_rows(rows_table(PAIRS, [(k, str(base + 1), None) for k in own]))
            written.append(table.seal_changes())
        for sealed in written:
            store.ingest(sealed, base + 1)

    units = [(unit, vnodes, own) for unit, (vnodes, own) in enumerate(zip(halves, keys, strict=True))]
    run(0, units)
    store.asked = 0
    run(1, [(ALL_UNITS, range(V), list(range(40)))])
    assert not walked, "all rows of both units are of its vnodes"
    run(2, units)
    assert walked
    assert store.asked == 0
    walked.clear()
    open_pairs(cache, store, 3, 4, range(V // 2, V - 1), 1)
    assert sum(walked) == len(keys[1]), "rows of the other unit have other vnodes"


def test_an_attempt_that_never_sealed_changes_no_cached_row() -> None:
    cache, store = RowCache(), CountingStore()
    first_epoch(cache, store)
    failed = open_pairs(cache, store, 1, 2)
    rows_read(failed, PAIRS, [1, 7])
    insert_row(failed, (1, "never", 0.0))
    store.asked = 0
    table = open_pairs(cache, store, 1, 2)
    assert rows_read(table, PAIRS, [1]) == [(1, "one", 1.0)]
    assert store.asked == 0


def test_rows_of_a_task_are_cached_when_it_has_ended_and_not_if_it_fails() -> None:
    cache, store = RowCache(), CountingStore()
    with cache.defer_publications():
        first_epoch(cache, store)
        store.asked = 0
        assert rows_read(open_pairs(cache, store, 1, 2), PAIRS, [1]) == [(1, "one", 1.0)]
        assert store.asked == 1
    with suppress(Failed), cache.defer_publications():
        failed = open_pairs(cache, store, 1, 2)
        assert rows_read(failed, PAIRS, [1, 2]) == [(1, "one", 1.0), None]
        insert_row(failed, (1, "never", 0.0))
        assert failed.seal_changes() is not None
        raise Failed
    assert rows_read(open_pairs(cache, store, 1, 2), PAIRS, [3, 1]) == [(3, "three", 3.0), (1, "one", 1.0)]
    assert store.asked == 1


def test_an_idle_epoch_that_is_sealed_keeps_the_rows_for_the_next() -> None:
    cache, store = RowCache(), CountingStore()
    first_epoch(cache, store)
    assert open_pairs(cache, store, 1, 2).seal_changes() is None
    store.asked = 0
    assert rows_read(open_pairs(cache, store, 2, 3), PAIRS, [1, 2]) == [(1, "one", 1.0), None]
    assert store.asked == 0


def test_a_table_without_repeated_reads_takes_no_memory() -> None:
    cache, store = RowCache(), DictStore()
    table = open_pairs(cache, store, 0, 1)
    table.get_rows(keys_table(PAIRS, [1, 2]), again=False)
    insert_row(table, (5, "five", 5.0))
    store.ingest(table.seal_changes(), 1)
    assert cache.nbytes == 0


def test_the_keys_not_used_for_longest_go_first_and_none_shows_an_older_row() -> None:
    cache, store = RowCache(), CountingStore()
    many = list(range(4000))
    table = open_pairs(cache, store, 0, 1)
    rows_read(table, PAIRS, many)
    table.insert_rows(rows_table(PAIRS, [(k, "x", 0.0) for k in many]))
    store.ingest(table.seal_changes(), 1)
    for epoch in (2, 3, 4):  # few keys: in newer runs than the first one, which still holds their old rows
        table = open_pairs(cache, store, epoch - 1, epoch)
        rows_read(table, PAIRS, [7, 8])
        table.insert_rows(rows_table(PAIRS, [(7, "y", float(epoch))]))
        store.ingest(table.seal_changes(), epoch)
    before = cache.nbytes
    cache._shrink_to(before // 100)
    assert 0 < cache.nbytes <= before // 100
    store.asked = 0
    assert rows_read(open_pairs(cache, store, 4, 5), PAIRS, [7, 8]) == [(7, "y", 4.0), (8, "x", 0.0)]
    assert store.asked == 0
    assert rows_read(open_pairs(cache, store, 4, 5), PAIRS, many[10:]) == [(k, "x", 0.0) for k in many[10:]]
    assert store.asked > 3900
    cache._shrink_to(0)
    assert cache.nbytes == 0


def test_a_load_of_many_rows_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, is_kept in ((1_000_000, True), (10_000, False)):
        monkeypatch.setattr(row_cache, "LOADED_BYTES", most)
        cache, store = RowCache(), DictStore()
        table = open_pairs(cache, store, 0, 1)
        rows_read(table, PAIRS, list(range(3000)))
        table.insert_rows(rows_table(PAIRS, [(k, "x", 0.0) for k in range(3000)]))
        store.ingest(table.seal_changes(), 1)
        assert (cache.nbytes > 0) == is_kept
        for epoch in (2, 3):  # small epochs are
            table = open_pairs(cache, store, epoch - 1, epoch)
            assert rows_read(table, PAIRS, [5, 6]) == [(5, "x", 0.0), (6, "x", 0.0)]
            store.ingest(table.seal_changes(), epoch)
        assert cache.counts.hits == (4 if is_kept else 2)


def test_an_eviction_after_a_load_copies_no_more_than_it_evicts(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, store = RowCache(), DictStore()
    table = open_pairs(cache, store, 0, 1)
    rows_read(table, PAIRS, list(range(8000)))
    store.ingest(table.seal_changes(), 1)
    cache.capacity = cache.nbytes + 500
    copied = merged = 0
    filter_keys, merge_newer = KnownRun.filter_keys, KnownRun.merge_newer

    def count_copied(run: KnownRun, kept: Mask) -> KnownRun:
        nonlocal copied
        copied += int(kept.sum())
        return filter_keys(run, kept)

    def count_merged(run: KnownRun, newer: KnownRun, places: Places | None = None) -> KnownRun:
        nonlocal merged
        merged += len(run) + len(newer)
        return merge_newer(run, newer, places)

    monkeypatch.setattr(KnownRun, "filter_keys", count_copied)
    monkeypatch.setattr(KnownRun, "merge_newer", count_merged)
    for epoch in range(2, 8):
        table = open_pairs(cache, store, epoch - 1, epoch)
        rows_read(table, PAIRS, [10_000 * epoch + n for n in range(20)])
        store.ingest(table.seal_changes(), epoch)
    assert 0 < copied <= cache.counts.evicted
    assert cache.counts.evicted <= 4100
    assert merged < 1000


def test_an_epoch_of_few_keys_does_not_rewrite_a_large_run() -> None:
    cache, store = RowCache(), DictStore()
    table = open_pairs(cache, store, 0, 1)
    rows_read(table, PAIRS, list(range(5000)))
    store.ingest(table.seal_changes(), 1)
    large = cache.open_unit(RowsOf("store", PAIRS.table_id, 0), range(V), 1, 2).runs[-1]
    for epoch in range(2, 12):
        table = open_pairs(cache, store, epoch - 1, epoch)
        rows_read(table, PAIRS, [epoch])
        insert_row(table, (epoch, "z", 0.0))
        store.ingest(table.seal_changes(), epoch)
    runs = cache.open_unit(RowsOf("store", PAIRS.table_id, 0), range(V), 11, 12).runs
    assert runs[-1] is large
    assert len(runs) <= 5


def test_keys_wider_than_any_machine_word_are_found_too() -> None:
    cache, store = RowCache(), CountingStore()
    rng = random.Random(3)
    names = [rng.choice("abc") * rng.randrange(200) + str(i) for i in range(300)]
    content: dict[str, Row] = {}
    for epoch in range(1, 8):
        rows = cache.open_unit(RowsOf("store", WIDE.table_id, 0), range(V), epoch - 1, epoch)
        table = StateTable(WIDE, store.reader, epoch - 1, V, rows)
        asked = rng.sample(names, 120)
        assert rows_read(table, WIDE, asked) == [content.get(k) for k in asked]
        written = {k: (k, epoch) for k in asked[:80]}
        table.insert_rows(rows_table(WIDE, list(written.values())))
        content |= written
        store.ingest(table.seal_changes(), epoch)
    assert cache.counts.hits > 100


def test_a_bound_is_held_also_by_a_run_larger_than_it() -> None:
    cache, store = RowCache(20_000), DictStore()
    table = open_pairs(cache, store, 0, 1)
    rows_read(table, PAIRS, list(range(3000)))
    table.insert_rows(rows_table(PAIRS, [(k, "x", 0.0) for k in range(3000)]))
    store.ingest(table.seal_changes(), 1)
    assert 5_000 < cache.nbytes <= 20_000
    assert rows_read(open_pairs(cache, store, 1, 2), PAIRS, list(range(3000))) == [(k, "x", 0.0) for k in range(3000)]
    assert np.isclose(cache.counts.hits / 3000, 0.1, atol=0.09)

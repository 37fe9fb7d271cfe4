"""The whole store against a plain dict of (key, epoch): random epochs, pins, floors, two compactors, vacuum, reopenings and crashes.

After every step some reads, at some readable epoch, must agree with the dict; at the end all of them at all epochs, and no object is
left over.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from statestore.hummock import compaction, sst_writer
from statestore.hummock.cache import BlockCache
from statestore.hummock.compaction import MergePlan, outputs_of, plan_merge, run_piece
from statestore.hummock.compaction_picker import CompactionOptions, dropped_tables, full_compaction, pick_compactions
from statestore.hummock.errors import MissingSstError
from statestore.hummock.ingest import batch_ingest
from statestore.hummock.store import HummockStore
from statestore.hummock.vacuum import vacuum
from statestore.meta.barrier import BarrierPlan
from statestore.meta.catalog import Catalog
from statestore.meta.errors import LostRaceError
from statestore.meta.manifest import manifest_of
from statestore.meta.names import data_prefix
from statestore.meta.pin import Pin
from statestore.meta.store import MetaStore
from statestore.meta.version import CompactionTask, HummockVersion, SstInfo
from tests.memory_store import MemoryObjectStore
from tests.statestore.hummock.catalogs import catalog_of
from tests.statestore.hummock.store_model import ROW_SCHEMA, Row, sealed, storage_key
from tests.statestore.meta.make import Clock

T = TypeVar("T")

VNODES = 8
TABLES = (3, 5, 9)
TINY = CompactionOptions(l0_runs=2, l0_limit=3, base_bytes=4_000, level_ratio=2, small_bytes=500, target_bytes=1_500)
L0_ONLY = replace(TINY, merge_ratio=0)  # runs are merged with one another, and sink only where nothing is in their way

_seeds = st.integers(0, 1 << 32)
_fuse = st.one_of(st.none(), st.none(), st.integers(0, 5))  # writes until this process dies


class Killed(Exception):
    """The process died here."""


class MortalStore(MemoryObjectStore):
    """Kills its caller at the n-th write from now on: before it happens if n is even, after it has happened if it is odd."""

    fuse: int | None = None

    def _burn(self, act: Callable[[], T]) -> T:
        if self.fuse is None:
            return act()
        self.fuse -= 1
        if self.fuse >= 0:
            return act()
        before, self.fuse = bool(self.fuse % 2), None
        if not before:
            act()
        raise Killed

    def put(self, name: str, data: bytes) -> None:
        self._burn(lambda: super(MortalStore, self).put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._burn(lambda: super(MortalStore, self).put_if_absent(name, data))


@dataclass
class Compactor:
    """One compacting process: at most one task in its hands."""

    meta: MetaStore
    task: CompactionTask | None = None
    plan: MergePlan | None = None
    made: list[list[SstInfo]] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    """A store of three tables, its processes, and the dict."""

    counts: ClassVar[Counter[str]] = Counter()  # what happened in all runs: a model that never gets anywhere proves nothing

    @initialize(options=st.sampled_from([TINY, L0_ONLY]))
    def start(self, options: CompactionOptions) -> None:
        self.options = options
        self.objects = MortalStore()
        self.clock = Clock()
        self.rows: dict[bytes, dict[int, Row | None]] = {}
        self.dropped: dict[int, int] = {}  # table -> epoch from which on it is gone
        self.pins: list[Pin] = []
        MetaStore.init(self.objects, vnode_count=VNODES)
        self.processes = 0
        self.cache = BlockCache(1 << 20)
        self.driver = self._open()
        self.compactors = [Compactor(self._open()), Compactor(self._open())]
        self._run_epoch({}, None, catalog_of(TABLES))

    # --- writing

    @rule(seed=_seeds, fuse=_fuse)
    def epoch(self, seed: int, fuse: int | None) -> None:
        """An epoch; the process that runs it may die anywhere, and the next epoch then supersedes what it left."""
        rng = random.Random(seed)
        changes: dict[tuple[int, int, int], int | None] = {}
        for _ in range(rng.choice([0, 2, 20, 60])):
            place = (rng.choice(TABLES), rng.randrange(VNODES), rng.randrange(12))
            changes[place] = None if rng.random() < 0.3 else rng.randrange(100)
        self._run_epoch(changes, fuse, None, amid=rng)
        if rng.random() < 0.7:
            self.driver.publish(self.driver.latest().epoch)
        if rng.random() < 0.3:
            self._raise_the_floor(rng.randint(1, 4))
        self._read(rng)

    @rule(seed=_seeds)
    def small_epochs(self, seed: int) -> None:
        """Some epochs on end, as a train brings them."""
        rng = random.Random(seed)
        for _ in range(3):
            self.epoch(rng.randrange(1 << 32), None)

    @precondition(lambda self: len(getattr(self, "dropped", TABLES)) < len(TABLES) - 1)
    @rule(table=st.sampled_from(TABLES))
    def drop_table(self, table: int) -> None:
        if table in self.dropped:
            return
        catalog = self.driver.latest().catalog

        def gone(epoch: int) -> Catalog:
            relations = tuple(msgspec.structs.replace(r, dropped=epoch) if r.id == table else r for r in catalog.relations)
            return msgspec.structs.replace(catalog, relations=relations)

        self.dropped[table] = self._run_epoch({}, None, gone)

    @rule(keep=st.integers(1, 4), late=st.sampled_from([0, 0, 7 * 60 * 60 * 1000]))
    def retain(self, keep: int, late: int) -> None:
        """Raise the floor, now or so late that leases are over."""
        self.clock.now_ms += late
        self._raise_the_floor(keep)

    def _raise_the_floor(self, keep: int) -> None:
        StoreMachine.counts["retain"] += 1
        self.driver.retain(keep)
        self.pins = [pin for pin in self.pins if pin.expires_ms > self.clock.now_ms]

    @precondition(lambda self: len(getattr(self, "pins", [])) < 3)
    @rule(seed=_seeds)
    def pin(self, seed: int) -> None:
        StoreMachine.counts["pin"] += 1
        version = self.driver.latest()
        self.pins.append(self.driver.pin(random.Random(seed).choice([e for e in version.epochs if e >= version.min_readable_epoch])))

    @precondition(lambda self: bool(getattr(self, "pins", None)))
    @rule(seed=_seeds)
    def unpin(self, seed: int) -> None:
        self.driver.unpin(self.pins.pop(seed % len(self.pins)))

    # --- compaction

    @rule(which=st.integers(0, 1), seed=_seeds, fuse=_fuse)
    def compact(self, which: int, seed: int, fuse: int | None) -> None:
        """One compactor goes on with its task, or takes one; it stops somewhere, and goes on in a later step if it lives."""
        rng = random.Random(seed)
        self._compact_a_while(which, rng, fuse)
        self._read(rng)

    def _compact_a_while(self, which: int, rng: random.Random, fuse: int | None) -> None:
        with self._mortal(which, fuse):
            for _ in range(rng.choice([1, 2, 4, 100])):
                if not self._advance(self.compactors[which], rng):
                    break

    @rule(seed=_seeds)
    def compact_until_nothing_is_due(self, seed: int) -> None:
        compactor, rng = self.compactors[0], random.Random(seed)
        with self._mortal(0, None):
            while self._advance(compactor, rng):
                pass
        self._read(rng)

    def _advance(self, compactor: Compactor, rng: random.Random) -> bool:
        """One step of a compactor. Returns whether there was anything to do."""
        StoreMachine.counts["steps of compaction"] += 1
        meta, task, plan = compactor.meta, compactor.task, compactor.plan
        version, readable = meta.readable_epochs()
        if task is None:
            full = full_compaction(version) if rng.random() < 0.1 else None
            dropped = dropped_tables(version, readable)
            picks = [full] if full is not None else pick_compactions(version, self.options, dropped, 2, readable[0])
            for pick in picks[-1:]:
                StoreMachine.counts["move" if pick.move else f"task of levels {[i.level for i in pick.plan.inputs]}"] += 1
                if pick.move:
                    meta.move_ssts(pick.plan)
                else:
                    compactor.task = meta.open_compaction(pick.plan)
            return bool(picks)
        if plan is None:
            if all(other.id != task.id for other in version.tasks):
                compactor.task = None  # it was closed: its lease was over
                return True
            pieces, rewrite = rng.randint(1, 4), rng.random() < 0.3
            compactor.plan = plan_merge(self.objects, version, task, readable, TINY.target_bytes, pieces, rewrite)
            StoreMachine.counts["pieces"] += len(compactor.plan.pieces)
            StoreMachine.counts["kept as they are"] += len(compactor.plan.kept)
        elif len(compactor.made) < len(plan.pieces):
            compactor.made.append(run_piece(self.objects, plan.pieces[len(compactor.made)]))
            if rng.random() < 0.5:
                (compactor.task,) = meta.renew_compactions([task]) or (task,)  # it may have been closed: its commit will say so
        else:
            compactor.task, compactor.plan, compactor.made, made = None, None, [], compactor.made
            try:
                meta.commit_compaction(task, outputs_of(plan, made))
                StoreMachine.counts["committed"] += 1
            except LostRaceError:
                assert task.expires_ms <= self.clock.now_ms, "nobody closes a task before its lease is over"
                StoreMachine.counts["closed by another"] += 1
        return True

    @rule(late=st.sampled_from([0, 3 * 60 * 60 * 1000]))
    def close_what_lapsed(self, late: int) -> None:
        self.clock.now_ms += late
        self.driver.close_lapsed_compactions()

    # --- what must change nothing

    @rule(fuse=_fuse)
    def run_vacuum(self, fuse: int | None) -> None:
        StoreMachine.counts["vacuum"] += 1
        self.objects.fuse = fuse
        try:
            vacuum(self.driver)
        except Killed:
            self.driver = self._open()
        self.objects.fuse = None
        self.cache.clear()

    @rule()
    def reopen(self) -> None:
        self.driver = self._open()
        self.cache.clear()

    # --- reading

    @rule(seed=_seeds)
    def read(self, seed: int) -> None:
        self._read(random.Random(seed))

    def _read(self, rng: random.Random) -> None:
        self._check(rng.choice(self._readable()), rng.choice(TABLES), rng.randrange(1 << 16), rng.choice([None, 1, 3]))

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for epoch in self._readable():
            for table in TABLES:
                self._check(epoch, table, 0, None)
        for pin in self.pins:
            self.driver.unpin(pin)
        for task in self.driver.latest().tasks:
            self.driver.close_compaction(task.id, "the end")
        self._run_epoch({}, None, None)
        vacuum(self.driver)
        named = {sst.name for level in self.driver.latest().levels for sst in level}
        assert {found.name for found in self.objects.list("data/")} == named

    # --- inside

    def _open(self) -> MetaStore:
        self.processes += 1
        return MetaStore(self.objects, f"process {self.processes}", self.clock)

    @contextmanager
    def _mortal(self, which: int, fuse: int | None) -> Iterator[None]:
        """Runs a compactor's step; where it dies, another takes its place and knows nothing of its task."""
        self.objects.fuse = fuse
        try:
            yield
        except Killed:
            StoreMachine.counts["compactor killed"] += 1
            self.compactors[which] = Compactor(self._open())
        except LostRaceError:
            StoreMachine.counts["lost"] += 1  # the other one was first: pick again
        except MissingSstError:  # right only where the task was closed, so that vacuum could take its inputs
            task = self.compactors[which].task
            assert task is not None
            assert all(other.id != task.id for other in self.driver.latest().tasks)
            StoreMachine.counts["closed by another"] += 1
            self.compactors[which] = Compactor(self._open())
        finally:
            self.objects.fuse = None

    def _run_epoch(
        self,
        changes: dict[tuple[int, int, int], int | None],
        fuse: int | None,
        catalog: Catalog | Callable[[int], Catalog] | None,
        amid: random.Random | None = None,
    ) -> int:
        """One epoch of these changes. If its process dies, the commit's fate is looked up: it is whole, or nothing of it is there."""
        self.clock.now_ms += 1000
        version = self.driver.latest()
        rows: dict[int, dict[bytes, Row | None]] = {}
        for (table, vnode, key), n in changes.items():
            if table not in self.dropped:
                rows.setdefault(table, {})[storage_key(table, vnode, b"%d" % key)] = None if n is None else {"n": n, "s": "x" * (n % 7)}
        epoch = 0
        try:
            def planned(epoch: int) -> BarrierPlan:
                return BarrierPlan(mapping=version.mapping, log_end=0, catalog=catalog(epoch) if callable(catalog) else catalog)

            barrier = self.driver.barrier_after(version.epoch)
            # One that a dead process left is not resumed but superseded: the changes of this step are not those of that one.
            barrier = self.driver.supersede_barrier(barrier, planned) if barrier else self.driver.inject_barrier(version.epoch, planned)
            epoch, self.objects.fuse = barrier.epoch, fuse
            batches = [sealed(table, dict(sorted(of.items()))) for table, of in sorted(rows.items())]
            ssts = batch_ingest(self.objects, batches, epoch, data_prefix(epoch), 1_000)
            if amid is not None and self.objects.fuse is None and amid.random() < 0.5:
                self._compact_a_while(amid.randrange(2), amid, None)  # others compact between its uploads and its commit
            self.driver.commit_epoch(self.driver.seal(manifest_of(barrier, self.driver.writer, tuple(ssts))))
        except Killed:
            StoreMachine.counts["epoch killed"] += 1
            self.driver = self._open()
        self.objects.fuse = None
        StoreMachine.counts["epochs"] += 1
        if epoch in self.driver.latest().epochs:
            for of in rows.values():
                for stored, row in of.items():
                    self.rows.setdefault(stored, {})[epoch] = row
        return epoch

    def _readable(self) -> list[int]:
        version = self.driver.latest()
        return sorted({*(e for e in version.epochs if e >= version.min_readable_epoch), *(pin.epoch for pin in self.pins)})

    def _check(self, epoch: int, table: int, seed: int, limit: int | None) -> None:
        """Every kind of read of a table, at an epoch, against the dict; also on the version that a pin holds."""
        StoreMachine.counts["reads"] += 1
        if table in self.dropped and epoch >= self.dropped[table]:
            return
        versions: list[HummockVersion] = [self.driver.latest()]
        versions += [self.driver.pinned_version(pin) for pin in self.pins if pin.epoch == epoch]
        prefix = table.to_bytes(4, "big")
        expected = [(key, row) for key in sorted(self.rows) if key.startswith(prefix) and (row := self._get(key, epoch)) is not None]
        wanted = [storage_key(table, (seed + i) % VNODES, b"%d" % (i * 5 % 13)) for i in range(20)]
        for version in versions:
            store = HummockStore(self.objects, version, self.cache, [epoch])
            found = [(row.pop("key"), row) for rows in store.iter(table, None, None, epoch) for row in rows.to_pylist()]
            assert found == expected, f"iter at {epoch}"
            there, got = store.multi_get(table, pa.array(wanted, pa.binary()), epoch, schema=ROW_SCHEMA)
            answers = [row if held else None for held, row in zip(there.to_pylist(), got.to_pylist(), strict=True)]
            assert answers == [self._get(key, epoch) for key in wanted], f"multi_get at {epoch}"
            one = store.get(table, wanted[0], epoch)
            assert (None if one is None else one.to_pylist()[0]) == self._get(wanted[0], epoch)
            prefixes = [prefix + (seed % VNODES).to_bytes(2, "big"), prefix]
            reverse = bool(seed % 3)
            index, keys, rows = store.scan_prefix(table, pa.array(prefixes, pa.binary()), epoch, limit, reverse, schema=ROW_SCHEMA)
            scanned = []
            for i, start in enumerate(prefixes):
                under = [(i, key, row) for key, row in expected if key.startswith(start)]
                scanned += (under[::-1] if reverse else under)[:limit]
            assert list(zip(index.to_pylist(), keys.to_pylist(), rows.to_pylist(), strict=True)) == scanned, f"scan_prefix at {epoch}"

    def _get(self, key: bytes, epoch: int) -> Row | None:
        seen = [at for at in self.rows.get(key, {}) if at <= epoch]
        return self.rows[key][max(seen)] if seen else None


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, windows and chunks so small that a few rows make many."""
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", 4)
    monkeypatch.setattr(sst_writer, "_MIN_ROWS", 1)
    monkeypatch.setattr(sst_writer, "BLOCKS_PER_PARTITION", 3)
    monkeypatch.setattr(sst_writer, "_WHOLE", 0)
    monkeypatch.setattr(compaction, "_CHUNK_ROWS", 16)
    monkeypatch.setattr(compaction, "WINDOW_BYTES", 1)


def _run(runs: int, steps: int, derandomize: bool) -> Counter[str]:
    """What happened in them."""
    StoreMachine.counts.clear()
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
    print(dict(StoreMachine.counts))
    return StoreMachine.counts


def test_two_thousand_steps_agree_with_a_dict_of_keys_and_epochs() -> None:
    counts = _run(runs=22, steps=60, derandomize=True)
    assert counts["epochs"] + counts["steps of compaction"] + counts["reads"] >= 2_000
    assert min(counts[what] for what in ("move", "committed", "kept as they are", "epoch killed", "vacuum", "pin")) > 5, counts


@pytest.mark.deep
def test_two_hundred_thousand_steps_agree_with_a_dict_of_keys_and_epochs() -> None:
    done = 0
    while done < 200_000:
        counts = _run(runs=100, steps=200, derandomize=False)
        done += counts["epochs"] + counts["steps of compaction"] + counts["reads"]

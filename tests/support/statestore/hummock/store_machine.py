"""The store as a state machine: random steps of its processes, then reads that must agree with plain dicts.

Each dict is a state: all rows at an epoch. Only a commit makes a new state, from the previous one and the epoch's
changes. The processes are a driver that runs epochs one by one, a train with several epochs in flight, and two
compactors. Each may die at any request that changes something. Vacuum, retention, pins and leases run at the same
time. Readers have blocks in memory and share a disk cache that may be damaged at any time.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.memory_store import Killed, MortalObjectStore
from tests.support.statestore.hummock.cache_damage import damage
from tests.support.statestore.hummock.catalogs import catalog_of
from tests.support.statestore.hummock.compactor_model import Compactor
from tests.support.statestore.hummock.store_model import (
    KINDS,
    Changes,
    Row,
    State,
    assert_agrees,
    assert_changes_agree,
    changed,
    sealed,
    storage_key,
)
from tests.support.statestore.hummock.train_model import Flight, Train
from tests.support.statestore.meta.make import Clock
from tussock.statestore.hummock import compaction, merge, sst_writer
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.cache_file import MIN_BYTES
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.disk_cache import DiskCache
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.errors import LostRaceError, PinLapsedError
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import HEAD, data_prefix
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import SstInfo

VNODES = 8
TABLES = (3, 5, 9)
IN_FLIGHT = 3  # most epochs of a train
LEASE_IS_OVER_MS = 7 * 60 * 60 * 1000


@dataclass(frozen=True)
class Shape:
    """How small things are, so that a few rows make many of them."""

    compaction: CompactionOptions
    rows_per_block: int
    flush_bytes: int  # that an SST of a flush should have
    window_blocks: int  # that a merge reads at once, about
    cache_bytes: int  # of decoded blocks
    disk: bool  # whether there is a disk cache


_TREE = CompactionOptions(l0_runs=2, l0_limit=3, base_bytes=20_000, level_ratio=2, small_bytes=500, target_bytes=8_000)
_DEEP = replace(_TREE, base_bytes=5_000, target_bytes=3_000)
# Runs are merged with each other, and sink only if nothing overlaps them below.
_L0_ONLY = replace(_TREE, merge_ratio=0)
SHAPES = (
    Shape(_TREE, 16, 4_000, 64, 1 << 20, disk=False),
    Shape(_TREE, 8, 4_000, 1, 30_000, disk=True),
    Shape(_DEEP, 4, 2_000, 64, 1 << 20, disk=True),
    Shape(_L0_ONLY, 8, 4_000, 1, 30_000, disk=False),
)

#: The kinds of steps, with weights. With hypothesis' own choice of rules, a run would omit half of them, and most
#: runs would not get far. A run therefore omits a few optional steps only.
STEPS = {"epoch": 5, "train": 6, "compact": 5, "compact all": 1, "close lapsed": 1, "retain": 2, "readers": 3,
         "vacuum": 2, "reopen": 1, "drop table": 1, "damage": 2, "read": 2}  # fmt: skip
OPTIONAL = ("train", "compact all", "close lapsed", "retain", "readers", "vacuum", "reopen", "drop table", "damage")

_seeds = st.integers(0, 1 << 32)
_fuses = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 11))
_steps = st.sampled_from([what for what, weight in STEPS.items() for _ in range(weight)])
_without = st.sets(st.sampled_from(OPTIONAL), max_size=4)


class StoreMachine(RuleBasedStateMachine):
    """A store of three tables, its processes, and the states it must agree with."""

    counts: ClassVar[Counter[str]] = (
        Counter()
    )  # what happened in all runs: a model that never gets anywhere proves nothing
    folder: ClassVar[Path]  # of the disk cache; it outlives the machines
    disk: ClassVar[DiskCache | None] = None  # the cache of the current reads and uploads

    @initialize(shape=st.sampled_from(SHAPES), without=_without)
    def start(self, shape: Shape, without: set[str]) -> None:
        self.shape = shape
        self.steps = [what for what, weight in STEPS.items() for _ in range(weight) if what not in without]
        sst_writer.ROWS_PER_BLOCK = shape.rows_per_block  # type: ignore[attr-defined]
        compaction.WINDOW_BYTES = merge.MERGE_BYTES = 1 if shape.window_blocks == 1 else 1 << 30  # type: ignore[misc]
        compaction._CHUNK_ROWS = 4 * shape.rows_per_block
        self.objects = MortalObjectStore()
        self.clock = Clock()
        self.states: dict[int, State] = {0: {}}  # by committed epoch
        self.dropped: dict[int, int] = {}  # table -> epoch from which on it is gone
        self.pins: list[Pin] = []
        self.train: Train | None = None
        self.serial = count(1)
        MetaStore.init(self.objects, vnode_count=VNODES)
        self.cache = BlockCache(shape.cache_bytes)
        self.disks: list[DiskCache | None] = [None]  # of the workers of one host
        if shape.disk:
            self.disks = [DiskCache(self.folder, MIN_BYTES, spare=0), DiskCache(self.folder, MIN_BYTES, spare=0)]
        self._at(0)
        self.driver = self._open()
        self.compactors = [self._new_compactor(), self._new_compactor()]
        self._run_epoch({}, None, catalog_of(TABLES))

    @rule(what=_steps, seed=_seeds, fuse=_fuses)
    def step(self, what: str, seed: int, fuse: int | None) -> None:
        """Run one step, then a read. `fuse`: the request at which the acting process dies."""
        rng = random.Random(seed)
        what = what if what in self.steps else rng.choice(self.steps)
        self._count("steps")
        self._count(what)
        match what:
            case "epoch":
                self._epoch(rng, fuse)
            case "train":
                self._train_goes_on(rng, fuse)
            case (
                "compact"
            ):  # one compactor goes on with its task, or takes one; it stops somewhere, and goes on later if it lives
                self._compact_a_while(rng.randrange(2), rng, fuse)
            case "compact all":
                self._compact_until_nothing_is_due(rng)
            case "close lapsed":
                self._at(rng.choice([0, 3 * 60 * 60 * 1000]))
                self.driver.close_lapsed_compactions()
            case "retain":  # now, or so late that leases are over
                self._at(rng.choice([0, 0, LEASE_IS_OVER_MS]))
                self._raise_the_floor(rng.randint(1, 4))
            case "readers":
                self._readers_come_and_go(rng)
            case "vacuum":
                self._vacuum(fuse)
            case "reopen":
                self._reopen(rng)
            case "drop table":
                self._drop_table(rng)
            case "damage":
                if self.shape.disk:
                    damage(self.folder, rng)
                    self.cache.clear()
        self._read(rng, KINDS if what == "read" else ())

    # --- epochs one by one

    def _epoch(self, rng: random.Random, fuse: int | None) -> None:
        """Run an epoch in a driver outside the train. If it dies, the next epoch supersedes its barrier.

        Its commit makes a train lose. If a train exists, the train therefore mostly continues instead.
        """
        if self.train is not None and self.train.in_flight and rng.random() < 0.9:
            self._train_goes_on(rng, fuse)
            return
        self._run_epoch(self._changes(rng, 40), fuse, None, amid=rng)
        self._after_commit(rng)

    def _after_commit(self, rng: random.Random) -> None:
        if rng.random() < 0.7:
            self.driver.publish(self.driver.read_latest().epoch)
        if rng.random() < 0.3:
            self._raise_the_floor(rng.randint(1, 4))

    def _drop_table(self, rng: random.Random) -> None:
        table = rng.choice(TABLES)
        if table in self.dropped or len(self.dropped) == len(TABLES) - 1 or rng.random() < 0.7:
            return
        self._count("table dropped")
        catalog = self.driver.read_latest().catalog

        def gone(epoch: int) -> Catalog:
            relations = tuple(
                msgspec.structs.replace(r, dropped=epoch) if r.id == table else r for r in catalog.relations
            )
            return msgspec.structs.replace(catalog, relations=relations)

        self.dropped[table] = self._run_epoch({}, None, gone)

    # --- a train of epochs

    def _train_goes_on(self, rng: random.Random, fuse: int | None) -> None:
        """A train begins, starts its next epoch, ends its oldest one, or ends."""
        if self.train is None:
            meta = self._open()
            pin = meta.pin_epoch(meta.read_latest().epoch, onward=True)
            self.train = Train(meta, pin, meta.pinned_version(pin))
        in_flight = len(self.train.in_flight)
        if rng.random() < 0.08:
            self._arrive(self.train)
        elif in_flight == 0 or (in_flight < IN_FLIGHT and rng.random() < 0.5):
            self._depart(self.train, rng)
        else:
            self._land(self.train, rng, fuse)

    def _depart(self, train: Train, rng: random.Random) -> None:
        """Run the train's next epoch on the sealed rows of those in flight."""
        self._count("departed")
        self._at(rng.choice((0, 1, 1000)))
        version, _ = train.base()
        plan = BarrierPlan(mapping=version.mapping, log_end=0)
        drafted = bool(train.flights) or rng.random() < 0.5 or train.meta.read_latest().epoch != version.epoch
        if drafted:
            barrier = train.meta.draft_barrier(version, plan)
        elif (found := train.meta.barrier_after(version.epoch)) is None:
            barrier = train.meta.inject_barrier(version.epoch, plan)
        else:
            barrier = train.meta.supersede_barrier(found, plan)
        changes = self._changes(rng, 40)
        early: list[SealedBatch] = []
        held: list[SealedBatch] = []
        for table, of in changes.items():
            for actor in range(
                2
            ):  # that share no vnode; what one sealed is uploaded there and then if it is much, and else held
                if mine := {key: row for key, row in of.items() if key[5] % 2 == actor}:
                    (early if rng.random() < 0.4 else held).append(sealed(table, mine))
        uploaded = self._ingest(early, barrier.epoch)
        before = train.flights[-1].state if train.flights else self.states[train.stand.epoch]
        train.flights.append(Flight(barrier, drafted, uploaded, held, changed(before, changes)))

    def _land(self, train: Train, rng: random.Random, fuse: int | None) -> None:
        """Flush and commit the oldest epoch in flight, or learn that it lost."""
        flight = train.in_flight[0]
        barrier, meta, taken = (
            flight.barrier,
            train.meta,
            flight.barrier.epoch in self.states,
        )  # by another, in the same millisecond
        try:
            self.objects.fuse = fuse
            ssts = [*flight.uploaded, *self._ingest(flight.held, barrier.epoch)]
            self._others_at_work(rng)
            if flight.drafted:
                meta.put_in_force(barrier)
            ssts.sort(key=lambda sst: sst.name)
            version, mine = meta.commit_epoch(meta.seal_epoch(manifest_of(barrier, meta.writer, tuple(ssts))))
            assert mine
            assert version.epoch == barrier.epoch
            flight.landed = True
            self._count("landed")
            self.states[barrier.epoch] = flight.state
            if rng.random() < 0.4:  # move to a newer version, and forget the flights that it contains
                self._count("train moved")
                pin = meta.pin_epoch(barrier.epoch, onward=True)
                meta.unpin(train.pin)
                train.pin, train.stand = pin, meta.pinned_version(pin)
                train.flights = train.in_flight
        except Killed:
            self._count("train killed")
            if not taken and barrier.epoch in self._open().read_latest().epochs:
                self.states[barrier.epoch] = flight.state
            self._lose_train()
        except LostRaceError:
            self.objects.fuse = None
            self._count("train overtaken")
            assert (
                self.driver.read_latest().epoch != barrier.prev_epoch
                or self.driver.barrier_after(barrier.prev_epoch) != barrier
            )
            meta.unpin(train.pin)
            self.train = None
        finally:
            self.objects.fuse = None
        self._after_commit(rng)

    def _arrive(self, train: Train) -> None:
        """End the train. With epochs in flight it dies: they have no effect, and its pin stays until its lease ends."""
        if train.in_flight:
            self._lose_train()
        else:
            train.meta.unpin(train.pin)
            self.train = None

    def _lose_train(self) -> None:
        assert self.train is not None
        left = (pin for pin in self.driver.all_pins() if pin.holder.startswith(f"{self.train.meta.writer}/"))
        self.pins += {pin.holder: pin for pin in left}.values()  # of several renewals the last
        self.train = None

    # --- readers and the floor

    def _raise_the_floor(self, keep: int) -> None:
        self.driver.apply_retention(keep)
        now = self.clock.now_ms
        for pin in (pin for pin in self.pins if pin.expires_ms <= now):
            self._count("lapsed")
            with pytest.raises(PinLapsedError):
                self.driver.renew_lease(pin)
        self.pins = [pin for pin in self.pins if pin.expires_ms > now]
        if self.train is not None and self.train.pin.expires_ms <= now:
            self.train = None  # its next renewal will fail

    def _readers_come_and_go(self, rng: random.Random) -> None:
        """Take, release or renew pins. A lapsed lease counts until the floor is raised."""
        what = rng.choice(["pin", "pin", "unpin", "renew"])
        self._count(what)
        if what == "renew":
            self.pins = [self.driver.renew_lease(pin) for pin in self.pins]
            if self.train is not None:
                self.train.pin = self.train.meta.renew_lease(self.train.pin)
        elif what == "pin" and len(self.pins) < 3:
            version = self.driver.read_latest()
            readable = [e for e in version.epochs if e >= version.min_readable_epoch]
            self.pins.append(self.driver.pin_epoch(rng.choice(readable), onward=rng.random() < 0.5))
        elif self.pins:
            self.driver.unpin(self.pins.pop(rng.randrange(len(self.pins))))

    # --- compaction

    def _compact_a_while(self, which: int, rng: random.Random, fuse: int | None) -> None:
        with self._mortal(which, fuse):
            for _ in range(rng.choice([1, 2, 4, 100])):
                if not self.compactors[which].advance(rng):
                    break

    def _compact_until_nothing_is_due(self, rng: random.Random) -> None:
        with self._mortal(0, None):
            while self.compactors[0].advance(rng):
                pass

    @contextmanager
    def _mortal(self, which: int, fuse: int | None) -> Iterator[None]:
        """Run a compactor's step. If it dies, a new one without the task takes its place."""
        self.objects.fuse = fuse
        try:
            yield
        except Killed:
            self._count("compactor killed")
            self.compactors[which] = self._new_compactor()
        except LostRaceError:
            self._count("lost")  # the other one was first: pick again
        except MissingSstError:  # correct only if the task was closed, so that vacuum could remove its inputs
            task = self.compactors[which].task
            assert task is not None
            assert all(other.id != task.id for other in self.driver.read_latest().tasks)
            self._count("closed by another")
            self.compactors[which] = self._new_compactor()
        finally:
            self.objects.fuse = None

    # --- what must change no answer

    def _vacuum(self, fuse: int | None) -> None:
        self.objects.fuse = fuse
        try:
            vacuum_store(self.driver)
        except Killed:
            self._count("vacuum killed")
            self.driver = self._open()
        self.objects.fuse = None
        self.cache.clear()

    def _reopen(self, rng: random.Random) -> None:
        """Reopen the driver and the readers; the driver may have to search for the end of the log."""
        if rng.random() < 0.5:
            self.objects.delete([HEAD])
        self.driver = self._open()
        self.cache.clear()

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for seed, epoch in enumerate(self._readable()):
            for table in self._tables(epoch):
                self._check(epoch, table, seed, ("iter", *KINDS[1 + seed % 2 :][:1]))
        if self.train is not None:
            for seed in range(3):
                self._read_in_flight(self.train, random.Random(seed))
        for pin in self.driver.all_pins():
            self.driver.unpin(pin)
        for task in self.driver.read_latest().tasks:
            self.driver.close_compaction(task.id, "the end")
        self._at(10_000)  # past what trains have drafted
        self._run_epoch({}, None, None)
        vacuum_store(self.driver)
        named = {sst.name for level in self.driver.read_latest().levels for sst in level}
        assert {found.name for found in self.objects.list("data/")} == named
        for disk in self.disks:
            if disk is not None:
                for what in ("hits", "misses", "damaged", "writes"):
                    self._count(f"disk {what}", getattr(disk.counts, what))

    # --- inside

    def _count(self, what: str, times: int = 1) -> None:
        StoreMachine.counts[what] += times

    def _at(self, later_ms: int) -> None:
        """Advance the clock and switch to another worker of the host."""
        self.clock.now_ms += later_ms
        StoreMachine.disk = self.disks[next(self.serial) % len(self.disks)]

    def _open(self) -> MetaStore:
        """A process starts."""
        return MetaStore(self.objects, f"process {next(self.serial)}", self.clock)

    def _new_compactor(self) -> Compactor:
        return Compactor(self._open(), self.clock, self.shape.compaction, self._count)

    def _changes(self, rng: random.Random, most: int) -> Changes:
        """Changes of one epoch, of a random size between 0 and about `most`."""
        changes: dict[int, dict[bytes, Row | None]] = {}
        for _ in range(rng.choice([0, 2, most // 3, most])):
            key = storage_key(table := rng.choice(TABLES), rng.randrange(VNODES), b"%d" % rng.randrange(12))
            if table not in self.dropped:
                n = rng.randrange(100)
                changes.setdefault(table, {})[key] = None if rng.random() < 0.3 else {"n": n, "s": "x" * (n % 7)}
        return changes

    def _ingest(self, batches: list[SealedBatch], epoch: int) -> list[SstInfo]:
        return batch_ingest(self.objects, batches, epoch, data_prefix(epoch), self.shape.flush_bytes)

    def _run_epoch(
        self,
        changes: Changes,
        fuse: int | None,
        catalog: Catalog | Callable[[int], Catalog] | None,
        amid: random.Random | None = None,
    ) -> int:
        """Run one epoch in the driver. If it dies, check that its commit is complete or absent."""
        self._at(1000 if amid is None else amid.choice((0, 1, 1000)))
        version, epoch = self.driver.read_latest(), 0

        def planned(epoch: int) -> BarrierPlan:
            return BarrierPlan(
                mapping=version.mapping, log_end=0, catalog=catalog(epoch) if callable(catalog) else catalog
            )

        try:
            barrier = self.driver.barrier_after(version.epoch)
            # Supersede the barrier of a dead process: its changes differ from this step's.
            barrier = (
                self.driver.supersede_barrier(barrier, planned)
                if barrier
                else self.driver.inject_barrier(version.epoch, planned)
            )
            epoch, self.objects.fuse = barrier.epoch, fuse
            ssts = self._ingest([sealed(table, dict(of)) for table, of in changes.items()], epoch)
            if amid is not None and self._others_at_work(
                amid
            ):  # it reads the version that it began on: its barrier keeps that
                store, table = (
                    HummockStore(self.objects, version, BlockCache(0)),
                    amid.choice(self._tables(version.epoch)),
                )
                rows, kinds = self.states[version.epoch].get(table, {}), (amid.choice(KINDS),)
                assert_agrees(store, version.epoch, table, rows, amid.randrange(1 << 16), kinds)
            self.driver.commit_epoch(self.driver.seal_epoch(manifest_of(barrier, self.driver.writer, tuple(ssts))))
        except Killed:
            self._count("epoch killed")
            self.driver = self._open()
        self.objects.fuse = None
        if epoch and epoch in self.driver.read_latest().epochs:
            self.states[epoch] = changed(self.states[version.epoch], changes)
        return epoch

    def _others_at_work(self, rng: random.Random) -> bool:
        """Compact and vacuum between an epoch's uploads and its commit, unless the epoch has a fuse."""
        if self.objects.fuse is not None or rng.random() < 0.7:
            return False
        self._compact_a_while(rng.randrange(2), rng, None)
        if rng.random() < 0.5:
            vacuum_store(self.compactors[0].meta)
        return True

    def _readable(self) -> list[int]:
        version = self.driver.read_latest()
        return sorted(
            {*(e for e in version.epochs if e >= version.min_readable_epoch), *(pin.epoch for pin in self.pins)}
        )

    def _tables(self, epoch: int) -> list[int]:
        """The tables that exist at an epoch."""
        return [table for table in TABLES if table not in self.dropped or epoch < self.dropped[table]]

    def _read(self, rng: random.Random, kinds: Sequence[str] = ()) -> None:
        """Read at a random epoch and compare. Without `kinds`, one random kind of read."""
        kinds = kinds or (rng.choice(KINDS),)
        self._at(0)
        if rng.random() < 0.3:
            self._read_changes(rng)
        if self.train is not None and rng.random() < 0.5:
            self._read_in_flight(self.train, rng, kinds)
        else:
            epoch = rng.choice(self._readable())
            self._check(epoch, rng.choice(self._tables(epoch)), rng.randrange(1 << 16), kinds)

    def _read_changes(self, rng: random.Random) -> None:
        """Read the changes between two readable epochs of the newest version, or between two epochs of a train."""
        states, version, buffer = self.states, self.driver.read_latest(), None
        epochs, pinned = self._readable(), [pin.epoch for pin in self.pins]
        if self.train is not None and rng.random() < 0.5:
            version, buffer = self.train.base()
            states = self._states_in_flight(self.train)
            epochs, pinned = sorted(states), []
        since, until = sorted(rng.choices(epochs, k=2))
        for table in self._tables(until):
            store = HummockStore(self.objects, version, self.cache, pinned, buffer=buffer)
            before, after = (states[epoch].get(table, {}) for epoch in (since, until))
            self._count("changed rows", assert_changes_agree(store, since, until, table, before, after, rng))

    def _states_in_flight(self, train: Train) -> dict[int, State]:
        flights = {flight.barrier.epoch: flight.state for flight in train.flights}
        return {train.stand.epoch: self.states[train.stand.epoch], **flights}

    def _check(self, epoch: int, table: int, seed: int, kinds: Sequence[str]) -> None:
        """Reads of a table at a readable epoch, on the newest version and on versions that pins of that epoch hold."""
        versions = [
            self.driver.read_latest(),
            *(self.driver.pinned_version(pin) for pin in self.pins if pin.epoch == epoch),
        ]
        for version in versions:
            self._count("read at an epoch", len(kinds))
            store = HummockStore(self.objects, version, self.cache, [epoch])
            assert_agrees(store, epoch, table, self.states[epoch].get(table, {}), seed, kinds)

    def _read_in_flight(self, train: Train, rng: random.Random, kinds: Sequence[str] = KINDS) -> None:
        """Reads of a train: of an epoch that may not be committed, its rows merged over the SSTs below it."""
        version, buffer = train.base()
        states = self._states_in_flight(train)
        epoch = rng.choice(sorted(states))
        table = rng.choice(self._tables(epoch))
        self._count("read in flight", len(kinds))
        store = HummockStore(self.objects, version, self.cache, buffer=buffer)
        assert_agrees(store, epoch, table, states[epoch].get(table, {}), rng.randrange(1 << 16), kinds)

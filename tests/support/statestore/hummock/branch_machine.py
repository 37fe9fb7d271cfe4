"""A store and its branches under random steps, with processes that die, compared with plain dicts.

Each store of the family has the states that it must agree with, by epoch. A branch begins with those of its parent. No
step in one store may change an answer of another, and at the end each store has exactly the objects that it needs.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import msgspec

from tests.support.memory_store import Killed, MortalObjectStore
from tests.support.statestore.hummock.catalogs import catalog_of
from tests.support.statestore.hummock.compactor_model import Compactor
from tests.support.statestore.hummock.store_model import KINDS, Row, State, assert_agrees, changed, sealed, storage_key
from tests.support.statestore.meta.make import Clock
from tussock.statestore.hummock.cache import BlockCache
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.hummock.ingest import batch_ingest
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.hummock.vacuum import vacuum_store
from tussock.statestore.meta.barrier import BarrierPlan
from tussock.statestore.meta.branch import find_branch
from tussock.statestore.meta.delta import EpochCommitted
from tussock.statestore.meta.errors import BranchGoneError, EpochExpiredError, EpochMergedError, LostRaceError
from tussock.statestore.meta.manifest import manifest_of
from tussock.statestore.meta.names import data_prefix, origin_of
from tussock.statestore.meta.pages import names_in
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import Branch

VNODES = 8
TABLES = (3, 5)
TABLE_RELATIONS = catalog_of(TABLES).relations
MOST_BRANCHES = 3
AGE_MS = 40_000
_TREE = CompactionOptions(l0_runs=2, l0_limit=3, base_bytes=3_000, level_ratio=2, small_bytes=500, target_bytes=2_000)
STEPS = {"epoch": 6, "follow": 4, "compact": 6, "vacuum": 4, "retain": 2, "read": 3, "branch": 2, "end": 1, "age": 1,
         "reopen": 1}  # fmt: skip


@dataclass
class Store:
    """One store of the family with its processes."""

    name: str  # empty: the parent
    driver: MetaStore
    compactor: Compactor
    states: dict[int, State] = field(default_factory=dict)  # by committed epoch


class BranchMachine:
    """A parent and up to MOST_BRANCHES branches."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.objects = MortalObjectStore()
        self.clock = Clock()
        self.serial = count(1)
        self.cache = BlockCache(1 << 20)
        MetaStore.init(self.objects, vnode_count=VNODES)
        self.parent = self._store("", MetaStore(self.objects, "first", self.clock), {0: {}})
        self.branches: list[Store] = []
        self.serves = False
        self._run_epoch(self.parent)
        self.serves = True  # from now on, processes may die

    def run(self, steps: int) -> None:
        """Run random steps, each followed by a read, and check everything at the end."""
        kinds = [what for what, weight in STEPS.items() for _ in range(weight)]
        for _ in range(steps):
            self._step(self.rng.choice(kinds))
            self._read(self.rng.choice(self._family()))
        self._end()

    # --- steps

    def _step(self, what: str) -> None:
        self.counts[what] += 1
        store = self.rng.choice(self._family())
        match what:
            case "epoch":
                self._run_epoch(self.parent if store.driver.follows else store)
            case "follow" if followers := [branch for branch in self.branches if branch.driver.follows]:
                self._follow(self.rng.choice(followers))
            case "compact":
                self._compact(store)
            case "vacuum":
                with self._mortal("vacuum killed", requests=1):
                    vacuum_store(store.driver)
            case "retain":
                self.clock.now_ms += self.rng.choice([0, 1000])
                store.driver.apply_retention(self.rng.randint(1, 3))
            case "branch":
                self._branch()
            case "end" if self.branches:
                self._end_branch(self.rng.choice(self.branches))
            case "age":
                self.clock.now_ms += AGE_MS // 4
                with self._mortal("ageing killed", requests=1):
                    self.parent.driver.end_lapsed_branches()
                self._forget_ended()
            case "reopen":
                self._reopen(store)

    def _branch(self) -> None:
        if len(self.branches) == MOST_BRANCHES:
            return
        name, latest = f"b{next(self.serial)}", self.parent.driver.read_latest()
        epoch = self.rng.choice([None, None, *latest.epochs])
        try:
            with self._mortal("branching killed", requests=2):
                self.parent.driver.open_branch(name, AGE_MS, epoch, follows=self.rng.random() < 0.5)
        except (EpochMergedError, EpochExpiredError):
            self.counts["epoch merged"] += 1
            return
        version = self._open_parent().read_latest()
        if any(branch.name == name for branch in version.branches):  # also if its creator was killed after that
            branch = find_branch(version, name)
            assert epoch is None or branch.epoch == epoch
            self.counts["branched"] += 1
            self.counts["branched from an older epoch"] += branch.epoch != version.epoch
            states = {at: state for at, state in self.parent.states.items() if at <= branch.epoch}
            self.branches.append(self._store(name, self._open_parent().branch(name), states))

    def _follow(self, store: Store) -> None:
        """Take the next epoch of the parent, with its SSTs."""
        driver, version = store.driver, store.driver.read_latest()
        for delta in driver.parent.read_deltas(version.followed + 1, self.parent.driver.read_latest().id):
            if isinstance(change := delta.change, EpochCommitted):
                break
        else:
            return
        catalog = change.catalog and msgspec.structs.replace(version.catalog, relations=change.catalog.relations)
        ids = version.mapping, version.log_end
        plan = BarrierPlan(mapping=ids[0], log_end=ids[1], catalog=catalog, follows=delta.id)
        with self._mortal("following killed", requests=3):
            barrier = driver.inject_barrier(version.epoch, plan, change.epoch)
            driver.commit_epoch(driver.seal_epoch(manifest_of(barrier, driver.writer, change.ssts)))
        if change.epoch in self._reopen(store).read_latest().epochs:
            self.counts["followed"] += 1
            store.states[change.epoch] = self.parent.states[change.epoch]
            store.driver.publish(change.epoch)

    def _end_branch(self, store: Store) -> None:
        with self._mortal("ending killed", requests=1):
            self.parent.driver.end_branch(store.name)
        self._forget_ended()

    def _forget_ended(self) -> None:
        is_open = {branch.name for branch in self._open_parent().read_latest().branches}
        self.counts["ended"] += sum(store.name not in is_open for store in self.branches)
        self.branches = [store for store in self.branches if store.name in is_open]

    def _run_epoch(self, store: Store) -> None:
        """Run one epoch. If its process dies, its commit is complete or absent."""
        self.clock.now_ms += 1000
        driver, changes = store.driver, self._changes()
        version, epoch = driver.read_latest(), 0
        catalog = version.catalog  # empty also in a branch that began at epoch 0
        created = None if catalog.relations else msgspec.structs.replace(catalog, relations=TABLE_RELATIONS)
        plan = BarrierPlan(mapping=version.mapping, log_end=version.log_end, catalog=created)
        with self._mortal("epoch killed"):
            standing = driver.barrier_after(version.epoch)
            superseded = driver.supersede_barrier(standing, plan) if standing else None
            barrier = superseded or driver.inject_barrier(version.epoch, plan)
            epoch = barrier.epoch
            batches = [sealed(table, of) for table, of in changes.items()]
            ssts = batch_ingest(driver.objects, batches, epoch, data_prefix(epoch), 1_000)
            if self.rng.random() < 0.2:
                vacuum_store(self.rng.choice(self._family()).driver)
            driver.commit_epoch(driver.seal_epoch(manifest_of(barrier, driver.writer, tuple(ssts))))
        latest = self._reopen(store).read_latest()
        if epoch and epoch in latest.epochs:
            store.states[epoch] = changed(store.states[version.epoch], changes)
            if self.rng.random() < 0.8:
                store.driver.publish(epoch)

    def _compact(self, store: Store) -> None:
        try:
            with self._mortal("compactor killed"):
                for _ in range(self.rng.choice([1, 4, 100])):
                    if not store.compactor.advance(self.rng):
                        break
                return
        except LostRaceError:
            self.counts["lost"] += 1
        store.compactor = self._compactor(store.driver)

    # --- checks

    def _read(self, store: Store) -> None:
        version = store.driver.read_latest()
        self._check(store, self.rng.choice([e for e in version.epochs if e >= version.min_readable_epoch]))

    def _check(self, store: Store, epoch: int) -> None:
        self.counts["read"] += 1
        reader = HummockStore(store.driver.objects, store.driver.read_latest(), self.cache, [epoch])
        table = self.rng.choice(TABLES)
        rows = store.states[epoch].get(table, {})
        assert_agrees(reader, epoch, table, rows, self.rng.randrange(1 << 16), (self.rng.choice(KINDS),))

    def _end(self) -> None:
        """All epochs of all stores, then exactly the needed objects, then no object of a branch."""
        self.cache.clear()
        self.serves = False
        needed = set[str]()
        for store in self._family():
            self._settle(store)
        for store in self._family():
            vacuum_store(store.driver)
            version = store.driver.read_latest()
            needed |= {name for name in names_in(version) if store is self.parent or not self._is_own(store, name)}
            if store is not self.parent:
                needed |= names_in(self.parent.driver.read_version(self._branch_of(store).version))
                own = {info.name for info in store.driver.objects.list("data/")}
                assert own == {name for name in names_in(version) if self._is_own(store, name)}
            for epoch in version.epochs:
                for _ in range(3):
                    self._check(store, epoch)
        vacuum_store(self.parent.driver)
        left = {info.name for info in self.objects.list("data/")}
        assert needed <= left
        followed = min((self._branch_of(s).epoch for s in self.branches if s.driver.follows), default=None)
        origins = {name: origin_of(name) for name in left - needed}
        assert all(followed is not None and o is not None and o.number > followed for o in origins.values())
        for store in list(self.branches):
            self.parent.driver.end_branch(store.name)
        vacuum_store(self.parent.driver)
        assert not list(self.objects.list("branches/"))
        assert {info.name for info in self.objects.list("data/")} == names_in(self.parent.driver.read_latest())

    def _branch_of(self, store: Store) -> Branch:
        return find_branch(self.parent.driver.read_latest(), store.name)

    def _is_own(self, store: Store, name: str) -> bool:
        return next(iter(store.driver.objects.list(name)), None) is not None

    def _settle(self, store: Store) -> None:
        """End what may still commit objects: open compactions, and the epoch of a dead driver."""
        for task in store.driver.read_latest().tasks:
            store.driver.close_compaction(task.id, "the end")
        if store.driver.follows:
            self._follow(store)
        else:
            self._run_epoch(store)

    # --- processes

    def _family(self) -> list[Store]:
        return [self.parent, *self.branches]

    def _open_parent(self) -> MetaStore:
        return MetaStore(self.objects, f"process {next(self.serial)}", self.clock)

    def _reopen(self, store: Store) -> MetaStore:
        try:
            store.driver = self._open_parent().branch(store.name) if store.name else self._open_parent()
        except BranchGoneError:
            raise AssertionError(f"branch {store.name} is gone, but it was not ended") from None
        return store.driver

    def _store(self, name: str, driver: MetaStore, states: dict[int, State]) -> Store:
        return Store(name, driver, self._compactor(driver), states)

    def _compactor(self, driver: MetaStore) -> Compactor:
        meta = MetaStore(driver.objects, f"compactor {next(self.serial)}", self.clock)
        return Compactor(meta, self.clock, _TREE, lambda what, times: self.counts.update({what: times}))

    @contextmanager
    def _mortal(self, event: str, requests: int = 7) -> Iterator[None]:
        """Let the process of the block die at one of its first requests, sometimes."""
        self.objects.fuse = self.rng.randrange(2 * requests) if self.serves and self.rng.random() < 0.3 else None
        try:
            yield
        except Killed:
            self.counts[event] += 1
            self.counts["killed"] += 1
        finally:
            self.objects.fuse = None

    def _changes(self) -> dict[int, dict[bytes, Row | None]]:
        changes: dict[int, dict[bytes, Row | None]] = {}
        for _ in range(self.rng.choice([0, 2, 30])):
            table = self.rng.choice(TABLES)
            key = storage_key(table, self.rng.randrange(VNODES), b"%d" % self.rng.randrange(12))
            n = self.rng.randrange(100)
            changes.setdefault(table, {})[key] = None if self.rng.random() < 0.3 else {"n": n, "s": "x" * (n % 7)}
        return changes

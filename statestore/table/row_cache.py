"""The rows that operators keep in memory from one epoch to the next, so that hot keys need no read of the store.

What one epoch read and wrote of a table on one parallel unit is likely to be read by the next. It is kept as a few sorted runs of keys and
Arrow rows, newest first, each more than twice as long as the one above it: an epoch adds a run of what it touched and merges it downwards
only where that run has grown as long, so keeping costs O(change), not O(cache).

    open(table, unit, vnodes, base, epoch) -> UnitRows      one attempt's view; nothing is changed until it publishes
        read(keys, load)                                    from the runs; `load` is asked for the rest
        publish(changes)                                    read and written rows become what is known as of `epoch`

When entries count: a worker process is forked, reused and dies as Spark likes, and a unit moves between workers from job to job. So what is
known of a unit is tagged with the epoch whose state it shows and with the unit's vnodes. An attempt that reads at epoch `base` uses it only
if the tag is `base` and the vnodes are the same ones: then this process, or a sibling that shows what it knows (shared_runs.py), ran
the unit in the epoch directly before. All attempts at an
epoch compute the same rows, so it does not matter whose attempt was committed; an epoch that was superseded has another id, and its
successor reads at that. Publishing replaces the tag and the runs in one assignment; an attempt that fails before leaves nothing.

Merging runs and showing them takes a tenth of a large epoch. A task need not wait for it: within `publishing()` that is left to a thread,
which begins when the task ends and works while the driver commits; who opens rows waits for it.

Entries are evictable: a bound on bytes for the process, and less where the host is short of memory. Keys that were not used for the most
epochs go first.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.sorted_keys import SortedKeys, differs_from_previous, sort_order
from tussock.statestore.memory import spare_memory
from tussock.statestore.table.known_run import KnownRun, Mask, Places, joined
from tussock.statestore.table.mem_table import MemRun
from tussock.statestore.table.schema import Found
from tussock.statestore.table.shared_runs import SharedRuns, Sign

DEFAULT_CAPACITY_BYTES = 256 << 20
_KEPT = 7 / 8  # of the capacity, when something must go: so that making room is not every epoch's work

Load = Callable[[pa.BinaryArray], Found]


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Whose rows: one table of one store, on one parallel unit. A table that gets another column is known anew."""

    store: str  # the store's address
    table_id: int
    unit: int
    columns: int = 0  # of the table's rows

    def among(self, vnodes: bytes) -> str:
        """What names these rows to other processes: the unit is known by its vnodes."""
        return f"{self.store}\n{self.table_id}\n{self.columns}\n{vnodes.hex()}"


@dataclass(slots=True)
class RowCacheCounts:
    """What a cache has done so far, in keys."""

    hits: int = 0
    misses: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one unit's rows of one table."""

    vnodes: bytes
    epoch: int  # the runs show the table as of the end of this epoch
    runs: tuple[KnownRun, ...]  # newest first; what a newer one says of a key counts
    sign: Sign | None = None  # where other processes see them

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)

    def merged(self) -> KnownRun:
        """All runs as one: only then may keys be dropped, or an old row would be found again."""
        return functools.reduce(lambda newer, older: older.under(newer), self.runs)


class _TasksOfThread(threading.local):
    """The task that a thread runs, and the task that it ran before."""

    due: list[Callable[[], None]] | None = None  # what attempts of the task publish when it ends; None: no task runs
    published: Future[None] | None = None  # what the task before left to be published


class RowCache:
    """Rows known to one process, of all tables and units that it runs. Safe among threads."""

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY_BYTES,
        spare: Callable[[], int] | None = None,
        shared: SharedRuns | None = None,
    ) -> None:
        """
        Args:
            capacity: bytes at most.
            spare: how many bytes more this process may take now; below 0 it should give some back.
            shared: where to show runs to sibling processes, and to find theirs.
        """
        self.capacity = capacity
        self._shared = shared
        self.counts = RowCacheCounts()
        self._spare = spare
        self._known: dict[RowsOf, _Known] = {}
        self._bases: dict[
            str, int
        ] = {}  # the newest epoch that each store's attempts read at: nobody will read at an older one
        self._bytes = 0
        self._lock = threading.Lock()
        self._tasks = _TasksOfThread()
        self._thread: ThreadPoolExecutor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        with self._lock:
            return self._bytes

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """While a task runs, what it publishes is put off until it has ended, and then done while the next task runs. A task that fails
        publishes nothing. Requires: one task at a time in each thread."""
        tasks = self._tasks
        tasks.due = []
        try:
            yield
        except BaseException:
            tasks.due = None
            raise
        due, tasks.due = tasks.due, None
        if due:
            self._settle()
            with self._lock:
                self._thread = self._thread or ThreadPoolExecutor(1, "publish")
            tasks.published = self._thread.submit(_run_all, due)

    def publish(self, work: Callable[[], None]) -> None:
        """Do this now, or when this thread's task ends."""
        if self._tasks.due is None:
            work()
        else:
            self._tasks.due.append(work)

    def _settle(self) -> None:
        """Wait until what this thread's last task left to be published is published."""
        if (published := self._tasks.published) is not None:
            self._tasks.published = None
            published.result()

    def open(self, of: RowsOf, vnodes: Sequence[int] | npt.NDArray[np.integer], base: int, epoch: int) -> "UnitRows":
        """One attempt's view of a unit's rows.

        Args:
            vnodes: the unit's, ascending.
            base: the epoch whose state the attempt reads.
            epoch: the one it computes.

        Cost: none to speak of, but for what the task before has not published yet.
        """
        self._settle()
        own = np.asarray(vnodes, np.int32).tobytes()
        with self._lock:
            self._bases[of.store] = max(base, self._bases.get(of.store, base))
            known = self._known.get(of)
            if known is not None and known.epoch == base and known.vnodes == own:
                return UnitRows(self, of, own, epoch, known.runs)
            siblings = () if self._shared is None else self._shared.look(of.among(own), base)
        return UnitRows(self, of, own, epoch, siblings)

    def release(self, target: int = 0) -> None:
        """Give memory back until at most `target` bytes are held, what was not used for the longest first."""
        with self._lock:
            if self._bytes > target:
                self._shrink(target)

    def keep(self, of: RowsOf, vnodes: bytes, epoch: int, runs: tuple[KnownRun, ...]) -> None:
        """What is known of a unit from now on, in place of what was. Then make room, if there is too little.

        Requires: `runs` is not empty.
        Cost: none where there is room; else a merge of all that is held, and an eighth of the capacity is free afterwards.
        """
        with self._lock:
            before = self._known.get(of)
            self._forget(of)
            sign = None
            if self._shared is not None:
                runs, sign = self._shared.show(of.among(vnodes), epoch, runs)
            known = self._known[of] = _Known(vnodes, epoch, runs, sign)
            self._bytes += known.nbytes
            if before is not None and before.runs[0] is runs[0]:  # an idle epoch: nothing is new but the tag
                return
            bound = self.capacity if self._spare is None else min(self.capacity, self._bytes + self._spare())
            if self._bytes > bound:
                self._shrink(int(bound * _KEPT))

    def count(self, hits: int, misses: int) -> None:
        """Note a read."""
        with self._lock:
            self.counts.hits += hits
            self.counts.misses += misses

    def _forget(self, of: RowsOf) -> None:
        if (known := self._known.pop(of, None)) is not None:
            self._bytes -= known.nbytes

    def _shrink(self, target: int) -> None:
        """Keep the keys last used, `target` bytes of them; of those used in one epoch, the tables' that were published first."""
        for of, known in list(self._known.items()):
            if target <= 0 or known.epoch < self._bases.get(of.store, 0):
                self.counts.evicted += sum(len(run) for run in known.runs)
                self._forget(of)
        if self._bytes <= target or not self._known:
            return
        units = [(of, known, known.merged()) for of, known in self._known.items()]
        used = np.concatenate([run.used for _, _, run in units])
        sizes = np.repeat([run.nbytes / len(run) for _, _, run in units], [len(run) for _, _, run in units])
        last_first = np.argsort(~used, kind="stable")
        kept = np.zeros(len(used), np.bool_)
        kept[last_first[np.cumsum(sizes[last_first]) <= target]] = True
        self.counts.evicted += int(len(kept) - kept.sum())
        self._known, self._bytes, start = {}, 0, 0
        for of, known, run in units:
            own = kept[start : start + len(run)]
            start += len(run)
            if own.any():
                smaller = self._known[of] = _Known(known.vnodes, known.epoch, (run if own.all() else run.filter(own),))
                self._bytes += smaller.nbytes


@dataclass(slots=True)
class UnitRows:
    """One attempt's view of what its process knows of one table on one unit. Ends with `publish`, or is left as it is."""

    cache: RowCache
    of: RowsOf
    vnodes: bytes
    epoch: int
    runs: tuple[KnownRun, ...]  # as of the epoch before
    _loaded: list[MemRun] = field(default_factory=list)  # what had to be read from the store
    _asked: Places | None = (
        None  # in the newest run, of the keys last asked for: most likely those that are then written
    )

    def read(self, keys: pa.BinaryArray, load: Load, again: bool = True) -> Found:
        """Rows by storage key, as of the epoch before: those known, and the others as `load` finds them; these are kept if `again`.

        Cost: a search per run, of which there are few; cheapest where `keys` ascend.
        """
        row, found = np.full(len(keys), -1, np.int64), np.zeros(len(keys), np.bool_)
        parts: list[pa.Table] = []
        base, rest = 0, np.arange(len(keys))
        for run in self.runs:
            if not len(rest):
                break
            places = run.places_of(keys if len(rest) == len(keys) else keys.take(pa.array(rest)))
            if run is self.runs[0]:
                self._asked = places
            if not places.hit.any():
                continue
            at, there, rest = places.at[places.hit], rest[places.hit], rest[~places.hit]
            run.used[at] = self.epoch
            found[there], row[there] = run.live[at], base + np.arange(len(at))
            parts.append(run.rows.take(pa.array(at)))
            base += len(at)
        self.cache.count(len(keys) - len(rest), len(rest))
        if len(rest) == len(keys):
            below = load(keys)
            self._note(keys, below, again)
            return below
        if len(rest):
            missed = keys.take(pa.array(rest))
            below = load(missed)
            self._note(missed, below, again)
            found[rest], row[rest] = np.asarray(below.found), base + np.arange(len(rest))
            parts.append(below.rows)
        rows = parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()
        if len(parts) > 1 or not found.all():
            rows = rows.take(pa.array(row, mask=~found))
        return Found(rows, pa.array(found))

    def publish(self, changes: MemRun) -> None:
        """Make what this attempt read, and over it `changes`, what is known as of its epoch. For once, at the end.

        A table of which nothing was asked and nothing is known stays unknown: what is only written or scanned is not worth keeping.
        """
        if self.runs or self._loaded:
            self.cache.publish(partial(self._publish, changes))

    def publish_idle(self) -> None:
        """As `publish` of an epoch that neither read nor wrote the table: what is known of it stays known."""
        if self.runs:
            self.cache.publish(partial(self.cache.keep, self.of, self.vnodes, self.epoch, self.runs))

    def _publish(self, changes: MemRun) -> None:
        runs = list(self.runs)
        for fresh in (self._read_only(changes), self._written(changes)):  # no key is in both
            if fresh is not None:
                runs.insert(0, fresh)
        asked = self._asked
        while len(runs) > 1 and 2 * len(runs[0]) >= len(runs[1]):
            known = asked is not None and asked.keys is runs[0].keys.array and runs[1] is self.runs[0]
            runs[:2] = [runs[1].under(runs[0], asked if known else None)]
        self.cache.keep(self.of, self.vnodes, self.epoch, tuple(runs))

    def _note(self, keys: pa.BinaryArray, found: Found, again: bool) -> None:
        if again and len(keys):
            self._loaded.append(MemRun(keys, np.asarray(found.found), found.rows))

    def _written(self, changes: MemRun) -> KnownRun | None:
        return self._run(changes.sorted_keys, changes.puts, changes.rows) if len(changes) else None

    def _read_only(self, changes: MemRun) -> KnownRun | None:
        """What was read from the store and then not written, each key once."""
        kept: list[MemRun] = []
        for loaded in self._loaded:
            left = pa.array(changes.find(loaded.keys) < 0)
            if left.true_count:
                kept.append(MemRun(loaded.keys.filter(left), loaded.puts[np.asarray(left)], loaded.rows.filter(left)))
        if not kept:
            return None
        keys = joined([run.keys for run in kept])
        order = sort_order(keys)
        in_order = keys.take(pa.array(order))
        if not (first := differs_from_previous(in_order)).all():
            order, in_order = order[first], in_order.filter(pa.array(first))
        rows = pa.concat_tables([run.rows for run in kept]).combine_chunks().take(pa.array(order))
        return self._run(SortedKeys(in_order), np.concatenate([run.puts for run in kept])[order], rows)

    def _run(self, keys: SortedKeys, live: Mask, rows: pa.Table) -> KnownRun:
        return KnownRun(keys, live, rows.combine_chunks(), np.full(len(live), self.epoch, np.uint64))


def _run_all(due: Sequence[Callable[[], None]]) -> None:
    for work in due:
        work()


@functools.cache
def process_row_cache() -> RowCache:
    """The cache of this process; it gives way where the host is short of memory."""
    return RowCache(spare=spare_memory, shared=SharedRuns())

"""Keeps rows of operators in memory from one epoch to the next, so that hot keys need no read from the store.

Rows of a table that one epoch read and wrote on a parallel unit are likely to be read by the next epoch. They are kept
as a few sorted runs of keys and Arrow rows, newest first, each more than twice as long as the one before it. An epoch
adds a run with the rows that it touched. It merges this run with the next one only if that one is at most twice as
long, so updates cost O(change), not O(cache).

    open(table, unit, vnodes, base, epoch) -> UnitRows      one attempt's view; nothing changes until it publishes
        read(keys, load)                                    reads from the runs; `load` supplies the other keys
        publish(changes)                                    read and written rows become the known rows as of `epoch`

Validity: Spark forks, reuses and kills workers as it likes, and a unit moves between workers from job to job. The known
rows of a unit are therefore tagged with their epoch and the unit's vnodes. An attempt that reads at epoch `base` uses
only the rows of its vnodes, and only if the tag is `base`. Then this process, or a sibling that shares its rows
(shared_runs.py), ran these vnodes in the epoch directly before. All attempts at an epoch compute the same rows, so any
of them may have been committed. A superseded attempt has another epoch than the committed one, and the next epoch reads
at the committed one. Publishing replaces tag and runs in one assignment; an attempt that fails earlier changes nothing.

Merging and sharing runs takes a tenth of a large epoch. In `defer_publications()` a background thread does this work:
it starts when the task ends and runs while the driver commits. Opening rows waits for it.

The rows of a large first load are not kept, because the next epochs need few of them.

Entries can be evicted: the process has a limit in bytes, and a lower one if the host is short of memory. An eviction
takes the less recently used half of the keys of a unit's oldest run, because no older row can reappear there. So it
costs O(evicted).
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

from tussock.statestore.forks import new_lock, renew_in_child
from tussock.statestore.hummock.ingest import vnodes_of_keys
from tussock.statestore.hummock.sorted_keys import SortedKeys, differs_from_previous, join_keys, sort_order
from tussock.statestore.memory import spare_memory
from tussock.statestore.stacked import take_rows
from tussock.statestore.table.columns import take_columns
from tussock.statestore.table.known_run import KnownRun, Mask, Places
from tussock.statestore.table.mem_table import MemRun
from tussock.statestore.table.schema import FoundRows
from tussock.statestore.table.shared_runs import SharedRuns, Sign

DEFAULT_CAPACITY_BYTES = 256 << 20
ALL_UNITS = -1  # in place of a unit's number, if one unit has all vnodes
LOADED_BYTES = 32 << 20  # the rows of a table's first epoch are kept if they take less
_KEPT = 7 / 8  # of the capacity after an eviction, so that not every epoch has to evict

Load = Callable[[pa.BinaryArray], FoundRows]


@dataclass(frozen=True, slots=True)
class RowsOf:
    """The owner of rows: one table of one store, on one parallel unit. A table with an added column starts empty."""

    store: str  # the store's address
    table_id: int
    unit: int  # or ALL_UNITS
    columns: int = 0  # number of row columns

    def name_for_siblings(self, vnodes: bytes) -> str:
        """The name of these rows for other processes, which identify a unit by its vnodes."""
        return f"{self.store}\n{self.table_id}\n{self.columns}\n{vnodes.hex()}"


@dataclass(slots=True)
class RowCacheCounts:
    """Statistics of a cache since its creation, in keys."""

    hits: int = 0
    misses: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """The known rows of one table on one unit."""

    vnodes: bytes
    epoch: int  # the runs are the table's state at the end of this epoch
    runs: tuple[KnownRun, ...]  # newest first; for equal keys the newer run wins
    sign: Sign | None = None  # lets other processes find the runs

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs)

    @property
    def last_use(self) -> float:
        """About the mean epoch of the last use of the keys that would be evicted."""
        return self.runs[-1].mean_use

    def evict_half(self) -> "_Known | None":
        """Evict half of the oldest run. Keys of newer runs must stay; otherwise an older row would reappear."""
        rest = self.runs[-1].keep_recent()
        runs = self.runs[:-1] if rest is None else (*self.runs[:-1], rest)
        return _Known(self.vnodes, self.epoch, runs) if runs else None


class _TasksOfThread(threading.local):
    """A thread's current task and previous task."""

    due: list[Callable[[], None]] | None = None  # publications to run at the end of the task; None: no task runs
    published: Future[None] | None = None  # pending publications of the previous task


class RowCache:
    """Known rows of all tables and units that a process runs. Thread-safe."""

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY_BYTES,
        spare: Callable[[], int] | None = None,
        shared: SharedRuns | None = None,
    ) -> None:
        """
        Args:
            capacity: limit in bytes.
            spare: returns how many more bytes this process may use now; negative if it should free memory.
            shared: shares runs with sibling processes.
        """
        self.capacity = capacity
        self._shared = shared
        self.counts = RowCacheCounts()
        self._spare = spare
        self._known: dict[RowsOf, _Known] = {}
        # The newest epoch at which attempts of each store read. No later attempt reads at an older one.
        self._bases: dict[str, int] = {}
        self._bytes = self._units = 0  # `_units`: all unit numbers so far are below
        self._lock = new_lock()
        self._tasks = _TasksOfThread()
        self._thread: ThreadPoolExecutor | None = None

    def share_runs(self) -> None:
        """Share runs with sibling processes from now on, because a unit moves between them."""
        if self._shared is None:
            self._shared = SharedRuns()

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        with self._lock:
            return self._bytes

    @contextmanager
    def defer_publications(self) -> Iterator[None]:
        """Defer publications of a task until it has ended; they then run while the next task runs.

        A failed task publishes nothing.

        Requires: each thread runs one task at a time.
        """
        tasks = self._tasks
        tasks.due = []
        try:
            yield
        except BaseException:
            tasks.due = None
            raise
        due, tasks.due = tasks.due, None
        if due:
            self._await_publications()
            with self._lock:
                self._thread = self._thread or ThreadPoolExecutor(1, "publish")
            tasks.published = self._thread.submit(_run_all, due)

    def run_or_defer(self, work: Callable[[], None]) -> None:
        """Run `work` now, or at the end of this thread's task."""
        if self._tasks.due is None:
            work()
        else:
            self._tasks.due.append(work)

    def _await_publications(self) -> None:
        """Wait for the publications of this thread's previous task."""
        if (published := self._tasks.published) is not None:
            self._tasks.published = None
            published.result()

    def open_unit(
        self, of: RowsOf, vnodes: Sequence[int] | npt.NDArray[np.integer], base: int, epoch: int
    ) -> "UnitRows":
        """Open one attempt's view of a unit's rows.

        Args:
            vnodes: the unit's vnodes, ascending.
            base: the epoch whose state the attempt reads.
            epoch: the epoch that it computes.

        Cost: negligible, except for waiting for the publications of the previous task. If other units had only some of
            these vnodes, or more, 33 ms per million of their rows.
        """
        self._await_publications()
        mine = np.asarray(vnodes, np.int32)
        own = mine.tobytes()
        with self._lock:
            self._bases[of.store] = max(base, self._bases.get(of.store, base))
            known = self._known.get(of)
            if known is not None and known.epoch == base and known.vnodes == own:
                return UnitRows(self, of, own, epoch, known.runs)
            siblings = () if self._shared is None else self._shared.find_shared(of.name_for_siblings(own), base)
            others = [] if siblings else self._of_other_units(of, base)
        return UnitRows(self, of, own, epoch, siblings or _of_vnodes(others, mine))

    def _of_other_units(self, of: RowsOf, base: int) -> "list[_Known]":
        """The known rows of a table's units at `base`: that epoch may have run on other units, such as one for all."""
        units = range(ALL_UNITS, self._units)
        others = (self._known.get(RowsOf(of.store, of.table_id, unit, of.columns)) for unit in units)
        return [known for known in others if known is not None and known.epoch == base]

    def keep_rows(self, of: RowsOf, vnodes: bytes, epoch: int, runs: tuple[KnownRun, ...]) -> None:
        """Replace the known rows of a unit, and evict if memory is short.

        Requires: `runs` is not empty.
        Cost: none without eviction; otherwise a copy of at most as many rows as are evicted, an eighth of the capacity.
        """
        with self._lock:
            before = self._known.get(of)
            self._forget_rows(of)
            sign = None
            if self._shared is not None:
                runs, sign = self._shared.share_runs(of.name_for_siblings(vnodes), epoch, runs)
            known = self._known[of] = _Known(vnodes, epoch, runs, sign)
            self._units = max(self._units, of.unit + 1)
            self._bytes += known.nbytes
            if before is not None and before.runs[0] is runs[0]:  # an idle epoch: only the tag changes
                return
            bound = self.capacity if self._spare is None else min(self.capacity, self._bytes + self._spare())
            if self._bytes > bound:
                self._shrink_to(int(bound * _KEPT))

    def count_reads(self, hits: int, misses: int) -> None:
        """Record a read."""
        with self._lock:
            self.counts.hits += hits
            self.counts.misses += misses

    def _forget_rows(self, of: RowsOf) -> None:
        if (known := self._known.pop(of, None)) is not None:
            self._bytes -= known.nbytes

    def _shrink_to(self, target: int) -> None:
        """Keep at most `target` bytes. Evicts from the runs that were unused for longest."""
        for of, known in list(self._known.items()):
            if target <= 0 or known.epoch < self._bases.get(of.store, 0):
                self.counts.evicted += sum(len(run) for run in known.runs)
                self._forget_rows(of)
        while self._bytes > target and self._known:
            of = min(self._known, key=lambda of: self._known[of].last_use)
            known = self._known[of]
            self._forget_rows(of)
            smaller = known.evict_half()
            self.counts.evicted += len(known) - (0 if smaller is None else len(smaller))
            if smaller is not None:
                self._known[of] = smaller
                self._bytes += smaller.nbytes


@dataclass(slots=True)
class UnitRows:
    """One attempt's view of a process's known rows of one table on one unit.

    Ends with `publish_rows`, or is abandoned.
    """

    cache: RowCache
    of: RowsOf
    vnodes: bytes
    epoch: int
    runs: tuple[KnownRun, ...]  # as of the epoch before
    _loaded: list[MemRun] = field(default_factory=list)  # rows read from the store
    _asked: Places | None = None  # positions of the last requested keys in the newest run; likely the next ones written

    def read_rows(self, keys: pa.BinaryArray, load: Load, again: bool = True) -> FoundRows:
        """Read rows by storage key as of the epoch before: known rows, and the others with `load`.

        Loaded rows are kept if `again`.

        Cost: a search per run, and there are few runs; cheapest if `keys` ascend.
        """
        row, exists = np.full(len(keys), -1, np.int64), np.zeros(len(keys), np.bool_)
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
            exists[there], row[there] = run.live[at], base + np.arange(len(at))
            parts.append(take_rows(run.rows, at))
            base += len(at)
        self.cache.count_reads(len(keys) - len(rest), len(rest))
        if len(rest) == len(keys):
            below = load(keys)
            self._note_loaded(keys, below, again)
            return below
        if len(rest):
            missed = keys.take(pa.array(rest))
            below = load(missed)
            self._note_loaded(missed, below, again)
            exists[rest], row[rest] = np.asarray(below.found), base + np.arange(len(rest))
            parts.append(below.rows)
        rows = parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()
        if len(parts) > 1 or not exists.all():
            rows = take_rows(rows, pa.array(row, mask=~exists))
        return FoundRows(rows, pa.array(exists))

    def publish_rows(self, changes: MemRun) -> None:
        """Publish the rows that this attempt read, overlaid with `changes`, as known rows of its epoch.

        Call once, at the end.

        Does nothing if the table has no known rows and was not read by key, because rows that are only written or
        scanned are not kept, or if this was its first load: a search among millions of rows of which the next epochs
        need few costs more than their blocks.
        """
        if self.runs or (self._loaded and not self._is_load(changes)):
            self.cache.run_or_defer(partial(self._publish_rows, changes))

    def _is_load(self, changes: MemRun) -> bool:
        """Whether the epoch read and wrote so many rows that the next ones need few of them."""
        nbytes: int = sum(run.keys.nbytes + run.rows.nbytes for run in (changes, *self._loaded))
        return nbytes > LOADED_BYTES

    def publish_idle(self) -> None:
        """`publish_rows` for an epoch that neither read nor wrote the table: its known rows stay valid."""
        if self.runs:
            self.cache.run_or_defer(partial(self.cache.keep_rows, self.of, self.vnodes, self.epoch, self.runs))

    def _publish_rows(self, changes: MemRun) -> None:
        runs = list(self.runs)
        for fresh in (self._read_only(changes), self._written_run(changes)):  # disjoint keys
            if fresh is not None:
                runs.insert(0, fresh)
        asked = self._asked
        while len(runs) > 1 and 2 * len(runs[0]) >= len(runs[1]):
            known = asked is not None and asked.keys is runs[0].keys.array and runs[1] is self.runs[0]
            runs[:2] = [runs[1].merge_newer(runs[0], asked if known else None)]
        self.cache.keep_rows(self.of, self.vnodes, self.epoch, tuple(runs))

    def _note_loaded(self, keys: pa.BinaryArray, loaded_rows: FoundRows, again: bool) -> None:
        if again and len(keys):
            self._loaded.append(MemRun(keys, np.asarray(loaded_rows.found), loaded_rows.rows))

    def _written_run(self, changes: MemRun) -> KnownRun | None:
        return self._make_run(changes.sorted_keys, changes.puts, changes.rows) if len(changes) else None

    def _read_only(self, changes: MemRun) -> KnownRun | None:
        """Rows that were read from the store and not written afterwards; each key once."""
        read_runs: list[MemRun] = []
        for loaded in self._loaded:
            left = pa.array(changes.find_keys(loaded.keys) < 0)
            if left.true_count:
                read_runs.append(
                    MemRun(loaded.keys.filter(left), loaded.puts[np.asarray(left)], loaded.rows.filter(left))
                )
        if not read_runs:
            return None
        keys = join_keys([run.keys for run in read_runs])
        order = sort_order(keys)
        in_order = keys.take(pa.array(order))
        if not (first := differs_from_previous(in_order)).all():
            order, in_order = order[first], in_order.filter(pa.array(first))
        rows = take_columns([run.rows for run in read_runs], pa.array(order))
        return self._make_run(SortedKeys(in_order), np.concatenate([run.puts for run in read_runs])[order], rows)

    def _make_run(self, keys: SortedKeys, live: Mask, rows: pa.Table) -> KnownRun:
        return KnownRun(keys, live, rows.combine_chunks(), np.full(len(live), self.epoch, np.uint64))


def _of_vnodes(known: Sequence[_Known], vnodes: npt.NDArray[np.int32]) -> tuple[KnownRun, ...]:
    """The known rows of these vnodes. Units share no key, so the order of their runs does not matter."""
    runs: list[KnownRun] = []
    for one in known:
        wanted = np.isin(np.frombuffer(one.vnodes, np.int32), vnodes)
        if wanted.all():
            runs += one.runs
        elif wanted.any():
            masks = ((run, np.isin(vnodes_of_keys(run.keys.array), vnodes)) for run in one.runs)
            runs += (run.filter_keys(mine) for run, mine in masks if mine.any())
    return tuple(runs)


def _run_all(due: Sequence[Callable[[], None]]) -> None:
    for work in due:
        work()


@functools.cache
def process_row_cache() -> RowCache:
    """The cache of this process; it shrinks if the host is short of memory."""
    return RowCache(spare=spare_memory)


renew_in_child(process_row_cache.cache_clear)  # with the thread that publishes

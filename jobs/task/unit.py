"""Actors: the fragments of one level on one parallel unit.

An actor is a pure function, to the byte, of its cells, the pinned version and the barrier: cells are put in an order of their own before
use, no clock and no attempt enters a cell, and its only side effect is the upload of SSTs named after their bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa

from jobs.executors.build import build
from jobs.executors.hash_join import JoinConditionError
from jobs.executors.table_replay import TableReplay
from jobs.kernels.errors import RowError
from jobs.kernels.kernel import process_kernel
from jobs.plan import nodes
from jobs.plan.schedule import Feed, Scheduled
from jobs.sources.parquet import Split, read_split
from jobs.task.flush import sealed_batch
from jobs.task.opened import decoded_version, opened_objects
from jobs.wire.cell import (
    BACKFILL,
    BACKFILL_ROWS,
    BUFFERED,
    ENTRIES,
    FAILURE,
    FLUSH,
    REPORT,
    ROWS,
    SPLITS,
    SST,
    cells,
    decode,
    dispatch,
    encode,
    select,
)
from jobs.wire.chunk import empty_chunk, inserts, make_chunk
from jobs.wire.epoch_task import Entry, EpochTask, FragmentReport
from jobs.wire.failed_row import failed_row
from jobs.wire.failure import ActorError, carried_by_spark, encode_failure
from statestore.errors import InputError, RetryableError, TussockError
from statestore.hummock.cache import process_cache
from statestore.hummock.ingest import batch_ingest
from statestore.hummock.sealed_batch import SealedBatch
from statestore.hummock.shared_buffer import Load, SharedBuffer
from statestore.hummock.store import HummockStore
from statestore.meta.catalog import TableSchema
from statestore.meta.statement_log import read_payload
from statestore.table.row_cache import RowsOf, process_row_cache
from statestore.table.state_table import StateTable
from statestore.table.storage_table import StorageTable

_entries = msgspec.json.Decoder(tuple[Entry, ...])
_splits = msgspec.json.Decoder(tuple[Split, ...])


@dataclass(slots=True)
class _Output:
    """What a fragment put out on this unit."""

    delta: pa.Table
    full: pa.Table | None = None  # with the snapshot before it, where a reader wants that


@dataclass(slots=True)
class Unit:
    """One unit's actors of one level."""

    task: EpochTask
    level: int
    slot: int
    inbox: dict[tuple[int, int], list[bytes]]
    share: list[SealedBatch] | None = None  # what this level sealed, where the unit may upload it with what the levels before sealed
    outputs: dict[int, _Output] = field(default_factory=dict)
    store: HummockStore = field(init=False)
    vnodes: Sequence[int] = field(init=False)  # of this unit, ascending
    travelling: int = 0  # bytes of sealed MemTables handed on so far, at this level

    def __post_init__(self) -> None:
        self.vnodes = [int(v) for v in np.flatnonzero(np.asarray(self.task.units) == self.slot)]
        version = decoded_version(self.task.version)
        self.store = HummockStore(opened_objects(self.task.store_uri), version, process_cache(), buffer=self._shared_buffer())

    def run(self) -> Iterator[pa.RecordBatch]:
        for scheduled in self.task.schedule.levels[self.level]:
            try:
                yield from self._fragment(scheduled)
            except RetryableError as err:  # Spark runs the task again; if it gives up, the driver finds this error in Spark's
                with carried_by_spark(scheduled.relation):
                    raise err
            except TussockError as err:
                yield cells(self.slot, FAILURE, 0, [encode_failure(err, scheduled.relation, self.level)])
                return

    # --- one fragment ------------------------------------------------------------------------------------------------------------

    def _fragment(self, scheduled: Scheduled) -> Iterator[pa.RecordBatch]:
        used = {t for o in scheduled.fragment.operators for t in o.tables} if scheduled.fragment is not None else set()
        tables = {t.table_id: self._state_table(t) for t in scheduled.tables if t.table_id in used}
        if scheduled.source is not None:
            output, rows_in = self._read_source(scheduled)
        elif (computed := self._compute(scheduled, tables)) is not None:
            output, rows_in = computed
        else:
            for table in tables.values():
                table.seal()  # nothing was written: what is remembered of it holds for this epoch too
            return
        self.outputs[scheduled.id] = output
        for table in tables.values():
            if (sealed := table.seal()) is not None:
                yield from self._seal(sealed)
        for exchange in scheduled.exchanges:
            chunk = select(self._of(output, exchange.full), exchange.columns)
            for unit, piece in dispatch(chunk, exchange.keys, np.asarray(self.task.units)):
                yield cells(unit, scheduled.id, exchange.index, encode(piece))
        last = scheduled.source is not None or self._materializes(scheduled)
        report = FragmentReport(scheduled.relation_id, scheduled.id, self.level, self.slot, rows_in, output.delta.num_rows, last)
        yield cells(self.slot, REPORT, 0, [msgspec.json.encode(report)])

    def _compute(self, scheduled: Scheduled, tables: dict[int, StateTable]) -> tuple[_Output, int] | None:
        """Run the operators; None where there is nothing to do on this unit."""
        assert scheduled.fragment is not None
        fragment = scheduled.fragment
        inputs = [self._input(feed) for feed in scheduled.feeds]
        entries = self.inbox.get((scheduled.id, ENTRIES), [])
        idle = not entries and not any(i.num_rows for i in inputs)
        if idle and not (scheduled.must_run and (not fragment.singleton or self.slot == self.task.units[0])):
            return None
        results: list[pa.Table] = []
        for number, operator in enumerate(fragment.operators):
            states = [tables[t] for t in operator.tables]
            node = operator.node
            if isinstance(node, nodes.TableReplay):
                replay = TableReplay(node, states[0], process_kernel(), self.vnodes, len(self.task.units))
                decoded = [e for chunk in entries for e in _entries.decode(chunk)]
                results.append(replay.apply([e.statement for e in decoded], self._payload, [e.position for e in decoded]))
                continue
            chunks = [results[r] if r >= 0 else inputs[-1 - r] for r in operator.inputs]
            try:
                results.append(build(node, states, process_kernel()).apply(*chunks))
            except RowError as err:
                raise failed_row(scheduled, number, err.text, err.reason, chunks[0], err.row) from err
            except JoinConditionError as err:
                raise failed_row(scheduled, number, err.condition, err.reason, err.joined, 0) from err
            except InputError as err:
                raise ActorError(f"view {scheduled.relation!r}", str(err)) from err
        delta = results[-1] if results else inputs[0]
        full = None
        if scheduled.snapshot_table is not None:
            full = pa.concat_tables([*self._snapshot(scheduled.snapshot_table), delta])
        return _Output(delta, full), sum(i.num_rows for i in inputs)

    def _input(self, feed: Feed) -> pa.Table:
        """One input's chunk; forward from this unit's own results, else from the cells, in an order that no attempt changes."""
        if feed.exchange is None:
            if (output := self.outputs.get(feed.producer)) is None:
                return empty_chunk(feed.types)
            return select(self._of(output, feed.full), feed.columns)
        chunks = self.inbox.get((feed.producer, feed.exchange), [])
        return decoded if (decoded := decode(sorted(chunks))) is not None else empty_chunk(feed.types)

    @staticmethod
    def _of(output: _Output, full: bool) -> pa.Table:
        return output.full if full and output.full is not None else output.delta

    @staticmethod
    def _materializes(scheduled: Scheduled) -> bool:
        assert scheduled.fragment is not None
        return isinstance(scheduled.fragment.operators[-1].node, nodes.Materialize | nodes.TableReplay)

    # --- leaves and snapshots ----------------------------------------------------------------------------------------------------

    def _read_source(self, scheduled: Scheduled) -> tuple[_Output, int]:
        """Read this unit's splits. A source has no rows of its own, so `full` is: the files taken before, then the new ones."""
        source = scheduled.source
        assert source is not None
        types = (*(source.statement.fields[c].type for c in source.columns), "bigint")

        def read(splits: int, rows: int) -> pa.Table:
            parts = [empty_chunk(types)]
            for chunk in sorted(self.inbox.get((scheduled.id, splits), [])):
                statement = source.statement
                parts += [inserts(read_split(s, source.columns, statement.fields, statement.options)) for s in _splits.decode(chunk)]
            if (made := decode(sorted(self.inbox.get((scheduled.id, rows), [])))) is not None:
                parts.append(inserts(made))
            return pa.concat_tables(parts)

        delta = read(SPLITS, ROWS)
        old = read(BACKFILL, BACKFILL_ROWS)
        return _Output(delta, pa.concat_tables([old, delta])), delta.num_rows + old.num_rows

    def _snapshot(self, schema: TableSchema) -> Iterator[pa.Table]:
        version = decoded_version(self.task.version)
        stored = StorageTable(schema, self.store, version.epoch, len(self.task.units))
        for rows in stored.scan(vnodes=self.vnodes):
            yield make_chunk(rows.columns, pa.array(np.ones(rows.num_rows, np.int64)))

    def _payload(self, name: str) -> pa.Table:
        return pa.ipc.open_stream(read_payload(opened_objects(self.task.store_uri), name)).read_all()

    # --- state -------------------------------------------------------------------------------------------------------------------

    def _shared_buffer(self) -> SharedBuffer:
        """What epochs in flight sealed on this unit."""
        runs: dict[int, list[tuple[int, Load]]] = {}
        for (fragment, table), chunks in self.inbox.items():
            if fragment <= BUFFERED:
                epoch = self.task.in_flight[BUFFERED - fragment]
                runs.setdefault(table, []).extend((epoch, partial(sealed_batch, table, chunk)) for chunk in chunks)
        return SharedBuffer(runs)

    def _state_table(self, schema: TableSchema) -> StateTable:
        base = decoded_version(self.task.version).epoch
        remembered = process_row_cache().open(RowsOf(self.task.store_uri, schema.table_id, self.slot), self.vnodes, base, self.task.epoch)
        return StateTable(schema, self.store, base, len(self.task.units), remembered)

    def flush(self, arrived: Sequence[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
        """After the last level: upload what all levels sealed on this unit, or hand it to the flush exchange.

        The exchange merges what many units sealed into few SSTs, on one core. Where an SST a unit is no more than ceil(bytes / target) + 1,
        every unit uploads its own, side by side, and nothing travels.
        """
        if self.share is None or not (self.share or arrived):
            return
        size = sum(batch.rows.nbytes for batch in self.share) + sum(len(chunk) for _, chunk in arrived)
        units = len(set(self.task.units))
        if units <= -(-size * units // self.task.target_bytes) + 1:
            batches = [*self.share, *(b for table_id, chunk in arrived if (b := sealed_batch(table_id, chunk)) is not None)]
            with carried_by_spark("flush"):
                yield self._uploaded(batches)
            return
        for table_id, chunk in arrived:
            yield cells(self.slot, FLUSH, table_id, [chunk])
        own, self.share = self.share, None
        for sealed in own:
            yield from self._seal(sealed)

    def _uploaded(self, batches: Sequence[SealedBatch]) -> pa.RecordBatch:
        task = self.task
        infos = batch_ingest(opened_objects(task.store_uri), batches, task.epoch, task.data_prefix, task.target_bytes)
        return cells(self.slot, SST, 0, [msgspec.json.encode(infos)])

    def _seal(self, sealed: SealedBatch) -> Iterator[pa.RecordBatch]:
        """Hand a sealed MemTable to the shared buffer. Whole SSTs of it are uploaded here; only the rest travels."""
        if self.share is not None:
            self.share.append(sealed)
            return
        size = sealed.rows.nbytes
        whole = (size // self.task.target_bytes) if self.task.target_bytes else 0
        rest = sealed.rows
        rows = sealed.rows.num_rows * whole * self.task.target_bytes // max(1, size)
        if self.task.travelling_bytes is not None and self.travelling + size > self.task.travelling_bytes:
            rows = sealed.rows.num_rows  # more than was thought when the epoch was planned
        if rows:
            yield self._uploaded([SealedBatch(sealed.table_id, sealed.rows.slice(0, rows))])
            rest = sealed.rows.slice(rows)
        if rest.num_rows:
            self.travelling += rest.nbytes
            yield cells(self.slot, FLUSH, sealed.table_id, encode(rest))

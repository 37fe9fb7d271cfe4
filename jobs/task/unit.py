"""Actors: the fragments of one level on one parallel unit.

The output of an actor is a pure function of its cells, the pinned version and the barrier, down to the byte. To achieve
this, cells are sorted before use, and no cell contains a time or an attempt number. The only side effect of an actor is
the upload of SSTs, which are named after their content.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.jobs.chunks.chunk import decode_tables, empty_chunk, encode_parts, make_chunk, some_rows
from tussock.jobs.chunks.failure import SourceContradictedError, carried_by_spark, encode_failure
from tussock.jobs.executors.base import ChangeError, net_chunk
from tussock.jobs.executors.operator import Actor, Entry
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.kernels.outcomes import MOST_ROWS, ChunkValues
from tussock.jobs.kernels.python_function import install_functions
from tussock.jobs.plan.fragments import Dispatch, Fragment
from tussock.jobs.schedule.schedule import NeededOutput, ScheduledFragment, SnapshotPart
from tussock.jobs.sources.keyed import is_keyed
from tussock.jobs.sources.ports import Port
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.task.chain import FragmentOutput, run_operators
from tussock.jobs.task.filters import Filters, filters_of
from tussock.jobs.task.hot_key import hot_key
from tussock.jobs.task.level_flush import LevelFlush, decode_sealed
from tussock.jobs.task.opened import decoded_version, opened_objects
from tussock.jobs.task.sealing import SealedParts
from tussock.jobs.task.source_leaf import SourceLeaf
from tussock.jobs.task.unit_output import FragmentInputSize, UnitOutput
from tussock.jobs.task.vnode_parts import PartCells
from tussock.jobs.wire.cell import Address, LeafInput, Mail, broadcast_chunk, make_cells, select_columns, split_by_unit
from tussock.jobs.wire.epoch_task import EpochTask, FragmentReport, HotKeyFound
from tussock.jobs.wire.flush_policy import ExpectedSize
from tussock.jobs.wire.typed_rows import steps_behind, typed_rows
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import RetryableError, TussockError
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.shared_buffer import Load, SharedBuffer
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.meta.statement_log import read_payload
from tussock.statestore.stacked import count_bytes
from tussock.statestore.table.row_cache import ALL_UNITS, RowsOf, UnitRows, process_row_cache
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.vnode import vnodes_of
from tussock.statestore.zones import install_rules

log = logging.getLogger(__name__)

_entries = decoder_of(tuple[Entry, ...])


@dataclass(frozen=True, slots=True)
class _FragmentInput:
    """The input of a fragment: chunks, and entries of the log."""

    inputs: list[pa.Table]
    entries: Sequence[Entry]


@dataclass(slots=True)
class Unit:
    """The actors of one level on one unit."""

    task: EpochTask
    level: int
    number: int
    inbox: dict[Address, list[bytes]]  # a cell is removed with its last reader
    # (table id, chunk): MemTables of earlier levels, if this level gathers them.
    arrived: InitVar[Sequence[tuple[int, bytes]]] = ()
    parts: PartCells | None = None  # input that was sent in parts
    outputs: dict[int, UnitOutput] = field(default_factory=dict)
    store: HummockStore = field(init=False)
    vnodes: Sequence[int] = field(init=False)  # of this unit, ascending
    own_vnodes: npt.NDArray[np.int64] = field(init=False)  # the same, as an array
    flush: LevelFlush = field(init=False)
    readers: Counter[tuple[int, int | None]] = field(init=False)  # by fragment and exchange: inputs not read yet
    filters: Filters | None = None  # of this level, computed when first needed

    def __post_init__(self, arrived: Sequence[tuple[int, bytes]]) -> None:
        install_functions(self.task.functions)
        install_rules(self.task.zones)
        self.own_vnodes = np.flatnonzero(np.asarray(self.task.unit_of_vnode) == self.number)
        self.vnodes = self.own_vnodes.tolist()
        last = self.level == len(self.task.schedule.levels) - 1
        self.flush = LevelFlush(self.task, self.number, arrived, [] if last and self.task.units_flush else None)
        self.readers = Counter(
            (f.producer, f.exchange) for s in self.task.schedule.levels[self.level] for f in s.origins
        )
        version = decoded_version(self.task.version)
        self.store = HummockStore(
            opened_objects(self.task.store_uri),
            version,
            process_cache(),
            buffer=self._shared_buffer(),
            vnodes=range(self.vnodes[0], self.vnodes[-1] + 1) if self.task.unit_count > 1 else None,
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        """Run the actors, then flush if this is the flushing level.

        An error that a retry would meet again ends the run without a flush, and reaches every unit before the next
        level.
        """
        for scheduled in self.task.schedule.levels[self.level]:
            try:
                yield from self._run_fragment(scheduled)
            except RetryableError as err:  # Spark retries the task; at the end the driver finds this error in Spark's
                with carried_by_spark(scheduled.shown_name):
                    raise err
            except TussockError as err:
                failure = encode_failure(err, scheduled.shown_name, self.level)
                for unit in range(self.task.unit_count):
                    yield make_cells(unit, Address.of_answer(Mail.FAILURE), [failure])
                return
        yield from self.flush.flush_sealed()

    # --- one fragment -----------------------------------------------------------------------------

    def _run_fragment(self, scheduled: ScheduledFragment) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        tables: dict[int, StateTable] = {}
        much = self.task.expected is ExpectedSize.MUCH
        sealed_parts = SealedParts(self.flush.begin_ingest() if much else None)
        if (source := scheduled.source) is not None:
            is_read_here = bool(self.readers[scheduled.id, None])
            leaf = SourceLeaf(self.task, self.number, scheduled, source, self.inbox, is_read_here)
            output, taken = yield from leaf.read_source()
        elif scheduled.replayed is not None:
            output, taken = self._replay_changes(scheduled.replayed)
        elif (coming := self._coming_input(scheduled)) is not None:
            tables = {t.table_id: self._state_table(t) for t in _used_tables(scheduled)}
            output, taken = self._run_operators(scheduled, coming, tables, sealed_parts)
        else:
            for schema in _used_tables(scheduled):
                self._row_cache_of(schema).publish_idle()
            return
        if self.readers[scheduled.id, None]:
            self.outputs[scheduled.id] = output
        if infos := sealed_parts.close_ssts():
            yield self.flush.make_sst_cell(infos)
        for part in sealed_parts.take_rest():
            yield from self.flush.keep_sealed(part)
        for table in tables.values():
            if (sealed := table.seal_changes()) is not None:
                yield from self.flush.keep_sealed(sealed)
        yield from self._send_output(scheduled, output)
        yield self._report_rows(scheduled, output, taken, time.perf_counter() - started)

    def _send_output(self, scheduled: ScheduledFragment, output: UnitOutput) -> Iterator[pa.RecordBatch]:
        """Yield the cells of a fragment's exchanges: to each unit its rows, or all rows for Spark to compute on."""
        units = np.asarray(self.task.unit_of_vnode)
        for exchange in scheduled.exchanges:
            needed = exchange.needed
            chunk = self._part_for_reader(output, needed)
            if needed.project:
                address = (scheduled.id, exchange.index)
                step = next(s for s in steps_behind(self.task.schedule, self.level) if s.address == address)
                yield from typed_rows(self.number, step, self.number, chunk)
                continue
            pieces = (
                broadcast_chunk(chunk, units)
                if needed.dispatch is Dispatch.BROADCAST
                else split_by_unit(chunk, needed.keys, units)
            )
            for unit, cell in encode_parts(pieces, count_bytes(chunk)):
                yield make_cells(unit, Address.of_exchange(scheduled.id, exchange.index), [cell])

    def _report_rows(
        self, scheduled: ScheduledFragment, output: UnitOutput, taken: FragmentInputSize, seconds: float
    ) -> pa.RecordBatch:
        """Return the cell with the fragment's report for the driver, and log it."""
        keyed = scheduled.source is not None and is_keyed(scheduled.source.statement)
        last = (scheduled.source is not None and not keyed) or self._is_materialized(scheduled)
        report = FragmentReport(
            relation_id=scheduled.relation_id,
            fragment=scheduled.id,
            level=self.level,
            unit=self.number,
            rows_in=taken.rows,
            rows_out=output.put.rows,
            last=last,
            undeclared=output.undeclared,
            net=output.put.weight if last else 0,
            bytes_in=taken.bytes,
            hot=taken.hot,
            counters=dict(taken.counters),
            matched=taken.matched,
        )
        log.info(
            "fragment %d of %s: %d rows in, %d out, %.3f s",
            scheduled.id,
            scheduled.shown_name,
            report.rows_in,
            report.rows_out,
            seconds,
        )
        return make_cells(self.number, Address.of_answer(Mail.REPORT), [msgspec.json.encode(report)])

    def _coming_input(self, scheduled: ScheduledFragment) -> _FragmentInput | None:
        """The input of a fragment without a source. None if it has no work on this unit."""
        assert scheduled.fragment is not None
        fragment = scheduled.fragment
        inputs = [self._input_chunk(scheduled, place) for place in range(len(scheduled.origins))]
        entries = self.inbox.get(Address.of_leaf(scheduled.id, LeafInput.ENTRIES), [])
        idle = not entries and not any(i.num_rows for i in inputs) and self._exchange_with_parts(scheduled) is None
        if idle and not (scheduled.must_run and (not fragment.singleton or self.number == self.task.unit_of_vnode[0])):
            return None
        return _FragmentInput(inputs, [e for chunk in entries for e in _entries.decode(chunk)])

    def _run_operators(
        self,
        scheduled: ScheduledFragment,
        coming: _FragmentInput,
        tables: dict[int, StateTable],
        sealed_parts: SealedParts,
    ) -> tuple[UnitOutput, FragmentInputSize]:
        """Run the operators on the input."""
        assert scheduled.fragment is not None
        fragment, inputs = scheduled.fragment, coming.inputs
        exchange, parts = self._exchange_with_parts(scheduled), self.parts
        moments = decoded_version(self.task.version).moment, self.task.moment
        actor = Actor(
            thread_kernel(),
            self.vnodes,
            self.task.vnode_count,
            coming.entries,
            self._read_payload,
            scheduled.new,
            *moments,
            parts=None if exchange is None or parts is None else partial(parts.take_parts, exchange),
            seal_written=sealed_parts.seal_tables,
        )
        taken = FragmentInputSize(
            sum(i.num_rows for i in inputs),
            sum(i.nbytes for i in inputs),
            self._hottest_key(fragment, inputs),
            actor.counters,
        )
        read = bool(self.readers[scheduled.id, None] or scheduled.exchanges or scheduled.parts)
        try:
            put = run_operators(scheduled, inputs, tables.__getitem__, actor, read)
        except ChangeError as err:  # a deleted row does not exist: a source's deletes may be wrong, else our state is
            if sources := self._listing_deletes(scheduled):
                raise SourceContradictedError(sources[0], sources, err.key) from err
            raise
        if exchange is not None and parts is not None:
            taken = replace(taken, rows=taken.rows + parts.rows, bytes=taken.bytes + parts.nbytes)
        return UnitOutput(put, self._snapshot_parts(scheduled, put.delta)), taken

    def _exchange_with_parts(self, scheduled: ScheduledFragment) -> Address | None:
        """The exchange of a fragment's first input, if rows of it were sent in parts."""
        if self.parts is None or not scheduled.origins or scheduled.origins[0].exchange is None:
            return None
        address = Address.of_exchange(scheduled.origins[0].producer, scheduled.origins[0].exchange)
        return address if self.parts.has_parts(address) else None

    def _listing_deletes(self, scheduled: ScheduledFragment) -> tuple[str, ...]:
        """The sources that a fragment reads, directly or through others, whose input lists deletes."""
        by_id = {s.id: s for s in self.task.schedule.all_fragments()}
        reached, names = {scheduled.id}, list[str]()
        open_ = [scheduled]
        while open_:
            one = open_.pop()
            if one.source is not None and reader_of(one.source.statement).lists_deletes:
                names.append(one.source.statement.name)
            for origin in one.origins:
                if origin.producer not in reached:
                    reached.add(origin.producer)
                    open_.append(by_id[origin.producer])
        return tuple(sorted(names))

    def _hottest_key(self, fragment: Fragment, inputs: Sequence[pa.Table]) -> HotKeyFound | None:
        """The hottest key of all inputs that are distributed by a key: the one with the most rows."""
        by_key = ((n, i) for n, i in enumerate(fragment.inputs) if i.dispatch is Dispatch.HASH)
        hot_keys = [hot for n, i in by_key if (hot := hot_key(n, inputs[n], i.keys, self.task.vnode_count)) is not None]
        return max(hot_keys, key=lambda hot: hot.share * hot.rows, default=None)

    def _input_chunk(self, scheduled: ScheduledFragment, place: int) -> pa.Table:
        """The chunk of one input: from this unit's outputs, or from cells in an order that is equal in every attempt.

        It is empty if the input's only reader is a filter that surely keeps none of its rows.
        """
        origin = scheduled.origins[place]
        self.readers[origin.producer, origin.exchange] -= 1
        last = not self.readers[origin.producer, origin.exchange]
        if origin.exchange is None:
            output = self.outputs.pop(origin.producer, None) if last else self.outputs.get(origin.producer)
            if output is None or self._keeps_none(output, scheduled, place):
                return empty_chunk(origin.types)
            return self._part_for_reader(output, origin.needed)
        address = Address.of_exchange(origin.producer, origin.exchange)
        chunks = self.inbox.pop(address, []) if last else self.inbox.get(address, [])
        return decoded if (decoded := decode_tables(sorted(chunks))) is not None else empty_chunk(origin.types)

    def _keeps_none(self, output: UnitOutput, scheduled: ScheduledFragment, place: int) -> bool:
        """Whether the filter that reads an input surely keeps no row of the producer's changes."""
        origin, rows = scheduled.origins[place], output.put.delta
        if not origin.needed.is_changes or not 0 < rows.num_rows <= MOST_ROWS:
            return False
        if self.filters is None:
            self.filters = filters_of(self.task.schedule.levels[self.level])
        if (condition := self.filters.of.get((scheduled.id, place))) is None:
            return False
        if output.seen is None:
            output.seen = ChunkValues(rows, thread_kernel(), self.filters.on[origin.producer])
        return output.seen.keeps_none(condition)

    def _part_for_reader(self, output: UnitOutput, needed: NeededOutput) -> pa.Table:
        """The part of an output that a reader wants: changes, all rows, or the difference to a replaced relation."""
        if needed.port is not Port.ROWS:
            return select_columns(output.fed[needed.port], needed.columns)
        chunk = select_columns(output.put.delta if needed.part is None else output.parts[needed.part], needed.columns)
        if needed.replaced is None:
            # Rows that differ only in columns that this reader does not read cancel each other out.
            return (
                net_chunk(chunk)
                if needed.is_changes and len(needed.columns) < output.put.delta.num_columns - 1
                else chunk
            )
        return net_chunk(
            pa.concat_tables([chunk, *self._scan_snapshot(needed.replaced.table, needed.replaced.columns, -1)])
        )

    @staticmethod
    def _is_materialized(scheduled: ScheduledFragment) -> bool:
        if scheduled.fragment is None:
            return False
        operators = scheduled.fragment.operators  # empty if the fragment only passes on rows from Spark
        return bool(operators) and operators[-1].node.keeps_relation

    # --- snapshots -----------------------------------------------------------------------------------------

    def _snapshot_parts(self, scheduled: ScheduledFragment, delta: pa.Table) -> dict[SnapshotPart, pa.Table]:
        """The snapshot parts that readers want in addition to the changes of a fragment."""
        if (schema := scheduled.snapshot_table) is None:
            return {}
        rows_by_part = {}
        for part in scheduled.parts:
            mine = [v for v in self.vnodes if part.first <= v < part.end]
            columns = range(delta.num_columns - 1)  # further ones are read by the fragment only
            snapshot = self._scan_snapshot(schema, columns, vnodes=mine) if mine else ()
            rows_by_part[part] = net_chunk(
                pa.concat_tables([*snapshot, _rows_below(delta, schema, part.end, self.task.vnode_count)])
            )
        return rows_by_part

    def _scan_snapshot(
        self,
        schema: TableSchema,
        columns: Sequence[int] | None = None,
        weight: int = 1,
        vnodes: Sequence[int] | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of a table in the previous epoch, for all vnodes of this unit or for some."""
        version = decoded_version(self.task.version)
        stored = StorageTable(schema, self.store, version.epoch, self.task.vnode_count)
        for rows in stored.scan(columns, self.vnodes if vnodes is None else vnodes):
            yield make_chunk(rows.columns, pa.array(np.full(rows.num_rows, weight, np.int64)))

    def _replay_changes(self, schema: TableSchema) -> tuple[UnitOutput, FragmentInputSize]:
        """The changes of a table in this epoch, which the parent of this branch has written."""
        version = decoded_version(self.task.version)
        with_epoch = msgspec.structs.replace(version, epoch=self.task.epoch)
        store = HummockStore(opened_objects(self.task.store_uri), with_epoch, process_cache())
        table = StorageTable(schema, store, self.task.epoch, self.task.vnode_count)
        changes = [
            make_chunk(part.rows.columns, part.weights)
            for part in table.read_changes(version.epoch, vnodes=self.vnodes)
        ]
        delta = pa.concat_tables(changes) if changes else empty_chunk(tuple(c.type for c in schema.columns))
        return UnitOutput(FragmentOutput.of(delta)), FragmentInputSize(0, 0)

    def _read_payload(self, name: str) -> pa.Table:
        return pa.ipc.open_stream(read_payload(opened_objects(self.task.store_uri), name)).read_all()

    # --- state ------------------------------------------------------------------------------------

    def _shared_buffer(self) -> SharedBuffer:
        """The MemTables that epochs in flight sealed on this unit."""
        runs: dict[int, list[tuple[int, Load]]] = {}
        for address, chunks in self.inbox.items():
            if (number := address.epoch_in_flight) is not None:
                loads = (
                    (self.task.in_flight[number], partial(decode_sealed, address.input, chunk)) for chunk in chunks
                )
                runs.setdefault(address.input, []).extend(loads)
        return SharedBuffer(runs)

    def _state_table(self, schema: TableSchema) -> StateTable:
        base = decoded_version(self.task.version).epoch
        return StateTable(schema, self.store, base, self.task.vnode_count, self._row_cache_of(schema))

    def _row_cache_of(self, schema: TableSchema) -> UnitRows:
        """This process's row cache for a table on this unit."""
        base = decoded_version(self.task.version).epoch
        unit = self.number if self.task.unit_count > 1 else ALL_UNITS
        of = RowsOf(self.task.store_uri, schema.table_id, unit, len(schema.columns))
        return process_row_cache().open_unit(of, self.own_vnodes, base, self.task.epoch)


def _used_tables(scheduled: ScheduledFragment) -> list[TableSchema]:
    """The state tables of a fragment's operators."""
    used = {t for o in scheduled.fragment.operators for t in o.tables} if scheduled.fragment is not None else set()
    return [t for t in scheduled.tables if t.table_id in used] if used else []


def _rows_below(delta: pa.Table, schema: TableSchema, end: int, vnode_count: int) -> pa.Table:
    """The changes of rows whose vnodes are below `end`."""
    if end >= vnode_count or not delta.num_rows:
        return delta
    if not schema.distribution:  # all rows are of vnode 0
        return delta if end > 0 else delta.slice(0, 0)
    return some_rows(delta, np.asarray(vnodes_of([delta.column(c) for c in schema.distribution], vnode_count)) < end)

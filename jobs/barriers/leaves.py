"""The input of an epoch's leaves: cells for sources, tables and fragments without input."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tussock.jobs.barriers.barrier import keeper_of, relation_in, time_zones
from tussock.jobs.barriers.epoch_plan import Base, EpochPlan
from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.move_source import moves_in
from tussock.jobs.chunks.chunk import encode_table
from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.reading.reader import open_table
from tussock.jobs.schedule.schedule import Feed, Scheduled
from tussock.jobs.sources.base import Divided, Pins, RowPlace, SourceReader
from tussock.jobs.sources.files import in_new_folder
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import quarantines_rejects
from tussock.jobs.sources.taken import renamed_rows
from tussock.jobs.wire.cell import Address, LeafInput, make_cells
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, RelationKind
from tussock.statestore.meta.store import MetaStore


@dataclass(frozen=True, slots=True)
class SparkRead:
    """Pins of a source that Spark reads, and the leaf that takes the rows."""

    scheduled: Scheduled
    input: LeafInput
    document: msgspec.Raw  # in the format of the source's reader
    why: str = ""  # why actors do not read them; empty if Spark reads all files of the format

    @property
    def source(self) -> CreateSource:
        """The source."""
        assert self.scheduled.source is not None
        return self.scheduled.source.statement

    @property
    def reader(self) -> SourceReader:
        """The source's reader."""
        return reader_of(self.source)


@dataclass(slots=True)
class LeafCells:
    """The input cells of leaves and of fragments without input."""

    meta: MetaStore
    plan: EpochPlan
    taken: tuple[SealedBatch, ...] = field(init=False)  # the taken files of this epoch
    _readers: Mapping[int, Sequence[Feed]] = field(init=False)  # by producer
    _inputs: dict[int, tuple[Divided, Divided]] = field(default_factory=dict)  # by leaf: new and older input

    def __post_init__(self) -> None:
        readers: dict[int, list[Feed]] = {}
        for scheduled in self.plan.schedule.all_fragments():
            for feed in scheduled.feeds:
                readers.setdefault(feed.producer, []).append(feed)
        self._readers = readers
        self.taken = tuple(taken_batches(self.meta, self.plan))

    def yield_cells(self) -> Iterator[pa.RecordBatch]:
        """Yield the cells that the driver sends."""
        plan = self.plan
        units = range(plan.unit_count)
        for scheduled in plan.schedule.all_fragments():
            if scheduled.must_run:
                alone = scheduled.fragment is not None and scheduled.fragment.singleton
                for unit in [plan.units[0]] if alone else units:
                    yield make_cells(unit, Address.of_leaf(scheduled.id, LeafInput.TICK), [b""])
            if scheduled.kind is RelationKind.TABLE and (entries := plan.changes.get(scheduled.relation_id)):
                for unit in units:
                    yield make_cells(
                        unit, Address.of_leaf(scheduled.id, LeafInput.ENTRIES), [msgspec.json.encode(entries)]
                    )
            if scheduled.source is not None:
                new, old = self._divide_inputs(scheduled)
                yield from self._part_cells(scheduled, LeafInput.SPLITS, new, units)
                yield from self._part_cells(scheduled, LeafInput.BACKFILL, old, units)
        for taken in self.taken:  # as sealed MemTables of the driver
            yield make_cells(0, Address.of_sealed(taken.table_id), encode_table(taken.rows))

    def spark_reads(self) -> list[SparkRead]:
        """Return the pins that Spark reads."""
        found = []
        for scheduled in self.plan.schedule.all_fragments():
            if scheduled.source is None:
                continue
            for input, one in zip(
                (LeafInput.ROWS, LeafInput.BACKFILL_ROWS), self._divide_inputs(scheduled), strict=True
            ):
                if one.rest is not None:
                    found.append(SparkRead(scheduled, input, one.rest, one.why))
        return found

    def _divide_inputs(self, scheduled: Scheduled) -> tuple[Divided, Divided]:
        """Return a source's new and older input, divided between actors and Spark."""
        if (found := self._inputs.get(scheduled.id)) is None:
            new, old = (self._divide_document(scheduled, document) for document in self._input_documents(scheduled))
            found = self._inputs[scheduled.id] = new, old
        return found

    def _divide_document(self, scheduled: Scheduled, document: msgspec.Raw | None) -> Divided:
        assert scheduled.source is not None
        statement, reader = scheduled.source.statement, reader_of(scheduled.source.statement)
        if document is None:
            return Divided()
        with SourceFileError.met_in(statement.name):
            if (engine := reader.engine) is None:
                return Divided((), document)
            by_spark = self.plan.barrier.by_spark.get(scheduled.relation_id, {})
            zones = time_zones(self.meta, self.plan.catalog)
            return engine.divide(statement, document, by_spark, self.plan.unit_count, zones)

    def _input_documents(self, scheduled: Scheduled) -> tuple[msgspec.Raw | None, msgspec.Raw | None]:
        """Return a source's new input if a fragment reads it, and its older input if a new view or a build needs it."""
        readers, barrier, source = self._readers.get(scheduled.id, ()), self.plan.barrier, scheduled.relation_id
        new, old = barrier.splits.get(source) if readers else None, None
        if wanted := [p for p in scheduled.parts if p.first < p.end]:
            first, end = min(p.first for p in wanted), max(p.end for p in wanted)
            old = taken_document(self.meta, self.plan.base, source, barrier.unread.get(source), first, end)
            old = self._apply_moves(source, old)
        return self._add_locations(scheduled, new), self._add_locations(scheduled, old)

    def _apply_moves(self, source: int, document: msgspec.Raw | None) -> msgspec.Raw | None:
        """Return taken files of the base under the names that they have after this epoch."""
        now = relation_in(self.plan.catalog, source)
        moves = () if now is None else moves_in(relation_in(self.plan.base.version.catalog, source), now)
        return document if document is None else in_new_folder(document, moves)

    def _add_locations(self, scheduled: Scheduled, document: msgspec.Raw | None) -> msgspec.Raw | None:
        """Return the document with the places to read from, and the facts of hidden columns if they are needed."""
        if document is None or scheduled.source is None:
            return document
        statement, barrier = scheduled.source.statement, self.plan.barrier
        if scheduled.source.hidden or quarantines_rejects(statement):
            (taken,) = scheduled.tables
            document = reader_of(statement).as_recorded(taken, document, barrier.epoch)
        with SourceFileError.met_in(statement.name):
            return reader_of(statement).locate_input(statement, document, keeper_of(self.meta, self.plan.base))

    @staticmethod
    def _part_cells(
        scheduled: Scheduled, input: LeafInput, divided: Divided, units: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        for n, unit in enumerate(units):
            if mine := divided.parts[n :: len(units)]:
                yield make_cells(unit, Address.of_leaf(scheduled.id, input), [msgspec.json.encode(mine)])


def taken_batches(meta: MetaStore, plan: EpochPlan) -> Iterator[SealedBatch]:
    """Yield the rows of each source's table of taken files in this epoch."""
    barrier, base = plan.barrier, plan.base
    for relation in plan.catalog.live_relations():
        if (statement := source_of(relation)) is None:
            continue
        (table,) = relation.state_tables
        by_spark = barrier.by_spark.get(relation.id, {})
        pins = Pins(barrier.splits.get(relation.id), barrier.unread.get(relation.id), by_spark)
        if moves := moves_in(relation_in(base.version.catalog, relation.id), relation):
            # Its pins are empty, unless a person superseded the barrier.
            read, unread = (None if d is None else in_new_folder(d, moves) for d in (pins.read, pins.unread))
            pins = Pins(read, unread, by_spark)
        rows = reader_of(statement).taken_rows(table, pins, barrier.epoch)
        if moves:
            taken = open_table(meta.objects, base.version, table, buffer=base.buffer)
            rows = renamed_rows(table, taken, moves, rows)
        if rows is not None:
            yield rows


def taken_document(
    meta: MetaStore, base: Base, source: int, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
) -> msgspec.Raw | None:
    """Return a source's taken files at the base as its reader's document: all files, or those with these numbers."""
    known = next((r for r in base.version.catalog.live_relations() if r.id == source), None)
    if known is None or (statement := source_of(known)) is None:
        return None
    taken = open_table(meta.objects, base.version, known.state_tables[0], buffer=base.buffer)
    return reader_of(statement).taken_document(taken, without, first, end)


def place_of(meta: MetaStore, plan: EpochPlan, source: int, row_id: int) -> RowPlace:
    """Return the place of a source's row, if this epoch can read its input."""
    statement = next(
        statement for r in plan.catalog.live_relations() if r.id == source and (statement := source_of(r)) is not None
    )
    documents = (plan.barrier.splits.get(source), taken_document(meta, plan.base, source))
    return reader_of(statement).place_of(row_id, [d for d in documents if d is not None])

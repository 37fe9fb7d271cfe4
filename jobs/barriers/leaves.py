"""The input of an epoch's leaves: cells for sources, tables and fragments without input."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

from tussock.jobs.barriers.barrier import keeper_of, relation_in, time_zones
from tussock.jobs.barriers.epoch_plan import Base, EpochPlan
from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.move_source import moves_in
from tussock.jobs.chunks.chunk import encode_table
from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.reading.reader import open_table
from tussock.jobs.schedule.schedule import ScheduledFragment
from tussock.jobs.sources.base import DividedInput, Division, Pins, RowPlace, SourceReader
from tussock.jobs.sources.file_documents import document_of, files_of, in_new_folder, names_ids, takes_back
from tussock.jobs.sources.file_facts import file_of_part
from tussock.jobs.sources.kept_ids import plan_matches, read_kept_ids
from tussock.jobs.sources.keyed import is_keyed
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import quarantines_rejects
from tussock.jobs.sources.row_ids import pack_row_ids
from tussock.jobs.sources.taken import renamed_rows
from tussock.jobs.wire.cell import Address, LeafInput, make_cells
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, RelationKind
from tussock.statestore.meta.names import source_copy_name
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectNotFoundError


@dataclass(frozen=True, slots=True)
class SparkRead:
    """Pins of a source that Spark reads, and the leaf that takes the rows."""

    scheduled: ScheduledFragment
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
    # By leaf: new and older input, as documents and divided.
    _documents: dict[int, tuple[msgspec.Raw | None, msgspec.Raw | None]] = field(default_factory=dict)
    _inputs: dict[int, tuple[DividedInput, DividedInput]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The parent's SSTs of a followed epoch contain its taken files.
        self.taken = () if self.plan.barrier.follows else tuple(taken_batches(self.meta, self.plan))

    def yield_cells(self) -> Iterator[pa.RecordBatch]:
        """Yield the cells that the driver sends."""
        plan = self.plan
        units = range(plan.unit_count)
        for scheduled in plan.schedule.all_fragments():
            if scheduled.must_run:
                alone = scheduled.fragment is not None and scheduled.fragment.singleton
                for unit in [plan.unit_of_vnode[0]] if alone else units:
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
                yield from self._file_cells(scheduled, units)
        for taken in self.taken:  # as sealed MemTables of the driver
            yield make_cells(0, Address.of_sealed(taken.table_id), encode_table(taken.rows))

    def spark_reads(self) -> list[SparkRead]:
        """Return the pins that Spark reads."""
        reads = []
        for scheduled in self.plan.schedule.all_fragments():
            if scheduled.source is None:
                continue
            for input, one in zip(
                (LeafInput.ROWS, LeafInput.BACKFILL_ROWS), self._divide_inputs(scheduled), strict=True
            ):
                if one.rest is not None:
                    reads.append(SparkRead(scheduled, input, one.rest, one.why))
        return reads

    def _divide_inputs(self, scheduled: ScheduledFragment) -> tuple[DividedInput, DividedInput]:
        """Return a source's new and older input, divided between actors and Spark."""
        if (inputs := self._inputs.get(scheduled.id)) is None:
            new, old = (self._divide_document(scheduled, document) for document in self._input_documents(scheduled))
            inputs = self._inputs[scheduled.id] = new, old
        return inputs

    def _divide_document(self, scheduled: ScheduledFragment, document: msgspec.Raw | None) -> DividedInput:
        assert scheduled.source is not None
        statement, reader = scheduled.source.statement, reader_of(scheduled.source.statement)
        if document is None:
            return DividedInput()
        with SourceFileError.met_in(statement.name):
            if (engine := reader.engine) is None:
                return DividedInput((), document)
            by_spark = self.plan.barrier.by_spark.get(scheduled.relation_id, {})
            zones = time_zones(self.meta, self.plan.catalog)
            return engine.divide(statement, document, Division(self.plan.unit_count, zones, by_spark))

    def _input_documents(self, scheduled: ScheduledFragment) -> tuple[msgspec.Raw | None, msgspec.Raw | None]:
        """Return a source's new input if a fragment reads it, and its older input if a new view or a build needs it."""
        if (known := self._documents.get(scheduled.id)) is not None:
            return known
        barrier, source = self.plan.barrier, scheduled.relation_id
        new, old = pinned_input(self.plan, source) if is_read(self.plan, scheduled) else None, None
        if wanted := [p for p in scheduled.parts if p.first < p.end]:
            first, end = min(p.first for p in wanted), max(p.end for p in wanted)
            old = taken_document(self.meta, self.plan.base, source, barrier.unread.get(source), first, end)
            old = self._apply_moves(source, old)
        documents = self._add_locations(scheduled, new), self._add_locations(scheduled, old)
        self._documents[scheduled.id] = documents
        return documents

    def _apply_moves(self, source: int, document: msgspec.Raw | None) -> msgspec.Raw | None:
        """Return taken files of the base under the names that they have after this epoch."""
        now = relation_in(self.plan.catalog, source)
        moves = () if now is None else moves_in(relation_in(self.plan.base.version.catalog, source), now)
        return document if document is None else in_new_folder(document, moves)

    def _add_locations(self, scheduled: ScheduledFragment, document: msgspec.Raw | None) -> msgspec.Raw | None:
        """Return the document with the places to read from, and the facts of hidden columns if they are needed."""
        if document is None or scheduled.source is None:
            return document
        statement, barrier = scheduled.source.statement, self.plan.barrier
        if scheduled.source.hidden or quarantines_rejects(statement):
            taken = scheduled.tables[0]
            document = reader_of(statement).as_recorded(taken, document, barrier.epoch)
        with SourceFileError.met_in(statement.name):
            return reader_of(statement).locate_input(statement, document, keeper_of(self.meta, self.plan.base))

    def _part_cells(
        self, scheduled: ScheduledFragment, input: LeafInput, divided: DividedInput, units: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield each unit's parts: the parts of files that meet go to one unit, the others to the units in turn."""
        together: dict[int, list[msgspec.Raw]] = {}
        apart = divided.parts
        if divided.together:
            apart, together = (), {scheduled.relation_id % len(units): list(divided.parts)}
        if input is LeafInput.SPLITS and any(f.meets >= 0 for f in self._files_with_ids(scheduled)):
            meets = [file_of_part(part).meets for part in divided.parts]
            apart = [part for part, group in zip(divided.parts, meets, strict=True) if group < 0]
            for part, group in zip(divided.parts, meets, strict=True):
                if group >= 0:
                    together.setdefault(group % len(units), []).append(part)
        for n, unit in enumerate(units):
            if mine := [*apart[n :: len(units)], *together.get(n, ())]:
                yield make_cells(unit, Address.of_leaf(scheduled.id, input), [msgspec.json.encode(mine)])

    def _file_cells(self, scheduled: ScheduledFragment, units: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the files whose rows keep ids of other files, for all units: each may read a part of them."""
        if files := self._files_with_ids(scheduled):
            for unit in units:
                yield make_cells(unit, Address.of_leaf(scheduled.id, LeafInput.FILES), [msgspec.json.encode(files)])

    def _files_with_ids(self, scheduled: ScheduledFragment) -> list[PinnedFile]:
        """Return the files of a leaf's input whose rows keep ids of other files, or give their ids to other rows."""
        documents = [d for d in self._input_documents(scheduled) if d is not None and names_ids(d)]
        files = {f.number: f for document in reversed(documents) for f in files_of(document)}
        return [f for f in files.values() if f.ids or f.meets >= 0]


def is_read(plan: EpochPlan, leaf: ScheduledFragment) -> bool:
    """Return whether a fragment reads the output of a source's leaf."""
    return any(
        origin.producer == leaf.id for scheduled in plan.schedule.all_fragments() for origin in scheduled.origins
    )


def pinned_input(plan: EpochPlan, source: int) -> msgspec.Raw | None:
    """Return a source's new input as pinned; of a restatement, with the files whose equal rows are matched.

    No rows are matched if no fragment reads the source, or if its table of taken files cannot record their ids. A keyed
    source needs the place of each row in its file, and its changes are netted by key.
    """
    document = plan.barrier.splits.get(source)
    if document is None or not takes_back(document):
        return document
    leaf = next((s for s in plan.schedule.all_fragments() if s.relation_id == source and s.source is not None), None)
    if leaf is None or leaf.source is None or not is_read(plan, leaf) or is_keyed(leaf.source.statement):
        return document
    (taken,) = leaf.tables
    if all(column.name != "ids" for column in taken.columns):
        return document
    read = msgspec.json.encode((plan.barrier.epoch, leaf.source.columns, leaf.source.statement)).decode()

    def name_ids(file: str) -> str:
        return source_copy_name(plan.base.version.epoch, f"{read}\0{file}", "ids.arrow")

    return document_of(plan_matches(files_of(document), name_ids))


def taken_batches(meta: MetaStore, plan: EpochPlan) -> Iterator[SealedBatch]:
    """Yield the rows of each source's table of taken files in this epoch."""
    barrier, base = plan.barrier, plan.base
    for relation in plan.catalog.live_relations():
        if (statement := source_of(relation)) is None:
            continue
        table = relation.state_tables[0]
        by_spark = barrier.by_spark.get(relation.id, {})
        pins = Pins(pinned_input(plan, relation.id), barrier.unread.get(relation.id), by_spark)
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
    documents = (pinned_input(plan, source), taken_document(meta, plan.base, source))
    there = [d for d in documents if d is not None]
    if any(names_ids(document) for document in there):
        row_id = _own_row_id(meta, row_id, [file for document in there for file in files_of(document)])
    return reader_of(statement).place_of(row_id, there)


def _own_row_id(meta: MetaStore, row_id: int, files: Sequence[PinnedFile]) -> int:
    """Return the id that the present file of a row gives it, from the id that the row has kept.

    Cost: one GET per file whose rows keep ids.
    """
    for file in files:
        with suppress(ObjectNotFoundError):  # the epoch that writes it has failed
            kept_ids = read_kept_ids(meta.objects, file)
            if kept_ids is not None and (position := kept_ids.find_position(row_id)) is not None:
                return int(pack_row_ids(file.number, np.array([position]))[0].as_py())
    return row_id

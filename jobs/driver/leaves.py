"""What an epoch's leaves start from: the cells of sources, tables and fragments without input."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from jobs.catalog.reader import open_table
from jobs.driver.epoch_plan import Base, EpochPlan
from jobs.plan.schedule import Feed, Scheduled
from jobs.sources.parquet import Split, splits
from jobs.sources.taken import taken_files, taken_rows
from jobs.sql.statements import CreateSource
from jobs.wire.cell import Address, LeafInput, cells, encode
from statestore.hummock.sealed_batch import SealedBatch
from statestore.meta.barrier import Barrier, PinnedFile
from statestore.meta.catalog import Catalog
from statestore.meta.store import MetaStore

SPLIT_BYTES = 64 << 20
MIN_SPLIT_BYTES = 1 << 20  # below it, opening a file costs more than reading it


@dataclass(frozen=True, slots=True)
class SparkRead:
    """Files that only Spark's own reader reads, and the leaf that takes their rows."""

    scheduled: Scheduled
    input: LeafInput
    files: Sequence[PinnedFile]

    @property
    def source(self) -> CreateSource:
        """The source whose files they are."""
        assert self.scheduled.source is not None
        return self.scheduled.source.statement


@dataclass(slots=True)
class LeafCells:
    """The cells that leaves and fragments without input start from."""

    meta: MetaStore
    plan: EpochPlan
    _readers: Mapping[int, Sequence[Feed]] = field(init=False)  # by producer

    def __post_init__(self) -> None:
        readers: dict[int, list[Feed]] = {}
        for scheduled in self.plan.schedule.fragments():
            for feed in scheduled.feeds:
                readers.setdefault(feed.producer, []).append(feed)
        self._readers = readers

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The driver's own cells."""
        plan = self.plan
        units = range(plan.unit_count)
        for scheduled in plan.schedule.fragments():
            if scheduled.must_run:
                alone = scheduled.fragment is not None and scheduled.fragment.singleton
                for unit in [plan.units[0]] if alone else units:
                    yield cells(unit, Address.leaf(scheduled.id, LeafInput.TICK), [b""])
            if scheduled.kind == "table" and (entries := plan.changes.get(scheduled.relation_id)):
                for unit in units:
                    yield cells(unit, Address.leaf(scheduled.id, LeafInput.ENTRIES), [msgspec.json.encode(entries)])
            if scheduled.source is not None and scheduled.source.statement.format == "parquet":
                new, old = self._files(scheduled)
                yield from self._split_cells(scheduled, LeafInput.SPLITS, new, units)
                yield from self._split_cells(scheduled, LeafInput.BACKFILL, old, units)
        for taken in taken_batches(plan.barrier, plan.catalog):  # what this epoch takes, as sealed MemTables of the driver's own
            yield cells(0, Address.sealed(taken.table_id), encode(taken.rows))

    def spark_reads(self) -> list[SparkRead]:
        """What only Spark's own reader reads."""
        found = []
        for scheduled in self.plan.schedule.fragments():
            if (source := scheduled.source) is None or source.statement.format == "parquet":
                continue
            for input, files in zip((LeafInput.ROWS, LeafInput.BACKFILL_ROWS), self._files(scheduled), strict=True):
                if files:
                    found.append(SparkRead(scheduled, input, files))
        return found

    def _files(self, scheduled: Scheduled) -> tuple[Sequence[PinnedFile], Sequence[PinnedFile]]:
        """The new files, where anybody reads them, and those taken before, where a new view wants them."""
        readers, barrier = self._readers.get(scheduled.id, ()), self.plan.barrier
        new = barrier.splits.get(scheduled.relation_id, ()) if readers else ()
        if not any(feed.full for feed in readers):
            return new, ()
        skipped = {f.path for f in barrier.skipped_files.get(scheduled.relation_id, ())}
        return new, [f for f in files_taken(self.meta, self.plan.base, scheduled.relation_id) if f.path not in skipped]

    def _split_cells(
        self, scheduled: Scheduled, input: LeafInput, files: Sequence[PinnedFile], units: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        assert scheduled.source is not None
        statement = scheduled.source.statement
        share = sum(f.size for f in files) // len(units)
        target = max(MIN_SPLIT_BYTES, min(SPLIT_BYTES, share))  # every unit gets something to read
        parts: list[Split] = [s for f in files for s in splits(f, statement.fields, target, statement.options)]
        parts.sort(key=lambda s: (-s.file.size, s.file.number, s.first_row))  # large ones first, then round and round
        for n, unit in enumerate(units):
            if mine := parts[n :: len(units)]:
                yield cells(unit, Address.leaf(scheduled.id, input), [msgspec.json.encode(mine)])


def taken_batches(barrier: Barrier, catalog: Catalog) -> Iterator[SealedBatch]:
    """What an epoch records as taken, per source."""
    for relation in catalog.live():
        if files := (*barrier.splits.get(relation.id, ()), *barrier.skipped_files.get(relation.id, ())):
            (table,) = relation.state_tables
            yield taken_rows(table, files, barrier.epoch)


def files_taken(meta: MetaStore, base: Base, source: int) -> Sequence[PinnedFile]:
    """The files that a source had taken by the base's epoch."""
    known = next((r for r in base.version.catalog.live() if r.id == source), None)
    return () if known is None else taken_files(open_table(meta.objects, base.version, known.state_tables[0], buffer=base.buffer))

"""What level 0 starts from: the cells of sources, tables and fragments without input."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.catalog.reader import open_table
from jobs.catalog.statement_log import replay
from jobs.driver.barrier import Base
from jobs.plan.schedule import Schedule, Scheduled
from jobs.sources.parquet import Split, splits
from jobs.sources.spark_reader import read_files
from jobs.sources.taken import taken_files, taken_rows
from jobs.sql.statements import CreateSource
from jobs.wire.cell import (
    BACKFILL,
    BACKFILL_ROWS,
    ENTRIES,
    FAILURE,
    FLUSH,
    ROWS,
    SPLITS,
    TICK,
    cells,
    encode,
)
from jobs.wire.epoch_task import Entry
from statestore.hummock.sealed_batch import SealedBatch
from statestore.meta.barrier import Barrier, PinnedFile
from statestore.meta.catalog import Catalog
from statestore.meta.store import MetaStore

SPLIT_BYTES = 64 << 20
MIN_SPLIT_BYTES = 1 << 20  # below it, opening a file costs more than reading it


# --- what level 0 starts from ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class LeafCells:
    """The cells that leaves and fragments without input start from."""

    spark: SparkSession
    meta: MetaStore
    base: Base
    barrier: Barrier
    catalog: Catalog
    plan: Schedule
    read: list[tuple[CreateSource, Sequence[PinnedFile]]] = field(default_factory=list)  # by Spark's reader
    changes: Mapping[int, Sequence[Entry]] = field(default_factory=dict)  # of tables, by relation id; known once `batches` has run

    def batches(self) -> Iterator[pa.RecordBatch]:
        units = sorted(set(self.base.version.mapping.units))
        self.changes = changes = self._changes()
        for scheduled in self.plan.fragments():
            if scheduled.must_run:
                alone = scheduled.fragment is not None and scheduled.fragment.singleton
                for unit in [self.base.version.mapping.units[0]] if alone else units:
                    yield cells(unit, scheduled.id, TICK, [b""])
            if scheduled.kind == "table" and (entries := changes.get(scheduled.relation_id)):
                for unit in units:
                    yield cells(unit, scheduled.id, ENTRIES, [msgspec.json.encode(entries)])
            if scheduled.source is not None and scheduled.source.statement.format == "parquet":
                new, old = self._files(scheduled)
                yield from self._split_cells(scheduled, SPLITS, new, units)
                yield from self._split_cells(scheduled, BACKFILL, old, units)
        for taken in taken_batches(self.barrier, self.catalog):  # what this epoch takes, as sealed MemTables of the driver's own
            yield cells(0, FLUSH, taken.table_id, encode(taken.rows))

    def _changes(self) -> dict[int, list[Entry]]:
        """Row changes per table, in log order."""
        barrier = self.barrier
        replayed = replay(self.meta, self.base.version, barrier.log_start, barrier.log_end, barrier.skipped_entries, barrier.epoch)
        return {r: [Entry(position, s) for position, s in rows] for r, rows in replayed.changes.items()}

    def _files(self, scheduled: Scheduled) -> tuple[Sequence[PinnedFile], Sequence[PinnedFile]]:
        """The new files, where anybody reads them, and those taken before, where a new view wants them."""
        readers = [feed for s in self.plan.fragments() for feed in s.feeds if feed.producer == scheduled.id]
        new = self.barrier.splits.get(scheduled.relation_id, ()) if readers else ()
        if not any(feed.full for feed in readers):
            return new, ()
        skipped = {f.path for f in self.barrier.skipped_files.get(scheduled.relation_id, ())}
        return new, [f for f in files_taken(self.meta, self.base, scheduled.relation_id) if f.path not in skipped]

    def _split_cells(self, scheduled: Scheduled, input: int, files: Sequence[PinnedFile], units: Sequence[int]) -> Iterator[pa.RecordBatch]:
        assert scheduled.source is not None
        statement = scheduled.source.statement
        share = sum(f.size for f in files) // len(units)
        target = max(MIN_SPLIT_BYTES, min(SPLIT_BYTES, share))  # every unit gets something to read
        parts: list[Split] = [s for f in files for s in splits(f, statement.fields, target, statement.options)]
        parts.sort(key=lambda s: (-s.file.size, s.file.number, s.first_row))  # large ones first, then round and round
        for n, unit in enumerate(units):
            if mine := parts[n :: len(units)]:
                yield cells(unit, scheduled.id, input, [msgspec.json.encode(mine)])

    def frames(self) -> dict[int, list[DataFrame]]:
        """Files that Spark's own reader reads, as frames of cells, by the level that takes them."""
        found: dict[int, list[DataFrame]] = {}
        units = max(self.base.version.mapping.units) + 1
        for scheduled in self.plan.fragments():
            if (source := scheduled.source) is None or source.statement.format == "parquet":
                continue
            for input, files in zip((ROWS, BACKFILL_ROWS), self._files(scheduled), strict=True):
                if files:
                    read = read_files(self.spark, files, source.statement, source.columns)
                    bad = F.col("failure").isNotNull()
                    frame = read.select(
                        F.expr(f"file % {units}").alias("slot"),
                        F.when(bad, F.lit(FAILURE)).otherwise(F.lit(scheduled.id)).alias("fragment"),
                        F.lit(input).alias("input"),
                        F.coalesce("failure", "chunk").alias("chunk"),
                    )
                    found.setdefault(scheduled.level, []).append(frame)
                    self.read.append((source.statement, files))
        return found


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

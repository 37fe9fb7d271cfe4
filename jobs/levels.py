"""The levels of one epoch as Spark runs them: cells through an exchange into actors, level after level, then the flush."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from jobs.actor import UPLOADING_UNITS, Entry, EpochTask, FragmentReport, cells_of, flush_cells, flush_function, level_function, tables_read
from jobs.barrier import Base, replay
from jobs.exchange import (
    BACKFILL,
    BACKFILL_ROWS,
    BUFFERED,
    CELL_SCHEMA,
    ENTRIES,
    FAILURE,
    FLUSH,
    REPORT,
    ROWS,
    SPLITS,
    SST,
    TICK,
    cells,
    encode,
)
from jobs.failure import carried_failure, first_failure
from jobs.plan.schedule import Schedule, Scheduled
from jobs.reader import open_table
from jobs.row_failure import in_names
from jobs.sources.parquet import Split, splits
from jobs.sources.spark_reader import read_files, translate_read_error
from jobs.sources.taken import taken_files, taken_rows
from jobs.spark import epoch_session
from jobs.sql.statements import CreateSource, Insert
from statestore.errors import InputError
from statestore.hummock.sealed_batch import SealedBatch
from statestore.meta.barrier import Barrier, PinnedFile
from statestore.meta.catalog import Catalog
from statestore.meta.store import MetaStore
from statestore.meta.version import SstInfo
from statestore.objectstore.base import ObjectStore

TARGET_SST_BYTES = 64 << 20
SPLIT_BYTES = 64 << 20
SMALL_EPOCH_BYTES = 64 << 20  # of sealed MemTables that the driver takes from all units together
SMALL_INPUT_BYTES, SMALL_INPUT_ROWS = 8 << 20, 200_000  # of files, of inserts: an epoch that takes in no more is likely to seal little
FLUSH_TASK_BYTES = 512 << 20  # that one task merges: few tasks make few SSTs
MIN_SPLIT_BYTES = 1 << 20  # below it, opening a file costs more than reading it

#: Of a cell, as Spark's own type: a DDL text would be parsed, by the JVM, for every level of every epoch.
CELL_TYPE = from_arrow_schema(CELL_SCHEMA)

Level = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class HeldCells:
    """The sealed MemTables of an epoch in flight: those of a small epoch with the driver, else with Spark, in its executors' memory and on
    their local disks."""

    epoch: int
    cells: pa.Table | DataFrame
    tables: frozenset[int]
    nbytes: int

    def release(self) -> None:
        """Let Spark forget them."""
        if isinstance(self.cells, DataFrame):
            self.cells._jdf.queryExecution().analyzed().rdd().unpersist(False)


@dataclass(frozen=True, slots=True)
class Levels:
    """An epoch's levels, planned and not yet run: `cells` is what comes out of the last one.

    Where little is expected to be sealed, the driver merges and uploads it: one exchange less. Actors upload themselves what is more, and
    so they do wherever there are no more than UPLOADING_UNITS of them.
    """

    objects: ObjectStore
    task: "Broadcast[EpochTask]"
    small: bool
    units: int  # that run them
    cells: DataFrame
    read: Sequence[tuple[CreateSource, Sequence[PinnedFile]]]  # by Spark's own reader

    def finish(self) -> tuple[list[FragmentReport], list[SstInfo]]:
        """Run levels and flush. Raises InputError branches."""
        reports, uploaded, held = self.hold()
        try:
            return reports, in_order([*uploaded, *self.flush(held)])
        finally:
            held.release()

    def hold(self) -> tuple[list[FragmentReport], list[SstInfo], HeldCells]:
        """Run the levels alone and keep what they sealed: reports, SSTs that were uploaded where they were sealed, and the rest."""
        epoch = self.task.value.epoch
        with self._told():
            if self.small or self.units <= UPLOADING_UNITS:  # little is sealed, or nothing of it travels
                found = self.cells.toArrow()
                sealed = found.filter(pc.equal(found["fragment"], FLUSH))
                held = HeldCells(epoch, sealed, _tables(found), sealed.nbytes)
            else:
                kept = self.cells.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK)
                answer = f"if(fragment = {FLUSH}, NULL, chunk) AS chunk"
                size = f"if(fragment = {FLUSH}, octet_length(chunk), NULL) AS size"
                found = kept.selectExpr("fragment", "input", answer, size).toArrow()
                held = HeldCells(epoch, kept, _tables(found), pc.sum(found["size"]).as_py() or 0)
        try:
            return *read_answers(found), held
        except BaseException:
            held.release()
            raise

    def flush(self, held: HeldCells) -> list[SstInfo]:
        """Merge what was held into SSTs and upload them."""
        if not held.tables:
            return []
        if isinstance(held.cells, DataFrame):
            known, tasks = self.task, -(-held.nbytes // FLUSH_TASK_BYTES)
            sealed = held.cells.filter(f"fragment = {FLUSH}").repartition(tasks, "slot")
            with self._told():
                return read_answers(sealed.mapInArrow(flush_function(lambda: known.value), CELL_TYPE).toArrow())[1]
        return flush_cells(self.objects, self.task.value, held.cells.to_batches())

    def close(self) -> None:
        """Let Spark forget the task. No part of the epoch can be computed again afterwards."""
        self.task.destroy()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tells Spark's error as what it means, where a task or a source's reader is its cause."""
        try:
            yield
        except Exception as err:
            if (carried := carried_failure(err)) is not None:
                raise carried from err
            raise next((e for source, files in self.read if (e := translate_read_error(err, files, source)) is not None), err) from err


def _tables(found: pa.Table) -> frozenset[int]:
    """Of which tables there are sealed MemTables among the cells."""
    return frozenset(found.filter(pc.equal(found["fragment"], FLUSH))["input"].to_pylist())


def plan_levels(
    spark: SparkSession, meta: MetaStore, base: Base, barrier: Barrier, catalog: Catalog, plan: Schedule, held: Sequence[HeldCells] = ()
) -> Levels | None:
    """The levels of a barrier's epoch; None where no fragment has anything to do.

    Args:
        held: what epochs in flight sealed, oldest first: the rows that `base` counts and that are not in its version's SSTs.
    """
    spark = epoch_session(spark)
    leaf = LeafCells(spark, meta, base, barrier, catalog, plan)
    own = list(leaf.batches())
    rows = leaf.frames()
    if not own and not rows:
        return None
    version = base.version
    small = _is_small(barrier, leaf.changes)
    read = frozenset[int]().union(*(tables_read(plan, level) for level in range(len(plan.levels))))
    task = EpochTask(
        meta.objects.uri,
        msgspec.json.encode(version),
        plan,
        barrier.epoch,
        version.mapping.units,
        TARGET_SST_BYTES,
        SMALL_EPOCH_BYTES // len(set(version.mapping.units)) if small else None,
        tuple(h.epoch for h in held),
        cells_of([*own, *_buffered_here(held, read)]),
    )
    known = spark.sparkContext.broadcast(task)
    units = max(version.mapping.units) + 1
    frame: DataFrame | None = None
    for level in range(len(plan.levels)):
        arriving = [*([] if frame is None else [frame]), *rows.get(level, ()), *_buffered(held, tables_read(plan, level))]
        actors = level_function(lambda: known.value, level)
        if arriving:
            frame = reduce(DataFrame.unionByName, arriving).repartitionById(units, F.col("slot")).mapInArrow(actors, CELL_TYPE)
        else:
            frame = spark.range(0, units, 1, units).mapInArrow(_without_cells(actors), CELL_TYPE)
    assert frame is not None, "a plan has levels"
    return Levels(meta.objects, known, small, len(set(version.mapping.units)), frame, tuple(leaf.read))


def _without_cells(actors: Level) -> Level:
    """A level to which nothing comes but what the driver gave it: of the frame below it, only the partitions count, one a unit."""

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deque(numbers, maxlen=0)
        return actors(iter(()))

    return run


def _is_small(barrier: Barrier, changes: Mapping[int, Sequence[Entry]]) -> bool:
    """Whether the epoch is likely to seal little: it takes in little and creates nothing."""
    files = sum(f.size for pinned in barrier.splits.values() for f in pinned)
    rows = sum(e.statement.rows for entries in changes.values() for e in entries if isinstance(e.statement, Insert))
    return barrier.catalog is None and files <= SMALL_INPUT_BYTES and rows <= SMALL_INPUT_ROWS


def _buffered(held: Sequence[HeldCells], tables: frozenset[int]) -> Iterator[DataFrame]:
    """What epochs in flight sealed of some tables and Spark holds, as cells for the level that reads them; a unit gets its own back."""
    for number, one in enumerate(held):
        if isinstance(one.cells, DataFrame) and (wanted := sorted(one.tables & tables)):
            mine = one.cells.filter((F.col("fragment") == FLUSH) & F.col("input").isin(wanted))
            yield mine.withColumn("fragment", F.lit(BUFFERED - number))


def _buffered_here(held: Sequence[HeldCells], tables: frozenset[int]) -> Iterator[pa.RecordBatch]:
    """What the driver itself holds, likewise."""
    for number, one in enumerate(held):
        if isinstance(one.cells, pa.Table) and (wanted := sorted(one.tables & tables)):
            mine = one.cells.filter(pc.is_in(one.cells["input"], pa.array(wanted, pa.int32())))
            addressed = mine.set_column(1, "fragment", pa.array([BUFFERED - number] * mine.num_rows, pa.int32()))
            yield from addressed.cast(CELL_SCHEMA).to_batches()


def read_answers(collected: pa.Table) -> tuple[list[FragmentReport], list[SstInfo]]:
    """What came back to the driver: reports and SSTs. Raises the first failure among the cells."""
    by_kind: dict[int, list[bytes]] = {}
    for fragment, chunk in zip(collected["fragment"].to_pylist(), collected["chunk"].to_pylist(), strict=True):
        by_kind.setdefault(fragment, []).append(chunk)
    if failures := by_kind.get(FAILURE):
        raise first_failure(failures)
    reports = [msgspec.json.decode(chunk, type=FragmentReport) for chunk in by_kind.get(REPORT, [])]
    return reports, in_order([i for chunk in by_kind.get(SST, []) for i in msgspec.json.decode(chunk, type=list[SstInfo])])


def in_order(ssts: Iterable[SstInfo]) -> list[SstInfo]:
    """SSTs of an epoch, each once, in the one order in which every run of it names them."""
    found = {sst.name: sst for sst in ssts}
    return [found[name] for name in sorted(found)]


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


def told_by_name(err: InputError, meta: MetaStore, base: Base, barrier: Barrier, catalog: Catalog, plan: Schedule) -> InputError:
    """An actor's error with names in it: actors know columns by number, and the files of rows by number too."""
    return in_names(err, plan, catalog, lambda source: (*barrier.splits.get(source, ()), *files_taken(meta, base, source)))


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

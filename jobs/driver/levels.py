"""The levels of one epoch as Spark runs them: cells through an exchange into actors, level after level, then the flush."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from jobs.driver.barrier import Base
from jobs.driver.leaves import LeafCells, files_taken
from jobs.driver.row_names import in_names
from jobs.plan.schedule import Schedule
from jobs.sources.spark_reader import translate_read_error
from jobs.spark import epoch_session
from jobs.sql.statements import CreateSource, Insert
from jobs.task.flush import flush_cells, flush_function
from jobs.task.level import level_function
from jobs.wire.cell import (
    BUFFERED,
    CELL_SCHEMA,
    FAILURE,
    FLUSH,
    REPORT,
    SST,
)
from jobs.wire.epoch_task import UPLOADING_UNITS, Entry, EpochTask, FragmentReport, cells_of, tables_read
from jobs.wire.failure import carried_failure, first_failure
from statestore.errors import InputError
from statestore.meta.barrier import Barrier, PinnedFile
from statestore.meta.catalog import Catalog
from statestore.meta.store import MetaStore
from statestore.meta.version import SstInfo
from statestore.objectstore.base import ObjectStore

TARGET_SST_BYTES = 64 << 20
SMALL_EPOCH_BYTES = 64 << 20  # of sealed MemTables that the driver takes from all units together
SMALL_INPUT_BYTES, SMALL_INPUT_ROWS = 8 << 20, 200_000  # of files, of inserts: an epoch that takes in no more is likely to seal little
FLUSH_TASK_BYTES = 512 << 20  # that one task merges: few tasks make few SSTs

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


def told_by_name(err: InputError, meta: MetaStore, base: Base, barrier: Barrier, catalog: Catalog, plan: Schedule) -> InputError:
    """An actor's error with names in it: actors know columns by number, and the files of rows by number too."""
    return in_names(err, plan, catalog, lambda source: (*barrier.splits.get(source, ()), *files_taken(meta, base, source)))

"""The epoch job: take the barrier that is in force, or inject one, run its actors, seal, commit.

    python -m jobs.epoch --pipeline FOLDER [--interval START END]

Safe to kill at any point and to run twice at once: everything before the commit can be done again with the same result, and of two
commits one wins and the other says that it lost. Under spark-submit the master and the memory are spark-submit's; otherwise local.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.actor import Entry, EpochTask, FragmentReport, flush_function, level_function
from jobs.barrier import MAX_EPOCH_BYTES, inject, replay
from jobs.exchange import (
    BACKFILL,
    BACKFILL_ROWS,
    CELL_DDL,
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
from jobs.pipeline import load_pipeline
from jobs.plan.schedule import Schedule, Scheduled, schedule
from jobs.process import open_meta
from jobs.reader import open_table
from jobs.row_failure import in_names
from jobs.sources.listing import Interval
from jobs.sources.parquet import Split, splits
from jobs.sources.spark_reader import read_files, translate_read_error
from jobs.sources.taken import taken_files, taken_rows
from jobs.spark import build_spark, epoch_session
from jobs.sql.statements import CreateSource
from statestore.errors import InputError, MustStopError, TussockError
from statestore.meta.barrier import Barrier, PinnedFile
from statestore.meta.catalog import Catalog
from statestore.meta.errors import LostRaceError
from statestore.meta.manifest import SealedManifest, manifest_of
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion, SstInfo

TARGET_SST_BYTES = 64 << 20
SPLIT_BYTES = 64 << 20
MIN_SPLIT_BYTES = 1 << 20  # below it, opening a file costs more than reading it

@dataclass(frozen=True, slots=True)
class EpochSummary:
    """What one epoch did. Times are wall seconds of this run's parts; a resumed epoch shows only what was left to do."""

    epoch: int
    version: int
    rows: Mapping[str, tuple[int, int]]  # relation -> (rows in, rows out)
    ssts: int
    bytes: int
    seconds: Mapping[str, float]


Progress = Callable[[str], None]


def run_epoch(spark: SparkSession, meta: MetaStore, barrier: Barrier, progress: Progress = lambda _: None) -> EpochSummary:
    """Run one barrier's epoch to its commit.

    Args:
        barrier: in force for the latest version (MetaStore.open_barrier or jobs.barrier.inject).
        progress: called with one line as each part begins or ends.

    Raises: InputError branches when an input stops the epoch (nothing is committed, the barrier stays in force);
        LostRaceError when another driver committed first.
    """
    seconds: dict[str, float] = {}
    with _timed(seconds, "plan"):
        version = meta.latest()
        if version.epoch != barrier.prev_epoch:
            raise LostRaceError(f"epoch {barrier.epoch}", f"epoch {version.epoch} is committed after {barrier.prev_epoch} already")
        catalog = version.catalog if barrier.catalog is None else barrier.catalog
        plan = schedule(catalog, barrier.epoch)
    sealed = meta.sealed(barrier.epoch)
    if sealed is None:
        progress(f"running {sum(len(level) for level in plan.levels)} fragments in {len(plan.levels)} levels")
        with _timed(seconds, "run"):
            try:
                reports, ssts = _run_actors(spark, meta, version, barrier, catalog, plan)
            except InputError as err:  # the actors know columns by number, and files of rows by number too
                raise in_names(err, plan, catalog, lambda source: _known_files(meta, version, barrier, source)) from None
        progress("actors done")
        sealed = meta.seal(manifest_of(barrier, meta.writer, tuple(ssts), msgspec.json.encode(_row_counts(reports, plan))))
        progress("sealed")
    with _timed(seconds, "commit"):
        committed, mine = meta.commit_epoch(sealed)
    if not mine:
        raise LostRaceError(f"epoch {barrier.epoch}", "another run of the same barrier committed it first, with the same rows")
    progress(f"committed version {committed.id}")
    return summary_of(sealed, committed.id, seconds)


def summary_of(sealed: SealedManifest, version: int, seconds: Mapping[str, float]) -> EpochSummary:
    """The summary of a sealed epoch."""
    rows = msgspec.json.decode(sealed.reports, type=dict[str, tuple[int, int]])
    return EpochSummary(sealed.epoch, version, rows, len(sealed.ssts), sum(s.size for s in sealed.ssts), dict(seconds))


# --- running the levels ----------------------------------------------------------------------------------------------------------


def _run_actors(
    spark: SparkSession,
    meta: MetaStore,
    version: HummockVersion,
    barrier: Barrier,
    catalog: Catalog,
    plan: Schedule,
) -> tuple[list[FragmentReport], list[SstInfo]]:
    spark = epoch_session(spark)
    leaf = _LeafCells(spark, meta, version, barrier, catalog, plan)
    first = list(leaf.batches())
    rows = leaf.frames()
    if not first and not rows:
        return [], []
    task = EpochTask(meta.objects.uri, msgspec.json.encode(version), plan, barrier.epoch, version.mapping.units, TARGET_SST_BYTES)
    known = spark.sparkContext.broadcast(task)
    units = max(version.mapping.units) + 1
    frame = spark.createDataFrame(pa.Table.from_batches(first, CELL_SCHEMA), CELL_DDL)
    for more in rows:
        frame = frame.unionByName(more)
    for level in range(len(plan.levels)):
        frame = frame.repartitionById(units, F.col("slot")).mapInArrow(level_function(lambda: known.value, level), CELL_DDL)
    flushed = frame.repartition(F.col("slot")).mapInArrow(flush_function(lambda: known.value), CELL_DDL)
    try:
        collected = flushed.select("fragment", "chunk").toArrow()
    except Exception as err:  # Spark's: told as what it means where a task or a source's reader is its cause
        if (carried := carried_failure(err)) is not None:
            raise carried from err
        raise next((e for source, files in leaf.read if (e := translate_read_error(err, files, source)) is not None), err) from err
    finally:
        known.destroy()
    return _read_answers(collected)


def _read_answers(collected: pa.Table) -> tuple[list[FragmentReport], list[SstInfo]]:
    by_kind: dict[int, list[bytes]] = {}
    for fragment, chunk in zip(collected["fragment"].to_pylist(), collected["chunk"].to_pylist(), strict=True):
        by_kind.setdefault(fragment, []).append(chunk)
    if failures := by_kind.get(FAILURE):
        raise first_failure(failures)
    reports = [msgspec.json.decode(chunk, type=FragmentReport) for chunk in by_kind.get(REPORT, [])]
    found = {i.name: i for chunk in by_kind.get(SST, []) for i in msgspec.json.decode(chunk, type=list[SstInfo])}
    return reports, [found[name] for name in sorted(found)]


def _row_counts(reports: Iterable[FragmentReport], plan: Schedule) -> dict[str, tuple[int, int]]:
    """Relation -> (rows that came into its fragments, changes it put out)."""
    rows: dict[str, tuple[int, int]] = {}
    names = {s.id: s.relation for s in plan.fragments()}
    for report in reports:
        taken, given = rows.get(names[report.fragment], (0, 0))
        rows[names[report.fragment]] = (taken + report.rows_in, given + (report.rows_out if report.last else 0))
    return dict(sorted(rows.items()))


# --- what level 0 starts from ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _LeafCells:
    """The cells that leaves and fragments without input start from."""

    spark: SparkSession
    meta: MetaStore
    version: HummockVersion
    barrier: Barrier
    catalog: Catalog
    plan: Schedule
    read: list[tuple[CreateSource, Sequence[PinnedFile]]] = field(default_factory=list)  # by Spark's reader

    def batches(self) -> Iterator[pa.RecordBatch]:
        units = sorted(set(self.version.mapping.units))
        changes = self._changes()
        for scheduled in self.plan.fragments():
            if scheduled.must_run:
                alone = scheduled.fragment is not None and scheduled.fragment.singleton
                for unit in [self.version.mapping.units[0]] if alone else units:
                    yield cells(unit, scheduled.id, TICK, [b""])
            if scheduled.kind == "table" and (entries := changes.get(scheduled.relation_id)):
                for unit in units:
                    yield cells(unit, scheduled.id, ENTRIES, [msgspec.json.encode(entries)])
            if scheduled.source is not None and scheduled.source.statement.format == "parquet":
                new, old = self._files(scheduled)
                yield from self._split_cells(scheduled, SPLITS, new, units)
                yield from self._split_cells(scheduled, BACKFILL, old, units)
        yield from self._taken_cells()

    def _changes(self) -> dict[int, list[Entry]]:
        """Row changes per table, in log order."""
        barrier = self.barrier
        replayed = replay(self.meta, self.version, barrier.log_start, barrier.log_end, barrier.skipped_entries, barrier.epoch)
        return {r: [Entry(position, s) for position, s in rows] for r, rows in replayed.changes.items()}

    def _files(self, scheduled: Scheduled) -> tuple[Sequence[PinnedFile], Sequence[PinnedFile]]:
        """The new files, where anybody reads them, and those taken before, where a new view wants them."""
        readers = [feed for s in self.plan.fragments() for feed in s.feeds if feed.producer == scheduled.id]
        new = self.barrier.splits.get(scheduled.relation_id, ()) if readers else ()
        if not any(feed.full for feed in readers):
            return new, ()
        skipped = {f.path for f in self.barrier.skipped_files.get(scheduled.relation_id, ())}
        return new, [f for f in _taken(self.meta, self.version, scheduled.relation_id) if f.path not in skipped]

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

    def frames(self) -> list[DataFrame]:
        """Files that Spark's own reader reads, as frames of cells."""
        found = []
        units = max(self.version.mapping.units) + 1
        for scheduled in self.plan.fragments():
            if (source := scheduled.source) is None or source.statement.format == "parquet":
                continue
            for input, files in zip((ROWS, BACKFILL_ROWS), self._files(scheduled), strict=True):
                if files:
                    read = read_files(self.spark, files, source.statement, source.columns)
                    bad = F.col("failure").isNotNull()
                    found.append(
                        read.select(
                            F.expr(f"file % {units}").alias("slot"),
                            F.when(bad, F.lit(FAILURE)).otherwise(F.lit(scheduled.id)).alias("fragment"),
                            F.lit(input).alias("input"),
                            F.coalesce("failure", "chunk").alias("chunk"),
                        )
                    )
                    self.read.append((source.statement, files))
        return found

    def _taken_cells(self) -> Iterator[pa.RecordBatch]:
        """What this epoch takes, as a sealed MemTable of the driver's own."""
        for relation in self.catalog.live():
            if files := (*self.barrier.splits.get(relation.id, ()), *self.barrier.skipped_files.get(relation.id, ())):
                (table,) = relation.state_tables
                yield cells(0, FLUSH, table.table_id, encode(taken_rows(table, files, self.barrier.epoch).rows))


def _taken(meta: MetaStore, version: HummockVersion, source: int) -> Sequence[PinnedFile]:
    """The files that a source had taken by the version's epoch."""
    known = next((r for r in version.catalog.live() if r.id == source), None)
    return () if known is None else taken_files(open_table(meta.objects, version, known.state_tables[0]))


def _known_files(meta: MetaStore, version: HummockVersion, barrier: Barrier, source: int) -> Sequence[PinnedFile]:
    """All files whose rows an epoch can meet."""
    return (*barrier.splits.get(source, ()), *_taken(meta, version, source))


# --- the job ---------------------------------------------------------------------------------------------------------------------


def advance(
    spark: SparkSession,
    meta: MetaStore,
    interval: Interval | None = None,
    max_epoch_bytes: int = MAX_EPOCH_BYTES,
    run: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> list[EpochSummary]:
    """Finish the open barrier, whoever's it is, then take in what waits, epoch after epoch, until nothing does.

    Args:
        interval: take in this data interval's files only; a run has done its work when they are all committed.
    """
    done = []
    while (barrier := inject(meta, interval, max_epoch_bytes, run)) is not None:
        progress(f"barrier {barrier.epoch} after {barrier.prev_epoch}" + (f": {', '.join(barrier.skipped)}" if barrier.skipped else ""))
        done.append(run_epoch(spark, meta, barrier, progress))
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """The job's entry. Exit code 0: done; 1: an error, told in one message; 3: another run was first, nothing of this one is visible."""
    parser = argparse.ArgumentParser(prog="python -m jobs.epoch", description="Advance every view of a pipeline over what waits.")
    parser.add_argument("--pipeline", required=True, metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    parser.add_argument("--interval", nargs=2, metavar=("START", "END"), help="take in this data interval's files only (ISO 8601)")
    chosen = parser.parse_args(arguments)
    try:
        pipeline = load_pipeline(Path(chosen.pipeline))
        interval = None if chosen.interval is None else interval_of(chosen.interval[0], chosen.interval[1], pipeline.time_zone)
        meta = open_meta(pipeline.store)
        _ = meta.settings
        spark = build_spark(f"tussock {pipeline.name}", settings=pipeline.spark)
        try:
            done = advance(spark, meta, interval, pipeline.epoch.max_bytes, progress=lambda line: print(line, flush=True))
        finally:
            spark.stop()
        for summary in done:
            print(show_summary(summary), flush=True)
        if not done:
            print(f"nothing waits; the store is at epoch {meta.latest().epoch}", flush=True)
    except MustStopError as err:
        print(f"lost: {err}", file=sys.stderr, flush=True)
        return 3
    except TussockError as err:
        print(f"error: {err}", *getattr(err, "__notes__", ()), sep="\n  ", file=sys.stderr, flush=True)
        return 1
    return 0


def interval_of(start: str, end: str, time_zone: str) -> Interval:
    """An interval from two ISO 8601 moments, shown to paths in the pipeline's time zone. Raises BadIntervalError."""
    zone = ZoneInfo(time_zone)
    try:
        first, last = (datetime.fromisoformat(text) for text in (start, end))
    except ValueError as err:
        raise BadIntervalError(start, end, str(err)) from err
    first, last = (m.replace(tzinfo=zone) if m.tzinfo is None else m.astimezone(zone) for m in (first, last))
    if first >= last:
        raise BadIntervalError(start, end, "the end is not after the start")
    return Interval(first, last)


def show_summary(summary: EpochSummary) -> str:
    """The summary as lines: the epoch, then each relation with the rows that came in and the changes it put out."""
    seconds = ", ".join(f"{part} {s:.2f} s" for part, s in summary.seconds.items())
    lines = [f"epoch {summary.epoch}: version {summary.version}, {summary.ssts} SSTs, {summary.bytes:,} bytes; {seconds}"]
    width = max((len(name) for name in summary.rows), default=0)
    return "\n".join(lines + [f"  {name:{width}}  {taken:>12,} in  {given:>12,} out" for name, (taken, given) in summary.rows.items()])


class BadIntervalError(InputError):
    """An interval that is none."""

    def __init__(self, start: str, end: str, reason: str) -> None:
        super().__init__(start, end, reason)
        self.start, self.end, self.reason = start, end, reason

    def __str__(self) -> str:
        return f"interval {self.start} to {self.end}: {self.reason}; expected two ISO 8601 moments, e.g. 2013-01-01T00:00:00Z"


class _timed:
    """Adds the wall seconds of a block to `into[part]`."""

    def __init__(self, into: dict[str, float], part: str) -> None:
        self.into, self.part = into, part

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.into[self.part] = self.into.get(self.part, 0.0) + time.perf_counter() - self.start


if __name__ == "__main__":
    sys.exit(main())

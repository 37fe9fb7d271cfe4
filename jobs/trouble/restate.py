"""Restating: replace rows that a source has taken with the current rows of its files, in one ordinary epoch.

The barrier pins the old files with weight -1 and the current files with weight +1, so each reader of the source updates
at the cost of these rows. The epoch also takes the log's statements, but no new files of other sources.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tussock.jobs.barriers.barrier import BarrierPinner, PinnedSource, keeper_of, time_zones, with_first_files
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.barriers.moment import InputRequest, Pace, next_moment
from tussock.jobs.barriers.taken_tables import statement_of, taken_table
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.catalog.move_source import moved_sources
from tussock.jobs.catalog.statement_log import replay_log
from tussock.jobs.chunks.chunk import WEIGHT, decode_tables
from tussock.jobs.chunks.failure import first_failure
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import Division, Item, PinRequest, Pins, Restated
from tussock.jobs.sources.errors import CannotRestateError, OnlySparkReadsError
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import split_rejects
from tussock.jobs.statements.statement_writer import require_own_input
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EpochUnderWayError(InputError):
    """A barrier is open, and its epoch must run first."""

    epoch: int

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is running or unfinished, and must be finished first. Nothing was changed. Finish it "
            "(`tussock epoch`, or the run that started it), then restate."
        )


@dataclass(frozen=True, slots=True)
class Restatement:
    """The changes of a restatement.

    Args:
        goes, comes: the files whose rows are removed and added; both empty if no file has changed.
        readers: the views that read the source, in catalog order.
    """

    source: str
    goes: tuple[Item, ...]
    comes: tuple[Item, ...]
    readers: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.goes or self.comes)


class Restating:
    """One restatement: created to inspect it, then started with `begin_restating`.

    Raises: UnknownRelationError; EpochUnderWayError; CannotRestateError; errors of listing and of the object stores.
    Cost: a listing or a HEAD. Each added local file is read once and copied (jobs/sources/kept.py); vacuum removes the
        copy if the restatement is not run.
    """

    def __init__(
        self,
        meta: MetaStore,
        source: str,
        restated: Restated,
        run: Mapping[str, str] | None = None,
        pace: Pace = Pace(),  # noqa: B008  frozen
    ) -> None:
        """
        Args:
            run: the run that the barrier belongs to; stored with it.
            pace: the pipeline's.
        """
        version = meta.read_latest()
        if (open_barrier := meta.barrier_after(version.epoch)) is not None:
            raise EpochUnderWayError(open_barrier.epoch)
        if any(move.name == source for move in moved_sources(version.catalog, meta.objects)):
            reason = "its folder has moved, and no epoch has recorded that yet. Run `tussock epoch`, then repeat this"
            raise CannotRestateError(source, reason)
        relation = find_relation(with_first_files(meta, Base(version), version.catalog), source, RelationKind.SOURCE)
        moment = next_moment(version, InputRequest(pace=pace), meta.moment_now())
        self._pinning = _PinningRestated(
            meta, Base(version), Detour(), None, None, dict(run or {}), moment, source=relation, restated=restated
        )
        items = reader_of(statement_of(relation)).items(self._pins.read)
        catalog = replay_log(meta, version, version.log_end, meta.log_end(), (), version.epoch + 1).catalog
        goes, comes = (tuple(item for item in items if item.goes is which) for which in (True, False))
        self.restatement = Restatement(relation.name, goes, comes, _readers_of(catalog, relation.id))

    @property
    def _pins(self) -> Pins:
        return self._pinning.pin_source(self._pinning.source, None, self._pinning.version.catalog).pins

    def count_rows(self, spark: "Callable[[], SparkSession]") -> tuple[int, int]:
        """Return the number of removed and of added rows.

        Raises errors of the files. Cost: reads the files; no columns of Parquet.
        """
        if (document := self._pins.read) is None:
            return 0, 0
        statement = statement_of(self._pinning.source)
        reader = reader_of(statement)
        document = reader.locate_input(statement, document, keeper_of(self._pinning.meta, self._pinning.base))
        read = self._chunks(spark, statement, document)
        goes = comes = 0
        for weights in (rows[WEIGHT].to_numpy() for rows in read):
            goes, comes = goes + int((weights < 0).sum()), comes + int((weights > 0).sum())
        return goes, comes

    def _chunks(
        self, spark: "Callable[[], SparkSession]", statement: CreateSource, document: msgspec.Raw
    ) -> Iterator[pa.Table]:
        """Yield chunks of rows without values, read by the engine, and by Spark what the pins leave to it."""
        catalog, reader, rest = self._pinning.base.version.catalog, reader_of(statement), document
        zones = time_zones(self._pinning.meta, catalog)
        if (engine := reader.engine) is not None:
            divided = engine.divide(statement, document, Division(1, zones, self._pins.by_spark))
            try:
                yield from [engine.read(statement, part, ()).rows for part in divided.parts]
            except OnlySparkReadsError:
                pass
            else:
                if divided.rest is None:
                    return
                rest = divided.rest
        from tussock.jobs.spark.session import epoch_session

        answer = reader.frame(epoch_session(spark(), zones.of_store), statement, rest, ()).toArrow()
        if failures := answer["failure"].drop_null().to_pylist():
            raise first_failure(failures)
        chunks = (decode_tables([chunk]) for chunk in answer["chunk"].to_pylist())
        yield from (split_rejects(chunk).rows for chunk in chunks if chunk is not None)

    def begin_restating(self) -> Barrier | None:
        """Put its barrier in force, for an ordinary run of its epoch. None if no file has changed.

        Raises: LostRaceError if another barrier came first; FollowingBranchError.
        """
        require_own_input(self._pinning.meta, f"restate {self._pinning.source.name}")
        return (
            self._pinning.meta.inject_barrier(self._pinning.version.epoch, self._pinning.plan_barrier)
            if self.restatement
            else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PinningRestated(BarrierPinner):
    """Pins the restated items of one source, and nothing of other sources."""

    source: Relation
    restated: Restated

    def _pin_source(self, source: Relation, max_bytes: int | None, catalog: Catalog) -> PinnedSource:
        """See BarrierPinner. A failing source is an error here, and is not held."""
        if source.id != self.source.id:
            return PinnedSource(Pins(), source.holds)
        statement, taken = statement_of(source), taken_table(self.meta, self.base, source)
        reader, request = reader_of(statement), PinRequest(restated=self.restated)
        pins = reader.pin(statement, taken, request, keeper_of(self.meta, self.base))
        settled = {item.name for item in reader.items(pins.read)}
        return PinnedSource(pins, tuple(hold for hold in source.holds if hold.file not in settled))


def _readers_of(catalog: Catalog, relation: int) -> tuple[str, ...]:
    """Return the views of users that read a relation, directly or through others, in catalog order."""
    reached, names = {relation}, []
    for other in catalog.live_relations():
        if reached & set(other.depends_on):
            reached.add(other.id)
            if other.kind is RelationKind.VIEW and not other.is_internal:
                names.append(other.name)
    return tuple(names)

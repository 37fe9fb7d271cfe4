"""Restating: what was taken of a source goes, and what is there now comes, in one ordinary epoch.

The barrier pins the files as they were at weight -1 and as they are at weight +1, so every view over the source follows at the cost of
those rows. It takes in the log's statements and nothing new of other sources: their files wait for their own run.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tussock.jobs.driver.barrier import (
    Pinned,
    Pinning,
    keeper_of,
    moment_of,
    statement_of,
    taken_table,
    with_first_files,
)
from tussock.jobs.driver.detour import Detour
from tussock.jobs.driver.epoch_plan import Base
from tussock.jobs.flow.chunk import WEIGHT, decode
from tussock.jobs.flow.failure import first_failure
from tussock.jobs.plan.definition import find
from tussock.jobs.plan.statement_log import replay
from tussock.jobs.sources.base import Asked, Item, Pins, Restated
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import parted
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EpochUnderWayError(InputError):
    """A barrier is open, and only its epoch can come next."""

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.epoch = epoch

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is under way, or was begun and not finished, and comes first. Nothing was changed. Finish it (`tussock "
            "epoch`, or the run that began it), then restate."
        )


@dataclass(frozen=True, slots=True)
class Restatement:
    """What restating a source does.

    Args:
        goes, comes: the files whose rows go and come; both empty where all is as it was taken.
        readers: the views that follow, in the order of the catalog.
    """

    source: str
    goes: tuple[Item, ...]
    comes: tuple[Item, ...]
    readers: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.goes or self.comes)


class Restating:
    """One restatement, first looked at, then done.

    Raises: UnknownRelationError; EpochUnderWayError; CannotRestateError; errors of listing and of the object stores.
    Cost: a listing or a HEAD; of each file that comes one read where it is local, and its copy (jobs/sources/kept.py), which a vacuum takes
        away again where nothing comes of it.
    """

    def __init__(self, meta: MetaStore, source: str, restated: Restated, run: Mapping[str, str] | None = None) -> None:
        """`run`: what it is for, kept with its barrier."""
        version = meta.latest()
        if (held := meta.barrier_after(version.epoch)) is not None:
            raise EpochUnderWayError(held.epoch)
        relation = find(with_first_files(meta, Base(version), version.catalog), source, RelationKind.SOURCE)
        moment = max(version.moment, moment_of(meta, None))
        self._pinning = _PinningRestated(
            meta, Base(version), Detour(), None, None, dict(run or {}), moment, source=relation, restated=restated
        )
        items = reader_of(statement_of(relation)).items(self._pins.read)
        catalog = replay(meta, version, version.log_end, meta.log_end(), (), version.epoch + 1).catalog
        goes, comes = (tuple(item for item in items if item.goes is which) for which in (True, False))
        self.found = Restatement(relation.name, goes, comes, _readers_of(catalog, relation.id))

    @property
    def _pins(self) -> Pins:
        return self._pinning.pin(self._pinning.source, None).pins

    def rows(self, spark: "Callable[[], SparkSession]") -> tuple[int, int]:
        """How many rows go, and how many come. Raises what reading the files raises. Cost: reads them, of Parquet files no column."""
        if (document := self._pins.read) is None:
            return 0, 0
        statement = statement_of(self._pinning.source)
        reader = reader_of(statement)
        document = reader.located(statement, document, keeper_of(self._pinning.meta, self._pinning.base))
        read: Iterable[pa.Table]
        if reader.needs_spark:
            from tussock.jobs.spark.session import epoch_session

            frame = reader.frame(epoch_session(spark(), self._pinning.meta.settings.time_zone), statement, document, ())
            found = frame.toArrow()
            if failures := found["failure"].drop_null().to_pylist():
                raise first_failure(failures)
            chunks = (decode([chunk]) for chunk in found["chunk"].to_pylist())
            read = (parted(chunk).rows for chunk in chunks if chunk is not None)
        else:
            read = (reader.read(statement, part, ()).rows for part in reader.parts(statement, document, 1))
        goes = comes = 0
        for weights in (rows[WEIGHT].to_numpy() for rows in read):
            goes, comes = goes + int((weights < 0).sum()), comes + int((weights > 0).sum())
        return goes, comes

    def begin(self) -> Barrier | None:
        """Put its barrier in force, for an epoch that is run as any other. None where all is as it was taken.

        Raises: LostRaceError where another barrier came first."""
        return (
            self._pinning.meta.inject_barrier(self._pinning.version.epoch, self._pinning.plan) if self.found else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PinningRestated(Pinning):
    """Pins what is to be restated of one source, and nothing of others."""

    source: Relation
    restated: Restated

    def _pin(self, source: Relation, max_bytes: int | None) -> Pinned:
        """See Pinning. What can't be done is an error here, and no hold."""
        if source.id != self.source.id:
            return Pinned(Pins(), source.holds)
        statement, taken = statement_of(source), taken_table(self.meta, self.base, source)
        reader, asked = reader_of(statement), Asked(restated=self.restated)
        pins = reader.pin(statement, taken, asked, keeper_of(self.meta, self.base))
        settled = {item.name for item in reader.items(pins.read)}
        return Pinned(pins, tuple(hold for hold in source.holds if hold.file not in settled))


def _readers_of(catalog: Catalog, relation: int) -> tuple[str, ...]:
    """The materialized views that read a relation, directly or through others, in the order of the catalog."""
    reached, names = {relation}, []
    for other in catalog.live():
        if reached & set(other.depends_on):
            reached.add(other.id)
            if other.kind is RelationKind.VIEW:
                names.append(other.name)
    return tuple(names)

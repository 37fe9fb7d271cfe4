"""The barrier that replaces an open one, and the one that only skips files if none is open."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from tussock.jobs.barriers.barrier import (
    BarrierPinner,
    PinnedSource,
    describe_rejected,
    drop_missing_documents,
    keeper_of,
    mutation_of,
    names_of,
    time_zones,
    with_first_files,
    with_reasons_for_spark,
)
from tussock.jobs.barriers.builds import AsInBarrier
from tussock.jobs.barriers.detour import Detour, drop_relations
from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.barriers.source_holds import with_holds
from tussock.jobs.barriers.taken_tables import statement_of, taken_table
from tussock.jobs.catalog.apply import pause_views
from tussock.jobs.catalog.difference import Create
from tussock.jobs.catalog.fed_tables import fed_by
from tussock.jobs.catalog.statement_log import replay_log, statements_of
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.logical.statements import CreateSource, Transaction
from tussock.jobs.sources.base import PinRequest, Pins, Revision
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.trouble.detour_errors import CreatedAgainError, NothingToAbandonError
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier, BarrierPlan, MutationKind
from tussock.statestore.meta.catalog import Catalog, Hold, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


@dataclass(frozen=True, slots=True)
class SupersedingPlan:
    """Decides the barrier that replaces an open one."""

    meta: MetaStore
    version: HummockVersion
    open_barrier: Barrier
    detour: Detour
    holds: Mapping[int, Hold] = field(default_factory=dict)  # new holds, by the source's id in `open_barrier`
    reasons: Mapping[str, str] = field(default_factory=dict)  # reasons of views that a run pauses automatically
    finished: str = ""  # a view whose build finishes in this epoch
    given_up: str = ""  # a view whose build is given up
    gone: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # items that leave, by source in the open barrier
    by_spark: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # files left to Spark, by source in it

    def plan_barrier(self, epoch: int) -> BarrierPlan:
        version, open_barrier, detour = self.version, self.open_barrier, self.detour
        log_end = self.meta.log_end() if detour.take_log else open_barrier.log_end
        entries = tuple(sorted({*open_barrier.skipped_entries, *detour.skip_entries}))
        replayed = replay_log(self.meta, version, open_barrier.log_start, log_end, entries, epoch)
        rejected = describe_rejected(replayed)
        now = with_first_files(self.meta, Base(version), replayed.catalog)
        catalog = drop_relations(now, (*self._dropped_before(now), *detour.drop), epoch)
        stopped = {**self._paused_before(catalog), **dict.fromkeys(detour.pause, ""), **self.reasons}
        catalog = pause_views(catalog, stopped, epoch)
        remaining = self._open_sources(catalog)
        sources = {after.id: self._revise_pins(before) for before, after in remaining}
        catalog = with_holds(catalog, {after.id: self._revise_holds(before) for before, after in remaining}, epoch)
        catalog = AsInBarrier(
            version.catalog, self._open_catalog, open_barrier.epoch, self.finished, self.given_up
        ).advance_catalog(catalog, epoch)
        return BarrierPlan(
            mapping=open_barrier.mapping,
            log_end=log_end,
            splits=drop_missing_documents({r: pins.read for r, pins in sources.items()}),
            catalog=None if catalog == version.catalog else catalog,
            mutation=mutation_of(version.catalog, catalog, rescaled=open_barrier.mutation.kind is MutationKind.UPDATE),
            run=open_barrier.run,
            skipped=tuple(dict.fromkeys((*open_barrier.skipped, *detour.describe_changes(), *rejected))),
            columns=open_barrier.columns,
            unread=drop_missing_documents({r: pins.unread for r, pins in sources.items()}),
            skipped_entries=entries,
            moment=open_barrier.moment,
            by_intervals=open_barrier.by_intervals,
            passed_over=open_barrier.passed_over,
            by_spark={r: dict(pins.by_spark) for r, pins in sources.items() if pins.by_spark},
        )

    def require_known(self) -> None:
        """Raises NothingToAbandonError if the barrier does not contain a name of the detour; CreatedAgainError."""
        open_barrier, detour = self.open_barrier, self.detour
        if detour.take_log:
            self._require_not_created_again()
        pinned = sorted(
            name
            for before, _ in self._open_sources(self._open_catalog)
            for name in names_of(before, open_barrier.splits.get(before.id))
        )
        going_around = msgspec.structs.replace(open_barrier, splits={}, unread={})
        taken = {
            name
            for before, _ in self._open_sources(self._open_catalog)
            for name in names_of(before, self._revise_pins(before, going_around).unread)
        }
        for name in (*detour.skip_files, *detour.repin_files):
            if name not in pinned and not (name in taken and name in detour.skip_files):
                raise NothingToAbandonError(
                    open_barrier.prev_epoch,
                    f"the open barrier pins no file {name!r}, and none was taken; it pins "
                    f"{', '.join(pinned) or 'none'}",
                )
        end = self.meta.log_end() if detour.take_log else open_barrier.log_end
        for position in detour.skip_entries:
            if not open_barrier.log_start <= position < end:
                raise NothingToAbandonError(
                    open_barrier.prev_epoch,
                    f"the open barrier takes log entries {open_barrier.log_start} to {end - 1}, not {position}",
                )

    def _require_not_created_again(self) -> None:
        """Raise CreatedAgainError if a newer log entry creates a relation that this barrier drops."""
        gone = {*self.detour.drop, *self._dropped_before(self._replayed_catalog)}
        for position, statement in statements_of(self.meta, self.open_barrier.log_end, self.meta.log_end()):
            single = statement.statements if isinstance(statement, Transaction) else (statement,)
            for created in single if position not in self.detour.skip_entries else ():
                if isinstance(created, Create) and created.name in gone:
                    raise CreatedAgainError(created.name, position)

    @property
    def _open_catalog(self) -> Catalog:
        return self.version.catalog if self.open_barrier.catalog is None else self.open_barrier.catalog

    @property
    def _replayed_catalog(self) -> Catalog:
        """The catalog after the log entries of the open barrier. Cost: a read per entry."""
        opened = self.open_barrier
        entries = opened.skipped_entries
        return replay_log(self.meta, self.version, opened.log_start, opened.log_end, entries, opened.epoch).catalog

    def _dropped_before(self, catalog: Catalog) -> tuple[str, ...]:
        """Return the relations that the superseded barrier itself dropped, without a log entry: they stay dropped."""
        logged, opened = self._replayed_catalog.live_relations(), self._open_catalog.live_relations()
        gone = {r.name for r in logged} - {r.name for r in opened}
        readers_first = reversed(catalog.live_relations())
        return tuple(
            r.name for r in readers_first if r.name in gone and fed_by(r) is None
        )  # a fed table is dropped with its source

    def _paused_before(self, catalog: Catalog) -> dict[str, str]:
        """Return the views that the superseded barrier paused and that still exist, with the reasons.

        They are older than this barrier, so their ids are still valid.
        """
        stopped = {
            r.id: r.paused_for for r in self._open_catalog.live_relations() if r.paused == self.open_barrier.epoch
        }
        return {r.name: stopped[r.id] for r in catalog.live_relations() if r.id in stopped}

    def _open_sources(self, catalog: Catalog) -> list[tuple[Relation, Relation]]:
        """Return the open barrier's sources, each with its relation in `catalog`.

        Matched by name: skipped entries shift ids.
        """
        now = {r.name: r for r in catalog.live_relations() if r.kind is RelationKind.SOURCE}
        then = [r for r in self._open_catalog.live_relations() if r.kind is RelationKind.SOURCE]
        return [(r, now[r.name]) for r in then if r.name in now and statement_of(r) == statement_of(now[r.name])]

    def _revise_pins(self, source: Relation, origin: Barrier | None = None) -> Pins:
        """Return a source's pins with the detour. `origin`: of the pins, if not the open barrier."""
        barrier = self.open_barrier if origin is None else origin
        statement = statement_of(source)
        read = None if source.id in self.holds else barrier.splits.get(source.id)
        if read is not None and (gone := self.gone.get(source.id)):
            read = reader_of(statement).part_of(read, set(names_of(source, read)) - set(gone))
        before = Pins(read, barrier.unread.get(source.id))
        decided = {**barrier.by_spark.get(source.id, {}), **self.by_spark.get(source.id, {})}
        taken = taken_table(self.meta, Base(self.version), source)
        keeper = keeper_of(self.meta, Base(self.version))
        reader, repin = reader_of(statement), self.detour.repin_files
        pins = reader.revise(statement, taken, Revision(before, self.detour.skip_files, repin), keeper)
        if pins.read is not None and (part := reader.part_of(pins.read, repin)) is not None:
            zones = time_zones(self.meta, self._open_catalog)
            anew = with_reasons_for_spark(statement, Pins(part), zones).by_spark
            decided = {**{name: why for name, why in decided.items() if name not in repin}, **anew}
        return replace(pins, by_spark=decided)

    def _revise_holds(self, source: Relation) -> tuple[Hold, ...]:
        """Return a source's holds in the superseded barrier, without files that the user decided, plus the new hold."""
        begins = self.holds.get(source.id)
        decided = {*self.detour.skip_files, *self.detour.repin_files, *(() if begins is None else [begins.file])}
        undecided = (h for h in source.holds if h.file not in decided)
        return (*undecided, *(() if begins is None else [begins]))


@dataclass(frozen=True, slots=True)
class SkippedPinning(BarrierPinner):
    """Pins only the files to skip. Used if no barrier is open, because only a run can decide the other input."""

    troubles: list[InputError | SourceAwayError] = field(
        default_factory=list
    )  # errors of sources that cannot be listed

    def make_request(self, source: CreateSource, max_bytes: int | None) -> PinRequest:
        """See BarrierPinner."""
        return PinRequest(self.interval, max_bytes, skip=self.detour.skip_files, only_skipped=True)

    def catalog_with_builds(self, catalog: Catalog, epoch: int) -> Catalog:
        """See BarrierPinner. Running builds read nothing."""
        return AsInBarrier(self.version.catalog, self.version.catalog, epoch).advance_catalog(catalog, epoch)

    def _pin_source(self, source: Relation, max_bytes: int | None, catalog: Catalog) -> PinnedSource:
        """See BarrierPinner. Removes holds of files that the user skips or retries. A failing source stays as it is."""
        statement, taken = statement_of(source), taken_table(self.meta, self.base, source)
        holds = tuple(h for h in source.holds if h.file not in (*self.detour.skip_files, *self.detour.repin_files))
        keeper = keeper_of(self.meta, self.base)
        try:
            request = self.make_request(statement, max_bytes)
            return PinnedSource(reader_of(statement).pin(statement, taken, request, keeper), holds)
        except (InputError, SourceAwayError) as err:
            self.troubles.append(err)
            return PinnedSource(Pins(), holds)

    def require_known(self) -> None:
        """Raises NothingToAbandonError if a file to skip belongs to no source, or a file to re-pin is not held.

        If a file to skip belongs to no source that could be listed, raises the first error of the other sources.
        """
        catalog = replay_log(
            self.meta, self.version, self.version.log_end, self.meta.log_end(), (), self.version.epoch + 1
        ).catalog
        sources = [
            r
            for r in drop_relations(catalog, self.detour.drop, self.version.epoch + 1).live_relations()
            if r.kind is RelationKind.SOURCE
        ]
        unread_files = {
            name
            for source in sources
            for name in names_of(source, self.pin_source(source, self.max_epoch_bytes, catalog).pins.unread)
        }
        files_on_hold = {h.file for source in sources for h in source.holds}
        if not_on_hold := [path for path in self.detour.repin_files if path not in files_on_hold]:
            raise NothingToAbandonError(
                self.version.epoch,
                f"no barrier is open, so {not_on_hold[0]!r} is not pinned, and the next epoch takes its content at "
                "that time; if an epoch has already taken it, --skip-file keeps its rows",
            )
        if unknown := [path for path in self.detour.skip_files if path not in unread_files]:
            if self.troubles:
                raise self.troubles[0]
            raise NothingToAbandonError(
                self.version.epoch,
                f"no barrier is open, and {unknown[0]!r} is not a file to skip: no source has a new or changed file "
                "of this name",
            )

"""Superseding a barrier whose input blocks the epoch. Needs no Spark."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tussock.jobs.barriers.barrier import (
    Pinned,
    Pinning,
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
from tussock.jobs.barriers.source_holds import hold_of, with_holds
from tussock.jobs.barriers.taken_tables import statement_of, taken_table
from tussock.jobs.catalog.apply import CannotPauseError, pause_views
from tussock.jobs.catalog.difference import Create
from tussock.jobs.catalog.fed_tables import fed_by
from tussock.jobs.catalog.statement_log import replay_log, skip_arguments, statement_text, statements_of
from tussock.jobs.chunks.failure import SourceAwayError, SourceFileError
from tussock.jobs.logical.statements import CreateSource, Transaction, computed_after
from tussock.jobs.sources.base import Asked, Pins
from tussock.jobs.sources.errors import OnlySparkReadsError
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.statements.statement_writer import require_own_input
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier, BarrierPlan, MutationKind
from tussock.statestore.meta.catalog import Catalog, Hold, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)


class NothingToAbandonError(InputError):
    """No barrier is open, or the detour does not change it."""

    epoch: int
    reason: str

    def __str__(self) -> str:
        return f"nothing to abandon after epoch {self.epoch}: {self.reason}"


class CreatedAgainError(InputError):
    """The newer log entries create a view again that the barrier drops, so it cannot take them too.

    `entry`: the position of the entry that creates it.
    """

    view: str
    entry: int

    def __str__(self) -> str:
        return (
            f"The epoch that has begun drops {self.view!r}, and log entry {self.entry} creates it again. Both are not "
            "possible in one epoch, and nothing was changed. Omit --take-log: run `tussock epoch`, whose next epoch "
            "takes the entry. Or, if no barrier has dropped the view yet and the entry replaces it, omit --drop."
        )


class ReadEntryError(InputError):
    """An entry of the log cannot be skipped alone, because later entries were computed from its result.

    `entries`: the entries to skip; `readers`: (position, short text) of the others that have to be skipped with them.
    `take_log`: the open barrier does not take all of the readers. `done`: it skips the entries already, and the
    readers were logged meanwhile.
    """

    def __init__(
        self,
        entries: Sequence[int],
        readers: Sequence[Sequence[int | str]],
        take_log: bool = False,
        done: bool = False,
    ) -> None:
        super().__init__(list(entries), [list(r) for r in readers], take_log, done)
        self.entries, self.take_log, self.done = tuple(entries), take_log, done
        self.readers = tuple((int(position), str(text)) for position, text in readers)

    def __str__(self) -> str:
        skipped = ", ".join(map(str, self.entries))
        named = ", ".join(f"{position} ({text})" for position, text in self.readers)
        late = [position for position, _ in self.readers]
        if self.done:
            return (
                f"log entries {skipped} are skipped now, but entries that were logged meanwhile were computed from "
                f"their result: {named}. To skip these too, run "
                f"`tussock barrier abandon {skip_arguments(late, self.take_log)}` before the next epoch."
            )
        every = sorted({*self.entries, *late})
        return (
            f"log entries {skipped} cannot be skipped alone, because later entries were computed from their result: "
            f"{named}. Nothing was changed. To skip all of them, run "
            f"`tussock barrier abandon {skip_arguments(every, self.take_log)}`."
        )


def require_readers_skipped(
    meta: MetaStore, start: int, skipped: Collection[int], held: Barrier | None, *, done: bool = False
) -> None:
    """Raise ReadEntryError if an entry of the log was computed from the result of a skipped one and is not skipped.

    Args:
        start: the end of the log of the committed epoch.
        held: the open barrier.
        done: it skips them already.

    Cost: a read per entry of the log from `start` on.
    """
    gone, readers = set(skipped), list[tuple[int, str]]()
    for position, statement in statements_of(meta, start, meta.log_end()):
        if position not in gone and computed_after(statement) & gone:
            gone.add(position)
            readers.append((position, statement_text(statement)))
    if readers:
        take_log = held is not None and any(position >= held.log_end for position in gone)
        raise ReadEntryError(sorted(skipped), readers, take_log, done)


def abandon_barrier(meta: MetaStore, detour: Detour, run: Mapping[str, str] | None = None) -> Barrier:
    """Supersede the open barrier with one that makes a detour; all other input is taken as before.

    If no barrier is open (a changed file already fails the listing), inject one that takes the log and marks the
    skipped files as taken. Other files wait for their run. Committed data is not changed.

    Args:
        run: the run that a barrier injected here belongs to; stored with it.

    Raises: NothingToAbandonError, ReadEntryError; InputError if a name is unknown; LostRaceError if the open barrier
        was committed meanwhile.
    """
    version = meta.read_latest()
    held = meta.barrier_after(version.epoch)
    if held is not None and held.follows:
        require_own_input(meta, f"a detour of epoch {held.epoch}, whose input is the parent's")
    if detour.skip_entries:
        before = () if held is None else held.skipped_entries
        require_readers_skipped(meta, version.log_end, {*before, *detour.skip_entries}, held)
    if not detour:
        raise NothingToAbandonError(
            version.epoch,
            "name a file to skip or re-pin, a log entry to skip, or a view to drop or pause, or take the newer log "
            "entries",
        )
    if held is None:
        pinning = _PinningSkipped(meta, Base(version), detour, interval=None, max_epoch_bytes=None, run=dict(run or {}))
        pinning.require_known()
        barrier = meta.inject_barrier(version.epoch, pinning.plan_barrier)
    else:
        superseding = _Superseding(meta, version, held, detour)
        superseding.require_known()
        barrier = meta.supersede_barrier(held, superseding.plan_barrier)
        log.info(
            "barrier %d supersedes %d, attempt %d: %s",
            barrier.epoch,
            held.epoch,
            barrier.attempt,
            ", ".join(barrier.skipped),
        )
    if detour.skip_entries:  # again: a reader that was logged meanwhile has not seen this barrier
        require_readers_skipped(meta, version.log_end, barrier.skipped_entries, barrier, done=True)
    return barrier


def hold_source(meta: MetaStore, failed: Barrier, error: SourceFileError | SourceAwayError) -> str:
    """Supersede a barrier whose epoch failed on a source with one that takes nothing new from it, and hold the source.

    The hold concerns the item that the error names, or else the first item that the barrier takes. It lasts while the
    item has the same mark. If the source's server was unreachable, the next run tries the item again. No effect if
    `failed` is no longer the open barrier.

    Returns: the held source.
    Raises: `error` if the barrier does not take this item: a new view reads it again, and a hold cannot prevent that.
        LostRaceError if the barrier was committed or superseded meanwhile.
    """
    version = meta.read_latest()
    barrier = meta.barrier_after(version.epoch)
    if barrier is None or barrier.epoch != failed.epoch:
        return error.source
    suspects = {name.lower() for name in (*getattr(error, "sources", ()), error.source)}
    for source in (barrier.catalog or version.catalog).live_relations():
        if source.kind is RelationKind.SOURCE and source.name in suspects:
            for item in reader_of(statement_of(source)).items(barrier.splits.get(source.id)):
                if error.path in ("", item.name) and not item.goes:
                    mark = "" if isinstance(error, SourceAwayError) else item.mark
                    held = msgspec.structs.replace(hold_of(error), file=item.name, mark=mark)
                    meta.supersede_barrier(
                        barrier, _Superseding(meta, version, barrier, Detour(), {source.id: held}).plan_barrier
                    )
                    log.warning("source %s is held: %s", source.name, held.reason)
                    return source.name
    raise error


def pause_failing_view(meta: MetaStore, failed: Barrier, view: str, reason: str, error: InputError) -> None:
    """Supersede a barrier whose epoch failed on rows of a view with one that pauses the view and its readers.

    No effect if `failed` is no longer the open barrier.

    Raises: `error` if the view or a reader of it is new in that epoch and therefore has no rows to keep. LostRaceError
        if the barrier was committed or superseded meanwhile.
    """
    try:
        superseded = _supersede_barrier(meta, failed, Detour(pause=(view,)), {view: reason})
    except CannotPauseError:
        raise error from None
    if superseded:
        log.warning("view %s is paused: %s", view, reason)


def finish_build(meta: MetaStore, failed: Barrier, view: str) -> None:
    """Supersede a barrier whose epoch failed on a row of a build with one whose build reads everything that is left.

    An expression may raise on a part of the rows although it does not raise on all of them.

    No effect if `failed` is no longer the open barrier. Raises LostRaceError if it was committed or superseded
    meanwhile.
    """
    if _supersede_barrier(meta, failed, finished=view):
        log.warning(
            "view %s is finished in one epoch: an expression raises on the part of the rows that has been read", view
        )


def give_up_build(meta: MetaStore, failed: Barrier, view: str) -> None:
    """Supersede a barrier whose epoch could not finish a build with one without that build.

    Otherwise as `finish_build`.
    """
    if _supersede_barrier(meta, failed, given_up=view):
        log.warning("the build of view %s is given up", view)


def _supersede_barrier(
    meta: MetaStore,
    failed: Barrier,
    detour: Detour = Detour(),  # noqa: B008
    reasons: Mapping[str, str] | None = None,
    finished: str = "",
    given_up: str = "",
    by_spark: Mapping[int, Mapping[str, str]] = {},
) -> bool:
    """Supersede `failed`; return False if it is no longer the open barrier."""
    version = meta.read_latest()
    barrier = meta.barrier_after(version.epoch)
    if barrier is None or barrier.epoch != failed.epoch:
        return False
    superseding = _Superseding(
        meta,
        version,
        barrier,
        detour,
        reasons=reasons or {},
        finished=finished,
        given_up=given_up,
        by_spark=by_spark,
    )
    meta.supersede_barrier(barrier, superseding.plan_barrier)
    return True


def take_corrected(meta: MetaStore, failed: Barrier, tried: set[tuple[str, str]]) -> bool:
    """Supersede a barrier whose epoch failed on a row, if pinned files have changed since: their new content is pinned.

    A file that is gone leaves the barrier, and does not count as taken. So a user corrects or removes a file, and runs
    again.

    Args:
        tried: (source, file) that were pinned anew before in this run; they are left alone. Receives the new ones.

    Returns: whether the barrier was superseded. False if it is no longer the open one, and if a file cannot be looked
        up, or is gone when it is pinned. Raises LostRaceError if it was committed or superseded meanwhile.
    Cost: one HEAD request per pinned file, 16 at a time.
    """
    version = meta.read_latest()
    barrier = meta.barrier_after(version.epoch)
    if barrier is None or barrier.epoch != failed.epoch:
        return False
    repin, gone = list[str](), dict[int, tuple[str, ...]]()
    corrected_files = set[tuple[str, str]]()
    for source in (barrier.catalog or version.catalog).live_relations():
        if source.kind is RelationKind.SOURCE and (document := barrier.splits.get(source.id)) is not None:
            try:
                since = reader_of(statement_of(source)).changes_since(statement_of(source), document)
            except (InputError, SourceAwayError):
                return False
            new = {name for name in (*since.changed, *since.gone) if (source.name, name) not in tried}
            corrected_files |= {(source.name, name) for name in new}
            repin += [name for name in since.changed if name in new]
            gone[source.id] = tuple(name for name in since.gone if name in new)
    if not corrected_files:
        return False
    superseding = _Superseding(meta, version, barrier, Detour(repin_files=tuple(repin)), gone=gone)
    try:
        meta.supersede_barrier(barrier, superseding.plan_barrier)
    except (SourceFileError, SourceAwayError):  # a file changed again, which the next run decides
        return False
    tried |= corrected_files
    log.warning(
        "barrier %d takes the present content of %s", barrier.epoch, ", ".join(name for _, name in corrected_files)
    )
    return True


def leave_to_spark(meta: MetaStore, failed: Barrier, error: OnlySparkReadsError) -> None:
    """Supersede a barrier whose epoch met a file that only Spark reads with one that leaves the file to Spark.

    The file may be new, or taken by an earlier epoch of which no view read it.

    No effect if `failed` is no longer the open barrier. Raises: `error` if the barrier leaves the file to Spark
    already; LostRaceError if it was committed or superseded meanwhile.
    """
    (source,) = (
        r.id for r in (failed.catalog or meta.read_latest().catalog).live_relations() if r.name == error.source
    )
    left = failed.by_spark.get(source, {})
    if error.path in left:
        raise error
    reasons = {source: {error.path: error.reason}}
    if failed.follows:  # all else stays, such as the number of the parent's epoch
        by_spark = {**failed.by_spark, source: {**left, **reasons[source]}}
        meta.supersede_barrier(failed, msgspec.structs.replace(failed, by_spark=by_spark), failed.epoch)
        log.info("source %s: Spark reads %s: %s", error.source, error.path, error.reason)
    elif _supersede_barrier(meta, failed, by_spark=reasons):
        log.info("source %s: Spark reads %s: %s", error.source, error.path, error.reason)


@dataclass(frozen=True, slots=True)
class _Superseding:
    """Decides the barrier that replaces an open one."""

    meta: MetaStore
    version: HummockVersion
    held: Barrier
    detour: Detour
    holds: Mapping[int, Hold] = field(default_factory=dict)  # new holds, by the source's id in the held barrier
    reasons: Mapping[str, str] = field(default_factory=dict)  # reasons of views that a run pauses automatically
    finished: str = ""  # a view whose build finishes in this epoch
    given_up: str = ""  # a view whose build is given up
    gone: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # items that leave, by source in the held barrier
    by_spark: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # files left to Spark, by source in it

    def plan_barrier(self, epoch: int) -> BarrierPlan:
        version, held, detour = self.version, self.held, self.detour
        log_end = self.meta.log_end() if detour.take_log else held.log_end
        entries = tuple(sorted({*held.skipped_entries, *detour.skip_entries}))
        replayed = replay_log(self.meta, version, held.log_start, log_end, entries, epoch)
        now = with_first_files(self.meta, Base(version), replayed.catalog)
        catalog = drop_relations(now, (*self._dropped_before(now), *detour.drop), epoch)
        stopped = {**self._paused_before(catalog), **dict.fromkeys(detour.pause, ""), **self.reasons}
        catalog = pause_views(catalog, stopped, epoch)
        kept = self._held_sources(catalog)
        sources = {after.id: self._revise_pins(before) for before, after in kept}
        catalog = with_holds(catalog, {after.id: self._revise_holds(before) for before, after in kept}, epoch)
        catalog = AsInBarrier(
            version.catalog, self._held_catalog, held.epoch, self.finished, self.given_up
        ).advance_catalog(catalog, epoch)
        return BarrierPlan(
            mapping=held.mapping,
            log_end=log_end,
            splits=drop_missing_documents({r: pins.read for r, pins in sources.items()}),
            catalog=None if catalog == version.catalog else catalog,
            mutation=mutation_of(version.catalog, catalog, rescaled=held.mutation.kind is MutationKind.UPDATE),
            run=held.run,
            skipped=tuple(dict.fromkeys((*held.skipped, *detour.describe_changes(), *describe_rejected(replayed)))),
            columns=held.columns,
            unread=drop_missing_documents({r: pins.unread for r, pins in sources.items()}),
            skipped_entries=entries,
            moment=held.moment,
            by_intervals=held.by_intervals,
            passed_over=held.passed_over,
            by_spark={r: dict(pins.by_spark) for r, pins in sources.items() if pins.by_spark},
        )

    def require_known(self) -> None:
        """Raises NothingToAbandonError if the barrier does not contain a name of the detour; CreatedAgainError."""
        held, detour = self.held, self.detour
        if detour.take_log:
            self._require_not_created_again()
        pinned = sorted(
            name
            for before, _ in self._held_sources(self._held_catalog)
            for name in names_of(before, held.splits.get(before.id))
        )
        going_around = msgspec.structs.replace(held, splits={}, unread={})
        taken = {
            name
            for before, _ in self._held_sources(self._held_catalog)
            for name in names_of(before, self._revise_pins(before, going_around).unread)
        }
        for name in (*detour.skip_files, *detour.repin_files):
            if name not in pinned and not (name in taken and name in detour.skip_files):
                raise NothingToAbandonError(
                    held.prev_epoch,
                    f"the open barrier pins no file {name!r}, and none was taken; it pins "
                    f"{', '.join(pinned) or 'none'}",
                )
        end = self.meta.log_end() if detour.take_log else held.log_end
        for position in detour.skip_entries:
            if not held.log_start <= position < end:
                raise NothingToAbandonError(
                    held.prev_epoch, f"the open barrier takes log entries {held.log_start} to {end - 1}, not {position}"
                )

    def _require_not_created_again(self) -> None:
        """Raise CreatedAgainError if a newer log entry creates a relation that this barrier drops."""
        start = self.held.log_start
        logged = replay_log(
            self.meta, self.version, start, self.held.log_end, self.held.skipped_entries, self.held.epoch
        )
        gone = {*self.detour.drop, *self._dropped_before(logged.catalog)}
        for position, statement in statements_of(self.meta, self.held.log_end, self.meta.log_end()):
            single = statement.statements if isinstance(statement, Transaction) else (statement,)
            for created in single if position not in self.detour.skip_entries else ():
                if isinstance(created, Create) and created.name in gone:
                    raise CreatedAgainError(created.name, position)

    @property
    def _held_catalog(self) -> Catalog:
        return self.version.catalog if self.held.catalog is None else self.held.catalog

    def _dropped_before(self, catalog: Catalog) -> tuple[str, ...]:
        """Return the relations that the superseded barrier itself dropped, without a log entry: they stay dropped."""
        held = self.held
        logged = replay_log(
            self.meta, self.version, held.log_start, held.log_end, held.skipped_entries, held.epoch
        ).catalog
        gone = {r.name for r in logged.live_relations()} - {r.name for r in self._held_catalog.live_relations()}
        readers_first = reversed(catalog.live_relations())
        return tuple(
            r.name for r in readers_first if r.name in gone and fed_by(r) is None
        )  # a fed table is dropped with its source

    def _paused_before(self, catalog: Catalog) -> dict[str, str]:
        """Return the views that the superseded barrier paused and that still exist, with the reasons.

        They are older than this barrier, so their ids are still valid.
        """
        stopped = {r.id: r.paused_for for r in self._held_catalog.live_relations() if r.paused == self.held.epoch}
        return {r.name: stopped[r.id] for r in catalog.live_relations() if r.id in stopped}

    def _held_sources(self, catalog: Catalog) -> list[tuple[Relation, Relation]]:
        """Return the held barrier's sources, each with its relation in `catalog`.

        Matched by name: skipped entries shift ids.
        """
        now = {r.name: r for r in catalog.live_relations() if r.kind is RelationKind.SOURCE}
        then = [r for r in self._held_catalog.live_relations() if r.kind is RelationKind.SOURCE]
        return [(r, now[r.name]) for r in then if r.name in now and statement_of(r) == statement_of(now[r.name])]

    def _revise_pins(self, source: Relation, held: Barrier | None = None) -> Pins:
        """Return a source's pins with the detour. `held` replaces the superseded barrier as the origin of the pins."""
        barrier = self.held if held is None else held
        statement = statement_of(source)
        read = None if source.id in self.holds else barrier.splits.get(source.id)
        if read is not None and (gone := self.gone.get(source.id)):
            read = reader_of(statement).part_of(read, set(names_of(source, read)) - set(gone))
        before = Pins(read, barrier.unread.get(source.id))
        decided = {**barrier.by_spark.get(source.id, {}), **self.by_spark.get(source.id, {})}
        taken = taken_table(self.meta, Base(self.version), source)
        keeper = keeper_of(self.meta, Base(self.version))
        reader, repin = reader_of(statement), self.detour.repin_files
        pins = reader.revise(statement, before, taken, self.detour.skip_files, repin, keeper)
        if pins.read is not None and (part := reader.part_of(pins.read, repin)) is not None:
            zones = time_zones(self.meta, self._held_catalog)
            anew = with_reasons_for_spark(statement, Pins(part), zones).by_spark
            decided = {**{name: why for name, why in decided.items() if name not in repin}, **anew}
        return replace(pins, by_spark=decided)

    def _revise_holds(self, source: Relation) -> tuple[Hold, ...]:
        """Return a source's holds in the superseded barrier, without files that the user decided, plus the new hold."""
        begins = self.holds.get(source.id)
        decided = {*self.detour.skip_files, *self.detour.repin_files, *(() if begins is None else [begins.file])}
        kept = (h for h in source.holds if h.file not in decided)
        return (*kept, *(() if begins is None else [begins]))


@dataclass(frozen=True, slots=True)
class _PinningSkipped(Pinning):
    """Pins only the files to skip. Used if no barrier is open, because only a run can decide the other input."""

    troubles: list[InputError | SourceAwayError] = field(
        default_factory=list
    )  # errors of sources that cannot be listed

    def make_request(self, source: CreateSource, max_bytes: int | None) -> Asked:
        """See Pinning."""
        return Asked(self.interval, max_bytes, skip=self.detour.skip_files, only_skipped=True)

    def catalog_with_builds(self, catalog: Catalog, epoch: int) -> Catalog:
        """See Pinning. Running builds read nothing."""
        return AsInBarrier(self.version.catalog, self.version.catalog, epoch).advance_catalog(catalog, epoch)

    def _pin_source(self, source: Relation, max_bytes: int | None, catalog: Catalog) -> Pinned:
        """See Pinning. Removes the holds of files that the user skips or retries. A failing source stays unchanged."""
        statement, taken = statement_of(source), taken_table(self.meta, self.base, source)
        holds = tuple(h for h in source.holds if h.file not in (*self.detour.skip_files, *self.detour.repin_files))
        keeper = keeper_of(self.meta, self.base)
        try:
            asked = self.make_request(statement, max_bytes)
            return Pinned(reader_of(statement).pin(statement, taken, asked, keeper), holds)
        except (InputError, SourceAwayError) as err:
            self.troubles.append(err)
            return Pinned(Pins(), holds)

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
        held = {h.file for source in sources for h in source.holds}
        if unheld := [path for path in self.detour.repin_files if path not in held]:
            raise NothingToAbandonError(
                self.version.epoch,
                f"no barrier is open, so {unheld[0]!r} is not pinned, and the next epoch takes its content at that "
                "time; if an epoch has already taken it, --skip-file keeps its rows",
            )
        if unknown := [path for path in self.detour.skip_files if path not in unread_files]:
            if self.troubles:
                raise self.troubles[0]
            raise NothingToAbandonError(
                self.version.epoch,
                f"no barrier is open, and {unknown[0]!r} is not a file to skip: no source has a new or changed file "
                "of this name",
            )

"""Barriers: what the next epoch takes in, and the ways out when an input can't be taken. Needs no Spark."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from jobs.catalog.reader import open_table
from jobs.catalog.statement_log import replay
from jobs.driver.epoch_plan import Base
from jobs.plan.definition import Replayed, SourceDefinition, apply_statement, definition_of, find, pause_view
from jobs.sources.base import Asked, Pins
from jobs.sources.listing import Interval
from jobs.sources.registry import reader_of
from jobs.sql.statements import CreateSource, Drop
from statestore.errors import InputError
from statestore.meta.barrier import Barrier, BarrierPlan, Mutation, MutationKind
from statestore.meta.catalog import Catalog, Relation
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion, VnodeMapping
from statestore.table.storage_table import StorageTable

log = logging.getLogger(__name__)

MAX_EPOCH_BYTES = 8 << 30


class NothingToAbandonError(InputError):
    """There is no open barrier, or nothing was said that changes it."""

    def __init__(self, epoch: int, reason: str) -> None:
        super().__init__(epoch, reason)
        self.epoch, self.reason = epoch, reason

    def __str__(self) -> str:
        return f"nothing to abandon after epoch {self.epoch}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Intake:
    """What an epoch takes in: its barrier, and the log's part of it replayed, where this process did that to decide the barrier."""

    barrier: Barrier
    replayed: Replayed | None


@dataclass(frozen=True, slots=True)
class Change:
    """What a superseding barrier does differently.

    Args:
        skip_files: paths not to read; they count as taken.
        repin_files: paths to take as they are now.
        skip_entries: positions of log entries not to replay.
        drop: relations to drop, with everything that reads them.
        pause: views that take no part from here on, with the views that read them; their rows stay as they are.
        take_log: also take what the log has grown by since: a correction lands in the same epoch as the row it corrects.
    """

    skip_files: tuple[str, ...] = ()
    repin_files: tuple[str, ...] = ()
    skip_entries: tuple[int, ...] = ()
    drop: tuple[str, ...] = ()
    pause: tuple[str, ...] = ()
    take_log: bool = False

    def __bool__(self) -> bool:
        return bool(self.skip_files or self.repin_files or self.skip_entries or self.drop or self.pause or self.take_log)


def inject(
    meta: MetaStore,
    interval: Interval | None = None,
    max_epoch_bytes: int = MAX_EPOCH_BYTES,
    run: Mapping[str, str] | None = None,
    units: int | None = None,
) -> Barrier | None:
    """The barrier of `take_in`, for a process that does not run its epoch."""
    taken = take_in(meta, interval, max_epoch_bytes, run, units)
    return None if taken is None else taken.barrier


def take_in(
    meta: MetaStore,
    interval: Interval | None = None,
    max_epoch_bytes: int = MAX_EPOCH_BYTES,
    run: Mapping[str, str] | None = None,
    units: int | None = None,
) -> Intake | None:
    """Pin the log's end and the new files of every source, and put the barrier in force; an open barrier is answered as it is.

    None where nothing waits: no new file, no statement. An idle pipeline costs its listings and no commit.

    Args:
        interval: of the run; sources whose path is a template take that interval's files only.
        max_epoch_bytes: of source files in one epoch; the rest is left to later epochs.
        run: what the barrier is for, kept with it (e.g. the data interval).
        units: parallel units that epochs are to run on from this barrier on; None: as before. An open barrier keeps those it pinned.

    Raises: MissingPathError, ChangedFileError, SettingError for units that the store can't have, and errors of the object store. Nothing
        is in force then.
    Cost: one listing per source, one scan of what each has taken. No LIST in the store itself.
    """
    version = meta.latest()
    if (held := meta.barrier_after(version.epoch)) is not None:
        log.info("barrier %d after %d is open, attempt %d of %s: resumed", held.epoch, held.prev_epoch, held.attempt, held.writer)
        return Intake(held, None)
    pinning = _Pinning(meta, Base(version), Change(), interval, max_epoch_bytes, dict(run or {}))
    if not pinning.waiting():
        return None
    if units is not None and units != version.mapping.unit_count:
        pinning = replace(pinning, base=Base(meta.rescale(units)), mapping_before=version.mapping)
    barrier = meta.inject_barrier(version.epoch, pinning.plan)
    _log_barrier("injected", barrier)
    return pinning.intake(barrier)


def draft(
    meta: MetaStore,
    base: Base,
    interval: Interval | None = None,
    max_epoch_bytes: int = MAX_EPOCH_BYTES,
    run: Mapping[str, str] | None = None,
    mapping_before: VnodeMapping | None = None,
) -> Intake | None:
    """What `take_in` would take in once the epochs in flight that `base` counts are committed; nothing is written.

    None where nothing waits. `mapping_before`: of the epoch before, where `base` has another. Raises as `take_in` does.
    Cost: a probe of the log, a listing per source.
    """
    pinning = _Pinning(meta, base, Change(), interval, max_epoch_bytes, dict(run or {}), mapping_before=mapping_before)
    drafted = meta.draft_barrier(base.version, pinning.plan)
    if drafted.log_end == base.version.log_end and not drafted.splits:
        return None
    _log_barrier("drafted", drafted)
    return pinning.intake(drafted)


def _log_barrier(done: str, barrier: Barrier) -> None:
    log.info(
        "barrier %d after %d %s: %d log entries, %d files, %s %s",
        barrier.epoch,
        barrier.prev_epoch,
        done,
        barrier.log_end - barrier.log_start,
        sum(len(files) for files in barrier.splits.values()),
        barrier.mutation.kind,
        ", ".join(map(str, barrier.mutation.relations)),
    )


def abandon(meta: MetaStore, change: Change) -> Barrier:
    """Supersede the open barrier by one that goes around what can't be taken; what is not named is taken as before. Where none is open (a
    changed file stops the listing already), inject one that takes the log and counts the skipped files as taken; other files wait for
    their run. Nothing committed is touched.

    Raises: NothingToAbandonError; InputError where a name is unknown; LostRaceError where the open barrier was committed meanwhile.
    """
    version = meta.latest()
    held = meta.barrier_after(version.epoch)
    if not change:
        raise NothingToAbandonError(
            version.epoch,
            "say what to go around: a file to skip or re-pin, a log entry to skip, a view to drop or to pause, or to take the log's end",
        )
    if held is None:
        pinning = _Pinning(meta, Base(version), change, None, MAX_EPOCH_BYTES, {}, only_skipped=True)
        pinning.require_known()
        return meta.inject_barrier(version.epoch, pinning.plan)
    superseding = _Superseding(meta, version, held, change)
    superseding.require_known()
    barrier = meta.supersede_barrier(held, superseding.plan)
    log.info("barrier %d supersedes %d, attempt %d: %s", barrier.epoch, held.epoch, barrier.attempt, ", ".join(barrier.skipped))
    return barrier


@dataclass(frozen=True, slots=True)
class _Superseding:
    """Decides what takes the place of an open barrier."""

    meta: MetaStore
    version: HummockVersion
    held: Barrier
    change: Change

    def plan(self, epoch: int) -> BarrierPlan:
        version, held, change = self.version, self.held, self.change
        log_end = self.meta.log_end() if change.take_log else held.log_end
        entries = tuple(sorted({*held.skipped_entries, *change.skip_entries}))
        replayed = replay(self.meta, version, held.log_start, log_end, entries, epoch)
        catalog = _dropped(replayed.catalog, (*self._dropped_before(replayed.catalog), *change.drop), epoch)
        catalog = _paused(catalog, (*self._paused_before(catalog), *change.pause), epoch)
        sources = {after.id: self._revised(before) for before, after in self._sources(catalog)}
        return BarrierPlan(
            mapping=held.mapping,
            log_end=log_end,
            splits=_documents({r: pins.read for r, pins in sources.items()}),
            catalog=None if catalog == version.catalog else catalog,
            mutation=_mutation(version.catalog, catalog, rescaled=held.mutation.kind is MutationKind.UPDATE),
            run=held.run,
            skipped=tuple(dict.fromkeys((*held.skipped, *_change_notes(change), *_rejected(replayed)))),
            unread=_documents({r: pins.unread for r, pins in sources.items()}),
            skipped_entries=entries,
        )

    def require_known(self) -> None:
        """Every name has to be one that the barrier can go around. Raises NothingToAbandonError."""
        held, change = self.held, self.change
        pinned = sorted(name for before, _ in self._sources(self._held_catalog) for name in _names(before, held.splits.get(before.id)))
        going_around = msgspec.structs.replace(held, splits={}, unread={})
        taken = {
            name
            for before, _ in self._sources(self._held_catalog)
            for name in _names(before, self._revised(before, going_around).unread)
        }
        for name in (*change.skip_files, *change.repin_files):
            if name not in pinned and not (name in taken and name in change.skip_files):
                raise NothingToAbandonError(
                    held.prev_epoch, f"the open barrier pins no file {name!r}, and none was taken; it pins {', '.join(pinned) or 'none'}"
                )
        end = self.meta.log_end() if change.take_log else held.log_end
        for position in change.skip_entries:
            if not held.log_start <= position < end:
                raise NothingToAbandonError(
                    held.prev_epoch, f"the open barrier takes log entries {held.log_start} to {end - 1}, not {position}"
                )

    @property
    def _held_catalog(self) -> Catalog:
        return self.version.catalog if self.held.catalog is None else self.held.catalog

    def _dropped_before(self, catalog: Catalog) -> tuple[str, ...]:
        """Relations that the superseded barrier dropped by itself, not by the log: they stay dropped."""
        held = self.held
        logged = replay(self.meta, self.version, held.log_start, held.log_end, held.skipped_entries, held.epoch).catalog
        gone = {r.name for r in logged.live()} - {r.name for r in self._held_catalog.live()}
        return tuple(r.name for r in reversed(catalog.live()) if r.name in gone)  # readers first

    def _paused_before(self, catalog: Catalog) -> tuple[str, ...]:
        """Views that the superseded barrier paused, if they still exist. They are older than this barrier, so matching by id is safe."""
        paused = {r.id for r in self._held_catalog.live() if r.paused == self.held.epoch}
        return tuple(r.name for r in catalog.live() if r.id in paused)

    def _sources(self, catalog: Catalog) -> list[tuple[Relation, Relation]]:
        """Sources of the held barrier, each with what it is in `catalog`: by name, since skipping an entry moves the ids after it."""
        now = {r.name: r for r in catalog.live() if r.kind == "source"}
        then = [r for r in self._held_catalog.live() if r.kind == "source"]
        return [(r, now[r.name]) for r in then if r.name in now and _statement_of(r) == _statement_of(now[r.name])]

    def _revised(self, source: Relation, held: Barrier | None = None) -> Pins:
        """A source's pins with the change; `held` where it is not those of the barrier that is superseded."""
        barrier = self.held if held is None else held
        statement = _statement_of(source)
        before = Pins(barrier.splits.get(source.id), barrier.unread.get(source.id))
        taken = _taken_table(self.meta, Base(self.version), source)
        return reader_of(statement).revise(statement, before, taken, self.change.skip_files, self.change.repin_files)


@dataclass(frozen=True, slots=True)
class _Pinning:
    """Decides what a new barrier takes in."""

    meta: MetaStore
    base: Base
    change: Change
    interval: Interval | None
    max_epoch_bytes: int
    run: dict[str, str]
    only_skipped: bool = False  # take nothing but what is to be skipped: what else is due, only a run knows
    mapping_before: VnodeMapping | None = None  # where this barrier is the first on the version's
    pinned: dict[tuple[int, int], Pins] = field(default_factory=dict)  # by relation and room; asked for twice
    replayed: dict[int, Replayed] = field(default_factory=dict)  # by the epoch that a plan was made for

    @property
    def version(self) -> HummockVersion:
        """What the barrier follows."""
        return self.base.version

    def require_known(self) -> None:
        """A file to skip has to be one of a source's. Raises NothingToAbandonError."""
        catalog = replay(self.meta, self.version, self.version.log_end, self.meta.log_end(), (), self.version.epoch + 1).catalog
        sources = [r for r in _dropped(catalog, self.change.drop, self.version.epoch + 1).live() if r.kind == "source"]
        found = {name for source in sources for name in _names(source, self._pin(source, self.max_epoch_bytes).unread)}
        if self.change.repin_files:
            raise NothingToAbandonError(
                self.version.epoch,
                f"no barrier is open, so {self.change.repin_files[0]!r} is not pinned and the next epoch takes it as it is then; "
                "if an epoch has taken it, its rows can only be kept: --skip-file",
            )
        if unknown := [path for path in self.change.skip_files if path not in found]:
            raise NothingToAbandonError(
                self.version.epoch,
                f"no barrier is open, and {unknown[0]!r} is no source's file to skip: none that is new or has changed since it was taken",
            )

    def waiting(self) -> bool:
        """Whether there is anything to take in."""
        return self.meta.log_end() > self.version.log_end or bool(self.plan(self.version.epoch + 1).splits)

    def intake(self, barrier: Barrier) -> Intake:
        """The barrier that stands, ours or another process's, with what was replayed if it is ours."""
        return Intake(barrier, self.replayed.get(barrier.epoch) if barrier.writer == self.meta.writer else None)

    def plan(self, epoch: int) -> BarrierPlan:
        version, change = self.version, self.change
        log_end = self.meta.log_end()
        replayed = self.replayed[epoch] = replay(self.meta, version, version.log_end, log_end, change.skip_entries, epoch)
        catalog = _paused(_dropped(replayed.catalog, change.drop, epoch), change.pause, epoch)
        sources: dict[int, Pins] = {}
        left = self.max_epoch_bytes
        for relation in catalog.live():
            if relation.kind == "source":
                pins = sources[relation.id] = self._pin(relation, left)
                left = max(0, left - sum(item.nbytes for item in reader_of(_statement_of(relation)).items(pins.read)))
        return BarrierPlan(
            mapping=version.mapping,
            log_end=log_end,
            splits=_documents({r: pins.read for r, pins in sources.items()}),
            catalog=None if catalog == version.catalog else catalog,
            mutation=_mutation(version.catalog, catalog, rescaled=self.mapping_before is not None),
            run=self.run,
            skipped=(*_change_notes(change), *_rejected(replayed)),
            unread=_documents({r: pins.unread for r, pins in sources.items()}),
            skipped_entries=change.skip_entries,
        )

    def _pin(self, relation: Relation, max_bytes: int) -> Pins:
        if (found := self.pinned.get((relation.id, max_bytes))) is None:
            statement = _statement_of(relation)
            asked = Asked(self.interval, max_bytes, self.change.skip_files, self.only_skipped)
            found = reader_of(statement).pin(statement, _taken_table(self.meta, self.base, relation), asked)
            self.pinned[relation.id, max_bytes] = found
        return found


def _taken_table(meta: MetaStore, base: Base, source: Relation) -> StorageTable | None:
    """What a source has taken by the base's epoch; None where the source is newer."""
    if source.created > base.version.epoch:
        return None
    return open_table(meta.objects, base.version, source.state_tables[0], buffer=base.buffer)


def _names(source: Relation, document: msgspec.Raw | None) -> tuple[str, ...]:
    return tuple(item.name for item in reader_of(_statement_of(source)).items(document))


def _documents(found: Mapping[int, msgspec.Raw | None]) -> dict[int, msgspec.Raw]:
    return {relation: document for relation, document in found.items() if document is not None}


def _dropped(catalog: Catalog, names: Sequence[str], epoch: int) -> Catalog:
    for name in dict.fromkeys(names):
        catalog = apply_statement(catalog, Drop(find(catalog, name).kind, name, cascade=True), epoch)
    return catalog


def _paused(catalog: Catalog, names: Sequence[str], epoch: int) -> Catalog:
    for name in dict.fromkeys(names):
        if find(catalog, name, "view").paused != epoch:  # else it reads another one of them
            catalog = pause_view(catalog, name, epoch)
    return catalog


def _mutation(before: Catalog, after: Catalog, *, rescaled: bool) -> Mutation:
    live_before, live_after = {r.id for r in before.live()}, {r.id for r in after.live()}
    if added := live_after - live_before:
        return Mutation(MutationKind.ADD, tuple(sorted(added)))
    if gone := live_before - live_after:
        return Mutation(MutationKind.STOP, tuple(sorted(gone)))
    if paused := {r.id for r in after.live() if r.paused is not None} - {r.id for r in before.live() if r.paused is not None}:
        return Mutation(MutationKind.PAUSE, tuple(sorted(paused)))
    return Mutation(MutationKind.UPDATE if rescaled else MutationKind.NOTHING)


def _change_notes(change: Change) -> tuple[str, ...]:
    parts = {"skipped file": change.skip_files, "re-pinned file": change.repin_files, "dropped": change.drop, "paused": change.pause}
    notes = tuple(f"{what} {name}" for what, names in parts.items() for name in names)
    log = ("took the log as it is now",) if change.take_log else ()
    return (*notes, *(f"skipped log entry {position}" for position in change.skip_entries), *log)


def _rejected(replayed: Replayed) -> tuple[str, ...]:
    return tuple(f"log entry {position}: {why}" for position, why in replayed.rejected)


def _statement_of(source: Relation) -> CreateSource:
    definition = definition_of(source)
    assert isinstance(definition, SourceDefinition)
    return definition.statement

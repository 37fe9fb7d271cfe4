"""Barriers: decide the input of the next epoch. Needs no Spark.

supersede.py replaces a barrier whose input blocks the epoch.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
from xxhash import xxh3_64_hexdigest

from tussock.jobs.barriers.builds import BuildPacer
from tussock.jobs.barriers.columns import describe_columns, follow_columns
from tussock.jobs.barriers.detour import Detour, drop_relations
from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.barriers.moment import ALL_INPUT, UNMOVED, InputRequest, Moment, following_views, next_moment
from tussock.jobs.barriers.source_holds import hold_of, holds_for_interval, with_holds
from tussock.jobs.barriers.taken_tables import statement_of, taken_table
from tussock.jobs.catalog.alter_source import set_first_files
from tussock.jobs.catalog.apply import ReplayResult, pause_views
from tussock.jobs.catalog.move_source import moved_sources, moves_in
from tussock.jobs.catalog.statement_log import replay_log
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources.base import PinRequest, Pins, TimeZones, Together
from tussock.jobs.sources.file_options import NewColumns
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.keyed import takes_whole_deliveries
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.new_columns import new_columns_mode, refuse_new_columns
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.taken import next_number
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.in_use import on_newest
from tussock.statestore.meta.barrier import Barrier, BarrierPlan, Mutation, MutationKind
from tussock.statestore.meta.catalog import Catalog, Hold, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, VnodeMapping

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedBarrier:
    """A barrier, and the replay of its log entries if this process replayed them to decide the barrier."""

    barrier: Barrier
    replayed: ReplayResult | None


UNBOUNDED = EpochSettings(max_bytes=None)
"""The settings of an embedded session: one epoch takes all input."""


def inject_barrier(
    meta: MetaStore, request: InputRequest = ALL_INPUT, settings: EpochSettings = UNBOUNDED
) -> Barrier | None:
    """Return the barrier of `take_in`, for a process that does not run its epoch."""
    taken = take_in(meta, request, settings)
    return None if taken is None else taken.barrier


def take_in(
    meta: MetaStore, request: InputRequest = ALL_INPUT, settings: EpochSettings = UNBOUNDED
) -> PlannedBarrier | None:
    """Pin the log's end and the new files of each source, and put the barrier in force.

    Returns an open barrier unchanged. Returns None without input: no new file, no statement, and no view whose rows
    change with the moment. An idle pipeline costs its listings and no commit. A source that cannot be listed or pinned
    is held (jobs/barriers/source_holds.py); the start or end of a hold counts as input.

    Args:
        settings: `max_bytes` of source files per epoch, but at least one file of each source; later epochs take the
            rest. `units` of epochs from this barrier on; None: unchanged. An open barrier keeps its units.

    Raises: SettingError if the store cannot have this number of units; IntervalsNotRunError; errors of the object
        store. No barrier is in force then.
    Cost: one listing per source, and one scan of its taken files. No LIST in the store itself.
    """
    return on_newest(meta, lambda version: _take_in(meta, version, request, settings))


def _take_in(
    meta: MetaStore, version: HummockVersion, request: InputRequest, settings: EpochSettings
) -> PlannedBarrier | None:
    if (open_barrier := meta.barrier_after(version.epoch)) is not None:
        log.info(
            "barrier %d after %d is open, attempt %d of %s: resumed",
            open_barrier.epoch,
            open_barrier.prev_epoch,
            open_barrier.attempt,
            open_barrier.writer,
        )
        return PlannedBarrier(open_barrier, None)
    _follow_moves(meta, version)
    follow_columns(meta, Base(version), request.interval)
    pinning = _make_pinning(meta, Base(version), request, settings)
    if not pinning.has_input():
        return None
    if settings.units is not None and settings.units != version.mapping.unit_count:
        pinning = replace(pinning, base=Base(meta.rescale(settings.units)), mapping_before=version.mapping)
    barrier = meta.inject_barrier(version.epoch, pinning.plan_barrier)
    _log_barrier("injected", barrier)
    return pinning.intake_of(barrier)


def _follow_moves(meta: MetaStore, version: HummockVersion) -> None:
    """Log the moves of sources whose folder moved with the store. Cost: as `moved_sources`."""
    for move in moved_sources(version.catalog, meta.objects):
        log.warning("source %s: the folder %s is now %s; its files stay taken", move.name, move.was, move.base)
        # Another process may log it too. Only the first entry has an effect.
        place = xxh3_64_hexdigest(f"{move.name}\0{move.was}\0{move.base}".encode())
        meta.append_log(f"moved/{version.epoch}/{place}", msgspec.json.encode(move))


def take_log_instead(meta: MetaStore, barrier: Barrier, request: InputRequest) -> Barrier:
    """Supersede an open barrier of a following branch with one that takes all waiting statements, and no other input.

    Raises LostRaceError if the barrier was committed or superseded meanwhile.
    """
    pinning = _make_pinning(meta, Base(meta.read_latest()), request, UNBOUNDED)
    pinning = replace(pinning, detour=Detour(skip_entries=barrier.skipped_entries))
    superseding = meta.supersede_barrier(barrier, pinning.plan_barrier)
    _log_barrier("injected", superseding)
    return superseding


def draft_barrier(
    meta: MetaStore,
    base: Base,
    request: InputRequest = ALL_INPUT,
    settings: EpochSettings = UNBOUNDED,
    mapping_before: VnodeMapping | None = None,
) -> PlannedBarrier | None:
    """Return what `take_in` will take after the epochs in flight in `base` are committed. Writes nothing.

    None without input. `mapping_before`: the mapping of the previous epoch, if `base` has another. Raises as `take_in`.
    Cost: a probe of the log, a listing per source.
    """
    _follow_moves(meta, base.version)  # the run may have begun with a barrier that was open at the move
    follow_columns(meta, base, request.interval)
    pinning = replace(_make_pinning(meta, base, request, settings), mapping_before=mapping_before)
    drafted = meta.draft_barrier(base.version, pinning.plan_barrier)
    if (
        drafted.log_end == base.version.log_end
        and not drafted.splits
        and drafted.catalog is None
        and not pinning.moves_rows()
    ):
        return None
    _log_barrier("drafted", drafted)
    return pinning.intake_of(drafted)


def _make_pinning(meta: MetaStore, base: Base, request: InputRequest, settings: EpochSettings) -> "BarrierPinner":
    moment = next_moment(base.version, request, meta.moment_now())
    return BarrierPinner(
        meta, base, Detour(), request.interval, settings.max_bytes, dict(request.run), moment, resting=request.resting
    )


def _log_barrier(done: str, barrier: Barrier) -> None:
    log.info(
        "barrier %d after %d %s: %d log entries, input of %d sources, %s %s",
        barrier.epoch,
        barrier.prev_epoch,
        done,
        barrier.log_end - barrier.log_start,
        len(barrier.splits),
        barrier.mutation.kind,
        ", ".join(map(str, barrier.mutation.relations)),
    )


@dataclass(frozen=True, slots=True)
class BarrierPinner:
    """Decides the input of a new barrier."""

    meta: MetaStore
    base: Base
    detour: Detour
    interval: Interval | None
    max_epoch_bytes: int | None  # None: no limit
    run: dict[str, str]
    moment: Moment = UNMOVED
    mapping_before: VnodeMapping | None = None  # set if this barrier is the first on the version's mapping
    resting: frozenset[str] = frozenset()
    # By relation and byte limit: `plan_barrier` runs twice, and lists no source again.
    pinned: dict[tuple[int, int | None], "PinnedSource"] = field(default_factory=dict)
    replayed: dict[int, ReplayResult] = field(default_factory=dict)  # by the epoch of the plan
    shared: dict[object, object] = field(default_factory=dict)  # see PinRequest

    @property
    def version(self) -> HummockVersion:
        """The version before the barrier."""
        return self.base.version

    def make_request(self, source: CreateSource, max_bytes: int | None) -> PinRequest:
        """Return the request to a source's reader. An epoch takes one delivery of a whole source, undivided."""
        if takes_whole_deliveries(source):
            return PinRequest(self.interval, skip=self.detour.skip_files)
        return PinRequest(self.interval, max_bytes, epoch_bytes=self.max_epoch_bytes, skip=self.detour.skip_files)

    def has_input(self) -> bool:
        """Return whether there is input.

        The barrier that is written decides the epoch's number. This plan is only a test, with a provisional number.
        """
        if self.meta.log_end() > self.version.log_end or self.moves_rows():
            return True
        plan = self.plan_barrier(self.version.epoch + 1)
        late = any(one.pins.late for one in self.pinned.values())  # users are told of them without delay
        return bool(plan.splits) or plan.catalog is not None or late

    def moves_rows(self) -> bool:
        """Return whether the moment differs from the previous epoch's, and rows of a view change with it."""
        version = self.version
        return self.moment.at > version.moment and bool(following_views(version.catalog))

    def intake_of(self, barrier: Barrier) -> PlannedBarrier:
        """Return the barrier in force, of this or another process, with the replay if it is this one's."""
        return PlannedBarrier(barrier, self.replayed.get(barrier.epoch) if barrier.writer == self.meta.writer else None)

    def plan_barrier(self, epoch: int) -> BarrierPlan:
        version, detour = self.version, self.detour
        log_end = self.meta.log_end()
        replayed = self.replayed[epoch] = replay_log(
            self.meta, version, version.log_end, log_end, detour.skip_entries, epoch
        )
        catalog = with_first_files(self.meta, self.base, replayed.catalog)
        catalog = pause_views(drop_relations(catalog, detour.drop, epoch), dict.fromkeys(detour.pause, ""), epoch)
        sources: dict[int, Pins] = {}
        holds: dict[int, tuple[Hold, ...]] = {}
        left = self.max_epoch_bytes
        for relation in catalog.live_relations():
            if relation.kind is RelationKind.SOURCE:
                pinned = self.pin_source(relation, left, catalog)
                pins = sources[relation.id] = pinned.pins
                holds[relation.id] = pinned.holds
                if left is not None:
                    items = reader_of(statement_of(relation)).items(pins.read)
                    left = max(0, left - sum(item.cost or item.nbytes for item in items))
        catalog = self.catalog_with_builds(with_holds(catalog, holds, epoch), epoch)
        return BarrierPlan(
            mapping=version.mapping,
            log_end=log_end,
            splits=drop_missing_documents({r: pins.read for r, pins in sources.items()}),
            catalog=None if catalog == version.catalog else catalog,
            mutation=mutation_of(version.catalog, catalog, rescaled=self.mapping_before is not None),
            run=self.run,
            skipped=(
                *detour.describe_changes(),
                *describe_rejected(replayed),
                *late_deliveries(catalog, sources),
            ),
            columns=describe_columns(version.catalog, catalog),
            unread=drop_missing_documents({r: pins.unread for r, pins in sources.items()}),
            skipped_entries=detour.skip_entries,
            moment=self.moment.at,
            by_intervals=self.moment.by_intervals,
            passed_over=self.moment.passed_over,
            by_spark={r: dict(pins.by_spark) for r, pins in sources.items() if pins.by_spark},
        )

    def catalog_with_builds(self, catalog: Catalog, epoch: int) -> Catalog:
        """Return the catalog with the progress of builds after this epoch.

        A following branch takes the progress of its parent's builds with the rows that its parent has read.
        """
        if self.meta.follows:
            return catalog
        return BuildPacer(self.meta, self.base, self.max_epoch_bytes).advance_catalog(catalog, epoch)

    def pin_source(self, source: Relation, max_bytes: int | None, catalog: Catalog) -> "PinnedSource":
        """Return the pins of a source, with the reader of each file; a failing source is held."""
        if (pinned := self.pinned.get((source.id, max_bytes))) is None:
            pinned = self._pin_source(source, max_bytes, catalog)
            pins = with_reasons_for_spark(statement_of(source), pinned.pins, time_zones(self.meta, catalog))
            pinned = self.pinned[source.id, max_bytes] = replace(pinned, pins=pins)
        return pinned

    def sources_of_format(self, source: Relation, catalog: Catalog) -> Together:
        """Return how a reader finds the sources of the same format."""
        kind = statement_of(source).format
        return lambda: [
            (statement_of(other), taken_table(self.meta, self.base, other))
            for other in catalog.live_relations()
            if other.kind is RelationKind.SOURCE and statement_of(other).format == kind
        ]

    def _pin_source(self, source: Relation, max_bytes: int | None, catalog: Catalog) -> "PinnedSource":
        statement, taken = statement_of(source), taken_table(self.meta, self.base, source)
        if source.name in self.resting or self.meta.follows:  # the input of a following branch is its parent's
            return PinnedSource(Pins(), source.holds)
        if moves_in(relation_in(self.version.catalog, source.id), source):
            return PinnedSource(Pins(), source.holds)  # the table of taken files still has the earlier names
        reader, wanted = reader_of(statement), holds_for_interval(source, self.interval)
        others = tuple(h for h in source.holds if h not in wanted)  # holds of files that this run does not request
        try:
            if marked := [h for h in wanted if h.mark]:
                there = {(item.name, item.mark) for item in reader.waiting(statement, taken, self.interval)}
                if still := [h for h in marked if (h.file, h.mark) in there]:
                    log.warning("source %s stays held: %s", source.name, "; ".join(h.reason for h in still))
                    return PinnedSource(Pins(), (*others, *still))
            if new_columns_mode(statement) is NewColumns.HOLD:
                refuse_new_columns(statement, reader.waiting(statement, taken, self.interval))
            request = replace(
                self.make_request(statement, max_bytes),
                sources_of_format=self.sources_of_format(source, catalog),
                shared=self.shared,
            )
            return PinnedSource(reader.pin(statement, taken, request, keeper_of(self.meta, self.base)), others)
        except (InputError, SourceAwayError) as err:
            hold = hold_of(err, wanted)
            log.warning("source %s is held: %s", source.name, hold.reason)
            return PinnedSource(Pins(), (*others, hold))


@dataclass(frozen=True, slots=True)
class PinnedSource:
    """The pins and the holds of a source in a barrier."""

    pins: Pins
    holds: tuple[Hold, ...] = ()


def time_zones(meta: MetaStore, catalog: Catalog) -> TimeZones:
    """Return the time zones by which files are read."""
    return TimeZones(catalog.resolve_zone(meta.settings.time_zone), catalog.resolve_zone)


def with_reasons_for_spark(source: CreateSource, pins: Pins, zones: TimeZones) -> Pins:
    """Return the pins with the files of the epoch that Spark reads. Cost: see `reasons_for_spark`."""
    if pins.read is None or (engine := reader_of(source).engine) is None:
        return pins
    try:
        reasons = engine.reasons_for_spark(source, pins.read, zones)
    except (InputError, SourceAwayError):  # its reader meets the error again, where it holds the source
        return pins
    return replace(pins, by_spark={**pins.by_spark, **reasons})


def keeper_of(meta: MetaStore, base: Base) -> Keeper:
    """Return the keeper of files for the epoch after the base."""
    is_followed = any(branch.follows for branch in base.version.branches)
    return Keeper(meta.objects, base.version.epoch, is_followed)


def with_first_files(meta: MetaStore, base: Base, catalog: Catalog) -> Catalog:
    """Return the catalog with the first file numbers of changed sources.

    An altered source has its new columns from that file on.
    """

    def next_of(source: Relation) -> int:
        return next_number(taken_table(meta, base, source), statement_of(source).first_number)

    return set_first_files(catalog, next_of)


def relation_in(catalog: Catalog, relation_id: int) -> Relation | None:
    """Return a live relation by its id."""
    return next((r for r in catalog.live_relations() if r.id == relation_id), None)


def names_of(source: Relation, document: msgspec.Raw | None) -> tuple[str, ...]:
    return tuple(item.name for item in reader_of(statement_of(source)).items(document))


def drop_missing_documents(documents: Mapping[int, msgspec.Raw | None]) -> dict[int, msgspec.Raw]:
    return {relation: document for relation, document in documents.items() if document is not None}


def mutation_of(before: Catalog, after: Catalog, *, rescaled: bool) -> Mutation:
    live_before, live_after = {r.id for r in before.live_relations()}, {r.id for r in after.live_relations()}
    if added := live_after - live_before:
        return Mutation(MutationKind.ADD, tuple(sorted(added)))
    if gone := live_before - live_after:
        return Mutation(MutationKind.STOP, tuple(sorted(gone)))
    if after.builds != before.builds and after.builds:
        return Mutation(MutationKind.BUILD, tuple(r.id for build in after.builds for r in build.relations))
    if paused := {r.id for r in after.live_relations() if r.paused is not None} - {
        r.id for r in before.live_relations() if r.paused is not None
    }:
        return Mutation(MutationKind.PAUSE, tuple(sorted(paused)))
    return Mutation(MutationKind.UPDATE if rescaled else MutationKind.NOTHING)


def describe_rejected(replayed: ReplayResult) -> tuple[str, ...]:
    return tuple(f"log entry {position}: {why}" for position, why in replayed.rejected)


def late_deliveries(catalog: Catalog, pins: Mapping[int, Pins]) -> tuple[str, ...]:
    """Describe the deliveries that count as taken without being read."""
    names = {relation.id: relation.name for relation in catalog.live_relations()}
    return tuple(f"source {names[r]}: {note}" for r, one in pins.items() for note in one.late)

"""Superseding a barrier whose input blocks the epoch. Needs no Spark."""

import logging
from collections.abc import Collection, Mapping

import msgspec

from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.barriers.source_holds import hold_of
from tussock.jobs.barriers.taken_tables import statement_of
from tussock.jobs.catalog.apply import CannotPauseError
from tussock.jobs.catalog.statement_log import statement_text, statements_of
from tussock.jobs.chunks.failure import SourceAwayError, SourceFileError
from tussock.jobs.logical.statements import computed_after
from tussock.jobs.sources.errors import OnlySparkReadsError
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.statements.statement_writer import require_own_input
from tussock.jobs.trouble.detour_errors import NothingToAbandonError, ReadEntryError
from tussock.jobs.trouble.superseding import SkippedPinning, SupersedingPlan
from tussock.statestore.errors import InputError
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)


def require_readers_skipped(
    meta: MetaStore, start: int, skipped: Collection[int], open_barrier: Barrier | None, *, done: bool = False
) -> None:
    """Raise ReadEntryError if an entry of the log was computed from the result of a skipped one and is not skipped.

    Args:
        start: the end of the log of the committed epoch.
        done: it skips them already.

    Cost: a read per entry of the log from `start` on.
    """
    gone, readers = set(skipped), list[tuple[int, str]]()
    for position, statement in statements_of(meta, start, meta.log_end()):
        if position not in gone and computed_after(statement) & gone:
            gone.add(position)
            readers.append((position, statement_text(statement)))
    if readers:
        take_log = open_barrier is not None and any(position >= open_barrier.log_end for position in gone)
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
    open_barrier = meta.barrier_after(version.epoch)
    if open_barrier is not None and open_barrier.follows:
        require_own_input(meta, f"a detour of epoch {open_barrier.epoch}, whose input is the parent's")
    if detour.skip_entries:
        before = () if open_barrier is None else open_barrier.skipped_entries
        require_readers_skipped(meta, version.log_end, {*before, *detour.skip_entries}, open_barrier)
    if not detour:
        raise NothingToAbandonError(
            version.epoch,
            "name a file to skip or re-pin, a log entry to skip, or a view to drop or pause, or take the newer log "
            "entries",
        )
    if open_barrier is None:
        pinning = SkippedPinning(meta, Base(version), detour, interval=None, max_epoch_bytes=None, run=dict(run or {}))
        pinning.require_known()
        barrier = meta.inject_barrier(version.epoch, pinning.plan_barrier)
    else:
        superseding = SupersedingPlan(meta, version, open_barrier, detour)
        superseding.require_known()
        barrier = meta.supersede_barrier(open_barrier, superseding.plan_barrier)
        log.info(
            "barrier %d supersedes %d, attempt %d: %s",
            barrier.epoch,
            open_barrier.epoch,
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
    if (barrier := _still_open(meta, version, failed)) is None:
        return error.source
    suspects = {name.lower() for name in (*getattr(error, "sources", ()), error.source)}
    for source in (barrier.catalog or version.catalog).live_relations():
        if source.kind is RelationKind.SOURCE and source.name in suspects:
            for item in reader_of(statement_of(source)).items(barrier.splits.get(source.id)):
                if error.path in ("", item.name) and not item.goes:
                    mark = "" if isinstance(error, SourceAwayError) else item.mark
                    hold = msgspec.structs.replace(hold_of(error), file=item.name, mark=mark)
                    meta.supersede_barrier(
                        barrier, SupersedingPlan(meta, version, barrier, Detour(), {source.id: hold}).plan_barrier
                    )
                    log.warning("source %s is held: %s", source.name, hold.reason)
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


def _still_open(meta: MetaStore, version: HummockVersion, failed: Barrier) -> Barrier | None:
    """Return the open barrier if it is the failed one, in whatever attempt; else None."""
    barrier = meta.barrier_after(version.epoch)
    return None if barrier is None or barrier.epoch != failed.epoch else barrier


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
    if (barrier := _still_open(meta, version, failed)) is None:
        return False
    superseding = SupersedingPlan(
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
    if (barrier := _still_open(meta, version, failed)) is None:
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
    superseding = SupersedingPlan(meta, version, barrier, Detour(repin_files=tuple(repin)), gone=gone)
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

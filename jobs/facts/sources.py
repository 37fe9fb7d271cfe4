"""The sources: their taken input, their waiting input, and the reasons of holds."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
import pyarrow.compute as pc

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.move_source import move_source, moved_sources
from tussock.jobs.executors.late_changes import LATE_CHANGES
from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.quality.arrival import LateFiles, late_files
from tussock.jobs.reading.reader import open_table
from tussock.jobs.reading.rejected import count_rejects
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.sources.describe import place_text
from tussock.jobs.sources.errors import ChangedFileError
from tussock.jobs.sources.keyed import is_log
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.postgres import slot_lag
from tussock.jobs.sources.postgres_slot import SlotState
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import rejects_name
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.catalog import Hold, Relation
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.table.storage_table import StorageTable


class HoldFacts(msgspec.Struct, frozen=True):
    """Why new files of a source wait."""

    since: int  # the first epoch that ran without them
    at: datetime  # of that epoch
    reason: str
    file: str  # the faulty file; empty: the whole source


class SourceFacts(msgspec.Struct, frozen=True):
    """One source: its taken input, and its waiting input of all intervals."""

    source: str
    format: str
    path: str
    taken_files: int
    taken_bytes: int
    waiting_files: int
    waiting_bytes: int
    # When the oldest waiting input was last written; None: nothing waits, or its system has no such time.
    oldest: datetime | None
    trouble: str  # why the source could not be listed; empty if it was listed
    held: tuple[HoldFacts, ...] = ()
    rejects: int | None = None  # unreadable records in the source's table of rejects; None if it has no such table
    changed: bool = False  # `trouble` is that a taken file has changed
    read_by: str = "the engine"  # who reads its files: `Spark (reason)`, or the engine and Spark
    by_spark_files: int = 0  # taken files that Spark reads although the engine reads others
    late_changes: int | None = None  # changes that were older than the row of their key; None: the source has no key
    # Bytes of log that a Postgres server keeps for the source's slot, and may keep further; None: no slot, or no limit.
    log_bytes: int | None = None
    log_bytes_left: int | None = None
    late: tuple[LateFiles, ...] = ()  # waiting files of intervals that have run; none if the source is held


def list_sources(
    meta: MetaStore, version: HummockVersion | None = None, ended: Sequence[Interval] = ()
) -> tuple[SourceFacts, ...]:
    """Return the sources, in order of creation.

    Args:
        version: a version that was already read; None: the newest.
        ended: intervals whose runs have ended, to find late files.

    Cost: per source, one listing and one comparison with its taken files, and `late_files`. Also a scan of its
    rejects if an epoch did not count them.
    """
    version = meta.read_latest() if version is None else version
    rejects, catalog, moved = _count_rejects(meta, version), version.catalog, set[str]()
    for move in moved_sources(catalog, meta.objects):
        catalog = move_source(catalog, move)
        moved.add(move.name)
    relations = ((relation, source_of(relation)) for relation in catalog.live_relations())
    both = ((relation, statement) for relation, statement in relations if statement is not None)
    return tuple(
        _source_facts(meta, version, relation, statement, rejects.get(relation.name), relation.name in moved, ended)
        for relation, statement in both
    )


def _count_rejects(meta: MetaStore, version: HummockVersion) -> dict[str, int]:
    tables = {r.name: r.id for r in version.catalog.live_relations()}
    named = {
        r.name: tables.get(rejects_name(r.name)) for r in version.catalog.live_relations() if source_of(r) is not None
    }
    known = {
        source: version.rows[table] for source, table in named.items() if table is not None and table in version.rows
    }
    return (
        known
        if len(known) == sum(table is not None for table in named.values())
        else count_rejects(meta.objects, version)
    )


def _source_facts(
    meta: MetaStore,
    version: HummockVersion,
    relation: Relation,
    statement: CreateSource,
    rejects: int | None,
    moved: bool,
    ended: Sequence[Interval],
) -> SourceFacts:
    """Return the facts of one source. `moved`: its folder moved since the last epoch, which still has the old names."""
    reader, table = reader_of(statement), open_table(meta.objects, version, relation.state_tables[0])
    (taken_files, taken_bytes), trouble, changed = reader.taken_total(table), "", False
    slot: SlotState | None = None
    try:
        slot = slot_lag(statement, table).state if is_log(statement) else None
        waiting = () if moved else reader.waiting(statement, table)
    except (InputError, RetryableError) as err:
        waiting, trouble, changed = (), without_secrets(str(err)), isinstance(err, ChangedFileError)
    written = [item.modified_ms for item in waiting if item.modified_ms]
    return SourceFacts(
        relation.name,
        statement.format,
        place_text(statement),
        taken_files,
        taken_bytes,
        len(waiting),
        sum(item.nbytes for item in waiting),
        time_of_ms(min(written)) if written else None,
        trouble,
        tuple(map(_hold_facts, relation.holds)),
        rejects,
        changed,
        *_read_by(statement, table),
        _count_late(meta, version, relation),
        None if slot is None else slot.held_bytes,
        None if slot is None else slot.safe_bytes,
        () if relation.holds else tuple(late_files(statement, [item.name for item in waiting], ended)),
    )


def _count_late(meta: MetaStore, version: HummockVersion, relation: Relation) -> int | None:
    """Return the dropped changes of a keyed source. Cost: a scan of one row per vnode."""
    counts = next((t for t in relation.state_tables if t.name == LATE_CHANGES), None)
    if counts is None:
        return None
    return sum(pc.sum(rows.column(1)).as_py() or 0 for rows in open_table(meta.objects, version, counts).scan())


def _read_by(source: CreateSource, taken: StorageTable) -> tuple[str, int]:
    """Return who reads a source's files, and the number of taken files that Spark reads beside the engine.

    Cost: a scan of two narrow columns.
    """
    reader = reader_of(source)
    if reader.engine is None:
        return f"Spark (the format {source.format})", 0
    if (why := reader.engine.find_reason_for_spark(source)) is not None:
        return f"Spark ({why})", 0
    count, why = reader.taken_by_spark(taken)
    files = "1 file" if count == 1 else f"{count:,} files, of which the last one"
    return (f"the engine, and Spark {files} ({why})" if count else "the engine"), count


def _hold_facts(hold: Hold) -> HoldFacts:
    return HoldFacts(hold.since, epoch_moment(hold.since), hold.reason, hold.file)

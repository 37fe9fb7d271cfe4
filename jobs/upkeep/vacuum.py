"""Retention and vacuum of a store.

First the floor rises to what retention keeps, pins whose lease is over go, and compaction tasks whose compactor is gone are closed; then
what nobody can read or commit any more is removed. Safe while epochs, compactions, readers and other vacuums run, and to stop anywhere.
"""

from dataclasses import dataclass

from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.source_copies import copies_of_no_use
from tussock.statestore.hummock.vacuum import Garbage, VacuumReport, vacuum
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.progress import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What one run did."""

    floor: int  # the oldest epoch that a reader may name now
    closed_tasks: tuple[int, ...]  # compaction tasks whose lease was over
    vacuumed: VacuumReport
    copies: tuple[Garbage, ...]  # of sources' files
    temporary: tuple[ObjectInfo, ...]  # files that killed processes left in a local store


def clean(
    meta: MetaStore, retention: Retention, *, dry_run: bool = False, progress: Progress = no_progress
) -> Cleaning:
    """Apply retention and vacuum the store.

    Args:
        dry_run: change nothing; what is found is what could go with the floor where it is.

    Raises: SettingError for a retention that keeps nothing; errors of the object store. Run again, it goes on.
    """
    closed = () if dry_run else apply_retention(meta, retention)
    return sweep(meta, closed, dry_run=dry_run, progress=progress)


def apply_retention(meta: MetaStore, retention: Retention) -> tuple[int, ...]:
    """Close compaction tasks whose compactor is gone, and raise the floor to what retention keeps. Returns the ids of those tasks.

    Raises: SettingError for a retention that keeps nothing.
    """
    closed = meta.close_lapsed_compactions()
    meta.retain(retention.keep_epochs, retention.keep_ms)
    return closed


def sweep(
    meta: MetaStore, closed: tuple[int, ...] = (), *, dry_run: bool = False, progress: Progress = no_progress
) -> Cleaning:
    """Remove what is of no use with the floor where it is. `closed`: tasks that were closed before, for the report."""
    report = vacuum(meta, dry_run=dry_run, progress=progress)
    copies = tuple(copies_of_no_use(meta))
    if not dry_run:
        meta.objects.delete([found.name for found in copies])
    temporary = meta.objects.sweep_temporary(dry_run=dry_run) if isinstance(meta.objects, LocalObjectStore) else ()
    return Cleaning(meta.latest().min_readable_epoch, closed, report, copies, temporary)

"""Retention and vacuum of a store.

First, the floor rises to the retention, expired pins are removed, and compaction tasks of dead compactors are closed.
Then objects that no reader can read and no writer can commit are removed. Safe with concurrent epochs, compactions,
readers and other vacuums, and safe to stop at any point.
"""

from dataclasses import dataclass

from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.source_copies import copies_of_no_use
from tussock.statestore.hummock.vacuum import Garbage, VacuumReport, vacuum_store
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.progress import Progress, no_progress


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """The result of one run."""

    floor: int  # the oldest epoch that a reader may now request
    closed_tasks: tuple[int, ...]  # compaction tasks with an expired lease
    vacuumed: VacuumReport
    copies: tuple[Garbage, ...]  # copies of source files
    temporary: tuple[ObjectInfo, ...]  # files that killed processes left in a local store


def clean_store(
    meta: MetaStore, retention: Retention, *, dry_run: bool = False, progress: Progress = no_progress
) -> VacuumResult:
    """Apply retention and vacuum the store.

    Args:
        dry_run: change nothing; the result lists the objects that are removable with the current floor.

    Raises: SettingError if the retention would keep nothing; errors of the object store. A repeated run continues.
    """
    closed = () if dry_run else apply_retention(meta, retention)
    return sweep_store(meta, closed, dry_run=dry_run, progress=progress)


def apply_retention(meta: MetaStore, retention: Retention) -> tuple[int, ...]:
    """Close compaction tasks of dead compactors, end branches whose age has come, and raise the floor.

    Returns the ids of these tasks.

    Raises: SettingError if the retention would keep nothing.
    """
    closed = meta.close_lapsed_compactions()
    meta.end_lapsed_branches()
    meta.apply_retention(retention.keep_epochs, retention.keep_ms)
    return closed


def sweep_store(
    meta: MetaStore, closed: tuple[int, ...] = (), *, dry_run: bool = False, progress: Progress = no_progress
) -> VacuumResult:
    """Remove unreferenced objects with the current floor. `closed`: tasks that were closed before, for the report."""
    report = vacuum_store(meta, dry_run=dry_run, progress=progress)
    copies = tuple(copies_of_no_use(meta))
    if not dry_run:
        meta.objects.delete([source_copy.name for source_copy in copies])
    temporary = meta.objects.sweep_temporary(dry_run=dry_run) if isinstance(meta.objects, LocalObjectStore) else ()
    return VacuumResult(meta.read_latest().min_readable_epoch, closed, report, copies, temporary)

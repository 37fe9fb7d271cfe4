"""Retention and vacuum of a store.

First the floor rises to what retention keeps, pins whose lease is over go, and compaction tasks whose compactor is gone are closed; then
what nobody can read or commit any more is removed. Safe while epochs, compactions, readers and other vacuums run, and to stop anywhere.
"""

import argparse
import sys
from dataclasses import dataclass

from tussock.jobs.settings.retention import Retention, duration_ms
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


def clean(meta: MetaStore, retention: Retention, *, dry_run: bool = False, progress: Progress = no_progress) -> Cleaning:
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


def sweep(meta: MetaStore, closed: tuple[int, ...] = (), *, dry_run: bool = False, progress: Progress = no_progress) -> Cleaning:
    """Remove what is of no use with the floor where it is. `closed`: tasks that were closed before, for the report."""
    report = vacuum(meta, dry_run=dry_run, progress=progress)
    copies = tuple(copies_of_no_use(meta))
    if not dry_run:
        meta.objects.delete([found.name for found in copies])
    temporary = meta.objects.sweep_temporary(dry_run=dry_run) if isinstance(meta.objects, LocalObjectStore) else ()
    return Cleaning(meta.latest().min_readable_epoch, closed, report, copies, temporary)


def show_cleaning(done: Cleaning, *, names: bool) -> str:
    """What a run did, as text; with `names`, a line for each object."""
    report = done.vacuumed
    garbage = (*report.garbage, *done.copies)
    lines = [f"{found.size:>12,}  {found.name}  {found.reason}" for found in garbage] if names else []
    lines += [f"{found.size:>12,}  {found.name}  left by a killed process" for found in done.temporary] if names else []
    if done.closed_tasks:
        lines.append(f"closed compaction tasks {', '.join(map(str, done.closed_tasks))}: their leases were over")
    lines += [f"left alone: {name}, whose name is none that this store gives" for name in report.unknown]
    sizes = [*(found.size for found in garbage), *(found.size for found in done.temporary)]
    count, size = len(sizes), sum(sizes)
    pending = f", {report.pending_objects:,} of them not committed yet" if report.pending_objects else ""
    lines.append(f"{'removed' if report.removed else 'could remove'} {count:,} objects, {size:,} bytes")
    lines.append(f"data/ holds {report.kept_objects:,} objects in use, {report.kept_bytes:,} bytes{pending}")
    lines.append(f"the oldest readable epoch is {done.floor}")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `tussock vacuum` and this module share."""
    keep = "every moment of so long ago stays readable, such as 36h or 7d (default: the pipeline's, or 1d)"
    parser.add_argument("--keep", metavar="SPAN", help=keep)
    parser.add_argument("--keep-epochs", type=int, metavar="N", help="and the last N published epochs (default: the pipeline's, or 1)")
    parser.add_argument("--dry-run", action="store_true", help="only list what could go, with reasons and sizes")


def run_vacuum(meta: MetaStore, chosen: argparse.Namespace, usual: Retention) -> None:
    """`tussock vacuum`. `usual`: what the options, where they are left out, stand for."""
    retention = Retention(
        usual.keep_epochs if chosen.keep_epochs is None else chosen.keep_epochs,
        usual.keep_ms if chosen.keep is None else duration_ms(chosen.keep),
    )
    done = clean(meta, retention, dry_run=chosen.dry_run, progress=lambda line: print(line, file=sys.stderr, flush=True))
    print(show_cleaning(done, names=chosen.dry_run))

"""Vacuum: removes objects that nobody reads and that nobody can commit any more. It needs no clock.

Who may still commit an object is in its name (names.py):
    data/<epoch>/…     that epoch's manifest alone, and only while an older epoch is the committed one
    data/task-<id>/…   that compaction task's commit alone, and only until the task is closed
So once the log is past that, an object which the newest version does not name will never be named by one. That stays so, hence vacuum
may be killed anywhere, run twice at once, or work from a version that is no longer the newest.

What readers may still fetch though the newest version does not name it:
    the SSTs of a version that a pin names (the newest version is looked up before pins are listed; see meta/pin.py);
    all of epochs after the one that a train of epochs has pinned: it reads them from before they are committed until it moves on;
    what compactions took out since the committed epoch, while a barrier stands on that epoch: its run reads some version in between.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from tussock.statestore.meta.names import DATA, MANIFESTS, SNAPSHOTS, number_in, origin_of
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.meta.version_log import SNAPSHOT_EVERY
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.progress import Progress, no_progress

log = logging.getLogger(__name__)

_BATCH = 1000  # names a delete request takes
RECENT_SNAPSHOTS = 8  # that stay, the newest ones
SPARSE_SNAPSHOTS = (
    64 * SNAPSHOT_EVERY
)  # older ones stay at multiples of this, so that any past version replays at most so many deltas


@dataclass(frozen=True, slots=True)
class Garbage:
    """One object that may go."""

    name: str
    size: int  # bytes
    reason: str


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum found, and whether it has removed it."""

    version: int  # that it judged by
    garbage: tuple[Garbage, ...]
    removed: bool
    kept_objects: int  # below data/
    kept_bytes: int
    pending_objects: int  # of those kept: named by no version, but their epoch or task may still commit them
    unknown: tuple[str, ...]  # below data/ and named as nothing of this release is: left alone


def vacuum(meta: MetaStore, *, dry_run: bool = False, progress: Progress = no_progress) -> VacuumReport:
    """Remove what no reader can need and nobody can commit.

    Raise the floor first (`MetaStore.retain`) and let compaction drop what is below it, or little will be found.

    Args:
        dry_run: only look.
        progress: called with a line now and then.

    Raises: errors of the object store. What was not removed then is found again by the next vacuum.

    Cost: lists data/, manifests, snapshots and pins; one DELETE per 1,000 objects that go. Memory: the names of what goes.
    """
    version = meta.latest()
    in_use = _in_use(meta, version)
    names = frozenset[str]().union(*in_use.ssts)
    garbage: list[Garbage] = []
    unknown: list[str] = []
    kept = kept_bytes = pending = 0
    for count, found in enumerate(meta.objects.list(DATA), 1):
        if count % 100_000 == 0:
            progress(f"{count:,} objects looked at, {len(garbage):,} to go")
        reason = None if found.name in names else _why_gone(version, found.name, in_use.onward)
        if reason:
            garbage.append(Garbage(found.name, found.size, reason))
            continue
        kept, kept_bytes = kept + 1, kept_bytes + found.size
        if origin_of(found.name) is None:
            unknown.append(found.name)
        elif found.name not in names:
            pending += 1
    garbage += _old_manifests(meta, version)
    garbage += _old_snapshots(meta, version, in_use.versions)
    if not dry_run:
        for start in range(0, len(garbage), _BATCH):
            meta.objects.delete([found.name for found in garbage[start : start + _BATCH]])
            progress(f"{min(start + _BATCH, len(garbage)):,} of {len(garbage):,} objects removed")
    log.info(
        "vacuum at version %d: %d objects %s, %d kept",
        version.id,
        len(garbage),
        "found" if dry_run else "removed",
        kept,
    )
    return VacuumReport(version.id, tuple(garbage), not dry_run, kept, kept_bytes, pending, tuple(unknown))


@dataclass(frozen=True, slots=True)
class _InUse:
    ssts: list[set[str]]
    versions: frozenset[int]  # that pins name
    onward: int | None  # objects of later epochs than this stay


def _in_use(meta: MetaStore, version: HummockVersion) -> _InUse:
    """Names that readers may fetch. Requires: `version` was looked up before."""
    pins = meta.pins()
    pinned = frozenset(pin.version for pin in pins)
    ssts = [_named_by(version), *(_named_by(meta.version(i)) for i in sorted(pinned) if i != version.id)]
    # A barrier injected after this look is run on a version that is looked up later still, so on none that names what is gone.
    if version.retired and meta.barrier_after(version.epoch) is not None:
        ssts.append(set(version.retired))
    return _InUse(ssts, pinned, min((pin.epoch for pin in pins if pin.onward), default=None))


def _named_by(version: HummockVersion) -> set[str]:
    return {sst.name for level in version.levels for sst in level}


def _why_gone(version: HummockVersion, name: str, onward: int | None) -> str | None:
    """Why nobody can commit an object any more that `version` does not name; None: somebody may, or it is not ours to judge."""
    if (origin := origin_of(name)) is None:
        return None
    if origin.kind == "epoch":
        is_past = origin.number <= version.epoch and (onward is None or origin.number <= onward)
        return (
            f"of epoch {origin.number}, behind the committed one, and in no version that is read" if is_past else None
        )
    # Ids are allotted in order by the log: one that this version has not allotted is of a task opened since.
    if origin.number >= version.next_task_id or any(task.id == origin.number for task in version.tasks):
        return None
    return f"of compaction task {origin.number}, which is closed, and in no version that is read"


def _old_manifests(meta: MetaStore, version: HummockVersion) -> Iterator[Garbage]:
    """Manifests of epochs below the floor. A driver that seals such an epoch again loses at the commit: the log decides, and the
    manifest only says what was to be committed."""
    for found in meta.objects.list(MANIFESTS):
        if (epoch := number_in(found.name)) is None or epoch >= version.min_readable_epoch:
            return
        yield _garbage(found, f"manifest of epoch {epoch}, below the floor {version.min_readable_epoch}")


def _old_snapshots(meta: MetaStore, version: HummockVersion, pinned: frozenset[int]) -> Iterator[Garbage]:
    """Snapshots that hardly anybody starts from; deltas rebuild them. Those that pinned versions are read from stay."""
    newest = version.id - version.id % SNAPSHOT_EVERY
    starts = {i - i % SNAPSHOT_EVERY for i in pinned}
    for found in meta.objects.list(SNAPSHOTS):
        if (i := number_in(found.name)) is None or i > newest - RECENT_SNAPSHOTS * SNAPSHOT_EVERY:
            return
        if i % SPARSE_SNAPSHOTS and i not in starts:
            yield _garbage(found, f"snapshot of version {i}; newer ones and every {SPARSE_SNAPSHOTS}th stay")


def _garbage(found: ObjectInfo, reason: str) -> Garbage:
    return Garbage(found.name, found.size, reason)

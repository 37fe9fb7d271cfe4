"""Vacuum: removes objects that no reader needs and that can no longer be committed. It needs no clock.

The name of an object shows what may still commit it (names.py):
    data/<epoch>/…     only this epoch's manifest, and only while an older epoch is the committed one
    data/task-<id>/…   only this compaction task's commit, and only until the task is closed
After that point in the log, an object that the newest version does not name will never be in a version again. This is
permanent, so vacuum may be killed anywhere, run twice at once, or use a version that is no longer the newest.

Readers may still fetch objects that the newest version does not name:
    the SSTs of a version that a pin names (the newest version is read before the pins are listed; see meta/pin.py);
    all objects of epochs after the one that a train of epochs has pinned, which the train reads before they are
        committed;
    SSTs that compactions removed since the committed epoch, while a barrier is on that epoch: its run may read an older
        version;
    the SSTs and pages of the first versions of open branches (meta/branch.py), and the SSTs of all later epochs while a
        branch follows them.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tussock.statestore.meta.document import read_document
from tussock.statestore.meta.errors import DamagedDocumentError
from tussock.statestore.meta.names import (
    BARRIERS,
    DATA,
    MANIFESTS,
    PAGES,
    ROOTS,
    SNAPSHOTS,
    epoch_of_barrier,
    list_numbered,
    origin_of,
    page_origin,
    root_name,
)
from tussock.statestore.meta.packing import pack_logs, packed_epoch
from tussock.statestore.meta.pages import names_in
from tussock.statestore.meta.snapshots import SNAPSHOT_EVERY, SPARSE_SNAPSHOTS, VersionRoot
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.objectstore.branch import BRANCHES, number_of_branch
from tussock.statestore.progress import Progress, no_progress

log = logging.getLogger(__name__)

_BATCH = 1000  # names per delete request
RECENT_SNAPSHOTS = 8  # the newest ones, which are kept; more than REUSED_ROOTS, so that writers find all pages


@dataclass(frozen=True, slots=True)
class Garbage:
    """One object that may be removed."""

    name: str
    size: int  # bytes
    reason: str


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The result of a vacuum: the objects found, and whether they were removed."""

    version: int  # the version on which the decisions are based
    garbage: tuple[Garbage, ...]
    removed: bool
    kept_objects: int  # below data/
    kept_bytes: int
    pending_objects: int  # of those kept: in no version, but their epoch or task may still commit them
    unknown: tuple[str, ...]  # below data/, with names that this release does not know; left alone


def vacuum_store(meta: MetaStore, *, dry_run: bool = False, progress: Progress = no_progress) -> VacuumReport:
    """Remove objects that no reader needs and that can no longer be committed.

    First raise the floor (`MetaStore.apply_retention`) and let compaction drop older rows; otherwise vacuum finds
    little.

    Args:
        dry_run: only report, with more detailed reasons.
        progress: called with a line from time to time.

    Raises: errors of the object store. The next vacuum finds the remaining objects again.

    Cost: lists data/, manifests, barriers, snapshots, pins and the logs without their packs; packs.py; one DELETE per
        1,000 removed objects. Memory: the names of these objects.
    """
    version = meta.read_latest()
    in_use = _in_use(meta, version)
    names = frozenset[str]().union(*in_use.ssts)
    garbage: list[Garbage] = []
    unknown: list[str] = []
    kept_count = kept_bytes = pending = 0
    for count, stored_object in enumerate(meta.objects.list(DATA), 1):
        if count % 100_000 == 0:
            progress(f"{count:,} objects checked, {len(garbage):,} to remove")
        reason = None if stored_object.name in names else _why_gone(version, stored_object.name, in_use.onward)
        if reason:
            garbage.append(Garbage(stored_object.name, stored_object.size, reason))
            continue
        kept_count, kept_bytes = kept_count + 1, kept_bytes + stored_object.size
        if origin_of(stored_object.name) is None:
            unknown.append(stored_object.name)
        elif stored_object.name not in names:
            pending += 1
    garbage += [
        _to_garbage(stored_object, why) for stored_object, why in pack_logs(meta.objects, version, dry_run=dry_run)
    ]
    garbage += _old_manifests(meta, version)
    garbage += _old_barriers(meta, version)
    pages = list(_old_pages(meta, version, in_use.versions))  # listed before the roots, and removed after them
    garbage += _old_snapshots(meta, version, in_use.versions)
    garbage += _old_roots(meta, version, in_use.versions)
    garbage += _ended_branches(meta, version)
    garbage += pages
    if dry_run:
        garbage = _told_apart(meta, version, garbage)
    else:
        removed = 0
        # Requests of their own for the pages: the order within one request is not defined.
        for part in (garbage[: len(garbage) - len(pages)], pages):
            for start in range(0, len(part), _BATCH):
                batch = [stored_object.name for stored_object in part[start : start + _BATCH]]
                meta.objects.delete(batch)
                removed += len(batch)
                progress(f"{removed:,} of {len(garbage):,} objects removed")
    log.info(
        "vacuum at version %d: %d objects %s, %d kept",
        version.id,
        len(garbage),
        "found" if dry_run else "removed",
        kept_count,
    )
    return VacuumReport(version.id, tuple(garbage), not dry_run, kept_count, kept_bytes, pending, tuple(unknown))


@dataclass(frozen=True, slots=True)
class _InUse:
    ssts: list[set[str]]
    versions: frozenset[int]  # pinned versions
    onward: int | None  # keep objects of epochs after this one


def _in_use(meta: MetaStore, version: HummockVersion) -> _InUse:
    """Names that readers may fetch. Requires: `version` was read before."""
    pins = meta.all_pins()
    pinned = frozenset(pin.version for pin in pins) | {branch.version for branch in version.branches}
    ssts = [names_in(version), *(names_in(meta.read_version(i)) for i in sorted(pinned) if i != version.id)]
    # A barrier that is injected after this check runs on an even newer version, which names none of the removed
    # objects.
    if version.retired and meta.barrier_after(version.epoch) is not None:
        ssts.append(set(version.retired))
    onward = [*(pin.epoch for pin in pins if pin.onward), *(b.epoch for b in version.branches if b.follows)]
    return _InUse(ssts, pinned, min(onward, default=None))


def _why_gone(version: HummockVersion, name: str, onward: int | None) -> str | None:
    """Why an object outside `version` can no longer be committed; None if it can be, or if its name is unknown."""
    if (origin := origin_of(name)) is None:
        return None
    if origin.kind == "epoch":
        is_past = origin.number <= version.epoch and (onward is None or origin.number <= onward)
        return f"of epoch {origin.number}, and in no version in use" if is_past else None
    # The log assigns ids in order, so an id that this version has not assigned belongs to a task that was opened later.
    if origin.number >= version.next_task_id or any(task.id == origin.number for task in version.tasks):
        return None
    return f"of compaction task {origin.number}, which is closed, and in no version in use"


def _told_apart(meta: MetaStore, version: HummockVersion, garbage: list[Garbage]) -> list[Garbage]:
    """Return the objects; the reasons of SSTs of epochs show whether the epoch was committed.

    Cost: a few GETs per epoch that readers can no longer name.
    """
    committed: dict[int, bool] = {}
    items = []
    for one in garbage:
        if (origin := origin_of(one.name)) is not None and origin.kind == "epoch":
            epoch = origin.number
            if epoch not in committed:
                committed[epoch] = epoch in version.epochs or meta.has_epoch(epoch)
            merged = "in no version in use: compaction has merged its rows into other SSTs"
            why = merged if committed[epoch] else "which was never committed"
            items.append(replace(one, reason=f"of epoch {epoch}, {why}"))
        else:
            items.append(one)
    return items


def _old_manifests(meta: MetaStore, version: HummockVersion) -> Iterator[Garbage]:
    """Manifests of epochs below the floor.

    A driver that seals such an epoch again fails at the commit: the log decides, and a manifest is only a proposal.
    """
    for epoch, info in list_numbered(meta.objects, MANIFESTS):
        if epoch >= version.min_readable_epoch:
            return
        yield _to_garbage(info, f"manifest of epoch {epoch}, below the floor {version.min_readable_epoch}")


def _old_barriers(meta: MetaStore, version: HummockVersion) -> Iterator[Garbage]:
    """Barriers of epochs below the floor, if packs prove that these epochs were committed.

    A driver that puts such a barrier in force again fails at the commit, as for manifests.
    """
    if (proven := packed_epoch(meta.objects)) is None:
        return
    old: list[tuple[int, ObjectInfo]] = []
    for epoch, info in list_numbered(meta.objects, BARRIERS, epoch_of_barrier):
        if epoch >= version.min_readable_epoch:
            break
        old.append((epoch, info))
    for epoch, info in old:
        if epoch <= proven and epoch != old[-1][0]:  # the last one belongs to the floor's epoch
            yield _to_garbage(info, f"barrier after epoch {epoch}, below the floor {version.min_readable_epoch}")


def _old_snapshots(meta: MetaStore, version: HummockVersion, pinned: frozenset[int]) -> Iterator[Garbage]:
    """Snapshots that are rarely needed, since deltas replace them. Starting points of pinned versions stay."""
    for info, i in _list_old(meta, SNAPSHOTS, version, pinned):
        if i % SPARSE_SNAPSHOTS:
            yield _to_garbage(info, f"snapshot of version {i}; newer ones and every {SPARSE_SNAPSHOTS}th stay")


def _old_roots(meta: MetaStore, version: HummockVersion, pinned: frozenset[int]) -> Iterator[Garbage]:
    """Roots of pages that are rarely needed."""
    for info, i in _list_old(meta, ROOTS, version, pinned):
        yield _to_garbage(info, f"snapshot of version {i}; newer ones stay")


def _list_old(
    meta: MetaStore, prefix: str, version: HummockVersion, pinned: frozenset[int]
) -> Iterator[tuple[ObjectInfo, int]]:
    """Snapshots that are not recent and no starting points of pinned versions, with their versions."""
    starts = {i - i % SNAPSHOT_EVERY for i in pinned}
    for i, info in list_numbered(meta.objects, prefix):
        if i > _oldest_recent(version):
            return
        if i not in starts:
            yield info, i


def _oldest_recent(version: HummockVersion) -> int:
    """Snapshots above this version stay."""
    return version.id - version.id % SNAPSHOT_EVERY - RECENT_SNAPSHOTS * SNAPSHOT_EVERY


def _old_pages(meta: MetaStore, version: HummockVersion, pinned: frozenset[int]) -> Iterator[Garbage]:
    """Pages that no root names which stays.

    Recent pages stay too: the root of a slow writer may follow. If a root is damaged, all pages stay, because it may
    be restored.
    """
    recent = _oldest_recent(version)
    old = [
        info
        for info in meta.objects.list(PAGES)
        if (origin := page_origin(info.name)) is not None and origin.root <= recent
    ]
    if not old:
        return
    going = {i for _, i in _list_old(meta, ROOTS, version, pinned)}
    named: set[str] = set()
    for i in (i for i, _ in list_numbered(meta.objects, ROOTS) if i not in going):
        try:
            root = read_document(meta.objects, root_name(i), VersionRoot)
        except DamagedDocumentError as err:
            log.warning("no page is removed, because %s", err)
            return
        named |= root.page_names() if root is not None else set()
    for info in old:
        if info.name not in named:
            yield _to_garbage(info, "a page of SSTs that no snapshot in use names")


def _ended_branches(meta: MetaStore, version: HummockVersion) -> Iterator[Garbage]:
    """The objects of branches that have ended. A later version may have opened a branch that this one does not know."""
    if version.next_branch == 1:
        return
    is_open = {branch.number for branch in version.branches}
    for number, info in list_numbered(meta.objects, BRANCHES, number_of_branch):
        if number < version.next_branch and number not in is_open:
            yield _to_garbage(info, f"of branch {number}, which has ended")


def _to_garbage(info: ObjectInfo, reason: str) -> Garbage:
    return Garbage(info.name, info.size, reason)

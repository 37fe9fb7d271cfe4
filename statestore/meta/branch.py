"""Branches: stores that begin as a version of another one, and refer to its objects instead of copying them.

    BranchOpened in the parent's log     names the version; vacuum of the parent keeps what that version names
    branches/<number>/meta/store.json    the branch's settings; the branch exists once they are written
    branches/<number>/meta/version/…     the branch's own log; its version 0 is the parent's version (first_version)
    BranchEnded in the parent's log      ends the protection; vacuum of the parent removes branches/<number>/

The delta is the point of decision. It names a version whose SSTs are all in the newest version when it is committed.
An SST outside of a version can never come back, so a vacuum that works from an earlier version keeps them too, and
every later vacuum sees the branch. If the creator dies before it has written the settings, the next process that opens
the branch writes the same bytes.

Identifiers never meet: each branch takes table and relation ids, and numbers of compaction tasks, from its own range
(FIRST_ID). So a merge can give the branch's state tables to the parent.
"""

import re
from itertools import count

import msgspec

from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.delta import BranchEnded, BranchOpened, EpochCommitted, VersionChange
from tussock.statestore.meta.document import encode_document
from tussock.statestore.meta.errors import (
    BranchExistsError,
    BranchGoneError,
    EpochMergedError,
    EpochNotCommittedError,
    SettingError,
)
from tussock.statestore.meta.names import STORE
from tussock.statestore.meta.pages import names_gone, names_in
from tussock.statestore.meta.readable import check_readable
from tussock.statestore.meta.settings import BranchOrigin, StoreSettings, initial_version, read_settings
from tussock.statestore.meta.version import Branch, HummockVersion
from tussock.statestore.meta.version_log import VersionLog
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.branch import TASKS_PER_BRANCH, BranchMark, BranchObjects

KEEP_MS = 7 * 24 * 60 * 60 * 1000  # default age of a branch
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FIRST_ID, _IDS, _RANGES = 1 << 30, 1 << 16, 1 << 14
"""Table and relation ids below _FIRST_ID belong to stores that are no branch. Branch n takes _IDS of them, in range n
modulo _RANGES: more branches than that are never open at once, and a merge compares ids."""


def require_branch_name(name: str) -> str:
    """Return a valid name of a branch. Raises SettingError."""
    if _NAME.fullmatch(name) is None:
        raise SettingError(
            "the name of a branch", repr(name), "at most 63 letters, digits, dots, underscores and hyphens"
        )
    return name


def own_ids(catalog: Catalog) -> range:
    """The table and relation ids that a branch assigns, by its catalog; none in a store that is no branch.

    A parent has adopted relations with the ids of branches that were merged. They are not those of a later branch.
    """
    start = catalog.next_table_id - catalog.next_table_id % _IDS
    return range(start, start + _IDS) if start >= _FIRST_ID else range(0)


def first_id_of(number: int) -> int:
    """The first table and relation id of a branch."""
    return _FIRST_ID + number % _RANGES * _IDS


def open_branch(
    log: VersionLog, id: str, name: str, times_ms: tuple[int, int], epoch: int | None = None, *, follows: bool
) -> Branch:
    """Begin a branch in its parent's log. A repeated call with the same `id` returns the same branch.

    Args:
        times_ms: the clock and the age.
        epoch: a readable epoch; None: the committed one.
        follows: see MetaStore.open_branch.

    Raises: BranchExistsError; EpochNotCommittedError, EpochExpiredError; EpochMergedError; SettingError.
    Cost: one delta. For an older epoch also a search for its version in the log.
    """
    require_branch_name(name)

    def decide(version: HummockVersion) -> VersionChange | None:
        for other in version.branches:
            if other.id == id:
                return None
            if other.name == name:
                raise BranchExistsError(name, other.epoch)
        first = version if epoch in (None, version.epoch) else _version_of_epoch(log, version, epoch or 0)
        if follows and first is not version and not _epochs_after(log, first, version) <= names_in(version):
            raise EpochMergedError(first.epoch, version.epoch)
        ids, (now_ms, keep_ms) = (_free_number(version), name, id), times_ms
        return BranchOpened(Branch(*ids, first.id, first.epoch, first.log_end, now_ms, now_ms + keep_ms, follows))

    version = log.append_change(decide).version
    return next(branch for branch in version.branches if branch.id == id)


def end_branch(log: VersionLog, name: str, reason: str) -> HummockVersion:
    """End a branch. Raises BranchGoneError if there is none of this name."""
    return _end_numbered(log, find_branch(log.read_latest(), name).number, reason)


def end_lapsed_branches(log: VersionLog, now_ms: int) -> tuple[str, ...]:
    """End the branches whose age has come. Returns their names."""
    lapsed = [branch for branch in log.read_latest().branches if branch.expires_ms <= now_ms]
    for branch in lapsed:
        _end_numbered(log, branch.number, f"its age ended at {branch.expires_ms} ms")
    return tuple(branch.name for branch in lapsed)


def _end_numbered(log: VersionLog, number: int, reason: str) -> HummockVersion:
    def decide(version: HummockVersion) -> VersionChange | None:
        is_open = any(branch.number == number for branch in version.branches)
        return BranchEnded(number, reason) if is_open else None

    return log.append_change(decide).version


def find_branch(version: HummockVersion, name: str) -> Branch:
    """The open branch of a name. Raises BranchGoneError."""
    for branch in version.branches:
        if branch.name == name:
            return branch
    raise BranchGoneError(name, tuple(branch.name for branch in version.branches))


def require_open(parent: HummockVersion, origin: BranchOrigin) -> None:
    """Raise BranchGoneError if a branch has ended in a version of its parent."""
    if all(branch.number != origin.number for branch in parent.branches):
        raise BranchGoneError(origin.name, tuple(branch.name for branch in parent.branches))


def objects_of_branch(parent: ObjectStore, branch: Branch) -> BranchObjects:
    """The objects of an open branch. Writes its settings unless they exist.

    Cost: a GET of the parent's settings, and one PUT; a GET of the branch's settings if it exists.
    """
    objects = BranchObjects(parent, BranchMark(branch.name, branch.number, branch.epoch, branch.log_start))
    origin = BranchOrigin(branch.number, branch.name, branch.version, branch.epoch, branch.follows)
    settings = msgspec.structs.replace(read_settings(parent), origin=origin)
    objects.put_if_absent(STORE, encode_document(settings))
    return objects


def first_version(objects: ObjectStore, settings: StoreSettings) -> HummockVersion:
    """Version 0 of a store: empty, or of a branch the parent's version with its own ranges of identifiers.

    Raises SettingError if a branch was opened without its parent. Cost: of a branch, opening its parent.
    """
    if settings.origin is None:
        return initial_version(settings)
    if not isinstance(objects, BranchObjects):
        expected = f"the address of its parent, with --branch {settings.origin.name}"
        raise SettingError(f"the address of branch {settings.origin.name!r}", objects.uri, expected)
    origin, parent = settings.origin, objects.parent
    log = VersionLog(parent, f"branch {origin.name}", lambda: initial_version(read_settings(parent)))
    version = log.read_version(origin.version)
    first_id = first_id_of(origin.number)
    return msgspec.structs.replace(
        version,
        id=0,
        catalog=msgspec.structs.replace(version.catalog, next_relation_id=first_id, next_table_id=first_id),
        next_task_id=origin.number * TASKS_PER_BRANCH,
        tasks=(),
        retired=(),
        branches=(),
        next_branch=1,
        followed=origin.version,
    )


def _free_number(version: HummockVersion) -> int:
    """The next number of a branch whose ids no relation has."""
    used = {r.id - r.id % _IDS for r in version.catalog.stored_relations()}
    return next(number for number in count(version.next_branch) if first_id_of(number) not in used)


def _epochs_after(log: VersionLog, first: HummockVersion, newest: HummockVersion) -> set[str]:
    """The SSTs that epochs have committed since a version. Vacuum keeps those of epochs after the branch's delta."""
    deltas = log.read_deltas(first.id + 1, newest.id)
    commits = (delta.change for delta in deltas if isinstance(delta.change, EpochCommitted))
    return {sst.name for change in commits for sst in change.ssts}


def _version_of_epoch(log: VersionLog, newest: HummockVersion, epoch: int) -> HummockVersion:
    """The version of `version_of_epoch`, if the newest version names all of its SSTs.

    A newer version has rows of later epochs too, and compaction may have put them into the same SSTs.
    """
    version = version_of_epoch(log, newest, epoch)
    if names_gone(version, newest):
        raise EpochMergedError(epoch, newest.epoch)
    return version


def version_of_epoch(log: VersionLog, newest: HummockVersion, epoch: int) -> HummockVersion:
    """The newest version whose committed epoch is `epoch`. Raises EpochNotCommittedError, EpochExpiredError."""
    check_readable(newest, epoch)
    return find_version(log, newest.id, epoch)


def find_version(log: VersionLog, last: int, epoch: int) -> HummockVersion:
    """The newest version up to `last` whose committed epoch is `epoch`. Raises EpochNotCommittedError.

    Cost: a binary search of the log.
    """
    low, high = 0, last + 1  # version `high` has a later epoch, or is not searched
    while high - low > 1:
        middle = (low + high) // 2
        if log.read_version(middle).epoch <= epoch:
            low = middle
        else:
            high = middle
    version = log.read_version(low)
    if version.epoch != epoch:
        raise EpochNotCommittedError(epoch, version.epoch)
    return version

"""Version deltas: version n+1 is version n plus delta n+1. Plain data and one pure function.

A new kind of change needs a struct in `VersionChange` and a case in `apply_delta`.
"""

from collections.abc import Collection, Sequence

import msgspec

from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.errors import BadDeltaError
from tussock.statestore.meta.levels import (
    conflict_of,
    inputs_of,
    levels_after,
    merge_objection,
    move_objection,
    outputs_objection,
)
from tussock.statestore.meta.sight import oldest_seen
from tussock.statestore.meta.version import (
    Branch,
    CompactionTask,
    HeldBack,
    HummockVersion,
    KeyRange,
    LevelInput,
    SstInfo,
    VnodeMapping,
)

# Epochs that readers may name. Older ones are dropped even if retention never runs, so that a version stays small.
MAX_EPOCHS = 1024


class EpochCommitted(msgspec.Struct, frozen=True, tag="epoch", omit_defaults=True):
    """Make an epoch durable: its SSTs become the newest L0 runs. Requires that `prev_epoch` is the committed epoch."""

    prev_epoch: int
    epoch: int
    attempt: int
    ssts: tuple[SstInfo, ...]
    log_end: int
    catalog: Catalog | None = None
    moment: int = 0  # the barrier's
    net: dict[int, int] | None = None  # by relation id: rows gained or lost, if any; None: not counted
    by_intervals: bool = False  # the barrier's
    follows: int = 0  # the barrier's
    undoes: bool = False  # it has the rows of an earlier epoch again, and with them the moment


class Published(msgspec.Struct, frozen=True, tag="publish", omit_defaults=True):
    """Show this epoch to readers that name none, and `held` relations as of earlier epochs."""

    epoch: int
    held: tuple[HeldBack, ...] = ()


class FloorRaised(msgspec.Struct, frozen=True, tag="floor"):
    """Stop new readers below this epoch."""

    epoch: int


class RelationsForgotten(msgspec.Struct, frozen=True, tag="forget"):
    """Remove dropped relations from the catalog that no readable epoch sees."""

    relations: tuple[int, ...]


class MappingChanged(msgspec.Struct, frozen=True, tag="mapping"):
    """Run later barriers on this mapping. No row moves in storage."""

    mapping: VnodeMapping


class CompactionOpened(msgspec.Struct, frozen=True, tag="compaction_open"):
    """Reserve SSTs for a compactor. No other task takes them until this task is committed or closed."""

    task: CompactionTask


class CompactionCommitted(msgspec.Struct, frozen=True, tag="compaction"):
    """Replace the inputs of an open task by its outputs. Commutes with epochs, because no readable row changes."""

    task_id: int
    outputs: tuple[SstInfo, ...]  # in key order


class CompactionClosed(msgspec.Struct, frozen=True, tag="compaction_close"):
    """End an open task without effect. Its commit is refused from now on, and vacuum may remove its objects."""

    task_id: int
    reason: str


class CompactionsRenewed(msgspec.Struct, frozen=True, tag="compaction_renew"):
    """Renew leases of open tasks: no other process closes them before `expires_ms`."""

    tasks: tuple[int, ...]
    expires_ms: int


class SstsMoved(msgspec.Struct, frozen=True, tag="move", omit_defaults=True):
    """Move SSTs down to `target` unchanged, past SSTs without their keys: a compaction that reads and writes no row."""

    inputs: tuple[LevelInput, ...]
    target: int
    ranges: tuple[KeyRange, ...] = ()  # as of a CompactionTask


class BranchOpened(msgspec.Struct, frozen=True, tag="branch_open"):
    """Begin a branch: the objects of its first version stay until it ends."""

    branch: Branch


class BranchEnded(msgspec.Struct, frozen=True, tag="branch_end"):
    """End a branch. Vacuum may remove its objects, and this store's objects that only the branch needed."""

    number: int
    reason: str


VersionChange = (
    EpochCommitted
    | Published
    | FloorRaised
    | RelationsForgotten
    | MappingChanged
    | CompactionOpened
    | CompactionCommitted
    | CompactionClosed
    | CompactionsRenewed
    | SstsMoved
    | BranchOpened
    | BranchEnded
)


class VersionDelta(msgspec.Struct, frozen=True):
    """The step from version `id` - 1 to version `id`."""

    id: int
    writer: str
    change: VersionChange


def apply_delta(version: HummockVersion, delta: VersionDelta) -> HummockVersion:
    """Apply a delta to a version. Raises BadDeltaError if the delta does not follow this version."""
    _require_valid(
        delta, delta.id == version.id + 1, f"it follows version {delta.id - 1}, but this is version {version.id}"
    )
    change = delta.change
    match change:
        case EpochCommitted():
            return _apply_epoch(version, delta, change)
        case Published():
            return _apply_publish(version, delta, change)
        case FloorRaised(epoch):
            return _apply_floor(version, delta, epoch)
        case RelationsForgotten(relations):
            return _apply_forgotten(version, delta, set(relations))
        case MappingChanged(mapping):
            return _apply_mapping(version, delta, mapping)
        case CompactionOpened(task):
            return _apply_opened(version, delta, task)
        case CompactionCommitted(task_id, outputs):
            return _apply_compaction(version, delta, _open_task(version, delta, task_id), outputs)
        case CompactionClosed(task_id):
            _open_task(version, delta, task_id)
            return msgspec.structs.replace(version, id=delta.id, tasks=_tasks_without(version, task_id))
        case CompactionsRenewed(task_ids, expires_ms):
            renewed = {_open_task(version, delta, task_id).id for task_id in task_ids}
            tasks = tuple(
                msgspec.structs.replace(t, expires_ms=expires_ms) if t.id in renewed else t for t in version.tasks
            )
            return msgspec.structs.replace(version, id=delta.id, tasks=tasks)
        case SstsMoved():
            return _apply_move(version, delta, change)
        case BranchOpened(branch):
            return _apply_branch(version, delta, branch)
        case BranchEnded(number):
            left_branches = tuple(branch for branch in version.branches if branch.number != number)
            _require_valid(
                delta, len(left_branches) < len(version.branches), f"it ends branch {number}, which is not open"
            )
            return msgspec.structs.replace(version, id=delta.id, branches=left_branches)


def _apply_epoch(version: HummockVersion, delta: VersionDelta, change: EpochCommitted) -> HummockVersion:
    _require_valid(
        delta,
        change.prev_epoch == version.epoch and change.epoch > version.epoch,
        f"it commits epoch {change.epoch} onto {change.prev_epoch}, but the committed epoch is {version.epoch}",
    )
    _require_valid(
        delta,
        change.log_end >= version.log_end,
        f"it ends the log at {change.log_end}, but entries up to {version.log_end} are taken",
    )
    catalog = version.catalog if change.catalog is None else change.catalog
    _require_valid(
        delta,
        catalog.next_relation_id >= version.catalog.next_relation_id
        and catalog.next_table_id >= version.catalog.next_table_id,
        "its catalog would assign ids again that are in use",
    )
    seen = {version.published, *(h.epoch for h in version.held if h.epoch)}
    epochs = _newest_epochs((*version.epochs, change.epoch), seen)
    return msgspec.structs.replace(
        version,
        id=delta.id,
        epoch=change.epoch,
        epochs=epochs,
        min_readable_epoch=max(version.min_readable_epoch, epochs[0] if len(epochs) <= len(version.epochs) else 0),
        log_end=change.log_end,
        levels=((*change.ssts, *version.levels[0]), *version.levels[1:]),
        catalog=catalog,
        moment=change.moment if change.undoes else max(version.moment, change.moment),
        by_intervals=change.by_intervals,
        followed=max(version.followed, change.follows),
        retired=(),
        rows=_rows_after(version, catalog, change),
    )


def _apply_publish(version: HummockVersion, delta: VersionDelta, change: Published) -> HummockVersion:
    epoch, held = change.epoch, change.held
    newer = epoch > version.published or (epoch == version.published and held != version.held)
    _require_valid(delta, newer, f"it publishes epoch {epoch}, but epoch {version.published} is already published")
    _require_valid(
        delta, epoch in version.epochs, f"it publishes epoch {epoch}, which is not committed or no longer kept"
    )
    lost = [h.epoch for h in held if h.epoch and h.epoch not in version.epochs]
    _require_valid(
        delta, not lost, f"it holds relations back at epochs {lost}, which are not committed or no longer kept"
    )
    return msgspec.structs.replace(version, id=delta.id, published=epoch, held=held)


def _apply_floor(version: HummockVersion, delta: VersionDelta, epoch: int) -> HummockVersion:
    floor, oldest = version.min_readable_epoch, oldest_seen(version)
    _require_valid(delta, epoch > floor, f"it sets the floor to {epoch}, not above {floor}")
    _require_valid(delta, epoch <= oldest, f"it sets the floor to {epoch}, above epoch {oldest}, which readers see")
    epochs = tuple(e for e in version.epochs if e >= epoch)
    return msgspec.structs.replace(version, id=delta.id, min_readable_epoch=epoch, epochs=epochs)


def _apply_forgotten(version: HummockVersion, delta: VersionDelta, forgotten: set[int]) -> HummockVersion:
    floor, relations = version.min_readable_epoch, version.catalog.relations
    needed = [r.id for r in relations if r.id in forgotten and (r.dropped is None or r.dropped > floor)]
    _require_valid(delta, not needed, f"it forgets relations {needed}, which readers at the floor {floor} or later see")
    remaining = tuple(r for r in relations if r.id not in forgotten)
    catalog = msgspec.structs.replace(version.catalog, relations=remaining)
    return msgspec.structs.replace(version, id=delta.id, catalog=catalog)


def _apply_mapping(version: HummockVersion, delta: VersionDelta, mapping: VnodeMapping) -> HummockVersion:
    current = version.mapping
    _require_valid(
        delta, mapping.id > current.id, f"it sets mapping {mapping.id}, but mapping {current.id} is in force"
    )
    _require_valid(
        delta,
        mapping.vnode_count == current.vnode_count,
        f"its mapping has {mapping.vnode_count} vnodes, but the store has {current.vnode_count}",
    )
    return msgspec.structs.replace(version, id=delta.id, mapping=mapping)


def _rows_after(version: HummockVersion, catalog: Catalog, change: EpochCommitted) -> dict[int, int]:
    """Row counts by relation id. Includes only relations that were counted in every epoch since their first one."""
    if change.net is None:
        return {}
    known = {r.id for r in version.catalog.stored_relations()}
    before = {**dict.fromkeys((r.id for r in catalog.stored_relations() if r.id not in known), 0), **version.rows}
    return {r.id: before[r.id] + change.net.get(r.id, 0) for r in catalog.stored_relations() if r.id in before}


def _newest_epochs(epochs: tuple[int, ...], seen: Collection[int]) -> tuple[int, ...]:
    """The newest epochs, plus older ones that readers see: at most MAX_EPOCHS."""
    if len(epochs) <= MAX_EPOCHS:
        return epochs
    others = [epoch for epoch in epochs if epoch not in seen]
    gone = set(others[: len(epochs) - MAX_EPOCHS])
    return tuple(epoch for epoch in epochs if epoch not in gone)


def _apply_opened(version: HummockVersion, delta: VersionDelta, task: CompactionTask) -> HummockVersion:
    _require_valid(
        delta,
        task.id == version.next_task_id,
        f"it opens compaction task {task.id}, but the next task is {version.next_task_id}",
    )
    _require_valid(delta, task.opened == delta.id, f"its task names version {task.opened} as the one that opened it")
    _require_free(version, delta, merge_objection(version, task.inputs, task.target, task.ranges), task)
    return msgspec.structs.replace(version, id=delta.id, next_task_id=task.id + 1, tasks=(*version.tasks, task))


def _apply_compaction(
    version: HummockVersion, delta: VersionDelta, task: CompactionTask, outputs: tuple[SstInfo, ...]
) -> HummockVersion:
    reason = outputs_objection(version, task, outputs)
    _require_valid(delta, reason is None, f"compaction task {task.id} does not fit: {reason}")
    after = _replace_inputs(version, task, outputs)
    return msgspec.structs.replace(after, id=delta.id, tasks=_tasks_without(version, task.id))


def _apply_move(version: HummockVersion, delta: VersionDelta, move: SstsMoved) -> HummockVersion:
    _require_free(version, delta, move_objection(version, move.inputs, move.target, move.ranges), move)
    ssts = inputs_of(version, move.inputs, move.ranges)
    assert not isinstance(ssts, str), "move_objection has resolved the inputs"
    return msgspec.structs.replace(_replace_inputs(version, move, ssts), id=delta.id)


def _apply_branch(version: HummockVersion, delta: VersionDelta, branch: Branch) -> HummockVersion:
    _require_valid(
        delta,
        branch.number >= version.next_branch,
        f"it opens branch {branch.number}, but the next branch is {version.next_branch} or later",
    )
    _require_valid(
        delta,
        branch.version <= version.id and branch.epoch <= version.epoch,
        f"its branch begins at version {branch.version} of epoch {branch.epoch}, which this version does not follow",
    )
    _require_valid(
        delta,
        all(other.name != branch.name for other in version.branches),
        f"it opens branch {branch.name!r}, but a branch of this name is open",
    )
    return msgspec.structs.replace(
        version, id=delta.id, branches=(*version.branches, branch), next_branch=branch.number + 1
    )


def _require_free(
    version: HummockVersion, delta: VersionDelta, reason: str | None, wanted: CompactionTask | SstsMoved
) -> None:
    """Require that `reason` is None and that no open task conflicts."""
    _require_valid(delta, reason is None, f"its compaction does not fit: {reason}")
    other = conflict_of(version, wanted.inputs, wanted.target, wanted.ranges)
    _require_valid(
        delta, other is None, f"open compaction task {other.id if other else 0} has reserved its inputs or their keys"
    )


def _replace_inputs(
    version: HummockVersion, done: CompactionTask | SstsMoved, outputs: Sequence[SstInfo]
) -> HummockVersion:
    """The version with the inputs replaced by `outputs`. Requires: all checks have passed."""
    levels = levels_after(version.levels, done.inputs, done.target, outputs, done.ranges)
    remaining = {sst.name for sst in outputs}
    gone = tuple(name for taken in done.inputs for name in taken.ssts if name not in remaining)
    return msgspec.structs.replace(version, levels=levels, retired=(*version.retired, *gone))


def _open_task(version: HummockVersion, delta: VersionDelta, task_id: int) -> CompactionTask:
    task = next((task for task in version.tasks if task.id == task_id), None)
    _require_valid(
        delta,
        task is not None,
        f"compaction task {task_id} is not open: it was committed or closed before, or never opened",
    )
    assert task is not None
    return task


def _tasks_without(version: HummockVersion, task_id: int) -> tuple[CompactionTask, ...]:
    return tuple(task for task in version.tasks if task.id != task_id)


def _require_valid(delta: VersionDelta, holds: bool, reason: str) -> None:
    if not holds:
        raise BadDeltaError(delta.id, reason)

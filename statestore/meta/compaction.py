"""Compaction tasks in the version log. A task gives one compactor exclusive use of its input SSTs.

    open_task    ──>  CompactionOpened     reserves the inputs; the task's id names its objects, data/task-<id>/…
    (merge, upload)
    renew_tasks  ──>  CompactionsRenewed   during the merge: the compactor is alive
    commit_task  ──>  CompactionCommitted  the outputs replace the inputs
    close_task   ──>  CompactionClosed     or: the task ends without effect

Epochs that are committed meanwhile only add new runs on top of L0, so an open task can commit until it is closed. Other
processes may close a task once its lease has expired. The compactor renews the lease, so leases can be short however
long a merge takes. The lease ensures progress, not safety: the log decides whether commit or close came first, and a
compactor that slept too long gets LostRaceError.
"""

from collections.abc import Collection

import msgspec

from tussock.statestore.meta.delta import (
    CompactionClosed,
    CompactionCommitted,
    CompactionOpened,
    CompactionsRenewed,
    SstsMoved,
    VersionChange,
)
from tussock.statestore.meta.errors import LostRaceError, SettingError
from tussock.statestore.meta.levels import conflict_of, merge_objection, move_objection, outputs_objection, ranges_of
from tussock.statestore.meta.pages import has_pages
from tussock.statestore.meta.version import CompactionTask, HummockVersion, KeyRange, LevelInput, SstInfo
from tussock.statestore.meta.version_log import AppendResult, VersionLog

# Of a task. Renewed after a third of it, so clocks that differ by minutes and slow uploads do not end a lease.
LEASE_MS = 15 * 60 * 1000


class CompactionPlan(msgspec.Struct, frozen=True):
    """A picker's decision: merge these SSTs down to `target`.

    Requires: the inputs include every SST between their levels and the target that holds keys of an input above it.
    These are all older L0 runs that overlap, and all SSTs of the target level within the smallest range that covers the
    inputs' keys.
    """

    inputs: tuple[LevelInput, ...]  # by level, ascending
    target: int  # 0: merge neighbouring L0 runs into one
    ranges: tuple[KeyRange, ...] = ()  # the keys of each input, if the picker knows that levels have pages


def open_task(log: VersionLog, writer: str, plan: CompactionPlan, expires_ms: int) -> CompactionTask:
    """Reserve the plan's SSTs. If the answer was lost, a repeated call by the same writer finds its task.

    Raises LostRaceError if the plan does not fit the newest version, or an open task has reserved part of it: pick
    again.
    """

    def find_open_task(version: HummockVersion) -> CompactionTask | None:
        wanted = writer, plan.inputs, plan.target
        return next((task for task in version.tasks if (task.writer, task.inputs, task.target) == wanted), None)

    def decide(version: HummockVersion) -> VersionChange | None:
        if find_open_task(version) is not None:
            return None
        _require_free(version, plan, merge_objection(version, plan.inputs, plan.target, plan.ranges))
        ids = version.next_task_id, writer, version.id + 1, expires_ms
        return CompactionOpened(CompactionTask(*ids, plan.target, plan.inputs, _ranges_to_store(version, plan)))

    opened = find_open_task(log.append_change(decide).version)
    assert opened is not None, "the version that opened the task contains it"
    return opened


def commit_task(log: VersionLog, task: CompactionTask, outputs: tuple[SstInfo, ...]) -> AppendResult:
    """Replace the inputs by `outputs`. Returns a version with the result, and whether this call committed it.

    Raises LostRaceError if the task was closed; SettingError if the outputs do not fit the task, which then stays open.
    """

    def decide(version: HummockVersion) -> VersionChange | None:
        if any(open_one.id == task.id for open_one in version.tasks):
            if (reason := outputs_objection(version, task, outputs)) is not None:
                raise SettingError(
                    f"the result of compaction task {task.id}",
                    f"refused on version {version.id}",
                    f"a result that fits; found: {reason}",
                )
            return CompactionCommitted(task.id, outputs)
        _require_committed(log, version, task)
        return None

    return log.append_change(decide)


def close_task(log: VersionLog, task_id: int, reason: str) -> HummockVersion:
    """End a task without effect. Does nothing if it is not open. Raises SettingError if no such task ever existed."""

    def decide(version: HummockVersion) -> VersionChange | None:
        if not 0 < task_id < version.next_task_id:
            raise SettingError("a compaction task", str(task_id), f"one of 1 to {version.next_task_id - 1}")
        return CompactionClosed(task_id, reason) if any(task.id == task_id for task in version.tasks) else None

    return log.append_change(decide).version


def renew_tasks(log: VersionLog, task_ids: Collection[int], expires_ms: int) -> tuple[CompactionTask, ...]:
    """Renew the leases of the tasks that are still open, in one delta, and return them. No lease becomes shorter."""

    def open_still(version: HummockVersion) -> tuple[CompactionTask, ...]:
        return tuple(task for task in version.tasks if task.id in task_ids)

    def decide(version: HummockVersion) -> VersionChange | None:
        due = tuple(task.id for task in open_still(version) if task.expires_ms < expires_ms)
        return CompactionsRenewed(due, expires_ms) if due else None

    return open_still(log.append_change(decide).version)


def close_lapsed(log: VersionLog, now_ms: int) -> tuple[int, ...]:
    """Close the tasks whose leases have expired at `now_ms`, except those renewed meanwhile. Returns their ids."""
    closed = []
    for lapsed in [task for task in log.read_latest().tasks if task.expires_ms <= now_ms]:

        def decide(version: HummockVersion, task_id: int = lapsed.id) -> VersionChange | None:
            task = next((task for task in version.tasks if task.id == task_id and task.expires_ms <= now_ms), None)
            return CompactionClosed(task_id, f"its lease ended at {task.expires_ms} ms") if task is not None else None

        if log.append_change(decide).mine:
            closed.append(lapsed.id)
    return tuple(closed)


def move_ssts(log: VersionLog, plan: CompactionPlan) -> HummockVersion:
    """Move the plan's SSTs down to `target` unchanged. Does nothing if all of them are already there.

    Raises LostRaceError if the move is not allowed, an SST is on another level, or an open task has reserved one.
    """
    names = {name for taken in plan.inputs for name in taken.ssts}

    def decide(version: HummockVersion) -> VersionChange | None:
        reason = move_objection(version, plan.inputs, plan.target, plan.ranges)
        target = version.levels[plan.target] if plan.target < len(version.levels) else ()
        if reason is not None and names <= {sst.name for sst in target}:
            return None
        _require_free(version, plan, reason)
        return SstsMoved(plan.inputs, plan.target, _ranges_to_store(version, plan))

    return log.append_change(decide).version


def _ranges_to_store(version: HummockVersion, plan: CompactionPlan) -> tuple[KeyRange, ...]:
    """The ranges to store: none for a version without pages. Requires: the plan fits."""
    return (plan.ranges or ranges_of(version, plan.inputs)) if has_pages(version) else ()


def _require_free(version: HummockVersion, plan: CompactionPlan, reason: str | None) -> None:
    what = f"compaction of {sum(len(taken.ssts) for taken in plan.inputs)} SSTs to level {plan.target}"
    if reason is not None:
        raise LostRaceError(what, f"on version {version.id} {reason}")
    if (task := conflict_of(version, plan.inputs, plan.target, plan.ranges)) is not None:
        raise LostRaceError(
            what,
            f"open task {task.id} of writer {task.writer!r} has reserved SSTs of these keys for level {task.target}",
        )


def _require_committed(log: VersionLog, version: HummockVersion, task: CompactionTask) -> None:
    """Require that a task ended in a commit. Reads the log from its start: only after a lost answer or a lost race."""
    for delta in log.read_deltas(task.opened + 1, version.id):
        match delta.change:
            case CompactionCommitted(task_id) if task_id == task.id:
                return
            case CompactionClosed(task_id, reason) if task_id == task.id:
                raise LostRaceError(
                    f"compaction task {task.id}", f"writer {delta.writer!r} closed it in version {delta.id}: {reason}"
                )
    raise SettingError("a compaction task", str(task.id), f"one that version {task.opened} of this store opened")

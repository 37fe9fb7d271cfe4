"""Compaction tasks in the version log: opened, committed, closed. Who merges what, and that nobody else does.

    open_task    ──>  CompactionOpened     the inputs are taken; the task's id names its objects, data/task-<id>/…
    (merge, upload)
    renew_tasks  ──>  CompactionsRenewed   while it is merged: its compactor is alive
    commit_task  ──>  CompactionCommitted  the outputs take the inputs' place
    close_task   ──>  CompactionClosed     or: nothing comes of it

Epochs are committed meanwhile: they only lay new runs on top of L0, so an open task stays able to commit until it is closed. A lease says
from when on others may close the task. The merger renews it, so leases can be short however long a merge takes. The lease guards progress,
not safety: the first of commit and closing in the log decides, and a compactor that slept however long gets LostRaceError.
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
from tussock.statestore.meta.levels import conflict_of, merge_objection, move_objection, outputs_objection
from tussock.statestore.meta.version import CompactionTask, HummockVersion, LevelInput, SstInfo
from tussock.statestore.meta.version_log import Appended, VersionLog

LEASE_MS = (
    15 * 60 * 1000
)  # of a task; renewed when a third of it is over, so a clock that differs by minutes, or a slow upload, ends none


class CompactionPlan(msgspec.Struct, frozen=True):
    """What a picker decided: merge these SSTs down to `target`.

    Requires: inputs hold, of the levels from theirs to the target, every SST that shares keys with an older or deeper input's place:
    all older L0 runs that overlap, and all SSTs of the target level within the least range that holds the inputs' keys.
    """

    inputs: tuple[LevelInput, ...]  # by level, ascending
    target: int  # 0: merges neighbouring L0 runs into one


def open_task(log: VersionLog, writer: str, plan: CompactionPlan, expires_ms: int) -> CompactionTask:
    """Take the plan's SSTs. A repeat by the same writer, after an answer was lost, finds its task.

    Raises LostRaceError when the plan does not fit the newest version, or an open task has taken some of it: pick again.
    """

    def taken(version: HummockVersion) -> CompactionTask | None:
        wanted = writer, plan.inputs, plan.target
        return next((task for task in version.tasks if (task.writer, task.inputs, task.target) == wanted), None)

    def decide(version: HummockVersion) -> VersionChange | None:
        if taken(version) is not None:
            return None
        _require_free(version, plan, merge_objection(version, plan.inputs, plan.target))
        return CompactionOpened(
            CompactionTask(version.next_task_id, writer, version.id + 1, expires_ms, plan.target, plan.inputs)
        )

    opened = taken(log.append(decide).version)
    assert opened is not None, "the version that opened it holds it"
    return opened


def commit_task(log: VersionLog, task: CompactionTask, outputs: tuple[SstInfo, ...]) -> Appended:
    """Put `outputs` in the inputs' place. Returns a version that holds it, and whether this call did it.

    Raises LostRaceError when the task was closed; SettingError when outputs do not fit the task, which is then still open.
    """

    def decide(version: HummockVersion) -> VersionChange | None:
        if any(open_one.id == task.id for open_one in version.tasks):
            if (reason := outputs_objection(version, task, outputs)) is not None:
                raise SettingError(
                    f"the result of compaction task {task.id}",
                    f"refused on version {version.id}",
                    f"to fit, but {reason}",
                )
            return CompactionCommitted(task.id, outputs)
        _require_committed(log, version, task)
        return None

    return log.append(decide)


def close_task(log: VersionLog, task_id: int, reason: str) -> HummockVersion:
    """End a task without effect; nothing happens when it is not open. Raises SettingError for a task that never was."""

    def decide(version: HummockVersion) -> VersionChange | None:
        if not 0 < task_id < version.next_task_id:
            raise SettingError("a compaction task", str(task_id), f"one of 1 to {version.next_task_id - 1}")
        return CompactionClosed(task_id, reason) if any(task.id == task_id for task in version.tasks) else None

    return log.append(decide).version


def renew_tasks(log: VersionLog, task_ids: Collection[int], expires_ms: int) -> tuple[CompactionTask, ...]:
    """Give those of the tasks that are still open a new lease, all in one delta. Returns them as they are now; no lease gets shorter."""

    def open_still(version: HummockVersion) -> tuple[CompactionTask, ...]:
        return tuple(task for task in version.tasks if task.id in task_ids)

    def decide(version: HummockVersion) -> VersionChange | None:
        due = tuple(task.id for task in open_still(version) if task.expires_ms < expires_ms)
        return CompactionsRenewed(due, expires_ms) if due else None

    return open_still(log.append(decide).version)


def close_lapsed(log: VersionLog, now_ms: int) -> tuple[int, ...]:
    """Close tasks whose lease is over at `now_ms`, but not one whose compactor renews it meanwhile. Returns the ids of those closed."""
    closed = []
    for lapsed in [task for task in log.latest().tasks if task.expires_ms <= now_ms]:

        def decide(version: HummockVersion, task_id: int = lapsed.id) -> VersionChange | None:
            task = next((task for task in version.tasks if task.id == task_id and task.expires_ms <= now_ms), None)
            return CompactionClosed(task_id, f"its lease ended at {task.expires_ms} ms") if task is not None else None

        if log.append(decide).mine:
            closed.append(lapsed.id)
    return tuple(closed)


def move_ssts(log: VersionLog, plan: CompactionPlan) -> HummockVersion:
    """Let the plan's SSTs sink to `target` as they are. Without effect when all of them are there already.

    Raises LostRaceError when they may not, or are elsewhere, or an open task has taken some.
    """
    names = {name for taken in plan.inputs for name in taken.ssts}

    def decide(version: HummockVersion) -> VersionChange | None:
        if plan.target < len(version.levels) and names <= {sst.name for sst in version.levels[plan.target]}:
            return None
        _require_free(version, plan, move_objection(version, plan.inputs, plan.target))
        return SstsMoved(plan.inputs, plan.target)

    return log.append(decide).version


def _require_free(version: HummockVersion, plan: CompactionPlan, reason: str | None) -> None:
    what = f"compaction of {sum(len(taken.ssts) for taken in plan.inputs)} SSTs to level {plan.target}"
    if reason is not None:
        raise LostRaceError(what, f"on version {version.id} {reason}")
    if (task := conflict_of(version, plan.inputs, plan.target)) is not None:
        raise LostRaceError(
            what, f"open task {task.id} of writer {task.writer!r} holds SSTs of these keys, to level {task.target}"
        )


def _require_committed(log: VersionLog, version: HummockVersion, task: CompactionTask) -> None:
    """That a task which is no longer open ended in a commit. Reads the log since it was opened: only after a lost answer or a lost race."""
    for delta in log.deltas(task.opened + 1, version.id):
        match delta.change:
            case CompactionCommitted(task_id) if task_id == task.id:
                return
            case CompactionClosed(task_id, reason) if task_id == task.id:
                raise LostRaceError(
                    f"compaction task {task.id}", f"writer {delta.writer!r} closed it in version {delta.id}: {reason}"
                )
    raise SettingError("a compaction task", str(task.id), f"one that version {task.opened} opened in this store")

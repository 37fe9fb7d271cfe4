"""The results of compaction and vacuum, as text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tussock.jobs.upkeep.compaction import TaskDone
    from tussock.jobs.upkeep.vacuum import VacuumResult
    from tussock.statestore.hummock.amplification import Amplification
    from tussock.statestore.hummock.compaction_picker import Pick


def due_text(picks: "Sequence[Pick]") -> str:
    """The merges that a round of compaction would run."""
    return "\n".join(f"due: {pick.reason} (score {pick.score:.1f})" for pick in picks) if picks else "nothing is due"


def compacted_text(done: "Sequence[TaskDone]") -> str:
    """The tasks that merged nothing. Progress lines have already shown the others."""
    return "\n".join(str(task) for task in done if task.outcome != "merged") if done else "nothing is due"


def amplification_text(amplification: "Amplification") -> str:
    """The levels and the read, space and write amplification."""
    lines = [f"{'level':>5}  {'ssts':>6}  {'rows':>15}  {'bytes':>16}  {'target bytes':>16}"]
    for level in amplification.levels:
        goal = f"{level.goal:,}" if level.goal is not None else ""
        lines.append(f"{level.level:>5}  {level.ssts:>6,}  {level.rows:>15,}  {level.bytes:>16,}  {goal:>16}".rstrip())
    space = (
        f"{amplification.space:.2f}x the largest level"
        if amplification.space is not None
        else "unknown (all rows are on L0)"
    )
    write = (
        f"{amplification.write:.2f}x the bytes that epochs flushed"
        if amplification.write is not None
        else "unknown (no epoch flushed)"
    )
    runs = f"{amplification.read} sorted run{'' if amplification.read == 1 else 's'}"
    return "\n".join([*lines, f"a read searches at most {runs}; stored: {space}; written: {write}"])


def cleaning_text(done: "VacuumResult", *, names: bool) -> str:
    """The result of a vacuum run. With `names`, one line per object."""
    report = done.vacuumed
    garbage = (*report.garbage, *done.copies)
    lines = [f"{item.size:>12,}  {item.name}  {item.reason}" for item in garbage] if names else []
    lines += [f"{item.size:>12,}  {item.name}  left by a killed process" for item in done.temporary] if names else []
    if done.closed_tasks:
        lines.append(f"closed compaction tasks {', '.join(map(str, done.closed_tasks))}: their leases had expired")
    lines += [f"left alone: {name}, a name that this store does not generate" for name in report.unknown]
    sizes = [*(item.size for item in garbage), *(item.size for item in done.temporary)]
    count, size = len(sizes), sum(sizes)
    pending = f", {report.pending_objects:,} of them not committed yet" if report.pending_objects else ""
    lines.append(f"{'removed' if report.removed else 'could remove'} {count:,} objects, {size:,} bytes")
    lines.append(f"data/ holds {report.kept_objects:,} objects in use, {report.kept_bytes:,} bytes{pending}")
    lines.append(f"the oldest readable epoch is {done.floor}")
    return "\n".join(lines)

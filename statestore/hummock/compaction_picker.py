"""Selects SSTs to compact: scores a version and plans tasks that lower the scores.

Pure functions; meta checks each plan again.

L0 receives flushes. At first there is only one level below it, the last one. Most rows are then in a single sorted run,
tombstones disappear when they arrive there, and few rows are stored twice. When that level exceeds `level_ratio` x
`base_bytes`, the level above it opens, at a tenth of its size, and so on. The base is the highest level in use; runs of
L0 go there.

L0 is due if a read would touch many of its runs, or if it is large compared with the levels below. Its oldest runs then
go down:

    unchanged (a move)                              if the base has none of their keys
    merged with the base                            if they are large enough to justify rewriting the base
    not yet; neighbouring runs are merged           otherwise: small epochs gather on L0 as in a size-tiered tree

SSTs that are largely dead are rewritten on their level. Dead rows belong to dropped tables, were kept for
readers of old epochs until the floor rose, or are deletes with no rows left to hide.

A level below L0 is due if it exceeds its size limit. Its SSTs go down one by one, starting with the ones that overlap
the fewest bytes below. Disjoint SSTs form separate tasks and run in parallel.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from tussock.statestore.hummock.ingest import DEFAULT_TARGET_BYTES
from tussock.statestore.meta.compaction import CompactionPlan
from tussock.statestore.meta.levels import (
    MAX_LEVELS,
    conflict_of,
    hull_of,
    merge_objection,
    move_objection,
    ssts_between,
)
from tussock.statestore.meta.pages import bytes_of, has_pages
from tussock.statestore.meta.version import CompactionTask, HummockVersion, LevelInput, SectionInfo, SstInfo

BOTTOM = MAX_LEVELS - 1


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Thresholds of compaction, and the size of its outputs. Sizes are bytes of SSTs."""

    l0_runs: int = 4  # runs on L0 that justify a task
    l0_limit: int = 5  # more runs on L0 are merged at any cost, because every read pays for each run
    base_bytes: int = 256 << 20  # minimum size of a level, except the last
    level_ratio: int = 10  # size of a level relative to the one above it
    merge_ratio: int = 4  # L0 runs go to the base if it holds at most this many times their bytes in their range
    small_bytes: int = 1 << 20  # a smaller L0 is never due for its size relative to the levels below
    dead_share: float = 0.25  # rewrite an SST from this share of dead bytes
    target_bytes: int = DEFAULT_TARGET_BYTES  # size of an SST


@dataclass(frozen=True, slots=True)
class Pick:
    """A task to open, or a move to make."""

    plan: CompactionPlan
    move: bool  # True: the SSTs move down unchanged
    score: float  # at least 1; higher is more urgent
    reason: str


def dropped_tables(version: HummockVersion, readable: Sequence[int]) -> frozenset[int]:
    """Tables with rows in the version that no readable epoch's catalog contains."""
    oldest = min(readable)
    live = {
        table.table_id
        for relation in version.catalog.stored_relations()
        if relation.dropped is None or relation.dropped > oldest
        for table in relation.state_tables
    }
    return frozenset(
        s.table_id for level in version.levels for sst in level for s in sst.sections if s.table_id not in live
    )


def l0_runs(version: HummockVersion) -> list[tuple[SstInfo, ...]]:
    """The runs on L0, newest first, by the epoch or task that wrote them. SSTs of one run share no key."""
    return [tuple(run) for _, run in groupby(version.levels[0], key=lambda sst: sst.name.rpartition("/")[0])]


def level_goals(version: HummockVersion, options: CompactionOptions) -> tuple[int, tuple[int, ...]]:
    """(base level, size limit of each level in bytes). Limits of L0 and of levels above the base are meaningless."""
    sizes = level_bytes(version)
    goal = max(options.base_bytes, *sizes[1:])
    goals = [0] * (BOTTOM + 1)
    base = BOTTOM
    for level in range(BOTTOM, 0, -1):
        goals[level] = goal
        if goal >= options.base_bytes:
            base = level
        goal = max(1, goal // options.level_ratio)
    used = next((level for level in range(1, BOTTOM + 1) if sizes[level]), BOTTOM)
    return min(base, used), tuple(goals)


def level_bytes(version: HummockVersion) -> tuple[int, ...]:
    """Bytes on each level, including empty levels."""
    sizes = [bytes_of(level) for level in version.levels]
    return tuple(sizes + [0] * (BOTTOM + 1 - len(sizes)))


def pick_compactions(
    version: HummockVersion,
    options: CompactionOptions,
    dropped: frozenset[int] = frozenset(),
    most: int = 8,
    oldest: int = 0,
) -> list[Pick]:
    """Due compactions, most urgent first; empty if none is due.

    They conflict with no open task and not with each other.

    Args:
        dropped: tables without readers; see `dropped_tables`.
        most: maximum number of results.
        oldest: the oldest readable epoch; 0: any.

    Cost: O(SSTs log SSTs) key comparisons per pick; no I/O.
    """
    picks: list[Pick] = []
    # Stable: candidates of equal score stay in level order.
    candidates = sorted(_list_candidates(version, options, dropped, oldest), key=lambda pick: -pick.score)
    for pick in candidates:
        if len(picks) == most:
            break
        if _is_acceptable(version, pick):
            picks.append(pick)
            version = _with_open(version, pick.plan)
    return picks


def full_compaction(version: HummockVersion) -> Pick | None:
    """Merge everything into the last level. None if the store is empty or a task is open."""
    if not any(version.levels) or version.tasks:
        return None
    return Pick(_make_plan(version, BOTTOM, *enumerate(version.levels)), False, 1.0, "everything, on demand")


def _list_candidates(
    version: HummockVersion, options: CompactionOptions, dropped: frozenset[int], oldest: int
) -> Iterator[Pick]:
    base, goals = level_goals(version, options)
    yield from _l0_candidates(version, options, base)
    for level in range(base, BOTTOM):
        yield from _level_candidates(version, level, goals[level])
    for level in range(1, len(version.levels)):
        yield from _dead_candidates(version, level, dropped, oldest, options)


# --- L0 --------------------------------------------------------------------------------------------------------------


def _l0_candidates(version: HummockVersion, options: CompactionOptions, base: int) -> Iterator[Pick]:
    runs = l0_runs(version)
    taken = {name for task in version.tasks for input in task.inputs for name in input.ssts}
    free = [not any(sst.name in taken for sst in run) for run in runs]
    size, below = sum(sst.size for sst in version.levels[0]), sum(level_bytes(version)[1:])
    score = max(len(runs) / options.l0_runs, size / options.base_bytes)
    if below and size >= options.small_bytes:
        score = max(score, size * options.merge_ratio / below)
    if score < 1:
        return
    # Runs from this one to the oldest are free.
    oldest = next((i for i in range(len(runs), 0, -1) if not free[i - 1]), 0)
    if sinking := runs[oldest:]:
        yield from _sink_picks(version, sinking, base, options, score)
    if window := _merge_window(runs, free, options):
        ssts = [sst for run in window for sst in run]
        yield Pick(_make_plan(version, 0, (0, ssts)), False, score, f"{len(window)} runs of L0 into one")


def _sink_picks(
    version: HummockVersion, runs: Sequence[Sequence[SstInfo]], base: int, options: CompactionOptions, score: float
) -> Iterator[Pick]:
    """Ways to take the oldest runs down to the base. `runs` are newest first."""
    last = runs[-1]
    ssts = [sst for run in runs for sst in run]
    size, touched = sum(sst.size for sst in ssts), _touched_ssts(version, base, ssts)
    small, sinks = size < options.small_bytes, not _touched_ssts(version, base, last)
    merges = sum(sst.size for sst in touched) <= options.merge_ratio * size
    if small and merges:
        touched = _with_small_neighbours(version, base, ssts, touched, options)
    into = _make_plan(version, base, (0, ssts), (base, touched))
    picks = [Pick(into, False, score, f"{len(runs)} runs of L0 into level {base}")] if merges else []
    if sinks:
        move = _make_plan(version, base, (0, last))
        picks.append(Pick(move, True, score, f"the oldest run of L0 moves to level {base}, which has none of its keys"))
    # A small run that moves unchanged remains a separate SST, so prefer a merge.
    yield from (picks if small else reversed(picks))


def _with_small_neighbours(
    version: HummockVersion, level: int, ssts: Sequence[SstInfo], touched: Sequence[SstInfo], options: CompactionOptions
) -> list[SstInfo]:
    """Extend `touched` by small neighbouring SSTs, while each has at most `merge_ratio` times the bytes merged so far.

    Each row is then rewritten a few times, and the number of small SSTs grows with the logarithm of their bytes.
    """
    there = version.levels[level] if level < len(version.levels) else ()
    hull, total = hull_of([*ssts, *touched]), sum(sst.size for sst in (*ssts, *touched))
    start = bisect_left(there, hull.first, key=lambda sst: sst.sections[-1].last_key)
    end = start + len(touched)
    while True:
        beside = [
            sst for sst in (*there[max(0, start - 1) : start], *there[end : end + 1]) if sst.size < options.small_bytes
        ]
        if not beside or (least := min(beside, key=lambda sst: sst.size)).size > options.merge_ratio * total:
            return list(there[start:end])
        total += least.size
        start, end = (start - 1, end) if start and least is there[start - 1] else (start, end + 1)


def _merge_window(
    runs: Sequence[Sequence[SstInfo]], free: Sequence[bool], options: CompactionOptions
) -> Sequence[Sequence[SstInfo]]:
    """Neighbouring L0 runs to merge into one; empty if it does not pay.

    Starts at the newest run and continues while the next run is no larger than all before it, so each row is written
    once per doubling. If there are too many runs and no such group, returns the cheapest neighbours that reduce the
    number enough.
    """
    sizes = [sum(sst.size for sst in run) for run in runs]
    for start in range(len(runs)):
        end, total = start, 0
        while end < len(runs) and free[end] and (end == start or sizes[end] <= total):
            total, end = total + sizes[end], end + 1
        if end - start >= options.l0_runs:
            return runs[start:end]
    width = len(runs) - options.l0_limit + 1
    if width < 2:
        return ()
    starts = [i for i in range(len(runs) - width + 1) if all(free[i : i + width])]
    if not starts:
        return ()
    start = min(starts, key=lambda i: sum(sizes[i : i + width]))
    return runs[start : start + width]


# --- levels below ----------------------------------------------------------------------------------------------------


def _level_candidates(version: HummockVersion, level: int, goal: int) -> Iterator[Pick]:
    """SSTs of an oversized level, cheapest first, until the rest fits its limit."""
    ssts = version.levels[level] if level < len(version.levels) else ()
    excess = bytes_of(ssts) - goal
    if excess <= 0:
        return
    score = 1 + excess / goal
    touched = {sst.name: _touched_ssts(version, level + 1, (sst,)) for sst in ssts}
    for sst in sorted(ssts, key=lambda sst: sum(other.size for other in touched[sst.name]) / sst.size):
        if excess <= 0:
            return
        excess -= sst.size
        others = touched[sst.name]
        reason = f"level {level} is larger than {goal:,} bytes"
        yield Pick(
            _make_plan(version, level + 1, (level, (sst,)), (level + 1, others)),
            not others,
            score,
            reason if others else f"{reason}; the next level has none of these keys",
        )


def _dead_candidates(
    version: HummockVersion, level: int, dropped: frozenset[int], oldest: int, options: CompactionOptions
) -> Iterator[Pick]:
    """SSTs of a level with many dead rows, to rewrite on their level; neighbours together."""
    neighbours: list[SstInfo] = []
    for sst in version.levels[level]:
        dead = _dead_bytes(version, level, sst, dropped, oldest) >= options.dead_share * sst.size
        if neighbours and (not dead or sum(other.size for other in neighbours) >= options.base_bytes):
            yield _rewrite_pick(version, level, neighbours)
            neighbours = []
        if dead:
            neighbours.append(sst)
    if neighbours:
        yield _rewrite_pick(version, level, neighbours)


def _rewrite_pick(version: HummockVersion, level: int, ssts: Sequence[SstInfo]) -> Pick:
    return Pick(
        _make_plan(version, level, (level, ssts)), False, 1.0, f"dead rows in {len(ssts)} SSTs of level {level}"
    )


def _dead_bytes(version: HummockVersion, level: int, sst: SstInfo, dropped: frozenset[int], oldest: int) -> int:
    """Estimate the bytes that a merge of this SST alone drops now.

    The dead rows of a live table count only if all readers see the SST's newest rows and no older rows are below for
    deletes to hide. Otherwise the number is unknown and the SST waits: frequently written keys are merged frequently
    anyway.
    """
    dead_bytes = 0
    for section in sst.sections:
        if section.table_id in dropped:
            dead_bytes += section.bytes
        elif section.dead and sst.max_epoch <= oldest and not _lies_above(version, level, section):
            dead_bytes += section.bytes * section.dead // section.rows
    return dead_bytes


def _lies_above(version: HummockVersion, level: int, section: SectionInfo) -> bool:
    """Whether deeper levels have rows of the section's table in its key range."""
    return any(
        other.table_id == section.table_id
        and other.first_key <= section.last_key
        and section.first_key <= other.last_key
        for deeper in range(level + 1, len(version.levels))
        for sst in _ssts_between(version, deeper, section.first_key, section.last_key)
        for other in sst.sections
    )


def _touched_ssts(version: HummockVersion, level: int, ssts: Sequence[SstInfo]) -> list[SstInfo]:
    """SSTs of a level below L0 within the smallest range that covers the keys of `ssts`.

    The outer ones may extend past the range. They still overlap nothing else, because a level's SSTs are disjoint.
    """
    hull = hull_of(ssts)
    return _ssts_between(version, level, hull.first, hull.last)


def _ssts_between(version: HummockVersion, level: int, first: bytes, last: bytes) -> list[SstInfo]:
    """SSTs of a level below L0 that overlap the keys `first` to `last`. Cost: two binary searches."""
    return list(ssts_between(version.levels[level], first, last)) if level < len(version.levels) else []


def _make_plan(version: HummockVersion, target: int, *inputs: tuple[int, Sequence[SstInfo]]) -> CompactionPlan:
    """The plan for the SSTs of some levels, ascending; levels may have none."""
    taken = [(LevelInput(level, tuple(sst.name for sst in ssts)), ssts) for level, ssts in inputs if ssts]
    ranges = tuple(hull_of(ssts) for _, ssts in taken) if has_pages(version) else ()
    return CompactionPlan(tuple(input for input, _ in taken), target, ranges)


def _is_acceptable(version: HummockVersion, pick: Pick) -> bool:
    """Whether meta would accept the pick now."""
    plan = pick.plan
    objection = (move_objection if pick.move else merge_objection)(version, plan.inputs, plan.target, plan.ranges)
    return objection is None and conflict_of(version, plan.inputs, plan.target, plan.ranges) is None


def _with_open(version: HummockVersion, plan: CompactionPlan) -> HummockVersion:
    """The version with the plan's task open, so that the next pick avoids it."""
    task = CompactionTask(version.next_task_id, "", 0, 0, plan.target, plan.inputs, plan.ranges)
    return msgspec.structs.replace(version, tasks=(*version.tasks, task), next_task_id=version.next_task_id + 1)

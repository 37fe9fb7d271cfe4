"""Which SSTs to compact: scores over a version, and the tasks that lower them. Pure functions; meta checks again what comes out of here.

L0 takes flushes. Below it there is at first one level, the last one: most rows lie in a single sorted run, tombstones go as soon as they
get there, and little is stored twice. When that level outgrows `level_ratio` x `base_bytes`, the level above it opens, a tenth its size,
and so on. The base is the highest level in use; runs of L0 go there.

L0 is due when a read would touch many of its runs, or when it holds much compared with the levels below. Its oldest runs then sink:

    as they are (a move)                            where nothing on the base has keys of theirs
    merged with the base                            where they are enough to be worth writing the base anew
    not yet; neighbouring runs become one           else: small epochs gather on L0 as in a size-tiered tree

SSTs that are to a good part dead are written anew in their place: rows of dropped tables, rows that were kept for readers of old epochs
until the floor rose, and deletes that sank to where nothing is left for them to hide.

A level below is due when it is larger than its share. Its SSTs sink one by one, those first that drag the least along; SSTs apart from
each other are tasks apart, and run in parallel.
"""

from bisect import bisect_left, bisect_right
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
    inputs_of,
    levels_after,
    merge_objection,
    order_objection,
)
from tussock.statestore.meta.version import CompactionTask, HummockVersion, LevelInput, SectionInfo, SstInfo

BOTTOM = MAX_LEVELS - 1


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """When compaction is due, and what it makes. Sizes in bytes of SSTs."""

    l0_runs: int = 4  # so many runs on L0 are worth a task
    l0_limit: int = 5  # more runs on L0 are merged at any price: each costs every read
    base_bytes: int = 256 << 20  # the least size of a level, other than the last, that is worth having
    level_ratio: int = 10  # a level holds this many times the one above it
    merge_ratio: int = 4  # runs of L0 go to the base when it holds at most so many times their bytes in their range
    small_bytes: int = 1 << 20  # below this, what L0 holds twice is no reason to act
    dead_share: float = 0.25  # of an SST, in bytes that nobody needs any more, from which on it is written anew
    target_bytes: int = DEFAULT_TARGET_BYTES  # of an SST


@dataclass(frozen=True, slots=True)
class Pick:
    """One task to be opened, or one move to be made."""

    plan: CompactionPlan
    move: bool  # True: the SSTs go down as they are
    score: float  # at least 1; the greater, the more urgent
    reason: str


def dropped_tables(version: HummockVersion, readable: Sequence[int]) -> frozenset[int]:
    """Tables that have rows in the version and that no reader of a readable epoch has in its catalog."""
    oldest = min(readable)
    live = {
        table.table_id
        for relation in version.catalog.stored()
        if relation.dropped is None or relation.dropped > oldest
        for table in relation.state_tables
    }
    return frozenset(
        s.table_id for level in version.levels for sst in level for s in sst.sections if s.table_id not in live
    )


def l0_runs(version: HummockVersion) -> list[tuple[SstInfo, ...]]:
    """What lies on L0, newest first, by the epoch or task that wrote it: SSTs of one share no key."""
    return [tuple(run) for _, run in groupby(version.levels[0], key=lambda sst: sst.name.rpartition("/")[0])]


def level_goals(version: HummockVersion, options: CompactionOptions) -> tuple[int, tuple[int, ...]]:
    """(the base level, how many bytes each level should hold at most). Goals of L0 and of levels above the base are of no meaning."""
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
    """Bytes on each level, empty ones included."""
    held = [sum(sst.size for sst in level) for level in version.levels]
    return tuple(held + [0] * (BOTTOM + 1 - len(held)))


def pick_compactions(
    version: HummockVersion,
    options: CompactionOptions,
    dropped: frozenset[int] = frozenset(),
    most: int = 8,
    oldest: int = 0,
) -> list[Pick]:
    """What to do now, most urgent first: tasks and moves that are in the way of no open task nor of each other; empty: nothing is due.

    Args:
        dropped: tables whose rows nobody reads, see `dropped_tables`.
        most: at most so many.
        oldest: the oldest epoch that somebody may read; 0: any.

    Cost: O(SSTs log SSTs) comparisons of keys for each pick; no I/O.
    """
    picks: list[Pick] = []
    candidates = sorted(
        _candidates(version, options, dropped, oldest), key=lambda pick: -pick.score
    )  # stable: equal ones in level order
    for pick in candidates:
        if len(picks) == most:
            break
        if _fits(version, pick):
            picks.append(pick)
            version = _with_open(version, pick.plan)
    return picks


def full_compaction(version: HummockVersion) -> Pick | None:
    """Everything into the last level; None: there is nothing, or a task is open that has some of it."""
    inputs = tuple(
        LevelInput(level, tuple(sst.name for sst in ssts)) for level, ssts in enumerate(version.levels) if ssts
    )
    if not inputs or version.tasks:
        return None
    return Pick(CompactionPlan(inputs, BOTTOM), False, 1.0, "everything, on demand")


def _candidates(
    version: HummockVersion, options: CompactionOptions, dropped: frozenset[int], oldest: int
) -> Iterator[Pick]:
    base, goals = level_goals(version, options)
    yield from _l0_candidates(version, options, base)
    for level in range(base, BOTTOM):
        yield from _level_candidates(version, level, goals[level])
    for level in range(1, len(version.levels)):
        yield from _dead_candidates(version, level, dropped, oldest, options)


# --- L0 --------------------------------------------------------------------------------------------------------------------------


def _l0_candidates(version: HummockVersion, options: CompactionOptions, base: int) -> Iterator[Pick]:
    runs = l0_runs(version)
    taken = {name for task in version.tasks for given in task.inputs for name in given.ssts}
    free = [not any(sst.name in taken for sst in run) for run in runs]
    size, below = sum(sst.size for sst in version.levels[0]), sum(level_bytes(version)[1:])
    score = max(len(runs) / options.l0_runs, size / options.base_bytes)
    if below and size >= options.small_bytes:
        score = max(score, size * options.merge_ratio / below)
    if score < 1:
        return
    oldest = next(
        (i for i in range(len(runs), 0, -1) if not free[i - 1]), 0
    )  # runs from here on are free, to the oldest
    if sinking := runs[oldest:]:
        yield from _sinking(version, sinking, base, options, score)
    if window := _window(runs, free, options):
        ssts = [sst for run in window for sst in run]
        yield Pick(CompactionPlan((_input(0, ssts),), 0), False, score, f"{len(window)} runs of L0 into one")


def _sinking(
    version: HummockVersion, runs: Sequence[Sequence[SstInfo]], base: int, options: CompactionOptions, score: float
) -> Iterator[Pick]:
    """Ways down to the base for the oldest runs, newest first."""
    last = runs[-1]
    ssts = [sst for run in runs for sst in run]
    size, met = sum(sst.size for sst in ssts), _touched(version, base, ssts)
    small, sinks = size < options.small_bytes, not _touched(version, base, last)
    merges = sum(sst.size for sst in met) <= options.merge_ratio * size
    if small and merges:
        met = _with_small_neighbours(version, base, ssts, met, options)
    into = CompactionPlan((_input(0, ssts), _input(base, met)) if met else (_input(0, ssts),), base)
    picks = [Pick(into, False, score, f"{len(runs)} runs of L0 into level {base}")] if merges else []
    if sinks:
        move = CompactionPlan((_input(0, last),), base)
        picks.append(Pick(move, True, score, f"the oldest run of L0 sinks to level {base}: none of its keys are there"))
    yield from (
        picks if small else reversed(picks)
    )  # a small run that sinks as it is stays an SST of its own: merge it, if possible


def _with_small_neighbours(
    version: HummockVersion, level: int, ssts: Sequence[SstInfo], met: Sequence[SstInfo], options: CompactionOptions
) -> list[SstInfo]:
    """The SSTs that `met` names, and small SSTs beside them, as long as each is at most `merge_ratio` times the bytes merged so far.

    Each row is then written a few times, and the number of small SSTs grows with the logarithm of their bytes.
    """
    there = version.levels[level] if level < len(version.levels) else ()
    hull, total = hull_of([*ssts, *met]), sum(sst.size for sst in (*ssts, *met))
    start = bisect_left(there, hull.first, key=lambda sst: sst.sections[-1].last_key)
    end = start + len(met)
    while True:
        beside = [
            sst for sst in (*there[max(0, start - 1) : start], *there[end : end + 1]) if sst.size < options.small_bytes
        ]
        if not beside or (least := min(beside, key=lambda sst: sst.size)).size > options.merge_ratio * total:
            return list(there[start:end])
        total += least.size
        start, end = (start - 1, end) if start and least is there[start - 1] else (start, end + 1)


def _window(
    runs: Sequence[Sequence[SstInfo]], free: Sequence[bool], options: CompactionOptions
) -> Sequence[Sequence[SstInfo]]:
    """Neighbouring runs of L0 to be made one; empty: none are worth it.

    From the newest run on, as long as the next is no larger than all before it: each row is then written once per doubling. When there
    are too many runs, and none such, the cheapest neighbours that bring the number down.
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


# --- levels below ----------------------------------------------------------------------------------------------------------------


def _level_candidates(version: HummockVersion, level: int, goal: int) -> Iterator[Pick]:
    """SSTs of a level that is too large, cheapest first, until what stays is within the goal."""
    ssts = version.levels[level] if level < len(version.levels) else ()
    excess = sum(sst.size for sst in ssts) - goal
    if excess <= 0:
        return
    score = 1 + excess / goal
    met = {sst.name: _touched(version, level + 1, (sst,)) for sst in ssts}
    for sst in sorted(ssts, key=lambda sst: sum(other.size for other in met[sst.name]) / sst.size):
        if excess <= 0:
            return
        excess -= sst.size
        own, others = _input(level, (sst,)), met[sst.name]
        if others:
            yield Pick(
                CompactionPlan((own, _input(level + 1, others)), level + 1),
                False,
                score,
                f"level {level} is beyond {goal:,} bytes",
            )
        else:
            yield Pick(
                CompactionPlan((own,), level + 1),
                True,
                score,
                f"level {level} is beyond {goal:,} bytes; nothing is in the way",
            )


def _dead_candidates(
    version: HummockVersion, level: int, dropped: frozenset[int], oldest: int, options: CompactionOptions
) -> Iterator[Pick]:
    """SSTs of a level that are, to a good part, rows that nobody needs: written anew in their place without them, neighbours together."""
    held: list[SstInfo] = []
    for sst in version.levels[level]:
        dead = _dead_bytes(version, level, sst, dropped, oldest) >= options.dead_share * sst.size
        if held and (not dead or sum(other.size for other in held) >= options.base_bytes):
            yield _rewritten(level, held)
            held = []
        if dead:
            held.append(sst)
    if held:
        yield _rewritten(level, held)


def _rewritten(level: int, ssts: Sequence[SstInfo]) -> Pick:
    return Pick(
        CompactionPlan((_input(level, ssts),), level),
        False,
        1.0,
        f"rows that nobody needs in {len(ssts)} SSTs of level {level}",
    )


def _dead_bytes(version: HummockVersion, level: int, sst: SstInfo, dropped: frozenset[int], oldest: int) -> int:
    """About how many bytes a merge of the SST alone drops now.

    Of a live table, its dead rows, if all readers see the SST's newest rows and nothing older lies below for deletes to hide. Else it is
    not known how many, and the SST waits: what is written often is merged often.
    """
    found = 0
    for section in sst.sections:
        if section.table_id in dropped:
            found += section.bytes
        elif section.dead and sst.max_epoch <= oldest and not _lies_above(version, level, section):
            found += section.bytes * section.dead // section.rows
    return found


def _lies_above(version: HummockVersion, level: int, section: SectionInfo) -> bool:
    """Whether deeper levels have rows of the section's table among its keys."""
    return any(
        other.table_id == section.table_id
        and other.first_key <= section.last_key
        and section.first_key <= other.last_key
        for deeper in range(level + 1, len(version.levels))
        for sst in _between(version, deeper, section.first_key, section.last_key)
        for other in sst.sections
    )


def _touched(version: HummockVersion, level: int, ssts: Sequence[SstInfo]) -> list[SstInfo]:
    """SSTs of a level below L0 within the least range that holds the keys of `ssts`. Those at its ends reach out of it, to nobody:
    a level's SSTs are apart."""
    hull = hull_of(ssts)
    return _between(version, level, hull.first, hull.last)


def _between(version: HummockVersion, level: int, first: bytes, last: bytes) -> list[SstInfo]:
    """SSTs of a level below L0 whose range meets the keys `first` to `last`. Cost: two binary searches."""
    if level >= len(version.levels):
        return []
    ssts = version.levels[level]
    start = bisect_left(ssts, first, key=lambda sst: sst.sections[-1].last_key)
    return list(ssts[start : bisect_right(ssts, last, lo=start, key=lambda sst: sst.sections[0].first_key)])


def _input(level: int, ssts: Sequence[SstInfo]) -> LevelInput:
    return LevelInput(level, tuple(sst.name for sst in ssts))


def _fits(version: HummockVersion, pick: Pick) -> bool:
    """Whether meta would take it now."""
    inputs, target = pick.plan.inputs, pick.plan.target
    if merge_objection(version, inputs, target) is not None or conflict_of(version, inputs, target) is not None:
        return False
    if not pick.move:
        return True
    found = inputs_of(version, inputs)
    assert not isinstance(found, str)
    return order_objection(levels_after(version.levels, inputs, target, found)[target]) is None


def _with_open(version: HummockVersion, plan: CompactionPlan) -> HummockVersion:
    """The version as if the plan's task were open, so that the next pick keeps clear of it."""
    task = CompactionTask(version.next_task_id, "", 0, 0, plan.target, plan.inputs)
    return msgspec.structs.replace(version, tasks=(*version.tasks, task), next_task_id=version.next_task_id + 1)

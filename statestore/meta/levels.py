"""The rules for moving SSTs between levels, as pure functions. Every committer and every replay applies them.

A read returns the first row that it finds, from the newest L0 run down to the last level. An SST may therefore move
down only past SSTs that hold none of its keys or that move with it. Below L0, each level is one sorted run.

A change reads only those pages of a level (pages.py) that have its keys. Inputs are listed by name, so `ranges` has the
keys of each input: without it, an input is searched on its whole level.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tussock.statestore.meta.names import task_prefix
from tussock.statestore.meta.pages import PagedLevel
from tussock.statestore.meta.version import CompactionTask, HummockVersion, KeyRange, Level, LevelInput, SstInfo

MAX_LEVELS = 8  # L0 and seven below, each ten times larger than the one above: enough for 10^7 L0 runs

Levels = tuple[Level, ...]


def hull_of(ssts: Iterable[SstInfo]) -> KeyRange:
    """The smallest range that covers all keys. Requires: at least one SST, each with a section."""
    ssts = list(ssts)
    return KeyRange(min(s.sections[0].first_key for s in ssts), max(s.sections[-1].last_key for s in ssts))


def ranges_overlap(one: KeyRange, other: KeyRange) -> bool:
    """Whether the ranges have a key in common."""
    return one.first <= other.last and other.first <= one.last


def ssts_between(level: Sequence[SstInfo], first: bytes, last: bytes) -> Sequence[SstInfo]:
    """The SSTs of a level below L0 that overlap the keys `first` to `last`. Cost: two binary searches."""
    if isinstance(level, PagedLevel):
        return level.ssts_between(first, last)
    start = bisect_left(level, first, key=lambda sst: sst.sections[-1].last_key)
    return level[start : bisect_right(level, last, lo=start, key=lambda sst: sst.sections[0].first_key)]


def ssts_overlap(one: SstInfo, other: SstInfo) -> bool:
    """Whether a key may be in both SSTs. Cost: O(sections).

    Compares sections, because the range of an SST with many tables spans nearly all keys.
    """
    i = j = 0
    while i < len(one.sections) and j < len(other.sections):
        a, b = one.sections[i], other.sections[j]
        if a.last_key < b.first_key:
            i += 1
        elif b.last_key < a.first_key:
            j += 1
        else:
            return True
    return False


def inputs_of(
    version: HummockVersion, inputs: Sequence[LevelInput], ranges: Sequence[KeyRange] = ()
) -> list[SstInfo] | str:
    """The named SSTs, newest first, or an error text if one is not on its level."""
    ssts: list[SstInfo] = []
    for place, taken in enumerate(inputs):
        there = _taken_from(version.levels, taken, ranges[place] if len(ranges) == len(inputs) else None)
        if len(there) < len(names := set(taken.ssts)):
            missing = names - {sst.name for sst in there}
            name = next(name for name in taken.ssts if name in missing)
            return f"its input {name!r} is not on level {taken.level}"
        ssts += there
    return ssts


def _taken_from(levels: Levels, taken: LevelInput, keys: KeyRange | None) -> list[SstInfo]:
    """The named SSTs that are on their level. `keys`: those of the SSTs; None: unknown."""
    names = set(taken.ssts)
    level = levels[taken.level] if taken.level < len(levels) else ()
    if keys is not None and taken.level > 0:
        ssts = [sst for sst in ssts_between(level, keys.first, keys.last) if sst.name in names]
        if len(ssts) == len(names):
            return ssts
    return [sst for sst in level if sst.name in names]


def ranges_of(version: HummockVersion, inputs: Sequence[LevelInput]) -> tuple[KeyRange, ...]:
    """The keys of each input. Requires: the SSTs are there."""
    ssts_of_inputs = (_taken_from(version.levels, taken, None) for taken in inputs)
    return tuple(hull_of(ssts) if ssts else KeyRange(b"", b"") for ssts in ssts_of_inputs)


def merge_objection(
    version: HummockVersion, inputs: Sequence[LevelInput], target: int, ranges: Sequence[KeyRange] = ()
) -> str | None:
    """The reason why these inputs must not be merged down to `target` on this version, or None.

    Cost: at worst O(SSTs on L0, and on the levels above the target with keys of the inputs, x inputs). Reads pages.
    """
    levels = [taken.level for taken in inputs]
    names = {name for taken in inputs for name in taken.ssts}
    if not names or levels != sorted(set(levels)) or len(names) != sum(len(taken.ssts) for taken in inputs):
        return "it has no input, lists one twice, or lists levels out of order"
    if not levels[-1] <= target < MAX_LEVELS:
        return f"it moves from level {levels[-1]} to level {target}; levels go down, from 0 to {MAX_LEVELS - 1}"
    ssts = inputs_of(version, inputs, ranges)
    if isinstance(ssts, str):
        return ssts
    if target == 0:
        places = [place for place, sst in enumerate(version.levels[0]) if sst.name in names]
        return None if places[-1] - places[0] + 1 == len(places) else "it merges L0 runs that are not adjacent"
    hull = hull_of(ssts)
    if (left := _left_above(version, names, hull, target)) is not None:
        return left
    if target < len(version.levels):
        for sst in ssts_between(version.levels[target], hull.first, hull.last):
            if sst.name not in names:
                return f"{sst.name!r} on level {target} holds keys in its range and is not one of its inputs"
    return None


def move_objection(
    version: HummockVersion, inputs: Sequence[LevelInput], target: int, ranges: Sequence[KeyRange] = ()
) -> str | None:
    """The reason why these SSTs must not move to `target` unchanged, or None."""
    if (reason := merge_objection(version, inputs, target, ranges)) is not None:
        return reason
    if inputs[-1].level == target:
        return f"it moves from level {target} to level {target}"
    ssts = inputs_of(version, inputs, ranges)
    assert not isinstance(ssts, str), "merge_objection has resolved the inputs"
    return _order_objection_near(levels_after(version.levels, inputs, target, ssts, ranges)[target], ssts)


def conflict_of(
    version: HummockVersion, inputs: Sequence[LevelInput], target: int, ranges: Sequence[KeyRange]
) -> CompactionTask | None:
    """An open task that a new task on these inputs would conflict with, or None. Requires: no `merge_objection`."""
    if not version.tasks:
        return None
    names = {name for taken in inputs for name in taken.ssts}
    ssts = inputs_of(version, inputs, ranges)
    assert not isinstance(ssts, str)
    hull = hull_of(ssts)
    for task in version.tasks:
        theirs = inputs_of(version, task.inputs, task.ranges)
        assert not isinstance(theirs, str), "the inputs of an open task stay until it is closed"
        same_place = task.target == target > 0 and ranges_overlap(hull, hull_of(theirs))
        if same_place or not names.isdisjoint(sst.name for sst in theirs):
            return task
    return None


def levels_after(
    levels: Levels,
    inputs: Sequence[LevelInput],
    target: int,
    outputs: Sequence[SstInfo],
    ranges: Sequence[KeyRange] = (),
) -> Levels:
    """The levels after `outputs` replace the inputs. Requires: no `merge_objection`; the outputs overlap nothing."""
    after: list[Level] = [*levels, *((),) * (target + 1 - len(levels))]
    for place, taken in enumerate(inputs):
        removed = _taken_from(levels, taken, ranges[place] if len(ranges) == len(inputs) else None)
        if taken.level == target == 0:  # L0 is ordered by age, so the outputs take the position of their inputs.
            names = {sst.name for sst in removed}
            start = next(i for i, sst in enumerate(levels[0]) if sst.name in names)
            after[0] = (*levels[0][:start], *outputs, *(sst for sst in levels[0][start:] if sst.name not in names))
        else:
            after[taken.level] = _replace_ssts(after[taken.level], removed, ())
    if target > 0:
        after[target] = _replace_ssts(after[target], (), outputs)
    return tuple(after)


def _replace_ssts(level: Level, removed: Sequence[SstInfo], added: Sequence[SstInfo]) -> Level:
    """A level without some of its SSTs, and a level below L0 with others."""
    if isinstance(level, PagedLevel):
        return level.replace_ssts(removed, added)
    names = {sst.name for sst in removed}
    remaining = tuple(sst for sst in level if sst.name not in names)
    return tuple(sorted((*remaining, *added), key=lambda sst: sst.sections[0].first_key)) if added else remaining


def outputs_objection(version: HummockVersion, task: CompactionTask, outputs: Sequence[SstInfo]) -> str | None:
    """The reason why these outputs must not replace the inputs of an open task, or None."""
    if (reason := merge_objection(version, task.inputs, task.target, task.ranges)) is not None:
        return reason
    ssts = inputs_of(version, task.inputs, task.ranges)
    assert not isinstance(ssts, str), "merge_objection has resolved the inputs"
    inputs = {sst.name: sst for sst in ssts}
    for sst in outputs:
        if not sst.sections:
            return f"its output {sst.name!r} is empty"
        if not sst.name.startswith(task_prefix(task.id)) and inputs.get(sst.name) != sst:
            return f"its output {sst.name!r} is not below {task_prefix(task.id)}, so vacuum could remove it"
    if outputs:
        output_hull, input_hull = hull_of(outputs), hull_of(ssts)
        if output_hull.first < input_hull.first or input_hull.last < output_hull.last:
            return "its outputs hold keys outside the range of its inputs"
    if task.target == 0:
        return None
    after = levels_after(version.levels, task.inputs, task.target, outputs, task.ranges)
    return _order_objection_near(after[task.target], outputs)


def _order_objection_near(level: Level, added: Sequence[SstInfo]) -> str | None:
    """As `order_objection`, for a level that was valid before `added`. Reads only the pages near them.

    If an SST overlaps another one, one of the two was added, and an SST that was added overlaps a neighbour of it.
    """
    if not isinstance(level, PagedLevel) or not added:
        return order_objection(level)
    starts = [sst.sections[0].first_key for sst in added]
    return order_objection(level.ssts_around(min(starts), max(starts)))


def order_objection(level: Sequence[SstInfo]) -> str | None:
    """The reason why this is not a valid level below L0 (two neighbours share keys), or None."""
    for before, after in pairwise(level):
        if before.sections[-1].last_key >= after.sections[0].first_key:
            return f"{before.name!r} and {after.name!r} would overlap"
    return None


def _left_above(version: HummockVersion, names: set[str], hull: KeyRange, target: int) -> str | None:
    """Find an SST that would stay above the outputs although it is older than an input with a common key."""
    above: list[SstInfo] = []  # inputs seen so far; they are newer than the SSTs that follow
    for level, ssts in enumerate(version.levels[:target]):
        for sst in ssts if level == 0 else ssts_between(ssts, hull.first, hull.last):
            if sst.name in names:
                above.append(sst)
            elif above and ranges_overlap(hull, hull_of((sst,))):
                # SSTs of one epoch share no key, so their order on L0 does not matter.
                newer = [s for s in above if (level > 0 or s.max_epoch > sst.min_epoch) and ssts_overlap(s, sst)]
                if newer:
                    return (
                        f"{sst.name!r} on level {level} would stay above it, although it is older than the input "
                        f"{newer[0].name!r} and holds the same keys"
                    )
    return None

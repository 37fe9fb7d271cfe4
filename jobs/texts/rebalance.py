"""What a rebalancing comes to, as text for people: the command line prints it, and the DAG's page of what a person is to approve."""

from collections.abc import Iterator, Sequence

from tussock.jobs.texts.table import aligned
from tussock.jobs.upkeep.rebalance import HOT_SHARE, MoveVerdict, Rebalance, UnitShare, VnodeHotKey

_SHOWN = 20  # moves that are listed one by one, unless all are asked for


def rebalance_text(found: Rebalance, hot: VnodeHotKey | None = None, full: bool = False) -> str:
    """The verdict, the moves, and each unit before and after.

    Args:
        hot: of the hottest vnode, where that is the cause.
        full: every move, however many there are.
    """
    digest = [f"digest {found.digest}"] if found.verdict is MoveVerdict.MOVE else []
    moves = list(_moves(found))
    if not full and len(moves) > _SHOWN:
        moves = [*moves[:_SHOWN], f"  and {len(moves) - _SHOWN} more ranges"]
    return "\n".join([_verdict(found, hot), *moves, "", _units(found), _measure(found), *digest])


def units_text(before: Sequence[UnitShare], after: Sequence[UnitShare] | None = None) -> str:
    """A line a unit: what it has, or had and is to have."""
    rows = [("unit", "vnodes", "rows", "bytes", "load")]
    for unit in range(max(len(before), len(after or ()))):
        cells = _cells(before, unit)
        rows.append(
            (
                str(unit),
                *(cells if after is None else (f"{b} -> {a}" for b, a in zip(cells, _cells(after, unit), strict=True))),
            )
        )
    return aligned(rows, [True] * 5)


def _units(found: Rebalance) -> str:
    return units_text(found.before, found.after if found.verdict is MoveVerdict.MOVE else None)


def _cells(shares: Sequence[UnitShare], unit: int) -> tuple[str, str, str, str]:
    if unit >= len(shares):
        return "none", "none", "none", "none"
    share = shares[unit]
    return f"{share.vnodes:,}", f"{share.rows:,}", f"{share.bytes:,}", f"{share.load:.1%}"


def _verdict(found: Rebalance, hot: VnodeHotKey | None) -> str:
    busiest, units = max(share.load for share in found.before), len(found.before)
    times = f"the busiest of {units} units carries {busiest * units:.2f} times the mean"
    if found.verdict is MoveVerdict.MOVE:
        moved = f"{found.moved} of {len(found.planned.units)} vnodes move, to {len(found.after)} units"
        return f"{moved}; the busiest then carries {_times(found.after):.2f} times the mean"
    if found.verdict is MoveVerdict.EVEN:
        return "nothing moves: " + (
            "the vnodes lie as asked for" if found.target is None else f"{times}, the target is {found.target:g}"
        )
    if found.verdict is MoveVerdict.STUCK:
        return f"nothing moves: {times}, the target is {found.target}, and no vnode could move that would make it more even"
    alone = f"vnode {found.hottest} alone carries {found.hottest_load:.1%}, {found.hottest_load * units:.2f} times the mean of a unit"
    return f"nothing moves: {alone} (target {found.target:g}), so it is beyond that on any unit. {_cause(hot)}"


def _cause(hot: VnodeHotKey | None) -> str:
    if hot is None:
        return "Of what it is made can't be seen: nothing is stored of it."
    table = f"{hot.relation}, state table {hot.table_id}"
    if not hot.key:
        return f"Its rows are those of {table}, which is kept on one unit as a whole: a global aggregate, or a LIMIT."
    if hot.share < HOT_SHARE:
        return (
            f"No single key is the cause: the one with most rows, {hot.key} of {table}, has {hot.rows:,} of {hot.of:,}."
        )
    return (
        f"One hot key is the cause, which no move of vnodes mends: {hot.key} of {table} has {hot.rows:,} of the vnode's {hot.of:,} rows. "
        "Group or join by more columns, or filter the key out and treat it in a view of its own."
    )


def _times(shares: Sequence[UnitShare]) -> float:
    return max(share.load for share in shares) * len(shares)


def _moves(found: Rebalance) -> Iterator[str]:
    for move in found.moves:
        which = f"vnode {move.first}" if move.first == move.last else f"vnodes {move.first} to {move.last}"
        yield f"  {which}: unit {move.source} -> unit {move.target}"


def _measure(found: Rebalance) -> str:
    what = (
        f"that the last {found.epochs} epochs wrote"
        if found.epochs
        else "that are stored, as nothing of the last epochs' is left to count"
    )
    return f"load: rows {what}; rows and bytes by block indexes, old versions included"

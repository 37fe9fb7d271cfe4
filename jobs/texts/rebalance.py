"""A rebalancing as text, for the command line and for the approval page of its DAG."""

from collections.abc import Iterator, Sequence

from tussock.jobs.settings.row_values import HINT, prints_rows
from tussock.jobs.texts.table import align_cells
from tussock.jobs.upkeep.rebalance import HOT_SHARE, MoveVerdict, Rebalance, UnitShare, VnodeHotKey

_SHOWN = 20  # moves listed one by one unless `full` is set


def rebalance_text(plan: Rebalance, hot: VnodeHotKey | None = None, full: bool = False) -> str:
    """The verdict, the moves, and each unit before and after.

    Args:
        hot: the hot key of the hottest vnode, if that vnode alone exceeds the target.
        full: list every move.
    """
    digest = [f"digest {plan.digest}"] if plan.verdict is MoveVerdict.MOVE else []
    moves = list(_move_lines(plan))
    if not full and len(moves) > _SHOWN:
        moves = [*moves[:_SHOWN], f"  and {len(moves) - _SHOWN} more ranges"]
    return "\n".join([_verdict_text(plan, hot), *moves, "", _units_table(plan), _measure_text(plan), *digest])


def units_text(before: Sequence[UnitShare], after: Sequence[UnitShare] | None = None) -> str:
    """One line per unit: its current share, or its share before and after."""
    rows = [("unit", "vnodes", "rows", "bytes", "load")]
    for unit in range(max(len(before), len(after or ()))):
        cells = _share_cells(before, unit)
        rows.append(
            (
                str(unit),
                *(
                    cells
                    if after is None
                    else (f"{b} -> {a}" for b, a in zip(cells, _share_cells(after, unit), strict=True))
                ),
            )
        )
    return align_cells(rows, [True] * 5)


def _units_table(plan: Rebalance) -> str:
    return units_text(plan.before, plan.after if plan.verdict is MoveVerdict.MOVE else None)


def _share_cells(shares: Sequence[UnitShare], unit: int) -> tuple[str, str, str, str]:
    if unit >= len(shares):
        return "none", "none", "none", "none"
    share = shares[unit]
    return f"{share.vnodes:,}", f"{share.rows:,}", f"{share.bytes:,}", f"{share.load:.1%}"


def _verdict_text(plan: Rebalance, hot: VnodeHotKey | None) -> str:
    busiest, units = max(share.load for share in plan.before), len(plan.before)
    times = f"the busiest of {units} units carries {busiest * units:.2f} times the mean"
    if plan.verdict is MoveVerdict.MOVE:
        moved = f"{plan.moved_vnodes} of {plan.planned.vnode_count} vnodes move, to {len(plan.after)} units"
        return f"{moved}; the busiest then carries {_load_factor(plan.after):.2f} times the mean"
    if plan.verdict is MoveVerdict.EVEN:
        return "nothing moves: " + (
            "the vnodes are already distributed as requested"
            if plan.target is None
            else f"{times}, the target is {plan.target:g}"
        )
    if plan.verdict is MoveVerdict.STUCK:
        return f"nothing moves: {times}, the target is {plan.target}, and no move of a vnode would make it more even"
    alone = (
        f"vnode {plan.hottest} alone carries {plan.hottest_load:.1%}, "
        f"{plan.hottest_load * units:.2f} times the mean of a unit"
    )
    beyond = f"{alone} (target {plan.target:g}), so any unit that holds it exceeds the target"
    return f"nothing moves: {beyond}. {_cause_text(hot)}"


def _cause_text(hot: VnodeHotKey | None) -> str:
    if hot is None:
        return "The cause is unknown, because the vnode has no stored rows."
    table = f"{hot.relation}, state table {hot.table_id}"
    key = hot.key if prints_rows() else HINT
    if not hot.key:
        return f"Its rows belong to {table}, which is kept on one unit as a whole: a global aggregate or a LIMIT."
    if hot.share < HOT_SHARE:
        return f"No single key is the cause: the key with most rows, {key} of {table}, has {hot.rows:,} of {hot.of:,}."
    return (
        f"One hot key is the cause, and moving vnodes does not help: {key} of {table} has {hot.rows:,} of the "
        f"vnode's {hot.of:,} rows. Group or join by more columns, or filter the key out and process it in a separate "
        "view."
    )


def _load_factor(shares: Sequence[UnitShare]) -> float:
    return max(share.load for share in shares) * len(shares)


def _move_lines(plan: Rebalance) -> Iterator[str]:
    for move in plan.moves:
        which = f"vnode {move.first}" if move.first == move.last else f"vnodes {move.first} to {move.last}"
        yield f"  {which}: unit {move.source} -> unit {move.target}"


def _measure_text(plan: Rebalance) -> str:
    what = (
        f"written by the last {plan.epochs} epochs"
        if plan.epochs
        else "stored, because recent epochs have no counts of rows"
    )
    return f"load: rows {what}; rows and bytes are estimated from block indexes and include old versions"

"""Branches as text."""

from collections.abc import Sequence

from tussock.jobs.driver.merge import Merge
from tussock.jobs.facts.branches import BranchFacts
from tussock.jobs.settings.deployed import FileChange
from tussock.jobs.settings.prices import Prices
from tussock.jobs.texts.status import bytes_text
from tussock.jobs.texts.table import align_cells
from tussock.statestore.meta.catalog import shown_name

_HEAD = ("branch", "epoch", "behind", "own bytes", "per month", "created", "ends")


def created_text(branch: BranchFacts) -> str:
    """Describe a new branch, with the next commands."""
    return (
        f"branch {branch.name} begins at epoch {branch.began} and ends at {branch.ends:%Y-%m-%d %H:%M} UTC. It wrote "
        f"{bytes_text(branch.own_bytes)}. Pass --branch {branch.name} to use it."
    )


def merge_text(merge: Merge) -> str:
    """One line per relation that the parent adopts or ends, then the outcome."""
    created, dropped = merge.schemas
    ended = {(relation.kind, relation.name) for relation in merge.ended}
    lines = [f"+ schema {name}  new" for name in created]
    for relation in merge.adopted:
        rows = f", {merge.rows[relation.name]:,} rows" if relation.name in merge.rows else ""
        sign, what = ("~", "replaced") if (relation.kind, relation.name) in ended else ("+", "new")
        lines.append(f"{sign} {relation.kind.value} {shown_name(relation.name)}  {what}, adopted from the branch{rows}")
    adopted = {(relation.kind, relation.name) for relation in merge.adopted}
    lines += [f"- {r.kind.value} {shown_name(r.name)}  dropped" for r in merge.ended if (r.kind, r.name) not in adopted]
    lines += [f"- schema {name}  dropped" for name in dropped]
    lines += [_file_line(change) for change in merge.files]
    if not lines:
        return f"branch {merge.branch} has no changes"
    return "\n".join([*lines, f"0 rows to compute; the digest of this merge is {merge.digest}"])


def _file_line(change: FileChange) -> str:
    """One line for a suite or sink of the merged files."""
    what = {"+": "new", "~": "changed", "-": "removed"}[change.sign]
    more = "; its tables stay as they are" if (change.sign, change.kind) == ("-", "sink") else ""
    return f"{change.sign} {change.kind} {change.name}  {what} in the files{more}"


def branches_text(branches: Sequence[BranchFacts], prices: Prices) -> str:
    """One line per branch. `prices`: of its storage."""
    if not branches:
        return "no open branch"
    lines = [
        (
            branch.name,
            str(branch.epoch),
            str(branch.behind) if branch.follows else f"{branch.behind} (own input)",
            bytes_text(branch.own_bytes),
            f"${branch.monthly_dollars(prices):.4f}",
            f"{branch.created:%Y-%m-%d %H:%M}",
            f"{branch.ends:%Y-%m-%d %H:%M}",
        )
        for branch in branches
    ]
    return align_cells([_HEAD, *lines], [False, True, True, True, True, False, False])

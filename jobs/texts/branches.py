"""Branches as text."""

from collections.abc import Sequence

from tussock.jobs.facts.branches import BranchFacts
from tussock.jobs.texts.status import bytes_text
from tussock.jobs.texts.table import align_cells

_HEAD = ("branch", "epoch", "behind", "own bytes", "created", "ends")


def created_text(branch: BranchFacts) -> str:
    """Describe a new branch, with the next commands."""
    return (
        f"branch {branch.name} begins at epoch {branch.began} and ends at {branch.ends:%Y-%m-%d %H:%M} UTC. It wrote "
        f"{bytes_text(branch.own_bytes)}. Pass --branch {branch.name} to use it."
    )


def branches_text(branches: Sequence[BranchFacts]) -> str:
    """One line per branch."""
    if not branches:
        return "no open branch"
    lines = [
        (
            branch.name,
            str(branch.epoch),
            str(branch.behind) if branch.follows else f"{branch.behind} (own input)",
            bytes_text(branch.own_bytes),
            f"{branch.created:%Y-%m-%d %H:%M}",
            f"{branch.ends:%Y-%m-%d %H:%M}",
        )
        for branch in branches
    ]
    return align_cells([_HEAD, *lines], [False, True, True, True, False, False])

"""The open branches of a store."""

from datetime import datetime

import msgspec

from tussock.jobs.settings.prices import Prices
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import Branch, HummockVersion
from tussock.statestore.objectstore.branch import branch_of


class BranchFacts(msgspec.Struct, frozen=True):
    """One open branch."""

    name: str
    created: datetime
    ends: datetime
    began: int  # the parent's epoch that it began with
    epoch: int  # its committed epoch
    follows: bool
    behind: int  # readable epochs of the parent after the last one that the branch has
    own_objects: int  # below its prefix
    own_bytes: int

    def monthly_dollars(self, prices: Prices) -> float:
        """The price of storing its own bytes for a month."""
        return self.own_bytes / 1e9 * prices.gb_month


def list_branches(meta: MetaStore) -> tuple[BranchFacts, ...]:
    """Return the open branches of a store, in order of creation. Cost: opens and lists each branch."""
    version = meta.read_latest()
    return tuple(facts_of_branch(branch, version, meta.branch(branch.name)) for branch in version.branches)


def facts_of_branch(branch: Branch, parent: HummockVersion, meta: MetaStore) -> BranchFacts:
    """Return the facts of a branch. `parent`: the newest version of its parent. Cost: opens and lists the branch."""
    version = meta.read_latest()
    shared = max((epoch for epoch in version.epochs if epoch in parent.epochs and branch.follows), default=branch.epoch)
    sizes = [info.size for info in meta.objects.list("")]
    return BranchFacts(
        branch.name,
        time_of_ms(branch.created_ms),
        time_of_ms(branch.expires_ms),
        branch.epoch,
        version.epoch,
        branch.follows,
        sum(epoch > shared for epoch in parent.epochs),
        len(sizes),
        sum(sizes),
    )


def find_own_branch(meta: MetaStore) -> BranchFacts | None:
    """Return the facts of the branch that a store is; None if it is none, or has ended.

    Cost: none if it is no branch, else as `facts_of_branch`.
    """
    if (mark := branch_of(meta.objects)) is None:
        return None
    parent = meta.parent.read_latest()
    branch = next((branch for branch in parent.branches if branch.number == mark.number), None)
    return None if branch is None else facts_of_branch(branch, parent, meta)

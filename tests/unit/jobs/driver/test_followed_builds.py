"""Branches of a parent that builds a view over several epochs. No Spark.

The expected rows are computed from the rows of the tables by DuckDB.
"""

import random
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tests.unit.jobs.driver.test_builds import (
    FEW,
    PER_G,
    PER_N,
    answers,
    few,
    next_barrier,
    over,
    random_rows,
    replacing,
)
from tests.unit.jobs.driver.test_following import follow
from tussock.jobs.barriers.follow import BranchConflictError
from tussock.jobs.driver.merge import merge_branch, plan_merge
from tussock.jobs.logical.statements import Drop
from tussock.jobs.upkeep.compaction import compact_store
from tussock.statestore.meta.branch import own_ids
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore

OF_U = "SELECT a, count(*) AS n FROM u GROUP BY a"


class Builder:
    """A parent that replaces `per_g` over several epochs, while its tables change."""

    def __init__(self, folder: Path) -> None:
        self.draw = random.Random(3)
        self.parent = new_store(folder / "store", units=3)
        append(self.parent, table("t"), table("u"))
        append(self.parent, view("per_g", counted(scan("t"), 1)), self.per_n)
        self.t, self.u = random_rows(self.draw, 500), random_rows(self.draw, 300)
        for name, found in (("t", self.t), ("u", self.u)):
            insert(self.parent, name, *found.values())
        epoch(self.parent)
        self.has_begun = False

    per_n = view("per_n", counted(over("per_g", "g", "n"), 1))

    @property
    def builds(self) -> bool:
        """Whether the build has begun, and goes on."""
        return bool(self.parent.read_latest().catalog.builds)

    def advance(self) -> None:
        """Change rows of both tables, and run the next epoch of the build."""
        for name, found in (("t", self.t), ("u", self.u)):
            changed = random_rows(self.draw, 30)
            found |= changed
            insert(self.parent, name, *changed.values())
        if not self.has_begun:
            append(self.parent, replacing(few(), self.per_n))
        self.has_begun = True
        next_barrier(self.parent)

    def branch(self) -> MetaStore:
        """Begin a branch that adds a view."""
        branch = self.parent.open_branch("b")
        append(branch, view("of_u", counted(scan("u"), 2)))
        follow(branch)
        return branch

    def require_equal(self, meta: MetaStore) -> None:
        per_g = PER_G if self.builds else FEW
        wanted = answers([*self.t.values()], [*self.u.values()], per_g=per_g, per_n=PER_N, of_u=OF_U)
        assert {name: rows(meta, name) for name in wanted} == wanted


@pytest.mark.parametrize("begins", [0, 2])
def test_a_branch_follows_its_parent_through_a_build_which_only_the_parent_advances(
    tmp_path: Path, begins: int
) -> None:
    builder = Builder(tmp_path)
    for _ in range(begins):
        builder.advance()
    branch = builder.branch()
    steps = 0
    while not steps or builder.builds:
        builder.advance()
        follow(branch)
        compact_store(branch)
        builder.require_equal(branch)
        steps += 1
    assert steps > 2
    own = own_ids(branch.read_latest().catalog)
    assert {r.name for r in branch.read_latest().catalog.live_relations() if r.id in own} == {"of_u"}
    merge_branch(branch, plan_merge(branch))
    builder.require_equal(builder.parent)


def test_a_branch_that_drops_a_view_under_construction_cannot_follow_the_build(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    builder.advance()
    branch = builder.branch()
    append(branch, Drop(RelationKind.VIEW, "per_n", cascade=True), Drop(RelationKind.VIEW, "per_g", cascade=True))
    follow(branch)
    builder.advance()
    with pytest.raises(
        BranchConflictError, match="the branch changed 'per_g' or its inputs while the parent was build"
    ):
        follow(branch)

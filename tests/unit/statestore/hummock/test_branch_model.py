"""A store and its branches under random steps, with processes that die (branch_machine.py)."""

from collections import Counter

import pytest

from tests.support.statestore.hummock.branch_machine import BranchMachine

EVENTS = (
    "branched", "branched from an older epoch", "ended", "killed", "epoch killed", "compacted", "vacuum",
    "vacuum killed", "branching killed", "followed", "following killed", "read",
)  # fmt: skip


def _run(seeds: range, steps: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        machine = BranchMachine(seed)
        machine.run(steps)
        counts += machine.counts
    return counts


def test_a_store_and_its_branches_agree_with_dicts_and_keep_exactly_what_they_need() -> None:
    counts = _run(range(5), 100)
    assert not [event for event in EVENTS if not counts[event]], counts


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_two_thousand_steps_of_a_store_and_its_branches_with_two_hundred_deaths() -> None:
    counts = _run(range(100, 124), 100)
    assert counts["killed"] >= 200, counts
    assert not [event for event in EVENTS if not counts[event]], counts

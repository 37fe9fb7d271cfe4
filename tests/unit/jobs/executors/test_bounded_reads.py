"""The rows and blocks that a change reads do not grow with its group, for every operator and aggregate.

A case of tests/support/jobs/executors/growing.py that may grow names the changes, and its node names the cost
(tussock.jobs.executors.unbounded), so that `tussock plan` and docs/growing-costs.md show it. The counts are the same on
every machine.
"""

from pathlib import Path
from typing import get_args

import pytest

from tests.support.jobs.executors.growing import GrowingCase, Loaded, cases
from tussock.jobs.executors import over_window
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.hash_join import HashJoin
from tussock.jobs.executors.null_aware_anti import NullAwareAnti
from tussock.jobs.executors.operator import PlainNode
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.registry import Node
from tussock.jobs.executors.unbounded import ALL_PAIRS, UNBOUNDED
from tussock.jobs.logical.nodes import AggFunction, JoinKind, WindowFunction
from tussock.statestore.hummock import sst_writer

CASES = cases()
SMALL, LARGE = 160, 1_280  # rows of a group
AT_MOST = 1.2
ROWS_PER_BLOCK = 16


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short blocks and pieces, so that short groups have many."""
    monkeypatch.setattr(sst_writer, "ROWS_PER_BLOCK", ROWS_PER_BLOCK)
    monkeypatch.setattr(over_window, "MARK_EVERY", 1)
    monkeypatch.setattr(over_window, "_FIRST_PIECE", 16)
    monkeypatch.setattr(over_window, "_LEAST", 8)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reads_of_a_change_grow_with_its_group_only_if_the_node_names_the_cost(
    case: GrowingCase, tmp_path: Path
) -> None:
    small, large = Loaded(case, SMALL, tmp_path / "small"), Loaded(case, LARGE, tmp_path / "large")
    for change in (*case.changes, *case.log):
        few, many = small.reads_of(change), large.reads_of(change)
        grows = many.rows > AT_MOST * few.rows or many.blocks > AT_MOST * few.blocks
        if change in case.grows:
            assert case.node.unbounded_costs(), f"{change}: the node names no cost"
        expected = change in case.grows
        assert grows == expected, f"{change}: {few} in groups of {SMALL} rows, {many} in groups of {LARGE} rows"


def test_every_operator_with_a_state_has_a_case() -> None:
    with_state = {node for node in get_args(Node) if node.state_tables is not PlainNode.state_tables}
    assert with_state == {type(case.node) for case in CASES}


def test_every_aggregate_window_function_and_join_has_a_case() -> None:
    nodes = [case.node for case in CASES]
    assert {call.function for node in nodes if isinstance(node, HashAgg) for call in node.calls} >= {*AggFunction} - {
        AggFunction.ONLY
    }  # Spark's rewrite of several DISTINCT: a group has one value
    assert {c.function for node in nodes if isinstance(node, OverWindow) for c in node.calls} == {*WindowFunction}
    kinds = {node.kind for node in nodes if isinstance(node, HashJoin)}
    assert kinds | {JoinKind.NULL_AWARE_ANTI} == {*JoinKind}
    assert any(isinstance(node, NullAwareAnti) for node in nodes)


def test_every_unbounded_cost_has_a_case_that_grows() -> None:
    named = {cost.title for case in CASES if case.grows for cost in case.node.unbounded_costs()}
    assert named == {cost.title for cost in UNBOUNDED if cost is not ALL_PAIRS}  # its operator has no state

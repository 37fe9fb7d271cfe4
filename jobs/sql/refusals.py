"""Constructs that are visible only in the analyzed plan: clocks, randomness, subqueries.

Each Catalyst plan has a set of bits for the patterns that occur in it. So a plan without such patterns costs only a
few round trips, and offending nodes are searched only if there are any.
"""

from collections.abc import Callable

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.errors import UnsupportedQueryError
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.sandbox import items

_CLOCK = "a time of day recurs every day; compare a timestamp with now()"
_SUBQUERY = "its result changes with another relation's rows; write it as a join"
_READER = "it depends on the user and the session, but a view has the same rows for all users; omit it"
_CHANCE = "it gives another value on every run"


def refuse_unstable(
    walk: ExpressionWalk, analyzed: JavaObject, clock_is_fixed: bool = False, rows_are_logged: bool = False
) -> None:
    """Raises UnsupportedQueryError if the plan's rows depend on more than the rows it reads.

    Args:
        clock_is_fixed: now() and similar functions are evaluated once (a DML statement), so they are allowed.
        rows_are_logged: the computed rows are stored, so subqueries are allowed too.
    """

    def has_pattern(pattern: str) -> bool:
        return bool(analyzed.containsPattern(walk.sandbox.tree_pattern(pattern)))

    if (
        clock_is_fixed and not rows_are_logged and has_pattern("PLAN_EXPRESSION")
    ):  # in views, the optimizer turns them into joins
        culprit = _first_matching(
            analyzed, lambda node: "Subquery" in node.productPrefix() or node.productPrefix() in ("Exists", "ListQuery")
        )
        raise _make_refusal(walk, culprit, "a subquery", _SUBQUERY)
    if not clock_is_fixed and has_pattern(
        "CURRENT_LIKE"
    ):  # now() and dates mean the epoch's moment (tussock.jobs.sql.now)
        if (culprit := _first_matching(analyzed, lambda node: node.productPrefix() in _OF_THE_READER)) is not None:
            raise _make_refusal(walk, culprit, None, _READER)
        if (culprit := _first_matching(analyzed, lambda node: node.productPrefix() in _OTHER_CLOCKS)) is not None:
            raise _make_refusal(walk, culprit, None, _CLOCK)
    if not analyzed.deterministic():
        culprit = _first_matching(analyzed, _is_chance)
        raise _make_refusal(walk, culprit, None if culprit is not None else "a non-deterministic function", _CHANCE)


_OTHER_CLOCKS = frozenset({"CurrentTime", "CurrentBatchTimestamp"})
_OF_THE_READER = frozenset(
    {"CurrentDatabase", "CurrentCatalog", "CurrentUser", "CurrentPath"}
)  # the time zone is the pipeline's, so it is allowed


def _is_chance(node: JavaObject) -> bool:
    return not node.deterministic() and all(child.deterministic() for child in items(node.children()))


def _make_refusal(
    walk: ExpressionWalk, node: JavaObject | None, construct: str | None, reason: str
) -> UnsupportedQueryError:
    if node is None:
        return UnsupportedQueryError(construct or "an expression", reason, within=walk.within)
    return walk.refusal_of(node, construct, reason)


def _first_matching(plan: JavaObject, wanted: Callable[[JavaObject], bool]) -> JavaObject | None:
    """The first matching expression of a plan, searched top down. None if it is inside a subquery."""
    pending = [*items(plan.expressions())]
    while pending:
        node = pending.pop(0)
        if wanted(node):
            return node
        pending = [*items(node.children()), *pending]
    for child in [*items(plan.children()), *items(plan.innerChildren())]:  # inner: the definitions of WITH
        if (culprit := _first_matching(child, wanted)) is not None:
            return culprit
    return None

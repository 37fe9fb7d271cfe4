"""Conditions on columns that an Expand passes on unchanged move below it.

Catalyst moves them too, unless it has renamed the columns of the Expand. It does so in the second copy of a relation
that a query reads twice. Both copies are equal after this pass, so the planner computes them once
(tussock.jobs.logical.equal_parts). The condition is then tested once for a row, and not for each of its projections.
"""

import msgspec

from tussock.jobs.logical.expression_tree import columns_of, join_by_and, renumber_columns, split_conjuncts
from tussock.jobs.logical.nodes import Column, Expand, Expr, Filter, Join, Plan, Union


def below_expands(plan: Plan) -> Plan:
    """The same plan with such conditions below its Expands."""
    plan = _with_inputs(plan)
    if not (isinstance(plan, Filter) and isinstance(plan.input, Expand)):
        return plan
    expand = plan.input
    passed = _passed_columns(expand)
    moved, remaining = list[Expr](), list[Expr]()
    for condition in split_conjuncts(plan.condition):
        if not remaining and columns_of(condition) <= passed.keys():  # later ones may be guarded by the ones that stay
            moved.append(renumber_columns(condition, passed))
        else:
            remaining.append(condition)
    if not moved:
        return plan
    below = msgspec.structs.replace(expand, input=below_expands(Filter(expand.input, join_by_and(moved))))
    return Filter(below, join_by_and(remaining)) if remaining else below


def _with_inputs(plan: Plan) -> Plan:
    """The node over its inputs after the pass."""
    match plan:
        case Join(left, right):
            return msgspec.structs.replace(plan, left=below_expands(left), right=below_expands(right))
        case Union(inputs):
            return msgspec.structs.replace(plan, inputs=tuple(map(below_expands, inputs)))
        case _ if not plan.inputs:
            return plan
        case _:
            (below,) = plan.inputs
            return msgspec.structs.replace(plan, input=below_expands(below))


def _passed_columns(expand: Expand) -> dict[int, int]:
    """The columns that all projections take from one column of the input, and this column."""
    column_by_place = {}
    for place, exprs in enumerate(zip(*expand.projections, strict=True)):
        if isinstance(exprs[0], Column) and all(e == exprs[0] for e in exprs):
            column_by_place[place] = exprs[0].index
    return column_by_place

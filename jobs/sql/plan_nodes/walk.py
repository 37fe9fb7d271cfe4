"""The walk over Catalyst's plan, from the leaves up. A function is registered for each class of node."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.errors import UnsupportedQueryError
from tussock.jobs.logical.expression_tree import renumber_columns
from tussock.jobs.logical.nodes import Column, Expr, Field, Plan, Project
from tussock.jobs.spark.release import column_name
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.plan_nodes.refused import REASONS
from tussock.statestore.types import UnsupportedTypeError, arrow_type


@dataclass(frozen=True, slots=True)
class BoundNode:
    """A plan and the expression ids of its output columns, in order.

    `made`: ids of expressions over several columns.
    """

    plan: Plan
    ids: tuple[int, ...]
    made: tuple[tuple[int, Expr], ...] = ()

    def scope(self, shift: int = 0) -> dict[int, Expr]:
        """The expression of each expression id, for a reader of this plan's output (after `shift` other columns)."""
        columns: dict[int, Expr] = {
            i: Column(shift + k, f.type)
            for k, (i, f) in reversed(list(enumerate(zip(self.ids, self.plan.fields, strict=True))))
        }
        return columns | {i: renumber_columns(e, range(shift, shift + len(self.ids))) for i, e in self.made}

    def with_columns(self, places: Sequence[int]) -> "BoundNode":
        """Only the output columns at these positions."""
        fields = tuple(self.plan.fields[i] for i in places)
        columns = tuple(Column(i, f.type) for i, f in zip(places, fields, strict=True))
        return BoundNode(Project(self.plan, columns, fields), tuple(self.ids[i] for i in places))


BindNode = Callable[["PlanWalk", JavaObject], BoundNode]

_BINDERS: dict[str, BindNode] = {}


def binds_nodes(*names: str) -> Callable[[BindNode], BindNode]:
    """Register a function for the Catalyst nodes with these class names."""

    def register(bind: BindNode) -> BindNode:
        for name in names:
            if name in _BINDERS:
                raise ValueError(f"{name} is registered twice")
            _BINDERS[name] = bind
        return bind

    return register


@dataclass(frozen=True, slots=True)
class PlanWalk:
    """Walks one statement's plan."""

    expressions: ExpressionWalk
    notes: list[str] = field(default_factory=list)  # notes for the user, which EXPLAIN and CREATE show
    order: JavaObject | None = None  # the Sort that orders the plan's rows

    def add_note(self, text: str) -> None:
        """Add a note for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def bind(self, node: JavaObject) -> BoundNode:
        """Bind the plan under a Catalyst node. Raises UnsupportedQueryError."""
        name = node.productPrefix()
        if (bind := _BINDERS.get(name)) is not None:
            return bind(self, node)
        raise self.refusal_of(node, *REASONS.get(name, (f"the operator {name}", "it has no executor")))

    def refusal_of(self, node: JavaObject, construct: str | None, reason: str) -> UnsupportedQueryError:
        """The error for an unsupported node, with its place. If `construct` is None, it is named by the user's text."""
        return self.expressions.refusal_of(node, construct, reason)

    def output_field(self, node: JavaObject, name: str, kind: str) -> Field:
        """An output column. Raises UnsupportedQueryError for a type that no state table can store."""
        try:
            arrow_type(kind)
        except UnsupportedTypeError as err:
            raise self.refusal_of(
                node, f"column {name!r} of type {kind}", "its rows cannot be stored; " + str(err)
            ) from err
        return Field(column_name(name), kind)

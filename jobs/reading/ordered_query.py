"""Restrict the scan of an ordered view to the rows that a query needs.

Spark still runs the unchanged query, over fewer rows. Rows are omitted only if the query reads the view once and drops
them directly above the view: by conditions on the first columns of the view's key, or by a LIMIT in the order of that
key or its reverse.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from py4j.java_gateway import JavaObject

from tussock.jobs.catalog.definition import output_of
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.expression_tree import split_conjuncts
from tussock.jobs.logical.nodes import Call, Column, Expr, Filter, Literal, Plan, Project, Scan, Sort, SortKey, TopN
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.reading.reader import ALL, ViewPart, stored_table
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.now import has_clock
from tussock.jobs.sql.plan_nodes.limit import order_of
from tussock.jobs.sql.plan_nodes.walk import PlanWalk
from tussock.jobs.sql.sandbox import Sandbox, items
from tussock.statestore.meta.catalog import KeyColumn, Relation
from tussock.statestore.table.key_order import Edge, KeyBounds, key_bounds
from tussock.statestore.table.schema import TableLayout

_KEEPING = frozenset({"Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset"})
_TURNED = {"LessThan": "GreaterThan", "LessThanOrEqual": "GreaterThanOrEqual", "EqualTo": "EqualTo"}
_TURNED |= {right: left for left, right in _TURNED.items()}


def is_ordered(relation: Relation) -> bool:
    """Return whether a relation's rows are stored in the order of its ORDER BY."""
    output = output_of(relation)
    return output is not None and output.is_ordered


def ordered_parts(
    sandbox: Sandbox, source: SourceText, relations: Mapping[str, Relation], vnodes: int
) -> dict[str, ViewPart]:
    """Return the rows to read of each ordered view that a query reads in part or in order.

    Args:
        source: the query, which the sandbox has bound.
        relations: the relations that it may read, by their names in its text.
        vnodes: the store's number of vnodes.

    Returns: by name. Views without an entry are read whole, by all units in parallel.
    Cost: none if no relation is ordered; otherwise one analysis and one optimization of the query.
    """
    known = sandbox.relations
    names = {n: r for n, r in relations.items() if is_ordered(r) and n in known and known[n].columns == r.columns}
    if not names:
        return {}
    try:
        with sandbox.active():
            execution = sandbox.analyze(source, sandbox.parse_query(source)).queryExecution()
            analyzed, optimized = execution.analyzed(), execution.optimizedPlan()
            once = _read_once(sandbox, analyzed) & _read_once(sandbox, optimized)
            reading = _Reading(sandbox, source, optimized, has_clock(sandbox, analyzed))
            parts = {name: reading.part_of_view(name, names[name], vnodes) for name in names if name in once}
    except SqlError:  # Spark raises the same error, with its place, when it runs the query
        return {}
    return {name: part for name, part in parts.items() if part is not None}


def _read_once(sandbox: Sandbox, plan: JavaObject) -> set[str]:
    """Return the names of the relations that a plan reads in exactly one place, including subqueries."""
    counts: dict[str, int] = {}
    for tree in (plan, *items(plan.subqueriesAll())):
        for leaf in items(tree.collectLeaves()):
            if leaf.productPrefix() == "LogicalRDD" and (relation := sandbox.relation_of(leaf)) is not None:
                counts[relation.name] = counts.get(relation.name, 0) + 1
    return {name for name, count in counts.items() if count == 1}


@dataclass(frozen=True, slots=True)
class _Reading:
    """One optimized query."""

    sandbox: Sandbox
    source: SourceText
    optimized: JavaObject
    clock: bool  # it reads the clock, which moves on until it runs

    def part_of_view(self, name: str, relation: Relation, vnodes: int) -> ViewPart | None:
        """Return the part of a view that the query reads; None: all rows, in any order."""
        path = self._path_to(self.optimized, name)
        if path is None:
            return None
        above = next((i for i in range(len(path) - 1, 0, -1) if path[i - 1].productPrefix() not in _KEEPING), 0)
        sorts = any(node.productPrefix() == "Sort" for node in path)
        whole = ALL if above == 0 and not sorts else None
        if self.clock:
            return whole
        for node in path[above:]:
            try:
                walk = PlanWalk(ExpressionWalk(self.sandbox, self.source), order=order_of(node))
                bound = walk.bind(node).plan
            except SqlError:  # an unsupported expression above the relevant nodes
                continue
            if (rows := _Rows.part_of_plan(bound, TableLayout(stored_table(relation), vnodes))) is not None:
                return replace(rows, in_order=whole is not None or rows.limit is not None)
        return whole

    def _path_to(self, node: JavaObject, name: str) -> list[JavaObject] | None:
        """Return the nodes from one down to the leaf of a relation."""
        if node.productPrefix() == "LogicalRDD":
            relation = self.sandbox.relation_of(node)
            return [node] if relation is not None and relation.name == name else None
        for child in items(node.children()):
            if (below := self._path_to(child, name)) is not None:
                return [node, *below]
        return None


@dataclass(slots=True)
class _Range:
    """The values of one column that pass some conditions."""

    equal: Literal | None = None  # a NULL literal: the value is NULL
    low: tuple[Literal, bool] | None = None  # (bound, inclusive)
    high: tuple[Literal, bool] | None = None
    known: bool = False  # not NULL


@dataclass(slots=True)
class _Rows:
    """The rows of a view that pass conditions, as far as the ranges can express them."""

    layout: TableLayout
    ranges: dict[int, _Range] = field(default_factory=dict)  # by the view's column index
    exact: bool = True  # every row in the ranges passes all conditions

    @staticmethod
    def part_of_plan(plan: Plan, layout: TableLayout) -> ViewPart | None:
        """Return the part that a plan reads of its only relation; None: all rows."""
        nodes = [plan]
        while len(nodes[-1].inputs) == 1:
            nodes.append(nodes[-1].inputs[0])
        if not isinstance(scan := nodes.pop(), Scan):
            return None
        rows, at = _Rows(layout), dict(enumerate(scan.columns))
        for node in reversed(nodes):
            match node:
                case Filter(condition=condition):
                    for one in split_conjuncts(condition):
                        rows.exact = rows._take_condition(one, at) and rows.exact
                case Project(exprs=exprs):
                    at = {i: at[e.index] for i, e in enumerate(exprs) if isinstance(e, Column) and e.index in at}
                case Sort():
                    pass
                case TopN(order=order, limit=limit, offset=offset):
                    return rows._part_within(order, at, None if limit is None else offset + limit)
                case _:
                    break
        return rows._part_within(None, at, None)

    def _take_condition(self, condition: Expr, at: Mapping[int, int]) -> bool:
        """Apply a condition to the ranges. Returns False if the ranges cannot express all of it."""
        match condition:
            case Call(node="IsNotNull", args=(Column(index),)) if index in at:
                self._range_of(at[index]).known = True
                return True
            case Call(node="IsNull", args=(Column(index, kind),)) if index in at:
                return self._take_equality(at[index], Literal(None, kind))
            case Call(node="EqualNullSafe" | "EqualTo", args=(Column(index, kind), Literal(_, type=of) as value)) if (
                index in at and of == kind
            ):
                return self._take_equality(at[index], value)
            case Call(node=node, args=(Literal() as value, Column() as column)) if node in _TURNED:
                return self._take_condition(Call(_TURNED[node], "boolean", (column, value)), at)
            case Call(
                node="GreaterThan" | "GreaterThanOrEqual" as node,
                args=(Column(index, kind), Literal(_, type=of) as value),
            ) if index in at and of == kind:
                low = self._range_of(at[index])
                new, low.low = low.low is None, low.low or (value, node.endswith("Equal"))
                return new
            case Call(
                node="LessThan" | "LessThanOrEqual" as node, args=(Column(index, kind), Literal(_, type=of) as value)
            ) if index in at and of == kind:
                high = self._range_of(at[index])
                new, high.high = high.high is None, high.high or (value, node.endswith("Equal"))
                return new
            case _:
                return False

    def _range_of(self, column: int) -> _Range:
        return self.ranges.setdefault(column, _Range())

    def _take_equality(self, column: int, value: Literal) -> bool:
        column_range = self._range_of(column)
        new, column_range.equal = column_range.equal is None, column_range.equal or value
        return new

    def _part_within(self, order: Sequence[SortKey] | None, at: Mapping[int, int], most: int | None) -> ViewPart | None:
        """Return the part inside the bounds, limited to `most` rows if `order` follows the key; None: all rows."""
        key = self.layout.schema.key
        fixed = [k.column for k in self._leading_fixed(key)]
        bounds, covered = self._key_bounds(fixed)
        if not covered or order is None or most is None:
            return None if bounds is None else ViewPart(bounds)
        wanted = [
            (at.get(k.expr.index), k.descending, k.nulls_last) if isinstance(k.expr, Column) else None for k in order
        ]
        reverse = _is_reverse(wanted, [k for k in key if k.column not in fixed], fixed)
        if reverse is None:
            return None if bounds is None else ViewPart(bounds)
        return ViewPart(KeyBounds() if bounds is None else bounds, most, reverse)

    def _leading_fixed(self, key: Sequence[KeyColumn]) -> Iterator[KeyColumn]:
        """Yield the first columns of the key that are fixed to one value."""
        for part in key:
            if (column_range := self.ranges.get(part.column)) is None or column_range.equal is None:
                return
            yield part

    def _key_bounds(self, fixed: Sequence[int]) -> tuple[KeyBounds | None, bool]:
        """Return the key bounds of the rows (None: unbounded), and whether all rows inside pass the conditions."""
        following = self.layout.schema.key[len(fixed) : len(fixed) + 1]
        ranged = next(
            (column_range for k in following if (column_range := self.ranges.get(k.column)) is not None), None
        )
        covered = self.exact and set(self.ranges) <= {*fixed, *(k.column for k in following)}
        covered = covered and not any(self.ranges[c].low or self.ranges[c].high for c in fixed)
        # "Not NULL" alone excludes few rows.
        if not fixed and (ranged is None or not (ranged.low or ranged.high or covered)):
            return None, covered
        values = [_to_array(value) for c in fixed if (value := self.ranges[c].equal) is not None]
        low, high = (
            None if edge is None else Edge(_to_array(edge[0]), edge[1])
            for edge in ((ranged.low, ranged.high) if ranged else (None, None))
        )
        return key_bounds(self.layout, values, low, high, known=ranged is not None), covered


def _is_reverse(
    wanted: Sequence[tuple[int | None, bool, bool] | None], key: Sequence[KeyColumn], fixed: Sequence[int]
) -> bool | None:
    """Return True if an order (column, descending, nulls last) reverses the key, False if it follows it, else None."""
    if any(one is None or one[0] is None for one in wanted):
        return None
    left: dict[int | None, tuple[bool, bool]] = {}
    for column, descending, nulls_last in (one for one in wanted if one is not None):
        if column not in fixed:
            left.setdefault(column, (descending, nulls_last))
    pairs = list(zip(left.items(), key, strict=False))  # after a whole key, further order columns have no effect
    if any(column != part.column for (column, _), part in pairs):
        return None
    turns = {
        (descending ^ part.descending, nulls_last ^ part.nulls_last) for (_, (descending, nulls_last)), part in pairs
    }
    return False if turns <= {(False, False)} else True if turns == {(True, True)} else None


def _to_array(value: Literal) -> pa.Array:
    """Return a constant as an array of one value, computed by the kernel as in a view."""
    one_row = pa.table({"c0": pa.array([0], pa.int64())})
    array: pa.Array = thread_kernel().project_columns(one_row, [value], [value.type]).column(0).combine_chunks()
    return array

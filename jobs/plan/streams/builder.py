"""Shared parts of the operators' planners: streams, fragment drafts, and the steps from one stream to the next."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tussock.jobs.executors.filter import FilterNode
from tussock.jobs.executors.project import ProjectNode
from tussock.jobs.executors.registry import Node
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical.equal_parts import may_be_equal, text_of_part
from tussock.jobs.logical.expression_tree import (
    calls_of_spark,
    join_by_and,
    needs_spark,
    reads_of,
    renumber_columns,
    split_conjuncts,
    substitute_columns,
    with_spark_calls,
    without_places,
)
from tussock.jobs.plan.fragments import ROW_ID, Dispatch, Fragment, Input, Operator, Output, input_ref
from tussock.statestore.meta.catalog import RelationKind, TableSchema

ANYWHERE = None  # the distribution of rows on the unit of the source reader that read them


@dataclass(frozen=True, slots=True)
class Upstream:
    """The planner's information about a relation that a view reads."""

    relation_id: int
    kind: RelationKind
    output: Output | None  # None: a source
    source_key: tuple[tuple[int, str], ...] = (
        (ROW_ID, "bigint"),
    )  # for a source: the columns that identify a row, with their types
    append_only: bool = True  # for a source


@dataclass(slots=True)
class FragmentDraft:
    """A fragment under construction."""

    inputs: list[Input]
    operators: list[Operator] = field(default_factory=list)
    singleton: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of reference `ref` in a draft fragment.

    `visible[i]` is the position of the logical plan's column i.
    """

    draft: FragmentDraft
    ref: int
    types: tuple[str, ...]
    visible: tuple[int, ...]
    key: tuple[int, ...]
    distribution: tuple[int, ...] | None
    append_only: bool


class Builder:
    """Plans one view: collects its state tables and its finished fragments."""

    def __init__(
        self,
        upstream: Callable[[str], Upstream],
        first_table_id: int,
        planner: Callable[["Builder", logical.Plan], Stream],
        repeated: Collection[bytes] = (),
    ) -> None:
        """
        Args:
            planner: plans any logical plan (tussock.jobs.plan.stream). Operators' planners use it for their inputs.
            repeated: the parts to plan once for all their copies (tussock.jobs.logical.equal_parts).
        """
        self.upstream = upstream
        self.next_table_id = first_table_id
        self.tables: list[TableSchema] = []
        self.closed: list[Fragment] = []
        self._planner, self._repeated = planner, repeated
        self._planned: dict[bytes, tuple[Input, Stream]] = {}  # the repeated parts so far

    def plan_stream(self, plan: logical.Plan) -> Stream:
        """The stream of an input plan. The fragments of a repeated part are planned for its first copy."""
        if not (self._repeated and may_be_equal(plan) and (text := text_of_part(plan)) in self._repeated):
            return self._planner(self, plan)
        if text not in self._planned:
            first = self._planner(self, plan)
            self._planned[text] = self.close_as_input(first, (), Dispatch.FORWARD), first
        return self.continue_behind(*self._planned[text])

    def project_columns(self, below: Stream, exprs: Sequence[logical.Expr]) -> Stream:
        """One column per expression, then the key columns that no expression passes through unchanged."""
        moved = [_with_row_key(renumber_columns(e, below.visible), below) for e in exprs]
        at = {e.index: i for i, e in reversed(list(enumerate(moved))) if isinstance(e, logical.Column)}
        for column in below.key:
            if column not in at:
                at[column] = len(moved)
                moved.append(logical.Column(column, below.types[column]))
        types = tuple(e.type for e in moved)
        distribution = None if below.distribution is None else tuple(at[c] for c in below.distribution)
        visible = tuple(range(len(exprs)))
        if moved == [logical.Column(i, t) for i, t in enumerate(below.types)]:  # nothing changes
            return replace(below, visible=visible)
        ref = self.add_projection(below, moved, types)
        return replace(
            below, ref=ref, types=types, visible=visible, key=tuple(at[c] for c in below.key), distribution=distribution
        )

    def add_key_columns(self, stream: Stream, keys: Sequence[logical.Expr]) -> tuple[Stream, tuple[int, ...]]:
        """The stream with every key expression as a column, and the positions of these columns."""
        moved = [renumber_columns(k, stream.visible) for k in keys]
        computed = [k for k in dict.fromkeys(moved) if not isinstance(k, logical.Column)]
        if computed:
            columns: list[logical.Expr] = [logical.Column(i, t) for i, t in enumerate(stream.types)]
            types = (*stream.types, *(k.type for k in computed))
            ref = self.add_projection(stream, (*columns, *computed), types)
            width = len(stream.types)
            stream = replace(stream, ref=ref, types=types)
            places = {k: width + i for i, k in enumerate(computed)}
            return stream, tuple(k.index if isinstance(k, logical.Column) else places[k] for k in moved)
        return stream, tuple(k.index for k in moved if isinstance(k, logical.Column))

    def add_computed_columns(self, stream: Stream, exprs: Sequence[logical.Expr]) -> tuple[Stream, list[logical.Expr]]:
        """The stream with each call that Spark computes as a column, and the expressions over these columns."""
        calls = list(dict.fromkeys(without_places(c) for e in exprs for c in calls_of_spark(e)))
        width, (stream, places) = len(stream.visible), self.add_key_columns(stream, calls)
        at = {call: width + i for i, call in enumerate(calls)}
        over = (with_spark_calls(e, lambda call: logical.Column(at[without_places(call)], call.type)) for e in exprs)
        return stream, [renumber_columns(e, (*stream.visible, *places)) for e in over]

    def visible_first(self, stream: Stream, width: int) -> Stream:
        if stream.visible == tuple(range(width)) and len(stream.types) == width + sum(c >= width for c in stream.key):
            return stream
        return self.project_columns(stream, [logical.Column(i, stream.types[c]) for i, c in enumerate(stream.visible)])

    def filter_rows(self, below: Stream, condition: logical.Expr) -> Stream:
        """The rows that satisfy a condition over the stream's columns.

        Conjuncts before the first one that Spark computes are checked before Spark sees the rows, since Spark itself
        evaluates conjuncts in order.
        """
        parts = split_conjuncts(condition)
        first = next((i for i, part in enumerate(parts) if needs_spark(part)), len(parts))
        if first == len(parts):
            return self.append_node(below, FilterNode(condition, below.types))
        if first > 0:
            below = self.append_node(below, FilterNode(join_by_and(parts[:first]), below.types))
        columns: tuple[logical.Expr, ...] = tuple(logical.Column(i, t) for i, t in enumerate(below.types))
        rest = logical.Column(len(columns), "boolean")
        ref = self.add_projection(below, (*columns, join_by_and(parts[first:])), (*below.types, "boolean"))
        ref = self.add_operator(below.draft, FilterNode(rest, (*below.types, "boolean")), (ref,))
        return replace(below, ref=self.add_operator(below.draft, ProjectNode(columns, below.types), (ref,)))

    def add_projection(self, below: Stream, exprs: Sequence[logical.Expr], types: tuple[str, ...]) -> int:
        """A Project over `below`. If `below` is a Project, both are merged.

        If Spark computes a part of it, the fragment ends here, and its draft becomes the draft of the fragment that
        reads the result. Earlier references into the draft are then invalid.
        """
        if any(needs_spark(e) for e in exprs):
            return self._through_spark(below, exprs, types)
        draft = below.draft
        inputs: tuple[int, ...] = (below.ref,)
        if (
            below.ref >= 0
            and below.ref == len(draft.operators) - 1
            and isinstance(node := draft.operators[-1].node, ProjectNode)
        ):
            fused = fuse_projections(exprs, node.exprs)
            if fused is not None:
                exprs, inputs = fused, draft.operators.pop().inputs
        return self.add_operator(draft, ProjectNode(tuple(exprs), types), inputs)

    def _through_spark(self, below: Stream, exprs: Sequence[logical.Expr], types: tuple[str, ...]) -> int:
        """The expressions in three steps: Spark's arguments by kernels, Spark's calls, and the rest by kernels.

        Spark computes its calls between the levels.

        No key is hashed, so rows stay on their unit.
        """
        calls = list(dict.fromkeys(msgspec.structs.replace(c, place=None) for e in exprs for c in calls_of_spark(e)))
        passed = list(dict.fromkeys(without_places(p) for e in exprs for p in _beside_spark(e)))
        handed = list(dict.fromkeys([*passed, *(without_places(a) for c in calls for a in c.args)]))
        if all(isinstance(e, logical.Column) for e in handed):
            whole = self.close_as_input(below, (), Dispatch.STAY)
            columns = tuple(whole.columns[e.index] for e in handed if isinstance(e, logical.Column))
            on_the_way = msgspec.structs.replace(whole, columns=columns)
        else:
            kinds = tuple(e.type for e in handed)
            on_the_way = self.close_as_input(
                replace(below, ref=self.add_projection(below, handed, kinds), types=kinds), (), Dispatch.STAY
            )
        at = {e: i for i, e in enumerate(handed)}
        project: list[logical.Expr] = [logical.Column(at[e], e.type) for e in passed]
        project += [
            msgspec.structs.replace(c, args=tuple(logical.Column(at[without_places(a)], a.type) for a in c.args))
            for c in calls
        ]
        on_the_way = msgspec.structs.replace(on_the_way, types=tuple(e.type for e in project), project=tuple(project))
        below.draft.inputs, below.draft.operators = [on_the_way], []
        place = {without_places(e): logical.Column(i, e.type) for i, e in enumerate([*passed, *calls])}
        final = tuple(_in_places(e, place) for e in exprs)
        if final == tuple(logical.Column(i, e.type) for i, e in enumerate(project)):
            return input_ref(0)
        return self.add_operator(below.draft, ProjectNode(final, types), (input_ref(0),))

    def add_operator(
        self, draft: FragmentDraft, node: Node, inputs: tuple[int, ...], distribution: tuple[int, ...] | None = None
    ) -> int:
        schemas = []
        for schema in node.state_tables():
            keep = schema.distribution if distribution is None else distribution
            schemas.append(msgspec.structs.replace(schema, table_id=self.next_table_id, distribution=keep))
            self.next_table_id += 1
        self.tables += schemas
        draft.operators.append(Operator(node, inputs, tuple(s.table_id for s in schemas)))
        return len(draft.operators) - 1

    def append_node(self, stream: Stream, node: Node) -> Stream:
        """Append a unary operator that keeps columns, key and distribution."""
        ref = self.add_operator(stream.draft, node, (stream.ref,))
        return replace(stream, ref=ref)

    def close_fragment(self, stream: Stream) -> int:
        draft = stream.draft
        self.closed.append(Fragment(tuple(draft.inputs), tuple(draft.operators), stream.types, draft.singleton))
        return len(self.closed) - 1

    def close_as_input(self, stream: Stream, keys: tuple[int, ...], dispatch: Dispatch | None = None) -> Input:
        """Close the stream's fragment and read it by hash of `keys` (none: singleton), or by `dispatch` if given.

        A fragment without operators is skipped: its input is read directly.
        """
        dispatch = dispatch or (Dispatch.HASH if keys else Dispatch.SINGLETON)
        draft = stream.draft
        if not draft.operators:
            (only,) = draft.inputs
            if only.dispatch == Dispatch.FORWARD:
                return msgspec.structs.replace(only, dispatch=dispatch, keys=keys)
        return Input(None, self.close_fragment(stream), tuple(range(len(stream.types))), stream.types, dispatch, keys)

    def continue_behind(self, read: Input, stream: Stream) -> Stream:
        """The stream again, after an input that reads it: in its own draft, on the same units."""
        here = msgspec.structs.replace(read, dispatch=Dispatch.FORWARD, keys=())
        return replace(stream, draft=FragmentDraft([here], singleton=stream.draft.singleton), ref=input_ref(0))

    def share_stream(self, stream: Stream) -> tuple[Stream, Stream]:
        """The stream for two readers."""
        read = self.close_as_input(stream, (), Dispatch.FORWARD)
        return self.continue_behind(read, stream), self.continue_behind(read, stream)

    def add_exchange(self, stream: Stream, keys: tuple[int, ...]) -> Stream:
        draft = FragmentDraft([self.close_as_input(stream, keys)], singleton=keys == ())
        return replace(stream, draft=draft, ref=input_ref(0), distribution=keys)


def fuse_projections(upper: Sequence[logical.Expr], lower: Sequence[logical.Expr]) -> tuple[logical.Expr, ...] | None:
    """One projection equal to two in sequence. None if it would compute an expression of `lower` more than once."""
    read = Counter(column for e in upper for column in reads_of(e))
    if any(n > 1 and isinstance(lower[i], logical.Call) for i, n in read.items()):
        return None
    return tuple(substitute_columns(e, lower) for e in upper)


def _with_row_key(expr: logical.Expr, below: Stream) -> logical.Expr:
    if not isinstance(expr, logical.Call) or expr.node != logical.ROW_KEY:
        return expr
    return msgspec.structs.replace(expr, args=tuple(logical.Column(c, below.types[c]) for c in below.key))


def _beside_spark(expr: logical.Expr) -> Iterator[logical.Expr]:
    """The parts of an expression that Spark does not compute: itself, or its columns next to Spark's calls.

    Constants are omitted.
    """
    if not isinstance(expr, logical.Literal) and not needs_spark(expr):
        yield expr
    elif isinstance(expr, logical.Call) and expr.node != logical.BY_SPARK:
        for arg in expr.args:
            yield from _beside_spark(arg)


def _in_places(expr: logical.Expr, place: Mapping[logical.Expr, logical.Column]) -> logical.Expr:
    """The expression over the columns that come from Spark."""
    if (column := place.get(without_places(expr))) is not None:
        return column
    if isinstance(expr, logical.Call):
        return msgspec.structs.replace(expr, args=tuple(_in_places(a, place) for a in expr.args))
    return expr

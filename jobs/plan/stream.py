"""Logical plan -> stream plan: chooses keys, distributions and state tables, and cuts the plan into fragments where rows must move.

Every stream has a *stream key* (columns that identify a row) and a *distribution* (columns whose vnode decides the unit; a subset of
the key). An operator that needs rows of one key on one unit is content when the distribution is a subset of that key; otherwise an
exchange starts a new fragment. Columns that no query asked for but a key needs are carried along hidden, after the visible ones.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import msgspec

from jobs.executors.agg_call import Agg
from jobs.executors.filter import Filter
from jobs.executors.hash_agg import HashAgg
from jobs.executors.hash_join import HashJoin, joined_types
from jobs.executors.materialize import Materialize
from jobs.executors.null_aware_anti import NullAwareAnti
from jobs.executors.partial_agg import PartialAgg, partial_types
from jobs.executors.project import Project
from jobs.executors.registry import Node
from jobs.executors.top_n import Order, TopN
from jobs.executors.union_all import UnionAll
from jobs.plan.fragments import ROW_ID, Dispatch, Fragment, Input, Operator, Output, input_ref
from jobs.sql import logical
from jobs.sql.expression_tree import reads_of, renumbered, substituted
from jobs.sql.logical import AggFunction, JoinKind
from statestore.meta.catalog import TableSchema

ANYWHERE = None  # the distribution of rows that are where a source's reader happened to be


@dataclass(frozen=True, slots=True)
class Upstream:
    """What the planner knows of a relation that a view reads."""

    relation_id: int
    kind: str  # source | table | view
    output: Output | None  # None: a source
    source_key: tuple[tuple[int, str], ...] = ((ROW_ID, "bigint"),)  # of a source: the columns that identify a row, with their types
    append_only: bool = True  # of a source


@dataclass(slots=True)
class _Draft:
    """A fragment being written."""

    inputs: list[Input]
    operators: list[Operator] = field(default_factory=list)
    singleton: bool = False


@dataclass(frozen=True, slots=True)
class _Stream:
    """The output of reference `ref` in a draft fragment. `visible[i]` is where the logical plan's column i is."""

    draft: _Draft
    ref: int
    types: tuple[str, ...]
    visible: tuple[int, ...]
    key: tuple[int, ...]
    distribution: tuple[int, ...] | None
    append_only: bool


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """A planned view: its fragments in dependency order (the last one materializes), its state tables and its output."""

    fragments: tuple[Fragment, ...]
    tables: tuple[TableSchema, ...]
    output: Output


def plan_view(plan: logical.Plan, relation_id: int, upstream: Callable[[str], Upstream], first_table_id: int) -> ViewPlan:
    """Plan a view.

    Args:
        plan: the bound query.
        relation_id: the view's id.
        upstream: a relation's name -> what is known of it.
        first_table_id: its state tables are numbered from here on, densely.

    Returns: the fragments, to be stored with the view. Equal arguments give equal plans, table ids included.
    """
    return _Planner(relation_id, upstream, first_table_id).view(plan)


class _Planner:
    def __init__(self, relation_id: int, upstream: Callable[[str], Upstream], first_table_id: int) -> None:
        self.relation_id = relation_id
        self.upstream = upstream
        self.next_table_id = first_table_id
        self.tables: list[TableSchema] = []
        self.closed: list[Fragment] = []

    def view(self, plan: logical.Plan) -> ViewPlan:
        stream = self._visible_first(self.stream(plan), len(plan.fields))
        if stream.distribution is ANYWHERE:
            stream = self._exchange(stream, stream.key)
        node = Materialize(self.relation_id, stream.key, stream.distribution or (), stream.types)
        stream = self._add(stream, node)
        self._close(stream)
        (table_id,) = stream.draft.operators[-1].tables
        output = Output(stream.types, stream.key, stream.distribution or (), stream.append_only, table_id)
        return ViewPlan(tuple(self.closed), tuple(self.tables), output)

    def stream(self, plan: logical.Plan) -> _Stream:
        match plan:
            case logical.Scan():
                return self._scan(plan)
            case logical.Filter(input, condition):
                below = self.stream(input)
                return self._add(below, Filter(renumbered(condition, below.visible), below.types))
            case logical.Project(input, exprs):
                return self._project(self.stream(input), exprs)
            case logical.Join():
                return self._join(plan)
            case logical.Union():
                return self._union(plan)
            case logical.Aggregate():
                return self._aggregate(plan)
            case logical.TopN():
                return self._top_n(plan)
            case _:
                assert_never(plan)

    # --- operators ---------------------------------------------------------------------------------------------------------------

    def _scan(self, plan: logical.Scan) -> _Stream:
        source = self.upstream(plan.relation)
        types = tuple(f.type for f in plan.fields)
        visible = tuple(range(len(types)))
        if source.output is None:
            key = tuple(c for c, _ in source.source_key)
            behind = [(c, kind) for c, kind in source.source_key if c not in plan.columns]
            columns, types = (*plan.columns, *(c for c, _ in behind)), (*types, *(kind for _, kind in behind))
            draft = _Draft([Input(source.relation_id, None, columns, types, Dispatch.FORWARD)])
            return _Stream(draft, input_ref(0), types, visible, tuple(columns.index(c) for c in key), ANYWHERE, source.append_only)
        out = source.output
        columns = (*plan.columns, *(c for c in out.key if c not in plan.columns))
        types = tuple(out.types[c] for c in columns)
        at = {c: i for i, c in reversed(list(enumerate(columns)))}
        draft = _Draft([Input(source.relation_id, None, columns, types, Dispatch.FORWARD)], singleton=out.distribution == ())
        key, distribution = tuple(at[c] for c in out.key), tuple(at[c] for c in out.distribution)
        return _Stream(draft, input_ref(0), types, visible, key, distribution, out.append_only)

    def _project(self, below: _Stream, exprs: Sequence[logical.Expr]) -> _Stream:
        """One column per expression, then the key columns that no expression passes through as they are."""
        moved = [renumbered(e, below.visible) for e in exprs]
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
        ref = self._projection(below, moved, types)
        return replace(below, ref=ref, types=types, visible=visible, key=tuple(at[c] for c in below.key), distribution=distribution)

    def _join(self, plan: logical.Join) -> _Stream:
        left, left_keys = self._keyed(self.stream(plan.left), plan.left_keys)
        right, right_keys = self._keyed(self.stream(plan.right), plan.right_keys)
        visible = left.visible + tuple(len(left.types) + c for c in right.visible)
        condition = None if plan.condition is None else renumbered(plan.condition, visible)
        inputs = [self._input(left, left_keys), self._input(right, right_keys)]
        if plan.kind is JoinKind.NULL_AWARE_ANTI:
            node: Node = NullAwareAnti(left.types, right.types, left_keys, right_keys, left.key, right.key, left.types)
            here = msgspec.structs.replace(inputs[1], dispatch=Dispatch.FORWARD, keys=())
            draft = _Draft([here], singleton=right.draft.singleton)
            inputs.append(self._null_count(replace(right, draft=draft, ref=input_ref(0)), right_keys))
        else:
            types = joined_types(plan.kind, left.types, right.types, left_keys)
            node = HashJoin(
                left.types, right.types, left_keys, right_keys, plan.null_safe, left.key, right.key, condition, types, plan.kind
            )
        draft = _Draft(inputs)
        ref = self._operator(draft, node, tuple(map(input_ref, range(len(inputs)))))
        key, distribution = _joined_key(plan.kind, left, left_keys, right, right_keys)
        append_only = plan.kind in (JoinKind.INNER, JoinKind.SEMI) and left.append_only and right.append_only
        return _Stream(draft, ref, node.types, visible if plan.kind.emits_pairs else left.visible, key, distribution, append_only)

    def _null_count(self, stream: _Stream, keys: tuple[int, ...]) -> Input:
        """How many rows a stream has, and in how many of them the key is known: one row, for every actor."""
        (key,) = keys
        (kind,) = (stream.types[key],)
        calls = (Agg(AggFunction.COUNT, None, None, "bigint"), Agg(AggFunction.COUNT, 0, kind, "bigint"))
        raw = (logical.Column(key, kind),)
        ref = self._projection(stream, raw, (kind,))
        sender = PartialAgg((kind,), (), calls, stream.append_only, ())
        sender = msgspec.structs.replace(sender, types=partial_types(sender))
        ref = self._operator(stream.draft, sender, (ref,))
        counted = self._exchange(_Stream(stream.draft, ref, sender.types, (), (), ANYWHERE, False), ())
        types = ("bigint", "bigint")
        ref = self._operator(counted.draft, HashAgg((kind,), (), calls, (), stream.append_only, True, types), (counted.ref,), ())
        number = self._close(replace(counted, ref=ref, types=types))
        return Input(None, number, (0, 1), types, Dispatch.BROADCAST)

    def _union(self, plan: logical.Union) -> _Stream:
        """The rows of all branches, keyed by the branch's number and the branch's own key.

        Why that is a key: within a branch its own key is one, and rows of two branches differ in the number. The columns of the branches'
        keys share hidden columns of their types, NULL in the rows of a branch that has fewer.
        """
        branches = [self.stream(below) for below in plan.inputs]
        slots: list[str] = []
        taken = [_slots(tuple(b.types[c] for c in b.key), slots) for b in branches]
        width = len(plan.fields)
        key = (width, *(width + 1 + i for i in range(len(slots))))
        types = (*(f.type for f in plan.fields), "int", *slots)
        inputs = []
        for number, (branch, places) in enumerate(zip(branches, taken, strict=True)):
            own = {slot: logical.Column(c, branch.types[c]) for slot, c in zip(places, branch.key, strict=True)}
            visible = (logical.Column(c, branch.types[c]) for c in branch.visible)
            padded = (own.get(i, logical.Literal(None, t)) for i, t in enumerate(slots))
            ref = self._projection(branch, (*visible, logical.Literal(number, "int"), *padded), types)
            inputs.append(self._input(replace(branch, ref=ref, types=types), key))
        draft = _Draft(inputs)
        ref = self._operator(draft, UnionAll(types), tuple(input_ref(i) for i in range(len(inputs))))
        return _Stream(draft, ref, types, tuple(range(width)), key, key, all(b.append_only for b in branches))

    def _aggregate(self, plan: logical.Aggregate) -> _Stream:
        below = self.stream(plan.input)
        columns: list[logical.Expr] = [renumbered(k, below.visible) for k in plan.keys]
        calls: list[Agg] = []
        for call in plan.calls:
            argument = _argument(call, below.visible)
            if argument is not None and argument not in columns[len(plan.keys) :]:
                columns.append(argument)
            place = None if argument is None else len(plan.keys) + columns[len(plan.keys) :].index(argument)
            calls.append(Agg(call.function, place, None if argument is None else argument.type, call.type, call.mode))
        extremes = not below.append_only and any(c.function in (AggFunction.MIN, AggFunction.MAX) for c in calls)
        wide = len(columns)
        distribution: tuple[int, ...] | None = None
        columns += [logical.Column(c, below.types[c]) for c in below.key] if extremes else []
        if below.distribution is not None:  # keep it only where the groups have it
            at = {e.index: i for i, e in reversed(list(enumerate(columns[: len(plan.keys)]))) if isinstance(e, logical.Column)}
            distribution = tuple(at[c] for c in below.distribution) if all(c in at for c in below.distribution) else None
        types = tuple(e.type for e in columns)
        stream_key = tuple(range(wide, len(columns)))
        keys = tuple(range(len(plan.keys)))
        ref = self._projection(below, columns, types)
        raw = replace(below, ref=ref, types=types, visible=keys, key=stream_key, distribution=distribution)
        out_types = tuple(types[k] for k in keys) + tuple(c.type for c in calls)
        partial = distribution is None and not extremes
        node = HashAgg(types, keys, tuple(calls), stream_key, below.append_only, partial, out_types)
        if partial:
            sender = PartialAgg(types, keys, tuple(calls), below.append_only, ())
            sender = msgspec.structs.replace(sender, types=partial_types(sender))
            ref = self._operator(raw.draft, sender, (raw.ref,))
            raw = replace(raw, ref=ref, types=sender.types, key=keys, append_only=False)
        if distribution is None:
            raw = self._exchange(raw, keys)
            distribution = keys
        ref = self._operator(raw.draft, node, (raw.ref,), distribution)
        visible = tuple(range(len(out_types)))
        return replace(raw, ref=ref, types=out_types, visible=visible, key=keys, distribution=distribution, append_only=False)

    def _top_n(self, plan: logical.TopN) -> _Stream:
        below = self.stream(plan.input)
        width = len(plan.fields)
        fields: list[logical.Expr] = [logical.Column(i, f.type) for i, f in enumerate(plan.fields)]
        computed = [e for e in dict.fromkeys(k.expr for k in plan.order) if e not in fields]
        below = self._project(below, (*fields, *computed))
        if below.distribution != ():
            below = self._exchange(below, ())
        places = {e: below.visible[i] for i, e in enumerate((*fields, *computed))}
        order = tuple(Order(places[k.expr], k.descending, k.nulls_last) for k in plan.order)
        node = TopN(order, plan.limit, plan.offset, below.key, below.types)
        ref = self._operator(below.draft, node, (below.ref,))
        return replace(below, ref=ref, visible=below.visible[:width], append_only=False)

    # --- helpers -----------------------------------------------------------------------------------------------------------------

    def _keyed(self, stream: _Stream, keys: Sequence[logical.Expr]) -> tuple[_Stream, tuple[int, ...]]:
        """The stream with every key expression as a column, and where they are."""
        moved = [renumbered(k, stream.visible) for k in keys]
        computed = [k for k in dict.fromkeys(moved) if not isinstance(k, logical.Column)]
        if computed:
            columns: list[logical.Expr] = [logical.Column(i, t) for i, t in enumerate(stream.types)]
            types = (*stream.types, *(k.type for k in computed))
            ref = self._projection(stream, (*columns, *computed), types)
            width = len(stream.types)
            stream = replace(stream, ref=ref, types=types)
            places = {k: width + i for i, k in enumerate(computed)}
            return stream, tuple(k.index if isinstance(k, logical.Column) else places[k] for k in moved)
        return stream, tuple(k.index for k in moved if isinstance(k, logical.Column))

    def _visible_first(self, stream: _Stream, width: int) -> _Stream:
        if stream.visible == tuple(range(width)) and len(stream.types) == width + sum(c >= width for c in stream.key):
            return stream
        return self._project(stream, [logical.Column(i, stream.types[c]) for i, c in enumerate(stream.visible)])

    def _projection(self, below: _Stream, exprs: Sequence[logical.Expr], types: tuple[str, ...]) -> int:
        """A Project over `below`; where that is a Project itself the two become one."""
        draft = below.draft
        inputs: tuple[int, ...] = (below.ref,)
        if below.ref >= 0 and below.ref == len(draft.operators) - 1 and isinstance(node := draft.operators[-1].node, Project):
            fused = fuse_projections(exprs, node.exprs)
            if fused is not None:
                exprs, inputs = fused, draft.operators.pop().inputs
        return self._operator(draft, Project(tuple(exprs), types), inputs)

    def _operator(self, draft: _Draft, node: Node, inputs: tuple[int, ...], distribution: tuple[int, ...] | None = None) -> int:
        schemas = []
        for schema in node.state_tables():
            keep = schema.distribution if distribution is None else distribution
            schemas.append(msgspec.structs.replace(schema, table_id=self.next_table_id, distribution=keep))
            self.next_table_id += 1
        self.tables += schemas
        draft.operators.append(Operator(node, inputs, tuple(s.table_id for s in schemas)))
        return len(draft.operators) - 1

    def _add(self, stream: _Stream, node: Node) -> _Stream:
        """A unary operator that keeps columns, key and distribution."""
        ref = self._operator(stream.draft, node, (stream.ref,))
        return replace(stream, ref=ref)

    def _close(self, stream: _Stream) -> int:
        draft = stream.draft
        self.closed.append(Fragment(tuple(draft.inputs), tuple(draft.operators), stream.types, draft.singleton))
        return len(self.closed) - 1

    def _input(self, stream: _Stream, keys: tuple[int, ...]) -> Input:
        """Close the stream's fragment and read it by hash of `keys` (none: singleton). One without operators is not worth a fragment."""
        dispatch = Dispatch.HASH if keys else Dispatch.SINGLETON
        draft = stream.draft
        if not draft.operators:
            (only,) = draft.inputs
            if only.dispatch == Dispatch.FORWARD:
                return msgspec.structs.replace(only, dispatch=dispatch, keys=keys)
        return Input(None, self._close(stream), tuple(range(len(stream.types))), stream.types, dispatch, keys)

    def _exchange(self, stream: _Stream, keys: tuple[int, ...]) -> _Stream:
        draft = _Draft([self._input(stream, keys)], singleton=keys == ())
        return replace(stream, draft=draft, ref=input_ref(0), distribution=keys)


def _joined_key(
    kind: JoinKind, left: _Stream, left_keys: tuple[int, ...], right: _Stream, right_keys: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The stream key and the distribution of a join's output; the distribution is the join key, as it is part of the key.

    Why it is a key: a pair is identified by the keys of its two rows, a row without partner by its own. Of an inner or left join a right
    key column that is joined on equals its left partner, which stands for both; a left row comes out padded or in pairs, never both, so
    that the NULLs of the right key's columns can't be taken for another's. A right join is the mirror image: there the right columns stand
    for both, since the left ones may be NULL. In a full join either may be: the hidden columns of the join key stand for both, and which
    sides there are is part of the key, because rows that lack a side may agree in all the rest. Semi and anti joins put out left rows.
    """
    width = len(left.types)
    from_right = tuple(width + c for c in right.key)
    match kind:
        case JoinKind.INNER | JoinKind.LEFT:
            partner = {width + r: left_keys[i] for i, r in reversed(list(enumerate(right_keys)))}
            return _distinct(*left_keys, *left.key, *(partner.get(c, c) for c in from_right)), left_keys
        case JoinKind.RIGHT:
            distribution = tuple(width + c for c in right_keys)
            partner = {c: distribution[i] for i, c in reversed(list(enumerate(left_keys)))}
            return _distinct(*distribution, *from_right, *(partner.get(c, c) for c in left.key)), distribution
        case JoinKind.FULL:
            behind = width + len(right.types)
            distribution = tuple(range(behind, behind + len(left_keys)))
            partner = {width + r: distribution[i] for i, r in reversed(list(enumerate(right_keys)))}
            partner |= {c: distribution[i] for i, c in reversed(list(enumerate(left_keys)))}
            own = (partner.get(c, c) for c in (*left.key, *from_right))
            return _distinct(*distribution, *own, behind + len(left_keys)), distribution
        case JoinKind.SEMI | JoinKind.ANTI | JoinKind.NULL_AWARE_ANTI:
            return _distinct(*left_keys, *left.key), left_keys
        case _:
            assert_never(kind)


def _distinct(*columns: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(columns))


def _slots(types: Sequence[str], slots: list[str]) -> tuple[int, ...]:
    """A slot of its type for each column, those of `slots` first; new ones are appended."""
    found: list[int] = []
    for kind in types:
        free = next((i for i, slot in enumerate(slots) if slot == kind and i not in found), len(slots))
        if free == len(slots):
            slots.append(kind)
        found.append(free)
    return tuple(found)


def fuse_projections(upper: Sequence[logical.Expr], lower: Sequence[logical.Expr]) -> tuple[logical.Expr, ...] | None:
    """The one projection that two in a row amount to; None where that would compute an expression of `lower` more than once."""
    read = Counter(column for e in upper for column in reads_of(e))
    if any(n > 1 and isinstance(lower[i], logical.Call) for i, n in read.items()):
        return None
    return tuple(substituted(e, lower) for e in upper)


def _argument(call: logical.AggCall, visible: tuple[int, ...]) -> logical.Expr | None:
    """The one column an aggregate reads; a FILTER becomes NULL where it does not hold, which every aggregate ignores."""
    argument = renumbered(call.args[0], visible) if call.args else None
    if len(call.args) > 1:  # count(a, b): rows where all are there
        missing: logical.Expr = logical.Call("IsNotNull", "boolean", (argument,))  # type: ignore[arg-type]
        for other in call.args[1:]:
            there = logical.Call("IsNotNull", "boolean", (renumbered(other, visible),))
            missing = logical.Call("And", "boolean", (missing, there))
        argument = logical.Call("If", "int", (missing, logical.Literal(1, "int"), logical.Literal(None, "int")))
    if call.function is AggFunction.COUNT and isinstance(argument, logical.Literal) and argument.value is not None:
        argument = None
    if call.filter is None:
        return argument
    argument = logical.Literal(1, "int") if argument is None else argument
    condition = renumbered(call.filter, visible)
    return logical.Call("If", argument.type, (condition, argument, logical.Literal(None, argument.type)))

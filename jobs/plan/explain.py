"""EXPLAIN: a view's fragments, levels, exchanges and state tables as text that equal plans print equally.

In every line `c{i}` is column i of what the operator reads (of a join: left columns, then right ones); where a column enters a fragment its
name stands behind it, if it still is a relation's column.
"""

from collections.abc import Mapping, Sequence

from jobs.plan import nodes
from jobs.plan.expression_text import expression_text
from jobs.plan.fragments import FORWARD, HASH, Input, input_number, is_input
from jobs.plan.schedule import Scheduled, schedule
from jobs.sql.logical import Column
from statestore.meta.catalog import Catalog, Relation, TableSchema

Labels = tuple[str, ...]  # a column's name where it is a relation's own, else empty


def explain_relation(catalog: Catalog, relation: Relation) -> str:
    """How an epoch maintains `relation`, from its leaves up.

    One block per fragment: its level, its actors, what it reads and how that is dispatched, its operators in order, its state tables
    with keys. Of a paused view, how it was maintained until then.
    """
    by_relation = {r.id: r for r in catalog.live()}
    wanted = _with_upstream(relation, by_relation)
    planned = [s for s in schedule(catalog, relation.created).fragments() if s.relation_id in wanted]
    labels: dict[int, Labels] = {}
    for scheduled in sorted(planned, key=lambda s: s.id):  # producers come first
        labels[scheduled.id] = _labels(scheduled, by_relation[scheduled.relation_id], labels)
    lines = [f"{relation.kind} {relation.name}({', '.join(f'{c.name} {c.type}' for c in relation.columns)})"]
    if relation.paused is not None:
        lines.append(f"paused since epoch {relation.paused}: nothing below runs, readers see the rows of the epoch before")
    for level in sorted({s.level for s in planned}):
        lines.append(f"level {level}")
        for scheduled in (s for s in planned if s.level == level):
            lines += _fragment(scheduled, by_relation, labels)
    return "\n".join(lines)


def _with_upstream(relation: Relation, by_relation: dict[int, Relation]) -> set[int]:
    found = [relation.id]
    for at in found:
        found += [r for r in by_relation[at].depends_on if r not in found]
    return set(found)


def _labels(scheduled: Scheduled, relation: Relation, labels: Mapping[int, Labels]) -> Labels:
    """Names of a fragment's output columns, as far as columns pass through as they are."""
    fragment = scheduled.fragment
    if fragment is None:
        assert scheduled.source is not None
        return (*(relation.columns[c].name for c in scheduled.source.columns), "_row_id")
    inputs = [tuple(labels[feed.producer][c] for c in feed.columns) for feed in scheduled.feeds]
    outputs: list[Labels] = []
    for operator in fragment.operators:
        given = [inputs[input_number(r)] if is_input(r) else outputs[r] for r in operator.inputs]
        outputs.append(_through(operator.node, given, relation))
    return outputs[-1] if outputs else inputs[0]


def _through(node: nodes.Node, given: Sequence[Labels], relation: Relation) -> Labels:
    match node:
        case nodes.Project(exprs=exprs):
            return tuple(given[0][e.index] if isinstance(e, Column) else "" for e in exprs)
        case nodes.Filter() | nodes.TopN():
            return given[0]
        case nodes.HashJoin():
            return (*given[0], *given[1])
        case nodes.PartialAgg(keys=keys, types=types):
            return (*(given[0][k] for k in keys), *("" for _ in types[len(keys) :]))
        case nodes.HashAgg(keys=keys, calls=calls, partial=partial):
            passed = range(len(keys)) if partial else keys
            return (*(given[0][k] for k in passed), *("" for _ in calls))
        case nodes.Materialize(types=types) | nodes.TableReplay(types=types):
            return (*(c.name for c in relation.columns), *("" for _ in types[len(relation.columns) :]))


def _fragment(scheduled: Scheduled, by_relation: Mapping[int, Relation], labels: Mapping[int, Labels]) -> list[str]:
    fragment = scheduled.fragment
    actors = "one actor" if fragment is not None and fragment.singleton else "an actor per unit"
    lines = [f"  fragment {scheduled.id} of {scheduled.kind} {scheduled.relation}: {actors}"]
    if fragment is None:
        assert scheduled.source is not None
        return [*lines, f"    SourceScan {scheduled.source.statement.format} [{_named(labels[scheduled.id])}]"]
    for number, (i, feed) in enumerate(zip(fragment.inputs, scheduled.feeds, strict=True)):
        of = "" if i.relation_id is None else f" of {by_relation[i.relation_id].name}"
        names = tuple(labels[feed.producer][c] for c in feed.columns)
        lines.append(f"    in{number} <- fragment {feed.producer}{of}, {_dispatch(i)} [{_named(names)}]")
    tables = {t.table_id: t for t in scheduled.tables}
    for number, operator in enumerate(fragment.operators):
        reads = ", ".join(f"in{input_number(r)}" if is_input(r) else f"op{r}" for r in operator.inputs)
        shown = show_node(operator.node)
        if isinstance(operator.node, nodes.Materialize | nodes.TableReplay):
            shown += f" [{_named(_through(operator.node, (), by_relation[scheduled.relation_id]))}]"
        lines.append(f"    op{number} {shown}" + (f" <- {reads}" if reads else ""))
        lines += [f"      state {_table(tables[t])}" for t in operator.tables]
    return lines


def _named(names: Labels) -> str:
    return ", ".join(f"c{i} {name}".rstrip() for i, name in enumerate(names))


def _dispatch(i: Input) -> str:
    if i.dispatch == FORWARD:
        return "forward"
    return f"hash({_columns(i.keys)})" if i.dispatch == HASH else "singleton"


def _columns(columns: Sequence[int]) -> str:
    return ", ".join(f"c{c}" for c in columns)


def _table(table: TableSchema) -> str:
    key = ", ".join(table.columns[k.column].name + (" desc" if k.descending else "") for k in table.key)
    by = ", ".join(table.columns[c].name for c in table.distribution) or "vnode 0"
    columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
    return f"{table.name}#{table.table_id} key=[{key}] distributed by [{by}] columns=[{columns}]"


def show_node(node: nodes.Node) -> str:
    """One line for one operator; columns are numbers of its input."""
    match node:
        case nodes.TableReplay(key=key):
            return f"TableReplay key=[{_columns(key)}]"
        case nodes.Project(exprs=exprs):
            return f"Project [{', '.join(map(expression_text, exprs))}]"
        case nodes.Filter(condition=condition):
            return f"Filter {expression_text(condition)}"
        case nodes.HashJoin(left_keys=left, right_keys=right, null_safe=null_safe, condition=condition):
            pairs = (f"c{a} {'<=>' if n else '='} right c{b}" for a, b, n in zip(left, right, null_safe, strict=True))
            return f"HashJoin inner on {' and '.join(pairs)}" + (f" where {expression_text(condition)}" if condition is not None else "")
        case nodes.PartialAgg(keys=keys, calls=calls):
            return f"PartialAgg keys=[{_columns(keys)}] calls=[{', '.join(map(_call, calls))}]"
        case nodes.HashAgg(keys=keys, calls=calls, append_only=append_only):
            notes = " append-only" if append_only else ""
            return f"HashAgg keys=[{_columns(keys)}] calls=[{', '.join(map(_call, calls))}]{notes}"
        case nodes.TopN(order=order, limit=limit, offset=offset):
            by = ", ".join(f"c{o.column}{' desc' if o.descending else ''} nulls {'last' if o.nulls_last else 'first'}" for o in order)
            return f"TopN order=[{by}] limit={limit}" + (f" offset={offset}" if offset else "")
        case nodes.Materialize(stream_key=key):
            return f"Materialize key=[{_columns(key)}]"


def _call(call: nodes.Agg) -> str:
    return f"{call.function.lower()}({'*' if call.arg is None else f'c{call.arg}'})"

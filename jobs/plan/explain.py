"""EXPLAIN: a view's fragments, levels, exchanges and state tables as text that equal plans print equally."""

from collections.abc import Sequence

from jobs.plan import nodes
from jobs.plan.fragments import FORWARD, HASH, ROW_ID, Input
from jobs.plan.schedule import Scheduled, schedule, source_scan
from jobs.sql.show import show_expr
from statestore.meta.catalog import Catalog, Relation, TableSchema


def explain_relation(catalog: Catalog, relation: Relation) -> str:
    """How an epoch maintains `relation`, from its leaves up.

    One block per fragment: its level, its actors, what it reads and how that is dispatched, its operators in order, its state tables
    with keys.
    """
    by_relation = {r.id: r for r in catalog.live()}
    wanted = _with_upstream(relation, by_relation)
    planned = [s for s in schedule(catalog, relation.created).fragments() if s.relation_id in wanted]
    lines = [f"{relation.kind} {relation.name}({', '.join(f'{c.name} {c.type}' for c in relation.columns)})"]
    for level in sorted({s.level for s in planned}):
        lines.append(f"level {level}")
        for scheduled in (s for s in planned if s.level == level):
            lines += _fragment(scheduled, by_relation)
    return "\n".join(lines)


def _with_upstream(relation: Relation, by_relation: dict[int, Relation]) -> set[int]:
    found = [relation.id]
    for at in found:
        found += [r for r in by_relation[at].depends_on if r not in found]
    return set(found)


def _fragment(scheduled: Scheduled, by_relation: dict[int, Relation]) -> list[str]:
    fragment = scheduled.fragment
    actors = "one actor" if fragment is not None and fragment.singleton else "an actor per unit"
    lines = [f"  fragment {scheduled.id} of {scheduled.kind} {scheduled.relation}: {actors}"]
    if fragment is None:
        assert scheduled.source is not None
        scan = source_scan(scheduled.source)
        names = [by_relation[scan.relation_id].columns[c].name for c in scan.columns]
        return [*lines, f"    SourceScan {scheduled.source.statement.format} columns=[{', '.join((*names, '_row_id'))}]"]
    for number, (i, feed) in enumerate(zip(fragment.inputs, scheduled.feeds, strict=True)):
        lines.append(f"    in{number} <- fragment {feed.producer} {_dispatch(i)} columns=[{', '.join(_column(c) for c in i.columns)}]")
    tables = {t.table_id: t for t in scheduled.tables}
    for number, operator in enumerate(fragment.operators):
        reads = ", ".join(f"op{r}" if r >= 0 else f"in{-1 - r}" for r in operator.inputs)
        lines.append(f"    op{number} {show_node(operator.node)}" + (f" <- {reads}" if reads else ""))
        lines += [f"      state {_table(tables[t])}" for t in operator.tables]
    return lines


def _column(column: int) -> str:
    return "_row_id" if column == ROW_ID else f"c{column}"


def _dispatch(i: Input) -> str:
    if i.dispatch == FORWARD:
        return "forward"
    return f"hash({_columns(i.keys)})" if i.dispatch == HASH else "singleton"


def _columns(columns: Sequence[int]) -> str:
    return ", ".join(f"c{c}" for c in columns)


def _table(table: TableSchema) -> str:
    key = ", ".join(table.columns[k.column].name + (" desc" if k.descending else "") for k in table.key)
    by = ", ".join(table.columns[c].name for c in table.distribution) or "vnode 0"
    return f"{table.name}#{table.table_id} key=[{key}] distributed by [{by}] columns=[{', '.join(f'{c.name} {c.type}' for c in table.columns)}]"


def show_node(node: nodes.Node) -> str:
    """One line for one operator; columns are numbers of its input."""
    match node:
        case nodes.SourceScan(columns=columns):
            return f"SourceScan [{_columns(columns)}]"
        case nodes.TableReplay(key=key):
            return f"TableReplay key=[{_columns(key)}]"
        case nodes.Project(exprs=exprs):
            return f"Project [{', '.join(show_expr(e) for e in exprs)}]"
        case nodes.Filter(condition=condition):
            return f"Filter {show_expr(condition)}"
        case nodes.HashJoin(left_keys=left, right_keys=right, null_safe=null_safe, condition=condition):
            pairs = (f"c{a} {'<=>' if n else '='} right c{b}" for a, b, n in zip(left, right, null_safe, strict=True))
            return f"HashJoin inner on {' and '.join(pairs)}" + (f" where {show_expr(condition)}" if condition is not None else "")
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

"""EXPLAIN: a view's fragments, levels, exchanges and state tables as text. Equal plans have equal texts.

In each line, `c{i}` is column i of the operator's input. For a join, left columns come first. A column that enters a
fragment is followed by its name if it is an unchanged column of a relation.
"""

from collections.abc import Mapping, Sequence

from tussock.jobs.executors.operator import column_list
from tussock.jobs.logical.nodes import Column
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.plan.fragments import Dispatch, Input, input_number, is_input
from tussock.jobs.schedule.lineage import Lineage, NamedColumn
from tussock.jobs.schedule.schedule import InputOrigin, Schedule, ScheduledFragment, make_schedule
from tussock.jobs.sources.ports import Port
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.catalog import Catalog, Relation, TableSchema


def explain_relation(catalog: Catalog, relation: Relation, whole: Schedule | None = None) -> str:
    """`explain_relations` of one relation."""
    return explain_relations(catalog, [relation], whole)


def explain_relations(catalog: Catalog, relations: Sequence[Relation], whole: Schedule | None = None) -> str:
    """How an epoch maintains the relations, starting at their leaves. A fragment that several share appears once.

    One block per fragment: its level, its actors, its inputs and their dispatch, its operators in order, its state
    tables with keys. Paused views follow, each with its plan before the pause.

    Args:
        whole: the schedule of the catalog at the relations' first epoch, if it already exists.
    """
    by_relation = {r.id: r for r in catalog.live_relations()}
    running = [r for r in relations if r.paused is None]
    texts = []
    for together in ([running] if running else []) + [[r] for r in relations if r.paused is not None]:
        planned = planned_fragments(catalog, together, whole)
        lineage = Lineage(planned, by_relation.values())
        lines = [f"{r.kind} {r.name}({', '.join(f'{c.name} {c.type}' for c in r.columns)})" for r in together]
        if (since := together[0].paused) is not None:
            lines.append(f"paused since epoch {since}: nothing below runs, readers see the rows of the epoch before")
        lines.append(_describe_spark_use(planned))
        for level in sorted({s.level for s in planned}):
            lines.append(f"level {level}")
            for scheduled in (s for s in planned if s.level == level):
                lines += _describe_fragment(scheduled, by_relation, lineage)
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def planned_fragments(
    catalog: Catalog, relations: Sequence[Relation], whole: Schedule | None
) -> Sequence[ScheduledFragment]:
    """Return the fragments of relations and of everything that they read, in the order in which an epoch runs them.

    Args:
        relations: either one paused view, or relations that run.
        whole: as in `explain_relations`.
    """
    by_relation = {r.id: r for r in catalog.live_relations()}
    wanted = {r.id for r in relations}
    for other in reversed(by_relation.values()):  # readers come after their inputs
        if other.id in wanted:
            wanted |= set(other.depends_on)
    epoch = max((r.created for r in relations), default=0)
    return [s for s in (whole or make_schedule(catalog, epoch)).all_fragments() if s.relation_id in wanted]


def _describe_spark_use(planned: Sequence[ScheduledFragment]) -> str:
    """Whether an epoch of these fragments needs Spark, and its stages there (jobs/driver/one_stage.py)."""
    by_source = {s.shown_name: s.source.statement for s in planned if s.source}
    why = [
        f"read new files of {name}{f' ({reason})' if reason else ''}"
        for name, source in sorted(by_source.items())
        if (reason := _why_spark_reads(source)) is not None
    ]
    maybe = sorted(name for name, source in by_source.items() if _why_spark_reads(source) is None)
    by_spark = [s for s in planned if any(_by_spark(origin) for origin in s.origins)]
    if by_spark:
        why.append(f"compute expressions of {', '.join(sorted({s.shown_name for s in by_spark}))}")
    stages = 1 + len({s.level for s in by_spark})
    needs = f"needs Spark to {', and to '.join(why)}" if why else "needs no Spark"
    if maybe:
        needs += f", {'and' if why else 'except'} to read files of {', '.join(maybe)} that only it can read"
    return f"an epoch {needs}; on Spark, its levels are {'one stage' if stages == 1 else f'{stages} stages'}"


def _why_spark_reads(source: CreateSource) -> str | None:
    """Why Spark reads all files of a source, empty if it does for all of the format; None if it does not."""
    engine = reader_of(source).engine
    return "" if engine is None else engine.find_reason_for_spark(source)


def _by_spark(origin: InputOrigin) -> list[int]:
    """The places of the expressions of an input that Spark computes."""
    return [place for place, e in enumerate(origin.needed.project) if not isinstance(e, Column)]


def _describe_fragment(
    scheduled: ScheduledFragment, by_relation: Mapping[int, Relation], lineage: Lineage
) -> list[str]:
    fragment = scheduled.fragment
    actors = "one actor" if fragment is not None and fragment.singleton else "an actor per unit"
    lines = [f"  fragment {scheduled.id} of {scheduled.kind} {scheduled.shown_name}: {actors}"]
    if fragment is None:
        assert scheduled.source is not None
        output = _format_columns(lineage.output_columns(scheduled.id))
        return [*lines, f"    SourceScan {scheduled.source.statement.format} [{output}]"]
    for number, (i, origin, columns) in enumerate(
        zip(fragment.inputs, scheduled.origins, lineage.input_columns(scheduled), strict=True)
    ):
        of = (
            ""
            if i.relation_id is None
            else f" of {by_relation[i.relation_id].name}{'' if i.port is Port.ROWS else f', its {i.port}'}"
        )
        lines.append(
            f"    in{number} <- fragment {origin.producer}{of}, {_format_dispatch(i)} [{_format_columns(columns)}]"
        )
        if by_spark := [f"c{place} = {columns[place].name}" for place in _by_spark(origin)]:
            lines.append(f"      Spark computes {', '.join(by_spark)}")
            lines.append(
                "      an epoch costs a run on Spark, and about 5 us per changed row to convert it for Spark and back"
            )
    tables = {t.table_id: t for t in scheduled.tables}
    results = lineage.operator_columns(scheduled)
    for number, operator in enumerate(fragment.operators):
        reads = ", ".join(f"in{input_number(r)}" if is_input(r) else f"op{r}" for r in operator.inputs)
        shown = operator.node.explain_text()
        if operator.node.keeps_relation:
            shown += f" [{_format_columns(results[number])}]"
        lines.append(f"    op{number} {shown}" + (f" <- {reads}" if reads else ""))
        lines.append(f"      an epoch costs {operator.node.describe_cost()}")
        lines += [f"      state {_describe_table(tables[t])}" for t in operator.tables]
    return lines


def _format_columns(columns: Sequence[NamedColumn]) -> str:
    return ", ".join(f"c{i} {'' if c.computed else c.name}".rstrip() for i, c in enumerate(columns))


def _format_dispatch(input: Input) -> str:
    return f"{input.dispatch}({column_list(input.keys)})" if input.dispatch is Dispatch.HASH else str(input.dispatch)


def _describe_table(table: TableSchema) -> str:
    key = ", ".join(table.columns[k.column].name + (" desc" if k.descending else "") for k in table.key)
    by = ", ".join(table.columns[c].name for c in table.distribution) or "vnode 0"
    columns = ", ".join(f"{c.name} {c.type}" for c in table.columns)
    return f"{table.name}#{table.table_id} key=[{key}] distributed by [{by}] columns=[{columns}]"

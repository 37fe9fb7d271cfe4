"""The contents of fragments' columns, traced through operators: a relation's column or an expression's text."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from tussock.jobs.executors.operator import ComputedColumn, Own, PassedColumn
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Column
from tussock.jobs.plan.fragments import Operator, input_number, is_input
from tussock.jobs.schedule.schedule import InputOrigin, ScheduledFragment
from tussock.jobs.sources.keyed import records_of
from tussock.jobs.sources.ports import FIELDS, Port
from tussock.jobs.sources.registry import plan_of_source
from tussock.jobs.sources.row_ids import ROW_ID_NAME
from tussock.statestore.meta.catalog import Relation

_COLUMN = re.compile(r"'(?:[^']|'')*'|\bc(\d+)\b")  # matches quoted text first, to skip it


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """The content of a column: a relation's column by name, or (`computed`) an expression by its text.

    `numbers`: for a `_row_id`, the source whose rows it numbers.
    """

    name: str
    numbers: int | None = None
    computed: bool = False


class Lineage:
    """Traces the columns of fragments back to names."""

    def __init__(self, fragments: Iterable[ScheduledFragment], relations: Iterable[Relation]) -> None:
        self._fragments = {s.id: s for s in fragments}
        self._names = {r.id: tuple(c.name for c in r.columns) for r in relations}
        self._known: dict[int, tuple[NamedColumn, ...]] = {}

    def output_columns(self, fragment: int) -> tuple[NamedColumn, ...]:
        """The columns of a fragment's output."""
        if fragment not in self._known:
            scheduled = self._fragments[fragment]
            if (source := scheduled.source) is not None:
                names = tuple(f.name for f in records_of(source.statement).fields)
                row_id = NamedColumn(ROW_ID_NAME, scheduled.relation_id)
                hidden = (NamedColumn(c.column) for c in source.hidden)
                columns: tuple[NamedColumn, ...] = (*(NamedColumn(names[c]) for c in source.columns), *hidden, row_id)
            elif (table := scheduled.replayed) is not None:
                own = self._names[scheduled.relation_id]
                columns = tuple(map(NamedColumn, (*own, *(c.name for c in table.columns[len(own) :]))))
            else:
                results = self.operator_columns(scheduled)
                columns = results[-1] if results else self.input_columns(scheduled)[0]
            self._known[fragment] = columns
        return self._known[fragment]

    def input_columns(self, scheduled: ScheduledFragment) -> list[tuple[NamedColumn, ...]]:
        """The columns of each input of a fragment."""
        return [self._columns_read(origin) for origin in scheduled.origins]

    def columns_of_origin(self, origin: InputOrigin) -> tuple[NamedColumn, ...]:
        """The columns that a producer passes to an input."""
        if origin.needed.port is Port.CHANGES:
            leaf = self._fragments[origin.producer]
            assert leaf.source is not None
            names = (*self._names[leaf.relation_id], *plan_of_source(leaf.source.statement).change_names)
            own = tuple(map(NamedColumn, names))
            return tuple(own[c] for c in origin.needed.columns)
        if origin.needed.port is Port.TRUNCATIONS:
            return tuple(map(NamedColumn, self._truncation_names(self._fragments[origin.producer])))
        if origin.needed.port is not Port.ROWS:
            return tuple(NamedColumn(FIELDS[origin.needed.port][c].name) for c in origin.needed.columns)
        return tuple(self.output_columns(origin.producer)[c] for c in origin.needed.columns)

    def _truncation_names(self, leaf: ScheduledFragment) -> tuple[str, ...]:
        assert leaf.source is not None
        names = self._names[leaf.relation_id]
        plan = plan_of_source(leaf.source.statement)
        return (*(names[c] for c in plan.scope), *plan.truncation_names)

    def _columns_read(self, origin: InputOrigin) -> tuple[NamedColumn, ...]:
        handed = self.columns_of_origin(origin)
        if not origin.needed.project:
            return handed
        return tuple(
            handed[e.index]
            if isinstance(e, Column)
            else NamedColumn(in_names(expression_text(e), handed), computed=True)
            for e in origin.needed.project
        )

    def operator_columns(self, scheduled: ScheduledFragment) -> list[tuple[NamedColumn, ...]]:
        """The output columns of each operator of a fragment."""
        results: list[tuple[NamedColumn, ...]] = []
        for operator in _operators_of(scheduled):
            results.append(
                self._trace_operator(
                    operator, self._operator_inputs(scheduled, operator, results), scheduled.relation_id
                )
            )
        return results

    def read_by(self, scheduled: ScheduledFragment, operator: int) -> tuple[NamedColumn, ...]:
        """The columns that an operator reads. For a join, left columns come first."""
        return self._operator_inputs(scheduled, _operators_of(scheduled)[operator], self.operator_columns(scheduled))

    def _operator_inputs(
        self, scheduled: ScheduledFragment, operator: Operator, results: Sequence[tuple[NamedColumn, ...]]
    ) -> tuple[NamedColumn, ...]:
        inputs = self.input_columns(scheduled)
        return tuple(c for r in operator.inputs for c in (inputs[input_number(r)] if is_input(r) else results[r]))

    def _trace_operator(
        self, operator: Operator, given: Sequence[NamedColumn], relation: int
    ) -> tuple[NamedColumn, ...]:
        own = self._names[relation]
        columns: list[NamedColumn] = []
        for origin in operator.node.column_origins():
            match origin:
                case PassedColumn(column):
                    columns.append(given[column])
                case ComputedColumn(text):
                    columns.append(NamedColumn(in_names(text, given), computed=True))
                case Own(column):
                    columns.append(NamedColumn(own[column]) if column < len(own) else given[column])
                case _:
                    assert_never(origin)
        return tuple(columns)


def in_names(text: str, columns: Sequence[NamedColumn]) -> str:
    """An expression's text with `c{i}` replaced by the content of column i."""

    def name_of_match(match: re.Match[str]) -> str:
        if match[1] is None or int(match[1]) >= len(columns):
            return match[0]
        column = columns[int(match[1])]
        return f"({column.name})" if column.computed and " " in column.name else column.name or match[0]

    return _COLUMN.sub(name_of_match, text)


def _operators_of(scheduled: ScheduledFragment) -> Sequence[Operator]:
    return () if scheduled.fragment is None else scheduled.fragment.operators

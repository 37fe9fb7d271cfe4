"""A row on which an expression raised, told in the user's own words: view, expression, reason, and the row by its columns' names.

An actor knows its columns by number, so it sends facts (`FailedRow`); the driver, which has the catalog and the pinned files, names them
(`in_names`). Names are looked for only when something has failed.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jobs.executors.table_replay import StatementRowError
from jobs.kernels.errors import text_of
from jobs.plan import nodes
from jobs.plan.expression_text import expression_text
from jobs.plan.fragments import Operator, input_number, is_input
from jobs.plan.schedule import Schedule, Scheduled
from jobs.sources.parquet import POSITION_BITS, ROW_ID
from jobs.sql.logical import Column, Expr
from jobs.wire.failed_row import FailedRow
from statestore.errors import InputError
from statestore.meta.barrier import PinnedFile
from statestore.meta.catalog import Catalog

FilesOf = Callable[[int], Iterable[PinnedFile]]  # a source's relation id -> its files, as far as this epoch can read them

_COLUMN = re.compile(r"'(?:[^']|'')*'|\bc(\d+)\b")  # quoted text is passed over


class ViewRowError(InputError):
    """A view cannot take a row: one of its expressions raises on it, as the same SELECT run by Spark would."""

    def __init__(self, view: str, expression: str, reason: str, row: str) -> None:
        super().__init__(view, expression, reason, row)
        self.view, self.expression, self.reason, self.row = view, expression, reason, row

    def __str__(self) -> str:
        return (
            f"view {self.view!r}: {self.expression} raised: {self.reason}. The row: {self.row}. Nothing of this epoch was committed. "
            "Correct the row (UPDATE or DELETE it in its table, then `tussock barrier abandon --take-log`), go on without its file or its "
            f"log entry (--skip-file, --skip-entry), or without the view (--drop {self.view}; --pause {self.view} keeps the rows it has)."
        )


def in_names(error: InputError, plan: Schedule, catalog: Catalog, files_of: FilesOf) -> InputError:
    """An epoch's error with the names of the catalog that it ran with; errors that speak in names already are returned as they are."""
    match error:
        case FailedRow():
            return _view_row_error(error, plan, catalog, files_of)
        case StatementRowError(table=table, statement=statement, key=key, reason=reason):
            names = [_Named(c.name) for r in catalog.live() if r.name == table for c in r.columns]
            return StatementRowError(table, statement, key, _in_names(reason, names))
        case _:
            return error


def _view_row_error(failed: FailedRow, plan: Schedule, catalog: Catalog, files_of: FilesOf) -> ViewRowError:
    fragments = {s.id: s for s in plan.fragments()}
    naming = _Naming(fragments, catalog)
    columns = naming.inputs_of(fragments[failed.fragment], failed.operator)
    node = _operators(fragments[failed.fragment])[failed.operator].node
    raised = next((e for e in _expressions(node) if text_of(e) == failed.expression), None)
    expression = failed.expression if raised is None else expression_text(raised)
    told = (_told(c, value, files_of) for c, value in zip(columns, failed.values, strict=False))
    row = ", ".join(dict.fromkeys(text for text in told if text)) or "not known"
    return ViewRowError(failed.relation, _in_names(expression, columns), failed.reason, row)


@dataclass(frozen=True, slots=True)
class _Named:
    """What a column holds: a name, or an expression's text; of a `_row_id` the source whose rows it numbers."""

    name: str
    numbers: int | None = None
    computed: bool = False


class _Naming:
    """Traces columns back to names, fragment by fragment."""

    def __init__(self, fragments: dict[int, Scheduled], catalog: Catalog) -> None:
        self._fragments = fragments
        self._names = {r.id: tuple(c.name for c in r.columns) for r in catalog.relations}
        self._known: dict[int, tuple[_Named, ...]] = {}

    def inputs_of(self, scheduled: Scheduled, operator: int) -> tuple[_Named, ...]:
        """The columns that an operator reads; of a join the left ones, then the right ones."""
        results = self._results(scheduled, operator)
        inputs = self._inputs(scheduled)
        refs = _operators(scheduled)[operator].inputs
        return tuple(c for r in refs for c in (inputs[input_number(r)] if is_input(r) else results[r]))

    def _output(self, fragment: int) -> tuple[_Named, ...]:
        if fragment not in self._known:
            scheduled = self._fragments[fragment]
            if (source := scheduled.source) is not None:
                names = self._names[scheduled.relation_id]
                found: tuple[_Named, ...] = (*(_Named(names[c]) for c in source.columns), _Named(ROW_ID, scheduled.relation_id))
            else:
                count = len(_operators(scheduled))
                found = self._results(scheduled, count)[-1] if count else self._inputs(scheduled)[0]
            self._known[fragment] = found
        return self._known[fragment]

    def _inputs(self, scheduled: Scheduled) -> list[tuple[_Named, ...]]:
        return [tuple(self._output(feed.producer)[c] for c in feed.columns) for feed in scheduled.feeds]

    def _results(self, scheduled: Scheduled, count: int) -> list[tuple[_Named, ...]]:
        """Outputs of a fragment's first operators."""
        inputs = self._inputs(scheduled)
        results: list[tuple[_Named, ...]] = []
        for operator in _operators(scheduled)[:count]:
            given = tuple(c for r in operator.inputs for c in (inputs[input_number(r)] if is_input(r) else results[r]))
            results.append(self._through(operator.node, given, scheduled.relation_id))
        return results

    def _through(self, node: nodes.Node, given: tuple[_Named, ...], relation: int) -> tuple[_Named, ...]:
        match node:
            case nodes.Project(exprs=exprs):
                return tuple(given[e.index] if isinstance(e, Column) else _computed(e, given) for e in exprs)
            case nodes.PartialAgg(keys=keys, types=types):
                return (*(given[k] for k in keys), *(_Named("", computed=True) for _ in types[len(keys) :]))
            case nodes.HashAgg(keys=keys, calls=calls, partial=partial):
                passed = range(len(keys)) if partial else keys
                return (*(given[k] for k in passed), *(_call(c, given if not partial else ()) for c in calls))
            case nodes.Materialize(types=types) | nodes.TableReplay(types=types):
                own = tuple(_Named(name) for name in self._names[relation])
                return (*own, *given[len(own) : len(types)])  # behind a view's own columns: hidden ones of its key
            case _:
                return given


def _operators(scheduled: Scheduled) -> Sequence[Operator]:
    return () if scheduled.fragment is None else scheduled.fragment.operators


def _expressions(node: nodes.Node) -> tuple[Expr, ...]:
    match node:
        case nodes.Project(exprs=exprs):
            return exprs
        case nodes.Filter(condition=condition):
            return (condition,)
        case nodes.HashJoin(condition=condition) if condition is not None:
            return (condition,)
        case _:
            return ()


def _computed(expr: Expr, given: Sequence[_Named]) -> _Named:
    return _Named(_in_names(expression_text(expr), given), computed=True)


def _call(call: nodes.Agg, given: Sequence[_Named]) -> _Named:
    inner = "*" if call.arg is None else given[call.arg].name if call.arg < len(given) else "…"
    return _Named(f"{call.function.lower()}({inner})", computed=True)


def _in_names(text: str, columns: Sequence[_Named]) -> str:
    """The expression's text with `c{i}` replaced by what column i is."""

    def name(match: re.Match[str]) -> str:
        if match[1] is None or int(match[1]) >= len(columns):
            return match[0]
        column = columns[int(match[1])]
        return f"({column.name})" if column.computed and " " in column.name else column.name or match[0]

    return _COLUMN.sub(name, text)


def _told(column: _Named, value: str, files_of: FilesOf) -> str:
    """One column of the row; a `_row_id` as the place in its file."""
    if column.numbers is None or not value.isdigit():
        return f"{column.name}={value}" if column.name else ""
    number, position = divmod(int(value), 1 << POSITION_BITS)
    path = next((f.path for f in files_of(column.numbers) if f.number == number), f"file number {number}")
    return f"record {position + 1} of {path}"

"""Errors of rows in the user's terms: view, expression, reason, and the row by column names.

An actor has column numbers only, so it sends facts (`FailedRow`). The driver has the catalog and the pinned files, and
replaces numbers by names (`named_error`). This work is only done after a failure.
"""

from collections.abc import Callable, Sequence

from tussock.jobs.chunks.failure import ViewFailedError
from tussock.jobs.executors.table_replay import StatementRowError
from tussock.jobs.schedule.lineage import Lineage, NamedColumn, in_names
from tussock.jobs.schedule.schedule import Schedule, ScheduledFragment
from tussock.jobs.sources.base import RowPlace
from tussock.jobs.trouble.ways_around import WaysAround
from tussock.jobs.wire.failed_row import FailedRow, RaisedInSpark
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, shown_view

PlaceOf = Callable[[int, int], RowPlace]  # (relation id of a source, `_row_id` of a row) -> its place in a file
WaysOf = Callable[[Relation, str], WaysAround]  # (a view, the item of its failing row or "") -> the remedies


class ViewRowError(InputError):
    """An expression of a view raises on a row. The same SELECT would raise in Spark."""

    view: str
    expression: str
    reason: str
    row: str
    ways: WaysAround = WaysAround()  # the remedies
    build: bool = False  # the view is built over several epochs

    @property
    def finding(self) -> str:
        """The finding, without the remedy."""
        return f"{self.expression} raised: {self.reason}. The row: {self.row}"

    def __str__(self) -> str:
        return f"{shown_view(self.view)}: {self.finding}. Nothing of this epoch was committed.{self.ways}"


def named_error(error: InputError, plan: Schedule, catalog: Catalog, place_of: PlaceOf, ways_of: WaysOf) -> InputError:
    """Replace the column numbers in an epoch's error by names, and add the remedies to an error of a view's rows.

    Errors that already contain names are returned unchanged.
    """
    match error:
        case RaisedInSpark():
            return _raised_in_spark(error, plan, catalog, place_of, ways_of)
        case FailedRow():
            return _view_row_error(error, plan, catalog, place_of, ways_of)
        case ViewFailedError(relation=view, cause=cause, build=build):
            relation = next((r for r in catalog.stored_relations() if r.name == view), None)
            return error if relation is None else ViewFailedError(view, cause, build, str(ways_of(relation, "")))
        case StatementRowError(table=table, statement=statement, key=key, reason=reason):
            names = [NamedColumn(c.name) for r in catalog.live_relations() if r.name == table for c in r.columns]
            return StatementRowError(table, statement, key, in_names(reason, names), error.entry)
        case _:
            return error


def _view_row_error(
    failed: FailedRow, plan: Schedule, catalog: Catalog, place_of: PlaceOf, ways_of: WaysOf
) -> ViewRowError:
    fragments = {s.id: s for s in plan.all_fragments()}
    scheduled = fragments[failed.fragment]
    assert scheduled.fragment is not None
    columns = Lineage(fragments.values(), catalog.stored_relations()).read_by(scheduled, failed.operator)
    return _name_row(scheduled, failed.text, failed.reason, columns, failed.values, catalog, place_of, ways_of)


def _raised_in_spark(
    failed: RaisedInSpark, plan: Schedule, catalog: Catalog, place_of: PlaceOf, ways_of: WaysOf
) -> ViewRowError:
    fragments = {s.id: s for s in plan.all_fragments()}
    scheduled = fragments[failed.fragment]
    origin = scheduled.origins[failed.input_index]
    handed = Lineage(fragments.values(), catalog.stored_relations()).columns_of_origin(origin)
    text = str(failed.calls[failed.raised][2])
    return _name_row(scheduled, text, failed.reason, handed, failed.values, catalog, place_of, ways_of)


def _name_row(
    view: ScheduledFragment,
    text: str,
    reason: str,
    columns: Sequence[NamedColumn],
    values: Sequence[str],
    catalog: Catalog,
    place_of: PlaceOf,
    ways_of: WaysOf,
) -> ViewRowError:
    places = [_row_place(c, value, place_of) for c, value in zip(columns, values, strict=False)]
    row = ", ".join(dict.fromkeys(place.text for place in places if place.text)) or "not known"
    items = {place.item for place in places if place.item}
    relation = next(r for r in catalog.stored_relations() if r.id == view.relation_id)
    ways = ways_of(relation, items.pop() if len(items) == 1 else "")
    return ViewRowError(view.relation, in_names(text, columns), reason, row, ways, view.build)


def _row_place(column: NamedColumn, value: str, place_of: PlaceOf) -> RowPlace:
    """One column of the row as text; a `_row_id` as its place in the file."""
    if column.numbers is None or not value.isdigit():
        return RowPlace(f"{column.name}={value}" if column.name else "", "")
    return place_of(column.numbers, int(value))

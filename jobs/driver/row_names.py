"""A row on which an expression raised, in the user's own words: view, expression, reason, and the row by its columns' names.

An actor knows its columns by number, so it sends facts (`FailedRow`); the driver, which has the catalog and the pinned files, names them
(`named_error`). Names are looked for only when something has failed.
"""

from collections.abc import Callable, Sequence

from tussock.jobs.executors.table_replay import StatementRowError
from tussock.jobs.plan.definition import with_readers
from tussock.jobs.plan.lineage import Lineage, NamedColumn, in_names
from tussock.jobs.plan.schedule import Schedule, Scheduled
from tussock.jobs.wire.failed_row import FailedRow, RaisedInSpark
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog

PlaceOf = Callable[[int, int], str]  # (a source's relation id, a row's `_row_id`) -> where the row came from


class ViewRowError(InputError):
    """A view cannot take a row: one of its expressions raises on it, as the same SELECT run by Spark would."""

    def __init__(
        self,
        view: str,
        expression: str,
        reason: str,
        row: str,
        pausable: bool = True,
        replaces: bool = False,
        build: bool = False,
    ) -> None:
        """`pausable`: the view and all that read it have rows of an earlier epoch to stay at. `replaces`: another is there in its place.
        `build`: several epochs build it."""
        super().__init__(view, expression, reason, row, pausable, replaces, build)
        self.view, self.expression, self.reason, self.row, self.pausable = view, expression, reason, row, pausable
        self.replaces, self.build = replaces, build

    @property
    def what(self) -> str:
        """What happened, without what to do."""
        return f"{self.expression} raised: {self.reason}. The row: {self.row}"

    def __str__(self) -> str:
        pause = f"; --pause {self.view} keeps the rows it has" if self.pausable else ""
        without = f"or without the view (--drop {self.view}{pause})"
        if self.replaces:
            without = "or with the view as it was (--skip-entry, the one that replaces it: `tussock barrier show` has its number)"
        return (
            f"view {self.view!r}: {self.what}. Nothing of this epoch was committed. "
            "Correct the row (UPDATE or DELETE it in its table, then `tussock barrier abandon --take-log`), go on without its file or its "
            f"log entry (--skip-file, --skip-entry), {without}."
        )


def named_error(error: InputError, plan: Schedule, catalog: Catalog, place_of: PlaceOf) -> InputError:
    """An epoch's error with the names of the catalog that it ran with; errors that speak in names already are returned as they are."""
    match error:
        case RaisedInSpark():
            return _raised_in_spark(error, plan, catalog, place_of)
        case FailedRow():
            return _view_row_error(error, plan, catalog, place_of)
        case StatementRowError(table=table, statement=statement, key=key, reason=reason):
            names = [NamedColumn(c.name) for r in catalog.live() if r.name == table for c in r.columns]
            return StatementRowError(table, statement, key, in_names(reason, names))
        case _:
            return error


def _view_row_error(failed: FailedRow, plan: Schedule, catalog: Catalog, place_of: PlaceOf) -> ViewRowError:
    fragments = {s.id: s for s in plan.fragments()}
    scheduled = fragments[failed.fragment]
    assert scheduled.fragment is not None
    columns = Lineage(fragments.values(), catalog.stored()).read_by(scheduled, failed.operator)
    return _named(scheduled, failed.text, failed.reason, columns, failed.values, plan, catalog, place_of)


def _raised_in_spark(failed: RaisedInSpark, plan: Schedule, catalog: Catalog, place_of: PlaceOf) -> ViewRowError:
    fragments = {s.id: s for s in plan.fragments()}
    scheduled = fragments[failed.fragment]
    feed = scheduled.feeds[failed.feed]
    handed = Lineage(fragments.values(), catalog.stored()).handed(feed)
    return _named(
        scheduled, str(failed.calls[failed.raised][2]), failed.reason, handed, failed.values, plan, catalog, place_of
    )


def _named(
    view: Scheduled,
    text: str,
    reason: str,
    columns: Sequence[NamedColumn],
    values: Sequence[str],
    plan: Schedule,
    catalog: Catalog,
    place_of: PlaceOf,
) -> ViewRowError:
    shown = (_shown(c, value, place_of) for c, value in zip(columns, values, strict=False))
    row = ", ".join(dict.fromkeys(text for text in shown if text)) or "not known"
    new = {s.relation_id for s in plan.fragments() if s.new}
    relation = next(r for r in catalog.stored() if r.id == view.relation_id)
    replaces = any((r.name, r.dropped) == (relation.name, relation.created) for r in catalog.relations)
    return ViewRowError(
        view.relation,
        in_names(text, columns),
        reason,
        row,
        not new & with_readers(catalog, relation),
        replaces,
        view.build,
    )


def _shown(column: NamedColumn, value: str, place_of: PlaceOf) -> str:
    """One column of the row; a `_row_id` as the place in its file."""
    if column.numbers is None or not value.isdigit():
        return f"{column.name}={value}" if column.name else ""
    return place_of(column.numbers, int(value))

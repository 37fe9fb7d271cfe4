"""Errors of rows in the user's terms: view, expression, reason, and the row by column names.

An actor has column numbers only, so it sends facts (`FailedRow`). The driver has the catalog and the pinned files, and
replaces numbers by names (`named_error`). This work is only done after a failure.
"""

from collections.abc import Callable, Sequence

from tussock.jobs.executors.table_replay import StatementRowError
from tussock.jobs.plan.definition import with_readers
from tussock.jobs.plan.lineage import Lineage, NamedColumn, in_names
from tussock.jobs.plan.schedule import Schedule, Scheduled
from tussock.jobs.wire.failed_row import FailedRow, RaisedInSpark
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog

PlaceOf = Callable[[int, int], str]  # (relation id of a source, `_row_id` of a row) -> the place of the row in a file


class ViewRowError(InputError):
    """An expression of a view raises on a row. The same SELECT would raise in Spark."""

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
        """
        Args:
            pausable: the view and all its readers have rows of an earlier epoch, which they would keep.
            replaces: the view replaces an existing one.
            build: the view is built over several epochs.
        """
        super().__init__(view, expression, reason, row, pausable, replaces, build)
        self.view, self.expression, self.reason, self.row, self.pausable = view, expression, reason, row, pausable
        self.replaces, self.build = replaces, build

    @property
    def what(self) -> str:
        """The finding, without the remedy."""
        return f"{self.expression} raised: {self.reason}. The row: {self.row}"

    def __str__(self) -> str:
        pause = f"; --pause {self.view} keeps its current rows" if self.pausable else ""
        without = f"or continue without the view (--drop {self.view}{pause})"
        if self.replaces:
            without = (
                "or keep the old view (--skip-entry N; `tussock barrier show` prints the number of the entry that "
                "replaces it)"
            )
        return (
            f"view {self.view!r}: {self.what}. Nothing of this epoch was committed. Correct the row (UPDATE or DELETE "
            "it in its table, then `tussock barrier abandon --take-log`), skip its file or its log entry (--skip-file, "
            f"--skip-entry), {without}."
        )


def named_error(error: InputError, plan: Schedule, catalog: Catalog, place_of: PlaceOf) -> InputError:
    """Replace the column numbers in an epoch's error by names.

    Errors that already contain names are returned unchanged.
    """
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
    """Format one column of the row; a `_row_id` as its place in the file."""
    if column.numbers is None or not value.isdigit():
        return f"{column.name}={value}" if column.name else ""
    return place_of(column.numbers, int(value))

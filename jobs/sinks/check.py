"""Compare published tables with the store: their rows, and the locators by which publishes find them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tussock.jobs.reading.reader import CHANGE, net_of_changes
from tussock.jobs.reading.stored_rows import rows_at
from tussock.jobs.reading.written_rows import json_texts
from tussock.jobs.settings.home import home_of
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.sinks.base import Publisher, Sink, UnreadableSinkError
from tussock.jobs.sinks.kinds import open_place
from tussock.jobs.sinks.outline import outline_of
from tussock.jobs.sinks.publication import chosen_relations
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.nested import is_nested

_DIGITS = 1000  # more than any number of a row has


@runtime_checkable
class CheckedSink(Protocol):
    """A sink with a locator."""

    def check_locator(self) -> str | None:
        """Return how the locator contradicts the table; None if it does not. Requires: `read_state` was called."""
        ...


@dataclass(frozen=True, slots=True)
class TableCheck:
    """The result for a table. `objection`: None if it equals the store; `compared`: whether rows could be compared."""

    sink: str
    relation: str
    objection: str | None
    compared: bool = True


def check_tables(meta: MetaStore, settings: PublishSettings) -> Iterator[TableCheck]:
    """Compare the tables of a sink with the rows of the epochs that they show.

    Raises: CopiedStoreError, and the errors of the sink's kind.
    Cost: all rows of each relation and table, in memory; the key columns of a table with a locator.
    """
    home = home_of(meta.objects)
    with meta.reading_published() as (_, version):
        relations, unknown = chosen_relations(version, published_sight(version), settings)
        for error in unknown:
            yield TableCheck(settings.title, error.name, str(error))
        with open_place(settings, Publisher(meta, home, lambda _: "")) as place:
            for relation in relations:
                try:
                    yield _check_table(
                        meta, version, settings.title, relation, place.sink_of(outline_of(relation, home))
                    )
                except (TussockError, pa.ArrowException) as err:
                    yield TableCheck(settings.title, relation.name, f"its rows cannot be read: {err}")


def _check_table(meta: MetaStore, version: HummockVersion, title: str, relation: Relation, sink: Sink) -> TableCheck:
    if (state := sink.read_state()) is None:
        return TableCheck(title, relation.name, "it was never published")
    # A table keeps the epoch of its last change, which may have expired.
    readable = version.min_readable_epoch <= state.epoch <= version.epoch
    epoch = state.epoch if readable else version.published
    objection = None
    try:
        objection = sink.check_locator() if isinstance(sink, CheckedSink) else None
        shown = sink.read_rows().read_all()
    except UnreadableSinkError:
        return TableCheck(title, relation.name, objection, compared=False)
    stored, shown = _in_one_form(rows_at(meta.objects, version, relation, epoch).read_all(), shown)
    parts = [
        rows.append_column(CHANGE, pa.repeat(pa.scalar(change), rows.num_rows))
        for rows, change in ((stored, "insert"), (shown.cast(stored.schema), "delete"))
    ]
    left = net_of_changes(pa.concat_tables(parts).combine_chunks())
    if left.num_rows:
        differing = f"{left.num_rows:,} rows of the table and of epoch {epoch} differ"
        objection = differing if objection is None else f"{differing}; {objection}"
    return TableCheck(title, relation.name, objection)


def _in_one_form(stored: pa.Table, shown: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return both rows with the columns that a sink keeps as JSON in one form, in which equal values are equal."""
    for place, field in enumerate(stored.schema):
        if is_nested(field.type) and pa.types.is_string(shown.schema.field(place).type):
            texts = json_texts(stored.select([place]).rename_columns(["c"]))
            stored = stored.set_column(place, field.name, _plain_json([_parse_json(text).get("c") for text in texts]))
            loaded = [None if text is None else _parse_json(text) for text in shown.column(place).to_pylist()]
            shown = shown.set_column(place, field.name, _plain_json(loaded))
    return stored, shown


def _parse_json(text: str) -> Any:
    return json.loads(text, parse_float=_plain_number, parse_int=_plain_number)


def _plain_number(text: str) -> str:
    """Return a number as a text that no string equals; `1.0` and `1` are one number, `-0.0` and `0` too."""
    return f"\0{Context(prec=_DIGITS).normalize(Decimal(text)) + 0}"


def _plain_json(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else json.dumps(value, sort_keys=True) for value in values], pa.string())

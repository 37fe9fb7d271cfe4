"""Compare published tables with the store: their rows, and the locators by which publishes find them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from tussock.jobs.reading.reader import CHANGE, net_of_changes
from tussock.jobs.reading.stored_rows import rows_at
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
                yield _check_table(meta, version, settings.title, relation, place.sink_of(outline_of(relation, home)))


def _check_table(meta: MetaStore, version: HummockVersion, title: str, relation: Relation, sink: Sink) -> TableCheck:
    if (state := sink.read_state()) is None:
        return TableCheck(title, relation.name, "it was never published")
    # A table keeps the epoch of its last change, which may have expired.
    readable = version.min_readable_epoch <= state.epoch <= version.epoch
    epoch = state.epoch if readable else version.published
    objection = None
    try:
        objection = sink.check_locator() if isinstance(sink, CheckedSink) else None
        found = sink.read_rows().read_all()
    except UnreadableSinkError:
        return TableCheck(title, relation.name, objection, compared=False)
    except (TussockError, pa.ArrowException) as err:
        return TableCheck(title, relation.name, f"its rows cannot be read: {err}")
    stored = rows_at(meta.objects, version, relation, epoch).read_all()
    parts = [
        rows.append_column(CHANGE, pa.repeat(pa.scalar(change), rows.num_rows))
        for rows, change in ((stored, "insert"), (found.cast(stored.schema), "delete"))
    ]
    left = net_of_changes(pa.concat_tables(parts).combine_chunks())
    if left.num_rows:
        differing = f"{left.num_rows:,} rows of the table and of epoch {epoch} differ"
        objection = differing if objection is None else f"{differing}; {objection}"
    return TableCheck(title, relation.name, objection)

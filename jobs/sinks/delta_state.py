"""The epoch and owner of a Delta table, read with the deltalake package for both engines."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tussock.jobs.delta.delta_calls import first_line, one_call
from tussock.jobs.settings.publishing import TableEngine
from tussock.jobs.sinks.base import BeatenError, BrokenTableError, ForeignTableError, Outline, SinkState
from tussock.jobs.sinks.delta_head import TableHead
from tussock.jobs.sinks.delta_outline import ENGINE, KEY, STORE, app_of, delta_schema, properties_of
from tussock.jobs.sinks.manifest import SinkSize
from tussock.statestore.types import type_name


def open_table(url: str, place: str, options: Mapping[str, str] | None = None) -> DeltaTable | None:
    """Return the newest state of a table; None if it does not exist. `place`: the table's folder in errors.

    Cost: the log since its last checkpoint.
    """
    with translating_errors(place, "read the table"):
        try:
            return DeltaTable(url, storage_options=dict(options) if options else None)
        except TableNotFoundError:
            return None


def read_table(table: DeltaTable | None, place: str, schema: pa.Schema) -> pa.RecordBatchReader:
    """Return all rows of a table; none if it does not exist."""
    if table is None:
        return schema.empty_table().to_reader()
    with translating_errors(place, "read the table"):
        found = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        batches = (batch.cast(schema) for batch in pa.RecordBatchReader.from_stream(found))
        return pa.RecordBatchReader.from_batches(schema, batches)


def held_by(table: TableHead, outline: Outline, engine: TableEngine, place: str) -> SinkState | None:
    """Return the state of a Delta table, for both engines.

    Raises: ForeignTableError if Tussock did not write the table, or another store or engine did.
    """
    replaced, properties = replacements_of(table), table.metadata().configuration
    if (epoch := table.transaction_version(app_of(replaced))) is None:
        raise ForeignTableError(place, "contains a Delta table that Tussock has not written")
    wanted = properties_of(outline, engine)
    for name, meaning, allowed in (
        (STORE, "of another store", outline.stores),
        (ENGINE, "that another engine writes, and a table keeps its engine for life", {engine.value}),
    ):
        if properties.get(name, wanted[name]) not in allowed:
            raise ForeignTableError(
                place, f"contains a Delta table {meaning} ({name} = {properties[name]!r}, expected {wanted[name]!r})"
            )
    columns = [(field.name, type_name(field.type)) for field in pa.schema(table.schema().to_arrow())]
    fits = (
        columns == [(field.name, type_name(field.type)) for field in delta_schema(outline)]
        and properties.get(KEY) == wanted[KEY]
    )
    return SinkState(epoch, str(table.version()), fits)


def size_of(table: DeltaTable) -> SinkSize:
    """Return the size of a table's state. Does no I/O beyond the table's log."""
    files = pa.table(table.get_add_actions())
    counts = files["num_records"]
    rows = None if counts.null_count else (pc.sum(counts).as_py() or 0)
    return SinkSize(rows, files.num_rows, 0)


def replacements_of(table: TableHead) -> int:
    """Return how often the table was replaced without advancing to a later epoch; see `app_of`. Does no I/O."""
    replaced = 0
    while table.transaction_version(app_of(replaced + 1)) is not None:
        replaced += 1
    return replaced


def next_app(table: TableHead | None, epoch: int) -> str:
    """Return the appId with which the rows of `epoch` replace a table."""
    replaced = 0 if table is None else replacements_of(table)
    held = None if table is None else table.transaction_version(app_of(replaced))
    return app_of(replaced if held is None or held < epoch else replaced + 1)


@contextmanager
def translating_errors(place: str, what: str) -> Iterator[None]:
    """Translate errors of the package. Surrounds every call that writes a table; see `one_call`."""
    try:
        with one_call(place, what):
            yield
    except CommitFailedError as err:
        raise BeatenError from err
    except DeltaError as err:
        if "already exists" in str(err):  # another publisher created the table at the same moment
            raise BeatenError from err
        raise BrokenTableError(place, what, first_line(err)) from err

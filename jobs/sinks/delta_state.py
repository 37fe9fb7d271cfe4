"""What a Delta table holds, and whose it is; read with the deltalake package, whichever engine writes it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tussock.jobs.lake.delta_calls import first_line, one_call
from tussock.jobs.settings.pipeline import TableEngine
from tussock.jobs.sinks.base import BeatenError, BrokenTableError, ForeignTableError, Outline, SinkState
from tussock.jobs.sinks.delta_outline import ENGINE, KEY, STORE, app_of, delta_schema, properties_of
from tussock.statestore.types import type_name


def open_table(url: str, place: str, options: Mapping[str, str] | None = None) -> DeltaTable | None:
    """The newest state of a table; None: there is none. `place`: the table's folder as errors show it. Cost: the log since its last
    checkpoint."""
    with translated(place, "look at the table"):
        try:
            return DeltaTable(url, storage_options=dict(options) if options else None)
        except TableNotFoundError:
            return None


def held_by(table: DeltaTable, outline: Outline, engine: TableEngine, place: str) -> SinkState | None:
    """What a Delta table holds, whoever of the two engines writes it.

    Raises ForeignTableError: it is no table of Tussock, or another store's, or another engine has written it.
    """
    replaced, properties = replacements_of(table), table.metadata().configuration
    if (epoch := table.transaction_version(app_of(replaced))) is None:
        raise ForeignTableError(place, "holds a Delta table that Tussock has not written")
    wanted = properties_of(outline, engine)
    for name, meaning, allowed in (
        (STORE, "of another store", outline.stores),
        (ENGINE, "that another engine writes, and a table has one for its life", {engine.value}),
    ):
        if properties.get(name, wanted[name]) not in allowed:
            raise ForeignTableError(
                place, f"holds a Delta table {meaning} ({name} = {properties[name]!r}, expected {wanted[name]!r})"
            )
    columns = [(field.name, type_name(field.type)) for field in pa.schema(table.schema().to_arrow())]
    fits = (
        columns == [(field.name, type_name(field.type)) for field in delta_schema(outline)]
        and properties.get(KEY) == wanted[KEY]
    )
    return SinkState(epoch, str(table.version()), fits)


def replacements_of(table: DeltaTable) -> int:
    """How often the table was replaced without going on to a later epoch; see `app_of`. Reads nothing."""
    replaced = 0
    while table.transaction_version(app_of(replaced + 1)) is not None:
        replaced += 1
    return replaced


def next_app(table: DeltaTable | None, epoch: int) -> str:
    """The appId under which a table is to be replaced by the rows of `epoch`."""
    replaced = 0 if table is None else replacements_of(table)
    held = None if table is None else table.transaction_version(app_of(replaced))
    return app_of(replaced if held is None or held < epoch else replaced + 1)


@contextmanager
def translated(place: str, what: str) -> Iterator[None]:
    """Around every call of the package that writes a table: as `one_call`, and what it raises as errors of ours."""
    try:
        with one_call(place, what):
            yield
    except CommitFailedError as err:
        raise BeatenError from err
    except DeltaError as err:
        if "already exists" in str(err):  # another publisher made the table at the same moment
            raise BeatenError from err
        raise BrokenTableError(place, what, first_line(err)) from err

"""The first rows of a view or table, rows with given values, and the changes of an epoch, for a page.

A read ends after `MOST_ROWS` rows or `SEARCH_S` seconds, so that a page costs little for a relation of any size. Values
for the first columns of the stored key, its distribution included, are looked up; other values are searched for.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.kernels.zones import convert_micros
from tussock.jobs.reading.read import UnknownColumnError
from tussock.jobs.reading.reader import CHANGE, open_table, scan_changes, stored_output, stored_table
from tussock.jobs.reading.stored_rows import StoredRows, rows_at
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.errors import EpochNotCommittedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import given_rows
from tussock.statestore.types import arrow_type
from tussock.statestore.zones import instant_micros

MOST_ROWS = 100
SEARCH_S = 1.0


class RowsFacts(msgspec.Struct, frozen=True):
    """Some rows of a relation, and how far the search for them went."""

    rows: pa.Table  # at most MOST_ROWS; the relation's columns, and CHANGE for the changes of an epoch
    epoch: int  # the epoch of `rows`, or of the changes
    read: int  # number of rows that were compared with the wanted values
    more: bool  # the relation has other such rows, or may have: `is_whole` is False
    is_whole: bool  # all rows were compared, or enough were found


class UnsearchableValueError(InputError):
    """A value to search for does not have the type of its column."""

    column: str
    type: str
    value: str

    def __str__(self) -> str:
        return f"The value {self.value!r} cannot be compared with column {self.column!r}, whose type is {self.type}."


def search_columns(relation: Relation) -> tuple[str, ...]:
    """Return the columns to offer for a search: the visible ones of the key, or all if the key is hidden.

    Columns whose values have no text to compare (nested values, binary) are left out.
    """
    shown = range(len(relation.columns))
    key = [i for i in stored_output(relation).key if i in shown]
    columns = [relation.columns[i] for i in (key or shown)]
    return tuple(c.name for c in columns if _has_text(arrow_type(c.type)))


def first_rows(meta: MetaStore, name: str, wanted: Mapping[str, str]) -> RowsFacts:
    """Return the first rows that readers see of a view or table, in the order of its ORDER BY if it has one.

    Args:
        wanted: values by column, as text; a row must equal all of them. An empty text stands for any value.

    Raises: UnknownColumnError, UnsearchableValueError; as `StoredRows.read`.
    Cost: a pin; at most SEARCH_S and one batch of rows.
    """
    stored = StoredRows(meta)
    with stored.open_sight() as (version, sight):
        relation = stored.find_visible(version, sight, name)
        epoch, values = sight.epoch_of(relation.name), _typed_values(meta, relation, wanted)
        batches = _looked_up(meta, version, relation, epoch, values)
        if batches is None:
            batches = (pa.Table.from_batches([b]) for b in rows_at(meta.objects, version, relation, epoch))
        return _first_rows(batches, relation, values, epoch)


def first_changes(meta: MetaStore, name: str, epoch: int, wanted: Mapping[str, str]) -> RowsFacts:
    """Return the first changes of one epoch to a view or table: rows with the column CHANGE, "insert" or "delete".

    All rows are inserted ones if the epoch created or replaced the relation.

    Raises: as `first_rows`; EpochNotCommittedError; EpochExpiredError if the epoch before is no longer readable.
    """
    version = meta.read_latest()
    sealed = meta.read_manifest(epoch) if epoch <= version.epoch else None
    if sealed is None:
        raise EpochNotCommittedError(epoch, version.epoch)
    stored, since = StoredRows(meta), sealed.prev_epoch
    with stored.open_sight(epoch) as (version, sight):
        relation = stored.find_visible(version, sight, name)
        if relation.created > since:
            rows = (pa.Table.from_batches([b]) for b in rows_at(meta.objects, version, relation, epoch))
            return _first_rows(map(_with_insert_column, rows), relation, _typed_values(meta, relation, wanted), epoch)
    with stored.open_changes(name, since, epoch) as (version, relation, last):
        changes = scan_changes(meta.objects, version, relation, since, last)
        return _first_rows(map(given_rows, changes), relation, _typed_values(meta, relation, wanted), epoch)


def _first_rows(
    batches: Iterable[pa.Table], relation: Relation, values: Mapping[str, pa.Scalar], epoch: int
) -> RowsFacts:
    columns = [(c.name, arrow_type(c.type)) for c in relation.columns]
    matches, count, read, end = [given_rows(pa.schema(columns).empty_table())], 0, 0, time.monotonic() + SEARCH_S
    for batch in batches:
        read += batch.num_rows
        for column, value in values.items():
            batch = batch.filter(pc.equal(batch[column], value))
        matches.append(batch)
        count += batch.num_rows
        is_late = time.monotonic() > end
        if count > MOST_ROWS or is_late:
            return RowsFacts(
                _concat_batches(matches).slice(0, MOST_ROWS), epoch, read, more=True, is_whole=count > MOST_ROWS
            )
    return RowsFacts(_concat_batches(matches), epoch, read, more=False, is_whole=True)


def _concat_batches(parts: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the batches. The first is empty, and lacks the column CHANGE."""
    return pa.concat_tables(parts[1:] or parts)


def _with_insert_column(rows: pa.Table) -> pa.Table:
    return rows.append_column(CHANGE, pa.repeat("insert", rows.num_rows))


def _looked_up(
    meta: MetaStore, version: HummockVersion, relation: Relation, epoch: int, values: Mapping[str, pa.Scalar]
) -> Iterable[pa.Table] | None:
    """Look up rows by the first columns of the stored key; None if these have no values, or not the vnode's columns."""
    schema, names = stored_table(relation), [c.name for c in relation.columns]
    prefix = []
    for part in schema.key:
        name = names[part.column] if part.column < len(names) else ""
        if name not in values or pa.types.is_floating(values[name].type):  # -0.0 and NaN have several forms
            break
        prefix.append((schema.columns[part.column], values[name]))
    places = [part.column for part in schema.key[: len(prefix)]]
    if not prefix or not set(schema.distribution) <= set(places):
        return None
    fields = [(column.name, arrow_type(column.type)) for column, _ in prefix]
    keys = pa.table(
        [pa.array([value.as_py()], kind) for (_, value), (_, kind) in zip(prefix, fields, strict=True)],
        schema=pa.schema(fields),
    )
    table = open_table(meta.objects, version, schema, epoch)
    rows = table.scan_prefix(keys, limit=MOST_ROWS + 1, columns=tuple(range(len(names)))).rows
    return [given_rows(rows.rename_columns(names))]


def _typed_values(meta: MetaStore, relation: Relation, wanted: Mapping[str, str]) -> dict[str, pa.Scalar]:
    """Convert the wanted texts to the types of their columns. Raises UnsearchableValueError, UnknownColumnError."""
    types = {c.name: c.type for c in relation.columns}
    if unknown := [name for name in wanted if name not in types]:
        raise UnknownColumnError(relation.name, unknown[0], tuple(types))
    time_zone = store_zone(meta)
    return {name: _typed_value(name, types[name], text, time_zone) for name, text in wanted.items() if text}


def _typed_value(column: str, type_: str, text: str, time_zone: str) -> pa.Scalar:
    kind = arrow_type(type_)
    if not _has_text(kind):
        raise UnsearchableValueError(column, type_, text)
    try:
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            local = pa.array([text]).cast(pa.timestamp("us")).cast(pa.int64())
            return convert_micros(local, time_zone, instant_micros).cast(pa.timestamp("us", "UTC"))[0].cast(kind)
        return pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
        raise UnsearchableValueError(column, type_, text) from err


def _has_text(kind: pa.DataType) -> bool:
    types = pa.types
    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind))

"""Files of changes: what a barrier has read of a Postgres database, as Parquet files in the store.

A file has the columns of a record (`records_of` in keyed.py): those of the row, the operation, and the columns whose
values the log omits (bit i of byte i / 8: column i). Its records are in the order of the log.

A name contains a hash of the content. So a repeated read of the same changes writes the same object, and vacuum removes
the objects when a later epoch is committed.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_128_hexdigest

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.keyed import LOG_FIELDS, TRUNCATE, UPSERT, row_fields
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.postgres_errors import LoggedValueError, OmittedValueError
from tussock.jobs.sources.postgres_log import Log, LoggedRecords
from tussock.jobs.sources.postgres_slot import lsn_text, table_text
from tussock.jobs.sources.postgres_values import UnfitTextError, decode_texts
from tussock.statestore.meta.names import source_copy_name
from tussock.statestore.types import arrow_type

_FILE_BYTES = 64 << 20  # of texts, per file of a snapshot


def store_snapshot(
    source: CreateSource,
    batches: Iterable[pa.RecordBatch],
    position: int,
    first: int,
    keeper: Keeper,
    *,
    empties: bool,
) -> tuple[PinnedFile, ...]:
    """Store the rows of a table as upserts.

    Args:
        batches: the rows as texts.
        first: the number of the first file.
        empties: the records first delete all rows.
    """
    fields = row_fields(source)
    pieces, files, nbytes = list[pa.Table](), list[PinnedFile](), 0
    if empties:
        nothing = pa.table([pa.nulls(1, arrow_type(f.type)) for f in fields], [f.name for f in fields])
        pieces.append(_records(fields, nothing.columns, pa.array([TRUNCATE]), pa.nulls(1, pa.binary())))
    for batch in batches:
        columns = [_decode(source, field, text) for field, text in zip(fields, batch.columns, strict=True)]
        count = batch.num_rows
        pieces.append(_records(fields, columns, pa.repeat(pa.scalar(UPSERT), count), pa.nulls(count, pa.binary())))
        nbytes += batch.nbytes
        if nbytes >= _FILE_BYTES:
            files.append(_store(source, pa.concat_tables(pieces), position, first + len(files), keeper))
            pieces, nbytes = [], 0
    if pieces:
        files.append(_store(source, pa.concat_tables(pieces), position, first + len(files), keeper))
    return tuple(files)


def store_changes(
    source: CreateSource, oid: int, log: Log, after: int, until: int, number: int, keeper: Keeper
) -> PinnedFile | None:
    """Store the changes of a table by transactions whose commit ends after the one position, up to the other.

    `oid`: the table's identity, which a rename keeps.

    None: there are none. Raises LoggedValueError, OmittedValueError.
    """
    fields = row_fields(source)
    key = () if source.keyed is None else source.keyed.columns
    parts = log.records_of(oid, [f.name for f in fields], key, after, until)
    if not parts:
        return None
    tables = [_records_of_part(source, fields, part) for part in parts]
    order = np.argsort(np.concatenate([part.places for part in parts]), kind="stable")
    return _store(source, pa.concat_tables(tables).take(pa.array(order)), until, number, keeper)


def _records_of_part(source: CreateSource, fields: Sequence[Field], part: LoggedRecords) -> pa.Table:
    key = () if source.keyed is None else source.keyed.columns
    for place, (field, omitted) in enumerate(zip(fields, part.omitted, strict=True)):
        if (omitted & (part.moved | (place in key))).any():
            raise OmittedValueError(source.name, table_text(source), field.name)
    columns = [_decode(source, field, texts) for field, texts in zip(fields, part.values, strict=True)]
    return _records(fields, columns, part.operations, _as_bits(part.omitted))


def _as_bits(omitted: Sequence[npt.NDArray[np.bool_]]) -> pa.Array:
    """(records,) binary, a bit per column; NULL for a record that omits no value."""
    flags = np.stack(omitted, axis=1) if len(omitted) else np.zeros((0, 0), np.bool_)
    if not flags.any():
        return pa.nulls(len(flags), pa.binary())
    bits = np.packbits(flags, axis=1, bitorder="little")
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(bits.shape[1]), len(bits), [None, pa.py_buffer(np.ascontiguousarray(bits))]
    )
    none = pa.scalar(None, pa.binary())
    return pa.compute.if_else(pa.array(flags.any(axis=1)), fixed.cast(pa.binary()), none)


def _decode(source: CreateSource, field: Field, texts: pa.Array) -> pa.Array:
    try:
        return decode_texts(texts, field.type)
    except UnfitTextError as err:
        raise LoggedValueError(source.name, table_text(source), field.name, field.type, str(err)) from err


def _records(fields: Sequence[Field], columns: Sequence[pa.Array], operations: pa.Array, omitted: pa.Array) -> pa.Table:
    return pa.table([*columns, operations, omitted], [f.name for f in (*fields, *LOG_FIELDS)])


def _store(source: CreateSource, records: pa.Table, position: int, number: int, keeper: Keeper) -> PinnedFile:
    sink = pa.BufferOutputStream()
    pq.write_table(records, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    content = xxh3_128_hexdigest(data)
    path = f"{table_text(source)}/{lsn_text(position).replace('/', '-')}/{number}.parquet"
    name = source_copy_name(keeper.epoch, f"{path}\0{content}", f"{number}.parquet")
    keeper.objects.put(name, data)
    return PinnedFile(path, len(data), content, number, kept=name)

"""Rejects: the unreadable records of a source with `on_error 'quarantine'`.

They are stored in `<source>__rejects`, and the rest of the file is read. During the read, a reject is a row at its
position, so that other rows keep theirs. After the row id follows the column REJECT, a struct: NULL for a good row,
otherwise the row of the table of rejects. The column is absent if all rows are good. `split_rejects` separates rows and
rejects. A file that is damaged as a whole is an error and holds its source.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, make_chunk, with_weight
from tussock.jobs.logical.hidden_columns import INGESTED_AT, METADATA, OF_FILES, HiddenColumn, metadata_type
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import ReadPart
from tussock.jobs.sources.file_facts import fact_of_file, metadata_of
from tussock.jobs.sources.pins import PinnedFile
from tussock.statestore.types import arrow_type

ON_ERROR = "on_error"
FAIL, QUARANTINE = "fail", "quarantine"
RAW_CHARACTERS = 65_536  # stored per record, at most
REJECT = "_reject"
FIELDS = (
    Field("file", "string"),
    Field("position", "bigint"),  # of the record in its file, from 1, without the header
    Field("reason", "string"),
    Field("raw", "string"),  # the record's text, with bytes that are not UTF-8 as \xNN; NULL if the format has no text
    # The hidden columns of the record.
    Field(METADATA, metadata_type(OF_FILES)),
    Field(INGESTED_AT, HiddenColumn.INGESTED_AT.type),
)
KEY = (0, 1)  # a file is read once
TYPES = tuple(f.type for f in FIELDS)
_STRUCT = pa.struct([pa.field(f.name, arrow_type(f.type)) for f in FIELDS])


def quarantines_rejects(source: CreateSource) -> bool:
    """Return whether a source quarantines its unreadable records."""
    return source.options.get(ON_ERROR) == QUARANTINE


def rejects_name(source: str) -> str:
    """Return the name of the table of a source's rejects."""
    return f"{source.lower()}__rejects"


def mark_rejects(
    rows: pa.Table, file: PinnedFile, first: int, reasons: pa.Array | None, raw: pa.Array | None = None
) -> pa.Table:
    """Append REJECT to the rows of a file if some are rejects.

    Args:
        rows: any columns; the values of rejects are ignored.
        first: position of the first row in the file, from 0.
        reasons: (rows,) string, why a record is unreadable; NULL for a readable record. None: all are readable.
        raw: (rows,) string.
    """
    if reasons is None or reasons.null_count == len(reasons):
        return rows
    count = rows.num_rows
    positions = pa.array(np.arange(first + 1, first + 1 + count, dtype=np.int64))
    shortened_raw = pa.nulls(count, pa.string()) if raw is None else pc.utf8_slice_codeunits(raw, 0, RAW_CHARACTERS)
    path, metadata, ingested = (
        pa.repeat(pa.scalar(value, kind), count)
        for value, kind in (
            (file.name_in_rows, pa.string()),
            (metadata_of(file), arrow_type(metadata_type(OF_FILES))),
            (fact_of_file(file, HiddenColumn.INGESTED_AT), arrow_type(HiddenColumn.INGESTED_AT.type)),
        )
    )
    columns = [path, positions, reasons, shortened_raw, metadata, ingested]
    rejects = pa.StructArray.from_arrays(columns, fields=list(_STRUCT), mask=reasons.is_null())
    return rows.append_column(REJECT, rejects)


def chunk_of(rows: pa.Table, weight: int) -> pa.Table:
    """Turn the rows of `mark_rejects` into a chunk with this weight per row. REJECT keeps its name."""
    chunk = with_weight(rows, weight)
    return (
        chunk if REJECT not in rows.column_names else chunk.rename_columns([*chunk.column_names[:-2], REJECT, WEIGHT])
    )


def split_rejects(chunk: pa.Table, undeclared: tuple[str, ...] = ()) -> ReadPart:
    """Separate the rejects from a chunk of `chunk_of`."""
    if REJECT not in chunk.column_names:
        return ReadPart(chunk, undeclared=undeclared)
    bad = chunk[REJECT].is_valid()
    rows, rejects = chunk.filter(pc.invert(bad)).drop_columns([REJECT]), chunk.filter(bad)
    fields = [pc.struct_field(rejects[REJECT], [i]) for i in range(len(FIELDS))]
    return ReadPart(rows, make_chunk(fields, rejects[WEIGHT]), undeclared)


def not_text(column: str) -> str:
    """Return the stored reason for a string that is not UTF-8. Do not change the text; see narrowing.py."""
    return f"column {column!r}: its bytes are not UTF-8, and a string has to be"


def first_reasons(*reasons: pa.Array | None) -> pa.Array | None:
    """Return the first reason per row; None if no row has one."""
    there = [r for r in reasons if r is not None]
    return pc.coalesce(*there) if there else None


def reason_where(bad: npt.NDArray[np.bool_], reason: str) -> pa.Array:
    """Return (rows,) the reason for rows that are `bad`, else NULL."""
    return pc.if_else(pa.array(bad), pa.scalar(reason, pa.string()), pa.scalar(None, pa.string()))

"""Records that cannot be read, of a source that says `on_error 'quarantine'`: they go to `<source>__rejects`, and the rest of the file is
taken in.

In what a reader reads, such a record is a row in its place, so that the others keep their positions. Behind the row's id stands REJECT, a
struct: NULL of a row that is one, else what the table of rejects keeps of the record. Where all is well there is no such column. The
source's leaf parts the two (`parted`). A file that is damaged as a whole is an error as ever, and holds its source.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.flow.chunk import WEIGHT, make_chunk
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.statestore.types import arrow_type

ON_ERROR = "on_error"
FAIL, QUARANTINE = "fail", "quarantine"
RAW_CHARACTERS = 65_536  # of a record, at most, that are kept
REJECT = "_reject"
FIELDS = (
    Field("file", "string"),
    Field("position", "bigint"),  # of the record in its file, from 1, a header not counted
    Field("reason", "string"),
    Field("raw", "string"),  # the record as it is in the file, bytes that are not UTF-8 as \xNN; NULL where a format has no such thing
)
KEY = (0, 1)  # a file is taken once
TYPES = tuple(f.type for f in FIELDS)
_STRUCT = pa.struct([pa.field(f.name, arrow_type(f.type)) for f in FIELDS])


def quarantines(source: CreateSource) -> bool:
    """Whether records of a source that cannot be read are kept apart."""
    return source.options.get(ON_ERROR) == QUARANTINE


def rejects_name(source: str) -> str:
    """The name of the table of a source's rejects."""
    return f"{source.lower()}__rejects"


def marked(rows: pa.Table, path: str, first: int, reasons: pa.Array | None, raw: pa.Array | None = None) -> pa.Table:
    """Rows of a file, with REJECT behind them where there are any.

    Args:
        rows: whatever columns; those of a reject are not looked at.
        first: position of the first row in the file, from 0.
        reasons: (rows,) string, why the record cannot be read; NULL of one that can, None where all can.
        raw: (rows,) string.
    """
    if reasons is None or reasons.null_count == len(reasons):
        return rows
    count = rows.num_rows
    positions = pa.array(np.arange(first + 1, first + 1 + count, dtype=np.int64))
    kept = pa.nulls(count, pa.string()) if raw is None else pc.utf8_slice_codeunits(raw, 0, RAW_CHARACTERS)
    columns = [pa.repeat(pa.scalar(path, pa.string()), count), positions, reasons, kept]
    rejects = pa.StructArray.from_arrays(columns, fields=list(_STRUCT), mask=reasons.is_null())
    return rows.append_column(REJECT, rejects)


def parted(chunk: pa.Table, width: int) -> tuple[pa.Table, pa.Table | None]:
    """A reader's chunk as (its rows, its rejects); both chunks, the latter of FIELDS, None where there are none.

    Args:
        width: columns that the chunk has before REJECT and the weights.
    """
    if chunk.num_columns == width + 1:
        return chunk, None
    bad = chunk.column(width).is_valid()
    rows, rejects = chunk.filter(pc.invert(bad)).remove_column(width), chunk.filter(bad)
    fields = [pc.struct_field(rejects.column(width), [i]) for i in range(len(FIELDS))]
    return rows, make_chunk(fields, rejects[WEIGHT])


def not_text(column: str) -> str:
    """The reason where a string of a column is not UTF-8."""
    return f"column {column!r}: its bytes are not UTF-8, and a string has to be"


def first_reasons(*reasons: pa.Array | None) -> pa.Array | None:
    """By row the first of several reasons; None where there are none."""
    there = [r for r in reasons if r is not None]
    return pc.coalesce(*there) if there else None


def reason_where(bad: npt.NDArray[np.bool_], reason: str) -> pa.Array:
    """(rows,) the reason where `bad`, else NULL."""
    return pc.if_else(pa.array(bad), pa.scalar(reason, pa.string()), pa.scalar(None, pa.string()))

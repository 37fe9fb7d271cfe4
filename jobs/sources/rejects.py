"""Records that cannot be read, of a source that says `on_error 'quarantine'`: they go to `<source>__rejects`, and the rest of the file is
taken in.

While a file is read, such a record is a row in its place, so that the others keep their positions. Behind the row's id stands the column
REJECT, a struct: NULL of a good row, else the row of the table of rejects. If all rows are good, there is no such column. `parted` takes
the two apart. A file that is damaged as a whole is an error, and holds its source.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.flow.chunk import WEIGHT, make_chunk, weighted
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import ReadPart
from tussock.statestore.types import arrow_type

ON_ERROR = "on_error"
FAIL, QUARANTINE = "fail", "quarantine"
RAW_CHARACTERS = 65_536  # of a record, at most, that are kept
REJECT = "_reject"
FIELDS = (
    Field("file", "string"),
    Field("position", "bigint"),  # of the record in its file, from 1, a header not counted
    Field("reason", "string"),
    Field(
        "raw", "string"
    ),  # the record as it is in the file, bytes that are not UTF-8 as \xNN; NULL where a format has no such thing
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


def chunk_of(rows: pa.Table, weight: int) -> pa.Table:
    """Rows as `marked` gives them as a chunk, each with this weight. REJECT keeps its name."""
    chunk = weighted(rows, weight)
    return (
        chunk if REJECT not in rows.column_names else chunk.rename_columns([*chunk.column_names[:-2], REJECT, WEIGHT])
    )


def parted(chunk: pa.Table, undeclared: tuple[str, ...] = ()) -> ReadPart:
    """A chunk of `chunk_of`, with its rejects apart."""
    if REJECT not in chunk.column_names:
        return ReadPart(chunk, undeclared=undeclared)
    bad = chunk[REJECT].is_valid()
    rows, rejects = chunk.filter(pc.invert(bad)).drop_columns([REJECT]), chunk.filter(bad)
    fields = [pc.struct_field(rejects[REJECT], [i]) for i in range(len(FIELDS))]
    return ReadPart(rows, make_chunk(fields, rejects[WEIGHT]), undeclared)


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

"""Wider types: the types that a source's column may get later, and the conversion of earlier files' values.

Only types to which each value converts without a loss, and as Spark's cast converts it. A text is no wider type of a
number, because the file may have contained another text of it: `007` is read as 7.
"""

from collections.abc import Sequence

import pyarrow as pa

from tussock.jobs.sources.pairing import reads_as
from tussock.statestore.nested import relabel_column
from tussock.statestore.types import arrow_type

WIDER_TYPES = (
    "A type can become a wider integer, a double (from tinyint, smallint, int or float), a decimal with room for all "
    "digits, or timestamp_ntz (from date)"
)


def is_wider(was: str, now: str) -> bool:
    """Return whether a type can become another one."""
    former_type, kinds = arrow_type(was), pa.types
    is_one = (kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_date)
    return was != now and any(of(former_type) for of in is_one) and reads_as(former_type, arrow_type(now))


def widen_columns(rows: pa.Table, types: Sequence[str]) -> pa.Table:
    """Convert the first columns of a chunk to these types. Columns that have them are not copied.

    Requires: each column has its type, or `is_wider` of its type.
    """
    for i, kind in enumerate(map(arrow_type, types)):
        if (column := rows.column(i)).type != kind:
            rows = rows.set_column(i, rows.schema.field(i).with_type(kind), relabel_column(column, kind))
    return rows

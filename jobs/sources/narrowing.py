"""Convert numbers to a narrower type, value by value.

Used if the source quarantines; otherwise such a file is rejected.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.types import type_name


def may_narrow(file_type: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether each value of `file_type` may or may not fit `declared`, independently: integers and decimals."""
    kinds = pa.types
    if kinds.is_integer(file_type):
        return bool(kinds.is_signed_integer(declared) or kinds.is_decimal(declared))
    return bool(kinds.is_decimal(file_type) and kinds.is_decimal(declared))


def narrow_column(column: pa.ChunkedArray, declared: pa.DataType) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """Return the column in the declared type, NULL for values that do not fit, and (rows,) True for those.

    Requires: narrows.
    """
    if pa.types.is_decimal(declared):
        wide = column if pa.types.is_decimal(column.type) else column.cast(pa.decimal128(20, 0))
        fits = _within_digits(wide, declared)
    else:
        wide, fits = column, _within_bounds(column, declared)
    bad = ~pc.fill_null(fits, True).to_numpy()
    in_range = pc.if_else(pa.array(~bad), wide, pa.scalar(None, wide.type))
    return in_range.cast(declared), bad


def not_fitting(name: str, column: pa.ChunkedArray, declared: str, bad: npt.NDArray[np.bool_]) -> pa.Array:
    """Return (rows,) the reason for each value that does not fit, else NULL.

    The text is stored with the reject, and a restate computes it again to take the reject back: do not change it.
    """
    values = pc.if_else(pa.array(bad), column, pa.scalar(None, column.type)).cast(pa.string())
    text = f"column {name!r}: ", values, f" is no {declared} (the file's type is {_type_text(column.type)})", ""
    return pa.chunked_array(pc.binary_join_element_wise(*text)).combine_chunks()


def _type_text(kind: pa.DataType) -> str:
    return str(kind) if pa.types.is_unsigned_integer(kind) else type_name(kind)


def _within_bounds(column: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    bounds = np.iinfo(declared.to_pandas_dtype())
    if pa.types.is_unsigned_integer(column.type):
        return pc.less_equal(column.cast(pa.uint64()), pa.scalar(bounds.max, pa.uint64()))
    wide = column.cast(pa.int64())
    return pc.and_(
        pc.greater_equal(wide, pa.scalar(int(bounds.min), pa.int64())),
        pc.less_equal(wide, pa.scalar(int(bounds.max), pa.int64())),
    )


def _within_digits(column: pa.ChunkedArray, declared: pa.Decimal128Type) -> pa.ChunkedArray:
    """Return whether each decimal has no more digits before and after the point than the declared type."""
    file_type, scale = column.type, min(column.type.scale, declared.scale)
    shorter = column.cast(pa.decimal128(max(1, file_type.precision - (file_type.scale - scale)), scale), safe=False)
    fits = pc.equal(shorter.cast(file_type), column)
    whole = declared.precision - declared.scale
    if file_type.precision - file_type.scale > whole:
        limit = pa.scalar(10**whole, pa.decimal128(whole + 1, 0))
        fits = pc.and_(fits, pc.less(pc.abs(column), limit))
    return fits

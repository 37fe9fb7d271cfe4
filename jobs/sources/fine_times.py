"""Times in nanoseconds. Spark's types store microseconds, and Spark does not read nanosecond columns as times.

Many writers, such as pandas, always store nanoseconds, so a column is accepted if every value is a whole number of
microseconds. A value that would lose digits is an error that names its place.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_FINE = pa.timestamp("ns").unit
_PER_MICROSECOND = 1000


def holds_nanoseconds(kind: pa.DataType) -> bool:
    """Return whether values of the type are or contain times in nanoseconds."""
    if pa.types.is_nested(kind):
        return any(holds_nanoseconds(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.unit == _FINE)


def too_fine(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.bool_]:
    """Return (rows,) True if a time of the row, at any depth, has digits below the microsecond.

    Cost: one pass over the times; a binary search if a nested column contains such a time.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return np.concatenate([np.zeros(0, np.bool_), *(_in_chunk(chunk) for chunk in chunks)])


def _in_chunk(chunk: pa.Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_timestamp(chunk.type):
        numbers = pc.fill_null(chunk.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return np.asarray(numbers % _PER_MICROSECOND != 0)
    if len(chunk) < 2 or not _has_fine_times(chunk):
        return np.full(len(chunk), len(chunk) > 0 and _has_fine_times(chunk))
    half = len(chunk) // 2
    return np.concatenate([_in_chunk(chunk.slice(0, half)), _in_chunk(chunk.slice(half))])


def _has_fine_times(array: pa.Array) -> bool:
    if not holds_nanoseconds(array.type):
        return False
    if pa.types.is_timestamp(array.type):
        return bool(_in_chunk(array).any())
    if pa.types.is_struct(array.type):
        return any(map(_has_fine_times, array.flatten()))
    return _has_fine_times(array.flatten())  # lists, and the entries of maps

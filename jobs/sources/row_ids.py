"""Row ids of sources whose rows have positions: `_row_id`, a bigint after the declared columns.

bits 40 …   number of the file, or of the partition, within its source
bits 0-39   position of the record in it, from 0
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROW_ID_NAME = "_row_id"
POSITION_BITS = 40
_Ids = TypeVar("_Ids", int, npt.NDArray[np.int64])


def pack_row_ids(number: int, positions: npt.NDArray[np.int64]) -> pa.Array:
    """Return the row ids of records of one file."""
    return pa.array(positions | np.int64(number << POSITION_BITS), pa.int64())


def file_of(row_ids: _Ids) -> _Ids:
    """Return the number of the file or partition."""
    return row_ids >> POSITION_BITS


def position_of(row_ids: _Ids) -> _Ids:
    """Return the position in the file or partition."""
    return row_ids & ((1 << POSITION_BITS) - 1)

"""Read INT96 times of far years as Spark does.

An INT96 contains a Julian day (32 bits) and the nanoseconds of that day. Spark counts days below zero for times before
4713 BC, and for the last 6,682 years that a timestamp can hold, whose day overflows. Arrow treats both parts as
unsigned, and returns another year for such a time. Seconds do not overflow: read in seconds, the day of such a time is
beyond 2**31, which no other time reaches, so it can be moved back.

A column is read in seconds only if a time is far from today. Times of about 66,000 BC are returned as times near today,
and stay wrong. Arrow reads the Julian day 0, in 4713 BC, as 1970-01-01.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DAY_S = 86_400
_EPOCH_DAY = 2_440_588  # the Julian day of 1970-01-01
_FAR = 10_000_000_000_000_000  # microseconds from 1970: year 2286
_DAYS = np.uint64((_DAY_S << 32) * 1_000_000 % (1 << 64))  # the error of an unsigned day, in microseconds
_NANOS = np.uint64((1 << 64) // 1000)  # the error of an unsigned count of nanoseconds


def far_years_as_spark(column: pa.ChunkedArray, in_seconds: Callable[[], pa.ChunkedArray]) -> pa.ChunkedArray:
    """Correct an INT96 column to the times that Spark reads.

    Args:
        column: timestamps in microseconds, as Arrow reads them.
        in_seconds: returns the same column read in seconds; called if a time is far from 1970.

    Cost: two passes over the column; a second read of it if a time is far from 1970.
    """
    numbers = column.cast(pa.int64())
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or max(-bounds["min"], bounds["max"]) <= _FAR:
        return column
    seconds = pc.fill_null(in_seconds().cast(pa.int64()), 0).to_numpy()
    below = seconds >= ((1 << 31) - _EPOCH_DAY) * _DAY_S
    read = pc.fill_null(numbers, 0).to_numpy().view(np.uint64)
    whole_days = read - _DAYS
    of_day = (
        whole_days.view(np.int64) % (_DAY_S * 1_000_000)
    ) == 0  # whole days; other times also have nanoseconds below zero
    moved = np.where(below, np.where(of_day, whole_days, whole_days - _NANOS), read).view(np.int64)
    mask = pc.is_null(column).to_numpy()
    return pa.chunked_array([pa.array(moved, pa.int64(), mask=mask).cast(column.type)])

"""What a frame of Spark's holds, in this process."""

import pyarrow as pa
from pyspark.sql import DataFrame


def collected(frame: DataFrame) -> pa.Table:
    """All rows, as `toArrow()` gives them. That casts them to types that they have already, and the cast fails on a variant that is NULL
    (Spark 4.2 with Arrow 26). Requires: the session's time zone is UTC, else instants are named after it."""
    return pa.Table.from_batches(frame._collect_as_arrow(empty_list_if_zero_records=False))  # type: ignore[operator]

"""What a frame of Spark's holds, in this process."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from statestore.nested import conformed


def collected(frame: DataFrame) -> pa.Table:
    """All rows, as `toArrow()` gives them: that casts them to the same schema, and the cast fails on a variant that is NULL (Spark 4.2 with
    Arrow 26)."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    return conformed(pa.Table.from_batches(frame._collect_as_arrow(empty_list_if_zero_records=False)), schema)  # type: ignore[operator]

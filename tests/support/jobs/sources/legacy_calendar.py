"""Rows and helpers of test_legacy_calendar.py, which is in several lanes."""

import pyarrow as pa

from tussock.jobs.logical.nodes import Field

FIELDS = (Field("d", "date"), Field("ts", "timestamp"), Field("n", "timestamp_ntz"))

#: Columns with values of 1900 or earlier, and the keys of a file of Spark 2.
OLD = {
    "d": pa.array([-200_000], pa.date32()),
    "t": pa.array([-3_000_000_000_000_000], pa.timestamp("us", "UTC")),
}
SPARK_2 = {b"org.apache.spark.version": b"2.4.8"}

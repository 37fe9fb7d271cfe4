"""Collect the rows of a Spark DataFrame, and turn Arrow rows into one."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tussock.jobs.logical.months import as_carried, carried_name, columns_of_carried
from tussock.jobs.logical.quoting import quoted
from tussock.jobs.spark.release import arrow_schema_of
from tussock.jobs.spark.type_names import name_of_type
from tussock.statestore.months import carried_rows
from tussock.statestore.nested import conformed
from tussock.statestore.types import arrow_type, type_name


def collected(frame: DataFrame) -> pa.Table:
    """Collect all rows, with the types of `toArrow()`. Intervals of months keep the stored type.

    `toArrow()` itself casts to its schema, and that cast fails on a NULL variant (Spark 4.2 with Arrow 26) and on
    intervals of months.
    """
    kept: list[pa.DataType | None] = [None] * len(frame.columns)
    carried = frame
    if (whole := frame.schema.simpleString()) != carried_name(whole):
        kinds = [name_of_type(field.dataType()) for field in frame._jdf.schema().fields()]
        carried = frame.toDF(*(f"c{i}" for i in range(len(kinds))))
        carried = carried.selectExpr(*(f"{as_carried(f'`c{i}`', kind)} AS `c{i}`" for i, kind in enumerate(kinds)))
        kept = [None if carried_name(kind) == kind else arrow_type(kind) for kind in kinds]
    found = arrow_schema_of(carried.schema)
    fields = [field if kind is None else field.with_type(kind) for field, kind in zip(found, kept, strict=True)]
    schema = pa.schema([field.with_name(name) for field, name in zip(fields, frame.columns, strict=True)])
    return conformed(
        pa.Table.from_batches(carried._collect_as_arrow(empty_list_if_zero_records=False)),  # type: ignore[operator]
        schema,
    )


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of stored types as a DataFrame."""
    carried = carried_rows(rows)
    frame = spark.createDataFrame(carried, ", ".join(f"{quoted(f.name)} {type_name(f.type)}" for f in carried.schema))
    texts = columns_of_carried([(field.name, type_name(field.type)) for field in rows.schema])
    return frame if texts is None else frame.selectExpr(*texts)

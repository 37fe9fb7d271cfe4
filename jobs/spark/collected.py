"""Collect the rows of a Spark DataFrame, and turn Arrow rows into one."""

from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.types import StructType, _parse_datatype_string

from tussock.jobs.logical.months import as_carried, carried_name, columns_of_carried
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.spark.release import arrow_schema_of
from tussock.jobs.spark.type_names import name_of_type
from tussock.statestore.months import carried_rows
from tussock.statestore.nested import conform_rows, copy_sliced
from tussock.statestore.types import arrow_type, type_name


def collect_rows(frame: DataFrame) -> pa.Table:
    """Collect all rows, with the types of `toArrow()`. Intervals of months keep the stored type.

    `toArrow()` itself casts to its schema, and that cast fails on a NULL variant (Spark 4.2 with Arrow 26) and on
    intervals of months.
    """
    declared_types: list[pa.DataType | None] = [None] * len(frame.columns)
    carried = frame
    if (whole := frame.schema.simpleString()) != carried_name(whole):
        kinds = [name_of_type(field.dataType()) for field in frame._jdf.schema().fields()]
        carried = frame.toDF(*(f"c{i}" for i in range(len(kinds))))
        carried = carried.selectExpr(*(f"{as_carried(f'`c{i}`', kind)} AS `c{i}`" for i, kind in enumerate(kinds)))
        declared_types = [None if carried_name(kind) == kind else arrow_type(kind) for kind in kinds]
    arrow_schema = arrow_schema_of(carried.schema)
    fields = [
        field if kind is None else field.with_type(kind)
        for field, kind in zip(arrow_schema, declared_types, strict=True)
    ]
    schema = pa.schema([field.with_name(name) for field, name in zip(fields, frame.columns, strict=True)])
    return conform_rows(
        pa.Table.from_batches(carried._collect_as_arrow(empty_list_if_zero_records=False)),  # type: ignore[operator]
        schema,
    )


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of stored types as a DataFrame."""
    kinds = [(field.name, type_name(field.type)) for field in rows.schema]
    frame = frame_of_carried(
        spark, carried_rows(rows), ", ".join(f"{quote_name(n)} {carried_name(k)}" for n, k in kinds)
    )
    texts = columns_of_carried(kinds)
    return frame if texts is None else frame.selectExpr(*texts)


def frame_of_carried(spark: SparkSession, rows: pa.Table, schema: str) -> DataFrame:
    """Rows as a DataFrame of one partition, which reads them from the driver, without a Python worker.

    Args:
        rows: columns in the order of `schema`; intervals of months in their carried form.
        schema: Spark's types, as a list of columns.

    Unlike `createDataFrame`, it imports no pandas, and it converts a NULL variant. Each job that reads the frame sends
    the rows to one task, so they should be few.
    """
    struct = cast("StructType", _parse_datatype_string(schema))
    whole = copy_sliced(conform_rows(rows, arrow_schema_of(struct))).combine_chunks()
    batches = whole.to_batches() or [pa.RecordBatch.from_pylist([], whole.schema)]
    jvm = spark._jvm
    assert jvm is not None, "a classic Spark session always has its JVM"
    utils = jvm.PythonSQLUtils
    sent = spark.sparkContext._serialize_to_jvm(
        batches, ArrowStreamSerializer(), utils.readArrowStreamFromFile, jvm.ArrowIteratorServer
    )
    return DataFrame(utils.toDataFrame(sent, struct.json(), spark._jsparkSession), spark)

"""Spark's answers: values of expressions row by row, and the rows on which they raise."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tussock.jobs.spark.collected import collected, frame_of
from tussock.statestore.types import array_name, map_name, struct_name


@dataclass(frozen=True, slots=True)
class Truth:
    """Per expression: Spark's type, the value on every row (NULL if it raises) and the rows on which it raises."""

    types: list[str]
    values: pa.Table
    raising: list[frozenset[int]]


def spark_answers(spark: SparkSession, rows: pa.Table, texts: Sequence[str]) -> Truth:
    """Evaluate SQL texts over rows with Spark.

    A first query finds the rows that raise, with errors turned into marks. A second one computes the values; a CASE
    keeps each expression from the rows on which it raises.
    """
    numbered = rows.append_column("row", pa.array(range(rows.num_rows), pa.int32()))
    frame = frame_of(spark, numbered).coalesce(1)
    texts = [*texts]
    projected = frame.selectExpr(*(f"{text} AS r{i}" for i, text in enumerate(texts)))
    types = [name_of(field.dataType) for field in projected.schema.fields]
    raising = _raising_rows(frame, texts)
    guarded = [
        f"CASE WHEN row NOT IN ({', '.join(map(str, sorted(bad)))}) THEN {text} END AS r{i}"
        if bad
        else f"{text} AS r{i}"
        for i, (text, bad) in enumerate(zip(texts, raising, strict=True))
    ]
    return Truth(types, collected(frame.selectExpr("row", *guarded)).sort_by("row").drop_columns("row"), raising)


def name_of(kind: DataType) -> str:
    """The name of a PySpark type."""
    if isinstance(kind, ArrayType):
        return array_name(name_of(kind.elementType))
    if isinstance(kind, MapType):
        return map_name(name_of(kind.keyType), name_of(kind.valueType))
    if isinstance(kind, StructType):
        return struct_name([(field.name, name_of(field.dataType)) for field in kind.fields])
    return kind.simpleString()


def _raising_rows(frame: DataFrame, texts: Sequence[str]) -> list[frozenset[int]]:
    """Rows on which each expression raises: its hash, which is never NULL, becomes NULL when errors become NULL."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    expressions, optimizer = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.catalyst.optimizer
    to_column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    analyzed = (
        frame.select("*", *(expr(f"{text} AS r{i}") for i, text in enumerate(texts)))._jdf.queryExecution().analyzed()
    )
    projected = optimizer.RewriteWithExpression.apply(optimizer.ReplaceExpressions.apply(analyzed)).expressions()
    columns = [frame._jdf.col("row")]
    for i in range(len(texts)):
        plain = projected.apply(projected.size() - len(texts) + i).child()
        digest = expressions.Murmur3Hash(jvm.PythonUtils.toSeq([plain]), 42)
        columns.append(to_column(expressions.IsNull(expressions.TryEval(digest))).alias(f"r{i}"))
    answers = DataFrame(frame._jdf.select(jvm.PythonUtils.toSeq(columns)), frame.sparkSession).toArrow()
    return [frozenset(answers.filter(answers[f"r{i}"])["row"].to_pylist()) for i in range(len(texts))]

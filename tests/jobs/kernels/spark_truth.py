"""What Spark answers: values of expressions row by row, and the rows on which they raise."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from statestore.types import type_name


@dataclass(frozen=True, slots=True)
class Truth:
    """Per expression: Spark's type, the value on every row (NULL where it raises) and the rows on which it raises."""

    types: list[str]
    values: pa.Table
    raising: list[frozenset[int]]


def spark_answers(spark: SparkSession, rows: pa.Table, texts: Sequence[str]) -> Truth:
    """Evaluate SQL texts over rows with Spark.

    Which rows raise is asked first, with errors turned into marks; the values then come from an ordinary query, in which a raising
    expression is kept from its raising rows by a CASE.
    """
    numbered = rows.append_column("row", pa.array(range(rows.num_rows), pa.int32()))
    schema = ", ".join(f"{field.name} {type_name(field.type)}" for field in numbered.schema)
    frame = spark.createDataFrame(numbered, schema).coalesce(1)
    texts = [*texts]
    projected = frame.selectExpr(*(f"{text} AS r{i}" for i, text in enumerate(texts)))
    types = [field.dataType.simpleString() for field in projected.schema.fields]
    raising = _raising_rows(frame, texts)
    guarded = [
        f"CASE WHEN row NOT IN ({', '.join(map(str, sorted(bad)))}) THEN {text} END AS r{i}" if bad else f"{text} AS r{i}"
        for i, (text, bad) in enumerate(zip(texts, raising, strict=True))
    ]
    return Truth(types, frame.selectExpr("row", *guarded).toArrow().sort_by("row").drop_columns("row"), raising)


def _raising_rows(frame: DataFrame, texts: Sequence[str]) -> list[frozenset[int]]:
    """Rows on which each expression raises: where its hash, which is never NULL, is NULL when errors are turned into NULL."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    expressions, optimizer = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.catalyst.optimizer
    to_column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    analyzed = frame.select("*", *(expr(f"{text} AS r{i}") for i, text in enumerate(texts)))._jdf.queryExecution().analyzed()
    projected = optimizer.RewriteWithExpression.apply(optimizer.ReplaceExpressions.apply(analyzed)).expressions()
    columns = [frame._jdf.col("row")]
    for i in range(len(texts)):
        plain = projected.apply(projected.size() - len(texts) + i).child()
        digest = expressions.Murmur3Hash(jvm.PythonUtils.toSeq([plain]), 42)
        columns.append(to_column(expressions.IsNull(expressions.TryEval(digest))).alias(f"r{i}"))
    answers = DataFrame(frame._jdf.select(jvm.PythonUtils.toSeq(columns)), frame.sparkSession).toArrow()
    return [frozenset(answers.filter(answers[f"r{i}"])["row"].to_pylist()) for i in range(len(texts))]

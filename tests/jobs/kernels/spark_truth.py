"""What Spark answers: values of expressions row by row, and the rows on which they raise."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from statestore.types import type_name


@dataclass(frozen=True, slots=True)
class Truth:
    """Per expression: Spark's type, the value on every row (NULL where it raises) and the rows on which it raises."""

    types: list[str]
    values: pa.Table
    raising: list[frozenset[int]]


def spark_answers(spark: SparkSession, rows: pa.Table, texts: Sequence[str]) -> Truth:
    """Evaluate SQL texts over rows with Spark.

    Which rows raise is asked of Spark's interpreter, one row at a time; the values then come from one ordinary job, in which a
    raising expression is kept from its raising rows by a CASE.
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
    execution = frame.selectExpr("*", *(f"{text} AS r{i}" for i, text in enumerate(texts)))._jdf.queryExecution()
    inputs = frame._jdf.queryExecution()
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    optimizer = jvm.org.apache.spark.sql.catalyst.optimizer
    replaced = optimizer.RewriteWithExpression.apply(optimizer.ReplaceExpressions.apply(execution.analyzed()))
    bound = expressions.BindReferences
    output = expressions.package.AttributeSeq(inputs.analyzed().output())
    projections = replaced.expressions()
    plain = [projections.apply(projections.size() - len(texts) + i).child() for i in range(len(texts))]
    evaluable = [bound.bindReference(e, output, False) for e in plain]
    rows = inputs.executedPlan().executeCollect()
    return [frozenset(i for i in range(len(rows)) if _raises(e, rows[i])) for e in evaluable]


# PySpark writes every error it translates to this logger, of which thousands are meant here.
logging.getLogger("SQLQueryContextLogger").disabled = True


def _raises(expression: JavaObject, row: JavaObject) -> bool:
    try:
        expression.eval(row)
    except (Py4JJavaError, PySparkException):
        return True
    return False

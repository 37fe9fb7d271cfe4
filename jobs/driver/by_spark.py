"""Expressions that Spark computes between two levels (jobs/wire/typed_rows.py), and the reasons of rows that raise."""

import base64
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from tussock.jobs.chunks.chunk import WEIGHT
from tussock.jobs.chunks.failure import encode_failure, first_failure
from tussock.jobs.logical.months import as_carried, of_carried
from tussock.jobs.logical.nodes import Call, Column
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.spark.collected import frame_of
from tussock.jobs.spark.sql_errors import from_spark, java_failure
from tussock.jobs.sql.spark_text import JSON_TUPLE, fill_columns, filled_text
from tussock.jobs.wire.cell import CELL_SCHEMA, Mail
from tussock.jobs.wire.failed_row import RaisedInSpark
from tussock.jobs.wire.typed_rows import RAISED, ROW, UNIT, VALUE, SparkStep
from tussock.statestore.types import INTERVALS, TIMES, arrow_type


def compute_columns(frame: DataFrame, steps: Sequence[SparkStep]) -> DataFrame:
    """Return a level's output with the expressions of each step computed; cells pass unchanged.

    An expression that raises gives NULL instead of the struct with its value, and the row itself is added: no task
    fails.
    """
    if not steps:
        return frame
    spark = frame.sparkSession
    cells = [F.col(name) for name in CELL_SCHEMA.names]
    for step in steps:
        for number, call in enumerate(step.calls):
            if _is_generator(call):  # Spark accepts one generator per SELECT
                frame = frame.select("*", F.expr(_call_text(step, call)).alias(*_generator_columns(step, number)))
    tried = [_try_column(spark, step, n).alias(f"{step.column}_{n}") for step in steps for n in range(len(step.calls))]
    frame = frame.select(*cells, *(F.col(step.column) for step in steps), *tried)
    return frame.select(*cells, *(_arriving_column(step).alias(step.column) for step in steps))


def _try_column(spark: SparkSession, step: SparkStep, number: int) -> SparkColumn:
    call = step.calls[number]
    if _is_generator(call):
        fields = [F.col(name).alias(f"c{i}") for i, name in enumerate(_generator_columns(step, number))]
        return F.when(F.col(step.column).isNotNull(), F.struct(F.struct(*fields).alias(VALUE)))
    text, java = as_carried(_call_text(step, call), call.type), cast(Any, spark._jvm)
    parsed = spark._jsparkSession.sessionState().sqlParser().parseExpression(f"named_struct('{VALUE}', {text})")
    tried = getattr(java, "org.apache.spark.sql.catalyst.expressions.TryEval")(parsed)
    column = getattr(java, "org.apache.spark.sql.classic.ExpressionUtils").column(tried)
    return F.when(F.col(step.column).isNotNull(), ClassicColumn(column))


def _bound_column(text: str, kind: str) -> str:
    """Cast a column to its bound type: Arrow types lack the units of intervals and the digits of times."""
    return f"CAST({text} AS {kind})" if kind in INTERVALS or kind in TIMES else of_carried(text, kind)


def _call_text(step: SparkStep, call: Call) -> str:
    return fill_columns(
        call,
        [_bound_column(f"{quote_name(step.column)}.c{a.index}", a.type) for a in call.args if isinstance(a, Column)],
    )


def _is_generator(call: Call) -> bool:
    return call.params[0][1].startswith(JSON_TUPLE)


def _generator_columns(step: SparkStep, number: int) -> list[str]:
    """Return the names of a generator's columns, one per field of its struct."""
    kind = arrow_type(step.calls[number].type)
    return [f"{step.column}_{number}_{i}" for i in range(kind.num_fields)]


def _arriving_column(step: SparkStep) -> SparkColumn:
    row = F.col(step.column)
    columns: list[SparkColumn] = []
    calls = 0
    for place, expr in enumerate(step.exchange.needed.project):
        if isinstance(expr, Column):
            value = row[f"c{expr.index}"]
        else:
            value, calls = F.col(f"{step.column}_{calls}")[VALUE], calls + 1
        columns.append(value.alias(f"c{place}"))
    raised = F.lit(False)
    for number in range(calls):
        raised = raised | F.col(f"{step.column}_{number}").isNull()
    own = [row[name].alias(name) for name in (UNIT, ROW, WEIGHT)]
    return F.when(row.isNotNull(), F.struct(*own, *columns, F.when(raised, row).alias(RAISED)))


def with_reasons(spark: SparkSession, answers: pa.Table) -> pa.Table:
    """Return the cells for the driver, with a reason for each row on which Spark raised."""
    fragments = answers["fragment"].to_pylist()
    if Mail.FAILURE not in fragments:
        return answers
    chunks = answers["chunk"].to_pylist()
    for place, fragment in enumerate(fragments):
        if fragment == Mail.FAILURE and isinstance(error := first_failure([chunks[place]]), RaisedInSpark):
            chunks[place] = encode_failure(_asked_again(spark, error), error.relation, 0)
    return answers.set_column(answers.column_names.index("chunk"), "chunk", pa.array(chunks, pa.binary()))


def _asked_again(spark: SparkSession, error: RaisedInSpark) -> RaisedInSpark:
    row = pa.ipc.open_stream(base64.b64decode(error.row)).read_all()
    frame = frame_of(spark, row)
    for number, (template, columns, _) in enumerate(error.calls):
        text = filled_text(str(template), [f"`c{i}`" for i in columns])  # type: ignore[attr-defined]
        try:
            frame.select(F.expr(text)).collect()
        except PySparkException as err:
            return error.with_reason(number, from_spark(err, SourceText("")).reason.rstrip("."))
        except Py4JJavaError as err:
            return error.with_reason(number, ": ".join(java_failure(err)))
    return error

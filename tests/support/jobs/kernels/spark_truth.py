"""Spark's answers: values of expressions row by row, and the rows on which they raise."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tests.support.jobs.kernels.edge_values import edge_table, type_of
from tests.support.jobs.kernels.kernel_cases import CASES, Case
from tests.support.jobs.kernels.kernel_truth import Truth, encode_truth, question_of
from tests.support.jobs.sql.bound import bind_expressions
from tests.support.recorded_truth import known_answers, write_answers
from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.nodes import Expr, Field
from tussock.jobs.spark.collected import collect_rows, frame_of
from tussock.statestore.types import array_name, map_name, struct_name


def live_truth(spark: SparkSession, case: Case, rows: pa.Table) -> Truth:
    """Bind and evaluate a case's expressions over c0, c1, … in a session of its zone."""
    session = spark.newSession()
    session.conf.set("spark.sql.timeType.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", case.zone)
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.legacy.allowHashOnMapType", "true")  # a hash finds the rows that raise
    # otherwise Spark computes a part of two expressions before the AND that guards it in either
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    fields = [Field(f"c{i}", type_of(c)) for i, c in enumerate(case.columns)]
    bound = bind_expressions(session, fields, case.exprs, case.zone)
    return spark_answers(session, rows, case.exprs, bound)


def spark_answers(spark: SparkSession, rows: pa.Table, texts: Sequence[str], bound: list[Expr]) -> Truth:
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
    return Truth(
        bound, types, collect_rows(frame.selectExpr("row", *guarded)).sort_by("row").drop_columns("row"), raising
    )


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


def record_kernels(spark: SparkSession, anew: bool) -> None:
    """Write the records of all cases, except those that an older release of Spark cannot bind.

    Args:
        anew: whether Spark also answers the questions that the record has.
    """
    files: dict[str, dict[str, bytes]] = {}
    for case in CASES:
        rows, name = edge_table(case.columns), f"kernels/{case.file}"
        question, answers = question_of(case, rows), files.setdefault(name, {})
        if not anew and (known := known_answers(name).get(question)) is not None:
            answers[question] = known
            continue
        try:
            answers[question] = encode_truth(live_truth(spark, case, rows))
        except SqlError as err:
            print(f"{case} has no record: {err}")
    for name, answers in files.items():
        write_answers(name, answers)

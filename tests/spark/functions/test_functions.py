"""Every Spark function is in the registry with a correct verdict, and views with it return Spark's values."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.functions.edges import ROWS, ddl, edges
from tests.support.functions.functions import FUNCTIONS
from tests.support.functions.registry import KEPT, KERNEL, OF_ROWS, PAGE, REFUSED, SPARK, Function, page, save
from tests.support.release import installed
from tests.support.runners import here
from tests.support.sample import sample
from tests.support.truth.compare import assert_same_answer
from tests.support.truth.judge import judge_session
from tussock.jobs.kernels.render import has_kernel
from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.logical.expression_tree import needs_spark, substitute_columns
from tussock.jobs.logical.nodes import BY_SPARK, Call, Column, Expr, Filter, Plan, Project, Scan
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.session import Session
from tussock.jobs.sql.catalyst import bind_view, relation_of_ddl
from tussock.jobs.sql.sandbox import Sandbox
from tussock.jobs.sql.spark_text import fill_columns

ZONE = "America/New_York"
BATCH = 15  # bound in one SELECT
ALONE = ("session_window",)  # Spark accepts one time window per SELECT


def of(how: str) -> list[Function]:
    return [one for one in FUNCTIONS if one.how == how and one.is_known]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", ZONE)
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.timeType.enabled", "true")
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    return session


@pytest.fixture(scope="module")
def sandbox(spark: SparkSession) -> Sandbox:
    return Sandbox(spark, [relation_of_ddl(1, f"t ({ddl()})")], ZONE, has_kernel)


@pytest.fixture(scope="module")
def judged_anew(sandbox: Sandbox, request: pytest.FixtureRequest) -> None:
    """With --update-cases, judge the registry again before all other tests."""
    if request.config.getoption("--update-cases"):
        FUNCTIONS[:] = [judged(sandbox, one) for one in FUNCTIONS]
        save(FUNCTIONS)
        PAGE.write_text(page(FUNCTIONS))


@pytest.fixture(scope="module")
def bound(judged_anew: None, sandbox: Sandbox) -> dict[str, Expr]:
    """The example of each function by name, bound over the columns of `edges`."""
    found: dict[str, Expr] = {}
    for how in (KERNEL, SPARK):
        functions = [one for one in of(how) if one.name not in ALONE]
        batches = [functions[start : start + BATCH] for start in range(0, len(functions), BATCH)]
        for batch in [*batches, *([one] for one in of(how) if one.name in ALONE)]:
            found |= dict(
                zip([one.name for one in batch], bound_calls(sandbox, [one.call for one in batch]), strict=True)
            )
    return found


def bound_calls(sandbox: Sandbox, calls: Sequence[str]) -> list[Expr]:
    plan = bind_view(
        sandbox, SourceText("SELECT " + ",\n".join(f"{call} AS r{i}" for i, call in enumerate(calls)) + " FROM t")
    )
    return over_columns(plan)


def over_columns(plan: Plan) -> list[Expr]:
    """The expressions that a plan of projections computes, over the columns of `edges`."""
    if isinstance(plan, Scan):
        return [Column(c, f.type) for c, f in zip(plan.columns, plan.fields, strict=True)]
    if isinstance(plan, Filter):  # window() leaves out rows without a moment
        return over_columns(plan.input)
    assert isinstance(plan, Project), plan
    below = over_columns(plan.input)
    return [substitute_columns(e, below) for e in plan.exprs]


def judged(sandbox: Sandbox, one: Function) -> Function:
    try:
        if one.group in OF_ROWS:
            bind_view(sandbox, SourceText(one.select))
            return one.judged(KEPT)
        (expr,) = bound_calls(sandbox, [one.call])
    except UnsupportedQueryError as err:
        return one.judged(REFUSED, err.reason.partition(";")[0])
    except SqlError as err:
        return one.judged(REFUSED, err.reason.partition(". ")[0])
    return one.judged(SPARK if needs_spark(expr) else KERNEL)


@pytest.mark.spark
def test_the_registry_has_every_function_that_spark_lists(spark: SparkSession) -> None:
    listed = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    known = {one.name for one in FUNCTIONS if one.is_known}
    assert known - listed == set()
    assert installed() > (4, 2) or listed - known == set()


@pytest.mark.spark
@pytest.mark.deep
def test_every_function_is_computed_by_the_engine_in_the_registry(bound: dict[str, Expr]) -> None:
    by_spark = {name for name, e in bound.items() if needs_spark(e)}
    assert by_spark == {one.name for one in of(SPARK)}
    assert bound.keys() - by_spark == {one.name for one in of(KERNEL)}


def selects(kept: Sequence[Function]) -> dict[str, str]:
    """Queries by the names of their functions, with as many examples in each as one query allows."""
    found: dict[str, str] = {}
    together = [one for one in kept if one.group == "aggregate" and not one.name.startswith("grouping")]
    for batch in (together[start : start + BATCH] for start in range(0, len(together), BATCH)):
        calls = ", ".join(f"{one.call} AS {one.name}" for one in batch)
        found[", ".join(one.name for one in batch)] = f"SELECT b, {calls} FROM t GROUP BY b"
    return found | {one.name: one.select for one in kept if one not in together}


@pytest.mark.spark
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.deep)])
def test_maintained_views_equal_spark_as_rows_are_inserted_updated_and_deleted(
    every: int, session: SparkSession, tmp_path: Path
) -> None:
    """Views of the examples, through a first load, inserts, updates and deletes."""
    views, rows, judge, wrong = (
        dict(sample(list(selects(of(KEPT)).items()), every)),
        edges(),
        judge_session(session),
        {},
    )
    changes = (
        [],
        [
            "UPDATE t SET b = NOT b, s = num, i = small, f = i % 5, bin = cast(s AS binary), j = u WHERE id % 3 = 1",
            "DELETE FROM t WHERE id % 4 = 2 OR id < 3",
        ],
    )
    with Session(str(tmp_path / "store"), session, runner=here(session)) as tussock:
        tussock.execute(f"CREATE TABLE t ({ddl()}, PRIMARY KEY (id))")
        tussock.insert("t", rows.slice(0, ROWS // 2))
        for place, select in enumerate(views.values()):
            tussock.execute(f"CREATE MATERIALIZED VIEW v{place} AS {select}")
        tussock.flush()
        tussock.insert("t", rows.slice(ROWS // 2))
        for statements in changes:
            for statement in statements:
                tussock.execute(statement)
            tussock.flush()
            judge.createDataFrame(tussock.read("t")).createOrReplaceTempView("t")
            for place, (names, select) in enumerate(views.items()):
                try:
                    assert_same_answer(tussock.read(f"v{place}"), judge.sql(select).toArrow(), names)
                except AssertionError as err:
                    wrong[names] = str(err)
    assert wrong == {}


@pytest.mark.spark
def test_refused_functions_are_refused_for_the_documented_reason(judged_anew: None, sandbox: Sandbox) -> None:
    assert [found for one in of(REFUSED) if (found := judged(sandbox, one)) != one] == []


def tried(session: SparkSession, text: str) -> JavaObject:
    """A struct of the expression's value; NULL if it raises."""
    parsed = session._jsparkSession.sessionState().sqlParser().parseExpression(f"named_struct('v', {text})")
    return session._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parsed)  # type: ignore[union-attr]


def to_column(expression: JavaObject, name: str) -> JavaObject:
    column = SparkSession.active()._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(  # type: ignore[union-attr]
        expression
    )
    return column.alias(name)


@pytest.mark.spark
@pytest.mark.deep
def test_expressions_passed_to_spark_keep_the_users_meaning(bound: dict[str, Expr], session: SparkSession) -> None:
    """Row by row, errors included: as the text that the catalog keeps, and as the example itself."""
    rows = edges()
    frame = session.createDataFrame(rows, ddl()).coalesce(1)
    jvm = session._jvm
    assert jvm is not None
    functions = of(SPARK)
    columns = []
    for one in functions:
        call = bound[one.name]
        assert isinstance(call, Call), one
        assert call.node == BY_SPARK, one
        kept = fill_columns(call, [f"`{rows.column_names[a.index]}`" for a in call.args if isinstance(a, Column)])
        same = jvm.org.apache.spark.sql.catalyst.expressions.EqualNullSafe(
            tried(session, one.call), tried(session, kept)
        )
        columns.append(to_column(same, one.name))
    selected = DataFrame(frame._jdf.select(jvm.PythonUtils.toSeq(columns)), session)
    counted = (
        selected.select(*(F.count_if(F.col(f"`{one.name}`")).alias(one.name) for one in functions))
        .toArrow()
        .to_pylist()[0]
    )
    assert {name: count for name, count in counted.items() if count != rows.num_rows} == {}

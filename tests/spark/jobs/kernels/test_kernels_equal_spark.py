"""Every expression on the tested list, compared with Spark over edge values: values, types and the rows that raise."""

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.kernels.edge_values import edge_table, type_of
from tests.support.jobs.kernels.kernels_equal_spark import CASES, Case
from tests.support.jobs.kernels.spark_truth import Truth, spark_answers
from tests.support.jobs.sql.bound import bind_expressions
from tests.support.sample import sample
from tussock.jobs.kernels import registry
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Expr, Field
from tussock.statestore.types import arrow_type

_REPEATED = [case for case in CASES if not case.first]
#: The quick run computes a third of the cases over their own columns, and one in 30 repetitions.
_QUICK = {*sample([case for case in CASES if case.first], 3), *sample(_REPEATED, 30)}
_COVERED: dict[Case, set[str]] = {}


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.mark.spark
@pytest.mark.parametrize(
    "case", [pytest.param(c, id=str(c), marks=[] if c in _QUICK else [pytest.mark.deep]) for c in CASES]
)
def test_an_expression_equals_spark(case: Case, spark: SparkSession, kernel: Kernel) -> None:
    rows = edge_table(case.columns)
    session, bound = bound_in(spark, case)
    truth = spark_answers(session, rows, case.exprs)
    wrong = []
    for i, (text, expr) in enumerate(zip(case.exprs, bound, strict=True)):
        try:
            wrong += [f"{text}: {found}" for found in differences(kernel, rows, expr, truth, i, case)]
        except Exception as err:
            wrong.append(f"{text}: {type(err).__name__}: {err}")
    assert not wrong, "\n".join(wrong)
    calm = [i for i in range(rows.num_rows) if not any(i in raising for raising in truth.raising)]
    if calm and not case.declines:
        assert moved(kernel, rows.take(pa.array(calm)), bound) == []


def bound_in(spark: SparkSession, case: Case) -> tuple[SparkSession, list[Expr]]:
    """A session in the case's zone, and its expressions over c0, c1, …. Records their shapes."""
    session = spark.newSession()
    session.conf.set("spark.sql.timeType.enabled", "true")
    session.conf.set("spark.sql.session.timeZone", case.zone)
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.legacy.allowHashOnMapType", "true")  # a hash finds the rows that raise
    # otherwise Spark computes a part of two expressions before the AND that guards it in either
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    fields = [Field(f"c{i}", type_of(c)) for i, c in enumerate(case.columns)]
    bound = bind_expressions(session, fields, case.exprs, case.zone)
    _COVERED[case] = set().union(*map(shapes_in, bound))
    return session, bound


def moved(kernel: Kernel, rows: pa.Table, exprs: Sequence[Expr]) -> list[str]:
    """Expressions whose values move when the rows arrive in short and long pieces, and plans that may move rows."""
    types = [expr.type for expr in exprs]
    which, pieces = [], []
    for length in (1, 7, 100, 1):
        which += (places := [(len(which) + i) % rows.num_rows for i in range(length)])
        pieces.append(rows.take(pa.array(places)).combine_chunks())
    found, expected = (
        kernel.project(pa.concat_tables(pieces), exprs, types),
        kernel.project(rows, exprs, types).take(pa.array(which)),
    )
    wrong = [
        str(e)
        for e, one, other in zip(exprs, found.columns, expected.columns, strict=True)
        if repr(plain(one)) != repr(plain(other))
    ]
    return wrong + [query.columns for query, prepared in kernel._prepared.items() if not prepared.keeps_order]


#: Expressions that only Catalyst creates. MapSort, for maps in a GROUP BY: tests/spark/end_to_end/test_nested_types.py.
_NEVER_WRITTEN = {f"MapSort({kind})->{kind}" for kind in ("array", "map", "struct")}


@pytest.mark.spark
def test_every_shape_on_the_list_is_covered_by_a_case(spark: SparkSession) -> None:
    for case in CASES:
        if case not in _COVERED:
            bound_in(spark, case)
    assert registry.tested_shapes() - set().union(*_COVERED.values()) == _NEVER_WRITTEN


def differences(kernel: Kernel, rows: pa.Table, expr: Expr, truth: Truth, i: int, case: Case) -> Iterator[str]:
    """The kernel's differences from Spark: type, rows that raise, values. Rows that do not raise are computed in one
    call.
    """
    expected, type_name, raising = truth.values[f"r{i}"], truth.types[i], truth.raising[i]
    if expr.type != type_name:
        yield f"bound as {expr.type}, Spark has {type_name}"
        return
    outcomes = {i: outcome(kernel, rows.slice(i, 1), expr) for i in raising}
    for i, found in sorted(outcomes.items()):
        if not found.startswith("raises"):
            yield f"row {shown(rows, i)}: Spark raises, the kernel gives {found}"
    calm = [i for i in range(rows.num_rows) if i not in raising]
    if case.declines:
        calm = [i for i in calm if "not supported" not in outcome(kernel, rows.slice(i, 1), expr)]
    taken = pa.array(calm, pa.int64())
    try:
        got = kernel.project(rows.take(taken), [expr], [type_name])["c0"]
    except RowError:
        for i in calm:
            if (found := outcome(kernel, rows.slice(i, 1), expr)).startswith("raises"):
                yield f"row {shown(rows, i)}: the kernel {found}, Spark gives {plain(expected)[i]!r}"
        return
    assert got.type == arrow_type(type_name)
    for i, kernels, sparks in zip(calm, plain(got), plain(expected.take(taken)), strict=True):
        if not same(kernels, sparks, case.close):
            yield f"row {shown(rows, i)}: the kernel gives {kernels!r}, Spark {sparks!r}"


def outcome(kernel: Kernel, row: pa.Table, expr: Expr) -> str:
    """The kernel's value on one row as text, or its error."""
    try:
        return repr(plain(kernel.project(row, [expr], [expr.type])["c0"])[0])
    except RowError as err:
        return f"raises {err.reason!r}"


def plain(column: pa.ChunkedArray) -> list[object]:
    """Values in a comparable form; dates and times as numbers, because Spark's range exceeds Python's years."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[object] = column.to_pylist()
    return values


def same(a: object, b: object, close: bool) -> bool:
    """Equal to the bit, with all NaN equal; with `close`, within a few units in the last place."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        if close and math.isfinite(a) and math.isfinite(b):
            return math.isclose(a, b, rel_tol=4e-16, abs_tol=5e-324)
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, close) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return [*a] == [*b] and all(same(a[name], b[name], close) for name in a)
    return a == b


def shown(rows: pa.Table, i: int) -> str:
    """One row as text, for a failure message."""
    columns = rows.slice(i, 1).columns
    as_they_are = (pa.types.is_binary, pa.types.is_nested)
    return str(
        [(c if any(is_one(c.type) for is_one in as_they_are) else c.cast(pa.string())).to_pylist()[0] for c in columns]
    )


def shapes_in(expr: Expr) -> set[str]:
    """The shapes of all nodes of an expression."""
    if not isinstance(expr, Call):
        return set()
    return {registry.shape_of(expr)}.union(*(shapes_in(a) for a in expr.args))

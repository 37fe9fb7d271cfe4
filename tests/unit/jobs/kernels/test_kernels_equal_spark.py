"""Every expression on the tested list, compared with Spark over edge values: values, types and the rows that raise.

Spark's answers are recorded (tests/support/recorded_truth.py); tests/spark/jobs/kernels compares them with Spark.
"""

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from tests.support.jobs.kernels.edge_values import edge_table
from tests.support.jobs.kernels.kernel_cases import CASES, Case
from tests.support.jobs.kernels.kernel_truth import Truth, plain, read_truth
from tests.support.recorded_truth import version_to_compare
from tussock.jobs.kernels import registry
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Expr
from tussock.statestore.types import arrow_type


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    yield kernel
    kernel.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_expression_equals_spark(case: Case, kernel: Kernel) -> None:
    rows = edge_table(case.columns)
    truth = read_truth(case, rows, version_to_compare())
    wrong = []
    for i, (text, expr) in enumerate(zip(case.exprs, truth.bound, strict=True)):
        try:
            wrong += [f"{text}: {found}" for found in differences(kernel, rows, expr, truth, i, case)]
        except Exception as err:
            wrong.append(f"{text}: {type(err).__name__}: {err}")
    assert not wrong, "\n".join(wrong)
    calm = [i for i in range(rows.num_rows) if not any(i in raising for raising in truth.raising)]
    if calm and not case.declines:
        assert moved(kernel, rows.take(pa.array(calm)), truth.bound) == []


def moved(kernel: Kernel, rows: pa.Table, exprs: Sequence[Expr]) -> list[str]:
    """Expressions whose values move when the rows arrive in short and long pieces, and plans that may move rows."""
    types = [expr.type for expr in exprs]
    which, pieces = [], []
    for length in (1, 7, 100, 1):
        which += (places := [(len(which) + i) % rows.num_rows for i in range(length)])
        pieces.append(rows.take(pa.array(places)).combine_chunks())
    found, expected = (
        kernel.project_columns(pa.concat_tables(pieces), exprs, types),
        kernel.project_columns(rows, exprs, types).take(pa.array(which)),
    )
    wrong = [
        str(e)
        for e, one, other in zip(exprs, found.columns, expected.columns, strict=True)
        if repr(plain(one)) != repr(plain(other))
    ]
    return wrong + [query.columns for query, prepared in kernel._prepared.items() if not prepared.keeps_order]


#: Expressions that only Catalyst creates. MapSort, for maps in a GROUP BY: tests/spark/end_to_end/test_nested_types.py.
_NEVER_WRITTEN = {f"MapSort({kind})->{kind}" for kind in ("array", "map", "struct")}


def test_every_shape_on_the_list_is_covered_by_a_case() -> None:
    truths = (read_truth(case, edge_table(case.columns), version_to_compare()) for case in CASES)
    covered = {shape for truth in truths for expr in truth.bound for shape in shapes_in(expr)}
    assert registry.tested_shapes() - covered == _NEVER_WRITTEN


def test_case_files_name_each_expression_once() -> None:
    for case in CASES:
        assert len(set(case.exprs)) == len(case.exprs), case


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
        got = kernel.project_columns(rows.take(taken), [expr], [type_name])["c0"]
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
        return repr(plain(kernel.project_columns(row, [expr], [expr.type])["c0"])[0])
    except RowError as err:
        return f"raises {err.reason!r}"


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

"""Sessions of a process share the functions for DuckDB. One that cannot be registered fails only its callers."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.jobs.kernels.test_python_function import called
from tussock.jobs.kernels import functions
from tussock.jobs.kernels.errors import KernelError, RowError, UnsupportedExpressionError
from tussock.jobs.kernels.functions import called_functions, declare_function
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.kernels.registry import renders_any
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal, Place
from tussock.statestore.types import UnsupportedTypeError

ROWS = pa.table({"c0": pa.array([1, None, 3], pa.int32()), "w": [1, 1, 1]})
INT = Column(0, "int")
PLACE = Place(1, 8)


def negated(values: pa.Array) -> pa.Array:
    return pc.negate(values)


@renders_any("Negated")
def _negated(call: Call, args: list[str]) -> str:
    return f"{declare_function('negated', ('int',), 'int', negated)}({args[0]})"


@renders_any("RefusedByDuckDB")
def _refused(call: Call, args: list[str]) -> str:
    """DuckDB refuses a function with two parameters whose code takes one."""
    return f"{declare_function('refused_by_duckdb', ('int', 'int'), 'int', negated)}({args[0]}, {args[0]})"


@renders_any("OfNoType")
def _of_no_type(call: Call, args: list[str]) -> str:
    return f"{declare_function('of_no_type', ('nonsense',), 'int', negated)}({args[0]})"


@renders_any("NotSql")
def _not_sql(call: Call, args: list[str]) -> str:
    return "SELECT"


def of(node: str) -> Call:
    return Call(node, "int", (INT,), place=PLACE)


def negation_of(kernel: Kernel) -> list[int | None]:
    negations: list[int | None] = kernel.project_columns(ROWS, (of("Negated"),), ("int",))["c0"].to_pylist()
    return negations


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.close()


@pytest.mark.parametrize("node", ["RefusedByDuckDB", "NotSql"])
def test_a_query_that_duckdb_refuses_fails_alone(kernel: Kernel, node: str) -> None:
    for _ in range(2):  # the second time, the function is declared
        with pytest.raises(KernelError):
            kernel.project_columns(ROWS, (of(node),), ("int",))
        assert kernel.try_expressions(ROWS, (of(node),)) is None
        assert negation_of(kernel) == [-1, None, -3]
        other = Kernel()
        assert negation_of(other) == [-1, None, -3], "as in another thread, or in a worker that starts later"
        other.close()


def test_a_function_of_a_type_that_duckdb_lacks_is_not_declared(kernel: Kernel) -> None:
    with pytest.raises(UnsupportedTypeError):
        kernel.project_columns(ROWS, (of("OfNoType"),), ("int",))
    assert "of_no_type" not in functions._FUNCTIONS
    assert negation_of(kernel) == [-1, None, -3]


def test_a_kernel_registers_only_the_functions_that_its_queries_call(kernel: Kernel) -> None:
    declare_function("never_called", ("int",), "int", negated)
    assert negation_of(kernel) == [-1, None, -3]
    assert kernel._registered == {"negated"}
    assert [f.name for f in called_functions("negated(c0) || 'never_called(c0)' || 'it''s never_called(1)'")] == [
        "negated"
    ]


def test_a_new_connection_registers_functions_again(kernel: Kernel) -> None:
    assert negation_of(kernel) == [-1, None, -3]
    kernel._connection.close()
    kernel._connect()
    assert negation_of(kernel) == [-1, None, -3]


@pytest.mark.parametrize("node", ["RefusedByDuckDB", "NotSql"])
def test_a_dry_run_names_the_expression_that_duckdb_refuses(kernel: Kernel, node: str) -> None:
    exprs: tuple[Expr, ...] = (INT, of("Negated"), of(node), Literal(1, "int"))
    with pytest.raises(UnsupportedExpressionError, match="is refused by DuckDB") as caught:
        kernel.dry_run(exprs)
    assert (caught.value.place, caught.value.shape) == (PLACE, f"{node}(int)->int")
    kernel.dry_run((INT, of("Negated"), Literal(1, "int")))


def test_a_dry_run_prepares_the_query_of_the_epoch(kernel: Kernel) -> None:
    kernel.dry_run((INT, of("Negated")))
    queries = [*kernel._prepared]
    wide = ROWS.add_column(1, "c1", pa.array(["a", "b", "c"]))
    assert kernel.project_columns(wide, (INT, of("Negated")), ("int", "int"), keep=("w",))["c1"].to_pylist() == [
        -1,
        None,
        -3,
    ]
    assert [*kernel._prepared] == queries, "unread columns do not matter"


def test_a_dry_run_accepts_what_raises_only_on_rows(kernel: Kernel) -> None:
    zero = Call("IntegralDivide", "bigint", (Literal(1, "bigint"), Literal(0, "bigint")), "ANSI")
    kernel.dry_run((zero, called("def f(x, y): raise ValueError('never')")))


def test_the_fault_of_one_query_is_not_that_of_the_next(kernel: Kernel) -> None:
    """DuckDB calls a function with constant arguments when it plans a query, also if no row reaches the call."""
    wrong = called("def f(x): return 'no array'", ("int",))
    unreached = Call("If", "int", (Call("IsNull", "boolean", (INT,)), Literal(1, "int"), wrong_of_constant(wrong)))
    none = ROWS.slice(1, 1)
    assert kernel.project_columns(none, (unreached,), ("int",))["c0"].to_pylist() == [1]
    zero = Call("IntegralDivide", "bigint", (Column(0, "bigint"), Literal(0, "bigint")), "ANSI")
    with pytest.raises(RowError, match="zero"):
        kernel.project_columns(pa.table({"c0": [1]}), (zero,), ("bigint",))


def wrong_of_constant(call: Call) -> Call:
    return Call(call.node, call.type, (Literal(1, "int"),), call.mode, call.params)


def test_threads_share_no_failure() -> None:
    answers: list[object] = []

    def run(node: str) -> None:
        kernel = Kernel()
        try:
            answers.append(kernel.project_columns(ROWS, (of(node),), ("int",))["c0"].to_pylist())
        except KernelError:
            answers.append("refused")
        finally:
            kernel.close()

    for node in ("RefusedByDuckDB", "Negated", "RefusedByDuckDB", "Negated"):
        thread = threading.Thread(target=run, args=(node,))
        thread.start()
        thread.join(60)
    assert answers == ["refused", [-1, None, -3]] * 2

"""The user's Python functions as kernels call them: their arguments, and the handling of their results."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.kernels.python_function import FunctionCodeError, FunctionResultError, install_functions
from tussock.jobs.logical.nodes import PYTHON, Call, Column, Expr, Field, Literal
from tussock.jobs.logical.statements import CreateFunction, FunctionModule
from tussock.statestore.types import MONTHS

TWO = ("int", "string")
ROWS = pa.table({"c0": pa.array([1, None, 3], pa.int32()), "c1": ["a", None, "c"]})
VALUES = pa.table(
    {
        "c0": pa.array([datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None], pa.timestamp("us", tz="UTC")),
        "c1": pa.array([datetime.datetime(2024, 1, 1), None], pa.timestamp("us")),
        "c2": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "c3": pa.array([datetime.date(2024, 1, 1), None]),
        "c4": pa.array([b"a", None]),
        "c5": pa.array([True, None]),
        "c6": pa.array([1.5, None]),
        "c7": pa.array([2**62 + 1, None]),
        "c8": pa.array([[1, None], None], pa.list_(pa.int32())),
        "c9": pa.array([{"A": 1, "b": "x"}, None], pa.struct([("A", pa.int32()), ("b", pa.string())])),
        "c10": pa.array([datetime.timedelta(days=1, microseconds=5), None], pa.duration("us")),
        "c11": pa.array([14, None], MONTHS),
    }
)
TIMES = ("timestamp", "timestamp_ntz")
PLAIN = ("decimal(10,2)", "date", "binary", "boolean", "double", "bigint")
KINDS = (*TIMES, *PLAIN, "array<int>", "struct<A:int,b:string>", "interval day to second", "interval month")


def called(body: str, parameters: tuple[str, ...] = TWO, returns: str = "int", **others: str) -> Call:
    """A call of the function `f` of a module, over the first columns."""
    code = tuple(FunctionModule(name, source) for name, source in {"m": body, **others}.items())
    function = CreateFunction("f", tuple(Field(f"p{i}", t) for i, t in enumerate(parameters)), returns, "m", "f", code)
    install_functions([function])
    args = tuple(Column(i, t) for i, t in enumerate(parameters))
    return Call(PYTHON, returns, args, None, (("name", "f"), ("digest", function.digest)))


def answer(expr: Expr, rows: pa.Table = ROWS) -> list[object]:
    """The expression over the rows."""
    kernel = Kernel()
    try:
        found: list[object] = kernel.project_columns(rows, (expr,), (expr.type,))["c0"].to_pylist()
        return found
    finally:
        kernel.close()


def test_the_first_parameter_decides_between_arrow_arrays_and_series() -> None:
    assert answer(called("import pyarrow as pa\ndef f(x, y):\n  assert isinstance(x, pa.Array)\n  return x")) == [
        1,
        None,
        3,
    ]
    for annotation in ("pd.Series", "'pd.Series'", "'pandas.Series'"):
        body = f"import pandas as pd\ndef f(x: {annotation}, y): return x.astype('string') + y"
        assert answer(called(body, returns="string")) == ["1a", None, "3c"]


@pytest.mark.parametrize("place", range(len(KINDS)), ids=KINDS)
@pytest.mark.parametrize("head", ["", "import pandas as pd\n"], ids=["arrow", "pandas"])
def test_values_of_every_type_and_null_are_read_as_written(place: int, head: str) -> None:
    annotation = ": pd.Series" if head else ""
    body = f"{head}def f(x{annotation}, *more): return (x, *more)[{place}]"
    assert answer(called(body, KINDS, KINDS[place]), VALUES) == VALUES.column(place).to_pylist()


def test_a_functions_view_of_a_row_does_not_depend_on_other_rows() -> None:
    body = "import pandas as pd\ndef f(x: pd.Series) -> pd.Series: return x + 1"
    rows = pa.table({"c0": pa.array([2**53 + 1, None])})
    assert answer(called(body, ("bigint",), "bigint"), rows) == [2**53 + 2, None]  # as floats: 2**53


def test_modules_of_the_folder_import_each_other_and_versions_live_side_by_side() -> None:
    body = "import other\nfrom other import plus\ndef f(x, y):\n  import other as again\n  return again.plus(plus(x))"
    other = "import pyarrow.compute as pc\ndef plus(x): return pc.add(x, {})"
    first, second = called(body, other=other.format(1)), called(body, other=other.format(10))
    assert answer(first) == [3, None, 5]
    assert answer(second) == [21, None, 23]
    assert answer(Call("Add", "int", (first, second), "ANSI")) == [24, None, 28]


def test_only_rows_that_reach_the_call_are_given_to_it() -> None:
    body = "import pyarrow.compute as pc\ndef f(x, y):\n  assert not pc.any(pc.equal(x, 3)).as_py()\n  return x"
    small = Call("LessThan", "boolean", (Column(0, "int"), Literal(3, "int")), "ANSI")
    assert answer(Call("CaseWhen", "int", (small, called(body)))) == [1, None, None]


def test_an_empty_input_is_no_call() -> None:
    assert answer(called("def f(x, y): raise ValueError"), ROWS.slice(0, 0)) == []


@pytest.mark.parametrize(
    ("body", "returns", "said"),
    [
        (
            "import pyarrow as pa\ndef f(x, y): return pa.array([7] * 5)",
            "int",
            "gave 5 values for 3 rows, expected one value for each row",
        ),
        (
            "def f(x, y): return x.cast('string')",
            "int",
            "gave values of type string, expected int32, for the declared type int",
        ),
        ("def f(x, y): return x.cast('string')", "date", "gave values of type string, expected date32"),
        ("def f(x, y): return 5", "int", "gave a builtins.int, expected a pyarrow Array"),
        (
            "import pandas as pd\ndef f(x: pd.Series, y): return 5",
            "int",
            "gave a builtins.int, expected a pandas Series",
        ),
        ("import pandas as pd\ndef f(x: pd.Series, y): return x * 1.5", "int", "gave a Series that cannot become int"),
        (
            "import pyarrow as pa\ndef f(x, y): return pa.array([300] * 3)",
            "tinyint",
            "gave int64 values that do not fit",
        ),
        (
            "import pyarrow as pa\ndef f(x, y): return pa.array([{'a': 1, 'c': 2}] * 3)",
            "struct<a:bigint,b:bigint>",  # Arrow's cast makes NULLs of the missing field
            "gave values of type struct<a: int64, c: int64>, expected struct<a: int64, b: int64>",
        ),
        (
            "import pyarrow as pa\ndef f(x, y): return pa.array([[1.5]] * 3)",
            "array<string>",
            "gave values of type list<item: double>, expected list<item: string>",
        ),
    ],
)
def test_a_result_of_another_type_names_the_function(body: str, returns: str, said: str) -> None:
    with pytest.raises(FunctionResultError, match=said):
        answer(called(body, returns=returns))


#: The declared type, the type of the result and its value, for a decimal `d` of type `D`.
NESTED = {
    "list": ("array<{}>", "pa.list_(D)", "[d]"),
    "struct": ("struct<b:int,a:{}>", "pa.struct([('a', D), ('b', pa.int32())])", "{'a': d, 'b': 1}"),
    "map": ("map<string,array<{}>>", "pa.map_(pa.string(), pa.list_(D))", "[('k', [d])]"),
}


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize(
    ("returned", "declared", "fits"),
    [
        ("pa.decimal128(4, 2)", "decimal(38,36)", True),
        ("pa.decimal128(4, 2)", "decimal(38,38)", False),  # Arrow's cast returns 0.91…
        ("pa.decimal256(76, 60)", "decimal(38,36)", True),
        ("pa.decimal128(4, 2)", "decimal(4,1)", False),
    ],
)
def test_decimals_in_nested_results_are_exact_or_refused(shape: str, returned: str, declared: str, fits: bool) -> None:
    kind, found, value = NESTED[shape]
    body = (
        "import pyarrow as pa\nfrom decimal import Decimal\ndef f(x, y):\n"
        f"  d, D = Decimal('11.12'), {returned}\n  return pa.array([{value}, None, {value}], {found})"
    )
    call = called(body, returns=kind.format(declared))
    if not fits:
        with pytest.raises(FunctionResultError, match="that do not fit"):
            answer(call)
        return
    d = Decimal("11.12")
    made = {"list": [d], "struct": {"b": 1, "a": d}, "map": [("k", [d])]}[shape]
    assert answer(call) == [made, None, made]


def test_numbers_that_fit_are_cast_to_the_declared_type() -> None:
    assert answer(called("import pyarrow as pa\ndef f(x, y): return x.cast(pa.int64())", returns="tinyint")) == [
        1,
        None,
        3,
    ]


def test_an_error_of_a_function_names_the_row_and_the_line() -> None:
    body = "def f(x, y):\n  if 3 in x.to_pylist():\n    raise ValueError('no\\nthree')\n  return x"
    with pytest.raises(
        RowError, match=r"'f' raised ValueError: no three \(line 3 of functions/m.py\), with c0 = 3, c1 = 'c'"
    ) as err:
        answer(called(body))
    assert err.value.row == 2


def test_code_that_is_missing_on_a_worker_names_the_function() -> None:
    with pytest.raises(
        FunctionCodeError, match=r"ModuleNotFoundError: No module named 'no_such_module' \(line 1 of functions/m.py\)"
    ):
        answer(called("import no_such_module\ndef f(x, y): return x"))

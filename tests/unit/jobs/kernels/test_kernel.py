"""The kernel itself: its results, refusals, failing rows, and isolation."""

import json
import os
import pickle
import random
import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tussock.jobs.kernels import kernel as kernel_module
from tussock.jobs.kernels import registry
from tussock.jobs.kernels.errors import KernelError, RowError, UnsupportedExpressionError
from tussock.jobs.kernels.kernel import Kernel, table_function, thread_kernel
from tussock.jobs.kernels.render import render_expression, require_renderable
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal, Place
from tussock.statestore.months import shown_at
from tussock.statestore.types import MONTHS, arrow_type


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return thread_kernel()


def column(index: int, type_name: str = "int") -> Column:
    return Column(index, type_name)


def number(value: int) -> Literal:
    return Literal(value, "int")


def call(node: str, *args: Expr, type_name: str = "int", mode: str | None = None) -> Call:
    return Call(node, type_name, args, mode)


QUOTIENT = call("IntegralDivide", column(0, "bigint"), column(1, "bigint"), type_name="bigint", mode="ANSI")


def test_a_plain_column_is_passed_on_without_a_copy(kernel: Kernel) -> None:
    rows = pa.table({"c0": pa.array([1, 2], pa.int32()), "c1": ["a", "b"], "w": [1, -1]})
    out = kernel.project_columns(rows, [column(1, "string"), column(0)], ["string", "int"], keep=("w",))
    assert out.column_names == ["c0", "c1", "w"]
    assert out["c0"].chunk(0).buffers()[2].address == rows["c1"].chunk(0).buffers()[2].address
    assert out["w"].to_pylist() == [1, -1]


def test_only_columns_with_nulls_are_checked_for_nulls(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"c0": pa.array([1, None, 3], pa.int32()), "c1": ["a", "b", "c"], "w": [1, -1, 1]})
    there = [
        call("IsNotNull", column(0), type_name="boolean"),
        call("IsNotNull", column(1, "string"), type_name="boolean"),
    ]
    both = call("And", *there, type_name="boolean")
    assert kernel.filter_rows(rows, both)["c1"].to_pylist() == ["a", "c"]
    monkeypatch.setattr(Kernel, "_connect_tables", lambda *_, **__: pytest.fail("a query was run"))
    assert kernel.filter_rows(rows, there[1]) is rows
    assert kernel.filter_rows(rows.slice(2), both).to_pylist() == rows.slice(2).to_pylist()


def test_computed_and_plain_columns_keep_their_places(kernel: Kernel) -> None:
    rows = pa.table({"c0": pa.array([1, 2], pa.int32()), "c1": ["a", "b"]})
    doubled = call("Multiply", column(0), number(2), mode="ANSI")
    is_null = call("IsNull", column(1, "string"), type_name="boolean")
    out = kernel.project_columns(rows, [doubled, column(1, "string"), is_null], ["int", "string", "boolean"])
    assert out.to_pydict() == {"c0": [2, 4], "c1": ["a", "b"], "c2": [False, False]}
    assert out.schema.field("c0").type == pa.int32()


def test_no_rows_give_no_rows_of_the_right_types(kernel: Kernel) -> None:
    rows = pa.schema([("c0", pa.int64()), ("c1", pa.int64())]).empty_table()
    assert kernel.project_columns(rows, [QUOTIENT], ["bigint"]).schema == pa.schema([("c0", pa.int64())])


def test_a_filter_keeps_rows_that_are_true_in_order_with_all_their_columns(kernel: Kernel) -> None:
    rows = pa.table({"c0": pa.array([3, None, 1, 2], pa.int32()), "w": [1, 1, -1, 1]})
    kept = kernel.filter_rows(rows, call("GreaterThan", column(0), number(1), type_name="boolean"))
    assert kept.to_pydict() == {"c0": [3, 2], "w": [1, 1]}


def test_the_order_of_many_rows_is_kept(kernel: Kernel) -> None:
    rows = pa.table({"c0": pa.array(range(300_000), pa.int32())})
    out = kernel.project_columns(rows, [call("Add", column(0), number(1), mode="ANSI")], ["int"])
    assert out["c0"].to_pylist() == list(range(1, 300_001))


@pytest.mark.parametrize("bad", [0, 1, 2047, 2048, 4999])
def test_the_first_row_that_raises_is_named(kernel: Kernel, bad: int) -> None:
    divisors = [1] * 5000
    divisors[bad] = 0
    divisors[4999] = 0
    rows = pa.table({"c0": range(5000), "c1": divisors})
    with pytest.raises(RowError, match=r"[Dd]ivision by zero") as raised:
        kernel.project_columns(rows, [call("IsNull", column(0), type_name="boolean"), QUOTIENT], ["boolean", "bigint"])
    assert raised.value.row == bad
    assert "c0 div c1" in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_bad_text_is_shown_as_it_is(kernel: Kernel) -> None:
    rows = pa.table({"c0": ["1", "twelve"]})
    with pytest.raises(
        RowError, match=r"CAST\(c0 AS int\) raised on row 1 .* the text cannot be read as INT32.* with c0 = 'twelve'"
    ):
        kernel.project_columns(rows, [call("Cast", column(0, "string"), mode="ANSI")], ["int"])


def test_a_deep_expression_stays_short_and_is_computed_once_a_part(kernel: Kernel) -> None:
    deep: Expr = column(0, "bigint")
    for divisor in range(1, 61):
        part = call("IntegralDivide", column(0, "bigint"), Literal(divisor, "bigint"), type_name="bigint", mode="ANSI")
        deep = call("Add", deep, part, type_name="bigint", mode="ANSI")
    assert len(render_expression(deep)) < 20_000
    rows = pa.table({"c0": [999, None]})
    assert kernel.project_columns(rows, [deep], ["bigint"])["c0"].to_pylist() == [
        999 + sum(999 // d for d in range(1, 61)),
        None,
    ]


def test_an_argument_behind_a_null_is_not_computed(kernel: Kernel) -> None:
    rows = pa.table({"c0": pa.array([None], pa.int64()), "c1": [0]})
    quotient = call("IntegralDivide", Literal(1, "bigint"), column(1, "bigint"), type_name="bigint", mode="ANSI")
    total = call("Add", column(0, "bigint"), quotient, type_name="bigint", mode="ANSI")
    assert kernel.project_columns(rows, [total], ["bigint"])["c0"].to_pylist() == [None]


def test_a_guarded_division_does_not_raise_in_a_filter(kernel: Kernel) -> None:
    rows = pa.table({"c0": [6, 1, 7], "c1": [3, 0, 0]})
    safe = call(
        "Not", call("EqualTo", column(1, "bigint"), Literal(0, "bigint"), type_name="boolean"), type_name="boolean"
    )
    even = call("EqualTo", QUOTIENT, Literal(2, "bigint"), type_name="boolean")
    assert kernel.filter_rows(rows, call("And", safe, even, type_name="boolean")).to_pydict() == {"c0": [6], "c1": [3]}


def test_a_great_double_that_no_decimal_of_the_type_holds_is_null_to_try_cast(kernel: Kernel) -> None:
    rows = pa.table({"c0": [2.0**57, -1e300, 12.5]})
    small = call("Cast", column(0, "double"), type_name="decimal(10,2)", mode="TRY")
    assert kernel.project_columns(rows, [small], ["decimal(10,2)"])["c0"].to_pylist() == [None, None, Decimal("12.50")]
    large = call("Cast", column(0, "double"), type_name="decimal(20,2)", mode="TRY")
    assert kernel.project_columns(rows[1:], [large], ["decimal(20,2)"])["c0"].to_pylist() == [None, Decimal("12.50")]
    with pytest.raises(RowError, match=r"from 2\^53 on"):
        kernel.project_columns(rows, [large], ["decimal(20,2)"])


def test_an_unknown_node_is_refused_with_its_types_and_place() -> None:
    soundex = Call("SoundEx", "string", (column(0, "string"),), place=Place(2, 8))
    with pytest.raises(
        UnsupportedExpressionError, match=r"SoundEx\(c0\) at line 2, column 8 .* SoundEx\(string\)->string is not on"
    ):
        require_renderable(soundex)


def test_a_tested_node_over_untested_types_is_refused() -> None:
    with pytest.raises(UnsupportedExpressionError, match=r"Add\(date,date\)->date"):
        require_renderable(call("Add", column(0, "date"), column(1, "date"), type_name="date", mode="ANSI"))


def test_legacy_mode_is_refused() -> None:
    with pytest.raises(UnsupportedExpressionError, match=r"Cast\[LEGACY\]"):
        require_renderable(Call("Cast", "date", (column(0, "string"),), "LEGACY"))
    with pytest.raises(UnsupportedExpressionError, match=r"UnaryMinus\[LEGACY\]"):
        require_renderable(Call("UnaryMinus", "int", (column(0),), params=(("failOnError", "false"),)))


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(UnsupportedExpressionError, match="is not tested with collation=de"):
        require_renderable(Call("Upper", "string", (column(0, "string"),), params=(("collation", "de"),)))


def test_a_row_that_raises_is_shown_with_its_months(kernel: Kernel) -> None:
    rows = pa.table({"c0": pa.array([0], pa.date32()), "c1": pa.array([2**31 - 1], MONTHS)})
    later = Call("DateAddYMInterval", "date", (Column(0, "date"), Column(1, "interval month")))
    with pytest.raises(RowError, match=r"c1 = INTERVAL '178956970-7' YEAR TO MONTH"):
        kernel.project_columns(rows, (later,), ("date",))


def test_a_value_of_a_type_that_is_not_kept_is_refused() -> None:
    with pytest.raises(UnsupportedExpressionError, match="type array<interval>"):
        require_renderable(Column(0, "array<interval>"))


@pytest.mark.parametrize("kind", ["struct", "list", "map"])
def test_structs_that_start_at_an_offset_are_read(kernel: Kernel, kind: str) -> None:
    """DuckDB rejects their arrays, which slices of a chunk have."""
    inner = pa.array([None if i % 3 == 0 else {"c": {"a": i}} for i in range(12)]).slice(3, 6)
    offsets = pa.array([0, 2, 2, 6], pa.int32())
    match kind:
        case "struct":
            values: pa.Array = inner
        case "list":
            values = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([inner], ["d"]))
        case _:
            values = pa.MapArray.from_arrays(offsets, pa.array(list("abcdef")), inner)
    answer = kernel.compute_columns("to_json(v)::VARCHAR AS x", pa.table({"v": values}))["x"].to_pylist()
    expected = values.to_pylist(maps_as_pydicts="strict")
    assert [None if text is None else json.loads(text) for text in answer] == expected


def test_a_query_reads_the_rows_that_it_is_given_and_nothing_else(kernel: Kernel, tmp_path: object) -> None:
    rows = mine = pa.table({"a": [1, 2]})
    assert kernel.compute_columns("a, a + 1 AS b", rows).to_pydict() == {"a": [1, 2], "b": [2, 3]}
    for text in (f"(SELECT min(a) FROM read_csv('{tmp_path}/x.csv'))", "(SELECT min(a) FROM mine)"):
        with pytest.raises(KernelError):
            kernel.compute_columns(text, mine)
    for statement in ("INSTALL httpfs", "SET threads = 4", "SELECT * FROM rows"):
        with pytest.raises(duckdb.Error):
            kernel._run_query(statement)


def test_memory_beyond_the_limit_spills_when_there_is_a_place(tmp_path: object) -> None:
    rows = pa.table({"a": np.arange(3_000_000), "b": np.arange(3_000_000, 0, -1)})
    text = "row_number() OVER (ORDER BY b) AS r"
    roomy, tight = Kernel("100MB", temp_directory=f"{tmp_path}/spill"), Kernel("100MB")
    assert np.array_equal(roomy.compute_columns(text, rows)["r"].to_numpy(), rows["b"].to_numpy())
    with pytest.raises(KernelError, match=r"Out of Memory.*memory limit, or give it a directory"):
        tight.compute_columns(text, rows)
    roomy.close()
    tight.close()


SPILL_FOLDER = """
import os, stat
from tussock.jobs.kernels.kernel import thread_kernel
folder = thread_kernel()._run_query("SELECT current_setting('temp_directory') AS folder")["folder"][0].as_py()
print(folder, stat.S_IMODE(os.stat(folder).st_mode), os.getpid())
if os.fork() == 0:
    raise SystemExit  # a child that ends as any process does leaves its parent's folder alone
os.wait()
assert os.path.isdir(folder)
"""


@pytest.mark.parametrize("place", ["TMPDIR", "SPARK_LOCAL_DIRS"])
def test_rows_are_spilled_to_a_private_folder_that_is_removed_with_the_process(place: str, tmp_path: Path) -> None:
    ran = [
        subprocess.run(
            [sys.executable, "-c", SPILL_FOLDER],
            env={**os.environ, place: str(tmp_path)},
            capture_output=True,
            text=True,
        )
        for _ in range(2)
    ]
    assert [run.returncode for run in ran] == [0, 0], ran[0].stderr
    folders, modes, pids = zip(*(run.stdout.split() for run in ran), strict=True)
    assert {Path(folder).parent for folder in folders} == {tmp_path}
    assert [int(mode) for mode in modes] == [0o700, 0o700]
    names = [Path(folder).name.replace(pid, "") for folder, pid in zip(folders, pids, strict=True)]
    assert names[0] != names[1], "a name that follows from the process's number can be taken before it"
    assert list(tmp_path.iterdir()) == []


def test_results_of_a_wrong_type_are_a_defect_not_a_value(kernel: Kernel) -> None:
    rows = pa.table({"c0": pa.array([1], pa.int32())})
    with pytest.raises(KernelError, match=r"expected int64 .*returned int32"):
        kernel.project_columns(rows, [column(0)], ["bigint"])


def test_duckdb_is_the_version_the_list_was_tested_with() -> None:
    assert duckdb.__version__.startswith("2.0.")


@pytest.mark.parametrize(
    ("source", "target", "never_raises"),
    [
        ("tinyint", "smallint", True), ("int", "smallint", False), ("int", "int", True), ("bigint", "double", True),
        ("int", "float", True),
        ("float", "double", True), ("double", "float", False), ("int", "decimal(11,1)", True), ("int",
        "decimal(10,1)", False),
        ("bigint", "decimal(19,0)", True), ("bigint", "decimal(18,0)", False), ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(12,5)", False), ("decimal(10,2)", "decimal(12,1)", False), ("string", "int", False),
        ("int", "date", False),
    ],
)  # fmt: skip
def test_a_cast_that_holds_every_number_never_raises(source: str, target: str, never_raises: bool) -> None:
    assert registry.is_widening(source, target) is never_raises


def test_trunc_of_any_date_is_that_of_the_calendar_without_end() -> None:
    random = np.random.default_rng(1)
    days = np.concatenate([random.integers(-2_147_000_000, 2_147_000_000, 2000), np.arange(-719_900, -718_900)]).astype(
        np.int32
    )
    dates = pa.table({"c0": pa.array(days).cast(pa.date32())})
    of_day = days.astype("datetime64[D]")
    months = of_day.astype("datetime64[M]").astype(np.int64)
    expected = {
        "year": (months // 12 * 12).astype("datetime64[M]"),
        "quarter": (months // 3 * 3).astype("datetime64[M]"),
        "month": months.astype("datetime64[M]"),
        "week": (days.astype(np.int64) - (days.astype(np.int64) + 3) % 7).astype(
            "datetime64[D]"
        ),  # 1970-01-01 was a Thursday
    }
    for unit, truth in expected.items():
        trunc = Call("TruncDate", "date", (Column(0, "date"), Literal(unit, "string")))
        found = Kernel().project_columns(dates, (trunc,), ("date",))["c0"].cast(pa.int32()).to_numpy()
        assert (found == truth.astype("datetime64[D]").astype(np.int64)).all(), unit


@pytest.mark.parametrize(
    ("start", "end", "months"),
    [
        ("2021-01-31T00:00", "2021-02-28T00:00", 0),
        ("2020-02-29T00:00", "2021-02-28T00:00", 11),
        ("2021-04-30T00:00", "2021-03-31T00:00", 0),
        ("2021-01-31T12:00", "2021-03-31T11:59", 1),
        ("2021-03-31T11:59", "2021-01-31T12:00", -1),
        ("2021-03-01T00:00", "2021-02-28T12:00", 0),
        ("0001-01-31T00:00", "9999-12-31T00:00", 119987),
    ],
)
def test_months_between_two_times_are_those_of_java_at_the_ends_of_months(
    start: str, end: str, months: int, kernel: Kernel
) -> None:
    """The answers of Spark's timestampdiff; DuckDB's datesub differs in the first three."""
    moments = (
        pa.array([datetime.fromisoformat(text).replace(tzinfo=UTC)], arrow_type("timestamp")) for text in (start, end)
    )
    times = pa.table([*moments], names=["c0", "c1"])
    for unit, length in (("MONTH", 1), ("QUARTER", 3), ("YEAR", 12)):
        difference = Call(
            "TimestampDiff", "bigint", (column(0, "timestamp"), column(1, "timestamp")), params=(("unit", unit),)
        )
        assert kernel.project_columns(times, [difference], ["bigint"]).columns[0].to_pylist() == [int(months / length)]


@pytest.mark.parametrize(("delimiter", "overlaps"), [("--", True), ("abcab", True), (",", False), ("ab", False)])
def test_substring_index_is_refused_with_a_delimiter_that_may_overlap_itself(delimiter: str, overlaps: bool) -> None:
    """Spark finds a delimiter that begins within the last one: substring_index('a---b', '--', 2) is 'a-'."""
    cut = call("SubstringIndex", column(0, "string"), Literal(delimiter, "string"), number(2), type_name="string")
    if overlaps:
        with pytest.raises(UnsupportedExpressionError, match="cannot overlap itself"):
            require_renderable(cut)
    else:
        require_renderable(cut)


def test_a_value_that_python_cannot_hold_is_shown() -> None:
    days = pa.array([0, -719_900], pa.int32()).cast(pa.date32())
    assert [str(shown_at(days, row)) for row in (0, 1)] == ["1970-01-01", "-002-12-25"]
    assert shown_at(pa.array([-(10**17)], pa.timestamp("us")), 0) == "-1199-02-15 14:13:20.000000"
    assert "before year 1" in str(shown_at(pa.array([[date] for date in days[1:]], pa.list_(pa.date32())), 0))


def test_a_text_that_reads_like_a_variable_of_the_kernel_stays_a_text(kernel: Kernel) -> None:
    whole = call("Concat", *(column(i, "string") for i in range(12)), type_name="string")
    variable = render_expression(call("Concat", whole, whole, type_name="string"))
    (name,) = set(re.findall(r"v[0-9a-f]{16}", variable))
    joined = call("Concat", whole, Literal(name, "string"), type_name="string")
    assert render_expression(joined) == f"({render_expression(whole)} || '{name}')", (
        "the variable is used once, so it is not needed"
    )
    rows = pa.table({f"c{i}": [chr(97 + i)] for i in range(12)})
    assert kernel.project_columns(rows, [joined], ["string"])["c0"].to_pylist() == [f"abcdefghijkl{name}"]


def test_fields_of_structs_need_no_query(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pa.struct([("start", pa.int64()), ("in", pa.struct([("a", pa.string())]))])
    values = [{"start": 1, "in": {"a": "x"}}, None, {"start": None, "in": None}, {"start": 4, "in": {"a": None}}]
    chunks = pa.chunked_array([pa.array(values, kind).slice(1), pa.array(values[:1], kind), pa.array([], kind)])
    rows = pa.table({"c0": chunks})
    struct = column(0, "struct<start:bigint,in:struct<a:string>>")
    start = Call("GetStructField", "bigint", (struct,), params=(("ordinal", "0"),))
    inner = Call("GetStructField", "struct<a:string>", (struct,), params=(("ordinal", "1"),))
    deep = Call("GetStructField", "string", (inner,), params=(("ordinal", "0"),))
    whole = pa.table({"c0": pa.array(chunks.to_pylist(), kind)})
    by_query = kernel.compute_columns("struct_extract(c0, 'start') AS c0, c0['in']['a'] AS c1", whole)
    monkeypatch.setattr(Kernel, "_in_order", lambda *_: pytest.fail("a query"))
    found = kernel.project_columns(rows, [start, deep], ["bigint", "string"])
    assert found["c0"].to_pylist() == [None, None, 4, 1] == by_query["c0"].to_pylist()
    assert found["c1"].to_pylist() == [None, None, None, "x"] == by_query["c1"].to_pylist()
    some = rows.slice(2)
    assert kernel.filter_rows(some, call("IsNotNull", start, type_name="boolean")).num_rows == 2
    with pytest.raises(pytest.fail.Exception, match="a query"):
        kernel.filter_rows(some, call("IsNotNull", deep, type_name="boolean"))


@pytest.mark.parametrize("node", ["Remainder", "Pmod"])
def test_constant_divisors_are_checked_once_and_not_for_every_row(kernel: Kernel, node: str) -> None:
    values = [-(2**63), -8, -7, -1, 0, 6, 7, 2**63 - 1, None]
    rows = pa.table({"c0": pa.array(values, pa.int64())})

    def by(divisor: int | None) -> Call:
        return call(node, column(0, "bigint"), Literal(divisor, "bigint"), type_name="bigint", mode="ANSI")

    def expected(value: int | None, divisor: int) -> int | None:
        if value is None:
            return None
        remainder = abs(value) % abs(divisor) * (-1 if value < 0 else 1)
        if node == "Pmod" and remainder < 0:
            total = remainder + divisor
            return abs(total) % abs(divisor) * (-1 if total < 0 else 1)
        return remainder

    for divisor in (7, -7, 2**63 - 1, 1, -1):
        found = kernel.project_columns(rows, [by(divisor)], ["bigint"])["c0"].to_pylist()
        assert found == [expected(value, divisor) for value in values], divisor
    assert kernel.project_columns(rows, [by(None)], ["bigint"])["c0"].null_count == len(values)
    with pytest.raises(RowError, match=r"[Dd]ivision by zero"):
        kernel.project_columns(rows, [by(0)], ["bigint"])
    assert len(render_expression(by(7))) < len(render_expression(by(-1))) / 2
    sum_of = call("Add", column(0, "bigint"), column(0, "bigint"), type_name="bigint", mode="ANSI")
    of_a_sum = call("Remainder", sum_of, Literal(7, "bigint"), type_name="bigint", mode="ANSI")
    assert "CASE" not in render_expression(of_a_sum), "neither the divisor nor the order of the checks is in question"


def test_a_query_that_is_prepared_once_reads_the_rows_of_each_call(kernel: Kernel) -> None:
    whole = pa.table({"c0": pa.array(range(5000), pa.int64()), "c1": pa.array([{"x": str(n)} for n in range(5000)])})
    parts = [whole, whole.slice(7, 90), pa.concat_tables([whole.slice(3, 5)] * 3), whole.slice(0, 0), whole.slice(9, 1)]
    for part in (*parts, *parts[::-1]):
        found = kernel.compute_columns("c0 + 1 AS a, c1.x AS b, 7 AS c", part)
        assert found["a"].to_pylist() == [n + 1 for n in part["c0"].to_pylist()]
        assert found["b"].to_pylist() == [row["x"] for row in part["c1"].to_pylist()]
        assert found["c"].to_pylist() == [7] * part.num_rows


class OtherDuckDB:
    """A connection of a release in which the function that returns Arrow directly is another one, or is absent."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, directly: object) -> None:
        self._connection = connection
        if directly is not None:
            self._submit = directly

    def sql(self, text: str) -> object:
        return self._connection.sql(text)

    def execute(self, text: str) -> object:
        return self._connection.execute(text)


@pytest.mark.parametrize("directly", [None, lambda sql: sql, lambda *_: "rows"], ids=["absent", "other", "no Arrow"])
def test_another_duckdb_returns_the_same_rows_with_its_public_function(
    directly: object,
) -> None:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("PREPARE query AS SELECT n, n // 2 AS half, {'x': n::VARCHAR} AS s FROM range(300_000) t(n)")
    fast = table_function(connection)
    slow = table_function(OtherDuckDB(connection, directly))  # type: ignore[arg-type]
    assert (fast.__name__, slow.__name__) == ("run_directly", "run_publicly")
    rows = fast("EXECUTE query")
    assert rows["half"].to_pylist() == [n // 2 for n in range(300_000)]
    assert rows.equals(slow("EXECUTE query"))


def test_one_text_over_columns_of_other_types_is_another_query(kernel: Kernel) -> None:
    for values, kind in (([1, 2], pa.int32()), ([1.5, 2.5], pa.float64()), ([1, 2], pa.int64())):
        assert kernel.compute_columns("c0 AS a", pa.table({"c0": pa.array(values, kind)}))["a"].to_pylist() == values


def test_a_query_works_after_a_row_on_which_it_raised(kernel: Kernel) -> None:
    for divisor, fails in ((1, False), (0, True), (1, False), (0, True)):
        rows = pa.table({"c0": pa.array([6], pa.int64()), "c1": pa.array([divisor], pa.int64())})
        if fails:
            with pytest.raises(RowError):
                kernel.project_columns(rows, [QUOTIENT], ["bigint"])
        else:
            assert kernel.project_columns(rows, [QUOTIENT], ["bigint"])["c0"].to_pylist() == [6]


def test_the_least_recently_used_queries_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module, "_MOST_PREPARED", 3)
    kernel, rows = Kernel(), pa.table({"c0": pa.array([5], pa.int64())})
    for more in (0, 1, 0, 2, 0, 3, 4, 1, 0):
        assert kernel.compute_columns(f"c0 + {more} AS a", rows)["a"].to_pylist() == [5 + more]
    assert [query.columns for query in kernel._prepared] == ["c0 + 4 AS a", "c0 + 1 AS a", "c0 + 0 AS a"]
    shown = kernel._connection.execute("SELECT count(*) FROM duckdb_prepared_statements()").fetchall()
    assert shown == [(3,)]
    kernel.close()


def test_a_query_that_cannot_be_prepared_leaves_nothing_behind(kernel: Kernel) -> None:
    rows, before = pa.table({"c0": pa.array([5], pa.int64())}), len(kernel._prepared)
    for _ in range(2):
        with pytest.raises(KernelError, match="no_such_function"):
            kernel.compute_columns("no_such_function(c0) AS a", rows)
    assert len(kernel._prepared) == before


def test_rows_are_released_after_a_query(kernel: Kernel) -> None:
    before = pa.total_allocated_bytes()
    assert kernel.compute_columns("c0 + 1 AS a", pa.table({"c0": pa.array(np.arange(1_000_000))})).num_rows == 1_000_000
    assert pa.total_allocated_bytes() - before < 1_000_000


@pytest.mark.parametrize("mode", ["ANSI", "TRY"])
@pytest.mark.parametrize(("precision", "scale"), [(16, 0), (18, 2), (38, 0), (38, 10)])
def test_great_doubles_are_decimals_if_their_shortest_text_is_exact(
    kernel: Kernel, mode: str, precision: int, scale: int
) -> None:
    """Each version of Java writes such a text. Of other values, the versions write different ones."""
    chance = random.Random(5)
    values = [2.0**53, 2.0**53 + 2, 1e16 - 2, 1e16, -1e17, 1e22, -7.5e18, float("nan"), float("inf"), None]
    values += [float(chance.randrange(2**53, 10**16)) for _ in range(1000)]
    fits = [v for v in values if v is None or not abs(v) < float("inf") or abs(v) < 10.0 ** (precision - scale)]
    chosen, kind = values if mode == "TRY" else fits, f"decimal({precision},{scale})"
    cast = call("Cast", column(0, "double"), type_name=kind, mode=mode)
    found = kernel.project_columns(pa.table({"c0": pa.array(chosen, pa.float64())}), [cast], [kind])["c0"].to_pylist()
    assert found == [Decimal(repr(v)) if v in fits and v is not None and abs(v) < 1e38 else None for v in chosen]
    if precision == 38:
        with pytest.raises(RowError, match="doubles from 2\\^53 on whose shortest text is not exact"):
            kernel.project_columns(pa.table({"c0": [2.0**57]}), [cast], [kind])


@pytest.mark.parametrize(
    ("mode", "guarded", "value", "advice"),
    [
        ("ANSI", False, 2.0**40, "with try_…, CASE or a filter."),
        ("ANSI", False, 2.0**57, "with CASE or a filter."),  # TRY_CAST raises too
        ("TRY", False, 2.0**57, "with CASE or a filter."),
        ("ANSI", True, 2.0**40, "with CASE or a filter."),  # raised within a TRY_CAST
    ],
)
def test_the_advice_for_a_row_names_no_function_that_is_there(
    kernel: Kernel, mode: str, guarded: bool, value: float, advice: str
) -> None:
    kind = "decimal(10,0)" if value < 2.0**53 else "decimal(20,0)"
    cast: Expr = call("Cast", column(0, "double"), type_name=kind, mode=mode)
    if guarded:
        cast = call("Cast", cast, type_name="int", mode="TRY")
    with pytest.raises(RowError) as raised:
        kernel.project_columns(pa.table({"c0": [value]}), [cast], [cast.type])
    assert str(raised.value).endswith(f"Correct the row, or write the expression {advice}")

"""Each row gets its own answer: random kernels over pieces of every length, compared with plain Python."""

import ast
import datetime
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tussock.jobs.kernels import kernel as kernels
from tussock.jobs.kernels.errors import KernelError
from tussock.jobs.kernels.kernel import Kernel, table_function
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.statestore.types import arrow_type

ROOT = Path(__file__).parents[4]

#: The columns' types, and values of each: in Python, and in a Literal.
TYPES = ("int", "string", "decimal(9,2)", "date", "bigint")
_DAY_0 = datetime.date(1970, 1, 1)
_PHYSICAL: dict[str, Callable[[Any], Any]] = {"decimal(9,2)": str, "date": lambda day: (day - _DAY_0).days}
_VALUES: dict[str, list[Any]] = {
    "int": list(range(-3, 60)),
    "bigint": list(range(-3, 60)),
    "string": [*(str(i) for i in range(58)), "", "ß", "'"],
    "decimal(9,2)": [Decimal(i) / 4 for i in range(60)],
    "date": [_DAY_0 + datetime.timedelta(i - 3) for i in range(60)],
}
DISTINCT_ROWS = 256
PIECES = (1, 7, 2_048, 2_049, 100_000)
_MOST_ITEMS = 50

Eval = Callable[[Sequence[Any]], Any]
Kerneled = tuple[Expr, Eval]  # an expression, and the same in Python


class Maker:
    """Random expressions around IN, each with its meaning in Python.

    NULL is None, and a function of a row gives the value.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def boolean(self, depth: int) -> Kerneled:
        kind = self.random.choice(
            ["in"] * 5 + (["not", "and", "or", "case", "in_of_in", "guarded", "is_null"] if depth else [])
        )
        if kind == "in":
            return self._in(*self.value(self.random.choice(TYPES), depth))
        if kind == "in_of_in":
            return self._in(*self.boolean(depth - 1))
        if kind == "guarded":
            return self._guarded(self.boolean(depth - 1))
        (one, f), (other, g), (third, h) = (self.boolean(depth - 1) for _ in range(3))
        match kind:
            case "not":
                return Call("Not", "boolean", (one,)), lambda row: None if (v := f(row)) is None else not v
            case "is_null":
                return Call("IsNull", "boolean", (one,)), lambda row: f(row) is None
            case "and":
                return Call("And", "boolean", (one, other)), lambda row: _all_of(f(row), g(row))
            case "or":
                return Call("Or", "boolean", (one, other)), lambda row: _any_of(f(row), g(row))
            case _:
                return Call("CaseWhen", "boolean", (one, other, third)), lambda row: g(row) if f(row) else h(row)

    def value(self, kind: str, depth: int) -> Kerneled:
        """A value of a type: a column, or a choice between two."""
        if not depth or self.random.random() < 0.6:
            place = TYPES.index(kind)
            return Column(place, kind), lambda row: row[place]
        (condition, f), (one, g), (other, h) = (
            self.boolean(depth - 1),
            self.value(kind, depth - 1),
            self.value(kind, depth - 1),
        )
        return Call("CaseWhen", kind, (condition, one, other)), lambda row: g(row) if f(row) else h(row)

    def _in(self, value: Expr, f: Eval) -> Kerneled:
        kind = value.type
        several = [True, False] if kind == "boolean" else _VALUES[kind]
        items = self.random.choices(several, k=self.random.randint(1, _MOST_ITEMS))
        items += [None] * (self.random.random() < 0.2)
        self.random.shuffle(items)
        known, has_null = set(items) - {None}, None in items
        literals = [Literal(None if item is None else _PHYSICAL.get(kind, lambda v: v)(item), kind) for item in items]

        def is_in(row: Sequence[Any]) -> bool | None:
            if (v := f(row)) is None:
                return None
            return True if v in known else None if has_null else False

        return Call("In", "boolean", (value, *literals)), is_in

    def _guarded(self, otherwise: Kerneled) -> Kerneled:
        """`CASE WHEN c4 <> 0 THEN 100 div c4 IN (…) ELSE … END`: the value raises on rows that the CASE omits."""
        divisor = Column(4, "bigint")
        quotient = Call("IntegralDivide", "bigint", (Literal(100, "bigint"), divisor), "ANSI")
        found, f = self._in(
            quotient, lambda row: None if row[4] is None else abs(100) // abs(row[4]) * (1 if row[4] > 0 else -1)
        )
        other, g = otherwise
        is_zero = Call("EqualTo", "boolean", (divisor, Literal(0, "bigint")))
        return Call("CaseWhen", "boolean", (is_zero, other, found)), lambda row: g(row) if row[4] == 0 else f(row)


def _all_of(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _any_of(a: bool | None, b: bool | None) -> bool | None:
    return True if a or b else None if a is None or b is None else False


class Rows:
    """Rows drawn from a few distinct ones, so that Python computes each once."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.distinct = [[draw.choice([*_VALUES[kind], None]) for kind in TYPES] for _ in range(DISTINCT_ROWS)]
        columns = zip(*self.distinct, strict=True)
        arrays = [pa.array(c, arrow_type(t)) for c, t in zip(columns, TYPES, strict=True)]
        self._table = pa.table(arrays, [f"c{i}" for i in range(len(TYPES))])
        self._numbers = np.random.default_rng(seed)

    def pieces(self, lengths: Sequence[int]) -> tuple[pa.Table, np.ndarray]:
        """(sum(lengths), …) in Arrow pieces of these lengths, and the number of each row's distinct row."""
        which = self._numbers.integers(0, DISTINCT_ROWS, sum(lengths))
        ends = np.cumsum(lengths)
        parts = [
            self._table.take(pa.array(which[end - n : end])).combine_chunks()
            for n, end in zip(lengths, ends, strict=True)
        ]
        return pa.concat_tables(parts), which


def differences(kernel: Kernel, made: Sequence[Kerneled], rows: Rows, lengths: Sequence[int]) -> list[str]:
    """Rows on which `project` or `filter` differs from Python."""
    table, which = rows.pieces(lengths)
    found = kernel.project_columns(table, [expr for expr, _ in made], ["boolean"] * len(made))
    wrong = []
    for i, (expr, in_python) in enumerate(made):
        expected = pa.array([in_python(row) for row in rows.distinct], pa.bool_()).take(pa.array(which))
        if not found[f"c{i}"].combine_chunks().equals(expected):
            wrong.append(f"project {lengths}: {expr}")
        if i % 2 == 0 and not kernel.filter_rows(table, expr).equals(table.filter(expected)):
            wrong.append(f"filter {lengths}: {expr}")
    return wrong


@pytest.fixture(scope="module")
def kernel() -> Any:
    kernel = Kernel()
    yield kernel
    kernel.close()


def test_random_kernels_over_pieces_of_all_lengths_give_each_row_its_own_answer(kernel: Kernel) -> None:
    """The short pieces in all orders, and the long one first, in the middle and last."""
    rows = Rows(1)
    orders = [*itertools.permutations(PIECES[:-1]), (100_000, 1), (1, 100_000, 7), (7, 1, 100_000)]
    for i, lengths in enumerate(orders):
        made = [Maker(i).boolean(i % 3)]
        assert differences(kernel, made, rows, lengths) == []


@pytest.mark.deep
def test_a_thousand_random_kernels_over_pieces_in_all_orders(kernel: Kernel) -> None:
    rows, orders = Rows(2), list(itertools.permutations(PIECES))
    for i in range(250):
        made = [Maker(10_000 + 4 * i + n).boolean(3) for n in range(4)]
        assert differences(kernel, made, rows, orders[i % len(orders)]) == []


def test_no_expression_makes_a_plan_that_moves_rows(kernel: Kernel) -> None:
    """The kernel restores the order for a plan with another operator.

    Such a plan also computes the rows that a CASE excludes, so no expression may need one.
    """
    table = Rows(3).pieces([100_000])[0]
    for seed in range(16):
        columns = kernels._columns_text((Maker(seed).boolean(2)[0],))
        assert kernel._prepared_for(columns, table.schema).keeps_order, columns


def test_a_plan_that_moves_rows_is_put_in_order(kernel: Kernel) -> None:
    values = np.random.default_rng(4).permutation(5_000)
    rows = pa.concat_tables([pa.table({"a": values[:3]}), pa.table({"a": values[3:]})])
    assert kernel.compute_columns("row_number() OVER (ORDER BY a) AS r", rows)["r"].to_pylist() == [
        v + 1 for v in values.tolist()
    ]
    assert kernel.compute_columns("a + 1 AS b", rows)["b"].to_pylist() == [v + 1 for v in values.tolist()]


def test_a_mark_join_is_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's rule for long lists of constants would move rows; the kernel disables it."""
    joins = Kernel()
    joins._connection = duckdb.connect(":memory:", config={"threads": 1})
    joins._table_of = table_function(joins._connection)
    rows = pa.concat_tables([pa.table({"a": range(n)}) for n in (3, 2_048, 1, 7)])
    asked = "a IN (1, 2, 3, 4, 5, 6, 7) AS b"
    expected = [1 <= a <= 7 for a in rows["a"].to_pylist()]
    assert joins.compute_columns(asked, rows)["b"].to_pylist() == expected
    monkeypatch.setattr(
        kernels, "_KEEP_ORDER", frozenset({"PROJECTION", "PYTHON_ARROW_SCAN", "HASH_JOIN", "COLUMN_DATA_SCAN"})
    )
    joins._prepared.clear()
    assert joins.compute_columns(asked, rows)["b"].to_pylist() != expected, (
        "the fault that this file looks for is not in this DuckDB: change the test"
    )
    joins.close()


@pytest.mark.parametrize("rows", [1, 3])
def test_another_number_of_rows_is_an_error(kernel: Kernel, rows: int) -> None:
    with pytest.raises(KernelError, match=f"expected {rows} rows, each once, DuckDB returned {2 * rows}"):
        kernel.compute_columns("unnest([a, a]) AS b", pa.table({"a": range(rows)}))


def test_constant_rows_are_in_their_order(kernel: Kernel) -> None:
    numbers = list(range(500, 0, -1))
    found = kernel.make_constants([numbers, [str(n) for n in numbers]], ["int", "string"])
    assert found.to_pydict() == {"c0": numbers, "c1": [str(n) for n in numbers]}


def test_nothing_but_the_kernel_computes_rows_by_duckdb() -> None:
    """A sink's difference uses DuckDB too; it sorts the result. No epoch uses the others: queries, syntax, previews."""
    imports = [
        (file, node) for file, tree in _code("import duckdb") for node in ast.walk(tree) if isinstance(node, ast.Import)
    ]
    assert {file for file, node in imports if "duckdb" in [a.name for a in node.names]} == {
        "jobs/kernels/kernel.py",
        "jobs/reading/duck_query.py",
        "jobs/reading/duck_syntax.py",
        "jobs/reading/duck_zones.py",
        "jobs/sinks/difference.py",
        "jobs/sources/envelopes.py",  # it sorts by the row position
        "jobs/sources/preview.py",
    }


def test_arrow_groups_rows_in_one_thread_and_joins_none() -> None:
    """With several threads, groups come in any order. The rows of a join do so even with one thread."""
    calls = [
        (file, node) for word in ("group_by", "join_type") for file, tree in _code(word) for node in ast.walk(tree)
    ]
    grouped = 0
    for file, node in calls:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            options = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if node.func.attr == "group_by":
                grouped += 1
                assert options.get("use_threads") == "False", f"{file}:{node.lineno}"
            assert "join_type" not in options, f"{file}:{node.lineno}"
    assert grouped >= 5


def _code(word: str) -> Iterator[tuple[str, ast.Module]]:
    """The engine's files that contain a word."""
    for file in sorted(path for room in ("jobs", "statestore") for path in (ROOT / room).rglob("*.py")):
        if word in (text := file.read_text()):
            yield str(file.relative_to(ROOT)), ast.parse(text)

"""Summaries of conditions over a chunk, compared with the kernel's result for each row."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tussock.jobs.kernels import outcomes
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel, thread_kernel
from tussock.jobs.kernels.outcomes import ChunkValues, over_columns
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.statestore.types import arrow_type

NAN = float("nan")
#: Values of each column, and constants of its type, in physical form; some constants equal no value.
COLUMNS: dict[str, tuple[list[Any], list[bool | int | str | None]]] = {
    "int": ([-3, 0, 1, 7, 2**31 - 1, None], [-3, 0, 2, 7, 2**31 - 1, None]),
    "bigint": ([0, 5, 10**12, None], [0, 4, 10**12]),
    "string": (["", "a", "b", "é", "Z", None], ["", "a", "aa", "é", "z", None]),
    "boolean": ([True, False, None], [True, False, None]),
    "double": ([-0.0, 1.5, float("inf"), NAN, None], ["0.0", "1.5", "-inf", "nan", "2.0"]),
    "float": ([0.1, -0.0, 2.5, None], ["0.1", "0.0", "3.0"]),
    "decimal(9,2)": (["1.10", "-2.00", "0.00", None], ["1.10", "-2.00", "1.11"]),
    "date": ([-1, 0, 19000, None], [-1, 1, 19000]),
    "timestamp": ([-1, 0, 10**15, None], [-1, 1, 10**15]),
    "binary": ([b"", b"a", b"\xff", None], ["", "YQ==", "/w=="]),
}
TYPES = list(COLUMNS)
ORDER = ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")


def boolean(node: str, *args: Expr) -> Call:
    return Call(node, "boolean", args)


def number(name: str, *args: Expr) -> Call:
    return Call(name, "int", args, mode="ANSI")


def some_rows(draw: random.Random, count: int) -> pa.Table:
    columns = []
    for kind, (values, _) in COLUMNS.items():
        drawn = [draw.choice(values) for _ in range(count)]
        plain = {"date": pa.int32(), "timestamp": pa.int64()}.get(kind)
        if kind.startswith("decimal"):
            columns.append(pa.array(drawn, pa.string()).cast(arrow_type(kind)))
        elif plain is not None:
            columns.append(pa.array(drawn, plain).cast(arrow_type(kind)))
        else:
            columns.append(pa.array(drawn, arrow_type(kind)))
    return pa.table([*columns, pa.array([1] * count)], names=[*(f"c{i}" for i in range(len(columns))), "w"])


def computed(draw: random.Random) -> Expr:
    """A value of type int that is not a plain column. Two of three may raise: by an overflow, by a zero."""
    column, constant = Column(0, "int"), Literal(draw.choice([1, 3]), "int")
    return draw.choice(
        [number("BitwiseAnd", column, constant), number("Add", column, constant), number("Remainder", constant, column)]
    )


def part(draw: random.Random) -> Expr:
    """A condition without AND, OR and NOT."""
    place = draw.randrange(len(TYPES))
    kind = TYPES[place]
    value: Expr = Column(place, kind)
    if kind == "int" and draw.random() < 0.4:
        value = computed(draw)
    constants = [Literal(c, kind) for c in COLUMNS[kind][1]]
    match draw.randrange(8):
        case 0:
            return boolean("In", value, *draw.sample(constants, draw.randint(1, len(constants))))
        case 1:
            return boolean("IsNull", value)
        case 2:
            return boolean("IsNotNull", value)
        case 3:
            return Column(TYPES.index("boolean"), "boolean")
        case 4:
            return boolean(draw.choice(ORDER), draw.choice(constants), value)
        case 5:
            return boolean("LessThan", Column(0, "int"), computed(draw))
    return boolean(draw.choice(ORDER), value, draw.choice(constants))


def condition(draw: random.Random, depth: int = 3) -> Expr:
    if not depth or draw.random() < 0.3:
        return part(draw)
    match draw.randrange(5):
        case 0:
            return boolean("Not", condition(draw, depth - 1))
        case 1 | 2:
            return boolean("Or", condition(draw, depth - 1), condition(draw, depth - 1))
    return boolean("And", condition(draw, depth - 1), condition(draw, depth - 1))


def kept(kernel: Kernel, rows: pa.Table, by: Expr) -> int | None:
    """The number of rows that the kernel keeps; None if it raises."""
    try:
        return kernel.filter_rows(rows, by).num_rows
    except RowError:
        return None


def conditions(seed: int, count: int) -> Iterator[tuple[pa.Table, list[Expr], random.Random]]:
    draw = random.Random(seed)
    for _ in range(count):
        yield some_rows(draw, draw.choice([1, 1, 2, 5])), [condition(draw) for _ in range(draw.choice([1, 6]))], draw


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 6))])
def test_a_condition_that_keeps_none_keeps_none_in_the_kernel(seed: int) -> None:
    kernel, none = thread_kernel(), 0
    for rows, some, _ in conditions(seed, 40):
        seen = ChunkValues(rows, kernel, some)
        for one in some:
            if seen.keeps_none(one):
                none += 1
                assert kept(kernel, rows, one) == 0, (one, rows.to_pylist())
    assert none > 20, "or the test shows nothing"


def test_the_answer_for_one_row_of_plain_columns_is_the_kernels() -> None:
    kernel, draw = thread_kernel(), random.Random(5)
    for _ in range(150):
        rows, one = some_rows(draw, 1), condition(draw)
        if _other_ways(one):
            continue
        assert ChunkValues(rows, kernel, [one]).keeps_none(one) is (kept(kernel, rows, one) == 0), (
            one,
            rows.to_pylist(),
        )


def _other_ways(one: Expr) -> bool:
    """Whether a condition reads a double, whose NaN Python compares differently, or needs a query."""
    match one:
        case Column():
            return one.type == "double"
        case Call():
            return one.mode == "ANSI" or any(_other_ways(a) for a in one.args)
    return False


def test_values_of_many_conditions_take_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = thread_kernel()
    rows = pa.table({"c0": pa.array([9], pa.int32()), "c1": ["x"], "w": [1]})
    remainder = number("Remainder", Column(0, "int"), Literal(200, "int"))
    some = [boolean("EqualTo", remainder, Literal(n, "int")) for n in range(200)]
    prefixes = [boolean("StartsWith", Column(1, "string"), Literal(f"y{n}", "string")) for n in range(20)]
    queries: list[str] = []
    in_order = Kernel._in_order

    def counting(self: Kernel, columns: str, rows: pa.Table) -> pa.Table:
        queries.append(columns)
        return in_order(self, columns, rows)

    monkeypatch.setattr(Kernel, "_in_order", counting)
    seen = ChunkValues(rows, kernel, [*some, *prefixes])
    assert [n for n, one in enumerate(some) if not seen.keeps_none(one)] == [9]
    assert all(seen.keeps_none(one) for one in prefixes)
    assert len(queries) <= 2, "one of values that may raise, one of the others"


def test_a_value_that_raises_leaves_the_answer_to_the_filter() -> None:
    kernel = thread_kernel()
    rows = pa.table({"c0": pa.array([0], pa.int32()), "w": [1]})
    rest = boolean("GreaterThan", number("Remainder", Literal(9, "int"), Column(0, "int")), Literal(3, "int"))
    is_one = boolean("EqualTo", Column(0, "int"), Literal(1, "int"))
    unknown = boolean("LessThan", Column(0, "int"), Column(0, "int"))
    some = [rest, boolean("And", is_one, rest), boolean("And", rest, is_one), boolean("And", unknown, rest)]
    for wanted in (some, [*some, *some]):
        seen = ChunkValues(rows, kernel, wanted)
        found = [seen.keeps_none(one) for one in some]
        assert found[:3] == [False, True, False], "only a condition that comes first is a guard"
        assert [kept(kernel, rows, one) for one in some[:3]] == [None, 0, None]


def test_conditions_of_readers_that_take_other_columns_meet() -> None:
    one = boolean("EqualTo", Column(0, "int"), Literal(4, "int"))
    assert over_columns(one, (3, 1)) == boolean("EqualTo", Column(3, "int"), Literal(4, "int"))


def test_every_type_that_a_summary_compares_is_tried_here() -> None:
    assert {t.partition("(")[0] for t in TYPES} >= outcomes._COMPARED - {"tinyint", "smallint", "timestamp_ntz"}

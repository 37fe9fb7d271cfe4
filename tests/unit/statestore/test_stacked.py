"""Stacks of columns give the same values as the columns one by one, and cost a few calls for thousands of columns."""

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.statestore import stacked
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.nested import zero_under_nulls
from tussock.statestore.stacked import (
    FEW_ROWS,
    MOST_BYTES,
    MOST_VALUES,
    arrays_of,
    canonical_columns,
    group_stacks,
    no_rows,
    stack_columns,
    take_rows,
    unstack_columns,
)
from tussock.statestore.types import arrow_type

VALUES: dict[str, list[Any]] = {
    "int": [1, None, -7, 2**31 - 1],
    "double": [0.0, -0.0, float("nan"), None],
    "string": ["", "a", None, "long " * 9],
    "boolean": [True, False, None, True],
    "decimal(12,2)": [Decimal("1.25"), None, Decimal(0), Decimal("-3.5")],
    "array<int>": [[1, None], [], None, [2]],
    "struct<a:int,b:struct<>>": [{"a": 1, "b": {}}, {"a": None, "b": None}, None, {"a": 2, "b": {}}],
    "struct<>": [{}, None, {}, None],
}


def table(seed: int, rows: int, columns: int) -> pa.Table:
    """Columns of all types; some are slices, and some have several chunks."""
    r = random.Random(seed)
    found = []
    for _ in range(columns):
        name = r.choice(list(VALUES))
        values = [r.choice(VALUES[name]) for _ in range(rows + 3)]
        array = pa.array(values, arrow_type(name)).slice(r.randint(0, 3), rows)
        cut = r.randint(0, rows)
        found.append(pa.chunked_array([array.slice(0, cut), array.slice(cut)] if r.random() < 0.3 else [array]))
    return pa.table(found, names=[f"c{i}" for i in range(columns)])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rows", [0, 1, 9, 70])
def test_taken_and_canonical_rows_are_those_of_each_column(
    seed: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked, "MOST_VALUES", [MOST_VALUES, 50][seed % 2])
    given = table(seed, rows, 40)
    places = np.random.default_rng(seed).integers(0, max(rows, 1), 12 if rows else 0)
    nulls = np.random.default_rng(seed).random(len(places)) < 0.3
    for wanted in (places, pa.array(places, mask=nulls)):
        theirs = given.take(wanted if isinstance(wanted, pa.Array) else pa.array(wanted))
        assert repr(take_rows(given, wanted).to_pylist()) == repr(theirs.to_pylist())
    for ours, theirs in zip(canonical_columns(arrays_of(given)), arrays_of(given), strict=True):
        assert (ours.type, repr(ours.to_pylist())) == (theirs.type, repr(zero_under_nulls(theirs).to_pylist()))


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_the_same_if_each_value_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "MOST_VALUES", [MOST_VALUES, 50][seed % 2])
    one = table(seed, 30, 12)
    places = np.where(np.random.default_rng(seed).random(30) < 0.5, np.arange(30), (np.arange(30) + 7) % 30)
    other = one.take(pa.array(places))
    expected = [repr(a) == repr(b) for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)]
    assert same_rows(one, other).tolist() == expected


def test_a_table_of_thousands_of_columns_is_compared_in_a_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    equal = pc.equal
    monkeypatch.setattr(pc, "equal", lambda a, b: calls.append(len(a)) or equal(a, b))
    columns = [pa.array([1, 2, None], [pa.int32(), pa.int64()][i % 2]) for i in range(3_000)]
    wide = pa.table(columns, names=[f"c{i}" for i in range(3_000)])
    assert same_rows(wide, wide).all()
    assert calls == [4_500, 4_500]


def test_a_stack_has_bounded_values_and_bytes() -> None:
    kinds = ["a"] * 70
    assert list(map(len, group_stacks(kinds, FEW_ROWS))) == [32, 32, 6]
    assert group_stacks(kinds, FEW_ROWS + 1) == [[i] for i in range(70)], "columns of many rows are not copied"
    texts = [pa.array(["x" * (MOST_BYTES // 3)])] * 5
    assert list(map(len, group_stacks(kinds[:5], 1, texts))) == [2, 2, 1]


def test_a_stack_comes_apart_into_its_columns() -> None:
    columns = [pa.array([1, None, 3]), pa.array([4, 5, 6])]
    assert [c.to_pylist() for c in unstack_columns(stack_columns(columns), 2)] == [[1, None, 3], [4, 5, 6]]
    assert unstack_columns(stack_columns([pa.array([], pa.int32())] * 3), 3) == [pa.array([], pa.int32())] * 3


def test_a_table_without_rows_is_as_empty_as_arrows() -> None:
    schema = pa.schema([("a", pa.int32()), ("s", arrow_type("struct<x:int>"))])
    nothing = no_rows(schema)
    assert nothing.equals(schema.empty_table())
    assert take_rows(nothing, pa.array([None, None], pa.int64())).to_pylist() == [{"a": None, "s": None}] * 2

"""Key encoding against plain Python's order, and against Spark's ORDER BY."""

import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statestore.hummock.key import ORDERS
from tussock.statestore.hummock.key import (
    KeyRangeError,
    encode_keys,
    encode_prefixes,
    encode_values,
    table_range,
    vnode_range,
)
from tussock.statestore.hummock.sorted_keys import successors
from tussock.statestore.meta.catalog import KeyColumn
from tussock.statestore.types import UnsupportedTypeError, arrow_type
from tussock.statestore.vnode import normalise_floats


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.integers(-3, 3)


ESCAPES = st.binary(max_size=20) | st.lists(st.sampled_from([0, 1, 2, 255]), max_size=6).map(bytes)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "interval day to second": st.timedeltas(timedelta(-100_000_000), timedelta(100_000_000)),
    "interval month": signed(32),
    "tinyint": signed(8),
    "smallint": signed(16),
    "int": signed(32),
    "bigint": signed(64),
    "float": st.floats(width=32) | st.sampled_from([0.0, -0.0]),
    "double": st.floats() | st.sampled_from([0.0, -0.0]),
    "decimal(18,3)": st.decimals(-(10**15) + 1, 10**15 - 1, places=3),
    "decimal(38,10)": st.decimals(-(10**28) + 1, 10**28 - 1, places=10),
    "string": st.text(max_size=12) | st.text("\x00\x01\x02ab", max_size=5),
    "binary": ESCAPES,
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "array<int>": st.lists(st.none() | signed(32), max_size=4),
    "array<array<string>>": st.lists(
        st.none() | st.lists(st.none() | st.text("\x00\x01ab", max_size=3), max_size=3), max_size=3
    ),
    "struct<a:int,b:string>": st.fixed_dictionaries(
        {"a": st.none() | st.integers(-3, 3), "b": st.none() | st.text("\x00\x01ab", max_size=2)}
    ),
    "struct<>": st.just({}),
    "array<struct<>>": st.lists(st.sampled_from([{}, None]), max_size=3),
    "array<struct<a:double,b:boolean>>": st.lists(
        st.none()
        | st.fixed_dictionaries(
            {"a": st.none() | st.floats() | st.sampled_from([0.0, -0.0]), "b": st.none() | st.booleans()}
        ),
        max_size=3,
    ),
}


def plain(value: Any) -> Any:
    """A value that Python orders as Spark does: NaN last, strings by bytes, NULL first in arrays and structs."""
    if isinstance(value, list | dict):
        parts = [value[name] for name in sorted(value)] if isinstance(value, dict) else value
        return [(False, None) if part is None else (True, plain(part)) for part in parts]
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def compare(left: tuple[Any, ...], right: tuple[Any, ...], key: list[KeyColumn]) -> int:
    for a, b, order in zip(left, right, key, strict=True):
        if a is None or b is None:
            if (a is None) != (b is None):
                return (1 if order.nulls_last else -1) * (1 if a is None else -1)
            continue
        x, y = plain(a), plain(b)
        if x != y:
            return (-1 if x < y else 1) * (-1 if order.descending else 1)
    return 0


def encode(names: list[str], rows: list[tuple[Any, ...]], key: list[KeyColumn], vnode: int = 0) -> list[bytes]:
    columns = [pa.array([row[i] for row in rows], arrow_type(name)) for i, name in enumerate(names)]
    keys: list[bytes] = encode_keys(9, np.full(len(rows), vnode, np.uint16), columns, key).to_pylist()
    return keys


def assert_same_order(names: list[str], rows: list[tuple[Any, ...]], key: list[KeyColumn]) -> None:
    keys = encode(names, rows, key)
    for (row, code), (other, other_code) in product(zip(rows, keys, strict=True), repeat=2):
        assert (code > other_code) - (code < other_code) == compare(row, other, key), (row, other)
        assert code == other_code or not other_code.startswith(code)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.sampled(3)
def test_bytes_compare_as_values_of_every_type_and_order(name: str) -> None:
    @given(st.lists(st.none() | VALUES[name], min_size=1, max_size=12))
    @settings(max_examples=60, deadline=None)
    def check(values: list[Any]) -> None:
        for order in ORDERS:
            assert_same_order([name], [(value,) for value in values], [order])

    check()


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_bytes_compare_as_composite_keys_and_prefixes_select_their_keys(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=4))
    pools = [
        data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=3)) for name in names
    ]  # few values: many ties
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from(pool) for pool in pools)), min_size=1, max_size=12))
    key = data.draw(st.lists(st.sampled_from(ORDERS), min_size=len(names), max_size=len(names)))
    assert_same_order(names, rows, key)

    keys = encode(names, rows, key)
    for length in range(len(names) + 1):
        columns = [pa.array([row[i] for row in rows], arrow_type(name)) for i, name in enumerate(names[:length])]
        prefixes = encode_prefixes(9, np.zeros(len(rows), np.uint16), columns, key)
        ends = successors(prefixes).to_pylist()
        for (row, prefix, end), (other, code) in product(
            zip(rows, prefixes.to_pylist(), ends, strict=True), zip(rows, keys, strict=True)
        ):
            same = compare(row[:length], other[:length], key[:length]) == 0
            assert code.startswith(prefix) == same == (prefix <= code < end)


def test_a_key_starts_with_table_and_vnode_and_the_ranges_enclose_it() -> None:
    for table_id, vnode in product((0, 1, 255, 2**32 - 2), (0, 1, 255, 256, 32767)):
        (code,) = encode_keys(table_id, np.array([vnode], np.uint16), [pa.array([-1])], [KeyColumn(0)]).to_pylist()
        assert code[:6] == struct.pack(">IH", table_id, vnode)
        for first, end in (table_range(table_id), vnode_range(table_id, vnode), vnode_range(table_id, 0, vnode + 1)):
            assert first <= code < end
        if vnode:
            assert not vnode_range(table_id, 0, vnode)[0] <= code < vnode_range(table_id, 0, vnode)[1]


def test_the_encoding_is_the_one_written_down() -> None:
    """Golden bytes: stored keys depend on them."""
    head = bytes.fromhex("00000009 0000")
    cases: list[tuple[str, Any, KeyColumn, str]] = [
        ("boolean", True, KeyColumn(0), "01 01"),
        ("tinyint", -1, KeyColumn(0), "01 7f"),
        ("int", 1, KeyColumn(0), "01 80000001"),
        ("int", 1, KeyColumn(0, descending=True), "01 7ffffffe"),
        ("bigint", None, KeyColumn(0), "00 0000000000000000"),
        ("bigint", None, KeyColumn(0, nulls_last=True), "02 0000000000000000"),
        ("double", 1.0, KeyColumn(0), "01 bff0000000000000"),
        ("double", -0.0, KeyColumn(0), "01 8000000000000000"),
        ("double", math.nan, KeyColumn(0), "01 fff8000000000000"),
        ("float", -1.0, KeyColumn(0), "01 407fffff"),
        ("decimal(10,2)", Decimal("1.00"), KeyColumn(0), "01 8000000000000064"),
        ("decimal(20,2)", Decimal("-0.01"), KeyColumn(0), "01 7fffffffffffffff ffffffffffffffff"),
        ("string", "a\x00\x01b", KeyColumn(0), "01 61 0101 0102 62 00"),
        ("string", "ab", KeyColumn(0, descending=True), "01 9e9d ff"),
        ("string", None, KeyColumn(0), "00 00"),
        ("binary", b"", KeyColumn(0), "01 00"),
        ("date", date(1970, 1, 2), KeyColumn(0), "01 80000001"),
        ("timestamp", datetime(1970, 1, 1, tzinfo=UTC), KeyColumn(0), "01 8000000000000000"),
    ]
    for name, value, order, code in cases:
        assert encode([name], [(value,)], [order]) == [head + bytes.fromhex(code)], (name, value)


def test_slices_chunks_no_rows_and_no_columns_encode() -> None:
    key = [KeyColumn(0), KeyColumn(1)]
    texts, numbers = pa.array(["x", "a\x00", None, "b", ""]), pa.array([1, 2, 3, None, 5])
    whole = encode_keys(1, np.zeros(5, np.uint16), [texts, numbers], key).to_pylist()
    assert (
        encode_keys(1, np.zeros(3, np.uint16), [texts.slice(1, 3), numbers.slice(1, 3)], key).to_pylist() == whole[1:4]
    )
    chunked = [pa.chunked_array([a.slice(0, 2), a.slice(2)]) for a in (texts, numbers)]
    assert encode_keys(1, np.zeros(5, np.uint16), chunked, key).to_pylist() == whole
    assert encode_keys(1, np.zeros(0, np.uint16), [texts.slice(0, 0), numbers.slice(0, 0)], key).to_pylist() == []
    assert encode_keys(1, np.zeros(2, np.uint16), [], []).to_pylist() == [bytes.fromhex("000000010000")] * 2
    nulls = encode_keys(1, np.zeros(2, np.uint16), [pa.nulls(2, pa.string())], key[:1]).to_pylist()
    assert nulls == [bytes.fromhex("0000000100000000")] * 2


def test_values_that_fit_no_key_are_refused() -> None:
    with pytest.raises(KeyRangeError, match="table id 4294967295"):
        encode_keys(2**32 - 1, np.zeros(1, np.uint16), [pa.array([1])], [KeyColumn(0)])
    with pytest.raises(KeyRangeError, match="vnode -1"):
        vnode_range(1, -1)
    with pytest.raises(UnsupportedTypeError, match="uint16"):
        encode_keys(1, np.zeros(1, np.uint16), [pa.array([[1]], pa.list_(pa.uint16()))], [KeyColumn(0)])


def test_the_order_used_above_is_the_one_python_sorts_by() -> None:
    def by_key(a: tuple[Any, ...], b: tuple[Any, ...]) -> int:
        return compare(a, b, [KeyColumn(0)])

    rows: list[tuple[Any, ...]] = [(None,), (math.nan,), (1.0,), (-math.inf,)]
    assert sorted(rows, key=cmp_to_key(by_key)) == [(None,), (-math.inf,), (1.0,), rows[1]]


def test_floats_are_one_key_in_values_of_maps_and_several_in_keys_of_maps() -> None:
    """As in Spark 4.2, which normalises the values of maps in keys of GROUP BY, and not their keys."""
    kind = "map<double,array<double>>"
    maps = [{0.0: [0.0]}, {0.0: [-0.0]}, {-0.0: [0.0]}, {math.nan: [math.nan]}, {-1.0: None}]
    column = pa.array([list(entries.items()) for entries in maps], arrow_type(kind))
    zero, other_value, *others = encode_values(column).to_pylist()
    assert zero == other_value
    assert len({zero, *others}) == 4
    assert repr(normalise_floats(column).to_pylist()) == repr([[*e.items()] for e in [maps[0], maps[0], *maps[2:]]])

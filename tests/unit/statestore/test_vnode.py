"""Vnodes against the xxhash package, Java's rules worked out in plain Python, and Spark itself."""

import struct
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.statestore.vnode import EDGES, column
from tussock.statestore import vnode
from tussock.statestore.types import UnsupportedTypeError, arrow_type
from tussock.statestore.vnode import VnodeCountError, normalise_floats, vnodes_of, xxhash64


def packed(fmt: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(fmt, value)


def java_big_integer(value: Decimal) -> bytes:
    unscaled = int(value)
    return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)


# The bytes that Spark hashes, by type; independent of the code under test.
PLAIN: dict[str, Callable[[Any], bytes]] = {
    "boolean": packed("<i"),
    "tinyint": packed("<i"),
    "int": packed("<i"),
    "bigint": packed("<q"),
    "decimal(38,0)": java_big_integer,
    "string": lambda value: value.encode(),
    "binary": bytes,
}


def expected(names: list[str], row: tuple[Any, ...]) -> int:
    seed = 42
    for name, value in zip(names, row, strict=True):
        if value is not None:
            seed = xxhash.xxh64_intdigest(PLAIN[name](value), seed)
    return seed


@pytest.mark.parametrize("name", PLAIN)
def test_the_hash_equals_the_xxhash_package(name: str) -> None:
    assert xxhash64([column(name)]).tolist() == [expected([name], (value,)) for value in EDGES[name]]


LONG = st.builds(lambda part, n: part * n, st.binary(min_size=1, max_size=9), st.integers(20, 200))
ROWS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(max_size=80),
    st.none() | st.binary(max_size=80) | LONG,
)


@given(st.lists(ROWS))
@settings(deadline=None)
def test_columns_are_chained_by_seed_and_null_leaves_it(rows: list[tuple[Any, ...]]) -> None:
    names = ["bigint", "string", "binary"]
    columns = [pa.array([row[i] for row in rows], arrow_type(name)) for i, name in enumerate(names)]
    assert xxhash64(columns).tolist() == [expected(names, row) for row in rows]


def test_a_few_very_long_strings_cost_no_pass_for_each_of_their_words() -> None:
    keys = pa.array(["x" * (4 << 20), "y", "z"])
    start = time.process_time()
    found = xxhash64([keys]).tolist()
    assert time.process_time() - start < 0.2
    assert found == [xxhash.xxh64_intdigest(key.as_py().encode(), 42) for key in keys]


def test_a_sliced_array_hashes_as_its_values() -> None:
    for name in EDGES:
        whole = column(name)
        assert xxhash64([whole.slice(2)]).tolist() == xxhash64([whole]).tolist()[2:], name


@pytest.mark.parametrize("piece", [1, 7])
def test_rows_are_hashed_alike_in_pieces_of_any_size(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [
        pa.array([values[i % len(values)] for i in range(50)], arrow_type(name)) for name, values in EDGES.items()
    ]
    inputs.append(pa.array([None if i % 5 == 0 else list(range(i % 4)) for i in range(50)], arrow_type("array<int>")))
    inputs.append(pa.array([None if i % 3 == 0 else [(i, str(i))] for i in range(50)], arrow_type("map<int,string>")))
    inputs.append(pa.array([None if i % 7 == 0 else {"a": str(i)} for i in range(50)], arrow_type("struct<a:string>")))
    whole = [xxhash64([one, inputs[0]]) for one in inputs]
    monkeypatch.setattr(vnode, "_HASHED", piece)
    for one, expected in zip(inputs, whole, strict=True):
        assert xxhash64([one, inputs[0]]).tolist() == expected.tolist(), one.type


def test_the_vnode_is_the_hash_modulo_the_count() -> None:
    values = pa.array(range(-5000, 5000), pa.int64())
    signed = xxhash64([values]).astype(np.int64).tolist()
    for count in (1, 2, 256, 32768):
        assert vnodes_of([values], count).tolist() == [h % count for h in signed]  # Python's % is pmod
    assert set(vnodes_of([values], 256).tolist()) == set(range(256))


def test_the_empty_distribution_is_vnode_0() -> None:
    assert vnodes_of([], 256, rows=3).tolist() == [0, 0, 0]


def test_equal_floats_hash_alike_and_normalise_keeps_the_rest() -> None:
    odd_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    zeros = pa.array([0.0, -0.0], pa.float64())
    nans = pa.array(odd_nan)
    assert len(set(xxhash64([zeros]).tolist())) == 1
    assert len(set(xxhash64([nans]).tolist())) == 1
    bits = np.asarray(normalise_floats(pa.chunked_array([zeros, nans]))).view(np.uint64).tolist()
    assert bits == [0, 0, 0x7FF8000000000000, 0x7FF8000000000000]
    assert normalise_floats(pa.array([1.5, None, -0.0], pa.float32())).to_pylist() == [1.5, None, 0.0]
    assert normalise_floats(pa.array(["a"])).to_pylist() == ["a"]


def test_a_bad_vnode_count_or_type_is_refused() -> None:
    for count in (0, 3, 65536):
        with pytest.raises(VnodeCountError, match=f"vnode count {count}"):
            vnodes_of([pa.array([1])], count)
    with pytest.raises(UnsupportedTypeError, match="uint16"):
        vnodes_of([pa.array([[1]], pa.list_(pa.uint16()))], 256)


def test_months_hash_as_the_32_bits_that_spark_has() -> None:
    months = [0, 14, -1, 2**31 - 1, -(2**31)]
    expected = [xxhash.xxh64_intdigest(struct.pack("<i", value), 42) for value in months]
    assert xxhash64([pa.array(months, arrow_type("interval year"))]).tolist() == expected

"""RowDigest and NumberCopies: rows without a key, distinguished by their values alone."""

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from tests.support.jobs.executors.harness import Bench, chunk_of
from tussock.jobs.chunks.chunk import chunk_schema
from tussock.jobs.executors.base import ChangeError
from tussock.jobs.executors.number_copies import NumberCopies
from tussock.jobs.executors.row_digest import row_digest_of
from tussock.statestore.objectstore.base import ObjectStore

TYPES = ("bigint", "bigint", "string", "double", "array<double>")
ROWS: list[tuple[Any, ...]] = [
    (None, 5, "ab", 0.0, [1.0]),
    (5, None, "ab", 0.0, [1.0]),
    (5, 5, "a", 0.0, [1.0]),
    (5, 5, "ab", -0.0, [1.0]),
    (5, 5, "ab", 0.0, [1.0]),
    (5, 5, "ab", 0.0, [1.0, None]),
    (5, 5, "ab", 0.0, [-0.0]),
    (5, 5, "ab", 0.0, [0.0]),
    (5, 5, "ab", 0.0, []),
    (5, 5, "ab", 0.0, None),
    (5, 5, None, None, None),
    (None, None, None, None, None),
]


def digests(objects: ObjectStore, types: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[tuple[int, int]]:
    out = Bench(row_digest_of(types), objects).apply(chunk_of(types, [(row, 1) for row in rows]))
    return list(zip(out.column(len(types)).to_pylist(), out.column(len(types) + 1).to_pylist(), strict=True))


def test_rows_that_differ_to_the_bit_have_different_digests_and_equal_ones_the_same(objects: ObjectStore) -> None:
    found = digests(objects, TYPES, [*ROWS, *ROWS])
    assert found[: len(ROWS)] == found[len(ROWS) :]
    for half in zip(*found[: len(ROWS)], strict=True):
        assert len(set(half)) == len(ROWS)


def test_a_digest_is_the_same_in_every_release(objects: ObjectStore) -> None:
    """Computed independently: xxh64 of each value's bytes, with the previous hash as seed.

    The half's number comes first, then a mask of the NULL columns.
    """

    def digest(half: int, nulls: int, *values: bytes) -> int:
        seed = 42
        for data in (struct.pack("<q", half), struct.pack("<q", nulls), *values):
            seed = xxhash.xxh64_intdigest(data, seed=seed)
        return int(np.uint64(seed).astype(np.int64))

    found = digests(objects, ("int", "string"), [(1, "a"), (None, "b")])
    one, null = (0, struct.pack("<i", 1), b"a"), (1, b"b")
    assert found == [(digest(1, *one), digest(2, *one)), (digest(1, *null), digest(2, *null))]


def test_a_row_without_columns_has_a_digest_too(objects: ObjectStore) -> None:
    chunk = pa.table([pa.array([1, 1], pa.int64())], schema=chunk_schema(()))
    out = Bench(row_digest_of(()), objects).apply(chunk)
    assert out.column(0)[0] == out.column(0)[1]


def test_more_deletes_than_copies_of_a_row_are_an_error(objects: ObjectStore) -> None:
    bench, types = (
        Bench(NumberCopies(("string", "bigint", "bigint", "bigint")), objects),
        ("string", "bigint", "bigint"),
    )
    bench.apply(chunk_of(types, [(("a", 1, 1), 1)]))
    with pytest.raises(ChangeError, match="a delete of a row that does not exist"):
        bench.apply(chunk_of(types, [(("a", 1, 1), -2)]))

"""Constant rows: each appears once over all actors, in the view's first epoch only."""

from dataclasses import replace
from itertools import chain

import pytest

from tests.support.jobs.executors.harness import VNODES, kernel, pairs_of
from tussock.jobs.chunks.chunk import chunk_schema
from tussock.jobs.executors.constant import RangeNode, ValuesNode
from tussock.jobs.executors.operator import Actor

FIRST = Actor(kernel(), range(VNODES), VNODES, new=True)


def test_only_the_first_epoch_emits_the_numbered_values() -> None:
    node = ValuesNode(2, ((1, None), ("it's", "é")), ("x", "y"), ("int", "string", "bigint"))
    out = node.make_executor((), FIRST).apply()
    assert out.schema == chunk_schema(node.types)
    assert pairs_of(out) == [((1, "it's", 0), 1), ((None, "é", 1), 1)]
    later = node.make_executor((), replace(FIRST, new=False)).apply()
    assert later.schema == chunk_schema(node.types)
    assert later.num_rows == 0


def test_values_of_structs_keep_the_names_of_their_fields() -> None:
    node = ValuesNode(1, (('[1, [["k", 2]]]',),), ("x",), ("struct<a:int,Of:array<struct<b:string,B:int>>>", "bigint"))
    out = node.make_executor((), FIRST).apply()
    assert out.schema == chunk_schema(node.types)
    assert out.column(0).to_pylist() == [{"a": 1, "Of": [{"b": "k", "B": 2}]}]


def test_no_values_and_no_columns_are_chunks_too() -> None:
    assert ValuesNode(0, ((),), ("x",), ("int", "bigint")).make_executor((), FIRST).apply().num_rows == 0
    assert pairs_of(ValuesNode(1, (), (), ("bigint",)).make_executor((), FIRST).apply()) == [((0,), 1)]


@pytest.mark.parametrize(
    ("start", "end", "step"), [(0, 1000, 1), (5, -5, -3), (0, 3, 1), (7, 7, 1), (2**62, 2**62 + 40, 7)]
)
def test_actors_share_a_range_and_no_number_is_lost_or_doubled(start: int, end: int, step: int) -> None:
    node = RangeNode(start, end, step, "id")
    shares = [range(3), range(3, 11), range(11, VNODES)]
    chunks = [node.make_executor((), replace(FIRST, vnodes=share)).apply() for share in shares]
    found = list(chain.from_iterable(pairs_of(chunk) for chunk in chunks))
    assert sorted(found) == sorted(((n,), 1) for n in range(start, end, step))
    assert node.make_executor((), replace(FIRST, new=False)).apply().num_rows == 0

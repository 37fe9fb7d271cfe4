"""Rows from lists: each element with its position; OUTER adds a row for an empty list. Compared with plain Python."""

import random
from collections import Counter
from typing import Any

import pytest

from tests.support.jobs.executors.harness import Bench, Row, assert_netted, chunk_of
from tussock.jobs.executors.generate import GenerateNode
from tussock.jobs.logical.nodes import Column, Generator
from tussock.statestore.objectstore.base import ObjectStore

INTS = ("int", "array<int>")
STRUCTS = ("int", "array<struct<x:int,y:string>>")
MAPS = ("int", "map<string,int>")


def node(generator: Generator, types: tuple[str, ...], made: tuple[str, ...], outer: bool) -> GenerateNode:
    return GenerateNode(generator, Column(1, types[1]), outer, 2, (*types, *made, "int"))


def expected(rows: list[Row], generator: Generator, made: int, outer: bool) -> Counter[str]:
    """The rows as text, because lists cannot be dict keys."""
    found: Counter[str] = Counter()
    for row in rows:
        elements = row[1] or []
        for place, element in enumerate(elements):
            shown: tuple[Any, ...] = (element,)
            if generator is Generator.POSEXPLODE:
                shown = (place, element)
            elif isinstance(element, dict):
                shown = tuple(element.values())
            elif made == 2:
                shown = element if isinstance(element, tuple) else (None, None)
            found[repr((*row, *shown, place))] += 1
        if outer and not elements:
            found[repr((*row, *([None] * made), 0))] += 1
    return found


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize(
    ("generator", "types", "made"),
    [
        (Generator.EXPLODE, INTS, ("int",)),
        (Generator.POSEXPLODE, INTS, ("int", "int")),
        (Generator.INLINE, STRUCTS, ("int", "string")),
        (Generator.EXPLODE, MAPS, ("string", "int")),
    ],
)
def test_every_element_is_emitted_with_its_position(
    generator: Generator, types: tuple[str, ...], made: tuple[str, ...], outer: bool, objects: ObjectStore
) -> None:
    rng, bench = random.Random(1), Bench(node(generator, types, made, outer), objects)
    held: dict[int, Row] = {}
    content: Counter[str] = Counter()
    for _ in range(9):
        changes: list[tuple[Row, int]] = []
        for key in rng.sample(range(12), 5):
            if key in held:
                changes.append((held.pop(key), -1))
            if rng.random() < 0.7:
                held[key] = (key, some_list(rng, types[1]))
                changes.append((held[key], 1))
        out = bench.apply(chunk_of(types, changes))
        assert_netted(out, (0, len(bench.node.types) - 1))
        for row, weight in zip(
            zip(*(c.to_pylist() for c in out.columns[:-1]), strict=True), out["w"].to_pylist(), strict=True
        ):
            content[repr(row)] += weight
        assert Counter({row: n for row, n in content.items() if n}) == expected(
            list(held.values()), generator, len(made), outer
        )
    assert sum(content.values()) > 3


def test_only_kept_columns_are_copied_for_each_element(objects: ObjectStore) -> None:
    """If the list is an output column too, it is copied once per element."""
    types = ("array<int>", "int", "string")
    bench = Bench(
        GenerateNode(Generator.EXPLODE, Column(0, types[0]), True, 2, ("string", "int", "int", "int"), (2, 1)), objects
    )
    out = bench.apply(chunk_of(types, [(([7, 8], 1, "a"), 1), ((None, 2, "b"), -1)]))
    assert sorted(map(str, out.to_pylist())) == sorted(
        str(dict(zip(out.column_names, row, strict=True)))
        for row in (("a", 1, 7, 0, 1), ("a", 1, 8, 1, 1), ("b", 2, None, 0, -1))
    )


def some_list(rng: random.Random, kind: str) -> list[Any] | None:
    if rng.random() < 0.2:
        return None
    numbers = [rng.choice((None, 1, 2, 3)) for _ in range(rng.randint(0, 3))]
    if kind == INTS[1]:
        return numbers
    if kind == MAPS[1]:
        return [(f"k{i}", n) for i, n in enumerate(numbers)]
    return [None if n is None else {"x": n, "y": None if n == 3 else f"s{n}"} for n in numbers]

"""Materialize: the table is the sum of the changes. Changes that contradict its rows raise named errors."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.reads import count_reads
from tests.support.jobs.executors.harness import VNODES, Bench, Row, assert_netted, chunk_of, integrate, pairs_of
from tussock.jobs.chunks.chunk import to_inserts
from tussock.jobs.executors.base import NO_ROW, TWO_ROWS, ChangeError
from tussock.jobs.executors.materialize import Materialize, _in_key_order
from tussock.jobs.executors.order import Order
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.row_cache import RowCache

TYPES = ("string", "double", "int")
NODE = Materialize(1, (2, 0), (0,), TYPES)
ORDERED = Materialize(1, (2, 0), (0,), TYPES, (Order(1, True, False), Order(0, False, True)))


def _stored(bench: Bench, vnodes: Sequence[int] = range(VNODES)) -> Counter[Row]:
    (table,) = bench.tables()
    content: Counter[Row] = Counter()
    for rows in table.scan(vnodes):
        content = integrate(content, to_inserts(rows))
    return content


@pytest.mark.parametrize("node", [NODE, ORDERED], ids=["by key", "in an order"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_table_is_the_sum_of_the_changes_at_every_epoch(seed: int, node: Materialize, objects: ObjectStore) -> None:
    rng, bench = random.Random(seed), Bench(node, objects)
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    for _ in range(12):
        changes: list[tuple[Row, int]] = []
        for key in rng.sample(range(40), rng.choice((0, 1, 25))):
            if key in live:
                changes.append((live.pop(key), -1))
            if rng.random() < 0.6:
                live[key] = (rng.choice(("a", "b", None)), rng.choice((0.0, -0.0, None, 2.5)), key)
                changes.append((live[key], 1))
        rng.shuffle(changes)
        content = integrate(content, bench.apply(chunk_of(TYPES, changes)))
        assert content == _stored(bench) == Counter(live.values())


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_changes_in_key_order_give_the_same_output_as_in_any_order(
    seed: int, objects: ObjectStore, tmp_path: Path
) -> None:
    rng, ordered, mixed = random.Random(seed), Bench(NODE, objects), Bench(NODE, LocalObjectStore(tmp_path))
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    for epoch in range(12):
        gone: list[Row] = []
        come: list[Row] = []
        for key in rng.sample(range(40), rng.choice((1, 25))):
            if key in live:
                gone.append(live.pop(key))
            if rng.random() < (1.0 if epoch % 3 == 0 else 0.6):
                idle = gone and gone[-1][2] == key and rng.random() < 0.3
                live[key] = gone[-1] if idle else (rng.choice(("a", "b")), rng.choice((0.0, -0.0, None)), key)
                come.append(live[key])
        table = ordered.tables()[0]
        in_order: list[tuple[Row, int]] = []
        for half, weight in ((gone, -1), (come, 1)):
            keys = pa.table(
                [pa.array([r[2] for r in half], "int32"), pa.array([r[0] for r in half], "string")], ["k0", "k1"]
            )
            in_order += [(half[place], weight) for place in table.locate_keys(keys).order]
        if not in_order:
            continue
        chunk = chunk_of(TYPES, in_order)
        assert _in_key_order(chunk, table, NODE.stream_key) is not None
        out = ordered.apply(chunk)
        rng.shuffle(in_order)
        assert sorted(map(repr, pairs_of(out))) == sorted(map(repr, pairs_of(mixed.apply(chunk_of(TYPES, in_order)))))
        assert_netted(out, NODE.stream_key)
        content = integrate(content, out)
        assert content == _stored(ordered) == Counter(live.values())


def test_a_snapshot_of_some_vnodes_and_of_the_others_is_all_rows(objects: ObjectStore) -> None:
    bench = Bench(NODE, objects)
    rows: list[Row] = [(chr(97 + n), float(n), n) for n in range(20)]
    bench.apply(chunk_of(TYPES, [(row, 1) for row in rows]))
    one, two = _stored(bench, range(0, VNODES, 2)), _stored(bench, range(1, VNODES, 2))
    assert min(one.total(), two.total()) > 0
    assert one + two == Counter(rows)


@pytest.mark.parametrize(
    ("changes", "problem", "key"),
    [
        ([(("a", 2.0, 1), 1)], TWO_ROWS, "1, 'a'"),
        ([(("a", 2.0, 5), 1), (("a", 3.0, 5), 1)], TWO_ROWS, "5, 'a'"),
        ([(("a", 1.0, 1), -1), (("a", 2.0, 1), 1), (("a", 3.0, 1), 1)], TWO_ROWS, "1, 'a'"),
        ([(("a", 2.0, 5), 1), (("a", 2.0, 5), 1)], TWO_ROWS, "5, 'a'"),
        ([(("a", 2.0, 5), 2)], TWO_ROWS, "5, 'a'"),
        ([(("b", 2.0, 1), -1)], NO_ROW, "1, 'b'"),
        ([(("a", 7.0, 1), -1)], NO_ROW, "1, 'a'"),
        ([(("a", 1.0, 1), -1), (("a", 1.0, 1), -1)], NO_ROW, "1, 'a'"),
        ([((None, 1.0, 1), -1)], NO_ROW, "1, NULL"),
    ],
)
def test_changes_that_do_not_fit_are_an_error_with_table_and_key(
    changes: list[tuple[Row, int]], problem: str, key: str, objects: ObjectStore
) -> None:
    bench = Bench(NODE, objects)
    bench.apply(chunk_of(TYPES, [(("a", 1.0, 1), 1)]))
    with pytest.raises(ChangeError) as raised:
        bench.apply(chunk_of(TYPES, changes))
    assert raised.value.args == ("rows", problem, key)


def test_rows_of_groups_are_stored_without_a_look_at_stored_rows(objects: ObjectStore) -> None:
    for checked in (True, False):
        bench = Bench(Materialize(1 + checked, (2, 0), (0,), TYPES, checked=checked), objects, RowCache(0))
        bench.apply(chunk_of(TYPES, [(("a", 1.0, 1), 1), (("b", 1.0, 2), 1)]))
        with count_reads() as reads:
            bench.apply(chunk_of(TYPES, [(("c", 1.0, 3), 1), (("b", 1.0, 2), -1)]))
        assert (reads.blocks > 0) == checked
        assert _stored(bench) == Counter([("a", 1.0, 1), ("c", 1.0, 3)])


def test_a_view_of_one_row_without_key_takes_its_updates(objects: ObjectStore) -> None:
    bench = Bench(Materialize(1, (), (), ("bigint",)), objects)
    bench.apply(chunk_of(("bigint",), [((0,), 1)]))
    bench.apply(chunk_of(("bigint",), [((5,), 1), ((0,), -1)]))
    assert _stored(bench) == Counter([(5,)])
    with pytest.raises(ChangeError, match="two live rows"):
        bench.apply(chunk_of(("bigint",), [((6,), 1)]))

"""TemporalFilter under random changes and moments, compared at each epoch with plain Python, which compares every
row.
"""

import operator
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.jobs.executors.harness import Bench, Row, assert_netted, chunk_of, integrate, parse_chunk, show_chunk
from tests.support.zone_rules import ruled_by_python
from tussock.jobs.executors.temporal_filter import TemporalFilterNode
from tussock.jobs.executors.unexpired import Unexpired
from tussock.jobs.logical.nodes import Call, Column, Comparison, Literal
from tussock.statestore.objectstore.base import ObjectStore

TYPES = ("timestamp", "int", "string")
MOMENT = Column(0, "timestamp")
PYTHON = {
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}


def at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


@pytest.mark.parametrize("comparison", Comparison)
@pytest.mark.parametrize(("forgets", "steps"), [(True, (0, 1, 5, 20)), (False, (0, 3, -4, 15))])
@pytest.mark.parametrize("by", [(1,), ()], ids=["by key", "at one actor"])
@pytest.mark.parametrize("sent", [False, True], ids=["all rows", "without expired rows"])
@pytest.mark.sampled(5)
def test_the_present_rows_are_those_that_compare_with_the_moment(
    comparison: Comparison, forgets: bool, steps: tuple[int, ...], by: tuple[int, ...], sent: bool, objects: ObjectStore
) -> None:
    if sent and (not forgets or comparison.lets_in):
        pytest.skip("senders leave nothing out")
    node = TemporalFilterNode(0, comparison, MOMENT, forgets, (1,), by, TYPES)
    rng, bench, sender = random.Random(f"{comparison} {forgets}"), Bench(node, objects), Bench(Unexpired(node), objects)
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    moment = 0
    for epoch in range(25):
        moment += rng.choice(steps)
        changes: list[tuple[Row, int]] = []
        for key in rng.sample(range(40), rng.choice((0, 1, 10))):
            if key in live:
                changes.append((live.pop(key), -1))
            if rng.random() < 0.7:
                value = None if rng.random() < 0.1 else at(rng.choice((moment, moment + rng.randint(-40, 60))))
                live[key] = (value, key, rng.choice("ab"))
                changes.append((live[key], 1))
        rng.shuffle(changes)
        bench.at(moment)
        chunk = chunk_of(TYPES, changes)
        if sent:
            sender.at(moment)
            chunk = sender.apply(chunk)
        emitted = bench.apply(chunk)
        assert_netted(emitted, (1,))
        content = integrate(content, emitted)
        there = [row for row in live.values() if row[0] is not None and PYTHON[comparison](row[0], at(moment))]
        assert content == Counter(there), f"epoch {epoch} at {moment}"
        kept = Counter(
            row
            for table in bench.tables()
            for rows in table.scan()
            for row in zip(*rows.to_pydict().values(), strict=True)
        )
        assert not forgets or all((row in there) != comparison.lets_in for row in kept), (
            "a row that the bound has passed is kept"
        )


DAY = 86_400_000_000


def test_a_bound_is_computed_of_the_moment_by_the_kernels_that_selects_use(objects: ObjectStore) -> None:
    """`day = current_date() - 1`, the upper bound: rows of yesterday or later."""
    today = Call("Cast", "date", (MOMENT,), "ANSI", (("timeZoneId", ruled_by_python("Europe/Berlin")),))
    node = TemporalFilterNode(
        0,
        Comparison.GREATER_OR_EQUAL,
        Call("DateSub", "date", (today, Literal(1, "int"))),
        False,
        (1,),
        (1,),
        ("date", "int"),
    )
    bench = Bench(node, objects)
    noon = 3 * DAY + DAY // 2
    bench.at(noon)
    rows = "+1 | 1970-01-02 1 ; +1 | 1970-01-03 2 ; +1 | 1970-01-04 3 ; +1 | NULL 4"
    assert show_chunk(bench.apply(parse_chunk(rows, node.types))) == "+1 | 1970-01-03 2 ; +1 | 1970-01-04 3"
    evening = 4 * DAY - DAY // 48
    bench.at(evening)  # 23:30 in UTC is the next day in Berlin
    assert show_chunk(bench.apply(parse_chunk("", node.types))) == "-1 | 1970-01-03 2"
    bench.at(evening + 1)
    assert (
        show_chunk(bench.apply(parse_chunk("-1 | 1970-01-03 2 ; -1 | 1970-01-04 3", node.types))) == "-1 | 1970-01-04 3"
    )


def test_an_epoch_at_the_same_moment_reads_no_stored_row(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    node = TemporalFilterNode(0, Comparison.LESS, MOMENT, True, (1,), (1,), TYPES)
    bench = Bench(node, objects)
    bench.at(5)
    bench.apply(chunk_of(TYPES, [((at(9), 1, "a"), 1)]))
    bench.at(5)
    reads: list[int] = []
    monkeypatch.setattr("tussock.statestore.table.state_table.StateTable.scan_between", lambda *_: reads.append(1))
    assert bench.apply(chunk_of(TYPES, [((at(9), 2, "b"), 1)])).num_rows == 0
    assert not reads


def test_senders_omit_exactly_the_expired_rows(objects: ObjectStore) -> None:
    """Rows that leave by the previous moment, rows that enter by this one."""
    node = TemporalFilterNode(0, Comparison.GREATER, MOMENT, True, (1,), (1,), TYPES)
    sender = Bench(Unexpired(node), objects)
    sender.at(5)
    sender.at(10)
    goes = [((at(5), 1, "a"), -1), ((at(6), 2, "a"), -1), ((None, 3, "a"), -1)]
    comes = [((at(10), 4, "a"), 1), ((at(11), 5, "a"), 1), ((None, 6, "a"), 1)]
    sent = sender.apply(chunk_of(TYPES, [*comes, *goes]))
    assert (sent["c1"].to_pylist(), sent["w"].to_pylist()) == ([5, 2], [1, -1])

"""Percentiles, modes and estimates under random inserts and deletes, against Spark's formulas over Python lists."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from math import ceil, floor, isnan
from typing import Any

import pyarrow as pa
import pytest

from tests.support.jobs.executors.harness import NAN, Bench, Row, assert_netted, chunk_of, integrate, pairs_of
from tests.support.jobs.executors.sketch import SKETCH, estimate
from tussock.jobs.executors import percentile, value_walk
from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.base import ChangeError
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.logical.nodes import AggFunction
from tussock.statestore.objectstore.base import ObjectStore as Store
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.schema import KeyedRows
from tussock.statestore.table.state_table import StateTable

TYPES = ("int", "bigint", "double", "decimal(10,2)", "interval day to second", "string", "date", "int", "bigint")
GROUP, WHOLE, REAL, MONEY, SPAN, TEXT, DAY, TIMES, KEY = range(len(TYPES))
SHARES = (0.0, 0.1, 0.5, 0.999, 1.0)


def percentile_call(
    function: str,
    arg: int,
    shares: Sequence[float],
    reverse: bool = False,
    times: int | None = None,
    once: bool = False,
) -> Agg:
    kind = TYPES[arg] if function == "PercentileDisc" or arg == SPAN else "double"
    more = () if times is None else (times,)
    params = (("percentages", ",".join(map(repr, shares))), ("reverse", str(reverse).lower()))
    result = kind if len(shares) == 1 else f"array<{kind}>"
    return Agg(AggFunction(function), arg, TYPES[arg], result, None, more, ("int",) * len(more), once, None, params)


def mode_call(arg: int, prefer: str | None = None, once: bool = False) -> Agg:
    params = () if prefer is None else (("prefer", prefer),)
    return Agg(AggFunction.MODE, arg, TYPES[arg], TYPES[arg], distinct=once, params=params)


ESTIMATE = Agg(AggFunction.APPROX_COUNT_DISTINCT, WHOLE, TYPES[WHOLE], "bigint", params=tuple(sorted(SKETCH.items())))
CALLS = (
    percentile_call("Percentile", WHOLE, (0.5,)),
    percentile_call("Percentile", REAL, (0.3,), reverse=True),
    percentile_call("Percentile", MONEY, SHARES),
    percentile_call("Percentile", SPAN, (0.25,)),
    percentile_call("Percentile", WHOLE, (0.5,), times=TIMES),
    percentile_call("Percentile", WHOLE, SHARES, reverse=True, once=True),
    percentile_call("PercentileDisc", REAL, SHARES),
    percentile_call("PercentileDisc", DAY, (0.7,), reverse=True),
    mode_call(TEXT),
    mode_call(WHOLE, "greatest"),
    mode_call(REAL, "least"),
    mode_call(DAY, "greatest", once=True),
    mode_call(SPAN, once=True),
    ESTIMATE,
)


def agg_node(calls: Sequence[Agg], keys: tuple[int, ...], append_only: bool) -> HashAgg:
    types = (*(TYPES[k] for k in keys), *(call.type for call in calls))
    return HashAgg(TYPES, keys, tuple(calls), (KEY,), append_only, False, types)


# --- the judge -----------------------------------------------------------------------------------


def _order(value: Any) -> Any:
    return (isnan(value), value) if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    return NAN if isinstance(value, float) and isnan(value) else value + 0.0 if isinstance(value, float) else value


def _number(value: Any) -> float:
    return float(value // timedelta(microseconds=1)) if isinstance(value, timedelta) else float(value)


def _interpolate(ordered: Sequence[Any], share: float) -> Any:
    """Spark's Percentile.getPercentile."""
    position = (len(ordered) - 1) * share
    low, high = ordered[floor(position)], ordered[ceil(position)]
    if floor(position) == ceil(position) or _order(low) == _order(high):
        found = _number(low)
    else:
        found = (ceil(position) - position) * _number(low) + (position - floor(position)) * _number(high)
    return timedelta(microseconds=int(found)) if isinstance(low, timedelta) else found


def _expected(call: Agg, rows: Sequence[Row]) -> Any:
    assert call.arg is not None
    if call.more:
        rows = [row for row in rows if row[TIMES] is not None for _ in range(row[TIMES])]
    values = sorted((_plain(row[call.arg]) for row in rows if row[call.arg] is not None), key=_order)
    if call is ESTIMATE:
        return estimate(values)
    if call.distinct:
        values = sorted({_order(v): v for v in values}.values(), key=_order)
    if not values:
        return None
    params = dict(call.params)
    if call.function is AggFunction.MODE:
        times = Counter(values)
        most = [value for value, count in times.items() if count == max(times.values())]
        return max(most, key=_order) if params.get("prefer") == "greatest" else min(most, key=_order)
    ordered = values[::-1] if params["reverse"] == "true" else values
    shares = [float(share) for share in params["percentages"].split(",")]
    if call.function is AggFunction.PERCENTILE_DISC:
        found = [ordered[max(ceil(share * len(ordered)), 1) - 1] for share in shares]
    else:
        found = [_interpolate(ordered, share) for share in shares]
    found = [_plain(v) for v in found]
    return tuple(found) if call.type.startswith("array") else found[0]


def _batch(rows: Counter[Row], keys: Sequence[int], calls: Sequence[Agg]) -> Counter[Row]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows.elements():
        groups[tuple(row[k] for k in keys)].append(row)
    if not keys:
        groups[()]
    return Counter((*group, *(_expected(call, members) for call in calls)) for group, members in groups.items())


# --- random --------------------------------------------------------------------------------------


def _row(rng: random.Random, number: int) -> Row:
    values = (
        rng.choice((rng.randint(-5, 5), rng.randint(-(2**40), 2**40))),
        rng.choice((0.0, -0.0, NAN, float("inf"), rng.randint(-9, 9) / 4, rng.uniform(-1e9, 1e9))),
        Decimal(rng.randint(-500, 500)).scaleb(-2),
        timedelta(microseconds=rng.randint(-(10**6), 10**6)),
        rng.choice("abcdefgh") * rng.randint(0, 2),
        date(2024, 1, 1) + timedelta(days=rng.randint(-60, 60)),
        rng.choice((0, 1, 1, 3, 40)),
    )
    return (rng.choice((1, 1, 1, 2, None)), *(v if rng.random() < 0.9 else None for v in values), number)


def _changes(rng: random.Random, live: list[Row], numbers: "list[int]", deletes: bool) -> list[tuple[Row, int]]:
    """One epoch: a few rows or many, deletes of random rows, of the lowest or of the greatest, or of nearly all."""
    come = [_row(rng, len(numbers) + i) for i in range(rng.choice((0, 1, 3, 30, 200)))]
    numbers.extend(range(len(come)))
    gone: list[Row] = []
    if deletes and live:
        count = min(len(live), rng.choice((0, 1, 2, 20, len(live) - 3)))
        rng.shuffle(live)
        if rng.random() < 0.5:
            live.sort(key=lambda row: (row[WHOLE] is not None, row[WHOLE]), reverse=rng.random() < 0.5)
        gone, live[:] = live[len(live) - count :], live[: len(live) - count]
    live.extend(come)
    changes = [*((row, -1) for row in gone), *((row, 1) for row in come)]
    rng.shuffle(changes)
    return changes


def run_history(bench: Bench, keys: tuple[int, ...], seed: int, epochs: int, deletes: bool) -> None:
    rng, live, numbers = random.Random(seed), list[Row](), list[int]()
    rows, content = Counter[Row](), Counter[Row]()
    node = bench.node
    assert isinstance(node, HashAgg)
    for epoch in range(epochs):
        changes = [(row, -1) for row in live] if deletes and epoch == epochs - 1 else None
        chunk = chunk_of(TYPES, _changes(rng, live, numbers, deletes) if changes is None else changes)
        emitted = bench.apply(chunk)
        assert_netted(emitted, range(len(keys)))
        rows, content = integrate(rows, chunk), integrate(content, emitted)
        assert content == _batch(rows, keys, node.calls), f"seed {seed}, epoch {epoch}"


@pytest.fixture
def short_walks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Walks in groups of any size, in reads of one value and more."""

    def shorten(step: int) -> None:
        monkeypatch.setattr(percentile, "_FEW", 0)
        monkeypatch.setattr(value_walk, "_FIRST_STEP", step)
        monkeypatch.setattr(value_walk, "_LONGER", 2)

    return shorten


@pytest.mark.parametrize("keys", [(GROUP,), ()], ids=str)
@pytest.mark.parametrize("deletes", [True, False])
def test_percentiles_and_modes_equal_the_sorted_lists_at_every_epoch(
    keys: tuple[int, ...], deletes: bool, objects: Store, short_walks: Callable[[int], None]
) -> None:
    short_walks(1)
    run_history(Bench(agg_node(CALLS, keys, not deletes), objects), keys, 1, 8, deletes)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(60))
def test_long_random_histories_equal_the_sorted_lists(
    seed: int, objects: Store, short_walks: Callable[[int], None]
) -> None:
    if seed % 3:
        short_walks(1 + seed % 5)
    keys, deletes = ((GROUP,) if seed % 2 else ()), seed % 5 > 0
    run_history(Bench(agg_node(CALLS, keys, not deletes), objects), keys, 100 + seed, 25, deletes)


# --- costs and edges -----------------------------------------------------------------------------


def _plain_rows(count: int, numbers: int) -> list[Row]:
    """Rows of one group. Texts occur three times, other values once."""
    return [(1, n * 7 % count, n * 13 % count / 8, None, None, f"{n // 3}", None, 1, numbers + n) for n in range(count)]


@pytest.mark.parametrize("call", [*CALLS[:2], CALLS[4], *CALLS[8:11]], ids=lambda call: call.explain_text())
def test_the_values_that_an_epoch_reads_do_not_grow_with_the_group(
    call: Agg, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    for count in (800, 6_400):
        bench = Bench(agg_node((call,), (GROUP,), False), LocalObjectStore(tmp_path_factory.mktemp("store")))
        rows = _plain_rows(count, 0)
        bench.apply(chunk_of(TYPES, [(row, 1) for row in rows]))
        changes = [*((row, -1) for row in rows[:12]), *((row, 1) for row in _plain_rows(20, count))]
        reads.append(0)
        with monkeypatch.context() as patch:
            patch.setattr(StateTable, "scan_between", _counting(StateTable.scan_between, reads))
            bench.apply(chunk_of(TYPES, changes))
    assert reads[1] <= 1.2 * reads[0], reads


def _counting(scan: Callable[..., KeyedRows], reads: list[int]) -> Callable[..., KeyedRows]:
    def scan_and_count(*args: Any) -> KeyedRows:
        found = scan(*args)
        reads[-1] += len(found.index)
        return found

    return scan_and_count


def test_a_state_with_fewer_values_than_its_group_counts_is_an_error(objects: Store) -> None:
    bench = Bench(agg_node(CALLS[:1], (GROUP,), False), objects)
    rows = _plain_rows(40, 0)
    bench.apply(chunk_of(TYPES, [(row, 1) for row in rows]))
    (_, values) = tables = bench.tables()
    values.delete_rows(values.scan_prefix(pa.table({"c0": pa.array([1], pa.int32())})).rows.slice(15))
    bench._commit(tables)
    with pytest.raises(ChangeError, match=r"'agg_distinct_c1', key \(1\): a delete of a row that does not exist"):
        bench.apply(chunk_of(TYPES, [((1, 1_000, *rows[0][2:-1], 100), 1)]))


def test_a_median_of_decimals_is_the_nearest_double(objects: Store) -> None:
    """Arrow's cast of 9.95 to double gives 9.950000000000001."""
    bench = Bench(agg_node((percentile_call("Percentile", MONEY, (0.5,)),), (GROUP,), True), objects)
    row = (1, None, None, Decimal("9.95"), None, None, None, None, 0)
    assert pairs_of(bench.apply(chunk_of(TYPES, [(row, 1)]))) == [((1, 9.95), 1)]


@pytest.mark.parametrize("append_only", [True, False])
@pytest.mark.parametrize(("prefer", "modes"), [("greatest", [5, 7, 9, 9]), ("least", [5, 5, 5, 3])])
def test_of_equally_frequent_values_the_preferred_one_is_the_mode(
    append_only: bool, prefer: str, modes: list[int], objects: Store
) -> None:
    bench = Bench(agg_node((mode_call(WHOLE, prefer),), (), append_only), objects)
    content = Counter[Row]()
    for number, (value, mode) in enumerate(zip((5, 7, 9, 3), modes, strict=True)):
        row = (1, value, *[None] * 6, number)
        content = integrate(content, bench.apply(chunk_of(TYPES, [(row, 1)])))
        assert content == {(mode,): 1}

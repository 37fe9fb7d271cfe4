"""HashAgg under random inserts and deletes, compared at each epoch with groups computed in plain Python."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from math import inf, isnan
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.support.jobs.executors.harness import NAN, Bench, Row, assert_netted, chunk_of, integrate, kernel, pairs_of
from tussock.jobs.chunks.chunk import empty_chunk
from tussock.jobs.executors import partial_agg
from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import AggregateOverflowError
from tussock.jobs.executors.base import ChangeError
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.executors.operator import Actor
from tussock.jobs.executors.partial_agg import PartialAgg, partial_types
from tussock.jobs.executors.value_state import WideSum
from tussock.jobs.logical.nodes import AggFunction
from tussock.statestore import stacked
from tussock.statestore.objectstore.base import ObjectStore as Store
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.table.row_cache import RowCache

NUMERIC = ("int", "double", "tinyint", "bigint", "float", "double", "decimal(7,2)", "decimal(25,3)", "decimal(38,10)")
TYPES = (*NUMERIC, "string", "binary", "boolean", "date", "timestamp", "bigint")
KEY = len(TYPES) - 1  # the stream key, unique per row
NUMBERS = range(2, len(NUMERIC))


def _result_type(function: str, arg_type: str) -> str:
    if function in ("Min", "Max"):
        return arg_type
    if function == "Count":
        return "bigint"
    if arg_type.startswith("decimal"):
        precision, scale = map(int, arg_type[8:-1].split(","))
        more = (10, 0) if function == "Sum" else (4, 4)
        return f"decimal({min(38, precision + more[0])},{min(38, scale + more[1])})"
    return "bigint" if function == "Sum" and arg_type not in ("float", "double") else "double"


def _call(function: str, arg: int | None, mode: str | None = None) -> Agg:
    if arg is None:
        return Agg(AggFunction(function), None, None, "bigint")
    return Agg(AggFunction(function), arg, TYPES[arg], _result_type(function, TYPES[arg]), mode)


SUMS = tuple(_call(f, a) for a in NUMBERS for f in ("Count", "Sum", "Average"))
EXTREMES = tuple(_call(f, a) for a in range(2, KEY) for f in ("Max", "Min"))
CALLS = (_call("Count", None), *SUMS, *EXTREMES)


def agg_node(keys: tuple[int, ...], calls: Sequence[Agg], append_only: bool, partial: bool) -> HashAgg:
    types = (*(TYPES[k] for k in keys), *(c.type for c in calls))
    return HashAgg(TYPES, keys, tuple(calls), (KEY,), append_only, partial, types)


def _senders(node: HashAgg, chunks: Sequence[pa.Table]) -> pa.Table:
    sender = PartialAgg(node.input_types, node.keys, node.calls, node.append_only, ())
    sender = msgspec.structs.replace(sender, types=partial_types(sender))
    executor = sender.make_executor((), Actor(kernel()))
    return pa.concat_tables([empty_chunk(sender.types), *(executor.apply(chunk) for chunk in chunks)])


def _decimal(unscaled: int, scale: int) -> Decimal:
    """All digits, with any precision of the context."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _row(rng: random.Random, number: int) -> Row:
    def one_of(*values: Any) -> Any:
        return rng.choice(values)

    row = (
        one_of(1, 2, 3, None),
        one_of(0.0, -0.0, 1.5, NAN, None),
        rng.randint(-128, 127),
        one_of(2**57 + 1, -(2**57) - 1, rng.randint(-(2**40), 2**40)),  # of both signs, so that sums stay below 2**63
        one_of(0.5, -3.25, 1e30, NAN, inf, rng.randint(-99, 99) / 4),
        one_of(1e40, 1e20, -1e300, 5e-324, -0.0, round(rng.uniform(-100, 100), 2), one_of(NAN, inf, -inf, 7.0)),
        _decimal(rng.randint(-(10**7) + 1, 10**7 - 1), 2),
        _decimal(rng.randint(-(10**25) + 1, 10**25 - 1), 3),
        _decimal(rng.randint(-(10**34), 10**34), 10),
        one_of("", "a", "ß", "😀", "zz"),
        one_of(b"", b"\x00", b"\xff", b"a"),
        one_of(True, False),
        date(2020, 1, 1) + timedelta(days=rng.randint(-9, 9)),
        datetime.fromisoformat("2020-01-01T00:00:00+00:00") + timedelta(seconds=rng.randint(-9, 9)),
    )
    return (*(v if rng.random() < 0.85 else None for v in row), number)


def random_epochs(seed: int, epochs: int, deletes: bool) -> list[list[tuple[Row, int]]]:
    """Random changes; rows are inserted and deleted within one epoch too, in any order."""
    rng = random.Random(seed)
    live: list[Row] = []
    number, out = 0, []
    for _ in range(epochs):
        changes: list[tuple[Row, int]] = []
        for _ in range(rng.choice((0, 1, 5, 40))):
            live.append(_row(rng, number))
            changes.append((live[-1], 1))
            number += 1
        while deletes and live and rng.random() < 0.9:
            changes.append((live.pop(rng.randrange(len(live))), -1))
        rng.shuffle(changes)
        out.append(changes)
    if deletes:  # at last, delete everything
        out.append([(row, -1) for row in live])
    return out


# --- the judge: one group at a time, in exact arithmetic ----------------------------------------


def _batch(rows: Counter[Row], keys: Sequence[int], calls: Sequence[Agg]) -> Counter[Row]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows.elements():
        groups[tuple(_key(row[k]) for k in keys)].append(row)
    if not keys:
        groups[()]
    return Counter((*group, *(_answer(c, members) for c in calls)) for group, members in groups.items())


def _key(value: Any) -> Any:
    return (
        NAN if isinstance(value, float) and isnan(value) else 0.0 if isinstance(value, float) and value == 0 else value
    )


def _answer(call: Agg, rows: list[Row]) -> Any:
    if call.arg is None:
        return len(rows)
    values = [row[call.arg] for row in rows if row[call.arg] is not None]
    if call.function == "Count":
        return len(values)
    if not values:
        return None
    if call.function in ("Min", "Max"):
        return (min if call.function == "Min" else max)(
            values, key=lambda v: (isnan(v), v) if isinstance(v, float) else v
        )
    if call.arg_type in ("float", "double"):
        return _float_answer(call.function, values)
    total = sum((Fraction(v) for v in values), Fraction())
    if call.type == "double":
        return float(total) / len(values)
    if call.type == "bigint":
        return int(total)
    scale = int(call.type[:-1].split(",")[1])
    quotient = total if call.function == "Sum" else total / len(values)
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(quotient.numerator) / Decimal(quotient.denominator)
        return exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)


def _float_answer(function: str, values: list[float]) -> float:
    plus, minus = inf in values, -inf in values
    if any(isnan(v) for v in values) or (plus and minus):
        return NAN
    total = inf if plus else -inf if minus else float(sum(Fraction(v) for v in values))
    return total if function == "Sum" else total / len(values)


# --- random -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [(0,), (1,), (0, 1, 9), (7, 10, 11), ()], ids=str)
@pytest.mark.parametrize(("append_only", "partial"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.sampled(6)
def test_groups_equal_the_batch_answer_at_every_epoch(
    keys: tuple[int, ...], append_only: bool, partial: bool, objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if append_only:  # in parts of two rows
        monkeypatch.setattr(partial_agg, "_PART_ROWS", 2)
        monkeypatch.setattr(partial_agg, "_FEWER", 1)
    calls = CALLS if append_only or not partial else CALLS[: 1 + len(SUMS)]
    node = agg_node(keys, calls, append_only, partial)
    bench = Bench(node, objects)
    rows: Counter[Row] = Counter()
    content: Counter[Row] = Counter()
    for changes in random_epochs(len(keys) + 10 * partial, 7, not append_only):
        if partial:
            halves = [chunk_of(TYPES, changes[:7]), chunk_of(TYPES, changes[7:])]
            emitted = bench.apply(_senders(node, halves))
        else:
            emitted = bench.apply(chunk_of(TYPES, changes))
        rows = integrate(rows, chunk_of(TYPES, changes))
        assert_netted(emitted, range(len(keys)))
        content = integrate(content, emitted)
        assert content == _batch(rows, keys, calls)


def test_the_output_does_not_depend_on_the_order_of_the_input(tmp_path_factory: pytest.TempPathFactory) -> None:
    node = agg_node((0,), CALLS, False, False)
    benches = [Bench(node, LocalObjectStore(tmp_path_factory.mktemp("store"))) for _ in range(2)]
    for epoch, changes in enumerate(random_epochs(3, 5, True)):
        shuffled = random.Random(epoch).sample(changes, len(changes))
        one, two = (bench.apply(chunk_of(TYPES, c)) for bench, c in zip(benches, (changes, shuffled), strict=True))
        assert Counter(pairs_of(one)) == Counter(pairs_of(two))


@pytest.mark.deep
def test_the_output_does_not_depend_on_the_process_s_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    node = agg_node((0, 9), CALLS, False, False)
    caches = {"much": RowCache(), "one entry": RowCache(300), "a few": RowCache(10_000), "nothing": RowCache(0)}
    benches = [Bench(node, LocalObjectStore(tmp_path_factory.mktemp("store")), cache) for cache in caches.values()]
    for changes in random_epochs(5, 6, True):
        first, *others = (bench.apply(chunk_of(TYPES, changes)) for bench in benches)
        assert all(repr(pairs_of(other)) == repr(pairs_of(first)) for other in others)
    hits = {name: cache.counts.hits for name, cache in caches.items()}
    assert hits["nothing"] == 0 < hits["a few"] < hits["much"], hits


# --- edges --------------------------------------------------------------------------------------


def _rows(column: int, *values: Any) -> list[Row]:
    """Rows of group 1 with a value in one column."""
    places = range(len(TYPES))
    return [tuple({0: 1, column: value, KEY: n}.get(i) for i in places) for n, value in enumerate(values)]


def test_a_sum_may_overflow_on_its_way_but_not_in_its_end(objects: Store) -> None:
    bench = Bench(agg_node((0,), (_call("Sum", 3),), False, False), objects)
    big, small = _rows(3, 2**63 - 1, 5)
    minus = (*small[:3], -(2**63) + 1, *small[4:])
    assert pairs_of(bench.apply(chunk_of(TYPES, [(big, 1), (small, 1), (minus, 1)]))) == [((1, 5), 1)]
    with pytest.raises(AggregateOverflowError, match=r"Sum for group \(1\) does not fit bigint"):
        bench.apply(chunk_of(TYPES, [(minus, -1)]))


def test_try_sum_that_overflows_is_null_and_recovers(objects: Store) -> None:
    bench = Bench(agg_node((0,), (_call("Sum", 3, "TRY"), _call("Sum", 8, "TRY")), False, False), objects)
    one, two = _rows(3, 2**63 - 1, 1)
    wide = tuple(_decimal(10**38 - 1, 10) if i == 8 else v for i, v in enumerate(one))
    also = tuple(_decimal(10**38 - 1, 10) if i == 8 else v for i, v in enumerate(two))
    bench.apply(chunk_of(TYPES, [(wide, 1)]))
    assert (((1, None, None)), 1) in pairs_of(bench.apply(chunk_of(TYPES, [(also, 1)])))
    assert ((1, 1, wide[8]), 1) in pairs_of(bench.apply(chunk_of(TYPES, [(wide, -1)])))


@pytest.mark.parametrize("function", ["Sum", "Average"])
def test_a_decimal_that_does_not_fit_names_its_group(function: str, objects: Store) -> None:
    bench = Bench(agg_node((0,), (_call(function, 8),), False, False), objects)
    nines = _decimal(10**38 - 1, 10)  # the average has four more places, which do not fit in 38 digits
    with pytest.raises(AggregateOverflowError, match=rf"{function} for group \(1\) does not fit decimal\(38,"):
        bench.apply(chunk_of(TYPES, [(row, 1) for row in _rows(8, nines, nines)]))


def test_an_average_of_decimals_rounds_half_away_from_zero(objects: Store) -> None:
    bench = Bench(agg_node((0,), (_call("Average", 6),), False, False), objects)
    values = [Decimal("0.01"), *[Decimal("0.00")] * 15999]  # 0.000000625
    assert pairs_of(bench.apply(chunk_of(TYPES, [(row, 1) for row in _rows(6, *values[:16])]))) == [
        ((1, Decimal("0.000625")), 1)
    ]
    (emitted,) = (
        w for w in pairs_of(bench.apply(chunk_of(TYPES, [(r, 1) for r in _rows(6, *values)[16:]]))) if w[1] == 1
    )
    assert emitted[0][1] == Decimal("0.000001")


def test_a_group_that_loses_more_rows_than_it_has_is_an_error_with_table_and_key(objects: Store) -> None:
    bench = Bench(agg_node((0, 9), (_call("Count", None),), False, False), objects)
    row = tuple("x" if i == 9 else v for i, v in enumerate(_rows(3, 1)[0]))
    with pytest.raises(ChangeError, match=r"'agg_values', key \(1, 'x'\): a delete of a row that does not exist"):
        bench.apply(chunk_of(TYPES, [(row, -1)]))


def test_a_group_key_of_minus_zero_becomes_zero(objects: Store) -> None:
    bench = Bench(agg_node((1,), (_call("Count", None),), True, False), objects)
    rows = [
        tuple(v if i == 1 else n if i == KEY else None for i in range(len(TYPES))) for n, v in enumerate((-0.0, 0.0))
    ]
    ((zero, count), _), *rest = pairs_of(bench.apply(chunk_of(TYPES, [(row, 1) for row in rows])))
    assert (str(zero), count, rest) == ("0.0", 2, [])


def test_calls_over_one_column_share_their_sum_and_count() -> None:
    node = agg_node((0,), (_call("Sum", 3), _call("Average", 3), _call("Count", 3), _call("Count", None)), False, False)
    (table,) = Bench(node, None).schemas  # type: ignore[arg-type]
    assert [c.type for c in table.columns] == ["int", "bigint", "decimal(38,0)", "bigint"]  # key, rows, sum, values


WIDE = ("int", *("bigint", "double", "decimal(7,2)", "string") * 12, "bigint")


def _wide_row(rng: random.Random, number: int) -> Row:
    values = (
        rng.choice([-(2**62), 7, 0]),
        rng.choice([0.1, -1e300, inf, NAN]),
        _decimal(rng.randint(-999, 999), 2),
        "a",
    )
    return (rng.randint(0, 2), *(None if rng.random() < 0.2 else values[i % 4] for i in range(len(WIDE) - 2)), number)


@pytest.mark.parametrize(("append_only", "partial"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("keys", [(0,), (0, 1), ()], ids=str)
@pytest.mark.parametrize("limit", [stacked.MOST_VALUES, 30])
def test_calls_that_differ_only_in_their_column_are_computed_together(
    append_only: bool, partial: bool, keys: tuple[int, ...], limit: int, objects: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked, "MOST_VALUES", limit)
    added: list[int] = []
    add = WideSum.add_change
    monkeypatch.setattr(WideSum, "add_change", lambda s, old, new: added.append(len(old[0])) or add(s, old, new))
    functions = ("Sum", "Average", "Count") if partial and not append_only else ("Sum", "Average", "Count", "Max")
    calls = [
        Agg(AggFunction(f), a, WIDE[a], _result_type(f, WIDE[a]), "TRY" if f == "Sum" else None)
        for f in functions
        for a in range(1, len(WIDE) - 1)
        if f in ("Count", "Max") or WIDE[a] != "string"
    ]
    types = (*(WIDE[k] for k in keys), *(c.type for c in calls))
    node = HashAgg(WIDE, keys, tuple(calls), (len(WIDE) - 1,), append_only, partial, types)
    bench, rng = Bench(node, objects), random.Random(1)
    rows, content = Counter[Row](), Counter[Row]()
    for epoch in range(3):
        gone = [] if append_only else rng.sample(sorted(rows, key=repr), len(rows) // 3)
        come = [_wide_row(rng, 20 * epoch + i) for i in range(9)]
        chunk = chunk_of(WIDE, [*((row, -1) for row in gone), *((row, 1) for row in come)])
        added.clear()
        emitted = bench.apply(_senders(node, [chunk]) if partial else chunk)
        assert limit == 30 or len(added) == 2, "one addition for all sums of bigint, and one for all of decimals"
        rows, content = integrate(rows, chunk), integrate(content, emitted)
        assert {row[: len(keys)]: row for row in content} == {
            row[: len(keys)]: tuple(v if not isinstance(v, int) or -(2**63) <= v < 2**63 else None for v in row)
            for row in _batch(rows, keys, calls)
        }

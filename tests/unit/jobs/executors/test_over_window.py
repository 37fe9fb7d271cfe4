"""OverWindow under random changes, compared at each epoch with plain Python, which evaluates every frame literally."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cmp_to_key, reduce
from statistics import median
from typing import Any

import msgspec
import pytest

from tests.support.jobs.executors.harness import NAN, Bench, Row, assert_netted, chunk_of, integrate, pairs_of
from tests.support.jobs.executors.sketch import SKETCH, estimate
from tussock.jobs.executors import over_window, window_aggregates, window_values
from tussock.jobs.executors.agg_result import AggregateOverflowError
from tussock.jobs.executors.base import NO_ROW, TWO_ROWS, ChangeError
from tussock.jobs.executors.order import Order
from tussock.jobs.executors.over_window import OverWindow
from tussock.jobs.executors.window_call import FrameEnd, Over
from tussock.jobs.logical.nodes import FrameEdge, WindowFunction
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.table.schema import KeyedRows
from tussock.statestore.table.state_table import StateTable

# Columns: group, order, stream key, int, double, string, decimal, order - 2, order + 2, order + 1 or more, two
# doubles without extremes, a FILTER.
TYPES = (
    "int",
    "int",
    "bigint",
    "int",
    "double",
    "string",
    "decimal(30,2)",
    "int",
    "int",
    "int",
    "double",
    "double",
    "boolean",
)
GROUP, ORDER, KEY, INT, DOUBLE, STRING, DECIMAL, BEHIND, AHEAD, FAR, X, Y, KEPT = range(13)
BEGIN = END = FrameEnd(FrameEdge.UNBOUNDED)
HERE = FrameEnd(FrameEdge.CURRENT)
F = WindowFunction
WIDE = Context(prec=80, rounding="ROUND_HALF_UP")


def rows_at(n: int) -> FrameEnd:
    return FrameEnd(FrameEdge.OFFSET, n)


def at_value(column: int) -> FrameEnd:
    return FrameEnd(FrameEdge.OFFSET, 0, column)


def over(
    function: WindowFunction,
    arg: int | None = None,
    kind: str = "int",
    frame: tuple[bool, FrameEnd, FrameEnd] = (True, BEGIN, HERE),
    number: int = 0,
    ignore: bool = False,
    default: int | None = None,
) -> Over:
    args = tuple(a for a in (arg, default) if a is not None)
    return Over(function, args, None if arg is None else TYPES[arg], kind, *frame, number, ignore)


def kept(call: Over) -> Over:
    """The same for the rows that pass a FILTER."""
    return msgspec.structs.replace(call, filter_column=KEPT)


def agg(
    function: WindowFunction,
    args: tuple[int, ...],
    kind: str,
    frame: tuple[bool, FrameEnd, FrameEnd],
    order: tuple[Order, ...] = (),
    **params: str,
) -> Over:
    more = tuple(TYPES[a] for a in args[1:])
    return Over(
        function, args, TYPES[args[0]], kind, *frame, more_types=more, params=tuple(params.items()), order=order
    )


def node(
    calls: Sequence[Over],
    partition: tuple[int, ...] = (GROUP,),
    order: tuple[Order, ...] = (Order(ORDER, False, False),),
) -> OverWindow:
    return OverWindow(partition, order, (KEY,), partition, tuple(calls), TYPES, (*TYPES, *(c.type for c in calls)))


# --- the same in plain Python -------------------------------------------------------------------


def compare(a: Any, b: Any, by: Order) -> int:
    """Spark's order: NULL at the requested end, NaN after all numbers, -0.0 equal to 0.0."""
    if a is None or b is None:
        side = int(a is None) - int(b is None)
        return side if by.nulls_last else -side
    sign = int(a != a) - int(b != b) if a != a or b != b else int(a > b) - int(a < b)
    return -sign if by.descending else sign


def answer(node: OverWindow, live: Sequence[Row]) -> Counter[Row]:
    """All rows with the result of each call."""
    groups: dict[Any, list[Row]] = {}
    for row in live:
        groups.setdefault(tuple(row[c] for c in node.partition), []).append(row)
    found: Counter[Row] = Counter()
    for rows in groups.values():

        def by(one: Row, two: Row) -> int:
            for order in (*node.order, *(Order(k, False, False) for k in node.stream_key)):
                if sign := compare(one[order.column], two[order.column], order):
                    return sign
            return 0

        rows.sort(key=cmp_to_key(by))
        for i, row in enumerate(rows):
            found[(*row, *(value(call, node, rows, i) for call in node.calls))] += 1
    return found


def peers(node: OverWindow, one: Row, two: Row) -> bool:
    return all(compare(one[o.column], two[o.column], o) == 0 for o in node.order)


def value(call: Over, node: OverWindow, rows: list[Row], i: int) -> Any:
    first = next(j for j in range(len(rows)) if peers(node, rows[j], rows[i]))
    last = max(j for j in range(len(rows)) if peers(node, rows[j], rows[i]))
    match call.function:
        case F.ROW_NUMBER:
            return i + 1
        case F.RANK:
            return first + 1
        case F.DENSE_RANK:
            return sum(1 for j in range(first + 1) if j == 0 or not peers(node, rows[j - 1], rows[j]))
        case F.PERCENT_RANK:
            return first / (len(rows) - 1) if len(rows) > 1 else 0.0
        case F.CUME_DIST:
            return (last + 1) / len(rows)
        case F.NTILE:
            size, more = divmod(len(rows), call.number)
            sizes = [size + (t < more) for t in range(call.number)]
            return next(t + 1 for t in range(call.number) if i < sum(sizes[: t + 1]))
        case F.LAG | F.LEAD:
            step = -1 if call.function is F.LAG else 1
            if call.ignore_nulls:
                known = [r for r in (rows[:i][::-1] if step < 0 else rows[i + 1 :]) if r[call.args[0]] is not None]
                return known[call.number - 1][call.args[0]] if len(known) >= call.number else default_of(call, rows[i])
            j = i + step * call.number
            return rows[j][call.args[0]] if 0 <= j < len(rows) else default_of(call, rows[i])
        case F.SESSION:
            return start_of_session(
                [(row[call.args[0]], row[call.args[1]]) for row in rows[: i + 1] if row[ORDER] is not None]
            )
        case _:
            if call.setback:
                return aggregate(call, rows[slice(*slide(call, node, rows, i))])
            return aggregate(call, [row for j, row in enumerate(rows) if inside(call, node, rows, i, j, first, last)])


def slide(call: Over, node: OverWindow, rows: list[Row], i: int) -> tuple[int, int]:
    """The frame of a row as Spark's SlidingWindowFunctionFrame moves it from row to row: neither end goes back."""
    low = high = 0
    for k in range(i + 1):
        of_peers = [j for j in range(len(rows)) if peers(node, rows[j], rows[k])]

        def is_outside(
            j: int, k: int = k, ends: tuple[int, int] = (of_peers[0], of_peers[-1]), **other: FrameEnd
        ) -> bool:
            return not inside(msgspec.structs.replace(call, **other), node, rows, k, j, *ends)

        while low < high and is_outside(low, upper=END):
            low += 1
        while high < len(rows) and not is_outside(high, lower=BEGIN):
            low += is_outside(high, upper=END)
            high += 1
    return low, high


def start_of_session(rows: list[tuple[int, int]]) -> int | None:
    """The start of the last row's session; each row is a start and an end.

    A row that begins when another ends belongs to its session.
    """
    begin, until = None, None
    for start, end in rows:
        if until is None or start > until:
            begin = start
        until = end if until is None else max(until, end)
    return begin


def default_of(call: Over, row: Row) -> Any:
    return row[call.args[1]] if len(call.args) > 1 else None


def inside(call: Over, node: OverWindow, rows: list[Row], i: int, j: int, first: int, last: int) -> bool:
    if call.by_rows:
        low = 0 if call.lower.edge is FrameEdge.UNBOUNDED else i + call.lower.rows
        high = len(rows) if call.upper.edge is FrameEdge.UNBOUNDED else i + call.upper.rows
        return low <= j <= high
    if (call.lower.edge is FrameEdge.CURRENT and j < first) or (call.upper.edge is FrameEdge.CURRENT and j > last):
        return False
    if call.lower.column is None and call.upper.column is None:
        return True
    (by,) = node.order
    value, known = rows[j][by.column], rows[i][by.column] is not None

    def is_outside(column: int | None, side: int) -> bool:
        if column is None:
            return False
        if (end := rows[i][column]) is None and known:  # beyond all values; NULLs may be there
            return value is not None or by.nulls_last == (side > 0)
        return compare(value, end, by) * side > 0

    return not is_outside(call.lower.column, -1) and not is_outside(call.upper.column, 1)


def aggregate(call: Over, frame: list[Row]) -> Any:
    if not call.args:
        return len(frame)
    frame = [row for row in frame if call.filter_column is None or row[call.filter_column]]
    for by in reversed(call.order):
        frame = sorted(frame, key=cmp_to_key(lambda a, b, by=by: compare(a[by.column], b[by.column], by)))
    if k := dict(call.params).get("k"):
        ranked = sorted((-row[call.args[1]], i) for i, row in enumerate(frame) if row[call.args[1]] is not None)
        return tuple(frame[i][call.args[0]] for _, i in ranked[: int(k)]) or None
    if len(call.args) > 1:
        return of_pairs(call, [(row[call.args[0]], row[call.args[1]]) for row in frame])
    values = [row[call.args[0]] for row in frame]
    known = [v for v in values if v is not None]
    match call.function:
        case F.COUNT:
            return len(known)
        case F.FIRST | F.LAST | F.NTH:
            picked = known if call.ignore_nulls else values
            place = {F.FIRST: 0, F.LAST: len(picked) - 1, F.NTH: call.number - 1}[call.function]
            return picked[place] if 0 <= place < len(picked) else None
        case F.COLLECT_LIST:
            return tuple(known if dict(call.params)["ignoreNulls"] == "true" else values)
        case F.COLLECT_SET:
            return tuple(sorted(set(known)))
        case F.APPROX_COUNT_DISTINCT:
            return estimate(known)
        case F.BITMAP_CONSTRUCT:
            return sum(1 << v for v in set(known)).to_bytes(4096, "little")
    if not known:
        return None
    match call.function:
        case F.BIT_AND | F.BIT_OR | F.BIT_XOR:
            return reduce({F.BIT_AND: int.__and__, F.BIT_OR: int.__or__, F.BIT_XOR: int.__xor__}[call.function], known)
        case F.VAR_POP | F.STDDEV_SAMP | F.KURTOSIS:
            return of_moments(call.function, known)
        case F.MODE:
            ranked = sorted(known, reverse="prefer" in dict(call.params))
            return min(ranked, key=lambda v: -known.count(v))
        case F.PERCENTILE | F.PERCENTILE_DISC:
            return percentiles(call, known)
        case F.LISTAGG:
            return "+".join(known)
        case F.MIN | F.MAX:
            order = Order(0, call.function is F.MAX, False)
            return sorted(known, key=cmp_to_key(lambda a, b: compare(a, b, order)))[0]
        case _:
            total = exact_sum(known)
            if call.function is F.SUM:
                return total
            if isinstance(total, Decimal):
                return WIDE.quantize(WIDE.divide(total, len(known)), Decimal("0.000001"))
            return total / len(known)


def percentiles(call: Over, known: list[Any]) -> Any:
    """Interpolated between two of the sorted values; for percentile_disc, the first value that reaches the share."""
    params = dict(call.params)
    ordered, shares = (
        sorted(known, reverse=params["reverse"] == "true"),
        [float(p) for p in params["percentages"].split(",")],
    )
    if call.function is F.PERCENTILE_DISC:
        return ordered[max(math.ceil(shares[0] * len(known)), 1) - 1]
    if not call.type.startswith("array"):
        return float(median(known))
    found = []
    for place in ((len(known) - 1) * share for share in shares):
        low, high = math.floor(place), math.ceil(place)
        low_value, high_value = ordered[low], ordered[high]
        found.append(
            float(low_value) if low_value == high_value else (high - place) * low_value + (place - low) * high_value
        )
    return tuple(found)


def of_pairs(call: Over, pairs: list[tuple[Any, Any]]) -> Any:
    """For min_by, the value at the minimum, the last of several. The others use pairs in which both numbers are
    present.
    """
    if call.function is F.MIN_BY:
        ranked = [(by, -i, value) for i, (value, by) in enumerate(pairs) if by is not None]
        return min(ranked)[2] if ranked else None
    known = [(Fraction(y), Fraction(x)) for y, x in pairs if y is not None and x is not None]
    n = len(known)
    if not n:
        return None
    mean_y, mean_x = (sum(values) / n for values in zip(*known, strict=True))
    together = float(sum((y - mean_y) * (x - mean_x) for y, x in known))
    if call.function is F.COVAR_SAMP:
        return together / (n - 1) if n > 1 else None
    spread = float(sum((x - mean_x) ** 2 for _, x in known))
    return together / spread if n > 1 and spread else None


def of_moments(function: WindowFunction, values: list[Any]) -> Any:
    """Spark's formulas over central moments, without rounding."""
    n = len(values)
    if any(not math.isfinite(v) for v in values):
        return None if function is F.STDDEV_SAMP and n == 1 else NAN
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / n
    m2, m4 = (float(sum((v - mean) ** k for v in exact)) for k in (2, 4))
    if function is F.VAR_POP:
        return m2 / n
    if function is F.STDDEV_SAMP:
        return math.sqrt(m2 / (n - 1)) if n > 1 else None
    return n * m4 / (m2 * m2) - 3.0 if m2 else None


def exact_sum(values: list[Any]) -> Any:
    if not isinstance(values[0], float):
        return sum(values) if isinstance(values[0], int) else reduce(WIDE.add, values)
    odd = [v for v in values if not math.isfinite(v)]
    if odd:
        return NAN if any(v != v for v in odd) or len(set(odd)) > 1 else odd[0]
    return float(sum(Fraction(v) for v in values))


def seen(rows: Counter[Row]) -> Counter[Row]:
    """The value in comparable form.

    In a minimum or maximum -0.0 equals 0.0. All NaN are equal. Doubles count to twelve digits, because formulas
    round.
    """
    return Counter({tuple(_seen(v) if isinstance(v, float) else v for v in row): n for row, n in rows.items()})


def _seen(value: float) -> float:
    return (
        NAN if value != value else float(f"{value * math.pi:.12g}") + 0.0
    )  # so that no short decimal lies halfway between two


# --- what is computed ---------------------------------------------------------------------------

RUNNING = (True, BEGIN, HERE)
BY_PEERS = (False, BEGIN, HERE)
AROUND = (True, rows_at(-2), rows_at(1))
BEFORE = (True, rows_at(-3), rows_at(-1))
AFTER = (True, rows_at(1), rows_at(3))
WHOLE = (True, BEGIN, END)
REST = (True, rows_at(-1), END)
UP_TO_BEFORE = (True, BEGIN, rows_at(-2))
AHEAD_OF_ALL = (False, at_value(AHEAD), END)
NEAR = (False, at_value(BEHIND), at_value(AHEAD))
VALUES_BEHIND = (False, at_value(BEHIND), HERE)
VALUES_AHEAD = (False, HERE, at_value(AHEAD))
UP_TO_VALUE = (False, BEGIN, at_value(AHEAD))
UP_TO_VALUE_BEHIND = (False, BEGIN, at_value(BEHIND))
PEERS = (False, HERE, HERE)
SUMS = [
    (INT, "bigint", F.SUM),
    (DOUBLE, "double", F.SUM),
    (DECIMAL, "decimal(38,2)", F.SUM),
    (INT, "double", F.AVERAGE),
]


def aggregates(frame: tuple[bool, FrameEnd, FrameEnd]) -> list[Over]:
    return [
        over(F.COUNT, None, "bigint", frame),
        over(F.COUNT, STRING, "bigint", frame),
        *(over(f, c, t, frame) for c, t, f in SUMS),
        over(F.AVERAGE, DECIMAL, "decimal(34,6)", frame),
        over(F.AVERAGE, DOUBLE, "double", frame),
        *(over(f, c, TYPES[c], frame) for f in (F.MIN, F.MAX) for c in (INT, DOUBLE, STRING, DECIMAL)),
        *(over(f, STRING, "string", frame, ignore=ignore) for f in (F.FIRST, F.LAST) for ignore in (False, True)),
        *(kept(over(f, STRING, "string", frame)) for f in (F.FIRST, F.LAST)),
        *(over(F.NTH, INT, "int", frame, n, ignore) for n in (1, 3) for ignore in (False, True)),
    ]


def of_groups(frame: tuple[bool, FrameEnd, FrameEnd]) -> list[Over]:
    """The aggregates that are computed as for groups."""
    return [
        *(agg(f, (INT,), "int", frame) for f in (F.BIT_AND, F.BIT_OR, F.BIT_XOR)),
        *(agg(f, (X,), "double", frame) for f in (F.VAR_POP, F.STDDEV_SAMP, F.KURTOSIS)),
        agg(F.VAR_POP, (Y,), "double", frame),
        *(agg(f, (Y, X), "double", frame) for f in (F.COVAR_SAMP, F.REGR_SLOPE)),
        agg(F.MIN_BY, (STRING, INT), "string", frame),
        agg(F.MODE, (STRING,), "string", frame),
        agg(F.MODE, (STRING,), "string", frame, prefer="greatest"),
        agg(F.PERCENTILE, (INT,), "double", frame, percentages="0.5", reverse="false"),
        agg(F.PERCENTILE, (INT,), "array<double>", frame, percentages="0.9,0.25", reverse="true"),
        agg(F.PERCENTILE_DISC, (DECIMAL,), "decimal(30,2)", frame, percentages="0.3", reverse="true"),
        agg(F.APPROX_COUNT_DISTINCT, (KEY,), "bigint", frame, **SKETCH),
        agg(F.BITMAP_CONSTRUCT, (KEY,), "binary", frame),
        agg(F.COLLECT_LIST, (INT,), "array<int>", frame, ignoreNulls="true"),
        agg(F.COLLECT_SET, (STRING,), "array<string>", frame, ignoreNulls="true"),
        kept(agg(F.COLLECT_LIST, (INT,), "array<int>", frame, ignoreNulls="false")),
        agg(F.LISTAGG, (STRING,), "string", frame, delimiter="+"),
        agg(F.LISTAGG, (STRING,), "string", frame, (Order(INT, True, False), Order(X, False, True)), delimiter="+"),
        agg(F.MAX_BY, (STRING, INT), "array<string>", frame, k="2"),
    ]


NODES = {
    **{
        f"as groups, {name}": node(of_groups(frame))
        for name, frame in {
            "running": RUNNING,
            "by peers": BY_PEERS,
            "around": AROUND,
            "after": AFTER,
            "whole": WHOLE,
            "near": NEAR,
            "behind": UP_TO_BEFORE,
            "rest": REST,
            "ahead of all": AHEAD_OF_ALL,
        }.items()
    },
    "as groups, carried": node([c for c in of_groups(RUNNING) if not c.function.reads_frames]),
    "as groups, carried up to a value": node([c for c in of_groups(UP_TO_VALUE) if not c.function.reads_frames]),
    "wild doubles": node([agg(f, (DOUBLE,), "double", RUNNING) for f in (F.VAR_POP, F.STDDEV_SAMP)]),
    "numbers": node([over(F.ROW_NUMBER), over(F.RANK), over(F.DENSE_RANK)]),
    "sizes": node(
        [over(F.PERCENT_RANK, None, "double"), over(F.CUME_DIST, None, "double"), over(F.NTILE, number=3), over(F.RANK)]
    ),
    "shifts": node(
        [
            over(F.LAG, INT, number=1),
            over(F.LAG, STRING, "string", number=3),
            over(F.LEAD, INT, number=2, default=BEHIND),
        ]
    ),
    "lag alone": node([over(F.LAG, INT, number=2, default=ORDER)]),
    "lead alone": node([over(F.LEAD, DOUBLE, "double", number=1)]),
    "shifts past nulls": node(
        [over(F.LAG, INT, number=1, ignore=True), over(F.LEAD, STRING, "string", number=2, ignore=True)]
    ),
    "running": node(aggregates(RUNNING)),
    "running by peers": node(aggregates(BY_PEERS)),
    "around": node(aggregates(AROUND)),
    "before": node(aggregates(BEFORE)),
    "after": node(aggregates(AFTER)),
    "whole": node(aggregates(WHOLE)),
    "rest": node(aggregates(REST)),
    "up to before": node(aggregates(UP_TO_BEFORE)),
    "near": node(aggregates(NEAR)),
    "values behind": node(aggregates(VALUES_BEHIND)),
    "values ahead": node(aggregates(VALUES_AHEAD)),
    "up to a value": node(aggregates(UP_TO_VALUE)),
    "up to a value behind": node(aggregates(UP_TO_VALUE_BEHIND)),
    "peers": node(aggregates(PEERS)),
    "everything at once": node(
        [
            over(F.RANK),
            over(F.LEAD, INT, number=3),
            *(over(F.SUM, INT, "bigint", f) for f in (AROUND, NEAR, BY_PEERS, UP_TO_BEFORE)),
        ]
    ),
    "descending": node(
        [
            over(F.RANK),
            over(F.SUM, INT, "bigint", (False, at_value(AHEAD), HERE)),
            over(F.COUNT, None, "bigint", BY_PEERS),
        ],
        order=(Order(ORDER, True, True),),
    ),
    "sessions": node([Over(F.SESSION, (ORDER, AHEAD), "int", "int", *RUNNING)]),
    "sessions with varying gaps": node(
        [Over(F.SESSION, (ORDER, FAR), "int", "int", *RUNNING), over(F.LAG, INT, number=1)], ()
    ),
    "no partition": node([over(F.ROW_NUMBER), over(F.SUM, DOUBLE, "double", BY_PEERS), over(F.LAG, INT, number=1)], ()),
    "no order": node([over(F.SUM, INT, "bigint", WHOLE), over(F.ROW_NUMBER)], order=()),
    "no order, running": node([over(F.ROW_NUMBER), over(F.MAX, STRING, "string")], order=()),
    "two columns each": node(
        [over(F.DENSE_RANK), over(F.COUNT, None, "bigint", BY_PEERS), over(F.LAST, INT, frame=BY_PEERS)],
        (GROUP, STRING),
        (Order(DOUBLE, True, False), Order(ORDER, False, True)),
    ),
}


def some_row(rng: random.Random, key: int) -> Row:
    order = rng.choice((None, 1, 2, 3, 3, 5, 8, rng.randint(-20, 60)))
    return (
        rng.choice((None, 0, 1)),
        order,
        key,
        rng.choice((None, -3, 0, 2**31 - 1, 7)),
        rng.choice((None, 0.0, -0.0, 1.5, 1e40, -1e40, 1e-300, 0.1, NAN, math.inf))
        if rng.random() < 0.4
        else rng.randint(-5, 5) / 4,
        rng.choice((None, "", "a", "b", "ab")),
        rng.choice((None, Decimal("1.25"), Decimal("-7.01"), Decimal(10) ** 27)),
        None if order is None else order - 2,
        None if order is None else order + 2,
        None if order is None else order + rng.choice((1, 1, 3, 9)),
        rng.choice((None, 0.5, -2.0, 7.25, 0.1)),
        rng.choice((None, 3.0, 1e9, 0.3)),
        rng.choice((None, False, True, True)),
    )


#: Nodes for each way to compute a piece; the deep run takes all.
PIECES = (
    *("as groups, around", "as groups, carried", "numbers", "shifts", "running", "before"),
    *("near", "up to a value", "everything at once"),
)


def _some(names: Iterable[str], *kept: str) -> list[Any]:
    """Each name as a test case; only the kept ones are not deep."""
    return [name if name in kept else pytest.param(name, marks=pytest.mark.deep) for name in names]


@pytest.mark.parametrize(
    ("marks", "name"),
    [
        *((4, name) for name in NODES),
        *((1, name) for name in ("numbers", "running", "up to a value", "sessions", "as groups, carried")),
    ],
)
@pytest.mark.sampled(7)
def test_every_call_equals_its_frames_taken_one_by_one(
    name: str, marks: int, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_with_frames(NODES[name], f"{name} {marks}", marks, objects, monkeypatch, some_row)


def compare_with_frames(
    under_test: OverWindow,
    seed: str,
    marks: int,
    objects: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[random.Random, int], Row],
) -> None:
    monkeypatch.setattr(over_window, "MARK_EVERY", marks)
    monkeypatch.setattr(over_window, "PIECE_ROWS", 12)  # pieces within partitions, and frames longer than pieces
    monkeypatch.setattr(over_window, "_LEAST", 2)
    monkeypatch.setattr(over_window, "_FIRST_PIECE", 4)
    rng = random.Random(seed)
    bench = Bench(under_test, objects)
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    for epoch in range(8):
        changes: list[tuple[Row, int]] = []
        for key in rng.sample(range(44), rng.choice((0, 1, 2, 8)) if epoch else 34):
            if key in live and (rng.random() < 0.8 or epoch > 6):
                changes.append((live.pop(key), -1))
            if key not in live and rng.random() < 0.6:
                live[key] = make(rng, key)
                changes.append((live[key], 1))
        rng.shuffle(changes)
        emitted = bench.apply(chunk_of(TYPES, changes))
        assert_netted(emitted, (KEY,))
        content = integrate(content, emitted)
        assert seen(content) == seen(answer(under_test, list(live.values()))), f"epoch {epoch}: {changes}"


@pytest.mark.parametrize("frame", [RUNNING, AROUND, REST, WHOLE])
def test_a_zero_that_is_a_minimum_or_maximum_has_the_sign_of_a_row_of_its_frame(
    frame: tuple[bool, FrameEnd, FrameEnd], objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The zeros' signs are beside them. An epoch that takes another zero for the old result deletes no stored row."""
    monkeypatch.setattr(over_window, "MARK_EVERY", 4)
    calls = [over(f, c, TYPES[c], frame) for f in (F.MIN, F.MAX) for c in (INT, DOUBLE)]
    bench, chance = Bench(node(calls), objects), random.Random(0)
    live: dict[int, Row] = {}
    content: Counter[str] = Counter()
    for _ in range(6):
        changes: list[tuple[Row, int]] = []
        for key in chance.sample(range(20), 8):
            if key in live:
                changes.append((live.pop(key), -1))
            sign = chance.choice((-1, 1))
            live[key] = (0, key, key, sign, math.copysign(0.0, sign), *(None,) * 8)
            changes.append((live[key], 1))
        for row, weight in pairs_of(bench.apply(chunk_of(TYPES, changes))):
            content[repr(row)] += weight
            least, of_least, greatest, of_greatest = row[-4:]
            assert (math.copysign(1, of_least), math.copysign(1, of_greatest)) == (least, greatest)
        assert {*content.values()} <= {0, 1}
        assert content.total() == len(live)


BEYOND_THE_TYPE = {
    "running": (UP_TO_VALUE_BEHIND,),
    "ascending": (AHEAD_OF_ALL, UP_TO_VALUE_BEHIND, (False, at_value(AHEAD), at_value(FAR))),
    "descending": ((False, at_value(BEHIND), END), (False, BEGIN, at_value(AHEAD)), (False, at_value(FAR), HERE)),
}


@pytest.mark.parametrize("nulls_last", [False, True])
@pytest.mark.parametrize("name", BEYOND_THE_TYPE)
def test_a_frame_whose_end_is_beyond_the_type_has_the_nulls_that_are_there(
    name: str, nulls_last: bool, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an end is NULL beside a known value of the order."""

    def beyond(rng: random.Random, key: int) -> Row:
        row = list(some_row(rng, key))
        if (order := row[ORDER]) is not None:
            row[BEHIND] = None if order < 9 else order - 2
            row[AHEAD] = None if order > 3 else order + 2
            row[FAR] = order + 4
        return tuple(row)

    calls = [over(f, INT, "bigint", frame) for frame in BEYOND_THE_TYPE[name] for f in (F.SUM, F.COUNT)]
    under_test = node(calls, order=(Order(ORDER, name == "descending", nulls_last),))
    compare_with_frames(under_test, name, 1, objects, monkeypatch, beyond)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("frame", [NEAR, VALUES_BEHIND, VALUES_AHEAD, UP_TO_VALUE, UP_TO_VALUE_BEHIND, AHEAD_OF_ALL])
def test_frames_whose_ends_do_not_ascend_with_the_order_never_move_back(
    frame: tuple[bool, FrameEnd, FrameEnd], descending: bool, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a clock goes forward or back, or months end."""
    by_rows, *ends = frame
    opposite = {BEHIND: AHEAD, AHEAD: BEHIND} if descending else {}
    lower, upper = (
        e if e.column is None else FrameEnd(e.edge, 0, opposite.get(e.column, e.column), setback=12) for e in ends
    )

    def back_and_forth(rng: random.Random, key: int) -> Row:
        """The ends ahead descend within ten values of the order, those behind within five."""
        row = list(some_row(rng, key))
        row[ORDER] = order = rng.choice((None, *range(40)))
        if order is not None:
            row[BEHIND], row[AHEAD] = 10 * (order // 5) - order - 11, 20 * (order // 10) - order + 11
        return tuple(row)

    calls = [over(f, KEY, "bigint", (by_rows, lower, upper)) for f in (F.SUM, F.COUNT, F.FIRST)]
    under_test = node(calls, (), (Order(ORDER, descending, descending),))
    compare_with_frames(under_test, str(frame), 4, objects, monkeypatch, back_and_forth)


def test_a_row_reached_by_an_earlier_frame_than_that_of_its_neighbour_changes_that_frame(objects: ObjectStore) -> None:
    """The frames of 9, 20 and 29 end at 11, 31 and 22. 30 comes. The frame of 20 begins before that of 29."""
    frame = (False, at_value(BEHIND), FrameEnd(FrameEdge.OFFSET, 0, AHEAD, setback=12))
    under_test = node([over(F.COUNT, KEY, "bigint", frame)], ())
    ends = {9: (0, 11), 20: (9, 31), 29: (10, 22), 30: (19, 41)}
    rows = [(0, at, at, *some_row(random.Random(at), at)[INT:BEHIND], *ends[at], *(None,) * 4) for at in ends]
    bench, content = Bench(under_test, objects), Counter[Row]()
    for come in (rows[:3], rows[3:]):
        content = integrate(content, bench.apply(chunk_of(TYPES, [(row, 1) for row in come])))
    assert seen(content) == seen(answer(under_test, rows))


@pytest.mark.parametrize(
    "name", _some([name for name in NODES if name.startswith("as groups")], "as groups, near", "as groups, by peers")
)
def test_frames_that_are_too_long_to_be_gone_through(
    name: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_aggregates, "_LONG", 0)
    test_every_call_equals_its_frames_taken_one_by_one(name, 4, objects, monkeypatch)


@pytest.mark.parametrize("name", ["sessions", "sessions with varying gaps"])
def test_sessions_of_more_partitions_than_moments_leave_room_for(
    name: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_values, "_GREATEST_SECTION", 0)
    test_every_call_equals_its_frames_taken_one_by_one(name, 4, objects, monkeypatch)


@pytest.mark.parametrize("name", _some(NODES, *PIECES))
@pytest.mark.sampled(7)
def test_partitions_that_appear_or_vanish_whole_are_computed_in_pieces_with_others(
    name: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row of these partitions stays, so no piece can begin at one. Other partitions keep rows, after many new
    ones.
    """
    monkeypatch.setattr(over_window, "MARK_EVERY", 4)
    monkeypatch.setattr(over_window, "PIECE_ROWS", 12)
    monkeypatch.setattr(over_window, "_LEAST", 2)
    monkeypatch.setattr(over_window, "_FIRST_PIECE", 4)
    rng, under_test = random.Random(name), NODES[name]
    bench = Bench(under_test, objects)
    live: dict[int, Row] = {}
    content: Counter[Row] = Counter()
    groups = (None, 0, 1)
    for number, (come, go, some) in enumerate(
        [((0,), (), ()), ((1,), (), (0,)), ((None,), (0,), (1,)), ((0,), (1, None), ()), ((), (0,), ())]
    ):
        changes = [
            (row, -1) for row in live.values() if row[GROUP] in go or (row[GROUP] in some and rng.random() < 0.2)
        ]
        for row, _ in changes:
            del live[row[KEY]]
        new = [(group, at) for group in groups for at in range(30 if group in come else 4 if group in some else 0)]
        for group, at in new:
            key = 1000 * number + 100 * groups.index(group) + at
            live[key] = (group, *some_row(rng, key)[1:])
            changes.append((live[key], 1))
        for group in some:  # at both ends, in either order
            for at in range(24):
                key, order = 1000 * number + 500 + 100 * groups.index(group) + at, 200 * (-1) ** at
                row = some_row(rng, key)
                live[key] = (group, order, *row[KEY:BEHIND], order - 2, order + 2, order + 3, *row[X:])
                changes.append((live[key], 1))
        rng.shuffle(changes)
        emitted = bench.apply(chunk_of(TYPES, changes))
        assert_netted(emitted, (KEY,))
        content = integrate(content, emitted)
        assert seen(content) == seen(answer(under_test, list(live.values()))), f"epoch {number}"


def test_a_partition_that_is_computed_whole_is_emitted_in_pieces_with_disjoint_keys(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that changes its place in the order leaves one piece's rows and enters another's. Both are in the first
    piece.
    """
    monkeypatch.setattr(over_window, "PIECE_ROWS", 12)
    under_test = node([over(F.NTILE, number=3), over(F.PERCENT_RANK, kind="double")])
    bench, content, live = Bench(under_test, objects), Counter[Row](), dict[int, Row]()
    for epoch, moved in enumerate([range(100), (5,), (50, 51), (99,), range(40, 60)]):
        changes = [(live[key], -1) for key in moved if key in live]
        live |= {key: (0, (key * 37 + epoch * 61) % 101, key, key, *(None,) * 9) for key in moved}
        pieces = bench.pieces(chunk_of(TYPES, [*changes, *((live[key], 1) for key in moved)]))
        keys = [{row[KEY] for row, _ in pairs_of(piece)} for piece in pieces]
        assert sum(map(len, keys)) == len(set.union(*keys))
        assert (len(pieces) > 1) == (epoch > 0), "of a first load no row stays"
        for piece in pieces:
            assert_netted(piece, (KEY,))
            content = integrate(content, piece)
        assert seen(content) == seen(answer(under_test, list(live.values())))


SUM = node([over(F.SUM, INT, "int", RUNNING)])


def rows(*keyed: tuple[int, int, int]) -> list[tuple[Row, int]]:
    """Inserts of (order, key, int)."""
    return [((0, order, key, number, *(None,) * 9), 1) for order, key, number in keyed]


def gone(changes: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
    return [(row, -weight) for row, weight in changes]


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on, record the rows that each scan of a state reads."""
    read: list[int] = []
    scan = StateTable.scan_between

    def counted(table: StateTable, *args: Any) -> KeyedRows:
        found = scan(table, *args)
        read.append(len(found.keys))
        return found

    monkeypatch.setattr(StateTable, "scan_between", counted)
    return read


def test_rows_at_the_end_of_a_partition_are_computed_from_the_last_mark_on(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_window, "MARK_EVERY", 8)
    bench = Bench(SUM, objects)
    bench.apply(chunk_of(TYPES, rows(*((n, n, n) for n in range(2000)))))
    read = rows_read(monkeypatch)
    emitted = bench.apply(chunk_of(TYPES, rows((2000, 2000, 5))))
    assert [row[-1] for row, _ in pairs_of(emitted)] == [sum(range(2000)) + 5]
    assert 0 < sum(read) < 100


@pytest.mark.parametrize("name", ["lag alone", "sessions"])
def test_rows_after_a_change_are_read_until_results_are_unchanged(
    name: str, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_window, "_FIRST_PIECE", 64)
    monkeypatch.setattr(over_window, "_LEAST", 16)
    bench = Bench(NODES[name], objects)
    many = [((0, 5 * n, n, n, *(None,) * 4, 5 * n + 2, *(None,) * 4), 1) for n in range(2000)]
    bench.apply(chunk_of(TYPES, many))
    read = rows_read(monkeypatch)
    emitted = bench.apply(chunk_of(TYPES, gone(many[100:101])))
    assert len(pairs_of(emitted)) == {"lag alone": 5, "sessions": 1}[name]  # the row, and rows with it as lag
    assert 0 < sum(read) < 400


def test_a_change_of_a_session_reads_its_neighbourhood_in_each_partition(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(NODES["sessions"], objects)
    many = [
        ((g, 5 * n, 300 * g + n, n, *(None,) * 4, 5 * n + 2, *(None,) * 4), 1) for g in range(100) for n in range(300)
    ]
    bench.apply(chunk_of(TYPES, many))
    read = rows_read(monkeypatch)
    emitted = bench.apply(chunk_of(TYPES, gone(many[100::300])))
    assert len(pairs_of(emitted)) == 100, "each row was a session"
    assert 0 < sum(read) < 100 * 60, "of 300 rows per partition"


@pytest.mark.parametrize("partition", [(), (GROUP,)])
def test_a_change_early_in_a_partition_reaches_all_that_follow(
    partition: tuple[int, ...], objects: ObjectStore
) -> None:
    bench = Bench(node([over(F.ROW_NUMBER)], partition), objects)
    bench.apply(chunk_of(TYPES, rows(*((n, n, n) for n in range(1000)))))
    emitted = bench.apply(chunk_of(TYPES, rows((-1, 5000, 0))))
    assert Counter(w for _, w in pairs_of(emitted)) == {1: 1001, -1: 1000}


def test_rows_that_contradict_the_state_are_named(objects: ObjectStore) -> None:
    bench, first = Bench(SUM, objects), rows((1, 1, 1), (2, 2, 2))
    bench.apply(chunk_of(TYPES, first))
    with pytest.raises(ChangeError, match=TWO_ROWS):
        bench.apply(chunk_of(TYPES, rows((1, 1, 7))))
    with pytest.raises(ChangeError, match=NO_ROW):
        bench.apply(chunk_of(TYPES, gone(rows((3, 3, 3)))))


def test_a_sum_that_overflows_names_its_partition_unless_it_is_unused(objects: ObjectStore) -> None:
    most = 2**63 - 1
    types = tuple("bigint" if i == INT else t for i, t in enumerate(TYPES))
    total = OverWindow(
        (GROUP,),
        (Order(ORDER, False, False),),
        (KEY,),
        (GROUP,),
        (Over(F.SUM, (INT,), "bigint", "bigint", *RUNNING),),
        types,
        (*types, "bigint"),
    )
    bench = Bench(total, objects)
    bench.apply(chunk_of(types, rows((1, 1, most), (2, 2, -1))))
    with pytest.raises(AggregateOverflowError, match=r"group \(0\)"):
        bench.apply(chunk_of(types, rows((3, 3, 2))))

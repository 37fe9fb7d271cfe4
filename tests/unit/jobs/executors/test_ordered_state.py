"""first, last, min_by and max_by over append-only rows: correct at every epoch, with little stored state.

Plain Python computes the expected rows.
"""

import random
from collections import Counter
from datetime import date
from decimal import Decimal
from math import isnan
from typing import Any

import pytest

from tests.support.jobs.executors.harness import NAN, Bench, Row, chunk_of, integrate
from tussock.jobs.executors import ordered_state
from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.hash_agg import HashAgg
from tussock.jobs.logical.nodes import AggFunction
from tussock.statestore.objectstore.base import ObjectStore

EPOCHS, ROWS, GROUPS = 5, 60, 4
KINDS: dict[str, list[Any]] = {
    "int": [None, -(2**31), -1, 0, 7, 2**31 - 1],
    "bigint": [None, -(2**63), 0, 2**63 - 1],
    "double": [None, -0.0, 0.0, 1.5, -1e300, NAN, float("inf")],
    "float": [None, -2.5, 0.5, NAN],
    "date": [None, date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    "decimal(7,2)": [None, Decimal("-1.00"), Decimal("3.25")],
    "string": [None, "", "a", "ab", "b"],
    "boolean": [None, True, False],
}


def by(function: str, kind: str, **params: str) -> Agg:
    type = "array<bigint>" if "k" in params else "bigint"
    return Agg(AggFunction(function), 2, "bigint", type, more=(1,), more_types=(kind,), params=tuple(params.items()))


def place(value: Any) -> tuple[bool, Any]:
    """The rank of a value: NaN after all numbers."""
    is_nan = isinstance(value, float) and isnan(value)
    return (is_nan, 0 if is_nan else value)


def ranked(rows: list[Row], largest: bool) -> list[int]:
    """The keys of rows with a value, sorted by value, then by key."""
    found = sorted((row for row in rows if row[1] is not None), key=lambda row: row[2])
    return [row[2] for row in sorted(found, key=lambda row: place(row[1]), reverse=largest)]


def expected(rows: list[Row], several: bool) -> Row:
    # `reverse` keeps the order of equal values, which is the order of their keys. The last of equal values counts.
    greatest, least = ranked(rows, True), ranked(rows, False)
    most, best = tuple(greatest[:3]) or None, least[-1] if least else None
    return (best, greatest[-1] if greatest else None, most if several else best, rows[0][2], rows[-1][2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("several", [False, True], ids=["one row", "several rows"])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.sampled(3)
def test_rows_at_an_end_of_their_group_are_found_and_others_not_kept(
    kind: str, several: bool, grouped: bool, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered_state, "_WORTH_GROUPING", 0)
    keys = (0,) if grouped else ()
    calls = (
        *(by("MaxBy", kind), by("MinBy", kind), by("MaxBy", kind, k="3") if several else by("MaxBy", kind)),
        *(Agg(AggFunction(f), 2, "bigint", "bigint", params=(("ignoreNulls", "false"),)) for f in ("First", "Last")),
    )
    types = ("int", kind, "bigint")
    node = HashAgg(types, keys, calls, (2,), True, False, (*("int" for _ in keys), *(c.type for c in calls)))
    bench, rng, rows, content = Bench(node, objects), random.Random(7), list[Row](), Counter[Row]()
    numbers = iter(rng.sample(range(10**6), EPOCHS * ROWS))
    for _ in range(EPOCHS):
        coming = [(rng.choice((None, *range(GROUPS - 1))), rng.choice(KINDS[kind]), next(numbers)) for _ in range(ROWS)]
        rows = sorted([*rows, *coming], key=lambda row: row[2])
        content = integrate(content, bench.apply(chunk_of(types, [(row, 1) for row in coming])))
        groups = {row[0] for row in rows} if grouped else {None}
        wanted = {
            (*([g] if grouped else []), *expected([r for r in rows if r[0] == g or not grouped], several)): 1
            for g in groups
        }
        assert dict(content) == wanted
    for table in bench.tables()[1:]:
        assert 0 < sum(part.num_rows for part in table.stored.scan()) <= EPOCHS * GROUPS * 3

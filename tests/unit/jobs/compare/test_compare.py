"""Differences between stores and between epochs, against an independent model over Python values."""

import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.jobs.compare.random_rows import (
    FIELDS,
    TYPES,
    Row,
    comparable,
    comparable_rows,
    random_row,
    store_of,
    table_of,
)
from tests.support.jobs.driver.embedded import append
from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.compare import parted
from tussock.jobs.compare.record import DifferenceKind, RelationDifference, StoreDifference
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.session import Session


def samples_of(view: RelationDifference, kind: DifferenceKind, side: str) -> Counter[Row]:
    rows = [row for row in view.samples.to_pylist() if (row["_difference"], row["_side"]) == (kind, side)]
    return Counter(tuple(comparable(row[name]) for name in TYPES) for row in rows)


def assert_agrees(comparison: StoreDifference, before: pa.Table, after: pa.Table, keyed: bool) -> None:
    """Check all differing rows, which the samples contain, and the counts."""
    (view,) = comparison.views
    one, other = Counter(comparable_rows(before)), Counter(comparable_rows(after))
    gone, come = one - other, other - one
    mine, its = {row[0]: row for row in gone}, {row[0]: row for row in come}
    both = mine.keys() & its.keys() if keyed else set()
    missing, added = (Counter({r: n for r, n in rows.items() if r[0] not in both}) for rows in (gone, come))
    assert samples_of(view, DifferenceKind.MISSING, "from") == missing
    assert samples_of(view, DifferenceKind.ADDED, "to") == added
    assert samples_of(view, DifferenceKind.CHANGED, "from") == Counter(mine[k] for k in both)
    assert samples_of(view, DifferenceKind.CHANGED, "to") == Counter(its[k] for k in both)
    counted = {name: sum(mine[k][i] != its[k][i] for k in both) for i, name in enumerate(TYPES)}
    assert {c.name: c.rows for c in view.columns} == {name: n for name, n in counted.items() if n}
    assert (view.rows_before, view.rows_after) == (before.num_rows, after.num_rows)
    assert view.missing == gone.total() - len(both)
    assert (view.added, view.changed) == (come.total() - len(both), len(both))
    days = {(d.day, d.missing, d.added, d.changed) for d in view.days}
    assert sum(sum(counts) for _, *counts in days) == view.rows
    assert comparison.differs == bool(gone or come)


SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 60))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("keyed", [True, False])
def test_two_stores_and_two_epochs_differ_as_their_rows_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, keyed: bool
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(parted, "HELD_BYTES", 100 if seed % 2 else parted.HELD_BYTES)  # on the disk, too
    key = (0,) if keyed else ()
    common = [random_row(rng, 30) for _ in range(40)]
    one = store_of(tmp_path / "one", key, [*common, random_row(rng, 40)])
    first = one.meta.read_latest().published
    other = store_of(tmp_path / "other", key, [*rng.sample(common, 35), *(random_row(rng, 50) for _ in range(4))])
    with one, other:
        theirs, before = other.read("t"), one.read("t")
        assert_agrees(one.diff("t", other=other.meta.objects.uri, samples=99), before, theirs, keyed)
        one.insert("t", table_of([random_row(rng, 50) for _ in range(5)]))
        one.flush()
        after = one.read("t")
        assert_agrees(one.diff(since=first, samples=99), before, after, keyed)
        assert_agrees(one.diff(since=one.meta.read_latest().epoch, until=first, samples=99), after, before, keyed)
        assert not one.diff(since=first, until=first).differs


@pytest.mark.parametrize("samples", [0, 2])
def test_no_more_samples_are_shown_than_wanted(tmp_path: Path, samples: int) -> None:
    """Rows of a table without a key come in many parts."""
    rng = random.Random(3)
    one, other = (
        store_of(tmp_path / name, (), [random_row(rng, 999) for _ in range(400)]) for name in ("one", "other")
    )
    with one, other:
        (view,) = one.diff("t", other=other.meta.objects.uri, samples=samples).views
    assert view.missing > 200
    shown = Counter(view.samples.column("_difference").to_pylist())
    assert shown == Counter({kind: samples for kind in ("missing", "added") if samples})


def test_tables_with_other_keys_are_compared_as_bags_and_other_types_by_schema(tmp_path: Path) -> None:
    rows = [random_row(random.Random(1), 9)]
    one = store_of(tmp_path / "one", (0,), rows)
    other = Session(str(tmp_path / "other"), runner="local", workers=1)
    fields = (Field("k", "bigint"), *FIELDS[1:4], Field("extra", "int"))
    append(other.meta, CreateTable("t", fields, (0,)), CreateTable("u", fields, (0,)))
    other.flush()
    with one, other:
        comparison = one.diff(other=other.meta.objects.uri)
        (view,) = comparison.views
        assert comparison.created == ("u",)
        assert view.key == ()
        assert (view.missing, view.added, view.changed) == (1, 0, 0)
        assert view.added_columns == ("extra",)
        assert view.dropped_columns == ("many", "pair", "day")
        assert [(c.name, c.before, c.after) for c in view.retyped_columns] == [("k", "int", "bigint")]
        assert not one.diff("T", since=comparison.before.epoch).differs
        with pytest.raises(UnknownRelationError, match="'nothing'"):
            one.diff("nothing", since=comparison.before.epoch)


@pytest.fixture
def near(tmp_path: Path) -> Iterator[tuple[Session, Session]]:
    """Two stores, each with a keyed and a keyless table, whose numbers differ by little."""
    fields = Field("k", "int"), Field("x", "double"), Field("many", "array<double>"), Field("d", "decimal(20,3)")
    sides = []
    for name, by in (("one", 0.0), ("other", 1e-12)):
        session = Session(str(tmp_path / name), runner="local", workers=1)
        append(session.meta, CreateTable("keyed", fields, (0,)), CreateTable("bag", fields, ()))
        rows = pa.table(
            [
                pa.array(range(9), pa.int32()),
                [(k % 3) * (1 + by) for k in range(9)],
                [[1.0, k * (1 - by)] for k in range(9)],
                pa.array([Decimal(k) for k in range(9)], pa.decimal128(20, 3)),
            ],
            names=["k", "x", "many", "d"],
        )
        session.insert("keyed", rows)
        session.insert("bag", rows)
        session.flush()
        sides.append(session)
    with sides[0], sides[1]:
        yield sides[0], sides[1]


def test_numbers_within_the_tolerance_are_equal(near: tuple[Session, Session]) -> None:
    one, other = near
    exact = one.diff(other=other.meta.objects.uri)
    assert {v.name: (v.missing, v.added, v.changed) for v in exact.views} == {"keyed": (0, 0, 8), "bag": (8, 8, 0)}
    assert not one.diff(other=other.meta.objects.uri, tolerance=1e-9).differs
    assert one.diff(other=other.meta.objects.uri, tolerance=1e-15).differs


#: The last and the first moment of each of these days, also of days whose microseconds no double can hold.
DAYS = ("0001-01-01", "1969-12-31", "1970-01-01", "2026-02-28", "9999-12-31", "10000-01-01")


def test_integers_beyond_doubles_and_the_last_moments_of_a_day_are_compared_exactly(tmp_path: Path) -> None:
    fields = Field("k", "int"), Field("n", "bigint"), Field("many", "array<bigint>"), Field("at", "timestamp_ntz")
    micros = [int(np.datetime64(day, "us").astype(np.int64)) + more for day in DAYS for more in (0, 86_399_999_999)]
    sides = []
    for name, by in (("one", 0), ("other", 1 << 56)):
        session = Session(str(tmp_path / name), runner="local", workers=1)
        append(session.meta, CreateTable("t", fields, (0,)))
        numbers = [(1 << 60) + by + place for place in range(len(micros))]
        arrays = [
            pa.array(range(len(micros)), pa.int32()),
            pa.array(numbers),
            pa.array([[number] for number in numbers]),
            pa.array(micros).cast(pa.timestamp("us")),
        ]
        session.insert("t", pa.table(arrays, names=[field.name for field in fields]))
        session.flush()
        sides.append(session)
    with sides[0] as one, sides[1] as other:
        (view,) = one.diff(other=other.meta.objects.uri, tolerance=1e-9).views
        assert [(day.day, day.changed) for day in view.days] == [(day, 2) for day in DAYS]
        assert [(column.name, column.rows) for column in view.columns] == [("n", 12), ("many", 12)]
        assert not one.diff(other=other.meta.objects.uri, tolerance=0.1).differs

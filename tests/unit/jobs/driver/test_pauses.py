"""A run may pause a view that cannot process an epoch's rows.

The view keeps its rows and everything else continues. The expected rows are computed from the inserted rows, in plain
Python. No Spark.
"""

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed, next_death
from tests.support.jobs.driver.embedded import append, insert, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import counted, scan, table, view
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.chunks.failure import ViewFailedError
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.pauses import PausedViewsError, paused_views, require_none_paused, require_none_paused_by
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import EpochSummary, show_summary
from tussock.jobs.logical.nodes import AggCall, Aggregate, Call, Column, Field, Project, Scan
from tussock.jobs.logical.statements import CreateSource, CreateTable, CreateView, Insert, Show, Shown, Transaction
from tussock.jobs.settings.tables import EpochSettings, OnError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.statements.show import answer_show
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

LARGEST = 2**31 - 1
Row = tuple[int, int, int]
GOOD: list[Row] = [(1, 1, 1), (2, 1, 2), (3, 2, 3)]
BAD: Row = (100, 1, LARGEST)
RAISED = r"k \+ a raised: .*Overflow in addition.*The row: k=100.*a=2147483647"


def sums(over: str = "t", name: str = "sums") -> CreateView:
    """SELECT k, k + a AS s FROM t, which overflows."""
    added = Call("Add", "int", (Column(0, "int"), Column(2, "int")), "ANSI")
    plan = Project(scan(over), (Column(0, "int"), added), (Field("k", "int"), Field("s", "int")))
    return view(name, plan)


def sums_of(found: list[Row]) -> list[tuple[object, ...]]:
    return sorted(((k, k + a) for k, _, a in found), key=repr)


def counts_of(found: list[Row]) -> list[tuple[object, ...]]:
    """SELECT s, count(*) FROM sums GROUP BY s"""
    values = [k + a for k, _, a in found]
    return sorted(((s, values.count(s)) for s in set(values)), key=repr)


@pytest.fixture
def meta(tmp_path: Path) -> MetaStore:
    """A store of two epochs: a table, a view that may raise, a view over it, and an independent view."""
    meta = new_store(tmp_path / "store", units=3)
    over = counted(Scan("sums", (0, 1), (Field("k", "int"), Field("s", "int"))), 1)
    append(meta, table("t"), sums(), view("per_sum", over), view("per_g", counted(scan("t"), 1)))
    advance_store(LocalRunner(), meta)
    insert(meta, "t", *GOOD)
    advance_store(LocalRunner(), meta)
    return meta


def run(meta: MetaStore, run: str = "a") -> list[EpochSummary]:
    """A run that may pause views."""
    return advance_store(
        LocalRunner(), meta, InputRequest(run={"run": run}), EpochSettings(max_bytes=None, on_error=OnError.PAUSE)
    )


def require_paused_at(meta: MetaStore, good: list[Row]) -> None:
    assert rows(meta, "sums") == sums_of(good)
    assert rows(meta, "per_sum") == counts_of(good)


def per_g(found: list[Row]) -> list[tuple[object, ...]]:
    groups = [g for _, g, _ in found]
    return sorted(((g, groups.count(g)) for g in set(groups)), key=repr)


def test_the_view_is_paused_with_its_reader_and_everything_else_continues_in_the_same_run(meta: MetaStore) -> None:
    insert(meta, "t", (4, 2, 4), BAD)
    done = run(meta)
    require_paused_at(meta, GOOD)
    assert rows(meta, "per_g") == per_g([*GOOD, (4, 2, 4), BAD])
    assert meta.open_barrier() is None
    (summary,) = done
    assert list(summary.paused) == ["sums"]
    assert "sums is paused from this epoch on: k + a raised" in show_summary(summary)
    with pytest.raises(
        PausedViewsError, match=rf"view 'sums' is paused: {RAISED}.*\(with per_sum, which read it\)"
    ) as raised:
        require_none_paused(meta, done)
    assert "tussock apply PIPELINE --resume sums" in str(raised.value)
    assert "Everything else was taken and committed" in str(raised.value)
    shown = answer_show(meta.read_latest().catalog, Show(Shown.VIEWS))
    states = dict(zip(shown["name"], shown["state"], strict=True))
    assert states["sums"].startswith(f"paused since epoch {summary.epoch}: k + a raised")
    assert (states["per_sum"], states["per_g"]) == (f"paused since epoch {summary.epoch}", "")


def test_later_runs_continue_without_failing_for_it_again(meta: MetaStore) -> None:
    insert(meta, "t", BAD)
    run(meta)
    insert(meta, "t", (5, 3, 5), (101, 1, LARGEST))
    later = run(meta, "b")
    require_none_paused(meta, later)
    require_paused_at(meta, GOOD)
    assert rows(meta, "per_g") == per_g([*GOOD, BAD, (5, 3, 5), BAD])
    require_none_paused_by(meta, {"run": "b"})
    with pytest.raises(PausedViewsError, match=RAISED):  # the same run reports it, even if it is retried
        require_none_paused_by(meta, {"run": "a"})


def test_without_the_setting_the_epoch_stops_and_a_run_that_may_pause_continues(meta: MetaStore) -> None:
    insert(meta, "t", BAD)
    before = meta.read_latest()
    with pytest.raises(ViewRowError, match="view 'sums'"):
        advance_store(LocalRunner(), meta)
    assert meta.read_latest() == before
    run(meta)
    require_paused_at(meta, GOOD)
    assert rows(meta, "per_g") == per_g([*GOOD, BAD])


def test_a_new_view_has_no_rows_to_keep_and_stops_the_epoch(meta: MetaStore) -> None:
    insert(meta, "t", BAD)
    append(meta, sums(name="late"))
    before = meta.read_latest()
    with pytest.raises(ViewRowError, match="view 'late'"):
        run(meta)
    assert meta.read_latest() == before


def test_two_views_that_raise_in_one_epoch_are_both_paused_each_with_its_reason(meta: MetaStore) -> None:
    append(meta, sums(name="again"))
    advance_store(LocalRunner(), meta)
    insert(meta, "t", BAD)
    (summary,) = run(meta)
    assert list(summary.paused) == ["sums", "again"]
    assert rows(meta, "again") == sums_of(GOOD)
    require_paused_at(meta, GOOD)
    barrier = meta.barrier_after(meta.read_manifest(summary.epoch).prev_epoch)  # type: ignore[union-attr]
    assert barrier is not None
    assert set(barrier.skipped) == {"paused sums", "paused again"}


def test_a_paused_view_continues_once_the_row_is_corrected_and_its_run_succeeds(meta: MetaStore) -> None:
    insert(meta, "t", BAD)
    run(meta)
    over = counted(Scan("sums", (0, 1), (Field("k", "int"), Field("s", "int"))), 1)
    resume = Transaction(tuple(msgspec.structs.replace(v, or_replace=True) for v in (sums(), view("per_sum", over))))
    append(meta, resume)
    with pytest.raises(ViewRowError, match="--skip-entry"):  # too early: the new view reads the row
        run(meta, "b")
    (entry,) = range(meta.read_latest().log_end, meta.log_end())
    abandon_barrier(meta, Detour(skip_entries=(entry,)))
    run(meta, "b")
    require_paused_at(meta, GOOD)
    mended: Row = (100, 1, 7)
    insert(meta, "t", mended)
    append(meta, resume)
    run(meta, "c")
    require_paused_at(meta, [*GOOD, mended])
    assert paused_views(meta.read_latest().catalog) == {}
    require_none_paused_by(meta, {"run": "a"})
    insert(meta, "t", (6, 6, 6))
    run(meta, "d")
    require_paused_at(meta, [*GOOD, mended, (6, 6, 6)])


def test_an_aggregate_without_a_value_of_its_type_pauses_its_view_too(tmp_path: Path) -> None:
    meta = new_store(tmp_path / "store")
    fields = (Field("id", "int"), Field("v", "bigint"))
    total = Aggregate(
        Scan("b", (1,), (fields[1],)),
        (),
        (AggCall("Sum", "bigint", (Column(0, "bigint"),), "ANSI"),),
        (Field("s", "bigint"),),
    )
    append(meta, CreateTable("b", fields, (0,)), CreateView("total", "SELECT sum(v) AS s FROM b", total))
    advance_store(LocalRunner(), meta)

    def add(*values: tuple[int, int]) -> None:
        found = pa.table(
            {"id": pa.array([i for i, _ in values], pa.int32()), "v": pa.array([v for _, v in values], pa.int64())}
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)
        append(meta, Insert("b", found.num_rows, meta.put_payload(sink.getvalue().to_pybytes())))

    add((1, 5))
    advance_store(LocalRunner(), meta)
    add((2, 2**63 - 1))
    with pytest.raises(ViewFailedError, match=r"view 'total': .*does not fit bigint"):
        advance_store(LocalRunner(), meta)
    (summary,) = run(meta)
    assert list(summary.paused) == ["total"]
    assert rows(meta, "total") == [(5,)]
    assert rows(meta, "b") == [(1, 5), (2, 2**63 - 1)]


FILE_FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))


def write(path: Path, *found: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({n: pa.array([r[i] for r in found], pa.int32()) for i, n in enumerate("kga")}), path)


def test_in_a_train_of_epochs_those_before_it_count_and_those_after_it_pass_the_view_by(tmp_path: Path) -> None:
    meta, files = new_store(tmp_path / "store"), tmp_path / "files"
    write(files / "0.parquet", GOOD[0])
    over = Scan("s", (0, 1, 2), FILE_FIELDS)
    append(meta, CreateSource("s", "parquet", FILE_FIELDS, {"path": str(files)}))
    added = Call("Add", "int", (Column(0, "int"), Column(2, "int")), "ANSI")
    append(meta, view("sums", Project(over, (Column(0, "int"), added), (Field("k", "int"), Field("s", "int")))))
    append(meta, view("per_g", counted(over, 1)))
    advance_store(LocalRunner(), meta)
    for number, row in enumerate((GOOD[1], BAD, GOOD[2], (9, 9, 9)), start=1):
        write(files / f"{number}.parquet", row)
    write(files / "damaged.parquet", GOOD[0])
    (files / "damaged.parquet").write_bytes((files / "damaged.parquet").read_bytes()[:20])
    done = advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=1, on_error=OnError.PAUSE))
    assert [list(summary.paused) for summary in done if summary.paused] == [["sums"]]
    assert rows(meta, "sums") == sums_of(GOOD[:2])
    assert list(held_sources(meta.read_latest().catalog)) == ["s"]
    (files / "damaged.parquet").unlink()
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=None, on_error=OnError.PAUSE))
    assert rows(meta, "per_g") == per_g([*GOOD, BAD, (9, 9, 9)])
    assert rows(meta, "sums") == sums_of(GOOD[:2])


def test_a_correction_that_a_view_cannot_take_pauses_it_and_restates_the_others(tmp_path: Path) -> None:
    meta, files = new_store(tmp_path / "store"), tmp_path / "files"
    day = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    append(
        meta,
        CreateSource("s", "parquet", FILE_FIELDS, {"path": f"{files}/{{start:%Y-%m-%d}}.parquet", "retain": "files"}),
    )
    over = Scan("s", (0, 1, 2), FILE_FIELDS)
    added = Call("Add", "int", (Column(0, "int"), Column(2, "int")), "ANSI")
    append(meta, view("sums", Project(over, (Column(0, "int"), added), (Field("k", "int"), Field("s", "int")))))
    append(meta, view("per_g", counted(over, 1)))
    write(files / "2026-01-01.parquet", *GOOD)
    advance_store(LocalRunner(), meta, InputRequest(day))
    corrected: list[Row] = [(1, 7, 1), (5, 7, 5), BAD]
    write(files / "2026-01-01.parquet", *corrected)
    done = advance_store(LocalRunner(), meta, InputRequest(day), EpochSettings(max_bytes=None, on_error=OnError.PAUSE))
    assert [list(summary.paused) for summary in done] == [["sums"]]
    assert rows(meta, "sums") == sums_of(GOOD)
    assert rows(meta, "per_g") == per_g(corrected)
    assert (
        advance_store(LocalRunner(), meta, InputRequest(day), EpochSettings(max_bytes=None, on_error=OnError.PAUSE))
        == []
    )


def test_a_driver_killed_at_any_request_of_a_run_that_pauses_can_be_continued_with_the_same_rows(
    meta: MetaStore, tmp_path: Path
) -> None:
    insert(meta, "t", (4, 2, 4), BAD)
    calls: list[tuple[str, str]] = []
    number = 0
    while number <= len(calls):
        store = Path(shutil.copytree(tmp_path / "store", tmp_path / f"store-{number}"))
        objects = FaultyObjectStore(open_object_store(str(store)))
        if number < len(calls):
            objects.kill(number)
        with suppress(Killed, RetryableError, LostRaceError):
            advance_store(
                LocalRunner(),
                MetaStore(objects, "first", lambda: 1_700_000_100_000),
                InputRequest(run={"run": "a"}),
                EpochSettings(max_bytes=None, on_error=OnError.PAUSE),
            )
        calls = calls or list(objects.calls)
        other = open_store(store, "second")
        run(other)
        require_paused_at(other, GOOD)
        assert rows(other, "per_g") == per_g([*GOOD, (4, 2, 4), BAD]), f"killed at request {number}"
        with pytest.raises(PausedViewsError, match=RAISED):  # the run reports it, even if another process committed it
            require_none_paused_by(other, {"run": "a"})
        shutil.rmtree(store)
        number = next_death(calls, number)
    assert sum(name.startswith("meta/barrier") for operation, name in calls if operation == "put_if_absent") == 2

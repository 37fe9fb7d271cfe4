"""A failing source is held: its new files wait with a reason, and everything else continues.

The source continues once the cause is gone. The expected rows are read by pyarrow from the files' bytes at the time
they were taken. No Spark.
"""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, insert, new_store, open_store, rows
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.barriers.source_holds import HeldSourcesError, held_sources, require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LevelsToRun, LocalRunner
from tussock.jobs.driver.summary import EpochSummary, show_summary
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import (
    AddSourceColumns,
    CreateSource,
    CreateTable,
    CreateView,
    SetSourceOptions,
    Show,
    Shown,
)
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources.errors import ChangedFileError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.statements.show import answer_show
from tussock.jobs.trouble.detour_errors import NothingToAbandonError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))
FILE_FIELDS = (Field("id", "int"), Field("v", "int"))


class Counting(LocalRunner):
    """Counts its runs; `before` runs before the levels of an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0
        self.before: Callable[[], None] = lambda: None

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, object]:  # type: ignore[override]
        self.ran += 1
        self.before()
        return super().run(levels)


def source(name: str, path: object) -> CreateSource:
    return CreateSource(name, "parquet", FILE_FIELDS, {"path": str(path)})


def over(source_name: str) -> CreateView:
    """SELECT id, v FROM a source."""
    return CreateView(f"of_{source_name}", "SELECT …", Scan(source_name, (0, 1), FILE_FIELDS))


def write(path: Path, *ids: int) -> list[tuple[object, ...]]:
    """Write a file of these ids; return its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int32()), "v": pa.array([10 * i for i in ids], pa.int32())}), path)
    return [(row["id"], row["v"]) for row in pq.read_table(path).to_pylist()]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def meta(tmp_path: Path, files: Path) -> MetaStore:
    """Sources `s` and `other` with one taken file each, a view over each, and a table."""
    meta = new_store(tmp_path / "store")
    write(files / "s" / "1.parquet", 1)
    write(files / "other" / "1.parquet", 100)
    append(
        meta,
        source("s", files / "s"),
        source("other", files / "other"),
        over("s"),
        over("other"),
        CreateTable("t", FIELDS, (0,)),
    )
    insert(meta, "t", (1, 1, 1))
    advance_store(LocalRunner(), meta)
    return meta


def run(meta: MetaStore, interval: Interval | None = None, runner: LocalRunner | None = None) -> list[EpochSummary]:
    """Run as the commands do: process all waiting input, then raise if some of it failed."""
    done = advance_store(runner or LocalRunner(), meta, InputRequest(interval))
    require_not_held(meta.read_latest().catalog, interval)
    return done


def reason(meta: MetaStore, interval: Interval | None = None) -> str:
    """The reason why a run could not take the files of `s`."""
    with pytest.raises(HeldSourcesError, match="Everything else was taken and committed") as raised:
        run(meta, interval)
    assert list(raised.value.reasons) == ["s"]
    return raised.value.reasons["s"]


def damage(path: Path) -> bytes:
    """Cut the file in the middle; return its original bytes."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


def change_the_rest(meta: MetaStore, files: Path) -> None:
    write(files / "other" / "2.parquet", 101)
    insert(meta, "t", (2, 2, 2))


def require_the_rest_went_on(meta: MetaStore) -> None:
    assert rows(meta, "of_other") == [(100, 1000), (101, 1010)]
    assert rows(meta, "t") == [(1, 1, 1), (2, 2, 2)]
    assert meta.open_barrier() is None


def state_of(meta: MetaStore, name: str) -> str:
    shown = answer_show(meta.read_latest().catalog, Show(Shown.SOURCES))
    return shown["state"][list(shown["name"]).index(name)]


def test_a_damaged_file_holds_its_source_alone_until_it_is_repaired(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "2.parquet", 2, 3)
    whole = damage(files / "s" / "2.parquet")
    change_the_rest(meta, files)
    why = reason(meta)
    assert f"file {files}/s/2.parquet cannot be read as parquet" in why
    require_the_rest_went_on(meta)
    assert rows(meta, "of_s") == [(1, 10)]
    assert state_of(meta, "s") == f"held since epoch {meta.read_latest().epoch}: {why}"
    assert state_of(meta, "other") == ""
    held = {s.source: [f"held since epoch {h.since}: {h.reason}" for h in s.held] for s in list_sources(meta)}
    assert held == {"s": [state_of(meta, "s")], "other": []}
    (files / "s" / "2.parquet").write_bytes(whole)
    (summary,) = run(meta)
    assert summary.held == {}
    assert rows(meta, "of_s") == [(1, 10), (2, 20), (3, 30)]
    assert state_of(meta, "s") == ""


def test_a_source_that_stays_held_is_not_read_again_and_makes_no_epochs(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "2.parquet", 2)
    damage(files / "s" / "2.parquet")
    first, epoch = reason(meta), meta.read_latest().epoch
    again = Counting()
    with pytest.raises(HeldSourcesError):
        run(meta, runner=again)
    assert (again.ran, meta.read_latest().epoch) == (0, epoch)
    write(files / "s" / "3.parquet", 3)  # undamaged, and waits with the other
    assert reason(open_store(files.parent / "store", "another")) == first
    assert meta.read_latest().epoch == epoch
    change_the_rest(meta, files)
    (summary,) = advance_store(again, meta)
    assert again.ran == 1, "the epoch of the others, and no attempt at the damaged file"
    require_the_rest_went_on(meta)
    assert f"\n  s has been held since epoch {epoch}: {first}" in show_summary(summary)


def test_a_path_that_disappeared_holds_its_source_until_it_is_back(meta: MetaStore, files: Path) -> None:
    moved = shutil.move(files / "s", files / "elsewhere")
    change_the_rest(meta, files)
    assert "no file at" in reason(meta)
    require_the_rest_went_on(meta)
    epoch = meta.read_latest().epoch
    assert "no file at" in reason(meta), "each run that wants its files fails"
    assert meta.read_latest().epoch == epoch
    shutil.move(moved, files / "s")
    write(files / "s" / "2.parquet", 2)
    run(meta)
    assert rows(meta, "of_s") == [(1, 10), (2, 20)]
    assert state_of(meta, "s") == ""


def test_a_file_that_changed_after_it_was_taken_holds_its_source_and_no_changed_byte_is_taken(
    meta: MetaStore, files: Path
) -> None:
    as_taken = (files / "s" / "1.parquet").read_bytes()
    write(files / "s" / "1.parquet", 1, 99)
    write(files / "s" / "2.parquet", 2)
    change_the_rest(meta, files)
    assert "1.parquet has changed" in reason(meta)
    require_the_rest_went_on(meta)
    assert rows(meta, "of_s") == [(1, 10)]
    (files / "s" / "1.parquet").write_bytes(as_taken)
    run(meta)
    assert rows(meta, "of_s") == [(1, 10), (2, 20)]


def test_a_changed_file_that_a_person_accepts_no_longer_holds_its_source(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "1.parquet", 1, 99)
    write(files / "s" / "2.parquet", 2)
    reason(meta)
    abandon_barrier(meta, Detour(skip_files=(str(files / "s" / "1.parquet"),)))
    run(meta)
    assert rows(meta, "of_s") == [(1, 10), (2, 20)]
    assert state_of(meta, "s") == ""


def test_a_damaged_file_is_skipped_or_tried_again_at_a_persons_word(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "2.parquet", 2)
    damage(files / "s" / "2.parquet")
    write(files / "s" / "3.parquet", 3)
    reason(meta)
    with pytest.raises(NothingToAbandonError, match=r"3\.parquet' is not pinned"):
        abandon_barrier(meta, Detour(repin_files=(str(files / "s" / "3.parquet"),)))
    abandon_barrier(meta, Detour(repin_files=(str(files / "s" / "2.parquet"),)))
    again = Counting()
    with pytest.raises(HeldSourcesError):
        run(meta, runner=again)
    assert again.ran == 1, "it was tried, and is held again"
    abandon_barrier(meta, Detour(skip_files=(str(files / "s" / "2.parquet"),)))
    run(meta)
    assert rows(meta, "of_s") == [(1, 10), (3, 30)]


def daily(folder: Path, count: int) -> tuple[MetaStore, Path, list[Interval]]:
    """A store whose source has a file per day in a folder, and the days' intervals."""
    meta, days, start = new_store(folder / "store"), folder / "days", datetime(2026, 1, 1, tzinfo=UTC)
    append(meta, source("s", f"{days}/{{start:%Y-%m-%d}}.parquet"), over("s"))
    for n in range(count):
        write(days / f"2026-01-0{n + 1}.parquet", n)
    return meta, days, [Interval(start + timedelta(days=n), start + timedelta(days=n + 1)) for n in range(count)]


def test_runs_of_other_intervals_neither_wait_nor_fail(tmp_path: Path) -> None:
    meta, days, intervals = daily(tmp_path, 3)
    whole = damage(days / "2026-01-02.parquet")
    run(meta, intervals[0])
    assert "2026-01-02.parquet" in reason(meta, intervals[1])
    run(meta, intervals[2])
    assert rows(meta, "of_s") == [(0, 0), (2, 20)]
    assert "2026-01-02.parquet" in state_of(meta, "s"), "a run of another interval does not read it"
    run(meta, intervals[0])
    assert "2026-01-02.parquet" in reason(meta, intervals[1])
    assert "2026-01-02.parquet" in reason(meta), "a run over all waiting input needs it too"
    taken = (days / "2026-01-01.parquet").read_bytes()
    write(days / "2026-01-01.parquet", 77, 78)
    assert "2026-01-01.parquet has changed" in reason(meta, intervals[0])
    assert "2026-01-02.parquet" in reason(meta, intervals[1]), (
        "what one run meets does not make another's trouble forgotten"
    )
    (days / "2026-01-01.parquet").write_bytes(taken)
    run(meta, intervals[0])
    (days / "2026-01-02.parquet").write_bytes(whole)
    run(meta, intervals[1])
    assert rows(meta, "of_s") == [(0, 0), (1, 10), (2, 20)]
    assert held_sources(meta.read_latest().catalog) == {}


def test_a_train_holds_a_damaged_file_continues_with_others_and_takes_it_once_repaired(
    meta: MetaStore, files: Path
) -> None:
    """Each epoch takes one file per source. The damaged file is read while earlier epochs are in flight."""
    for n in range(2, 8):
        write(files / "s" / f"{n}.parquet", n)
        write(files / "other" / f"{n}.parquet", 99 + n)
    whole = damage(files / "s" / "4.parquet")
    done = advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=1))
    assert len(done) >= 6
    assert [s.epoch for s in done] == sorted({s.epoch for s in done})
    assert rows(meta, "of_other") == [(99 + n, 10 * (99 + n)) for n in range(1, 8)]
    assert rows(meta, "of_s") == [(1, 10), (2, 20), (3, 30)]
    (files / "s" / "4.parquet").write_bytes(whole)
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=1))
    assert rows(meta, "of_s") == [(n, 10 * n) for n in range(1, 8)]
    require_not_held(meta.read_latest().catalog)


def test_an_error_during_a_train_fails_that_run(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "2.parquet", 2)
    runner = Counting()

    def take_away() -> None:
        runner.before = lambda: None
        shutil.move(files / "other", files / "elsewhere")

    runner.before = take_away
    with pytest.raises(HeldSourcesError, match=r"source 'other' is held: .*no file at"):
        run(meta, runner=runner)
    assert rows(meta, "of_s") == [(1, 10), (2, 20)]


def test_columns_that_new_files_hold_and_the_source_does_not_declare_are_named_and_no_error(
    meta: MetaStore, files: Path
) -> None:
    for name, more in (
        ("2", {"w": pa.array(["x"]), "ID": pa.array([2], pa.int32())}),
        ("3", {"ID": pa.array([3], pa.int32()), "u": [1.5]}),
    ):
        pq.write_table(pa.table({**more, "v": pa.array([7], pa.int32())}), files / "s" / f"{name}.parquet")
    (summary,) = run(meta)
    assert summary.undeclared == {"s": ("u double", "w string")}
    assert "\n  new files of s contain columns that it does not declare: u double, w string" in show_summary(summary)
    assert rows(meta, "of_s") == [(1, 10), (2, 7), (3, 7)]
    append(meta, CreateView("late", "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    (later,) = run(meta)
    assert later.undeclared == {}, "the summary reports them only for new files"
    assert rows(meta, "late") == rows(meta, "of_s")


def test_two_sources_over_one_bad_file_are_both_held(meta: MetaStore, files: Path) -> None:
    append(meta, source("s2", files / "s"), over("s2"))
    write(files / "s" / "2.parquet", 2)
    damage(files / "s" / "2.parquet")
    change_the_rest(meta, files)
    with pytest.raises(HeldSourcesError) as raised:
        run(meta)
    assert sorted(raised.value.reasons) == ["s", "s2"]
    require_the_rest_went_on(meta)
    assert rows(meta, "of_s2") == [], "its first epoch had this file among its new ones"


def test_a_file_written_while_it_is_read_is_taken_as_it_is_in_the_end(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "2.parquet", 2)
    runner = Counting()

    def rewrite_once() -> None:
        runner.before = lambda: None
        write(files / "s" / "2.parquet", 20, 21)

    runner.before = rewrite_once
    run(meta, runner=runner)
    assert rows(meta, "of_s") == [(1, 10), (20, 200), (21, 210)]


def test_a_file_that_never_rests_holds_its_source_alone_until_it_rests(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "2.parquet", 2)
    change_the_rest(meta, files)
    runner, written = Counting(), iter(range(1000, 2000))
    runner.before = lambda: write(files / "s" / "2.parquet", next(written), next(written)) and None
    with pytest.raises(HeldSourcesError, match="has changed"):
        run(meta, runner=runner)
    assert runner.ran == 3, "two attempts at the file, and the epoch of the others"
    require_the_rest_went_on(meta)
    last = write(files / "s" / "2.parquet", 5)
    run(meta)
    assert rows(meta, "of_s") == [(1, 10), *last]


def test_a_new_view_over_a_held_source_reads_the_taken_files(meta: MetaStore, files: Path) -> None:
    write(files / "s" / "2.parquet", 2)
    damage(files / "s" / "2.parquet")
    reason(meta)
    append(meta, CreateView("late", "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    reason(meta)
    assert rows(meta, "late") == [(1, 10)] == rows(meta, "of_s")


def test_a_taken_file_that_is_damaged_stops_a_new_view_as_before_and_holds_nothing(
    meta: MetaStore, files: Path
) -> None:
    (files / "s" / "1.parquet").unlink()
    append(meta, CreateView("late", "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    before = meta.read_latest()
    with pytest.raises(ChangedFileError, match="no such file"):
        run(meta)
    assert meta.read_latest() == before
    abandon_barrier(meta, Detour(drop=("late",)))
    run(meta)
    assert rows(meta, "of_s") == [(1, 10)]


def test_a_driver_killed_at_any_request_of_a_run_with_a_hold_can_be_continued_with_the_same_rows(
    meta: MetaStore, files: Path, tmp_path: Path
) -> None:
    write(files / "s" / "2.parquet", 2)
    whole = damage(files / "s" / "2.parquet")
    change_the_rest(meta, files)
    calls: list[tuple[str, str]] = []
    for store in stores_after_deaths(tmp_path / "store", lambda first: advance_store(LocalRunner(), first), calls):
        other = MetaStore(open_object_store(str(store)), "second", lambda: 1_700_000_200_000)
        advance_store(LocalRunner(), other)
        require_the_rest_went_on(other)
        assert (rows(other, "of_s"), list(held_sources(other.read_latest().catalog))) == ([(1, 10)], ["s"]), (
            f"killed at the request of {store.name}"
        )
        (files / "s" / "2.parquet").write_bytes(whole)
        run(other)
        assert rows(other, "of_s") == [(1, 10), (2, 20)]
        damage(files / "s" / "2.parquet")
    assert sum(name.startswith("meta/barrier") for operation, name in calls if operation == "put_if_absent") == 2


def test_a_column_that_is_added_makes_no_damaged_file_of_another_interval_forgotten(tmp_path: Path) -> None:
    meta, days, intervals = daily(tmp_path, 4)
    damage(days / "2026-01-02.parquet")
    run(meta, intervals[0])
    assert "2026-01-02" in reason(meta, intervals[1])
    append(meta, AddSourceColumns("s", FILE_FIELDS, (Field("x", "int"),)))
    run(meta, intervals[3])
    assert held_sources(meta.read_latest().catalog)
    write(days / "2026-01-02.parquet", 1)
    run(meta, intervals[1])
    assert not held_sources(meta.read_latest().catalog)


@pytest.mark.parametrize(("name", "is_held"), [("{start:%Y-%m-%d}*.parquet", True), ("{start:%Y}/*.parquet", False)])
def test_a_new_path_ends_only_the_holds_of_files_that_it_does_not_name(
    tmp_path: Path, name: str, is_held: bool
) -> None:
    meta = new_store(tmp_path / "store")
    days = tmp_path / "days"
    path = f"{days}/{{start:%Y-%m-%d}}.parquet"
    append(meta, source("s", path), over("s"))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    first, second = (Interval(start + timedelta(days=n), start + timedelta(days=n + 1)) for n in range(2))
    for place in ("2026-01-01", "2026-01-02", "2026/any"):
        write(days / f"{place}.parquet", 1)
    damage(days / "2026-01-01.parquet")
    reason(meta, first)
    append(meta, SetSourceOptions("s", {"path": path}, {"path": f"{days}/{name}"}))
    run(meta, second)
    assert rows(meta, "of_s") == [(1, 10)]
    assert ("2026-01-01" in state_of(meta, "s")) is is_held

"""Restating a source removes the old rows and adds the current ones.

Views created later see the same rows as the others. The expected rows are pyarrow's read of each file when it was
written. No Spark.
"""

import os
import shutil
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed, next_death
from tests.support.jobs.driver.embedded import append, epoch, new_store, open_store, rows
from tests.support.s3_servers import BUCKET, credentials, moto_process
from tests.unit.jobs.barriers.test_source_holds import FILE_FIELDS, damage, over, write
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.barriers.source_holds import HeldSourcesError, held_sources, require_not_held
from tussock.jobs.driver.epoch import advance_store, next_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import show_summary
from tussock.jobs.logical.nodes import Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop
from tussock.jobs.reading.stored_rows import changes_between
from tussock.jobs.sources import pins
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import BadOptionError, CannotRestateError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.trouble.restate import EpochUnderWayError, Restating
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.jobs.upkeep.vacuum import sweep_store
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.names import SOURCES
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore import local
from tussock.statestore.objectstore.base import ObjectInfo
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table import recalled_table

DAYS = [
    Interval(datetime(2026, 1, d, tzinfo=UTC), datetime(2026, 1, d, tzinfo=UTC) + timedelta(days=1)) for d in (1, 2, 3)
]
Rows = list[tuple[object, ...]]


def source(path: object, **options: str) -> CreateSource:
    return CreateSource("s", "parquet", FILE_FIELDS, {"path": str(path), "retain": "files", **options})


@pytest.fixture
def days(tmp_path: Path) -> Path:
    return tmp_path / "days"


def day(days: Path, n: int, name: str = "a") -> Path:
    return days / f"2026-01-0{n}" / f"{name}.parquet"


@pytest.fixture
def meta(tmp_path: Path, days: Path) -> MetaStore:
    """A source with one folder per day, two views over it, and a view over those; one file taken for each of three
    days.
    """
    meta = new_store(tmp_path / "store")
    for n in (1, 2, 3):
        write(day(days, n), n, 10 + n)
    append(
        meta,
        source(days / "{start:%Y-%m-%d}"),
        over("s"),
        CreateView("over", "SELECT …", Scan("of_s", (0, 1), FILE_FIELDS)),
    )
    for interval in DAYS:
        advance_store(LocalRunner(), meta, InputRequest(interval))
    return meta


def restate(meta: MetaStore, restated: Restated) -> bool:
    """Restate like the command. Returns whether it had work to do."""
    restating = Restating(meta, "s", restated)
    if restating.begin_restating() is None:
        return False
    next_epoch(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    return True


def require(meta: MetaStore, expected: Rows) -> None:
    """Check that all views, and a newly created one, have these rows."""
    assert rows(meta, "of_s") == sorted(expected, key=repr)
    assert rows(meta, "over") == sorted(expected, key=repr)
    append(meta, CreateView("late", "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    epoch(meta)
    assert rows(meta, "late") == sorted(expected, key=repr)
    append(meta, Drop(RelationKind.VIEW, "late"))
    epoch(meta)


def of(*ids: int) -> Rows:
    return [(i, 10 * i) for i in ids]


def copies(meta: MetaStore) -> list[str]:
    return [found.name for found in meta.objects.list(SOURCES)]


def test_a_corrected_file_replaces_its_old_rows_in_every_view(meta: MetaStore, days: Path) -> None:
    internal = f"__quality__paid_assertion_{32 * '0'}"  # affected too, but users have no view of this name
    append(meta, CreateView(internal, "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    write(day(days, 2), 2, 99)
    restating = Restating(meta, "s", Restated(str(day(days, 2))))
    assert (
        [i.name for i in restating.restatement.goes]
        == [i.name for i in restating.restatement.comes]
        == [str(day(days, 2))]
    )
    assert restating.restatement.readers == ("of_s", "over")
    assert restating.count_rows(lambda: pytest.fail("Parquet needs no Spark")) == (2, 2)
    assert rows(meta, "of_s") == of(1, 11, 12, 13, 2, 3), "so far it was looked at"
    assert restate(meta, Restated(str(day(days, 2))))
    require(meta, of(1, 11, 2, 99, 3, 13))
    assert not restate(meta, Restated(str(day(days, 2)))), "once is enough"
    assert not restate(meta, Restated(str(day(days, 2)), by=str(day(days, 2)))), "nor does it take its own place"


def test_the_changes_of_a_correction_contain_no_row_that_is_deleted_and_inserted(meta: MetaStore, days: Path) -> None:
    before = meta.read_latest().epoch
    write(day(days, 2), 2, 99)
    assert restate(meta, Restated(str(day(days, 2))))
    version = meta.read_latest()
    for name in ("of_s", "over"):
        (relation,) = [r for r in version.catalog.live_relations() if r.name == name]
        changes = changes_between(meta.objects, version, relation, before, version.epoch)
        assert sorted(zip(*(c.to_pylist() for c in changes.columns), strict=True)) == [
            (12, 120, "delete"),
            (99, 990, "insert"),
        ]
        changes = changes_between(meta.objects, version, relation, before, version.epoch, ["id"])
        assert sorted(zip(*(c.to_pylist() for c in changes.columns), strict=True)) == [(12, "delete"), (99, "insert")]


def test_a_correction_of_the_same_size_and_time_is_noticed(meta: MetaStore, days: Path) -> None:
    """As left by a tool that preserves times (`cp -p`, `rsync -t`, an archive)."""
    before = day(days, 2).stat()
    write(day(days, 2), 2, 99)
    os.utime(day(days, 2), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert day(days, 2).stat().st_size == before.st_size, "else its size would show it"
    append(meta, CreateView("at_once", "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    epoch(meta)
    assert rows(meta, "at_once") == sorted(of(1, 11, 2, 12, 3, 13), key=repr), (
        "a new view has the same rows as the others"
    )
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 2, 99, 3, 13))


@pytest.mark.parametrize(
    ("written_ns", "later_ns"), [(1_700_000_000_004_000_000, 4_000_000), (1_700_000_000 * 10**9, 10**9)]
)
def test_a_correction_within_one_tick_of_the_file_system_is_noticed(
    written_ns: int, later_ns: int, tmp_path: Path, days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is rewritten in the same size before its file system's clock moves.

    One file system's clock ticks every 4 ms, another keeps whole seconds.
    """
    etag = f"{{}}-{written_ns}-{written_ns}"
    monkeypatch.setattr(
        local, "_info_of_stat", lambda name, stat: ObjectInfo(name, stat.st_size, etag.format(stat.st_size))
    )
    monkeypatch.setattr(pins.time, "time_ns", lambda: written_ns + later_ns)
    meta = new_store(tmp_path / "store")
    write(day(days, 1), 1, 3)
    append(
        meta,
        source(days / "{start:%Y-%m-%d}"),
        over("s"),
        CreateView("over", "SELECT …", Scan("of_s", (0, 1), FILE_FIELDS)),
    )
    advance_store(LocalRunner(), meta, InputRequest(DAYS[0]))
    write(day(days, 1), 2, 3)
    advance_store(LocalRunner(), meta, InputRequest(DAYS[0]))
    require(meta, of(2, 3))


def test_a_file_that_rests_is_read_once(tmp_path: Path, days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    content = pins._read_content
    monkeypatch.setattr(pins, "_read_content", lambda path: read.append(path) or content(path))
    meta = new_store(tmp_path / "store")
    write(day(days, 1), 1)
    changed = day(days, 1).stat().st_ctime_ns
    monkeypatch.setattr(pins.time, "time_ns", lambda: changed + 3 * 10**9)
    append(meta, source(days / "{start:%Y-%m-%d}"), over("s"))
    for _ in range(3):
        advance_store(LocalRunner(), meta, InputRequest(DAYS[0]))
    assert read == [str(day(days, 1))]
    day(days, 1).chmod(0o600)
    monkeypatch.setattr(pins.time, "time_ns", lambda: changed + 3600 * 10**9)
    for _ in range(3):
        assert advance_store(LocalRunner(), meta, InputRequest(DAYS[0])) == [], "it has the content that was taken"
    assert read == [str(day(days, 1))] * 2, "read again, because its inode changed"


def test_a_view_that_is_created_in_the_epoch_of_a_restatement_has_the_current_rows(meta: MetaStore, days: Path) -> None:
    write(day(days, 2), 2, 99)
    append(meta, CreateView("at_once", "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    assert restate(meta, Restated(str(day(days, 2))))
    assert rows(meta, "at_once") == sorted(of(1, 11, 2, 99, 3, 13), key=repr)


def test_several_files_are_restated_in_one_epoch(meta: MetaStore, days: Path) -> None:
    for n in (1, 2, 3):
        write(day(days, n), n, 90 + n)
    before = meta.read_latest().id
    assert restate(meta, Restated(str(day(days, 1)), more=(str(day(days, 3)), str(day(days, 1)))))
    assert meta.read_latest().id == before + 1, "one commit"
    require(meta, of(1, 91, 2, 12, 3, 93))


@pytest.mark.parametrize("named", ["2026-01-0[23]", "2026-01-0[23]/*.parquet", "2026-01-0?/a.*"])
def test_a_glob_names_all_its_files(meta: MetaStore, days: Path, named: str) -> None:
    for n in (2, 3):
        write(day(days, n), n, 90 + n)
    assert restate(meta, Restated(str(days / named)))
    require(meta, of(1, 11, 2, 92, 3, 93))


def test_a_folder_that_was_written_again_under_other_names_is_restated_by_its_rows(meta: MetaStore, days: Path) -> None:
    day(days, 2).unlink()
    write(day(days, 2, "b"), 2)
    write(day(days, 2, "c"), 99)
    Restating(meta, "s", Restated(str(days / "2026-01-02"), more=(str(day(days, 1)),))).begin_restating()
    summary = next_epoch(LocalRunner(), meta)
    assert summary is not None
    assert summary.rows["s"].rows_out == 2, "row 12 went, row 99 came, and row 2 moved to another file"
    require(meta, of(1, 11, 2, 99, 3, 13))
    assert restate(meta, Restated(str(days), gone=True))
    require(meta, [])


def test_a_restatement_names_files_that_it_can_restate(meta: MetaStore, days: Path) -> None:
    for asked in (
        Restated(str(days / "2026-02-*")),
        Restated(str(days / "2026-01-0*"), by=str(day(days, 1))),
        Restated(str(day(days, 1)), by=str(day(days, 2)), more=(str(day(days, 3)),)),
    ):
        with pytest.raises(CannotRestateError, match=r"no epoch has read a file|can replace one file only"):
            Restating(meta, "s", asked)


def test_its_epoch_reads_only_that_file(meta: MetaStore, days: Path) -> None:
    write(day(days, 2), 2, 99)
    Restating(meta, "s", Restated(str(day(days, 2)))).begin_restating()
    summary = next_epoch(LocalRunner(), meta)
    assert summary is not None
    assert {name: n.rows_out for name, n in summary.rows.items()} == {"s": 2, "of_s": 2, "over": 2}, (
        "one row went, and one came; the other is equal"
    )


def test_the_rows_of_a_deleted_file_are_removed_on_request(meta: MetaStore, days: Path) -> None:
    day(days, 2).unlink()
    with pytest.raises(CannotRestateError, match=r"file .* no longer exists; use --gone"):
        Restating(meta, "s", Restated(str(day(days, 2))))
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 2, 12, 3, 13))
    assert restate(meta, Restated(str(day(days, 2)), gone=True))
    require(meta, of(1, 11, 3, 13))
    write(day(days, 2), 2)
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 2, 3, 13))


def test_a_file_whose_rows_were_removed_is_not_read_again_until_it_changes(meta: MetaStore, days: Path) -> None:
    assert restate(meta, Restated(str(day(days, 2)), gone=True))
    assert not restate(meta, Restated(str(day(days, 2)), gone=True))
    assert advance_store(LocalRunner(), meta, InputRequest(DAYS[1])) == []
    day(days, 2).touch()
    assert advance_store(LocalRunner(), meta, InputRequest(DAYS[1])) == [], "it has another time, and is no other file"
    require(meta, of(1, 11, 3, 13))
    write(day(days, 2), 22)
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 22, 3, 13))
    assert restate(meta, Restated(str(day(days, 2)), gone=True))
    day(days, 2).unlink()
    assert advance_store(LocalRunner(), meta, InputRequest(DAYS[1])) == []
    write(day(days, 2), 22)
    assert advance_store(LocalRunner(), meta, InputRequest(DAYS[1])) == [], (
        "a delivery of the same bytes is no other file"
    )
    assert restate(meta, Restated(str(day(days, 2))))
    require(meta, of(1, 11, 22, 3, 13))


def test_another_file_takes_the_place_of_one(meta: MetaStore, days: Path, tmp_path: Path) -> None:
    write(tmp_path / "corrected.parquet", 7, 8)
    with pytest.raises(CannotRestateError, match="does not exist"):
        Restating(meta, "s", Restated(str(day(days, 2)), by=str(tmp_path / "typo.parquet")))
    assert restate(meta, Restated(str(day(days, 2)), by=str(tmp_path / "corrected.parquet")))
    require(meta, of(1, 11, 7, 8, 3, 13))
    with pytest.raises(CannotRestateError, match=r"has already read .*corrected.parquet'"):
        Restating(meta, "s", Restated(str(day(days, 1)), by=str(tmp_path / "corrected.parquet")))
    (tmp_path / "corrected.parquet").unlink()
    require(meta, of(1, 11, 7, 8, 3, 13))


def test_a_run_of_an_interval_restates_its_changed_files_and_other_runs_do_not(meta: MetaStore, days: Path) -> None:
    write(day(days, 2), 2, 99)
    write(day(days, 2, "late"), 5)
    assert advance_store(LocalRunner(), meta, InputRequest(DAYS[0])) == []
    assert advance_store(LocalRunner(), meta, InputRequest(DAYS[2])) == []
    require(meta, of(1, 11, 2, 12, 3, 13))
    said: list[str] = []
    (summary,) = advance_store(LocalRunner(), meta, InputRequest(DAYS[1]), progress=said.append)
    assert f"restates {day(days, 2)} of s" in said[0]
    assert f"restated files of s: {day(days, 2)}\n" in f"{show_summary(summary)}\n", "the late file is new"
    require(meta, of(1, 11, 2, 99, 5, 3, 13))
    assert advance_store(LocalRunner(), meta, InputRequest(DAYS[1])) == []


def test_an_interval_is_restated_with_changed_deleted_and_late_files(meta: MetaStore, days: Path) -> None:
    write(day(days, 2, "b"), 20)
    write(day(days, 2, "c"), 21)
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    write(day(days, 2), 2, 99)
    day(days, 2, "b").unlink()
    write(day(days, 2, "late"), 5)
    day(days, 3).unlink()
    assert restate(meta, Restated(interval=DAYS[1]))
    require(meta, of(1, 11, 2, 99, 21, 5, 3, 13))
    assert not restate(meta, Restated(interval=DAYS[1]))


def test_an_emptied_file_has_no_rows(meta: MetaStore, days: Path) -> None:
    day(days, 2).write_bytes(b"")
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 3, 13))
    write(day(days, 2), 4)
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 4, 3, 13))


def test_a_later_view_sees_the_same_rows_as_the_others_even_if_files_changed(meta: MetaStore, days: Path) -> None:
    day(days, 1).unlink()
    write(day(days, 2), 77)
    damage(day(days, 3))
    require(meta, of(1, 11, 2, 12, 3, 13))


def test_a_source_without_intervals_treats_a_changed_file_as_declared(tmp_path: Path) -> None:
    for policy in ("error", "restate", "ignore"):
        folder, files = tmp_path / policy, tmp_path / f"{policy}-files"
        meta = new_store(folder)
        write(files / "a.parquet", 1)
        append(meta, source(files, on_change=policy), over("s"))
        epoch(meta)
        write(files / "a.parquet", 2)
        write(files / "b.parquet", 3)
        advance_store(LocalRunner(), meta)
        if policy == "error":
            assert rows(meta, "of_s") == of(1)
            with pytest.raises(HeldSourcesError, match=r"has changed: .*tussock restate"):
                require_not_held(meta.read_latest().catalog)
            assert restate(meta, Restated(str(files / "a.parquet")))
            advance_store(LocalRunner(), meta)
            assert held_sources(meta.read_latest().catalog) == {}
            assert rows(meta, "of_s") == of(2, 3)
        else:
            assert rows(meta, "of_s") == (of(2, 3) if policy == "restate" else of(1, 3))


def test_a_damaged_correction_leaves_everything_as_it_was(meta: MetaStore, days: Path) -> None:
    write(day(days, 2), 2, 99)
    whole = damage(day(days, 2))
    with pytest.raises(HeldSourcesError, match="cannot be read as parquet"):
        restate(meta, Restated(str(day(days, 2))))
    require(meta, of(1, 11, 2, 12, 3, 13))
    day(days, 2).write_bytes(whole)
    assert restate(meta, Restated(str(day(days, 2))))
    require(meta, of(1, 11, 2, 99, 3, 13))


def test_a_file_that_was_damaged_since_it_was_taken_is_held_and_looked_at_once(meta: MetaStore, days: Path) -> None:
    write(day(days, 2), 2, 99)
    whole = damage(day(days, 2))
    for _ in range(2):
        advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
        with pytest.raises(HeldSourcesError, match="cannot be read as parquet"):
            require_not_held(meta.read_latest().catalog, DAYS[1])
    require(meta, of(1, 11, 2, 12, 3, 13))
    day(days, 2).write_bytes(whole)
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 2, 99, 3, 13))


def test_a_changed_file_that_a_person_skips_keeps_its_rows_in_views_of_before_and_after(tmp_path: Path) -> None:
    meta, files = new_store(tmp_path / "store"), tmp_path / "files"
    write(files / "a.parquet", 1)
    append(meta, source(files), over("s"), CreateView("over", "SELECT …", Scan("of_s", (0, 1), FILE_FIELDS)))
    epoch(meta)
    write(files / "a.parquet", 2)
    append(meta, CreateView("at_once", "SELECT …", Scan("s", (0, 1), FILE_FIELDS)))
    abandon_barrier(meta, Detour(skip_files=(str(files / "a.parquet"),)))
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    assert rows(meta, "at_once") == of(1)
    require(meta, of(1))
    write(files / "a.parquet", 3)
    advance_store(LocalRunner(), meta)
    assert "has changed" in held_sources(meta.read_latest().catalog)["s"], "only its earlier state was accepted"


def test_a_new_file_that_a_person_skips_is_in_no_view(meta: MetaStore, days: Path) -> None:
    write(day(days, 2, "bad"), 5)
    damage(day(days, 2, "bad"))
    abandon_barrier(meta, Detour(skip_files=(str(day(days, 2, "bad")),)))
    advance_store(LocalRunner(), meta)
    require(meta, of(1, 11, 2, 12, 3, 13))
    write(day(days, 2, "bad"), 6)
    advance_store(LocalRunner(), meta, InputRequest(DAYS[1]))
    require(meta, of(1, 11, 2, 12, 6, 3, 13))


def test_an_invalid_restatement_is_refused_with_the_reason(meta: MetaStore, days: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotRestateError, match=r"no epoch has read a file .*; similar names: .*2026-01-02/a.parquet"):
        Restating(meta, "s", Restated(str(day(days, 2, "A"))))
    with pytest.raises(CannotRestateError, match=r"a file '/x'; those that it has read include .*2026-01-01"):
        Restating(meta, "s", Restated("/x"))
    write(tmp_path / "promised" / "a.parquet", 1)
    kept = CreateSource("promised", "parquet", FILE_FIELDS, {"path": str(tmp_path / "promised"), "retain": "none"})
    append(meta, kept)
    epoch(meta)
    with pytest.raises(CannotRestateError, match=r"keeps no bytes .* retain 'files'"):
        Restating(meta, "promised", Restated(str(tmp_path / "promised" / "a.parquet")))
    with pytest.raises(BadOptionError, match=r"expected 'files' .* or 'none'"):
        reader_of(kept).check(source("/a", retain="always"))
    with pytest.raises(BadOptionError, match=r"expected 'error' or 'restate' or 'ignore'"):
        reader_of(kept).check(source("/a", on_change="panic"))
    with pytest.raises(BadOptionError, match="if files are kept"):
        reader_of(kept).check(source("/a", retain="none", on_change="restate"))
    write(day(days, 2), 2, 99)
    Restating(meta, "s", Restated(str(day(days, 2)))).begin_restating()
    with pytest.raises(EpochUnderWayError, match="must be finished first"):
        Restating(meta, "s", Restated(str(day(days, 2))))


def sweep_released(meta: MetaStore) -> None:
    """Sweep after retention has released all epochs but the newest, to which alone an undo could then return."""
    newest = meta.read_latest().epoch
    meta.publish(newest)
    meta.raise_floor(newest)
    sweep_store(meta)


def test_copies_stay_while_a_source_has_taken_them_and_go_with_a_vacuum_afterwards(meta: MetaStore, days: Path) -> None:
    assert len(copies(meta)) == 3
    write(day(days, 2), 2, 99)
    Restating(meta, "s", Restated(str(day(days, 2))))  # examined alone
    assert len(copies(meta)) == 4
    sweep_store(meta)
    assert len(copies(meta)) == 4, "a run that is about to begin may have made it"
    restate(meta, Restated(str(day(days, 2))))
    sweep_store(meta)
    # A file that was first examined within a tick of the file system's clock has a second copy.
    assert len(copies(meta)) in (5, 6), "an undo may return to the epoch before"
    require(meta, of(1, 11, 2, 99, 3, 13))
    sweep_released(meta)
    assert len(copies(meta)) == 4, "three files, and the ids that rows of the corrected one keep"
    require(meta, of(1, 11, 2, 99, 3, 13))
    append(meta, Drop(RelationKind.SOURCE, "s", cascade=True))
    epoch(meta)
    sweep_released(meta)
    append(meta, CreateSource("other", "parquet", FILE_FIELDS, {"path": str(days / "2026-01-01")}))
    epoch(meta)
    sweep_released(meta)
    assert copies(meta) == []


def test_deleted_rows_do_not_affect_the_minimum_and_the_maximum(meta: MetaStore, days: Path) -> None:
    """An append-only source may forget these values. A source whose rows can be removed must keep them."""
    statement = source(days / "x")
    assert not reader_of(statement).append_only(statement)
    promised = source(days / "x", retain="none")
    assert reader_of(promised).append_only(promised)


@pytest.mark.parametrize("change", ["corrected", "gone"])
def test_a_restatement_that_is_killed_at_any_request_is_done_once_when_it_is_repeated(
    change: str, meta: MetaStore, days: Path, tmp_path: Path
) -> None:
    if change == "corrected":
        write(day(days, 2), 2, 99)
    asked = Restated(str(day(days, 2)), gone=change == "gone")
    calls: list[tuple[str, str]] = []
    number, deaths, clock = 0, 0, count(1_800_000_000_000)
    while number <= len(calls):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        store = FaultyObjectStore(open_object_store(str(tmp_path / "copy")))
        mortal = MetaStore(store, "mortal", clock.__next__)
        if number < len(calls):
            store.kill(number)
        recalled_table._process_memory.cache_clear()  # as in a new process
        try:
            restate(mortal, asked)
        except Killed:
            deaths += 1
        calls = calls or list(store.calls)
        again = open_store(tmp_path / "copy", "again")
        advance_store(LocalRunner(), again)
        restate(again, asked)
        expected = of(1, 11, 3, 13) if change == "gone" else of(1, 11, 2, 99, 3, 13)
        assert rows(again, "of_s") == rows(again, "over") == sorted(expected, key=repr), number
        number = next_death(calls, number)
    assert deaths >= 3


def test_in_a_bucket_copies_or_object_versions_keep_the_files(tmp_path: Path) -> None:
    """The taken rows are read again from either."""
    with moto_process() as endpoint:
        clock = count(1_700_000_000_000)
        for versions in (False, True):
            place = f"s3://{BUCKET}/{{}}{versions}?endpoint={endpoint}&path_style=true"
            bucket = open_object_store(place.format("files"))
            if versions:
                bucket._client.put_bucket_versioning(  # type: ignore[attr-defined]
                    Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
                )

            def upload(name: str, *ids: int, bucket: object = bucket) -> None:
                write(tmp_path / "made.parquet", *ids)
                bucket.put(name, (tmp_path / "made.parquet").read_bytes())  # type: ignore[attr-defined]

            objects = open_object_store(place.format("store"))
            MetaStore.init(objects)
            meta = MetaStore(objects, "test", clock.__next__)
            upload("a.parquet", 1)
            upload("b.parquet", 2)
            address = f"s3://{BUCKET}/files{versions}"
            append(meta, source(address, endpoint=endpoint, path_style="true"), over("s"))
            append(meta, CreateView("over", "SELECT …", Scan("of_s", (0, 1), FILE_FIELDS)))
            epoch(meta)
            assert len(copies(meta)) == (0 if versions else 2)
            upload("a.parquet", 9)
            bucket.delete(["b.parquet"])
            require(meta, of(1, 2))
            assert restate(meta, Restated(f"{address}/a.parquet"))
            assert restate(meta, Restated(f"{address}/b.parquet", gone=True))
            require(meta, of(9))


def test_a_file_that_was_uploaded_again_in_parts_is_the_same_file(tmp_path: Path) -> None:
    """The ETag of an upload in parts differs for equal bytes. Other bytes of the same size hold the source."""

    def content(*ids: int) -> bytes:
        write(tmp_path / "made.parquet", *ids)
        return (tmp_path / "made.parquet").read_bytes()

    with moto_process() as endpoint, credentials():
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")

        def upload_in_parts(body: bytes) -> None:
            of: dict[str, Any] = {"Bucket": BUCKET, "Key": "in/1.parquet"}
            of["UploadId"] = client.create_multipart_upload(**of)["UploadId"]
            sent = client.upload_part(**of, PartNumber=1, Body=body)
            client.complete_multipart_upload(**of, MultipartUpload={"Parts": [{"ETag": sent["ETag"], "PartNumber": 1}]})

        client.put_object(Bucket=BUCKET, Key="in/1.parquet", Body=content(1, 2))
        meta = new_store(tmp_path / "store")
        append(meta, source(f"s3://{BUCKET}/in?endpoint={endpoint}&path_style=true"), over("s"))
        advance_store(LocalRunner(), meta)
        upload_in_parts(content(1, 2))
        client.put_object(Bucket=BUCKET, Key="in/2.parquet", Body=content(3))
        advance_store(LocalRunner(), meta)
        require_not_held(meta.read_latest().catalog)
        assert rows(meta, "of_s") == [(1, 10), (2, 20), (3, 30)]
        upload_in_parts(content(1, 9))
        advance_store(LocalRunner(), meta)
        assert "1.parquet has changed" in held_sources(meta.read_latest().catalog)["s"]
        client.put_object(Bucket=BUCKET, Key="in/1.parquet", Body=content(1, 2))
        advance_store(LocalRunner(), meta)
        require_not_held(meta.read_latest().catalog)

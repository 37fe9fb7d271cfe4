"""Hidden columns: each row has the values of its file's record, whenever the file is read. No Spark.

The expected values come from `os.stat` and of the clock in the epochs' numbers, not of now() in views.
"""

import os
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.s3_servers import BUCKET, credentials, moto_process
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.moment import InputRequest, micros_of
from tussock.jobs.catalog import fed_tables
from tussock.jobs.driver.epoch import advance_store, next_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop
from tussock.jobs.schedule.schedule import make_schedule
from tussock.jobs.sources import ports, rejects, taken
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.ports import Port
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (Field("id", "int"),)
HIDDEN = tuple(HiddenColumn)
OF_TEXTS = tuple(c for c in HIDDEN if c is not HiddenColumn.ROW_INDEX)
MOMENTS = tuple(datetime(2026, 1, d, 8, tzinfo=UTC) for d in (1, 2, 3, 4, 5))
Row = tuple[object, ...]


def view(name: str, hidden: tuple[HiddenColumn, ...] = HIDDEN) -> CreateView:
    fields = (*FIELDS, *(Field(c.column, c.type) for c in hidden))
    return CreateView(name, "SELECT …", Scan("s", (0, *map(int, hidden)), fields))


def source(path: object, format: str = "parquet", **options: str) -> CreateSource:
    return CreateSource("s", format, FIELDS, {"path": str(path), "retain": "files", **options})


def write(file: Path, *ids: int, modified: float = 1_690_000_000.25) -> os.stat_result:
    """Write one row per id. `modified`: the file's time, Unix seconds."""
    file.parent.mkdir(exist_ok=True)
    if file.suffix == ".parquet":
        pq.write_table(pa.table({"id": pa.array(ids, pa.int32())}), file)
    else:
        file.write_text("".join(f"{i}\n" for i in ids))
    os.utime(file, (modified, modified))
    return file.stat()


def expected(file: Path, stat: os.stat_result, moment: datetime, *ids: int, index: bool = True) -> list[Row]:
    """The rows of `view` for a file."""
    time = datetime.fromtimestamp(stat.st_mtime_ns // 1_000_000 / 1000, UTC)
    return [
        (i, f"file:{file}", file.name, stat.st_size, time, *((n,) if index else ()), moment) for n, i in enumerate(ids)
    ]


def run(meta: MetaStore, moment: datetime) -> datetime:
    """Run to the end; return when the newest epoch began."""
    advance_store(LocalRunner(), meta, InputRequest(None, micros_of(moment)))
    return datetime.fromtimestamp((meta.read_latest().epoch >> 16) / 1000, UTC)


def require(meta: MetaStore, *found: list[Row], at: datetime = MOMENTS[-1]) -> None:
    """Check the rows of the view, and of one that is created now."""
    all_rows = sorted((row for rows in found for row in rows), key=repr)
    assert rows(meta, "v") == all_rows
    append(meta, view("late"))
    run(meta, at)
    assert rows(meta, "late") == all_rows
    append(meta, Drop(RelationKind.VIEW, "late"))
    run(meta, at)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_rows_have_the_facts_of_their_file_and_the_time_of_their_epoch(tmp_path: Path, suffix: str) -> None:
    meta, files = new_store(tmp_path / "store"), tmp_path / "in"
    hidden = HIDDEN if suffix == "parquet" else OF_TEXTS
    append(meta, source(files, suffix, may_be_missing="true"), view("v", hidden))
    a = write(files / f"a.{suffix}", 1, 2, 3)
    first = run(meta, MOMENTS[0])
    b = write(files / f"b.{suffix}", 4, modified=1_600_000_000)
    second = run(meta, MOMENTS[1])
    append(meta, view("late", hidden))
    run(meta, MOMENTS[2])
    index = suffix == "parquet"
    both = [
        *expected(files / f"a.{suffix}", a, first, 1, 2, 3, index=index),
        *expected(files / f"b.{suffix}", b, second, 4, index=index),
    ]
    assert rows(meta, "v") == rows(meta, "late") == sorted(both, key=repr)


def test_a_file_that_is_touched_renamed_or_gone_keeps_the_facts_of_its_record(tmp_path: Path) -> None:
    meta, file = new_store(tmp_path / "store"), tmp_path / "in" / "a.parquet"
    stat = write(file, 1, 2)
    append(meta, source(file.parent), view("v"))
    at = run(meta, MOMENTS[0])
    os.utime(file)
    require(meta, expected(file, stat, at, 1, 2))
    file.unlink()
    require(meta, expected(file, stat, at, 1, 2))


def test_a_corrected_file_is_taken_again_at_the_time_of_its_restatement(tmp_path: Path) -> None:
    meta, files = new_store(tmp_path / "store"), tmp_path / "in"
    a, b = write(files / "a.parquet", 1, 2), write(files / "b.parquet", 3)
    append(meta, source(files), view("v"))
    first = run(meta, MOMENTS[0])
    now = write(files / "a.parquet", 7, modified=1_690_000_001)
    assert Restating(meta, "s", Restated(str(files / "a.parquet"))).begin_restating() is not None
    next_epoch(LocalRunner(), meta)
    second = run(meta, MOMENTS[0])
    assert a != now
    require(meta, expected(files / "a.parquet", now, second, 7), expected(files / "b.parquet", b, first, 3))


def test_a_file_whose_time_is_ahead_of_the_clock_is_ingested_at_its_own_time(tmp_path: Path) -> None:
    meta, file = new_store(tmp_path / "store"), tmp_path / "in" / "a.parquet"
    ahead = 1_900_000_000.5
    stat = write(file, 1, modified=ahead)
    append(meta, source(file.parent), view("v"))
    assert run(meta, MOMENTS[0]).timestamp() < ahead
    require(meta, expected(file, stat, datetime.fromtimestamp(ahead, UTC), 1))


def test_a_change_that_a_person_accepts_moves_no_facts(tmp_path: Path) -> None:
    meta, file = new_store(tmp_path / "store"), tmp_path / "in" / "a.parquet"
    stat = write(file, 1, 2)
    append(meta, source(file.parent), view("v"))
    at = run(meta, MOMENTS[0])
    write(file, 3, 4, 5)
    run(meta, MOMENTS[1])
    abandon_barrier(meta, Detour(skip_files=(str(file),)))
    run(meta, MOMENTS[2])
    require(meta, expected(file, stat, at, 1, 2))


def test_a_source_of_an_earlier_release_has_the_time_of_the_epochs_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken, "_COLUMNS", taken._COLUMNS[:8])
    meta, files = new_store(tmp_path / "store"), tmp_path / "in"
    a = write(files / "a.parquet", 1)
    append(meta, source(files))
    run(meta, MOMENTS[0])
    first = meta.read_latest().epoch
    monkeypatch.undo()
    b = write(files / "b.parquet", 2)
    append(meta, view("v"))
    run(meta, MOMENTS[1])
    times = [datetime.fromtimestamp((e >> 16) / 1000, UTC) for e in (first, meta.read_latest().epoch)]
    require(meta, expected(files / "a.parquet", a, times[0], 1), expected(files / "b.parquet", b, times[1], 2))


def test_a_source_whose_hidden_columns_no_view_reads_schedules_none(tmp_path: Path) -> None:
    meta, files = new_store(tmp_path / "store"), tmp_path / "in"
    write(files / "a.parquet", 1)
    append(meta, source(files), view("v", ()))
    run(meta, MOMENTS[0])
    catalog = meta.read_latest().catalog
    (leaf,) = (
        s.source for s in make_schedule(catalog, meta.read_latest().epoch + 1, catalog).all_fragments() if s.source
    )
    assert (leaf.columns, leaf.hidden) == ((0,), ())


def test_an_object_has_the_time_at_which_it_was_uploaded_and_an_address_as_in_spark(tmp_path: Path) -> None:
    with moto_process() as endpoint, credentials():
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        write(tmp_path / "a.parquet", 1, 2)
        body = (tmp_path / "a.parquet").read_bytes()
        client.put_object(Bucket=BUCKET, Key="in/a b.parquet", Body=body)
        (listed,) = client.list_objects_v2(Bucket=BUCKET, Prefix="in/")["Contents"]
        meta = new_store(tmp_path / "store")
        append(meta, source(f"s3://{BUCKET}/in?endpoint={endpoint}&path_style=true"), view("v"))
        at = run(meta, MOMENTS[0])
        client.delete_object(Bucket=BUCKET, Key="in/a b.parquet")
        address, time = f"s3a://{BUCKET}/in/a%20b.parquet", listed["LastModified"]
        facts = (address, "a%20b.parquet", len(body), time)
        require(meta, [(i, *facts, n, max(at, time)) for n, i in enumerate((1, 2))])


def test_rejects_have_the_facts_of_their_file(tmp_path: Path) -> None:
    meta, file = new_store(tmp_path / "store"), tmp_path / "in" / "a.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2**40, 3], pa.int64())}), file)
    stat = file.stat()
    append(meta, source(file.parent, on_error="quarantine"), view("v"))
    at = max(run(meta, MOMENTS[0]), datetime.fromtimestamp(stat.st_mtime_ns // 1_000_000 / 1000, UTC))
    assert rows(meta, "v") == [row for row in expected(file, stat, at, 1, 2, 3) if row[0] != 2]
    ((path, position, _, raw, metadata, moment),) = rows(meta, "s__rejects")
    time = datetime.fromtimestamp(stat.st_mtime_ns // 1_000_000 / 1000, UTC)
    assert (path, position, raw, moment) == (str(file), 2, None, at)
    assert metadata == {
        "file_path": f"file:{file}",
        "file_name": "a.parquet",
        "file_size": stat.st_size,
        "file_block_start": 0,
        "file_block_length": stat.st_size,
        "file_modification_time": time,
    }


def test_a_table_of_rejects_of_an_earlier_release_keeps_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "FIELDS", {Port.REJECTS: rejects.FIELDS[:4]})
    monkeypatch.setattr(fed_tables, "FIELDS", ports.FIELDS)
    meta, file = new_store(tmp_path / "store"), tmp_path / "in" / "a.parquet"
    file.parent.mkdir()
    append(meta, source(file.parent, on_error="quarantine", may_be_missing="true"), view("v"))
    run(meta, MOMENTS[0])
    monkeypatch.undo()
    pq.write_table(pa.table({"id": pa.array([1, 2**40], pa.int64())}), file)
    run(meta, MOMENTS[1])
    ((path, position, _, raw),) = rows(meta, "s__rejects")
    assert (path, position, raw) == (str(file), 2, None)


def test_a_run_killed_at_any_request_gives_the_same_facts(tmp_path: Path) -> None:
    template, files, clocks = tmp_path / "template", tmp_path / "in", count(1_800_000_000_000)
    first = new_store(template)
    append(first, source(files, may_be_missing="true"), view("v"))
    run(first, MOMENTS[0])
    a = write(files / "a.parquet", 1, 2)
    calls: list[tuple[str, str]] = []
    for store in stores_after_deaths(template, lambda meta: run(meta, MOMENTS[1]), calls):
        meta = MetaStore(open_object_store(str(store)), "another", lambda: next(clocks))
        at = run(meta, MOMENTS[1])
        assert rows(meta, "v") == expected(files / "a.parquet", a, at, 1, 2), calls

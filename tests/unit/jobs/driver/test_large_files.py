"""A file that costs more than an epoch may is taken in portions. Views equal its rows, whatever happens between.

No Spark. The limits are small here, so that a file of 1,000 rows has four portions.
"""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tests.unit.jobs.trouble.test_restate import restate
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources import file_portions
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.file_documents import files_of
from tussock.jobs.sources.plain import PlainTexts
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("id", "bigint"), Field("v", "string"))
COUNT, MOST, PORTION = 1_000, 300, 250
SMALL = EpochSettings(max_bytes=MOST * file_portions.ROW_BYTES)
Row = tuple[int, str]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_portions, "LEAST_PORTION_BYTES", 1)
    monkeypatch.setattr(PlainTexts._read_blocks, "__defaults__", (500,))  # bytes of a block


def made_rows(count: int = COUNT, first: int = 0) -> list[Row]:
    return [(i, "ab"[i % 2]) for i in range(first, first + count)]


def csv(found: list[Row]) -> bytes:
    return b"\n" + b"".join(b"%d,%s\n" % (i, v.encode()) + b"\n" * (i % 7 == 0) for i, v in found)  # blank lines too


def write(path: Path, found: list[Row]) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        ids, values = zip(*found, strict=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "v": values}), path, row_group_size=440)
        return
    text = csv(found) if ".csv" in path.name else b"".join(b'{"id":%d,"v":"%s"}\n' % (i, v.encode()) for i, v in found)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def source(file: Path, **options: str) -> CreateSource:
    format = next(name for name in ("parquet", "csv", "json") if f".{name}" in file.name)
    return CreateSource("s", format, FIELDS, {"path": str(file.parent), "retain": "files", **options})


def view(name: str) -> CreateView:
    return CreateView(name, "SELECT …", Scan("s", (0, 1), FIELDS))


def step(meta: MetaStore, settings: EpochSettings = SMALL) -> Barrier | None:
    """Run one epoch; None if nothing waits."""
    if (barrier := inject_barrier(meta, settings=settings)) is not None:
        run_epoch(LocalRunner(), meta, barrier)
    return barrier


def begun(tmp_path: Path, name: str = "a.parquet", steps: int = 0, **options: str) -> tuple[MetaStore, Path]:
    """A store with a source of one large file and a view, after some epochs."""
    meta, file = new_store(tmp_path / "store"), tmp_path / "in" / name
    write(file, made_rows())
    append(meta, source(file, **options), view("v"))
    for _ in range(steps):
        step(meta)
    return meta, file


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz", "a.json.gz"])
def test_each_epoch_takes_a_portion_and_views_equal_the_rows_taken(name: str, tmp_path: Path) -> None:
    meta, _ = begun(tmp_path, name)
    taken = 0
    while (barrier := step(meta)) is not None:
        (file,) = files_of(next(iter(barrier.splits.values())))
        assert file.epoch_cost <= SMALL.max_bytes
        taken = min(file.first_record + (file.record_count or COUNT), COUNT)
        assert rows(meta, "v") == sorted(made_rows(taken), key=repr)
    assert taken == COUNT
    append(meta, view("late"))
    builds = 0
    while step(meta) is not None:
        builds += 1
    assert builds >= 4
    assert rows(meta, "late") == rows(meta, "v")


def test_a_view_that_is_created_between_two_portions_has_all_of_them(tmp_path: Path) -> None:
    meta, _ = begun(tmp_path, steps=2)
    append(meta, view("late"))
    advance_store(LocalRunner(), meta, settings=SMALL)
    assert rows(meta, "late") == rows(meta, "v") == sorted(made_rows(), key=repr)


def test_an_epoch_without_a_limit_takes_the_rest(tmp_path: Path) -> None:
    meta, _ = begun(tmp_path, steps=1)
    assert step(meta, EpochSettings(max_bytes=None)) is not None
    assert step(meta) is None
    assert rows(meta, "v") == sorted(made_rows(), key=repr)


def test_small_files_share_an_epoch_with_a_portion(tmp_path: Path) -> None:
    meta, file = begun(tmp_path, steps=3)
    write(file.with_name("b.parquet"), made_rows(50, COUNT))
    assert step(meta) is not None
    assert step(meta) is None
    assert rows(meta, "v") == sorted(made_rows(COUNT + 50), key=repr)


@pytest.mark.parametrize("steps", [2, 4])
def test_a_changed_file_is_restated_with_all_its_portions(steps: int, tmp_path: Path) -> None:
    meta, file = begun(tmp_path, steps=steps, on_change="restate")
    write(file, made_rows(700, 5_000))
    advance_store(LocalRunner(), meta, settings=SMALL)
    append(meta, view("late"))
    advance_store(LocalRunner(), meta, settings=SMALL)
    assert rows(meta, "late") == rows(meta, "v") == sorted(made_rows(700, 5_000), key=repr)


def test_the_rest_of_a_changed_file_is_read_from_the_kept_bytes_if_changes_are_ignored(tmp_path: Path) -> None:
    meta, file = begun(tmp_path, steps=2, on_change="ignore")
    write(file, made_rows(700, 5_000))
    advance_store(LocalRunner(), meta, settings=SMALL)
    assert rows(meta, "v") == sorted(made_rows(), key=repr)


def test_a_changed_file_holds_its_source_and_keeps_the_rows_of_its_portions(tmp_path: Path) -> None:
    meta, file = begun(tmp_path, steps=2)
    write(file, made_rows(700, 5_000))
    advance_store(LocalRunner(), meta, settings=SMALL)
    assert rows(meta, "v") == sorted(made_rows(2 * PORTION), key=repr)
    abandon_barrier(meta, Detour(skip_files=(str(file),)))
    advance_store(LocalRunner(), meta, settings=SMALL)
    append(meta, view("late"))
    advance_store(LocalRunner(), meta, settings=SMALL)
    assert rows(meta, "late") == rows(meta, "v") == sorted(made_rows(2 * PORTION), key=repr)
    (relation,) = [r for r in meta.read_latest().catalog.live_relations() if r.name == "s"]
    assert not relation.holds


def test_the_rows_of_a_file_that_is_gone_are_taken_back(tmp_path: Path) -> None:
    meta, file = begun(tmp_path, steps=3)
    file.unlink()
    write(file.with_name("b.parquet"), made_rows(10))
    restate(meta, Restated(str(file), gone=True))
    advance_store(LocalRunner(), meta, settings=SMALL)
    assert rows(meta, "v") == sorted(made_rows(10), key=repr)


def test_a_file_with_a_record_that_is_too_large_holds_its_source_until_the_limit_is_raised(tmp_path: Path) -> None:
    meta, file = begun(tmp_path, "a.csv", steps=10)
    write(file.with_name("b.csv"), [(COUNT, "c")])
    large = file.with_name("c.csv")
    large.write_text(f"{COUNT + 1},{'x' * 2_000_000}\n{COUNT + 2},d\n")
    advance_store(LocalRunner(), meta, settings=SMALL)
    (hold,) = next(r.holds for r in meta.read_latest().catalog.live_relations() if r.name == "s")
    assert hold.file == str(large)
    assert "a record of 2,000,005 bytes, which cannot be divided" in hold.reason
    assert "set `max_bytes = 2000005`" in hold.reason
    assert rows(meta, "v") == sorted([*made_rows(), (COUNT, "c")], key=repr)
    advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=2_000_005))
    assert len(rows(meta, "v")) == COUNT + 3


def test_a_killed_run_loses_and_repeats_no_portion(tmp_path: Path) -> None:
    begun(tmp_path)

    def run(meta: MetaStore) -> None:
        advance_store(LocalRunner(), meta, settings=SMALL)

    deaths = 0
    for store in stores_after_deaths(tmp_path / "store", run, []):
        again = open_store(store, "again")
        run(again)
        assert rows(again, "v") == sorted(made_rows(), key=repr)
        deaths += 1
    assert deaths >= 10

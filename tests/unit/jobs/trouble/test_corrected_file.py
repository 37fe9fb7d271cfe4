"""A run that a row stopped goes on after its file was corrected or removed, although the barrier has pinned the file.

The expected rows are computed from the written rows, in plain Python. No Spark.
"""

from pathlib import Path
from threading import Barrier

import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tests.support.jobs.plan.catalogs import counted, view
from tests.unit.jobs.driver.test_pauses import BAD, FILE_FIELDS, GOOD, Row, per_g, sums_of, write
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import show_summary
from tussock.jobs.logical.nodes import Call, Column, Field, Project, Scan
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.tables import EpochSettings, OnError
from tussock.jobs.sources import files as files_module
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.trouble.row_names import ViewRowError
from tussock.statestore.meta.store import MetaStore


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "my files"


@pytest.fixture
def meta(tmp_path: Path, files: Path) -> MetaStore:
    """A source that keeps its files' bytes, a view that may raise, and an independent one. The second file raises."""
    meta = new_store(tmp_path / "store")
    write(files / "1.parquet", *GOOD)
    append(meta, CreateSource("s", "parquet", FILE_FIELDS, {"path": str(files), "retain": "files"}))
    over = Scan("s", (0, 1, 2), FILE_FIELDS)
    added = Call("Add", "int", (Column(0, "int"), Column(2, "int")), "ANSI")
    append(meta, view("sums", Project(over, (Column(0, "int"), added), (Field("k", "int"), Field("s", "int")))))
    append(meta, view("per_g", counted(over, 1)))
    advance_store(LocalRunner(), meta)
    write(files / "2.parquet", (4, 2, 4), BAD)
    return meta


def stopped(meta: MetaStore) -> str:
    before = meta.read_latest()
    with pytest.raises(ViewRowError) as raised:
        advance_store(LocalRunner(), meta)
    assert meta.read_latest() == before
    return str(raised.value)


def require(meta: MetaStore, *more: Row) -> None:
    assert meta.open_barrier() is None
    assert rows(meta, "sums") == sums_of([*GOOD, *more])
    assert rows(meta, "per_g") == per_g([*GOOD, *more])


def test_the_next_run_reads_the_corrected_file_and_its_summary_names_it(meta: MetaStore, files: Path) -> None:
    said = stopped(meta)
    assert f"of {files}/2.parquet. " in said
    assert "Correct the row in this file, and the next run reads the corrected file." in said
    assert said.index("--skip-file") < said.index("--pause sums") < said.index("--drop sums")
    assert "As a last resort, `tussock barrier abandon --drop sums` drops sums with all rows." in said
    stopped(meta)
    write(files / "2.parquet", (4, 2, 4), (100, 1, 1))
    (summary,) = advance_store(LocalRunner(), meta)
    require(meta, (4, 2, 4), (100, 1, 1))
    assert f"re-pinned file {files}/2.parquet" in show_summary(summary)
    assert not advance_store(LocalRunner(), meta), "the corrected content is taken"


def test_a_file_that_is_corrected_wrongly_stops_the_run_again(meta: MetaStore, files: Path) -> None:
    stopped(meta)
    write(files / "2.parquet", (5, 2, 5), BAD)
    stopped(meta)
    write(files / "2.parquet", (5, 2, 5))
    advance_store(LocalRunner(), meta)
    require(meta, (5, 2, 5))


def test_a_file_that_is_removed_leaves_the_epoch_and_may_come_back(meta: MetaStore, files: Path) -> None:
    write(files / "3.parquet", (6, 3, 6))
    stopped(meta)
    (files / "2.parquet").unlink()
    advance_store(LocalRunner(), meta)
    require(meta, (6, 3, 6))
    write(files / "2.parquet", (7, 3, 7))
    advance_store(LocalRunner(), meta)
    require(meta, (6, 3, 6), (7, 3, 7))


def test_a_run_that_may_pause_views_reads_the_corrected_file_and_pauses_none(meta: MetaStore, files: Path) -> None:
    stopped(meta)
    write(files / "2.parquet", (100, 1, 1))
    (summary,) = advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=None, on_error=OnError.PAUSE))
    assert not summary.paused
    require(meta, (100, 1, 1))


def test_a_file_that_is_removed_while_the_run_looks_at_it_leaves_the_next_run(
    meta: MetaStore, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(meta)
    write(files / "2.parquet", (100, 1, 1))

    def gone_after(file: PinnedFile, source: CreateSource) -> files_module._State:
        state = state_of(file, source)
        Path(file.path).unlink()
        return state

    state_of = files_module._state_of
    with monkeypatch.context() as patch:
        patch.setattr(files_module, "_state_of", gone_after)
        stopped(meta)
    advance_store(LocalRunner(), meta)
    require(meta)


def test_pinned_files_are_looked_up_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = Barrier(16)

    def state_of(file: PinnedFile, source: CreateSource) -> files_module._State:
        together.wait(10)
        return files_module._State.CHANGED

    monkeypatch.setattr(files_module, "_state_of", state_of)
    source = CreateSource("s", "parquet", FILE_FIELDS, {"path": "/in"})
    pinned = [PinnedFile(f"/in/{n}", 1, "x", n) for n in range(16)]
    found = reader_of(source).changes_since(source, files_module.document_of(pinned))
    assert found.changed == tuple(file.path for file in pinned)


def test_a_driver_killed_at_any_request_takes_the_corrected_file_exactly_once(
    meta: MetaStore, files: Path, tmp_path: Path
) -> None:
    stopped(meta)
    write(files / "2.parquet", (100, 1, 1))
    calls: list[tuple[str, str]] = []
    for store in stores_after_deaths(tmp_path / "store", lambda first: advance_store(LocalRunner(), first), calls):
        other = open_store(store, "second")
        advance_store(LocalRunner(), other)
        require(other, (100, 1, 1))
    assert any(name.startswith("sources/") for operation, name in calls if operation.startswith("put"))

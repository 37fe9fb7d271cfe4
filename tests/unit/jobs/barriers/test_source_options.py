"""ALTER SOURCE … SET OPTIONS: an option that decides rows holds for new files, also in views that are created later.

Other options hold at once. The expected rows are those written into the files. No Spark.
"""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.catalog.alter_source import CannotAlterSourceError, created_source
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.catalog.definition import SourceDefinition, definition_of, find_relation, source_of
from tussock.jobs.driver.epoch import advance_store, next_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop, EarlierOptions, Narrower, SetSourceOptions
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.trouble.restate import Restating
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("id", "int"), Field("v", "int"))
Rows = list[tuple[object, ...]]


def view(name: str) -> CreateView:
    return CreateView(name, "SELECT …", Scan("s", (0, 1), FIELDS))


def write(path: Path, **columns: list[int]) -> None:
    path.parent.mkdir(exist_ok=True)
    kinds = {name: pa.int64() if max(found) >= 2**31 else pa.int32() for name, found in columns.items()}
    pq.write_table(pa.table({name: pa.array(found, kinds[name]) for name, found in columns.items()}), path)


def options_of(meta: MetaStore) -> dict[str, str]:
    statement = source_of(find_relation(meta.read_latest().catalog, "s"))
    assert statement is not None
    return statement.options


def change(meta: MetaStore, *, gone: str = "", **options: str) -> None:
    """ALTER SOURCE s SET OPTIONS (…)"""
    known = options_of(meta)
    append(meta, SetSourceOptions("s", known, {k: v for k, v in (known | options).items() if k != gone}))


def run(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "in"


@pytest.fixture
def meta(tmp_path: Path, files: Path) -> MetaStore:
    """A source whose first file has a value that does not fit, and which is quarantined; a view."""
    meta = new_store(tmp_path / "store")
    write(files / "a.parquet", id=[1, 2, 3], v=[10, 2**40, 30])
    append(
        meta,
        CreateSource("s", "parquet", FIELDS, {"path": str(files), "retain": "files", "on_error": "quarantine"}),
        view("v"),
    )
    run(meta)
    assert rows(meta, "v") == [(1, 10), (3, 30)]
    return meta


def require(meta: MetaStore, expected: Rows) -> None:
    """The view, and one that is created now, have these rows."""
    append(meta, view("late"))
    run(meta)
    assert rows(meta, "v") == rows(meta, "late") == expected
    append(meta, Drop(RelationKind.VIEW, "late"))
    run(meta)


def test_earlier_files_are_read_as_before_also_by_views_that_are_created_later(meta: MetaStore, files: Path) -> None:
    change(meta, gone="on_error")
    write(files / "b.parquet", id=[4], v=[40])
    run(meta)
    require(meta, [(1, 10), (3, 30), (4, 40)])
    write(files / "c.parquet", id=[5], v=[2**40])
    run(meta)
    assert "c.parquet" in held_sources(meta.read_latest().catalog)["s"], "new files are held at a bad record again"
    change(meta, missing="null", on_error="quarantine")
    run(meta)
    write(files / "d.parquet", id=[6])
    run(meta)
    require(meta, [(1, 10), (3, 30), (4, 40), (6, None)])
    assert len(rows(meta, "s__rejects")) == 2
    statement = source_of(find_relation(meta.read_latest().catalog, "s"))
    assert statement is not None
    assert [(c.were, c.added, c.below) for c in statement.option_changes] == [
        ({"on_error": "quarantine"}, (), 1),
        ({}, ("missing", "on_error"), 2),
    ]


def test_a_source_that_sets_records_aside_from_now_on_gets_its_table(tmp_path: Path, files: Path) -> None:
    meta = new_store(tmp_path / "store")
    write(files / "a.parquet", id=[1], v=[10])
    append(meta, CreateSource("s", "parquet", FIELDS, {"path": str(files), "retain": "files"}), view("v"))
    run(meta)
    change(meta, on_error="quarantine")
    write(files / "b.parquet", id=[2, 3], v=[2**40, 30])
    run(meta)
    require(meta, [(1, 10), (3, 30)])
    assert len(rows(meta, "s__rejects")) == 1


def test_a_path_holds_at_once_and_taken_rows_stay(meta: MetaStore, files: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "x.parquet", id=[7], v=[70])
    change(meta, path=str(tmp_path / "elsewhere"))
    write(files / "b.parquet", id=[4], v=[40])
    run(meta)
    require(meta, [(1, 10), (3, 30), (7, 70)])
    statement = source_of(find_relation(meta.read_latest().catalog, "s"))
    assert statement is not None
    assert not statement.option_changes


def test_restating_reads_earlier_files_with_the_present_options(meta: MetaStore, files: Path) -> None:
    write(files / "b.parquet", id=[4], v=[40])
    run(meta)
    (files / "b.parquet").unlink()  # the recorded bytes count
    change(meta, timeZone="Asia/Tokyo")
    run(meta)
    restating = Restating(meta, "s", Restated(options=True))
    assert [i.name for i in restating.restatement.goes] == [str(files / "a.parquet"), str(files / "b.parquet")]
    restating.begin_restating()
    next_epoch(LocalRunner(), meta)
    require(meta, [(1, 10), (3, 30), (4, 40)])
    assert not Restating(meta, "s", Restated(options=True)).restatement, "once is enough"


def test_a_file_after_a_removed_one_is_read_with_the_present_options(meta: MetaStore, files: Path) -> None:
    change(meta, gone="on_error", missing="null")
    run(meta)
    (files / "a.parquet").unlink()
    Restating(meta, "s", Restated(str(files / "a.parquet"), gone=True)).begin_restating()
    next_epoch(LocalRunner(), meta)
    write(files / "b.parquet", id=[4])
    run(meta)
    assert not held_sources(meta.read_latest().catalog)
    require(meta, [(4, None)])


def test_numbers_of_new_files_are_not_those_of_files_that_are_read_otherwise() -> None:
    """An empty history and -1 (no barrier has set it yet) are no number."""
    source = CreateSource("s", "csv", FIELDS, {})
    assert source.first_number == 0
    changed = CreateSource(
        "s",
        "csv",
        FIELDS,
        {},
        widths=(Narrower(1, 3), Narrower(2, -1)),
        option_changes=(EarlierOptions({}, (), 4), EarlierOptions({}, (), -1)),
    )
    assert changed.first_number == 4
    for smaller, number in (("option_changes", 3), ("widths", 0)):
        changed = msgspec.structs.replace(changed, **{smaller: ()})
        assert changed.first_number == number


def test_options_that_views_depend_on_and_wrong_values_are_refused(meta: MetaStore) -> None:
    catalog, known = meta.read_latest().catalog, options_of(meta)
    for options, error, said in (
        (known | {"retain": "none"}, CannotAlterSourceError, "option retain is fixed: the state of views"),
        (known | {"on_error": "ignore"}, BadOptionError, "expected 'fail'"),
        (known | {"on_eror": "fail"}, BadOptionError, "on_eror"),
    ):
        with pytest.raises(error, match=said):
            apply_statement(catalog, SetSourceOptions("s", known, options), 2)
    with pytest.raises(CannotAlterSourceError, match="run the statement again"):
        apply_statement(catalog, SetSourceOptions("s", {}, known), 2)


def test_a_create_in_the_files_has_the_options_of_an_edit_and_not_those_of_an_alter(meta: MetaStore) -> None:
    known = options_of(meta)
    altered = apply_statement(meta.read_latest().catalog, SetSourceOptions("s", known, known | {"missing": "null"}), 2)
    edited = apply_statement(
        meta.read_latest().catalog, SetSourceOptions("s", known, known | {"missing": "null"}, declared=True), 2
    )
    for catalog, options in ((altered, known), (edited, known | {"missing": "null"})):
        definition = definition_of(find_relation(catalog, "s"))
        assert isinstance(definition, SourceDefinition)
        assert created_source(definition).options == options


def test_a_driver_killed_at_any_request_reads_each_file_with_its_options(
    meta: MetaStore, files: Path, tmp_path: Path
) -> None:
    change(meta, gone="on_error", missing="null")
    write(files / "b.parquet", id=[4])
    for store in stores_after_deaths(tmp_path / "store", lambda first: advance_store(LocalRunner(), first), []):
        other = open_store(store, "second")
        run(other)
        assert rows(other, "v") == [(1, 10), (3, 30), (4, None)]

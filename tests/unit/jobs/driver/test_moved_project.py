"""A project that moves with its store: no file is taken twice, and earlier files can be restated. No Spark.

The expected rows are those written into the files.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.catalog.alter_source import CannotAlterSourceError, created_source
from tussock.jobs.catalog.definition import SourceDefinition, definition_of, find_relation, source_of
from tussock.jobs.catalog.difference import list_differences
from tussock.jobs.catalog.move_source import move_source, moved_sources
from tussock.jobs.driver.epoch import advance_store, next_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import (
    BoundSourceOptions,
    CreateSource,
    CreateView,
    EarlierBase,
    MoveSource,
    SetSourceOptions,
    Statement,
)
from tussock.jobs.reading.reader import open_table
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.describe import place_source
from tussock.jobs.sources.errors import CannotRestateError
from tussock.jobs.sources.taken import taken_files
from tussock.jobs.statements.source_changes import edited_source, set_options
from tussock.jobs.trouble.restate import Restating
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (Field("id", "int"), Field("v", "int"))
NAMED = (*FIELDS, Field("_metadata.file_path", "string"))


def write(path: Path, *values: int) -> None:
    """One row per value, with ids from 1. A value beyond an int is a reject."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.int64() if max(values) >= 2**31 else pa.int32()
    ids = pa.array(range(1, len(values) + 1), pa.int32())
    pq.write_table(pa.table({"id": ids, "v": pa.array(values, kind)}), path)


def statement(folder: Path, path: str = "data/*.parquet", **options: str) -> CreateSource:
    """CREATE SOURCE s … OPTIONS (path 'data/*.parquet'), in a file of the folder."""
    given = {"path": path, "retain": "files", "on_error": "quarantine", **options}
    source = CreateSource("s", "parquet", FIELDS, given, if_not_exists=True)
    return place_source(source, folder / "sql", open_object_store(str(folder / "store")))


def view(name: str) -> CreateView:
    return CreateView(name, "SELECT …", Scan("s", (0, 1), FIELDS))


def named_view(name: str) -> CreateView:
    """SELECT id, v, _metadata.file_path FROM s"""
    return CreateView(name, "SELECT …", Scan("s", (0, 1, -11), NAMED))


def source_in(meta: MetaStore) -> CreateSource:
    source = source_of(find_relation(meta.read_latest().catalog, "s"))
    assert source is not None
    return source


def no_spark() -> None:
    raise AssertionError("no Spark is needed")


def run(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)
    assert not held_sources(meta.read_latest().catalog)


def taken(meta: MetaStore) -> list[str]:
    version = meta.read_latest()
    return [
        f.path
        for f in taken_files(open_table(meta.objects, version, find_relation(version.catalog, "s").state_tables[0]))
    ]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with a store that has taken two files; the second has a reject."""
    folder = tmp_path / "shop"
    meta = new_store(folder / "store")
    write(folder / "sql" / "data" / "a.parquet", 10, 20)
    write(folder / "sql" / "data" / "b.parquet", 30, 2**40)
    append(meta, statement(folder), view("v"))
    run(meta)
    return folder


def moved(shop: Path, *, copied: bool = False) -> Path:
    to = shop.parent / "elsewhere" / "shop"
    (shutil.copytree if copied else shutil.move)(shop, to)
    return to


@pytest.mark.parametrize("copied", [False, True])
def test_no_file_is_taken_twice_and_names_are_those_of_the_new_folder(shop: Path, copied: bool) -> None:
    to = moved(shop, copied=copied)
    meta, data = open_store(to / "store"), to / "sql" / "data"
    run(meta)
    assert taken(meta) == [str(data / "a.parquet"), str(data / "b.parquet")]
    write(data / "c.parquet", 40)
    append(meta, view("late"))
    run(meta)
    assert rows(meta, "v") == rows(meta, "late") == [(1, 10), (1, 30), (1, 40), (2, 20)]
    assert taken(meta)[2:] == [str(data / "c.parquet")]
    source = source_in(meta)
    assert source.options["path"] == str(data / "*.parquet")
    assert source.moves == (EarlierBase(str(shop / "sql"), str(to / "sql"), 2),)
    epoch = meta.read_latest().epoch
    advance_store(LocalRunner(), meta)
    assert meta.read_latest().epoch == epoch, "nothing waits"


def test_a_file_that_was_taken_before_the_move_is_restated_with_its_rejects(shop: Path) -> None:
    assert [r[0] for r in rows(open_store(shop / "store"), "s__rejects")] == [str(shop / "sql/data/b.parquet")]
    to = moved(shop)
    meta, old = open_store(to / "store"), to / "sql" / "data" / "b.parquet"
    with pytest.raises(CannotRestateError, match="Run `tussock epoch`, then repeat this"):
        Restating(meta, "s", Restated(str(old)))
    run(meta)
    write(old, 31, 32)
    Restating(meta, "s", Restated(str(old))).begin_restating()
    next_epoch(LocalRunner(), meta)
    assert rows(meta, "v") == [(1, 10), (1, 31), (2, 20), (2, 32)]
    assert rows(meta, "s__rejects") == []


def test_a_project_moves_again_and_back(shop: Path) -> None:
    to = moved(shop)
    run(open_store(to / "store"))
    write(to / "sql" / "data" / "c.parquet", 2**40)
    run(open_store(to / "store"))
    shutil.move(to, shop)
    meta = open_store(shop / "store")
    run(meta)
    assert taken(meta) == [str(shop / f"sql/data/{name}.parquet") for name in "abc"]
    for name in "abc":
        write(shop / f"sql/data/{name}.parquet", 1)
        Restating(meta, "s", Restated(str(shop / f"sql/data/{name}.parquet"))).begin_restating()
        next_epoch(LocalRunner(), meta)
    assert rows(meta, "v") == [(1, 1)] * 3
    assert rows(meta, "s__rejects") == []


def test_the_statement_in_the_files_is_unchanged_after_a_move(shop: Path) -> None:
    to = moved(shop)
    meta = open_store(to / "store")
    for _ in range(2):  # before and after the epoch that records the move
        definition = definition_of(find_relation(meta.read_latest().catalog, "s"))
        assert isinstance(definition, SourceDefinition)
        assert list_differences(created_source(definition), statement(to)) == ()
        assert list_differences(created_source(definition), statement(to, "other/*.parquet")) != ()
        run(meta)


def test_a_view_that_is_created_in_the_epoch_of_the_move_reads_the_files(shop: Path) -> None:
    to = moved(shop)
    meta = open_store(to / "store")
    append(meta, view("late"))
    run(meta)
    assert rows(meta, "late") == rows(meta, "v") == [(1, 10), (1, 30), (2, 20)]


def test_a_barrier_that_was_open_at_the_move_takes_its_files_in_the_new_folder(shop: Path) -> None:
    write(shop / "sql" / "data" / "c.parquet", 40)
    assert inject_barrier(open_store(shop / "store")) is not None
    meta = open_store(moved(shop) / "store")
    run(meta)
    assert rows(meta, "v") == [(1, 10), (1, 30), (1, 40), (2, 20)]
    assert len(taken(meta)) == 3


def test_a_source_stays_if_only_its_store_moves_or_its_path_is_absolute(tmp_path: Path, shop: Path) -> None:
    shutil.move(shop / "store", tmp_path / "store")
    meta = open_store(tmp_path / "store")
    write(shop / "sql" / "data" / "c.parquet", 40)
    run(meta)
    assert taken(meta)[2:] == [str(shop / "sql/data/c.parquet")]
    other = place_source(statement(shop, str(tmp_path / "x")), tmp_path, open_object_store(str(tmp_path / "store")))
    assert "relative" not in str(other).replace("relative=None", "")


def test_a_driver_killed_at_any_request_takes_no_file_twice(shop: Path) -> None:
    to = moved(shop)
    write(to / "sql" / "data" / "c.parquet", 40)
    for store in stores_after_deaths(to / "store", lambda first: advance_store(LocalRunner(), first), []):
        other = open_store(store, "second")
        run(other)
        assert rows(other, "v") == [(1, 10), (1, 30), (1, 40), (2, 20)]


def other_path(source: CreateSource, to: Path, *, relative: bool) -> SetSourceOptions:
    """ALTER SOURCE … SET OPTIONS (path …): absolute, or relative to a folder that contains the earlier one."""
    path = "sql/data/**" if relative else str(to / "sql" / "data" / "**")
    wanted = CreateSource("s", "parquet", FIELDS, {**source.options, "path": path})
    placed_there = place_source(wanted, to, open_object_store(str(to / "store")))
    return SetSourceOptions("s", source.options, placed_there.options, relative=placed_there.relative)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_rows_keep_the_names_of_their_files_whatever_the_path_becomes(
    shop: Path, relative: bool, at_once: bool
) -> None:
    """`at_once`: a run logs the move and dies, and the change of the path is in the same epoch."""
    append(open_store(shop / "store"), named_view("early"))
    run(open_store(shop / "store"))
    to = moved(shop)
    meta, data = open_store(to / "store"), to / "sql" / "data"
    moves: Sequence[Statement] = tuple(moved_sources(meta.read_latest().catalog, meta.objects))
    catalog = meta.read_latest().catalog
    if at_once:
        append(meta, *moves)
        for move in moved_sources(catalog, meta.objects):
            catalog = move_source(catalog, move)
    else:
        run(meta)
        catalog = meta.read_latest().catalog
    source = source_of(find_relation(catalog, "s"))
    assert source is not None
    append(meta, other_path(source, to, relative=relative), named_view("late"))
    run(meta)
    was = f"file:{shop}/sql/data"
    expected = [(1, 10, f"{was}/a.parquet"), (1, 30, f"{was}/b.parquet"), (2, 20, f"{was}/a.parquet")]
    assert rows(meta, "late") == rows(meta, "early") == expected
    assert taken(meta) == [str(data / "a.parquet"), str(data / "b.parquet")]
    write(data / "b.parquet", 31)
    Restating(meta, "s", Restated(str(data / "b.parquet"))).begin_restating()
    next_epoch(LocalRunner(), meta)
    expected[1] = (1, 31, f"file:{data}/b.parquet")
    assert rows(meta, "late") == rows(meta, "early") == expected
    assert rows(meta, "s__rejects") == []


@pytest.mark.parametrize("other", ["nothing", "an empty folder", "other files"])
def test_a_source_stays_if_its_store_moves_to_a_folder_without_its_files(
    tmp_path: Path, shop: Path, other: str
) -> None:
    """Beside the new place of the store is a folder `sql` too."""
    there = tmp_path / "big"
    write(shop / "sql" / "data" / "c.parquet", 40)
    (there / "sql").mkdir(parents=True)
    if other != "nothing":
        (there / "sql" / "data").mkdir()
    if other == "other files":
        (there / "sql" / "data" / "notes.txt").write_text("-")
    shutil.move(shop / "store", there / "store")
    meta = open_store(there / "store")
    run(meta)
    assert taken(meta) == [str(shop / f"sql/data/{name}.parquet") for name in "abc"]
    assert rows(meta, "v") == [(1, 10), (1, 30), (1, 40), (2, 20)]


def test_two_places_of_one_project_record_one_move(shop: Path) -> None:
    place, before = moved(shop), shop
    for _ in range(3):
        run(open_store(place / "store"))
        shutil.move(place, before)
        place, before = before, place
    meta = open_store(place / "store")
    run(meta)
    assert source_in(meta).moves == (EarlierBase(str(shop / "sql"), str(place / "sql"), 2),)
    assert taken(meta) == [str(place / "sql/data/a.parquet"), str(place / "sql/data/b.parquet")]
    write(place / "sql/data/b.parquet", 31)
    Restating(meta, "s", Restated(str(place / "sql/data/b.parquet"))).begin_restating()
    next_epoch(LocalRunner(), meta)
    assert rows(meta, "v") == [(1, 10), (1, 31), (2, 20)]
    assert rows(meta, "s__rejects") == []


def test_two_moves_before_an_epoch_are_one(shop: Path) -> None:
    middle = moved(shop)
    meta = open_store(middle / "store")
    append(meta, *moved_sources(meta.read_latest().catalog, meta.objects))  # by a run that dies
    to = shop.parent / "third"
    shutil.move(middle, to)
    meta = open_store(to / "store")
    append(meta, MoveSource("s", str(middle / "sql"), str(to / "sql")))
    run(meta)
    run(meta)
    assert taken(meta) == [str(to / "sql/data/a.parquet"), str(to / "sql/data/b.parquet")]
    assert rows(meta, "v") == [(1, 10), (1, 30), (2, 20)]
    assert source_in(meta).moves == (EarlierBase(str(shop / "sql"), str(to / "sql"), 2),)


@pytest.mark.parametrize("path", ["data/*.parquet", "data/**"])
def test_an_edited_statement_is_applied_between_the_move_and_its_epoch(shop: Path, path: str) -> None:
    to = moved(shop)
    meta = open_store(to / "store")
    wanted = statement(to, path, may_be_missing="true")  # the path itself is edited or not
    changes = edited_source(meta.read_latest().catalog, wanted, meta.objects, no_spark)
    assert [type(change) for change in changes] == [MoveSource, SetSourceOptions]
    append(meta, *changes)
    run(meta)
    write(to / "sql/data/c.parquet", 40)
    run(meta)
    assert taken(meta) == [str(to / f"sql/data/{name}.parquet") for name in "abc"]
    assert rows(meta, "v") == [(1, 10), (1, 30), (1, 40), (2, 20)]
    assert edited_source(meta.read_latest().catalog, wanted, meta.objects, no_spark) == ()


def test_the_path_of_a_moved_source_is_not_altered_before_its_epoch(shop: Path) -> None:
    to = moved(shop)
    meta = open_store(to / "store")
    change = BoundSourceOptions("s", {"path": str(to / "sql" / "data")})
    with pytest.raises(CannotAlterSourceError, match="Run `tussock epoch`, then repeat this"):
        set_options(meta.read_latest().catalog, change, to, meta.objects, no_spark)
    run(meta)
    append(meta, set_options(meta.read_latest().catalog, change, to, meta.objects, no_spark))
    run(meta)
    assert len(taken(meta)) == 2

"""ALTER SOURCE … ADD COLUMN: rows of earlier files have NULL in the column, rows of later files their value. No
Spark.

The expected rows are computed from the values written into the files.
"""

import shutil
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.jobs.driver.embedded import append, new_store, rows
from tussock.jobs.barriers.source_holds import held_sources, holds_text, with_holds
from tussock.jobs.catalog.alter_source import CannotAlterSourceError, set_source_columns
from tussock.jobs.catalog.apply import RelationExistsError, apply_statement
from tussock.jobs.catalog.definition import find_relation, source_of
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import AddSourceColumns, CreateSource, CreateView, SetSourceColumns, Transaction
from tussock.jobs.settings.tables import EpochSettings
from tussock.statestore.errors import RetryableError
from tussock.statestore.meta.catalog import Hold, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

FIRST, MORE, LAST = Field("id", "int"), Field("s", "string"), Field("n", "bigint")
TEXTS = ["x", "y", None]


def source(path: object, *fields: Field, **options: str) -> CreateSource:
    return CreateSource("events", "parquet", fields or (FIRST,), {"path": str(path), **options})


def view(name: str, *fields: Field) -> CreateView:
    return CreateView(name, "SELECT …", Scan("events", tuple(range(len(fields))), fields))


def add(known: tuple[Field, ...], *fields: Field) -> AddSourceColumns:
    return AddSourceColumns("events", known, fields)


def write(folder: Path, name: str, *ids: int, **columns: list[object]) -> None:
    """Write a file; every file has the later columns too."""
    folder.mkdir(exist_ok=True)
    held = {"s": TEXTS[: len(ids)], "n": [10 * i for i in ids], **columns}
    held = {k: v for k, v in held.items() if v}
    pq.write_table(pa.table({"id": pa.array(ids, pa.int32()), **held}), folder / name)


def run(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path / "in", "a.parquet", 1, 2)
    return tmp_path / "in"


@pytest.fixture
def meta(tmp_path: Path, files: Path) -> MetaStore:
    """A store of one epoch: a source with one column, and a view over it."""
    meta = new_store(tmp_path / "store")
    append(meta, source(files), view("ids", FIRST))
    run(meta)
    return meta


BEFORE = [(1, None), (2, None)]


def test_earlier_files_have_null_and_later_ones_their_values_in_every_view(meta: MetaStore, files: Path) -> None:
    append(meta, add((FIRST,), MORE), view("both", FIRST, MORE))
    write(files, "b.parquet", 3, 4)
    run(meta)
    assert rows(meta, "both") == [*BEFORE, (3, "x"), (4, "y")]
    append(meta, view("later", FIRST, MORE))
    write(files, "c.parquet", 5)
    run(meta)
    assert rows(meta, "later") == rows(meta, "both") == [*BEFORE, (3, "x"), (4, "y"), (5, "x")]
    assert rows(meta, "ids") == [(i,) for i in range(1, 6)]


def test_columns_can_be_added_again_and_again_with_files_between_and_without(meta: MetaStore, files: Path) -> None:
    append(meta, add((FIRST,), MORE))
    write(files, "b.parquet", 3)
    run(meta)
    append(
        meta, add((FIRST, MORE), LAST), add((FIRST, MORE, LAST), Field("gone", "int")), view("all", FIRST, MORE, LAST)
    )
    run(meta)
    write(files, "c.parquet", 4, gone=[7])
    run(meta)
    assert rows(meta, "all") == [(1, None, None), (2, None, None), (3, "x", None), (4, "x", 40)]
    statement = source_of(find_relation(meta.read_latest().catalog, "events"))
    assert statement is not None
    assert [(n.columns, n.below) for n in statement.widths] == [(1, 1), (2, 2)]


def test_a_source_that_has_taken_nothing_has_the_columns_from_its_first_file_on(tmp_path: Path, files: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, source(files), add((FIRST,), MORE), view("both", FIRST, MORE))
    run(meta)
    assert rows(meta, "both") == [(1, "x"), (2, "y")]


def test_the_option_missing_decides_about_a_new_file_without_the_column(meta: MetaStore, files: Path) -> None:
    append(meta, add((FIRST,), MORE), view("both", FIRST, MORE))
    write(files, "b.parquet", 3, s=[])
    run(meta)
    assert "no such column" in held_sources(meta.read_latest().catalog)["events"]
    assert rows(meta, "both") == BEFORE, "the barrier that holds the source is settled, too"
    write(files, "b.parquet", 3)
    run(meta)
    assert rows(meta, "both") == [*BEFORE, (3, "x")]


def test_a_file_that_is_held_is_tried_again_after_a_column_was_added(meta: MetaStore, files: Path) -> None:
    """A file of csv whose header has one more column, which only Spark can read, is held with its mark."""
    catalog = meta.read_latest().catalog
    hold = Hold("only its header has 's'", 1, "CsvHeaderError", str(files / "b.csv"), "mark")
    held = with_holds(catalog, {find_relation(catalog, "events").id: (hold,)}, 1)
    assert held_sources(held)
    altered = set_source_columns(held, SetSourceColumns("events", (FIRST,), (FIRST, MORE)))
    (still,) = find_relation(altered, "events").holds
    assert still == msgspec.structs.replace(hold, mark=""), "the next run that wants the file reads it"
    assert holds_text(held, altered) == (), "the same file was held before"


def test_a_record_that_was_a_row_remains_a_row_despite_the_new_column(tmp_path: Path, files: Path) -> None:
    write(files, "a.parquet", 1, 2, n=[2**40, 1])
    meta = new_store(tmp_path / "store")
    append(meta, source(files, on_error="quarantine"), view("ids", FIRST))
    run(meta)
    narrow = Field("n", "smallint")
    append(meta, add((FIRST,), narrow), view("both", FIRST, narrow))
    write(files, "b.parquet", 3, 4, n=[2**40, 1])
    run(meta)
    assert rows(meta, "both") == [(1, None), (2, None), (4, 1)]
    assert rows(meta, "ids") == [(1,), (2,), (4,)]
    assert [r[1] for r in rows(meta, "events__rejects")] == [1]


def test_the_earlier_create_still_describes_the_source(meta: MetaStore, files: Path) -> None:
    append(meta, add((FIRST,), MORE))
    run(meta)
    catalog = meta.read_latest().catalog
    for same in (source(files), source(files, FIRST, MORE)):
        again = CreateSource(same.name, same.format, same.fields, same.options, if_not_exists=True)
        assert apply_statement(catalog, again, 9) == catalog
    with pytest.raises(RelationExistsError, match="column 'n': none in the store, bigint in the statement"):
        apply_statement(catalog, source(files, FIRST, MORE, LAST), 9)
    with pytest.raises(CannotAlterSourceError, match="altered after"):
        apply_statement(catalog, add((FIRST,), LAST), 9)


def test_in_a_pipelines_files_it_runs_once(meta: MetaStore) -> None:
    once = Transaction((add((FIRST,), MORE),), ((0, "named/1"),))
    catalog = apply_statement(meta.read_latest().catalog, once, 9)
    assert [c.name for c in find_relation(catalog, "events").columns] == ["id", "s"]
    assert apply_statement(catalog, once, 10) == catalog


def test_a_kill_at_any_object_creation_ends_in_the_same_rows(tmp_path: Path, meta: MetaStore, files: Path) -> None:
    """A bad file that arrives with the statement holds the source and supersedes the barrier. It is repaired at the
    end.
    """
    append(meta, add((FIRST,), MORE), view("both", FIRST, MORE))
    write(files, "b.parquet", 3, s=[])
    write(files, "c.parquet", 4)
    template = tmp_path / "store"

    def ended(store: Path, objects: FaultyObjectStore | None = None, writer: str = "driver") -> dict[str, object]:
        meta = MetaStore(objects or open_object_store(str(store)), writer, lambda: 1_800_000_000_000)
        advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=1))
        return {
            r.name: rows(meta, r.name)
            for r in meta.read_latest().catalog.live_relations()
            if r.kind is RelationKind.VIEW
        }

    watched = FaultyObjectStore(open_object_store(str(shutil.copytree(template, tmp_path / "whole"))))
    whole = ended(tmp_path / "whole", watched)
    assert whole == {"ids": [(1,), (2,)], "both": BEFORE}
    for number in [i for i, (operation, _) in enumerate(watched.calls) if operation == "put_if_absent"]:
        store = Path(shutil.copytree(template, tmp_path / str(number)))
        objects = FaultyObjectStore(open_object_store(str(store)))
        objects.kill(number)
        with suppress(Killed, RetryableError):
            ended(store, objects)
        assert ended(store, writer="another") == whole, watched.calls[number]
    write(files, "b.parquet", 3)
    assert ended(store, writer="later") == {"ids": [(1,), (2,), (3,), (4,)], "both": [*BEFORE, (3, "x"), (4, "x")]}

"""ALTER SOURCE … RENAME COLUMN and ALTER COLUMN … TYPE: each file is read with the columns of its time.

The expected rows are those written into the files. No Spark.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.catalog.alter_source import CannotAlterSourceError
from tussock.jobs.catalog.apply import apply_log, apply_statement
from tussock.jobs.catalog.definition import find_relation, source_of
from tussock.jobs.catalog.replace import UnsettledError
from tussock.jobs.driver.epoch import advance_store, next_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import (
    CreateSource,
    CreateView,
    Drop,
    EarlierColumns,
    SetSourceColumns,
    SetSourceOptions,
    Transaction,
)
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import CannotRestateError
from tussock.jobs.sources.widening import is_wider
from tussock.jobs.trouble.restate import Restating
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock.statestore.meta.store import MetaStore

OLD = (Field("id", "int"), Field("v", "int"))
NEW = (Field("id", "int"), Field("amount", "bigint"))
FAR = 2**40


def write_csv(path: Path, names: tuple[str, ...], records: list[tuple[int | None, ...]]) -> None:
    lines = [",".join("" if v is None else str(v) for v in record) for record in (names, *records)]
    path.write_text("\n".join(lines) + "\n")


def write_json(path: Path, names: tuple[str, ...], records: list[tuple[int | None, ...]]) -> None:
    path.write_text("".join(json.dumps(dict(zip(names, record, strict=True))) + "\n" for record in records))


def write_parquet(path: Path, names: tuple[str, ...], records: list[tuple[int | None, ...]]) -> None:
    kind = pa.int64() if any(v is not None and v >= 2**31 for r in records for v in r) else pa.int32()
    first, second = zip(*records, strict=True)
    pq.write_table(pa.table({names[0]: pa.array(first, pa.int32()), names[1]: pa.array(second, kind)}), path)


Write = Callable[[Path, tuple[str, ...], list[tuple[int | None, ...]]], None]
FORMATS: dict[str, tuple[Write, dict[str, str]]] = {
    "csv": (write_csv, {"header": "true", "enforceSchema": "false"}),
    "json": (write_json, {}),
    "parquet": (write_parquet, {}),
}


def view(name: str, fields: tuple[Field, ...], *columns: int, again: bool = False) -> CreateView:
    read = columns or tuple(range(len(fields)))
    plan = Scan("s", read, tuple(fields[c] for c in read))
    return CreateView(name, "SELECT …", plan, or_replace=again)


def alter(known: tuple[Field, ...], fields: tuple[Field, ...], *views: CreateView) -> Transaction:
    return Transaction((SetSourceColumns("s", known, fields), *views))


def run(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)
    assert not held_sources(meta.read_latest().catalog)


def source(meta: MetaStore) -> CreateSource:
    found = source_of(find_relation(meta.read_latest().catalog, "s"))
    assert found is not None
    return found


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def started(tmp_path: Path, files: Path, format: str, **options: str) -> MetaStore:
    """A source with a file of its first columns, a view of all columns and one of the first."""
    meta, (write, given) = new_store(tmp_path / "store"), FORMATS[format]
    write(files / f"a.{format}", ("id", "v"), [(1, 10), (2, None)])
    options = {"path": str(files), "retain": "files", **given, **options}
    append(meta, CreateSource("s", format, OLD, options), view("all", OLD), view("ids", OLD, 0))
    run(meta)
    return meta


def test_each_file_is_read_by_the_names_and_types_of_its_time(tmp_path: Path, files: Path, format: str) -> None:
    meta, (write, _) = started(tmp_path, files, format), FORMATS[format]
    before = meta.read_latest()
    ids = find_relation(before.catalog, "ids")
    append(meta, alter(OLD, NEW, view("all", NEW, again=True), view("ids", NEW, 0, again=True)))
    write(files / f"b.{format}", ("id", "amount"), [(3, FAR)])
    run(meta)
    expected = [(1, 10), (2, None), (3, FAR)]
    assert rows(meta, "all") == expected
    assert [(c.name, c.type) for c in find_relation(meta.read_latest().catalog, "all").columns] == [
        ("id", "int"),
        ("amount", "bigint"),
    ]
    assert find_relation(meta.read_latest().catalog, "ids").id == ids.id, (
        "a view that does not read the column keeps its state"
    )
    append(meta, view("late", NEW))
    run(meta)
    assert rows(meta, "late") == expected
    assert rows(meta, "ids") == [(1,), (2,), (3,)]
    assert source(meta).column_changes == (EarlierColumns(OLD, 1),)


def test_a_restatement_takes_an_old_file_back_as_it_was_read(tmp_path: Path, files: Path, format: str) -> None:
    meta, (write, _) = started(tmp_path, files, format), FORMATS[format]
    append(meta, alter(OLD, NEW, view("all", NEW, again=True), view("ids", NEW, 0, again=True)))
    run(meta)
    old = files / f"a.{format}"
    write(old, ("id", "amount"), [(1, FAR)])
    Restating(meta, "s", Restated(str(old))).begin_restating()
    next_epoch(LocalRunner(), meta)
    assert rows(meta, "all") == [(1, FAR)]
    old.unlink()
    Restating(meta, "s", Restated(str(old), gone=True)).begin_restating()
    next_epoch(LocalRunner(), meta)
    assert rows(meta, "all") == rows(meta, "ids") == []
    write(files / f"c.{format}", ("id", "amount"), [(4, FAR)])
    run(meta)
    assert rows(meta, "all") == [(4, FAR)]


def test_changes_follow_each_other_with_files_between_and_without(tmp_path: Path, files: Path, format: str) -> None:
    meta, (write, _) = started(tmp_path, files, format), FORMATS[format]
    second, third = (OLD[0], Field("w", "int")), (OLD[0], Field("w", "bigint"))
    fourth = (Field("key", "bigint"), Field("w", "decimal(20,0)"))
    append(meta, Drop(RelationKind.VIEW, "all"), Drop(RelationKind.VIEW, "ids"))
    append(meta, SetSourceColumns("s", OLD, second), SetSourceColumns("s", second, third))
    write(files / f"b.{format}", ("id", "w"), [(3, FAR)])
    run(meta)
    more = (*fourth, Field("n", "int"))
    append(meta, SetSourceColumns("s", third, more), view("late", more))
    run(meta)
    found = [(int(str(k)), None if w is None else int(str(w)), n) for k, w, n in rows(meta, "late")]
    assert found == [(1, 10, None), (2, None, None), (3, FAR, None)]
    assert [(e.fields, e.below) for e in source(meta).column_changes] == [(OLD, 1), (third, 2)]


def test_quarantined_records_of_a_narrow_type_stay_and_a_restatement_reads_them(tmp_path: Path, files: Path) -> None:
    meta = started(tmp_path, files, "parquet", on_error="quarantine")
    write_parquet(files / "b.parquet", ("id", "v"), [(3, FAR), (4, 40)])
    run(meta)
    wide = (OLD[0], Field("v", "bigint"))
    append(meta, alter(OLD, wide, view("all", wide, again=True), view("ids", wide, 0, again=True)))
    run(meta)
    assert rows(meta, "all") == [(1, 10), (2, None), (4, 40)]
    assert len(rows(meta, "s__rejects")) == 1
    Restating(meta, "s", Restated(options=True)).begin_restating()
    next_epoch(LocalRunner(), meta)
    assert rows(meta, "all") == [(1, 10), (2, None), (3, FAR), (4, 40)]
    assert rows(meta, "s__rejects") == []


def test_a_file_under_the_earlier_name_is_held_and_not_read_as_nulls(tmp_path: Path, files: Path) -> None:
    meta = started(tmp_path, files, "parquet")
    append(meta, alter(OLD, NEW, view("all", NEW, again=True), view("ids", NEW, 0, again=True)))
    write_parquet(files / "b.parquet", ("id", "v"), [(3, 30)])
    advance_store(LocalRunner(), meta)
    assert "'amount'" in held_sources(meta.read_latest().catalog)["s"]
    write_parquet(files / "b.parquet", ("id", "amount"), [(3, 30)])
    run(meta)
    assert rows(meta, "all") == [(1, 10), (2, None), (3, 30)]


def test_bytes_with_an_earlier_name_are_not_read_with_present_options(tmp_path: Path, files: Path) -> None:
    meta = started(tmp_path, files, "json")
    append(meta, alter(OLD, NEW, view("all", NEW, again=True), view("ids", NEW, 0, again=True)))
    known = source(meta).options
    append(meta, SetSourceOptions("s", known, {**known, "nullValue": "x"}))
    run(meta)
    with pytest.raises(CannotRestateError, match=r"column 'amount' is called 'v' in .*a\.json"):
        Restating(meta, "s", Restated(options=True))


@pytest.mark.parametrize("given", [{"header": "true", "enforceSchema": "true"}, {"header": "false"}])
def test_records_without_names_are_read_with_present_options_after_a_rename(
    tmp_path: Path, files: Path, given: dict[str, str]
) -> None:
    meta = new_store(tmp_path / "store")
    header = "id,v\n" if given["header"] == "true" else ""
    (files / "a.csv").write_text(f"{header}1,10\n2,20\n")
    options = {"path": str(files), "retain": "files", **given}
    append(meta, CreateSource("s", "csv", OLD, options), view("all", OLD))
    run(meta)
    append(meta, alter(OLD, NEW, view("all", NEW, again=True)))
    known = source(meta).options
    append(meta, SetSourceOptions("s", known, {**known, "nullValue": "20"}))
    run(meta)
    assert rows(meta, "all") == [(1, 10), (2, 20)]
    Restating(meta, "s", Restated(options=True)).begin_restating()
    next_epoch(LocalRunner(), meta)
    assert rows(meta, "all") == [(1, 10), (2, None)]


def test_views_must_be_bound_again_in_the_same_entry(tmp_path: Path, files: Path) -> None:
    catalog = started(tmp_path, files, "json").read_latest().catalog
    with pytest.raises(UnsettledError, match="'all'"):
        apply_statement(catalog, SetSourceColumns("s", OLD, NEW), 9)
    replayed = apply_log(catalog, [SetSourceColumns("s", OLD, NEW)], 9)
    assert replayed.catalog == catalog
    assert len(replayed.rejected) == 1
    assert apply_statement(catalog, SetSourceColumns("s", OLD, (*OLD, Field("n", "int"))), 9) != catalog


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((OLD[0],), r"columns cannot be removed \(v\)"),
        ((OLD[1], OLD[0]), "column 'v' cannot change its place"),
        ((OLD[0], Field("ID", "int")), "two columns 'id'"),
        ((OLD[0], Field("v", "string")), "cannot change from int to string"),
        ((OLD[0], Field("v", "smallint")), "cannot change from int to smallint"),
    ],
)
def test_what_could_change_the_meaning_of_earlier_rows_is_refused(fields: tuple[Field, ...], reason: str) -> None:
    statement = CreateSource("s", "json", OLD, {"path": "/data"})
    catalog = apply_statement(Catalog(), statement, 1)
    with pytest.raises(CannotAlterSourceError, match=reason):
        apply_statement(catalog, SetSourceColumns("s", OLD, fields), 2)
    with pytest.raises(CannotAlterSourceError, match="run the statement again"):
        apply_statement(catalog, SetSourceColumns("s", NEW, NEW), 2)


@pytest.mark.parametrize(
    ("was", "wider", "other"),
    [
        ("tinyint", "smallint int bigint double decimal(10,0) decimal(12,2)", "float string decimal(9,0) timestamp"),
        ("int", "bigint double decimal(10,0)", "smallint float decimal(10,1) string"),
        ("bigint", "decimal(20,0) decimal(22,2)", "double int decimal(19,0)"),
        ("float", "double", "decimal(38,10) string"),
        ("decimal(5,2)", "decimal(6,2) decimal(7,4)", "decimal(5,3) decimal(6,4) double string"),
        ("date", "timestamp_ntz", "timestamp string"),
        ("string", "", "binary int"),
        ("boolean", "", "int string"),
        ("timestamp_ntz", "", "timestamp"),
    ],
)
def test_wider_types(was: str, wider: str, other: str) -> None:
    assert [kind for kind in wider.split() if not is_wider(was, kind)] == []
    assert [kind for kind in [was, *other.split()] if is_wider(was, kind)] == []


def test_a_driver_killed_at_any_request_reads_each_file_with_its_columns(tmp_path: Path, files: Path) -> None:
    meta = started(tmp_path, files, "parquet")
    append(meta, alter(OLD, NEW, view("all", NEW, again=True), view("ids", NEW, 0, again=True)))
    write_parquet(files / "b.parquet", ("id", "amount"), [(3, FAR)])
    for store in stores_after_deaths(tmp_path / "store", lambda first: advance_store(LocalRunner(), first), []):
        other = open_store(store, "second")
        run(other)
        assert rows(other, "all") == [(1, 10), (2, None), (3, FAR)]

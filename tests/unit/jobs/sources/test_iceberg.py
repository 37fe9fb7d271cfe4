"""Iceberg tables as sources, without a JVM: at every epoch, views equal the rows of the snapshot that it took."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.iceberg.tables import (
    NAME,
    KeyedWriter,
    Writer,
    catalog_in,
    commit_deletes,
    options_of,
    replace_files,
    rows_of,
)
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.source_holds import HeldSourcesError, require_not_held
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.iceberg.iceberg_errors import CatalogAwayError, MissingIcebergTableError, NoCatalogError
from tussock.jobs.iceberg.table_files import LakeFile, TableFiles
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop, KeyedBy, SetSourceOptions
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources import file_portions, iceberg_files, parquet, snapshot_cuts
from tussock.jobs.sources.describe import describe_source
from tussock.jobs.sources.errors import (
    BadOptionError,
    BadTableKeyError,
    CredentialInOptionError,
    MissingOptionError,
    TableColumnsChangedError,
    UnskippableItemError,
)
from tussock.jobs.sources.iceberg import IcebergTables
from tussock.jobs.sources.parquet import Split
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("id", "bigint"), Field("v", "double"), Field("p", "string"))
COPY = CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1, 2), FIELDS))
COUNTED = CreateView(
    "counted",
    "SELECT p, count(*) n FROM s GROUP BY p",
    Aggregate(
        Scan("s", (2,), FIELDS[2:]),
        (Column(0, "string"),),
        (AggCall(AggFunction.COUNT, "bigint", ()),),
        (Field("p", "string"), Field("n", "bigint")),
    ),
)


def source(folder: Path, fields: tuple[Field, ...] = FIELDS, **more: str) -> CreateSource:
    return CreateSource("s", "iceberg", fields, options_of(folder, **more))


def counted(rows_: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, rows_))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_views_equal_the_rows_of_the_snapshot_that_each_epoch_took(tmp_path: Path, seed: int) -> None:
    writer = Writer(tmp_path / "lake", seed)
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "lake"), COPY)
    runner = UnkindShuffle(3)
    for turn in range(12):
        kinds = [writer.change() for _ in range(writer.random.randrange(3))]
        if turn == 5:
            append(meta, COUNTED)  # a later view begins with the taken snapshot
        advance_store(runner, meta)
        require_not_held(meta.read_latest().catalog)
        assert counted(rows(meta, "copy")) == counted(writer.rows), (turn, kinds)
        if turn >= 5:
            assert counted(rows(meta, "counted")) == counted(list(Counter(r[2] for r in writer.rows).items()))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_the_rows_of_a_key_equal_the_table_at_every_epoch(tmp_path: Path, seed: int) -> None:
    writer, meta = KeyedWriter(tmp_path / "lake", seed), new_store(tmp_path / "store")
    append(meta, keyed(tmp_path / "lake", rollbacks="follow"), COPY)
    runner = UnkindShuffle(3)
    for turn in range(12):
        kinds = [writer.change() for _ in range(writer.random.randrange(1 if turn == 0 else 4))]
        while advance_store(runner, meta):
            require_not_held(meta.read_latest().catalog)
        assert counted(rows(meta, "copy")) == counted([*writer.rows.values()]), (turn, kinds)


def keyed(lake: Path, **more: str) -> CreateSource:
    return msgspec.structs.replace(source(lake, **more), keyed=KeyedBy((0,)))


def test_equality_deletes_of_the_key_read_no_older_file(lake: Path, tmp_path: Path, monkeypatch: Any) -> None:
    meta, table = new_store(tmp_path / "store"), catalog_in(lake).load_table(NAME)
    table.overwrite(rows_of((1, 1.0, "a"), (2, 2.0, "b"), (3, 3.0, None)))
    append(meta, keyed(lake), COPY)
    advance(meta)
    commit_deletes(table, equal=pa.table({"id": [2, 3]}), new=rows_of((2, 9.0, "n")))
    read, chunk_of = list[str](), iceberg_files._chunk_of

    def note_file(source: Any, part: Any, *rest: Any) -> pa.Table:
        read.append(Path(part.split.file.path).name)
        return chunk_of(source, part, *rest)

    monkeypatch.setattr(iceberg_files, "_chunk_of", note_file)
    advance(meta)
    assert rows(meta, "copy") == [(1, 1.0, "a"), (2, 9.0, "n")]
    assert sorted(name.partition("-")[2] for name in read) == ["equal.parquet", "new.parquet"]


def test_options_of_changes_are_refused_for_rows_by_a_key(lake: Path) -> None:
    for option, value in (("sequence_by", "v"), ("removed_rows", "ignore"), ("key", "id")):
        with pytest.raises(BadOptionError, match="the rows of the table are the rows of the source"):
            reader_of(keyed(lake)).check(keyed(lake, **{option: value}))


def test_deletes_of_a_partition_delete_no_row_of_another_one(tmp_path: Path) -> None:
    """The key does not decide the partition, so the row with the key stays, as in Iceberg."""
    table = catalog_in(tmp_path / "lake").create_table(NAME, rows_of().schema)
    table.append(rows_of((1, 1.0, "a"), (2, 2.0, "b")))
    meta = new_store(tmp_path / "store")
    append(meta, keyed(tmp_path / "lake"), COPY)
    advance(meta)
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "part")
    table = table.refresh()
    commit_deletes(table, equal=pa.table({"id": [2]}))
    advance(meta)
    assert rows(meta, "copy") == [(1, 1.0, "a"), (2, 2.0, "b")]


def reason(meta: MetaStore) -> str:
    advance_store(LocalRunner(), meta)
    with pytest.raises(HeldSourcesError, match="Everything else was taken and committed") as raised:
        require_not_held(meta.read_latest().catalog)
    return raised.value.reasons["s"]


def set_options(meta: MetaStore, lake: Path, **more: str) -> None:
    append(meta, SetSourceOptions("s", options_of(lake), options_of(lake, **more)))


def make_anew(meta: MetaStore, lake: Path) -> None:
    """Follow the remedy of a source whose history is gone: its view then equals the table."""
    append(meta, Drop(RelationKind.SOURCE, "s", cascade=True), source(lake), COPY)
    advance(meta)
    there = catalog_in(lake).load_table(NAME).scan().to_arrow().to_pylist()
    assert counted(rows(meta, "copy")) == counted([(row["id"], row["v"], row["p"]) for row in there])


def advance(meta: MetaStore) -> None:
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    table = catalog_in(tmp_path / "lake").create_table(NAME, rows_of().schema)
    table.append(rows_of((1, 1.0, "a"), (2, 2.0, "b"), (2, 2.0, "b")))
    return tmp_path / "lake"


@pytest.fixture
def meta(tmp_path: Path, lake: Path) -> MetaStore:
    made = new_store(tmp_path / "store")
    append(made, source(lake), COPY)
    advance(made)
    assert rows(made, "copy") == [(1, 1.0, "a"), (2, 2.0, "b"), (2, 2.0, "b")]
    return made


def test_a_compaction_gives_no_work_even_if_its_files_are_changed_later(lake: Path, meta: MetaStore) -> None:
    catalog = catalog_in(lake)
    catalog.load_table(NAME).append(rows_of((3, 3.0, "c")))
    replace_files(catalog.load_table(NAME))
    table = catalog.load_table(NAME)
    last = table.current_snapshot()
    assert last is not None
    before = table.snapshots()[0]
    (piece,) = TableFiles(table, NAME).pieces_between(before, last)
    assert [weight for weight, _ in piece.weights] == [1], "only the appended file is read"
    advance(meta)
    table.delete("id = 2")
    advance(meta)
    assert rows(meta, "copy") == [(1, 1.0, "a"), (3, 3.0, "c")]


def test_renamed_added_and_widened_columns_are_followed_by_their_field_ids(tmp_path: Path) -> None:
    catalog = catalog_in(tmp_path / "lake")
    schema = pa.schema(
        [("id", pa.int32()), ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("p", pa.string())]
    )
    table = catalog.create_table(NAME, schema)
    table.append(pa.table([[1], [{"x": 1, "y": "one"}], ["a"]], schema=schema))
    fields = (Field("id", "bigint"), Field("s", "struct<x:bigint,y:string>"), Field("p", "string"))
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "lake", fields), CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1, 2), fields)))
    advance(meta)
    with table.update_schema() as update:
        update.rename_column("s.x", "renamed")
        update.rename_column("p", "q")
        update.update_column("id", LongType())
    with table.update_schema() as update:
        update.move_first("q")
        update.add_column("p", StringType())  # another column with the old name
    newer = schema_to_pyarrow(catalog.load_table(NAME).schema(), include_field_ids=False)
    values = {"id": 2**40, "s": {"renamed": 2, "y": "two"}, "q": "b", "p": "other"}
    catalog.load_table(NAME).append(pa.Table.from_pylist([values], schema=newer))
    advance(meta)
    assert rows(meta, "copy") == [(1, {"x": 1, "y": "one"}, "a"), (2**40, {"x": 2, "y": "two"}, "b")]
    with catalog.load_table(NAME).update_schema() as update:
        update.delete_column("q")
    catalog.load_table(NAME).append(pa.Table.from_pylist([{**values, "id": 3}], schema=newer).drop_columns(["q"]))
    assert "column 'p': found no such column with the field id 3" in reason(meta)


def test_partitions_may_change_and_a_file_without_its_partition_column_gets_the_value(tmp_path: Path) -> None:
    catalog = catalog_in(tmp_path / "lake")
    table = catalog.create_table(NAME, rows_of().schema)
    table.append(rows_of((1, 1.0, "a")))
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "lake"), COPY)
    advance(meta)
    with table.update_spec() as update:
        update.add_identity("p")
        update.add_field("id", BucketTransform(4))
    table = catalog.load_table(NAME)
    table.append(rows_of((2, 2.0, "b"), (3, None, None)))
    table.delete("id = 1")
    advance(meta)
    assert rows(meta, "copy") == [(2, 2.0, "b"), (3, None, None)]
    for file in table.inspect.data_files().to_pylist():  # as an import from Hive would leave it
        path = file["file_path"].removeprefix("file://")
        pq.write_table(pq.read_table(path).drop_columns(["p"]), path)
    other = new_store(tmp_path / "other")
    append(other, source(tmp_path / "lake"), COPY)
    advance(other)
    assert rows(other, "copy") == [(2, 2.0, "b"), (3, None, None)]


def test_equality_deletes_without_a_partition_reach_the_files_of_earlier_partitions(tmp_path: Path) -> None:
    catalog = catalog_in(tmp_path / "lake")
    table = catalog.create_table(NAME, rows_of().schema, properties={"format-version": "1"})
    with table.update_spec() as update:
        update.add_identity("p")
    table.append(rows_of((1, 1.0, "a"), (2, 2.0, "b")))
    with table.update_spec() as update:
        update.remove_field("p")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table = catalog.load_table(NAME)
    assert [str(field.transform) for field in table.spec().fields] == ["void"], "format 1 keeps a removed field"
    commit_deletes(table, equal=pa.table({"id": [1]}))
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "lake"), COPY)
    advance(meta)
    assert rows(meta, "copy") == [(2, 2.0, "b")]


def test_a_file_that_was_removed_and_added_again_has_rows_that_older_deletes_do_not_reach(tmp_path: Path) -> None:
    """Equality deletes apply to older files only, and the file has a new sequence number."""
    catalog = catalog_in(tmp_path / "lake")
    table = catalog.create_table(NAME, rows_of().schema)
    table.append(rows_of((1, 1.0, "a"), (2, 2.0, "b")))
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "lake"), COPY)
    advance(meta)
    commit_deletes(table, equal=pa.table({"id": [1]}))
    (file,) = (entry["file_path"] for entry in table.inspect.data_files().to_pylist())
    advance(meta)
    assert rows(meta, "copy") == [(2, 2.0, "b")]
    with table.transaction() as transaction, transaction.update_snapshot().delete() as delete:
        delete.delete_by_predicate(AlwaysTrue())
    table = catalog.load_table(NAME)
    assert not table.inspect.data_files().num_rows
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as again:
        again.append_data_file(parquet_file_to_data_file(table.io, table.metadata, file))
    advance(meta)
    assert rows(meta, "copy") == [(1, 1.0, "a"), (2, 2.0, "b")]


def test_a_row_group_without_a_deleted_row_is_not_read(lake: Path, tmp_path: Path, monkeypatch: Any) -> None:
    catalog = catalog_in(lake)
    table = catalog.load_table(NAME)
    table.overwrite(rows_of(*((n, None, None) for n in range(8))))
    (file,) = table.inspect.data_files().to_pylist()
    path = file["file_path"].removeprefix("file://")
    pq.write_table(pq.read_table(path), path, row_group_size=2)
    made = new_store(tmp_path / "other")
    append(made, source(lake), COPY)
    advance(made)
    commit_deletes(table, {file["file_path"]: [4]})
    splits, read = [], parquet.read_split

    def read_split(split: Split, *more: Any) -> Any:
        splits.append(split.row_groups)
        return read(split, *more)

    monkeypatch.setattr(iceberg_files, "read_split", read_split)
    advance(made)
    assert splits == [(2,)]
    assert [row[0] for row in rows(made, "copy")] == [0, 1, 2, 3, 5, 6, 7]


def test_a_branch_is_read_alone(lake: Path, tmp_path: Path) -> None:
    table = catalog_in(lake).load_table(NAME)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "audit").commit()
    table.append(rows_of((9, 9.0, "main")))
    table.append(rows_of((3, 3.0, "c")), branch="audit")
    made = new_store(tmp_path / "other")
    append(made, source(lake, branch="audit"), COPY)
    advance(made)
    assert [row[0] for row in rows(made, "copy")] == [1, 2, 2, 3]
    append(made, CreateSource("none", "iceberg", FIELDS, options_of(lake, branch="other")))
    advance_store(LocalRunner(), made)
    with pytest.raises(HeldSourcesError, match=r"no branch 'other' \(its branches: audit, main"):
        require_not_held(made.read_latest().catalog)


def test_a_rolled_back_table_holds_the_source_until_rollbacks_are_followed(lake: Path, meta: MetaStore) -> None:
    table = catalog_in(lake).load_table(NAME)
    first = table.current_snapshot()
    assert first is not None
    table.append(rows_of((3, 3.0, "c")))
    advance(meta)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    catalog_in(lake).load_table(NAME).append(rows_of((4, 4.0, "d")))
    why = reason(meta)
    assert "was rolled back" in why
    assert "SET OPTIONS (rollbacks 'follow')" in why
    set_options(meta, lake, rollbacks="follow")
    advance(meta)
    assert [row[0] for row in rows(meta, "copy")] == [1, 2, 2, 4]


def test_an_expired_snapshot_holds_the_source(lake: Path, meta: MetaStore) -> None:
    table = catalog_in(lake).load_table(NAME)
    first = table.current_snapshot()
    assert first is not None
    table.append(rows_of((3, 3.0, "c")))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    before = rows(meta, "copy")
    why = reason(meta)
    for said in (f"since snapshot {first.snapshot_id}", "that snapshot has expired", "DROP SOURCE s"):
        assert said in why
    assert rows(meta, "copy") == before
    make_anew(meta, lake)


def test_expired_snapshots_in_between_are_not_needed(lake: Path, meta: MetaStore) -> None:
    table = catalog_in(lake).load_table(NAME)
    table.append(rows_of((3, 3.0, "c")))
    between = table.current_snapshot()
    assert between is not None
    table.delete("id = 1")
    table.maintenance.expire_snapshots().by_id(between.snapshot_id).commit()
    advance(meta)
    assert [row[0] for row in rows(meta, "copy")] == [2, 2, 3]


def test_equality_deletes_of_a_nested_field_hold_the_source(lake: Path, meta: MetaStore) -> None:
    table = catalog_in(lake).load_table(NAME)
    with table.update_schema() as update:
        update.add_column("s", StructType(NestedField(1, "x", LongType(), required=False)))
    nested = table.schema().find_field("s.x").field_id
    commit_deletes(table, equal=pa.table({"id": [1]}), ids=[nested])
    assert "has equality deletes of a nested field (file:///" in reason(meta)


def test_a_missing_file_holds_the_source_until_it_is_back(lake: Path, meta: MetaStore) -> None:
    table = catalog_in(lake).load_table(NAME)
    table.append(rows_of((3, 3.0, "c")))
    (file,) = (f["file_path"].removeprefix("file://") for f in table.inspect.data_files().to_pylist()[:1])
    Path(file).rename(lake / "kept")
    assert f"{file} is gone" in reason(meta)
    (lake / "kept").rename(file)
    advance(meta)
    assert [row[0] for row in rows(meta, "copy")] == [1, 2, 2, 3]


def test_a_table_that_was_dropped_and_made_anew_is_not_taken_for_the_old_one(lake: Path, meta: MetaStore) -> None:
    catalog = catalog_in(lake)
    catalog.drop_table(NAME)
    assert "has no table 'db.t'" in reason(meta)
    catalog.create_table(NAME, rows_of().schema).append(rows_of((7, 7.0, "x")))
    assert "was dropped and created again" in reason(meta)
    make_anew(meta, lake)


def test_a_column_that_is_dropped_and_added_again_is_another_one(lake: Path, meta: MetaStore) -> None:
    table = catalog_in(lake).load_table(NAME)
    with table.update_schema() as update:
        update.delete_column("p")
    with table.update_schema() as update:
        update.add_column("p", StringType())
    table.append(rows_of((3, 3.0, "c")))
    why = reason(meta)
    assert "no such column with the field id 3 (the table has id, v, p)" in why
    assert "A column that is added again is another one, with another field id. DROP SOURCE s" in why
    make_anew(meta, lake)


def test_a_file_outside_of_the_table_holds_the_source(lake: Path, meta: MetaStore, tmp_path: Path) -> None:
    table = catalog_in(lake).load_table(NAME)
    pq.write_table(rows_of((5, 5.0, "e")), tmp_path / "outside.parquet")
    table.add_files([f"file://{tmp_path}/outside.parquet"])
    assert "outside of the table's folder" in reason(meta)
    set_options(meta, lake, folders=str(tmp_path))
    advance(meta)
    assert rows(meta, "copy")[-1] == (5, 5.0, "e"), "a file without field ids is read by the table's name mapping"


@pytest.mark.parametrize("what", ["manifest list", "manifests"])
def test_a_name_of_metadata_outside_of_the_table_holds_the_source(
    what: str, lake: Path, meta: MetaStore, tmp_path: Path
) -> None:
    """The same files, as a copy in another folder: nothing but their place is against them."""
    table = catalog_in(lake).load_table(NAME)
    table.append(rows_of((5, 5.0, "e")))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    listed = Path(snapshot.manifest_list.removeprefix("file://"))
    shutil.copytree(listed.parent, outside := tmp_path / "outside")
    if what == "manifests":
        with listed.open("rb") as file:
            manifests = fastavro.reader(file)
            schema, entries = manifests.writer_schema, list(manifests)
        moved = [{**e, "manifest_path": f"file://{outside}/{Path(e['manifest_path']).name}"} for e in entries]
        with listed.open("wb") as file:
            fastavro.writer(file, schema, moved)
    else:
        metadata = Path(table.metadata_location.removeprefix("file://"))
        metadata.write_text(metadata.read_text().replace(f"{listed.parent}/snap-", f"{outside}/snap-"))
    assert "outside of the table's folder" in reason(meta)
    set_options(meta, lake, folders=str(outside))
    advance(meta)
    assert rows(meta, "copy")[-1] == (5, 5.0, "e")


@pytest.mark.parametrize("by", ["property", "location"])
def test_the_metadata_of_a_table_does_not_decide_which_folders_are_read(
    by: str, lake: Path, meta: MetaStore, tmp_path: Path
) -> None:
    table = catalog_in(lake).load_table(NAME)
    pq.write_table(rows_of((5, 5.0, "e")), tmp_path / "outside.parquet")
    with table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}"} if by == "property" else {"a": "b"})
    table.add_files([f"file://{tmp_path}/outside.parquet"])
    if by == "location":
        metadata = Path(table.metadata_location.removeprefix("file://"))
        metadata.write_text(metadata.read_text().replace(table.location(), f"file://{tmp_path}", 1))
        assert catalog_in(lake).load_table(NAME).location() == f"file://{tmp_path}"
    assert "outside of the table's folder" in reason(meta)
    set_options(meta, lake, folders=str(tmp_path))
    advance(meta)
    assert rows(meta, "copy")[-1] == (5, 5.0, "e")


@pytest.mark.parametrize(("limit", "epochs"), [(7, 4 * 3 + 1), (20, 4 + 1), (1_000, 1 + 1)])
def test_a_large_first_snapshot_is_taken_in_portions_of_files_and_rows(
    limit: int, epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_cuts, "LEAST_PORTION_BYTES", 1)
    table, meta = catalog_in(tmp_path / "lake").create_table(NAME, rows_of().schema), new_store(tmp_path / "store")
    for number in range(4):
        table.append(rows_of(*((i, float(i), "ab"[i % 2]) for i in range(20 * number, 20 * number + 20))))
    files = sorted(task.file.file_path for task in table.scan().plan_files())
    last = (99, 9.0, "new")
    all_rows = [r for file in files for r in rows_in(Path(file.removeprefix("file://")))] + [last]
    append(meta, source(tmp_path / "lake"), COPY, COUNTED)
    settings, sizes = EpochSettings(max_bytes=limit * file_portions.ROW_BYTES), [0]
    while (barrier := inject_barrier(meta, settings=settings)) is not None:
        run_epoch(LocalRunner(), meta, barrier)
        there = rows(meta, "copy")
        sizes.append(len(there))
        assert sizes[-2] < sizes[-1] <= sizes[-2] + limit
        assert counted(there) == counted(all_rows[: len(there)]), "rows of the first files, each once"
        assert counted(rows(meta, "counted")) == counted(list(Counter(row[2] for row in there).items()))
        if len(sizes) == 2:  # the portions stay those of one snapshot
            append(meta, msgspec.structs.replace(COPY, name="late"))
            table.append(rows_of(last))
    assert len(sizes) == epochs + 1
    assert counted(rows(meta, "copy")) == counted(rows(meta, "late")) == counted(all_rows)


def rows_in(file: Path) -> list[tuple[Any, ...]]:
    return list(zip(*(c.to_pylist() for c in pq.read_table(file).columns), strict=True))


def test_an_epoch_takes_as_many_snapshots_as_its_bytes_allow_and_at_least_one(lake: Path, meta: MetaStore) -> None:
    for n in range(3):
        catalog_in(lake).load_table(NAME).append(rows_of((10 + n, None, None)))
    counts = []
    for _ in range(3):
        barrier = inject_barrier(meta, settings=EpochSettings(max_bytes=1))
        assert barrier is not None
        run_epoch(LocalRunner(), meta, barrier)
        counts.append(len(rows(meta, "copy")))
    assert counts == [4, 5, 6]


def test_no_snapshot_can_be_skipped(lake: Path, meta: MetaStore) -> None:
    table = catalog_in(lake).load_table(NAME)
    taken = table.current_snapshot()
    assert taken is not None
    table.append(rows_of((3, 3.0, "c")))
    with pytest.raises(UnskippableItemError, match="later snapshots of the table change the rows of earlier ones"):
        abandon_barrier(meta, Detour(skip_files=(f"lake.{NAME} after snapshot {taken.snapshot_id}",)))
    advance(meta)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"key": "id, no"}, BadTableKeyError, "'no' is not a column of the source, which has id, v, p"),
        ({"key": "v"}, BadTableKeyError, "'v' has the type double"),
        ({"key": " "}, BadTableKeyError, "names no column"),
        ({"header": "true"}, BadOptionError, "an iceberg source has no such option; its options are catalog, table"),
        ({"table": "orders"}, BadOptionError, "expected the namespace and the name of a table"),
        ({"table": ""}, MissingOptionError, "lacks table"),
        ({"table": "db.none"}, MissingIcebergTableError, "has no table 'db.none'"),
        ({"table": "none.t"}, MissingIcebergTableError, "has no table 'none.t'"),
        ({"rollbacks": "maybe"}, BadOptionError, "expected 'hold'"),
        ({"folders": "x"}, BadOptionError, "expected the folders of other tables"),
        ({"catalog.uri": "sqlite:////none/x.db"}, NoCatalogError, "the file /none/x.db does not exist"),
        ({"catalog.type": "rest", "catalog.uri": "http://127.0.0.1:9/"}, CatalogAwayError, "does not answer"),
        ({"catalog.type": "none"}, NoCatalogError, "cannot be opened"),
        ({"catalog.token": "secret"}, CredentialInOptionError, "PYICEBERG_CATALOG__<NAME>__CREDENTIAL"),
    ],
)
def test_an_invalid_source_is_refused(lake: Path, options: dict[str, str], error: type[Exception], says: str) -> None:
    made = CreateSource("s", "iceberg", (), {**options_of(lake), **options})
    with pytest.raises(error, match=says):
        describe_source(made, lambda: pytest.fail("no Spark is needed"))


def test_the_columns_are_the_tables_own(lake: Path) -> None:
    assert IcebergTables().describe(source(lake, ()), lambda: pytest.fail("no Spark is needed")) == FIELDS
    with pytest.raises(TableColumnsChangedError, match="'x': found no such column"):
        IcebergTables().describe(source(lake, (Field("x", "int"),)), lambda: pytest.fail("no Spark is needed"))


def test_a_file_that_a_table_has_twice_has_its_rows_twice(tmp_path: Path) -> None:
    table = catalog_in(tmp_path / "lake").create_table(NAME, rows_of().schema)
    table.append(rows_of((1, 1.0, "a")))
    paths = [task.file.file_path for task in table.scan().plan_files()]
    meta = new_store(tmp_path / "store")
    append(meta, source(tmp_path / "lake"), COPY)
    advance(meta)
    table.add_files(paths, check_duplicate_files=False)
    other = new_store(tmp_path / "other")
    append(other, source(tmp_path / "lake"), COPY)
    for store in (meta, other):
        advance(store)
        assert rows(store, "copy") == [(1, 1.0, "a")] * table.scan().to_arrow().num_rows == [(1, 1.0, "a")] * 2
    table.delete("id = 1")
    for store in (meta, other):
        advance(store)
        assert rows(store, "copy") == []


def test_position_deletes_whose_last_file_is_unknown_may_name_any_file() -> None:
    """A writer that cuts bounds has none above a name that it cannot increase."""
    deletes = LakeFile("d.parquet", "PARQUET", 1, 1, 0, "", 1, low="b")
    assert deletes.may_contain("c")
    assert not msgspec.structs.replace(deletes, high="bb").may_contain("c")

"""A source that quarantines: unreadable records go to its table of rejects, and the rest of the file is taken. No
Spark.

The expected rows are computed from the values written into the files.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty_store import FaultyObjectStore, Killed
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.catalog.apply import RelationExistsError, RelationInUseError, apply_statement
from tussock.jobs.catalog.fed_tables import FedTableError
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.driver.summary import EpochSummary, show_summary
from tussock.jobs.logical.nodes import Call, Column, Field, Literal, Scan
from tussock.jobs.logical.statements import (
    AlterTable,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Drop,
    Insert,
    Show,
    Shown,
    Statement,
    Update,
)
from tussock.jobs.reading.rejected import count_rejects
from tussock.jobs.settings.tables import EpochSettings
from tussock.jobs.sources.base import Restated
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import FIELDS as REJECT_FIELDS
from tussock.jobs.statements.show import answer_show
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.errors import InputError, RetryableError
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (Field("id", "int"), Field("v", "smallint"), Field("s", "string"))
Record = tuple[int | None, int | None, bytes | None]
RECORDS: tuple[Record, ...] = (
    (1, 10, b"one"),
    (2, 40_000, b"too large for smallint"),
    (3, None, None),
    (4, -32_768, b"bad \xff\xfe text"),
    (2**31, 99_999, b"\xff"),
    (-(2**31), 32_767, "größer".encode()),
)


def source(path: object, **options: str) -> CreateSource:
    return CreateSource("events", "parquet", FIELDS, {"path": str(path), "on_error": "quarantine", **options})


def view(name: str, *columns: int) -> CreateView:
    return CreateView(name, "SELECT …", Scan("events", columns, tuple(FIELDS[c] for c in columns)))


def write(path: Path, records: Sequence[Record]) -> None:
    path.parent.mkdir(exist_ok=True)
    ids, values, texts = zip(*records, strict=True)
    text = pa.array(texts, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int32()), "s": text}), path)


def reason_of(record: Record) -> str | None:
    """The reason why a record cannot be read, from its values."""
    number, value, text = record
    if number is not None and not -(2**31) <= number < 2**31:
        return f"column 'id': {number} is no int (the file's type is bigint)"
    if value is not None and not -(2**15) <= value < 2**15:
        return f"column 'v': {value} is no smallint (the file's type is int)"
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return "column 's': its bytes are not UTF-8, and a string has to be"
    return None


def good(records: Sequence[Record]) -> list[tuple[object, ...]]:
    fine = [(i, v, None if s is None else s.decode()) for i, v, s in records if reason_of((i, v, s)) is None]
    return sorted(fine, key=repr)


def bad(path: Path, records: Sequence[Record]) -> list[tuple[object, ...]]:
    found = [(str(path), n, reason, None) for n, r in enumerate(records, 1) if (reason := reason_of(r)) is not None]
    return sorted(found, key=repr)


def rejects(meta: MetaStore) -> list[tuple[object, ...]]:
    """The table of rejects without the hidden columns, which test_hidden_columns.py checks."""
    return sorted((row[:4] for row in rows(meta, "events__rejects")), key=repr)


def run(meta: MetaStore) -> EpochSummary:
    return advance_store(LocalRunner(), meta)[-1]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path / "in" / "a.parquet", RECORDS)
    return tmp_path / "in"


@pytest.fixture
def meta(tmp_path: Path, files: Path) -> MetaStore:
    """A store of one epoch: the source, and a view over all its columns."""
    meta = new_store(tmp_path / "store")
    append(meta, source(files), view("everything", 0, 1, 2))
    run(meta)
    return meta


def test_records_that_cannot_be_read_go_to_the_rejects_and_the_rest_of_the_file_is_taken(
    meta: MetaStore, files: Path
) -> None:
    assert rows(meta, "everything") == good(RECORDS)
    assert rejects(meta) == bad(files / "a.parquet", RECORDS)
    assert held_sources(meta.read_latest().catalog) == {}


def test_the_summary_and_show_count_the_rejects(tmp_path: Path, files: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, source(files))
    (summary,) = advance_store(LocalRunner(), meta)
    assert summary.rejected == {"events": 3}
    assert "unreadable records of events: 3, stored in events__rejects" in show_summary(summary)
    shown = answer_show(
        meta.read_latest().catalog, Show(Shown.SOURCES), count_rejects(meta.objects, meta.read_latest())
    )
    assert list(shown["state"]) == ["rejects in events__rejects: 3"]


def test_a_view_made_later_sees_the_rows_of_the_others_and_nothing_is_rejected_again(
    meta: MetaStore, files: Path
) -> None:
    append(meta, Delete("events__rejects", None), view("later", 0, 1, 2), view("of_one_column", 0))
    run(meta)
    assert rows(meta, "later") == good(RECORDS)
    assert rows(meta, "of_one_column") == sorted(((i,) for i, _, _ in good(RECORDS)), key=repr), (
        "also in a view of one column"
    )
    assert rejects(meta) == []
    write(files / "b.parquet", RECORDS[:2])
    run(meta)
    assert rejects(meta) == bad(files / "b.parquet", RECORDS[:2])


def test_rejects_are_recorded_even_if_no_view_reads_the_source(tmp_path: Path, files: Path) -> None:
    meta = new_store(tmp_path / "store")
    append(meta, source(files))
    run(meta)
    assert rejects(meta) == bad(files / "a.parquet", RECORDS)


def test_a_view_over_the_rejects_is_maintained_and_an_emptied_table_keeps_new_rejects(
    meta: MetaStore, files: Path
) -> None:
    append(
        meta,
        CreateView("complaints", "SELECT …", Scan("events__rejects", (1, 2), (REJECT_FIELDS[1], REJECT_FIELDS[2]))),
    )
    run(meta)
    assert rows(meta, "complaints") == sorted(
        ((p, reason) for _, p, reason, _ in bad(files / "a.parquet", RECORDS)), key=repr
    )
    append(meta, Delete("events__rejects", None))
    write(files / "b.parquet", RECORDS[::-1])
    run(meta)
    assert rejects(meta) == bad(files / "b.parquet", RECORDS[::-1])
    assert rows(meta, "complaints") == sorted(
        ((p, reason) for _, p, reason, _ in bad(files / "b.parquet", RECORDS[::-1])), key=repr
    )


def test_some_rejects_can_be_deleted(meta: MetaStore, files: Path) -> None:
    where = Call("EqualTo", "boolean", (Column(1, "bigint"), Literal(2, "bigint")))
    append(meta, Delete("events__rejects", where))
    run(meta)
    assert rejects(meta) == [r for r in bad(files / "a.parquet", RECORDS) if r[1] != 2]


@pytest.mark.parametrize(
    "statement",
    [
        Insert("events__rejects", 1, "x"),
        Update("events__rejects", ((2, Literal("fine", "string")),), None),
        Drop(RelationKind.TABLE, "events__rejects"),
        Drop(RelationKind.TABLE, "events__rejects", cascade=True),
    ],
    ids=["insert", "update", "drop", "drop cascade"],
)
def test_nothing_but_the_source_writes_its_rejects_or_drops_them(meta: MetaStore, statement: Statement) -> None:
    with pytest.raises(FedTableError, match="TRUNCATE TABLE events__rejects empty it"):
        apply_statement(meta.read_latest().catalog, statement, meta.read_latest().epoch + 1)


def test_the_table_of_rejects_cannot_be_altered(meta: MetaStore) -> None:
    table = CreateTable(
        "events__rejects", REJECT_FIELDS, (0, 1), comment="records of source events that could not be read"
    )
    with pytest.raises(FedTableError):
        apply_statement(meta.read_latest().catalog, AlterTable(table, table), meta.read_latest().epoch + 1)


def test_the_rejects_are_dropped_with_their_source_and_only_their_readers_prevent_it(meta: MetaStore) -> None:
    catalog, epoch = meta.read_latest().catalog, meta.read_latest().epoch + 1
    with pytest.raises(RelationInUseError, match="everything") as refused:
        apply_statement(catalog, Drop(RelationKind.SOURCE, "events"), epoch)
    assert "rejects" not in str(refused.value)
    without = apply_statement(catalog, Drop(RelationKind.VIEW, "everything"), epoch)
    over = CreateView("complaints", "SELECT …", Scan("events__rejects", (1,), (REJECT_FIELDS[1],)))
    with pytest.raises(RelationInUseError, match="complaints"):
        apply_statement(apply_statement(without, over, epoch), Drop(RelationKind.SOURCE, "events"), epoch)
    gone = apply_statement(without, Drop(RelationKind.SOURCE, "events"), epoch)
    assert [r.name for r in gone.live_relations()] == []
    again = apply_statement(gone, source("/elsewhere"), epoch)
    assert [r.name for r in again.live_relations()] == ["events", "events__rejects"]


def test_a_name_that_is_taken_and_an_unknown_way_are_refused(meta: MetaStore, files: Path) -> None:
    taken = apply_statement(meta.read_latest().catalog, CreateTable("more__rejects", (Field("k", "int"),), (0,)), 1)
    more = CreateSource("more", "parquet", FIELDS, source(files).options)
    with pytest.raises(RelationExistsError, match="more__rejects"):
        apply_statement(taken, more, 1)
    wrong = source(files, on_error="ignore")
    with pytest.raises(BadOptionError, match="'quarantine'"):
        reader_of(wrong).check(wrong)


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda _: b"no parquet at all"], ids=["cut", "another format"]
)
def test_a_file_that_is_damaged_as_a_whole_holds_the_source(
    meta: MetaStore, files: Path, damage: Callable[[bytes], bytes]
) -> None:
    (files / "b.parquet").write_bytes(damage((files / "a.parquet").read_bytes()))
    run(meta)
    assert list(held_sources(meta.read_latest().catalog)) == ["events"]
    assert rejects(meta) == bad(files / "a.parquet", RECORDS)
    abandon_barrier(meta, Detour(skip_files=(str(files / "b.parquet"),)))
    run(meta)
    assert held_sources(meta.read_latest().catalog) == {}


def test_text_in_a_number_column_holds_the_source_instead_of_rejecting_records(meta: MetaStore, files: Path) -> None:
    pq.write_table(pa.table({"id": ["1"], "v": pa.array([1], pa.int16()), "s": ["x"]}), files / "b.parquet")
    run(meta)
    assert "found string, expected int" in held_sources(meta.read_latest().catalog)["events"]


def test_a_train_killed_at_any_object_creation_rejects_each_record_once(tmp_path: Path, files: Path) -> None:
    """Each epoch takes one file. Statements in between empty the table, and rejects feed a view."""
    template = tmp_path / "template"
    first = new_store(template)
    over = CreateView("complaints", "SELECT …", Scan("events__rejects", (1, 2), (REJECT_FIELDS[1], REJECT_FIELDS[2])))
    append(first, source(files), view("everything", 0, 1, 2), over)
    run(first)
    write(files / "b.parquet", RECORDS[::-1])
    write(files / "c.parquet", RECORDS * 2)
    append(
        first,
        Delete("events__rejects", Call("EqualTo", "boolean", (Column(1, "bigint"), Literal(2, "bigint")))),
        view("later", 0),
    )

    def ended(store: Path, objects: FaultyObjectStore | None = None, writer: str = "driver") -> dict[str, object]:
        meta = MetaStore(objects or open_object_store(str(store)), writer, lambda: 1_800_000_000_000)
        advance_store(LocalRunner(), meta, settings=EpochSettings(max_bytes=1))
        return {
            r.name: rows(meta, r.name)
            for r in meta.read_latest().catalog.live_relations()
            if r.kind is not RelationKind.SOURCE
        }

    watched = FaultyObjectStore(open_object_store(str(shutil.copytree(template, tmp_path / "whole"))))
    whole = ended(tmp_path / "whole", watched)
    here = [bad(files / f"{name}.parquet", r) for name, r in (("a", RECORDS), ("b", RECORDS[::-1]), ("c", RECORDS * 2))]
    kept = [r for r in here[0] if r[1] != 2]
    assert rejects(open_store(tmp_path / "whole")) == sorted([*kept, *here[1], *here[2]], key=repr)
    assert whole["everything"] == good([*RECORDS, *RECORDS[::-1], *RECORDS * 2])
    for number in [i for i, (operation, _) in enumerate(watched.calls) if operation == "put_if_absent"]:
        store = Path(shutil.copytree(template, tmp_path / str(number)))
        objects = FaultyObjectStore(open_object_store(str(store)))
        objects.kill(number)
        with suppress(Killed, RetryableError, InputError):
            ended(store, objects)
        assert ended(store, writer="another") == whole, watched.calls[number]
        shutil.rmtree(store)


@pytest.mark.parametrize("emptied", [False, True], ids=["kept", "emptied before"])
def test_a_restated_file_replaces_its_rejects(tmp_path: Path, files: Path, emptied: bool) -> None:
    meta, file = new_store(tmp_path / "store"), files / "a.parquet"
    append(meta, source(files, retain="files"), view("everything", 0, 1, 2))
    corrected: list[Record] = [*RECORDS[:3], (4, -32_768, b"good text"), (5, 70_000, b"another mistake")]
    write(files / "b.parquet", RECORDS)
    run(meta)
    if emptied:
        append(meta, Delete("events__rejects", None))
        run(meta)
    others = [] if emptied else bad(files / "b.parquet", RECORDS)
    write(file, corrected)
    steps: list[tuple[Restated, list[Record]]] = [
        (Restated(str(file)), corrected),
        (Restated(str(file), gone=True), []),
    ]
    there = 0 if emptied else len(bad(file, RECORDS))
    for restated, now in steps:
        assert Restating(meta, "events", restated).begin_restating() is not None
        summary, unreadable = run(meta), len(bad(file, now))
        assert (summary.rejected.get("events", 0), summary.withdrawn.get("events", 0)) == (unreadable, there)
        said = show_summary(summary)
        assert ("unreadable records of events:" in said) == (unreadable > 0)
        assert ("removed from events__rejects:" in said) == (there > 0)
        there = unreadable
        append(meta, view("late", 0, 1, 2))
        run(meta)
        assert rejects(meta) == sorted([*bad(file, now), *others], key=repr)
        assert rows(meta, "everything") == rows(meta, "late") == good([*now, *RECORDS])
        append(meta, Drop(RelationKind.VIEW, "late"))
        run(meta)


def test_a_store_without_the_option_has_no_table_of_rejects(tmp_path: Path, files: Path) -> None:
    meta = new_store(tmp_path / "store")
    write(files / "a.parquet", [(1, 1, b"x")])
    plain = CreateSource(
        "events", "parquet", (Field("id", "bigint"), Field("v", "int"), Field("s", "string")), {"path": str(files)}
    )
    append(meta, plain)
    run(meta)
    assert [r.name for r in open_store(tmp_path / "store").read_latest().catalog.live_relations()] == ["events"]

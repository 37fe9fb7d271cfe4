"""Sources with a key: random changes against a model in Python, at every epoch. No Spark.

The model keeps the records of every file, and computes the rows from all of them.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, new_store, open_store, restate, rows
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.barriers.undo import inject_undo
from tussock.jobs.catalog.alter_source import CannotAlterSourceError
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.driver.epoch import advance_store, run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.executors import input_parts, keyed_changes, keyed_deliveries
from tussock.jobs.executors.base import Positions
from tussock.jobs.executors.equal_rows import pair_equal_rows
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.nodes import AggCall, Aggregate, Call, Column, Field, Literal, Scan
from tussock.jobs.logical.statements import CreateSchema, CreateSource, CreateView, Drop, KeyedBy, SetSourceOptions
from tussock.jobs.reading.keyed_rows import keyed_changes_between
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError
from tussock.jobs.sources.registry import plan_of_source, reader_of
from tussock.jobs.sources.row_changes import row_changes
from tussock.jobs.sources.row_ids import pack_row_ids
from tussock.jobs.task import sealing, source_leaf, vnode_parts
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.manifest import RowCounts
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table.schema import FoundRows
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type

FIELDS = (Field("id", "bigint"), Field("n", "int"), Field("v", "int"), Field("s", "string"))
GONE = Call("EqualTo", "boolean", (Column(3, "string"), Literal("gone", "string")))
GROUPED = (Field("v", "int"), Field("rows", "bigint"), Field("highest", "int"))
EVERY_ROW = Scan("customers", (0, 1, 2, 3), FIELDS)


def group_by_value(relation: str) -> Aggregate:
    calls = (AggCall("Count", "bigint", (Literal(1, "int"),)), AggCall("Max", "int", (Column(1, "int"),)))
    return Aggregate(Scan(relation, (0, 1, 2, 3), FIELDS), (Column(2, "int"),), calls, GROUPED)


BY_VALUE = group_by_value("customers")
NOW_MS, DAY_MS = 1_800_000_000_000, 86_400_000
Record = tuple[int, int, int | None, str]


def customers(folder: Path, **options: str) -> CreateSource:
    keyed = KeyedBy((0,), GONE)
    given = {"path": str(folder), "retain": "files", "changes": "upsert", "delete_when": "s = 'gone'"} | options
    return CreateSource("customers", "parquet", FIELDS, given, keyed=keyed)


def write(path: Path, records: Sequence[Record]) -> None:
    path.parent.mkdir(exist_ok=True)
    columns = list(zip(*records, strict=True)) or [(), (), (), ()]
    kinds = (pa.int64(), pa.int32(), pa.int32(), pa.string())
    arrays = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
    pq.write_table(pa.table(arrays, names=[f.name for f in FIELDS]), path)


@dataclass
class Model:
    """The records of every file; the greatest (n, number in the name, place) of a key decides its row.

    A truncation is the newest change of all keys that are not newer.
    """

    by_sequence: bool
    files: dict[str, list[Record]] = field(default_factory=dict)

    def rows(self) -> list[tuple[object, ...]]:
        latest: dict[int, tuple[tuple[int, int, int], Record]] = {}
        truncated = (-1, -1, 0)
        for name, records in self.files.items():
            for place, record in enumerate(records):
                position = (record[1] if self.by_sequence else 0, int(name[1:].partition(".")[0]), place)
                if record[3] == "T":
                    truncated = max(truncated, position)
                elif record[0] not in latest or latest[record[0]][0] < position:
                    latest[record[0]] = (position, record)
        there = (r for position, r in latest.values() if position > truncated)
        return sorted((r for r in there if r[3] not in ("gone", "D")), key=repr)

    def by_value(self) -> list[tuple[object, ...]]:
        groups: dict[object, list[int]] = {}
        for _, n, v, _ in self.rows():
            groups.setdefault(v, []).append(n)  # type: ignore[arg-type]
        return sorted(((v, len(ns), max(ns)) for v, ns in groups.items()), key=repr)


def require_equal(meta: MetaStore, model: Model, schema: str = "") -> None:
    """`schema`: of the source and its view, with a dot after it."""
    assert rows(meta, f"{schema}customers") == model.rows()
    assert rows(meta, f"{schema}by_value") == model.by_value()


def some_records(chance: random.Random, epoch: int, texts: Sequence[str]) -> list[Record]:
    """Changes of few keys, whose sequences are late, equal, repeated and out of order."""
    return [
        (
            chance.randrange(12),
            max(0, epoch + chance.randrange(-4, 3)),
            chance.choice([None, 1, 2, 3]),
            "T" if "U" in texts and chance.random() < 0.02 else chance.choice(texts),
        )
        for _ in range(chance.randrange(1, 15))
    ]


def divide_input(chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> LocalRunner:
    """Send, apply and seal few rows at once, as an epoch does with many, or all rows together."""
    if chance.random() < 0.3:
        return LocalRunner()
    monkeypatch.setattr(source_leaf, "_CHANGED_AT_ONCE", chance.choice([3, 100]))
    monkeypatch.setattr(vnode_parts, "DIVIDED_ROWS", chance.choice([1, 3, 100]))
    monkeypatch.setattr(vnode_parts, "ENCODED_BYTES", chance.choice([0, 1 << 20]))
    monkeypatch.setattr(vnode_parts, "KEPT_BYTES", chance.choice([0, 1 << 20]))
    monkeypatch.setattr(keyed_changes, "_PART_ROWS", chance.choice([3, 100]))
    monkeypatch.setattr(sealing, "SEALED_ROWS", chance.choice([3, 100]))
    little = FlushPolicy().little_rows * chance.randrange(2)
    return LocalRunner(FlushPolicy(chance.choice([1, 500]), little_rows=little, little_file_bytes=little * 40))


class _Feed:
    """Files of random changes, and the source, the view and the model of their rows."""

    def __init__(self, chance: random.Random, folder: Path, changes: str, by_sequence: bool, schema: str) -> None:
        self.chance, self.folder, self.schema, self.model = chance, folder, schema, Model(by_sequence)
        self.texts = ["I", "U", "u", "D"] if changes == "operations" else ["a", "b", "gone"]
        options = {"sequence_by": "n"} if by_sequence else {}
        if changes == "operations":
            options |= {"changes": changes, "op_column": "s"}
        self.source = msgspec.structs.replace(customers(folder, **options), name=f"{schema}customers")
        self._write("f50.parquet", some_records(chance, 0, self.texts))

    def view(self, name: str) -> CreateView:
        return CreateView(f"{self.schema}{name}", "SELECT …", group_by_value(self.source.name))

    def change(self, meta: MetaStore, epoch: int, what: str) -> None:
        chance, files = self.chance, self.model.files
        match what:
            case "corrected" if files:
                name = chance.choice(sorted(files))
                left = [r for r in files[name] if chance.random() < 0.7]
                self._write(name, [*left, *some_records(chance, epoch, self.texts)])
                restate(meta, self.source.name, self.folder / name)
            case "withdrawn" if files:
                name = chance.choice(sorted(files))
                del files[name]
                restate(meta, self.source.name, self.folder / name, gone=True)
                (self.folder / name).unlink()
            case _:
                again = chance.choice([*files.values()]) if files and chance.random() < 0.1 else []
                name = f"f{chance.randrange(100):02}{epoch:02}.parquet"
                self._write(name, [*again, *some_records(chance, epoch, self.texts)])

    def _write(self, name: str, records: list[Record]) -> None:
        self.model.files[name] = records
        write(self.folder / name, records)


@pytest.mark.parametrize("changes", ["upsert", "operations"])
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.deep) for n in range(2, 100))])
def test_random_changes_corrections_and_restarts_give_the_rows_of_the_model(
    tmp_path: Path, seed: int, changes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd seeds have another schema with a source and a view of the same names."""
    chance, by_sequence = random.Random(seed), seed % 2 == 0
    runner = divide_input(chance, monkeypatch)
    meta = new_store(tmp_path / "store", units=chance.choice([1, 2, 4]))
    feeds = [_Feed(chance, tmp_path / "in", changes, by_sequence, "")]
    if seed % 2:
        append(meta, CreateSchema("twin"))
        feeds.append(_Feed(chance, tmp_path / "twin", changes, seed % 4 == 1, "twin."))
    append(meta, *(feed.source for feed in feeds), *(feed.view("by_value") for feed in feeds))
    for epoch in range(31):
        if epoch:
            feed = chance.choice(feeds)
            match what := chance.choice(["new"] * 5 + ["corrected", "withdrawn", "restarted", "late view"]):
                case "restarted":
                    meta = open_store(tmp_path / "store", f"run {epoch}")
                case "late view":
                    append(meta, feed.view("late"))
                    advance_store(runner, meta)
                    assert rows(meta, f"{feed.schema}late") == feed.model.by_value()
                    append(meta, Drop(RelationKind.VIEW, f"{feed.schema}late"))
                case _:
                    feed.change(meta, epoch, what)
        advance_store(runner, meta)
        for feed in feeds:
            require_equal(meta, feed.model, feed.schema)


@pytest.mark.parametrize("changes", ["upsert", "operations", "snapshot"])
def test_a_large_first_load_holds_few_rows_at_once(
    tmp_path: Path, changes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the reader to the SSTs: the rows that wait at the sender, those that are applied together, and MemTables."""
    monkeypatch.setattr(source_leaf, "_CHANGED_AT_ONCE", 100)
    monkeypatch.setattr(vnode_parts, "DIVIDED_ROWS", 200)
    monkeypatch.setattr(vnode_parts, "ENCODED_BYTES", 10_000)
    monkeypatch.setattr(keyed_changes, "_PART_ROWS", 300)
    monkeypatch.setattr(keyed_deliveries, "_PART_ROWS", 300)
    monkeypatch.setattr(sealing, "SEALED_ROWS", 300)
    held: dict[str, int] = {"sent": 0, "applied": 0, "read": 0, "written": 0, "sealed": 0}

    def note(what: str, rows: int) -> None:
        held[what] = max(held[what], rows)

    add_rows, take, seal = vnode_parts.VnodeParts.add_rows, input_parts.input_parts, sealing.SealedParts.seal_tables

    def add_counted(self: vnode_parts.VnodeParts, chunk: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from add_rows(self, chunk)
        divided = sum(some.num_rows for parts in self._divided.values() for some in parts)
        note("sent", divided + sum(some.num_rows for some in self.rest))

    def take_counted(*given: Any) -> Iterator[input_parts.InputPart]:
        for part in take(*given):
            note("applied", part.rows.num_rows)
            yield part

    def seal_counted(self: sealing.SealedParts, tables: Sequence[StateTable]) -> None:
        for table in tables:
            note("written", table.written_rows)
        seal(self, tables)
        note("read", sum(len(run.keys) for t in tables if t._remembered is not None for run in t._remembered._loaded))
        note("sealed", sum(part.rows.num_rows for parts in self._waiting.values() for part in parts))

    monkeypatch.setattr(vnode_parts.VnodeParts, "add_rows", add_counted)
    monkeypatch.setattr(sealing.SealedParts, "seal_tables", seal_counted)
    for module in (keyed_changes, keyed_deliveries):
        monkeypatch.setattr(module, "input_parts", take_counted)
    records = [(k, 1, k % 7, "I") for k in range(8_000)]
    if changes != "snapshot":
        records += [(k, 2, 9, "U" if changes == "operations" else "b") for k in range(0, 8_000, 4)]
    write(tmp_path / "in/f1.parquet", records)
    source_of = {"upsert": customers, "operations": operations_of, "snapshot": dumps}[changes]
    meta = new_store(tmp_path / "store", units=2)
    append(meta, source_of(tmp_path / "in"), CreateView("by_value", "SELECT …", BY_VALUE))
    advance_store(LocalRunner(FlushPolicy(target_bytes=40_000)), meta)
    require_equal(meta, Model(by_sequence=False, files={"f1.parquet": records}))
    assert all(rows < 1_200 and (rows or what == "read") for what, rows in held.items()), held


def test_a_truncation_reads_few_of_its_keys_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_changes, "_PART_ROWS", 300)
    read, read_at_once = keyed_changes.KeyedChangesExecutor._latest_before, list[int]()

    def read_counted(self: keyed_changes.KeyedChangesExecutor, keys: pa.Table) -> keyed_changes._Latest:
        read_at_once.append(keys.num_rows)
        return read(self, keys)

    records: list[Record] = [(k, 1, k % 7, "I") for k in range(8_000)]
    after: list[Record] = [(0, 2, None, "T"), *((k, 3, 9, "I") for k in range(0, 8_000, 800))]
    meta = new_store(tmp_path / "store", units=2)
    append(meta, operations_of(tmp_path / "in"), CreateView("by_value", "SELECT …", BY_VALUE))
    write(tmp_path / "in/f1.parquet", records)
    advance_store(LocalRunner(), meta)
    monkeypatch.setattr(keyed_changes.KeyedChangesExecutor, "_latest_before", read_counted)
    write(tmp_path / "in/f2.parquet", after)
    advance_store(LocalRunner(), meta)
    require_equal(meta, Model(by_sequence=True, files={"f1.parquet": records, "f2.parquet": after}))
    (tmp_path / "in/f2.parquet").unlink()
    restate(meta, "customers", tmp_path / "in/f2.parquet", gone=True)
    advance_store(LocalRunner(), meta)
    require_equal(meta, Model(by_sequence=True, files={"f1.parquet": records}))
    assert sum(read_at_once) > 15_000
    assert max(read_at_once) < 600


def store_at(folder: Path, now_ms: int) -> MetaStore:
    """The store at a moment of the clock."""
    return MetaStore(open_object_store(str(folder)), f"at {now_ms}", lambda: now_ms)


def late_changes(meta: MetaStore) -> int | None:
    (source,) = list_sources(meta)
    return source.late_changes


@pytest.mark.parametrize(("after_ms", "remembered"), [(7 * DAY_MS, True), (7 * DAY_MS + 1, False)])
def test_a_deleted_key_remembers_its_sequence_for_the_period_of_tombstones(
    tmp_path: Path, after_ms: int, remembered: bool
) -> None:
    folder = tmp_path / "in"
    write(folder / "a.parquet", [(1, 5, 1, "old"), (2, 5, 2, "other")])
    append(new_store(tmp_path / "store"), customers(folder, sequence_by="n", retain="none"))
    advance_store(LocalRunner(), store_at(tmp_path / "store", NOW_MS - 1))
    write(folder / "b.parquet", [(1, 9, None, "gone")])
    advance_store(LocalRunner(), store_at(tmp_path / "store", NOW_MS))
    write(folder / "c.parquet", [(1, 8, 8, "late")])
    meta = store_at(tmp_path / "store", NOW_MS + after_ms)
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [*([] if remembered else [(1, 8, 8, "late")]), (2, 5, 2, "other")]
    assert late_changes(meta) == int(remembered)


def test_a_correction_brings_a_row_back_whose_deletion_is_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.parquet", [(1, 5, 1, "old"), (2, 5, 2, "other")])
    append(new_store(tmp_path / "store"), customers(folder, sequence_by="n"))
    advance_store(LocalRunner(), store_at(tmp_path / "store", NOW_MS - 1))
    write(folder / "b.parquet", [(1, 9, None, "gone"), (2, 9, None, "gone"), (3, 1, 1, "x")])  # type: ignore[list-item]
    advance_store(LocalRunner(), store_at(tmp_path / "store", NOW_MS))
    write(folder / "c.parquet", [(2, 10, None, "gone")])  # type: ignore[list-item]
    advance_store(LocalRunner(), store_at(tmp_path / "store", NOW_MS + 1))
    meta = store_at(tmp_path / "store", NOW_MS + 8 * DAY_MS)
    write(folder / "b.parquet", [(3, 1, 1, "x")])
    restate(meta, "customers", folder / "b.parquet")
    assert rows(meta, "customers") == [(1, 5, 1, "old"), (3, 1, 1, "x")]


@pytest.mark.parametrize("changes", ["upsert", "snapshot"])
def test_a_path_keeps_the_folder_whose_names_order_the_changes(tmp_path: Path, changes: str) -> None:
    folder, meta = tmp_path / "in/2025", new_store(tmp_path / "store")
    folder.parent.mkdir()
    write(folder / "1.parquet", [(1, 1, 1, "a")])
    source = customers(folder) if changes == "upsert" else dumps(folder)
    append(meta, source)
    advance_store(LocalRunner(), meta)
    catalog = meta.read_latest().catalog
    allowed = source.options | {"path": f"{folder}/*.parquet"}
    apply_statement(catalog, SetSourceOptions("customers", source.options, allowed), 2)
    for path in (f"{tmp_path}/in/*/*.parquet", f"{tmp_path}/in/2026"):
        other = SetSourceOptions("customers", source.options, source.options | {"path": path})
        with pytest.raises(
            CannotAlterSourceError, match=f"as far as its first wildcard \\({re.escape(str(folder))}\\)"
        ):
            apply_statement(catalog, other, 2)


def test_late_changes_are_dropped_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.parquet", [(1, 5, 1, "a"), (1, 4, 1, "b"), (2, 5, 2, "c")])
    meta = new_store(tmp_path / "store")
    append(meta, customers(folder, sequence_by="n"))
    advance_store(LocalRunner(), meta)
    assert (rows(meta, "customers"), late_changes(meta)) == ([(1, 5, 1, "a"), (2, 5, 2, "c")], 0)
    write(folder / "b.parquet", [(1, 4, 7, "x"), (1, 3, 7, "y"), (2, 6, 7, "z"), (3, 1, 7, "new")])
    advance_store(LocalRunner(), meta)
    assert (rows(meta, "customers"), late_changes(meta)) == ([(1, 5, 1, "a"), (2, 6, 7, "z"), (3, 1, 7, "new")], 2)


def test_repeated_changes_send_no_rows_to_views(tmp_path: Path) -> None:
    folder, records = tmp_path / "in", [(k, 5, k, "a") for k in range(20)]
    write(folder / "a.parquet", records)
    meta = new_store(tmp_path / "store")
    append(meta, customers(folder, sequence_by="n"), CreateView("by_value", "SELECT …", BY_VALUE))
    advance_store(LocalRunner(), meta)
    for name in ("b", "c"):
        write(folder / f"{name}.parquet", [*records, (30, 1, 1, "new")])
        (summary,) = advance_store(LocalRunner(), meta)
        sent = {name: counts.rows_out for name, counts in summary.rows.items()}
        assert sent["customers"] == (1 if name == "b" else 0)


def test_a_changed_key_with_a_row_needs_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, get_rows = Counter[str](), StateTable.get_rows

    def get_counted(self: StateTable, keys: pa.Table) -> FoundRows:
        read[self.name] += keys.num_rows
        return get_rows(self, keys)

    meta = new_store(tmp_path / "store")
    append(meta, customers(tmp_path / "in"))
    write(tmp_path / "in/a.parquet", [(k, 1, k, "a") for k in range(50)])
    advance_store(LocalRunner(), meta)
    monkeypatch.setattr(StateTable, "get_rows", get_counted)
    write(tmp_path / "in/b.parquet", [(k, 1, k + k % 2, "a") for k in range(40, 55)])
    advance_store(LocalRunner(), meta)
    assert read == {"rows": 15, "deleted": 5}


def test_readers_of_changes_get_no_row_whose_position_alone_changed(tmp_path: Path) -> None:
    meta, records = new_store(tmp_path / "store"), [(k, 1, k, "a") for k in range(9)]
    append(meta, customers(tmp_path / "in"))
    write(tmp_path / "in/a.parquet", records)
    advance_store(LocalRunner(), meta)
    before = meta.read_latest()
    write(tmp_path / "in/b.parquet", [*records[:5], (5, 1, 0, "b")])
    advance_store(LocalRunner(), meta)
    after = meta.read_latest()
    (source,) = after.catalog.live_relations()
    changes = keyed_changes_between(meta.objects, after, source, before.epoch, after.epoch)
    assert changes.written.keys.to_pylist() == [{"k0": 5}] == changes.removed.to_pylist()
    assert changes.written.rows.column_names == [column.name for column in source.columns]


def test_an_undo_counts_the_rows_that_readers_see_changed(tmp_path: Path) -> None:
    meta, records = new_store(tmp_path / "store"), [(k, 1, k, "a") for k in range(9)]
    append(meta, customers(tmp_path / "in"))
    write(tmp_path / "in/a.parquet", records)
    advance_store(LocalRunner(), meta)
    before = meta.read_latest().epoch
    write(tmp_path / "in/b.parquet", [*records[:5], (5, 1, 0, "b"), (9, 1, 0, "b")])
    advance_store(LocalRunner(), meta)
    summary = run_epoch(LocalRunner(), meta, inject_undo(meta, before, keeps_input=False, run={}))
    assert summary.rows["customers"] == RowCounts(0, 3, -1)  # the old and the new row of key 5, and key 9
    assert rows(meta, "customers") == records


def test_a_key_that_was_not_deleted_costs_no_entry_of_deleted_keys(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    meta = new_store(tmp_path / "store")
    append(meta, operations_of(folder))
    stored = []
    for name, operation in (("a", "I"), ("b", "D"), ("c", "I")):
        write(folder / f"{name}.parquet", [(k, 1, k, operation) for k in range(9)])
        advance_store(LocalRunner(), meta)
        version = meta.read_latest()
        tables = [table for relation in version.catalog.relations for table in relation.state_tables]
        (deleted,) = [table.table_id for table in tables if table.name == "deleted"]
        sections = [section for sst in version.levels[0] for section in sst.sections]
        stored.append(sum(section.rows for section in sections if section.table_id == deleted))
    assert stored == [0, 9, 18]


NULL_KEY = [(1, 1, 1, "a"), (None, 1, 2, "b"), (3, None, 3, "c"), (4, 1, 4, "d")]


def test_a_record_with_null_in_its_key_or_sequence_holds_the_source(tmp_path: Path) -> None:
    write(tmp_path / "in/a.parquet", NULL_KEY)  # type: ignore[arg-type]
    meta = new_store(tmp_path / "store")
    append(meta, customers(tmp_path / "in", sequence_by="n"))
    advance_store(LocalRunner(), meta)
    reason = held_sources(meta.read_latest().catalog)["customers"]
    assert f"file {tmp_path}/in/a.parquet, record 2: column 'id' of the key is NULL" in reason
    assert f"--skip-file {tmp_path}/in/a.parquet" in reason
    write(tmp_path / "in/a.parquet", [NULL_KEY[0]])  # type: ignore[list-item]
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, 1, 1, "a")]


def test_a_source_that_quarantines_rejects_such_records_and_takes_them_back_with_their_file(tmp_path: Path) -> None:
    path = tmp_path / "in/a b.parquet"
    write(path, NULL_KEY)  # type: ignore[arg-type]
    meta = new_store(tmp_path / "store")
    append(meta, customers(tmp_path / "in", sequence_by="n", on_error="quarantine"))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, 1, 1, "a"), (4, 1, 4, "d")]
    found = [(row[:3], row[4]["file_name"]) for row in rows(meta, "customers__rejects")]  # type: ignore[index]
    reasons = ("column 'id' of the key is NULL", "column 'n' of the sequence is NULL")
    assert found == [((str(path), n, reason), "a%20b.parquet") for n, reason in zip((2, 3), reasons, strict=True)]
    write(path, [*NULL_KEY[2:], (9, 9, 9, "new")])  # type: ignore[list-item]
    restate(meta, "customers", path)
    assert rows(meta, "customers") == [(4, 1, 4, "d"), (9, 9, 9, "new")]
    assert [row[1] for row in rows(meta, "customers__rejects")] == [1]


def operations_of(folder: Path, **options: str) -> CreateSource:
    return customers(folder, **{"changes": "operations", "op_column": "s", "sequence_by": "n"} | options)


def test_operations_insert_update_delete_and_truncate(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    write(folder / "a.parquet", [(1, 1, 1, "I"), (2, 1, 2, "I"), (3, 1, 3, "I")])
    append(meta, operations_of(folder))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, 1, 1, "I"), (2, 1, 2, "I"), (3, 1, 3, "I")]
    write(folder / "b.parquet", [(1, 2, 7, "update"), (2, 2, None, "DELETE")])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, 2, 7, "update"), (3, 1, 3, "I")]
    write(folder / "c.parquet", [(None, 3, None, "T"), (4, 4, 4, "I"), (5, 2, 5, "I")])  # type: ignore[list-item]
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(4, 4, 4, "I")]
    write(folder / "d.parquet", [(6, 2, 6, "I"), (3, 3, 3, "u"), (7, 4, 7, "u")])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(3, 3, 3, "u"), (4, 4, 4, "I"), (7, 4, 7, "u")]  # d.parquet follows c.parquet
    restate(meta, "customers", folder / "c.parquet", gone=True)
    (folder / "c.parquet").unlink()
    assert rows(meta, "customers") == [(1, 2, 7, "update"), (3, 3, 3, "u"), (6, 2, 6, "I"), (7, 4, 7, "u")]


def test_a_changed_key_is_a_delete_of_the_old_and_an_insert_of_the_new_one(tmp_path: Path) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    write(folder / "a.parquet", [(1, 1, 1, "INSERT")])
    append(meta, operations_of(folder))
    advance_store(LocalRunner(), meta)
    write(folder / "b.parquet", [(1, 2, 1, "UPDATE-DELETE"), (9, 2, 1, "UPDATE-INSERT")])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(9, 2, 1, "UPDATE-INSERT")]


def test_an_unknown_operation_is_no_change(tmp_path: Path) -> None:
    records = [(1, 1, 1, "I"), (2, 1, 2, "X"), (3, 1, 3, None)]
    write(tmp_path / "in/a.parquet", records)  # type: ignore[arg-type]
    meta = new_store(tmp_path / "store")
    append(meta, operations_of(tmp_path / "in"))
    advance_store(LocalRunner(), meta)
    reason = held_sources(meta.read_latest().catalog)["customers"]
    assert "record 2: column 's' contains the unknown operation x" in reason
    aside = new_store(tmp_path / "aside")
    append(aside, operations_of(tmp_path / "in", on_error="quarantine"))
    advance_store(LocalRunner(), aside)
    assert rows(aside, "customers") == [(1, 1, 1, "I")]
    assert [row[1:3] for row in rows(aside, "customers__rejects")] == [
        (2, "column 's' contains the unknown operation x"),
        (3, "column 's' contains the unknown operation NULL"),
    ]


def test_the_values_of_operations_can_be_named(tmp_path: Path) -> None:
    write(tmp_path / "in/a.parquet", [(1, 1, 1, "new"), (2, 1, 2, "new"), (2, 2, 2, "D"), (1, 2, 3, "i")])
    meta = new_store(tmp_path / "store")
    append(meta, operations_of(tmp_path / "in", op_insert="new, D", op_delete="i"))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(2, 2, 2, "D")]


KEYS: dict[str, list[object]] = {
    "tinyint": [-1, 0, 1],
    "decimal(20,3)": [Decimal("-1.5"), Decimal("0.001"), Decimal("12345678901234567.125")],
    "double": [-1.5, 0.0, float("inf")],
    "string": ["", "a", "ä\0b"],
    "binary": [b"", b"\x00", b"\xff"],
    "boolean": [False, True],
    "date": [date(1, 1, 1), date(2026, 1, 1)],
    "timestamp": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, UTC)],
    "timestamp_ntz": [datetime(1970, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)],
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_last_row_of_a_key_counts_for_keys_of_every_type(tmp_path: Path, kind: str) -> None:
    values, folder = KEYS[kind], tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        column = pa.array([*values, values[0]], arrow_type(kind))
        numbers = pa.array(range(len(column)), pa.int32())
        pq.write_table(pa.table({"k": column, "v": numbers}), folder / f"{name}.parquet")
    options = {"path": str(folder), "retain": "files", "changes": "upsert"}
    fields = (Field("k", kind), Field("v", "int"))
    meta = new_store(tmp_path / "store")
    append(meta, CreateSource("t", "parquet", fields, options, keyed=KeyedBy((0,))))
    advance_store(LocalRunner(), meta)
    expected = [(values[0], len(values)), *((v, n) for n, v in enumerate(values[1:], 1))]
    assert rows(meta, "t") == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"changes": "all"}, "expected 'upsert'"),
        ({"sequence_by": "m"}, "'m' is no column of it; its columns: id, n, v, s, _metadata.file_path"),
        ({"changes": "operations", "op_column": "o"}, "it is no column of the source; its columns: id, n, v, s"),
        ({"changes": "operations", "op_column": "n"}, "an operation is a string or a boolean"),
        (
            {"changes": "operations", "op_column": "s", "op_delete": "x", "op_insert": "X"},
            "'x' is another operation too",
        ),
        ({"tombstones": "7"}, "expected a period such as '12h' or '7d'"),
    ],
)
def test_an_option_without_meaning_is_refused(options: dict[str, str], reason: str) -> None:
    source = customers(Path("/data"), **options)
    with pytest.raises(BadOptionError, match=re.escape(reason)):
        reader_of(source).check(source)


def test_a_key_and_its_options_need_each_other() -> None:
    keyed = customers(Path("/data"))
    bare = msgspec.structs.replace(keyed, keyed=None)
    with pytest.raises(BadOptionError, match="PRIMARY KEY"):
        reader_of(bare).check(bare)
    without = msgspec.structs.replace(keyed, options={"path": "/data"})
    with pytest.raises(MissingOptionError, match="changes"):
        reader_of(without).check(without)


def test_a_null_value_of_a_topic_deletes_its_key() -> None:
    fields = (Field("key", "binary"), Field("value", "binary"))
    topic = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t", "changes": "upsert"}
    source = CreateSource("t", "kafka", fields, topic, keyed=KeyedBy((0,)))
    reader_of(source).check(source)
    plan = plan_of_source(source)
    assert plan.delete_when == Call("IsNull", "boolean", (Column(1, "binary"),))
    assert (plan.hidden, plan.keeps_history) == ((), False)
    values = pa.array([b"1", None, b"3"], pa.binary())
    places = pa.array(["t"] * 3), pa.array([0] * 3, pa.int32())
    columns = [pa.array([b"a", b"b", b"c"]), values, *places, pack_row_ids(0, np.arange(3))]
    records = make_chunk(columns, pa.array([1, 1, 1]))
    found = row_changes(plan, fields, records, thread_kernel(), quarantine=False)
    assert found.changes.column(2).to_pylist() == [False, True, False]
    assert found.changes.column(3).to_pylist() == sorted(found.changes.column(3).to_pylist())


def test_files_count_in_the_order_of_their_names_below_the_source(tmp_path: Path) -> None:
    """A store that reads the files one by one, in any order, has the rows of one that reads them at once."""
    found = []
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        base = tmp_path / "".join(map(str, order))
        meta = new_store(base / "store")
        append(meta, customers(base / "in", may_be_missing="true"))
        for n in order:
            write(base / f"in/{n}.parquet", [(1, n, n, "a"), (2, n, n, "gone" if n == 1 else "b"), (n + 5, 0, 0, "c")])
            advance_store(LocalRunner(), meta)
        found.append(rows(meta, "customers"))
    assert found[0] == found[1] == found[2]
    assert found[0][0] == (1, 2, 2, "a")


def dumps(folder: Path, **options: str) -> CreateSource:
    options = {"path": str(folder), "retain": "files", "changes": "snapshot"} | options
    return CreateSource("customers", "parquet", FIELDS, options, keyed=KeyedBy((0,)))


def a_dump(chance: random.Random, keys: int = 14) -> list[Record]:
    """Rows of distinct keys, in any order. Most of them equal the rows of other dumps."""
    chosen = chance.sample(range(keys), chance.randrange(1, keys))
    return [(k, 0, chance.choice([1, 1, 1, 2]), "a") for k in chosen]


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.deep) for n in range(2, 100))])
def test_the_newest_of_random_dumps_gives_the_rows(tmp_path: Path, seed: int) -> None:
    """Dumps arrive in any order, and the newest one is corrected at times. An epoch takes one of them."""
    chance, folder = random.Random(seed), tmp_path / "in"
    meta = new_store(tmp_path / "store", units=chance.choice([1, 2, 4]))
    files = {"f50": a_dump(chance)}
    write(folder / "f50.parquet", files["f50"])
    append(meta, dumps(folder), CreateView("by_value", "SELECT …", BY_VALUE))
    for epoch in range(1, 31):
        advance_store(LocalRunner(), meta)
        model = Model(False, {"f0": files[max(files)]})
        require_equal(meta, model)
        match chance.choice(["new", "new", "two", "corrected", "restarted"]):
            case "corrected":
                name = chance.choice(sorted(files))
                files[name] = a_dump(chance)
                write(folder / f"{name}.parquet", files[name])
                restate(meta, "customers", folder / f"{name}.parquet")
            case "restarted":
                meta = open_store(tmp_path / "store", f"run {epoch}")
            case some:
                for _ in range(2 if some == "two" else 1):
                    name = f"f{chance.randrange(48 + epoch, 60 + epoch):02}"
                    if name not in files:
                        files[name] = a_dump(chance)
                        write(folder / f"{name}.parquet", files[name])


def test_a_dump_sends_the_difference_by_key_to_views(tmp_path: Path) -> None:
    records = [(k, 0, k % 3, "a") for k in range(1_000)]
    write(tmp_path / "in/a.parquet", records)
    meta = new_store(tmp_path / "store")
    append(meta, dumps(tmp_path / "in"), CreateView("by_value", "SELECT …", BY_VALUE))
    advance_store(LocalRunner(), meta)
    write(tmp_path / "in/b.parquet", [*records[10:], (5_000, 0, 1, "new"), (5_001, 0, 1, "new")][::-1])
    (summary,) = advance_store(LocalRunner(), meta)
    assert summary.rows["customers"].rows_out == 12
    assert len(rows(meta, "customers")) == 992


def test_a_dump_is_compared_with_the_stored_rows_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[int]()

    def count_rows(one: pa.Table, other: pa.Table, key: Sequence[int]) -> tuple[Positions, Positions]:
        compared.append(one.num_rows)
        return pair_equal_rows(one, other, key)

    monkeypatch.setattr(keyed_deliveries, "_PART_ROWS", 200)
    monkeypatch.setattr(keyed_deliveries, "pair_equal_rows", count_rows)
    meta = new_store(tmp_path / "store")
    append(meta, dumps(tmp_path / "in"), CreateView("by_value", "SELECT …", BY_VALUE))
    for n in range(2):
        write(tmp_path / f"in/{n}.parquet", [(k, 0, n if k == 7 else 0, "a") for k in range(4_000)])
        (summary,) = advance_store(LocalRunner(), meta)
    assert summary.rows["customers"].rows_out == 2
    assert sum(compared) == 4_000
    assert max(compared) <= 400


def test_a_key_that_a_dump_contains_twice_holds_the_source(tmp_path: Path) -> None:
    write(tmp_path / "in/a.parquet", [(1, 0, 1, "a"), (2, 0, 2, "b")])
    meta = new_store(tmp_path / "store")
    append(meta, dumps(tmp_path / "in"))
    advance_store(LocalRunner(), meta)
    write(tmp_path / "in/b.parquet", [(1, 0, 1, "a"), (3, 0, 2, "b"), (3, 0, 2, "b")])
    advance_store(LocalRunner(), meta)
    reason = held_sources(meta.read_latest().catalog)["customers"]
    assert "delivery b.parquet of source 'customers' contains more than one row with the key (3)" in reason
    assert rows(meta, "customers") == [(1, 0, 1, "a"), (2, 0, 2, "b")]
    write(tmp_path / "in/b.parquet", [(3, 0, 2, "b")])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(3, 0, 2, "b")]


@pytest.mark.parametrize(("limit", "holds"), [("20%", True), ("25%", False)])
def test_a_dump_that_lacks_more_keys_than_delete_limit_holds_the_source(
    tmp_path: Path, limit: str, holds: bool
) -> None:
    write(tmp_path / "in/a.parquet", records := [(k, 0, 1, "a") for k in range(100)])
    meta = new_store(tmp_path / "store")
    append(meta, dumps(tmp_path / "in", delete_limit=limit), CreateView("by_value", "SELECT …", BY_VALUE))
    advance_store(LocalRunner(), meta)
    write(tmp_path / "in/b.parquet", records[25:])
    advance_store(LocalRunner(), meta)
    assert len(rows(meta, "customers")) == (100 if holds else 75)
    if not holds:
        return
    reason = held_sources(meta.read_latest().catalog)["customers"]
    assert "a delivery lacks 25 of the 100 present keys, more than 20% (delete_limit)" in reason
    before = dumps(tmp_path / "in", delete_limit=limit).options
    append(meta, SetSourceOptions("customers", before, before | {"delete_limit": "100%"}))
    advance_store(LocalRunner(), meta)
    assert len(rows(meta, "customers")) == 75
    assert held_sources(meta.read_latest().catalog) == {}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delete_limit": "lots"}, "expected a percentage such as '20%'"),
        ({"sequence_by": "n"}, "the newest delivery alone decides the rows"),
        ({"changes": "upsert", "delete_limit": "20%"}, "changes must be 'snapshot'"),
    ],
)
def test_an_option_without_meaning_for_dumps_is_refused(options: dict[str, str], reason: str) -> None:
    source = dumps(Path("/data"), **options)
    with pytest.raises(BadOptionError, match=re.escape(reason)):
        reader_of(source).check(source)

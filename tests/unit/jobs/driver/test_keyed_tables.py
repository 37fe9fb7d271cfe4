"""Sources with a key over Delta and Iceberg tables, whose rows are records of changes. No Spark.

Random commits add, delete and rewrite records. The model computes the rows from the records that the table has, or from
all that it ever had (`removed_rows 'ignore'`).
"""

import random
import re
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows
from tests.support.jobs.iceberg.tables import NAME, catalog_in, options_of, replace_files
from tests.unit.jobs.driver.test_keyed_sources import BY_VALUE, FIELDS, Model, Record, divide_input, require_equal
from tests.unit.jobs.driver.test_other_store import Theirs
from tussock.jobs.barriers.source_holds import HeldSourcesError, require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Call, Column, Literal
from tussock.jobs.logical.statements import CreateSource, CreateView, KeyedBy
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.errors import InputError
from tussock.statestore.types import arrow_type

SCHEMA = pa.schema([(f.name, arrow_type(f.type)) for f in FIELDS])
GONE = Call("EqualTo", "boolean", (Column(3, "string"), Literal("gone", "string")))
OPERATIONS = {"changes": "operations", "op_column": "s"}


class Log(Protocol):
    """A table with records of changes."""

    options: dict[str, str]
    format: str

    def append(self, records: list[Record]) -> None: ...

    def overwrite(self, records: list[Record]) -> None: ...

    def delete(self, value: int) -> None:
        """Delete the records with this `v`."""

    def compact(self) -> None: ...

    def mark_state(self) -> int:
        """Return a name of the present state."""

    def restore_state(self, state: int) -> None:
        """Roll the table back."""


class IcebergLog:
    format = "iceberg"

    def __init__(self, folder: Path) -> None:
        self._catalog, self.options = catalog_in(folder), options_of(folder, rollbacks="follow")
        self._catalog.create_table(NAME, SCHEMA)

    def append(self, records: list[Record]) -> None:
        self._catalog.load_table(NAME).append(rows_of(records))

    def overwrite(self, records: list[Record]) -> None:
        self._catalog.load_table(NAME).overwrite(rows_of(records))

    def delete(self, value: int) -> None:
        self._catalog.load_table(NAME).delete(f"v = {value}")

    def compact(self) -> None:
        replace_files(self._catalog.load_table(NAME))

    def mark_state(self) -> int:
        snapshot = self._catalog.load_table(NAME).current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def restore_state(self, state: int) -> None:
        self._catalog.load_table(NAME).manage_snapshots().rollback_to_snapshot(state).commit()


class DeltaLog:
    format = "delta"

    def __init__(self, folder: Path) -> None:
        self._place, self.options = str(folder), {"path": str(folder)}
        DeltaTable.create(self._place, SCHEMA)

    def append(self, records: list[Record]) -> None:
        write_deltalake(self._place, rows_of(records), mode="append")

    def overwrite(self, records: list[Record]) -> None:
        write_deltalake(self._place, rows_of(records), mode="overwrite")

    def delete(self, value: int) -> None:
        DeltaTable(self._place).delete(f"v = {value}")

    def compact(self) -> None:
        DeltaTable(self._place).optimize.compact()

    def mark_state(self) -> int:
        return DeltaTable(self._place).version()

    def restore_state(self, state: int) -> None:
        if (table := DeltaTable(self._place)).version() > state:
            table.restore(state)


LOGS = {"iceberg": IcebergLog, "delta": DeltaLog}


def rows_of(records: list[Record]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in records], schema=SCHEMA)


def source_over(log: Log, **options: str) -> CreateSource:
    keyed = KeyedBy((0,), None if "op_column" in options else GONE)
    given = {**log.options, "changes": "upsert", "sequence_by": "n", **options}
    return CreateSource("customers", log.format, FIELDS, given, keyed=keyed)


@pytest.mark.parametrize("removed_rows", ["take_back", "ignore"])
@pytest.mark.parametrize("format", LOGS)
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.deep) for n in range(2, 100))])
def test_rows_follow_from_the_records_of_the_table(
    tmp_path: Path, seed: int, format: str, removed_rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{seed} {removed_rows}")
    divide_input(chance, monkeypatch)
    log: Log = LOGS[format](tmp_path / "lake")
    options = OPERATIONS if seed % 2 else {}
    texts = ["I", "U", "D"] if options else ["a", "b", "gone"]
    numbers = iter(chance.sample(range(10_000), 1_000))  # a change may arrive after later ones

    def some_records() -> list[Record]:
        records: list[Record] = []
        for _ in range(chance.randrange(1, 12)):
            text = "T" if options and chance.random() < 0.05 else chance.choice(texts)
            records.append((chance.randrange(12), next(numbers), chance.choice([1, 2, 3, 4]), text))
        return [*records, *chance.choices(records, k=chance.randrange(3))]

    there, ever, runner = some_records(), set[Record](), UnkindShuffle(3)
    log.append(there)
    marked, meta = (log.mark_state(), list(there)), new_store(tmp_path / "store")
    append(meta, source_over(log, removed_rows=removed_rows, **options), CreateView("by_value", "SELECT …", BY_VALUE))
    for turn in range(16):
        if turn:
            for _ in range(chance.randrange(3)):
                match chance.choice(["add"] * 3 + ["delete", "overwrite", "compact", "again", "roll back"]):
                    case "add":
                        log.append(more := some_records())
                        there += more
                    case "delete":
                        log.delete(value := chance.choice([1, 2, 3, 4]))
                        there = [r for r in there if r[2] != value]
                    case "overwrite":
                        there = [*(r for r in there if chance.random() < 0.8), *some_records()]
                        log.overwrite(there)
                    case "roll back":
                        state, there = marked
                        log.restore_state(state)
                    case "again" if there:
                        log.append(more := [chance.choice(there)])
                        there += more
                    case _:
                        log.compact()
            if chance.random() < 0.2:
                meta = open_store(tmp_path / "store", f"run {turn}")
            marked = chance.choice([marked, (log.mark_state(), list(there))])
        advance_store(runner, meta)
        require_not_held(meta.read_latest().catalog)
        ever.update(there)
        require_equal(meta, Model(True, {"f1": there if removed_rows == "take_back" else sorted(ever)}))


@pytest.mark.parametrize("format", LOGS)
def test_one_of_two_equal_records_may_leave_the_table(tmp_path: Path, format: str) -> None:
    log: Log = LOGS[format](tmp_path / "lake")
    early, late = (1, 1, 1, "a"), (1, 5, 2, "b")
    log.append([early, late, late])
    meta = new_store(tmp_path / "store")
    append(meta, source_over(log))
    for records, expected in (([early, late, late], late), ([early, late], late), ([early], early)):
        log.overwrite(records)
        advance_store(LocalRunner(), meta)
        assert rows(meta, "customers") == [expected]


def test_the_records_of_another_stores_relation_change_rows(tmp_path: Path) -> None:
    theirs = Theirs(tmp_path)
    theirs.add([(4, 7, 5, "d"), (5, 9, 6, "d")])
    theirs.advance()
    meta = new_store(tmp_path / "ours")
    options = {"store": str(theirs.folder / "theirs"), "relation": "customers", "changes": "upsert", "sequence_by": "n"}
    append(meta, CreateSource("newest", "tussock", FIELDS, options, keyed=KeyedBy((3,))))
    for records, expected in (
        ([], [(5, 9, 6, "d")]),
        ([(5, 10, 6, "f")], [(4, 7, 5, "d"), (5, 10, 6, "f")]),  # (5, 9, 6, "d") is no row of theirs any more
        ([(4, 12, 7, "f")], [(4, 12, 7, "f")]),
    ):
        theirs.add(records)
        theirs.advance()
        advance_store(LocalRunner(), meta)
        require_not_held(meta.read_latest().catalog)
        assert [row for row in rows(meta, "newest") if row[3] in ("d", "f")] == expected


@pytest.mark.parametrize("format", LOGS)
def test_a_row_that_is_no_change_holds_the_source_until_the_table_is_corrected(tmp_path: Path, format: str) -> None:
    log: Log = LOGS[format](tmp_path / "lake")
    log.append([(1, 1, 1, "a")])
    meta = new_store(tmp_path / "store")
    append(meta, source_over(log))
    advance_store(LocalRunner(), meta)
    log.append([(None, 2, 2, "b"), (2, 3, 3, "c")])  # type: ignore[list-item]
    advance_store(LocalRunner(), meta)
    expected = "a row of the table: column 'id' of the key is NULL. Correct or delete the row in the table"
    with pytest.raises(HeldSourcesError, match=re.escape(expected)):
        require_not_held(meta.read_latest().catalog)
    log.delete(2)
    advance_store(LocalRunner(), meta)
    require_not_held(meta.read_latest().catalog)
    assert rows(meta, "customers") == [(1, 1, 1, "a"), (2, 3, 3, "c")]


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"changes": "snapshot"}, BadOptionError, "declare the key by the option key 'column, …'"),
        ({"changes": "all"}, BadOptionError, "expected 'upsert'"),
        ({"key": "id"}, BadOptionError, "the PRIMARY KEY names the key of the rows"),
        ({"sequence_by": ""}, MissingOptionError, "the rows of a table have no order"),
        ({"removed_rows": "keep"}, BadOptionError, "expected 'take_back'"),
        ({"changes": "debezium"}, BadOptionError, "envelopes are JSON"),
        ({"on_error": "quarantine"}, BadOptionError, "has no such option"),
    ],
)
@pytest.mark.parametrize("format", LOGS)
def test_an_option_without_meaning_for_a_table_is_refused(
    tmp_path: Path, format: str, options: dict[str, str], error: type[InputError], reason: str
) -> None:
    source = source_over(LOGS[format](tmp_path / "lake"))
    given = {name: value for name, value in {**source.options, **options}.items() if value}
    wrong = msgspec.structs.replace(source, options=given)
    with pytest.raises(error, match=re.escape(reason)):
        reader_of(wrong).check(wrong)

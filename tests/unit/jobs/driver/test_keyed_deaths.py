"""Feeds of changes whose runs are killed, run twice at once, or begin again. No Spark.

The second file has a newer row, a deletion, a late change and, if the feed has operations, a truncation before them.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.faulty_store import stores_after_deaths
from tests.support.jobs.driver.embedded import append, new_store, open_store, rows, run_twice_at_once
from tests.unit.jobs.driver import test_keyed_sources as keyed
from tests.unit.jobs.driver.test_keyed_sources import BY_VALUE, EVERY_ROW, FIELDS, Record, late_changes
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.statements import CreateSource, CreateView, Drop, KeyedBy
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore

KINDS = ("upsert", "operations", "debezium")
VIEWS = (CreateView("every_row", "SELECT …", EVERY_ROW), CreateView("by_value", "SELECT …", BY_VALUE))
LATE = 5  # the sequence of a late change, if changes have sequences


def source_of(kind: str, folder: Path) -> CreateSource:
    if kind == "debezium":
        given = {"path": str(folder), "retain": "files", "changes": kind}
        return CreateSource("customers", "json", FIELDS, given, keyed=KeyedBy((0,)))
    operations = {"changes": kind, "op_column": "s"} if kind == "operations" else {}
    return keyed.customers(folder, sequence_by="n", **operations)


def write_first(kind: str, folder: Path) -> None:
    put = "I" if kind == "operations" else "a"
    _write(kind, folder / "f1", [(k, 6, 1, put) for k in range(1, 6)])


def write_second(kind: str, folder: Path) -> None:
    put, gone = ("U", "D") if kind == "operations" else ("b", "gone")
    truncated = [] if kind == "upsert" else [(0, 7, None, "T")]
    late = [] if kind == "debezium" else [(3, LATE, 9, put)]
    _write(kind, folder / "f2", [*truncated, (1, 8, 2, put), (2, 8, None, gone), (6, 8, 2, put), *late])


def rows_after(kind: str) -> Sequence[tuple[object, ...]]:
    put = "U" if kind == "operations" else "b"
    stay = [(k, 6, 1, "a") for k in (3, 4, 5)] if kind == "upsert" else []
    return sorted([(1, 8, 2, put), *stay, (6, 8, 2, put)], key=repr)


def _write(kind: str, path: Path, records: list[Record]) -> None:
    if kind != "debezium":
        keyed.write(path.with_suffix(".parquet"), records)
        return
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".json").write_text("".join(f"{json.dumps(_envelope(record))}\n" for record in records))


def _envelope(record: Record) -> dict[str, object]:
    row = dict(zip((f.name for f in FIELDS), record, strict=True))
    if record[3] == "T":
        return {"op": "t"}
    return {"op": "d", "before": row} if record[3] == "gone" else {"op": "u", "before": None, "after": row}


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_killed_at_any_request_applies_each_change_exactly_once(tmp_path: Path, kind: str) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    write_first(kind, folder)
    append(meta, source_of(kind, folder), *VIEWS)
    advance_store(LocalRunner(), meta)
    write_second(kind, folder)

    def run(store: MetaStore) -> None:
        advance_store(LocalRunner(), store)

    calls: list[tuple[str, str]] = []
    for copy in stores_after_deaths(tmp_path / "store", run, calls):
        again, other = (open_store(copy, name) for name in ("again", "other"))
        advance_store(LocalRunner(), again)
        assert advance_store(LocalRunner(), other) == []
        assert rows(other, "every_row") == rows_after(kind)
        assert late_changes(other) == int(kind != "debezium")
    assert len([name for name, _ in calls if name == "put_if_absent"]) >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_at_once_apply_each_change_once(tmp_path: Path, kind: str) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    write_first(kind, folder)
    append(meta, source_of(kind, folder), *VIEWS)
    advance_store(LocalRunner(), meta)
    write_second(kind, folder)
    run_twice_at_once(tmp_path / "store")
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == rows_after(kind)
    assert late_changes(meta) == int(kind != "debezium")


@pytest.mark.parametrize("kind", KINDS)
def test_a_feed_that_is_withdrawn_and_added_again_has_the_same_rows(tmp_path: Path, kind: str) -> None:
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    write_first(kind, folder)
    append(meta, source_of(kind, folder), *VIEWS)
    advance_store(LocalRunner(), meta)
    write_second(kind, folder)
    advance_store(LocalRunner(), meta)
    there = rows(meta, "by_value")
    append(meta, Drop(RelationKind.SOURCE, "customers", cascade=True))
    advance_store(LocalRunner(), meta)
    append(meta, source_of(kind, folder), *VIEWS)
    advance_store(LocalRunner(), meta)
    assert rows(meta, "every_row") == rows_after(kind)
    assert rows(meta, "by_value") == there

"""Messages that Debezium's Postgres connector wrote: tests/support/jobs/sources/debezium/README.md has their origin."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.driver.embedded import append, new_store, restate, rows
from tests.unit.jobs.driver.test_debezium import changes_of, customers, topic, write
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field

RECORDED = Path(__file__).parents[4] / "tests/support/jobs/sources/debezium"
FIELDS = (
    *(Field("id", "bigint"), Field("name", "string"), Field("city", "string"), Field("balance", "decimal(10,2)")),
    *(Field("born", "date"), Field("at", "timestamp_ntz"), Field("at_ms", "timestamp_ntz"), Field("seen", "timestamp")),
    *(Field("score", "double"), Field("ratio", "float"), Field("active", "boolean"), Field("n", "int")),
    *(Field("small", "smallint"), Field("tag", "string"), Field("doc", "binary"), Field("notes", "string")),
)

NOTHING = (None,) * 13
#: The rows that the statements of before.sql inserted.
FIRST_ROWS = [
    (
        *(1, "Anna", "Bern", Decimal("12.50"), date(1990, 2, 3), datetime(2026, 1, 2, 3, 4, 5, 678901)),
        *(datetime(2026, 1, 2, 3, 4, 5, 678000), datetime(2026, 1, 2, 1, 4, 5, 678901, UTC), 1.5, 0.25, True, 7, 3),
        *("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", b"\x00\xff\x10", '{"a": [1, null]}'),
    ),
    (
        *(2, 'Bruno "B" Ä', None, Decimal("-0.01"), date(1899, 12, 31)),
        *(datetime(1970, 1, 1) - timedelta(microseconds=1), datetime(1970, 1, 1) - timedelta(milliseconds=1)),
        *(datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1), float("inf"), None, False, -1, -3),
        *(None, None, None),
    ),
    (3, "Edel", "Chur", *NOTHING),
]
#: After changes.sql, which truncates the table near its end.
LAST_ROWS = [
    (1, "after", None, None, None, datetime(2026, 11, 29), *NOTHING[3:]),
    (9, "Nora", None, *NOTHING),
]
TRUNCATED_AT = 18  # messages before the truncation


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["messages", "messages_with_schema"])
def test_recorded_messages_in_files_give_the_rows_of_the_database(tmp_path: Path, name: str) -> None:
    messages = [m["value"] for m in recorded(name)]
    meta, folder = new_store(tmp_path / "store"), tmp_path / "in"
    options = {"epoch_milliseconds": "at_ms"} if name == "messages" else {}
    write(folder / "1.json", messages[:3])
    append(meta, customers(folder, FIELDS, **options))
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == FIRST_ROWS
    write(folder / "2.json", messages[3:TRUNCATED_AT])
    advance_store(LocalRunner(), meta)
    there = {row[0]: row[1:4] for row in rows(meta, "customers")}
    assert there == {
        1: ("Anna-Maria", "Basel", Decimal("13.50")),
        2: ("again", None, None),
        3: ("twice", "Chur", None),
        50: ("Emil", None, Decimal("0.00")),
    }
    write(folder / "3.json", messages[TRUNCATED_AT:])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == LAST_ROWS
    restate(meta, "customers", folder / "3.json", gone=True)
    assert {row[0]: row[1:4] for row in rows(meta, "customers")} == there


@pytest.mark.parametrize("name", ["messages", "messages_with_schema"])
def test_recorded_messages_of_a_topic_are_the_changes_of_the_files(name: str) -> None:
    source = topic(FIELDS, epoch_milliseconds="at_ms")
    messages = [(m["key"], m["value"]) for m in recorded(name)]
    assert any(value is None for _, value in messages)
    found = changes_of(source, messages)
    assert found.truncations.num_rows == 1
    latest: dict[object, tuple[object, ...]] = {}
    for row in found.changes.slice(0, 3).to_pylist():
        latest[row["c0"]] = tuple(row.values())[: len(FIELDS)]
    assert list(latest.values()) == FIRST_ROWS

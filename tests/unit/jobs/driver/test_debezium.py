"""Debezium's envelopes in files and topics. No Spark."""

import base64
import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append, new_store, rows
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, KeyedBy
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.registry import plan_of_source, reader_of
from tussock.jobs.sources.row_changes import BadChangeError, RowChanges, row_changes
from tussock.jobs.sources.row_ids import pack_row_ids

FEW = (Field("id", "bigint"), Field("name", "string"))


def customers(folder: Path, fields: Sequence[Field] = FEW, **options: str) -> CreateSource:
    given = {"path": str(folder), "retain": "files", "changes": "debezium"} | options
    return CreateSource("customers", "json", tuple(fields), given, keyed=KeyedBy((0,)))


def topic(fields: Sequence[Field] = FEW, **options: str) -> CreateSource:
    given = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t", "changes": "debezium"} | options
    return CreateSource("customers", "kafka", tuple(fields), given, keyed=KeyedBy((0,)))


def write(path: Path, values: Sequence[object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def envelope(op: str, before: object = None, after: object = None) -> dict[str, object]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1}


def changes_of(
    source: CreateSource, messages: Sequence[tuple[object, object]], *, quarantine: bool = False
) -> RowChanges:
    """The changes of a topic's messages: bytes as given, other values as JSON."""

    def encode(value: object) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()

    columns = [pa.array([encode(m[c]) for m in messages], pa.binary()) for c in (0, 1)]
    columns += [pa.array(["t"] * len(messages)), pa.array([3] * len(messages), pa.int32())]
    chunk = make_chunk([*columns, pack_row_ids(0, np.arange(len(messages)))], pa.array([1] * len(messages), pa.int64()))
    return row_changes(plan_of_source(source), source.fields, chunk, thread_kernel(), quarantine=quarantine)


def shown(found: RowChanges, fields: Sequence[Field] = FEW) -> list[tuple[object, ...]]:
    width = len(fields)
    return [tuple(row.values())[: width + 1] for row in found.changes.to_pylist()]


def test_a_tombstone_and_a_deletion_without_a_before_image_take_the_key_of_the_message() -> None:
    schema = {"type": "struct"}
    found = changes_of(
        topic(FEW),
        [
            ({"id": 1}, envelope("d")),
            ({"schema": schema, "payload": {"id": 2}}, None),
            ({"schema": schema, "payload": {"id": 3}}, {"schema": schema, "payload": None}),
            (None, None),
            ({"id": 4}, envelope("d", {"id": 4, "name": "x"})),
            ({"id": 5}, envelope("c", None, {"id": 5, "name": "y"})),
        ],
    )
    assert shown(found) == [(1, None, True), (2, None, True), (3, None, True), (4, None, True), (5, "y", False)]


@pytest.mark.parametrize("has_schema", [False, True])
def test_the_key_of_a_message_is_decoded_like_the_row(has_schema: bool) -> None:
    """A time in milliseconds and a decimal in base64; a column `schema` of the key is no schema."""
    fields = (Field("id", "decimal(10,2)"), Field("at", "timestamp_ntz"), Field("schema", "string"))
    types: list[dict[str, object]] = [
        {"field": "id", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}},
        {"field": "at", "name": "io.debezium.time.Timestamp"},
        {"field": "schema", "type": "string"},
    ]
    row = {"id": base64.b64encode(b"\x30\x39").decode(), "at": 1_700_000_000_000, "schema": "public"}

    def message(payload: object, *fields: object) -> object:
        return {"schema": {"type": "struct", "fields": fields}, "payload": payload} if has_schema else payload

    key = message(row, *types)
    envelopes = [envelope("c", None, row), envelope("d")]
    of_row = {"field": "after", "fields": types}
    values = [*(message(value, {"field": "before"}, of_row) for value in envelopes), None]
    option = {} if has_schema else {"epoch_milliseconds": "at"}
    source = CreateSource("t", "kafka", fields, topic(**option).options, keyed=KeyedBy((0, 1, 2)))
    id = Decimal("1234.5") if has_schema else Decimal("123.45")  # without a schema, the scale is the declared one
    expected = (id, datetime(2023, 11, 14, 22, 13, 20), "public")
    found = changes_of(source, [(key, value) for value in values])
    assert shown(found, fields) == [(*expected, False), (*expected, True), (*expected, True)]


def test_messages_that_are_no_changes_go_to_the_rejects_with_their_text() -> None:
    source = topic(FEW, on_error="quarantine")
    messages: list[tuple[object, object]] = [
        ({"id": 1}, envelope("c", None, {"id": 1, "name": "a"})),
        ({"id": 1}, b"no json"),
        ({"id": 1}, b"\xff"),
        ({"id": 1}, {"id": 1, "name": "flat"}),
        ({"id": 1}, envelope("x", None, {"id": 1})),
        ({"id": 1}, envelope("u", None, None)),
        ({}, envelope("d")),
        ({"id": 1}, envelope("u", None, {"id": "one", "name": "a"})),
        ({"id": 1}, envelope("u", None, {"id": 1, "name": "__debezium_unavailable_value"})),
    ]
    reader_of(source).check(source)
    found = changes_of(source, messages, quarantine=True)
    assert shown(found) == [(1, "a", False)]
    rejects = [tuple(row.values())[:4] for row in found.rejects.to_pylist()]
    no_op = "the value is no envelope of Debezium, because it has no `op`"
    omits = "column 'name' was not changed, so Debezium omits its value: set REPLICA IDENTITY FULL"
    assert [r[:3] for r in rejects] == [
        ("t-3", 1, "the value is not JSON in UTF-8"),
        ("t-3", 2, "the value is not JSON in UTF-8"),
        ("t-3", 3, no_op),
        ("t-3", 4, "column 'op' contains the unknown operation x"),
        ("t-3", 5, "the envelope has no `after`"),
        ("t-3", 6, "column 'id' of the key is NULL"),
        ("t-3", 7, "the value of column 'id' is no bigint"),
        ("t-3", 8, omits),
    ]
    assert [r[3] for r in rejects][:2] == ["no json", "\\xff"]


@pytest.mark.parametrize(
    "schema",
    [
        5,
        "struct",
        [1],
        {"fields": 5},
        {"fields": [5]},
        {"fields": [{"field": "after", "fields": [None]}]},
        {"fields": [{"field": "after", "fields": [{"field": "id", "parameters": []}]}]},
    ],
)
def test_an_envelope_with_a_damaged_schema_is_a_reject(schema: object) -> None:
    value = {"schema": schema, "payload": envelope("c", None, {"id": 1, "name": "a"})}
    found = changes_of(topic(on_error="quarantine"), [({"id": 1}, value)], quarantine=True)
    assert [row["c2"] for row in found.rejects.to_pylist()] == ["the schema of the envelope is damaged"]


@pytest.mark.parametrize("schema", [None, {}, {"fields": None}, {"fields": [{"field": "after", "fields": None}]}])
@pytest.mark.parametrize("scale", [None, "x", ""])
def test_a_schema_without_types_is_none(schema: object, scale: str | None) -> None:
    fields = (*FEW, Field("price", "decimal(10,2)"))
    value = {"schema": schema, "payload": envelope("c", None, {"id": 1, "name": "a", "price": "BOI="})}
    typed = {"field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}
    other = {**value, "schema": {"fields": [{"field": "after", "fields": [typed]}]}}
    found = changes_of(topic(fields), [({"id": 1}, value), ({"id": 1}, other)])
    assert shown(found, fields) == [(1, "a", Decimal("12.50"), False)] * 2


def test_a_document_of_mongodb_is_a_reject_that_names_the_transform() -> None:
    value = envelope("c", None, '{"id": {"$oid": "5"}}')
    found = changes_of(topic(on_error="quarantine"), [({"id": 1}, value)], quarantine=True)
    (reject,) = found.rejects.to_pylist()
    assert "ExtractNewDocumentState" in reject["c2"]


def test_a_null_key_of_a_topic_goes_to_the_rejects() -> None:
    fields = (Field("key", "binary"), Field("value", "binary"))
    source = topic(fields, changes="upsert", on_error="quarantine")
    reader_of(source).check(source)
    found = changes_of(source, [(b"k", b"v"), (None, b"w")], quarantine=True)
    assert found.changes.num_rows == 1
    ((place, offset, reason, raw),) = [tuple(row.values())[:4] for row in found.rejects.to_pylist()]
    assert (place, offset, reason, raw) == ("t-3", 1, "column 'key' of the key is NULL", "w")


def test_a_message_that_is_no_change_is_named_by_its_partition_and_offset() -> None:
    source = topic(FEW)
    messages = [({"id": 1}, envelope("c", None, {"id": 1, "name": "a"})), ({"id": 1}, b"no json")]
    with pytest.raises(BadChangeError, match="the record at offset 1 of partition t-3: ") as caught:
        changes_of(source, messages)
    assert caught.value.path == "t-3", "the item that is held"


OMITTED = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    "value",
    [
        OMITTED,
        base64.b64encode(OMITTED.encode()).decode(),
        [OMITTED],
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],  # Java's UUID.nameUUIDFromBytes
        list(OMITTED.encode()),
        [float(byte) for byte in OMITTED.encode()],
        {OMITTED: OMITTED},
    ],
)
def test_an_omitted_value_is_taken_from_the_before_image(value: object) -> None:
    omitted = {"id": 1, "name": value}
    found = changes_of(topic(FEW), [({"id": 1}, envelope("u", {"id": 1, "name": "long"}, omitted))])
    assert shown(found) == [(1, "long", False)]


def test_a_value_that_oracle_omits_on_both_sides_is_a_reject() -> None:
    omitted = {"id": 1, "name": OMITTED}
    messages = [({"id": 1}, envelope("u", omitted, omitted)), ({"id": 1}, envelope("u", omitted, {"id": 1}))]
    found = changes_of(topic(FEW), messages, quarantine=True)
    assert [row["c2"].partition(",")[0] for row in found.rejects.to_pylist()] == ["column 'name' was not changed"]
    assert shown(found) == [(1, None, False)]


@pytest.mark.parametrize(
    ("meaning", "value", "expected"),
    [
        ("io.debezium.time.Date", 20_000, datetime(2024, 10, 4)),
        ("org.apache.kafka.connect.data.Date", -1, datetime(1969, 12, 31)),
        ("io.debezium.time.MicroTimestamp", 1_000, datetime(1970, 1, 1, 0, 0, 0, 1_000)),
        (None, 1_000, datetime(1970, 1, 1, 0, 0, 1)),  # a number of the database: the option decides
    ],
)
def test_the_schema_or_the_option_decides_the_unit_of_a_time(
    meaning: str | None, value: int, expected: datetime
) -> None:
    fields = [
        {"type": "int64", "field": "id"},
        {"type": "int64", "field": "v", **({"name": meaning} if meaning else {})},
    ]
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
    message = {"schema": schema, "payload": envelope("c", None, {"id": 1, "v": value})}
    source = topic((Field("id", "bigint"), Field("v", "timestamp_ntz")), epoch_milliseconds="v")
    (row,) = changes_of(source, [({"id": 1}, message)]).changes.to_pylist()
    assert row["c1"] == expected


@pytest.mark.parametrize(
    ("kind", "value", "options", "expected"),
    [
        ("decimal(10,2)", 1.5, {}, Decimal("1.50")),
        ("decimal(10,2)", {"scale": 1, "value": "fQ=="}, {}, Decimal("12.50")),  # Oracle's NUMBER
        ("decimal(10,2)", {"scale": 3, "value": "MMw="}, {"decimal_texts": "true"}, None),
        ("decimal(10,2)", {"scale": 99, "value": "fQ=="}, {}, None),
        ("decimal(10,2)", {"a": 1}, {}, None),
        ("decimal(10,2)", "BOI=", {}, Decimal("12.50")),
        ("decimal(10,2)", "1234", {}, Decimal("-26588.24")),
        ("decimal(10,2)", "12.50", {"decimal_texts": "true"}, Decimal("12.50")),
        ("decimal(10,2)", "12.505", {"decimal_texts": "true"}, None),
        ("decimal(4,2)", "D0JA", {}, None),
        ("decimal(38,0)", "S+ZMlTyrQVK7AAAAAAAAAA==", {}, None),
        ("timestamp", 1_000, {"epoch_milliseconds": "v"}, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("timestamp_ntz", 1_500, {"epoch_nanoseconds": "v"}, datetime(1970, 1, 1, 0, 0, 0, 1)),
        ("timestamp_ntz", -1, {"epoch_nanoseconds": "v"}, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        ("timestamp", "2026-01-02T03:04:05.6+02:00", {}, datetime(2026, 1, 2, 1, 4, 5, 600_000, UTC)),
        ("timestamp_ntz", -1, {}, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        ("date", "2026-01-02", {}, date(2026, 1, 2)),
        ("tinyint", 128, {}, None),
        ("boolean", 1, {}, True),  # MySQL's TINYINT(1)
        ("boolean", False, {}, False),
        ("boolean", 2, {}, None),
        ("int", 1.5, {}, None),
        ("double", "NaN", {}, "nan"),
        ("string", {"a": 1}, {}, '{"a":1}'),
        ("binary", "###", {}, None),
    ],
)
def test_values_are_decoded_as_debezium_encodes_them(
    kind: str, value: object, options: dict[str, str], expected: object
) -> None:
    fields = (Field("id", "bigint"), Field("v", kind))
    source = topic(fields, on_error="quarantine", **options)
    found = changes_of(source, [({"id": 1}, envelope("c", None, {"id": 1, "v": value}))], quarantine=True)
    if expected is None:
        assert [row["c2"] for row in found.rejects.to_pylist()] == [f"the value of column 'v' is no {kind}"]
        return
    (row,) = found.changes.to_pylist()
    assert (str(row["c1"]) if expected == "nan" else row["c1"]) == expected


def test_a_file_that_is_no_feed_of_envelopes_holds_the_source(tmp_path: Path) -> None:
    write(tmp_path / "in/1.json", [{"id": 1, "name": "flat"}])
    meta = new_store(tmp_path / "store")
    append(meta, customers(tmp_path / "in", FEW))
    advance_store(LocalRunner(), meta)
    reason = held_sources(meta.read_latest().catalog)["customers"]
    assert "record 1: the value is no envelope of Debezium, because it has no `op`" in reason
    write(tmp_path / "in/1.json", [envelope("c", None, {"id": 1, "name": "a"}), None])
    advance_store(LocalRunner(), meta)
    assert rows(meta, "customers") == [(1, "a")]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (customers(Path("/d"), FEW, sequence_by="id"), "an envelope contains its operation"),
        (customers(Path("/d"), FEW, decimal_texts="yes"), "expected 'true' (decimal.handling.mode=string)"),
        (customers(Path("/d"), (*FEW, Field("x", "array<int>"))), "'x' is a array<int>, which cannot be read"),
        (topic(FEW, on_error="ignore"), "expected 'fail' (hold the source"),
        (topic(FEW, changes="upsert", decimal_texts="true"), "the option is about envelopes"),
        (topic(FEW, epoch_milliseconds="id", epoch_nanoseconds="ID"), "column 'id' has another unit too"),
    ],
)
def test_an_option_without_meaning_is_refused(source: CreateSource, reason: str) -> None:
    with pytest.raises(BadOptionError, match=re.escape(reason)):
        reader_of(source).check(source)

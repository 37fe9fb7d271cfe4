"""Upserts as Avro: a consumer with the registry's schemas reads the same values, and refusals have names."""

import base64
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.jobs.sinks.schema_registry import Registry, running_registry
from tussock.jobs.reading.reader import CHANGE
from tussock.jobs.settings.publishing import KafkaSettings, MessageFormat, read_publish
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.sinks.base import Outline, UnpublishableColumnError
from tussock.jobs.sinks.difference import difference_of
from tussock.jobs.sinks.kafka_avro import AvroRows, SchemaRegistry
from tussock.jobs.sinks.kafka_errors import RegistryRefusedError, RegistrySettingsError, RegistryUnavailableError
from tussock.jobs.sinks.kafka_messages import MessageForm, TopicRows
from tussock.statestore.meta.catalog import ColumnSpec
from tussock.statestore.types import arrow_type

EPOCH = 117_660_020_348_616_704
AT = dt.datetime(2024, 2, 29, 12, 34, 56, 123456, dt.UTC)
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [0.5, float("-inf")],
    "double": [-0.0, float("inf")],
    "decimal(38,10)": [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.0000000001")],
    "string": ["", "Köln 'q' \0 😀"],
    "binary": [b"", b"\x00\xff"],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [AT, dt.datetime(1883, 1, 1, tzinfo=dt.UTC)],
    "timestamp_ntz": [AT.replace(tzinfo=None), dt.datetime(1883, 1, 1)],
    "array<timestamp>": [[AT, None], []],
    "struct<a:int,b:struct<a:date>>": [{"a": 1, "b": {"a": dt.date(2024, 1, 1)}}, {"a": None, "b": None}],
    "map<string,decimal(5,2)>": [{"x": Decimal("1.25"), "": None}, {}],
}

NO_ROWS = TopicRows(MessageFormat.UPSERT)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


def outline_of(**types: str) -> Outline:
    return Outline("s", frozenset({"s"}), "t", tuple(ColumnSpec(name, kind) for name, kind in types.items()), ("k",))


def form_of(registry: Registry, outline: Outline, **properties: Any) -> MessageForm:
    given = {"max.retries": 0} | properties
    settings = KafkaSettings("broker:9092", registry=registry.address, registry_client=given)
    codec = AvroRows(SchemaRegistry(settings), "shop.t", outline, outline.key)
    return MessageForm(MessageFormat.UPSERT, outline, outline.key, codec)


@pytest.mark.parametrize("kind", VALUES)
def test_a_consumer_reads_the_same_values(registry: Registry, kind: str) -> None:
    values = [*VALUES[kind], None]
    rows = pa.table({"k": [1, 2, 3], "v": pa.array(values, arrow_type(kind))})
    messages = form_of(registry, outline_of(k="bigint", v=kind)).of_rows(rows, NO_ROWS, EPOCH)
    assert [registry.decode(key) for key, _ in messages] == [{"k": 1}, {"k": 2}, {"k": 3}]
    assert [registry.decode(value)["v"] for _, value in messages] == values
    assert {*registry.subjects} == {"shop.t-key", "shop.t-value"}


def test_equal_parts_of_names_are_different_records(registry: Registry) -> None:
    kinds = {
        "a": "struct<b:struct<x:int>,b_c:struct<x:int>>",
        "a_b": "struct<c:struct<y:string>>",
        "element": "array<struct<element:struct<z:int>>>",
    }
    values = {
        "a": {"b": {"x": 1}, "b_c": {"x": None}},
        "a_b": {"c": {"y": "z"}},
        "element": [{"element": {"z": 3}}, None],
    }
    rows = pa.table({"k": [1]} | {name: pa.array([values[name]], arrow_type(kind)) for name, kind in kinds.items()})
    (message,) = form_of(registry, outline_of(k="bigint", **kinds)).of_rows(rows, NO_ROWS, EPOCH)
    assert registry.decode(message[1]) == {"k": 1} | values


def test_dates_that_python_lacks_are_numbers(registry: Registry) -> None:
    rows = pa.table({"k": [1], "v": pa.array([5_000_000], pa.int32()).cast(pa.date32())})
    (message,) = form_of(registry, outline_of(k="bigint", v="date")).of_rows(rows, NO_ROWS, EPOCH)
    registry.schemas[-1]["fields"][1]["type"] = ["null", "int"]
    assert registry.decode(message[1])["v"] == 5_000_000


def test_a_change_has_tombstones_of_removed_keys_and_registers_each_schema_once(registry: Registry) -> None:
    changes = pa.table({"k": [1.0, 1.0, -0.0], "x": ["old", "new", "gone"], CHANGE: ["delete", "insert", "delete"]})
    form = form_of(registry, outline_of(k="double", x="string"), **{"basic.auth.user.info": "me:s:1"})
    messages = form.of_change(difference_of(changes, ("k",)), EPOCH)
    shown = [(registry.decode(key), registry.decode(value)) for key, value in messages]
    assert shown == [({"k": 0.0}, None), ({"k": 1.0}, {"k": 1.0, "x": "new"})]
    assert str(shown[0][0]["k"]) == "0.0"
    form.of_change(difference_of(changes, ("k",)), EPOCH)
    assert [*map(len, registry.subjects.values())] == [1, 1]
    assert registry.logins == {f"Basic {base64.b64encode(b'me:s:1').decode()}"}


@pytest.mark.parametrize(
    ("column", "kind", "reason"),
    [
        ("größe", "int", "a name that Avro does not allow"),
        ("v", "variant", "Avro cannot represent"),
        ("v", "map<int,int>", "Avro cannot represent"),
        ("v", "struct<`a b`:int>", "Avro cannot represent"),
        ("v", "array<interval day to second>", "Avro cannot represent"),
    ],
)
def test_a_column_that_avro_cannot_represent_is_refused(
    registry: Registry, column: str, kind: str, reason: str
) -> None:
    with pytest.raises(UnpublishableColumnError, match=reason):
        form_of(registry, outline_of(k="bigint", **{column: kind}))


def test_a_registry_that_refuses_or_is_away_is_named(registry: Registry) -> None:
    rows = pa.table({"k": [1]})
    registry.refusal = (409, "Schema being registered is incompatible with an earlier schema")
    with pytest.raises(RegistryRefusedError, match=r"'shop.t-key': status 409: Schema being registered is incompat"):
        form_of(registry, outline_of(k="bigint")).of_rows(rows, NO_ROWS, EPOCH)
    registry.refusal = (503, "starting")
    with pytest.raises(RegistryUnavailableError, match="status 503: starting"):
        form_of(registry, outline_of(k="bigint")).of_rows(rows, NO_ROWS, EPOCH)
    registry.address = "http://127.0.0.1:1"
    with pytest.raises(RegistryUnavailableError, match="refused"):
        form_of(registry, outline_of(k="bigint")).of_rows(rows, NO_ROWS, EPOCH)


def test_an_answer_that_is_not_a_registrys_is_named(registry: Registry) -> None:
    registry.refusal = (200, "a page of a proxy")
    with pytest.raises(RegistryUnavailableError, match="no id of a schema"):
        form_of(registry, outline_of(k="bigint")).of_rows(pa.table({"k": [1]}), NO_ROWS, EPOCH)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("registry.user", "me", "Unrecognized properties: registry.user"),
        ("max.retries", "many", "max.retries must be a number"),
        ("timeout", "long", "cannot be interpreted as an integer"),
        ("ssl.ca.location", "/absent.pem", "absent.pem|No such file"),
    ],
)
def test_a_property_that_the_client_refuses_is_named(registry: Registry, name: str, value: str, reason: str) -> None:
    with pytest.raises(RegistrySettingsError, match=reason):
        form_of(registry, outline_of(k="bigint"), **{name: value}).of_rows(pa.table({"k": [1]}), NO_ROWS, EPOCH)


def test_a_registry_belongs_to_upserts() -> None:
    entry = {"kind": "kafka", "to": "b:1", "registry": "http://registry:8081"}
    (sink,) = read_publish(entry, "pipeline.toml")
    assert isinstance(sink, KafkaSettings)
    with pytest.raises(PipelineError, match='format = "upsert"'):
        read_publish(entry | {"format": "debezium"}, "pipeline.toml")
    with pytest.raises(PipelineError, match="an http address"):
        read_publish(entry | {"registry": "registry:8081"}, "pipeline.toml")

"""Keys and rows as Avro, with their schemas in a registry (Confluent's interface and framing).

    0 | id of the schema, u32 big-endian | the record in Avro's binary form

    Spark                                     Avro
    boolean, float, double, string, binary    boolean, float, double, string, bytes
    tinyint, smallint, int; bigint            int; long
    decimal(p,s)                              bytes, decimal
    date; time                                int, date; long, time-micros
    timestamp; timestamp_ntz                  long, timestamp-micros; long, local-timestamp-micros
    array, struct, map with string keys       array, record, map

Each field may be null. The subjects are `<topic>-key` and `<topic>-value`. The registry decides whether a changed
schema is compatible with the earlier ones. Intervals, variants and other maps have no form.
"""

import http.client
import io
import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import fastavro
import httpx2
import pyarrow as pa
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from tussock.jobs.settings.publishing import KafkaSettings
from tussock.jobs.sinks.base import Outline, UnpublishableColumnError
from tussock.jobs.sinks.kafka_errors import RegistryRefusedError, RegistrySettingsError, RegistryUnavailableError
from tussock.jobs.sinks.kafka_messages import RowCodec
from tussock.statestore.types import arrow_type, holds_variant

TIMEOUT_S = 30
_BUSY = (http.client.REQUEST_TIMEOUT, http.client.TOO_MANY_REQUESTS)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_AS_NUMBERS = {pa.date32(): pa.int32(), pa.time64("us"): pa.int64()}  # Python's dates end in the year 9999


class SchemaRegistry:
    """A schema registry, reached by Confluent's client."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Raises RegistrySettingsError."""
        self.address = settings.registry
        properties = {"url": self.address, "timeout": TIMEOUT_S} | settings.registry_client
        try:
            self._client = SchemaRegistryClient(properties)
        except (ValueError, TypeError, OSError) as err:  # a property, or a file of a certificate
            raise RegistrySettingsError(self.address, str(err).rstrip(".")) from err

    def register(self, subject: str, schema: Any) -> int:
        """Return the id of a schema, which a subject gets unless it has it.

        Raises RegistrySettingsError, RegistryUnavailableError; RegistryRefusedError, as for an incompatible schema.
        """
        try:
            number: int | None = self._client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))
        except SchemaRegistryError as err:
            status, reason = err.http_status_code, f"status {err.http_status_code}: {err.error_message}".rstrip(".")
            if status >= http.client.INTERNAL_SERVER_ERROR or status in _BUSY:
                raise RegistryUnavailableError(self.address, reason) from err
            raise RegistryRefusedError(self.address, subject, reason) from err
        except OAuthTokenError as err:
            raise RegistryRefusedError(self.address, subject, str(err).rstrip(".")) from err
        except TypeError as err:  # the client compares some properties with numbers only now
            raise RegistrySettingsError(self.address, str(err).rstrip(".")) from err
        except (httpx2.HTTPError, ValueError) as err:
            raise RegistryUnavailableError(self.address, str(err).rstrip(".") or type(err).__name__) from err
        if number is None:
            raise RegistryUnavailableError(self.address, "its answer contains no id of a schema")
        return number


class AvroRows(RowCodec):
    """The keys and rows of a topic's messages. See RowCodec."""

    def __init__(self, registry: SchemaRegistry, topic: str, outline: Outline, key: Sequence[str]) -> None:
        """Raises UnpublishableColumnError."""
        kinds = {column.name: arrow_type(column.type) for column in outline.columns}
        fields: dict[str, Any] = {}
        for column in outline.columns:
            if not _NAME.fullmatch(column.name):
                reason = "has a name that Avro does not allow. Names there consist of A to Z, a to z, 0 to 9 and _"
                raise UnpublishableColumnError(outline.name, column.name, reason)
            if (form := _form_of(kinds[column.name], f"value.{column.name}")) is None:
                reason = f"has the type {column.type}, which Avro cannot represent"
                raise UnpublishableColumnError(outline.name, column.name, reason)
            fields[column.name] = form
        self._registry, self._topic = registry, topic
        self._value = _record("value", [(column.name, fields[column.name]) for column in outline.columns])
        self._key = _record("key", [(name, _form_of(kinds[name], f"key.{name}")) for name in key])

    def encode_keys(self, keys: pa.Table) -> list[bytes]:
        return _encode(keys, self._key, self._key_id)

    def encode_rows(self, rows: pa.Table) -> list[bytes]:
        return _encode(rows, self._value, self._value_id)

    @cached_property
    def _key_id(self) -> int:
        return self._registry.register(f"{self._topic}-key", self._key)

    @cached_property
    def _value_id(self) -> int:
        return self._registry.register(f"{self._topic}-value", self._value)


def _encode(rows: pa.Table, schema: Any, schema_id: int) -> list[bytes]:
    parsed, start = fastavro.parse_schema(schema), b"\0" + schema_id.to_bytes(4)
    plain = rows.cast(pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema]))
    messages = []
    for row in plain.to_pylist(maps_as_pydicts="strict"):
        sink = io.BytesIO(start)
        sink.seek(len(start))
        fastavro.schemaless_writer(sink, parsed, row)
        messages.append(sink.getvalue())
    return messages


def _record(name: str, fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    shown = [{"name": field, "type": ["null", form], "default": None} for field, form in fields]
    return {"type": "record", "name": f"tussock.{name}", "fields": shown}


def _form_of(kind: pa.DataType, name: str) -> Any:
    """Return the schema of a type; None if it has none. `name`: of a record, its path in the schema with dots."""
    if holds_variant(kind):
        return None
    if pa.types.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "local-timestamp-micros" if kind.tz is None else "timestamp-micros"}
    if pa.types.is_struct(kind):
        fields = [(field.name, _form_of(field.type, f"{name}.{field.name}")) for field in kind]
        is_whole = all(form is not None and _NAME.fullmatch(field) for field, form in fields)
        return _record(name, fields) if is_whole else None
    if pa.types.is_list(kind):
        inner = _form_of(kind.value_type, f"{name}.element")
        return inner and {"type": "array", "items": ["null", inner]}
    if pa.types.is_map(kind):
        inner = _form_of(kind.item_type, f"{name}.value") if kind.key_type == pa.string() else None
        return inner and {"type": "map", "values": ["null", inner]}
    return _SIMPLE.get(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers in place of dates and times."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_plain_type(kind.item_type)))
    return _AS_NUMBERS.get(kind, kind)

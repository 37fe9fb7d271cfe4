"""Messages of a relation's changes: keys and values as JSON, a whole column at a time, or as Avro (kafka_avro.py).

    upsert      the key columns → all columns; a removed row has no value (a tombstone)
    debezium    the key columns → {"before", "after", "op", "ts_ms", "source"}; op is c, u, d, or r for a first load. A
                tombstone follows each d

Values have the form of `tussock read --json`: decimals are numbers, times ISO 8601 strings, bytes text with \\xNN.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.reading.reader import CHANGE
from tussock.jobs.reading.written_rows import json_texts
from tussock.jobs.settings.publishing import MessageFormat
from tussock.jobs.sinks.base import Difference, Outline
from tussock.statestore.decoding import decode_json
from tussock.statestore.meta.epoch import epoch_ms

Messages = list[tuple[bytes | None, bytes | None]]
"""Keys and values. No key: the relation has none. No value: a tombstone."""


class RowCodec(Protocol):
    """Encodes the keys and rows of upserts."""

    def encode_keys(self, keys: pa.Table) -> list[bytes]:
        """Return each row of key columns as bytes."""
        ...

    def encode_rows(self, rows: pa.Table) -> list[bytes]:
        """Return each row as bytes."""
        ...


class JsonRows:
    """Objects in JSON. See RowCodec."""

    def encode_keys(self, keys: pa.Table) -> list[bytes]:
        """See RowCodec."""
        return [text.encode() for text in json_texts(keys)]

    encode_rows = encode_keys


@dataclass(frozen=True, slots=True)
class MessageForm:
    """Turns rows of a relation into messages. `key`: empty if the relation has none. `codec`: of upserts."""

    format: MessageFormat
    outline: Outline
    key: tuple[str, ...]
    codec: RowCodec = field(default_factory=JsonRows)

    def of_rows(self, rows: pa.Table, epoch: int) -> Messages:
        """Return the messages of rows that a topic does not contain yet."""
        keys = self._keys_of(rows)
        if self.format is MessageFormat.DEBEZIUM:
            values = json_texts(rows)
            return [(key, self._envelope("r", None, value, epoch)) for key, value in zip(keys, values, strict=True)]
        return list(zip(keys, self.codec.encode_rows(rows), strict=True))

    def of_change(self, difference: Difference, epoch: int) -> Messages:
        """Return the messages of a change: removed rows first."""
        if self.format is MessageFormat.DEBEZIUM:
            return self._envelopes(difference.changes, epoch)
        removed: Messages = [(key, None) for key in self._keys_of(difference.removed)]
        written = difference.written
        return [*removed, *zip(self._keys_of(written), self.codec.encode_rows(written), strict=True)]

    def of_lost(self, key: bytes, value: bytes, epoch: int) -> Messages:
        """Return the messages that remove a row of which only the last message is known."""
        if self.format is MessageFormat.UPSERT:
            return [(key, None)]
        before = decode_json(value, _After).after
        return [(key, self._envelope("d", bytes(before).decode(), None, epoch)), (key, None)]

    def is_row(self, value: bytes | None) -> bool:
        """Return whether the last message of a key leaves a row."""
        if value is None or self.format is MessageFormat.UPSERT:
            return value is not None
        return bytes(decode_json(value, _After).after) != b"null"

    def _envelopes(self, changes: pa.Table, epoch: int) -> Messages:
        """Return c, u and d of net changes. A row whose key was deleted and inserted is updated."""
        came = pc.equal(changes[CHANGE], "insert")
        new, old = changes.filter(came).drop_columns([CHANGE]), changes.filter(pc.invert(came)).drop_columns([CHANGE])
        keys_after, keys_before = self._keys_of(new), self._keys_of(old)
        after, before = json_texts(new), json_texts(old)
        if not self.key:
            gone = [(None, self._envelope("d", row, None, epoch)) for row in before]
            return [*gone, *((None, self._envelope("c", None, row, epoch)) for row in after)]
        former, staying = dict(zip(keys_before, before, strict=True)), set(keys_after)
        messages: Messages = []
        for key in keys_before:
            if key not in staying:
                messages += [(key, self._envelope("d", former[key], None, epoch)), (key, None)]
        for key, row in zip(keys_after, after, strict=True):
            op = "u" if key in former else "c"
            messages.append((key, self._envelope(op, former.get(key), row, epoch)))
        return messages

    def _envelope(self, op: str, before: str | None, after: str | None, epoch: int) -> bytes:
        """Return an envelope around rows that are JSON already."""
        moment = epoch_ms(epoch)
        source = {
            "connector": "tussock",
            "name": self.outline.store,
            "table": self.outline.name,
            "epoch": str(epoch),
            "ts_ms": moment,
            "snapshot": "true" if op == "r" else "false",
        }
        rows: dict[str, Any] = {"before": msgspec.Raw((before or "null").encode())}
        rows["after"] = msgspec.Raw((after or "null").encode())
        return msgspec.json.encode(rows | {"op": op, "ts_ms": moment, "source": source})

    def _keys_of(self, rows: pa.Table) -> Sequence[bytes | None]:
        """(rows,) the encoded keys. -0.0 is 0.0, since a store has one key for both."""
        if not self.key:
            return [None] * rows.num_rows
        keys = rows.select(list(self.key))
        for place, name in enumerate(self.key):
            if pa.types.is_floating(keys.schema.field(name).type):
                plain = pc.add(keys[name], pa.scalar(0.0, keys.schema.field(name).type))
                keys = keys.set_column(place, name, plain)
        return self.codec.encode_keys(keys)


class _After(msgspec.Struct):
    """The row of an envelope."""

    after: msgspec.Raw

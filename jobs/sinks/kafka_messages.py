"""Messages of a relation's changes: keys and values as JSON, a whole column at a time, or as Avro (kafka_avro.py).

    upsert      the key columns → all columns; a removed row has no value (a tombstone)
    debezium    the key columns → {"before", "after", "op", "ts_ms", "source"}; op is c, u, d, or r for a first load. A
                tombstone follows each d

Values have the form of `tussock read --json`: decimals are numbers, times ISO 8601 strings, bytes text with \\xNN.
"""

from collections import Counter
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

    def of_rows(self, rows: pa.Table, left: "TopicRows", epoch: int) -> Messages:
        """Return the messages of a load. Takes the rows from `left`."""
        pairs = zip(self._keys_of(rows), self.codec.encode_rows(rows), strict=True)
        missing = [(key, row) for key, row in pairs if not left.take_row(key, row)]
        if self.format is MessageFormat.DEBEZIUM:
            return [(key, self._envelope("r", None, row.decode(), epoch)) for key, row in missing]
        return list(missing)

    def of_change(self, difference: Difference, epoch: int) -> Messages:
        """Return the messages of a change: removed rows first."""
        if self.format is MessageFormat.DEBEZIUM:
            return self._envelopes(difference.changes, epoch)
        removed: Messages = [(key, None) for key in self._keys_of(difference.removed)]
        written = difference.written
        return [*removed, *zip(self._keys_of(written), self.codec.encode_rows(written), strict=True)]

    def of_lost(self, left: "TopicRows", epoch: int) -> Messages:
        """Return the messages that remove the rows that a load has left."""
        if self.format is MessageFormat.UPSERT:
            return [(key, None) for key in left.last]
        messages: Messages = []
        for key in left.last:
            messages += [(key, self._envelope("d", left.row_of(key), None, epoch)), (key, None)]
        for row in left.keyless.elements():
            messages.append((None, self._envelope("d", row.decode(), None, epoch)))
        return messages

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


class TopicRows:
    """The rows that the messages of a topic leave.

    Args:
        format: of the last message of each key.

    Attributes:
        last: the last message of each key that has a row.
        keyless: the rows of messages without a key, as JSON, and how often they occur.
    """

    def __init__(self, format: MessageFormat) -> None:
        self.format = format
        self.last: dict[bytes, bytes] = {}
        self.keyless: Counter[bytes] = Counter()

    def add_message(self, key: bytes | None, value: bytes | None) -> None:
        """Follow the next message."""
        if key is not None and value is not None:
            self.last[key] = value
        elif key is not None:
            self.last.pop(key, None)
        elif value is not None:
            rows = _envelope_rows(value)
            self.keyless.update(row for row in [bytes(rows.after)] if row != b"null")
            self.keyless.subtract(row for row in [bytes(rows.before)] if row != b"null")

    def take_row(self, key: bytes | None, row: bytes) -> bool:
        """Take a row out of these. Returns whether the topic needs no message of it."""
        if key is not None:
            self.last.pop(key, None)
            return False
        is_there = self.keyless[row] > 0
        self.keyless[row] -= is_there
        return is_there

    def row_of(self, key: bytes) -> str | None:
        """Return the row of a key's last message as JSON; None if it is not a message of the format."""
        value = self.last[key]
        if self.format is MessageFormat.DEBEZIUM:
            return bytes(_envelope_rows(value).after).decode()
        try:
            decode_json(value, dict)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return value.decode()


class _EnvelopeRows(msgspec.Struct):
    """The rows of an envelope."""

    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")


def _envelope_rows(value: bytes) -> _EnvelopeRows:
    """Return the rows of an envelope; none if the value is not an envelope."""
    try:
        return decode_json(value, _EnvelopeRows)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _EnvelopeRows()

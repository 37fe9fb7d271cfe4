"""Debezium's envelopes: JSON records with the row before and after a change, turned into records with columns.

    {"before": null, "after": {"id": 1, …}, "op": "c", …}                 without a schema
    {"schema": {…}, "payload": {"before": …, "after": …, "op": "c"}}      with one

The operation is c, u or r (the row is in "after"), d (the key is in "before") or t (truncate). A topic has the key as
JSON too. It gives the key if "before" is missing, and of a tombstone, which deletes the key again.

Values arrive as Debezium encodes them. With a schema, its names of types decide the meaning. Without one:

    date                    days since 1970, or a text
    timestamp               microseconds since 1970 (milliseconds for the columns of `epoch_milliseconds`, nanoseconds
                            for those of `epoch_nanoseconds`), or a text
    decimal                 a number, or its unscaled bytes in base64; with `decimal_texts 'true'`, digits;
                            or an object with its scale and these bytes
    binary                  base64

DuckDB takes the JSON apart, by whole columns. A record that is no envelope, or whose value does not fit its column, is
returned with a reason.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from uuid import UUID

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, make_chunk
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.text import bad_texts
from tussock.statestore.decoding import decoder_of
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array

OPERATION = Field("op", "string")
#: Debezium's text for a value that the database did not log, because the change left it as it was.
_OMITTED = "__debezium_unavailable_value"
_OMITTED_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="  # in base64
_INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
_TIMES = ("timestamp", "timestamp_ntz")
SCALAR_TYPES = (*_INTEGERS, "string", "boolean", "float", "double", "date", "binary", *_TIMES)
#: Nanoseconds per unit of a time, by the name of its type in a schema.
_UNITS = {
    "io.debezium.time.Timestamp": 1_000_000,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1,
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,
}
_DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_BASE64_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MOST_BYTES, _MOST_DIGITS = 16, 38  # of a decimal
_FLATTEN = (
    "`after` is a text, as the connector for MongoDB writes it. Let its transform ExtractNewDocumentState flatten the "
    "documents, and read them with changes 'operations' and op_column '__op'"
)


def _omitted_texts() -> pa.Array:
    """All texts of an omitted value. In an array of numbers, each byte of Debezium's text is an element."""
    uuid = UUID(bytes=md5(_OMITTED.encode(), usedforsecurity=False).digest(), version=3)  # as Java makes it of bytes
    in_base64 = (base64.b64encode(bytes([byte])).decode() for byte in _OMITTED.encode())
    elements: Sequence[Sequence[object]] = (
        *([text] for text in (_OMITTED, _OMITTED_BYTES, str(uuid))),
        *([make(byte) for byte in _OMITTED.encode()] for make in (int, float, str)),
        list(in_base64),
    )
    nested = (*elements, {_OMITTED: _OMITTED})  # the last one is of an hstore
    return pa.array([_OMITTED, _OMITTED_BYTES, *(json.dumps(value, separators=(",", ":")) for value in nested)])


@dataclass(frozen=True, slots=True)
class EnvelopeForm:
    """Where envelopes are, and the meaning of their values without a schema.

    Args:
        value: the column of the envelope among the columns of a record.
        key: the column of the message's key; None: there is none.
        units: the columns of the row whose times are not in microseconds -> nanoseconds of their unit.
        decimal_texts: decimals are digits, not base64.
    """

    value: int
    key: int | None
    units: Mapping[int, int]
    decimal_texts: bool


@dataclass(frozen=True, slots=True)
class ReadEnvelopes:
    """Records that were read from envelopes.

    Args:
        records: a chunk: the columns of the row, OPERATION, and the last columns of the messages.
        reasons: (records,) why one is no change; NULL if it is.
        kept: (messages,) whether a message is a record. An empty line is none.
    """

    records: pa.Table
    reasons: pa.Array
    kept: pa.Array


def is_scalar_type(kind: str) -> bool:
    """Return whether a column of this type can be read from an envelope."""
    return kind in SCALAR_TYPES or kind.startswith("decimal(")


def read_envelopes(form: EnvelopeForm, fields: Sequence[Field], key: Sequence[int], records: pa.Table) -> ReadEnvelopes:
    """Turn records with envelopes into records with the columns of the row, then OPERATION.

    Args:
        fields: of the row.
        key: the columns of the row's key.
        records: a chunk: the columns of a message, hidden columns, `_row_id`, weights.
    """
    own_columns = 1 if form.key is None else 2
    texts = [_as_json_texts(one_array(records.column(c))) for c in (form.value, form.key) if c is not None]
    broken = np.asarray(pc.and_(one_array(records.column(form.value)).is_valid(), texts[0].is_null()))
    keys = texts[1] if form.key is not None else pa.nulls(len(texts[0]), pa.string())
    with _connect() as duck:
        taken = _take_apart(duck, texts[0], keys, fields)
        columns, reasons = _typed_columns(_Decoder(duck, form), fields, key, taken)
    broken |= np.asarray(pc.fill_null(taken["is_broken"], False))
    is_empty = np.asarray(pc.and_(taken["op"].is_null(), pc.fill_null(taken["is_empty"], False))) & ~broken
    none = pa.scalar(None, pa.string())
    operation = pc.if_else(pa.array(broken), none, taken["op"])
    bad_text = pc.if_else(pa.array(broken), "the value is not JSON in UTF-8", none)
    no_op = pc.if_else(operation.is_null(), "the value is no envelope of Debezium, because it has no `op`", none)
    reasons = pc.coalesce(bad_text, no_op, reasons)
    read = make_chunk([*columns, operation, *records.columns[own_columns:-1]], records[WEIGHT])
    keep = pa.array(~is_empty)
    return ReadEnvelopes(read.filter(keep), reasons.filter(keep), keep)


def _as_json_texts(column: pa.Array) -> pa.Array:
    """The texts of a column of strings or bytes; NULL for bytes that are not UTF-8."""
    if pa.types.is_binary(column.type):
        column = column.view(pa.string())
    bad = bad_texts(column)
    return pc.if_else(pa.array(bad), pa.scalar(None, pa.string()), column) if bad.any() else column


def _take_apart(
    duck: duckdb.DuckDBPyConnection, values: pa.Array, keys: pa.Array, fields: Sequence[Field]
) -> dict[str, pa.Array]:
    """The operation, the schema, and the texts and JSON types of each column, by name.

    `is_empty`: the record has no envelope. `is_broken`: it has a text that is not JSON.
    """
    paths = "[" + ", ".join(_quote("/" + f.name.replace("~", "~0").replace("/", "~1")) for f in fields) + "]"
    message = "json_type({0}, '/schema') IS NOT NULL AND json_type({0}, '/payload') IS NOT NULL"
    payload = f"CASE WHEN {message} THEN {{0}} -> '/payload' ELSE {{0}} END"
    of_key = f"CASE WHEN {message} THEN {{0}} -> '/schema' END".format("kj")  # else the key has a column `schema`
    query = f"""
        WITH parsed AS (SELECT n, v, TRY_CAST(v AS JSON) AS j, TRY_CAST(k AS JSON) AS kj FROM given),
        parts AS (
          SELECT n, v, coalesce(j -> '/schema', {of_key}) AS s, {payload.format("j")} AS p,
            {payload.format("kj")} AS kp FROM parsed),
        named AS (
          SELECT *, CASE WHEN p ->> '/op' IS NOT NULL THEN p ->> '/op'
            WHEN (p IS NULL AND v IS NULL OR json_type(p) = 'NULL') AND json_type(kp) = 'OBJECT' THEN 'd' END AS op
          FROM parts),
        images AS (
          SELECT *, CASE WHEN op = 'd' THEN p -> '/before' ELSE p -> '/after' END AS image, p -> '/before' AS before
          FROM named)
        SELECT op, s AS schema,
          v IS NULL OR trim(v) = '' OR json_type(p) = 'NULL' AS is_empty,
          v IS NOT NULL AND trim(v) <> '' AND p IS NULL AS is_broken,
          json_type(image) = 'OBJECT' AS has_image, json_type(image) = 'VARCHAR' AS is_text,
          json_extract_string(image, {paths}) AS texts, json_type(image, {paths}) AS kinds,
          json_extract_string(before, {paths}) AS texts_before, json_type(before, {paths}) AS kinds_before,
          json_extract_string(kp, {paths}) AS texts_of_key, json_type(kp, {paths}) AS kinds_of_key
        FROM images ORDER BY n"""
    messages = pa.table({"n": pa.array(range(len(values)), pa.int64()), "v": values, "k": keys})
    duck.register("given", messages)
    read = duck.sql(query).to_arrow_table()
    return {name: one_array(read.column(name)) for name in read.column_names}


def _connect() -> duckdb.DuckDBPyConnection:
    """A connection without access to files and variables."""
    duck = duckdb.connect(":memory:", config={"threads": 1})
    for setting in ("enable_external_access = false", "python_enable_replacements = false", "TimeZone = 'UTC'"):
        duck.execute(f"SET {setting}")
    return duck


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _typed_columns(
    decoder: "_Decoder", fields: Sequence[Field], key: Sequence[int], taken: Mapping[str, pa.Array]
) -> tuple[list[pa.Array], pa.Array]:
    """The columns of the rows, and (rows,) why a value does not fit. Records are grouped by their schemas."""
    schemas = taken["schema"].cast(pa.string()).dictionary_encode(null_encoding="encode")
    numbers = schemas.indices.to_numpy()
    parts, places = [], []
    for number, text in enumerate(schemas.dictionary.to_pylist()):
        mine = np.flatnonzero(numbers == number)
        of_schema = {name: values.take(pa.array(mine)) for name, values in taken.items()}
        places.append(mine)
        parts.append(_columns_of_schema(decoder, fields, key, of_schema, _types_in_schema(text)))
    if not parts:
        return [pa.nulls(0, arrow_type(f.type)) for f in fields], pa.nulls(0, pa.string())
    order = pa.array(np.argsort(np.concatenate(places), kind="stable"))
    columns = [pa.chunked_array([p[0][c] for p in parts]).combine_chunks().take(order) for c in range(len(fields))]
    return columns, pa.chunked_array([p[1] for p in parts]).combine_chunks().take(order)


class _SchemaPart(msgspec.Struct, frozen=True):
    """A part of a schema of Kafka Connect. `name` is the meaning of a value, such as a date."""

    field: str | None = None
    name: str | None = None
    fields: tuple["_SchemaPart", ...] | None = None
    parameters: dict[str, str | None] | None = None

    @property
    def scale(self) -> int | None:
        """Of a decimal."""
        text = (self.parameters or {}).get("scale")
        return int(text) if text is not None and text.isdecimal() and len(text) < 3 else None


_schemas = decoder_of(_SchemaPart | None)


def _types_in_schema(text: str | None) -> dict[str, _SchemaPart] | None:
    """The types of a row's columns in the schema of an envelope, by the column's name; empty without a schema.

    A tombstone has only the schema of its key, whose fields are the columns.

    None if it is no schema of Kafka Connect.
    """
    try:
        schema = None if text is None else _schemas.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    fields = () if schema is None else schema.fields or ()
    row = next((f.fields for f in fields if f.field == "after" and f.fields is not None), fields)
    return {f.field: f for f in row if f.field is not None}


def _columns_of_schema(
    decoder: "_Decoder",
    fields: Sequence[Field],
    key: Sequence[int],
    taken: Mapping[str, pa.Array],
    named: Mapping[str, _SchemaPart] | None,
) -> tuple[list[pa.Array], pa.Array]:
    """As `_typed_columns`, of records with one schema."""
    is_deletion = pc.fill_null(pc.equal(taken["op"], "d"), False)
    needs_row = pc.fill_null(pc.is_in(taken["op"], pa.array(["c", "u", "r"])), False)
    without = pc.and_(needs_row, pc.invert(pc.fill_null(taken["has_image"], False)))
    reasons = [
        _reason_if(pc.and_(without, pc.fill_null(taken["is_text"], False)), _FLATTEN),
        _reason_if(without, "the envelope has no `after`"),
    ]
    if named is None:
        reasons.insert(0, pa.repeat("the schema of the envelope is damaged", len(is_deletion)))
        named = {}
    columns, omitted_texts = list[pa.Array](), _omitted_texts()
    for c, field in enumerate(fields):
        texts, kinds = (_element(taken[name], c) for name in ("texts", "kinds"))
        omitted = pc.is_in(texts, omitted_texts)
        before, kinds_before = (_element(taken[f"{name}_before"], c) for name in ("texts", "kinds"))
        known = pc.invert(pc.is_in(before, omitted_texts))  # Oracle omits large values there too
        texts = pc.if_else(omitted, pc.if_else(known, before, pa.scalar(None, pa.string())), texts)
        kinds = pc.if_else(omitted, kinds_before, kinds)
        still = pc.and_(omitted, texts.is_null())
        omits = f"column {field.name!r} was not changed, so Debezium omits its value: set REPLICA IDENTITY FULL"
        reasons.append(_reason_if(still, omits))
        if c in key:
            of_key, kinds_of_key = (_element(taken[f"{name}_of_key"], c) for name in ("texts", "kinds"))
            texts, kinds = pc.coalesce(texts, of_key), pc.if_else(texts.is_valid(), kinds, kinds_of_key)
        else:  # the row of a deletion has no meaning but its key
            texts = pc.if_else(is_deletion, pa.scalar(None, pa.string()), texts)
        values = decoder.decode_column(c, field.type, texts, kinds, named.get(field.name))
        misfit = pc.and_(texts.is_valid(), values.is_null())
        reasons.append(_reason_if(misfit, f"the value of column {field.name!r} is no {field.type}"))
        columns.append(values)
    return columns, pc.coalesce(*reasons)


def _reason_if(flags: pa.Array, reason: str) -> pa.Array:
    return pc.if_else(pc.fill_null(flags, False), reason, pa.scalar(None, pa.string()))


def _element(lists: pa.Array, place: int) -> pa.Array:
    """(rows,) string, an element of each list; NULL for a list that is NULL."""
    there = lists.is_valid()
    values = pc.list_element(lists.filter(there), place)
    return pc.replace_with_mask(pa.nulls(len(lists), pa.string()), there, values.cast(pa.string()))


class _Decoder:
    """Decodes texts of JSON values. A text that does not fit becomes NULL."""

    def __init__(self, duck: duckdb.DuckDBPyConnection, form: EnvelopeForm) -> None:
        self._duck, self._form = duck, form

    def decode_column(
        self, column: int, kind: str, texts: pa.Array, kinds: pa.Array, named: _SchemaPart | None
    ) -> pa.Array:
        """Decode the values of a column.

        Args:
            kinds: (rows,) DuckDB's names of the JSON types.
            named: its type in the envelope's schema; None without one.
        """
        if kind.startswith("decimal("):
            return self._decode_decimals(kind, texts, kinds, named)
        if kind == "string":
            return texts
        values = self._compute(self._expression_of(column, kind, named), texts)
        if kind == "timestamp":
            values = values.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        return values.cast(arrow_type(kind))

    def _expression_of(self, column: int, kind: str, named: _SchemaPart | None) -> str:
        if kind == "binary":
            return "TRY(from_base64(x))"
        if kind in _INTEGERS:
            return _whole_number(_INTEGERS[kind])
        if kind == "boolean":
            return "CASE WHEN x IN ('true', '1') THEN true WHEN x IN ('false', '0') THEN false END"  # MySQL: TINYINT(1)
        if kind in ("float", "double"):
            return f"TRY_CAST(x AS {kind.upper()})"
        if kind == "date":
            return f"coalesce(TRY(DATE '1970-01-01' + {_whole_number('INTEGER')}), TRY_CAST(x AS DATE))"
        meaning, number = (named and named.name) or "", _whole_number("BIGINT")
        if meaning in _DATES:
            return f"TRY(make_timestamp({number} * 86400000000))"
        unit = _UNITS.get(meaning, self._form.units.get(column, 1_000))
        # DuckDB's // goes towards zero, and a time before 1970 must not become a later one.
        micros = f"{number} * {unit // 1_000}" if unit >= 1_000 else f"{number} // 1000 - ({number} % 1000 < 0)::BIGINT"
        return f"coalesce(TRY(make_timestamp({micros})), TRY_CAST(x AS TIMESTAMPTZ)::TIMESTAMP)"

    def _compute(self, expression: str, values: pa.Array) -> pa.Array:
        """Compute an expression of DuckDB over the column x."""
        self._duck.register("one", pa.table({"n": pa.array(range(len(values)), pa.int64()), "x": values}))
        return one_array(self._duck.sql(f"SELECT {expression} AS y FROM one ORDER BY n").to_arrow_table().column(0))

    def _decode_decimals(self, kind: str, texts: pa.Array, kinds: pa.Array, named: _SchemaPart | None) -> pa.Array:
        """Decode digits, or unscaled bytes in base64."""
        declared, none = arrow_type(kind), pa.scalar(None, pa.string())
        is_base64 = named.name == _BASE64_DECIMAL if named is not None else not self._form.decimal_texts
        is_bytes = pc.fill_null(pc.equal(kinds, "VARCHAR"), False)
        cast = f"TRY_CAST(x AS DECIMAL({declared.precision}, {declared.scale}))"
        plain = f"regexp_full_match(x, '-?[0-9]+([.][0-9]{{0,{declared.scale}}}0*)?')"
        exact = f"{plain} OR (contains(lower(x), 'e') AND TRY_CAST(x AS DOUBLE) = CAST({cast} AS DOUBLE))"
        digits = pc.if_else(is_bytes, none, texts) if is_base64 else texts
        decoded = self._compute(f"CASE WHEN {exact} THEN {cast} END", digits).cast(declared)
        if is_base64:
            scale = declared.scale if named is None or named.scale is None else named.scale
            unscaled = pc.if_else(is_bytes, texts, none)
            decoded = pc.coalesce(decoded, self._from_base64(unscaled, scale, declared))
        return pc.coalesce(decoded, self._of_own_scale(texts, kinds, declared))

    def _of_own_scale(self, texts: pa.Array, kinds: pa.Array, declared: pa.Decimal128Type) -> pa.Array:
        """Decode objects with a scale and unscaled bytes: of Oracle's NUMBER and Postgres' numeric without a scale."""
        none = pa.scalar(None, pa.string())
        objects = pc.if_else(pc.fill_null(pc.equal(kinds, "OBJECT"), False), texts, none)
        decoded = pa.nulls(len(texts), declared)
        if objects.null_count == len(objects):
            return decoded
        scales = self._compute("TRY_CAST(TRY_CAST(x AS JSON) ->> '/scale' AS INTEGER)", objects)
        unscaled = self._compute("TRY_CAST(x AS JSON) ->> '/value'", objects)
        for scale in pc.unique(scales).drop_null().to_pylist():  # at most one pass per scale
            if 0 <= scale <= _MOST_DIGITS:
                mine = pc.if_else(pc.fill_null(pc.equal(scales, scale), False), unscaled, none)
                decoded = pc.coalesce(decoded, self._from_base64(mine, scale, declared))
        return decoded

    def _from_base64(self, texts: pa.Array, scale: int, declared: pa.Decimal128Type) -> pa.Array:
        """Decode unscaled bytes in base64; NULL if the value does not fit the declared type."""
        unscaled = self._compute("TRY(from_base64(x))", texts).cast(pa.binary())
        cast = f"TRY_CAST(x AS DECIMAL({declared.precision}, {declared.scale}))"
        fits = f"TRY_CAST({cast} AS DECIMAL(38, {max(scale, declared.scale)})) = x"
        return self._compute(f"CASE WHEN {fits} THEN {cast} END", _from_unscaled(unscaled, scale)).cast(declared)


def _whole_number(kind: str) -> str:
    return f"CASE WHEN regexp_full_match(x, '-?[0-9]+') THEN TRY_CAST(x AS {kind}) END"


def _from_unscaled(unscaled: pa.Array, scale: int) -> pa.Array:
    """Return decimals from big-endian two's complement; NULL for more than _MOST_DIGITS."""
    sizes = pc.fill_null(pc.binary_length(unscaled), 0).to_numpy()
    words = np.zeros((len(unscaled), _MOST_BYTES), np.uint8)
    valid = (sizes > 0) & (sizes <= _MOST_BYTES)
    for size in np.unique(sizes[valid]).tolist():  # one pass per length
        mine = np.flatnonzero(sizes == size)
        chosen = pa.concat_arrays([unscaled.take(pa.array(mine)).cast(pa.binary(size))])
        block = np.frombuffer(chosen.buffers()[1], np.uint8, len(mine) * size).reshape(len(mine), size)
        words[mine] = np.where(block[:, :1] >= 128, 255, 0)
        words[mine, _MOST_BYTES - size :] = block
    valid &= _is_below(words, 10**_MOST_DIGITS) & ~_is_below(words, 1 - 10**_MOST_DIGITS)
    data = pa.py_buffer(np.ascontiguousarray(words[:, ::-1]).tobytes())
    bits = pa.array(valid).buffers()[1]
    return pa.Decimal128Array.from_buffers(pa.decimal128(_MOST_DIGITS, scale), len(valid), [bits, data])


def _is_below(words: npt.NDArray[np.uint8], bound: int) -> npt.NDArray[np.bool_]:
    """(n,) whether numbers of _MOST_BYTES, in big-endian two's complement, are less than a bound."""
    high, low = words[:, :8].copy().view(">i8")[:, 0], words[:, 8:].copy().view(">u8")[:, 0]
    of_bound = bound >> 64, bound & (2**64 - 1)
    below: npt.NDArray[np.bool_] = (high < of_bound[0]) | ((high == of_bound[0]) & (low < np.uint64(of_bound[1])))
    return below

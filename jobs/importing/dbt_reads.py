"""Reads of files in the SQL of dbt models, and in the places of dbt's sources.

read_files('/data/orders', format => 'json')           Databricks (sdp_reads.py)
parquet.`/data/orders`                                 Spark
read_csv('orders/*.csv', sep = ';'), 'orders.parquet'  DuckDB
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tussock.jobs.importing.names import stream_around
from tussock.jobs.importing.sdp_reads import (
    SourceRead,
    UnsupportedReadError,
    constant_of,
    read_of_call,
    read_of_options,
    split_arguments,
)
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, closing_bracket, tokens_of

_OF_DATABRICKS = ("read_files", "cloud_files")
_OF_DUCKDB = {
    **dict.fromkeys(("read_csv", "read_csv_auto"), "csv"),
    **dict.fromkeys(("read_json", "read_json_auto", "read_ndjson", "read_ndjson_auto"), "json"),
    **dict.fromkeys(("read_parquet", "parquet_scan"), "parquet"),
    "delta_scan": "delta",
}
_OF_SPARK = ("csv", "json", "parquet", "orc", "avro", "text", "delta")
_OPTIONS = {
    **dict.fromkeys(("sep", "delim", "delimiter"), "sep"),
    "nullstr": "nullValue",
    "quote": "quote",
    "escape": "escape",
    "comment": "comment",
    "encoding": "encoding",
}
#: Options of DuckDB on which no row depends, or which only help it to find the columns.
_WITHOUT_EFFECT = re.compile(
    r"auto_detect|sample_size|union_by_name|hive_types_autocast|maximum_object_size|buffer_size|max_line_size|parallel|"
    r"records|compression|binary_as_string|maximum_depth|map_inference_threshold|field_appearance_threshold"
)
_TYPES = ("columns", "types", "dtypes", "column_types")
_FOLDERS = "hive_partitioning: columns of the folders' names are not read"


@dataclass(frozen=True, slots=True)
class WrittenRead:
    """A read in a text. `end` is exclusive."""

    begin: int
    end: int
    read: SourceRead


def find_reads(sql: str) -> Iterator[WrittenRead]:
    """The reads of files in a query, in order. Raises UnsupportedReadError, SqlError."""
    tokens = tokens_of(SourceText(sql))
    index = 0
    while index < len(tokens):
        if (found := _read_at(tokens, index)) is None:
            index += 1
            continue
        read, after = found
        first, last = stream_around(tokens, index, after - 1)
        yield WrittenRead(tokens[first].start, tokens[last].end, read)
        index = last + 1


def read_of_place(text: str) -> SourceRead | None:
    """The read of `external_location`, if it is a call. Raises UnsupportedReadError, SqlError."""
    return next((written.read for written in find_reads(f"FROM {text}")), None) if "(" in text else None


def _read_at(tokens: Sequence[Token], index: int) -> tuple[SourceRead, int] | None:
    """The read that begins at a token, and the index of the token after it."""
    token, name = tokens[index], tokens[index].text.lower()
    follows = tokens[index + 1].text if index + 1 < len(tokens) else ""
    before = tokens[index - 1].text.upper() if index else ""
    if token.kind == "string" and before in ("FROM", "JOIN"):
        path = token.value()
        if not _format_of(path):  # a column or a text, as in extract(year FROM "sold_at") or trim(both ' ' FROM name)
            return None
        return read_of_options(_format_of(path), path, {}, None, infers=True), index + 1
    if token.kind != "word":
        return None
    if follows == "." and name in _OF_SPARK and before in ("FROM", "JOIN", ",", "STREAM", "("):
        path_token = tokens[index + 2] if index + 2 < len(tokens) else token
        if path_token.kind == "name" and "/" in path_token.value():
            return read_of_options(name, path_token.value(), {}, None, infers=True), index + 3
    if follows == "(" and (name in _OF_DATABRICKS or name in _OF_DUCKDB):
        close = closing_bracket(tokens, index + 1)
        if close is None:
            raise UnsupportedReadError(token.text, "its bracket is not closed")
        arguments = list(tokens[index + 2 : close])
        read = read_of_call(name, arguments) if name in _OF_DATABRICKS else _duckdb_read(name, arguments)
        return read, close + 1
    return None


def _format_of(path: str) -> str:
    """The format of a file by its name; "" if the name does not end in one."""
    match = re.search(r"\.(csv|tsv|json|jsonl|ndjson|parquet)(\.gz|\.zst|\.bz2)?$", path)
    return {"tsv": "csv", "jsonl": "json", "ndjson": "json"}.get(match[1], match[1]) if match else ""


def _duckdb_read(function: str, arguments: list[Token]) -> SourceRead:
    """The read of a function of DuckDB, from the tokens between its brackets."""
    paths, options, types, notes = list[str](), dict[str, str](), dict[str, str](), list[str]()
    is_text, names = False, tuple[str, ...]()
    for argument in split_arguments(arguments):
        key = argument[0].text.lower()
        value = [t for t in argument[1:] if t.text not in (":", "=", ">")] if _is_named(argument) else argument
        if not _is_named(argument):
            paths += [_path_of(function, part) for part in split_arguments(_unbracketed(value, "["))]
        elif key in _TYPES:
            types |= (pairs := _pairs_of(function, argument))
            names = tuple(pairs) if key == "columns" else names
        elif key == "names":
            names = tuple(constant_of(function, part) for part in split_arguments(_unbracketed(value, "[")))
        elif key == "header":
            options["header"] = str(constant_of(function, value).lower() in ("true", "1")).lower()
        elif key in _OPTIONS:
            options |= {_OPTIONS[key]: constant_of(function, value)}
        elif key == "ignore_errors":
            options["mode"] = "DROPMALFORMED"
        elif key == "format":
            options |= {"multiLine": "true"} if constant_of(function, value) == "array" else {}
        elif key == "hive_partitioning":
            notes += [_FOLDERS] if constant_of(function, value).lower() in ("true", "1") else []
        elif key == "all_varchar":
            is_text = constant_of(function, value).lower() == "true"
        elif _WITHOUT_EFFECT.fullmatch(key) is None:
            raise UnsupportedReadError(f"{function}(… {key} …)", "no option of a source has this meaning")
    if len(paths) != 1:
        raise UnsupportedReadError(f"{function} of {len(paths)} paths", "read one folder or pattern")
    hints = ", ".join(f"{quote_name(name)} {type_}" for name, type_ in types.items())
    read = read_of_options(_OF_DUCKDB[function], paths[0], options, None, infers=not is_text, hints=hints)
    return replace(read, names=names if read.format == "csv" else (), notes=(*read.notes, *notes))


def _path_of(function: str, tokens: list[Token]) -> str:
    if any(token.kind == "word" for token in tokens):
        raise UnsupportedReadError(f"{function}({' '.join(t.text for t in tokens)})", "expected a path in quotes")
    return constant_of(function, tokens)


def _is_named(argument: Sequence[Token]) -> bool:
    return len(argument) > 2 and argument[0].kind == "word" and argument[1].text in ("=", ":")


def _pairs_of(function: str, argument: Sequence[Token]) -> Mapping[str, str]:
    """The entries of `columns = {'id': 'INTEGER'}`."""
    begin = next((i for i, token in enumerate(argument) if token.text == "{"), None)
    if begin is None:
        raise UnsupportedReadError(f"{function}(… {argument[0].text} …)", "expected {'column': 'type', …}")
    pairs = dict[str, str]()
    for entry in split_arguments(_unbracketed(list(argument[begin:]), "{")):
        colon = next((i for i, token in enumerate(entry) if token.text == ":"), len(entry))
        pairs[entry[0].value()] = constant_of(function, entry[colon + 1 :])
    return pairs


def _unbracketed(tokens: list[Token], bracket: str) -> list[Token]:
    return tokens[1:-1] if tokens and tokens[0].text == bracket else tokens

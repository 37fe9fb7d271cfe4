"""Infer the statement of a source from its files, without Spark.

A sample of up to three files is read: the first, the middle and the last, at most 4 MB of each. The columns of csv are
inferred as Spark's `inferSchema` does, with four differences. Whole numbers are bigint, because a later file may
exceed an int. Numbers with leading zeros, such as postcodes, are text. Prices are decimals (prices.py), also in json.
Dates and times are only recognised in ISO 8601, which Spark reads without an option.
"""

import bz2
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_if_needed, string_text
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.csv_header import option, plain_marks
from tussock.jobs.sources.errors import NoFilesError
from tussock.jobs.sources.listing import ListedFile, has_interval, list_files, open_file, server_options, without_query
from tussock.jobs.sources.parquet_schema import column_objection
from tussock.jobs.sources.prices import price_type
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.errors import InputError
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.range_file import RangeFile
from tussock.statestore.types import array_name, map_name, struct_name

FORMATS = ("csv", "json", "parquet")
ROWS = 10  # of a preview
_SAMPLE_BYTES = 4 << 20
_ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_UNPACKED: dict[str, Callable[[], Any]] = {".gz": lambda: zlib.decompressobj(31), ".bz2": bz2.BZ2Decompressor}
_SEPARATORS = (",", ";", "\t", "|")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

_WHOLE = r"[+-]?(0|[1-9][0-9]*)"
#: The types of csv columns with the texts that they accept, narrowest first. All other columns are strings.
_TEXTS = (
    ("boolean", r"(?i:true|false)"),
    ("bigint", r"[+-]?(0|[1-9][0-9]{0,17})"),
    ("decimal(38,0)", r"[+-]?(0|[1-9][0-9]{0,37})"),
    ("double", rf"({_WHOLE}(\.[0-9]*)?|[+-]?\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(NaN|Infinity)|-?Inf"),
    ("date", r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    (
        "timestamp",
        r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
        r"([ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
    ),
)
_DUCK_TYPES = {
    "boolean": "boolean",
    "bigint": "bigint",
    "hugeint": "decimal(38,0)",
    "ubigint": "decimal(20,0)",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp with time zone": "timestamp",
}


class CannotPreviewError(InputError):
    """The columns of a source's files cannot be inferred."""

    path: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path}: found {self.finding}, expected {self.expected}. Nothing was created."


@dataclass(frozen=True, slots=True)
class SourcePreview:
    """The inferred source.

    Args:
        source: the statement.
        rows: the first rows of the first file; csv values are still texts.
        files: the number of files that the path means, and `nbytes` their size.
        notes: sentences for the user about the inference.
    """

    source: CreateSource
    rows: pa.Table
    files: int
    nbytes: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Inferred:
    fields: tuple[Field, ...]
    options: dict[str, str]
    rows: pa.Table
    notes: tuple[str, ...] = ()


def preview_source(path: str, name: str = "", format: str = "", *, header: bool = True) -> SourcePreview:
    """Infer a source from its files.

    Args:
        path: a file, a folder, a glob or a template: an absolute path of this machine, or `s3://…`.
        name: of the source; default: from the path.
        format: one of FORMATS; default: from the names of the files.
        header: False: the first record of a csv file is a row, also if it looks like names.

    Raises: CannotPreviewError; MissingPathError, NoFilesError, BadPathError; errors of the object store.
    Cost: a listing, and up to 12 MB.
    """
    name = name or _name_of(path)
    files = [file for file in list_files(path, {}) if file.size]
    if not files:
        raise NoFilesError(name, path, format or "csv")
    format = format or _format_of(path, files[0].path)
    if format not in FORMATS:
        reason = f"one of {', '.join(FORMATS)}; for other formats, CREATE SOURCE without columns infers them by Spark"
        raise CannotPreviewError(path, f"the format {format!r}", reason)
    sample = list(dict.fromkeys((files[0], files[len(files) // 2], files[-1])))
    if format == "parquet":
        inferred = _infer_parquet(path, name, files[0])
    else:
        texts = [_sample_of(file, path) for file in sample]
        with TemporaryFolder("preview") as folder:
            places = [Path(folder, f"{i}.txt") for i in range(len(texts))]
            for place, text in zip(places, texts, strict=True):
                place.write_bytes(text)
            inferred = _infer_csv(sample, places, header) if format == "csv" else _infer_json(path, sample, places)
    objections = [(field, column_objection(field)) for field in inferred.fields]
    fields = tuple(field for field, objection in objections if objection is None)
    if not fields:
        raise CannotPreviewError(files[0].path, "no column of a supported type", "a file with such a column")
    left_out = [f"Column {f.name!r} is left out: {objection}." for f, objection in objections if objection is not None]
    notes = [*left_out, *inferred.notes, *_interval_note(path, files)]
    source = CreateSource(name, format, fields, {"path": path, **inferred.options})
    return SourcePreview(source, inferred.rows, len(files), sum(f.size for f in files), tuple(notes))


def infer_text_fields(format: str, file: ListedFile, options: Mapping[str, str]) -> tuple[Field, ...]:
    """Infer the columns of one csv file with a header, or of one json file, as a source with these options reads it.

    Empty if the options leave the records to Spark. Raises CannotPreviewError; errors of its store. Cost: up to 4 MB.
    """
    if format == "csv" and plain_marks(options) is None:
        return ()
    text = _sample_of(file, file.path, options)
    with TemporaryFolder("preview") as folder:
        place = Path(folder, "0.txt")
        place.write_bytes(text)
        if format == "csv":
            return _fields_of_csv(file, place, options)
        fields = _infer_json(file.path, [file], [place]).fields
    return tuple(field for field in fields if _is_written(field.name, text.decode()))


def _fields_of_csv(file: ListedFile, place: Path, options: Mapping[str, str]) -> tuple[Field, ...]:
    """The columns of a file with a header. Requires: `options` are plain."""
    marks = plain_marks(options)
    assert marks is not None, "the caller has checked the options"
    table, _ = _texts_of(file, place, *marks, True)
    absent = option(options, "nullvalue")
    trims = any((option(options, f"ignore{end}whitespace") or "").lower() == "true" for end in ("leading", "trailing"))
    fields = []
    for name, texts in zip(table.column_names, table.columns, strict=True):
        values = pc.utf8_trim(texts, " \t") if trims else texts
        if absent is not None:
            values = pc.if_else(pc.equal(values, absent), pa.scalar(None, pa.string()), values)
        fields.append(_infer_field(name.strip(" \t"), _type_of(values), values))
    return tuple(fields)


def _is_written(name: str, text: str) -> bool:
    """Whether a name occurs in a JSON text. DuckDB renames a key that differs from another one in case only."""
    return any(json.dumps(name, ensure_ascii=escapes) in text for escapes in (False, True))


def source_text(source: CreateSource) -> str:
    """The CREATE SOURCE statement with one line per column."""
    columns = ",\n".join(f"    {quote_if_needed(f.name)} {f.type}" for f in source.fields)
    options = ", ".join(f"{key} {string_text(value)}" for key, value in source.options.items())
    return f"CREATE SOURCE {quote_if_needed(source.name)} (\n{columns}\n) USING {source.format} OPTIONS ({options});"


def _name_of(path: str) -> str:
    """A name for the source: the last part of the path without placeholders, as a word."""
    parts = [re.sub(r"\{[^}]*\}|[*?\[\]]", "", part) for part in without_query(path).split("/")]
    words = [re.sub(r"[^a-z0-9]+", "_", part.split(".")[0].lower()).strip("_") for part in parts]
    return next((word for word in reversed(words) if re.match("[a-z]", word)), "source")


def _format_of(path: str, file: str) -> str:
    endings = [ending for ending in Path(file).suffixes if ending not in _UNPACKED]
    format_name = _ENDINGS.get(endings[-1].lower()) if endings else None
    if format_name is None:
        finding = "a name with another ending" if file == path else f"the file {file}"
        raise CannotPreviewError(path, finding, f"a name that ends in {', '.join(_ENDINGS)}, or --format")
    return format_name


def _interval_note(path: str, files: Sequence[ListedFile]) -> Iterator[str]:
    if has_interval(path) or len(files) < 2 or "*" not in path:
        return
    names = [file.path.rpartition("/")[2] for file in files]
    if len({_DAY.sub("", name) for name in names}) == 1 and _DAY.search(names[0]):
        folder, _, _ = path.rpartition("/")
        daily = f"{folder}/{_DAY.sub('{start:%Y-%m-%d}', names[0])}"
        yield f"The files are named by day. With the path {daily}, a scheduled run reads the file of its day."


def _sample_of(file: ListedFile, path: str, options: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """The first 4 MB of a file, unpacked, up to the end of a line."""
    store, name = open_file(file.path, server_options(path, options))
    size = min(file.size, _SAMPLE_BYTES)
    data = store.get_ranges(name, [(0, size)])[0]
    unpacker = _UNPACKED.get(Path(file.path).suffix.lower())
    if unpacker is not None:
        try:
            data = unpacker().decompress(data, _SAMPLE_BYTES)
        except (zlib.error, OSError) as err:
            packed = "a file packed as the end of its name says"
            raise CannotPreviewError(file.path, f"bytes that cannot be unpacked ({err})", packed) from err
    whole = size == file.size and unpacker is None
    if not whole and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise CannotPreviewError(file.path, f"bytes that are not UTF-8 at byte {err.start}", "a text in UTF-8") from err
    if not text.strip():
        raise CannotPreviewError(file.path, "no text", "records")
    return text.encode()


def _describe_found(format: str, err: Exception, files: Sequence[ListedFile], places: Sequence[Path]) -> str:
    """Return what a library found instead of a format, with the names of the files instead of their samples."""
    said = str(err).splitlines()[0].strip()
    for file, place in zip(files, places, strict=True):
        said = said.replace(str(place), file.path)
    return f"no {format} ({said})"


# --- csv --------------------------------------------------------------------------------------------------------------


def _infer_csv(files: Sequence[ListedFile], places: Sequence[Path], header: bool) -> _Inferred:
    sniff = "SELECT Delimiter, Quote, Escape, HasHeader FROM sniff_csv(?, sample_size = -1)"
    try:
        with duckdb.connect() as duck:
            separator, quote, escape, has_header = duck.execute(sniff, [str(places[0])]).fetchall()[0]
    except duckdb.Error as err:
        raise CannotPreviewError(
            files[0].path, _describe_found("csv", err, files, places), "records with a separator"
        ) from err
    if not (line := places[0].read_bytes().splitlines()[0]).count(separator.encode()):
        # DuckDB splits nothing if records have different numbers of fields. Their header still shows the separator.
        separator = next((s for s in _SEPARATORS if s.encode() in line), ",")
    has_header = header and bool(has_header)
    quote = quote if len(quote) == 1 else '"'
    tables, ragged = [], 0
    for file, place in zip(files, places, strict=True):
        table, skipped = _texts_of(file, place, separator, quote, has_header)
        ragged += skipped
        tables.append(table)
    names, notes = tables[0].column_names, []
    for file, table in zip(files, tables, strict=True):
        if table.column_names != names:
            notes.append(f"{file.path} has other columns: {', '.join(table.column_names)}.")
    if ragged:
        notes.append(f"Sampled records with another number of fields: {ragged}. on_error 'quarantine' sets them aside.")
    alike = [table for table in tables if table.column_names == names]
    whole = pa.concat_tables(alike)
    fields = tuple(
        _infer_field(name, _type_of(column), column) for name, column in zip(names, whole.columns, strict=True)
    )
    options = {"header": "true"} if has_header else {}
    if separator != ",":
        options["sep"] = "\\t" if separator == "\t" else separator
    if quote != '"':
        options["quote"] = quote
    if escape == quote or _doubles_quotes(places, quote):
        options["escape"] = quote  # Spark's default is a backslash
    if any(_has_newline(column) for column in whole.columns):
        options["multiLine"] = "true"
    if not has_header:
        notes.append("The files have no header, so the names of the columns are placeholders.")
    notes += _price_note(fields)
    notes.append(f"The types come from {whole.num_rows:,} sampled records in {len(alike)} of the files.")
    return _Inferred(fields, options, tables[0].slice(0, ROWS), tuple(notes))


def _texts_of(file: ListedFile, place: Path, separator: str, quote: str, header: bool) -> tuple[pa.Table, int]:
    """A file with all columns as texts, and the number of records that were left out."""
    skipped: list[int] = []

    def skip_row(row: Any) -> str:
        skipped.append(1)
        return "skip"

    parsing = pacsv.ParseOptions(
        delimiter=separator, quote_char=quote or False, newlines_in_values=True, invalid_row_handler=skip_row
    )
    reading = pacsv.ReadOptions(use_threads=False, autogenerate_column_names=not header, block_size=_SAMPLE_BYTES)
    try:
        first = pacsv.open_csv(place, reading, parsing).schema.names
        kinds = dict.fromkeys(first, pa.string())
        converting = pacsv.ConvertOptions(column_types=kinds, strings_can_be_null=True, null_values=[""])
        skipped.clear()
        table = pacsv.read_csv(place, reading, parsing, converting)
    except pa.ArrowInvalid as err:
        raise CannotPreviewError(
            file.path, _describe_found("csv", err, [file], [place]), "records with a separator"
        ) from err
    names = [f"c{i + 1}" for i in range(table.num_columns)] if not header else table.column_names
    if twice := [n for i, n in enumerate(names) if n.lower() in {m.lower() for m in names[:i]}]:
        raise CannotPreviewError(file.path, f"two columns named {twice[0]!r}", "different names in the header")
    names = [name or f"c{i + 1}" for i, name in enumerate(names)]
    return table.rename_columns(names), len(skipped)


def _infer_field(name: str, kind: str, texts: pa.Array | pa.ChunkedArray) -> Field:
    """A column, with a decimal type if its numbers with a fraction are prices. `texts`: its numbers as strings."""
    return Field(name, (price_type(name, texts) or kind) if kind == "double" else kind)


def _price_note(fields: Sequence[Field]) -> list[str]:
    prices = [f"{field.name} {field.type}" for field in fields if re.fullmatch(r"decimal\(18,[1-9]\)", field.type)]
    exact = "Amounts of money are exact decimals; more digits after the point would be rounded"
    return [f"{exact}: {', '.join(prices)}."] if prices else []


def _type_of(column: pa.ChunkedArray) -> str:
    """The narrowest type that accepts every text; string for a column without values."""
    values = column.drop_null()
    if len(values) == 0:
        return "string"
    for kind, pattern in _TEXTS:
        if pc.all(pc.match_substring_regex(values, f"^(?:{pattern})$")).as_py():
            if kind in ("date", "timestamp") and not _is_date(values):
                return "string"
            return kind
    return "string"


def _is_date(values: pa.ChunkedArray) -> bool:
    """Whether the first ten characters of each text are a day that exists."""
    with suppress(pa.ArrowInvalid):
        pc.utf8_slice_codeunits(values, 0, 10).cast(pa.date32())
        return True
    return False


def _doubles_quotes(places: Sequence[Path], quote: str) -> bool:
    doubled = re.compile(re.escape(quote.encode()) + rb"{2}(?=[^,;\t|\r\n])")
    return any(doubled.search(place.read_bytes()) for place in places)


def _has_newline(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring(column, "\n")).as_py())


# --- json and parquet -------------------------------------------------------------------------------------------------


_OBJECTS = "one object with keys per line, or an array of objects"


def _infer_json(path: str, files: Sequence[ListedFile], places: Sequence[Path]) -> _Inferred:
    is_array = places[0].read_bytes().lstrip()[:1] == b"["
    query = (
        f"FROM read_json(?, format = '{'array' if is_array else 'newline_delimited'}', records = true, "
        "sample_size = -1, union_by_name = true, maximum_depth = -1, map_inference_threshold = -1, "
        "dateformat = '%Y-%m-%d')"
    )
    try:
        with duckdb.connect() as duck:
            duck.execute("SET TimeZone = 'UTC'")
            relation = duck.sql(query, params=[[str(place) for place in places]])
            kinds = [_spark_name(kind) for kind in relation.types]
            rows = relation.to_arrow_table()
    except duckdb.BinderException as err:
        raise CannotPreviewError(path, "json values that are no objects, or objects without keys", _OBJECTS) from err
    except duckdb.Error as err:
        raise CannotPreviewError(path, _describe_found("json", err, files, places), _OBJECTS) from err
    texts = [c.cast(pa.string()) if k == "double" else c for c, k in zip(rows.columns, kinds, strict=True)]
    fields = tuple(map(_infer_field, rows.column_names, kinds, texts))
    note = f"The types come from {rows.num_rows:,} sampled records in {len(places)} of the files."
    return _Inferred(
        fields, {"multiLine": "true"} if is_array else {}, rows.slice(0, ROWS), (*_price_note(fields), note)
    )


def _spark_name(kind: Any) -> str:
    match kind.id:
        case "list":
            return array_name(_spark_name(kind.children[0][1]))
        case "struct":
            return struct_name([(name, _spark_name(part)) for name, part in kind.children])
        case "map":
            return map_name(*(_spark_name(part) for _, part in kind.children))
        case "decimal":
            (_, precision), (_, scale) = kind.children
            return f"decimal({precision},{scale})"
        case word:
            return _DUCK_TYPES.get(word, "string")


def _infer_parquet(path: str, name: str, file: ListedFile) -> _Inferred:
    def no_spark() -> Any:
        raise AssertionError("the columns of Parquet files are read without Spark")

    source = CreateSource(name, "parquet", (), {"path": path})
    fields = reader_of(source).describe(source, no_spark)
    store, leaf = open_file(file.path, server_options(path, {}))
    with pa.PythonFile(RangeFile(store, leaf, file.size), mode="r") as opened:
        batches = pq.ParquetFile(opened).iter_batches(batch_size=ROWS)
        first = next(iter(batches), None)
    rows = pa.table({f.name: pa.array([], pa.string()) for f in fields}) if first is None else pa.table(first)
    return _Inferred(fields, {}, rows, ("The columns are the first file's.",))

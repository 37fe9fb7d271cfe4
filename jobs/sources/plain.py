"""Plain text files: read by actors, without Spark, with the rows that Spark's reader would return.

A file is plain if a scan proves that Spark's reader parses it to the same rows; docs/design/plain-files.md has the
rules. Any other file is read by Spark, as a whole.

    find_reason_for_spark  the options or columns of a source are not on the tested list: Spark reads all its files
    reasons_for_spark      the barrier scans the beginning of each new file, and leaves to Spark what is not plain there
    read                   an actor parses a file. A file that is not plain further down is an OnlySparkReadsError: a
                           superseding barrier leaves it to Spark
"""

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import numpy as np
import pyarrow as pa

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import DividedInput, Division, EngineReader, ReadPart, TimeZones
from tussock.jobs.sources.errors import OnlySparkReadsError
from tussock.jobs.sources.file_documents import divided_files, files_to_decide
from tussock.jobs.sources.file_options import OWN_OPTIONS
from tussock.jobs.sources.kept import map_in_threads
from tussock.jobs.sources.pins import PinnedFile, open_pinned, verify_pin
from tussock.jobs.sources.plain_values import DATE_PATTERN, TIME_PATTERNS, NotPlain, TextForm, is_known_zone
from tussock.jobs.sources.rejects import chunk_of, split_rejects
from tussock.jobs.sources.row_ids import ROW_ID_NAME, pack_row_ids
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import TussockError
from tussock.statestore.objectstore.range_file import RangeFile
from tussock.statestore.types import arrow_type
from tussock.statestore.zones import RuledZone, digest_of, is_utc

BLOCK_BYTES = 16 << 20
PIECE_BYTES = 1 << 20  # of a block, parsed by one thread
_FIRST_BYTES = 256 << 10  # scanned by the driver
_MAX_LINE_BYTES = 4 << 20
_MAX_COLUMNS = 10_000
#: The last part of a file's name decides whether Hadoop decompresses the file.
_SUFFIXES = ("csv", "tsv", "psv", "tab", "txt", "dat", "data", "log", "json", "jsonl", "ndjson")
_GZIP = "gz"
#: Options of all text formats with which files may be plain.
TEXT_OPTIONS: Mapping[str, Collection[str]] = {
    "mode": ("failfast",),
    "multiline": ("false",),
    "encoding": ("utf-8", "utf8"),
    "charset": ("utf-8", "utf8"),
    "dateformat": (DATE_PATTERN,),
    "timestampformat": tuple(TIME_PATTERNS),
    "timestampntzformat": tuple(TIME_PATTERNS),
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class PlainPart(msgspec.Struct, frozen=True):
    """A file for one actor, and the time zone of its times without an offset, by its recorded rules."""

    file: PinnedFile
    time_zone: str


_part = decoder_of(PlainPart)


class PlainTexts(EngineReader):
    """Reads the plain files of a text format."""

    def find_reason_for_spark(self, source: CreateSource) -> str | None:
        for name, value in format_options(source.options).items():
            if not self.is_plain_option(name, value):
                return f"option {name} {value!r} is not on the list of plain options"
        if len(source.fields) > _MAX_COLUMNS:
            return f"it has more than {_MAX_COLUMNS:,} columns"
        for field in source.fields:
            if not self.is_plain_type(field.type):
                return f"type {field.type} of column {field.name!r} is not on the list of plain types"
        return self.find_format_reason(source)

    def find_format_reason(self, source: CreateSource) -> str | None:
        """Return another reason why no file of the source is plain; None if there is none."""
        return None

    def is_plain_option(self, name: str, value: str) -> bool:
        """Return whether files may be plain with an option (its name in lower case)."""
        if name == "timezone":
            return is_known_zone(value)
        plain = self.plain_options().get(name, ())
        return value in plain or value.lower() in plain

    def plain_options(self) -> Mapping[str, Collection[str]]:
        """Return the values of options with which files may be plain, by lower-case name."""
        return TEXT_OPTIONS

    def is_plain_type(self, kind: str) -> bool:
        """Return whether values of a type may be plain."""
        raise NotImplementedError

    def records_start(self, source: CreateSource, file: PinnedFile, block: bytes) -> int:
        """Return the first byte of the records in the first block of a file. Raises NotPlain."""
        return 0

    def parse_columns(
        self, source: CreateSource, fields: Sequence[Field], block: bytes, wanted: Sequence[int], form: TextForm
    ) -> list[pa.Array]:
        """Parse lines: the columns `wanted` of `fields`, ascending, typed as declared. Raises NotPlain."""
        raise NotImplementedError

    def reasons_for_spark(self, source: CreateSource, document: msgspec.Raw, zones: TimeZones) -> Mapping[str, str]:
        parts = [PlainPart(file, _zone_of(source, file, zones)) for file in files_to_decide(document)]
        reasons = map_in_threads(lambda part: self._why_not_plain(source, part), parts)
        return {part.file.path: reason for part, reason in zip(parts, reasons, strict=True) if reason is not None}

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        """See EngineReader. Large files come first."""
        plain, rest, why = divided_files(document, division.by_spark)
        parts = [PlainPart(file, _zone_of(source, file, division.zones)) for file in plain]
        parts.sort(key=lambda part: (-part.file.size, part.file.number))
        return DividedInput(tuple(msgspec.Raw(msgspec.json.encode(part)) for part in parts), rest, why)

    def item_of(self, part: msgspec.Raw) -> str:
        return _part.decode(part).file.path

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        of = _part.decode(part)
        source = source.as_of(of.file.number)
        verify_pin(of.file, source.options)
        try:
            rows = self._parse_rows(source, of, columns)
        except NotPlain as err:
            verify_pin(of.file, source.options)  # the scan may have met a file in the middle of a change
            raise OnlySparkReadsError(source.name, of.file.path, str(err)) from err
        verify_pin(of.file, source.options)
        return split_rejects(chunk_of(rows, of.file.weight))

    def _parse_rows(self, source: CreateSource, part: PlainPart, columns: Sequence[int]) -> pa.Table:
        """Parse a file or a portion of one: the columns as declared, and `_row_id`. Raises NotPlain."""
        file, fields, form = part.file, source.fields[: source.width_of(part.file.number)], _text_form(source, part)
        wanted = sorted({c for c in columns if c < len(fields)})
        arrays_by_column: dict[int, list[pa.Array]] = {c: [] for c in wanted}
        first, position, count = file.first_record, 0, 0
        left = file.record_count
        for records in self._read_blocks(source, file):
            if left is not None and count >= left:
                break
            if position < first and position + (lines := records.count(b"\n")) < first and not _has_blank_line(records):
                position += lines
                continue
            arrays, rows = self._parse_records(source, fields, records, wanted, form)
            start = min(max(first - position, 0), rows)
            taken = rows - start if left is None else min(rows - start, left - count)
            position, count = position + rows, count + taken
            for c, array in zip(wanted, arrays, strict=True):
                arrays_by_column[c].append(array.slice(start, taken))
        typed = [
            pa.chunked_array(arrays_by_column[c], arrow_type(source.fields[c].type))
            if c in arrays_by_column
            else pa.nulls(count, arrow_type(source.fields[c].type))
            for c in columns
        ]
        row_ids = pack_row_ids(file.number, np.arange(first, first + count, dtype=np.int64))
        return pa.table([*typed, row_ids], names=[*(f"c{i}" for i in range(len(columns))), ROW_ID_NAME])

    def _parse_records(
        self, source: CreateSource, fields: Sequence[Field], records: bytes, wanted: Sequence[int], form: TextForm
    ) -> tuple[list[pa.Array], int]:
        """Return the wanted columns of a block and its number of records. Raises NotPlain."""
        if not records or (records[0] in b"\r\n" and not records.strip(b"\r\n")):
            return [pa.nulls(0, arrow_type(fields[c].type)) for c in wanted], 0
        counted = wanted or [0]
        arrays = self.parse_columns(source, fields, records, counted, form)
        return arrays if wanted else [], len(arrays[0])

    def _why_not_plain(self, source: CreateSource, part: PlainPart) -> str | None:
        """Return why the beginning of a file is not plain; None if it may be plain.

        An error is no reason: it is met again where it is reported, by an actor.
        """
        file, source = part.file, source.as_of(part.file.number)
        fields = source.fields[: source.width_of(file.number)]
        if (never := self.find_reason_for_spark(source)) is not None:
            return never
        try:
            records = next(iter(self._read_blocks(source, file, _FIRST_BYTES)), b"")
            self._parse_records(source, fields, records, range(len(fields)), _text_form(source, part))
        except NotPlain as err:
            return str(err)
        except (TussockError, OSError):
            return None
        return None

    def _read_blocks(self, source: CreateSource, file: PinnedFile, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield whole lines of a file's records, about `size` bytes at a time. Raises NotPlain."""
        first = True
        for block in _read_lines(file, source.options, size):
            if longest_line(block) > _MAX_LINE_BYTES:
                raise NotPlain(f"a line is longer than {_MAX_LINE_BYTES >> 20} MB")
            _require_plain_text(block)  # of the header too, which ends at the first line feed only in plain text
            if not first:
                yield block
                continue
            first = False
            block = block.removeprefix(BYTE_ORDER_MARK)  # Hadoop's reader of lines omits one at a file's begin
            yield block[self.records_start(source, file, block) :]


def _zone_of(source: CreateSource, file: PinnedFile, zones: TimeZones) -> RuledZone:
    """Return the zone of a file's times without an offset."""
    name = format_options(source.as_of(file.number).options).get("timezone")
    return zones.of_store if name is None else zones.named(name)


def _text_form(source: CreateSource, part: PlainPart) -> TextForm:
    options = format_options(source.options)
    if not (is_utc(part.time_zone) or digest_of(part.time_zone)):
        raise NotPlain(f"no rules of time zone {part.time_zone!r} are recorded")
    return TextForm(part.time_zone, options.get("timestampformat", ""), options.get("timestampntzformat", ""))


def format_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a source's format by lower-case name, without the options of Tussock and of Hadoop."""
    return {
        name.lower(): value for name, value in options.items() if name not in OWN_OPTIONS and not name.startswith("fs.")
    }


def longest_line(block: bytes) -> int:
    """Return an upper bound of the bytes of a line. Cost: one pass, only if a line may exceed PIECE_BYTES."""
    if len(block) <= PIECE_BYTES:
        return len(block)
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    return int(np.diff(ends, prepend=-1, append=len(block)).max()) + 1


def _has_blank_line(block: bytes) -> bool:
    """Return whether a block may have lines that are no records."""
    return block[:1] in (b"\n", b"\r") or b"\n\n" in block or b"\n\r" in block


def _require_plain_text(block: bytes) -> None:
    """Require UTF-8 without NULs, and lines that end with LF or CR LF. Raises NotPlain."""
    if b"\0" in block:
        raise NotPlain("it has a NUL character")
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        raise NotPlain("a carriage return is not followed by a line feed")
    offsets = pa.py_buffer(np.array([0, len(block)], np.int32))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(block)]).validate(full=True)
    except pa.ArrowInvalid as err:
        raise NotPlain("it is not UTF-8") from err


def _read_lines(file: PinnedFile, options: Mapping[str, str], size: int) -> Iterator[bytes]:
    """Yield a file's bytes, about `size` at a time, cut after line feeds. The last line may lack one."""
    rest = b""
    for piece in _read_pieces(file, options, size):
        end = piece.rfind(b"\n") + 1
        if not end:
            rest += piece
            if len(rest) > _MAX_LINE_BYTES:
                raise NotPlain(f"a line is longer than {_MAX_LINE_BYTES >> 20} MB")
            continue
        yield rest + piece[:end]
        rest = piece[end:]
    if rest:
        yield rest


def _read_pieces(file: PinnedFile, options: Mapping[str, str], size: int) -> Iterator[bytes]:
    """Yield a file's decompressed bytes, about `size` at a time. Raises NotPlain."""
    suffix = file.path.rpartition("/")[2].rpartition(".")
    if suffix[1] and suffix[2] not in (*_SUFFIXES, _GZIP):
        raise NotPlain(f"the suffix .{suffix[2]} may be one of a compression")
    with _open_bytes(file, options) as opened:
        if suffix[2] != _GZIP or not suffix[1]:
            while piece := opened.read(size):
                yield piece
            return
        unpacked = zlib.decompressobj(wbits=31)
        try:
            while piece := opened.read(max(size >> 2, 1)):
                while piece:
                    yield unpacked.decompress(piece, size)
                    piece = unpacked.unconsumed_tail
                if unpacked.unused_data:
                    raise NotPlain("it has bytes after its first gzip member")
        except zlib.error as err:
            raise NotPlain("it is not gzip") from err
        if not unpacked.eof:
            raise NotPlain("its gzip data is cut short")


def _open_bytes(file: PinnedFile, options: Mapping[str, str]) -> BinaryIO:
    if local := file.local_path:
        return Path(local).open("rb", buffering=0)
    store, name = open_pinned(file, options)
    return cast(BinaryIO, RangeFile(store, name, file.size))

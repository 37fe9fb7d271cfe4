"""Plain CSV records: blocks of lines as columns, without Spark. docs/design/plain-files.md defines plain."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.csv_header import FIRST_BYTES, has_header, is_enforced, surely_agrees
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.plain import (
    BYTE_ORDER_MARK,
    PIECE_BYTES,
    TEXT_OPTIONS,
    PlainTexts,
    format_options,
    longest_line,
)
from tussock.jobs.sources.plain_values import NotPlain, TextForm, is_plain_text_type, parse_texts
from tussock.statestore.vnode import one_array

SEPARATORS = (",", ";", "|", "\t", ":", "~", "^")
_TAB = r"\t"  # how users may write a tab
_OPTIONS: Mapping[str, Collection[str]] = {
    **TEXT_OPTIONS,
    "header": ("true", "false"),
    "enforceschema": ("true", "false"),
    "inferschema": ("true", "false"),
    "sep": (*SEPARATORS, _TAB),
    "delimiter": (*SEPARATORS, _TAB),
    "quote": ('"',),
    "escape": ("\\", '"'),
    "ignoreleadingwhitespace": ("false",),
    "ignoretrailingwhitespace": ("false",),
}
_QUOTE, _BACKSLASH, _LINE_FEED, _CARRIAGE_RETURN = ord('"'), ord("\\"), 10, 13
_BLANKS = bytes(range(ord(" ") + 1))  # which Java trims
_LINE_WITH_MARK = b"\n" + BYTE_ORDER_MARK
_NULL = re.compile(r"|[A-Za-z0-9_./\\#?-]+")  # values of nullValue


@dataclass(frozen=True, slots=True)
class CsvForm:
    """The form of a source's records.

    Args:
        doubled: a quote inside a quoted value is written twice (the option escape is a quote). Otherwise a quoted value
            contains neither quotes nor backslashes.
        null: an unquoted or quoted value that is NULL, besides an unquoted empty value.
    """

    separator: str = ","
    doubled: bool = False
    null: str = ""
    texts: TextForm = field(default_factory=TextForm)


def csv_columns(block: bytes, fields: Sequence[Field], wanted: Collection[int], form: CsvForm) -> list[pa.Array]:
    """Parse whole lines of UTF-8 without NULs and lone carriage returns.

    Args:
        fields: the columns of the records, all of them.
        wanted: indices into `fields` of the columns to return, in their order. The other columns are parsed too.

    Returns: the wanted columns, (records,) each, typed as declared.
    Raises: NotPlain.
    """
    if block.startswith(BYTE_ORDER_MARK) or _LINE_WITH_MARK in block:
        raise NotPlain("a line begins with a byte order mark")  # which Arrow omits at the begin of a block
    if not block.endswith(b"\n"):
        block += b"\n"  # at an end without one, Arrow takes an empty value for quoted if the one before it is
    quoted = b'"' in block
    if quoted:
        _require_regular_quotes(block, form)
    needed = [c for c, f in enumerate(fields) if c in wanted or f.type != "string"] or [0]
    names = [str(c) for c in range(len(fields))]
    blank_lines = len(fields) == 1 or form.separator.isspace()
    read = names if blank_lines else [names[c] for c in needed]
    try:
        table = csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(column_names=names, block_size=max(PIECE_BYTES, longest_line(block))),
            csv.ParseOptions(delimiter=form.separator, quote_char='"' if quoted else False, double_quote=form.doubled),
            csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=read,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=not form.null,
            ),
        )
    except pa.ArrowInvalid as err:
        raise NotPlain(f"a record does not have the {len(fields)} columns") from err
    if blank_lines:
        _require_no_blanks(table)
    values_by_column = {}
    for c in needed:
        texts = one_array(table[names[c]])
        if form.null:
            texts = pc.if_else(pc.equal(texts, form.null), pa.scalar(None, pa.string()), texts)
        values = parse_texts(texts, fields[c].type, fields[c].name, form.texts)
        if c in wanted:
            values_by_column[c] = values
    return [values_by_column[c] for c in sorted(values_by_column)]


def _require_no_blanks(table: pa.Table) -> None:
    """Raise NotPlain for a line of blanks only: Spark skips it, also if the separator is a blank."""
    blank = None
    for column in table.columns:
        is_blank = pc.fill_null(pc.match_substring_regex(column, r"\A[\x00-\x20]*\z"), True)
        blank = is_blank if blank is None else pc.and_(blank, is_blank)
    if pc.any(blank).as_py() and not (table.num_columns == 1 and table.column(0).null_count == pc.sum(blank).as_py()):
        raise NotPlain("a line consists of blanks only")


def _require_regular_quotes(block: bytes, form: CsvForm) -> None:
    """Raise NotPlain unless each quote begins or ends a value, within one line."""
    codes = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(codes == _QUOTE)
    if len(quotes) % 2:
        raise NotPlain("a quoted value does not end")
    opens, closes = quotes[0::2], quotes[1::2]
    ends = np.flatnonzero(codes == _LINE_FEED)
    if (np.searchsorted(ends, opens) != np.searchsorted(ends, closes)).any():
        raise NotPlain("a quoted value does not end in its line")
    separator = ord(form.separator)
    before = codes[np.maximum(opens - 1, 0)]
    begins = (opens == 0) | (before == separator) | (before == _LINE_FEED)
    after = codes[closes + 1]  # the block ends with a line feed
    stops = (after == separator) | (after == _LINE_FEED) | (after == _CARRIAGE_RETURN)
    if form.doubled:
        again = closes[:-1] + 1 == opens[1:]  # `""` inside a value: one ends and the next one begins
        begins[1:] |= again
        stops[:-1] |= again
    elif b"\\" in block:
        escapes = np.flatnonzero(codes == _BACKSLASH)
        if (np.searchsorted(escapes, opens) != np.searchsorted(escapes, closes)).any():
            raise NotPlain("a quoted value contains a backslash, which is the escape character")
    if not (begins.all() and stops.all()):
        raise NotPlain("a quote is inside a value")


class PlainCsv(PlainTexts):
    """Reads plain CSV files."""

    def is_plain_type(self, kind: str) -> bool:
        return is_plain_text_type(kind)

    def plain_options(self) -> Mapping[str, Collection[str]]:
        return _OPTIONS

    def find_format_reason(self, source: CreateSource) -> str | None:
        null = format_options(source.options).get("nullvalue", "")
        if not _NULL.fullmatch(null):
            return f"option nullValue {null!r} is not on the list of plain options"
        return None

    def is_plain_option(self, name: str, value: str) -> bool:
        return name == "nullvalue" or super().is_plain_option(name, value)

    def records_start(self, source: CreateSource, file: PinnedFile, block: bytes) -> int:
        if not has_header(source.options):
            return 0
        end = block.find(b"\n") + 1 or len(block)
        if not block[:end].strip(_BLANKS):
            raise NotPlain("its first line is blank")
        checked = file.weight > 0 and not is_enforced(source.options)
        fields = source.fields[: source.width_of(file.number)]
        if checked and not surely_agrees(file, fields, source.options, first=block[:FIRST_BYTES]):
            raise NotPlain("its header is not plain, or names other columns")
        return end

    def parse_columns(
        self, source: CreateSource, fields: Sequence[Field], block: bytes, wanted: Sequence[int], form: TextForm
    ) -> list[pa.Array]:
        options = format_options(source.options)
        separator = options.get("sep", options.get("delimiter", ","))
        is_doubled = options.get("escape") == '"'
        written = "\t" if separator == _TAB else separator
        return csv_columns(block, fields, wanted, CsvForm(written, is_doubled, options.get("nullvalue", ""), form))

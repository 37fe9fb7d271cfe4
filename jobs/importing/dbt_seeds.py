"""The columns of a dbt seed, as `dbt seed` finds them with agate's types.

    null, NULL and an empty value        NULL, in every column
    1, 007                               bigint
    2.5                                  double: dbt has no decimals without `column_types`
    1.0, 1e3 without a fraction in       double, with a note: dbt makes a bigint of it, and Spark's reader
    any row                              accepts no such text as one
    2025-01-31                           date
    2025-01-31 10:00:00, or with a T     timestamp
    true, False                          boolean
    anything else                        string

A declared type (`column_types`) wins. A column without values is a number in dbt. Blanks around a value belong to a
string, and are ignored around other values.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.logical.nodes import Field
from tussock.jobs.settings.user_files import text_of

_TYPES = (
    ("bigint", r"[+-]?[0-9]{1,18}"),
    ("decimal(38,0)", r"[+-]?[0-9]{1,38}"),
    ("double", r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"),
    ("date", r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"),
    ("timestamp", r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"),
    ("timestamp", r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:[0-9]{2})?"),
    ("boolean", r"(?i:true|false)"),
)
#: Numbers of agate that Spark's reader does not accept: `5%`, `$3`, `1,000`.
_DECORATED = re.compile(r"[-+$€£¥%]*[0-9][0-9,_]*(\.[0-9]+)?%?")


@dataclass(frozen=True, slots=True)
class SeedFile:
    """The columns of a seed, and how Spark reads its file.

    Args:
        options: of Spark's reader.
        notes: sentences about differences from dbt.
        refusal: why no option gives dbt's values; empty: some do.
    """

    fields: tuple[Field, ...]
    options: Mapping[str, str]
    notes: tuple[str, ...]
    refusal: str = ""


def read_seed(path: Path, separator: str, declared: Mapping[str, str], *, quotes_columns: bool = False) -> SeedFile:
    """Read the columns of a seed's file.

    Args:
        declared: types of Spark by lower-case column.
        quotes_columns: dbt writes the names of columns in quotes, so blanks around a name belong to it.

    Raises: UserFileError; ProjectError without a header.
    """
    text = text_of(path)
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row] or [[]]
    if not header:
        raise ProjectError(str(path), "no header", "a line with the names of the columns")
    columns = [[row[at] for row in rows if at < len(row)] for at in range(len(header))]
    names = header if quotes_columns else [name.strip() for name in header]
    notes = list[str]()
    fields = list[Field]()
    for name, values in zip(names, columns, strict=True):
        kind = declared.get(name.lower()) or _type_of(values)
        fields.append(Field(name, kind))
        notes += [] if name.lower() in declared else _notes_on(name, kind, values)
    strips = names != header or any(
        f.type != "string" and _has_blanks(values) for f, values in zip(fields, columns, strict=True)
    )
    padded = next(
        (f.name for f, values in zip(fields, columns, strict=True) if f.type == "string" and _has_blanks(values)), None
    )
    if strips and padded is not None:
        refusal = (
            f"{path.name} has blanks around names or numbers, which dbt ignores, and around texts of column {padded}, "
            "which dbt keeps. Remove the blanks after its separators"
        )
        return SeedFile(tuple(fields), {}, (), refusal)
    if strips:
        columns = [[value.strip() for value in values] for values in columns]
    nulls = sorted({value for values in columns for value in values if _is_null(value) and value.strip()})
    if len(nulls) > 1:
        notes.append(
            f"only {nulls[0]!r} is NULL here, and {', '.join(map(repr, nulls[1:]))} too in dbt: write one form"
        )
    options = dict(_options_of(text, separator, columns, nulls))
    if strips:
        options |= dict.fromkeys(("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"), "true")
    return SeedFile(tuple(fields), options, tuple(notes))


def _is_null(value: str) -> bool:
    return value.strip().lower() in ("", "null")


def _has_blanks(values: Sequence[str]) -> bool:
    """Whether a value begins or ends with a blank."""
    return any(value != value.strip() and not _is_null(value) for value in values)


def _type_of(values: Sequence[str]) -> str:
    """The first type that accepts every value. Blanks around a value only belong to a string."""
    present = [value.strip() for value in values if not _is_null(value)]
    return next((kind for kind, form in _TYPES if all(_is_of(kind, form, value) for value in present)), "string")


def _is_of(kind: str, form: str, value: str) -> bool:
    """Whether a value is of a type. Codes such as 1234-56-78 have the form of a date, and are none."""
    if re.fullmatch(form, value) is None:
        return False
    if kind in ("date", "timestamp"):
        try:
            datetime(*map(int, re.findall(r"[0-9]+", value)[:6]))  # type: ignore[arg-type]  # six numbers at most
        except ValueError:
            return False
    return True


def _notes_on(name: str, kind: str, values: Sequence[str]) -> Iterator[str]:
    present = [value.strip() for value in values if not _is_null(value)]
    if kind == "double" and not any(_has_fraction(value) for value in present):
        yield f"column {name} is a double, as written ({present[0]!r}): dbt makes a bigint of it. Declare column_types"
    if kind == "string" and present and all(_DECORATED.fullmatch(value) for value in present):
        signs = (value for value in present if re.search(r"[^0-9.+-]", value))
        if shown := next(signs, ""):
            yield f"column {name} is a string, as written ({shown!r}): dbt makes a number of it. Declare column_types"


def _has_fraction(number: str) -> bool:
    """Whether a number has digits after its point, besides zeros."""
    exponent = Decimal(number).normalize().as_tuple().exponent
    return isinstance(exponent, int) and exponent < 0


def _options_of(
    text: str, separator: str, columns: Sequence[Sequence[str]], nulls: Sequence[str]
) -> Iterator[tuple[str, str]]:
    yield "header", "true"
    if separator != ",":
        yield "sep", "\\t" if separator == "\t" else separator
    if '""' in text or "\\" in text:
        yield "escape", '"'  # Spark's default is a backslash
    if any("\n" in value for values in columns for value in values):
        yield "multiLine", "true"
    if nulls:
        yield "nullValue", nulls[0]
        if '""' in text:
            yield "emptyValue", nulls[0]

"""The columns of a dbt seed, as `dbt seed` finds them with agate's types.

    null, NULL and an empty value        NULL, in every column
    1, 007                               bigint
    2.5, 1e3                             double: dbt has no decimals without `column_types`
    2025-01-31                           date
    2025-01-31 10:00:00, or with a T     timestamp
    true, False                          boolean
    anything else                        string

A declared type (`column_types`) wins. A column without values is a number in dbt.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    """The columns of a seed, the options with which Spark reads its file, and sentences about differences from dbt."""

    fields: tuple[Field, ...]
    options: Mapping[str, str]
    notes: tuple[str, ...]


def read_seed(path: Path, separator: str, declared: Mapping[str, str]) -> SeedFile:
    """Read the columns of a seed's file.

    Args:
        declared: types of Spark by lower-case column.

    Raises: UserFileError; ProjectError without a header.
    """
    text = text_of(path)
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row] or [[]]
    if not header:
        raise ProjectError(str(path), "no header", "a line with the names of the columns")
    columns = [[row[at] for row in rows if at < len(row)] for at in range(len(header))]
    notes = list[str]()
    fields = list[Field]()
    for name, values in zip(header, columns, strict=True):
        kind = declared.get(name.lower()) or _type_of(values)
        fields.append(Field(name, kind))
        notes += [] if name.lower() in declared else _notes_on(name, kind, values)
    nulls = sorted({value for values in columns for value in values if value.strip().lower() == "null"})
    if len(nulls) > 1:
        notes.append(
            f"only {nulls[0]!r} is NULL here, and {', '.join(map(repr, nulls[1:]))} too in dbt: write one form"
        )
    return SeedFile(tuple(fields), dict(_options_of(text, separator, columns, nulls)), tuple(notes))


def _type_of(values: Sequence[str]) -> str:
    """The first type that accepts every value."""
    present = [value for value in values if value.strip().lower() not in ("", "null")]
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
    present = [value.strip() for value in values if value.strip().lower() not in ("", "null")]
    if kind == "string" and present and all(_DECORATED.fullmatch(value) for value in present):
        shown = next(value for value in present if re.search(r"[^0-9.+-]", value))
        yield f"column {name} is a string, as written ({shown!r}): dbt makes a number of it. Declare column_types"


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

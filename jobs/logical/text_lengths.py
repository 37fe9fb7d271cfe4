"""char(n) and varchar(n) columns of tables: strings whose length is checked on write, as in Spark.

Trailing spaces beyond the length are cut off. A text that is still too long is an error. A char is padded with spaces.
"""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.statements import CreateTable
from tussock.statestore.errors import InputError

_DECLARED = re.compile(r"(char|varchar)\((\d+)\)")
#: The key of the declared type in Spark's column metadata. Spark uses it to pad values that are compared with a char.
METADATA_KEY = "__CHAR_VARCHAR_TYPE_STRING"


class TextTooLongError(InputError):
    """A text is longer than its column allows."""

    table: str
    column: str
    declared: str
    text: str

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 100 else f"{self.text[:100]}…"
        return (
            f"column {self.column!r} of table {self.table!r} is {self.declared} and cannot hold {shown!r}, which has "
            f"{len(self.text)} "
            "characters. Nothing was changed. Shorten the text (substring), or declare a longer column."
        )


def has_length(type_name: str) -> bool:
    """Whether a type is char(n) or varchar(n), which are stored as strings."""
    return _DECLARED.fullmatch(type_name) is not None


def lengths_of(type_names: Sequence[str], first: int = 0) -> tuple[tuple[int, str], ...]:
    """The `lengths` of a CreateTable with columns of these types. `first` is the number of the first column."""
    return tuple((i, name) for i, name in enumerate(type_names, first) if has_length(name))


def fitted_texts(table: CreateTable, rows: pa.Table) -> pa.Table:
    """Rows for a table, with char and varchar values cut and padded as they are stored.

    Args:
        rows: the table's columns in order; more columns may follow.

    Raises: TextTooLongError. Cost: a pass over each column that has a length.
    """
    for column, declared in table.lengths:
        field = rows.schema.field(column)
        fitted = _fit_lengths(table, column, declared, rows.column(column))
        rows = rows.set_column(column, field, fitted.cast(field.type))
    return rows


def _fit_lengths(table: CreateTable, column: int, declared: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    match = _DECLARED.fullmatch(declared)
    assert match is not None, declared
    length = int(match[2])
    if (pc.max(pc.utf8_length(texts)).as_py() or 0) > length:
        rest = pc.utf8_slice_codeunits(texts, length)
        fits = pc.equal(pc.utf8_length(pc.utf8_trim(rest, " ")), 0)
        if (bad := pc.index(fits, False).as_py()) >= 0:
            raise TextTooLongError(table.name, table.fields[column].name, declared, texts[bad].as_py())
        texts = pc.utf8_slice_codeunits(texts, 0, length)
    return pc.utf8_rpad(texts, length, " ") if match[1] == "char" else texts

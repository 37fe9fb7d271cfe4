"""The parts of CREATE TABLE that Spark's grammar does not have in every supported release: APPEND ONLY and PRIMARY KEY.

Spark 4.0 has no table constraints. The engine therefore reads the key itself for every release, so that a stored
plan does not depend on the release that parsed it. Spark parses the text without these parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tussock.jobs.logical.errors import sql_error
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.source_text import SourceText, edit_source
from tussock.jobs.sql.grammar import Cursor, column_names

_OTHER_OF_TABLES = (("UNIQUE", "("), ("CHECK", "("), ("FOREIGN", "KEY"))
_OTHER_OF_COLUMNS = (("UNIQUE",), ("CHECK", "("), ("REFERENCES",))
_NESTED = ("ARRAY", "MAP", "STRUCT")


@dataclass(frozen=True, slots=True)
class DeclaredKey:
    """A PRIMARY KEY as written: its place in the text and the names of its columns."""

    source: SourceText
    offset: int
    columns: tuple[str, ...]

    def places_in(self, fields: Sequence[Field]) -> tuple[int, ...]:
        """The places of the key's columns among the fields. Raises SqlError for unknown and repeated columns."""
        index = {f.name.lower(): i for i, f in enumerate(fields)}
        unknown = [n for n in self.columns if n.lower() not in index]
        if unknown:
            names = ", ".join(f.name for f in fields)
            reason = f"PRIMARY KEY names {unknown[0]!r}, which is not a column of the table; its columns: {names}"
            raise sql_error(self.source, self.offset, reason)
        key = tuple(index[n.lower()] for n in self.columns)
        if len(set(key)) < len(key):
            raise sql_error(self.source, self.offset, f"PRIMARY KEY ({', '.join(self.columns)}) names a column twice")
        return key


@dataclass(frozen=True, slots=True)
class TableWords:
    """A CREATE TABLE without the parts that the engine reads itself.

    `text` has blanks in their place, and its errors still show the user's text.
    """

    text: SourceText
    key: DeclaredKey | None
    append_only: bool


def read_table_words(cursor: Cursor) -> TableWords:
    """Read PRIMARY KEY and APPEND ONLY. Requires: the cursor is behind the table's name; it is not moved.

    Raises SqlError: other constraints, two keys, a key without columns. Cost: linear in the text.
    """
    reader = _Reader(Cursor(cursor.source, cursor.at))
    reader.read_table()
    if reader.key is not None and not reader.has_columns:
        reason = (
            "CREATE TABLE … AS SELECT takes no PRIMARY KEY; create the table with its columns and the key, "
            "then fill it with INSERT INTO … SELECT"
        )
        raise sql_error(cursor.source, reader.key.offset, reason)
    parts = {span: " " * (span[1] - span[0]) for span in reader.spans}  # all other offsets stay valid
    return TableWords(edit_source(cursor.source, parts) if parts else cursor.source, reader.key, reader.append_only)


def read_column_list(source: SourceText, begin: int, end: int) -> TableWords:
    """Read the PRIMARY KEY of a list of columns, as in CREATE SOURCE. `text` is the list without its brackets.

    Args:
        begin, end: the offsets of the list without its brackets.

    Raises as above.
    """
    cursor = Cursor(source)
    cursor.at = next((i for i, token in enumerate(cursor.tokens) if token.start >= begin), len(cursor.tokens))
    reader, comma = _Reader(cursor), None
    while (comma := reader.read_element(comma)) is not None:
        pass
    columns = source.take_part(begin, end)
    parts = {span: " " * (span[1] - span[0]) for span in reader.spans}
    return TableWords(edit_source(columns, parts) if parts else columns, reader.key, False)


@dataclass(slots=True)
class _Reader:
    cursor: Cursor
    key: DeclaredKey | None = None
    append_only: bool = False
    has_columns: bool = False
    spans: list[tuple[int, int]] = field(default_factory=list)

    def read_table(self) -> None:
        cursor = self.cursor
        if cursor.accept("("):
            comma = None
            while True:
                comma = self.read_element(comma)
                if comma is None:
                    break
        while cursor.at < len(cursor.tokens) and not cursor.comes("AS"):
            first = cursor.offset
            if cursor.accept("APPEND", "ONLY"):
                self.append_only = True
                self.spans.append((first, self._end))
                return
            cursor.at += 1

    @property
    def _end(self) -> int:
        return self.cursor.tokens[self.cursor.at - 1].end

    def read_element(self, comma: int | None) -> int | None:
        """Read one element of the list, with the comma or bracket behind it. The comma's offset; None at the end."""
        cursor = self.cursor
        first = cursor.offset
        if self._read_constraint(column=None):
            if not (cursor.comes(",") or cursor.comes(")")):
                raise cursor.error("expected , or ) after the PRIMARY KEY")
            end = cursor.offset + 1 if comma is None and cursor.comes(",") else self._end
            self.spans.append((first if comma is None else comma, end))
        elif cursor.at < len(cursor.tokens):
            self.has_columns = True
            self._read_column(cursor.next("a column").value())
        if cursor.at == len(cursor.tokens):
            return None  # Spark's parser reports the missing bracket
        separator = cursor.next("a comma")
        return separator.start if separator.text == "," else None

    def _read_column(self, name: str) -> None:
        """Read the rest of a column, up to the comma or bracket behind it."""
        cursor, angles = self.cursor, 0
        while cursor.at < len(cursor.tokens) and (angles or not (cursor.comes(",") or cursor.comes(")"))):
            first = cursor.offset
            if not angles and self._read_constraint(column=name):
                self.spans.append((first, self._end))
                continue
            token = cursor.next("the rest of a column")
            if token.text == "(":
                cursor.close()
            elif token.text.upper() in _NESTED and cursor.comes("<"):
                angles += 1
                cursor.at += 1
            elif angles and token.text in "<>":
                angles += 1 if token.text == "<" else -1

    def _read_constraint(self, column: str | None) -> bool:
        """Read a constraint of the table, or of a column, if one comes next."""
        cursor = self.cursor
        begin, first = cursor.at, cursor.offset
        if cursor.accept("CONSTRAINT") and not cursor.comes("PRIMARY", "KEY"):
            cursor.next("the name of a constraint")
        others = _OTHER_OF_TABLES if column is None else _OTHER_OF_COLUMNS
        if any(cursor.comes(*words) for words in others):
            reason = (
                "the only constraint of a table is its PRIMARY KEY; UNIQUE, CHECK and FOREIGN KEY are not supported"
            )
            raise sql_error(cursor.source, first, reason)
        if not cursor.accept("PRIMARY", "KEY"):
            cursor.at = begin
            return False
        if self.key is not None:
            raise sql_error(cursor.source, first, "a table has at most one PRIMARY KEY (column, …)")
        if column is None:
            cursor.expect("(")
            self.key = DeclaredKey(cursor.source, first, column_names(cursor))
        else:
            self.key = DeclaredKey(cursor.source, first, (column,))
        while cursor.accept("NOT", "ENFORCED") or cursor.accept("RELY") or cursor.accept("NORELY"):
            pass
        return True

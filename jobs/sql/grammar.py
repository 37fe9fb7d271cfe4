"""Reads statements, or their beginnings, that Spark has no grammar for; a SELECT inside is left to Spark, by its offset.

CREATE SOURCE [IF NOT EXISTS] name [(column type, …)] USING format OPTIONS (key 'value', …)
ALTER SOURCE name ADD COLUMN[S] column type, …
CREATE [OR REPLACE] [MATERIALIZED] VIEW [IF NOT EXISTS] name [(column, …)] AS SELECT …
CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] name (parameter type, …) RETURNS type [COMMENT '…'] LANGUAGE PYTHON AS 'module:name'
DROP SOURCE | TABLE | [MATERIALIZED] VIEW | FUNCTION [IF EXISTS] name [CASCADE]
SHOW SOURCES | TABLES | [MATERIALIZED] VIEWS | RELATIONS | FUNCTIONS
SHOW COLUMNS FROM name, DESCRIBE [TABLE | FUNCTION] name, SHOW CREATE name
EXPLAIN SELECT … | CREATE MATERIALIZED VIEW …
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from tussock.jobs.logical.errors import SqlError, sql_error
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import Drop, Show, Shown
from tussock.jobs.logical.tokens import Token, tokens_of
from tussock.statestore.meta.catalog import RelationKind

_AFTER_RETURNS = ("COMMENT", "DETERMINISTIC", "NOT", "LANGUAGE", "AS")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,99}")


@dataclass(slots=True)
class Cursor:
    """A statement's tokens, read from left to right. Words compare without case; what does not fit raises SqlError at its place."""

    source: SourceText
    tokens: list[Token] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        self.tokens = tokens_of(self.source)

    @property
    def offset(self) -> int:
        """Where the next token begins; after the last one, the end of the text."""
        return self.tokens[self.at].start if self.at < len(self.tokens) else len(self.source.text)

    def comes(self, *words: str) -> bool:
        """Whether these words (or symbols) come next, all of them."""
        return [t.text.upper() for t in self.tokens[self.at : self.at + len(words)]] == list(words)

    def accept(self, *words: str) -> bool:
        """Moves past these words (or symbols) if they come next, all of them."""
        found = self.comes(*words)
        self.at += len(words) if found else 0
        return found

    def expect(self, *words: str) -> None:
        """Moves past these words; SqlError when others stand there."""
        if not self.accept(*words):
            raise self.error(f"expected {' '.join(words)}")

    def next(self, expected: str) -> Token:
        """The next token, moved past; SqlError naming what was expected at the end of the text."""
        if self.at == len(self.tokens):
            raise self.error(f"expected {expected}")
        self.at += 1
        return self.tokens[self.at - 1]

    def name(self, what: str) -> str:
        """The name of a relation, in lower case; SqlError for one that is qualified or has other characters than letters, digits and _."""
        begin = self.at
        token = self.next(f"the name of {what}")
        name = token.value().lower()
        if token.kind not in ("word", "name") or _NAME.fullmatch(name) is None:
            self.at = begin
            raise self.error(f"expected the name of {what}: letters a-z, digits and _, at most 100, no digit first")
        if self.at < len(self.tokens) and self.tokens[self.at].text == ".":
            raise self.complaint("names of relations are not qualified: a store holds one pipeline")
        return name

    def close(self) -> int:
        """Moves past the bracket that closes the one just read, and gives its offset."""
        depth = 1
        while True:
            token = self.next("a closing )")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
            if depth == 0:
                return token.start

    def end(self) -> None:
        """SqlError unless the statement ends here."""
        if self.at < len(self.tokens):
            raise self.error("expected the end of the statement")

    def complaint(self, reason: str) -> SqlError:
        """What is wrong with what stands here."""
        return sql_error(self.source, self.offset, reason)

    def error(self, expected: str) -> SqlError:
        """What was expected and what stands there instead."""
        found = self.tokens[self.at].text if self.at < len(self.tokens) else "the end of the statement"
        return sql_error(self.source, self.offset, f"{expected}, found {found}")


@dataclass(frozen=True, slots=True)
class SourceHeader:
    """A CREATE SOURCE, its columns still text: between the offsets `columns` (None: not declared)."""

    name: str
    if_not_exists: bool
    columns: tuple[int, int] | None
    format: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class ViewHeader:
    """A CREATE [MATERIALIZED] VIEW up to its SELECT, which begins at `select`; `columns` names the view's, None: the SELECT does."""

    name: str
    if_not_exists: bool
    or_replace: bool
    columns: tuple[str, ...] | None
    select: int


@dataclass(frozen=True, slots=True)
class FunctionHeader:
    """A CREATE FUNCTION, its types still text: its parameters and what it returns lie between the offsets."""

    name: str
    if_not_exists: bool
    or_replace: bool
    parameters: tuple[int, int]
    returns: tuple[int, int]
    module: str
    function: str
    comment: str | None


def changed_table(source: SourceText) -> str | None:
    """The name of the table that a statement changes, its rows or its columns, or of the source that it alters, by its first words alone;
    None where it changes none."""
    cursor = Cursor(source)
    heads = (("INSERT", "INTO"), ("UPDATE",), ("DELETE", "FROM"), ("MERGE", "INTO"), ("TRUNCATE",), ("ALTER",))
    if not any(cursor.accept(*head) for head in heads):
        return None
    _ = cursor.accept("TABLE") or cursor.accept("SOURCE")
    return cursor.tokens[cursor.at].value().lower() if cursor.at < len(cursor.tokens) else None


def read_source(cursor: Cursor, formats: Collection[str], without_path: Collection[str] = ()) -> SourceHeader:
    """After CREATE SOURCE. `formats` are those that a source can have; sources of some are found by other options than a path."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("the source")
    columns = None
    if cursor.accept("("):
        columns = (cursor.offset, cursor.close())
    cursor.expect("USING")
    expected = f"a format: {', '.join(formats)}"
    file_format = cursor.next(expected).value().lower()
    if file_format not in formats:
        cursor.at -= 1
        raise cursor.error(f"expected {expected}")
    begin = cursor.at
    options = _options(cursor) if cursor.accept("OPTIONS") else {}
    cursor.end()
    if "path" not in options and file_format not in without_path:
        cursor.at = begin
        raise cursor.complaint("a source needs OPTIONS (path '…'): a directory, a file or a pattern")
    return SourceHeader(name, if_not_exists, columns, file_format, options)


def _options(cursor: Cursor) -> dict[str, str]:
    options: dict[str, str] = {}
    cursor.expect("(")
    while not cursor.accept(")"):
        begin = cursor.at
        key = cursor.next("the name of an option").value()
        while cursor.accept("."):
            key += "." + cursor.next("the rest of an option's name").value()
        key = "path" if key.lower() == "path" else key
        if key in options:
            cursor.at = begin
            raise cursor.complaint(f"option {key!r} is given twice")
        cursor.accept("=")
        sign = "-" if cursor.accept("-") else ""
        value = cursor.next(f"the value of option {key!r}")
        if value.kind == "symbol":
            cursor.at -= 1
            raise cursor.error(f"expected the value of option {key!r}")
        options[key] = sign + value.value()
        if not cursor.accept(","):
            cursor.expect(")")
            break
    return options


def read_view(cursor: Cursor, or_replace: bool = False) -> ViewHeader:
    """After CREATE [OR REPLACE] [MATERIALIZED] VIEW."""
    if_not_exists = _may_exist(cursor, or_replace)
    name = cursor.name("the view")
    columns = _column_names(cursor) if cursor.accept("(") else None
    cursor.expect("AS")
    return ViewHeader(name, if_not_exists, or_replace, columns, cursor.offset)


def read_function(cursor: Cursor, or_replace: bool) -> FunctionHeader:
    """After CREATE [OR REPLACE] FUNCTION."""
    if_not_exists = _may_exist(cursor, or_replace)
    name = cursor.name("the function")
    cursor.expect("(")
    parameters = (cursor.offset, cursor.close())
    cursor.expect("RETURNS")
    begin = cursor.offset
    while not any(cursor.comes(word) for word in _AFTER_RETURNS):
        cursor.next("the type that the function returns, then LANGUAGE PYTHON")
    returns, comment = (begin, cursor.offset), None
    if cursor.accept("COMMENT"):
        comment = _string(cursor, "the comment in quotes")
    if cursor.comes("NOT", "DETERMINISTIC"):
        raise cursor.complaint("a view has the same rows on every run, so its functions have to be deterministic")
    cursor.accept("DETERMINISTIC")
    cursor.expect("LANGUAGE")
    if not cursor.accept("PYTHON"):
        raise cursor.error("expected PYTHON")
    cursor.expect("AS")
    begin_of_code = cursor.at
    module, colon, function = _string(cursor, "'module:name'").partition(":")
    if not (colon and module.isidentifier() and function.isidentifier()):
        cursor.at = begin_of_code
        raise cursor.complaint(
            "expected 'module:name': a file module.py of the folder functions/, and the name of a function in it"
        )
    cursor.end()
    return FunctionHeader(name, if_not_exists, or_replace, parameters, returns, module, function, comment)


def _may_exist(cursor: Cursor, or_replace: bool) -> bool:
    if or_replace and cursor.comes("IF", "NOT", "EXISTS"):
        raise cursor.complaint("OR REPLACE and IF NOT EXISTS say two things: write one of them")
    return cursor.accept("IF", "NOT", "EXISTS")


def _string(cursor: Cursor, expected: str) -> str:
    token = cursor.next(expected)
    if token.kind != "string":
        cursor.at -= 1
        raise cursor.error(f"expected {expected}")
    return token.value()


def _column_names(cursor: Cursor) -> tuple[str, ...]:
    """After an opening bracket: names of columns, up to the closing one."""
    names: list[str] = []
    while True:
        token = cursor.next("the name of a column")
        if token.kind not in ("word", "name"):
            cursor.at -= 1
            raise cursor.error("expected the name of a column")
        names.append(token.value())
        if not cursor.accept(","):
            cursor.expect(")")
            return tuple(names)


def read_drop(cursor: Cursor) -> Drop:
    """After DROP."""
    if cursor.accept("MATERIALIZED", "VIEW") or cursor.accept("VIEW"):
        kind = RelationKind.VIEW
    elif cursor.accept("TABLE"):
        kind = RelationKind.TABLE
    elif cursor.accept("SOURCE"):
        kind = RelationKind.SOURCE
    elif cursor.accept("FUNCTION"):
        kind = RelationKind.FUNCTION
    else:
        raise cursor.error("expected DROP MATERIALIZED VIEW, DROP TABLE, DROP SOURCE or DROP FUNCTION")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name(f"the {kind}")
    cascade = cursor.accept("CASCADE")
    cursor.end()
    return Drop(kind, name, cascade, if_exists)


def read_show(cursor: Cursor) -> Show:
    """After SHOW."""
    for what in (Shown.SOURCES, Shown.TABLES, Shown.VIEWS, Shown.RELATIONS, Shown.FUNCTIONS):
        if cursor.accept(what.upper()) or (what is Shown.VIEWS and cursor.accept("MATERIALIZED", "VIEWS")):
            cursor.end()
            return Show(what)
    if cursor.accept("COLUMNS"):
        if not cursor.accept("IN"):
            cursor.expect("FROM")
        return _show_one(cursor, Shown.COLUMNS)
    if cursor.accept("CREATE"):
        for words in (("MATERIALIZED", "VIEW"), ("VIEW",), ("TABLE",), ("SOURCE",), ("FUNCTION",)):
            if cursor.accept(*words):
                break
        return _show_one(cursor, Shown.CREATE)
    raise cursor.error(
        "expected SHOW SOURCES, TABLES, MATERIALIZED VIEWS, RELATIONS, FUNCTIONS, COLUMNS FROM name or CREATE name"
    )


def read_describe(cursor: Cursor) -> Show:
    """After DESCRIBE."""
    if len(cursor.tokens) > cursor.at + 1:  # else it is a relation of that name
        _ = cursor.accept("TABLE") or cursor.accept("FUNCTION")
    return _show_one(cursor, Shown.COLUMNS)


def _show_one(cursor: Cursor, what: Shown) -> Show:
    name = cursor.name("a relation")
    cursor.end()
    return Show(what, name)

"""Parse statements, or parts of statements, that Spark's grammar lacks. Spark parses a SELECT inside, from its offset.

CREATE SOURCE [IF NOT EXISTS] name [(column type, … [, PRIMARY KEY (column, …)])]
    USING format OPTIONS (key 'value', …)
ALTER SOURCE name ADD COLUMN[S] column type, … | RENAME COLUMN column TO column
ALTER SOURCE name ALTER COLUMN column TYPE type
ALTER SOURCE name SET OPTIONS (key 'value', …) | UNSET OPTIONS (key, …)
CREATE [OR REPLACE] [MATERIALIZED] VIEW [IF NOT EXISTS] name [(column, …)] AS SELECT …
CREATE [OR REPLACE] FLOW name AS AUTO CDC INTO target FROM [SNAPSHOT] source KEYS (column, …)
    [IGNORE NULL UPDATES [ON columns]] [APPLY AS DELETE WHEN condition] [APPLY AS TRUNCATE WHEN condition]
    SEQUENCE BY expression [COLUMNS columns] [STORED AS SCD TYPE 1 | 2 [TRACK HISTORY ON columns]]
CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] name (parameter type, …)
    RETURNS type [COMMENT '…'] LANGUAGE PYTHON AS 'module:name'
DROP SOURCE | TABLE | [MATERIALIZED] VIEW | FUNCTION [IF EXISTS] name [CASCADE]
CREATE SCHEMA [IF NOT EXISTS] name, DROP SCHEMA [IF EXISTS] name [CASCADE], USE [SCHEMA] name
SHOW SCHEMAS
SHOW SOURCES | TABLES | [MATERIALIZED] VIEWS | RELATIONS | FUNCTIONS
SHOW COLUMNS FROM name, DESCRIBE [TABLE | FUNCTION] name, SHOW CREATE name
EXPLAIN SELECT … | CREATE MATERIALIZED VIEW … | CREATE FLOW …
BEGIN | START TRANSACTION | COMMIT | ROLLBACK
"""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from tussock.jobs.logical.errors import SqlError, sql_error
from tussock.jobs.logical.misspelt import similar_keywords
from tussock.jobs.logical.relation_names import PART, TooManyPartsError, resolve_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateSchema, Drop, DropSchema, Show, Shown, UseSchema
from tussock.jobs.logical.tokens import Token, tokens_of
from tussock.statestore.meta.catalog import RelationKind

_AFTER_RETURNS = ("COMMENT", "DETERMINISTIC", "NOT", "LANGUAGE", "AS")
_SCHEMA = ("SCHEMA", "DATABASE")  # equal in Spark's SQL
_KEYWORD = re.compile(r"\b[A-Z]{2,}\b")


@dataclass(slots=True)
class Cursor:
    """A statement's tokens, read from left to right.

    Words match in any case. Unexpected tokens raise SqlError at their place.
    """

    source: SourceText
    tokens: list[Token] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        self.tokens = tokens_of(self.source)

    @property
    def offset(self) -> int:
        """The offset of the next token, or the end of the text after the last one."""
        return self.tokens[self.at].start if self.at < len(self.tokens) else len(self.source.text)

    def comes(self, *words: str) -> bool:
        """Whether all of these words (or symbols) come next."""
        return [t.text.upper() for t in self.tokens[self.at : self.at + len(words)]] == list(words)

    def accept(self, *words: str) -> bool:
        """Move past these words (or symbols) if all of them come next."""
        matches = self.comes(*words)
        self.at += len(words) if matches else 0
        return matches

    def expect(self, *words: str) -> None:
        """Move past these words. Raises SqlError if others come next."""
        if not self.accept(*words):
            raise self.error(f"expected {' '.join(words)}")

    def next(self, expected: str) -> Token:
        """Move past the next token and return it. Raises SqlError at the end of the text."""
        if self.at == len(self.tokens):
            raise self.error(f"expected {expected}")
        self.at += 1
        return self.tokens[self.at - 1]

    def name(self, what: str) -> str:
        """The name of a relation, as the catalog has it: orders, or staging.orders for one of another schema.

        Raises: SqlError if a part has other characters than letters, digits and _.
        """
        begin = self.at
        parts = [self.word(what)]
        while self.accept("."):
            parts.append(self.word(what))
        try:
            return resolve_name(parts, self.source.schema)
        except TooManyPartsError as err:
            self.at = begin
            raise self.complaint(str(err)) from None

    def word(self, what: str) -> str:
        """A name without a schema, in lower case. Raises SqlError as `name`."""
        token = self.next(f"the name of {what}")
        name = token.value().lower()
        if token.kind not in ("word", "name") or PART.fullmatch(name) is None:
            self.at -= 1
            raise self.error(f"expected the name of {what}: letters a-z, digits and _, at most 100, no digit first")
        return name

    def close(self) -> int:
        """Move past the bracket that closes the last opened one, and return its offset."""
        depth = 1
        while True:
            token = self.next("a closing )")
            depth += token.nesting
            if depth == 0:
                return token.start

    def end(self) -> None:
        """Raises SqlError unless the statement ends here."""
        if self.at < len(self.tokens):
            raise self.error("expected the end of the statement")

    def complaint(self, reason: str) -> SqlError:
        """A SqlError at the next token."""
        return sql_error(self.source, self.offset, reason)

    def error(self, expected: str) -> SqlError:
        """A SqlError with the expected and the actual token, and the keyword that was probably meant.

        `expected`: keywords in upper case.
        """
        actual_token = self.tokens[self.at].text if self.at < len(self.tokens) else "the end of the statement"
        near = similar_keywords(actual_token.upper(), set(_KEYWORD.findall(expected)))
        hint = f". Did you mean {near[0]}?" if near else ""
        return sql_error(self.source, self.offset, f"{expected}, found {actual_token}{hint}")


@dataclass(frozen=True, slots=True)
class SourceHeader:
    """A CREATE SOURCE. Its columns are the text between the offsets `columns` (None: not declared)."""

    name: str
    if_not_exists: bool
    columns: tuple[int, int] | None
    format: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class ViewHeader:
    """A CREATE [MATERIALIZED] VIEW up to its SELECT, which begins at `select`. `columns` is its column list, if any."""

    name: str
    if_not_exists: bool
    or_replace: bool
    columns: tuple[str, ...] | None
    select: int


@dataclass(frozen=True, slots=True)
class FunctionHeader:
    """A CREATE FUNCTION. Its parameters and return type are texts between offsets."""

    name: str
    if_not_exists: bool
    or_replace: bool
    parameters: tuple[int, int]
    returns: tuple[int, int]
    module: str
    function: str
    comment: str | None


def changed_table(source: SourceText) -> str | None:
    """The table whose rows or columns a statement changes, or the source that it alters, from its first words.

    None for other statements.
    """
    cursor = Cursor(source)
    heads = (("INSERT", "INTO"), ("UPDATE",), ("DELETE", "FROM"), ("MERGE", "INTO"), ("TRUNCATE",), ("ALTER",))
    if not any(cursor.accept(*head) for head in heads):
        return None
    _ = cursor.accept("TABLE") or cursor.accept("SOURCE")
    return written_name(cursor)


def written_name(cursor: Cursor) -> str | None:
    """The relation that comes next, if a valid name does. Moves past it."""
    with suppress(SqlError):
        return cursor.name("a relation")
    return None


def read_source(cursor: Cursor, formats: Collection[str], without_path: Collection[str] = ()) -> SourceHeader:
    """A statement after CREATE SOURCE. `formats` are the supported formats; those in `without_path` need no path."""
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
    options = read_options(cursor) if cursor.accept("OPTIONS") else {}
    cursor.end()
    if "path" not in options and file_format not in without_path:
        cursor.at = begin
        raise cursor.complaint("a source needs OPTIONS (path '…'): a directory, a file or a pattern")
    return SourceHeader(name, if_not_exists, columns, file_format, options)


def read_options(cursor: Cursor) -> dict[str, str]:
    """The list after OPTIONS: (name 'value', …)."""
    options: dict[str, str] = {}
    cursor.expect("(")
    while not cursor.accept(")"):
        begin = cursor.at
        key = _option_name(cursor)
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


def option_names(cursor: Cursor) -> tuple[str, ...]:
    """The list after UNSET OPTIONS: (name, …)."""
    names = list[str]()
    cursor.expect("(")
    while not cursor.accept(")"):
        names.append(_option_name(cursor))
        if not cursor.accept(","):
            cursor.expect(")")
            break
    return tuple(names)


def _option_name(cursor: Cursor) -> str:
    key = cursor.next("the name of an option").value()
    while cursor.accept("."):
        key += "." + cursor.next("the rest of an option's name").value()
    return "path" if key.lower() == "path" else key


def read_view(cursor: Cursor, or_replace: bool = False) -> ViewHeader:
    """A statement after CREATE [OR REPLACE] [MATERIALIZED] VIEW."""
    if_not_exists = _may_exist(cursor, or_replace)
    name = cursor.name("the view")
    columns = column_names(cursor) if cursor.accept("(") else None
    cursor.expect("AS")
    return ViewHeader(name, if_not_exists, or_replace, columns, cursor.offset)


def read_function(cursor: Cursor, or_replace: bool) -> FunctionHeader:
    """A statement after CREATE [OR REPLACE] FUNCTION."""
    if_not_exists = _may_exist(cursor, or_replace)
    name = cursor.word("the function")
    if cursor.comes("."):
        raise cursor.complaint(
            f"functions belong to no schema; write CREATE FUNCTION without {name}., and call it from every schema"
        )
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
        raise cursor.complaint(
            "the functions of a view must be deterministic, so that every run computes the same rows"
        )
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
            "expected 'module:name': a file module.py in the folder functions/, and the name of a function in it"
        )
    cursor.end()
    return FunctionHeader(name, if_not_exists, or_replace, parameters, returns, module, function, comment)


def _may_exist(cursor: Cursor, or_replace: bool) -> bool:
    if or_replace and cursor.comes("IF", "NOT", "EXISTS"):
        raise cursor.complaint("OR REPLACE and IF NOT EXISTS contradict each other; write one of them")
    return cursor.accept("IF", "NOT", "EXISTS")


def _string(cursor: Cursor, expected: str) -> str:
    token = cursor.next(expected)
    if token.kind != "string":
        cursor.at -= 1
        raise cursor.error(f"expected {expected}")
    return token.value()


def column_names(cursor: Cursor) -> tuple[str, ...]:
    """Column names after an opening bracket, up to the closing one."""
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
    """A statement after DROP."""
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
    name = cursor.word("the function") if kind is RelationKind.FUNCTION else cursor.name(f"the {kind}")
    cascade = cursor.accept("CASCADE")
    cursor.end()
    return Drop(kind, name, cascade, if_exists)


def read_schema_statement(source: SourceText) -> CreateSchema | DropSchema | UseSchema | Show | None:
    """A statement on schemas; None for other statements. Raises SqlError."""
    cursor = Cursor(source)
    if _accept_schema(cursor, "CREATE"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        return CreateSchema(_last_word(cursor), if_not_exists)
    if _accept_schema(cursor, "DROP"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.word("the schema")
        _ = cursor.accept("RESTRICT")
        cascade = cursor.accept("CASCADE")
        cursor.end()
        return DropSchema(name, if_exists, cascade)
    if cursor.accept("SHOW", "SCHEMAS") or cursor.accept("SHOW", "DATABASES"):
        cursor.end()
        return Show(Shown.SCHEMAS)
    if cursor.accept("USE"):
        _ = len(cursor.tokens) > 2 and any(cursor.accept(word) for word in _SCHEMA)
        return UseSchema(_last_word(cursor))
    return None


def _accept_schema(cursor: Cursor, verb: str) -> bool:
    return any(cursor.accept(verb, word) for word in _SCHEMA)


def _last_word(cursor: Cursor) -> str:
    name = cursor.word("the schema")
    cursor.end()
    return name


def read_show(cursor: Cursor) -> Show:
    """A statement after SHOW."""
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
    """A statement after DESCRIBE."""
    if len(cursor.tokens) > cursor.at + 1:  # otherwise the word is the name of a relation
        _ = cursor.accept("TABLE") or cursor.accept("FUNCTION")
    return _show_one(cursor, Shown.COLUMNS)


def _show_one(cursor: Cursor, what: Shown) -> Show:
    name = cursor.name("a relation")
    cursor.end()
    return Show(what, name)

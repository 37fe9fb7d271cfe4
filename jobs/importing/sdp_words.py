"""Parse the statements of a declarative pipeline's SQL files: datasets and the flows that fill them.

Spark's grammar has a part of these statements, and Databricks' has more. The queries in them stay texts, which
Spark parses later (sdp_queries.py).

    CREATE [OR REFRESH | OR REPLACE] [PRIVATE] MATERIALIZED VIEW name … AS query
    CREATE [OR REFRESH | OR REPLACE] STREAMING TABLE name … [AS query | FLOW …]
    CREATE [TEMPORARY] VIEW name … AS query
    CREATE FLOW name AS INSERT INTO [ONCE] target [BY NAME] query
    CREATE FLOW name AS AUTO CDC INTO target FROM … (also APPLY CHANGES INTO)
    SET key = value
    USE CATALOG | SCHEMA | DATABASE name

The words of Delta Live Tables are read too: CREATE [STREAMING] LIVE TABLE and LIVE VIEW.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.script import ScriptStatement, split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.sql.grammar import Cursor

_CELL = re.compile(r"^-- COMMAND -+[ \t]*$", re.MULTILINE)  # between the cells of a notebook of Databricks
NO_ONCE = "AUTO CDC ONCE is not supported: a view follows its source. Unite its changes with those of the other flow"
NOTE_ON_RIGHTS = "its row filter or column mask has no counterpart: readers of the view see all rows and values"
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
"""The first words of a query."""
#: The first words of clauses between a dataset's name and its query, which decide how Databricks stores it.
_STORAGE = ("USING", "PARTITIONED", "CLUSTER", "LOCATION", "TBLPROPERTIES", "SCHEDULE", "TRIGGER", "WITH", "DEFAULT")


class DatasetKind(StrEnum):
    """The kinds of datasets."""

    MATERIALIZED_VIEW = "materialized view"
    STREAMING_TABLE = "streaming table"
    TEMPORARY_VIEW = "temporary view"


class Violation(StrEnum):
    """The reaction to a row that violates an expectation."""

    WARN = "warn"
    DROP = "drop"  # the row is not in the dataset
    FAIL = "fail"  # the update fails


ZONE_SETTING = "spark.sql.session.timezone"
"""The key that `SET TIME ZONE` sets, in lower case, as keys are compared."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition on the rows of a dataset."""

    name: str
    condition: str
    violation: Violation


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A query in a file. `place`: of its first character."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class DatasetWords:
    """A dataset as written.

    Args:
        name: its parts, as written.
        columns: a list of names without types, by which the columns of the query are renamed.
        query: None for a streaming table that only flows fill.
        notes: sentences about clauses without a counterpart.
        generated: a column whose values the table computes; "" if there is none.
    """

    name: tuple[str, ...]
    kind: DatasetKind
    place: Place
    columns: tuple[str, ...] | None = None
    expectations: tuple[Expectation, ...] = ()
    comment: str = ""
    query: WrittenQuery | None = None
    notes: tuple[str, ...] = ()
    generated: str = ""


@dataclass(frozen=True, slots=True)
class AppendWords:
    """A flow that appends the rows of a query to a streaming table."""

    target: tuple[str, ...]
    place: Place
    query: WrittenQuery
    by_name: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class ChangesWords:
    """A flow of changes: AUTO CDC.

    Args:
        source: the source's name or call, as written; or a query, if `is_query`.
        clauses: the text after the source, from KEYS on.
        refusal: why no flow of a pipeline gives its rows, so that its target is not taken; else empty.
    """

    target: tuple[str, ...]
    place: Place
    source: WrittenQuery
    clauses: str
    snapshots: bool = False
    is_query: bool = False
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class SettingWords:
    """SET key = value: it holds for the following statements."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class UseWords:
    """USE: the catalog or the schema of names without one, in the following statements."""

    catalog: str | None
    schema: str | None


SdpWords = DatasetWords | AppendWords | ChangesWords | SettingWords | UseWords


@dataclass(frozen=True, slots=True)
class UnreadableWords:
    """A statement that this module cannot parse, with the reason."""

    text: str
    place: Place
    reason: str


def read_file_words(text: str) -> list[SdpWords | UnreadableWords]:
    """The statements of a file, in order. A statement that cannot be parsed becomes UnreadableWords.

    Raises: SqlError if a string, a name or a comment is not closed.
    """
    words = list[SdpWords | UnreadableWords]()
    for statement in split_script(_CELL.sub(lambda cell: ";".ljust(len(cell[0])), text)):
        try:
            words += _read_statement(statement)
        except SqlError as err:
            words.append(UnreadableWords(statement.text, err.place or statement.place, err.reason))
    return words


def _read_statement(statement: ScriptStatement) -> list[SdpWords]:
    cursor = Cursor(SourceText(statement.text, statement.place))
    if cursor.accept("APPLY", "CHANGES") or cursor.accept("AUTO", "CDC"):
        cursor.expect("INTO")
        return [_read_changes(cursor, _read_name(cursor, "the target"))]
    if cursor.accept("SET"):
        return [_read_setting(cursor)]
    if cursor.accept("USE"):
        return [_read_use(cursor)]
    cursor.expect("CREATE")
    _ = cursor.accept("OR", "REFRESH") or cursor.accept("OR", "REPLACE")
    if cursor.accept("FLOW"):
        return [_read_flow(cursor)]
    kind = _read_kind(cursor)
    if kind is None:
        raise cursor.error("expected MATERIALIZED VIEW, STREAMING TABLE, TEMPORARY VIEW or FLOW")
    return _read_dataset(cursor, kind)


def _read_kind(cursor: Cursor) -> DatasetKind | None:
    private = cursor.accept("PRIVATE") or cursor.accept("TEMPORARY") or cursor.accept("TEMP")
    if cursor.accept("MATERIALIZED", "VIEW"):
        return DatasetKind.MATERIALIZED_VIEW
    if any(cursor.accept(*w) for w in (("STREAMING", "TABLE"), ("STREAMING", "LIVE", "TABLE"))):
        return DatasetKind.STREAMING_TABLE
    if cursor.accept("INCREMENTAL", "LIVE", "TABLE"):
        return DatasetKind.STREAMING_TABLE
    if cursor.accept("LIVE", "TABLE"):
        return DatasetKind.MATERIALIZED_VIEW
    if any(cursor.accept(*w) for w in (("VIEW",), ("LIVE", "VIEW"), ("STREAMING", "LIVE", "VIEW"))):
        return DatasetKind.TEMPORARY_VIEW
    if private and cursor.accept("STREAMING", "VIEW"):
        return DatasetKind.TEMPORARY_VIEW
    return None


def _read_dataset(cursor: Cursor, kind: DatasetKind) -> list[SdpWords]:
    place, head = cursor.source.place_at(0), cursor.at
    cursor.accept("IF", "NOT", "EXISTS")
    name = _read_name(cursor, f"the {kind}")
    columns: tuple[str, ...] | None = None
    expectations: tuple[Expectation, ...] = ()
    if cursor.accept("("):
        columns, expectations = _read_columns(cursor)
    generated = _generated_column(cursor, head)
    comment = _read_clauses(cursor)
    words = [token.text.upper() for token in cursor.tokens[head : cursor.at]]
    restricts = "MASK" in words or any(pair == ("ROW", "FILTER") for pair in pairwise(words))
    notes = (NOTE_ON_RIGHTS,) if restricts else ()
    query, flows = None, list[SdpWords]()
    if cursor.accept("AS"):
        query = _rest_of(cursor)
    elif cursor.accept("FLOW"):
        flows.append(_read_flow_body(cursor, name))
    elif kind is not DatasetKind.STREAMING_TABLE or cursor.at < len(cursor.tokens):
        raise cursor.error("expected AS and a query")
    return [DatasetWords(name, kind, place, columns, expectations, comment, query, notes, generated), *flows]


def _generated_column(cursor: Cursor, begin: int) -> str:
    """The first column of a list with GENERATED … AS, which the query does not have."""
    tokens, depth, name = cursor.tokens[begin : cursor.at], 0, ""
    for before, token in pairwise(tokens):
        depth += before.nesting
        if depth == 1 and before.text in ("(", ","):
            name = token.value()
        if depth == 1 and token.text.upper() == "GENERATED" and before.text not in ("(", ","):
            return name
    return ""


def _read_columns(cursor: Cursor) -> tuple[tuple[str, ...] | None, tuple[Expectation, ...]]:
    """A list after an opening bracket. Declared types do not change the rows, so only names without types count."""
    names, expectations, typed = list[str](), list[Expectation](), False
    while not cursor.accept(")"):
        if cursor.comes("CONSTRAINT"):
            begin = cursor.at
            if (expectation := _read_expectation(cursor)) is not None:
                expectations.append(expectation)
            elif cursor.at == begin + 1:
                _skip_item(cursor)
        elif cursor.comes("PRIMARY", "KEY") or cursor.comes("FOREIGN", "KEY"):
            _skip_item(cursor)
        else:
            names.append(cursor.next("the name of a column").value())
            typed |= not (cursor.comes(",") or cursor.comes(")") or cursor.comes("COMMENT"))
            _skip_item(cursor)
        if not cursor.accept(","):
            cursor.expect(")")
            break
    return (None if typed or not names else tuple(names)), tuple(expectations)


def _read_expectation(cursor: Cursor) -> Expectation | None:
    """CONSTRAINT name EXPECT (condition) [ON VIOLATION …]. None, after the first word, for another constraint."""
    cursor.expect("CONSTRAINT")
    if not (cursor.at + 1 < len(cursor.tokens) and cursor.tokens[cursor.at + 1].text.upper() == "EXPECT"):
        return None
    name = cursor.next("the name of an expectation").value()
    cursor.expect("EXPECT")
    cursor.expect("(")
    begin = cursor.offset
    condition = cursor.source.text[begin : cursor.close()].strip()
    violation = Violation.WARN
    if cursor.accept("ON", "VIOLATION"):
        if cursor.accept("DROP", "ROW") or cursor.accept("DROP"):
            violation = Violation.DROP
        elif cursor.accept("FAIL", "UPDATE") or cursor.accept("FAIL"):
            violation = Violation.FAIL
        else:
            raise cursor.error("expected DROP ROW or FAIL UPDATE")
    return Expectation(name, condition, violation)


def _skip_item(cursor: Cursor) -> None:
    """Move to the comma or the closing bracket that ends an item of a list. `<` and `>` enclose types."""
    depth = 0
    while cursor.at < len(cursor.tokens):
        if depth == 0 and (cursor.comes(",") or cursor.comes(")")):
            return
        text = cursor.next("the rest of a column").text
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(text, 0)


def _read_clauses(cursor: Cursor) -> str:
    """The clauses before AS or FLOW. Returns the comment; the others concern storage, and do not change rows."""
    comment = ""
    while cursor.at < len(cursor.tokens) and not (cursor.comes("AS") or cursor.comes("FLOW")):
        if cursor.accept("COMMENT"):
            comment = cursor.next("the comment in quotes").value()
        elif any(cursor.comes(word) for word in _STORAGE):
            cursor.next("a clause")
            _skip_clause(cursor)
        else:
            raise cursor.error("expected AS and a query")
    return comment


def _skip_clause(cursor: Cursor) -> None:
    while cursor.at < len(cursor.tokens):
        if any(cursor.comes(word) for word in ("AS", "FLOW", "COMMENT", *_STORAGE)):
            return
        if cursor.accept("("):
            cursor.close()
        else:
            cursor.next("the rest of the clause")


def _read_flow(cursor: Cursor) -> SdpWords:
    _read_name(cursor, "the flow")
    if cursor.accept("COMMENT"):
        cursor.next("the comment in quotes")
    cursor.expect("AS")
    return _read_flow_body(cursor, None)


def _read_flow_body(cursor: Cursor, target: tuple[str, ...] | None) -> SdpWords:
    """INSERT INTO … or AUTO CDC …; `target`: of a flow within CREATE STREAMING TABLE, which names none."""
    place = cursor.source.place_at(0)
    if cursor.accept("AUTO", "CDC") or cursor.accept("APPLY", "CHANGES"):
        once = cursor.accept("ONCE")
        if target is None:
            cursor.expect("INTO")
            target = _read_name(cursor, "the target")
        changes = _read_changes(cursor, target)
        return replace(changes, refusal=NO_ONCE) if once else changes
    cursor.expect("INSERT")
    if cursor.comes("REPLACE"):
        raise cursor.complaint("a flow that replaces rows (REPLACE WHERE) is not supported: a view follows its query")
    once = cursor.accept("ONCE") if target is not None else False
    if target is None:
        cursor.expect("INTO")
        once = cursor.accept("ONCE")
        cursor.accept("TABLE")
        target = _read_name(cursor, "the target")
    once = cursor.accept("ONCE") or once
    by_name = cursor.accept("BY", "NAME")
    return AppendWords(target, place, _rest_of(cursor), by_name, once)


def _read_changes(cursor: Cursor, target: tuple[str, ...]) -> ChangesWords:
    cursor.expect("FROM")
    snapshots = cursor.accept("SNAPSHOT")
    begin, place = cursor.offset, cursor.source.place_at(cursor.offset)
    _ = cursor.accept("STREAM")
    query: WrittenQuery | None = None
    if cursor.accept("("):
        is_query, at = any(cursor.comes(word) for word in QUERY_WORDS), cursor.offset
        inner = WrittenQuery(cursor.source.text[at : cursor.close()], cursor.source.place_at(at))
        query = inner if is_query else None
    else:
        _read_name(cursor, "the source")
    if cursor.accept("("):
        cursor.close()
    if query is not None and not cursor.comes("KEYS"):  # an alias
        cursor.accept("AS")
        _read_name(cursor, "the source")
    if not cursor.comes("KEYS"):
        raise cursor.error("expected KEYS (column, …)")
    end = cursor.offset
    text = cursor.source.text
    source = query or WrittenQuery(text[begin:end].strip(), place)
    return ChangesWords(target, place, source, text[end:], snapshots, query is not None)


def _read_setting(cursor: Cursor) -> SettingWords:
    if cursor.accept("TIME", "ZONE"):
        return SettingWords(ZONE_SETTING, cursor.next("a time zone").value())
    rest = cursor.source.text[cursor.offset :]
    key, _, value = rest.partition("=")
    return SettingWords(key.strip().strip("`"), value.strip().strip("'\""))


def _read_use(cursor: Cursor) -> UseWords:
    if cursor.accept("CATALOG"):
        return UseWords(_read_name(cursor, "the catalog")[-1], None)
    _ = cursor.accept("SCHEMA") or cursor.accept("DATABASE")
    *catalog, schema = _read_name(cursor, "the schema")
    return UseWords(catalog[-1] if catalog else None, schema)


def _rest_of(cursor: Cursor) -> WrittenQuery:
    if not any(cursor.comes(word) for word in QUERY_WORDS):
        raise cursor.error("expected a query: SELECT, WITH, FROM, VALUES or TABLE")
    offset = cursor.offset
    return WrittenQuery(cursor.source.text[offset:], cursor.source.place_at(offset))


def _read_name(cursor: Cursor, what: str) -> tuple[str, ...]:
    """A name with up to three parts."""
    parts = list[str]()
    while True:
        token = cursor.next(f"the name of {what}")
        if token.kind not in ("word", "name"):
            cursor.at -= 1
            raise cursor.error(f"expected the name of {what}")
        parts.append(token.value())
        if not cursor.accept("."):
            return tuple(parts)

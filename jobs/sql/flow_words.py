"""Parse CREATE FLOW … AS AUTO CDC, which Spark has from release 4.3. The expressions in it are left as spans of text.

CREATE [OR REPLACE] FLOW name AS AUTO CDC INTO target FROM [SNAPSHOT] [STREAM] source
CREATE [OR REFRESH] STREAMING TABLE target FLOW AUTO CDC FROM [SNAPSHOT] [STREAM] source
    KEYS (column, …)
    [IGNORE NULL UPDATES [ON columns]]
    [APPLY AS DELETE WHEN condition] [APPLY AS TRUNCATE WHEN condition]
    SEQUENCE BY expression
    [COLUMNS columns]
    [STORED AS SCD TYPE 1 | 2 [TRACK HISTORY ON columns]]

`columns` is a list with or without brackets, or `* EXCEPT (column, …)`.
"""

from dataclasses import dataclass

from tussock.jobs.sql.grammar import Cursor

#: The first words of the clauses. An expression ends before them.
_CLAUSES = (
    ("IGNORE", "NULL", "UPDATES"),
    ("APPLY", "AS"),
    ("SEQUENCE", "BY"),
    ("SYSTEM", "SEQUENCE"),
    ("COLUMNS",),
    ("STORED", "AS"),
    ("TRACK", "HISTORY"),
)


@dataclass(frozen=True, slots=True)
class WrittenColumn:
    """The name of a column, and its offset in the text."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """A choice among columns: the named ones, or all except these."""

    columns: tuple[WrittenColumn, ...]
    all_except: bool


@dataclass(frozen=True, slots=True)
class TextSpan:
    """The part of a text between two offsets."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class FlowHeader:
    """A flow of changes, as written.

    Args:
        target: the view that it creates.
        source_offset: the offset of the source's name.
        snapshots: the source contains whole deliveries; `sequence` is the version of each.
        ignore_nulls: the columns in which NULL keeps the earlier value; None: no column.
        scd_type: 1 (current rows) or 2 (intervals).
        track: columns whose changes begin another interval; None: all.
    """

    target: str
    or_replace: bool
    source: str
    source_offset: int
    snapshots: bool
    keys: tuple[WrittenColumn, ...]
    ignore_nulls: ColumnChoice | None
    delete_when: TextSpan | None
    truncate_when: TextSpan | None
    sequence: TextSpan
    columns: ColumnChoice | None
    scd_type: int
    track: ColumnChoice | None


def every_column() -> ColumnChoice:
    """Return the choice of all columns."""
    return ColumnChoice((), all_except=True)


def find_flow(cursor: Cursor) -> FlowHeader | None:
    """Read a statement after CREATE, if it is a flow. Otherwise the cursor stays. Raises SqlError."""
    if cursor.accept("OR", "REPLACE", "FLOW"):
        return _read_flow(cursor, or_replace=True)
    if cursor.accept("FLOW"):
        return _read_flow(cursor, or_replace=False)
    if cursor.accept("OR", "REFRESH", "STREAMING", "TABLE") or cursor.accept("STREAMING", "TABLE"):
        return _read_streaming_table(cursor)
    return None


def _read_flow(cursor: Cursor, or_replace: bool) -> FlowHeader:
    cursor.word("the flow")
    cursor.expect("AS")
    cursor.expect("AUTO", "CDC")
    cursor.expect("INTO")
    return _read_clauses(cursor, cursor.name("the target"), or_replace)


def _read_streaming_table(cursor: Cursor) -> FlowHeader:
    cursor.accept("IF", "NOT", "EXISTS")
    target = cursor.name("the target")
    if not cursor.comes("FLOW"):
        raise cursor.complaint(
            "a streaming table is created with its flow: write CREATE FLOW name AS AUTO CDC INTO "
            f"{target} FROM …, and remove this statement; for another query, write CREATE MATERIALIZED VIEW"
        )
    cursor.expect("FLOW")
    cursor.expect("AUTO", "CDC")
    return _read_clauses(cursor, target, or_replace=False)


def _read_clauses(cursor: Cursor, target: str, or_replace: bool) -> FlowHeader:
    cursor.expect("FROM")
    snapshots = cursor.accept("SNAPSHOT")
    source, source_offset = _read_source(cursor)
    cursor.expect("KEYS")
    keys = _read_list(cursor, "a column of the key")
    if snapshots and cursor.comes("IGNORE", "NULL"):
        raise cursor.complaint("the rows of a snapshot are whole; IGNORE NULL UPDATES belongs to a flow of changes")
    ignored = cursor.accept("IGNORE", "NULL", "UPDATES")
    ignore_nulls = (_read_choice(cursor) if cursor.accept("ON") else every_column()) if ignored else None
    delete_when = _read_condition(cursor, snapshots) if cursor.accept("APPLY", "AS", "DELETE") else None
    truncate_when = _read_condition(cursor, snapshots) if cursor.accept("APPLY", "AS", "TRUNCATE") else None
    if cursor.comes("APPLY", "AS"):
        raise cursor.error("expected APPLY AS DELETE WHEN, then APPLY AS TRUNCATE WHEN, each at most once")
    cursor.expect("SEQUENCE", "BY")
    sequence = _read_expression(cursor)
    if cursor.comes("SYSTEM", "SEQUENCE"):
        raise cursor.complaint("SYSTEM SEQUENCE BY is not supported: a target has one sequence")
    columns = _read_choice(cursor) if cursor.accept("COLUMNS") else None
    scd_type = _read_scd_type(cursor) if cursor.accept("STORED", "AS") else 1
    track = None
    if cursor.comes("TRACK", "HISTORY"):
        if scd_type == 1:
            raise cursor.complaint("TRACK HISTORY ON needs STORED AS SCD TYPE 2: type 1 keeps no history")
        cursor.accept("TRACK", "HISTORY")
        cursor.expect("ON")
        track = _read_choice(cursor)
    cursor.end()
    return FlowHeader(
        target,
        or_replace,
        source,
        source_offset,
        snapshots,
        keys,
        ignore_nulls,
        delete_when,
        truncate_when,
        sequence,
        columns,
        scd_type,
        track,
    )


def _read_source(cursor: Cursor) -> tuple[str, int]:
    """The source: name, STREAM name or STREAM(name)."""
    bracket = cursor.accept("STREAM", "(")
    if not bracket and cursor.comes("STREAM") and not cursor.comes("STREAM", "KEYS"):
        cursor.accept("STREAM")
    offset = cursor.offset
    name = cursor.name("the source: a source, a table or a view")
    if bracket:
        cursor.expect(")")
    return name, offset


def _read_condition(cursor: Cursor, snapshots: bool) -> TextSpan:
    if snapshots:
        raise cursor.complaint("a key that a snapshot lacks is deleted; APPLY AS belongs to a flow of changes")
    cursor.expect("WHEN")
    return _read_expression(cursor)


def _read_expression(cursor: Cursor) -> TextSpan:
    """The tokens up to the next clause outside of brackets."""
    begin, first, depth = cursor.offset, cursor.at, 0
    while cursor.at < len(cursor.tokens):
        if depth == 0 and any(cursor.comes(*words) for words in _CLAUSES):
            break
        depth += cursor.next("an expression").nesting
    if cursor.at == first:
        raise cursor.error("expected an expression")
    return TextSpan(begin, cursor.tokens[cursor.at - 1].end)


def _read_scd_type(cursor: Cursor) -> int:
    cursor.expect("SCD", "TYPE")
    for number in (1, 2):
        if cursor.accept(str(number)):
            return number
    raise cursor.error("expected 1 (the current rows) or 2 (the history of each key)")


def _read_choice(cursor: Cursor) -> ColumnChoice:
    if cursor.accept("*"):
        if not cursor.comes("EXCEPT"):
            return every_column()
        cursor.expect("EXCEPT")
        return ColumnChoice(_read_list(cursor, "a column"), True)
    if cursor.comes("("):
        return ColumnChoice(_read_list(cursor, "a column"), False)
    columns = [_read_column(cursor, "a column")]
    while cursor.accept(","):
        columns.append(_read_column(cursor, "a column"))
    return ColumnChoice(tuple(columns), False)


def _read_list(cursor: Cursor, what: str) -> tuple[WrittenColumn, ...]:
    cursor.expect("(")
    columns = [_read_column(cursor, what)]
    while cursor.accept(","):
        columns.append(_read_column(cursor, what))
    cursor.expect(")")
    return tuple(columns)


def _read_column(cursor: Cursor, what: str) -> WrittenColumn:
    offset = cursor.offset
    token = cursor.next(f"the name of {what}")
    if token.kind not in ("word", "name"):
        cursor.at -= 1
        raise cursor.error(f"expected the name of {what}")
    if cursor.comes("."):
        raise cursor.complaint("a flow names whole columns; select a field of a struct in a view below the flow")
    return WrittenColumn(token.value(), offset)

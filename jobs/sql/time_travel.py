"""Relations of a query at other epochs: `v VERSION AS OF e`, `v TIMESTAMP AS OF m`, and `table_changes('v', from, to)`.

Spark's grammar has them, but its analyzer accepts them only for tables of Spark's catalogs. So Spark's parser finds
them, and each is replaced by a separate relation with the rows of that epoch. Its name describes it, and no other
relation can have it:

    FROM orders VERSION AS OF 5 AS o            FROM (`orders version as of 5` AS `orders`) AS o
    FROM staging.orders VERSION AS OF 5         FROM (staging.`orders version as of 5`)
    FROM table_changes('orders', 5, 7)          FROM (`table_changes(orders, 5, 7)` AS `table_changes`)

The parentheses allow a TABLESAMPLE between a relation and its alias. Places in messages refer to the user's text.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException

from tussock.jobs.logical.errors import UnsupportedQueryError, sql_error
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import (
    DEFAULT_SCHEMA,
    TooManyPartsError,
    resolve_name,
    resolve_text,
    schema_of,
    split_name,
    sql_name,
)
from tussock.jobs.logical.source_text import SourceText, edit_source
from tussock.jobs.logical.statements import RelationAt
from tussock.jobs.logical.tokens import Token, closing_bracket, tokens_of
from tussock.jobs.spark.sql_errors import from_spark
from tussock.jobs.sql.sandbox import Sandbox, items, text_of
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind
from tussock.statestore.meta.sight import Sight

CHANGES = "table_changes"
#: The columns that table_changes adds after the relation's own: the kind of change, and the epochs between which it
#: occurred.
CHANGE_COLUMNS = (
    ColumnSpec("_change_type", "string"),
    ColumnSpec("_from_epoch", "bigint"),
    ColumnSpec("_to_epoch", "bigint"),
)
_USAGE = (
    f"expected {CHANGES}('view', from) or {CHANGES}('view', from, to): epochs or moments, the first exclusive, the "
    "last inclusive"
)
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_MOMENTS = frozenset({"string", "date", "timestamp", "timestamp_ntz"})
_FOLLOWS = (
    "a view follows its relations from epoch to epoch, but an epoch is not readable forever; omit it here, and name "
    "the epoch in the query that reads the view: FROM {name} VERSION AS OF …"
)
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


class Epochs(Protocol):
    """Resolves references of a query to other epochs."""

    def at(self, moment: datetime) -> Sight:
        """The sight that readers had at a moment. Raises BadMomentError."""
        ...

    def relation(self, name: str, seen: Sight) -> Relation:
        """The relation of this name in a sight. Raises InputError with the reason and the alternatives."""
        ...

    def changes_of(self, name: str, since: int, until: Sight | None) -> tuple[Relation, int]:
        """The relation whose changes are read, and the last epoch of them (`until` None: the query's own epoch).

        Raises: as `relation`; BackwardsError.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Named:
    """A part of a text that names a relation at an epoch."""

    begin: int
    end: int  # exclusive
    name: str  # of the relation; for a call, of the function
    node: JavaObject


def at_their_epochs(
    sandbox: Sandbox, source: SourceText, epochs: Epochs | None
) -> tuple[SourceText, tuple[RelationAt, ...]]:
    """A statement's text for Spark, and the relations that it names at other epochs.

    The sandbox keeps these relations until its relations are replaced.

    Args:
        epochs: None rejects references to other epochs.

    Raises: SqlError for syntax errors; BadMomentError; errors of `epochs`.
    Cost: none if no word of the text hints at an epoch. Otherwise another parse, one to four round trips to the JVM
        per node of the plan, and a small Spark query per moment.
    """
    references = _find_references(sandbox, source)
    if epochs is None and references:
        raise _make_refusal(source, references[0], "this statement")
    parts: dict[tuple[int, int], str] = {}
    relations: dict[str, RelationAt] = {}
    for named in references:
        assert epochs is not None
        there = (_changes_at if named.node.productPrefix() == "UnresolvedTableValuedFunction" else _relation_at)(
            sandbox, source, named, epochs
        )
        relations[there.name] = there
        parts[named.begin, named.end] = _place_text(there, named)
    for there in relations.values():
        sandbox.add(_empty_relation(there))
    return (edit_source(source, parts) if parts else source), tuple(relations.values())


def _place_text(there: RelationAt, named: _Named) -> str:
    """The text for Spark in place of a reference. An alias of a text has no schema, but a name with one has its own."""
    if there.since is not None or schema_of(there.name) == DEFAULT_SCHEMA:
        return f"({quote_name(there.name)} AS {quote_name(split_name(named.name)[1])})"
    return f"({sql_name(there.name)})"


def refuse_epochs(sandbox: Sandbox, source: SourceText, within: str) -> None:
    """Raises UnsupportedQueryError if the query of a view names an epoch."""
    if references := _find_references(sandbox, source):
        raise _make_refusal(source, references[0], within)


def _make_refusal(source: SourceText, named: _Named, within: str) -> UnsupportedQueryError:
    written = source.short_fragment(named.begin, named.end - 1)
    reason = _FOLLOWS.format(name=named.name)
    return UnsupportedQueryError(
        written, reason, source.place_at(named.begin), source.line_with_caret(named.begin), within
    )


def _find_references(sandbox: Sandbox, source: SourceText) -> list[_Named]:
    """The references in the order of the text."""
    tokens = [t for t in tokens_of(source) if source.begin <= t.start and (source.end is None or t.end <= source.end)]
    words = [t.value().lower() for t in tokens]
    if CHANGES not in words and not any(pair == ("as", "of") for pair in itertools.pairwise(words)):
        return []
    references = [
        _reference_of(source, tokens, node)
        for node in _epoch_nodes(source, sandbox.parse_statement(source), frozenset())
    ]
    return sorted({(n.begin, n.end): n for n in references}.values(), key=lambda n: n.begin)


def _epoch_nodes(source: SourceText, plan: JavaObject, withs: frozenset[str]) -> Iterator[JavaObject]:
    """The nodes of a parsed plan that name an epoch. `withs`: the names defined by WITH at this point."""
    kind = plan.productPrefix()
    if kind == "UnresolvedWith":
        for definition in items(plan.cteRelations()):
            yield from _epoch_nodes(source, definition._2(), withs)
            withs |= {str(definition._1()).lower()}
        yield from _epoch_nodes(source, plan.child(), withs)
        return
    if kind == "RelationTimeTravel":
        if plan.relation().multipartIdentifier().size() == 1 and (name := _written_name(plan)).lower() in withs:
            raise sql_error(
                source,
                _node_span(plan.relation())[0],
                f"{name} is defined by WITH here; name the epoch inside its query",
            )
        yield plan
    if kind == "UnresolvedTableValuedFunction" and [str(part).lower() for part in items(plan.name())] == [CHANGES]:
        yield plan
    for below in [*items(plan.children()), *items(plan.innerChildren())]:  # inner: subqueries
        yield from _epoch_nodes(source, below, withs)


def _written_name(travel: JavaObject) -> str:
    return ".".join(str(part) for part in items(travel.relation().multipartIdentifier()))


def _name_of(source: SourceText, travel: JavaObject) -> str:
    """The relation that a node reads at another epoch."""
    parts = [str(p) for p in items(travel.relation().multipartIdentifier())]
    try:
        return resolve_name(parts, source.schema)
    except TooManyPartsError as err:
        raise sql_error(source, _node_span(travel.relation())[0], str(err)) from None


def _node_span(node: JavaObject) -> tuple[int, int]:
    """The first offset of a node, and the offset after its last character."""
    origin = node.origin()
    return int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1


def _reference_of(source: SourceText, tokens: list[Token], node: JavaObject) -> _Named:
    if node.productPrefix() == "RelationTimeTravel":  # its own place is at the words after the name
        return _Named(_node_span(node.relation())[0], _node_span(node)[1], _name_of(source, node), node)
    begin, end = _node_span(node)  # with its alias
    return _Named(begin, _call_arguments(tokens, begin, end)[-1].end, CHANGES, node)


def _call_arguments(tokens: list[Token], begin: int, end: int) -> list[Token]:
    """The tokens of a call from its opening parenthesis to the closing one."""
    inside = [t for t in tokens if begin <= t.start < end]
    first = next(i for i, t in enumerate(inside) if t.text == "(")
    last = closing_bracket(inside, first)
    assert last is not None, "Spark parsed the call, so its parentheses match"
    return inside[first : last + 1]


def _relation_at(sandbox: Sandbox, source: SourceText, named: _Named, epochs: Epochs) -> RelationAt:
    if (version := text_of(named.node.version())) is not None:
        if not version.isdecimal():
            reason = f"VERSION AS OF {version!r}: a version is an epoch number; for a moment write TIMESTAMP AS OF '…'"
            raise sql_error(source, named.begin, reason)
        seen = Sight(int(version))
    else:
        begin, end = _node_span(named.node)
        of = next(t for t in tokens_of(source) if t.start >= begin and t.text.upper() == "OF")
        (value,) = _constant_values(sandbox, source, begin, [source.text[of.end : end]])
        if not isinstance(value, datetime):
            raise sql_error(
                source,
                begin,
                f"expected a moment after TIMESTAMP AS OF, found {value}; for an epoch write VERSION AS OF",
            )
        seen = epochs.at(value)
    relation = epochs.relation(named.name, seen)
    epoch = seen.epoch_of(relation.name)
    as_seen = ", as it was seen" if seen.held else ""
    return RelationAt(f"{relation.name} version as of {epoch}{as_seen}", relation, epoch, seen=seen)


def _changes_at(sandbox: Sandbox, source: SourceText, named: _Named, epochs: Epochs) -> RelationAt:
    inside = [t for t in tokens_of(source) if t.start < named.end]
    between = _call_arguments(inside, named.begin, named.end)[1:-1]
    texts, depth = [""], 0
    for i, token in enumerate(between):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if depth == 0 and token.text == ",":
            texts.append("")
        else:
            texts[-1] += source.text[token.start : between[i + 1].start if i + 1 < len(between) else token.end]
    name, *bounds = texts
    if not (1 <= len(bounds) <= 2 and between[0].kind == "string" and name.strip() == between[0].text):
        raise sql_error(source, named.begin, _USAGE)
    try:
        changed = resolve_text(between[0].value(), source.schema)
    except TooManyPartsError:
        raise sql_error(source, named.begin, _USAGE) from None
    seen = [
        epochs.at(v) if isinstance(v, datetime) else Sight(v)
        for v in _constant_values(sandbox, source, named.begin, bounds)
    ]
    since = seen[0].epoch_of(changed)
    relation, until = epochs.changes_of(changed, since, seen[1] if len(seen) == 2 else None)
    return RelationAt(f"{CHANGES}({relation.name}, {since}, {until})", relation, until, since)


def _constant_values(sandbox: Sandbox, source: SourceText, begin: int, texts: list[str]) -> list[int | datetime]:
    """The values of constant expressions: epochs or moments. Spark parses texts as moments in the store's time zone."""
    try:
        kinds = [kind for _, kind in sandbox.session.sql("SELECT " + ", ".join(f"({t})" for t in texts)).dtypes]
        for text, kind in zip(texts, kinds, strict=True):
            if kind not in _WHOLE | _MOMENTS:
                raise sql_error(
                    source, begin, f"{text.strip()} is a {kind}; expected an epoch (a whole number) or a moment"
                )
        exact = [
            f"({t})" if kind in _WHOLE else f"unix_micros(CAST(({t}) AS TIMESTAMP))"
            for t, kind in zip(texts, kinds, strict=True)
        ]
        (row,) = sandbox.session.sql(f"SELECT {', '.join(exact)}").collect()
    except PySparkException as err:
        shown = ", ".join(t.strip() for t in texts)
        reason = f"{shown} cannot be read as an epoch or a moment: {from_spark(err, SourceText('')).reason}"
        raise sql_error(
            source, begin, f"{reason}; expected a constant, e.g. '2026-01-01 12:00' or now() - INTERVAL 1 HOUR"
        ) from err
    for text, value in zip(texts, row, strict=True):
        if value is None:
            raise sql_error(source, begin, f"{text.strip()} is NULL; expected an epoch or a moment")
    return [int(v) if kind in _WHOLE else _1970 + timedelta(microseconds=v) for v, kind in zip(row, kinds, strict=True)]


def _empty_relation(there: RelationAt) -> Relation:
    """The relation for the sandbox: its name and columns."""
    columns = there.relation.columns if there.since is None else (*there.relation.columns, *CHANGE_COLUMNS)
    return Relation(there.relation.id, there.name, RelationKind.VIEW, columns, msgspec.Raw(b"{}"))

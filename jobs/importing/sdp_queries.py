"""The relations, reads and settings in a query of a declarative pipeline.

Spark parses the query, so its words decide which parts of the text are relations. `LIVE.orders`, `STREAM(orders)` and
`read_files(…)` are then replaced by names of relations of the pipeline.
"""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from py4j.java_gateway import JavaObject

from tussock.jobs.importing.names import lower_values, relation_beside, relation_text
from tussock.jobs.logical.hidden_columns import INGESTED_AT
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, split_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, closing_bracket, tokens_of
from tussock.jobs.sql.sandbox import Sandbox, items

_SETTING = re.compile(r"\$\{([^${}]+)\}")
_CLOCKS = {
    "current_timestamp": INGESTED_AT,
    "now": INGESTED_AT,
    "current_date": f"CAST({INGESTED_AT} AS DATE)",
    "curdate": f"CAST({INGESTED_AT} AS DATE)",
}
_CALLED = ("now", "curdate")  # a word without brackets is a column
#: Table-valued functions of Databricks that read files.
FILE_FUNCTIONS = frozenset({"read_files", "cloud_files"})


@dataclass(frozen=True, slots=True)
class Reference:
    """A part of a query that names a relation or reads files.

    Args:
        begin, end: its offsets, with the word STREAM and brackets; `end` is exclusive.
        parts: the parts of the name, or of the function's name.
        arguments: of a function, the tokens between its brackets; None: a name.
        has_alias: whether the query gives it an alias.
    """

    begin: int
    end: int
    parts: tuple[str, ...]
    arguments: tuple[Token, ...] | None
    has_alias: bool


def replace_settings(text: str, settings: Mapping[str, str]) -> str:
    """The text with `${key}` replaced, as Spark does. Unknown keys stay."""
    return _SETTING.sub(lambda match: settings.get(match[1].strip(), match[0]), text)


def unknown_setting(text: str) -> str | None:
    """The key of the first `${key}` that is left in a text."""
    match = _SETTING.search(text)
    return None if match is None else match[1].strip()


def find_references(sandbox: Sandbox, source: SourceText) -> list[Reference]:
    """The relations and files that a query reads, in the order of the text. Raises SqlError for a syntax error."""
    with sandbox.active():
        parsed = sandbox.parse_as_written(source)
        tokens = tokens_of(source)
        references = {
            reference.begin: reference
            for node, has_alias in _leaves_of(parsed, frozenset(), False)
            if (reference := _reference_of(tokens, node, has_alias)) is not None
        }
    return [references[begin] for begin in sorted(references)]


def find_clocks(source: SourceText) -> dict[tuple[int, int], str]:
    """The parts of a query over one source of files that read the clock, with the moment of the file's epoch for each.

    A stream reads the clock when it processes a row, which is when an epoch takes the row's file.
    """
    tokens, parts = tokens_of(source), dict[tuple[int, int], str]()
    for i, token in enumerate(tokens):
        moment = _CLOCKS.get(token.text.lower())
        if moment is None or (i > 0 and tokens[i - 1].text.upper() in (".", "AS")):
            continue
        called = [t.text for t in tokens[i + 1 : i + 3]] == ["(", ")"]
        if called or token.text.lower() not in _CALLED:
            parts[token.start, tokens[i + 2].end if called else token.end] = moment
    return parts


def name_in_query(name: str, reference: Reference, withs: Container[str], *, by_schema: bool) -> str:
    """The text that replaces a reference: the name, under the alias by which the query's columns may name it.

    Args:
        withs: the names that the query's WITH may define.
        by_schema: columns are named by the schema too (find_qualifiers).
    """
    alias, text = reference.parts[-1], _with_schema(name) if by_schema else relation_beside(name, withs)
    if reference.has_alias or reference.arguments is not None or alias.lower() == split_name(name)[1]:
        return text
    return f"{text} AS {quote_name(alias)}"


def find_qualifiers(source: SourceText, relation: str, reference: Reference) -> dict[tuple[int, int], str]:
    """The places where columns are named by a reference's schema, such as LIVE.orders.id, with the text for each.

    Args:
        relation: that replaces the reference.
    """
    if reference.has_alias or reference.arguments is not None or len(reference.parts) < 2:
        return {}
    parts = tuple(part.lower() for part in reference.parts)
    is_renamed = parts[-1] != split_name(relation)[1]
    qualifier = quote_name(reference.parts[-1]) if is_renamed else _with_schema(relation)
    tokens, places = tokens_of(source), dict[tuple[int, int], str]()
    for at, token in enumerate(tokens):
        if token.kind not in ("word", "name") or (at > 0 and tokens[at - 1].text == "."):
            continue
        for length in range(len(parts), 1, -1):
            chain = tokens[at : at + 2 * length]
            if [t.text for t in chain[1::2]] == ["."] * length and lower_values(chain[::2]) == parts[-length:]:
                places[token.start, chain[-2].end] = qualifier
                break
    return places


def _with_schema(relation: str) -> str:
    """The name of a relation with its schema, also if that is the default one."""
    schema, _ = split_name(relation)
    return f"{schema}.{relation_text(relation)}" if schema == DEFAULT_SCHEMA else relation_text(relation)


def _leaves_of(plan: JavaObject, withs: frozenset[str], has_alias: bool) -> Iterator[tuple[JavaObject, bool]]:
    """The relations and table-valued functions of a parsed plan. `withs`: the names defined by WITH at this point."""
    kind = plan.productPrefix()
    if kind == "UnresolvedWith":
        for definition in items(plan.cteRelations()):
            yield from _leaves_of(definition._2(), withs, False)
            withs |= {str(definition._1()).lower()}
        yield from _leaves_of(plan.child(), withs, False)
        return
    if kind == "UnresolvedRelation":
        parts = [str(part) for part in items(plan.multipartIdentifier())]
        if not (len(parts) == 1 and parts[0].lower() in withs):
            yield plan, has_alias
        return
    if kind == "UnresolvedTableValuedFunction":
        yield plan, has_alias
    passes = kind in ("SubqueryAlias", "UnresolvedSubqueryColumnAliases", "NamedStreamingRelation", "Sample")
    under = kind == "SubqueryAlias" or (passes and has_alias)
    for below in [*items(plan.children()), *items(plan.innerChildren())]:
        yield from _leaves_of(below, withs, under)


def _reference_of(tokens: list[Token], node: JavaObject, has_alias: bool) -> Reference | None:
    """The reference of a node. None for a function that reads no files, such as `range`."""
    is_function = node.productPrefix() == "UnresolvedTableValuedFunction"
    parts = tuple(str(p) for p in items(node.name() if is_function else node.multipartIdentifier()))
    if is_function and parts[-1].lower() not in FILE_FUNCTIONS:
        return None
    begin = int(node.origin().startIndex().get())
    at = next(i for i, token in enumerate(tokens) if token.start >= begin)
    brackets = 0
    if tokens[at].text.upper() == "STREAM" and at + 1 < len(tokens) and tokens[at + 1].text not in (".",):
        at += 1
        while tokens[at].text == "(":
            at, brackets = at + 1, brackets + 1
    at += 2 * len(parts) - 1  # the names and the dots between them
    arguments = None
    if is_function:
        close = closing_bracket(tokens, at)
        assert close is not None, "Spark parsed the call, so its brackets match"
        arguments, at = tuple(tokens[at + 1 : close]), close + 1
    at += brackets
    return Reference(begin, tokens[at - 1].end, parts, arguments, has_alias)

"""Names of a project's relations, in the project's SQL and in the pipeline."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, join_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, tokens_of

_BEFORE_NAME = ("WITH", "RECURSIVE", ",")  # of a query in WITH
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def relation_name(schema: str, name: str) -> str:
    """The name in the pipeline of a relation of a project: `orders` in the default schema, else `staging.orders`.

    Characters that a name of a pipeline cannot have become `_`.

    Args:
        schema: of the project; empty for the pipeline's default schema.
    """
    return join_name(_allowed_name(schema or DEFAULT_SCHEMA), _allowed_name(name))


def _allowed_name(name: str) -> str:
    word = re.sub(r"[^a-z0-9_]", "_", name.lower())[:100]
    return f"_{word}"[:100] if word[:1].isdigit() else word


def relation_text(relation: str) -> str:
    """The name of a relation in a statement."""
    return ".".join(map(name_text, relation.split(".")))


def relation_beside(relation: str, withs: Container[str]) -> str:
    """The name of a relation in a query. A WITH of the query does not hide a name with a schema.

    Args:
        withs: the names that the query's WITH may define; see `names_of_withs`.
    """
    return f"{DEFAULT_SCHEMA}.{relation_text(relation)}" if relation in withs else relation_text(relation)


def names_of_withs(tokens: Sequence[Token]) -> frozenset[str]:
    """The names that a WITH of a query may define, in lower case: WITH a AS (…), b (x, y) AS (…). May have others."""
    return frozenset(
        name.value().lower()
        for before, name, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if _is_name(name) and before.text.upper() in _BEFORE_NAME and after.text.upper() in ("AS", "(")
    )


def name_text(name: str) -> str:
    """The name of a column in a statement, in backquotes if it needs them."""
    return name if _PLAIN.fullmatch(name) else quote_name(name)


def column_text(written: str) -> str:
    """A column that a project names, or an expression in its place, such as `unique_key` of dbt."""
    return name_text(written) if re.fullmatch(r"\w+", written) else written


def is_column(written: str) -> bool:
    """Whether a text of SQL is the name of a column, and no expression."""
    return re.fullmatch(r"\w+|`(?:[^`]|``)+`", written.strip()) is not None


def parts_of(qualified: str) -> tuple[str, ...]:
    """The parts of a qualified name in any quotes, in lower case: `"db"."main"."orders"` -> (db, main, orders)."""
    return lower_values(token for token in tokens_of(SourceText(qualified)) if token.text != ".")


def bare_query(text: str) -> str:
    """A query without the semicolons, comments and blanks after it. A comment at its end would hide what follows.

    Raises: SqlError if a quote or comment is not closed.
    """
    tokens = tokens_of(SourceText(text))
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    return text[: tokens[-1].end].lstrip() if tokens else ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A text with the names of the pipeline. `reads`: the relations among them, sorted.

    `double_quotes`: the first text in double quotes that names no relation; a name in some dialects, a string in Spark.
    """

    sql: str
    reads: tuple[str, ...]
    double_quotes: str = ""


def rename_relations(
    sql: str, names: Mapping[tuple[str, ...], str], calls: Mapping[tuple[str, ...], str] = MappingProxyType({})
) -> Renamed:
    """Replace the qualified names of relations by their names in the pipeline. STREAM before a relation is left out.

    Args:
        names: the name in the pipeline by the lower-case parts of the project's name; see `parts_of`.
        calls: names of relations that the project writes as a text or a call, such as read_csv('a.csv'), by their
            tokens; see `tokens_in`.

    Raises: SqlError if a quote or comment is not closed.
    """
    tokens = tokens_of(SourceText(sql))
    text, at, index = "", 0, 0
    reads: set[str] = set()
    double_quotes, withs = "", names_of_withs(tokens)
    while index < len(tokens):
        chain = _chain_at(tokens, index)
        taken = next((n for n in range(len(chain), 0, -1) if lower_values(chain[:n]) in names), 0)
        call = _call_at(tokens, index, calls)
        if taken or call:
            name = names[lower_values(chain[:taken])] if taken else calls[call]
            first, last = stream_around(tokens, index, index + (2 * taken - 2 if taken else len(call) - 1))
            reads.add(name)
            text += sql[at : tokens[first].start] + relation_beside(name, withs)
            at, index = tokens[last].end, last + 1
            continue
        if not double_quotes and any(token.text.startswith('"') for token in chain):
            double_quotes = next(token.text for token in chain if token.text.startswith('"'))
        index += max(1, 2 * len(chain) - 1)
    return Renamed(text + sql[at:], tuple(sorted(reads)), double_quotes)


def tokens_in(text: str) -> tuple[str, ...]:
    """The texts of the tokens of a text."""
    return tuple(token.text for token in tokens_of(SourceText(text)))


def stream_around(tokens: Sequence[Token], first: int, last: int) -> tuple[int, int]:
    """The indexes of a relation's first and last token, with STREAM before it, which means its new rows."""
    words = [token.text.upper() for token in tokens[max(0, first - 2) : first]]
    if words[-2:] == ["STREAM", "("] and last + 1 < len(tokens) and tokens[last + 1].text == ")":
        return first - 2, last + 1
    return (first - 1, last) if words[-1:] == ["STREAM"] else (first, last)


def _call_at(tokens: Sequence[Token], index: int, calls: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The call of a relation that begins at a token; empty if there is none."""
    if index == 0 or tokens[index - 1].text.upper() not in ("FROM", "JOIN", "STREAM"):
        return ()
    return next((c for c in calls if tuple(t.text for t in tokens[index : index + len(c)]) == c), ())


def _chain_at(tokens: Sequence[Token], index: int) -> list[Token]:
    """The names joined by dots that begin at a token; empty if it is no name."""
    chain: list[Token] = []
    while index < len(tokens) and _is_name(tokens[index]):
        chain.append(tokens[index])
        if index + 1 >= len(tokens) or tokens[index + 1].text != ".":
            break
        index += 2
    return chain


def _is_name(token: Token) -> bool:
    return token.kind in ("word", "name") or (token.kind == "string" and token.text[0] == '"')


def lower_values(tokens: Iterable[Token]) -> tuple[str, ...]:
    """The values of tokens, in lower case."""
    return tuple(token.value().lower() for token in tokens)

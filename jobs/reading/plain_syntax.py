"""The SELECTs that this process may answer as Spark does, as trees of terms: tokens in, no types and no catalog.

    query    = SELECT [DISTINCT] item {, item} FROM table {[INNER | LEFT [OUTER]] JOIN table ON equality {AND equality}}
               [WHERE term] [GROUP BY term {, term}] [HAVING term]
               [ORDER BY term [ASC | DESC] [NULLS FIRST | NULLS LAST] {, …}] [LIMIT number]
    item     = * | term [[AS] name]
    table    = name [[AS] name]
    equality = [name .] name = [name .] name

Terms have Spark's precedence. Any other text is not plain, also one that Spark would refuse.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import Token, tokens_of, with_signs
from tussock.statestore.errors import InputError

T = TypeVar("T")


class NotPlainError(Exception):
    """Spark must answer the query. Never shown."""


@dataclass(frozen=True, slots=True)
class PlainTerm:
    """A node of a term.

    Args:
        node: Catalyst's class name of an operator; or `name`, `number`, `text`, `date`, `timestamp`, `null`, `true`,
            `false`, `*`, `call`, `distinct` (a call with DISTINCT), `Case` (with ELSE if the number of args is odd),
            `Cast`, `Between`.
        text: of a leaf, as its token means it; of a call, its name in lower case; of a Cast, its type in lower case.
        of: the qualifier of a name.
    """

    node: str
    args: tuple["PlainTerm", ...] = ()
    text: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class PlainItem:
    """One entry of the SELECT list. `name`: its alias; empty: none."""

    term: PlainTerm
    name: str = ""


@dataclass(frozen=True, slots=True)
class PlainScan:
    """A relation of FROM. `on`: the equalities of its join with the relations before; empty for the first."""

    relation: str
    alias: str
    left: bool = False
    on: tuple[tuple[PlainTerm, PlainTerm], ...] = ()


@dataclass(frozen=True, slots=True)
class PlainSort:
    """One entry of ORDER BY."""

    term: PlainTerm
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class PlainText:
    """A parsed SELECT."""

    items: tuple[PlainItem, ...]
    scans: tuple[PlainScan, ...]
    distinct: bool = False
    where: PlainTerm | None = None
    groups: tuple[PlainTerm, ...] = ()
    having: PlainTerm | None = None
    order: tuple[PlainSort, ...] = ()
    limit: int | None = None


def select_text(sql: str) -> PlainText:
    """Parse one SELECT. Raises NotPlainError, also for a text that is no SELECT."""
    try:
        statements = split_script(sql)
        if len(statements) != 1:
            raise NotPlainError
        return _Parser(_plain_tokens(statements[0].text)).query()
    except InputError as err:
        raise NotPlainError from err


_COMPARISONS = {
    "=": "EqualTo",
    "==": "EqualTo",
    "<>": "NotEqual",
    "!=": "NotEqual",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
    "<=>": "EqualNullSafe",
}
_SUMS = {"+": "Add", "-": "Subtract", "||": "Concat"}
_PRODUCTS = {"*": "Multiply", "/": "Divide", "%": "Remainder"}
_SIGNS = frozenset({*_COMPARISONS, *_SUMS, *_PRODUCTS})
#: Words that never name a column, a relation or an alias here. Spark allows some of them; then it answers.
_RESERVED = frozenset(
    {
        "ALL", "AND", "ANTI", "ANY", "ARRAY", "AS", "ASC", "BETWEEN", "BOTH", "BY", "CASE", "CAST", "COLLATE", "CROSS",
        "CUBE", "CURRENT", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "DESC", "DISTINCT",
        "DIV", "ELSE", "END", "ESCAPE", "EXCEPT", "EXISTS", "FALSE", "FETCH", "FILTER", "FOR", "FROM", "FULL", "GROUP",
        "HAVING", "ILIKE", "IN", "INNER", "INTERSECT", "INTERVAL", "INTO", "IS", "JOIN", "LATERAL", "LEADING", "LEFT",
        "LIKE", "LIMIT", "LOCALTIMESTAMP", "MAP", "MINUS", "NATURAL", "NOT", "NULL", "NULLS", "OFFSET", "ON", "OR",
        "ORDER", "OUTER", "OVER", "OVERLAPS", "PIVOT", "REGEXP", "RIGHT", "RLIKE", "ROLLUP", "SELECT", "SEMI",
        "SESSION_USER", "SETS", "SOME", "STRUCT", "SYSTEM_USER", "TABLE", "TABLESAMPLE", "THEN", "TRAILING", "TRUE",
        "UNION", "UNPIVOT", "USER", "USING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH", "WITHIN",
    }
)  # fmt: skip
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_OTHER_BLANK = re.compile(r"[^\S \t\r\n]")
_NUMBER = re.compile(r"\d+(\.\d+)?")


class _Parser:
    """Reads the tokens once, from left to right. Raises NotPlainError."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at = with_signs(tokens, _SIGNS), 0
        if any(a.kind == b.kind == "string" for a, b in pairwise(self._tokens)):
            raise NotPlainError  # Spark joins adjacent strings

    def query(self) -> PlainText:
        """All tokens as one SELECT."""
        self._need("SELECT")
        distinct = self._take("DISTINCT")
        items = self._list(self._item)
        self._need("FROM")
        scans = [self._table()]
        while (joined := self._join()) is not None:
            scans.append(joined)
        where = self._condition() if self._take("WHERE") else None
        groups = self._list(self._condition) if self._take("GROUP", "BY") else ()
        having = self._condition() if self._take("HAVING") else None
        order = self._list(self._sorted) if self._take("ORDER", "BY") else ()
        limit = self._whole_number() if self._take("LIMIT") else None
        if self._at < len(self._tokens):
            raise NotPlainError
        return PlainText(items, tuple(scans), distinct, where, groups, having, order, limit)

    # Tokens -----------------------------------------------------------------------------------------------------------

    def _next(self) -> Token:
        if self._at == len(self._tokens):
            raise NotPlainError
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, *texts: str) -> bool:
        """Skip these words or symbols, if they come next."""
        ahead = self._tokens[self._at : self._at + len(texts)]
        if [t.text.upper() for t in ahead if t.kind in ("word", "symbol")] != list(texts):
            return False
        self._at += len(texts)
        return True

    def _need(self, *texts: str) -> None:
        if not self._take(*texts):
            raise NotPlainError

    def _list(self, part: Callable[[], T]) -> tuple[T, ...]:
        found = [part()]
        while self._take(","):
            found.append(part())
        return tuple(found)

    def _name(self) -> str:
        token = self._next()
        if token.kind == "name" or (token.kind == "word" and token.text.upper() not in _RESERVED):
            return token.value()
        raise NotPlainError

    def _alias(self) -> str:
        """The name after AS, or one that follows directly; empty: none."""
        if self._take("AS"):
            return self._name()
        ahead = self._tokens[self._at : self._at + 1]
        if ahead and (ahead[0].kind == "name" or (ahead[0].kind == "word" and ahead[0].text.upper() not in _RESERVED)):
            return self._name()
        return ""

    def _whole_number(self) -> int:
        token = self._next()
        if token.kind != "number" or not (token.text.isascii() and token.text.isdigit()):
            raise NotPlainError
        number = int(token.text)
        if number >= 2**31:
            raise NotPlainError
        return number

    # Clauses ----------------------------------------------------------------------------------------------------------

    def _item(self) -> PlainItem:
        if self._take("*"):
            return PlainItem(PlainTerm("*"))
        return PlainItem(self._condition(), self._alias())

    def _table(self, left: bool = False) -> PlainScan:
        name = self._name()
        return PlainScan(name, self._alias() or name, left)

    def _join(self) -> PlainScan | None:
        left = self._take("LEFT", "OUTER") or self._take("LEFT")
        if not left:
            self._take("INNER")
        if not self._take("JOIN"):
            return None  # a LEFT without JOIN stays unread, and the query does not end
        table = self._table(left)
        self._need("ON")
        pairs = [self._equality()]
        while self._take("AND"):
            pairs.append(self._equality())
        return PlainScan(table.relation, table.alias, left, tuple(pairs))

    def _equality(self) -> tuple[PlainTerm, PlainTerm]:
        left = self._column()
        self._need("=")
        return left, self._column()

    def _column(self) -> PlainTerm:
        first = self._name()
        return PlainTerm("name", text=self._name(), of=first) if self._take(".") else PlainTerm("name", text=first)

    def _sorted(self) -> PlainSort:
        term = self._condition()
        descending = self._take("DESC") or (self._take("ASC") and False)
        if self._take("NULLS", "FIRST"):
            return PlainSort(term, descending, True)
        return PlainSort(term, descending, not (self._take("NULLS", "LAST") or descending))

    # Terms ------------------------------------------------------------------------------------------------------------

    def _condition(self) -> PlainTerm:
        found = self._conjunction()
        while self._take("OR"):
            found = PlainTerm("Or", (found, self._conjunction()))
        return found

    def _conjunction(self) -> PlainTerm:
        found = self._negation()
        while self._take("AND"):
            found = PlainTerm("And", (found, self._negation()))
        return found

    def _negation(self) -> PlainTerm:
        return PlainTerm("Not", (self._negation(),)) if self._take("NOT") else self._predicate()

    def _predicate(self) -> PlainTerm:
        left = self._sum()
        if self._take("IS"):
            kind = "IsNotNull" if self._take("NOT") else "IsNull"
            self._need("NULL")
            found = PlainTerm(kind, (left,))
        elif (inverted := self._take("NOT")) or self._tests():
            found = self._test(left)
            found = PlainTerm("Not", (found,)) if inverted else found
        elif self._at < len(self._tokens) and (sign := self._tokens[self._at]).text in _COMPARISONS:
            self._at += 1
            node, right = _COMPARISONS[sign.text], self._sum()
            found = (
                PlainTerm("Not", (PlainTerm("EqualTo", (left, right)),))
                if node == "NotEqual"
                else PlainTerm(node, (left, right))
            )
        else:
            return left
        ahead = self._tokens[self._at : self._at + 1]
        if ahead and ahead[0].kind != "name" and (self._tests() or ahead[0].text.upper() in {*_COMPARISONS, "IS"}):
            raise NotPlainError  # a = b = c
        return found

    def _tests(self) -> bool:
        """Whether IN, BETWEEN or LIKE comes next."""
        ahead = self._tokens[self._at : self._at + 1]
        return bool(ahead) and ahead[0].kind == "word" and ahead[0].text.upper() in ("IN", "BETWEEN", "LIKE")

    def _test(self, left: PlainTerm) -> PlainTerm:
        if self._take("BETWEEN"):
            low = self._sum()
            self._need("AND")
            return PlainTerm("Between", (left, low, self._sum()))
        if self._take("LIKE"):
            return PlainTerm("Like", (left, self._sum()))
        self._need("IN")
        self._need("(")
        values = self._list(self._sum)
        self._need(")")
        return PlainTerm("In", (left, *values))

    def _sum(self) -> PlainTerm:
        return self._operators(_SUMS, self._product)

    def _product(self) -> PlainTerm:
        return self._operators(_PRODUCTS, self._factor)

    def _operators(self, signs: dict[str, str], part: Callable[[], PlainTerm]) -> PlainTerm:
        found = part()
        while (sign := next((s for s in signs if self._take(s)), None)) is not None:
            found = PlainTerm(signs[sign], (found, part()))
        return found

    def _factor(self) -> PlainTerm:
        if self._take("-"):
            ahead = self._tokens[self._at : self._at + 1]
            if ahead and ahead[0].kind == "number":
                self._at += 1
                return _number("-" + ahead[0].text)
            return PlainTerm("UnaryMinus", (self._factor(),))
        if self._take("("):
            found = self._condition()
            self._need(")")
            return found
        if self._take("CASE"):
            return self._case()
        if self._take("CAST"):
            return self._cast()
        token = self._next()
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "string":
            return PlainTerm("text", text=_meaning(token))
        if token.kind == "word" and (word := token.text.upper()) in ("NULL", "TRUE", "FALSE"):
            return PlainTerm(word.lower())
        if token.kind == "word" and word in ("DATE", "TIMESTAMP") and self._is_text_next():
            text = self._next()
            if word == "TIMESTAMP" and _INSTANT.fullmatch(text.value()) is None:
                raise NotPlainError
            return PlainTerm(word.lower(), text=_meaning(text))
        self._at -= 1
        if token.kind == "word" and [t.text for t in self._tokens[self._at + 1 : self._at + 2]] == ["("]:
            return self._call()
        found = self._column()
        if self._is_text_next():
            raise NotPlainError  # a constant of another type, such as X'00'
        return found

    def _is_text_next(self) -> bool:
        return [t.kind for t in self._tokens[self._at : self._at + 1]] == ["string"]

    def _call(self) -> PlainTerm:
        name = self._next().text.lower()
        self._need("(")
        if self._take("*"):
            self._need(")")
            args: tuple[PlainTerm, ...] = (PlainTerm("*"),)
            node = "call"
        else:
            node = "distinct" if self._take("DISTINCT") else "call"
            args = () if self._take(")") else self._list(self._condition)
            if args:
                self._need(")")
        if any(self._take(word) for word in ("FILTER", "OVER", "WITHIN", "IGNORE", "RESPECT")):
            raise NotPlainError
        return PlainTerm(node, args, name)

    def _case(self) -> PlainTerm:
        subject = None if self._take("WHEN") else self._condition()
        if subject is not None:
            self._need("WHEN")
        parts: list[PlainTerm] = []
        while True:
            condition = self._condition()
            self._need("THEN")
            parts += [condition if subject is None else PlainTerm("EqualTo", (subject, condition)), self._condition()]
            if not self._take("WHEN"):
                break
        if self._take("ELSE"):
            parts.append(self._condition())
        self._need("END")
        return PlainTerm("Case", tuple(parts))

    def _cast(self) -> PlainTerm:
        self._need("(")
        value = self._condition()
        self._need("AS")
        kind = self._next().text.lower()
        if self._take("("):
            digits = self._list(self._whole_number)
            self._need(")")
            kind += f"({','.join(map(str, digits))})"
        self._need(")")
        return PlainTerm("Cast", (value,), kind)


def _plain_tokens(sql: str) -> list[Token]:
    """The tokens of a text that has no hint and no character that Spark may refuse outside quotes."""
    if "/*+" in sql or _OTHER_BLANK.search(sql) is not None:
        raise NotPlainError
    tokens = tokens_of(SourceText(sql))
    if any((t.kind == "word" and not t.text.isascii()) or t.text == "``" for t in tokens):
        raise NotPlainError
    return tokens


def _number(text: str) -> PlainTerm:
    if not text.isascii() or _NUMBER.fullmatch(text.lstrip("-")) is None:
        raise NotPlainError  # exponents and suffixes
    return PlainTerm("number", text=text)


def _meaning(token: Token) -> str:
    """The meaning of a string. Spark keeps some backslashes, for patterns."""
    if "\\" in token.text and token.text[0] not in "rR":
        raise NotPlainError
    return token.value()

"""Give the terms of a plain SELECT Spark's types: as bound expressions, with the casts that Spark's analyzer adds.

The expressions are those of the tested list (jobs/kernels/registry.py), so each equals Spark's. The rules of this
module are only the choice of nodes, casts and result types. A term without a rule is not plain, and Spark answers.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from tussock.jobs.kernels.duck import decimal_of
from tussock.jobs.kernels.registry import FLOATS, INTEGER_BITS, INTEGERS, family_of
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.jobs.reading.plain_syntax import NotPlainError, PlainTerm

#: The types whose values a plain SELECT may read.
PLAIN_TYPES = frozenset(
    {"boolean", *INTEGERS, *FLOATS, "decimal", "string", "binary", "date", "timestamp", "timestamp_ntz"}
)
#: Those that it may compare for equality, to group rows or to join them: their equal values are identical.
KEY_TYPES = PLAIN_TYPES - {*FLOATS, "binary"}
_EXACT = frozenset({*INTEGERS, "decimal"})
_TIMES = frozenset({"date", "timestamp"})
MOST_DIGITS = 38
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_MAX_INT = 2**31 - 1
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column that terms may name. `of`: the name of its relation in the query, in lower case."""

    of: str
    name: str
    type: str


#: Binds terms of one kind, such as aggregates; None: not of that kind.
Special = Callable[[PlainTerm], Expr | None]


class PlainBinder:
    """Binds terms over the columns of FROM. Raises NotPlainError.

    Args:
        columns: column i is `Column(i)`.
        time_zone: the store's.
        special: binds its terms before all other rules.
    """

    def __init__(self, columns: Sequence[PlainColumn], time_zone: str, special: Special = lambda _: None) -> None:
        self._columns, self._special = columns, special
        self._zone = (("timeZoneId", time_zone),)

    def condition(self, term: PlainTerm) -> Expr:
        """A term that must be boolean."""
        return _of_type(self.bound(term), "boolean")

    def column(self, term: PlainTerm) -> int:
        """The index of the column that a name means."""
        name, of = term.text.lower(), term.of.lower()
        found = [i for i, c in enumerate(self._columns) if c.name.lower() == name and of in ("", c.of)]
        if len(found) != 1 or family_of(self._columns[found[0]].type) not in PLAIN_TYPES:
            raise NotPlainError
        return found[0]

    def knows(self, name: str) -> bool:
        """Whether a column has this name."""
        return any(c.name.lower() == name.lower() for c in self._columns)

    def resolved(self, term: PlainTerm) -> PlainTerm:
        """The term with numbers of columns instead of names. Spark takes two terms for the same one if these are."""
        if term.node == "name":
            return PlainTerm("name", text=str(self.column(term)))
        return replace(term, args=tuple(map(self.resolved, term.args)))

    def bound(self, term: PlainTerm) -> Expr:
        """The term as an expression."""
        if (found := self._special(term)) is not None:
            return found
        match term.node:
            case "name":
                index = self.column(term)
                return Column(index, self._columns[index].type)
            case "number":
                return _number(term.text)
            case "text":
                return Literal(term.text, "string")
            case "true" | "false":
                return Literal(term.node == "true", "boolean")
            case "null":
                return Literal(None, "void")
            case "date":
                return _day(term.text)
            case "timestamp":
                return self._cast(Literal(term.text, "string"), "timestamp")
            case "Cast":
                return self._written_cast(self._typed(term.args[0]), term.text)
            case "Case":
                return self._case(term.args)
            case "In":
                return self._in([self.bound(a) for a in term.args])
            case "call":
                if term.text in _CASES and any(a.node == "call" and a.text in _CASES for a in term.args):
                    raise NotPlainError  # Spark omits the inner one, also in lower(upper('ß'))
                return self._call(term.text, [self.bound(a) for a in term.args])
            case "Between":
                value, low, high = map(self.bound, term.args)
                above = Call("GreaterThanOrEqual", "boolean", self._alike([value, low]))
                below = Call("LessThanOrEqual", "boolean", self._alike([value, high]))
                return Call("And", "boolean", (above, below))
            case "And" | "Or":
                left, right = map(self.condition, term.args)
                return Call(term.node, "boolean", (left, right))
            case "Not":
                return Call("Not", "boolean", (self.condition(term.args[0]),))
            case "IsNull" | "IsNotNull":
                return Call(term.node, "boolean", (self._typed(term.args[0]),))
            case "Like" | "Concat":
                left, right = (_of_type(self.bound(a), "string") for a in term.args)
                if term.node == "Concat":
                    return Call("Concat", "string", (left, right))
                return Call("Like", "boolean", (left, right), params=(("escapeChar", "\\"),))
            case "UnaryMinus":
                return self._same("UnaryMinus", self._typed(term.args[0]))
            case "Add" | "Subtract" | "Multiply" | "Divide" | "Remainder":
                left, right = map(self._typed, term.args)
                return self._arithmetic(term.node, left, right)
            case "EqualTo" | "EqualNullSafe" | "LessThan" | "LessThanOrEqual" | "GreaterThan" | "GreaterThanOrEqual":
                left, right = map(self.bound, term.args)
                return Call(term.node, "boolean", self._alike([left, right]))
        raise NotPlainError

    def _typed(self, term: PlainTerm) -> Expr:
        found = self.bound(term)
        if found.type == "void":
            raise NotPlainError
        return found

    # Types ------------------------------------------------------------------------------------------------------------

    def _cast(self, value: Expr, wanted: str) -> Expr:
        wanted = _TYPE_NAMES.get(wanted, wanted)
        if family_of(wanted) not in PLAIN_TYPES:
            raise NotPlainError
        if family_of(wanted) == "decimal":
            precision, scale = _digits_of(wanted)
            wanted = f"decimal({precision},{scale})"
        if value.type == wanted:
            return value
        if isinstance(value, Literal) and value.value is None:
            return Literal(None, wanted)
        if value.type == "binary" or wanted == "binary":
            raise NotPlainError
        if isinstance(value, Literal) and value.type in INTEGERS and wanted in ("int", "bigint", "double"):
            if wanted == "double" and abs(int(str(value.value))) > 2**53:
                raise NotPlainError
            return Literal(value.value if wanted != "double" else repr(float(str(value.value))), wanted)
        if isinstance(value, Literal) and value.type == "string" and wanted == "date":
            return _day(str(value.value))  # IN takes only items that cannot raise
        if isinstance(value, Literal) and family_of(value.type) == "decimal" and wanted == "double":
            return Literal(repr(float(str(value.value))), wanted)
        if isinstance(value, Literal) and family_of(value.type) in _EXACT and family_of(wanted) == "decimal":
            (p1, s1), (p2, s2) = _exact_digits(value), _digits_of(wanted)
            if s1 <= s2 and p1 - s1 <= p2 - s2:
                whole, _, part = str(value.value).partition(".")
                return Literal(f"{whole}.{part.ljust(s2, '0')}" if s2 else whole, wanted)
        timed = "timestamp" in (value.type, wanted)
        return Call("Cast", wanted, (value,), "ANSI", self._zone if timed else ())

    def _written_cast(self, value: Expr, wanted: str) -> Expr:
        """A cast of the user's text. Spark counts the digits of a constant integer only if no cast is around it."""
        cast = self._cast(value, wanted)
        if isinstance(value, Literal) and value.type in INTEGERS and cast.type in INTEGERS:
            raise NotPlainError
        return cast

    def _alike(self, values: Sequence[Expr]) -> tuple[Expr, ...]:
        """Values to compare, in one type in which each is exact, or in Spark's."""
        kinds = {v.type for v in values} - {"void"}
        if not kinds:
            raise NotPlainError
        if kinds & _TIMES and kinds <= {*_TIMES, "string"}:
            texts = all(isinstance(v, Literal) for v in values if v.type == "string")
            if not texts:
                raise NotPlainError
            wanted = "timestamp" if "timestamp" in kinds else "date"
        elif all(family_of(k) in _EXACT for k in kinds) and not kinds <= {*INTEGERS}:
            wanted = _widest([_exact_digits(v) for v in values if v.type != "void"])
        else:
            wanted = _common(kinds)
        return tuple(self._cast(v, wanted) for v in values)

    def _in(self, values: Sequence[Expr]) -> Expr:
        """Spark finds one type for all values, by their types alone."""
        kinds = {v.type for v in values} - {"void"}
        if all(family_of(k) in _EXACT for k in kinds) and not kinds <= {*INTEGERS}:
            _widest([_digits_of(k) for k in kinds])  # else Spark rounds
        if kinds & _TIMES and len(kinds - {"string"}) > 1:
            raise NotPlainError
        return Call("In", "boolean", self._alike(values))

    def _one_type(self, values: Sequence[Expr]) -> tuple[Expr, ...]:
        """Values of which one becomes the result, in Spark's common type."""
        kinds = {v.type for v in values} - {"void"}
        if not kinds:
            raise NotPlainError
        wanted = _common(kinds)
        return tuple(self._cast(v, wanted) for v in values)

    def _same(self, node: str, value: Expr) -> Expr:
        if family_of(value.type) not in {*_EXACT, "double", "float"}:
            raise NotPlainError
        return Call(node, value.type, (value,), "ANSI")

    # Nodes ------------------------------------------------------------------------------------------------------------

    def _case(self, args: Sequence[PlainTerm]) -> Expr:
        has_else = len(args) % 2 == 1
        conditions = [_of_type(self._typed(a), "boolean") for a in args[: len(args) - has_else : 2]]
        values = [self.bound(a) for a in args[1::2]] + ([self.bound(args[-1])] if has_else else [])
        typed = self._one_type(values)
        parts: list[Expr] = []
        for condition, value in zip(conditions, typed, strict=False):
            parts += [condition, value]
        return Call("CaseWhen", typed[0].type, (*parts, *typed[len(conditions) :]))

    def _arithmetic(self, node: str, left: Expr, right: Expr) -> Expr:
        kinds = {left.type, right.type}
        if not all(family_of(k) in {*_EXACT, "double"} for k in kinds):
            raise NotPlainError
        if "double" in kinds or (node == "Divide" and kinds <= {*INTEGERS}):
            kind = "double"
        elif kinds <= {*INTEGERS}:
            kind = _common(kinds)
        else:
            return self._of_decimals(node, left, right)
        return Call(node, kind, (self._cast(left, kind), self._cast(right, kind)), "ANSI")

    def _of_decimals(self, node: str, left: Expr, right: Expr) -> Expr:
        """Sums and products whose result has at most 38 digits. Spark rounds longer ones."""
        sides = [_exact_digits(left), _exact_digits(right)]
        (p1, s1), (p2, s2) = sides
        match node:
            case "Add" | "Subtract":
                scale = max(s1, s2)
                precision = max(p1 - s1, p2 - s2) + scale + 1
            case "Multiply":
                precision, scale = p1 + p2 + 1, s1 + s2
            case _:
                raise NotPlainError
        if precision > MOST_DIGITS:
            raise NotPlainError
        args = tuple(self._cast(v, f"decimal({p},{s})") for v, (p, s) in zip((left, right), sides, strict=True))
        return Call(node, f"decimal({precision},{scale})", args, "ANSI")

    def _call(self, name: str, args: list[Expr]) -> Expr:
        if (known := _FUNCTIONS.get(name)) is not None:
            node, kinds, result, more = known
            if len(args) + len(more) < len(kinds):
                raise NotPlainError
            args = [*args, *more[len(args) + len(more) - len(kinds) :]]
            if len(args) != len(kinds):
                raise NotPlainError
            return Call(node, result, tuple(_of_type(a, k) for a, k in zip(args, kinds, strict=True)))
        if name in _OF_DAY and len(args) == 1:
            day = args[0] if args[0].type == "date" else self._cast(_of_type(args[0], "timestamp"), "date")
            return Call(_OF_DAY[name], "int", (day,))
        if name in _OF_CLOCK and len(args) == 1:
            return Call(_OF_CLOCK[name], "int", (_of_type(args[0], "timestamp"),), params=self._zone)
        match name, args:
            case "date_trunc", [unit, time]:
                return Call(
                    "TruncTimestamp",
                    "timestamp",
                    (_of_type(unit, "string"), _of_type(time, "timestamp")),
                    params=self._zone,
                )
            case "concat", [_, *_]:
                return Call("Concat", "string", tuple(_of_type(a, "string") for a in args))
            case ("coalesce", [_, _, *_]) | ("ifnull" | "nvl", [_, _]):
                typed = self._one_type(args)
                return Call("Coalesce", typed[0].type, typed)
            case "if", [condition, yes, no]:
                yes, no = self._one_type([yes, no])
                return Call("If", yes.type, (_of_type(condition, "boolean"), yes, no))
            case "nullif", [value, other] if value.type != "void":
                equal = Call("EqualTo", "boolean", self._alike([value, other]))
                return Call("If", value.type, (equal, Literal(None, value.type), value))
            case "greatest" | "least", [_, _, *_]:
                typed = self._one_type(args)
                if family_of(typed[0].type) not in KEY_TYPES:
                    raise NotPlainError
                return Call(name.capitalize(), typed[0].type, typed)
            case "abs", [value]:
                return self._same("Abs", value)
            case "round", [value]:
                return _rounded(value, 0)
            case "round", [value, Literal(value=int(digits), type="int")] if 0 <= digits <= 15:
                return _rounded(value, digits)
        raise NotPlainError


def _rounded(value: Expr, digits: int) -> Expr:
    places = Literal(digits, "int")
    if value.type == "double":
        return Call("Round", "double", (value, places), params=(("ansiEnabled", "true"),))
    if family_of(value.type) != "decimal":
        raise NotPlainError
    precision, scale = decimal_of(value.type)
    left = min(scale, digits)
    kind = f"decimal({min(precision - scale + 1 + left, MOST_DIGITS)},{left})"
    return Call("Round", kind, (value, places), params=(("ansiEnabled", "true"),))


def _of_type(value: Expr, kind: str) -> Expr:
    if value.type == "void":
        return Literal(None, kind)
    if value.type != kind:
        raise NotPlainError
    return value


def _number(text: str) -> Literal:
    if "." not in text:
        value = int(text)
        if not -(2**63) <= value < 2**63:
            raise NotPlainError
        return Literal(value, "int" if -(2**31) <= value < 2**31 else "bigint")
    exact = Decimal(text)
    scale = -int(exact.as_tuple().exponent)
    precision = max(len(exact.as_tuple().digits), scale)
    if precision > MOST_DIGITS:
        raise NotPlainError
    return Literal(text if exact else text.lstrip("-"), f"decimal({precision},{scale})")  # no decimal is -0


def _day(text: str) -> Literal:
    if _DAY.fullmatch(text) is None:
        raise NotPlainError
    try:
        day = date.fromisoformat(text)
    except ValueError as err:
        raise NotPlainError from err
    return Literal((day - date(1970, 1, 1)).days, "date")


def _digits_of(kind: str) -> tuple[int, int]:
    """The precision and scale of an exact number's type, as Spark counts them."""
    if kind in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[kind], 0
    try:
        precision, scale = decimal_of(kind)
    except Exception as err:
        raise NotPlainError from err
    if not 0 < precision <= MOST_DIGITS or scale > precision:
        raise NotPlainError
    return precision, scale


def _exact_digits(value: Expr) -> tuple[int, int]:
    """As `_digits_of`; of a constant integer, its own digits, as Spark's arithmetic counts them."""
    if isinstance(value, Literal) and value.type in INTEGERS and value.value is not None:
        return len(str(abs(int(str(value.value))))), 0
    return _digits_of(value.type)


def _widest(sides: Sequence[tuple[int, int]]) -> str:
    """The decimal type that holds all values exactly."""
    scale = max(s for _, s in sides)
    precision = max(p - s for p, s in sides) + scale
    if precision > MOST_DIGITS:
        raise NotPlainError
    return f"decimal({precision},{scale})"


def _common(kinds: set[str]) -> str:
    """Spark's common type of several types."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= {*INTEGERS}:
        return max(kinds, key=INTEGER_BITS.__getitem__)
    if "double" in kinds and all(family_of(k) in {*_EXACT, "double"} for k in kinds):
        return "double"
    if all(family_of(k) in _EXACT for k in kinds):
        return _widest([_digits_of(k) for k in kinds])
    raise NotPlainError


_TYPE_NAMES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "dec": "decimal(10,0)",
    "decimal": "decimal(10,0)",
    "numeric": "decimal(10,0)",
}
_CASES = frozenset({"lower", "lcase", "upper", "ucase"})
_REST = (Literal(_MAX_INT, "int"),)
_S, _I, _D = "string", "int", "date"
#: By name: the node, the types of its arguments and of its result, and the last arguments if they are not written.
_FUNCTIONS: Mapping[str, tuple[str, tuple[str, ...], str, tuple[Expr, ...]]] = {
    **dict.fromkeys(("lower", "lcase"), ("Lower", (_S,), _S, ())),
    **dict.fromkeys(("upper", "ucase"), ("Upper", (_S,), _S, ())),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), ("Length", (_S,), _I, ())),
    "trim": ("StringTrim", (_S,), _S, ()),
    "ltrim": ("StringTrimLeft", (_S,), _S, ()),
    "rtrim": ("StringTrimRight", (_S,), _S, ()),
    "reverse": ("Reverse", (_S,), _S, ()),
    **dict.fromkeys(("substring", "substr"), ("Substring", (_S, _I, _I), _S, _REST)),
    "replace": ("StringReplace", (_S, _S, _S), _S, (Literal("", "string"),)),
    "startswith": ("StartsWith", (_S, _S), "boolean", ()),
    "endswith": ("EndsWith", (_S, _S), "boolean", ()),
    "contains": ("Contains", (_S, _S), "boolean", ()),
    "instr": ("StringInstr", (_S, _S), _I, ()),
    "lpad": ("StringLPad", (_S, _I, _S), _S, (Literal(" ", "string"),)),
    "rpad": ("StringRPad", (_S, _I, _S), _S, (Literal(" ", "string"),)),
    **dict.fromkeys(("date_add", "dateadd"), ("DateAdd", (_D, _I), _D, ())),
    "date_sub": ("DateSub", (_D, _I), _D, ()),
    **dict.fromkeys(("datediff", "date_diff"), ("DateDiff", (_D, _D), _I, ())),
    "last_day": ("LastDay", (_D,), _D, ()),
}
_OF_DAY = {
    "year": "Year",
    "quarter": "Quarter",
    "month": "Month",
    "day": "DayOfMonth",
    "dayofmonth": "DayOfMonth",
    "dayofweek": "DayOfWeek",
    "weekday": "WeekDay",
    "dayofyear": "DayOfYear",
    "weekofyear": "WeekOfYear",
}
_OF_CLOCK = {"hour": "Hour", "minute": "Minute", "second": "Second"}

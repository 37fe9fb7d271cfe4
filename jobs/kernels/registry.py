"""The tested list: which expression nodes render, over which types, and how.

A node's *shape* is its Catalyst class name, its eval mode where that changes the answer, and the families of its argument and
result types: `Add(int,int)->int`, `Cast[TRY](string)->date`. A family is the type's name; all decimals are one. For nodes
that take any number of arguments the shape holds each family once, in order of appearance: `Coalesce(string)->string`. Of nodes that
put values together or take them out it holds what they are put into or taken from: `CreateArray()->array`, `GetArrayItem(array)->any`.

A shape renders iff a rule lists it, and a rule lists it only because tests/jobs/kernels compares it with Spark over edge values: the
list here and the list there are checked to be equal. Everything else is refused by `check`, never approximated.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tussock.jobs.kernels.errors import UnsupportedExpressionError
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.statestore.types import MONTH_INTERVALS, arrow_type

INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
NUMBERS = (*INTEGERS, *FLOATS, "decimal")
TIMES = ("date", "timestamp", "timestamp_ntz")
SPANS = ("interval months", "interval micros", "time")
TYPES = ("boolean", *NUMBERS, "string", "binary", *TIMES, *SPANS)
NESTED = ("array", "map", "struct")
ANY = (*TYPES, *NESTED)
INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

VARIADIC = frozenset({"Coalesce", "CaseWhen", "Concat", "ConcatWs", "Greatest", "In", "Least", "XxHash64"})
#: Nodes that move values without looking at them: what they put together, and what they take out, may be of any type.
MAKERS = frozenset({"CreateArray", "CreateMap", "CreateNamedStruct"})
TAKERS = frozenset({"ElementAt", "GetArrayItem", "GetArrayStructFields", "GetMapValue", "GetStructField"})

_SWITCHES = ("failOnError", "ansiEnabled")
_KNOWN_PARAMS = frozenset({*_SWITCHES, "timeZoneId"})

Render = Callable[[Call, Sequence[str]], str]
Refuse = Callable[[Call], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """How one node renders: the call and its rendered arguments to DuckDB text of exactly the call's type.

    `refuse` looks at a call of a listed shape and answers why it does not render all the same (a pattern that is not a constant),
    or None. `raises` says whether the node itself may raise on a row: AND and OR then keep it from rows they do not reach.
    A `strict` node is NULL as soon as one argument is: Spark evaluates them in order and stops at the first NULL, so that what a
    later one would raise is not raised. `params` names the node's own parameters that the rule takes care of.
    """

    node: str
    shapes: frozenset[str]
    render: Render
    refuse: Refuse
    raises: bool
    strict: bool
    params: frozenset[str]
    any_shape: bool = False  # of what Spark has no other answer to compare with


_RULES: dict[tuple[str, str | None], Rule] = {}


def _takes_all(call: Call) -> str | None:
    return None


def family_of(type_name: str) -> str:
    """The type's name without its parameters: all decimals are one family, all arrays, all maps, all structs, all times of day, and so are
    the intervals of either kind."""
    if "<" in type_name:
        return type_name[: type_name.index("<")]
    if type_name.startswith("interval "):
        return "interval months" if type_name in MONTH_INTERVALS else "interval micros"
    return type_name.partition("(")[0]


def shape_of(call: Call) -> str:
    """The node as the tested list names it."""
    families = [family_of(a.type) for a in call.args]
    if call.node in MAKERS:
        return shape(call.node, (), family_of(call.type), mode_of(call))
    if call.node in TAKERS:
        return shape(call.node, families[:1], "any", mode_of(call))
    if call.node in VARIADIC:
        families = list(dict.fromkeys(families))
    return shape(call.node, families, family_of(call.type), mode_of(call))


def mode_of(call: Call) -> str | None:
    """ANSI, TRY, LEGACY or None; some nodes carry a switch instead of a mode."""
    return "LEGACY" if any(call.params and (name, "false") in call.params for name in _SWITCHES) else call.mode


def shape(node: str, args: Iterable[str], result: str, mode: str | None = None) -> str:
    """`Add(int,int)->int`; TRY is part of the name, ANSI is the rule and LEGACY never listed."""
    marked = node if mode in (None, "ANSI") else f"{node}[{mode}]"
    return f"{marked}({','.join(args)})->{result}"


def renders(
    node: str,
    shapes: Iterable[tuple[Sequence[str], str]],
    *,
    mode: str | None = None,
    refuse: Refuse = _takes_all,
    raises: bool = False,
    strict: bool = True,
    params: Iterable[str] = (),
) -> Callable[[Render], Render]:
    """Put a node on the tested list: `shapes` are pairs of argument families and result family; `mode` is "TRY" or None (ANSI)."""

    def register(render: Render) -> Render:
        key = (node, mode)
        names = frozenset(shape(node, args, result, mode) for args, result in shapes)
        if key in _RULES:
            raise ValueError(f"{node} [{mode}] is registered twice")
        _RULES[key] = Rule(node, names, render, refuse, raises, strict, _KNOWN_PARAMS.union(params))
        return render

    return register


def renders_any(node: str, *, params: Iterable[str] = ()) -> Callable[[Render], Render]:
    """Render a node over any types: one that may raise, and takes NULL as any other value."""

    def register(render: Render) -> Render:
        _RULES[node, None] = Rule(node, frozenset(), render, _takes_all, True, False, frozenset(params), any_shape=True)
        return render

    return register


def rule_of(call: Call) -> Rule:
    """The rule that renders this call. Raises UnsupportedExpressionError, naming the node, its types and its place."""
    mode = mode_of(call)
    rule = _RULES.get((call.node, None if mode == "ANSI" else mode))
    name = shape_of(call)
    if rule is None or not (rule.any_shape or name in rule.shapes):
        known = "" if rule is None else f"; {call.node} is there for " + ", ".join(sorted(rule.shapes)[:12])
        reason = f"is not on the list of expressions that are tested to equal Spark{known}"
        raise UnsupportedExpressionError(name, expression_text(call), reason, call.place)
    if unknown := [f"{name}={value}" for name, value in call.params if name not in rule.params]:
        raise UnsupportedExpressionError(
            name, expression_text(call), f"is not tested with {', '.join(unknown)}", call.place
        )
    if (reason_or_none := rule.refuse(call)) is not None:
        raise UnsupportedExpressionError(name, expression_text(call), reason_or_none, call.place)
    return rule


def tested_shapes() -> frozenset[str]:
    """Every shape on the list."""
    return frozenset().union(*(r.shapes for r in _RULES.values()))


def may_raise(expr: Expr) -> bool:
    """Whether evaluating the expression can raise on some row. Requires: it passed `check`."""
    if isinstance(expr, Column | Literal):
        return False
    raises = rule_of(expr).raises and not (expr.node == "Cast" and widens(expr.args[0].type, expr.type))
    return raises or any(may_raise(a) for a in expr.args)


def widens(source: str, target: str) -> bool:
    """Whether every number of one type is one of the other, so that a cast never raises; floats may round it."""
    if target in FLOATS:
        return source in INTEGERS or source == "float"
    if source in INTEGERS and target in INTEGERS:
        return INTEGER_BITS[source] <= INTEGER_BITS[target]
    before, after = _digits_of(source), _digits_of(target)
    return (
        family_of(target) == "decimal"
        and before is not None
        and after is not None
        and before[0] <= after[0]
        and before[1] <= after[1]
    )


def _digits_of(type_name: str) -> tuple[int, int] | None:
    """The digits before and behind the point that values of an exact number's type have at most."""
    if type_name in INTEGERS:
        return len(str(1 << INTEGER_BITS[type_name] - 1)), 0
    if family_of(type_name) != "decimal":
        return None
    kind = arrow_type(type_name)
    return kind.precision - kind.scale, kind.scale


def constant_args(*places: int) -> Refuse:
    """Refuses a call unless the arguments at `places` are constants."""

    def refuse(call: Call) -> str | None:
        for i in places:
            if i < len(call.args) and not isinstance(call.args[i], Literal):
                return f"renders only with a constant as argument {i + 1}"
        return None

    return refuse

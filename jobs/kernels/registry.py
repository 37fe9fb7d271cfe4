"""The tested list: the expression nodes that kernels render, their types, and how they render.

A node's *shape* consists of its Catalyst class name, its eval mode if that changes the result, and the families of its
argument and result types: `Add(int,int)->int`, `Cast[TRY](string)->date`. A family is the type's name without
parameters. The shape of a variadic node contains each family once, in order of appearance: `Coalesce(string)->string`.
For nodes that build or access nested values, it contains the nested family only: `CreateArray()->array`,
`GetArrayItem(array)->any`.

A shape renders only if a rule lists it. A rule lists a shape only if tests/unit/jobs/kernels compares it with Spark
over edge values; a test checks that both lists are equal. `check` refuses all other shapes. None is approximated.
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
#: Nodes that move values without inspecting them: their parts may have any type.
MAKERS = frozenset({"CreateArray", "CreateMap", "CreateNamedStruct"})
TAKERS = frozenset({"ElementAt", "GetArrayItem", "GetArrayStructFields", "GetMapValue", "GetStructField"})

_SWITCHES = ("failOnError", "ansiEnabled")
_KNOWN_PARAMS = frozenset({*_SWITCHES, "timeZoneId"})

Render = Callable[[Call, Sequence[str]], str]
Refuse = Callable[[Call], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """Renders one node: converts a call and its rendered arguments to DuckDB text with exactly the call's type.

    `refuse` returns the reason why a call with a listed shape still cannot be rendered (e.g. a pattern that is not a
    constant), or None. `raises`: whether the node itself may raise on a row. AND and OR then guard it, so that it runs
    only on the rows that reach it. A `strict` node is NULL if an argument is NULL: Spark evaluates the arguments in
    order and stops at the first NULL, so later arguments cannot raise. `params` are the node's parameters that the rule
    handles.
    """

    node: str
    shapes: frozenset[str]
    render: Render
    refuse: Refuse
    raises: bool
    strict: bool
    params: frozenset[str]
    any_shape: bool = False  # for nodes that Spark cannot compute, so that nothing can be compared


_RULES: dict[tuple[str, str | None], Rule] = {}


def _takes_all(call: Call) -> str | None:
    return None


def family_of(type_name: str) -> str:
    """The type's name without its parameters. There is one family each for decimals, arrays, maps, structs and times.

    Intervals have two families: months and microseconds.
    """
    if "<" in type_name:
        return type_name[: type_name.index("<")]
    if type_name.startswith("interval "):
        return "interval months" if type_name in MONTH_INTERVALS else "interval micros"
    return type_name.partition("(")[0]


def shape_of(call: Call) -> str:
    """The shape of a call in the tested list."""
    families = [family_of(a.type) for a in call.args]
    if call.node in MAKERS:
        return shape_text(call.node, (), family_of(call.type), mode_of(call))
    if call.node in TAKERS:
        return shape_text(call.node, families[:1], "any", mode_of(call))
    if call.node in VARIADIC:
        families = list(dict.fromkeys(families))
    return shape_text(call.node, families, family_of(call.type), mode_of(call))


def mode_of(call: Call) -> str | None:
    """ANSI, TRY, LEGACY or None. Some nodes have a switch instead of a mode."""
    return "LEGACY" if any(call.params and (name, "false") in call.params for name in _SWITCHES) else call.mode


def shape_text(node: str, args: Iterable[str], result: str, mode: str | None) -> str:
    """A shape such as `Add(int,int)->int`. It contains the mode unless that is ANSI; LEGACY is never listed."""
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
    """Add a node to the tested list.

    `shapes`: pairs of argument families and result family. `mode`: "TRY" or None (ANSI).
    """

    def register(render: Render) -> Render:
        key = (node, mode)
        names = frozenset(shape_text(node, args, result, mode) for args, result in shapes)
        if key in _RULES:
            raise ValueError(f"{node} [{mode}] is registered twice")
        _RULES[key] = Rule(node, names, render, refuse, raises, strict, _KNOWN_PARAMS.union(params))
        return render

    return register


def renders_any(node: str, *, params: Iterable[str] = ()) -> Callable[[Render], Render]:
    """Add a node that renders for any types. It may raise, and it accepts NULL as a value."""

    def register(render: Render) -> Render:
        _RULES[node, None] = Rule(node, frozenset(), render, _takes_all, True, False, frozenset(params), any_shape=True)
        return render

    return register


def rule_of(call: Call) -> Rule:
    """The rule that renders this call. Raises UnsupportedExpressionError with node, types and place."""
    mode = mode_of(call)
    rule = _RULES.get((call.node, None if mode == "ANSI" else mode))
    name = shape_of(call)
    if rule is None or not (rule.any_shape or name in rule.shapes):
        known = "" if rule is None else f"; tested forms of {call.node}: " + ", ".join(sorted(rule.shapes)[:12])
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
    """All shapes on the list."""
    return frozenset().union(*(r.shapes for r in _RULES.values()))


def may_raise(expr: Expr) -> bool:
    """Whether the expression can raise on some row. Requires: it passed `check`."""
    if isinstance(expr, Column | Literal):
        return False
    raises = rule_of(expr).raises and not (expr.node == "Cast" and is_widening(expr.args[0].type, expr.type))
    return raises or any(may_raise(a) for a in expr.args)


def is_widening(source: str, target: str) -> bool:
    """Whether each value of one numeric type fits the other, so that a cast never raises. Floats may round it."""
    if target in FLOATS:
        return source in INTEGERS or source == "float" or family_of(source) == "decimal"
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
    """The maximum number of digits before and after the decimal point, for an exact numeric type."""
    if type_name in INTEGERS:
        return len(str(1 << INTEGER_BITS[type_name] - 1)), 0
    if family_of(type_name) != "decimal":
        return None
    kind = arrow_type(type_name)
    return kind.precision - kind.scale, kind.scale


def constant_args(*places: int) -> Refuse:
    """Refuse a call unless the arguments at `places` are constants."""

    def refuse(call: Call) -> str | None:
        for i in places:
            if i < len(call.args) and not isinstance(call.args[i], Literal):
                return f"is supported only with a constant as argument {i + 1}"
        return None

    return refuse

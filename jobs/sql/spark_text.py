"""Catalyst expressions -> SQL text that Spark computes, for expressions without a kernel.

The catalog stores the text, so that a view does not depend on Catalyst's classes. Catalyst's own `.sql` is not
usable: it loses eval modes, options, schemas and lambdas, and after optimization functions are Java method calls. So
the text is written here, node by node, and proven: it is bound again over columns of the same types, and both trees
must be equal, node by node. Expressions that fail this test are rejected.

    original      an expression of the analyzed plan that the optimizer replaces (parse_url, to_json,
                  try_to_timestamp …)
    replacement   its form in the optimized plan, recognised by comparison with open places for the original's
                  arguments
    column        `a0`, `a1`, … in a text: the arguments of the call with that text
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from py4j.java_gateway import JavaObject, is_instance_of

from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.nodes import BY_SPARK, ZONES, Call, Column, Expr, Place
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.settings.zone_errors import UnknownZoneError
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.spark.type_names import collation_of, name_of_type
from tussock.jobs.spark.zones import zone_in_jvm
from tussock.jobs.sql.sandbox import Sandbox, items, seq_of
from tussock.statestore.types import UnsupportedTypeError, arrow_type, twice_named
from tussock.statestore.zones import is_utc

Leaf = Callable[[JavaObject], Expr | None]  # the column that a node represents, if it is a column of the input plan

_CATALYST = "org.apache.spark.sql.catalyst.expressions"
_TRANSPARENT = frozenset(
    {"Alias", "KnownNotNull", "KnownNullable", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"}
)
_VARIABLE = "NamedLambdaVariable"
_INFIX = {
    "Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "IntegralDivide": "div", "Remainder": "%",
    "And": "AND", "Or": "OR", "EqualTo": "=", "EqualNullSafe": "<=>", "LessThan": "<", "LessThanOrEqual": "<=",
    "GreaterThan": ">", "GreaterThanOrEqual": ">=", "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^",
    "RLike": "RLIKE", "DateAddInterval": "+", "DateAddYMInterval": "+", "TimestampAddYMInterval": "+",
    "TimestampAddInterval": "+", "TimeAdd": "+", "TimeAddInterval": "+", "SubtractDates": "-", "SubtractTimes": "-",
    "SubtractTimestamps": "-", "MultiplyYMInterval": "*", "MultiplyDTInterval": "*", "DivideYMInterval": "/",
    "DivideDTInterval": "/",
}  # fmt: skip
_TRY = {
    "Add": "try_add",
    "Subtract": "try_subtract",
    "Multiply": "try_multiply",
    "Divide": "try_divide",
    "Remainder": "try_mod",
}
_TRY_OPERATORS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}
_FORMS = {  # of nodes whose text needs nothing but the texts of their arguments
    "Not": "(NOT {})",
    "UnaryMinus": "(- {})",
    "IsNull": "({} IS NULL)",
    "IsNotNull": "({} IS NOT NULL)",
    "GetArrayItem": "{}[{}]",
    "GetMapValue": "{}[{}]",
    "SecondWithFraction": "extract(SECOND FROM {})",
    "DatetimeSub": "({} - {})",
}
_NAMES = {  # of nodes whose own name is an infix operator or another function's name
    "ShiftLeft": "shiftleft",
    "ShiftRight": "shiftright",
    "ShiftRightUnsigned": "shiftrightunsigned",
    "CreateNamedStruct": "named_struct",
    "If": "if",
}
#: The first characters of a text that is a one-row generator instead of an expression. Its columns are a struct's
#: fields.
JSON_TUPLE = "json_tuple("
_COLUMN = re.compile(r"`a(\d+)`")
_MOST_SHOWN = 200  # characters of an expression in a message
_OF_A_ZONE = re.compile("time|date|zone|unix|hour|minute|second|day|week|month|year|json|csv|xml|variant", re.I)
_WITH_ZONE = re.compile("_utc_timestamp|convert_timezone", re.I)
_ZONE_ARGUMENTS = {"ToUTCTimestamp": (1,), "FromUTCTimestamp": (1,), "ConvertTimezone": (0, 1)}
_ZONE_NAME = re.compile(r"'([A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)'")


def _zone_arguments(node: JavaObject) -> Iterator[str]:
    """The constants that functions within an expression take as names of zones."""
    children = list(items(node.children()))
    for place in _ZONE_ARGUMENTS.get(node.productPrefix(), ()):
        if children[place].productPrefix() == "Literal" and children[place].value() is not None:
            yield str(children[place].value())
    for child in children:
        yield from _zone_arguments(child)


class NoTextError(Exception):
    """No SQL text can express a node."""


class SparkText:
    """Writes the expressions of one statement's plan as texts, and proves them."""

    def __init__(self, sandbox: Sandbox, analyzed: JavaObject) -> None:
        """`analyzed`: the statement's plan before its optimization."""
        self.sandbox, self._analyzed = sandbox, analyzed
        self._bound_again: dict[tuple[str, tuple[str, ...]], JavaObject] = {}  # by text and the types of its columns

    @cached_property
    def originals(self) -> Sequence[JavaObject]:
        """The expressions that the optimizer replaces."""
        return list(replaced_expressions(self.sandbox, self._analyzed))

    def spark_call(self, node: JavaObject, leaf: Leaf, place: Place | None) -> Call:
        """The expression as a call that Spark computes. Raises NoTextError."""
        writer = _Writer(self, leaf)
        call = _make_call(writer, node, writer.node_text(node), place)
        self._prove_text(call, node, leaf)
        return call

    def guarded_call(self, condition: JavaObject, node: JavaObject, leaf: Leaf, place: Place | None) -> Call:
        """The expression if the condition is true, otherwise NULL without evaluating it. Raises NoTextError."""
        writer = _Writer(self, leaf)
        test, value = writer.node_text(condition), writer.node_text(node)
        self._prove_text(_make_call(writer, condition, test, place), condition, leaf)
        self._prove_text(_make_call(writer, node, value, place), node, leaf)
        return _make_call(writer, node, f"CASE WHEN {test} THEN {value} END", place)

    def _prove_text(self, call: Call, node: JavaObject, leaf: Leaf) -> None:
        if not TreeComparison(self.sandbox, leaf=leaf, args=call.args).is_same(self._bind_text(call), node):
            raise NoTextError(f"Spark reads {_shown(call)} differently")

    def _bind_text(self, call: Call) -> JavaObject:
        """The text as Spark binds and optimizes it, over columns of the arguments' types."""
        text, kinds = call.params[0][1], tuple(a.type for a in call.args)
        if (known := self._bound_again.get((text, kinds))) is None:
            source = SourceText(text)
            frame = self.sandbox.empty_dataset([f"a{i}" for i in range(len(kinds))], kinds)
            try:
                with translating_errors(source):
                    selected = frame.selectExpr(seq_of(self.sandbox, [f"{text} AS r"]))
                    plan = selected.queryExecution().optimizedPlan()
            except SqlError as err:
                raise NoTextError(f"Spark cannot read {_shown(call)} ({err.reason})") from err
            if plan.productPrefix() != "Project":
                raise NoTextError(f"{_shown(call)} is not an expression over a row")
            known = self._bound_again[text, kinds] = plan.projectList().head()
        return known


def _make_call(writer: "_Writer", node: JavaObject, text: str, place: Place | None) -> Call:
    params = (("sql", text), *writer.zone_parameters(node, text))
    call = Call(BY_SPARK, name_of_type(node.dataType()), tuple(writer.columns), params=params, place=place)
    for kind in (call.type, *(column.type for column in writer.columns)):
        try:
            twice = twice_named(arrow_type(kind))
        except UnsupportedTypeError:  # refused where it would be stored, with its column
            continue
        if twice is not None:
            raise NoTextError(TWICE_NAMED.format(twice))
    return call


#: For a type that Spark does not exchange with Python (tussock.statestore.types.twice_named).
TWICE_NAMED = "two fields of one struct are named {!r}; give them different names, as with AS or named_struct"


def call_text(call: Call) -> str:
    """The text of a call that Spark computes, with its columns by number."""
    return fill_columns(call, [f"c{a.index}" if isinstance(a, Column) else "…" for a in call.args])


def _shown(call: Call) -> str:
    """The text of a call in a message. An expression of macros can have thousands of characters."""
    text = call_text(call)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def fill_columns(call: Call, columns: Sequence[str]) -> str:
    """The text of a call that Spark computes, with `columns[i]` for argument i."""
    return filled_text(call.params[0][1], columns)


def filled_text(text: str, columns: Sequence[str]) -> str:
    """A text with `columns[i]` for column `a{i}`."""
    return _COLUMN.sub(lambda match: columns[int(match[1])], text)


class _Writer:
    """Writes one expression and collects the columns that it reads."""

    def __init__(self, texts: SparkText, leaf: Leaf) -> None:
        self.leaf = leaf
        self.columns: list[Expr] = []
        self._texts = texts
        self._variables: dict[int, str] = {}  # of lambdas, by expression id

    def zone_parameters(self, node: JavaObject, text: str) -> Iterator[tuple[str, str]]:
        """The parameter with the time zones by which Spark may convert, as in `Call.params`. None if that is UTC alone.

        The test uses the names of functions too, so it may include the store's zone unnecessarily.

        Raises UnknownZoneError if a function gets a constant that is no zone. It would fail on each row.
        """
        sandbox = self._texts.sandbox
        if _WITH_ZONE.search(text):
            for name in _zone_arguments(node):
                zone_in_jvm(sandbox.jvm, name)
        zones = list[str]()
        aware = sandbox.tree_pattern("TIME_ZONE_AWARE_EXPRESSION")
        if not is_utc(sandbox.time_zone) and (_OF_A_ZONE.search(text) or node.containsPattern(aware)):
            zones.append(sandbox.time_zone)
        for name in dict.fromkeys(_ZONE_NAME.findall(text)):
            with suppress(UnknownZoneError):  # another text with a slash
                zones.append(sandbox.zone_by_jvm(name))
        if zones:
            yield ZONES, " ".join(zones)

    def node_text(self, node: JavaObject) -> str:
        """The node as SQL, in parentheses if a neighbour could change its meaning. Raises NoTextError."""
        if (column := self.leaf(node)) is not None:
            if column not in self.columns:
                self.columns.append(column)
            return f"`a{self.columns.index(column)}`"
        name = node.productPrefix()
        if name in _TRANSPARENT:
            return self.node_text(node.child())
        for original in self._texts.originals:
            comparison = TreeComparison(self._texts.sandbox, holes=parameters_of(self._texts.sandbox, original))
            if (holes := comparison.match_holes(original, node)) is not None:
                return write_node(original, [self.node_text(n) for n in holes])
        match name:
            case "Literal":
                return literal_text(node)
            case "NamedLambdaVariable":
                if (variable := self._variables.get(node.exprId().id())) is None:
                    raise NoTextError("the variable of a surrounding lambda")
                return variable
            case "LambdaFunction":
                return self._lambda_text(node)
        if name == "RaiseError":
            return f"raise_error({self._message_text(node)})"
        if name == "MapSort":
            raise NoTextError("a map cannot be a key there; use array_sort(map_entries(…)) of it")
        if name in ("Invoke", "StaticInvoke", "AttributeReference", "BoundReference", "OuterReference"):
            raise NoTextError(f"{name} {node.toString()} has no text")
        return write_node(node, [self.node_text(child) for child in _operands_of(node)])

    def _message_text(self, node: JavaObject) -> str:
        """The message of raise_error(message) as SQL. Raises NoTextError."""
        kind, said = node.errorClass(), node.errorParms()
        if kind.productPrefix() != "Literal" or kind.value().toString() != "USER_RAISED_EXCEPTION":
            raise NoTextError("an error with a class and parameters has no text; give raise_error only a message")
        if said.productPrefix() == "CreateMap":
            return self.node_text(said.children().apply(1))
        return string_text(said.value().valueArray().getUTF8String(0).toString())

    def _lambda_text(self, node: JavaObject) -> str:
        if node.hidden():  # the original text has no arrow, and its function reads no variable
            return self.node_text(node.function())
        for variable in items(node.arguments()):
            self._variables[variable.exprId().id()] = f"x{len(self._variables)}"
        names = [self._variables[v.exprId().id()] for v in items(node.arguments())]
        return f"{names[0] if len(names) == 1 else '(' + ', '.join(names) + ')'} -> {self.node_text(node.function())}"


def _is_void(node: JavaObject) -> bool:
    return bool(node.dataType().typeName() == "void")


def parameters_of(sandbox: Sandbox, original: JavaObject) -> list[JavaObject]:
    """The arguments of an expression as the user wrote them."""
    inherits = is_instance_of(sandbox.gateway, original, f"{_CATALYST}.InheritAnalysisRules")
    return list(items(original.parameters() if inherits else original.children()))


def _operands_of(node: JavaObject) -> Sequence[JavaObject]:
    """The children of a node. Those of the operator, if the node is try_add(…) or the like over times or intervals."""
    tries = node.productPrefix() == "TryEval" and _INFIX.get(node.child().productPrefix()) in _TRY_OPERATORS
    return list(items((node.child() if tries else node).children()))


def write_node(node: JavaObject, args: list[str]) -> str:
    """A node over its arguments' texts. Raises NoTextError."""
    name = node.productPrefix()
    mode = _mode_of(node)
    if mode == "LEGACY":
        raise NoTextError(f"{name} in legacy mode")
    if name == "Cast":
        return f"{'TRY_' if mode == 'TRY' else ''}CAST({args[0]} AS {node.dataType().sql()})"
    if mode == "TRY" and name in _TRY:
        return f"{_TRY[name]}({', '.join(args)})"
    if name in _INFIX and len(args) == 2:
        return f"({args[0]} {_INFIX[name]} {args[1]})"
    if (form := _FORMS.get(name)) is not None:
        return form.format(*args)
    match name:
        case "In":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case "CaseWhen":
            pairs = " ".join(f"WHEN {c} THEN {v}" for c, v in zip(args[0::2], args[1::2], strict=False))
            return f"CASE {pairs}{f' ELSE {args[-1]}' if len(args) % 2 else ''} END"
        case "Like" | "ILike":
            return f"({args[0]} {name.upper()} {args[1]} ESCAPE {string_text(str(node.escapeChar()))})"
        case "LikeAll" | "NotLikeAll" | "LikeAny" | "NotLikeAny":
            patterns = ", ".join(string_text(p.toString()) for p in items(node.patterns()))
            return (
                f"({args[0]} {'NOT ' if name.startswith('Not') else ''}LIKE "
                f"{'ALL' if name.endswith('All') else 'ANY'} ({patterns}))"
            )
        case "GetStructField":
            return f"{args[0]}.{_field_name(node.child().dataType().fields()[node.ordinal()].name())}"
        case "GetArrayStructFields":
            return f"{args[0]}.{_field_name(node.field().name())}"
        case "Collate":  # the other argument is the collation
            return f"({args[0]} COLLATE {collation_of(node.dataType().catalogString()) or 'UTF8_BINARY'})"
        case "StringTrim" | "StringTrimLeft" | "StringTrimRight":
            side = {"StringTrim": "BOTH", "StringTrimLeft": "LEADING", "StringTrimRight": "TRAILING"}[name]
            return f"trim({side} {args[1] if len(args) > 1 else ''} FROM {args[0]})"
        case "TimestampAdd":
            return f"timestampadd({node.unit()}, {', '.join(args)})"
        case "TimestampDiff":
            return f"timestampdiff({node.unit()}, {', '.join(args)})"
        case "PreciseTimestampConversion":
            return _micros_text(node, args[0])
        case "JsonToStructs" | "CsvToStructs" | "XmlToStructs":
            return f"{node.prettyName()}({args[0]}, {_schema_text(node.schema())}{_options_text(node.options())})"
        case "StructsToJson" | "StructsToCsv" | "StructsToXml" | "SchemaOfJson" | "SchemaOfCsv" | "SchemaOfXml":
            return f"{node.prettyName()}({args[0]}{_options_text(node.options())})"
        case "AesEncrypt" if not _has_vector(node):
            raise NoTextError(
                "without an initialization vector it generates a random one, so it gives another value on every run; "
                "pass a constant vector, or mode 'ECB'"
            )
        case "TryEval" if len(args) == 2:
            return f"{_TRY_OPERATORS[_INFIX[node.child().productPrefix()]]}({', '.join(args)})"
        case "TryEval":  # try_f(…), for an f without eval modes
            return f"try_{args[0]}"
        case "VariantGet":
            return f"{node.prettyName()}({', '.join(args)}, {_schema_text(node.dataType())})"
        case _:
            return f"{_NAMES.get(name) or node.prettyName()}({', '.join(args)})"


def _micros_text(node: JavaObject, arg: str) -> str:
    """Microseconds since 1970 of an instant, or the reverse, as in window() and session_window().

    Raises NoTextError.
    """
    match node.child().dataType().catalogString(), node.dataType().catalogString():
        case "timestamp", "bigint":
            return f"unix_micros({arg})"
        case "bigint", "timestamp":
            return f"timestamp_micros({arg})"
        case _:
            raise NoTextError("no function counts the microseconds of a local time; cast it to a timestamp")


#: The nodes of the texts that `_micros_text` writes.
_PRECISE = frozenset({"UnixMicros", "MicrosToTimestamp"})


def _has_vector(node: JavaObject) -> bool:
    """Whether an AesEncrypt certainly generates no random vector. Spark considers it deterministic in any case."""
    mode, vector = (part.eval(None) if part.foldable() else None for part in (node.mode(), node.iv()))
    return (mode is not None and str(mode.toString()).upper() == "ECB") or bool(vector)


def _mode_of(node: JavaObject) -> str | None:
    """ANSI, TRY or LEGACY. None for a node without a mode."""
    for i in range(node.productArity()):
        if (label := node.productElementName(i)) in ("evalMode", "evalContext"):
            text = str(node.productElement(i).toString())
            return text if label == "evalMode" else text.removeprefix("NumericEvalContext(").split(",")[0]
    return None


def literal_text(node: JavaObject) -> str:
    """A constant as SQL. Raises NoTextError."""
    kind = node.dataType().catalogString()
    if any(word in kind.split("<")[0] for word in ("object", "geometry", "geography")):
        raise NoTextError(f"a constant of type {kind}")
    value = node.value()
    if value is not None:
        if kind == "string":
            return string_text(value.toString() if isinstance(value, JavaObject) else str(value))
        if kind == "timestamp":  # a text would be ambiguous in time zones in which an hour occurs twice
            return f"timestamp_micros({value}L)"
    elif kind != "void":  # Spark writes NULL without a type for arrays, maps and structs
        return f"CAST(NULL AS {node.dataType().sql()})"
    text = str(node.sql())
    if kind.startswith("decimal(") and kind != _decimal_of_text(text.removesuffix("BD")):
        return f"CAST({text} AS {node.dataType().sql()})"
    if "ARRAY()" in text or "MAP()" in text:  # Spark's text has no type of their elements
        text = f"CAST({text} AS {node.dataType().sql()})"
    return text if kind in ("binary", "date") else text.replace("`", "\\u0060")


def _decimal_of_text(digits: str) -> str:
    """The type that Spark gives to a number with these digits and the suffix BD."""
    number = Decimal(digits).as_tuple()
    scale = max(0, -int(number.exponent))
    return f"decimal({max(len(number.digits), scale)},{scale})"


def _field_name(text: str) -> str:
    if "`" in text:
        raise NoTextError(f"a field named {text}")
    return quote_name(text)


def _schema_text(kind: JavaObject) -> str:
    return string_text(str(kind.sql()))


def _options_text(options: JavaObject) -> str:
    if options.isEmpty():
        return ""
    pairs = sorted((str(entry._1()), str(entry._2())) for entry in items(options.toSeq()))
    return f", map({', '.join(f'{string_text(k)}, {string_text(v)}' for k, v in pairs)})"


@dataclass(slots=True)
class TreeComparison:
    """Compares two Catalyst trees.

    Args:
        holes: nodes of the left tree that match anything; `match_holes` returns the matched nodes.
        leaf, args: for the right tree, the column that a node represents. The left tree has the attribute `a{i}`
            instead, with i its index in `args`.
    """

    sandbox: Sandbox
    holes: Sequence[JavaObject] = ()
    leaf: Leaf | None = None
    args: Sequence[Expr] = ()
    _node_by_hole: dict[int, JavaObject] = field(default_factory=dict)
    _variables: dict[int, int] = field(default_factory=dict)

    def match_holes(self, left: JavaObject, right: JavaObject) -> list[JavaObject] | None:
        """The node that each hole matches, if the trees are otherwise equal.

        None if they differ, or if a hole is the whole tree.
        """
        self._node_by_hole, self._variables = {}, {}
        if not self.is_same(left, right) or any(n.equals(right) for n in self._node_by_hole.values()):
            return None
        first = [self._hole_number(hole) for hole in self.holes]  # equal arguments share a hole
        values = [self._node_by_hole.get(i, hole) for i, hole in zip(first, self.holes, strict=True) if i is not None]
        if any(_is_void(value) and not _is_void(hole) for value, hole in zip(values, self.holes, strict=False)):
            return None  # raise_error has this type, over which Spark replaces the function differently
        # A constant that is missing among the replacement's arguments has been folded into it.
        return (
            values
            if all(i in self._node_by_hole or hole.foldable() for i, hole in zip(first, self.holes, strict=True))
            else None
        )

    def is_same(self, left: JavaObject, right: JavaObject) -> bool:
        """Whether the trees are equal."""
        if (hole := self._hole_number(left)) is not None:
            if hole in self._node_by_hole:
                return bool(self._node_by_hole[hole].equals(right))
            self._node_by_hole[hole] = right
            return True
        left, right = self._strip_node(left), self._strip_node(right)
        if self.leaf is not None and (column := self.leaf(right)) is not None:
            return bool(
                left.productPrefix() == "AttributeReference" and left.name() == f"a{list(self.args).index(column)}"
            )
        if is_instance_of(self.sandbox.gateway, left, f"{_CATALYST}.RuntimeReplaceable"):
            return self.is_same(left.replacement(), right)
        a, b = left.productPrefix(), right.productPrefix()
        if (
            a == "Cast"
            and (hole := self._hole_number(left.child())) is not None
            and (b != "Cast" or not right.dataType().equals(left.dataType()))
        ):
            return self.is_same(
                left.child(), right
            )  # the optimizer omitted or computed the cast; Spark adds it again if needed
        if b == "PreciseTimestampConversion" and a in _PRECISE:
            return self.is_same(left.child(), right.child())
        if a != b:
            return bool(b == "Literal" and left.foldable()) and not self._has_hole(left) and self._folds_to(left, right)
        if a == "Literal":
            return bool(left.equals(right)) or self._folds_to(left, right)
        if a == _VARIABLE:
            return bool(self._variables.setdefault(left.exprId().id(), right.exprId().id()) == right.exprId().id())
        return self._same_parts(left, right)

    def _same_parts(self, left: JavaObject, right: JavaObject) -> bool:
        mine, other = list(items(left.children())), list(items(right.children()))
        if len(mine) != len(other) or left.productArity() != right.productArity():
            return False
        for i in range(left.productArity()):
            x, y = left.productElement(i), right.productElement(i)
            if isinstance(x, JavaObject) and isinstance(y, JavaObject):
                if not self._holds_expressions(x) and not x.equals(y) and left.productElementName(i) != "resultId":
                    return False
            elif isinstance(x, JavaObject) != isinstance(y, JavaObject) or x != y:
                return False
        return all(self.is_same(x, y) for x, y in zip(mine, other, strict=True))

    def _holds_expressions(self, value: JavaObject) -> bool:
        """Whether a constructor argument consists of children, alone or in a list, which are compared separately."""
        if is_instance_of(self.sandbox.gateway, value, f"{_CATALYST}.Expression"):
            return True
        for listed in ("scala.collection.immutable.Seq", "scala.Option"):
            if is_instance_of(self.sandbox.gateway, value, listed) and not value.isEmpty():
                first = value.head() if listed.endswith("Seq") else value.get()
                if isinstance(first, JavaObject) and is_instance_of(self.sandbox.gateway, first, "scala.Tuple2"):
                    first = first._1()
                return isinstance(first, JavaObject) and self._holds_expressions(first)
        return False

    @staticmethod
    def _strip_node(node: JavaObject) -> JavaObject:
        while node.productPrefix() in _TRANSPARENT:
            node = node.child()
        return node

    def _hole_number(self, node: JavaObject) -> int | None:
        return next((i for i, hole in enumerate(self.holes) if node.equals(hole)), None)

    def _has_hole(self, node: JavaObject) -> bool:
        return bool(self.holes) and (
            self._hole_number(node) is not None or any(self._has_hole(c) for c in items(node.children()))
        )

    @staticmethod
    def _folds_to(left: JavaObject, right: JavaObject) -> bool:
        """Whether an expression is this constant. Its type may allow more NULLs, since a text cannot exclude them."""
        value, other = left.eval(None), right.value()
        same_value = (
            value.equals(other) if isinstance(value, JavaObject) and isinstance(other, JavaObject) else value == other
        )
        return bool(same_value) and bool(left.dataType().asNullable().equals(right.dataType().asNullable()))


def replaced_expressions(sandbox: Sandbox, analyzed: JavaObject) -> Iterator[JavaObject]:
    """The expressions of an analyzed plan that the optimizer replaces, outer ones first.

    Cost: one round trip if there are none.
    """
    pattern = sandbox.tree_pattern("RUNTIME_REPLACEABLE")
    if not analyzed.containsPattern(pattern):
        return
    for node in items(analyzed.expressions()):
        yield from _replaced_within(sandbox, node, pattern)
    for below in [*items(analyzed.children()), *items(analyzed.innerChildren()), *items(analyzed.subqueries())]:
        yield from replaced_expressions(sandbox, below)


def _replaced_within(sandbox: Sandbox, node: JavaObject, pattern: JavaObject) -> Iterator[JavaObject]:
    if not node.containsPattern(pattern):
        return
    is_original = is_instance_of(sandbox.gateway, node, f"{_CATALYST}.RuntimeReplaceable")
    if is_original:
        yield node
    for child in parameters_of(sandbox, node) if is_original else items(node.children()):
        yield from _replaced_within(sandbox, child, pattern)

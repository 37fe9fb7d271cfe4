"""Catalyst expressions -> `nodes.Expr`.

A node keeps its Catalyst class name, its type, its arguments (Catalyst's children in order), its eval mode and the
other plain attributes of its class (`params`): the time zone of a timestamp function, the escape character of LIKE,
`failOnError`, the unit of TIMESTAMPADD. Typical results (`python -m tussock.jobs.sql.show --help` shows those of any
query):

    a + 1                 Add(a, 1) mode=ANSI            try_add(a, 1)            Add(a, 1) mode=TRY
    cast(b as int)        Cast(b): int mode=ANSI         try_cast(b as int)       Cast(b): int mode=TRY
    cast(ts as date)      Cast(ts): date mode=ANSI timeZoneId=UTC (timestamp from or to string, date, timestamp_ntz)
    a BETWEEN 1 AND 2     And(GreaterThanOrEqual(a, 1), LessThanOrEqual(a, 2))
    a <> 1                Not(EqualTo(a, 1))             a IN (1, 2)              In(a, 1, 2)
    CASE … ELSE …         CaseWhen(when, then, …, else)  IF(p, x, y)              If(p, x, y)
    nvl, coalesce         Coalesce(…)                    nullif(a, b)             If(EqualTo(a, b), NULL, a)
    b LIKE 'a%'           StartsWith(b, 'a'); EndsWith, Contains, Length similarly; else Like(b, p) escapeChar=\\
    trim(b)               StringTrim(b)                  year(ts)                 Year(Cast(ts): date)
    round(c, 1)           Round(c, 1) ansiEnabled=true   date_trunc('day', ts)    TruncTimestamp('day', ts) …=UTC
    encode(b, 'utf-8')    StaticInvoke(b, 'utf-8', false, false) class=…Encode function=encode

Functions that Spark replaces at run time (nvl, to_date, split_part, …) are already replaced. Subqueries and user
functions are rejected here. tussock.jobs.kernels decides whether a kernel implements an expression (`has_kernel`). An
expression without a kernel becomes, as a whole, a call that Spark computes:

    parse_url(u, 'HOST')      Spark[sql=parse_url(`a0`, 'HOST')](u)
    transform(a, x -> x + 1)  Spark[sql=transform(`a0`, (x0) -> …)](a)

It is not split, because one part of it may guard another part from rows on which that would raise an error.

Cost: about ten round trips to the JVM per node (0.03-0.1 ms each).
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.java_gateway import JavaObject, get_field

from tussock.jobs.logical.errors import UnsupportedQueryError
from tussock.jobs.logical.expression_tree import join_by_and, needs_spark
from tussock.jobs.logical.nodes import PYTHON, ROW_KEY, AggCall, AggFunction, Call, Expr, Literal, Place, SortKey
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.spark.release import node_name
from tussock.jobs.spark.type_names import collation_of, name_of_type
from tussock.jobs.sql.aggregate_functions import REFUSED, parts_of
from tussock.jobs.sql.moments import micros_or_moment, move_moment
from tussock.jobs.sql.now import ELSEWHERE
from tussock.jobs.sql.sandbox import Sandbox, items, text_of
from tussock.jobs.sql.sorted_maps import SORTING, holds_sorted_fields, sorted_value
from tussock.jobs.sql.spark_text import Leaf, NoTextError, SparkText

#: The expression ids of a plan node's input, and the expression of each.
Scope = Mapping[int, Expr]

_AGGREGATES = frozenset(f.value for f in AggFunction)
_COMPARISONS = ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")
_BOOLEAN = frozenset(
    {"And", "Or", "Not", "IsNull", "IsNotNull", "In", "Like", "StartsWith", "EndsWith", "Contains", *_COMPARISONS}
)
_SUBQUERIES = frozenset(
    {
        "ScalarSubquery",
        "Exists",
        "ListQuery",
        "InSubquery",
        "LateralSubquery",
        "DynamicPruningSubquery",
        "OuterReference",
    }
)
_USER_CODE = frozenset(
    {
        "ScalaUDF",
        "PythonUDF",
        "PythonUDAF",
        "ScalaUDAF",
        "ScalaAggregator",
        "HiveSimpleUDF",
        "HiveGenericUDF",
        "ApplyFunctionExpression",
    }
)
_VIEW = "a materialized view"
_COLLATED = (
    "a value of collation {} would be stored and compared by its bytes; compare it within one expression, as in WHERE, "
    "CAST it to STRING, or use lower(…)"
)
_LAMBDAS = frozenset({"LambdaFunction", "NamedLambdaVariable"})
#: The order of array_sort without a lambda. Spark simplifies it for arrays without NULLs.
_ASCENDING = "if ((left < right)) -1 else if ((left > right)) 1 else 0"
_ASCENDING_THEN_NULLS = (
    f"if ((isnull(left) AND isnull(right))) 0 else if (isnull(left)) 1 else if (isnull(right)) -1 else {_ASCENDING}"
)
_VARIABLE = re.compile(r"lambda (\w+)#\w+")
_NORMALISED = "KnownFloatingPointNormalized"  # keys are normalised wherever they are compared
_TRANSPARENT = frozenset({"KnownNullable", "KnownNotNull"})  # nullability is not part of a type here
_DROPPED_PARAMS = frozenset(
    {"resultId", "isDeterministic", "returnNullable", "propagateNull", "inputTypes", "scalarFunction", "legacyInterval"}
)
_ZONED_CAST = frozenset({"string", "date", "timestamp_ntz", "timestamp"})


@dataclass(frozen=True, slots=True)
class _Param:
    """One constructor argument of a Catalyst class that is neither a child nor a type."""

    index: int
    name: str
    kind: str  # plain | option | context


@dataclass(slots=True)
class ExpressionWalk:
    """Walks the expressions of one statement's plan."""

    sandbox: Sandbox
    source: SourceText
    within: str = _VIEW  # the name of the statement in messages
    has_kernel: Callable[[Expr], bool] | None = (
        None  # None: expressions without a kernel stay trees; the caller rejects them
    )
    texts: SparkText | None = None
    # The attributes of each class, determined at its first instance.
    _params: dict[str, tuple[_Param, ...]] = field(default_factory=dict)

    def place_of(self, node: JavaObject) -> Place | None:
        """The place in the text of a node of a plan or expression. None if the analyzer created the node."""
        span = self.span_of(node)
        return None if span is None else self.source.place_at(span[0])

    def span_of(self, node: JavaObject) -> tuple[int, int] | None:
        """The first and last character of a node's text."""
        origin = node.origin()
        start = origin.startIndex().toString()
        if start == "None":
            return None
        first = int(start[5:-1])
        if first >= len(self.source.text):  # from a plain view's query (tussock.jobs.sql.plain_view)
            return None
        return first, int(origin.stopIndex().toString()[5:-1])

    def refusal_of(self, node: JavaObject, construct: str | None, reason: str) -> UnsupportedQueryError:
        """The error that rejects `node`. If `construct` is None, it is named by the user's text."""
        span = self.span_of(node)
        if span is None:
            named = node.child() if node.productPrefix() == "Alias" else node
            return UnsupportedQueryError(construct or named.productPrefix(), reason, within=self.within)
        place, excerpt = self.source.place_at(span[0]), self.source.line_with_caret(span[0])
        return UnsupportedQueryError(
            construct or self.source.short_fragment(*span), reason, place, excerpt, self.within
        )

    def expression(self, node: JavaObject, scope: Scope) -> Expr:
        """A Catalyst expression over the columns of `scope`: one with a kernel, or a call that Spark computes.

        Raises: UnsupportedQueryError if neither is possible.
        """
        inner = node.child() if node.productPrefix() == "Alias" else node
        if self.has_kernel is not None:  # arguments that are computed for every row in any case may need Spark
            if inner.productPrefix() in SORTING and (value := sorted_value(inner)) is not None:
                return self._sort_maps(inner, self.expression(value, scope))
            if inner.productPrefix() == "ScalaUDF" or holds_sorted_fields(inner):
                return self.bind_call(inner, tuple(self.expression(child, scope) for child in items(inner.children())))
        return self.bind_whole(node, lambda: self.bind_tree(node, scope), self._columns_of(scope))

    def bind_whole(self, node: JavaObject, tree: Callable[[], Expr], leaf: Leaf) -> Expr:
        """The result of `bind_tree` for a whole expression.

        If that fails or has no kernel, a call that Spark computes.
        """
        if (collation := collation_of(name_of_type(node.dataType()))) is not None:
            raise self.refusal_of(node, None, _COLLATED.format(collation))
        try:
            expr = tree()
        except UnsupportedQueryError:
            if self.has_kernel is None or (self._is_opaque(node, leaf) and not _calls_python(node)):
                raise
        else:
            if self.has_kernel is None or self.has_kernel(expr):
                return expr
        return self._by_spark(node, lambda texts: texts.spark_call(node, leaf, self.place_of(node)))

    def bind_condition(self, node: JavaObject, scope: Scope, joins: bool = False) -> Expr:
        """A condition. If it has no kernel as a whole, each conjunct becomes a separate expression.

        In a condition that joins two relations, the sides of comparisons do too, since they may belong to different
        sides.
        """
        if self.has_kernel is None:
            return self.bind_tree(node, scope)
        try:
            if self.has_kernel(expr := self.bind_tree(node, scope)):
                return expr
        except UnsupportedQueryError:
            if self._is_opaque(node, self._columns_of(scope)):
                raise
        name = node.productPrefix()
        if name == "And":
            return Call(
                "And",
                "boolean",
                (self.bind_condition(node.left(), scope, joins), self.bind_condition(node.right(), scope, joins)),
            )
        if joins and name == "Not" and node.child().productPrefix() in _COMPARISONS:
            return Call("Not", "boolean", (self.bind_condition(node.child(), scope, joins),))
        if joins and name in _COMPARISONS:
            return Call(name, "boolean", (self.expression(node.left(), scope), self.expression(node.right(), scope)))
        return self.expression(node, scope)

    def bind_tree(self, node: JavaObject, scope: Scope) -> Expr:
        """A Catalyst expression over the columns of `scope`, node by node. Raises UnsupportedQueryError."""
        name = node_name(node)
        if name == "AttributeReference":
            return scope[node.exprId().id()]
        if name == "ScalarSubquery" and node.exprId().id() in scope:
            return scope[node.exprId().id()]
        if self.sandbox.is_moment(node):
            raise self.refusal_of(node, None, ELSEWHERE)
        if name == "Alias":
            return self.bind_tree(node.child(), scope)
        if name == "Literal":
            return self._bind_literal(node)
        if name == "Collate" and name_of_type(node.dataType()) == name_of_type(node.child().dataType()) == "string":
            return self.bind_tree(node.child(), scope)
        if name == _NORMALISED:
            return self.bind_tree(_not_normalised(node.child()), scope)
        if name == "TimestampAddInterval" and node.right().dataType().catalogString() == "interval":
            return self._move_moment(self.bind_tree(node.left(), scope), node.right(), scope)
        if (
            name == "Uuid" and self.within == _VIEW
        ):  # the optimizer's uuid(), for a NEAREST BY join; a user's own was rejected before
            return Call(ROW_KEY, "string", ())
        if name in SORTING and (value := sorted_value(node)) is not None:
            return self._sort_maps(node, self.bind_tree(value, scope))
        if name == "ArraySort" and _sorts_ascending(node):
            return Call(name, name_of_type(node.dataType()), (self.bind_tree(node.argument(), scope),))
        if name == "Coalesce" and (first := _argument_alone(node)) is not None:
            return self.bind_tree(first, scope)
        if name in _LAMBDAS:  # before its arguments, which have no meaning outside
            raise self.refusal_of(node, None, "functions that take lambdas have no kernel")
        return self.bind_call(node, tuple(self.bind_tree(child, scope) for child in items(node.children())))

    def bind_call(self, node: JavaObject, args: tuple[Expr, ...]) -> Expr:
        """An inner node over arguments that were already walked. Raises UnsupportedQueryError."""
        name = node_name(node)
        if name in _TRANSPARENT:
            return args[0]
        if name in _SUBQUERIES:
            raise self.refusal_of(
                node, "a subquery", "its result changes with another relation's rows; write it as a join"
            )
        if name == "ScalaUDF" and (function := self.sandbox.python_function(text_of(node.udfName()))) is not None:
            if self.within != _VIEW:
                raise self.refusal_of(node, None, "it is the user's Python code, which runs only in materialized views")
            which = (("name", function.name), ("digest", function.digest))
            return Call(PYTHON, function.returns, args, None, which, self.place_of(node))
        if name in _USER_CODE:
            raise self.refusal_of(node, None, "user-defined functions are opaque; write it in SQL functions")
        match name, args:
            case "GetArrayItem", (Call(node="CreateArray", args=elements), Literal(value=int(place))) if (
                0 <= place < len(elements)
            ):
                return elements[place]
            case "GetStructField", (Call(node="CreateNamedStruct", args=parts),):
                return parts[2 * int(node.ordinal()) + 1]
            case "PreciseTimestampConversion", (moment,):
                return micros_or_moment(moment, name_of_type(node.dataType()))
        mode, params = self._mode_and_params(name, node)
        kind = "boolean" if name in _BOOLEAN else name_of_type(node.dataType())
        if name == "Cast" and kind == args[0].type:  # between nested types that differ only in nullability
            return args[0]
        if name == "Cast":
            params = _cast_params(params, args[0].type, kind)
        return Call(name, kind, args, mode, params, self.place_of(node))

    def _move_moment(self, moment: Expr, by: JavaObject, scope: Scope) -> Expr:
        """A moment plus an interval of months, days and microseconds: a constant, or a CASE of constants.

        Raises: UnsupportedQueryError.
        """
        name = by.productPrefix()
        if name in ("If", "CaseWhen"):
            parts = list(items(by.children()))  # condition, value, …, and the ELSE value
            values = {*range(1, len(parts), 2), len(parts) - 1}
            args = tuple(
                self._move_moment(moment, p, scope) if i in values else self.bind_tree(p, scope)
                for i, p in enumerate(parts)
            )
            return Call(name, moment.type, args, place=self.place_of(by))
        if name != "Literal":
            raise self.refusal_of(by, None, "a computed interval of months and days has no kernel")
        if (interval := by.value()) is None:
            return Literal(None, moment.type)
        months, days, micros = (get_field(interval, part) for part in ("months", "days", "microseconds"))
        return move_moment(moment, months, days, micros, self.sandbox.time_zone)

    def _columns_of(self, scope: Scope) -> Leaf:
        """The nodes that are columns in a text: input attributes, joined subqueries, and maps sorted as keys."""

        def leaf(node: JavaObject) -> Expr | None:
            name = node.productPrefix()
            if name in ("AttributeReference", "ScalarSubquery"):
                return scope.get(node.exprId().id())
            return self._sorted_key(node, scope) if name in SORTING and sorted_value(node) is not None else None

        return leaf

    def _sort_maps(self, node: JavaObject, value: Expr) -> Call:
        """A value of a key with the entries of its maps in the order of their keys."""
        return Call("MapSort", name_of_type(node.dataType()), (value,), place=self.place_of(node))

    def _sorted_key(self, node: JavaObject, scope: Scope) -> Expr | None:
        """The sorted value, if kernels can compute it from columns."""
        try:
            expr = self.bind_tree(node, scope)
        except (UnsupportedQueryError, KeyError):  # a lambda's variable
            return None
        return expr if self.has_kernel is not None and self.has_kernel(expr) else None

    def _is_opaque(self, node: JavaObject, leaf: Leaf) -> bool:
        """Whether no text can express a part of the expression: a subquery or a user's function."""
        if node.productPrefix() in _SUBQUERIES | _USER_CODE:
            return leaf(node) is None
        return any(self._is_opaque(child, leaf) for child in items(node.children()))

    def _by_spark(self, node: JavaObject, write: Callable[[SparkText], Call]) -> Expr:
        assert self.texts is not None, "callers with kernels have texts"
        if _calls_python(node):
            reason = (
                "it mixes Python functions with functions that only Spark computes; compute one of them in another "
                "view and read that view"
            )
            raise self.refusal_of(node, None, reason)
        try:
            return write(self.texts)
        except NoTextError as err:
            raise self.refusal_of(node, None, f"it has no kernel, and Spark cannot compute it either: {err}") from err

    def bind_aggregate_call(self, node: JavaObject, scope: Scope) -> AggCall:
        """An AggregateExpression over the aggregate's input. Raises UnsupportedQueryError for unsupported functions."""
        parts = parts_of(node, self.sandbox.jvm)
        if parts.name in REFUSED:
            raise self.refusal_of(node, None, REFUSED[parts.name])
        if parts.name not in _AGGREGATES:
            raise self.refusal_of(node, None, "this aggregate cannot be maintained incrementally yet")
        function = AggFunction(parts.name)
        if dict(parts.params).get("ignoreNulls") == "false" and (
            node.isDistinct() or function is AggFunction.COLLECT_SET
        ):
            raise self.refusal_of(node, None, "NULL among distinct values is not supported; omit RESPECT NULLS")
        if function is AggFunction.PERCENTILE and node.isDistinct() and len(parts.args) > 1:
            raise self.refusal_of(
                node, None, "DISTINCT compares the frequency too; read from a SELECT DISTINCT instead"
            )
        args = tuple(self.expression(arg, scope) for arg in parts.args)
        mode = self.mode_of(node.aggregateFunction())
        condition = node.filter()
        where = self.expression(condition.get(), scope) if condition.isDefined() else None
        if where is not None and any(
            needs_spark(a) for a in args
        ):  # rows that the condition excludes must not be evaluated
            leaf, test = self._columns_of(scope), condition.get()
            args = tuple(
                self._by_spark(c, lambda t, c=c: t.guarded_call(test, c, leaf, self.place_of(c)))  # type: ignore[misc]
                for c in parts.args
            )
        if function is AggFunction.COUNT and not node.isDistinct():
            args = tuple(
                a for a in args if not (isinstance(a, Literal) and a.value is not None)
            )  # count(1) counts rows
            if len(args) > 1:  # count(a, b) counts rows in which neither is NULL
                present = [Call("IsNotNull", "boolean", (a,)) for a in args] + ([] if where is None else [where])
                args, where = (), join_by_and(present)
        kind = name_of_type(node.aggregateFunction().dataType())
        order = tuple(self.sort_key(key, scope) for key in parts.order)
        return AggCall(function, kind, args, mode, node.isDistinct(), where, self.place_of(node), parts.params, order)

    def sort_key(self, node: JavaObject, scope: Scope) -> SortKey:
        """A SortOrder. Raises UnsupportedQueryError."""
        expr = self.expression(node.child(), scope)
        return SortKey(expr, node.direction().sql() == "DESC", node.nullOrdering().sql() == "NULLS LAST")

    def mode_of(self, node: JavaObject) -> str | None:
        """A node's eval mode, if it has one."""
        return self._mode_and_params(node.productPrefix(), node)[0]

    def _bind_literal(self, node: JavaObject) -> Literal:
        return self.bind_constant(node, node.value(), node.dataType())

    def bind_constant(self, node: JavaObject, value: Any, kind: JavaObject) -> Literal:
        """A constant of `node` in Catalyst's internal form; `kind` is its type. Raises UnsupportedQueryError."""
        name = name_of_type(kind)
        if isinstance(physical := _physical_form(value, kind, name), _Unknown):
            raise self.refusal_of(node, None, f"a constant of type {name}")
        text = isinstance(physical, list)
        return Literal(json.dumps(physical, ensure_ascii=False, separators=(",", ":")) if text else physical, name)

    def _mode_and_params(self, name: str, node: JavaObject) -> tuple[str | None, tuple[tuple[str, str], ...]]:
        known = self._params.get(name)
        if known is None:
            known = self._params[name] = tuple(self._params_of(name, node))
        mode: str | None = None
        params: list[tuple[str, str]] = []
        for param in known:
            value = node.productElement(param.index)
            if param.kind == "context":  # NumericEvalContext(ANSI,true) or the mode itself
                mode = value.toString().removeprefix("NumericEvalContext(").split(",")[0]
            elif param.kind == "option":
                text = value.toString()
                if text != "None":
                    text = text.removeprefix("Some(").removesuffix(")")
                    params.append((param.name, self.sandbox.zone_by_jvm(text) if param.name == "timeZoneId" else text))
            elif value is not None:
                params.append((param.name, str(value).lower() if isinstance(value, bool) else str(value)))
        if name == "StaticInvoke":
            params = [("class", node.staticObject().getName()), ("function", node.functionName())]
        elif name == "Invoke":
            params = [("function", node.functionName())]
        return mode, tuple(params)

    def _params_of(self, name: str, node: JavaObject) -> list[_Param]:
        """The plain constructor arguments of a class, determined from its first instance.

        Options are recognised by name.
        """
        params: list[_Param] = []
        for index in range(node.productArity()):
            label = node.productElementName(index)
            if label in _DROPPED_PARAMS:
                continue
            if label in ("evalMode", "evalContext"):
                params.append(_Param(index, label, "context"))
                continue
            value = node.productElement(index)
            if not isinstance(value, JavaObject):
                params.append(_Param(index, label, "plain"))
            elif label in ("timeZoneId", "threshold") or (name, label) == ("ElementAt", "defaultValueOutOfBound"):
                params.append(_Param(index, label, "option"))
        return params


def _calls_python(node: JavaObject) -> bool:
    return node.productPrefix() == "ScalaUDF" or any(_calls_python(child) for child in items(node.children()))


def _sorts_ascending(node: JavaObject) -> bool:
    """Whether an array_sort has no lambda: ascending, with NULLs at the end."""
    order = _VARIABLE.sub(r"\1", node.function().function().toString())
    return bool(order == (_ASCENDING_THEN_NULLS if node.argument().dataType().containsNull() else _ASCENDING))


def _argument_alone(node: JavaObject) -> JavaObject | None:
    """The argument a of coalesce(a, if(a IS NOT NULL, b, NULL)), which is always a. None for another coalesce.

    dbt's macros for Spark write it around each argument of datediff and dateadd, with an assert_true as b.
    """
    first, *others = items(node.children())
    if len(others) != 1 or others[0].productPrefix() != "If" or not first.deterministic():
        return None
    condition, otherwise = others[0].predicate(), others[0].falseValue()
    is_first = condition.productPrefix() == "IsNotNull" and condition.child().semanticEquals(first)
    return first if is_first and otherwise.productPrefix() == "Literal" and otherwise.value() is None else None


def _not_normalised(node: JavaObject) -> JavaObject:
    """The expression inside Spark's NormalizeFloatingNumbers: a float, or the array or struct that it rebuilds."""
    match node.productPrefix():
        case "NormalizeNaNAndZero":
            return node.child()
        case "ArrayTransform" | "TransformValues":
            return node.argument()
        case "If":  # IsNull(x), NULL, x rebuilt
            return node.predicate().child()
        case _:  # a struct of normalised fields, which is never NULL
            return _part_of_normalised(list(items(node.children()))[1])


def _part_of_normalised(node: JavaObject) -> JavaObject:
    """The struct from which a normalised field, or a field that needs no normalisation, is taken."""
    while node.productPrefix() != "GetStructField":
        node = _not_normalised(node.child()) if node.productPrefix() == _NORMALISED else node.child()
    return node.child()


def _cast_params(params: tuple[tuple[str, str], ...], source: str, target: str) -> tuple[tuple[str, str], ...]:
    """Drop the time zone from a Cast unless instants meet texts, dates or local times.

    Spark gives every Cast a time zone.
    """
    if source != target and "timestamp" in (source, target) and {source, target} <= _ZONED_CAST:
        return params
    return tuple(p for p in params if p[0] != "timeZoneId")


class _Unknown:
    """A constant without a physical form."""


def _physical_form(value: Any, data_type: JavaObject, kind: str) -> Any:
    """A constant's physical form (see nodes.Literal). For nested values, lists of the forms of their parts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(bytes(value)).decode()
    if kind.startswith("decimal"):
        return format(value.toJavaBigDecimal(), "f")  # py4j makes it a Python Decimal
    if kind == "string" or kind.startswith("string collate"):
        return value.toString()
    if kind.startswith("array<"):
        return _physical_elements(value, data_type.elementType())
    if kind.startswith("map<"):
        sides = (value.keyArray(), data_type.keyType()), (value.valueArray(), data_type.valueType())
        keys, values = (_physical_elements(*side) for side in sides)
        if isinstance(keys, _Unknown) or isinstance(values, _Unknown):
            return _Unknown()
        return [list(pair) for pair in zip(keys, values, strict=True)]
    if kind.startswith("struct<"):
        types = [field.dataType() for field in data_type.fields()]
        return _all_known([_physical_form(value.get(i, t), t, name_of_type(t)) for i, t in enumerate(types)])
    return _Unknown()


def _physical_elements(values: JavaObject, element: JavaObject) -> Any:
    kind = name_of_type(element)
    return _all_known([_physical_form(values.get(i, element), element, kind) for i in range(values.numElements())])


def _all_known(parts: list[Any]) -> Any:
    return _Unknown() if any(isinstance(part, _Unknown) for part in parts) else parts

"""A DataFrame's query as the text of a SELECT, so that SHOW CREATE returns a usable statement.

The text is written from the analyzed plan.

A text is used only if it is proven: bound like any other SELECT, it must have the DataFrame's plan. Other queries
have no text (NoTextError). A node is added to the SELECT below it if that has room (a WHERE, an ORDER BY); otherwise
it becomes a SELECT over it.
"""

import re
from dataclasses import dataclass, field

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.logical.relation_names import split_name, sql_name
from tussock.jobs.sql.plan_nodes.pivot import pivot_of
from tussock.jobs.sql.plan_nodes.session import is_session
from tussock.jobs.sql.sandbox import Sandbox, items, option_of
from tussock.jobs.sql.spark_text import NoTextError, literal_text, parameters_of, write_node
from tussock.statestore.meta.catalog import RelationKind

_JOINS = {
    "Inner": "JOIN",
    "Cross": "CROSS JOIN",
    "LeftOuter": "LEFT JOIN",
    "RightOuter": "RIGHT JOIN",
    "FullOuter": "FULL JOIN",
    "LeftSemi": "LEFT SEMI JOIN",
    "LeftAnti": "LEFT ANTI JOIN",
}
_ONE_SIDED = frozenset({"LeftSemi", "LeftAnti"})
_RANKS = frozenset({"Rank", "DenseRank", "PercentRank"})  # whose children are the window's ORDER BY
_OF_ONE_ROW = frozenset({"First", "Last", "AnyValue"})  # aggregates whose second argument means IGNORE NULLS
_OF_OFFSETS = frozenset({"Lag", "Lead", "NthValue"})
_UNITS = (("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000), ("microsecond", 1))
_MOST_VALUES = 1000  # rows of VALUES in a text
#: Nodes without an effect on the rows.
_PASSED = frozenset({"SubqueryAlias", "View", "ResolvedHint", "Repartition", "RepartitionByExpression"})
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


@dataclass(slots=True)
class _Select:
    """One SELECT under construction. `scope`: the text of each column, by number, in expressions over its FROM."""

    source: str  # the items of FROM; empty for a SELECT without FROM
    scope: dict[int, str]
    is_join: bool = False
    generators: list[str] = field(default_factory=list)  # LATERAL VIEW, each over the items and those before it
    where: list[str] = field(default_factory=list)
    columns: list[tuple[int, str, str]] | None = None  # number, expression, name; None: the unchanged columns of FROM
    distinct: bool = False
    group: list[str] | None = None
    order: list[str] = field(default_factory=list)
    limit: str | None = None
    offset: str | None = None

    @property
    def is_bare(self) -> bool:
        """Whether it consists of FROM and WHERE only."""
        return self.columns is None and not self.order and self.limit is None and self.offset is None


class FrameText:
    """Writes one plan."""

    def __init__(self, sandbox: Sandbox, *, names_views: bool = False) -> None:
        """`names_views`: write the names of plain views, and not their queries."""
        self._sandbox, self._names_views = sandbox, names_views
        self._aliases: set[str] = set()
        self._variables: dict[int, str] = {}  # of lambdas, by expression id
        self._pivots: dict[int, range] = {}  # by the number of a pivot's array, the columns of its elements

    def select_text(self, analyzed: JavaObject) -> str:
        """The SELECT. Requires: the sandbox has the relations of its leaves. Raises NoTextError."""
        output = list(items(analyzed.output()))
        select = self._select_of(analyzed)
        if select.columns is None or [(n, name) for n, _, name in select.columns] != [
            (a.exprId().id(), a.name()) for a in output
        ]:
            if select.columns is not None:
                select = self._nest_select(select)
            select.columns = _columns_of(select.scope, analyzed.output())
        return _render_select(select)

    def _select_of(self, node: JavaObject) -> _Select:
        name = node.productPrefix()
        if name in _PASSED:
            view = self._plain_view_of(node) if self._names_views and name == "View" else None
            return self._select_of(node.child()) if view is None else self._select_named(view, node)
        match name:
            case "LogicalRDD":
                return self._select_relation(node)
            case "Filter":
                select = self._bare_select(node.child())
                select.where.append(self._expression_text(node.condition(), select))
                return select
            case "Project":
                if (source := self._exposed_source(node.child())) is not None:
                    return self._select_named(source, node)
                select = self._sliding_select(node.child()) or self._bare_select(node.child())
                select.columns = [self._column_text(e, select) for e in items(node.projectList())]
                return select
            case "Aggregate" if _is_expand_of_sets(node.child()):
                return self._select_grouping_sets(node)
            case "Aggregate":
                below = node.child()
                select = self._session_select(below) or self._sliding_select(below) or self._bare_select(below)
                select.group = [self._expression_text(e, select) for e in items(node.groupingExpressions())]
                select.columns = [c for e in items(node.aggregateExpressions()) for c in self._columns_text(e, select)]
                return select
            case "Window":
                return self._select_windows(node)
            case "Join":
                return self._select_join(node)
            case "Union":
                return self._select_union(node, "UNION ALL")
            case "Except" | "Intersect":
                return self._select_union(node, f"{name.upper()}{' ALL' if node.isAll() else ''}")
            case "Distinct":
                return self._select_distinct(node.child())
            case "Deduplicate":
                return self._select_deduplicated(node)
            case "EventTimeWatermark":  # only a stream drops late rows
                return self._select_of(node.child())
            case "Generate":
                return self._select_generate(node)
            case "Expand":
                return self._select_expanded(node)
            case "Sort":
                select = self._bare_select(node.child())
                select.order = [self._order_text(o, select) for o in items(node.order())]
                return select
            case "GlobalLimit" | "LocalLimit" | "Offset":
                return self._select_limit(node)
            case "LocalRelation":
                return self._select_values(node)
            case "OneRowRelation":
                return _Select("", {})
            case "Range":
                shown = f"range({node.start()}, {node.end()}, {node.step()})"
                return self._select_constant(node, shown)
            case _:
                raise NoTextError(f"the operator {name}")

    def _select_grouping_sets(self, node: JavaObject) -> _Select:
        """An aggregation by several sets of keys, of cube and rollup: GROUP BY GROUPING SETS ((a, b), (a), ())."""
        expand = node.child()
        outputs, rows = list(items(expand.output())), [list(items(row)) for row in items(expand.projections())]
        below = expand.child()  # a Project of all columns, and of the keys once more
        select = self._bare_select(below.child())
        inner = {e.exprId().id(): self._expression_text(e, select) for e in items(below.projectList())}
        keys = dict[int, str]()  # by place in the rows
        for place, output in enumerate(outputs[:-1]):
            values = {row[place].exprId().id() for row in rows if row[place].productPrefix() != "Literal"}
            if output.exprId().id() not in inner:
                if output.name() == "_gen_grouping_pos" or len(values) != 1:
                    raise NoTextError("a grouping set that is given twice, or a key that is in no set")
                keys[place] = inner[values.pop()]
        numbers = {place: outputs[place].exprId().id() for place in keys}
        select.scope = {
            **select.scope,
            **{number: keys[place] for place, number in numbers.items()},
            outputs[-1].exprId().id(): "grouping_id()",
        }
        sets = (
            ", ".join(text for place, text in keys.items() if row[place].productPrefix() != "Literal") for row in rows
        )
        select.group = [f"GROUPING SETS ({', '.join(f'({one})' for one in sets)})"]
        select.columns = [self._column_text(e, select) for e in items(node.aggregateExpressions())]
        return select

    def _session_select(self, node: JavaObject) -> _Select | None:
        """The rows below the nodes that Spark makes of session_window, whose call is the text of its column."""
        if node.productPrefix() != "Filter" or node.child().productPrefix() != "Project":
            return None
        project = node.child()
        marked = [e for e in items(project.projectList()) if is_session(e)]
        if not marked or marked[0].productPrefix() != "Alias":
            return None
        select = self._bare_select(project.child())
        _, _, _, end = items(marked[0].child().children())
        moment, gap = items(_without_conversions(end).children())
        texts = (self._expression_text(e, select) for e in (moment, _without_conversions(gap)))
        call = f"session_window({', '.join(texts)})"
        select.scope = {**select.scope, marked[0].exprId().id(): call}
        return select

    def _sliding_select(self, node: JavaObject) -> _Select | None:
        """The rows below the nodes that Spark makes of a sliding window, whose call is the text of its column."""
        if node.productPrefix() != "Filter" or node.child().productPrefix() != "Expand":
            return None
        expand = node.child()
        passed = {a.exprId().id() for a in items(expand.child().output())}
        windows = [a for a in items(expand.output()) if a.exprId().id() not in passed]
        if len(windows) != 1 or not windows[0].metadata().contains("spark.timeWindow"):
            return None
        bounds = next(
            e for e in items(next(iter(items(expand.projections())))) if e.productPrefix() == "CreateNamedStruct"
        )
        _, start, _, end = (_without_wrappers(part) for part in items(bounds.children()))
        duration, place = end.right().value(), start.left().right().elseValue().get()  # (moment - first) % slide
        select = self._bare_select(expand.child())
        moment = self._expression_text(_without_wrappers(place.left().left()), select)
        first = place.left().right().value()
        texts = [_interval_text(micros) for micros in (duration, place.right().value(), *([first] if first else []))]
        call = f"window({moment}, {', '.join(texts)})"
        select.scope = {**select.scope, windows[0].exprId().id(): call}
        return select

    def _select_windows(self, node: JavaObject) -> _Select:
        select = self._bare_select(node.child())
        select.columns = _columns_of(select.scope, node.child().output())
        select.columns += [self._column_text(e, select) for e in items(node.windowExpressions())]
        return select

    def _select_deduplicated(self, node: JavaObject) -> _Select:
        """Groups in the order of the keys, which DISTINCT lacks."""
        keys = list(items(node.keys()))
        if {a.exprId().id() for a in keys} != {a.exprId().id() for a in items(node.child().output())}:
            raise NoTextError("dropDuplicates of some columns, which keeps any row of each group")
        select = self._bare_select(node.child())
        select.columns = _columns_of(select.scope, node.output())
        select.group = [_column_of(select.scope, key) for key in keys]
        return select

    def _select_values(self, node: JavaObject) -> _Select:
        output, rows = list(items(node.output())), list(items(node.data()))
        if not 0 < len(rows) <= _MOST_VALUES:
            raise NoTextError(f"{len(rows)} constant rows")
        texts = (", ".join(_constant_text(row.get(i, a.dataType()), a) for i, a in enumerate(output)) for row in rows)
        return self._select_constant(node, f"VALUES {', '.join(f'({text})' for text in texts)}")

    def _select_constant(self, node: JavaObject, shown: str) -> _Select:
        """Constant rows, as a FROM item."""
        alias = self._new_alias("t")
        names = {a.exprId().id(): _name_text(a.name()) for a in items(node.output())}
        scope = {number: f"{alias}.{name}" for number, name in names.items()}
        return _Select(f"{shown} AS {alias} ({', '.join(names.values())})", scope)

    def _select_relation(self, node: JavaObject) -> _Select:
        relation = self._sandbox.relation_of(node)
        if relation is None:
            raise NoTextError("data from outside of the catalog")
        return self._select_named(relation.name, node)

    def _select_named(self, name: str, node: JavaObject) -> _Select:
        """A relation of the catalog, by its name."""
        schema, own = split_name(name)
        alias = self._new_alias(own)
        shown = name if _is_plain(own) and _is_plain(schema) else sql_name(name)
        scope = {a.exprId().id(): f"{alias}.{_name_text(a.name())}" for a in items(node.output())}
        return _Select(shown if alias == own else f"{shown} AS {alias}", scope)

    def _plain_view_of(self, node: JavaObject) -> str | None:
        """The plain view of the catalog that a View represents."""
        name = str(node.desc().identifier().table()).lower()
        relation = self._sandbox.relations.get(name)
        return name if relation is not None and relation.kind is RelationKind.PLAIN_VIEW else None

    def _exposed_source(self, below: JavaObject) -> str | None:
        """The source whose hidden columns a projection over its rows names. None for another projection."""
        if below.productPrefix() != "LogicalRDD" or not self._sandbox.hidden_of(below):
            return None
        relation = self._sandbox.relation_of(below)
        return None if relation is None else relation.name

    def _select_distinct(self, node: JavaObject) -> _Select:
        select = self._select_columns(node)
        select.distinct = True
        return select

    def _select_generate(self, node: JavaObject) -> _Select:
        """A generator over each row: FROM … LATERAL VIEW explode(…) g AS …"""
        child = self._bare_select(node.child())
        if child.where:
            child = self._nest_select(child)
        alias = self._new_alias("g")
        outputs = list(items(node.generatorOutput()))
        names = ", ".join(_name_text(a.name()) for a in outputs)
        outer = "OUTER " if node.outer() else ""
        generator = self._expression_text(node.generator(), child)
        scope = child.scope | {a.exprId().id(): f"{alias}.{_name_text(a.name())}" for a in outputs}
        view = f"LATERAL VIEW {outer}{generator} {alias} AS {names}"
        return _Select(child.source, scope, child.is_join, [*child.generators, view])

    def _select_expanded(self, node: JavaObject) -> _Select:
        """Several rows for each row, as in an unpivot: FROM … LATERAL VIEW stack(…) g AS …"""
        if _is_expand_of_sets(node):
            raise NoTextError("grouping sets without their aggregation")
        if (unpivoted := self._select_unpivoted(node)) is not None:
            return unpivoted
        outputs = list(items(node.output()))
        child = self._bare_select(node.child())
        if child.where:
            child = self._nest_select(child)
        alias = self._new_alias("g")
        rows = [list(items(row)) for row in items(node.projections())]
        scope, names, values = dict(child.scope), list[str](), list[int]()
        for place, output in enumerate(outputs):
            if all(_number_of(row[place]) == output.exprId().id() for row in rows):
                scope[output.exprId().id()] = self._expression_text(output, child)
            else:
                values.append(place)
                names.append(_name_text(output.name()))
                scope[output.exprId().id()] = f"{alias}.{names[-1]}"
        listed = ", ".join(self._expression_text(row[place], child) for row in rows for place in values)
        view = f"LATERAL VIEW stack({len(rows)}, {listed}) {alias} AS {', '.join(names)}"
        return _Select(child.source, scope, child.is_join, [*child.generators, view])

    def _select_unpivoted(self, node: JavaObject) -> _Select | None:
        """The rows of an unpivot of columns: FROM (SELECT …) UNPIVOT INCLUDE NULLS (v FOR n IN (…)). None: another one.

        Each of its rows has the other columns, then the name of a column as a text, then its value.
        """
        *passed, key, value = items(node.output())
        rows = [list(items(row)) for row in items(node.projections())]
        words, columns = [row[-2] for row in rows], [_without_cast(row[-1]) for row in rows]
        numbers = [*(a.exprId().id() for a in passed), *map(_number_of, columns)]
        if (
            any([*map(_number_of, row[:-2])] != numbers[: len(passed)] for row in rows)
            or None in numbers
            or len(set(numbers)) != len(numbers)
            or any(w.productPrefix() != "Literal" or w.dataType().catalogString() != "string" for w in words)
        ):
            return None
        select = self._bare_select(node.child())
        select.columns = [c for c in _columns_of(select.scope, node.child().output()) if c[0] in numbers]
        below, alias = self._nest_select(select), self._new_alias("u")
        names = {number: text.partition(".")[2] for number, text in below.scope.items()}
        listed = (
            f"{names[c.exprId().id()]} AS {quote_name(w.value().toString())}"
            for c, w in zip(columns, words, strict=True)
        )
        key_name, value_name = _name_text(key.name()), _name_text(value.name())
        source = (
            f"{below.source} UNPIVOT INCLUDE NULLS ({value_name} FOR {key_name} IN ({', '.join(listed)})) AS {alias}"
        )
        scope = {a.exprId().id(): names[a.exprId().id()] for a in passed}
        scope |= {key.exprId().id(): key_name, value.exprId().id(): value_name}
        # in a list of joins, UNPIVOT would apply to all items before it
        return _Select(source, {number: f"{alias}.{name}" for number, name in scope.items()}, is_join=True)

    def _select_join(self, node: JavaObject) -> _Select:
        kind = node.joinType().toString()
        if kind not in _JOINS:
            raise NoTextError(f"a join {kind}")
        left, right = self._from_item(node.left(), joins=True), self._from_item(node.right(), joins=False)
        both = _Select("", left.scope | right.scope)
        condition = option_of(node.condition())
        on = "" if condition is None else f" ON {self._expression_text(condition, both)}"
        scope = left.scope if kind in _ONE_SIDED else both.scope
        return _Select(f"{left.source} {_JOINS[kind]} {right.source}{on}", scope, is_join=True)

    def _select_union(self, node: JavaObject, operation: str) -> _Select:
        parts = [self._select_columns(child) for child in items(node.children())]
        alias = self._new_alias("t")
        names = [name for _, _, name in parts[0].columns or ()]
        scope = {a.exprId().id(): f"{alias}.{_name_text(n)}" for a, n in zip(items(node.output()), names, strict=True)}
        return _Select(f"({f' {operation} '.join(map(_render_select, parts))}) AS {alias}", scope)

    def _select_limit(self, node: JavaObject) -> _Select:
        child = node.child()
        if node.productPrefix() == "GlobalLimit" and child.productPrefix() == "LocalLimit":
            node, child = child, child.child()
        select = self._select_of(child)
        if select.limit is not None or (node.productPrefix() == "Offset" and select.offset is not None):
            select = self._nest_select(select)
        if node.productPrefix() == "Offset":
            select.offset = self._expression_text(node.offsetExpr(), select)
        else:
            select.limit = self._expression_text(node.limitExpr(), select)
        return select

    def _bare_select(self, node: JavaObject) -> _Select:
        select = self._select_of(node)
        return select if select.is_bare else self._nest_select(select)

    def _select_columns(self, node: JavaObject) -> _Select:
        """A SELECT with a column list."""
        select = (
            self._bare_select(node) if node.productPrefix() not in ("Project", "Aggregate") else self._select_of(node)
        )
        if select.columns is None:
            select.columns = [(a.exprId().id(), _column_of(select.scope, a), a.name()) for a in items(node.output())]
        return select

    def _from_item(self, node: JavaObject, joins: bool) -> _Select:
        """A FROM item: a relation, a SELECT in parentheses, or on the left a join."""
        select = self._select_of(node)
        is_item = select.is_bare and bool(select.source) and not select.where and not select.generators
        return select if is_item and (joins or not select.is_join) else self._nest_select(select)

    def _nest_select(self, select: _Select) -> _Select:
        """A SELECT over the existing one."""
        if select.columns is None and not select.scope:
            raise NoTextError("a row without columns")
        if select.columns is None:
            select.columns = [
                (number, text, text.rpartition(".")[2].strip("`")) for number, text in select.scope.items()
            ]
        names: dict[str, int] = {}
        columns = []
        for number, text, name in select.columns:
            times = names[name.lower()] = names.get(name.lower(), 0) + 1
            columns.append((number, text, name if times == 1 else f"{name}_{times}"))
        select.columns = columns
        alias = self._new_alias("t")
        return _Select(
            f"({_render_select(select)}) AS {alias}",
            {number: f"{alias}.{_name_text(name)}" for number, _, name in columns},
        )

    def _new_alias(self, wanted: str) -> str:
        alias, n = wanted, 1
        while alias in self._aliases:
            n += 1
            alias = f"{wanted}_{n}"
        self._aliases.add(alias)
        return alias

    def _variable_text(self, variable: JavaObject) -> str:
        """The name of a lambda's variable. Spark gives Python's lambdas other numbers in each run: x_1, x_2."""
        number = variable.exprId().id()
        if number not in self._variables:
            self._variables[number] = _name_text(self._new_alias(re.sub(r"_\d+$", "", str(variable.name())) or "x"))
        return self._variables[number]

    def _columns_text(self, node: JavaObject, select: _Select) -> list[tuple[int, str, str]]:
        pivot = pivot_of(node.child()) if node.productPrefix() == "Alias" else None
        return [self._column_text(node, select)] if pivot is None else self._pivot_columns(node, pivot, select)

    def _pivoted_number(self, node: JavaObject) -> int | None:
        """The number of the column that an element of a pivot's array is. None for other arrays."""
        array = node.child()
        if array.productPrefix() != "AttributeReference" or array.exprId().id() not in self._pivots:
            return None
        return self._pivots[array.exprId().id()][int(node.ordinal().value())]

    def _column_text(self, node: JavaObject, select: _Select) -> tuple[int, str, str]:
        return node.exprId().id(), self._expression_text(node, select), str(node.name())

    def _expression_text(self, node: JavaObject, select: _Select) -> str:
        name = node.productPrefix()
        match name:
            case "AttributeReference":
                return _column_of(select.scope, node)
            case "Alias" | "KnownNullable" | "KnownNotNull":
                return self._expression_text(node.child(), select)
            case "Literal":
                return literal_text(node)
            case "LambdaFunction":
                names = [self._variable_text(v) for v in items(node.arguments())]
                shown = names[0] if len(names) == 1 else f"({', '.join(names)})"
                return f"{shown} -> {self._expression_text(node.function(), select)}"
            case "NamedLambdaVariable":
                return self._variable_text(node)
            case "AggregateExpression" if pivot_of(node) is not None:
                raise NoTextError("a pivot")
            case "GetArrayItem" if (number := self._pivoted_number(node)) is not None:
                return select.scope[number]
            case "AggregateExpression":
                function = node.aggregateFunction()
                texts = [self._expression_text(a, select) for a in items(function.children())]
                if function.productPrefix() in _OF_ONE_ROW and function.ignoreNulls():
                    texts.append("true")
                args = ", ".join(texts)
                where = option_of(node.filter())
                condition = "" if where is None else f" FILTER (WHERE {self._expression_text(where, select)})"
                return f"{function.prettyName()}({'DISTINCT ' if node.isDistinct() else ''}{args}){condition}"
            case "WindowExpression":
                function, spec = node.windowFunction(), self._window_text(node.windowSpec(), select)
                nulls = " IGNORE NULLS" if function.productPrefix() in _OF_OFFSETS and function.ignoreNulls() else ""
                return f"{self._expression_text(function, select)}{nulls} OVER ({spec})"
            case "UpdateFields":  # withField and dropFields, which no function of SQL does
                return self._expression_text(node.evalExpr(), select)
            case "PythonUDF" | "ScalaUDF" | "ScalarSubquery" | "Exists" | "ListQuery" | "Invoke" | "StaticInvoke":
                raise NoTextError(name)
        children = [] if name in _RANKS else parameters_of(self._sandbox, node)
        return write_node(node, [self._expression_text(c, select) for c in children])

    def _pivot_columns(self, alias: JavaObject, pivot: JavaObject, select: _Select) -> list[tuple[int, str, str]]:
        """A column for each key of a pivot. A group has at most one row per key, so `max` returns its value."""
        key = self._expression_text(pivot.pivotColumn(), select)
        value = self._expression_text(pivot.valueColumn(), select)
        keys = [_constant_text(one, pivot.pivotColumn()) for one in items(pivot.pivotColumnValues())]
        first = -1 - sum(map(len, self._pivots.values()))  # a number that Spark gives to no column
        numbers = self._pivots[alias.exprId().id()] = range(first, first - len(keys), -1)
        return [
            (number, f"max({value}) FILTER (WHERE {key} <=> {one})", f"pivot_{-number}")
            for number, one in zip(numbers, keys, strict=True)
        ]

    def _window_text(self, spec: JavaObject, select: _Select) -> str:
        keys = ", ".join(self._expression_text(e, select) for e in items(spec.partitionSpec()))
        order = ", ".join(self._order_text(o, select) for o in items(spec.orderSpec()))
        frame = (
            ""
            if spec.frameSpecification().productPrefix() == "UnspecifiedFrame$"
            else str(spec.frameSpecification().sql())
        )
        parts = (f"PARTITION BY {keys}" if keys else "", f"ORDER BY {order}" if order else "", frame)
        return " ".join(part for part in parts if part)

    def _order_text(self, order: JavaObject, select: _Select) -> str:
        return f"{self._expression_text(order.child(), select)} {order.direction().sql()} {order.nullOrdering().sql()}"


def _without_conversions(node: JavaObject) -> JavaObject:
    """A part of a session, without the conversions that Spark adds."""
    while node.productPrefix() in ("KnownNullable", "PreciseTimestampConversion", "Cast"):
        node = node.child()
    return node


def _without_wrappers(node: JavaObject) -> JavaObject:
    """A part of a window, without the conversions that Spark adds between moments and numbers."""
    while node.productPrefix() in ("KnownNullable", "PreciseTimestampConversion"):
        node = node.child()
    return node


def _without_cast(node: JavaObject) -> JavaObject:
    return node.child() if node.productPrefix() == "Cast" else node


def _number_of(node: JavaObject) -> int | None:
    """The number of a column; None for another expression."""
    number: int | None = node.exprId().id() if node.productPrefix() == "AttributeReference" else None
    return number


def _interval_text(micros: int) -> str:
    """The text of a time, in its largest unit."""
    unit, size = next((unit, size) for unit, size in _UNITS if micros % size == 0)
    return string_text(f"{micros // size} {unit}{'s' * (micros != size)}")


def _is_expand_of_sets(node: JavaObject) -> bool:
    """Whether a node makes the rows of GROUPING SETS, CUBE or ROLLUP."""
    return node.productPrefix() == "Expand" and any(a.name() == "spark_grouping_id" for a in items(node.output()))


def _columns_of(scope: dict[int, str], output: JavaObject) -> list[tuple[int, str, str]]:
    """Id, text and name of each attribute of an output."""
    return [(a.exprId().id(), _column_of(scope, a), a.name()) for a in items(output)]


def _column_of(scope: dict[int, str], attribute: JavaObject) -> str:
    if (text := scope.get(attribute.exprId().id())) is None:
        raise NoTextError("a column of an outer query")
    return text


def _constant_text(value: object, column: JavaObject) -> str:
    """A value of constant rows, in Catalyst's internal form, as SQL."""
    kind = str(column.dataType().catalogString())
    if value is None:
        return f"CAST(NULL AS {column.dataType().sql()})"
    match kind:
        case "string":
            return string_text(value.toString() if isinstance(value, JavaObject) else str(value))
        case "date":
            return f"date_from_unix_date({value})"
        case "timestamp":
            return f"timestamp_micros({value}L)"
        case "boolean" | "tinyint" | "smallint" | "int" | "bigint" | "float" | "double":
            return f"CAST('{value}' AS {kind})"
        case _ if kind.startswith("decimal"):
            return f"CAST('{value}' AS {kind})"
    raise NoTextError(f"constant rows with a column of type {kind}")


def _is_plain(name: str) -> bool:
    return set(name) <= _PLAIN


def _name_text(name: str) -> str:
    return name if _is_plain(name) and not name[:1].isdigit() and name else quote_name(name)


def _render_select(select: _Select) -> str:
    assert select.columns is not None
    shown = ", ".join(
        text if text.rpartition(".")[2] == _name_text(name) else f"{text} AS {_name_text(name)}"
        for _, text, name in select.columns
    )
    parts = [f"SELECT {'DISTINCT ' if select.distinct else ''}{shown}"]
    if select.source:
        parts.append(f"FROM {select.source}")
    parts += select.generators
    if select.where:
        parts.append("WHERE " + " AND ".join(select.where))
    if select.group:
        parts.append("GROUP BY " + ", ".join(select.group))
    if select.order:
        parts.append("ORDER BY " + ", ".join(select.order))
    if select.limit is not None:
        parts.append(f"LIMIT {select.limit}")
    if select.offset is not None:
        parts.append(f"OFFSET {select.offset}")
    return " ".join(parts)

"""Names of hidden columns in SQL: Spark resolves them, as it does for its own files.

Spark's readers of files expose `_metadata` as a hidden output of the relation, which only a leaf of Spark's own classes
can do. A projection can hide columns too: Spark does so for both keys of a join with USING, and finds them by name
although `*` omits them. So if a text may name a hidden column, each source of files in its parsed plan

    FROM s AS x        SubqueryAlias x (UnresolvedRelation s)

is replaced by a projection to the declared columns, which hides the others, over the alias:

    Project [declared], hides [_metadata, _ingested_at]
      SubqueryAlias x
        Project [declared, named_struct(…) AS _metadata, _ingested_at]
          the source's rows with its hidden columns

The analyzer then resolves names, qualifiers and stars, and widens the projections that a name needs. As for Spark's
own files, it finds the columns through subqueries, but not through groups, set operations, WITH and USING. Texts that
name no hidden column are left alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from py4j.java_gateway import JavaClass, JavaGateway, JavaObject
from pyspark.sql import SparkSession

from tussock.jobs.logical.hidden_columns import (
    INGESTED_AT,
    METADATA,
    HiddenColumn,
    hidden_names,
    mentions_hidden,
    metadata_fields,
)
from tussock.jobs.logical.quoting import quote_name

_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
#: The classes of values in a plan that may contain a plan.
_SHAPES = (
    "org.apache.spark.sql.catalyst.trees.TreeNode",
    "scala.collection.immutable.Seq",
    "scala.Option",
    "scala.Tuple2",
    "scala.Tuple3",
)
#: The rows of a source with its declared columns and the flat hidden ones, as a new Dataset (JVM) in each call. None:
#: no relation of this name has hidden columns.
WideRows = Callable[[str], "tuple[JavaObject, WideColumns] | None"]


@dataclass(frozen=True, slots=True)
class WideColumns:
    """The columns of a source: the declared ones by name, and the hidden ones."""

    declared: tuple[str, ...]
    hidden: tuple[HiddenColumn, ...]

    @property
    def named(self) -> tuple[str, ...]:
        """The names by which SQL reaches the hidden columns."""
        return hidden_names(self.hidden, self.declared)

    def texts(self) -> list[str]:
        """The declared columns, then the named hidden ones, as expressions over the flat columns."""
        made = {METADATA: self._metadata(), INGESTED_AT: quote_name(HiddenColumn.INGESTED_AT.column)}
        return [*map(quote_name, self.declared), *(f"{made[name]} AS {quote_name(name)}" for name in self.named)]

    def _metadata(self) -> str:
        fields = (
            f"'{name}', {'0L' if column is None else quote_name(column.column)}"
            for name, column in metadata_fields(self.hidden)
        )
        return f"named_struct({', '.join(fields)})"


def with_hidden_columns(session: SparkSession, parsed: JavaObject, text: str, rows: WideRows) -> JavaObject:
    """Return a parsed plan in which the sources of files expose their hidden columns.

    Args:
        text: from which the plan was parsed. If it names no hidden column, the plan is returned unchanged.

    Cost: a round trip to the JVM for each value in the parsed plan, if the text may name a hidden column.
    """
    return _Exposing(session, rows).plan(parsed) if mentions_hidden(text) else parsed


class _Exposing:
    """Rebuilds one plan."""

    def __init__(self, session: SparkSession, rows: WideRows) -> None:
        gateway = session.sparkContext._gateway
        assert gateway is not None, "a classic session has its JVM"
        self._gateway: JavaGateway = gateway
        self._jvm, self._rows = gateway.jvm, rows
        self._shapes: dict[str, str] = {}  # by class: the first of _SHAPES that it is
        self._queries: frozenset[str] = frozenset()

    def plan(self, parsed: JavaObject) -> JavaObject:
        """Return the plan with its sources exposed."""
        self._queries = frozenset(_names_of_queries(parsed))
        exposed_plan: JavaObject = self._rebuilt(parsed)
        return exposed_plan

    def _class(self, name: str) -> JavaClass:
        jvm_class: JavaClass = getattr(self._jvm, name)
        return jvm_class

    def _rebuilt(self, value: object) -> object:
        """Return the value with each source in it exposed; the same object if there is none."""
        if not isinstance(value, JavaObject):
            return value
        match self._shape(value):
            case "TreeNode":
                return self._node(value)
            case "Seq":
                return self._several(value, value.iterator(), self._seq)
            case "Option":
                return self._several(value, value.iterator(), lambda items: self._class("scala.Some")(items[0]))
            case "Tuple2" | "Tuple3" as tuples:
                return self._several(
                    value, value.productIterator(), lambda items: self._class(f"scala.{tuples}")(*items)
                )
            case _:
                return value

    def _shape(self, value: JavaObject) -> str:
        name = str(value.getClass().getName())
        if name not in self._shapes:
            kinds = self._class("py4j.reflection.TypeUtil")
            matching_kinds = (kind for kind in _SHAPES if kinds.isInstanceOf(kind, value))
            self._shapes[name] = next(matching_kinds, "").rpartition(".")[2]
        return self._shapes[name]

    def _seq(self, values: list[object]) -> JavaObject:
        seq: JavaObject = self._class("org.apache.spark.api.python.PythonUtils").toSeq(values)
        return seq

    def _several(self, value: JavaObject, within: JavaObject, made: Callable[[list[object]], object]) -> object:
        items = list(_items(within))
        again = [self._rebuilt(item) for item in items]
        return value if all(a is b for a, b in zip(items, again, strict=True)) else made(again)

    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.productPrefix()
        if kind == "UnresolvedRelation":
            return self._exposed(node, None) or node
        if kind == "SubqueryAlias" and node.child().productPrefix() == "UnresolvedRelation":
            return self._exposed(node.child(), node.alias()) or node
        values = list(_items(node.productIterator()))
        again = [self._rebuilt(value) for value in values]
        if all(a is b for a, b in zip(values, again, strict=True)):
            return node
        array = self._gateway.new_array(self._jvm.java.lang.Object, len(again))
        for place, value in enumerate(again):
            array[place] = value
        copy: JavaObject = node.makeCopy(array)
        return copy

    def _exposed(self, relation: JavaObject, alias: str | None) -> JavaObject | None:
        """Return the source that a relation names, with hidden columns; None if it names no source of files."""
        parts = list(_items(relation.multipartIdentifier().iterator()))
        if len(parts) != 1 or str(parts[0]).lower() in self._queries:
            return None
        if (rows_and_columns := self._rows(str(parts[0]))) is None or not rows_and_columns[1].named:
            return None
        rows, columns = rows_and_columns
        wide = rows.selectExpr(self._seq(list(columns.texts())))
        subquery, projection = (
            getattr(self._class(f"{_PLANS}.{name}$"), "MODULE$") for name in ("SubqueryAlias", "Project")
        )
        named = subquery.apply(alias or str(parts[0]), wide.queryExecution().analyzed())
        output, width = named.output(), len(columns.declared)
        project: JavaObject = projection.apply(output.take(width), named)
        project.setTagValue(projection.hiddenOutputTag(), output.drop(width))
        return project


def _names_of_queries(parsed: JavaObject) -> Iterator[str]:
    """Yield the names that WITH defines anywhere in a plan, in lower case. A source of that name is not meant there."""
    pending = [parsed]
    while pending:
        node = pending.pop()
        if node.productPrefix() == "UnresolvedWith":
            for definition in _items(node.cteRelations().iterator()):
                yield str(definition._1()).lower()
        pending += [*_items(node.children().iterator()), *_items(node.innerChildren().iterator())]
        for expression in _items(node.expressions().iterator()):
            pending += _plans_within(expression)


def _plans_within(expression: JavaObject) -> list[JavaObject]:
    plans, pending = [], [expression]
    while pending:
        node = pending.pop()
        if node.productPrefix() in ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"):
            plans.append(node.plan())
        pending += _items(node.children().iterator())
    return plans


def _items(iterator: JavaObject) -> Iterator[JavaObject]:
    while iterator.hasNext():
        yield iterator.next()

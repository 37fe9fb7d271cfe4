"""Rebuild a parsed plan with other nodes in place of the relations that it names.

Catalyst's plans do not change, and their transformations need functions of Scala. So Python copies the plan along the
ways that lead to a relation.
"""

from collections.abc import Callable, Iterator

from py4j.java_gateway import JavaClass, JavaGateway, JavaObject
from pyspark.sql import SparkSession

#: The classes of values in a plan that may contain a plan.
_SHAPES = (
    "org.apache.spark.sql.catalyst.trees.TreeNode",
    "scala.collection.immutable.Seq",
    "scala.Option",
    "scala.Tuple2",
    "scala.Tuple3",
)
#: Catalyst's patterns of the nodes that lead to relations. The queries of a WITH do not count as its children.
_PATTERNS = ("UNRESOLVED_RELATION", "UNRESOLVED_WITH")


class PlanRebuild:
    """Rebuilds one plan. A subclass chooses the new nodes by `exposed`."""

    def __init__(self, session: SparkSession) -> None:
        gateway = session.sparkContext._gateway
        assert gateway is not None, "a classic session has its JVM"
        self._gateway: JavaGateway = gateway
        self._jvm = gateway.jvm
        self._shapes: dict[str, str] = {}  # by class: the first of _SHAPES that it is
        patterns = self.java("org.apache.spark.sql.catalyst.trees.TreePattern")
        self._patterns = [patterns.withName(name) for name in _PATTERNS]
        self.queries: frozenset[str] = frozenset()  # the names that WITH defines anywhere in the plan, in lower case

    def rebuild_plan(self, parsed: JavaObject) -> JavaObject:
        """The plan with new nodes. Cost: some round trips to the JVM per value on the way to a relation."""
        self.queries = frozenset(_names_of_queries(parsed))
        plan = self._rebuilt(parsed)
        assert isinstance(plan, JavaObject)
        return plan

    def exposed(self, relation: JavaObject, alias: JavaObject | None) -> JavaObject | None:
        """The node in place of an UnresolvedRelation, and of the SubqueryAlias over it. None: they stay.

        `alias`: the AliasIdentifier of the SubqueryAlias, if there is one.
        """
        raise NotImplementedError

    def java(self, name: str) -> JavaClass:
        """A class of the JVM by its full name."""
        jvm_class: JavaClass = getattr(self._jvm, name)
        return jvm_class

    def companion(self, name: str) -> JavaObject:
        """The companion object of a class of Scala."""
        companion: JavaObject = getattr(self.java(f"{name}$"), "MODULE$")
        return companion

    def seq(self, values: list[object]) -> JavaObject:
        """A Seq of Scala."""
        seq: JavaObject = self.java("org.apache.spark.api.python.PythonUtils").toSeq(values)
        return seq

    def copy_node(self, node: JavaObject, values: list[object]) -> JavaObject:
        """A node with other values, at the place of the old one in the text."""
        array = self._gateway.new_array(self._jvm.java.lang.Object, len(values))
        for place, value in enumerate(values):
            array[place] = value
        copy: JavaObject = node.makeCopy(array)
        return copy

    def _rebuilt(self, value: object) -> object:
        """The value with new nodes in it; the same object if there are none."""
        if not isinstance(value, JavaObject):
            return value
        match self._shape(value):
            case "TreeNode":
                return self._node(value) if any(map(value.containsPattern, self._patterns)) else value
            case "Seq":
                return self._several(value, value.iterator(), self.seq)
            case "Option":
                return self._several(value, value.iterator(), lambda items: self.java("scala.Some")(items[0]))
            case "Tuple2" | "Tuple3" as tuples:
                return self._several(value, value.productIterator(), lambda items: self.java(f"scala.{tuples}")(*items))
            case _:
                return value

    def _shape(self, value: JavaObject) -> str:
        name = str(value.getClass().getName())
        if name not in self._shapes:
            kinds = self.java("py4j.reflection.TypeUtil")
            matching_kinds = (kind for kind in _SHAPES if kinds.isInstanceOf(kind, value))
            self._shapes[name] = next(matching_kinds, "").rpartition(".")[2]
        return self._shapes[name]

    def _several(self, value: JavaObject, within: JavaObject, made: Callable[[list[object]], object]) -> object:
        values = list(elements_of(within))
        again = [self._rebuilt(item) for item in values]
        return value if all(a is b for a, b in zip(values, again, strict=True)) else made(again)

    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.productPrefix()
        if kind == "UnresolvedRelation":
            return self.exposed(node, None) or node
        if kind == "SubqueryAlias" and node.child().productPrefix() == "UnresolvedRelation":
            return self.exposed(node.child(), node.identifier()) or node
        if kind == "RelationTimeTravel":  # see jobs/sql/time_travel.py
            return node
        values = list(elements_of(node.productIterator()))
        again = [self._rebuilt(value) for value in values]
        return node if all(a is b for a, b in zip(values, again, strict=True)) else self.copy_node(node, again)


def _names_of_queries(parsed: JavaObject) -> Iterator[str]:
    """Yield the names that WITH defines anywhere in a plan, in lower case. A source of that name is not meant there."""
    pending = [parsed]
    while pending:
        node = pending.pop()
        if node.productPrefix() == "UnresolvedWith":
            for definition in elements_of(node.cteRelations().iterator()):
                yield str(definition._1()).lower()
        pending += [*elements_of(node.children().iterator()), *elements_of(node.innerChildren().iterator())]
        for expression in elements_of(node.expressions().iterator()):
            pending += _plans_within(expression)


def _plans_within(expression: JavaObject) -> list[JavaObject]:
    plans, pending = [], [expression]
    while pending:
        node = pending.pop()
        if node.productPrefix() in ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"):
            plans.append(node.plan())
        pending += elements_of(node.children().iterator())
    return plans


def elements_of(iterator: JavaObject) -> Iterator[JavaObject]:
    """The elements of an iterator of Scala."""
    while iterator.hasNext():
        yield iterator.next()

"""Names with a schema in texts for Spark.

A session has each relation as a temporary view, and Spark's temporary views have no schema. So the view of a relation
is named by the whole text, and a parsed plan gets

    FROM staging.orders        SubqueryAlias [staging] orders (UnresolvedRelation [staging.orders])
    FROM staging.orders AS o   SubqueryAlias o (UnresolvedRelation [staging.orders])

An alias with a qualifier is what the analyzer itself gives to a table of a catalog. So it resolves columns
(staging.orders.id, orders.id), stars and fields of structs by its own rules. Texts that name no schema are left
alone.
"""

from collections.abc import Callable
from functools import partial

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, resolve_name, split_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.spark.session import activated_session
from tussock.jobs.sql.parsed_plan import PlanRebuild, elements_of

_CATALYST = "org.apache.spark.sql.catalyst"


def with_qualified_names(
    session: SparkSession, parsed: JavaObject, text: str, is_known: Callable[[str], bool]
) -> JavaObject:
    """A parsed plan in which the names with a schema mean the session's temporary views.

    Args:
        text: from which the plan was parsed. If it names no known relation by its schema, the plan is returned
            unchanged.
        is_known: whether the session has a relation of this name. Spark looks the others up in its own catalogs.

    Cost: as PlanRebuild, if the text names a schema.
    """
    return _Qualifying(session, is_known).rebuild_plan(parsed) if _names_schema(text, is_known) else parsed


def query_rows(session: SparkSession, sql: str) -> DataFrame:
    """The rows of a SELECT, as `SparkSession.sql`, over temporary views with and without schemas. Raises as that."""
    if not _names_schema(sql, partial(_is_view, session)):
        return session.sql(sql)
    with activated_session(session):
        dataset = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
        return DataFrame(dataset.ofRows(session._jsparkSession, parse_query(session, sql)), session)


def parse_query(session: SparkSession, sql: str) -> JavaObject:
    """The parsed plan of a SELECT over temporary views with and without schemas. Raises Spark's own errors."""
    parsed = session._jsparkSession.sessionState().sqlParser().parseQuery(sql)
    return with_qualified_names(session, parsed, sql, partial(_is_view, session))


def _is_view(session: SparkSession, name: str) -> bool:
    return bool(session._jsparkSession.sessionState().catalog().getTempView(name).isDefined())


def _names_schema(text: str, is_known: Callable[[str], bool]) -> bool:
    """Whether a text may name a known relation by its schema."""
    words = [token.value() for token in tokens_of(SourceText(text))]
    pairs = {(schema, name) for schema, point, name in zip(words, words[1:], words[2:], strict=False) if point == "."}
    return any(is_known(resolve_name(pair)) for pair in sorted(pairs))


class _Qualifying(PlanRebuild):
    def __init__(self, session: SparkSession, is_known: Callable[[str], bool]) -> None:
        super().__init__(session)
        self._session, self._is_known = session, is_known

    def exposed(self, relation: JavaObject, alias: JavaObject | None) -> JavaObject | None:
        parts = [str(part) for part in elements_of(relation.multipartIdentifier().iterator())]
        if len(parts) != 2 or not self._is_known(name := resolve_name(parts)):
            return None
        if alias is None:
            schema, own = parts
            own = own.partition(" ")[0]  # a relation at another epoch (jobs/sql/time_travel.py)
            alias = self.java(f"{_CATALYST}.AliasIdentifier")(own, self.seq([schema]))
        named: JavaObject = self.companion(f"{_CATALYST}.plans.logical.SubqueryAlias").apply(
            alias, self._under_own_name(relation, name)
        )
        return named

    def _under_own_name(self, relation: JavaObject, name: str) -> JavaObject:
        """The relation by the name of its view. If a WITH has this name too, by a name that a WITH cannot have."""
        if name in self.queries:
            name = name_beside_with(self._session, name)
        _, *others = elements_of(relation.productIterator())
        return self.copy_node(relation, [self.seq([name]), *others])


def name_beside_with(session: SparkSession, name: str) -> str:
    """Register a relation of the default schema under a second name, for texts whose WITH has its first name."""
    second = f"{DEFAULT_SCHEMA}.{name}"
    session._jsparkSession.table(quote_name(name)).createOrReplaceTempView(quote_name(second))
    return second


def under_alias(session: SparkSession, rows: JavaObject, named: JavaObject) -> JavaObject:
    """A Dataset (JVM) under the alias of a SubqueryAlias of a parsed plan, with its schema."""
    return _under_identifier(session, rows, named.identifier())


def under_own_name(session: SparkSession, rows: JavaObject, relation: str) -> JavaObject:
    """The Dataset (JVM) of a relation of a schema, whose columns may be named by it, as of a table of a catalog."""
    schema, name = split_name(relation)
    schemas = getattr(session._jvm, "org.apache.spark.api.python.PythonUtils").toSeq([schema])
    identifier = getattr(session._jvm, f"{_CATALYST}.AliasIdentifier")(name, schemas)
    return _under_identifier(session, rows, identifier)


def _under_identifier(session: SparkSession, rows: JavaObject, identifier: JavaObject) -> JavaObject:
    companion = getattr(getattr(session._jvm, f"{_CATALYST}.plans.logical.SubqueryAlias$"), "MODULE$")
    plan = companion.apply(identifier, rows.queryExecution().analyzed())
    return getattr(session._jvm, "org.apache.spark.sql.classic.Dataset").ofRows(session._jsparkSession, plan)

"""Texts of statements after USE staging: the names without a schema get this one.

    WITH o AS (SELECT * FROM orders)             WITH o AS (SELECT * FROM staging.orders)
    SELECT * FROM o JOIN shops                   SELECT * FROM o JOIN staging.shops

Spark's parser finds the places. So a stored text means the same wherever it is read again. A statement that Spark's
grammar lacks contains names outside of its SELECT too; those are resolved when they are read (`Cursor.name`).
"""

from collections.abc import Iterator

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA
from tussock.jobs.logical.source_text import SourceText, edit_source
from tussock.jobs.sql.sandbox import Sandbox, items


def with_schema(sandbox: Sandbox, source: SourceText) -> SourceText:
    """A text in which each relation has its schema. The same text in the default schema.

    Raises SqlError for syntax errors.
    """
    if source.schema == DEFAULT_SCHEMA:
        return source
    begins = sorted(set(_plain_names(sandbox.parse_as_written(source), frozenset())))
    return edit_source(source, {(begin, begin): f"{source.schema}." for begin in begins}) if begins else source


def _plain_names(plan: JavaObject, withs: frozenset[str]) -> Iterator[int]:
    """The offsets of the names without a schema that WITH does not define. `withs`: those that it defines here."""
    match plan.productPrefix():
        case "UnresolvedWith":
            for definition in items(plan.cteRelations()):
                yield from _plain_names(definition._2(), withs)
                withs |= {str(definition._1()).lower()}
        case "RelationTimeTravel":
            yield from _plain_names(plan.relation(), withs)
        case "UnresolvedRelation":
            parts = plan.multipartIdentifier()
            if parts.size() == 1 and str(parts.head()).lower() not in withs:
                yield int(plan.origin().startIndex().get())
    for below in [*items(plan.children()), *items(plan.innerChildren())]:  # inner: subqueries
        yield from _plain_names(below, withs)

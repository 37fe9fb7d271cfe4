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

from collections.abc import Callable
from dataclasses import dataclass

from py4j.java_gateway import JavaObject
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
from tussock.jobs.sql.parsed_plan import PlanRebuild, elements_of

_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
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

    Cost: as PlanRebuild, if the text may name a hidden column.
    """
    return _Exposing(session, rows).rebuild_plan(parsed) if mentions_hidden(text) else parsed


class _Exposing(PlanRebuild):
    """Puts projections in place of the sources of files."""

    def __init__(self, session: SparkSession, rows: WideRows) -> None:
        super().__init__(session)
        self._rows = rows

    def exposed(self, relation: JavaObject, alias: JavaObject | None) -> JavaObject | None:
        parts = [str(part) for part in elements_of(relation.multipartIdentifier().iterator())]
        if len(parts) != 1 or parts[0].lower() in self.queries:
            return None
        if (rows_and_columns := self._rows(parts[0])) is None or not rows_and_columns[1].named:
            return None
        rows, columns = rows_and_columns
        wide = rows.selectExpr(self.seq(list(columns.texts())))
        subquery, projection = self.companion(f"{_PLANS}.SubqueryAlias"), self.companion(f"{_PLANS}.Project")
        named = subquery.apply(alias or parts[0], wide.queryExecution().analyzed())
        output, width = named.output(), len(columns.declared)
        project: JavaObject = projection.apply(output.take(width), named)
        project.setTagValue(projection.hiddenOutputTag(), output.drop(width))
        return project

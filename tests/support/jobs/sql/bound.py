"""SQL expressions, bound as in a view."""

from collections.abc import Sequence

import msgspec
from pyspark.sql import SparkSession

from tussock.jobs.logical.nodes import Expr, Field
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.sql.catalyst import bind_projection
from tussock.jobs.sql.sandbox import Sandbox
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind


def bind_expressions(
    spark: SparkSession, columns: Sequence[Field], texts: Sequence[str], time_zone: str = "UTC"
) -> list[Expr]:
    """Bind SQL expressions over some columns. Raises like `bind_view`."""
    relation = Relation(
        1, "t", RelationKind.SOURCE, tuple(ColumnSpec(c.name, c.type) for c in columns), msgspec.Raw(b"{}")
    )
    sandbox = Sandbox(spark, [relation], time_zone)
    source = SourceText("SELECT " + ",\n".join(f"{text} AS c{i}" for i, text in enumerate(texts)) + " FROM t")
    with sandbox.active():
        return list(
            bind_projection(sandbox, source, sandbox.analyze(source, sandbox.parse_query(source)), "an expression")
        )

"""Plain views: names for queries. Spark expands them in each use."""

from collections.abc import Callable

import msgspec
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreatePlainView
from tussock.jobs.sql.qualified_names import query_rows
from tussock.statestore.decoding import decode_json
from tussock.statestore.meta.catalog import Relation

_BEHIND_ALL_TEXT = (
    1_000_000  # characters; offsets in a view's query are greater than the offsets of any statement that uses it
)


class _Definition(msgspec.Struct):
    statement: CreatePlainView


def plain_view_of(relation: Relation) -> CreatePlainView:
    """The statement that created a plain view."""
    return decode_json(relation.definition, _Definition).statement


def register_view(
    session: SparkSession,
    view: CreatePlainView,
    query: str | None = None,
    rows_of: Callable[[str], JavaObject] | None = None,
) -> None:
    """Register the view in a session that has its inputs. Raises Spark's own errors.

    Its columns are fixed at its creation, even if a `*` in it has more columns now.

    Args:
        query: replaces the view's own query.
        rows_of: the Dataset (JVM) of a query in this session, if it may name hidden columns. None: Spark's own.
    """
    text = " " * _BEHIND_ALL_TEXT + (view.sql if query is None else query)
    rows: DataFrame = query_rows(session, text) if rows_of is None else DataFrame(rows_of(text), session)
    picked = (F.col(quote_name(own)).alias(f.name) for own, f in zip(view.columns, view.fields, strict=True))
    rows.select(*picked)._jdf.createOrReplaceTempView(quote_name(view.name))

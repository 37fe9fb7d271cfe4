"""Compute the changes of a statement in the rows of tables, with Spark over the rows that the log leaves."""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tussock.jobs.logical.statements import OP, BoundChange
from tussock.jobs.reading.pending_rows import PendingRows
from tussock.jobs.reading.query import QueryInput, VersionOf, query_session, with_lengths
from tussock.jobs.reading.read import NotThereYetError
from tussock.jobs.reading.reader import open_table, relation_frame, stored_table
from tussock.jobs.sql.change import changed_rows, require_one_row_a_key
from tussock.jobs.sql.sandbox import Sandbox
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.objectstore.base import ObjectStore


def computed_change(
    spark: SparkSession,
    objects: ObjectStore,
    pending: PendingRows,
    sandbox: Sandbox,
    bound: BoundChange,
    version_of: VersionOf,
) -> pa.Table:
    """The rows of a `statements.Change`: `op`, then the table's stored columns.

    Args:
        pending: the rows that it reads.

    Requires: the version's SSTs stay available during the call.
    Raises: NotThereYetError, TwoSourceRowsError, TwoRowsOfOneKeyError, NullKeyError; Spark's own errors.
    Cost: up to three Spark queries over the table, and a read of the keys of the new rows.
    """
    version, epoch = pending.version, pending.sight.epoch
    relation = next(
        (r for r in version.catalog.relations_at(epoch) if (r.name, r.kind) == (bound.table.name, RelationKind.TABLE)),
        None,
    )
    if relation is None:
        raise NotThereYetError(bound.table.name, epoch)
    read = QueryInput(
        objects.uri, version, pending.sight, bound.relations, sandbox.time_zone, bound.at, version_of, pending.rows
    )
    session = query_session(spark, read)
    target = relation_frame(session, objects.uri, version, relation, epoch, hidden=True, in_flight=pending.rows)
    names = [c.name for c in relation.columns]
    names += (f"__hidden_{name}" for name in target.columns[len(names) :])  # a user's column may be named c6
    rows = changed_rows(sandbox, session, with_lengths(target.toDF(*names), relation), bound)
    if bound.table.key and not bound.table.append_only:  # which keeps the first row of a key
        puts = rows.filter(pc.greater(rows[OP], 0)).drop_columns([OP])
        stored = open_table(objects, version, stored_table(relation), epoch, pending.rows.buffer())
        stored_rows = stored.get_rows(puts.select(list(bound.table.key)), columns=())
        require_one_row_a_key(bound.table, rows, stored_rows.found)
    return rows

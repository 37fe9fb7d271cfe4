"""The MERGE that brings a difference into a Delta table, the same for both engines: its source and its conditions."""

import pyarrow as pa

from tussock.jobs.sinks.base import Difference

OPERATION = "_tussock_change"  # the source's column that says what to do; no column of a relation may have its name
WRITTEN, REMOVED = f"s.{OPERATION} = 'write'", f"s.{OPERATION} = 'remove'"


def merge_source(difference: Difference) -> pa.Table:
    """(rows, columns and OPERATION): rows to write, and the keys of rows to remove, in whose other columns is NULL. Every row of it changes
    the table, so a merge of it is never empty."""
    parts = []
    for rows, operation in ((difference.written, "write"), (difference.removed, "remove")):
        parts.append(rows.append_column(OPERATION, pa.repeat(pa.scalar(operation), rows.num_rows)))
    return pa.concat_tables(parts, promote_options="default")

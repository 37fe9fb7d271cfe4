"""The MERGE that applies a difference to a Delta table, for both engines: its source and its conditions."""

import pyarrow as pa

from tussock.jobs.sinks.base import Difference

OPERATION = "_tussock_change"  # the source's column with the operation; no relation may have a column of this name
WRITTEN, REMOVED = f"s.{OPERATION} = 'write'", f"s.{OPERATION} = 'remove'"


def merge_source(difference: Difference) -> pa.Table:
    """Return (rows, columns and OPERATION): rows to write, and keys of rows to remove, with NULL in the other columns.

    Every row changes the table, so a MERGE of it is never empty.
    """
    parts = []
    for rows, operation in ((difference.written, "write"), (difference.removed, "remove")):
        parts.append(rows.append_column(OPERATION, pa.repeat(pa.scalar(operation), rows.num_rows)))
    return pa.concat_tables(parts, promote_options="default")

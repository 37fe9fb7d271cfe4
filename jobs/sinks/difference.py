"""Turn a relation's net changes into rows to remove from a sink and rows to write, by the relation's key."""

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.reading.reader import CHANGE
from tussock.jobs.sinks.base import Difference


def difference_of(changes: pa.Table, key: Sequence[str]) -> Difference:
    """Return the rows to remove and the rows to write.

    Args:
        changes: (changes, columns and CHANGE), net, from `StoredRows.changes`.
        key: the columns that distinguish rows; empty if unknown: `removed` then has no columns.

    A row whose key is also among the inserts is replaced, not removed.
    Cost: one hash join of the changes' keys; nothing if rows were only inserted.
    """
    came = pc.equal(changes[CHANGE], "insert")
    written = changes.filter(came).drop_columns([CHANGE])
    gone = changes.filter(pc.invert(came)).select(list(key))
    if written.num_rows == changes.num_rows or not key:
        return Difference(gone, written, only_new=written.num_rows == changes.num_rows, changes=changes)
    removed = gone.take(pa.array(_positions_without(gone, written.select(list(key)))))
    return Difference(removed, written, only_new=False, changes=changes)


def _positions_without(gone: pa.Table, written: pa.Table) -> np.ndarray:
    """Return the positions in `gone` of keys that are not in `written`. NULL equals NULL, and NaN equals NaN."""
    names = [f"c{i}" for i in range(gone.num_columns)]
    gone = gone.rename_columns(names).append_column("place", pa.array(np.arange(gone.num_rows)))
    same = " AND ".join(f"gone.{name} IS NOT DISTINCT FROM written.{name}" for name in names)
    with duckdb.connect() as connection:
        connection.register("gone", gone)
        connection.register("written", written.rename_columns(names))
        places = connection.sql(f"SELECT place FROM gone ANTI JOIN written ON {same} ORDER BY place").fetchnumpy()[
            "place"
        ]
    return np.asarray(places)
